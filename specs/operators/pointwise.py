"""Operator rows: elementwise arithmetic, comparison, logic and elementary functions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specs import dtypes
from specs.operators.row import OPERATORS, Arg, Operator

FLOATS = frozenset(dtypes.FLOATS)
INTS = frozenset(dtypes.INTS)
NUMBERS = FLOATS | INTS
ALL = NUMBERS | {"bool"}
INTEGRAL = INTS | {"bool"}

SELF = Arg("self", promotes=True)
OTHER = Arg("other", relation="broadcast", promotes=True)
OTHER_OR_NUMBER = Arg("other", "operand", "broadcast", promotes=True)
NUMBER = Arg("other", "scalar", promotes=True)

# An integer divisor of zero raises on the CPU: a kernel leaves word of an element that is zero.
# A number that is too large wraps, and may wrap to zero: ATen is called, and raises eager's error.
DIVISOR_WHEN = "is_float(dtype) or not is_number(other) or (other != 0 and fits(other))"


def tolerance(single: float, double: float | None = None, reduced: float = 1.0) -> dict[str, float]:
    """ULP per dtype of the result; the reduced floats are rounded once from float32."""
    double = single if double is None else double
    return {"float16": reduced, "bfloat16": reduced, "float32": single, "float64": double}


def pointwise(
    name: str,
    call: str,
    args: tuple[Arg, ...],
    lowering: str | None,
    rule: str,
    accepts: frozenset[str] = ALL,
    **more: Any,
) -> Operator:
    """Add a row of an elementwise operator whose tensors broadcast."""
    more.setdefault("shape_rule", "broadcasting")
    return OPERATORS.add(
        Operator(
            name=f"aten.{name}",
            call=call,
            kind=more.pop("kind", "pointwise"),
            args=args,
            dtypes=accepts,
            dtype_rule=rule,
            lowering=lowering,
            **more,
        )
    )


# -- arithmetic -----------------------------------------------------------------------------------

_ALPHA = Arg("alpha", "scalar", keyword=True, optional=True, default=1)
#: Which ``alpha`` eager takes: one of the result's kind, a bool of bools alone.
_WHEN = '(is_float(dtype) or is_whole(alpha)) and (result == "bool" or not is_bool(alpha))'


# Eager's sums take a product in unrounded, so that one which overflows does no harm.
_FUSES: dict[str, Any] = {
    "strict": "not is_float(dtype)",
    "reasons": {"strict": "whether eager fuses the product into the sum is up to the machine"},
}
_SCALED = (
    "{plain} if alpha == 1 else fma({factor}, rounded(alpha), {summed}) if is_float(dtype)"
    " else {integers}"
)

# Why an exact lowering's bits may be others.
_ZEROS = "which zero of two comes out is free"
_VECTORS = "eager's vectors give nan where the quotient is large or the divisor subnormal"

# One rounding more than the sum's own, from the scaled operand.
_ALPHA_TOLERANCE = tolerance(1, 1, 2)
# CUDA's kernels compute with numbers as they are, and take a product into a sum unrounded.
_EXACT = '(const(plain["other"]) if is_number(plain["other"]) else other)'
_ON_CUDA = (
    "{plain} if alpha == 1 else fma({scaled}, const({sign}alpha), {summed}) if is_float(dtype)"
    " else {integers}"
)
for _name, _call, _rule, _lowering, _scaled_first in (
    ("add", "torch.add", "promote", "add({self}, {other})", False),
    ("sub", "torch.sub", "subtract", "sub({self}, {other})", False),
    ("rsub", "torch.rsub", "subtract", "sub({other}, {self})", True),
):
    _plain = {"self": "self", "other": "other"}
    _scales = "self" if _scaled_first else "other"
    _on_cuda = {"self": "self", "other": _EXACT}
    _summed = _on_cuda["self" if _scales == "other" else "other"]
    _cuda = _ON_CUDA.format(
        plain=_lowering.format(**_on_cuda),
        scaled=_on_cuda[_scales],
        sign="" if _name == "add" else "-",
        summed=_summed,
        integers=_lowering.format(
            **_on_cuda | {_scales: f"mul({_on_cuda[_scales]}, const(alpha))"}
        ),
    )
    _on_cpu = _SCALED.format(
        plain=_lowering.format(**_plain),
        factor=_scales if _name == "add" else f"neg({_scales})",
        summed="self" if _scales == "other" else "other",
        integers=_lowering.format(**_plain | {_scales: f"mul({_scales}, rounded(alpha))"}),
    )
    _accepts = ALL if _rule == "promote" else NUMBERS
    for _overload, _other in (("Tensor", OTHER_OR_NUMBER), ("Scalar", NUMBER)):
        pointwise(
            f"{_name}.{_overload}",
            _call,
            (SELF, _other, _ALPHA),
            _on_cpu,
            _rule,
            _accepts,
            cuda=_cuda,
            when=_WHEN,
            tolerance=_ALPHA_TOLERANCE,
            cancels=True,
            # Eager has it subtract the other way round, and that call's first operand decides.
            laid_by=("other", "self") if _name == "rsub" else None,
            **_FUSES | {"strict": "alpha == 1 or not is_float(dtype)"},
        )
#: CUDA's kernels divide by a number once, and multiply by what that gives.
_BY_NUMBER = (
    'truediv(self, other) if is_tensor(plain["other"]) else mul(self, truediv(const(1), other))'
)
for _overload, _other in (("Tensor", OTHER_OR_NUMBER), ("Scalar", NUMBER)):
    pointwise(
        f"mul.{_overload}",
        "torch.mul",
        (SELF, _other),
        "mul(self, other)",
        "promote_keep",
        tolerance=tolerance(0.5, 0.5),
    )
    pointwise(
        f"div.{_overload}",
        "torch.div",
        (SELF, _other),
        "truediv(self, other)",
        "promote_float_keep",
        cuda=_BY_NUMBER,
        tolerance=tolerance(0.5, 0.5),
    )

_MODE = Arg(
    "rounding_mode", "choice", values=(None, "trunc", "floor"), keyword=True, optional=False
)
_DIVISORS = (
    ("Tensor", Arg("other", "operand", "broadcast", promotes=True, nonzero=True)),
    ("Scalar", Arg("other", "scalar", promotes=True, nonzero=True)),
)
_BY_MODE = (
    "truediv(self, other) if rounding_mode is None else floordiv(self, nonzero(other))"
    ' if rounding_mode == "floor" else trunc(truediv(self, other)) if is_float(dtype)'
    " else truncdiv(self, nonzero(other))"
)
_BY_MODE_ON_CUDA = _BY_MODE.replace("truediv(self, other)", f"({_BY_NUMBER})")
# Eager has no one value where a quotient overflows (see the rows).
_DIVIDEND = replace(SELF, values=(-1e30, 1e30))
for _overload, _other in _DIVISORS:
    _divisor = replace(_other, least=2.0**-14)
    pointwise(
        f"div.{_overload}_mode",
        "torch.div",
        (_DIVIDEND, _divisor, _MODE),
        _BY_MODE,
        "divide",
        NUMBERS,
        cuda=_BY_MODE_ON_CUDA,
        when=f"rounding_mode is None or {DIVISOR_WHEN}",
        strict="rounding_mode is None or result not in ('float16', 'bfloat16')",
        reasons={"strict": "eager rounds the quotient to the reduced float before it truncates"},
        tolerance=tolerance(1, 1),
        doc="Integer division by zero raises. `floor` where the quotient overflows: see"
        " `remainder`.",
    )
    pointwise(
        f"remainder.{_overload}",
        "torch.remainder",
        (_DIVIDEND, _divisor),
        "remainder(self, nonzero(other))",
        "promote",
        NUMBERS,
        when=DIVISOR_WHEN,
        tolerance=tolerance(0.5, 0.5),
        doc="The divisor's sign; an integer divisor of zero raises. Eager's vectors give nan where"
        " the quotient overflows, and the exact value in what a vector leaves over.",
        strict="is_int(dtype)",
        reasons={"strict": _VECTORS},
    )
    pointwise(
        f"fmod.{_overload}",
        "torch.fmod",
        (_DIVIDEND, _divisor),
        "fmod(self, nonzero(other))",
        "promote",
        NUMBERS,
        when=DIVISOR_WHEN,
        tolerance=tolerance(0.5, 0.5),
        doc="The dividend's sign; otherwise as `remainder`.",
        strict="is_int(dtype)",
        reasons={"strict": _VECTORS},
    )
pointwise(
    "floor_divide.default",
    "torch.floor_divide",
    (_DIVIDEND, replace(_DIVISORS[0][1], least=2.0**-14)),
    "floordiv(self, nonzero(other))",
    "promote_keep",
    NUMBERS,
    when=DIVISOR_WHEN,
    tolerance=tolerance(1, 1),
    doc="The floor of the exact quotient, so 1.0 // 0.1 is 9; integer division by zero raises.",
)

pointwise(
    "pow.Tensor_Tensor",
    "torch.pow",
    (SELF, Arg("exponent", relation="broadcast", promotes=True)),
    "pow(self, exponent)",
    "promote_no_bool",
    NUMBERS,
    tolerance=tolerance(2, 3),
    doc="A negative exponent of integers leaves something of 1 and -1 only.",
)
pointwise(
    "pow.Tensor_Scalar",
    "torch.pow",
    (SELF, Arg("exponent", "scalar", promotes=True, values=(0, 4))),
    "pow(self, exponent) if not is_float(dtype) else"
    ' const(1) if plain["exponent"] == 0 else self if plain["exponent"] == 1 else'
    ' mul(self, self) if plain["exponent"] == 2 else'
    ' mul(cast(cast(mul(self, self), common), dtype), self) if plain["exponent"] == 3 else'
    ' sqrt(self) if plain["exponent"] == 0.5 else rsqrt(self) if plain["exponent"] == -0.5 else'
    ' reciprocal(self) if plain["exponent"] == -1 else'
    ' reciprocal(cast(cast(mul(self, self), common), dtype)) if plain["exponent"] == -2 else'
    " pow(self, exponent)",
    "promote_no_bool",
    NUMBERS,
    when="fits(exponent) and (same_power(exponent) if is_float(dtype) else exponent >= 0)",
    tolerance=tolerance(16, 3, 2),
    doc="Small exponents are products and roots, each rounded to the tensor's dtype, as in eager."
    " Others are rounded to the dtype, which eager does for the reduced floats; for the wider it"
    " keeps the number, so one that rounding would make whole, or even, is left to it: of a"
    " negative base it decides whether there is a power, and its sign.",
)
pointwise(
    "pow.Scalar",
    "torch.pow",
    (Arg("self", "scalar", promotes=True, values=(1, 4)), Arg("exponent", promotes=True)),
    "const(1) if plain['self'] == 1 else pow(self, exponent)",
    "promote_no_bool",
    NUMBERS,
    when="is_float(dtype) or fits(self)",
    tolerance=tolerance(2, 3),
    elementwise_strides=False,
)
pointwise(
    "square.default", "torch.square", (SELF,), "mul(self, self)", "promote_no_bool", NUMBERS,
    tolerance=tolerance(0.5, 0.5),
)  # fmt: skip

for _name, _lowering in (("neg", "neg(self)"), ("abs", "abs(self)")):
    pointwise(f"{_name}.default", f"torch.{_name}", (SELF,), _lowering, "promote_no_bool", NUMBERS)
for _name in ("sign", "sgn"):
    pointwise(f"{_name}.default", f"torch.{_name}", (SELF,), "sign(self)", "promote", ALL)
for _name in ("minimum", "maximum"):
    pointwise(
        f"{_name}.default",
        f"torch.{_name}",
        (SELF, OTHER),
        f"{_name}(self, other)",
        "promote",
        ALL,
        doc="nan if either is; which zero of two comes out is free.",
        strict="not is_float(dtype)",
        reasons={"strict": _ZEROS},
    )
for _name in ("fmin", "fmax"):
    pointwise(
        f"{_name}.default",
        f"torch.{_name}",
        (SELF, OTHER),
        f"{_name}(self, other)",
        "promote",
        NUMBERS,
        doc="The other operand where one is nan.",
        strict="not is_float(dtype)",
        reasons={"strict": _ZEROS},
    )

_SQUARE_ROOT: dict[str, Any] = {
    "strict": "result in ('float16', 'bfloat16')",
    "reasons": {"strict": "eager's square root is a vendor's, which is not always the nearest"},
}

# -- elementary functions -------------------------------------------------------------------------

for _name, _single, _double in (
    ("exp", 1, 1),
    ("exp2", 1, 1),
    ("expm1", 2, 2),
    ("log", 1, 1),
    ("log2", 1, 2),
    ("log10", 2, 2),
    ("log1p", 2, 2),
    ("sin", 2, 2),
    ("cos", 2, 2),
    ("tan", 3, 3),
    ("asin", 2, 2),
    ("acos", 2, 2),
    ("atan", 2, 2),
    ("sinh", 2, 3),
    ("cosh", 2, 2),
    ("tanh", 2, 2),
    ("asinh", 3, 3),
    ("acosh", 3, 3),
    ("atanh", 3, 3),
    ("erf", 2, 2),
    ("erfc", 4, 5),
    ("sigmoid", 3, 3),
    ("reciprocal", 0.5, 0.5),
    ("sqrt", 0.5, 0.5),
    ("rsqrt", 2, 2),
):
    pointwise(
        f"{_name}.default",
        f"torch.{_name}",
        (SELF,),
        f"{_name}(self)",
        "promote_float",
        tolerance=tolerance(_single, _double),
        **_SQUARE_ROOT if _name == "sqrt" else {},
    )
for _name, _call, _values in (
    ("lgamma", "torch.lgamma", (0.0625, 1e30)),
    ("digamma", "torch.digamma", (2.0, 1e30)),  # at its root eager's sums cancel
    ("erfinv", "torch.erfinv", ()),
    ("i0", "torch.i0", ()),
    ("special_i0e", "torch.special.i0e", ()),
    ("special_i1", "torch.special.i1", ()),
    ("special_i1e", "torch.special.i1e", ()),
):
    pointwise(
        f"{_name}.default",
        _call,
        (replace(SELF, values=_values),),
        f"{_name.removeprefix('special_')}(self)",
        "promote_float",
        tolerance=tolerance(8, 5, 2),
    )
for _name in ("floor", "ceil", "trunc", "round"):
    pointwise(
        f"{_name}.default", f"torch.{_name}", (SELF,), f"{_name}(self)", "promote_no_bool", NUMBERS
    )
pointwise(
    "round.decimals",
    "torch.round",
    (SELF, Arg("decimals", "int", values=(-2, 3), keyword=True)),
    "round(self) if decimals == 0 else"
    " truediv(round(mul(self, const(10 ** decimals))), const(10 ** decimals)) if decimals > 0 else"
    " mul(round(truediv(self, const(10 ** -decimals))), const(10 ** -decimals))",
    "floating",
    frozenset({"float32", "float64"}),
    tolerance=tolerance(1, 1),
)
pointwise(
    "frac.default", "torch.frac", (SELF,), "frac(self)", "floating", FLOATS,
)  # fmt: skip
pointwise(
    "atan2.default",
    "torch.atan2",
    (SELF, OTHER),
    "atan2(self, other)",
    "promote_float",
    tolerance=tolerance(3, 3),
)
for _overload, _other in (("Tensor", OTHER), ("Scalar", NUMBER)):
    pointwise(
        f"copysign.{_overload}",
        "torch.copysign",
        (SELF, _other),
        "copysign(self, other)",
        "promote_float",
    )
pointwise(
    "logaddexp.default",
    "torch.logaddexp",
    (SELF, OTHER),
    "where(logical_and(isinf(self), eq(self, other)), self,"
    " add(maximum(self, other), log1p(exp(neg(abs(sub(self, other)))))))",
    "floating",
    FLOATS,
    cancels=True,
    tolerance=tolerance(4, 4),
)
pointwise(
    "logaddexp2.default",
    "torch.logaddexp2",
    (SELF, OTHER),
    "where(logical_and(isinf(self), eq(self, other)), self, add(maximum(self, other),"
    " mul(log1p(exp2(neg(abs(sub(self, other))))), const(1 / math.log(2)))))",
    "floating",
    FLOATS,
    cancels=True,
    tolerance=tolerance(4, 4),
)
pointwise(
    "xlogy.Tensor",
    "torch.xlogy",
    (SELF, OTHER),
    "where(isnan(other), other, where(eq(self, const(0)), const(0), mul(self, log(other))))",
    "promote_float",
    tolerance=tolerance(2, 2),
)
pointwise(
    "hypot.default",
    "torch.hypot",
    (SELF, OTHER),
    "hypot(self, other)",
    "floating",
    FLOATS,
    tolerance=tolerance(2, 2),
)
pointwise(
    "heaviside.default",
    "torch.heaviside",
    (SELF, Arg("values", relation="broadcast", promotes=True)),
    "where(eq(self, const(0)), values, where(gt(self, const(0)), const(1), const(0)))",
    "same",
    ALL - {"bool"},
)
pointwise(
    "nan_to_num.default",
    "torch.nan_to_num",
    (
        SELF,
        Arg("nan", "float", optional=True),
        Arg("posinf", "float", optional=True),
        Arg("neginf", "float", optional=True),
    ),
    "self if not is_float(dtype) else where(isnan(self), const(nan or 0.0),"
    " where(eq(self, const(math.inf)), const(largest if posinf is None else posinf),"
    " where(eq(self, const(-math.inf)), const(-largest if neginf is None else neginf), self)))",
    "promote",
)

# -- comparison, logic, bits ----------------------------------------------------------------------

for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    for _overload, _other in (("Tensor", OTHER_OR_NUMBER), ("Scalar", NUMBER)):
        pointwise(
            f"{_name}.{_overload}",
            f"torch.{_name}",
            (SELF, _other),
            f"{_name}(self, other)",
            "compare",
        )
for _name in ("logical_and", "logical_or", "logical_xor"):
    pointwise(
        f"{_name}.default", f"torch.{_name}", (SELF, OTHER), f"{_name}(self, other)", "compare"
    )
pointwise(
    "logical_not.default", "torch.logical_not", (SELF,), "logical_not(self)", "predicate"
)  # fmt: skip
pointwise(
    "angle.default",
    "torch.angle",
    (SELF,),
    "where(isnan(self), self, where(lt(self, const(0)), const(math.pi), const(0)))",
    "promote_float",
    not_on_cuda=frozenset(dtypes.REDUCED),
    doc="0 or pi; nan stays nan. CUDA has no kernel for 16 bits.",
)
for _name in ("isnan", "isinf", "isfinite", "signbit"):
    pointwise(f"{_name}.default", f"torch.{_name}", (SELF,), f"{_name}(self)", "predicate")
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    for _overload, _other in (("Tensor", OTHER_OR_NUMBER), ("Scalar", NUMBER)):
        pointwise(
            f"{_name}.{_overload}",
            f"torch.{_name}",
            (SELF, _other),
            f"{_name}(self, other)",
            "integral",
            INTEGRAL,
        )
pointwise(
    "bitwise_not.default", "torch.bitwise_not", (SELF,), "bitwise_not(self)", "integral", INTEGRAL
)
# What Python's operators call is the same under other names.
for _name, _scalar in (("left", "lshift"), ("right", "rshift")):
    for _overload, _kind in (("Tensor", "tensor"), ("Scalar", "scalar")):
        _count = Arg(
            "other",
            _kind,
            "broadcast" if _kind == "tensor" else "free",
            values=(0, 7),
            promotes=True,
        )
        for _row, _call in (
            (
                f"bitwise_{_name}_shift.{'Tensor_' * (_kind == 'scalar')}{_overload}",
                f"torch.bitwise_{_name}_shift",
            ),
            (f"__{_scalar}__.{_overload}", f"torch.Tensor.__{_scalar}__"),
        ):
            pointwise(_row, _call, (SELF, _count), f"{_scalar}(self, other)", "shift", INTS)

# -- selection and blending -----------------------------------------------------------------------

pointwise(
    "where.self",
    "torch.where",
    (
        Arg("condition", "mask"),
        Arg("self", "tensor", "broadcast", promotes=True),
        Arg("other", "tensor", "broadcast", promotes=True),
    ),
    "where(condition, self, other)",
    "promote",
    elementwise_strides=False,
)
for _overload, _value in (
    ("Scalar", Arg("value", "scalar")),
    ("Tensor", Arg("value", "tensor", max_rank=0)),
):
    pointwise(
        f"masked_fill.{_overload}",
        "torch.masked_fill",
        (SELF, Arg("mask", "mask", "broadcast"), _value),
        "where(mask, rounded(value), self)"
        if _overload == "Scalar"
        else "where(mask, cast(value, dtype), self)",
        "first",
        laid_by=(),
    )
_CLAMP = (
    "minimum((self if {min} is None else maximum(self, {min})), {max}) if {max} is not None"
    " else maximum(self, {min})"
).format
# A number as the bound: an element that equals it stays, so that a zero keeps its sign.
_FROM = "where(logical_or(lt(self, min), ne(min, min)), min, self)"
_UP_TO = "where(logical_or(gt({0}, max), ne(max, max)), max, {0})".format
_BETWEEN = f"{_UP_TO('self')} if min is None else {_FROM} if max is None else {_UP_TO(_FROM)}"
pointwise(
    "clamp.default",
    "torch.clamp",
    (
        SELF,
        Arg("min", "scalar", optional=True, promotes=True),
        Arg("max", "scalar", optional=True, promotes=True),
    ),
    _BETWEEN,
    "promote_no_bool",
    NUMBERS,
    cuda=_CLAMP(min="min", max="max"),
    when="not (min is None and max is None) and fits(min) and fits(max)",
    doc="nan of any operand comes out; min > max gives max; what equals a bound stays, on the CPU"
    " a zero with its sign. One bound has to be given.",
)
pointwise(
    "clamp.Tensor",
    "torch.clamp",
    (
        SELF,
        Arg("min", "tensor", "broadcast", promotes=True, optional=True),
        Arg("max", "tensor", "broadcast", promotes=True, optional=True),
    ),
    _CLAMP(min="min", max="max"),
    "promote_no_bool",
    NUMBERS,
    when="not (min is None and max is None)",
    strict="not is_float(dtype)",
    reasons={"strict": _ZEROS},
)
for _name, _bound, _scalar, _number in (
    ("clamp_min", "min", "maximum", _FROM),
    ("clamp_max", "max", "minimum", _UP_TO("self")),
):
    for _overload, _kind in (("default", "scalar"), ("Tensor", "tensor")):
        pointwise(
            f"{_name}.{_overload}",
            f"torch.{_name}",
            (
                SELF,
                Arg(
                    _bound,
                    _kind,
                    "broadcast" if _kind == "tensor" else "free",
                    promotes=True,
                ),
            ),
            _number if _kind == "scalar" else f"{_scalar}(self, {_bound})",
            "promote_no_bool",
            NUMBERS,
            cuda=f"{_scalar}(self, {_bound})",
            when=f"fits({_bound})" if _kind == "scalar" else "",
            strict="" if _kind == "scalar" else "not is_float(dtype)",
            reasons={} if _kind == "scalar" else {"strict": _ZEROS},
        )
_END = Arg("end", relation="broadcast", promotes=True)
_LERP_ON_CUDA = (
    "fma({w}, sub(end, self), self) if {near} else"
    " fma(neg(sub(end, self)), sub(const(1), {w}), end)"
)
_FUSED_LERP = "fma({w} if {near} else sub({w}, const(1)), sub(end, self), self if {near} else end)"
pointwise(
    "lerp.Scalar",
    "torch.lerp",
    (SELF, _END, Arg("weight", "float", values=(-2.0, 2.0))),
    _FUSED_LERP.format(w="const(weight)", near="math.fabs(weight) < 0.5"),
    "same_floating",
    FLOATS,
    cuda=_LERP_ON_CUDA.format(w="const(weight)", near="math.fabs(weight) < 0.5"),
    cancels=True,
    tolerance=tolerance(4, 4, 2),
    doc="Computed from the nearer end, as in eager.",
    **_FUSES,
)
pointwise(
    "lerp.Tensor",
    "torch.lerp",
    (SELF, _END, Arg("weight", relation="broadcast", promotes=True, values=(-2.0, 2.0))),
    "fma(where(lt(abs(weight), const(0.5)), weight, sub(weight, const(1))), sub(end, self),"
    " where(lt(abs(weight), const(0.5)), self, end))",
    "same_floating",
    FLOATS,
    cuda="where(lt(abs(weight), const(0.5)), fma(weight, sub(end, self), self),"
    " fma(neg(sub(end, self)), sub(const(1), weight), end))",
    cancels=True,
    tolerance=tolerance(4, 4, 2),
    **_FUSES,
)
_ADDC = (
    SELF,
    Arg("tensor1", relation="broadcast", promotes=True),
    Arg("tensor2", relation="broadcast", promotes=True),
    Arg("value", "scalar", keyword=True, optional=True, default=1),
)
_SCALED_FIRST = "(tensor1 if value == 1 else mul(const(value), tensor1))"
_UNFUSED = f"add(self, mul({_SCALED_FIRST}, tensor2))"
pointwise(
    "addcmul.default",
    "torch.addcmul",
    _ADDC,
    f"fma({_SCALED_FIRST}, tensor2, self) if is_float(dtype) else {_UNFUSED}",
    "promote_no_bool",
    NUMBERS,
    cuda="(fma(tensor1, tensor2, self) if value == 1 else fma(const(value), mul(tensor1, tensor2),"
    f" self)) if is_float(dtype) else {_UNFUSED}",
    **_FUSES,
    cancels=True,
    tolerance=tolerance(2, 2, 2),
    elementwise_strides=False,
)
pointwise(
    "addcdiv.default",
    "torch.addcdiv",
    _ADDC,
    f"add(self, truediv({_SCALED_FIRST}, tensor2))",
    "floating",
    FLOATS,
    cuda="fma(const(value), truediv(tensor1, tensor2), self)",
    cancels=True,
    tolerance=tolerance(2, 2, 2),
    doc="Integer division is not supported by eager.",
    elementwise_strides=False,
)
