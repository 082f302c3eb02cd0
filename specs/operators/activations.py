"""Operator rows: activations and what their gradients need."""

from __future__ import annotations

import math
from dataclasses import replace

from specs.operators.pointwise import ALL, FLOATS, NUMBERS, SELF, pointwise, tolerance
from specs.operators.row import Arg

_F = "torch.nn.functional"


def _number(name: str, default: float | None, low: float, high: float) -> Arg:
    return Arg(
        name,
        "scalar",
        values=(low, high),
        optional=default is not None,
        default=default,
    )


pointwise(
    "relu.default",
    "torch.relu",
    (SELF,),
    "where(lt(self, const(0)), const(0), self)",
    "promote_no_bool",
    NUMBERS,
    cuda="maximum(self, const(0))",
    doc="nan stays nan, and -0.0 stays -0.0 on the CPU.",
)
pointwise(
    "relu6.default",
    f"{_F}.relu6",
    (SELF,),
    "where(gt(self, const(6)), const(6), where(lt(self, const(0)), const(0), self))",
    "promote_no_bool",
    NUMBERS,
    cuda="minimum(maximum(self, const(0)), const(6))",
)
pointwise(
    "leaky_relu.default",
    f"{_F}.leaky_relu",
    (SELF, _number("negative_slope", 0.01, -2.0, 2.0)),
    "where(gt(self, const(0)), self, mul(self, const(negative_slope)))",
    "floating",
    FLOATS,
    tolerance=tolerance(0.5),
)
_ONE_SIDE = "add(const(1), {f}(mul(self, const({c}))))"
pointwise(
    "gelu.default",
    f"{_F}.gelu",
    (
        SELF,
        Arg(
            "approximate",
            "choice",
            values=("none", "tanh"),
            keyword=True,
            optional=True,
            default="none",
        ),
    ),
    f"mul(mul(self, const(0.5)), {_ONE_SIDE.format(f='erf', c=math.sqrt(0.5))})"
    ' if approximate == "none" else mul(mul(const(0.5), self), add(const(1), tanh(mul('
    f"const({math.sqrt(2 / math.pi)}), add(self, mul(const(0.044715), mul(mul(self, self),"
    " self)))))))",
    "floating",
    FLOATS,
    cancels=True,
    tolerance=tolerance(8, 8, 2),
    doc="1 + erf(x) cancels for negative x. At infinities eager's vector loop gives nan.",
)
pointwise(
    "silu.default",
    f"{_F}.silu",
    (SELF,),
    "truediv(self, add(const(1), exp(neg(self))))",
    "floating",
    FLOATS,
    tolerance=tolerance(4),
)
pointwise(
    "mish.default",
    f"{_F}.mish",
    (SELF,),
    "mul(self, tanh(log1p(exp(self))))",
    "floating",
    FLOATS,
    tolerance=tolerance(6),
)
_SIX = "minimum(maximum(add(self, const(3)), const(0)), const(6))"
# CUDA's kernels multiply by a sixth that is rounded to float32, for float64 too.
_SIXTH = "const(0.1666666716337204)"
pointwise(
    "hardsigmoid.default",
    f"{_F}.hardsigmoid",
    (SELF,),
    f"truediv({_SIX}, const(6))",
    "floating",
    FLOATS,
    cuda=f"mul({_SIX}, {_SIXTH})",
    tolerance=tolerance(2),
)
pointwise(
    "hardswish.default",
    f"{_F}.hardswish",
    (SELF,),
    f"truediv(mul(self, {_SIX}), const(6))",
    "floating",
    FLOATS,
    cuda=f"mul(mul(self, {_SIX}), {_SIXTH})",
    tolerance=tolerance(3),
)
_LOW, _HIGH = "rounded(min_val)", "rounded(max_val)"
_FROM = f"where(logical_or(lt(self, {_LOW}), ne({_LOW}, {_LOW})), {_LOW}, self)"
pointwise(
    "hardtanh.default",
    f"{_F}.hardtanh",
    (SELF, _number("min_val", -1, -4.0, 0.0), _number("max_val", 1, 0.0, 4.0)),
    f"where(logical_or(gt({_FROM}, {_HIGH}), ne({_HIGH}, {_HIGH})), {_HIGH}, {_FROM})",
    "floating",
    FLOATS,
    cuda=f"minimum(maximum(self, {_LOW}), {_HIGH})",
    doc="A bound that is nan comes out.",
)
pointwise(
    "elu.default",
    f"{_F}.elu",
    (
        SELF,
        _number("alpha", 1, 0.1, 4.0),
        Arg("scale", "scalar", values=(1, 1), optional=True, default=1, reached=False),
        Arg("input_scale", "scalar", values=(1, 1), optional=True, default=1, reached=False),
    ),
    "where(gt(self, const(0)), mul(self, const(scale)),"
    " mul(expm1(mul(self, const(input_scale))), const(alpha * scale)))",
    "floating",
    FLOATS,
    tolerance=tolerance(3),
    doc="`scale` and `input_scale` are reached through `torch.selu` and `torch.celu`.",
)
pointwise(
    "softplus.default",
    f"{_F}.softplus",
    (SELF, _number("beta", 1, 0.25, 4.0), _number("threshold", 20, 1.0, 30.0)),
    "where(gt(mul(self, const(beta)), const(threshold)), self,"
    " truediv(log1p(exp(mul(self, const(beta)))), const(beta)))",
    "floating",
    FLOATS,
    tolerance=tolerance(4),
)
pointwise(
    "threshold.default",
    f"{_F}.threshold",
    (SELF, Arg("threshold", "scalar"), Arg("value", "scalar")),
    "where(le(self, const(threshold)), const(value), self)",
    "promote_no_bool",
    NUMBERS,
    doc="nan stays nan.",
)
pointwise(
    "log_sigmoid_forward.default",
    "torch.ops.aten.log_sigmoid_forward",
    (SELF,),
    None,
    "pair",
    FLOATS,
    shape_rule="log_sigmoid",
    elementwise_strides=False,  # the CPU's are contiguous
    tolerance=tolerance(4),
    reasons={"lowering": "two outputs, the second for the gradient only; it is decomposed first"},
)

