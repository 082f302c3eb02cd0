"""When a program's tensors are in memory, and what follows of where they lie.

Memory that is kept between calls is there as long as results are, so large intermediate results in
it would add to the most that a step holds: a backward has them while there are few gradients yet.
Where that is so they are allocated in each call, and freed behind their last use; what is small
stays in the kept memory, where allocating it would cost more than computing it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fastpath.ir.program import Node
from fastpath.ir.size import hint
from fastpath.workspace import Plan

LITTLE = 16 << 10  # bytes that may be kept, whatever else there is
TOLERATED = 64  # kept memory has holes: the part of the whole by which it may be more
SHARE = 16  # the part of the whole that it may be: what operators use of memory is not known
SOON = 2  # steps over which the memory of one result waits for the next, rather than being freed

Steps = Mapping[int, Sequence[Node]]


def size_of(node: Node) -> int:
    """Bytes."""
    steps = zip(map(hint, node.shape), map(hint, node.strides), strict=True)
    if any(hint(n) == 0 for n in node.shape):
        return 0
    itemsize: int = getattr(torch, node.dtype).itemsize
    return (1 + sum((n - 1) * abs(step) for n, step in steps)) * itemsize


@dataclass(frozen=True)
class Lives:
    """The steps, of ``count``, at which each node comes into memory and is last needed there."""

    count: int
    spans: Mapping[Node, tuple[int, int]]

    @classmethod
    def of(
        cls, count: int, births: Steps, deaths: Steps, given: Iterable[Node], stays: Iterable[Node]
    ) -> Lives:
        """``given`` are there from the start; ``stays`` once the program has returned."""
        count = max(count, 1)  # one without steps takes and gives something too
        last = {node: place for place, nodes in deaths.items() for node in nodes}
        first = dict.fromkeys(given, 0)
        first |= {node: place for place, nodes in births.items() for node in nodes}
        last |= dict.fromkeys(stays, count - 1)
        return cls(count, {n: (at, last.get(n, at)) for n, at in first.items()})

    def most(self, without: frozenset[Node] = frozenset()) -> int:
        """The most bytes that are needed at once."""
        changes = [0] * (self.count + 1)
        for node, (first, last) in self.spans.items():
            if node not in without:
                size = size_of(node)
                changes[first] += size
                changes[last + 1] -= size
        return max(itertools.accumulate(changes))


def planned(
    births: Steps,
    deaths: Steps,
    room: int,
    allowed: float = math.inf,
    held: Callable[[frozenset[Node]], int] = lambda kept: 0,
) -> Plan:
    """Where those of ``births`` lie that are to be kept: all that are at most so large that these
    are at most ``room`` bytes, and with what ``held`` says is there beside them ``allowed``."""
    sizes = {n: size_of(n) for made in births.values() for n in made}
    largest = max(sizes.values(), default=0)
    while largest:
        kept = frozenset(n for n, size in sizes.items() if size <= largest)
        plan = Plan(
            {place: [n for n in made if n in kept] for place, made in births.items()}, deaths
        )
        fits = plan.size <= room and plan.size + held(kept) <= allowed
        if fits or plan.size <= LITTLE:
            return plan
        below = 1 << (largest - 1).bit_length() - 1
        largest = max((size for size in sizes.values() if size <= below), default=0)
    return Plan({}, {})


def heirs(
    births: Steps, deaths: Steps, geometry: Callable[[Node], Any], soon: float = math.inf
) -> dict[Node, Node]:
    """For nodes whose memory is that of a dead one of the same ``geometry``, which that is. It was
    last needed at most ``soon`` steps before."""
    found: dict[Node, Node] = {}
    free: dict[Any, list[tuple[int, Node]]] = {}
    for place in sorted({*births, *deaths}):
        for node in births.get(place, ()):
            waiting = free.get(geometry(node), [])
            while waiting:
                since, dead = waiting.pop(0)
                if place - since <= soon:
                    found[node] = dead
                    break
        for node in deaths.get(place, ()):
            free.setdefault(geometry(node), []).append((place, node))
    return found
