"""Which ATen operators are taken apart while tracing, and by whose rule.

Only operators that become elementwise work or reductions are: an operator that a library call does
well, or whose decomposition would change an output's layout or the order of random draws, stays.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

from fastpath import foreach
from refcompiler.fakes.mode import Hinted
from specs import strides

_aten = torch.ops.aten


@functools.cache
def table() -> dict[Any, Callable[..., Any]]:
    """The rules by overload."""
    rules = get_decompositions([getattr(_aten, name) for name in (*_FORWARD, *_BACKWARD)])
    entropy, sixths = _aten.binary_cross_entropy.default, _aten.hardsigmoid_backward.default
    squares, units = _aten._fused_rms_norm.default, _aten.elu_backward.default
    rules[squares] = functools.partial(_of_squares, rules[squares])
    rules[entropy] = functools.partial(_of_probabilities, rules[entropy])
    rules[units] = functools.partial(_of_units, rules[units])
    rules[sixths] = functools.partial(_in_sixths, rules[sixths])
    laid = {each: functools.partial(_laid, each, rule) for each, rule in rules.items()}
    return {**laid, **foreach.rules()}


def _laid(overload: Any, rule: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The rule, with its results where eager's kernel has them, which the operator's own fake
    results say: what it is taken apart into may make a copy, or a choice, that lies otherwise."""
    found = rule(*args, **kwargs)
    try:
        with disable_proxy_modes_tracing():
            wanted = overload(*args, **kwargs)
    except RuntimeError:
        if not any(map(_has_symbols, (*args, *kwargs.values()))):
            raise
        return found  # it has no fake results for symbols
    if isinstance(found, tuple):
        return tuple([_laid_as(t, like) for t, like in zip(found, wanted, strict=True)])
    return _laid_as(found, wanted)


def _has_symbols(a: Any) -> bool:
    return isinstance(a, torch.SymInt) or (
        isinstance(a, torch.Tensor) and any(type(n) is not int for n in (*a.shape, *a.stride()))
    )


def _laid_as(t: Any, like: Any) -> Any:
    if not isinstance(t, torch.Tensor) or not isinstance(like, torch.Tensor):
        return t  # a gradient that nobody asked for
    own, wanted = Hinted.of(t), Hinted.of(like)
    if own is None or wanted is None or own.steps == wanted.steps:
        return t
    order = sorted(range(t.dim()), key=lambda d: (-wanted.steps[d], d))
    if strides.in_order(own.shape, order) != wanted.steps:
        return t
    back = sorted(range(t.dim()), key=order.__getitem__)
    return t.permute(order).clone(memory_format=torch.contiguous_format).permute(back)


def _of_probabilities(
    rule: Callable[..., Any], given: torch.Tensor, *args: Any, **kwargs: Any
) -> Any:
    """The rule, with the look at the values that eager takes on the CPU."""
    if given.device.type == "cpu":
        within = torch.logical_and(given >= 0, given <= 1)
        message = "all elements of input should be between 0 and 1"
        _aten._assert_async.msg(within.all(), message)
    return rule(given, *args, **kwargs)


def _of_units(
    rule: Callable[..., Any],
    gradient: torch.Tensor,
    alpha: float,
    scale: float,
    input_scale: float,
    is_result: bool,
    given: torch.Tensor,
) -> torch.Tensor:
    """The rule, where what eager's vectors on the CPU compare is greater than 0, not at most 0."""
    found: torch.Tensor = rule(gradient, alpha, scale, input_scale, is_result, given)
    return torch.where(given.isnan(), given, found) if given.device.type == "cpu" else found


def _in_sixths(rule: Any, gradient: torch.Tensor, given: torch.Tensor) -> Any:
    """The rule, by the sixth of eager's kernels: rounded to float32, for float64 too."""
    if given.dtype == torch.float64:
        return rule(gradient * (6 * 0.1666666716337204), given)
    return rule(gradient, given)


def _of_squares(
    rule: Callable[..., Any],
    given: torch.Tensor,
    shape: Sequence[int],
    weight: torch.Tensor | None,
    eps: float | None,
) -> Any:
    """The rule, where CUDA's kernel takes rows by vectors of four; the mean of the squares is the
    variance and the squared mean elsewhere, so that an infinite term makes a row NaN and not 0."""
    if given.device.type != "cuda" or _in_fours(given.dtype, math.prod(shape)):
        return rule(given, shape, weight, eps)
    wide = given.to(torch.promote_types(given.dtype, torch.float32))
    dims = list(range(given.dim() - len(shape), given.dim()))
    var, mean = _aten.var_mean.correction(wide, dims, correction=0, keepdim=True)
    least = torch.finfo(wide.dtype).eps if eps is None else eps
    rstd = torch.rsqrt(var + mean * mean + least)
    normal = wide * rstd
    scaled = normal if weight is None else normal * weight
    return scaled.contiguous().to(given.dtype), rstd


def _in_fours(dtype: torch.dtype, length: int) -> bool:
    return dtype != torch.float64 and length % 4 == 0


_FORWARD = (
    "_unsafe_masked_index",
    "addr",
    "alias_copy",
    "channel_shuffle",
    "count_nonzero",
    "diag_embed",
    "diagonal_copy",
    "expand_copy",
    "isneginf",
    "isposinf",
    "linalg_cross",
    "nansum",
    "narrow_copy",
    "permute_copy",
    "renorm",
    "split_with_sizes_copy",
    "squeeze_copy",
    "t_copy",
    "trace",
    "transpose_copy",
    "unbind_copy",
    "unfold_copy",
    "unsqueeze_copy",
    "view_copy",
    "zero",
    "_fused_rms_norm",
    "_prelu_kernel",
    "_safe_softmax",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "deg2rad",
    "dist",
    "frobenius_norm",
    "glu",
    "hardshrink",
    "huber_loss",
    "log_sigmoid_forward",
    "logit",
    "mse_loss",
    "rad2deg",
    "sinc",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softshrink",
    "special_entr",
    "special_xlog1py",
)

# What autograd's rules call.
_BACKWARD = (
    "_fused_rms_norm_backward",
    "_prelu_kernel_backward",
    "binary_cross_entropy_backward",
    "elu_backward",
    "gelu_backward",
    "glu_backward",
    "hardsigmoid_backward",
    "hardswish_backward",
    "huber_loss_backward",
    "log_sigmoid_backward",
    "logit_backward",
    "mish_backward",
    "mse_loss_backward",
    "native_batch_norm_backward",
    "native_dropout_backward",
    "native_group_norm_backward",
    "native_layer_norm_backward",
    "rrelu_with_noise_backward",
    "smooth_l1_loss_backward",
    "soft_margin_loss_backward",
    "softplus_backward",
    "softshrink_backward",
)
