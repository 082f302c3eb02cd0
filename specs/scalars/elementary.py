"""Scalar rows: exponentials, logarithms, trigonometric, hyperbolic and error functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from specs.scalars import exact
from specs.scalars.row import (
    FLOAT,
    FLOAT_SPECIAL,
    INF,
    NAN,
    SCALARS,
    Scalar,
    Template,
    pairs,
    unary,
)


def _row(
    name: str,
    meaning: Callable[..., Any],
    ulp32: float,
    ulp64: float,
    *,
    special: tuple[float, ...] = (),
    domain: tuple[float, float] | None = None,
    triton: Template = "",
    doc: str = "",
    per_dtype: bool = False,
) -> Scalar:
    """A floating function of one operand, ``m.name_{T}`` on the CPU and libdevice's on the GPU."""
    return SCALARS.add(
        Scalar(
            name,
            1,
            meaning,
            "same",
            FLOAT,
            numba=f"m.{name}_{{T}}({{0}})",
            triton=f"libdevice.{name}({{0}})" if triton == "" else triton,
            ulp={"float32": ulp32, "float64": ulp64},
            domain=(domain,) if domain else (),
            special=unary(FLOAT_SPECIAL + special),
            doc=doc,
            per_dtype=per_dtype,
        )
    )


_one, _keep = exact.one, exact.keep
PI = 3.141592653589793

_row(
    "exp",
    exact.elementary("exp", saturates=True, at_inf=INF, at_minus_inf=0.0, at_zero=_one),
    1.0,
    1.0,
    special=(88.72284, 88.73, -87.4, -103.9, -104.5, 709.78, 709.79, -708.5, -745.2, -746.0),
)
_row(
    "exp2",
    exact.exp2,
    1.0,
    1.0,
    special=(127.99, 128.0, -126.5, -149.0, -150.1, 1024.0, -1074.0, -1075.5, 10.0, 0.5),
)
_row(
    "expm1",
    exact.elementary("expm1", saturates=True, at_inf=INF, at_minus_inf=-1.0, at_zero=_keep),
    2.0,
    2.0,
    special=(1e-10, -1e-10, 0.3, -0.3, 0.5, -0.5, 88.73, -20.0, -40.0, 709.79),
)
_row(
    "log",
    exact.elementary(
        "log", at_inf=INF, at_minus_inf=NAN, at_zero=lambda x: -INF, domain=lambda x: x > 0
    ),
    1.0,
    1.0,
    special=(0.99999994, 1.0000001, 2.0, 0.70710677, 1.4142135, 1e-40, 1e-310),
)
_row("log2", exact.log2, 1.0, 1.5, special=(0.99999994, 1.0000001, 2.0, 8.0, 1e-40, 1e-310))
_row("log10", exact.log10, 1.5, 2.0, special=(0.99999994, 1.0000001, 10.0, 1000.0, 1e-40))
_row(
    "log1p",
    exact.elementary(
        "log1p",
        at_inf=INF,
        at_minus_inf=NAN,
        at_zero=_keep,
        domain=lambda x: x > -1,
        poles={-1.0: -INF},
    ),
    1.5,
    2.0,
    special=(1e-10, -1e-10, -0.5, -0.99999994, 0.41421357, -0.29289323, 1e20),
)
_TRIG = (
    *(PI, PI / 2, PI / 4, 1e5, 1e10, 1e22, 3e38, 710.0, 6381956970095103.0 * 2.0**797),
    # both sides of where the kernels change the method, and multiples of pi/2 just below
    *(2.0**17 - 2.0**-7, 2.0**17, 2.0**20 - 2.0**-33, 2.0**20, 83442.0 * PI / 2, 667543.0 * PI / 2),
)
_row(
    "sin",
    exact.elementary("sin", at_inf=NAN, at_minus_inf=NAN, at_zero=_keep),
    1.6,
    1.6,
    special=_TRIG,
)
_row(
    "cos",
    exact.elementary("cos", at_inf=NAN, at_minus_inf=NAN, at_zero=_one),
    1.6,
    1.6,
    special=_TRIG,
)
_row(
    "tan",
    exact.elementary("tan", at_inf=NAN, at_minus_inf=NAN, at_zero=_keep),
    2.5,
    3.5,
    special=_TRIG,
)


def _unit(x: float) -> bool:
    return -1 <= x <= 1


