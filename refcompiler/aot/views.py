"""Of a tensor that leaves a graph: what it is a view of, and how that is made again.

Asked of fakes, which autograd knows as it would know eager's tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from refcompiler.aot.inputs import Unsupported, fake_like
from refcompiler.aot.layout import Layout
from refcompiler.aot.numbers import symbols_of
from refcompiler.dispatching import DispatchMode
from refcompiler.histories import is_outdated
from refcompiler.shapes.known import same

_FUNCTION = torch.autograd.function.BackwardCFunction  # what a custom function's backward is
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Copy(torch.autograd.Function):
    """A tensor with memory of its own that lies as the given one, and is no leaf."""

    @staticmethod
    def forward(ctx: Any, t: torch.Tensor) -> torch.Tensor:
        return fake_like(t)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class _Fixed(DispatchMode):
    """Whether a view is made again by its sizes and strides, which autograd has kept as they are
    where it knows no other way."""

    def __init__(self) -> None:
        super().__init__()
        self.places = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.places = self.places or func is torch.ops.aten.as_strided.default
        return func(*args, **(kwargs or {}))


class OfFunction(Unsupported):
    """A view has another backward than that of its own operations."""


def replayed(t: torch.Tensor) -> tuple[Callable[..., torch.Tensor] | None, tuple[Any, ...], bool]:
    """What makes ``t`` again of its base, unless autograd keeps too little of how it was made.

    Also the numbers that it takes, and whether the layout alone does as well.
    """
    numbers: list[Any] = []

    def visit(number: Any) -> Any:
        numbers.append(number)
        return number

    with _Fixed() as fixed:
        again = t._view_func_unsafe(t._base, visit)
    if not isinstance(again, torch.Tensor) or again.dtype != t.dtype:
        return None, (), False
    if not Layout.of(again).is_like(Layout.of(t)):
        return None, (), False
    if not symbols_of(t) and not any(isinstance(n, SYMBOLIC) for n in numbers):
        return t._view_func_unsafe, (), True
    if not numbers and fixed.places:
        return None, (), True
    if not any(isinstance(n, SYMBOLIC) for n in numbers):
        return t._view_func_unsafe, (), True

    def replay(base: torch.Tensor, given: Sequence[int]) -> torch.Tensor:
        following = iter(given)
        return t._view_func_unsafe(base, lambda _: next(following))

    return replay, tuple(numbers), True


def leads_to(t: torch.Tensor, base: torch.Tensor) -> bool:
    """Whether a gradient of ``t`` reaches ``base``: not through a view made under no_grad.

    Raises :class:`OfFunction` where a backward of the program's own is on the way: the view's own
    operations do not have it.
    """
    wanted = torch.autograd.graph.get_gradient_edge(base).node
    seen: set[Any] = set()
    ahead = [t.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is wanted:
            return True
        if isinstance(node, _FUNCTION) and not isinstance(node, Copy._backward_cls):
            raise OfFunction("an output is a view that a custom function made")
        if node is not None and node not in seen:
            seen.add(node)
            ahead.extend(following for following, _ in node.next_functions)
    return False


def is_untracked(t: torch.Tensor) -> bool:
    """Whether ``t`` is a view, made where gradients are off, of what requires one: so it does too,
    and leads nowhere."""
    return t._is_view() and t.requires_grad and (is_outdated(t) or t.grad_fn is None)


def is_recorded(t: torch.Tensor) -> bool:
    """Whether ``t`` was made where gradients are on, as far as a view tells: one that was not
    refuses to be written something with a gradient."""
    if not t._is_view() or t.is_inference():
        return torch.is_grad_enabled()
    without = torch._C._autograd.CreationMeta.NO_GRAD_MODE
    return torch._C._autograd._get_creation_meta(t) != without


def is_of_function(t: torch.Tensor) -> bool:
    """Whether ``t``, which has a gradient, is a view that a custom function made, or one of it."""
    if not t.requires_grad or t.grad_fn is None or not t._is_view():
        return False
    custom = torch._C._autograd.CreationMeta.IN_CUSTOM_FUNCTION
    return torch._C._autograd._get_creation_meta(t) == custom


def refuses_writes(t: torch.Tensor) -> bool:
    """Whether eager has an error for writes to ``t``: it is one of several views made at once."""
    if not t._is_view():
        return False
    several = torch._C._autograd.CreationMeta.MULTI_OUTPUT_NODE
    return torch._C._autograd._get_creation_meta(t) == several


def refuses(t: torch.Tensor) -> bool:
    """Whether eager has an error for writes to ``t`` that autograd sees: it is a view of a leaf, or
    was not made as other views are."""
    if not t._is_view():
        return False
    base = t._base
    if base is not None and base.requires_grad and base.is_leaf:
        return True
    usual = torch._C._autograd.CreationMeta.DEFAULT
    return t.requires_grad and torch._C._autograd._get_creation_meta(t) != usual


def is_data(t: torch.Tensor, base: torch.Tensor) -> bool:
    """Whether ``t`` has the memory of ``base``, and another count of writes."""
    if t.is_inference() or base.is_inference():
        return False
    before, version = base._version, t._version
    torch.autograd.graph.increment_version(base)
    counted = t._version != version
    torch._C._autograd._unsafe_set_version_counter((base,), (before,))
    return not counted


def whole_of(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The one of some tensors with one memory that all others lie in."""
    found = max(tensors, key=torch.Tensor.numel)
    begin = found.storage_offset()
    for t in tensors:
        last = sum((n - 1) * k for n, k in zip(t.shape, t.stride())) + t.storage_offset()
        if t.dtype != found.dtype or t.storage_offset() < begin or last >= begin + found.numel():
            raise Unsupported("tensors made in inference mode share memory that none has all of")
    if has_gaps_or_overlaps(found):
        raise Unsupported("a tensor made in inference mode lies in parts of its memory")
    return found


def lies_in(t: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether ``other``, made anew, would have the memory of ``t``."""
    inner, outer = Layout.of(t), Layout.of(other)
    scale = t.itemsize, other.itemsize
    first = inner.offset * scale[0] >= outer.offset * scale[1]
    return bool(first and inner.end * scale[0] <= outer.end * scale[1])


def has_gaps_or_overlaps(t: torch.Tensor) -> bool:
    """Whether ``t`` has not the memory of a tensor made for it alone."""
    expected = 1
    for stride, size in sorted(zip(t.stride(), t.shape, strict=True), key=_values):
        if not isinstance(size, int) or size > 1:
            if not same((stride,), (expected,)):
                return True
            expected *= size
    return False


def _values(numbers: Sequence[Any]) -> tuple[float, ...]:
    """What symbols are while the graph is compiled; what nobody knows is large."""
    return tuple([n if isinstance(n, int) else n.node.hint or math.inf for n in numbers])
