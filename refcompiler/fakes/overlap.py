"""Writes that eager refuses because the written memory overlaps what is read, or itself.

So are those whose result is of a greater kind than what is written to.

Fake tensors have no memory, so that torch's own checks let everything pass on them, and which
operators check is written down nowhere but in their kernels. What might be refused is rare, and is
asked of the kernel itself, on real memory that is laid out in the same way.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from refcompiler.dispatching import DispatchMode

REFUSAL = "unsupported operation"  # how every message of the checks begins
# Above this many bytes a write that overlaps is taken to be refused, as nearly all kernels do.
MOST_BYTES = 1 << 30
MOST_TRIED = 1000  # ways for two layouts to meet, before they are taken to


def refuse_overlap(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Raise eager's ``RuntimeError`` if eager's kernel of ``func`` refuses these fake tensors.

    True if it does not and yet the order of its elements may matter: it writes to elements that it
    reads as others.

    Costs a look at the storages, unless a written tensor has stride 0 or shares its storage with
    another argument.
    """
    given = list(_tensors(func, args, kwargs))
    tensors = [t for _, t in given]
    for place, (is_written, t) in enumerate(given):
        others = tensors[:place] + tensors[place + 1 :]
        if is_written and _suspect(t, others):
            _ask(func, args, kwargs, tensors)
            return any(_partly_the_same(t, other) for other in others)
    return False


#: Arithmetic in place whose stand-ins in torch let a result be of a lesser kind than its operands.
_UNCHECKED = frozenset(
    {
        *(torch.ops.aten.add_.Tensor, torch.ops.aten.sub_.Tensor, torch.ops.aten.mul_.Tensor),
        *(torch.ops.aten.addcmul_.default, torch.ops.aten.addcdiv_.default),
    }
)
#: The same of which the texts differ, or what is refused: eager's kernel is asked.
_ASKED = frozenset(
    {
        *(torch.ops.aten.celu_.default, torch.ops.aten.ldexp_.default),
        torch.ops.aten.logit_.default,
    }
)


def refuse_cast(func: Any, args: Sequence[Any]) -> None:
    """Raise eager's error if the written tensor cannot hold a result of that kind."""
    if func in _ASKED:
        with _disable_current_modes():
            func(*[_one_like(a) if isinstance(a, torch.Tensor) else a for a in args])
    if _of_lists(func):
        operands = [a if isinstance(a, list | tuple) else [a] * len(args[0]) for a in args[1:]]
        for result, *others in zip(args[0], *operands, strict=False):
            _refuse_cast(result, others)
    if func in _UNCHECKED:
        _refuse_cast(args[0], args[1:])


@functools.cache
def _of_lists(func: Any) -> bool:
    stem = func._schema.name.partition("::_foreach_")[2]
    return writes_to_list(func) and stem in ("add_", "sub_", "mul_", "addcmul_", "addcdiv_")


def _refuse_cast(result: torch.Tensor, operands: Sequence[Any]) -> None:
    for other in operands:
        found = torch.result_type(result, other)
        if not torch.can_cast(found, result.dtype):
            raise RuntimeError(
                f"result type {found} can't be cast to the desired output type {result.dtype}"
            )


def _one_like(t: torch.Tensor) -> torch.Tensor:
    return torch.ones((1,) * t.dim(), dtype=t.dtype, device=t.device)


def count_writes(func: Any, args: Sequence[Any]) -> None:
    """Count a write in the versions of a list of tensors, as eager's kernels do.

    Torch's stand-ins leave them alone, and views of what was written keep their old gradient.
    """
    if writes_to_list(func):
        torch.autograd.graph.increment_version([t for t in args[0] if not t.is_inference()])


@functools.cache
def writes_to_list(func: Any) -> bool:
    """Whether ``func`` is one of the operators on lists that writes to its first."""
    return str(func).startswith("aten._foreach_") and writes(func) == ("self",)


@functools.cache
def writes(func: Any) -> tuple[str, ...]:
    """The names of the tensor arguments that ``func`` writes to."""
    if not func._schema.is_mutable:
        return ()
    return tuple(
        a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write
    )


