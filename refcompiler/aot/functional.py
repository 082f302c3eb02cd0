"""Tensors that writes do not change while a graph is traced: each write gives another value."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx.node import has_side_effect
from torch.utils import _pytree as pytree

from refcompiler.aot.draws import normal_in_gaps
from refcompiler.aot.effects import checks
from refcompiler.aot.nodes import functionally, kind_of, traces_plainly
from refcompiler.aot.restoring import OTHERS
from refcompiler.aot.statistics import write_statistics, writes_statistics
from refcompiler.aot.sums import ADD, Sums
from refcompiler.dispatching import DispatchMode, dispatch_of
from refcompiler.fakes.fused import TWINS, write_twins_results
from refcompiler.fakes.inplace import out_of_place, twin
from refcompiler.fakes.overlap import count_writes, writes_to_list
from refcompiler.shapes.known import same, usual

#: Eager draws in the order of memory; the operator that stands for the write in the order of
#: dimensions. Those that stand for other draws keep the strides.
_IN_MEMORY_ORDER = frozenset({torch.ops.aten.bernoulli_.float})

_NORMAL = torch.ops.aten.normal_.default

#: Its name is a keyword, which no graph can be printed with; ``randint`` draws by it.
_RANDOM = getattr(torch.ops.aten.random_, "from")


#: Whose writes torch's stand-ins refuse to do with a generator of the program's own.
_DISTRIBUTIONS = {
    torch.ops.aten.exponential_.default: torch.ops.aten.exponential.default,
    torch.ops.aten.cauchy_.default: torch.ops.aten.cauchy.default,
    torch.ops.aten.geometric_.default: torch.ops.aten.geometric.default,
    torch.ops.aten.log_normal_.default: torch.ops.aten.log_normal.default,
}

#: Operators that change what a tensor is a view of, and those that draw.
_CHANGING = frozenset({torch.Tag.inplace_view, torch.Tag.nondeterministic_seeded})

#: What torch's mode does.
_FUNCTIONALLY = dispatch_of(FunctionalTensorMode)

#: What promotes no operand of floating numbers, and chooses no dtype.
_SCALARS = (int, float, bool, type(None))

#: Functionalisation has no kernel of it.
_POLYGAMMA = torch.ops.aten.polygamma_.default
#: Whose results lie in their operand's memory, though their schemas do not say so, and autograd is
#: not told: by the operators that say it.
_PARTS = {
    torch.ops.aten.unsafe_split.Tensor: torch.ops.aten.split.Tensor,
    torch.ops.aten.unsafe_split_with_sizes.default: torch.ops.aten.split_with_sizes.default,
}


#: Of an operand that only the engine has: its own, and those of the call and of Python's object.
_USES, _USES_OF_MEMORY = 4, 2


class FunctionalMode(DispatchMode, FunctionalTensorMode):
    """With checks, which have no result, as nodes like any other: torch's own mode has tokens.

    ``keeps_gaps``: what is written to in place lies afterwards as it did, also with gaps between
    its elements. Eager's kernels take what has none by vectors, and elements one by one round
    otherwise.
    """

    def __init__(self, keeps_gaps: bool = False):
        super().__init__()
        self.keeps_gaps = keeps_gaps
        self.sums: Sums | None = None  # of the run of autograd's engine under way

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        func = _PARTS.get(func, func)
        if func in OTHERS and type(args[0]) is FunctionalTensor:
            with self:
                other = OTHERS[func](*args, **(kwargs or {}))
            if other is not None:
                return other
        is_usual, views = kind_of(func)
        if is_usual and traces_plainly() and all(t is FunctionalTensor for t in types):
            made = functionally(self, func, args, kwargs or {}, views)
            if self.sums is None or not self.sums.left or func is not ADD:
                return made
            with self:
                return self.sums.laid_out(args[0], made, _is_alone(args[0]))
        if self._writes_elementwise(func, types, args):
            made = functionally(self, out_of_place(func), args, kwargs or {}, False)
            self._replace(args[0], made)
            if self.keeps_gaps:
                self._lay_out(args[0])
            return args[0]
        if func in _IN_MEMORY_ORDER:
            order = _memory_order(plain(args[0]))
            if order is not None:
                with self:
                    func(args[0].permute(order), *args[1:], **(kwargs or {}))
                return args[0]
        if func is _RANDOM and len(args) == 3 and args[2] is not None and not kwargs:
            with self:
                args[0].copy_(torch.randint_like(*args))
            return args[0]
        if func is _NORMAL and _has_gaps(plain(args[0])):
            with self:
                args[0].copy_(normal_in_gaps(*args, **(kwargs or {})))
            return args[0]
        if func in _DISTRIBUTIONS and kwargs and kwargs.get("generator") is not None:
            with self:
                args[0].copy_(_DISTRIBUTIONS[func](*args, **kwargs))
            return args[0]
        if func is _POLYGAMMA:
            with self:
                return args[0].copy_(torch.polygamma(args[1], args[0]))
        if func in TWINS:
            with self:
                return write_twins_results(func, args, kwargs or {})
        if writes_statistics(func, args):
            with self:
                return write_statistics(func, args)
        if _reads_what_it_writes(func, args):
            with self:
                for each in _one_by_one(args):
                    func(*each, **(kwargs or {}))
            return None
        if self._has_written_in_order(func, types, args, kwargs or {}):
            return args[0]
        if not checks(func):
            result = _FUNCTIONALLY(self, func, types, args, kwargs)
            count_writes(func, args)
            if self.keeps_gaps and func._schema.is_mutable:
                for t in _written(args[0]):
                    self._lay_out(t)
            return result
        unwrapped = pytree.tree_map_only(FunctionalTensor, plain, (args, kwargs or {}))
        has_side_effect(func)  # or the graph that is traced loses it
        return func(*unwrapped[0], **unwrapped[1])

    def _has_written_in_order(self, func: Any, types: Any, args: Any, kwargs: Any) -> bool:
        """Write to a tensor whose dimensions lie in memory in another order than their own.

        What computes a new tensor mostly gives it in its own order (``masked_fill``, ``scatter``).
        As the value of a view that would be in the way of what the view is of: to lead back there
        takes a view of it, which there may not be.
        """
        other = _of_new_values(func)
        if other is None or type(args[0]) is not FunctionalTensor:
            return False
        t = args[0]
        if t.layout is not torch.strided or t.is_contiguous():
            return False
        made = _FUNCTIONALLY(self, other, types, args, kwargs)
        if made.dtype is not t.dtype or not same(made.shape, t.shape):
            return False
        if not same(made.stride(), t.stride()):
            with self:
                laid = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)
                made = laid.copy_(made)
        self._replace(t, made)
        return True

    def _lay_out(self, t: FunctionalTensor) -> None:
        """Give the new value of ``t`` its strides."""
        value = plain(t)
        if same(value.stride(), t.stride()) or not same(value.shape, t.shape):
            return
        with self:
            made = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)
            made.copy_(t)
        self._replace(t, made)

    def _replace(self, t: FunctionalTensor, made: FunctionalTensor) -> None:
        """Give ``t`` the value of ``made``."""
        torch._functionalize_replace(t.elem, plain(made))
        torch._functionalize_commit_update(t.elem)
        torch._sync(t)

    def _writes_elementwise(self, func: Any, types: Any, args: Any) -> bool:
        """Whether an elementwise operator's new values are its first operand's, as they are.

        Torch's kernel first asks the operator's stand-in, with tensors that no mode sees, if that
        may be written there.
        """
        other = out_of_place(func)
        if other is None or not kind_of(other)[0] or not traces_plainly():
            return False
        if not all(t is FunctionalTensor for t in types) or not args[0].is_floating_point():
            return False
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        if not all(type(a) in _SCALARS for a in args if not isinstance(a, torch.Tensor)):
            return False
        shapes = [t.shape for t in tensors]
        return all(
            type(t) is FunctionalTensor and t.dtype is args[0].dtype and same(s, shapes[0])
            for t, s in zip(tensors, shapes, strict=True)
        )


@functools.cache
def _of_new_values(func: Any) -> Any:
    """What gives the values that ``func`` writes to its first operand; None where it draws them,
    or writes none."""
    other = twin(func)
    if other is None or not _CHANGING.isdisjoint(func.tags):
        return None
    is_view = any(value.alias_info is not None for value in other._schema.returns)
    return None if is_view or len(other._schema.returns) != 1 else other


def _written(first: Any) -> list[FunctionalTensor]:
    given = first if isinstance(first, list | tuple) else [first]
    return [t for t in given if type(t) is FunctionalTensor and t.layout is torch.strided]


def _reads_what_it_writes(func: Any, args: Any) -> bool:
    """Whether a list is written to of which an element has memory that another argument has.

    Eager's kernels go through such lists in order, and read what they have written by then.
    """
    if not writes_to_list(func) or len(args[0]) < 2:
        return False
    given = pytree.arg_tree_leaves(*args)
    tensors = [plain(t) for t in given if isinstance(t, FunctionalTensor)]
    storages = [t.untyped_storage()._cdata for t in tensors]
    return any(storages.count(storage) > 1 for storage in storages[: len(args[0])])


def _one_by_one(args: Any) -> Iterator[list[Any]]:
    """The arguments of a call on lists as those of calls on lists of one element."""
    count = len(args[0])
    for n in range(count):
        yield [a[n : n + 1] if _is_listed(a, count) else a for a in args]


def _is_listed(argument: Any, count: int) -> bool:
    return isinstance(argument, list | tuple) and len(argument) == count


def _memory_order(t: torch.Tensor) -> list[int] | None:
    """The dimensions of a transposed tensor as they lie in memory, if it has no gaps."""
    # Those of equal strides stay as they are, or what is permuted would be permuted again.
    order = sorted(range(t.dim()), key=lambda d: (-usual(t.stride(d)), -usual(t.size(d))))
    expected: Any = 1
    for d in reversed(order):
        if not same((t.stride(d),), (expected,)):
            return None
        expected = expected * t.size(d)
    return None if order == sorted(order) else order


def _has_gaps(t: torch.Tensor) -> bool:
    """Whether a tensor's elements are not next to each other, in any order of dimensions."""
    return t.device.type == "cpu" and not t.is_contiguous() and _memory_order(t) is None


def _is_alone(t: Any) -> bool:
    """Whether only autograd's engine has ``t``, an operand of the operator that it calls."""
    memory = torch._C._storage_Use_Count(t.elem.untyped_storage()._cdata)
    return bool(t._use_count() <= _USES and memory <= _USES_OF_MEMORY)


def plain(t: Any) -> torch.Tensor:
    """What a functional tensor holds."""
    torch._sync(t)
    return torch._from_functional_tensor(t.elem)
