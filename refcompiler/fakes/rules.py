"""Fake results of common operators by their own rules, which are quicker than torch's stand-ins.

Sizes and dtypes are what the specification's rows say, and where a result lies is what eager does
for that kind of operator. A rule answers for arguments that are plainly right, and with None for
all else: then torch is asked, which knows the rest and raises what is to be raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor

from refcompiler.fakes.demands import Demands
from refcompiler.fakes.gradients import ANSWERS
from refcompiler.fakes.results import Output, Result
from refcompiler.fakes.views import VIEWS, Seen, expand
from specs import dtypes, strides
from specs.dtypes import TensorType
from specs.operators import OPERATORS, Operator
from specs.shapes import broadcast, wrap

Rule = Callable[[Sequence, Mapping], Result | None]

_aten = torch.ops.aten
_DTYPES = {name: getattr(torch, name) for name in dtypes.ALL}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_FLOATS = (torch.float32, torch.float64)
_REFUSED = (TypeError, ValueError, IndexError)

_RULES: dict[Any, Rule | None] = {}


def by_rule(func: Any, args: Sequence, kwargs: Mapping | None) -> Result | None:
    """What ``func`` gives; None where no rule says it."""
    try:
        rule = _RULES[func]
    except KeyError:
        rule = _RULES[func] = _rule_of(func)
    if rule is None:
        return None
    try:
        return rule(args, kwargs or {})
    except _REFUSED:
        return None


def _rule_of(func: Any) -> Rule | None:
    if func in VIEWS:
        return _of_view(VIEWS[func])
    row = OPERATORS.get(str(func))
    if row is None:
        return None
    if row.kind == "pointwise" and row.strides((), {}) is not None:
        return _of_row(func, row, row.strides)
    layout = _LAYOUTS.get(func)
    return None if layout is None else _of_row(func, row, layout)


# ---- views --------------------------------------------------------------------------------------


def _of_view(rule: Callable) -> Rule:
    def answer(args: Sequence, kwargs: Mapping) -> Result | None:
        t = args[0]
        if kwargs or not _static(t) or not _numbers(args[1:]):
            return None
        if t.is_conj() or t.is_neg() or t._is_zerotensor():  # so is its view
            return None
        if torch.is_inference_mode_enabled():  # a view of one from before is no inference tensor
            return None
        seen = rule(*args)
        if seen is None:
            return None
        if type(seen) is list:
            return Result(list, tuple([_within(t, piece) for piece in seen]))
        return Result(None, (_within(t, seen),))

    return answer


def _numbers(values: Sequence) -> bool:
    return all(
        value is None
        or type(value) is int
        or (type(value) in (list, tuple, torch.Size) and _numbers(value))
        for value in values
    )


# ---- new tensors --------------------------------------------------------------------------------

Layout = Callable[[Sequence[int], Mapping[str, Any]], strides.Strides | None]


def _of_row(func: Any, row: Operator, layout: Layout) -> Rule:
    """The rule of an operator whose results are new tensors that lie by ``layout``."""
    names = [argument.name for argument in func._schema.arguments]
    known = {argument.name for argument in row.args}
    listed = str(func._schema.returns[0].type).startswith("List")
    several = tuple if len(func._schema.returns) > 1 else None
    demands = Demands(row)
    filled = row.kind == "factory"
    aligned = row.kind in ("contraction", "normalisation", "gather")

    def answer(args: Sequence, kwargs: Mapping) -> Result | None:
        given = {**dict(zip(names, args)), **kwargs}
        tensors: list[Any] = []
        typed: dict[str, Any] = {}
        for name, value in given.items():
            if name in known:
                typed[name] = _typed(value, tensors)
            elif value is not None and not _usual(name, value):
                return None
        if not demands.met(typed, tensors):
            return None
        device = _CPU
        if tensors:
            device = tensors[0].fake_device
            if any(t.fake_device != device for t in tensors):
                return None
        elif not filled or torch._C._get_default_device() != "cpu":
            return None  # what torch computes of numbers alone is a constant
        wanted = given.get("device")
        if wanted is not None and wanted != device:  # a copy elsewhere
            return None
        if aligned and (device.type != "cpu" or any(0 in t.shape for t in tensors)):
            return None
        if torch.get_default_dtype() is not torch.float32:
            return None
        outputs = []
        for kind in row.infer(typed):
            if kind.shape and min(kind.shape) < 0:
                return None
            if filled and not demands.fit(typed, kind.dtype):
                return None
            steps = layout(kind.shape, given)
            if steps is None:
                return None
            outputs.append(_output(kind.shape, steps, 0, _DTYPES[kind.dtype], device, -1))
        return Result(several, tuple(outputs))

    return None if listed else answer  # type: ignore[return-value]


_CPU = torch.device("cpu")


def _typed(value: Any, tensors: list[Any]) -> Any:
    """An argument as the specification's rules see it; what they do not know is a TypeError."""
    kind = type(value)
    if kind is FakeTensor:
        if not _static(value) or value.is_neg() or value._is_zerotensor():
            raise TypeError("no plain tensor")
        tensors.append(value)
        name = _NAMES.get(value.dtype)
        if name is None:
            raise TypeError("no dtype of the specification's")
        return TensorType(name, tuple(value.shape))
    if kind is torch.dtype:
        if value not in _NAMES:
            raise TypeError("no dtype of the specification's")
        return _NAMES[value]
    if kind in (list, tuple, torch.Size):
        return [_typed(item, tensors) for item in value]
    if value is None or kind in (int, float, bool, str):
        return value
    raise TypeError("an argument that no rule knows")


