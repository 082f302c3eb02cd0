"""Minimax polynomials for the kernels' elementary functions: where ``coefficients.py`` comes from.

``python -m fastpath.cpu.maths.minimax`` rewrites that file, and ``fastpath/gpu/polynomials.py``
(needs mpmath, takes a minute); a name after it prints only that polynomial. The method is Remez'
exchange on a dense grid in multiple precision; leading coefficients that the algorithm needs exact
are divided out of the target, and coefficients are rounded to the kernel's dtype one by one, each
time fitting the rest again.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mpmath import mp, mpf

mp.dps = 50
Function = Callable[[Any], Any]


@dataclass(frozen=True)
class Target:
    """``f(t)`` on ``[low, high]`` as a polynomial of ``degree``; the error is scaled by ``weight``.

    ``dtype`` is ``f32`` or ``f64``.
    """

    f: Function
    weight: Function
    low: Any
    high: Any
    degree: int
    dtype: str


def rounded(value: Any, dtype: str) -> Any:
    """``value`` to the nearest number of the dtype (normal range)."""
    if value == 0:
        return mpf(0)
    bits = 24 if dtype == "f32" else 53
    scale = mpf(2) ** (bits - 1 - int(mp.floor(mp.log(abs(value), 2))))
    return mp.nint(value * scale) / scale


def remez(
    f: Sequence[Any], weight: Sequence[Any], grid: Sequence[Any], powers: Sequence[int]
) -> tuple[list[Any], Any]:
    """Coefficients of ``powers`` that minimise the largest weighted error on the grid, and it."""
    count = len(powers) + 1
    last = len(grid) - 1
    nodes = [round(last * (1 - mp.cos(mp.pi * i / (count - 1))) / 2) for i in range(count)]
    for _ in range(40):
        matrix, right = mp.matrix(count, count), mp.matrix(count, 1)
        for row, node in enumerate(nodes):
            for column, power in enumerate(powers):
                matrix[row, column] = grid[node] ** power
            matrix[row, count - 1] = (-1) ** row / weight[node]
            right[row] = f[node]
        solution = mp.lu_solve(matrix, right)
        coefficients = [solution[i] for i in range(count - 1)]
        level = abs(solution[count - 1])
        errors = [
            (sum(c * x**p for c, p in zip(coefficients, powers, strict=True)) - fx) * w
            for x, fx, w in zip(grid, f, weight, strict=True)
        ]
        extrema = _alternation(errors, count)
        worst = max(abs(e) for e in errors)
        if extrema is None or worst <= level * (1 + mpf("1e-3")):
            return coefficients, worst
        nodes = extrema
    return coefficients, worst


def _alternation(errors: list[Any], count: int) -> list[int] | None:
    """One extremum per run of equal sign, cut down to ``count`` by dropping small ends."""
    best: list[int] = []
    for i, error in enumerate(errors):
        if best and (errors[best[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[best[-1]]):
                best[-1] = i
        else:
            best.append(i)
    while len(best) > count:
        best.pop(0 if abs(errors[best[0]]) < abs(errors[best[-1]]) else -1)
    return best if len(best) == count else None


def fit(target: Target, points: int = 0) -> tuple[list[Any], Any]:
    """Coefficients of ``target``, lowest first, in its dtype, and their largest weighted error."""
    points = points or 24 * (target.degree + 2)
    low, high = mpf(target.low), mpf(target.high)
    grid = [
        low + (high - low) * (1 - mp.cos(mp.pi * (i + mpf(1) / 2) / points)) / 2
        for i in range(points)
    ]
    f = [target.f(x) for x in grid]
    weight = [target.weight(x) for x in grid]
    fixed, _ = remez(f, weight, grid, range(target.degree + 1))
    if target.dtype == "f32":
        fixed = _refitted(fixed, f, weight, grid)
    fixed = [rounded(c, target.dtype) for c in fixed]
    errors = [
        abs(sum(c * x**p for p, c in enumerate(fixed)) - fx) * w
        for x, fx, w in zip(grid, f, weight, strict=True)
    ]
    return fixed, max(errors)


def _refitted(
    coefficients: list[Any], f: Sequence[Any], weight: Sequence[Any], grid: Sequence[Any]
) -> list[Any]:
    """Round the coefficients to single precision lowest first, each time fitting the others again.

    The fit is of least squares in double precision, weighted by where the error is large.
    """
    x = np.array(grid, dtype=np.float64)
    scale = np.array(weight, dtype=np.float64)
    target = np.array(
        [
            fx - sum(c * g**p for p, c in enumerate(coefficients))
            for fx, g in zip(f, grid, strict=True)
        ],
        dtype=np.float64,
    )
    result = np.array(coefficients, dtype=np.float64)
    for fixed in range(len(result)):
        exact = result[fixed]
        result[fixed] = np.float32(exact)
        target = target + (exact - result[fixed]) * x**fixed
        powers = np.arange(fixed + 1, len(result))
        if not len(powers):
            break
        emphasis = np.ones_like(x)
        columns = x[:, None] ** powers
        for _ in range(30):
            w = scale * emphasis
            change = np.linalg.lstsq(columns * w[:, None], target * w, rcond=None)[0]
            error = np.abs(target - columns @ change) * scale
            emphasis *= np.sqrt(error / error.max() + 1e-3)
            emphasis /= emphasis.max()
        result[powers] += change
        target = target - columns @ change
    return [mpf(c) for c in result]


def _series(terms: int, coefficient: Callable[[int], Any]) -> Function:
    """A power series, for targets that cancel near 0."""
    values = [coefficient(k) for k in range(terms)]
    return lambda x: mp.polyval(values[::-1], x)


_HALF_LN2 = mp.log(2) / 2
_exp_tail = _series(30, lambda k: 1 / mp.factorial(k + 2))  # (exp(r) - 1 - r) / r**2
_exp2_tail = _series(40, lambda k: mp.log(2) ** (k + 1) / mp.factorial(k + 1))  # (2**r - 1) / r
_sin_tail = _series(20, lambda k: (-1) ** (k + 1) / mp.factorial(2 * k + 3))  # in r**2
_cos_tail = _series(20, lambda k: (-1) ** k / mp.factorial(2 * k + 4))  # (cos r - 1 + r2/2) / r4
_atanh_tail = _series(90, lambda k: mpf(2) / (2 * k + 3))  # (2 atanh(s) - 2 s) / s**3, in s**2
_atanh_rest = _series(90, lambda k: mpf(2) / (2 * k + 5))  # what follows its 2/3, over s**2


def _log_tail(f: Any) -> Any:
    """(log(1 + f) - f + f**2 / 2) / f**3."""
    if abs(f) < mpf("1e-6"):
        return sum((-1) ** k * f**k / (k + 3) for k in range(8))
    return (mp.log(1 + f) - f + f * f / 2) / f**3


def _log_of_sum(t: Any) -> Any:
    """log(1 + x) / x as a function of x - 1/2, for x from 0 to 1."""
    x = t + mpf(1) / 2
    return mp.log1p(x) / x if x > _NEAR else 1 - x / 2


def _odd_tail(function: Function, slope: Any = 1) -> Function:
    """(function(x) - slope x) / x**3 as a function of x**2."""

    def tail(z: Any) -> Any:
        with mp.workdps(90):
            x = mp.sqrt(max(z, mpf("1e-24")))
            return (function(x) - slope * x) / x**3

    return tail


def _erf_ratio(z: Any) -> Any:
    """erf(x) / x - 1 as a function of x**2."""
    x = mp.sqrt(max(z, mpf("1e-40")))
    return mp.erf(x) / x - 1


_ERF_SPLIT = mpf("0.9")
_ERFC_CENTRE = mpf(3)
_ERFC_END = mpf(28)


def _erfcx(t: Any) -> Any:
    """erfc(t) * exp(t**2) * (1 + 2t), which is between 1 and 1.2 and smooth to infinity."""
    with mp.workdps(60):
        value = mp.erfc(t) * mp.exp(t * t) * (1 + 2 * t)
    return value


def _erfcx_mapped(u: Any) -> Any:
    """The same as a function of u = (t - c) / (t + c)."""
    return _erfcx(_ERFC_CENTRE * (1 + u) / (1 - u))


def _mapped(t: Any) -> Any:
    return (t - _ERFC_CENTRE) / (t + _ERFC_CENTRE)


def _one(x: Any) -> Any:
    return mpf(1)


# -- special functions ----------------------------------------------------------------------------


def _bessel(order: int, most: int) -> Function:
    """I0(x), or I1(x) / x, as a function of (x / most)**2: a series without cancellation."""
    return lambda z: mp.hyp0f1(order + 1, mpf(most) ** 2 * z / 4) / 2**order


def _bessel_tail(order: int) -> Function:
    """exp(-x) sqrt(x) I(x) as a function of 1 / x."""

    def tail(u: Any) -> Any:
        with mp.workdps(60):
            return mp.besseli(order, 1 / u) * mp.exp(-1 / u) * mp.sqrt(1 / u)

    return tail


_DIGAMMA_ROOT = mp.findroot(mp.digamma, 1.4616)
_GAMMA_CENTRE = mpf(3.5)
_GAMMA_SPLIT = 6  # from where the asymptotic series are used


def _gamma_mapped(x: Any) -> Any:
    """1 is -1, and the poles, from 0 down, are far away."""
    return (x - 1 - _GAMMA_CENTRE) / (x - 1 + _GAMMA_CENTRE)


def _of_gamma_mapped(function: Function) -> Function:
    return lambda v: function(1 + _GAMMA_CENTRE * (1 + v) / (1 - v))


@_of_gamma_mapped
def _lgamma_ratio(x: Any) -> Any:
    """lgamma(x) / ((x - 1) (x - 2)), times what the mapping divides by."""
    if abs(x - 1) < mpf("1e-20"):
        return _GAMMA_CENTRE * mp.euler
    return mp.loggamma(x).real / ((x - 1) * (x - 2)) * (x + _GAMMA_CENTRE - 1)


@_of_gamma_mapped
def _digamma_ratio(x: Any) -> Any:
    """digamma(x) over its distance from the root, times the same."""
    return mp.digamma(x) / (x - _DIGAMMA_ROOT) * (x + _GAMMA_CENTRE - 1)


def _stirling(z: Any) -> Any:
    """What Stirling's formula leaves of lgamma(x), times x, as a function of 1 / x**2."""
    x = 1 / mp.sqrt(z)
    with mp.workdps(90):
        rest = mp.loggamma(x) - ((x - mpf(1) / 2) * mp.log(x) - x + mp.log(2 * mp.pi) / 2)
    return rest * x


