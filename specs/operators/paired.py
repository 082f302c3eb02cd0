"""Operator rows on complex numbers: what elementwise operators are there, as pairs of reals.

A row here is what :data:`OPERATORS` says of the same overload but for what complex numbers change:
the lowering, whose functions are the rows of :data:`specs.scalars.PAIRED`, the types, and where it
holds. Operators that there are for complex numbers alone have no other row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specs import dtypes
from specs.operators import activations, reductions, structure  # noqa: F401  (rows come from there)
from specs.operators.pointwise import SELF
from specs.operators.row import OPERATORS, Arg, Operator
from specs.table import Table

COMPLEX = frozenset(dtypes.PART_OF)
REAL = frozenset(dtypes.COMPLEX_OF)

#: By overload, of operators with a complex operand or result.
ON_COMPLEX: Table[Operator] = Table("ATen operators on complex numbers")

# A product that is added, or a part of one: whether eager rounds it is up to its compiler.
_PRODUCTS: dict[str, Any] = {
    "strict": "False",
    "reasons": {"strict": "eager may fuse the products of parts into their sum"},
}


def _tolerance(single: float, double: float | None = None) -> dict[str, float]:
    """ULP of the larger part, per dtype of the result."""
    double = single if double is None else double
    return {"complex64": single, "complex128": double, "float32": single, "float64": double}


def _within_squares(arg: Arg) -> Arg:
    """Where products overflow, eager's vectors and what they leave over are of two minds."""
    drawn = arg.kind in ("tensor", "operand") and arg.promotes
    return replace(arg, values=(-1e9, 1e9)) if drawn else arg


def _as(
    name: str, lowering: str, rule: str = "", ulp: float = 4, cuda: str | None = None, **more: Any
) -> None:
    row = OPERATORS[f"aten.{name}"]
    if more.pop("multiplies", False):
        more.setdefault("args", tuple(map(_within_squares, row.args)))
        more.setdefault("doc", "Which of two products that overflow counts is free, as in eager.")
        more["reasons"] = {**more["reasons"], "zero": "whether a product that vanishes is rounded"}
    more.setdefault("strict", "")
    more.setdefault("when", "")
    more.setdefault("reasons", {})
    ON_COMPLEX.add(
        replace(
            row,
            dtypes=COMPLEX,
            dtype_rule=rule or row.dtype_rule,
            lowering=lowering,
            cuda=cuda,
            tolerance=_tolerance(ulp),
            **more,
        )
    )


def _only(
    name: str, call: str, args: tuple[Arg, ...], lowering: str, rule: str, **more: Any
) -> None:
    ON_COMPLEX.add(
        Operator(
            name=f"aten.{name}",
            call=call,
            kind="pointwise",
            args=args,
            dtypes=more.pop("dtypes", COMPLEX),
            dtype_rule=rule,
            shape_rule="broadcasting",
            lowering=lowering,
            tolerance=_tolerance(4),
            **more,
        )
    )


# Eager multiplies by alpha, 1 too: an infinite part makes the other one nan. It takes no bool.
_BY_ALPHA: dict[str, Any] = {**_PRODUCTS, "when": "not is_bool(alpha)"}
for _overload in ("Tensor", "Scalar"):
    _as(f"add.{_overload}", "add(self, mul(const(alpha), other))", **_BY_ALPHA)
    _as(f"sub.{_overload}", "add(self, mul(const(-alpha), other))", **_BY_ALPHA)
    _as(f"rsub.{_overload}", "add(other, mul(const(-alpha), self))", **_BY_ALPHA)
    _as(
        f"mul.{_overload}",
        "mul(self, other)",
        cuda="fused_mul(self, other)",
        multiplies=True,
        **_PRODUCTS,
    )
    _as(
        f"div.{_overload}",
        "truediv(self, other)",
        cuda='fused_mul(self, reciprocal(other)) if is_number(plain["other"]) else'
        " truediv(self, other)",
        **_PRODUCTS,
    )
    _as(f"eq.{_overload}", "eq(self, other)")
    _as(f"ne.{_overload}", "ne(self, other)")
_as(
    "square.default",
    "mul(self, self)",
    cuda="fused_mul(self, self)",
    multiplies=True,
    **_PRODUCTS,
)
_as(
    "reciprocal.default",
    "reciprocal(self)",
    cuda="cuda_reciprocal(self, reciprocal(self))",
    **_PRODUCTS,
)
_as(
    "rsqrt.default",
    "reciprocal(sqrt(self))",
    cuda="annex_truediv(const(1), cuda_sqrt(self))",
    **_PRODUCTS,
)
_ZEROS: dict[str, Any] = _PRODUCTS | {
    "reasons": {**_PRODUCTS["reasons"], "zero": "that of the negative number"},
    "args": (replace(SELF, values=(-80.0, 80.0)),),  # the quotient's scale is a subnormal beyond
}
_as(
    "sigmoid.default",
    "reciprocal(add(const(1), exp(neg(self))))",
    ulp=8,
    cuda="annex_truediv(const(1), add(const(1), cuda_exp(neg(self))))",
    **_ZEROS,
)
_as("silu.default", "truediv(self, add(const(1), exp(neg(self))))", "promote_keep", 8, **_ZEROS)
_as(
    "exp2.default",
    "exp(stretch(self, const(math.log(2))))",
    cuda="cuda_exp(stretch(self, const(math.log(2))))",
    **_PRODUCTS,
)
_ZERO = "which zero comes out of zero is free"
# Eager's vectors take the number from zero, what these leave over has its signs changed.
_as(
    "neg.default",
    "sub(const(0), self)",
    cuda="neg(self)",
    strict="False",
    reasons={"strict": _ZERO, "zero": _ZERO},
)
_as("abs.default", "abs(self)", "parts", cuda="cuda_abs(self)")
_as("angle.default", "angle(self)", "parts")
_as(
    "sgn.default",
    "sign(self)",
    cuda="cuda_sign(self)",
    args=(replace(SELF, values=(-1e30, 1e30), least=2.0**-100),),
    strict="False",
    reasons={"strict": _ZERO, "zero": _ZERO},
    doc="Of infinite and subnormal numbers eager's vectors give other values than what these leave"
    " over.",
)
for _name in ("exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh"):
    _as(f"{_name}.default", f"{_name}(self)", cuda=f"cuda_{_name}(self)", **_PRODUCTS)
