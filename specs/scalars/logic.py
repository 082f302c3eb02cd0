"""Scalar rows: rounding, comparison, logic, bits, selection, classification and casts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from specs.scalars import exact
from specs.scalars.row import (
    ANY,
    FLOAT,
    FLOAT_SPECIAL,
    INT,
    INT_OR_BOOL,
    INT_SPECIAL,
    SCALARS,
    Scalar,
    Template,
    pairs,
    unary,
)

_HALVES = (0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 8388607.5, 4503599627370495.5, 1e20)


def _rounding(name: str, meaning: Callable[..., Any], triton: str, doc: str = "") -> None:
    SCALARS.add(
        Scalar(
            name,
            1,
            meaning,
            "same",
            FLOAT | INT,
            numba={"float": f"m.{name}_{{T}}({{0}})", "int": "({0})", "uint": "({0})"},
            triton={"float": triton, "int": "({0})", "uint": "({0})"},
            special=unary(FLOAT_SPECIAL + _HALVES),
            doc=doc,
        )
    )


_rounding("floor", exact.floor, "tl.floor({0})")
_rounding("ceil", exact.ceil, "tl.ceil({0})")
_rounding("trunc", exact.trunc, "libdevice.trunc({0})")
_rounding("round", exact.nearest_even, "libdevice.nearbyint({0})", "Halves go to the even number.")
SCALARS.add(
    Scalar(
        "frac",
        1,
        exact.frac,
        "same",
        FLOAT,
        numba="m.frac_{T}({0})",
        triton="({0} - libdevice.trunc({0}))",
        special=unary(FLOAT_SPECIAL + _HALVES),
        doc="x - trunc(x); nan for infinities.",
    )
)


def _comparison(name: str, meaning: Callable[..., Any], symbol: str) -> None:
    SCALARS.add(
        Scalar(
            name,
            2,
            meaning,
            "bool",
            ANY,
            numba=f"({{0}} {symbol} {{1}})",
            triton=f"({{0}} {symbol} {{1}})",
            special=pairs(FLOAT_SPECIAL) + pairs(INT_SPECIAL),
        )
    )


_comparison("eq", exact.eq, "==")
_comparison("ne", exact.ne, "!=")
_comparison("lt", exact.lt, "<")
_comparison("le", exact.le, "<=")
_comparison("gt", exact.gt, ">")
_comparison("ge", exact.ge, ">=")


def _logical(name: str, meaning: Callable[..., Any], operator: str, symbol: str) -> None:
    """Each operand is true where it is not zero (so nan is true); the result is ``bool``."""
    numba = f"m.{operator}_b1(({{0}} != m.zero_{{T}}), ({{1}} != m.zero_{{T}}))"
    number = f"(({{0}} != 0) {symbol} ({{1}} != 0))"
    SCALARS.add(
        Scalar(
            name,
            2,
            meaning,
            "bool",
            ANY,
            numba={
                "float": numba,
                "int": numba,
                "uint": numba,
                "bool": f"m.{operator}_b1({{0}}, {{1}})",
            },
            triton={
                "float": number,
                "int": number,
                "uint": number,
                "bool": f"({{0}} {symbol} {{1}})",
            },
            special=pairs(FLOAT_SPECIAL) + pairs(INT_SPECIAL),
        )
    )


_logical("logical_and", exact.logical_and, "and", "&")
_logical("logical_or", exact.logical_or, "or", "|")
_logical("logical_xor", exact.logical_xor, "xor", "^")
SCALARS.add(
    Scalar(
        "logical_not",
        1,
        exact.logical_not,
        "bool",
        ANY,
        numba={
            "float": "({0} == m.zero_{T})",
            "int": "({0} == m.zero_{T})",
            "uint": "({0} == m.zero_{T})",
            "bool": "m.not_b1({0})",
        },
        triton="({0} == 0)",
        special=unary(FLOAT_SPECIAL + INT_SPECIAL),
    )
)


def _bitwise(name: str, meaning: Callable[..., Any], operator: str, symbol: str) -> None:
    SCALARS.add(
        Scalar(
            name,
            2,
            meaning,
            "same",
            INT_OR_BOOL,
            numba=f"m.{operator}_{{T}}({{0}}, {{1}})",
            triton=f"({{0}} {symbol} {{1}})",
            special=pairs(INT_SPECIAL),
        )
    )


_bitwise("bitwise_and", exact.bitwise_and, "and", "&")
_bitwise("bitwise_or", exact.bitwise_or, "or", "|")
_bitwise("bitwise_xor", exact.bitwise_xor, "xor", "^")
SCALARS.add(
    Scalar(
        "bitwise_not",
        1,
        exact.bitwise_not,
        "same",
        INT_OR_BOOL,
        numba="m.not_{T}({0})",
        triton={"int": "(~{0})", "uint": "(~{0})", "bool": "({0} == 0)"},
        special=unary(INT_SPECIAL),
    )
)

_COUNTS = tuple(
    (x, y) for x in (0, 1, -1, 100, -100, 127) for y in (0, 1, 7, 8, 31, 32, 63, 64, -1)
)


def _shift(name: str, meaning: Callable[..., Any], numba: str, triton: Template, doc: str) -> None:
    SCALARS.add(
        Scalar(
            name,
            2,
            meaning,
            "same",
            INT,
            numba=numba,
            triton=triton,
            per_dtype=True,
            special=_COUNTS,
            doc=doc,
        )
    )


_WIDTH = "tl.{T}.primitive_bitwidth"
_INSIDE = f"(({{1}} >= 0) & ({{1}} < {_WIDTH}))"
_SAFE = f"tl.where({_INSIDE}, {{1}}, 0)"
_shift(
    "lshift",
    exact.shift_left,
    "m.lshift_{T}({0}, {1})",
    f"tl.where({_INSIDE}, {{0}} << {_SAFE}, 0)",
    "0 for a count outside the width.",
)
_shift(
    "rshift",
    exact.shift_right,
    "m.rshift_{T}({0}, {1})",
    {
        "int": f"({{0}} >> tl.where({_INSIDE}, {{1}}, {_WIDTH} - 1))",
        "uint": f"tl.where({_INSIDE}, {{0}} >> {_SAFE}, 0)",
    },
    "Arithmetic; a count outside the width leaves the sign.",
)
SCALARS.add(
    Scalar(
        "where",
        3,
        exact.where,
        "same",
        ANY,
        numba="m.where_{T}({0}, {1}, {2})",
        triton="tl.where({0}, {1}, {2})",
        special=tuple(
            (c, x, y) for c in (True, False) for x in FLOAT_SPECIAL for y in FLOAT_SPECIAL
        ),
        doc="The first operand is a bool, the others are of the computing dtype.",
    )
)


def _class(name: str, meaning: Callable[..., Any], triton: str, integer: str, **numba: str) -> None:
    SCALARS.add(
        Scalar(
            name,
            1,
            meaning,
            "bool",
            ANY,
            numba={
                "float": f"m.{name}_{{T}}({{0}})",
                **dict.fromkeys(_NOT_FLOAT, integer),
                **numba,
            },
            triton={"float": triton, **dict.fromkeys(_NOT_FLOAT, _TRITON_CONSTANT[integer])}
            | ({"int": "({0} < 0)"} if numba else {}),
            special=unary(FLOAT_SPECIAL + INT_SPECIAL),
        )
    )


_NOT_FLOAT = ("int", "uint", "bool")
_TRITON_CONSTANT = {"m.false": "({0} != {0})", "m.true": "({0} == {0})"}
_class("isnan", exact.isnan, "({0} != {0})", "m.false")
_class("isinf", exact.isinf, '(tl.abs({0}) == float("inf"))', "m.false")
_class("isfinite", exact.isfinite, '(tl.abs({0}) < float("inf"))', "m.true")
_class(
    "signbit",
    exact.signbit,
    "(libdevice.signbit({0}) != 0)",
    "m.false",
    int="({0} < m.zero_{T})",
)
SCALARS.add(
    Scalar(
        "copysign",
        2,
        exact.copysign,
        "same",
        FLOAT,
        numba="m.copysign_{T}({0}, {1})",
        triton="libdevice.copysign({0}, {1})",
        special=pairs(FLOAT_SPECIAL),
    )
)
SCALARS.add(
    Scalar(
        "cast",
        1,
        exact.cast,
        "target",
        ANY,
        numba="m.cast_{S}_{T}({0})",
        triton="{0}.to(tl.{T})",
        per_dtype=True,
        special=unary(FLOAT_SPECIAL + INT_SPECIAL + (0.9, -0.9, 300.0, -300.0, 3e9, 1e19)),
        doc="From the computing dtype {S} to {T}, which may be f16 or bf16 and then rounds only. "
        "Floats truncate towards zero; outside the target's range as x86 converts.",
    )
)


#: Integers that eager's kernels make of floats by way of longer ones, whose ends count: in a
#: conversion to what is shorter, CUDA's instructions stop at the ends of that.
_BY_WAY_OF = {"int8": "int32", "int16": "int32", "uint8": "int64"}


def cast_text(printer: str, source: str, target: str, operand: str) -> str:
    """``operand``, a value of dtype ``source``, cast to ``target``, as source text.

    A value of a reduced float is a float32 that is already rounded, so casting to one rounds and
    stays float32, and casting from one is casting from float32. Of a float of one byte the value is
    that byte, and the other side is float32.
    """
    from specs import dtypes
    from specs.scalars.row import NUMBA_SUFFIX, TRITON_TYPE

    row = SCALARS["cast"]
    if printer == "numba":
        short = {"float16": "f16", "bfloat16": "bf16"} | {name: name for name in dtypes.BYTES}
        origin, suffix = NUMBA_SUFFIX[source], short.get(target, NUMBA_SUFFIX[target])
        if source in dtypes.BYTES:
            origin = source
        if origin == suffix:
            return operand
        return str(row.numba).format(operand, S=origin, T=suffix)
    if source == target:
        return operand
    if source in dtypes.BYTES:
        return f"m.of_{source}({operand}, NARROW)"
    if target in dtypes.BYTES:
        return f"m.to_{target}({operand}, NARROW)"
    if dtypes.compute_dtype(target) != target:
        single = operand if source == "float32" else f"{operand}.to(tl.float32)"
        return f"{single}.to(tl.{target}).to(tl.float32)"
    if target == "bool":
        return f"({operand} != 0)"
    if dtypes.is_float(source) and target in _BY_WAY_OF:
        operand = str(row.triton).format(operand, T=_BY_WAY_OF[target])
    return str(row.triton).format(operand, T=TRITON_TYPE[target])
