"""Fake results of common operators on symbolic sizes, by rules that decide nothing of them.

As :mod:`refcompiler.fakes.rules`: a rule answers for arguments that are plainly right, whatever the
symbols are, and with None for all else. So no rule records a relation between sizes, but those of
windows: that one fits into the padded input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from refcompiler.fakes.results import Output, Result

_aten = torch.ops.aten
_FLOATS = (torch.float32, torch.float64)
Sizes = Sequence[Any]  # ints and torch.SymInts


def by_symbolic_rule(func: Any, args: Sequence, kwargs: Any) -> Result | None:
    """What ``func`` gives; None where no rule says it."""
    rule = _RULES.get(func)
    return None if rule is None or kwargs else rule(*args)


# ---- sizes --------------------------------------------------------------------------------------


def _same(a: Any, b: Any) -> bool:
    """Whether two sizes are equal for all values of the symbols."""
    if type(a) is int or type(b) is int:
        return type(a) is type(b) and a == b
    return a.node is b.node or a.node.expr == b.node.expr


def _all_same(a: Sizes, b: Sizes) -> bool:
    return len(a) == len(b) and all(map(_same, a, b))


def _positive(sizes: Sizes) -> bool:
    """Whether no size depends on data or can be 0."""
    for n in sizes:
        if type(n) is int:
            if n < 1:
                return False
        elif n.node._hint is None or n.node.shape_env.knowledge.range_of(n.node.expr).low < 1:
            return False
    return True


def _product(sizes: Sizes) -> Any:
    made: Any = 1
    for n in sizes:
        made = made * n
    return made


def _contiguous_strides(sizes: Sizes, inner: Any = 1) -> list[Any]:
    steps: list[Any] = []
    for n in reversed(sizes):
        steps.insert(0, inner)
        inner = inner * n
    return steps


def _is_dense(sizes: Sizes, strides: Sizes) -> bool:
    """Whether the dimensions lie inside each other without gaps."""
    wanted = _contiguous_strides(sizes, strides[-1]) if len(sizes) else []
    return _all_same(strides, wanted)


def _is_contiguous(tensor: Any) -> bool:
    shape = tensor.shape
    return _positive(shape) and _all_same(tensor.stride(), _contiguous_strides(shape))


# ---- results ------------------------------------------------------------------------------------


def _new(like: Any, shape: Sizes, dtype: Any = None) -> Output:
    steps = tuple(_contiguous_strides(shape))
    return Output(tuple(shape), steps, 0, dtype or like.dtype, like.fake_device, -1, -1, 0)


def _viewed(tensor: Any, shape: Sizes, steps: Sizes) -> Result:
    offset = tensor.storage_offset()
    place = tuple(shape), tuple(steps), offset
    return _result(Output(*place, tensor.dtype, tensor.fake_device, -1, 0, 0))


def _result(*outputs: Output, kind: type | None = None) -> Result:
    return Result(kind, outputs)


def _plain(*tensors: Any) -> bool:
    """Contiguous, on one device, and read as they are."""
    device = tensors[0].fake_device
    return all(
        t.fake_device == device and not t.is_neg() and not t.is_conj() and _is_contiguous(t)
        for t in tensors
    )


def _floats(*tensors: Any) -> bool:
    dtype = tensors[0].dtype
    return dtype in _FLOATS and all(t.dtype is dtype for t in tensors) and _plain(*tensors)


# ---- views --------------------------------------------------------------------------------------


def _can_view(tensor: Any) -> bool:
    if tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor():  # so is its view
        return False
    # A view of a tensor from before is no inference tensor.
    return not torch.is_inference_mode_enabled() and _positive(tensor.shape)


def _view(tensor: Any, shape: Sizes) -> Result | None:
    if not _can_view(tensor):
        return None
    sizes, given, strides = list(shape), tensor.shape, tensor.stride()
    unknown = [i for i, n in enumerate(sizes) if type(n) is int and n == -1]
    count = _product(given)
    if unknown:
        known = _product([n for i, n in enumerate(sizes) if i not in unknown])
        if len(unknown) > 1 or not _positive([known]):
            return None
        sizes[unknown[0]] = count // known
    if not _positive(sizes) or not _same(_product(sizes), count):
        return None
    kept = 0
    while kept < min(len(sizes), len(given)) and _same(sizes[kept], given[kept]):
        kept += 1
    if kept == len(given) or kept == len(sizes):
        return _viewed(tensor, sizes, strides) if len(given) == len(sizes) else None
    if not _is_dense(given[kept:], strides[kept:]):
        return None
    steps = (*strides[:kept], *_contiguous_strides(sizes[kept:], strides[-1]))
    return _viewed(tensor, sizes, steps)


def _transpose(tensor: Any, a: int, b: int) -> Result | None:
    rank = tensor.dim()
    if not _can_view(tensor) or not (-rank <= a < rank and -rank <= b < rank):
        return None
    order = list(range(rank))
    order[a], order[b] = order[b], order[a]
    shape, strides = tensor.shape, tensor.stride()
    return _viewed(tensor, [shape[i] for i in order], [strides[i] for i in order])


def _unsqueeze(tensor: Any, dim: int) -> Result | None:
    rank = tensor.dim()
    if not _can_view(tensor) or not -rank - 1 <= dim <= rank:
        return None
    dim += (rank + 1) if dim < 0 else 0
    shape, strides = list(tensor.shape), list(tensor.stride())
    step = 1 if dim == rank else shape[dim] * strides[dim]
    return _viewed(tensor, [*shape[:dim], 1, *shape[dim:]], [*strides[:dim], step, *strides[dim:]])


def _permute(tensor: Any, order: Sequence[int]) -> Result | None:
    rank = tensor.dim()
    places = [d + rank if d < 0 else d for d in order]
    if not _can_view(tensor) or sorted(places) != list(range(rank)):
        return None
    shape, strides = tensor.shape, tensor.stride()
    return _viewed(tensor, [shape[d] for d in places], [strides[d] for d in places])


def _expand(tensor: Any, shape: Sizes) -> Result | None:
    rest = len(shape) - tensor.dim()
    if not _can_view(tensor) or rest < 0:
        return None
    sizes, steps = list(shape), [0] * rest + list(tensor.stride())
    if not _positive(sizes[:rest]) or any(type(n) is int and n == 1 for n in sizes[:rest]):
        return None
    for i, n in enumerate(tensor.shape, rest):
        if (type(sizes[i]) is int and sizes[i] == -1) or _same(sizes[i], n):
            sizes[i] = n
        elif type(n) is int and n == 1 and _positive(sizes[i : i + 1]):
            steps[i] = 0
        else:
            return None
    return _viewed(tensor, sizes, steps)


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
            elif _same(n, m) or (type(m) is int and m == 1):
                found.append(n)
            else:
                return None
    return found


def _elementwise(kinds: tuple[torch.dtype, ...], gives: torch.dtype | None) -> Callable:
    def rule(*operands: Any) -> Result | None:
        tensors = [x for x in operands if isinstance(x, torch.Tensor)]
        numbers = [type(x) for x in operands if not isinstance(x, torch.Tensor)]
        dtype = tensors[0].dtype if tensors else None
        if dtype not in kinds or any(t.dtype is not dtype for t in tensors):
            return None
        allowed = (int, float) if dtype in _FLOATS else (int,)
        if any(kind not in allowed for kind in numbers) or not _plain(*tensors):
            return None
        # In C order, as all operands are: dimensions that one of them repeats change no order.
        shape = _broadcast(tensors)
        return None if shape is None else _result(_new(tensors[0], shape, gives))

    return rule


def _where(condition: Any, a: Any, b: Any) -> Result | None:
    if condition.dtype is not torch.bool or a.dtype is not b.dtype:
        return None
    tensors = (a, b, condition)
    shape = _broadcast(tensors) if _plain(*tensors) else None
    return None if shape is None else _result(_new(a, shape))


# ---- products, norms ----------------------------------------------------------------------------


def _factors(*tensors: Any) -> bool:
    """As :func:`_floats`, in whatever order their elements lie."""
    dtype, device = tensors[0].dtype, tensors[0].fake_device
    return dtype in _FLOATS and all(
        t.dtype is dtype
        and t.fake_device == device
        and not (t.is_neg() or t.is_conj())
        and _positive(t.shape)
        for t in tensors
    )


def _mm(a: Any, b: Any) -> Result | None:
    if (a.dim(), b.dim()) != (2, 2) or not _factors(a, b) or not _same(a.shape[1], b.shape[0]):
        return None
    return _result(_new(a, (a.shape[0], b.shape[1])))


def _addmm(bias: Any, a: Any, b: Any, *rest: Any) -> Result | None:
    if rest or bias.dim() != 1 or not _factors(bias, a, b) or a.dim() != 2 or b.dim() != 2:
        return None
    if not _same(a.shape[1], b.shape[0]) or not _same(bias.shape[0], b.shape[1]):
        return None
    return _result(_new(a, (a.shape[0], b.shape[1])))


def _layer_norm(x: Any, normalized: Any, weight: Any, bias: Any, eps: Any) -> Result | None:
    given = [t for t in (x, weight, bias) if t is not None]
    size, rank = tuple(x.shape), len(normalized)
    if not _floats(*given) or not rank or not _all_same(size[-rank:], normalized):
        return None
    if any(not _all_same(t.shape, normalized) for t in given[1:]):
        return None
    rows = (*size[:-rank], *[1] * rank)
    return _result(_new(x, size), _new(x, rows), _new(x, rows), kind=tuple)


def _batch_norm(x: Any, weight: Any, bias: Any, mean: Any, variance: Any, *_: Any) -> Result | None:
    """Of inference, on the CPU, where nothing is kept for a backward."""
    given = [t for t in (weight, bias, mean, variance) if t is not None]
    if x.dim() < 2 or x.fake_device.type != "cpu" or not _floats(x, *given):
        return None
    if any(not _all_same(t.shape, x.shape[1:2]) for t in given):
        return None
    return _result(_new(x, x.shape), _new(x, (0,)), _new(x, (0,)), kind=tuple)


def _group_norm(
    x: Any, weight: Any, bias: Any, n: Any, channels: Any, rest: Any, groups: Any, eps: float
) -> Result | None:
    given = [t for t in (weight, bias) if t is not None]
    if x.dim() < 2 or x.fake_device.type != "cpu" or not _floats(x, *given):
        return None
    if type(channels) is not int or type(groups) is not int or groups < 1 or channels % groups:
        return None
    if not _all_same((n, channels, rest), (*x.shape[:2], _product(x.shape[2:]))):
        return None
    if any(not _all_same(t.shape, (channels,)) for t in given):
        return None
    kept = _new(x, (n, groups))
    return _result(_new(x, x.shape), kept, kept, kind=tuple)


def _bmm(a: Any, b: Any) -> Result | None:
    if (a.dim(), b.dim()) != (3, 3) or not _factors(a, b):
        return None
    if not _same(a.shape[0], b.shape[0]) or not _same(a.shape[2], b.shape[1]):
        return None
    return _result(_new(a, (*a.shape[:2], b.shape[2])))


def _softmax(x: Any, dim: int, as_float: bool) -> Result | None:
    if as_float or not x.dim() or not -x.dim() <= dim < x.dim() or not _floats(x):
        return None
    return _result(_new(x, x.shape))


def _cat(tensors: Sequence[Any], dim: int = 0) -> Result | None:
    rank = tensors[0].dim()
    if not rank or not -rank <= dim < rank or not _floats(*tensors):
        return None
    dim += rank if dim < 0 else 0
    shape = list(tensors[0].shape)
    for t in tensors[1:]:
        others = [t.shape[:dim], t.shape[dim + 1 :]]
        if t.dim() != rank or not all(map(_all_same, others, (shape[:dim], shape[dim + 1 :]))):
            return None
        shape[dim] = shape[dim] + t.shape[dim]
    return _result(_new(tensors[0], shape))


def _embedding(weight: Any, indices: Any, *rest: Any) -> Result | None:
    if weight.dim() != 2 or indices.dtype not in (torch.int64, torch.int32):
        return None
    if not _plain(weight, indices):
        return None
    return _result(_new(weight, (*indices.shape, weight.shape[1])))


def _index(x: Any, indices: Sequence[Any]) -> Result | None:
    given = [t for t in indices if t is not None]
    if not given or any(t.dtype not in (torch.int64, torch.int32) for t in given):
        return None
    chosen = _broadcast(given) if _plain(x, *given) else None
    if chosen is None or len(indices) > x.dim():
        return None
    places = [i for i, t in enumerate(indices) if t is not None]
    kept = [n for i, n in enumerate(x.shape) if i not in places]
    first = places[0] if places[-1] - places[0] == len(places) - 1 else 0  # apart: they lead
    return _result(_new(x, (*kept[:first], *chosen, *kept[first:])))


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
    if transposed or dims not in (1, 2, 3) or weight.dim() != dims + 2 or not _floats(*given):
        return None
    if x.fake_device.type != "cpu" or type(groups) is not int or groups < 1:
        return None
    if not _same(x.shape[1], weight.shape[1] * groups):
        return None
    out = weight.shape[0]
    if groups > 1 and (type(out) is not int or out % groups):
        return None
    if bias is not None and not _all_same(bias.shape, (out,)):
        return None
    size = _windows(x.shape[2:], weight.shape[2:], stride, padding, dilation)
    return None if size is None else _result(_new(x, (x.shape[0], out, *size)))


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
    if x.dim() not in (3, 4) or ceil_mode or not kernel or not _floats(x):
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
    return None if size is None else _result(_new(x, size), _new(x, size, torch.int64), kind=tuple)


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
    return None if size is None else _result(_new(x, size))


def _cumsum(x: Any, dim: int) -> Result | None:
    if not x.dim() or not -x.dim() <= dim < x.dim() or not _plain(x):
        return None
    whole = not (x.is_floating_point() or x.is_complex())
    return _result(_new(x, x.shape, torch.int64 if whole else None))


_NUMBERS = (*_FLOATS, torch.int64)
_RULES: dict[Any, Callable[..., Result | None]] = {
    _aten.view.default: _view,
    _aten._unsafe_view.default: _view,
    _aten.transpose.int: _transpose,
    _aten.unsqueeze.default: _unsqueeze,
    _aten.permute.default: _permute,
    _aten.expand.default: _expand,
    _aten.where.self: _where,
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
    _aten.div.Tensor: _elementwise(_FLOATS, None),
    _aten.pow.Tensor_Scalar: _elementwise(_FLOATS, None),
}
for _name in ("add", "sub", "mul"):
    _RULES[getattr(_aten, _name).Tensor] = _elementwise(_NUMBERS, None)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    for _overload in ("Tensor", "Scalar"):
        _RULES[getattr(getattr(_aten, _name), _overload)] = _elementwise(_NUMBERS, torch.bool)
for _name in "tanh exp relu sigmoid neg rsqrt sqrt abs silu cos sin gelu".split():
    _RULES[getattr(_aten, _name).default] = _elementwise(_FLOATS, None)