def _usual(name: str, value: Any) -> bool:
    """Whether an argument that rows leave out is as if it had been, or left to the layout."""
    match name:
        case "layout":
            return value is torch.strided
        case "device":
            return bool(value == _CPU)
        case "pin_memory" | "non_blocking" | "scale_grad_by_freq" | "sparse":
            return value is False
    return name in ("padding_idx", "memory_format")


def _contiguous(shape: Sequence[int], given: Mapping[str, Any]) -> strides.Strides:
    return strides.contiguous(shape)


def _in_order(shape: Sequence[int], given: Mapping[str, Any]) -> strides.Strides | None:
    """Results lie like the operands, which is settled where these lie in order to the last step."""
    plain = all(t.stride() == strides.contiguous(t.shape) for t in _tensors(given))
    return strides.contiguous(shape) if plain and not given.get("memory_format") else None


def _padded(shape: Sequence[int], given: Mapping[str, Any]) -> strides.Strides | None:
    """What is only cut off is a copy of a part, which may lie as that."""
    return _in_order(shape, given) if any(n > 0 for n in given["pad"]) else None


def _joined(shape: Sequence[int], given: Mapping[str, Any]) -> strides.Strides | None:
    """Results are in order unless the operands have their channels last."""
    last = any(strides.is_channels_last(t.shape, t.stride()) for t in _tensors(given))
    return None if last else strides.contiguous(shape)


def _convolved(shape: Sequence[int], given: Mapping[str, Any]) -> strides.Strides | None:
    """Signals of one dimension are put in order first."""
    given = {**given}
    if given["input"].dim() == 3:
        del given["input"]
    return _in_order(shape, given)


def _stacked(shape: Sequence[int], given: Mapping[str, Any]) -> strides.Strides | None:
    """As of :func:`_joined`: joined along the dimension behind the new one, they are seen apart;
    of what has the new dimension where that is the last."""
    behind = wrap(given.get("dim", 0), len(shape)) == len(shape) - 1
    for t in given["tensors"]:
        size, steps = (*t.shape, 1), (*t.stride(), 1)
        count = len(size) if behind else len(size) - 1
        if strides.is_channels_last(size[:count], steps[:count]):
            return None
    return strides.contiguous(shape)


def _empty(shape: Sequence[int], given: Mapping[str, Any]) -> strides.Strides | None:
    if given.get("memory_format") not in (None, torch.contiguous_format):
        return None
    return strides.contiguous(shape)


def _not_cast(shape: Sequence[int], given: Mapping[str, Any]) -> strides.Strides | None:
    return None if given.get("dtype") else strides.contiguous(shape)  # it may not be narrower


def _kept(shape: Sequence[int], given: Mapping[str, Any]) -> strides.Strides | None:
    """A copy lies as its dense original does."""
    (t,) = _tensors(given)
    wanted = given.get("memory_format")
    if wanted is torch.contiguous_format:
        return strides.contiguous(shape)
    if wanted not in (None, torch.preserve_format) or not strides.is_dense(t.shape, t.stride()):
        return None
    return t.stride()


def _blended(shape: Sequence[int], given: Mapping[str, Any]) -> strides.Strides:
    """As of elementwise operators; the mask is an operand like the others."""
    return strides.elementwise(shape, [(t.shape, t.stride()) for t in _tensors(given)])


def _tensors(given: Mapping[str, Any]) -> list[Any]:
    found = []
    for value in given.values():
        several = value if type(value) in (list, tuple) else (value,)
        found += [item for item in several if type(item) is FakeTensor]
    return found


