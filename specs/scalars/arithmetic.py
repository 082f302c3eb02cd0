"""Scalar rows: arithmetic, extrema, powers and roots."""

from __future__ import annotations

from specs.scalars import exact
from specs.scalars.row import (
    ANY,
    FLOAT,
    FLOAT_SPECIAL,
    INF,
    INT,
    INT_SPECIAL,
    NAN,
    NUMBER,
    SCALARS,
    Scalar,
    pairs,
    unary,
)

_DIVISION = ((1.0, 0.1), (-5.0, INF), (7.0, -2.0), (-7.0, 2.0), (5.5, 1.5), (-1.0, 3.0))
_INT_DIVISION = ((7, 2), (-7, 2), (7, -2), (-7, -2), (0, 5), (5, 0), (-128, 127), (-6, 3))
_ZERO = "eager raises for an integer divisor of zero, a kernel gives 0: see the operator's row"

SCALARS.add(
    Scalar(
        "add",
        2,
        exact.add,
        "same",
        ANY,
        numba={
            "float": "({0} + {1})",
            "int": "m.add_{T}({0}, {1})",
            "uint": "m.add_{T}({0}, {1})",
            "bool": "m.or_b1({0}, {1})",
        },
        triton={
            "float": "({0} + {1})",
            "int": "({0} + {1})",
            "uint": "({0} + {1})",
            "bool": "({0} | {1})",
        },
        special=pairs(FLOAT_SPECIAL) + pairs(INT_SPECIAL),
        doc="Integers wrap.",
    )
)
SCALARS.add(
    Scalar(
        "sub",
        2,
        exact.sub,
        "same",
        NUMBER,
        numba={
            "float": "({0} - {1})",
            "int": "m.sub_{T}({0}, {1})",
            "uint": "m.sub_{T}({0}, {1})",
        },
        triton="({0} - {1})",
        special=pairs(FLOAT_SPECIAL) + pairs(INT_SPECIAL),
        doc="Integers wrap.",
    )
)
SCALARS.add(
    Scalar(
        "mul",
        2,
        exact.mul,
        "same",
        ANY,
        numba={
            "float": "({0} * {1})",
            "int": "m.mul_{T}({0}, {1})",
            "uint": "m.mul_{T}({0}, {1})",
            "bool": "m.and_b1({0}, {1})",
        },
        triton={
            "float": "({0} * {1})",
            "int": "({0} * {1})",
            "uint": "({0} * {1})",
            "bool": "({0} & {1})",
        },
        special=pairs(FLOAT_SPECIAL) + pairs(INT_SPECIAL),
        doc="Integers wrap.",
    )
)
SCALARS.add(
    Scalar(
        "fma",
        3,
        exact.fma,
        "same",
        FLOAT,
        numba="m.fma_{T}({0}, {1}, {2})",
        triton="libdevice.fma({0}, {1}, {2})",
        special=((1.0 + 2.0**-23, 1.0 - 2.0**-23, -1.0), (0.3, 2.05, -0.3), (-0.0, 1.0, 0.0)),
        doc="A product and a sum that round once, as eager's kernels do in one expression.",
    )
)
SCALARS.add(
    Scalar(
        "truediv",
        2,
        exact.truediv,
        "same",
        FLOAT,
        numba="({0} / {1})",
        triton={"float32": "tl.div_rn({0}, {1})", "float64": "({0} / {1})"},
        special=pairs(FLOAT_SPECIAL) + _DIVISION,
        doc="Correctly rounded; needs numba's error model `numpy`.",
    )
)
SCALARS.add(
    Scalar(
        "floordiv",
        2,
        exact.floordiv,
        "same",
        NUMBER,
        numba="m.floordiv_{T}({0}, {1})",
        triton={
            "float": "m.floordiv_float({0}, {1})",
            "int": "m.floordiv_int({0}, {1})",
            "uint": "({0} // tl.where({1} == 0, 1, {1}) * ({1} != 0).to(tl.{T})).to(tl.{T})",
        },
        ulp={"float32": 2.0, "float64": 2.0},
        special=pairs(FLOAT_SPECIAL) + _DIVISION + pairs(INT_SPECIAL) + _INT_DIVISION,
        doc="Rounded down: the floor of the exact quotient. Integers: " + _ZERO + ".",
    )
)
SCALARS.add(
    Scalar(
        "truncdiv",
        2,
        exact.truncdiv,
        "same",
        INT,
        numba="m.truncdiv_{T}({0}, {1})",
        triton="({0} // tl.where({1} == 0, 1, {1}) * ({1} != 0).to(tl.{T})).to(tl.{T})",
        special=pairs(INT_SPECIAL) + _INT_DIVISION,
        doc="Rounded towards zero; of floats it is trunc(truediv(x, y)). " + _ZERO.capitalize(),
    )
)
SCALARS.add(
    Scalar(
        "fmod",
        2,
        exact.fmod,
        "same",
        NUMBER,
        numba="m.fmod_{T}({0}, {1})",
        triton={
            "float": "libdevice.fmod({0}, {1})",
            "int": "({0} % tl.where({1} == 0, 1, {1})).to(tl.{T})",
            "uint": "({0} % tl.where({1} == 0, 1, {1})).to(tl.{T})",
        },
        special=pairs(FLOAT_SPECIAL) + _DIVISION + pairs(INT_SPECIAL) + _INT_DIVISION,
        doc="The dividend's sign. Integers: " + _ZERO + ".",
    )
)
SCALARS.add(
    Scalar(
        "remainder",
        2,
        exact.remainder,
        "same",
        NUMBER,
        numba="m.remainder_{T}({0}, {1})",
        triton={
            "float": "m.remainder_float({0}, {1})",
            "int": "m.remainder_int({0}, {1})",
            "uint": "({0} % tl.where({1} == 0, 1, {1}) * ({1} != 0).to(tl.{T})).to(tl.{T})",
        },
        special=pairs(FLOAT_SPECIAL) + _DIVISION + pairs(INT_SPECIAL) + _INT_DIVISION,
        doc="The divisor's sign. Integers: " + _ZERO + ".",
    )
)
SCALARS.add(
    Scalar(
        "neg",
        1,
        exact.neg,
        "same",
        NUMBER,
        numba="m.neg_{T}({0})",
        triton={"float": "({0} * -1.0)", "int": "(-{0})", "uint": "(-{0})"},
        special=unary(FLOAT_SPECIAL + INT_SPECIAL),
        doc="Integers wrap.",
    )
)
SCALARS.add(
    Scalar(
        "abs",
        1,
        exact.absolute,
        "same",
        NUMBER,
        numba="m.abs_{T}({0})",
        triton="tl.abs({0})",
        special=unary(FLOAT_SPECIAL + INT_SPECIAL),
        doc="The smallest integer is its own absolute value.",
    )
)
SCALARS.add(
    Scalar(
        "sign",
        1,
        exact.sign,
        "same",
        ANY,
        numba="m.sign_{T}({0})",
        triton={
            "float": "(({0} > 0).to(tl.{T}) - ({0} < 0).to(tl.{T}))",
            "int": "(({0} > 0).to(tl.{T}) - ({0} < 0).to(tl.{T}))",
            "uint": "({0} > 0).to(tl.{T})",
            "bool": "({0})",
        },
        special=unary(FLOAT_SPECIAL + INT_SPECIAL),
        doc="0 for nan and both zeros.",
    )
)
_EXTREMA = pairs(FLOAT_SPECIAL) + pairs(INT_SPECIAL)
SCALARS.add(
    Scalar(
        "minimum",
        2,
        exact.minimum,
        "same",
        ANY,
        numba="m.minimum_{T}({0}, {1})",
        triton={
            "float": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
            "int": "tl.minimum({0}, {1})",
            "uint": "tl.minimum({0}, {1})",
            "bool": "({0} & {1})",
        },
        special=_EXTREMA,
        doc="nan if either is; the sign of a zero among zeros is free.",
    )
)
SCALARS.add(
    Scalar(
        "maximum",
        2,
        exact.maximum,
        "same",
        ANY,
        numba="m.maximum_{T}({0}, {1})",
        triton={
            "float": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
            "int": "tl.maximum({0}, {1})",
            "uint": "tl.maximum({0}, {1})",
            "bool": "({0} | {1})",
        },
        special=_EXTREMA,
        doc="nan if either is; the sign of a zero among zeros is free.",
    )
)
SCALARS.add(
    Scalar(
        "fmin",
        2,
        exact.fmin,
        "same",
        NUMBER,
        numba="m.fmin_{T}({0}, {1})",
        triton="tl.minimum({0}, {1})",
        special=_EXTREMA,
        doc="The other operand if one is nan.",
    )
)
SCALARS.add(
    Scalar(
        "fmax",
        2,
        exact.fmax,
        "same",
        NUMBER,
        numba="m.fmax_{T}({0}, {1})",
        triton="tl.maximum({0}, {1})",
        special=_EXTREMA,
        doc="The other operand if one is nan.",
    )
)
SCALARS.add(
    Scalar(
        "square",
        1,
        exact.square,
        "same",
        NUMBER,
        numba={
            "float": "({0} * {0})",
            "int": "m.mul_{T}({0}, {0})",
            "uint": "m.mul_{T}({0}, {0})",
        },
        triton="({0} * {0})",
        special=unary(FLOAT_SPECIAL + INT_SPECIAL),
    )
)
SCALARS.add(
    Scalar(
        "pow",
        2,
        exact.power,
        "same",
        NUMBER,
        numba="m.pow_{T}({0}, {1})",
        triton={
            "float": "libdevice.pow({0}, {1})",
            "int": "m.pow_int({0}, {1})",
            "uint": "m.pow_uint({0}, {1})",
        },
        ulp={"float32": 2.0, "float64": 3.0},
        special=pairs((*FLOAT_SPECIAL, 2.0, 0.5, -2.0, 3.0, -3.0, 1e10))
        + pairs((0, 1, -1, 2, 3, -3, 10, 31, 63, 64, 127)),
        doc="C99's pow; integers wrap, a negative exponent gives 0 unless the base is 1 or -1.",
    )
)
SCALARS.add(
    Scalar(
        "reciprocal",
        1,
        exact.reciprocal,
        "same",
        FLOAT,
        numba="m.reciprocal_{T}({0})",
        triton={"float32": "tl.div_rn(1.0, {0})", "float64": "(1.0 / {0})"},
        special=unary(FLOAT_SPECIAL),
        doc="Correctly rounded.",
    )
)
SCALARS.add(
    Scalar(
        "sqrt",
        1,
        exact.sqrt,
        "same",
        FLOAT,
        numba="m.sqrt_{T}({0})",
        triton={"float32": "tl.sqrt_rn({0})", "float64": "libdevice.sqrt_rn({0})"},
        special=unary((*FLOAT_SPECIAL, NAN, 4.0, 2.0)),
        doc="Correctly rounded; nan below zero, -0.0 for itself.",
    )
)
SCALARS.add(
    Scalar(
        "rsqrt",
        1,
        exact.rsqrt,
        "same",
        FLOAT,
        numba="m.rsqrt_{T}({0})",
        triton="libdevice.rsqrt({0})",
        ulp={"float32": 1.5, "float64": 1.5},
        special=unary((*FLOAT_SPECIAL, 4.0, 2.0)),
        doc="1 / sqrt(x), rounded twice as in eager.",
    )
)
