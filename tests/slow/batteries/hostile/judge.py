"""A case in eager and compiled, what differs, and a smaller case that differs in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

import refcompiler
from refcompiler.runtime.counters import reasons
from tests.slow.batteries.hostile.see import See
from tests.slow.batteries.hostile.writing import Case
from tests.slow.batteries.training import EXACT, Backend

Facts = Mapping[tuple[str, str], Any]

#: Worst first: what a step may differ in.
KINDS = (
    "crash",
    "values",
    "gradient",
    "none",
    "error of ours",
    "error missing",
    "random state",
    "sharing",
    "form",
    "hooks",
    "flags",
    "gradient's form",
    "words",
    "warnings",
)
_KIND = {
    "values": "values",
    "value": "values",
    "structure": "form",
    "random state": "random state",
    "modes": "flags",
    "identity": "sharing",
    "memory": "sharing",
    "memory size": "sharing",
    "base": "sharing",
    "base shape": "sharing",
    "is view": "sharing",
    "grad values": "gradient",
    "has grad": "none",
    "hooks": "hooks",
    "words": "words",
    "warnings": "warnings",
    **dict.fromkeys(("dtype", "shape", "strides", "offset", "class"), "form"),
}


@dataclass
class Difference:
    """The worst of the first step that differs."""

    kind: str
    step: str  # without numbers
    where: str
    name: str
    ours: Any
    theirs: Any

    @property
    def signature(self) -> str:
        return f"{self.kind} | {self.step}"

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}: {self.ours!r:.300}, eager {self.theirs!r:.300}"


@dataclass
class Verdict:
    case: Case | None  # None: eager ends the process
    difference: Difference | None = None
    facts: int = 0
    steps: int = 0
    graphs: int = 0
    uncompiled: list[str] = field(default_factory=list)
    calls_uncompiled: int = 0
    breaks: int = 0
    fallbacks: int = 0
    wavering: bool = False  # eager differs from itself


def observe(case: Case, compiled: Callable[[Any], Any]) -> See:
    names: dict[str, Any] = {"__name__": "hostile"}
    text = case.text
    exec("from tests.slow.batteries.hostile.see import *", names)
    exec(compile(text, f"<hostile {case.seed}>", "exec"), names)
    seen = See()
    with torch.enable_grad():
        try:
            names["scenario"](compiled(names["program"]), seen)
        except Exception as error:
            seen.steps.append(("scenario", {("scenario", "error"): type(error).__name__}))
        finally:
            torch.set_grad_enabled(True)
    return seen


def judge(case: Case, backend: str, then: Callable[[], None] = lambda: None) -> Verdict:
    """``then``: called when eager has run the case."""
    verdict = Verdict(case)
    theirs = observe(case, lambda function: function)
    if difference(observe(case, lambda function: function), theirs, exact=True):
        verdict.wavering = True
        return verdict
    then()
    refcompiler.reset()
    counted = Backend(backend)
    ours = observe(case, lambda function: refcompiler.compile(function, backend=counted))
    counts = refcompiler.counters()
    verdict.graphs, verdict.breaks = counted.graphs, counts["breaks"]
    verdict.fallbacks = counts["fallbacks"]
    verdict.uncompiled = [str(reason) for reason in reasons("uncompiled")]
    verdict.steps, verdict.facts = len(theirs.steps), sum(len(f) for _, f in theirs.steps)
    verdict.difference = difference(ours, theirs, exact=backend in EXACT)
    return verdict


#: What docs/ahead-of-time.md says that differs, by the part of a refusal's words that tells it.
_REFUSALS = ("is on a result of a compiled graph that other results of it are computed from",)


def _documented(
    step: str, before: bool, ours: Facts, theirs: Facts, found: Sequence[Difference]
) -> bool:
    """Whether what a step differs in is said in docs/ahead-of-time.md; more would come of it.

    ``before``: whether a step before it asked for gradients by some inputs alone.
    """
    raised = ours.get((step, "words")), theirs.get((step, "words"))
    kinds = {d.kind for d in found}
    if any(text in str(raised[0]) for text in _REFUSALS):
        return True
    if step.startswith("call") and theirs.get((step, "error")) and not raised[0]:
        return "not implemented for" in raised[1]  # what nobody reads is not computed
    if "a second time" in str(raised[1]) and not raised[0]:
        return before  # where results have functions for each way, it has freed nothing
    hooks = theirs.get((step, "hooks")) or ()
    if any(told[1:] == (None,) for told in hooks) or "'NoneType' and 'int'" in str(raised[1]):
        return True  # of a function's other results
    if all(raised):  # eager's has come to some leaves by then
        return kinds <= {"none", "gradient", "gradient's form", "sharing", "hooks"}
    if not kinds <= {"none", "gradient", "gradient's form", "flags"}:
        return False
    names = [re.sub(r"^grad.*\['(\w+)'\]$", r"\1", d.name) for d in found]
    return all(
        theirs.get((name, "is view"))
        and not theirs.get((name, "is leaf"))
        and theirs.get((name, "version"))
        for name in names
    )  # asked for by a view itself that was written to


def difference(ours: See, theirs: See, exact: bool) -> Difference | None:
    asked = False
    for (step, a), (expected, b) in zip(ours.steps, theirs.steps):
        found = []
        if step != expected:
            found.append(Difference("form", "steps", "steps", "", step, expected))
        for key in [*b, *(a.keys() - b.keys())]:
            if not _same(a.get(key), b.get(key), exact):
                found.append(_difference(step, key, a.get(key), b.get(key)))
        if found and _documented(step, asked, a, b, found):
            return None
        asked = asked or step.startswith(("grad", "backward toward"))
        if raised := [d for d in found if d.kind.startswith("error")]:
            return raised[0]  # the rest comes of it
        if found:
            return min(found, key=lambda d: KINDS.index(d.kind))
    if len(ours.steps) != len(theirs.steps):
        return Difference("form", "steps", "steps", "", len(ours.steps), len(theirs.steps))
    return None


def _difference(step: str, key: tuple[str, str], ours: Any, theirs: Any) -> Difference:
    name, aspect = key
    kind = _KIND.get(aspect, "gradient's form" if aspect.startswith("grad ") else "flags")
    if aspect == "error":
        kind = "error missing" if not ours else "words" if theirs else "error of ours"
    plain = re.sub(r" [\d.]+$", "", step)
    if name.startswith(("grad", "second")) and kind in ("values", "form", "sharing"):
        kind = {"values": "gradient"}.get(kind, "gradient's form")
        if aspect == "value":
            kind = "none"
    return Difference(kind, plain, f"{step}: {name} {aspect}", name, ours, theirs)


def _same(ours: Any, theirs: Any, exact: bool) -> bool:
    if exact or ours == theirs or not _numbers(ours) or not _numbers(theirs):
        return bool(ours == theirs)
    if ours[:2] != theirs[:2] or len(theirs[2]) != len(ours[2]):
        return False
    dtype = getattr(torch, theirs[1].removeprefix("torch."))
    a, b = (torch.tensor(v[2], dtype=torch.uint8).view(dtype) for v in (ours, theirs))
    if not (dtype.is_floating_point or dtype.is_complex):
        return False
    rounding = 1e-2 if dtype in (torch.half, torch.bfloat16) else 1e-4
    return torch.allclose(a, b, rounding, rounding, equal_nan=True)


def _numbers(fact: Any) -> bool:
    return isinstance(fact, tuple) and len(fact) == 3 and isinstance(fact[1], str)


def shrink(case: Case, backend: str, wanted: str, tries: int = 120) -> Case:
    """Statements left out as long as it differs in the way ``wanted``."""

    def differs(smaller: Case) -> bool:
        nonlocal tries
        tries -= 1
        try:
            found = judge(smaller, backend).difference
        except Exception:
            return False
        return found is not None and found.signature == wanted

    changed = True
    while changed and tries > 0:
        changed = False
        for part in ("around", "body"):
            number = len(getattr(case, part)) - 1
            while number >= 0 and tries > 0:
                smaller = case.without(part, number)
                if differs(smaller):
                    case, changed = smaller, True
                number -= 1
        for smaller in _simpler(case):
            if tries > 0 and differs(smaller):
                case, changed = smaller, True
                break
    return case


def _simpler(case: Case) -> list[Case]:
    """Other returns, and blocks without what is around them."""
    found = []
    names = [*dict.fromkeys(re.findall(r"\b[vwxyz]\d*\b", case.returned))]
    for text in [*names, *(f"({name},)" for name in names), f"({', '.join(names)},)"]:
        if len(text) < len(case.returned):
            found.append(replace(case, returned=text))
    for n, text in enumerate(case.body):
        if "\n    " in text:
            inner = text.split("\n    ", 1)[1]
            found.append(replace(case, body=(*case.body[:n], inner, *case.body[n + 1 :])))
    return found
