"""The verdict on one case: run both sides, compare, and ask the oracle about what differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import torch

from conformance.ambient import ambient
from conformance.case import Case
from conformance.compare import Comparison, compare
from conformance.compilers import Compiler
from conformance.execute import FLOAT64, Eager, Precision, run
from conformance.numeric import (
    LOWER,
    Closeness,
    Reference,
    closeness,
    explained_by,
    identical,
    real_dtype,
)
from conformance.observe import Observation, TensorSeen
from conformance.verdict import Finding, Kind, Verdict, verdict_of

# Findings that a run is repeated for without a meter.
_UNWATCHED = (Kind.PRECISION, Kind.WRONG)
# How many roundings of the inputs the spread of a result is measured with.
JITTERS = (1, 2, 3)


class Oracle:
    """Eager in other precisions, run when first asked and at most once each."""

    def __init__(self, case: Case):
        self.case = case
        self._run = cache(self._observe)

    def _observe(self, precision: Precision | None) -> Observation | None:
        try:
            return run(self.case, Eager(), precision)
        except Exception:
            return None  # the case's own source cannot be built in this precision

    def tensor(self, precision: Precision, step: int, like: TensorSeen, path: str):  # type: ignore[no-untyped-def]
        """The tensor at ``path`` in that precision; ``None`` if the run has no such tensor."""
        seen = self._run(precision)
        if seen is None or seen.steps[step].error:
            return None
        failed = _failed(seen, step)
        # A step that raises in every precision leaves the same tensors to those behind it.
        if failed and ((plain := self._run(None)) is None or _failed(plain, step) != failed):
            return None
        found = seen.steps[step].snapshot.tensors.get(path)
        if found is None or found.shape != like.shape:
            return None
        return found.values

    def reference(self, step: int, like: TensorSeen, path: str) -> Reference | None:
        """The float64 result, and how far the inputs' rounding moves it where that matters."""
        exact = self.tensor(FLOAT64, step, like, path)
        if exact is None:
            return None
        # A float64 result has nothing more exact beside it, only what it is conditioned to.
        double = real_dtype(like.values.dtype) == torch.float64
        if not (self.case.tolerance.conditioned or double):
            return Reference(exact)
        spread = torch.zeros(exact.shape, dtype=torch.float64)
        for seed in JITTERS:
            moved = self.tensor(Precision(torch.float64, seed), step, like, path)
            if moved is not None:
                spread = torch.maximum(spread, _distance(moved, exact))
        if exact.is_complex():
            spread = torch.stack([spread, spread], -1)
        return Reference(exact, spread)

    def judge(self, step: int, path: str, expected: TensorSeen, found: TensorSeen) -> Closeness:
        """The kind of the difference between two tensors of one dtype and shape."""
        if identical(expected.values, found.values):
            return Closeness(Kind.PASS)
        reference = self.reference(step, expected, path)
        close = closeness(expected.values, found.values, self.case.tolerance, reference)
        if close.kind is not Kind.WRONG or reference is None or _is_exact(expected.values):
            return close
        for lower in LOWER.get(real_dtype(expected.values.dtype), ()):
            low = self.tensor(Precision(lower), step, expected, path)
            if low is not None and explained_by(low, found.values, reference):
                evidence = {**close.evidence, "direction": f"less precise: as in {lower}"}
                return Closeness(Kind.PRECISION, tolerated=False, evidence=evidence)
        return close


