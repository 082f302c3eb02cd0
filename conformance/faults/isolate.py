"""One call of one graph by itself: eager, compiled and in float64, from the very same inputs.

A graph's whole effect is on tensors, so that it can be run again: what differs here is this
graph's, whatever was computed before it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from conformance.case import Call, Case, Program, Tolerance
from conformance.compare import compare
from conformance.execute import FLOAT64, Precision, cotangent, in_precision, snapshot_tensors
from conformance.faults.copies import Ambience, Copied, Unmovable, copied
from conformance.faults.graphs import moved
from conformance.judge import Oracle
from conformance.numeric import Reference, closeness, identical
from conformance.observe import Observation, StepSeen, error_seen, rng_state, snapshot
from conformance.verdict import Compiled, Finding, Kind, Verdict

TOLERANCE = Tolerance(2.0, conditioned=True, mixing=True)
#: Gradients that a graph's results are given: one for each, or a function of the result.
Tangents = Sequence[torch.Tensor | None] | Callable[[torch.Tensor], torch.Tensor]


def case_of(steps: Sequence[str], tolerance: Tolerance = TOLERANCE) -> Case:
    """A case of which only the history is asked."""
    history = tuple(Call(step) for step in steps)
    return Case("locate", "", "", Program(""), (), history, tolerance)


@dataclass
class GraphCall:
    """A graph, and one call of it: arguments as they were before, and what was there beside them.

    ``tangents``: what its results were given in the backward (``None``: no gradient came).
    """

    gm: torch.fx.GraphModule
    args: Sequence[Any]
    ambience: Ambience
    tangents: Tangents | None = None

    def eager(self, precision: Precision | None = None) -> StepSeen:
        if precision is None:
            return self.run(self.gm.forward, copied(self.args))
        gm, given = moved(self.gm, precision), copied(self.args, precision)
        with in_precision(precision):
            return self.run(gm.forward, given, precision)

    def compiled(self, call: Callable[..., Any], times: int = 1) -> StepSeen:
        """``times``: it is called so often, and the last one counts."""
        for _ in range(times - 1):
            self.run(call, copied(self.args))
        return self.run(call, copied(self.args))

    def run(
        self, call: Callable[..., Any], given: Copied, precision: Precision | None = None
    ) -> StepSeen:
        names: dict[str, Any] = {}
        error = None
        with self.ambience.again():
            try:
                out = call(*given.args)
                names = seen_names(out, given.args)
                if self.tangents is not None:
                    self.backward(names["out"], precision)
                    names["grad"] = [leaf.grad for leaf in given.leaves.values()]
                    for leaf in given.leaves.values():
                        leaf.grad = None  # seen once
            except Exception as raised:
                error = error_seen(raised, "", ())
            state = rng_state()
        return StepSeen(snapshot(names), "", error, state, Compiled())

    def backward(self, out: list[Any], precision: Precision | None) -> None:
        roots = snapshot_tensors(out)
        given = self.tangents
        if callable(given):
            roots = [t for t in roots if t.requires_grad and t.is_floating_point()]
            pairs = [(t, given(t)) for t in roots]
        else:
            assert given is not None
            pairs = [(t, g) for t, g in zip(roots, given) if g is not None and t.requires_grad]
        if precision is not None:
            pairs = [(t, g.to(t.dtype)) for t, g in pairs]
        if pairs:
            torch.autograd.backward([t for t, _ in pairs], [g for _, g in pairs])


def seen_names(out: Any, args: Sequence[Any]) -> dict[str, Any]:
    return {"out": list(out) if isinstance(out, (tuple, list)) else [out], "arg": list(args)}


def each_other(root: torch.Tensor) -> torch.Tensor:
    """A tangent with no two neighbours alike."""
    return cotangent(root)


def all_alike(root: torch.Tensor) -> torch.Tensor:
    """The tangent that a sum of the results has: one, expanded."""
    return torch.ones((), dtype=root.dtype, device=root.device).expand(root.shape)


class _Oracle(Oracle):
    """The oracle of one call of a graph."""

    def __init__(self, call: GraphCall, tolerance: Tolerance):
        super().__init__(case_of(["the call"], tolerance))
        self.call = call

    def _observe(self, precision: Precision | None) -> Observation | None:
        with contextlib.suppress(Exception, Unmovable):
            return Observation((self.call.eager(precision),))
        return None


def judged(
    call: GraphCall,
    expected: StepSeen,
    found: StepSeen,
    again: Callable[[], StepSeen] | None = None,
    tolerance: Tolerance = TOLERANCE,
) -> Verdict:
    """The verdict on what compiled code did in one call. ``again`` runs it once more, to tell
    what is wrong from what is not reproducible."""
    oracle = _Oracle(call, tolerance)
    result = compare(
        oracle.case, Observation((expected,)), Observation((found,)), oracle.judge, compiles=False
    )
    result.findings[:] = [_told_of_steps(f, oracle, expected, found) for f in result.findings]
    wrong = [f for f in result.findings if f.aspect == "values" and not f.tolerated]
    if wrong and again is not None:
        second = again()
        for finding in wrong:
            one = found.snapshot.tensors[finding.where]
            other = second.snapshot.tensors.get(finding.where)
            if other is None or not identical(one.values, other.values):
                evidence = {**finding.evidence, "side": "compiled"}
                unsteady = replace(finding, kind=Kind.NONDETERMINISM, evidence=evidence)
                result.findings[result.findings.index(finding)] = unsteady
    return Verdict(tuple(result.findings), result.count)


def _told_of_steps(
    finding: Finding, oracle: Oracle, expected: StepSeen, found: StepSeen
) -> Finding:
    """Noise that is none by eager's own error, but only by what a rounding of the inputs does to
    the result, where that has a step or its terms cancel: the evidence says so."""
    if finding.aspect != "values" or finding.kind is not Kind.REASSOCIATION:
        return finding
    one, other = (seen.snapshot.tensors[finding.where] for seen in (expected, found))
    exact = oracle.tensor(FLOAT64, 0, one, finding.where)
    if exact is None:
        return finding
    close = closeness(one.values, other.values, replace(TOLERANCE, ulp=16.0), Reference(exact))
    evidence = {**finding.evidence, "conditioned": close.kind is Kind.WRONG}
    return replace(finding, evidence=evidence)


def worst(verdict: Verdict) -> Finding | None:
    """The finding that decides, if it counts against the compiler."""
    found = verdict.worst
    return None if found is None or found.tolerated else found
