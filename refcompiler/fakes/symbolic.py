"""Fake results of common operators on symbolic sizes, by rules that decide nothing of them.

As :mod:`refcompiler.fakes.rules`: a rule answers for arguments that are plainly right, whatever the
symbols are, and with None for all else. So no rule records a relation between sizes, but those of
windows: that one fits into the padded input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from refcompiler.fakes.results import Result
from refcompiler.fakes.symbolic_sizes import (
    FLOATS,
    Sizes,
    all_same,
    contiguous_strides,
    floats,
    is_contiguous,
    lying,
    new,
    order_of,
    plain,
    positive,
    product,
    result,
    same,
    surely,
    usable,
)
from refcompiler.fakes.symbolic_views import VIEWS

_aten = torch.ops.aten


def by_symbolic_rule(func: Any, args: Sequence, kwargs: Any) -> Result | None:
    """What ``func`` gives; None where no rule says it."""
    rule = _RULES.get(func)
    if rule is None or (kwargs and func not in _NAMED):
        return None
    return rule(*args, **(kwargs or {}))


# ---- element by element -------------------------------------------------------------------------


def _broadcast(tensors: Sequence[Any]) -> Sizes | None:
    """The shape of the result; None where it is not plain that they go together."""
    found: list[Any] = []
    for tensor in tensors:
        own = list(tensor.shape)
        shorter, longer = sorted((found, own), key=len)
        rest = len(longer) - len(shorter)
        found = longer[:rest]
        for n, m in zip(shorter, longer[rest:], strict=True):
            if type(n) is int and n == 1:
                found.append(m)
            elif same(n, m) or (type(m) is int and m == 1):
                found.append(n)
            else:
                return None
    return found


def _elementwise(
    kinds: tuple[torch.dtype, ...], gives: torch.dtype | None, operands_only: bool = True
) -> Callable:
    """``operands_only``: numbers among the arguments are operands, tensors of no dimensions."""

    def rule(*operands: Any) -> Result | None:
        tensors = [x for x in operands if isinstance(x, torch.Tensor)]
        numbers = [type(x) for x in operands if not isinstance(x, torch.Tensor)]
        dtype = tensors[0].dtype if tensors else None
        if dtype not in kinds or any(t.dtype is not dtype for t in tensors):
            return None
        allowed = (int, float) if dtype in FLOATS else (int,)
        if any(kind not in allowed for kind in numbers) or not usable(*tensors):
            return None
        shape = _broadcast(tensors)
        alone = not (numbers and operands_only)
        steps = None if shape is None else _steps(tensors, shape, alone)
        return None if steps is None else result(new(tensors[0], shape or (), gives, steps))

    return rule


def _clamp(x: Any, *limits: Any) -> Result | None:
    if not isinstance(x, torch.Tensor) or any(isinstance(n, torch.Tensor) for n in limits):
        return None
    return _LIMITED(x, *[n for n in limits if n is not None])


def _steps(tensors: Sequence[Any], shape: Sizes, alone: bool = True) -> Sizes | None:
    """How a result lies: as the first operand does, if that says all; None if it may not.

    Source: torch's rule for elementwise results: dimensions are ordered by the strides of the
    operands, of which the first that tells two apart counts; operands of one shape that are all in
    order give a result in order, where dimensions of size 1 may have any stride. ``alone``: there
    are no other operands.
    """
    if all(map(is_contiguous, tensors)):
        # In C order, as all operands are: dimensions that one of them repeats change no order.
        return contiguous_strides(shape)
    first = tensors[0]
    if len(first.shape) != len(shape) or not all_same(first.shape, shape):
        return None
    like = alone and all(all_same(t.shape, shape) for t in tensors)
    if like and any(same(n, 1) for n in shape):
        return None
    order = order_of(first)
    return None if order is None else lying(shape, order)


def _copied(
    x: Any, *, dtype: Any = None, memory_format: Any = None, device: Any = None, **rest: Any
) -> Result | None:
    """A copy lies as what it is made of, without its gaps."""
    if not usable(x) or (device is not None and device != x.fake_device):
        return None
    if any(rest.values()) and rest != {"layout": torch.strided}:
        return None
    steps = contiguous_strides(x.shape)
    if memory_format not in (torch.contiguous_format, None, torch.preserve_format):
        return None
    if memory_format is not torch.contiguous_format:
        found = _steps([x], x.shape)
        if found is None:
            return None
        steps = list(found)
    return result(new(x, x.shape, dtype, steps))


def _reduced(x: Any, dims: Any, keepdim: bool = False) -> Result | None:
    rank = x.dim()
    if not dims or not floats(x) or any(not -rank <= d < rank for d in dims):
        return None
    gone = {d % rank for d in dims}
    shape = [1 if d in gone else n for d, n in enumerate(x.shape) if keepdim or d not in gone]
    return result(new(x, shape)) if len(gone) == len(dims) else None


def _attention(query: Any, key: Any, value: Any, *_: Any, **named: Any) -> Result | None:
    """The result, and the logarithms of sums, which lie with the heads innermost."""
    given = (query, key, value)
    if named.get("attn_mask") is not None:
        return None
    if any(t.dim() != 4 or t.fake_device.type != "cpu" for t in given) or not _factors(*given):
        return None
    batch, heads, length, _ = query.shape
    if not all_same(key.shape, value.shape) or not all_same(key.shape[:2], (batch, heads)):
        return None
    order = order_of(query)
    if not same(key.shape[3], query.shape[3]) or order is None:
        return None
    steps = lying(query.shape, order)
    if not all_same(steps, query.stride()):
        return None
    sums = new(query, (batch, heads, length), None, (length * heads, 1, heads))
    return result(new(query, query.shape, None, steps), sums, kind=tuple)


def _where(condition: Any, a: Any, b: Any) -> Result | None:
    if condition.dtype is not torch.bool or a.dtype is not b.dtype:
        return None
    tensors = (a, b, condition)
    shape = _broadcast(tensors) if plain(*tensors) else None
    return None if shape is None else result(new(a, shape))


# ---- products, norms ----------------------------------------------------------------------------


def _factors(*tensors: Any) -> bool:
    """As :func:`floats`, in whatever order their elements lie."""
    dtype, device = tensors[0].dtype, tensors[0].fake_device
    return dtype in FLOATS and all(
        t.dtype is dtype
        and t.fake_device == device
        and not (t.is_neg() or t.is_conj())
        and positive(t.shape)
        for t in tensors
    )


def _mm(a: Any, b: Any) -> Result | None:
    if (a.dim(), b.dim()) != (2, 2) or not _factors(a, b) or not same(a.shape[1], b.shape[0]):
        return None
    return result(new(a, (a.shape[0], b.shape[1])))


def _addmm(bias: Any, a: Any, b: Any, *rest: Any) -> Result | None:
    if rest or bias.dim() != 1 or not _factors(bias, a, b) or a.dim() != 2 or b.dim() != 2:
        return None
    if not same(a.shape[1], b.shape[0]) or not same(bias.shape[0], b.shape[1]):
        return None
    return result(new(a, (a.shape[0], b.shape[1])))


def _layer_norm(x: Any, normalized: Any, weight: Any, bias: Any, eps: Any) -> Result | None:
    given = [t for t in (x, weight, bias) if t is not None]
    size, rank = tuple(x.shape), len(normalized)
    if not (floats(*given) or (_factors(*given) and x.fake_device.type == "cpu")):
        return None  # on the CPU the result is in order whatever the operand is
    if not rank or not all_same(size[-rank:], normalized):
        return None
    if any(not all_same(t.shape, normalized) for t in given[1:]):
        return None
    rows = (*size[:-rank], *[1] * rank)
    return result(new(x, size), new(x, rows), new(x, rows), kind=tuple)


def _batch_norm(x: Any, weight: Any, bias: Any, mean: Any, variance: Any, *_: Any) -> Result | None:
    """Of inference, on the CPU, where nothing is kept for a backward."""
    given = [t for t in (weight, bias, mean, variance) if t is not None]
    if x.dim() < 2 or x.fake_device.type != "cpu" or not floats(x, *given):
        return None
    if any(not all_same(t.shape, x.shape[1:2]) for t in given):
        return None
    return result(new(x, x.shape), new(x, (0,)), new(x, (0,)), kind=tuple)


def _group_norm(
    x: Any, weight: Any, bias: Any, n: Any, channels: Any, rest: Any, groups: Any, eps: float
) -> Result | None:
    given = [t for t in (weight, bias) if t is not None]
    if x.dim() < 2 or x.fake_device.type != "cpu" or not floats(x, *given):
        return None
    if type(channels) is not int or type(groups) is not int or groups < 1 or channels % groups:
        return None
    if not all_same((n, channels, rest), (*x.shape[:2], product(x.shape[2:]))):
        return None
    if any(not all_same(t.shape, (channels,)) for t in given):
        return None
    kept = new(x, (n, groups))
    return result(new(x, x.shape), kept, kept, kind=tuple)


def _bmm(a: Any, b: Any) -> Result | None:
    if (a.dim(), b.dim()) != (3, 3) or not _factors(a, b):
        return None
    if not same(a.shape[0], b.shape[0]) or not same(a.shape[2], b.shape[1]):
        return None
    return result(new(a, (*a.shape[:2], b.shape[2])))


def _softmax(x: Any, dim: int, as_float: bool) -> Result | None:
    if as_float or not x.dim() or not -x.dim() <= dim < x.dim() or not floats(x):
        return None
    return result(new(x, x.shape))


def _rows_first(x: Any) -> bool:
    """Whether it is certain that the channels of ``x`` do not come last."""
    steps = x.stride()
    return x.dim() not in (4, 5) or (
        not same(x.shape[-1], 1) and surely(sympy.Lt, steps[-1], steps[1])
    )


def _cat(tensors: Sequence[Any], dim: int = 0) -> Result | None:
    rank = tensors[0].dim()
    if not rank or not -rank <= dim < rank or not usable(*tensors):
        return None
    if any(t.dtype is not tensors[0].dtype for t in tensors) or not _rows_first(tensors[0]):
        return None
    dim += rank if dim < 0 else 0
    shape = list(tensors[0].shape)
    for t in tensors[1:]:
        others = [t.shape[:dim], t.shape[dim + 1 :]]
        if t.dim() != rank or not all(map(all_same, others, (shape[:dim], shape[dim + 1 :]))):
            return None
        shape[dim] = shape[dim] + t.shape[dim]
    return result(new(tensors[0], shape))


def _embedding(weight: Any, indices: Any, *rest: Any) -> Result | None:
    if weight.dim() != 2 or indices.dtype not in (torch.int64, torch.int32):
        return None
    if not plain(weight, indices):
        return None
    return result(new(weight, (*indices.shape, weight.shape[1])))


def _index(x: Any, indices: Sequence[Any]) -> Result | None:
    given = [t for t in indices if t is not None]
    if not given or any(t.dtype not in (torch.int64, torch.int32) for t in given):
        return None
    chosen = _broadcast(given) if plain(x, *given) else None
    if chosen is None or len(indices) > x.dim():
        return None
    places = [i for i, t in enumerate(indices) if t is not None]
    kept = [n for i, n in enumerate(x.shape) if i not in places]
    first = places[0] if places[-1] - places[0] == len(places) - 1 else 0  # apart: they lead
    return result(new(x, (*kept[:first], *chosen, *kept[first:])))


def _convolution(
    x: Any,
    weight: Any,
    bias: Any,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> Result | None:
    """On the CPU, where each kernel that may be chosen gives a contiguous result for such inputs.

    Choosing one as torch does asks whether batches and channels are small. What eager asks too, and
    raises for, is the one relation that this records: that a window fits into the padded input.
    """
    dims = x.dim() - 2
    given = [t for t in (x, weight, bias) if t is not None]
    if transposed or dims not in (1, 2, 3) or weight.dim() != dims + 2 or not floats(*given):
        return None
    if x.fake_device.type != "cpu" or type(groups) is not int or groups < 1:
        return None
    if not same(x.shape[1], weight.shape[1] * groups):
        return None
    out = weight.shape[0]
    if groups > 1 and (type(out) is not int or out % groups):
        return None
    if bias is not None and not all_same(bias.shape, (out,)):
        return None
    size = _windows(x.shape[2:], weight.shape[2:], stride, padding, dilation)
    return None if size is None else result(new(x, (x.shape[0], out, *size)))


def _windows(
    sizes: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes
) -> list[Any] | None:
    """How many places a window has in each dimension; asks whether it has one, as eager does."""
    count = len(sizes)
    steps, edges, gaps = (tuple(n) * (count // len(n) or 1) for n in (stride, padding, dilation))
    numbers = (*steps, *edges, *gaps)
    if len(numbers) != 3 * count or any(type(n) is not int or n < 0 for n in numbers):
        return None
    if 0 in steps or 0 in gaps:
        return None
    found = []
    for n, k, step, edge, gap in zip(sizes, kernel, steps, edges, gaps):
        room = n + 2 * edge - gap * (k - 1) - 1
        if not room >= 0:
            return None
        found.append(room // step + 1)
    return found


def _pooled(
    x: Any, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> tuple[Any, ...] | None:
    """The size of a pool's result, on the CPU and of windows that do not stand over the end."""
    if x.dim() not in (3, 4) or ceil_mode or not kernel or not floats(x):
        return None
    if x.fake_device.type != "cpu" or len(kernel) > 2 or any(type(n) is not int for n in kernel):
        return None
    windows = tuple(kernel) * (2 // len(kernel))
    if any(type(edge) is not int or 2 * edge > min(windows) for edge in padding):
        return None
    size = _windows(x.shape[-2:], windows, stride or kernel, padding, dilation)
    return None if size is None else (*x.shape[:-2], *size)


def _max_pool(
    x: Any,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    ceil_mode: bool = False,
) -> Result | None:
    """Values and places; torch before 2.13 asks whether the strides divide what they go through."""
    size = _pooled(x, kernel, stride, padding, dilation, ceil_mode)
    return None if size is None else result(new(x, size), new(x, size, torch.int64), kind=tuple)


def _avg_pool(
    x: Any,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Result | None:
    size = _pooled(x, kernel, stride, padding, (1,), ceil_mode) if divisor != 0 else None
    return None if size is None else result(new(x, size))


def _cumsum(x: Any, dim: int) -> Result | None:
    if not x.dim() or not -x.dim() <= dim < x.dim() or not plain(x):
        return None
    whole = not (x.is_floating_point() or x.is_complex())
    return result(new(x, x.shape, torch.int64 if whole else None))


_NUMBERS = (*FLOATS, torch.int64)
_LIMITED = _elementwise(FLOATS, None, False)
_RULES: dict[Any, Callable[..., Result | None]] = {
    **VIEWS,
    _aten.where.self: _where,
    _aten.clamp.default: _clamp,
    _aten.clone.default: _copied,
    _aten._to_copy.default: _copied,
    _aten.mean.dim: _reduced,
    _aten.sum.dim_IntList: _reduced,
    _aten._scaled_dot_product_flash_attention_for_cpu.default: _attention,
    _aten.mm.default: _mm,
    _aten.addmm.default: _addmm,
    _aten.bmm.default: _bmm,
    _aten.native_layer_norm.default: _layer_norm,
    _aten.native_group_norm.default: _group_norm,
    _aten._native_batch_norm_legit_no_training.default: _batch_norm,
    _aten._softmax.default: _softmax,
    _aten.cat.default: _cat,
    _aten.embedding.default: _embedding,
    _aten.index.Tensor: _index,
    _aten.convolution.default: _convolution,
    _aten.max_pool2d_with_indices.default: _max_pool,
    _aten.avg_pool2d.default: _avg_pool,
    _aten.cumsum.default: _cumsum,
    _aten.bitwise_and.Tensor: _elementwise((torch.bool,), None),
    _aten.bitwise_or.Tensor: _elementwise((torch.bool,), None),
    _aten.minimum.default: _elementwise(_NUMBERS, None),
    _aten.maximum.default: _elementwise(_NUMBERS, None),
    _aten.div.Tensor: _elementwise(FLOATS, None),
    _aten.pow.Tensor_Scalar: _elementwise(FLOATS, None, False),
    _aten.hardshrink_backward.default: _elementwise(FLOATS, None, False),
    _aten.softshrink_backward.default: _elementwise(FLOATS, None, False),
}
for _name in ("add", "sub", "mul"):
    _RULES[getattr(_aten, _name).Tensor] = _elementwise(_NUMBERS, None)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    for _overload in ("Tensor", "Scalar"):
        _RULES[getattr(getattr(_aten, _name), _overload)] = _elementwise(_NUMBERS, torch.bool)
for _name in "tanh exp relu sigmoid neg rsqrt sqrt abs silu cos sin gelu".split():
    _RULES[getattr(_aten, _name).default] = _elementwise(FLOATS, None)
#: Whose rules know the arguments that have names.
_NAMED = frozenset(
    (
        _aten.clone.default,
        _aten._to_copy.default,
        _aten._scaled_dot_product_flash_attention_for_cpu.default,
    )
)
