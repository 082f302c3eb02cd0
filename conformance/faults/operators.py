"""The first operator of a graph at which compiled code goes wrong, and what it needs beside it.

The graph is cut after a node, and what the rest reads is given back: the smallest such beginning
that fails ends with the operator. Of that, nodes are left out from the front, with eager's values
in their places, as long as it fails: if the operator is left alone, its own kernel is at fault,
or else it goes wrong only together with those before it. Cutting changes what is fused: whatever
is told was seen to fail in the form in which it is told.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from conformance.faults.copies import copied
from conformance.faults.graphs import (
    Uncut,
    body,
    copy_of,
    name_of,
    place_of,
    prefix,
    symbolic_values,
    values_of,
    window,
)
from conformance.faults.isolate import GraphCall, Tangents, all_alike, each_other, judged
from conformance.faults.reduce import reduced
from conformance.faults.result import Operator
from conformance.observe import rng_state
from conformance.verdict import Finding, Kind, Verdict

#: Compiles a graph as the backend under test does, for arguments like these.
Compile = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]
#: Runs a probe of that name, or knows from an earlier process what came of it.
Remember = Callable[[str, Callable[[], Verdict]], Verdict]


@dataclass
class Search:
    """Looks for the operator in one call of a graph that fails as ``wanted``.

    ``compile`` has one compilation for each probe; ``remember`` keeps what came of it where this
    process may end with the next one. ``times``: compiled code is called so often in a probe,
    where it fails only then.
    """

    call: GraphCall
    wanted: Finding
    compile: Compile
    remember: Remember
    times: int = 1
    probes: int = 0
    comparisons: int = 0

    def verdict(self, gm: GraphModule, args: Sequence[Any], name: str) -> Verdict:
        """Of ``gm`` compiled anew, from ``args``."""
        self.probes += 1
        found = self.remember(name, lambda: self._judge(replace(self.call, gm=gm, args=args)))
        self.comparisons += found.comparisons
        return found

    def _judge(self, call: GraphCall) -> Verdict:
        expected = call.eager()
        if expected.error is not None and self.wanted.aspect != "exception":
            return Verdict(comparisons=1)
        made: list[Callable[..., Any]] = []

        def compiled(*args: Any) -> Any:
            if not made:
                with call.ambience.again():
                    made.append(self.compile(copy_of(call.gm), examples(call.gm, call.args)))
            return made[0](*args)

        def again() -> Any:
            return call.compiled(compiled, self.times)

        return judged(call, expected, again(), again)

    def fails(self, gm: GraphModule, args: Sequence[Any], name: str) -> Finding | None:
        """The finding that is the same failure."""
        return same(self.verdict(gm, args, name), self.wanted)

    def whole(self) -> Finding | None:
        """Whether the graph fails by itself at all: with the tangents that it had, with others,
        and when it is called as often as it was."""
        own = self.call.tangents
        tangents: list[Tangents | None] = []
        if self.wanted_backward() and own is not None:
            tangents.append(own)
        tangents += [each_other, all_alike] if self.call.ambience.grad else [None]
        for times in {1, self.times}:
            for number, given in enumerate(tangents):
                self.call = replace(self.call, tangents=given)
                was, self.times = self.times, times
                name = f"whole graph, tangents {number}, {times} calls"
                if found := self.fails(self.call.gm, self.call.args, name):
                    if given is own and own is not None:
                        return self._with_other_tangents(found)
                    return found
                self.times = was
        return None

    def _with_other_tangents(self, found: Finding) -> Finding:
        """A beginning of the graph has other results, which take any tangents."""
        own = self.call.tangents
        for number, given in enumerate([each_other, all_alike]):
            self.call = replace(self.call, tangents=given)
            name = f"whole graph, made tangents {number}"
            if other := self.fails(self.call.gm, self.call.args, name):
                return other
        self.call = replace(self.call, tangents=own)
        return found

    def wanted_backward(self) -> bool:
        return self.wanted.where.startswith("grad")

    def run(self) -> tuple[Operator | None, GraphModule, Sequence[Any], str]:
        """The operator, and the smallest part of the graph that fails, with its arguments; a
        remark where something could not be told."""
        gm = self.call.gm
        found = self.whole()
        if found is None:
            return None, gm, self.call.args, "the graph does not fail by itself"
        self.wanted = replace(found, aspect=self.wanted.aspect)
        nodes = body(gm)
        with self.call.ambience.again():
            kinds = values_of(gm, copied(self.call.args).args)
        known = {len(nodes): found}
        low, high = 0, len(nodes)  # the first ``low`` nodes do not fail, the first ``high`` do
        while high - low > 1:
            middle = (low + high) // 2
            part = prefix(gm, middle, kinds)
            seen = self.fails(part, self.call.args, f"first {middle} nodes")
            if seen is None:
                low = middle
            else:
                high, known[middle] = middle, seen
        part = prefix(gm, high, kinds)
        if not self.fails(part, self.call.args, f"first {high} nodes"):
            # Only what the whole graph gives back fails: nothing more was there to be cut.
            return None, gm, self.call.args, "the graph fails only as a whole"
        start, part, args = self._start(nodes, high, part)
        verdict = self.verdict(part, args, f"nodes {start} to {high}")
        seen = same(verdict, self.wanted) or known.get(high) or found
        self.wanted = seen
        alone = high - start == 1
        group = tuple(name_of(n) for n in nodes[start:high])
        node = nodes[high - 1]
        operator = Operator(
            node=node.name,
            name=name_of(node),
            place=place_of(node),
            alone=alone,
            draws=self._draws(part, args),
            group=group,
            nodes=len(nodes),
            evidence=dict(seen.evidence),
            kind=seen.kind,
            finding=str(seen),
        )
        return operator, part, args, ""

    def smaller(self, part: GraphModule, args: Sequence[Any]) -> tuple[GraphModule, Sequence[Any]]:
        """``part`` with fewer nodes and results, as long as it fails."""
        names = itertools.count()

        def fails(gm: GraphModule, args: Sequence[Any]) -> bool:
            found = self.fails(gm, args, f"smaller graph {next(names)}")
            return found is not None and found.kind is self.wanted.kind

        return reduced(part, args, fails, self.call.ambience.again)

    def _draws(self, part: GraphModule, args: Sequence[Any]) -> bool:
        """Whether eager takes random numbers there."""
        with self.call.ambience.again():
            before = rng_state()
            with contextlib.suppress(Exception):  # which may be what is looked for
                part.forward(*copied(args).args)
            return rng_state() != before

    def _start(
        self, nodes: list[Node], stop: int, part: GraphModule
    ) -> tuple[int, GraphModule, Sequence[Any]]:
        """The last node to begin with so that it still fails: alone first, then by halves."""
        best: tuple[int, GraphModule, Sequence[Any]] = (0, part, self.call.args)
        low, high = 0, stop  # beginning at ``low`` it fails, at ``high`` it does not
        guess = stop - 1
        while low < guess:
            made = self._window(guess, stop)
            if made and self.fails(*made, f"nodes {guess} to {stop}"):
                low, best = guess, (guess, *made)
            else:
                high = guess
            if high - low <= 1:
                break
            # What is fused lies close together.
            guess = high - 1 if stop - high < 4 else (low + high) // 2
        return best

    def _window(self, start: int, stop: int) -> tuple[GraphModule, list[Any]] | None:
        given = copied(self.call.args).args
        with self.call.ambience.again():
            values = values_of(self.call.gm, given, start)
        try:
            part, read = window(
                self.call.gm, start, stop, self._kinds(values), symbolic_values(self.call.gm)
            )
        except (Uncut, KeyError):
            return None
        return part, [values[node] for node in read]

    def _kinds(self, values: dict[Node, Any]) -> dict[Node, Any]:
        with self.call.ambience.again():
            return {**values_of(self.call.gm, copied(self.call.args).args), **values}


def examples(gm: GraphModule, args: Sequence[Any]) -> list[Any]:
    """What a backend is given with ``gm``: tensors, and symbols where the graph has them."""
    given = copied(args).args
    for number, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        shown = node.meta.get("example_value")
        if isinstance(shown, torch.SymInt):
            given[number] = shown
    return given


def same(verdict: Verdict, wanted: Finding) -> Finding | None:
    """The finding of ``verdict`` that is the failure ``wanted``: of its kind, in the same aspect,
    in the forward or the backward, with the same exception.

    What is wrong behind other operators may be a lower precision where it comes from.
    """
    for found in verdict.findings:
        if found.tolerated or found.aspect != wanted.aspect:
            continue
        if found.kind is not wanted.kind and not {found.kind, wanted.kind} <= _VALUES:
            continue
        if found.where.startswith("grad") is not wanted.where.startswith("grad"):
            continue
        if found.aspect == "exception" and error_class(found.found) != error_class(wanted.found):
            continue
        return found
    return None


_VALUES = {Kind.WRONG, Kind.PRECISION}


def error_class(said: str) -> str:
    """``Type: message`` without what differs from one size, or one process, to another."""
    return re.sub(r"0x[0-9a-f]+|\d+", "#", said)


def is_crash(finding: Finding) -> bool:
    return finding.kind is Kind.CRASH and finding.aspect in ("process", "hang")