# -- gradients ------------------------------------------------------------------------------------

_GRAD = Arg("grad_output", promotes=True)
_RESULT = Arg("output", relation="same", promotes=True)
_INPUT = Arg("self", relation="same", promotes=True)
_ATEN = "torch.ops.aten"
pointwise(
    "threshold_backward.default",
    f"{_ATEN}.threshold_backward",
    (_GRAD, _INPUT, Arg("threshold", "scalar")),
    "where(le(self, const(threshold)), const(0), grad_output)",
    "same_floating",
    FLOATS,
    laid_by=("self", "grad_output"),
)
pointwise(
    "sigmoid_backward.default",
    f"{_ATEN}.sigmoid_backward",
    (_GRAD, _RESULT),
    "mul(mul(grad_output, sub(const(1), output)), output)",
    "same_floating",
    FLOATS,
    cancels=True,
    tolerance=tolerance(3),
)
pointwise(
    "tanh_backward.default",
    f"{_ATEN}.tanh_backward",
    (_GRAD, _RESULT),
    "mul(grad_output, sub(const(1), mul(output, output)))",
    "same_floating",
    FLOATS,
    cancels=True,
    tolerance=tolerance(8, 8, 2),
    doc="1 - y * y cancels near 1.",
)
pointwise(
    "leaky_relu_backward.default",
    f"{_ATEN}.leaky_relu_backward",
    (
        _GRAD,
        _INPUT,
        Arg("negative_slope", "scalar", values=(0.01, 2.0)),
        Arg("self_is_result", "bool"),
    ),
    "where(gt(self, const(0)), grad_output, mul(grad_output, const(negative_slope)))",
    "same_floating",
    FLOATS,
    tolerance=tolerance(0.5),
    laid_by=("self", "grad_output"),
)
pointwise(
    "hardtanh_backward.default",
    f"{_ATEN}.hardtanh_backward",
    (
        _GRAD,
        replace(_INPUT, nan=False),
        Arg("min_val", "scalar", values=(-4.0, 0.0)),
        Arg("max_val", "scalar", values=(0.0, 4.0)),
    ),
    "where(logical_and(gt(self, const(min_val)), lt(self, const(max_val))), grad_output, const(0))",
    "same_floating",
    FLOATS,
)
pointwise(
    "silu_backward.default",
    f"{_ATEN}.silu_backward",
    (_GRAD, _INPUT),
    "mul(mul(grad_output, truediv(const(1), add(const(1), exp(neg(self))))),"
    " add(const(1), mul(self, sub(const(1), truediv(const(1), add(const(1), exp(neg(self))))))))",
    "same_floating",
    FLOATS,
    cancels=True,
    tolerance=tolerance(8, 8, 2),
)

# -- copies and casts -----------------------------------------------------------------------------

_DTYPE = Arg("dtype", "dtype", keyword=True, optional=True)
pointwise(
    "_to_copy.default",
    "torch.ops.aten._to_copy",
    (SELF, _DTYPE),
    "self",
    "to_dtype",
    ALL,
    kind="cast",
    doc="Floats become integers by truncation; see the scalar row `cast`.",
)
pointwise(
    "clone.default",
    "torch.clone",
    (SELF,),
    "self",
    "promote",
    ALL,
    kind="cast",
)
pointwise(
    "fill.Scalar",
    "torch.fill",
    (SELF, Arg("value", "scalar")),
    "rounded(value)",
    "first",
    ALL,
)
