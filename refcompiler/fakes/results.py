"""What operators gave for fakes like these: made again without asking torch.

Layers of a model, and captures of one program, run the same operators on tensors of the same
sizes. What a fake result looks like depends on what is in the key only: the function, the metadata
of the tensors (with their dispatch keys and where they lie), which of them share memory where the
function writes, the other arguments with their classes, and the settings that fakes read. What
raises is not kept, nor a result that is a number, a constant, or in memory that no plain new
tensor and no argument has. Where sizes are symbols, their nodes are in the key, and the results
are those of one capture: what the operator decided by has been recorded there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
)

from refcompiler.shapes.node import SYMBOLS, Node

_get_default_dtype = torch.get_default_dtype
_get_default_device = torch._C._get_default_device
_in_inference = torch.is_inference_mode_enabled
_dispatch_keys = torch._C._dispatch_keys
_empty_strided = torch.empty_strided
_make_subclass = torch.Tensor._make_subclass
_as_strided = torch.ops.aten.as_strided.default
_forbid_data = torch._C._set_throw_on_mutable_data_ptr
_META = torch.device("meta")

_PLAIN = frozenset(
    {int, float, bool, complex, str, type(None)}
    | {torch.dtype, torch.device, torch.layout, torch.memory_format}
)
_SEQUENCES = (tuple, list, torch.Size)
_ROOM = 8192  # results that are kept


class Output(NamedTuple):
    """One tensor of a result; ``same`` and ``memory`` are places among the tensor arguments.

    ``same``: it is that argument. ``memory``: it lies in that argument's memory. Else -1.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    same: int
    memory: int
    end: int  # the bytes that the memory has at least


class Result(NamedTuple):
    """``kind`` is the container's class, or None for a single tensor."""

    kind: type | None
    outputs: tuple[Output | None, ...]


_RESULTS: dict[tuple, Result] = {}


class Asked:
    """A call of an operator: ``key`` is what its fake result depends on, ``tensors`` in order."""

    __slots__ = ("key", "tensors", "writes", "results")

    def __init__(self, key: tuple, tensors: list[FakeTensor], writes: bool, results: dict):
        self.key = key
        self.tensors = tensors
        self.writes = writes
        self.results = results


# ---- the key ------------------------------------------------------------------------------------


def ask(mode: FakeTensorMode, func: Any, args: Sequence, kwargs: Mapping | None) -> Asked | None:
    """The call as a key; None if its result may depend on anything else."""
    extra = _EXTRA.get(func)
    if extra is None:
        extra = _EXTRA[func] = _extra_of(func)
    if extra is _NEVER or not mode.cache_enabled or mode.propagate_real_tensors:
        return None
    key: list[Any] = [func, _get_default_dtype(), _get_default_device(), _in_inference()]
    tensors: list[FakeTensor] = []
    if not _describe(args, key, tensors, mode):
        return None
    if kwargs:
        key.append(tuple(kwargs))
        if not _describe(kwargs.values(), key, tensors, mode):
            return None
    constants = [t for t in tensors if t.constant is not None]
    if constants and (len(constants) == len(tensors) or extra is _shared):
        return None  # the result is a constant, or they are none any more
    if extra is _indexed and any(t.dtype in _MASKS for t in tensors[1:]):
        return None  # how many elements a mask takes may be known here, and is another's elsewhere
    if extra is not _NOTHING:
        key.append(extra(tensors))
    results = _RESULTS
    if mode.shape_env is not None and _names_symbols(key):
        results = mode.symbolic_results
    return Asked(tuple(key), tensors, extra is _shared, results)


def _names_symbols(key: Sequence) -> bool:
    return any(type(part) is Node or (type(part) is tuple and _names_symbols(part)) for part in key)


def _plain(numbers: Any) -> tuple:
    """Sizes of which the symbols can be in a key."""
    return tuple([n if type(n) is int else n.node for n in numbers])