def _digamma_tail(z: Any) -> Any:
    """(log(x) - 1 / (2 x) - digamma(x)) x**2 as a function of 1 / x**2."""
    x = 1 / mp.sqrt(z)
    with mp.workdps(90):
        return (mp.log(x) - 1 / (2 * x) - mp.digamma(x)) * x * x


def _sinpi_ratio(z: Any) -> Any:
    """sin(pi r) / (pi r) as a function of r**2."""
    r = mp.pi * mp.sqrt(max(z, mpf("1e-40")))
    return mp.sin(r) / r


def _erfinv_ratio(w: Any) -> Any:
    """erfinv(x) / x with w = -log(1 - x**2)."""
    if w < mpf("1e-30"):
        return mp.sqrt(mp.pi) / 2
    x = mp.sqrt(-mp.expm1(-w))
    if w < 1:
        return mp.erfinv(x) / x
    wanted = -w - mp.log1p(x)  # log(1 - x)
    y = mp.sqrt(w)
    while True:
        beyond = mp.erfc(y)
        step = (mp.log(beyond) - wanted) * beyond * mp.exp(y * y) * mp.sqrt(mp.pi) / 2
        y += step
        if abs(step) < mpf("1e-40"):
            return y / x


def _erfinv(centre: Any, root: bool = False) -> Function:
    """The same of t with w = t + centre, or w = (t + centre)**2."""
    return lambda t: _erfinv_ratio((t + centre) ** 2 if root else t + centre)


