"""What CUDA's kernels compute of complex numbers, where that is not what the CPU's do.

Those of single functions are compiled at run time (``ATen/native/cuda/jit_utils.cpp``) with the C++
library's complex numbers, whose products and quotients restore infinities as Annex G of ISO C says
and whose functions are the textbook's; the others are c10's, and thrust's.
"""

from __future__ import annotations

from specs.scalars.paired import TANGENT, TANH, around, row

row("fused_mul", "fma(a, c, neg(mul(b, d)))", "fma(a, d, mul(b, c))", "As nvcc fuses it.")


def _unit(name: str) -> str:
    """What an infinite number counts as beside others: a part of size 1 where it is infinite."""
    return f"copysign(where(isinf({name}), const(1), const(0)), {name})"


def _bare(name: str) -> str:
    """What nan counts as beside an infinite number."""
    return f"where(isnan({name}), copysign(const(0), {name}), {name})"


_FIRST, _SECOND = "logical_or(isinf(a), isinf(b))", "logical_or(isinf(c1), isinf(d1))"
row(
    "annex_mul",
    "where(restored, mul(const(math.inf), sub(mul(a3, c3), mul(b3, d3))), x)",
    "where(restored, mul(const(math.inf), add(mul(a3, d3), mul(b3, c3))), y)",
    "Where both parts are nan though a factor or a product is infinite, the infinity's direction.",
    x="sub(mul(a, c), mul(b, d))",
    y="add(mul(a, d), mul(b, c))",
    first=_FIRST,
    **{f"{p}1": f"where(first, {_unit(p)}, {p})" for p in "ab"},
    **{f"{p}1": f"where(first, {_bare(p)}, {p})" for p in "cd"},
    second=_SECOND,
    **{f"{p}2": f"where(second, {_unit(p + '1')}, {p}1)" for p in "cd"},
    **{f"{p}2": f"where(second, {_bare(p + '1')}, {p}1)" for p in "ab"},
    over="logical_or(logical_or(isinf(mul(a, c)), isinf(mul(b, d))),"
    " logical_or(isinf(mul(a, d)), isinf(mul(b, c))))",
    third="logical_and(over, logical_not(logical_or(first, second)))",
    **{f"{p}3": f"where(third, {_bare(p + '2')}, {p}2)" for p in "abcd"},
    restored="logical_and(logical_and(isnan(x), isnan(y)), logical_or(third, logical_or(first,"
    " second)))",
)
_PRODUCTS_OF = {
    "real": "add(mul({a}, {c}), mul({b}, {d}))",
    "imag": "sub(mul({b}, {c}), mul({a}, {d}))",
}
_UNITS = {"p": _unit("a"), "q": _unit("b"), "r": _unit("c"), "s": _unit("d")}


def _restored(part: str, first: str) -> str:
    """A part of the quotient, ``first`` that of the dividend which counts over zero."""
    product = _PRODUCTS_OF[part]
    endless = f"mul(const(math.inf), {product.format(a='p', b='q', c='e', d='f')})"
    nothing = f"mul(const(0), {product.format(a='a', b='b', c='r', d='s')})"
    plain = {"real": "x", "imag": "y"}[part]
    zero = f"mul(copysign(const(math.inf), c), {first})"
    return (
        f"where(lost, where(by_zero, {zero}, where(endless, {endless}, where(nothing, {nothing},"
        f" {plain}))), {plain})"
    )


