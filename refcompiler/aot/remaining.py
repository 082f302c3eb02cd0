"""What a backward of some outputs leaves for a later backward of the others.

Autograd frees what the functions that it runs have saved, and no others: in eager the losses of a
generator and of a discriminator, computed in one program, each have their backward. A compiled
backward is one function of all outputs. So what the others still need is kept behind it, and a
backward that would run a part again whose saved tensors are gone in eager is an error as there.
"""

from __future__ import annotations

import bisect
import itertools
import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from refcompiler.aot.currents import is_current

SELECTIVE = "selective"  # in the meta of what is saved or computed again in such a checkpoint
_VERSION = operator.attrgetter("_version")
CHANGED = (
    "one of the variables needed for gradient computation has been modified by an inplace "
    "operation: a tensor that a compiled graph saved for its backward was written to since"
)


class Shares:
    """Which saved tensors the tangents' parts of a backward read, and which parts are common.

    Sets of tangents are numbers with a bit for each. ``backward`` takes ``numbers`` numbers, then
    ``tensors`` saved tensors, then the tangents. Of the tensors others may have the first
    ``shared`` too. ``saving``: of what eager runs once, the tangents that come to it.
    """

    def __init__(
        self,
        backward: GraphModule,
        numbers: int,
        tensors: int,
        shared: int,
        saving: Collection[int],
    ) -> None:
        self.numbers, self.shared = numbers, shared
        holders = backward.graph.find_nodes(op="placeholder")
        first = numbers + tensors
        self.places = {t: n for n, t in enumerate(holders[numbers:first])}
        self.tangents = len(holders) - first
        reached: dict[Node, int] = {t: 1 << n for n, t in enumerate(holders[first:])}
        #: Of each part that runs once: the tangents that reach it, and through which nodes that
        #: none reaches it reads what is saved.
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
        #: What a region that is computed again may write to, whatever comes.
        self.always = {n for t, n in self.places.items() if is_current(t)}
        self.loose = self._read_for_none(backward)
        self.always |= self.loose
        self.masks = {mask for mask, _ in self.steps} | {*saving}
        self.known: dict[int, Kept | None] = {}

    def _read_for_none(self, backward: GraphModule) -> set[int]:
        """Saved tensors of which gradients are made that are the same whatever comes: zeros."""
        output = backward.graph.output_node()
        found = [n for n in output.all_input_nodes if n in self.reading]
        return {self.places[n] for n in self._sources(found) if n in self.places}

    def _sources(self, nodes: list[Node]) -> set[Node]:
        """These, and what they are made of."""
        left, seen = list(nodes), set(nodes)
        while left:
            for n in left.pop().all_input_nodes:
                if n in self.reading and n not in seen:
                    seen.add(n)
                    left.append(n)
        return seen

    def repeats(self, asked: int, spent: int) -> bool:
        """Whether the tangents ``asked`` reach what read saved tensors for those ``spent``.

        Of ``asked`` with itself: whether they read any.
        """
        return any(mask & asked and mask & spent for mask in self.masks)

    def once(self, asked: int, before: int) -> bool:
        """Whether both reach into a region that eager has the backward of no second time."""
        return any(mask & asked and mask & before for mask in self.selective)

    def needed(self, asked: int) -> set[int]:
        """The saved tensors that the parts of the tangents ``asked`` read."""
        read = [n for mask, sources in self.steps if mask & asked for n in sources]
        seen = self._sources(read)
        return {self.places[n] for n in seen if n in self.places} | self.always

    def after(self, spent: int) -> Kept | None:
        """What is kept when the tangents ``spent`` have come; None where no other may come."""
        if spent not in self.known:
            every = [1 << n for n in range(self.tangents)]
            may = sum(bit for bit in every if not self.repeats(bit, spent))
            places = sorted(self.needed(may))
            self.known[spent] = Kept(self, places) if may else None
        return self.known[spent]


class Kept:
    """``places``: of the saved tensors that are kept; the first ``count`` others may have too, and
    may write to."""

    def __init__(self, shares: Shares, places: list[int]):
        self.places = places
        self.count = bisect.bisect_left(places, shares.shared)
        first = [shares.numbers + n for n in places]
        several = len(first) > 1
        self.pick: Callable[[Sequence[Any]], Sequence[Any]] = (
            operator.itemgetter(*first) if several else lambda taken: [taken[n] for n in first]
        )
        shared = places[: self.count]
        self.known: Callable[[Sequence[int]], Sequence[int]] = (
            operator.itemgetter(*shared)
            if self.count > 1
            else lambda versions: [versions[n] for n in shared]
        )


@dataclass
class Remaining:
    """What is kept of the saved tensors, those at ``places``, for tangents to come.

    ``versions``: of the first of them, which others may have too.
    """

    shares: Shares
    spent: int
    places: list[int]
    kept: Sequence[torch.Tensor | None]
    versions: Sequence[int | None]

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
                raise RuntimeError(CHANGED)
        return self.tensors


def remaining(
    shares: Shares, spent: int, taken: Sequence[Any], known: Sequence[int] | None = None
) -> Remaining | None:
    """What a backward for the tangents ``spent``, one after the other, leaves of what it ``taken``.

    None where no other tangent may come. ``known``: versions of the saved tensors, if they are.
    """
    plan = shares.after(spent)
    if plan is None:
        return None
    kept = plan.pick(taken)
    if known is not None:
        return Remaining(shares, spent, plan.places, kept, plan.known(known))
    try:
        versions: list[int | None] = [*map(_VERSION, kept[: plan.count])]
    except AttributeError:  # None where it was written to before
        versions = [None if t is None else t._version for t in kept[: plan.count]]
    return Remaining(shares, spent, plan.places, kept, versions)
