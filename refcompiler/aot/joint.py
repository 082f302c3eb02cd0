"""The joint graph of a forward and its backward, and what is known of it."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from refcompiler.aot.depends import Depends
from refcompiler.aot.ports import Key
from refcompiler.aot.traced import Recorded

FORWARD = "forward"  # the phase of nodes traced before autograd's engine ran
PHASE = "phase"
LEAF = "leaf"  # in the meta of an input that is a leaf of autograd
WRITTEN = "written"  # in the meta of an input that has other values after the call
#: In the meta of a graph: its outputs that are new values of inputs, and of which, both by number.
#: What is compiled may write a new value to its input, with its version, and return None for it.
NEW_VALUES = "new values"


@dataclass(kw_only=True)
class Joint(Recorded):
    """``graph``: placeholders are the inputs, then a tangent for each of ``tangents``.

    Its outputs are, flat: the slots' values, the new values of the inputs ``written``, the numbers
    that were observed, then a gradient (or None) for each input. ``tangents`` are places among the
    outputs before those. ``reads``: inputs, as numbers in ``inputs``, of whose gradient autograd
    is to add up the parts: each has one more among the last outputs.
    """

    graph: torch.fx.GraphModule
    inputs: list[int]  # places of what the graph takes
    outputs: int  # slots, written inputs, and numbers
    tangents: list[int] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    #: Of a trace in stages: the result and what comes back to what, for each of the last outputs.
    parts: list[tuple[int, Key]] = field(default_factory=list)
    order: list[int] = field(default_factory=list)  # in which eager's gradients come to inputs
    depends: Depends | None = None  # of a trace that asks for it: of the last derivatives
    turns: dict[int, int] = field(default_factory=dict)  # of the slots with a tangent
    #: Places of inputs that the graph takes once more, the last (:mod:`refcompiler.aot.currents`).
    #: Behind all gradients it gives a new value for each of them, or None.
    currents: list[int] = field(default_factory=list)
    rewrites: bool = False  # whether it has a new value for one
    #: By number of a tangent, its number among those that a trace begins with.
    cotangents: list[int] = field(default_factory=list)
    #: Outputs of the call, by number, that are views and have a tangent, which are the last. Their
    #: places are behind all outputs of the graph.
    viewed: list[int] = field(default_factory=list)

    def taking(self, numbers: Sequence[int]) -> Joint:
        """The same, with its inputs in another order: ``numbers`` are those that they have now."""
        graph, count = self.graph.graph, len(self.inputs)
        holders = graph.find_nodes(op="placeholder")[:count]
        for n in reversed(numbers):
            graph._root.append(holders[n])
        values = self._values()
        gradients = values[self.outputs : self.outputs + count]
        values[self.outputs : self.outputs + count] = [gradients[n] for n in numbers]
        self._give(values)
        places = {n: place for place, n in enumerate(numbers)}
        self.inputs = [self.inputs[n] for n in numbers]
        self.reads = [places[n] for n in self.reads]
        self.order = [places[n] for n in self.order]
        self.refused = [(*row[:-1], [places[n] for n in row[-1]]) for row in self.refused]
        self.since = self.since.taking(places)
        self.depends = self.depends and self.depends.taking(numbers)
        return self

    def ending(self, numbers: Sequence[int]) -> None:
        """Have autograd take the inputs ``numbers`` once more, behind all others."""
        values = self._values()
        end = self.outputs + len(self.inputs) + len(self.reads)
        values[end:end] = [None] * len(numbers)
        self._give(values)
        self.reads = [*self.reads, *numbers]

    def _values(self) -> list[Any]:
        (output,) = self.graph.graph.find_nodes(op="output")
        return [*output.args[0]]

    def _give(self, values: list[Any]) -> None:
        (output,) = self.graph.graph.find_nodes(op="output")
        output.args = (values,)
        self.graph.recompile()

    def unreached(self) -> set[int]:
        """Places of inputs that have no gradient, whatever has one, though others have."""
        places = self.without_gradient() - {
            self.inputs[n] for *_, ends in self.refused for n in ends
        }
        return places if len(places) < len(self.inputs) else set()

    def without_gradient(self) -> set[int]:
        """Places of inputs that have no gradient, whatever has one."""
        (output,) = self.graph.graph.find_nodes(op="output")
        gradients = output.args[0][self.outputs : self.outputs + len(self.inputs)]
        pairs = [*zip(self.inputs, gradients)]
        return {n for n, g in pairs if g is None} - {n for n, g in pairs if g is not None}

    def ways(self) -> dict[int, int]:
        """By number of what autograd is given, the tangents (bits) that reach it, if not all do.

        Those whose gradients come last in eager are the first.
        """
        taken = [*self.inputs, *[self.inputs[n] for n in self.reads]]
        places = self.partly.keys() - self.without_gradient()
        ranks = {self.inputs[n]: at for at, n in enumerate(self.order)}
        found = [n for n, place in enumerate(taken) if place in places]
        found.sort(key=lambda n: -ranks.get(taken[n], 0))
        return {n: self.partly[taken[n]] for n in found}

    def new_values(self, first: int, places: Collection[int]) -> dict[int, int]:
        """Outputs, from number ``first`` on, that are new values of inputs at ``places``, which the
        graph takes: their numbers there."""
        taken = {place: n for n, place in enumerate(self.inputs)}
        new = enumerate(self.written, first)
        return {n: taken[place] for n, place in new if place in places and place in taken}

    def own_currents(self) -> range:
        """The numbers of ``currents`` among the inputs."""
        return range(len(self.inputs) - len(self.currents), len(self.inputs))

    def views(self) -> list[int]:
        """Outputs that the graph makes as views of what it does not return."""
        (output,) = self.graph.graph.find_nodes(op="output")
        flat = list(enumerate(output.args[0][: self.outputs]))
        return [n for n, node in flat if _is_view(node)]


def _is_view(node: Any) -> bool:
    """Whether a node gives a view, or one of several."""
    target = getattr(node, "target", None)
    if target is operator.getitem:
        return _is_view(node.args[0])
    return getattr(target, "is_view", False)