row(
    "annex_truediv",
    _restored("real", "a"),
    _restored("imag", "b"),
    "The divisor is taken without the power of two of its larger part.",
    large="fmax(abs(c), abs(d))",
    unit="where(logical_and(isfinite(large), ne(large, const(0))), binade(large), const(1))",
    e="truediv(c, unit)",
    f="truediv(d, unit)",
    whole="fma(e, e, mul(f, f))",
    x="truediv(truediv(fma(a, e, mul(b, f)), whole), unit)",
    y="truediv(truediv(fma(b, e, neg(mul(a, f))), whole), unit)",
    lost="logical_and(isnan(x), isnan(y))",
    by_zero="logical_and(eq(whole, const(0)), logical_not(logical_and(isnan(a), isnan(b))))",
    endless="logical_and(logical_or(isinf(a), isinf(b)), logical_and(isfinite(c), isfinite(d)))",
    nothing="logical_and(isinf(large), logical_and(isfinite(a), isfinite(b)))",
    **_UNITS,
)
_NEITHER = "logical_or(logical_or(isnan(a), isnan(b)), logical_and(isinf(a), isinf(b)))"
row(
    "cuda_reciprocal",
    f"where({_NEITHER}, const(math.nan), where(logical_or(isinf(a), isinf(b)), const(0), c))",
    f"where({_NEITHER}, const(math.nan), where(logical_or(isinf(a), isinf(b)), const(0), d))",
    "Of an infinite number 0, as numpy's, and nan of what has no direction; of others the second.",
)
row("cuda_abs", "hypot(a, b)")
row(
    "cuda_sign",
    "where(eq(size, const(0)), const(0), truediv(a, size))",
    "where(eq(size, const(0)), const(0), truediv(b, size))",
    size="hypot(a, b)",
)
row("cuda_log", "log(hypot(a, b))", "atan2(b, a)")
row(
    "cuda_sqrt",
    "where(isinf(b), const(math.inf), where(isinf(a), where(gt(a, const(0)), a,"
    " where(isnan(b), b, const(0))), x))",
    "where(isinf(b), b, where(isinf(a), where(gt(a, const(0)), where(isnan(b), b,"
    " copysign(const(0), b)), copysign(a, b)), y))",
    "By the magnitude's root and half the angle.",
    size="sqrt(hypot(a, b))",
    angle="mul(const(0.5), atan2(b, a))",
    p="mul(size, cos(angle))",
    q="mul(size, sin(angle))",
    x="where(isnan(size), size, where(isnan(p), const(0), p))",
    y="where(isnan(size), size, where(isnan(q), const(0), q))",
)
row(
    "cuda_exp",
    "where(eq(b, const(0)), e, where(growing, a, mul(e, cos(turn))))",
    "where(eq(b, const(0)), b, where(growing, where(isinf(b), const(math.nan), b),"
    " mul(e, sin(turn))))",
    "One power, which may overflow where its product would not.",
    e="exp(a)",
    known="isfinite(b)",
    growing="logical_and(eq(a, const(math.inf)), logical_not(known))",
    turn="where(logical_and(eq(a, const(-math.inf)), logical_not(known)), const(1), b)",
)
_CUDA_TURN = {"known": "isfinite({v})", "ends": "isfinite({u})", "none": "eq({u}, const(0))"}
_CUDA_TURN |= {"flat": "eq({v}, const(0))"}
_LOST = "logical_and(logical_not(known), logical_or(isinf({u}), none))"
_CUDA_SINH = (
    f"where({_LOST}, {{u}}, where(logical_and(flat, logical_not(ends)), {{u}},"
    " mul(sinh({u}), cos({v}))))",
    f"where({_LOST}, const(math.nan), where(logical_and(flat, logical_not(ends)), {{v}},"
    " mul(cosh({u}), sin({v}))))",
)
_CUDA_COSH = (
    "where(logical_and(none, logical_not(known)), const(math.nan), where(logical_or(logical_and("
    "isinf({u}), logical_not(known)), logical_and(flat, logical_not(ends))), abs({u}),"
    " mul(cosh({u}), cos({v}))))",
    "where(logical_and(none, logical_not(known)), {u}, where(logical_and(isinf({u}),"
    " logical_not(known)), const(math.nan), where(logical_and(flat, logical_or(none,"
    " logical_not(ends))), {v}, mul(sinh({u}), sin({v})))))",
)
# At 0 the tangent of what is no number is none.
_CUDA_TANH = (TANH[0].replace("where(eq({u}, const(0)), {u}, ", "where(none, {u}, "), TANH[1])
around("cuda_sinh", _CUDA_SINH, _CUDA_TURN)
around("cuda_cosh", _CUDA_COSH, _CUDA_TURN)
around(
    "cuda_tanh",
    _CUDA_TANH,
    TANGENT | {"none": "logical_and(eq({u}, const(0)), known)"},
)
