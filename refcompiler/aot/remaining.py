"""What a backward of some outputs leaves for a later backward of the others.

Autograd frees what the functions that it runs have saved, and no others: in eager the losses of a
generator and of a discriminator, computed in one program, each have their backward. A compiled
backward is one function of all outputs. So what the others still need is kept behind it, and a
backward that would run a part again whose saved tensors are gone in eager is an error as there.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

SELECTIVE = "selective"  # in the meta of what is saved or computed again in such a checkpoint
_CHANGED = (
    "one of the variables needed for gradient computation has been modified by an inplace "
    "operation: a tensor that a compiled graph saved for its backward was written to since"
)


class Shares:
    """Which saved tensors the tangents' parts of a backward read, and which parts are common.

    Sets of tangents are numbers with a bit for each. ``backward`` takes ``numbers`` numbers, then
    ``tensors`` saved tensors, then the tangents.
    """

    def __init__(self, backward: GraphModule, numbers: int, tensors: int) -> None:
        holders = backward.graph.find_nodes(op="placeholder")
        first = numbers + tensors
        self.places = {t: n for n, t in enumerate(holders[numbers:first])}
        self.tangents = len(holders) - first
        reached: dict[Node, int] = {t: 1 << n for n, t in enumerate(holders[first:])}
        #: Of each part that reads what is saved: the tangents that reach it, and through which
        #: nodes that none reaches it reads.
        self.steps: list[tuple[int, list[Node]]] = []
        self.reading = set(self.places)  # saved tensors, and what is made of them alone
        self.selective: list[int] = []  # of parts that read what a selective checkpoint computed
        marked = {n for n in backward.graph.nodes if SELECTIVE in n.meta}
        for node in backward.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            mask = 0
            for n in node.all_input_nodes:
                mask |= reached.get(n, 0)
            sources = [n for n in node.all_input_nodes if n in self.reading]
            if mask:
                reached[node] = mask
                if sources:
                    self.steps.append((mask, sources))
                if not marked.isdisjoint(node.all_input_nodes):
                    self.selective.append(mask)
                continue
            if sources:
                self.reading.add(node)
            if not marked.isdisjoint(node.all_input_nodes):
                marked.add(node)
        self.masks = {mask for mask, _ in self.steps}
        self.known: dict[int, tuple[int, list[int]]] = {}

    def repeats(self, asked: int, spent: int) -> bool:
        """Whether the tangents ``asked`` reach what read saved tensors for those ``spent``."""
        return any(mask & asked and mask & spent for mask in self.masks)

    def once(self, asked: int, before: int) -> bool:
        """Whether both reach into a region that eager has the backward of no second time."""
        return any(mask & asked and mask & before for mask in self.selective)

    def needed(self, asked: int) -> set[int]:
        """The saved tensors that the parts of the tangents ``asked`` read."""
        left = [n for mask, sources in self.steps if mask & asked for n in sources]
        seen = set(left)
        while left:
            for n in left.pop().all_input_nodes:
                if n in self.reading and n not in seen:
                    seen.add(n)
                    left.append(n)
        return {self.places[n] for n in seen if n in self.places}

    def after(self, spent: int) -> tuple[int, list[int]]:
        """The tangents that may still come when ``spent`` have, and the saved tensors they need,
        in their order."""
        found = self.known.get(spent)
        if found is None:
            every = [1 << n for n in range(self.tangents)]
            may = sum(bit for bit in every if not bit & spent and not self.repeats(bit, spent))
            found = self.known[spent] = may, sorted(self.needed(may))
        return found


@dataclass
class Remaining:
    """What is kept of the saved tensors, those at ``places``, for tangents to come.

    ``versions``: of the first of them, which others may have too.
    """

    shares: Shares
    spent: int
    places: list[int]
    kept: list[torch.Tensor | None]
    versions: list[int | None]

    @property
    def tensors(self) -> list[torch.Tensor | None]:
        """None in the place of others."""
        found: list[torch.Tensor | None] = [None] * len(self.shares.places)
        for n, t in zip(self.places, self.kept, strict=True):
            found[n] = t
        return found

    def take(self, asked: int) -> list[torch.Tensor | None] | None:
        """The saved tensors for these tangents; None where eager has freed them."""
        if self.shares.repeats(asked, self.spent):
            return None
        needed = self.shares.needed(asked)
        for n, t, version in itertools.zip_longest(self.places, self.kept, self.versions):
            # None if it was written to before
            if n in needed and (t is None or version is not None and t._version != version):
                raise RuntimeError(_CHANGED)
        return self.tensors


def remaining(shares: Shares, spent: int, saved: Sequence[Any], shared: int) -> Remaining | None:
    """What a backward for the tangents ``spent``, one after the other, leaves of ``saved``.

    ``shared``: so many of the saved tensors, the first, others may have too, and may write to.
    None where no other tangent may come.
    """
    may, places = shares.after(spent)
    if not may:
        return None
    kept = [saved[n] for n in places]
    count = bisect.bisect_left(places, shared)
    versions: list[int | None] = []
    for n in range(count):
        t = kept[n]
        if t is None:
            versions.append(None)
            continue
        if t.grad_fn is not None:
            # Detached, or an output that is saved would keep the function that keeps it.
            kept[n] = t = t.detach()
        versions.append(t._version)
    return Remaining(shares, spent, places, kept, versions)
