"""A forward that was traced, and what autograd has recorded of it, before its engine runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor

from refcompiler.aot.bases import Base
from refcompiler.aot.currents import Currents
from refcompiler.aot.missing import Reached, asking, uneven
from refcompiler.aot.observation import Observation, Value, ViewOf
from refcompiler.aot.packing import takes_data
from refcompiler.aot.ports import INPUT, RESULT, VIEW, Key
from refcompiler.aot.reads import Writes, saving
from refcompiler.aot.refusing import Refusal, refusals
from refcompiler.aot.saved import Links, links, note_held
from refcompiler.aot.since import Since, since


@dataclass(kw_only=True)
class Recorded:
    """What autograd's graph of a forward says."""

    uneven: set[tuple[int, ...]] = field(default_factory=set)  # see :func:`uneven`
    asking: set[tuple[int, ...]] = field(default_factory=set)  # see :func:`asking`
    inner: dict[Key, int] = field(default_factory=dict)  # see :func:`readers`
    partly: dict[int, int] = field(default_factory=dict)  # of places of inputs, see :func:`partly`
    saving: Collection[int] = (-1,)  # the tangents (bits) of what runs once: :func:`saving`
    #: By place of a written input, the tangents (bits) that pass a write to it.
    passed: dict[int, int] = field(default_factory=dict)
    links: Links = field(default_factory=Links)
    since: Since = field(default_factory=Since)
    refused: list[Refusal] = field(default_factory=list)  # in eager's order


@dataclass
class Traced:
    """A forward that has run under autograd.

    ``inputs``: by place, as the graph was run with them, then the ``bases``, of which those in
    ``members`` are views. ``flat``: what it returns; ``found``: the slots' values, laid out as in
    eager, then the new values of the inputs ``written``; those that are ``tracked`` may have been
    changed in sizes alone. ``tangents``: places among those.
    """

    gm: torch.fx.GraphModule
    seen: Observation
    bases: Mapping[int, Base]
    members: Mapping[int, Any]
    inputs: Sequence[Any]
    flat: Sequence[Any]
    found: Sequence[Any]
    written: Sequence[int]
    tracked: Collection[int]
    tangents: Sequence[int]

    def recorded(
        self,
        outputs: Sequence[torch.Tensor],
        ways: Reached,
        wanted: Mapping[int, torch.Tensor],
        first: Writes,
        currents: Currents | None,
        whole: bool,
    ) -> Recorded:
        """What autograd's graph says of the way from ``outputs`` to the inputs that are ``wanted``,
        by number, but for what is ``inner`` and ``partly``.

        ``whole``: whether no tangent is missing, of which alone writes behind the call are told.
        """
        found = Recorded()
        if self._has_links():
            members = self.members if self.written else ()
            moved = [move.place for move in self.seen.moves]
            known = dict.fromkeys((*self.written, *moved, *members))
            saved = [] if currents is None else currents.saved
            found.links = links(outputs, self.inputs, self.flat, [*known], saved)
        note_held(outputs)
        found.uneven, found.asking = uneven(ways), asking(ways)
        found.saving = saving(outputs, ways)
        found.passed = first.passed(outputs, ways)
        found.refused, kinds = refusals(outputs, wanted)
        found.uneven |= kinds
        if whole:
            spans = [] if currents is None else currents.spans
            found.since = since(outputs, ways, wanted, self._shown(), spans)
        return found

    def _has_links(self) -> bool:
        """Whether what is saved may be what the call writes to, or count for itself."""
        if self.seen.writes or self.seen.moves:
            return True
        return takes_data(self.gm)

    def between(self) -> dict[Key, torch.Tensor]:
        """What a caller can name, and results may be computed from."""
        slots = len(self.seen.slots)
        tensors = {(RESULT, n): self.found[n] for n in self.tangents if n < slots}
        for n, output in enumerate(self.seen.outputs):
            view = output.view if isinstance(output, Value | ViewOf) else None
            if view is not None and view.requires_grad:
                tensors[VIEW, n] = self.flat[n]
        for place, (at, _, _, hidden) in self.members.items():
            base, t = self.bases[at], self.inputs[place]
            whole = place == base.first and not base.through  # it is the base
            if base.tracked and not hidden and not whole and t.requires_grad:
                tensors[INPUT, place] = t
        changed = [place for place in self.tracked if place not in self.written]
        tensors |= {(INPUT, place): self.inputs[place] for place in changed}  # in sizes alone
        written = zip(self.written, range(slots, len(self.found)))
        renewed = {(INPUT, place): self.found[n] for place, n in written if n in self.tangents}
        return tensors | renewed

    def _shown(self) -> dict[Key, Any]:
        """What others have besides the call, and may write to: results and inputs by place."""
        found: dict[Key, Any] = {}
        for n, slot in enumerate(self.seen.slots):
            t = self.flat[slot.output]
            found[RESULT, n] = t._base if slot.is_base else t
        moved = {move.place for move in self.seen.moves}
        given = [(n, t) for n, t in enumerate(self.inputs) if n not in self.bases]
        found |= {(INPUT, n): t for n, t in given if isinstance(t, torch.Tensor) and n not in moved}
        return {key: t for key, t in found.items() if isinstance(t, FunctionalTensor)}