def _relative(f: Function, low: Any, high: Any, degree: int, dtype: str) -> Target:
    """``f``, whose error is scaled by itself."""
    return Target(f, lambda t: 1 / f(t), low, high, degree, dtype)


_GAMMA_END = _gamma_mapped(mpf(_GAMMA_SPLIT))
_NEAR = mpf("1e-9")


_S = mp.sqrt(2)
_S2 = ((_S - 1) / (_S + 1)) ** 2  # s**2 for m up to sqrt(2), s = (m - 1) / (m + 1)

TARGETS: dict[str, Target] = {
    "EXP_F32": Target(
        _exp_tail, lambda r: r**2 / mp.exp(r), -_HALF_LN2 * 1.001, _HALF_LN2 * 1.001, 4, "f32"
    ),
    "EXP_F64": Target(
        _exp_tail, lambda r: r**2 / mp.exp(r), -_HALF_LN2 * 1.001, _HALF_LN2 * 1.001, 9, "f64"
    ),
    "EXP2_F32": Target(_exp2_tail, lambda r: max(abs(r), mpf("0.05")), -0.5, 0.5, 5, "f32"),
    "EXP2_F64": Target(_exp2_tail, lambda r: max(abs(r), mpf("0.05")), -0.5, 0.5, 11, "f64"),
    "EXPM1_F32": Target(
        _exp_tail,
        lambda r: max(abs(r), mpf("0.05")),
        -_HALF_LN2 * 1.001,
        _HALF_LN2 * 1.001,
        5,
        "f32",
    ),
    "EXPM1_F64": Target(
        _exp_tail,
        lambda r: max(abs(r), mpf("0.05")),
        -_HALF_LN2 * 1.001,
        _HALF_LN2 * 1.001,
        10,
        "f64",
    ),
    "LOG_F32": Target(
        _log_tail,
        lambda f: abs(f**3 / mp.log(1 + f)) + mpf("1e-6"),
        1 / _S - 1,
        _S - 1,
        8,
        "f32",
    ),
    "LOG_F64": Target(_atanh_tail, lambda z: z + mpf("1e-9"), 0, _S2, 7, "f64"),
    "POW_F64": Target(_atanh_rest, lambda z: z**2 + mpf("1e-9"), 0, _S2, 8, "f64"),
    "SIN_F32": Target(_sin_tail, lambda z: z + mpf("1e-9"), 0, (mp.pi / 4) ** 2, 2, "f32"),
    "SIN_F64": Target(_sin_tail, lambda z: z + mpf("1e-9"), 0, (mp.pi / 4) ** 2, 5, "f64"),
    "COS_F32": Target(_cos_tail, lambda z: z**2 + mpf("1e-9"), 0, (mp.pi / 4) ** 2, 2, "f32"),
    "COS_F64": Target(_cos_tail, lambda z: z**2 + mpf("1e-9"), 0, (mp.pi / 4) ** 2, 5, "f64"),
    "ERF_F32": Target(_erf_ratio, _one, 0, _ERF_SPLIT**2, 5, "f32"),
    "ERF_F64": Target(_erf_ratio, _one, 0, _ERF_SPLIT**2, 12, "f64"),
    "ERF_TAIL_F32": Target(
        lambda t: mp.log(mp.erfc(t), 2),
        lambda t: mp.erfc(t) / mp.erf(t),
        mpf("0.89"),
        4,
        6,
        "f32",
    ),
    "ERF_POWER_F32": Target(_exp2_tail, lambda r: max(abs(r), mpf("0.05")), -0.5, 0.5, 4, "f32"),
    "ERFC_F64": Target(_erfcx_mapped, _one, _mapped(mpf(0)), _mapped(_ERFC_END), 22, "f64"),
    "ATAN_F64": Target(
        _odd_tail(mp.atan), lambda z: z + mpf("1e-9"), 0, (mp.sqrt(2) - 1) ** 2, 11, "f64"
    ),
    "ASIN_F64": Target(_odd_tail(mp.asin), lambda z: z + mpf("1e-9"), 0, 0.25, 12, "f64"),
    "SINH_F64": Target(_odd_tail(mp.sinh), lambda z: z + mpf("1e-9"), 0, 1, 7, "f64"),
    "ASINH_F64": Target(_odd_tail(mp.asinh), lambda z: z + mpf("1e-9"), 0, 0.25, 13, "f64"),
    "I0_F32": _relative(_bessel(0, 8), 0, 1, 10, "f32"),
    "I0_F64": _relative(_bessel(0, 16), 0, 1, 22, "f64"),
    "I0_TAIL_F32": _relative(_bessel_tail(0), _NEAR, mpf(1) / 8, 6, "f32"),
    "I0_TAIL_F64": _relative(_bessel_tail(0), _NEAR, mpf(1) / 16, 14, "f64"),
    "I1_F32": _relative(_bessel(1, 8), 0, 1, 9, "f32"),
    "I1_F64": _relative(_bessel(1, 16), 0, 1, 23, "f64"),
    "I1_TAIL_F32": _relative(_bessel_tail(1), _NEAR, mpf(1) / 8, 6, "f32"),
    "I1_TAIL_F64": _relative(_bessel_tail(1), _NEAR, mpf(1) / 16, 14, "f64"),
    "LGAMMA_F64": _relative(_lgamma_ratio, -1, _GAMMA_END, 26, "f64"),
    "LGAMMA_F32": _relative(_lgamma_ratio, -1, _GAMMA_END, 14, "f64"),  # computed in float64
    "STIRLING_F64": Target(_stirling, _one, _NEAR, mpf(1) / _GAMMA_SPLIT**2, 6, "f64"),
    "STIRLING_F32": Target(_stirling, _one, _NEAR, mpf(1) / _GAMMA_SPLIT**2, 2, "f64"),
    "DIGAMMA_F32": _relative(_digamma_ratio, -1, _GAMMA_END, 13, "f32"),
    "DIGAMMA_F64": _relative(_digamma_ratio, -1, _GAMMA_END, 25, "f64"),
    "DIGAMMA_TAIL_F32": Target(_digamma_tail, _one, _NEAR, mpf(1) / _GAMMA_SPLIT**2, 2, "f32"),
    "DIGAMMA_TAIL_F64": Target(_digamma_tail, _one, _NEAR, mpf(1) / _GAMMA_SPLIT**2, 6, "f64"),
    "LOG_OF_SUM_F32": _relative(_log_of_sum, -0.5, 0.5, 10, "f32"),
    "LOG_OF_SUM_F64": _relative(_log_of_sum, -0.5, 0.5, 21, "f64"),
    "SINPI_F32": _relative(_sinpi_ratio, 0, 0.25, 4, "f32"),
    "SINPI_F64": _relative(_sinpi_ratio, 0, 0.25, 8, "f64"),
    "ERFINV_F32": _relative(_erfinv(3), -3, 3.25, 11, "f32"),
    "ERFINV_MIDDLE_F32": _relative(_erfinv(mpf(3.25), True), -0.77, 0.75, 8, "f32"),
    "ERFINV_F64": _relative(_erfinv(mpf(3.125)), -3.125, 3.125, 25, "f64"),
    "ERFINV_MIDDLE_F64": _relative(_erfinv(mpf(3.25), True), -0.77, 0.75, 20, "f64"),
    "ERFINV_TAIL_F64": _relative(_erfinv(mpf(5), True), -1, 1.02, 19, "f64"),
}


