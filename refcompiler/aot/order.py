"""The order in which gradients come to leaves and results, which hooks on these tell.

Autograd's engine runs first what was made last, but what adds up the gradient of a leaf as soon as
that is whole. So eager comes to the leaves one by one, as the backward goes. A compiled backward is
one function that gives all gradients at once, and the engine takes what is ready from a heap, in
which all leaves are equal: in an order of the heap's own, which is a matter of the order that they
were put there, that of the function's inputs. So the graph takes its inputs in an order of which
the heap makes eager's. Where it takes some several times, for the parts of their gradients,
autograd is given all leaves once more behind these, in that order, and no gradient for them. What
another graph reads too is ready later, and what else is ready by then nobody knows: such orders may
be others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

from refcompiler.histories import is_outdated, nodes_of


class Arrivals:
    """When the next run of the engine has the whole gradient of each of ``tensors``, by number.

    ``outputs``: where the engine will begin.
    """

    def __init__(self, outputs: Sequence[torch.Tensor], tensors: Mapping[int, torch.Tensor]):
        self.events: list[list[int | None]] = []  # what each reader goes to; None: to others
        edges = {n: get_gradient_edge(t) for n, t in tensors.items()}
        targets = {(edge.node, edge.output_nr): n for n, edge in edges.items()}
        self.handles: list[Any] = []
        for node in nodes_of(outputs):
            goes = [targets.get(edge) for edge in node.next_functions if edge[0] is not None]
            if any(n is not None for n in goes):
                self.handles.append(node.register_hook(self._noted(goes)))

    def _noted(self, goes: list[int | None]) -> Any:
        return lambda *_: self.events.append(goes)

    def order(self) -> list[int]:
        """The numbers in eager's order, were all of them leaves."""
        for handle in self.handles:
            handle.remove()
        last = {n: at for at, goes in enumerate(self.events) for n in goes if n is not None}
        found: list[int] = []
        for at, goes in enumerate(self.events):
            ready = {n: place for place, n in enumerate(goes) if n is not None and last[n] == at}
            pushed = [n for place, n in enumerate(goes) if n is None or ready.get(n) == place]
            taken = popped([n is not None for n in pushed])
            found += [n for place in taken if (n := pushed[place]) is not None]
        return found


def turns(results: Mapping[int, torch.Tensor]) -> dict[int, int]:
    """When the engine comes to each of ``results``, by number: to what was made last first.

    All that others compute of them was made after that.
    """
    known = {n: t for n, t in results.items() if not is_outdated(t) and t.grad_fn is not None}
    ages = {n: t.grad_fn._sequence_nr() for n, t in known.items()}
    ranks = {age: turn for turn, age in enumerate(sorted({*ages.values()}, reverse=True))}
    return {n: ranks[age] for n, age in ages.items()}


def arranged(order: Sequence[int], leaves: Collection[int], at_end: bool) -> list[int]:
    """The numbers in ``order`` as a function is to take them, so that hooks have that order.

    ``leaves``: those of them that are known to be leaves. The engine runs the others by their age;
    they come after these, or come before, if the leaves are ``at_end``, and are not told then.
    Mostly they come from one graph, and so are one function.
    """
    first = [n for n in order if n in leaves] or [*order]
    rest = [n for n in order if n not in {*first}]
    others = [False] * min(len(rest), 1)
    pushed = [*others, *[True] * len(first)] if at_end else [*[True] * len(first), *others]
    places = [place for place in popped(pushed) if pushed[place]]
    arranged = [n for _, n in sorted(zip(places, first, strict=True))]
    return arranged if at_end else [*arranged, *rest]


def popped(first: Sequence[bool]) -> list[int]:
    """The order in which the engine takes functions that it was given one after the other.

    ``first``: whether one goes before those for which it is False, which may be in any order. As
    ``std::priority_queue`` of GNU's library of C++ has it.
    """
    heap: list[int] = []
    for n in range(len(first)):
        heap.append(n)
        _rise(heap, len(heap) - 1, n, first)
    return [*_emptied(heap, first)]


def _emptied(heap: list[int], first: Sequence[bool]) -> Iterator[int]:
    while heap:
        yield heap[0]
        value = heap.pop()
        count, hole, child = len(heap), 0, 0
        if not count:
            return
        while child < (count - 1) // 2:
            child = 2 * (child + 1)
            child -= first[heap[child]] < first[heap[child - 1]]
            heap[hole] = heap[child]
            hole = child
        if count % 2 == 0 and child == (count - 2) // 2:
            child = 2 * (child + 1) - 1
            heap[hole] = heap[child]
            hole = child
        _rise(heap, hole, value, first)


def _rise(heap: list[int], hole: int, value: int, first: Sequence[bool]) -> None:
    while hole and first[heap[(hole - 1) // 2]] < first[value]:
        heap[hole] = heap[(hole - 1) // 2]
        hole = (hole - 1) // 2
    heap[hole] = value