_LAYOUTS: dict[Any, Layout] = {
    **dict.fromkeys(
        (
            _aten.addmm.default,
            _aten.amax.default,
            _aten.all.dim,
            _aten.all.default,
            _aten.amin.default,
            _aten.any.dim,
            _aten.any.default,
            _aten.arange.default,
            _aten.arange.start,
            _aten.arange.start_step,
            _aten.argmax.default,
            _aten.argmin.default,
            _aten.baddbmm.default,
            _aten.bmm.default,
            _aten.cumsum.default,
            _aten.embedding.default,
            _aten.full.default,
            _aten.gather.default,
            _aten.index_select.default,
            _aten.max.dim,
            _aten.mean.dim,
            _aten.mean.default,
            _aten.min.dim,
            _aten.mm.default,
            _aten.native_layer_norm.default,  # of its operand in order
            _aten.new_full.default,
            _aten.new_ones.default,
            _aten.new_zeros.default,
            _aten.ones.default,
            _aten.scalar_tensor.default,
            _aten.std.correction,
            _aten.sum.dim_IntList,
            _aten.topk.default,
            _aten.tril.default,
            _aten.triu.default,
            _aten.var.correction,
            _aten.var_mean.correction,
            _aten.zeros.default,
        ),
        _contiguous,
    ),
    **dict.fromkeys(
        (
            _aten._log_softmax.default,
            _aten._adaptive_avg_pool2d.default,
            _aten._softmax.default,
            _aten.avg_pool2d.default,
            _aten.empty_like.default,
            _aten.flip.default,
            _aten.full_like.default,
            _aten.max_pool2d_with_indices.default,
            _aten.ones_like.default,
            _aten.repeat.default,
            _aten.roll.default,
            _aten.sort.default,
            _aten.zeros_like.default,
        ),
        _in_order,
    ),
    _aten.cat.default: _joined,
    _aten.stack.default: _stacked,
    _aten.constant_pad_nd.default: _padded,
    _aten.convolution.default: _convolved,
    _aten.empty.memory_format: _empty,
    _aten.linalg_vector_norm.default: _not_cast,
    _aten.where.self: _blended,
    _aten.clone.default: _kept,
    _aten._to_copy.default: _kept,
}


# ---- operators with results of their own kinds --------------------------------------------------


def _attention(args: Sequence, kwargs: Mapping) -> Result | None:
    """The result, and the logarithms of sums, which lie with the heads innermost."""
    query, key, value = args[:3]
    if not _alike(query, key, value) or {query.dim(), key.dim(), value.dim()} != {4}:
        return None
    (batch, heads, length, width), size = query.shape, tuple(query.shape)
    if key.shape != value.shape or key.shape[0] != batch or 0 in (*size, *key.shape):
        return None
    if heads % key.shape[1]:  # or several heads of the query share one of the key
        return None
    if key.shape[3] != width or not strides.is_dense(size, query.stride()):
        return None
    sums = _new(query, (batch, heads, length), (length * heads, 1, heads))
    return Result(tuple, (_new(query, size, query.stride()), sums))


def _weight_norm(args: Sequence, kwargs: Mapping) -> Result | None:
    """The weight, and the lengths of its rows, which are as the magnitudes are."""
    v, g, dim = (*args, 0)[:3]
    if kwargs or not _alike(v, g) or dim not in (0, v.dim() - 1) or 0 in v.shape:
        return None
    if any(t.stride() != strides.contiguous(t.shape) for t in (v, g)):
        return None
    if tuple(g.shape) != tuple([n if d == dim else 1 for d, n in enumerate(v.shape)]):
        return None
    return Result(tuple, tuple([_new(t, tuple(t.shape), t.stride()) for t in (v, g)]))


def _safe_softmax(args: Sequence, kwargs: Mapping) -> Result | None:
    x, dim, *more = args
    if kwargs or any(n is not None for n in more) or not _alike(x) or not -x.dim() <= dim < x.dim():
        return None
    steps = strides.contiguous(x.shape)
    return Result(None, (_new(x, tuple(x.shape), steps),)) if x.stride() == steps else None


def _indexed(args: Sequence, kwargs: Mapping) -> Result | None:
    """Elements at places that tensors of integers say, one for each indexed dimension.

    Dimensions that are not next to each other come first. The result lies as one of elements of the
    places and of the tensor, which is seen without steps along their dimensions.
    Source: the reference of ``torch.Tensor.index_put`` and NumPy's rules of advanced indexing.
    """
    x, indices = args
    places = {d: index for d, index in enumerate(indices) if index is not None}
    if kwargs or not places or len(indices) > x.dim():
        return None
    if any(type(t) is not FakeTensor or not _static(t) for t in (x, *places.values())):
        return None
    plain = not (x.is_neg() or x.is_conj() or x._is_zerotensor()) and x.fake_device == _CPU
    if not plain or any(t.fake_device != _CPU for t in places.values()):
        return None
    if any(t.dtype not in (torch.int64, torch.int32) for t in places.values()):
        return None
    between = broadcast(*[t.shape for t in places.values()])
    if 0 in x.shape or 0 in between:
        return None
    gone = list(places)
    order = list(range(x.dim()))
    if gone != list(range(gone[0], gone[0] + len(gone))):
        order = [*gone, *[d for d in order if d not in places]]
        gone = list(range(len(gone)))
    size, steps = [x.shape[d] for d in order], [x.stride(d) for d in order]
    before, after = gone[0], gone[-1] + 1
    shape = (*size[:before], *between, *size[after:])
    seen = (*steps[:before], *[0] * len(between), *steps[after:])
    operands: list[strides.Laid] = [(shape, seen)]
    for t in places.values():
        lies = expand(t, between)[1]
        if t.dtype is not torch.int64 and not strides.is_dense(between, lies):  # copied first
            lies = strides.elementwise(between, [(between, lies)])
        full = ((1,) * before, between, (1,) * (len(size) - after))
        there = [n for part in full for n in part]
        stepped = strides.viewed(between, lies, there)
        if stepped is None:
            return None
        operands.append((there, stepped))
    return Result(None, (_new(x, shape, strides.elementwise(shape, operands)),))