def _describe(values: Any, key: list, tensors: list, mode: FakeTensorMode) -> bool:
    for value in values:
        kind = type(value)
        if kind is FakeTensor:
            if value.fake_mode is not mode or value.layout is not torch.strided:
                return False
            shape, stride = tuple(value.shape), value.stride()
            offset = value.storage_offset()
            if value._has_symbolic_sizes_strides:
                shape, stride, (offset,) = _plain(shape), _plain(stride), _plain((offset,))
            key += (
                value.dtype,
                value.fake_device,
                shape,
                stride,
                offset,
                _dispatch_keys(value).raw_repr(),
                value.is_inference(),  # of which those tell nothing in inference mode
            )
            tensors.append(value)
        elif kind in _PLAIN:
            key.append(kind)  # since 1 and 1.0 and True are equal
            key.append(value)
        elif kind in SYMBOLS:
            key.append(value.node)
        elif kind in _SEQUENCES:
            key.append(len(value))
            if not _describe(value, key, tensors, mode):
                return False
        else:
            return False
    return True


def _nothing(tensors: list[FakeTensor]) -> Any:
    return None


def _never(tensors: list[FakeTensor]) -> Any:
    raise AssertionError


def _indexed(tensors: list[FakeTensor]) -> Any:
    """Nothing more; what is indexed by a mask is not remembered."""
    return None


def _shared(tensors: list[FakeTensor]) -> Any:
    """Where the function writes: which of the tensors share memory."""
    first: dict[int, int] = {}
    return tuple([first.setdefault(t.untyped_storage()._cdata, i) for i, t in enumerate(tensors)])


def _sizes(tensors: list[FakeTensor]) -> Any:
    """How large the memory is."""
    return _plain([t.untyped_storage().nbytes() for t in tensors])


def _kernels(tensors: list[FakeTensor]) -> Any:
    """What chooses the kernel of a convolution, whose result lies as that kernel likes."""
    return (
        torch._C._get_mkldnn_enabled(),
        torch.get_num_threads(),
        torch._C._get_cudnn_enabled(),
        torch._C._get_cudnn_benchmark(),
        torch._C._get_cudnn_deterministic(),
        torch._C._get_deterministic_algorithms(),
    )


_NOTHING: Callable[[list[FakeTensor]], Any] = _nothing
_NEVER: Callable[[list[FakeTensor]], Any] = _never
_EXTRA: dict[Any, Callable[[list[FakeTensor]], Any]] = {}
_MASKS = (torch.bool, torch.uint8)
#: They answer by what is in the tensor, or change what it is.
_TAGS = (
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
    torch.Tag.inplace_view,
)