_ARC = (0.5, -0.5, 0.99999994, -0.99999994, 1.0000001, 0.7071, 1e-5)
_row(
    "asin",
    exact.elementary("asin", at_inf=NAN, at_minus_inf=NAN, at_zero=_keep, domain=_unit),
    2.0,
    2.0,
    special=_ARC,
)
_row(
    "acos",
    exact.elementary("acos", at_inf=NAN, at_minus_inf=NAN, domain=_unit),
    2.0,
    2.0,
    special=_ARC,
)
_row(
    "atan",
    exact.elementary("atan", at_inf=PI / 2, at_minus_inf=-PI / 2, at_zero=_keep),
    2.0,
    2.0,
    special=(0.41421357, 2.4142137, 1e10, -1e10, 0.5),
)
SCALARS.add(
    Scalar(
        "atan2",
        2,
        exact.atan2,
        "same",
        FLOAT,
        numba="m.atan2_{T}({0}, {1})",
        triton="libdevice.atan2({0}, {1})",
        ulp={"float32": 2.5, "float64": 3.0},
        special=pairs(FLOAT_SPECIAL),
    )
)
SCALARS.add(
    Scalar(
        "hypot",
        2,
        exact.hypot,
        "same",
        FLOAT,
        numba="m.hypot_{T}({0}, {1})",
        triton="libdevice.hypot({0}, {1})",
        ulp={"float32": 0.51, "float64": 1.5},
        special=pairs(FLOAT_SPECIAL),
        doc="Of float64 libdevice's is infinite where the larger number is the largest that there"
        " is, beside any but zero.",
    )
)
SCALARS.add(
    Scalar(
        "binade",
        1,
        exact.binade,
        "same",
        FLOAT,
        numba="m.binade_{T}({0})",
        triton="m.binade({0})",
        special=unary((*FLOAT_SPECIAL, 2.0**-1022, 3 * 2.0**-1074, 1.9999999, -0.3, 1e300)),
        doc="The largest power of two in the magnitude: over it, a number is at least 1 and less"
        " than 2, exactly.",
    )
)
_row(
    "sinh",
    exact.elementary("sinh", saturates=True, at_inf=INF, at_minus_inf=-INF, at_zero=_keep),
    2.0,
    2.5,
    special=(0.3, 1.0, 88.7, 89.0, 89.4, 89.5, 710.0, 710.4, 711.0, 1e-5),
)
_row(
    "cosh",
    exact.elementary("cosh", saturates=True, at_inf=INF, at_minus_inf=INF, at_zero=_one),
    2.0,
    2.0,
    special=(0.3, 1.0, 88.7, 89.0, 89.4, 89.5, 710.0, 710.4, 711.0),
)
_row(
    "tanh",
    exact.elementary("tanh", saturates=True, at_inf=1.0, at_minus_inf=-1.0, at_zero=_keep),
    2.5,
    2.5,
    special=(0.3, 0.6, 0.7, 9.0, 10.0, 20.0, -20.0, 1e-5),
    triton={"float32": "m.tanh({0})", "float64": "libdevice.tanh({0})"},
)
_row(
    "asinh",
    exact.elementary("asinh", at_inf=INF, at_minus_inf=-INF, at_zero=_keep),
    2.5,
    3.0,
    special=(0.3, -0.3, 1e-5, 1e10, -1e10, 1e300),
)
_row(
    "acosh",
    exact.elementary("acosh", at_inf=INF, at_minus_inf=NAN, domain=lambda x: x >= 1),
    2.5,
    3.0,
    special=(1.0000001, 1.5, 1e10, 0.9999, 1e300),
)
_row(
    "atanh",
    exact.elementary(
        "atanh",
        at_inf=NAN,
        at_minus_inf=NAN,
        at_zero=_keep,
        domain=lambda x: -1 < x < 1,
        poles={1.0: INF, -1.0: -INF},
    ),
    2.5,
    3.0,
    special=_ARC,
)
_row(
    "erf",
    exact.elementary("erf", saturates=True, at_inf=1.0, at_minus_inf=-1.0, at_zero=_keep),
    2.0,
    2.0,
    special=(0.5, 0.84375, 1.0, 1.25, 2.0, 3.9, 4.0, 5.9, 6.0, -6.0, 1e-10),
)
_row(
    "erfc",
    exact.elementary("erfc", saturates=True, at_inf=0.0, at_minus_inf=2.0, at_zero=_one),
    4.0,
    5.0,
    special=(0.5, 1.0, 2.0, 4.0, 9.0, 9.3, 10.0, 10.06, 10.1, 26.0, 26.5, 27.3, -6.0),
)
_row(
    "sigmoid",
    exact.sigmoid,
    2.5,
    2.5,
    triton={
        "float32": "m.sigmoid({0})",
        "float64": "(1.0 / (1.0 + libdevice.exp(-{0})))",
    },
    special=(20.0, -20.0, -88.0, -88.8, -103.0, -104.5, -709.0, -745.0, 0.5),
)
_row(
    "lgamma",
    exact.lgamma,
    2.0,
    4.0,
    domain=(0.0, 1e30),
    special=(0.5, 2.0, 3.0, 1.4616321, 0.99999994, 1.0000001, 1.9999999, 6.0, 5.999, 1e30, 1e305),
)
_row(
    "digamma",
    exact.digamma,
    4.0,
    4.0,
    domain=(0.0, 1e30),
    special=(0.5, 2.0, 3.0, 1.4616321, 0.99999994, 1.4616321449683622, 6.0, 5.999, 1e30, -2.0),
    triton="m.digamma({0})",
)


def _bessel(name: str, order: int, scaled: bool) -> None:
    _row(
        name,
        exact.bessel(order, scaled),
        3.0,
        5.0,
        special=(7.9999, 8.0, -8.0, 15.9999, 16.0, 88.0, 88.8, -88.8, 709.7, 709.8, 1e10, 0.3),
        triton=f"m.{name}({{0}})",
        per_dtype=True,
        doc="nan at the infinities, and infinite where exp of the magnitude is: as ATen."
        if not scaled
        else "Over exp of the magnitude.",
    )


_bessel("i0", 0, False)
_bessel("i0e", 0, True)
_bessel("i1", 1, False)
_bessel("i1e", 1, True)
_row(
    "erfinv",
    exact.erfinv,
    3.0,
    3.0,
    special=(0.5, 0.9, 0.99, 0.999, 0.99999994, -0.99999994, 1e-10, 1.0 - 2.0**-53, 1.5, -7.0),
)