def pieces(value: Any, *bits: int) -> list[Any]:
    """``value`` as a sum of numbers with so many significant bits, each the nearest to the rest."""
    result = []
    for count in bits:
        scale = mpf(2) ** (count - 1 - int(mp.floor(mp.log(abs(value), 2))))
        result.append(mp.nint(value * scale) / scale)
        value -= result[-1]
    return result


# The leading pieces leave room for exact products with the integer that range reduction found.
CONSTANTS: dict[str, list[Any]] = {
    "LN2_F32": pieces(mp.log(2), 15, 24),
    "LN2_F64": pieces(mp.log(2), 41, 53),
    "LN2": pieces(mp.log(2), 53, 53),
    "LOG2E": pieces(1 / mp.log(2), 30, 53),
    "LOG10E": pieces(1 / mp.log(10), 30, 53),
    "LOG10_2": pieces(mp.log(2) / mp.log(10), 41, 53),
    "PI": pieces(mp.pi, 53, 53),
    "HALF_PI": pieces(mp.pi / 2, 53, 53),
    "HALF_PI_F32": pieces(mp.pi / 2, 24, 24, 24),
    "HALF_PI_WIDE": pieces(mp.pi / 2, 30, 53),
    "HALF_PI_F64": pieces(mp.pi / 2, 33, 33, 53),
    "THIRD": pieces(mpf(2) / 3, 53, 53),
    "DIGAMMA_ROOT_F32": pieces(_DIGAMMA_ROOT, 24, 24),
    "DIGAMMA_ROOT_F64": pieces(_DIGAMMA_ROOT, 53, 53),
    "HALF_LOG_2PI": pieces(mp.log(2 * mp.pi) / 2, 53),
}


