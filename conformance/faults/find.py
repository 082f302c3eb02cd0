"""The order of the questions: does it differ, is it wrong, at which stage, in which graph, at which
operator. Each is answered by processes of their own that run the program from its beginning."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from conformance.faults import messages
from conformance.faults.apart import Failed
from conformance.faults.lab import Lab, Side, ends_of, versions
from conformance.faults.levels import FRONT_END, Step, ladder
from conformance.faults.operators import is_crash
from conformance.faults.preload import preload
from conformance.faults.result import Counts, Located, Rung
from conformance.faults.show import show
from conformance.faults.watch import EARLIER_RESULT, Plan
from conformance.faults.weigh import Run, differences, is_value, unseen, weighed
from conformance.pool import CannotRun
from conformance.verdict import Finding, Kind, crash

DEFAULT_TIMEOUT = 120.0
# Processes that one search may cost.
MOST_DEATHS = 24
Progress = Callable[[str], None]


class Locator:
    """Answers the questions in order; what is known so far is kept as it goes."""

    def __init__(self, lab: Lab):
        self.lab = lab
        self.start = time.monotonic()
        self.remarks: list[str] = []
        self.rungs: list[Rung] = []

    def locate(self) -> Located:
        self.lab.progress("eager")
        self.eager = self._eager()
        self.lab.progress("compiled")
        whole = self.side(None)
        asked = [m for m in whole.ended.said if isinstance(m, messages.Asked)]
        self.names = list(dict.fromkeys((m.backend, m.frontend) for m in asked))
        if whole.worst is not None:
            whole = self._told_from_capture(whole)
        if whole.fails:
            whole = self._told_from_nondeterminism(whole)
        found = Located(
            compiler=", ".join(f"{b} ({f} front end)" for b, f in self.names),
            kind=whole.worst.kind if whole.worst else Kind.PASS,
            finding=whole.worst,
            event=whole.at(whole.worst) if whole.worst else "",
            findings=tuple([(whole.at(f), f) for f in whole.findings]),
        )
        self.remarks += [*_raised(self.eager), *_steps(whole)]
        if found.finding is None and not whole.graphs():
            self.remarks.append("no call came to a graph: nothing compiled was looked at")
        if whole.fails and found.kind is not Kind.NOT_COMPILED:
            found = self._where(found, whole)
        return replace(
            found,
            ladder=tuple(self.rungs),
            remarks=tuple(self.remarks),
            counts=self._counts(whole),
            versions=versions(),
        )

    # -- runs -------------------------------------------------------------------------------------

    def _eager(self) -> Run:
        ended = self.lab.process(Plan(compiled=False))
        if ended.died:
            raise CannotRun(f"the program itself ends its process in eager: {ended.detail}")
        found = Run.of(ended.said)
        for message in ended.said:
            if isinstance(message, messages.Asked):
                preload(message.backend)
        if found.failed is not None:
            raise CannotRun(f"the program raises in eager: {found.failed.line}")
        return found

    def side(self, step: Step | None, **plan: Any) -> Side:
        """The program under the compiler, or a form of it, compared and weighed."""
        options = {"judge": True, **plan}
        ended = self.lab.process(Plan(**options), step)
        seen = Run.of(ended.said)
        if seen.failed is not None and "Unusable" in seen.failed.line.partition(":")[0]:
            raise CannotRun(seen.failed.line.partition(": ")[2])
        asked = [m for m in ended.said if isinstance(m, messages.Asked)]
        compiles = step is None and not seen.failed and all(m.compiles for m in asked)
        findings, count = differences(self.eager, seen, compiles)
        self.lab.comparisons += count
        side = Side(ended, seen, weighed(findings, seen))
        side.findings += ends_of(ended, seen)
        if not side.fails:
            side.findings += unseen(seen)
        if step is None and not side.graphs() and not ended.died and seen.failed is None:
            if not self.eager.events[:-1]:
                raise CannotRun(
                    "the program calls nothing that it compiles with torch.compile or "
                    "refcompiler.compile"
                )
        return side

    def _told_from_capture(self, whole: Side) -> Side:
        """Values that the graphs' rounding explains, if the front end alone gives eager's."""
        self.lab.progress("captured graphs, run as they are")
        self.captured = self.side(FRONT_END, judge=False)
        values = [f for f in self.captured.findings if is_value(f)]
        if not values:
            return whole
        first = min(f.step for f in values)
        unexplained = [
            replace(f, kind=Kind.WRONG, tolerated=False) if is_value(f) and f.step >= first else f
            for f in whole.findings
        ]
        return replace(whole, findings=unexplained)

    def _told_from_nondeterminism(self, whole: Side) -> Side:
        """The same once more on both sides: what differs from itself was never reproducible."""
        self.lab.progress("once more")
        for name, first, plan in (
            ("eager", self.eager, Plan(compiled=False)),
            ("compiled", whole.run, Plan()),
        ):
            second = Run.of(self.lab.process(plan).said)
            unlike, count = differences(first, second, compiles=False)
            self.lab.comparisons += count
            if name == "compiled":
                unlike = [f for f in unlike if is_value(f)]
            if not unlike:
                continue
            found = [_unsteady(f, unlike, name) for f in whole.findings]
            if found != whole.findings:
                self.remarks.append(f"run twice, the {name} program differs from itself")
                whole = replace(whole, findings=found)
        return whole

    # -- stage, graph, operator -------------------------------------------------------------------

    def _where(self, found: Located, whole: Side) -> Located:
        wanted = whole.worst
        assert wanted is not None
        stage, step, side = self._stage(whole, wanted)
        found = replace(found, stage=stage)
        if stage == FRONT_END.stage:
            return found
        guilty = self._graph(side, step, wanted)
        if guilty is None:
            self.remarks.append("no graph fails by itself: it takes the whole program")
            return found
        graph, call, finding, direction = guilty
        found = replace(found, graph=side.graphs().get(graph), direction=direction)
        if finding.aspect == "rng state" and found.stage == "kernel":
            found = replace(found, stage="RNG")
        if finding.aspect == EARLIER_RESULT:
            self.remarks.append(f"call {call + 1} of graph {graph} writes over {finding.where}")
            return found
        return self._operator(found, step, (graph, call), finding)

    def _stage(self, whole: Side, wanted: Finding) -> tuple[str, Step | None, Side]:
        """The first rung of the ladder that fails in the same way."""
        ahead = [m for m in whole.ended.said if isinstance(m, messages.Ahead)]
        steps = ladder({backend for backend, _ in self.names})
        for number, step in enumerate(steps):
            last = number == len(steps) - 1
            why = _does_not_apply(step, ahead)
            if why:
                self.rungs.append(Rung(step.stage, step.what, why, False, applies=False))
                continue
            self.lab.progress(f"{step.stage}: {step.what}")
            if last:
                side = whole
            elif step is FRONT_END:
                side = self.captured
            else:
                side = self.side(step)
            fails = _fails_alike(side, wanted)
            text = str(side.worst.kind) if side.worst else str(Kind.PASS)
            self.rungs.append(Rung(step.stage, step.what, text, fails))
            if fails:
                return step.stage, (None if last else step), side
        return "", None, whole

    def _graph(
        self, side: Side, step: Step | None, wanted: Finding
    ) -> tuple[int, int, Finding, str] | None:
        """The first call of a graph that fails by itself; for a dead process, what was running."""
        if is_crash(wanted):
            return _last_words(side, wanted)
        bad = side.run.bad()
        if not bad and any(isinstance(m, messages.Skipped) for m in side.ended.said):
            self.remarks.append("graphs whose arguments are too large were not looked at")
        if not bad and side.run.graphs:
            side = self.side(step, thoroughly=True)
            bad = side.run.bad()
        alike = [b for b in bad if b[2].aspect == wanted.aspect] or bad
        if alike:
            _, seen, finding = alike[0]
            return seen.graph, seen.call, finding, _direction(finding)
        if wanted.aspect == "exception":
            return _last_words(side, wanted)
        number = self._bisected(step, wanted, side)
        return None if number is None else (number, 0, wanted, "")

    def _bisected(self, step: Step | None, wanted: Finding, side: Side) -> int | None:
        """The graph without which the program does not fail, by compiling the first few only."""
        count = len(side.graphs())
        if count < 2:
            return None if not count else next(iter(side.graphs()))
        low, high = 0, count
        while high - low > 1:
            middle = (low + high) // 2
            self.lab.progress(f"the first {middle} of {count} graphs compiled")
            part = self.side(step, only=frozenset(range(middle)), judge=False)
            low, high = (low, middle) if _fails_alike(part, wanted) else (middle, high)
        return high - 1

    def _operator(
        self, found: Located, step: Step | None, where: tuple[int, int], finding: Finding
    ) -> Located:
        known: dict[str, Any] = {}
        deadly = is_crash(finding)
        for _ in range(MOST_DEATHS):
            self.lab.progress(f"operators of graph {where[0]}, {len(known)} probes")
            plan = Plan(
                search=where, wanted=finding, known=tuple(known.items()), shows=self.lab.shows
            )
            patience = max(5.0, 3 * self.lab.slowest) if finding.aspect == "hang" else inf
            ended = self.lab.process(plan, step, min(patience, self.lab.timeout))
            looking = ""
            for message in ended.said:
                match message:
                    case messages.Looking(probe):
                        looking = probe
                    case messages.Probed(probe, verdict):
                        known[probe], looking = verdict, ""
                    case messages.Searched():
                        return self._told(found, message)
                    case Failed(line):
                        self.remarks.append(f"the search ended: {line}")
                        return found
            if not looking:
                break
            how = "hang" if ended.how == "hang" else "process"
            known[looking] = crash(how, ended.detail)
            if not deadly and len(known) > MOST_DEATHS:
                break
        self.remarks.append("the search for the operator did not come to an end")
        return found

    def _told(self, found: Located, said: messages.Searched) -> Located:
        if said.remark:
            self.remarks.append(said.remark)
        if said.operator is not None:
            found = replace(found, operator=said.operator, stage=_finer(found.stage, said))
            if said.operator.kind is Kind.PRECISION and found.kind is Kind.WRONG:
                found = replace(found, kind=Kind.PRECISION)
        if said.cases and said.finding is not None:
            self.lab.progress("a script that shows it")
            shown = show(said.cases, said.finding, self.names, self.lab.timeout)
            self.lab.comparisons += shown.comparisons
            self.remarks += shown.remarks
            return replace(found, script=shown.script, confirmed=shown.confirmed)
        if said.why and not said.cases:
            self.remarks.append(f"no script: {said.why}")
        return found

    def _counts(self, whole: Side) -> Counts:
        said = whole.ended.said
        calls = [m for m in said if isinstance(m, messages.Running) and m.direction == "forward"]
        compiled = [e.seen.compiled for e in whole.run.events]
        kernels = [c.kernels for c in compiled if c.kernels is not None]
        return Counts(
            graphs=len(whole.graphs()),
            calls=sum(e.label.startswith("call ") for e in whole.run.events),
            graph_calls=len(calls),
            comparisons=self.lab.comparisons,
            compilations=self.lab.compilations,
            processes=self.lab.processes,
            seconds=time.monotonic() - self.start,
            kernels=sum(kernels) if kernels else None,
        )


def _unsteady(finding: Finding, unlike: Sequence[Finding], side: str) -> Finding:
    """``finding`` as nondeterminism, if the ``side`` differs from itself there, or in values that
    this one may come of."""
    same = any((f.aspect, f.where) == (finding.aspect, finding.where) for f in unlike)
    first = min((f.step for f in unlike if is_value(f)), default=inf)
    if finding.tolerated or not (same or (is_value(finding) and finding.step >= first)):
        return finding
    evidence = {**finding.evidence, "side": side}
    kind, harmless = Kind.NONDETERMINISM, side == "eager"
    return replace(finding, kind=kind, tolerated=harmless, evidence=evidence)


def _raised(eager: Run) -> list[str]:
    """Calls that end in an exception of the program's own, which is what both sides are due."""
    told = []
    for event in eager.events:
        if (error := event.seen.error) is not None:
            line = " ".join(error.message.split())
            told.append(f"{event.label} raises in eager: {error.type}: {line}")
    return told[:1] + ([f"and {len(told) - 1} calls more"] if told[1:] else [])