def _distance(moved: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """How far apart elements are; what is not finite moves nowhere, nor does it hide that the other
    part of its number does (a difference of complex numbers is nan in both)."""
    if _is_exact(exact):
        return (moved != exact).to(torch.float64)
    one, other = (
        torch.view_as_real(t.resolve_conj()) if t.is_complex() else t.unsqueeze(-1)
        for t in (moved, exact)
    )
    # The largest number, moved up, is infinite; moved down, it tells how far.
    apart = (one - other).to(torch.float64).nan_to_num(0.0, posinf=0.0, neginf=0.0)
    return torch.linalg.vector_norm(apart, dim=-1)


def _failed(seen: Observation, step: int) -> list[int]:
    """The steps up to ``step`` that raised."""
    return [n for n, taken in enumerate(seen.steps[: step + 1]) if taken.error]


def _is_exact(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex())


def judge(
    case: Case, compiler: Compiler, stage: Callable[[str], None] = lambda name: None
) -> Verdict:
    """Run ``case`` eagerly and under ``compiler``, and judge everything a user can see.

    ``stage`` is told whose code runs next, ``eager`` or ``compiled``, so that whoever watches
    knows which of the two a process died of. Raises what the case's own source raises when it is
    built.
    """
    states = [ambient()]
    expected = run(case, Eager())
    states.append(ambient())
    stage("compiled")
    found = run(case, compiler.session())
    states.append(ambient())
    stage("eager")
    oracle = Oracle(case)
    result = compare(case, expected, found, oracle.judge, compiler.compiles)
    if _is_wrong(result):
        stage("compiled")
        result = _unwatched(case, compiler, expected, found, oracle, result)
        stage("eager")
    _compare_left(result, len(case.history) - 1, *states)
    if any(f.aspect == "values" and not f.tolerated for f in result.findings):
        _tell_nondeterminism(case, compiler, expected, found, result, stage)
    raised = [step.error.type for step in expected.steps if step.error is not None]
    return verdict_of(result.findings, result.count, found.compiled, raised)


def _unwatched(
    case: Case,
    compiler: Compiler,
    expected: Observation,
    found: Observation,
    oracle: Oracle,
    watched: Comparison,
) -> Comparison:
    """What is compared where nothing looks on as compiled code runs, if that alone is as in eager.

    Under a mode that sees operators torch itself computes some gradients otherwise, such as of a
    foreach operator whose lists overlap. That is no fault of a compiler; what comes and goes by
    itself is one, so that it has to be wrong under the mode each time.
    """
    for watches in (False, True):
        seen = run(case, compiler.session(watched=watches))
        steps = zip(seen.steps, found.steps, strict=True)
        seen = Observation(tuple([replace(a, compiled=b.compiled) for a, b in steps]))
        again = compare(case, expected, seen, oracle.judge, compiler.compiles)
        watched.count += again.count
        if _is_wrong(again) is not watches:
            return watched
        if not watches:
            alone = again
    return replace(alone, count=watched.count)


def _is_wrong(found: Comparison) -> bool:
    return any(f.kind in _UNWATCHED and not f.tolerated for f in found.findings)


def _compare_left(
    result: Comparison,
    step: int,
    before: Mapping[str, str],
    between: Mapping[str, str],
    after: Mapping[str, str],
) -> None:
    """What the compiled run has left behind, where eager's left nothing.

    A step's own state is compared with it: this is what came later, of what was freed by then.
    """
    said = {f.where for f in result.findings if f.aspect == "ambient state"}
    for name, state in before.items():
        if between[name] == state and name not in said:
            result.check("ambient state", name, step, state, after[name])


def _tell_nondeterminism(
    case: Case,
    compiler: Compiler,
    expected: Observation,
    found: Observation,
    result: Comparison,
    stage: Callable[[str], None],
) -> None:
    """Run both sides again: a value that differs from itself is not wrong but not reproducible."""
    sides: list[tuple[str, Observation, Callable[[], Observation]]] = [
        ("eager", expected, lambda: run(case, Eager())),
        ("compiled", found, lambda: run(case, compiler.session())),
    ]
    unsteady: dict[tuple[int, str], str] = {}
    wrong = [f for f in result.findings if f.aspect == "values" and not f.tolerated]
    for side, first, again in sides:
        stage(side)
        second = again()
        for finding in wrong:
            one = first.steps[finding.step].snapshot.tensors.get(finding.where)
            other = second.steps[finding.step].snapshot.tensors.get(finding.where)
            if one is None or other is None or not identical(one.values, other.values):
                unsteady.setdefault((finding.step, finding.where), side)
    result.findings[:] = [
        _as_unsteady(f, unsteady[f.step, f.where])
        if f in wrong and (f.step, f.where) in unsteady
        else f
        for f in result.findings
    ]


def _as_unsteady(finding: Finding, side: str) -> Finding:
    # Where eager itself is not reproducible, nothing was promised.
    evidence = {**finding.evidence, "side": side}
    return replace(finding, kind=Kind.NONDETERMINISM, tolerated=side == "eager", evidence=evidence)
