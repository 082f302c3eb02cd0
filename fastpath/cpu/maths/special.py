"""The gamma function's logarithm and its derivative, Bessel functions, the inverse error function.

Every limit is ATen's (``ATen/native/Math.h``): an infinite argument of a modified Bessel function
gives nan, since there the exponential is infinite over an infinite root.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fastpath.cpu.maths import coefficients as c
from fastpath.cpu.maths.emitter import Value, polynomial
from fastpath.cpu.maths.exponential import INF, NAN, by_kind, copysign, exp, exp_of_negative, log
from fastpath.cpu.maths.rare import unless_large

# -- modified Bessel functions --------------------------------------------------------------------

_SERIES_END = {"f32": 8.0, "f64": 16.0}  # from there on the function is the tail's


def _bessel(x: Value, order: int, scaled: bool) -> Value:
    """I of ``order`` at abs(x), over exp(abs(x)) where it is ``scaled``."""
    end = _SERIES_END[x.kind]
    size = x.abs()
    part = size * (1 / end)
    square = part * part
    series = polynomial(square, by_kind(x, f"I{order}"))
    # What the square's rounding lost counts half of abs(x) times, as the function grows there.
    lost = part.call("fma", part, -square)
    series = series.fma(lost * (end * end) / part.fma(2 * end, 1.0), series)
    if order:
        series = size * series
    far = size >= end
    tail = polynomial(1 / far.where(size, end), by_kind(x, f"I{order}_TAIL")) / size.call("sqrt")
    if scaled:
        return far.where(tail, exp_of_negative(-far.where(0.0, size)) * series)
    result = far.where(exp(size) * tail, series)
    return size.eq(INF).where(NAN, result)


def _odd(x: Value, result: Value) -> Value:
    """Of a negative number the negative; of -0.0 zero, as in ATen."""
    return (x < 0).where(-result, result)


def i0(x: Value) -> Value:
    return _bessel(x, 0, False)


def i0e(x: Value) -> Value:
    return _bessel(x, 0, True)


def i1(x: Value) -> Value:
    return _odd(x, _bessel(x, 1, False))


def i1e(x: Value) -> Value:
    return _odd(x, _bessel(x, 1, True))


# -- gamma ----------------------------------------------------------------------------------------

_CENTRE, _SPLIT = 3.5, 6.0  # of ``minimax.py``


def _mapped(y: Value, coefficients: Sequence[float]) -> Value:
    """A polynomial of (y - 1 - centre) over y - 1 + centre, and that over the same."""
    inverse = 1 / (y + (_CENTRE - 1))
    return polynomial((y - (1 + _CENTRE)) * inverse, coefficients) * inverse


def _unless_negative(
    x: Value, usual: Value, name: str, emit: Callable[..., Value], *others: Value
) -> Value:
    """``usual``, or ``emit(x, *others)`` where x < 0, out of line."""
    side = (x < 0).where(x.const(1.0), 0.0)
    rare = f"{name}_{x.kind}"

    def turned(_: Value, *given: Value) -> Value:
        return emit(*given)

    return unless_large(side, usual, 1.0, rare, turned, x, *others, together=True)


def _sinpi(r: Value) -> Value:
    """sin(pi r) / pi for 0 <= r <= 1/2."""
    return r * polynomial(r * r, by_kind(r, "SINPI"))


def lgamma(x: Value) -> Value:
    """In float64 for both kinds."""
    series, stirling = by_kind(x, "LGAMMA"), by_kind(x, "STIRLING")
    y = x.to("f64")
    size = y.abs()
    small, large = size < 1, size >= _SPLIT
    # (s - 1) (s - 2), where s is size or, if that is less than 1, size + 1
    s = small.where(size + 1, size)
    factors = small.where(size, size - 1) * small.where(size - 1, size - 2)
    near = factors * _mapped(s, series) + 0.0  # not -0.0 of 1
    logarithm = log(size)
    inverse = 1 / large.where(size, _SPLIT)
    rest = inverse * polynomial(inverse * inverse, stirling)
    far = (size - 0.5).fma(logarithm - 1, rest + (c.HALF_LOG_2PI[0] - 0.5))
    far = size.eq(INF).where(INF, far)
    positive = large.where(far, small.where(near - logarithm, near))
    name = f"lgamma_{x.kind}"
    return _unless_negative(y, positive, name, _lgamma_turned, positive).to(x.kind)


def _lgamma_turned(x: Value, positive: Value) -> Value:
    """lgamma(-s) = -log(s sin(pi s) / pi) - lgamma(s)."""
    size = x.abs()
    r = (size - size.call("rint")).abs()
    turned = -(log(_sinpi(r)) + (log(size) + positive))
    return (r.eq(0) | size.eq(INF)).where(INF, turned)


def digamma(x: Value) -> Value:
    """Below 0 by its reflection; 0 is a pole whose side the zero's sign tells, others give nan."""
    usual = _digamma_positive(x.abs())
    result = _unless_negative(x, usual, "digamma", _digamma_turned)
    return x.eq(0).where(copysign(x.const(INF), -x), result)


def _digamma_positive(size: Value) -> Value:
    """By its distance from the root up to 6, then by what it nears."""
    small, large = size < 1, size >= _SPLIT
    s = small.where(size + 1, size)
    root, root_low = by_kind(size, "DIGAMMA_ROOT")
    near = ((s - root) - root_low) * _mapped(s, by_kind(s, "DIGAMMA"))
    wide = large.where(size, _SPLIT)
    inverse = 1 / wide
    square = inverse * inverse
    rest = square.fma(polynomial(square, by_kind(size, "DIGAMMA_TAIL")), inverse * 0.5)
    usual = large.where(log(wide) - rest, near)
    return small.where(usual - 1 / size, usual)


def _digamma_turned(x: Value) -> Value:
    """psi(-s) = psi(1 + s) + pi cot(pi s)."""
    size = -x
    r = size - size.call("rint")
    cotangent = _sinpi(0.5 - r.abs()) * math.pi / _sinpi(r.abs())
    turned = _digamma_positive(size + 1) + copysign(cotangent, r)
    return (r.eq(0) | size.eq(INF)).where(NAN, turned)


# -- inverse error function -----------------------------------------------------------------------


def erfinv(x: Value) -> Value:
    """x times a function of -log(1 - x**2) (M. Giles, Approximating the erfinv function, 2010)."""
    size = x.abs()
    w = -log((size < 1).where((1 - size) * (1 + size), 0.5))
    usual = x * polynomial(w - _ERFINV_CENTRE[x.kind], by_kind(x, "ERFINV"))
    # 6.214 of w, which the polynomials before and beyond both reach
    return unless_large(x, usual, 0.999, f"erfinv_{x.kind}", lambda x: _erfinv_tail(x))


_ERFINV_CENTRE = {"f32": 3.0, "f64": 3.125}  # of ``minimax.py``


def _erfinv_tail(x: Value) -> Value:
    size = x.abs()
    inside = size < 1
    w = -log(inside.where((1 - size) * (1 + size), 0.5))
    root = w.call("sqrt")
    ratio = polynomial(root - 3.25, by_kind(x, "ERFINV_MIDDLE"))
    if x.kind == "f64":
        ratio = (w < 16).where(ratio, polynomial(root - 5, c.ERFINV_TAIL_F64))
    edge = size.eq(1).where(x.const(INF), NAN)
    return inside.where(x * ratio, copysign(edge, x))