for _name, _base in (("log2", 2), ("log10", 10)):
    _shrunk = f"shrink({{log}}(self), const(math.log({_base})))"
    _as(
        f"{_name}.default",
        _shrunk.format(log="log"),
        cuda=_shrunk.format(log="cuda_log"),
        **_PRODUCTS,
    )
_POWERS = (0, 1, 2, 3, 0.5, -0.5, -1, -2)
_as(
    "pow.Tensor_Scalar",
    'const(1) if plain["exponent"] == 0 else self if plain["exponent"] == 1 else'
    ' mul(self, self) if plain["exponent"] == 2 else'
    ' mul(mul(self, self), self) if plain["exponent"] == 3 else'
    ' sqrt(self) if plain["exponent"] == 0.5 else'
    ' reciprocal(sqrt(self)) if plain["exponent"] == -0.5 else'
    ' reciprocal(self) if plain["exponent"] == -1 else reciprocal(mul(self, self))',
    cuda='const(1) if plain["exponent"] == 0 else self if plain["exponent"] == 1 else'
    ' fused_mul(self, self) if plain["exponent"] == 2 else'
    ' cuda_sqrt(self) if plain["exponent"] == 0.5 else'
    ' annex_truediv(const(1), cuda_sqrt(self)) if plain["exponent"] == -0.5 else'
    " cuda_reciprocal(self, reciprocal(self))",
    when=f"exponent in {_POWERS!r}",
    cuda_when="exponent not in (3, -2)",  # which are powers of the logarithm there
    args=(_within_squares(SELF), Arg("exponent", "choice", values=_POWERS, promotes=True)),
    **_PRODUCTS,
)
for _name in ("isnan", "isinf", "isfinite", "logical_not"):
    _as(f"{_name}.default", f"{_name}(self)")
_as("where.self", "where(condition, self, other)")
_as("masked_fill.Scalar", "where(mask, rounded(value), self)")
_as("masked_fill.Tensor", "where(mask, cast(value, dtype), self)")
_SCALED = "mul(const(value), tensor1)"
_as(
    "addcmul.default",
    f"add(self, mul({_SCALED}, tensor2))",
    cuda="add(self, annex_mul(const(value), annex_mul(tensor1, tensor2)))",
    multiplies=True,
    **_PRODUCTS,
)
_as(
    "addcdiv.default",
    f"add(self, truediv({_SCALED}, tensor2))",
    "promote_keep",
    cuda="add(self, annex_mul(const(value), annex_truediv(tensor1, tensor2)))",
    **_PRODUCTS,
)
for _name, _slope in (
    ("tanh", "sub(const(1), {mul}(output, output))"),
    ("sigmoid", "{mul}(sub(const(1), output), output)"),
):
    _backward = f"{{mul}}(grad_output, conj({_slope}))"
    _as(
        f"{_name}_backward.default",
        _backward.format(mul="mul"),
        "same",
        cuda=_backward.format(mul="annex_mul"),
        multiplies=True,
        **_PRODUCTS,
    )
_as("_to_copy.default", OPERATORS["aten._to_copy.default"].lowering or "")
_as("clone.default", OPERATORS["aten.clone.default"].lowering or "")
_as("fill.Scalar", OPERATORS["aten.fill.Scalar"].lowering or "")

_only("_conj_physical.default", "torch.conj_physical", (SELF,), "conj(self)", "promote")
_only(
    "complex.default",
    "torch.complex",
    (Arg("real", promotes=True), Arg("imag", relation="broadcast", promotes=True)),
    "pair(real, imag)",
    "same_paired",
    dtypes=REAL,
)
_only(
    "polar.default",
    "torch.polar",
    (Arg("abs", promotes=True), Arg("angle", relation="broadcast", promotes=True)),
    "pair(mul(abs, cos(angle)), mul(abs, sin(angle)))",
    "same_paired",
    dtypes=REAL,
    strict="False",
    reasons={"strict": "sines are rounded otherwise than in eager"},
)

# What only moves elements, or adds them up part by part, does so with complex numbers too.
_MOVES = ("view", "copy", "gather", "factory")
_SUMS = ("reduce:sum", "reduce:mean", "reduce:any", "reduce:all", "reduce:norm", "scan:add")
for _operator in list(OPERATORS):
    _kind = (_operator.lowering or "").partition(":")[0]
    _moves = _kind in _MOVES and _operator.lowering not in ("factory:arange", "factory:s")
    if _moves or _operator.lowering in _SUMS:
        _norm = _operator.lowering == "reduce:norm"
        ON_COMPLEX.add(
            replace(
                _operator,
                dtypes=COMPLEX,
                dtype_rule="average_of_parts" if _norm else _operator.dtype_rule,
                tolerance={} if _moves else _tolerance(4),
            )
        )
