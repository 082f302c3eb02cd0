"""Gradients of an input that is read several times, part by part.

Autograd adds up what comes back to a tensor one by one, in the order in which the backward comes to
its readers. Where some of those are in another graph (there was a break), a graph that gave its own
sum would have the sum of all rounded otherwise. So the graph can give the parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from refcompiler.aot.inputs import Unsupported
from refcompiler.histories import is_outdated, nodes_of
from refcompiler.shapes.known import same

_RAW = "_raw_saved_"  # how the names of what a function has saved begin
#: Autograd's function of a write to a view: it saves nothing, but has another, which it lets go of.
_WRITE_TO_A_VIEW = "CopySlices"
#: Functions of lists of tensors, which have no attributes: these save nothing, all others do.
_OF_LISTS = "Foreach"
_SAVES_NOTHING = re.compile(
    r"Foreach((Ceil|Clone|Floor|Frac|Neg|Round|Sign|Trunc)Backward|LerpBackward\d+Scalar)"
)


class Parts:
    """What the next run of the engine brings back to ``tensors``, or edges, which are by number.

    ``outputs``: where the engine will begin.
    """

    def __init__(
        self,
        outputs: Sequence[torch.Tensor],
        tensors: Mapping[Any, torch.Tensor | GradientEdge],
    ):
        self.found: dict[Any, list[Any]] = {n: [] for n in tensors}
        self.handles: list[Any] = []
        if not tensors:
            return
        known = tensors.items()
        edges = {n: t if type(t) is GradientEdge else get_gradient_edge(t) for n, t in known}
        targets = {(edge.node, edge.output_nr): n for n, edge in edges.items()}
        for node in nodes_of(outputs):
            places = [
                (place, targets[edge])
                for place, edge in enumerate(node.next_functions)
                if edge in targets
            ]
            if places:
                self.handles.append(node.register_hook(self._kept(places)))

    def _kept(self, places: Sequence[tuple[int, int]]) -> Any:
        def hook(gradients: Sequence[Any], _: Any) -> None:
            for place, n in places:
                if gradients[place] is not None:
                    self.found[n].append(gradients[place])

        return hook

    def given(self, reads: Sequence[int]) -> tuple[dict[int, Any], list[Any], list[int]]:
        """The first parts by number, the others, and the numbers of those.

        ``reads``: the numbers that an earlier trace had; none: as many as there are. More parts
        than that trace had are :class:`Unsupported`.
        """
        for handle in self.handles:
            handle.remove()
        known = {*reads}
        several = {n: parts for n, parts in self.found.items() if len(parts) > 1 or n in known}
        numbers = list(reads) or [n for n, parts in several.items() for _ in parts[1:]]
        left = {n: iter(parts) for n, parts in several.items()}
        first = {n: next(parts, None) for n, parts in left.items()}
        more = [next(left[n], None) for n in numbers if n in left]
        if len(more) < len(numbers) or any(
            next(parts, None) is not None for parts in left.values()
        ):
            raise Unsupported("another backward reads an input more often")
        return first, more, numbers

    def instead(self, whole: Sequence[Any], reads: Sequence[int]) -> list[Any]:
        """The gradients ``whole``, with first parts in the places of those that are read several
        times, and the others behind all: none where an earlier trace had fewer of them."""
        try:
            first, more, _ = self.given(reads) if reads else ({}, [], [])
        except Unsupported:
            return [*whole, *[None] * len(reads)]
        return [*[first.get(n, g) for n, g in enumerate(whole)], *more]


def saving(
    outputs: Sequence[torch.Tensor], ways: Mapping[Node, Mapping[int, int]]
) -> frozenset[int]:
    """Of each function of autograd that runs once, as it lets go of what it has saved: the outputs,
    a bit for each, that lead to it.

    A function asks for all that it has saved, also for what a compiled backward does not read (of a
    product a number, of a list each dtype, what a custom function unpacks), whichever of its
    results has a gradient. ``ways``: what :func:`refcompiler.aot.missing.reached` says, which of
    one output says nothing.
    """
    names: dict[type, list[str]] = {}
    found: set[int] = set()
    every = (1 << len(outputs)) - 1
    for node in nodes_of(outputs):
        mask = 0 if ways else every
        for results in ways.get(node, {}).values():
            mask |= results
        if mask not in found and _saves(node, names):
            found.add(mask)
    return frozenset(found)


class Writes:
    """The functions of autograd that the first writes to ``tensors`` made, which are by number."""

    def __init__(self, tensors: Mapping[int, torch.Tensor]):
        self.left = [(n, t, t.grad_fn) for n, t in tensors.items()]
        self.found: dict[int, Node] = {}

    def look(self) -> None:
        """To be called behind whatever may write."""
        for each in self.left:
            n, t, before = each
            if is_outdated(t) or t.grad_fn is before:
                continue
            if t.grad_fn is not None:
                self.found[n] = t.grad_fn
            self.left = [other for other in self.left if other is not each]

    def passed(
        self, outputs: Sequence[torch.Tensor], ways: Mapping[Node, Mapping[int, int]]
    ) -> dict[int, int]:
        """By number, the outputs, a bit for each, that lead to the first write. ``ways``: as in
        :func:`saving`."""
        if not ways:
            nodes, every = set(nodes_of(outputs)), (1 << len(outputs)) - 1
            return {n: every for n, node in self.found.items() if node in nodes}
        masks = {}
        for n, node in self.found.items():
            masks[n] = 0
            for results in ways.get(node, {}).values():
                masks[n] |= results
        return masks


def saves(nodes: Sequence[Node]) -> bool:
    """Whether one of them has saved anything."""
    names: dict[type, list[str]] = {}
    return any(_saves(node, names) for node in nodes)


def _saves(node: Node, names: dict[type, list[str]]) -> bool:
    """``names``: by type, the attributes that have what is saved."""
    kind = type(node)
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        return bool(node._raw_saved_tensors)  # unpacking may run a checkpoint again
    if kind.__name__ == _WRITE_TO_A_VIEW:
        return True
    if saves_lists(node):
        return True
    if kind not in names:
        names[kind] = [name for name in dir(kind) if name.startswith("_raw_saved_")]
    return any(_is_saved(getattr(node, name)) for name in names[kind])


def saves_lists(node: Node) -> bool:
    """Whether it is a function of lists that saves some."""
    return node.name().startswith(_OF_LISTS) and not _SAVES_NOTHING.match(node.name())


#: By the name of autograd's function, what it has saved that its first gradient lies as. ATen makes
#: it by writing to such memory, but where it is traced by joining columns, which lie another way.
_LYING_AS = {"OrmqrBackward0": "_saved_self", "LinalgHouseholderProductBackward0": "_saved_input"}
#: Those whose gradient ATen writes to new memory on a CPU, and makes of a mask where it is traced.
_IN_ORDER = {"MaxBackward1", "MinBackward1", "MedianBackward0", "NanmedianBackward0"}


def lay_out_gradients(outputs: Sequence[torch.Tensor]) -> list[Any]:
    """Have gradients lie as they do where nothing is traced. The hooks' handles."""

    def laid_out(node: Node, gradients: Sequence[Any]) -> Sequence[Any]:
        first, *others = gradients
        if type(node).__name__ in _IN_ORDER:
            here = first is not None and first.device.type == "cpu"
            return (first.contiguous(), *others) if here else gradients
        like = getattr(node, _LYING_AS[type(node).__name__])
        if first is None or first.shape != like.shape or same(first.stride(), like.stride()):
            return gradients
        return torch.empty_like(like).copy_(first), *others

    names = _LYING_AS.keys() | _IN_ORDER
    found = [node for node in nodes_of(outputs) if type(node).__name__ in names]
    return [
        node.register_hook(lambda gradients, _, node=node: laid_out(node, gradients))
        for node in found
    ]


def _is_saved(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_is_saved, value))
    return value is not None


def saved_by(outputs: Sequence[torch.Tensor]) -> Iterator[tuple[torch.Tensor, Node]]:
    """What autograd's functions have saved, with the function, but for what hooks have packed (a
    checkpoint's)."""
    names: dict[type, list[str]] = {}
    for node in nodes_of(outputs):
        kind = type(node)
        if kind not in names:
            names[kind] = [name for name in dir(kind) if name.startswith(_RAW)]
        for name in names[kind]:
            value = getattr(node, name)
            for each in value if isinstance(value, tuple | list) else [value]:
                t = getattr(each, "data", None)
                if isinstance(t, torch.Tensor):
                    yield t, node


def is_packed(node: Node) -> bool:
    """Whether hooks have packed something that it has saved (a checkpoint's)."""
    kind = type(node)
    for name in [name for name in dir(kind) if name.startswith(_RAW)]:
        value = getattr(node, name)
        for each in value if isinstance(value, tuple | list) else [value]:
            if not isinstance(getattr(each, "data", None), torch.Tensor | None):
                return True
    return False