#: The polynomials that Triton kernels have too, of either dtype: a function each.
ON_GPU = ("I0", "I0_TAIL", "I1", "I1_TAIL", "DIGAMMA", "DIGAMMA_TAIL", "SINPI", "LOG_OF_SUM")


def triton_module(found: dict[str, list[Any]]) -> str:
    """Horner's rule in Triton's words: its interpreter knows no loop over numbers. What a function
    is given as a literal has 32 bits there, whatever its other operands have."""
    lines = [
        '"""Written by ``python -m fastpath.cpu.maths.minimax``: polynomials by Horner\'s rule."""',
        "",
        "import triton",
        "import triton.language as tl",
        *("", "", "@triton.jit", "def _wide(number):"),
        "    return tl.full([], number, tl.float64)",
    ]
    for name in ON_GPU:
        lines += ["", "", "@triton.jit", f"def {name.lower()}(t):", "    if t.dtype == tl.float64:"]
        for dtype in ("F64", "F32"):
            *rest, second, last = found[f"{name}_{dtype}"]
            number = "_wide({})" if dtype == "F64" else "{}"
            texts = [number.format(_text(c)) for c in (last, second, *rest[::-1])]
            lines.append(f"        p = tl.fma(t, {texts[0]}, {texts[1]})")
            lines += [f"        p = tl.fma(p, t, {text})" for text in texts[2:]]
            lines += ["    else:"] if dtype == "F64" else []
        lines.append("    return p")
    return "\n".join(lines) + "\n"


def main(names: Sequence[str]) -> None:
    if names:
        for name in names:
            coefficients, error = fit(TARGETS[name])
            print(name, mp.nstr(mp.log(error, 2), 5), [_text(c) for c in coefficients])
        return
    lines = [
        '"""Written by ``python -m fastpath.cpu.maths.minimax``: coefficients, lowest first."""'
    ]
    found = {}
    for name, target in TARGETS.items():
        coefficients, error = fit(target)
        found[name] = coefficients
        bits = mp.nstr(-mp.log(error, 2), 4)
        lines += ["", f"# degree {target.degree}, weighted error 2**-{bits}", f"{name} = ("]
        lines += [f"    {_text(c)}," for c in coefficients] + [")"]
    for name, pieces in CONSTANTS.items():
        lines += ["", f"{name} = ("] + [f"    {_text(c)}," for c in pieces] + [")"]
    Path(__file__).with_name("coefficients.py").write_text("\n".join(lines) + "\n")
    gpu = Path(__file__).parents[2] / "gpu" / "polynomials.py"
    gpu.write_text(triton_module(found))


def _text(value: Any) -> str:
    return repr(struct.unpack("d", struct.pack("d", float(value)))[0])


if __name__ == "__main__":
    main(sys.argv[1:])