def _steps(side: Side) -> list[str]:
    """Where noise is noise only since a rounding of the inputs changes the result as much."""
    for _, seen in side.run.graphs:
        for finding in seen.verdict.findings:
            if finding.evidence.get("conditioned"):
                where = f"{finding.where} of graph {seen.graph}, call {seen.call + 1}"
                text = f"expected {finding.expected}, found {finding.found}"
                return [
                    f"{where} ({text}) is explained only by what one rounding of the graph's "
                    "inputs does to it: a step, or terms that cancel; is the input exact there?"
                ]
    return []


def _finer(stage: str, said: messages.Searched) -> str:
    """What an operator tells of a code generator of which no option does."""
    assert said.operator is not None and said.finding is not None
    if stage != "kernel":
        return stage
    if said.operator.draws or said.finding.aspect == "rng state":
        return "RNG"
    return stage if said.operator.alone else "fusion"


def _does_not_apply(step: Step, ahead: list[messages.Ahead]) -> str:
    if not step.level:
        return ""
    if not ahead:
        return "not asked: it calls no aot_autograd that is known"
    if step.level == "partitioned" and not any(m.gradients for m in ahead):
        return "not asked: nothing has a gradient"
    return ""


def _fails_alike(side: Side, wanted: Finding) -> bool:
    alike = [f for f in side.findings if not f.tolerated and f.aspect == wanted.aspect]
    if wanted.kind in (Kind.CRASH, Kind.REFUSED):
        alike = [f for f in alike if f.kind is wanted.kind]
    return bool(alike)


def _direction(finding: Finding) -> str:
    return "backward" if finding.where.startswith("grad") else "forward"


def _last_words(side: Side, wanted: Finding) -> tuple[int, int, Finding, str] | None:
    """What a process that died, or raised, was about to do."""
    for message in reversed(side.ended.said):
        match message:
            case messages.Running(graph, call, direction):
                return graph, call, wanted, direction
            case messages.Compiling(graph):
                return graph.number, 0, wanted, "compilation"
    return None