def written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The tensors that a call of ``func`` writes to."""
    return [t for is_written, t in _tensors(func, args, kwargs) if is_written]


def memory(t: torch.Tensor) -> int:
    """What tensors have in common whose elements lie in one storage (0: it has none)."""
    return t.untyped_storage()._cdata if t.layout is torch.strided else 0


class Written(DispatchMode):
    """The memory that operators write to: tensors of inference mode have no version to count it."""

    def __init__(self) -> None:
        super().__init__()
        self.memories: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.memories |= {memory(t) for t in written(func, args, kwargs or {})}
        return func(*args, **(kwargs or {}))


def overlaps_itself(t: torch.Tensor) -> bool:
    """Whether two elements of a strided tensor may be one place of memory.

    Of symbols it asks as little as it can, as each answer is assumed of later calls.
    """
    if t.is_contiguous():
        return False
    reach = 0  # the last element that the dimensions seen so far get to
    for stride, size in sorted(zip(t.stride(), t.shape), key=lambda pair: pair[0]):
        if size > 1 and stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def _tensors(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[bool, torch.Tensor]]:
    """Every tensor given, also in lists, and whether it is written to."""
    names = writes(func)
    given = [(a.name, v) for a, v in zip(func._schema.arguments, args)]
    for name, value in (*given, *kwargs.items()):
        for t in value if isinstance(value, list | tuple) else (value,):
            if isinstance(t, torch.Tensor):
                yield name in names, t


def _plain(number: Any) -> int | None:
    """A number, or what a symbol stands for in this call; None if only data says."""
    found = number if type(number) is int else number.node.hint
    return None if found is None else int(found)


def _layout(t: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    """Size, stride and offset in this call: a program for other sizes too is refused the same."""
    shape, stride = tuple(map(_plain, t.shape)), tuple(map(_plain, t.stride()))
    offset = _plain(t.storage_offset())
    if None in (*shape, *stride, offset):
        return None
    return shape, stride, offset  # type: ignore[return-value]


def _suspect(written: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    if written.layout is not torch.strided:
        return False
    if any(stride == 0 and size > 1 for size, stride in zip(written.shape, written.stride())):
        return True
    storage = written.untyped_storage()._cdata
    return any(t.layout is torch.strided and t.untyped_storage()._cdata == storage for t in others)


def _partly_the_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether some elements of ``a`` may be other elements of ``b``."""
    if a is b or b.layout is not torch.strided:
        return False
    if a.untyped_storage()._cdata != b.untyped_storage()._cdata:
        return False
    layouts = _layout(a), _layout(b)
    if None in layouts or any(0 in at[0] for at in layouts if at is not None):
        return False
    first, second = layouts
    assert first is not None and second is not None
    places = [(at[2] * t.itemsize, _reach(*at) * t.itemsize) for t, at in ((a, first), (b, second))]
    if places[0][1] <= places[1][0] or places[1][1] <= places[0][0]:
        return False
    if a.itemsize != b.itemsize:
        return True
    if first == second:
        return False
    return _meet(first, second)


def _meet(first: Any, second: Any) -> bool:
    """Whether two layouts (size, stride and offset) have a place of memory in common.

    Two indices do if, stride by stride, what they differ by adds up to what the offsets do. The
    largest stride goes first, as the others leave little to choose; where they leave a lot (True is
    safe then), it is not tried through.
    """
    spans: dict[int, list[int]] = {}
    for sign, (shape, stride, _) in ((1, first), (-1, second)):
        for n, k in zip(shape, stride):
            span = spans.setdefault(k, [0, 0])
            span[sign > 0] += sign * (n - 1)
    spans.pop(0, None)
    steps = sorted(spans, reverse=True)
    reach = [(0, 0)]  # what the strides after each can add
    for k in reversed(steps):
        reach.append((reach[-1][0] + k * spans[k][0], reach[-1][1] + k * spans[k][1]))
    reach.reverse()
    wanted = {second[2] - first[2]}
    for k, (low, high) in zip(steps, reach[1:]):
        least, most = spans[k]
        found: set[int] = set()
        for rest in wanted:
            begin, end = max(least, -((high - rest) // k)), min(most, (rest - low) // k)
            if end - begin > MOST_TRIED:
                return True
            found.update(rest - k * n for n in range(begin, end + 1))
        if len(found) > MOST_TRIED:
            return True
        wanted = found
    return 0 in wanted


def _reach(shape: Sequence[int], stride: Sequence[int], offset: int) -> int:
    """Elements of the storage up to the last one."""
    return offset + 1 + sum((n - 1) * k for n, k in zip(shape, stride))


def _ask(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[torch.Tensor]
) -> None:
    """Run the kernel on real memory of the same layout; only its refusal comes out."""
    layouts = {id(t): _layout(t) for t in tensors}
    storages = {t.untyped_storage()._cdata: _plain(t.untyped_storage().nbytes()) for t in tensors}
    sizes = [size for size in storages.values() if size is not None]
    if None in layouts.values() or len(sizes) < len(storages):
        return
    if sum(sizes) > MOST_BYTES:
        raise RuntimeError(
            f"{REFUSAL}: some elements of the input tensor and the written-to tensor refer to a "
            "single memory location. Please clone() the tensor before performing the operation."
        )
    with _disable_current_modes(), torch.no_grad(), torch.random.fork_rng(devices=[]):
        memory = {
            key: torch.zeros(size, dtype=torch.uint8).untyped_storage()
            for key, size in zip(storages, sizes)
        }
        made: dict[int, torch.Tensor] = {}

        def real(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return type(value)(map(real, value))
            if isinstance(value, torch.Tensor):
                if id(value) not in made:
                    shape, stride, offset = layouts[id(value)]  # type: ignore[misc]
                    made[id(value)] = torch.empty(0, dtype=value.dtype).set_(
                        memory[value.untyped_storage()._cdata], offset, shape, stride
                    )
                return made[id(value)]
            return _plain(value) if isinstance(value, torch.SymInt) else value

        named = {name: real(value) for name, value in kwargs.items() if name != "device"}
        try:
            func(*map(real, args), **named)
        except RuntimeError as error:
            refusal = error if str(error).startswith(REFUSAL) else None
        except Exception:  # what else is wrong with it, the fakes say
            refusal = None
        else:
            refusal = None
    if refusal is not None:
        raise refusal.with_traceback(None)
