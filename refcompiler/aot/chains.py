"""Views of views: which of those that leave a graph, or come in, another one was made of.

Autograd has a function for each step by which a view was made. Who asks for the gradient of one
view by another that it was made of, or has a hook on that, asks about these steps. So the view is
made again of the other one, by the steps between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from refcompiler.aot.layout import Layout
from refcompiler.aot.views import SYMBOLIC
from refcompiler.histories import is_outdated
from refcompiler.remade import made, maker

#: A view that others may be made of: ``(OUTPUT, its number)``, or ``(GIVEN, place)`` of an input.
Over = tuple[str, int]
OUTPUT, GIVEN = "output", "given"

#: By the name of an operator of ATen, what it takes behind the tensor, and which of its results is
#: meant, if it has several. A text in the place of a number is the place of one that is given.
Step = tuple[str, Sequence[Any], Mapping[str, Any], int]
_Edge = tuple[Any, int]
_PLACE = "number "


class Views:
    """``known``: the views that autograd knows, by key."""

    def __init__(self, known: Mapping[Over, torch.Tensor]):
        self.known = known
        self.keys: dict[_Edge, Over] = {}
        for key, t in known.items():
            if t.requires_grad and not is_outdated(t) and t.grad_fn is not None:
                self.keys.setdefault((t.grad_fn, t.output_nr), key)

    def turn(self, t: torch.Tensor) -> int | None:
        """The number that autograd gave the first step from what ``t`` is made of to it, which
        tells when its gradient is added there; None if it cannot be told."""
        if is_outdated(t) or t._base is None:
            return None
        edges = _path(t)
        ends = [n for n, edge in enumerate(edges) if edge in self.keys and n]
        found: int | None = edges[ends[0] - 1 if ends else -1][0]._sequence_nr() if edges else None
        return found

    def over(
        self, t: torch.Tensor
    ) -> tuple[Over, Callable[..., torch.Tensor], tuple[Any, ...]] | None:
        """What the view ``t`` was made of last, what makes it again of that, and with which numbers
        of the call. None where it was made of its base, or that cannot be told."""
        if len(self.keys) < 2 or is_outdated(t) or t._base is None:
            return None
        edges = _path(t)
        first = next((n for n, edge in enumerate(edges[1:], 1) if edge in self.keys), 0)
        if not first:
            return None
        key = self.keys[edges[first]]
        own = self.known[key]
        ops = _operators(t)
        if own._base is not t._base or len(ops) != len(edges):
            return None
        numbers: list[Any] = []
        steps = [
            _step(op, given, by_name, edge[1], numbers)
            for (op, given, by_name), edge in zip(ops[-first:], reversed(edges[:first]))
        ]
        make = stepped(steps)
        with torch.no_grad():
            again = make(own, numbers) if numbers else make(own)
        if again.dtype != t.dtype or not Layout.of(again).is_like(Layout.of(t)):
            return None
        return key, make, tuple(numbers)


@maker
def stepped(steps: Sequence[Step]) -> Callable[..., torch.Tensor]:
    """What makes a view again of another one, ``(view)`` or ``(view, numbers)``, by ``steps``."""
    known = [(_operator(name), *how) for name, *how in steps]

    def view(t: torch.Tensor, numbers: Sequence[int] = ()) -> torch.Tensor:
        def number(given: Any) -> Any:
            return numbers[int(given.removeprefix(_PLACE))] if isinstance(given, str) else given

        for op, given, by_name, result in known:
            if numbers:
                given, by_name = pytree.tree_map(number, (given, by_name))
            found = op(t, *given, **by_name)
            t = found if isinstance(found, torch.Tensor) else found[result]
        return t

    return made(view, stepped, steps)


def _operator(name: str) -> Any:
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _path(t: torch.Tensor) -> list[_Edge]:
    """What autograd comes to from the view ``t`` before its base, one after the other."""
    assert t._base is not None
    base = torch.autograd.graph.get_gradient_edge(t._base)
    end = base.node, base.output_nr
    edge = t.grad_fn, t.output_nr
    found: list[_Edge] = []
    while edge != end:
        found.append(edge)
        following = [] if edge[0] is None else edge[0].next_functions
        if len(following) != 1:
            return []
        (edge,) = following
    return found


class _Operators(TorchDispatchMode):
    """Writes down the views that operators make, but for those by which autograd takes one over."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[Any, Sequence[Any], Mapping[str, Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.is_view and func is not torch.ops.aten.detach.default:
            self.found.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def _operators(t: torch.Tensor) -> list[tuple[Any, Sequence[Any], Mapping[str, Any]]]:
    """Those by which the view ``t`` is made of its base."""
    with _Operators() as seen:
        t._view_func_unsafe(t._base)
    return seen.found


def _step(
    op: Any, given: Sequence[Any], by_name: Mapping[str, Any], result: int, numbers: list[Any]
) -> Step:
    def noted(value: Any) -> Any:
        if not isinstance(value, SYMBOLIC):
            return value
        numbers.append(value)
        return f"{_PLACE}{len(numbers) - 1}"

    own, *others = given
    assert isinstance(own, torch.Tensor)
    others, by_name = pytree.tree_map(noted, ([*others], dict(by_name)))
    return str(op), others, by_name, result
