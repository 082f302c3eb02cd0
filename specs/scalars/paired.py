"""What scalar operations are on complex numbers, which kernels compute as pairs of reals.

Eager's kernels do not agree with each other on special values: those of the rows are what its
vectors give (``ATen/cpu/vec``) where they compute, and c10's and the C library's scalar functions
(ISO C, Annex G) elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from specs.table import Table


@dataclass(frozen=True)
class Paired:
    """One scalar operation of one or two complex numbers.

    ``real`` and ``imag`` are expressions over ``a`` and ``b``, the parts of the first number, and
    ``c`` and ``d``, those of the second, in the scalar rows' functions, ``const`` (a number in the
    parts' dtype) and what ``given`` names, in order. Without ``imag`` the result is ``real`` alone,
    a real number or a ``bool``.
    """

    name: str
    real: str
    imag: str | None = None
    given: tuple[tuple[str, str], ...] = ()
    doc: str = ""


PAIRED: Table[Paired] = Table("complex operations")


def row(name: str, real: str, imag: str | None = None, doc: str = "", **given: str) -> None:
    PAIRED.add(Paired(name, real, imag, tuple(given.items()), doc))


row("add", "add(a, c)", "add(b, d)")
row("sub", "sub(a, c)", "sub(b, d)")
row(
    "mul",
    "sub(mul(a, c), mul(b, d))",
    "add(mul(a, d), mul(b, c))",
    "The products that it says, special values too: no infinity is restored from nan.",
)
row("neg", "neg(a)", "neg(b)")

# Smith's quotient, as c10's and numpy's. Here it is computed once, of what is larger.
_DIVISOR = {
    "by_real": "ge(abs(c), abs(d))",
    "large": "where(by_real, c, d)",
    "small": "where(by_real, d, c)",
    "ratio": "truediv(small, large)",
    "scale": "truediv(const(1), fma(small, ratio, large))",
    "none": "logical_and(eq(c, const(0)), eq(d, const(0)))",
}
row(
    "truediv",
    "where(none, truediv(a, abs(c)),"
    " mul(where(by_real, fma(b, ratio, a), fma(a, ratio, b)), scale))",
    "where(none, truediv(b, abs(d)),"
    " mul(where(by_real, fma(neg(a), ratio, b), fma(b, ratio, neg(a))), scale))",
    "By the larger part of the divisor; each part over zero where that is zero. Eager's compilers"
    " fuse products into sums.",
    **_DIVISOR,
)

row(
    "reciprocal",
    "where(none, truediv(const(1), abs(c)),"
    " mul(where(by_real, const(1), add(ratio, const(0))), scale))",
    "where(none, truediv(const(0), abs(d)),"
    " mul(where(by_real, sub(const(0), ratio), const(-1)), scale))",
    "One over the number: Smith's quotient of 1 and 0.",
    c="a",
    d="b",
    **_DIVISOR,
)

row("stretch", "mul(a, c)", "mul(b, c)", "Each part times the second number's real part.")
row("shrink", "truediv(a, c)", "truediv(b, c)", "Each part over the second number's real part.")

# The magnitude, without overflow or underflow on the way: of parts scaled by powers of two.
_FEW = "const(2.0 ** (62 if dtype == 'float32' else 510))"
_UP = "const(2.0 ** (100 if dtype == 'float32' else 600))"
_DOWN = "const(2.0 ** -(70 if dtype == 'float32' else 600))"
_SCALED = {
    "x": "maximum(abs(a), abs(b))",
    "high": f"gt(x, {_FEW})",
    "low": f"lt(x, truediv(const(1), {_FEW}))",
    "factor": f"where(high, {_DOWN}, where(low, {_UP}, const(1)))",
    "s": "mul(a, factor)",
    "t": "mul(b, factor)",
    "endless": "logical_or(isinf(a), isinf(b))",
    "whole": "where(endless, const(math.inf), sqrt(fma(s, s, mul(t, t))))",
}
_MAGNITUDE = {
    **_SCALED,
    "back": f"where(high, truediv(const(1), {_DOWN}), where(low, truediv(const(1), {_UP}),"
    " const(1)))",
    "magnitude": "mul(whole, back)",
}
row("abs", "magnitude", None, "Infinite where a part is, beside nan too.", **_MAGNITUDE)
row("angle", "atan2(b, a)")
row(
    "sign",
    "where(eq(magnitude, const(0)), const(0), truediv(a, magnitude))",
    "where(eq(magnitude, const(0)), const(0), truediv(b, magnitude))",
    "The number over its magnitude.",
    **_MAGNITUDE,
)

row(
    "exp",
    "where(eq(b, const(0)), mul(root, rest), where(isfinite(b), mul(mul(root, cos(b)), rest),"
    " where(eq(a, const(-math.inf)), const(0),"
    " where(eq(a, const(math.inf)), a, const(math.nan)))))",
    "where(eq(b, const(0)), b, where(isfinite(b), mul(mul(root, sin(b)), rest),"
    " where(eq(a, const(-math.inf)), copysign(const(0), b), const(math.nan))))",
    "A large power of the real part is taken in two halves, as it may overflow where the product"
    " does not.",
    far="gt(abs(a), const(80 if dtype == 'float32' else 700))",
    root="exp(where(far, mul(a, const(0.5)), a))",
    rest="where(far, root, const(1))",
)
# Near magnitudes of 1 the squares' sum less 1, with what rounding the squares leaves.
row(
    "log",
    "where(lt(abs(less), const(0.5)), mul(const(0.5), log1p(less)),"
    " add(log(whole), where(high, const(-math.log(2) * shift[0]),"
    " where(low, const(-math.log(2) * shift[1]), const(0)))))",
    "atan2(b, a)",
    **_SCALED,
    shift="(-70, 100) if dtype == 'float32' else (-600, 600)",
    p="mul(x, x)",
    y="minimum(abs(a), abs(b))",
    q="mul(y, y)",
    rest="add(fma(x, x, neg(p)), fma(y, y, neg(q)))",
    less="add(where(ge(p, const(0.5)), add(sub(p, const(1)), q),"
    " add(sub(p, const(0.5)), sub(q, const(0.5)))), rest)",
)
row(
    "sqrt",
    "where(isinf(b), const(math.inf), where(right, long, short))",
    "where(isinf(b), b, copysign(where(right, short, long), b))",
    "The root to the right of the imaginary axis.",
    **_SCALED,
    back="where(high, const(2.0 ** (35 if dtype == 'float32' else 300)),"
    " where(low, const(2.0 ** -(50 if dtype == 'float32' else 300)), const(1)))",
    right="logical_not(signbit(a))",
    long="mul(sqrt(mul(const(0.5), add(abs(s), whole))), back)",
    short="where(eq(long, const(0)), long, truediv(abs(b), mul(const(2), long)))",
)


# The hyperbolic functions of u + iv, and by way of iz those of the circle: sin(z) = -i sinh(iz).
# What is large is a product of halves of powers, as one alone may overflow where it does not.
_FAR = "gt(abs({u}), const(80 if dtype == 'float32' else 700))"
_HALVES = "mul(mul(mul(const(0.5), root), {by}), root)"
_TURN = {"far": _FAR, "root": "exp(mul(const(0.5), abs({u})))", "sine": "sin({v})"}
_TURN |= {"cosine": "cos({v})", "known": "isfinite({v})"}
_SIGNED = "where(signbit({u}), neg({of}), {of})"
_SINH = (
    "where(known, where(far, "
    + _SIGNED.replace("{of}", _HALVES.format(by="cosine"))
    + ", mul(sinh({u}), cosine)), where(eq({u}, const(0)), {u},"
    " where(isinf({u}), abs({u}), const(math.nan))))",
    "where(eq({v}, const(0)), {v}, where(far, "
    + _HALVES.format(by="sine")
    + ", mul(cosh({u}), sine)))",
)
_COSH = (
    "where(logical_and(isinf({u}), logical_not(known)), abs({u}), where(far, "
    + _HALVES.format(by="cosine")
    + ", mul(cosh({u}), cosine)))",
    "where(eq({v}, const(0)), where(logical_and(signbit({u}), eq({u}, {u})), neg({v}), {v}),"
    " where(eq({u}, const(0)), where(known, mul({u}, sine), const(0)), where(far, "
    + _SIGNED.replace("{of}", _HALVES.format(by="sine"))
    + ", mul(sinh({u}), sine))))",
)
TANH = (
    "where(logical_and(far, logical_or(known, isinf({u}))),"
    " copysign(const(1), {u}), where(eq({u}, const(0)), {u}, where(eq({v}, const(0)),"
    " tanh({u}), truediv(mul(rise, cosh({u})), whole))))",
    "where(eq({v}, const(0)), {v}, where(isinf({u}), copysign(const(0), where(known,"
    " mul(sine, cosine), {v})), where(far, mul(mul(mul(const(4), sine), cosine), mul(little,"
    " little)), truediv(mul(sine, cosine), whole))))",
)
TANGENT = {
    "far": "gt(abs({u}), const(40 if dtype == 'float32' else 350))",
    "sine": "sin({v})",
    "cosine": "cos({v})",
    "known": "isfinite({v})",
    "little": "exp(neg(abs({u})))",
    "rise": "sinh({u})",
    "whole": "add(mul(rise, rise), mul(cosine, cosine))",
}


def around(
    name: str, parts: tuple[str, str], given: dict[str, str], corner: str = "{negative}"
) -> None:
    """The rows of a hyperbolic function of u + iv and of the circle's. ``corner``: the second's
    imaginary part, of what is ``negative`` of the first's."""
    real, imag = parts
    on = {"u": "a", "v": "b"}
    hyperbolic = {k: text.format(**on) for k, text in given.items()}
    row(name, real.format(**on), imag.format(**on), **hyperbolic)
    on = {"u": "minus", "v": "a"}
    turned = {"minus": "neg(b)", **{k: text.format(**on) for k, text in given.items()}}
    real, imag = real.format(**on), imag.format(**on)
    if not name.endswith("cosh"):
        real, imag = imag, corner.format(negative=f"neg({real})")
    row(name.removesuffix("h"), real, imag, **turned)


# In one corner the C library's sine has another sign.
_CORNER = "where(logical_and(isinf(b), logical_not(known)), abs(b), {negative})"
around("sinh", _SINH, _TURN, _CORNER)
around("cosh", _COSH, _TURN)
around("tanh", TANH, TANGENT)

row("eq", "logical_and(eq(a, c), eq(b, d))")
row("ne", "logical_or(ne(a, c), ne(b, d))")
for _name in ("isnan", "isinf"):
    row(_name, f"logical_or({_name}(a), {_name}(b))")
row("isfinite", "logical_and(isfinite(a), isfinite(b))")
row("logical_not", "logical_and(eq(a, const(0)), eq(b, const(0)))")