def _extra_of(func: Any) -> Callable[[list[FakeTensor]], Any]:
    """What the key of ``func`` has besides its arguments."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":
        return _NEVER
    if func is torch.ops.aten.index.Tensor:
        return _indexed
    name = func._schema.name
    if any(tag in func.tags for tag in _TAGS) or name.startswith("aten::lift"):
        return _NEVER
    if func._schema.is_mutable:
        return _shared
    if "as_strided" in name:
        return _sizes
    return _kernels if "convolution" in name else _NOTHING


# ---- results ------------------------------------------------------------------------------------


def recall(mode: FakeTensorMode, asked: Asked) -> Any:
    """What was given before, made anew; ``NotImplemented`` if nothing is known."""
    result = asked.results.get(asked.key)
    if result is None:
        return NotImplemented
    tensors = asked.tensors
    if result.kind is None:
        return _make(mode, result.outputs[0], tensors)
    made = [_make(mode, output, tensors) for output in result.outputs]
    return NotImplemented if any(t is NotImplemented for t in made) else result.kind(made)


def keep(mode: FakeTensorMode, asked: Asked, func: Any, args: Any, kwargs: Any, given: Any) -> None:
    """Remember what the call gave, if that is all that it did."""
    if asked.writes:
        after = ask(mode, func, args, kwargs)
        if after is None or after.key != asked.key:  # an ``out`` that was resized
            return
    kind: type | None = None
    items = [given]
    if isinstance(given, (tuple, list)):
        kind, items = tuple if isinstance(given, tuple) else list, list(given)
    storages = {t.untyped_storage()._cdata: i for i, t in reversed([*enumerate(asked.tensors)])}
    own: set[int] = set()
    outputs: list[Output | None] = []
    for item in items:
        if item is None and kind is not None:
            outputs.append(None)
            continue
        output = _output(mode, item, asked.tensors, storages, own)
        if output is None:
            return
        outputs.append(output)
    remember(asked, Result(kind, tuple(outputs)))


def remember(asked: Asked, result: Result) -> None:
    if len(asked.results) >= _ROOM:
        asked.results.clear()
    asked.results[asked.key] = result


def _output(
    mode: FakeTensorMode, item: Any, tensors: list[FakeTensor], storages: dict, own: set[int]
) -> Output | None:
    """How to make a tensor like ``item``; None if it cannot be made from this alone."""
    if (
        type(item) is not FakeTensor
        or item.fake_mode is not mode
        or item.constant is not None
        or item.layout is not torch.strided
        or item.fake_device == _META
        or (item._has_symbolic_sizes_strides and not _is_backed(item))
    ):
        return None
    same = next((i for i, t in enumerate(tensors) if t is item), -1)
    storage = item.untyped_storage()
    memory = storages.get(storage._cdata, -1)
    if memory >= 0 and (tensors[memory].is_conj() or tensors[memory].is_neg()):
        return None  # a view has that bit or not, by the way in which it is made
    shape, stride, offset = tuple(item.shape), item.stride(), item.storage_offset()
    end = 0
    if memory >= 0 and not item._has_symbolic_sizes_strides and 0 not in shape:
        last = offset + sum([(n - 1) * step for n, step in zip(shape, stride, strict=True)])
        end = (last + 1) * item.dtype.itemsize
    output = Output(shape, stride, offset, item.dtype, item.fake_device, same, memory, end)
    if same >= 0:
        return output
    written = not item.is_inference() and item._version > 0
    if item.requires_grad or written or storage._cdata in own:
        return None
    if memory < 0:
        own.add(storage._cdata)
    made = _make(mode, output, tensors)
    alike = made is not NotImplemented and (
        _dispatch_keys(made) == _dispatch_keys(item)
        and made.is_inference() == item.is_inference()  # a view of one from before
        and _plain([made.untyped_storage().nbytes()]) == _plain([storage.nbytes()])
        and made.__dict__.keys() == item.__dict__.keys()
    )
    return output if alike else None


def _is_backed(item: FakeTensor) -> bool:
    """No size of it depends on data, which would be another one each time."""
    numbers = (*item.shape, *item.stride(), item.storage_offset())
    return all(type(n) is int or n.node.has_hint() for n in numbers)


def _make(mode: FakeTensorMode, output: Output | None, tensors: list[FakeTensor]) -> Any:
    if output is None:
        return None
    shape, stride, offset, dtype, device, same, memory, end = output
    if same >= 0:
        return tensors[same]
    if memory >= 0 and (mode.shape_env is not None or _in_inference()):
        # ``set_`` would ask whether there are elements, and of what size the memory is; and in
        # inference mode a view of a tensor from before is no inference tensor.
        if tensors[memory].dtype is not dtype:
            return NotImplemented
        with in_kernel_invocation_manager(mode):
            meta = _as_strided(tensors[memory], shape, stride, offset)
        return blank(mode, meta, device)
    meta = _empty_strided(shape, stride, dtype=dtype, device=_META)
    if memory >= 0:
        storage = tensors[memory].untyped_storage()
        if storage.nbytes() < end:  # a fake that sees more than there is: it would be enlarged
            return NotImplemented
        meta.set_(storage, offset, shape, stride)
    return blank(mode, meta, device)


def blank(mode: Any, meta: torch.Tensor, device: torch.device, requires_grad: bool = False) -> Any:
    """A fake on ``device`` over a tensor on the meta device."""
    template = mode.blanks.get(device)
    if template is None:
        template = mode.blanks[device] = dict(FakeTensor(mode, meta, device).__dict__)
    made: Any = _make_subclass(
        FakeTensor, meta, requires_grad, dispatch_device=True, device_for_backend_keys=device
    )
    _forbid_data(made)
    made.__dict__.update(template)
    return made
