"""Makes a failing case smaller while it stays the same failure.

Hypothesis shrinks what a strategy drew; here the case itself is taken apart, whatever made it:
steps are left out, inputs dropped, layouts made plain and values made simple. Each candidate is
judged in a worker, so a crash or a hang shrinks like any other failure.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from conformance.case import Call, Case, Change, Compiles, Literal, Storage, Tensor
from conformance.strategies.generate import shrink as shrink_drawn
from conformance.suites.suite import Family
from conformance.verdict import Verdict


@dataclass
class Budget:
    """Bounds on the work of one shrink: candidates judged, and seconds."""

    candidates: int
    seconds: float

    def __post_init__(self) -> None:
        self.end = time.monotonic() + self.seconds

    def spend(self) -> bool:
        """Take one candidate; false when nothing is left."""
        self.candidates -= 1
        return self.candidates >= 0 and time.monotonic() < self.end


@dataclass
class Shrinker:
    """Shrinks within a budget; what was judged once is not judged again.

    ``may_raise``: what eager's steps raise in the case that is shrunk. One in which it raises
    anything else, or more often, is no smaller form of it: that is the case's own error, not the
    compiler's.
    """

    judge: Callable[[Case], Verdict]
    budget: Budget
    may_raise: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.known: dict[str, Verdict] = {}

    def is_same_failure(self, case: Case, wanted: tuple[str, ...]) -> bool:
        """Whether ``case`` fails as ``wanted``. Out of budget, what is not known does not."""
        if case.digest not in self.known:
            if not self.budget.spend():
                return False
            self.known[case.digest] = self.judge(case)
        verdict = self.known[case.digest]
        if not Counter(verdict.raised) <= self.may_raise:
            return False
        worst = verdict.worst
        return worst is not None and not worst.tolerated and worst.failure_class == wanted

    def shrink(
        self, case: Case, verdict: Verdict, family: Family, count: int, seed: str
    ) -> tuple[Case, Verdict]:
        """The smallest case found of the failure of ``case``, and the verdict on it."""
        assert verdict.worst is not None
        wanted = verdict.worst.failure_class
        self.may_raise = Counter(verdict.raised)
        self.known[case.digest] = verdict
        if family.strategy is not None:
            drawn = shrink_drawn(
                family.strategy, count, seed, lambda c: self.is_same_failure(c, wanted)
            )
            case = drawn or case
        case = self.reduce(case, wanted)
        return case, self.known[case.digest]

    def reduce(self, case: Case, wanted: tuple[str, ...]) -> Case:
        """Take the first simpler candidate that fails alike, until none does."""
        tried: set[str] = set()
        progress = True
        while progress:
            progress = False
            for candidate in candidates(case):
                if candidate.digest in tried or candidate.digest == case.digest:
                    continue
                tried.add(candidate.digest)
                if self.is_same_failure(candidate, wanted):
                    case, progress = candidate, True
                    break
        return case


def candidates(case: Case) -> Iterator[Case]:
    """Simpler cases, the boldest first."""
    yield from _without_steps(case)
    yield from _without_inputs(case)
    for item in case.inputs:
        if isinstance(item, Tensor):
            yield from _plainer(case, item)
    for item in case.inputs:
        if isinstance(item, Storage) and isinstance(item.contents, Literal):
            for values in _simpler(item.contents.values):
                yield _with(case, item, replace(item, contents=Literal(values)))


def _without_steps(case: Case) -> Iterator[Case]:
    for number in reversed(range(len(case.history))):
        rest = case.history[:number] + case.history[number + 1 :]
        if not any(isinstance(step, Call) for step in rest):
            continue
        if number == 0 and isinstance(case.history[0], Call):
            # What comes first now compiles, whatever was said of it as the second.
            rest = tuple(
                replace(step, compiles=Compiles.ANY) if step is rest[0] else step for step in rest
            ) if isinstance(rest[0], Call) else rest  # fmt: skip
        yield replace(case, history=rest)


def _without_inputs(case: Case) -> Iterator[Case]:
    """Drop inputs that nothing mentions any more."""
    texts = [step.source for step in case.history if isinstance(step, Call | Change)]
    for item in case.inputs:
        others = [i for i in case.inputs if i is not item]
        mentions = texts + [getattr(i, "source", "") for i in others]
        mentions += [i.storage for i in others if isinstance(i, Tensor)]
        if not any(re.search(rf"\b{re.escape(item.name)}\b", text) for text in mentions):
            yield case.with_inputs(others)


def _plainer(case: Case, tensor: Tensor) -> Iterator[Case]:
    storage = next(s for s in case.storages() if s.name == tensor.storage)
    size = 1
    for length in tensor.shape:
        size *= length
    if tensor.strides is not None and storage.size >= size:
        plain = replace(tensor, strides=None, offset=0)
        if storage.size == size:
            yield _with(case, tensor, plain)
        elif isinstance(storage.contents, Literal):
            cut = replace(storage, size=size, contents=Literal(storage.contents.values[:size]))
            yield _with(_with(case, tensor, plain), storage, cut)
    if tensor.requires_grad:
        yield _with(case, tensor, replace(tensor, requires_grad=False))


def _simpler(values: tuple) -> Iterator[tuple]:
    """All alike; then zeros in ever smaller blocks; then digits dropped."""
    size = len(values)
    if not size:
        return
    kind = type(values[0])
    for value in (kind(0), kind(1), *sorted(set(values), key=lambda v: len(repr(v)))[:6]):
        yield (value,) * size
    block = size // 2
    while block:
        for start in range(0, size, block):
            zeros = (kind(0),) * len(values[start : start + block])
            yield values[:start] + zeros + values[start + block :]
        block //= 2
    if kind is float:
        yield tuple(round(v, 1) if abs(v) < 1e6 else v for v in values)


def _with(case: Case, old: Storage | Tensor, new: Storage | Tensor) -> Case:
    return case.with_inputs(new if item is old else item for item in case.inputs)