def _upsampled(args: Sequence, kwargs: Mapping) -> Result | None:
    """Images of another size, which lie in order, or with channels last, as the given ones do."""
    x, size, *_ = args
    if kwargs or not _alike(x) or x.dim() != 4 or not _numbers(size) or len(size) != 2:
        return None
    shape = (*x.shape[:2], *size)
    if min(shape) <= 0 or min(x.shape) <= 0:
        return None
    last = strides.is_channels_last(x.shape, x.stride())
    lies = strides.channels_last if last else strides.contiguous
    if x.stride() != lies(x.shape) or (last and 1 in x.shape[1:]):
        return None
    return Result(None, (_new(x, shape, lies(shape)),))


def _convolution_backward(args: Sequence, kwargs: Mapping) -> Result | None:
    """Of windows of one position, where ATen's own kernel computes it, and not the library: that
    gives weights, which lie in every format at once, gradients with the strides that they have."""
    gradient, x, weight, _, stride, padding, dilation, transposed, more, groups, wanted = args
    if kwargs or not _alike(gradient, x, weight) or not x.dim() == weight.dim() == 4:
        return None
    if tuple(weight.shape[2:]) != (1, 1) or min(*x.shape, *weight.shape) <= 0 or transposed:
        return None
    chosen = x, weight, None, stride, padding, dilation, transposed, more, groups
    if torch._C._select_conv_backend(*chosen) != torch._C._ConvBackend.Slow2d:
        return None
    size, form = tuple(x.shape), torch.channels_last
    last = form in map(suggest_memory_format, (x, weight))
    lies = strides.channels_last if last else strides.contiguous
    shape, steps = tuple(weight.shape), weight.stride()
    if not strides.is_dense(shape, steps):
        return None
    found = _new(x, size, lies(size)), _new(x, shape, steps), _new(x, shape[:1], (1,))
    return Result(tuple, tuple(o if on else None for o, on in zip(found, wanted, strict=True)))


_RULES |= ANSWERS
_RULES |= {
    _aten.index.Tensor: _indexed,
    _aten.convolution_backward.default: _convolution_backward,
    _aten.upsample_bicubic2d.default: _upsampled,
    _aten.upsample_bilinear2d.default: _upsampled,
    _aten.upsample_nearest2d.default: _upsampled,
    _aten._safe_softmax.default: _safe_softmax,
    _aten._weight_norm_interface.default: _weight_norm,
    _aten._scaled_dot_product_flash_attention_for_cpu.default: _attention,
}


def _alike(*tensors: Any) -> bool:
    """Plain tensors of one class of floating numbers, on the CPU."""
    dtype = tensors[0].dtype
    return dtype in _FLOATS and all(
        t.dtype is dtype and t.fake_device.type == "cpu" and _static(t) and not t.is_neg()
        for t in tensors
    )


def _static(tensor: Any) -> bool:
    return not tensor._has_symbolic_sizes_strides


def _within(tensor: Any, seen: Seen) -> Output:
    """A view of the first tensor among the arguments."""
    return _output(*seen, tensor.dtype, tensor.fake_device, 0)


def _new(like: Any, shape: tuple[int, ...], steps: tuple[int, ...]) -> Output:
    return _output(shape, steps, 0, like.dtype, like.fake_device, -1)


def _output(
    shape: tuple[int, ...],
    steps: tuple[int, ...],
    offset: int,
    dtype: torch.dtype,
    device: torch.device,
    memory: int,
) -> Output:
    end = 0
    if 0 not in shape:
        last = offset + sum([(n - 1) * step for n, step in zip(shape, steps, strict=True)])
        end = (last + 1) * dtype.itemsize
    return Output(shape, steps, offset, dtype, device, -1, memory, end)
