"""Compares what eager and a compiler let a user see, aspect by aspect, and counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from conformance.case import Call, Case, Compiles
from conformance.numeric import Closeness, closeness
from conformance.observe import ErrorSeen, Observation, Snapshot, StepSeen, TensorSeen
from conformance.verdict import Compiled, Finding, Kind

# The facts of a tensor that have to be eager's, by the aspect's name.
_FACTS: Mapping[str, Callable[[TensorSeen], Any]] = {
    "tensor type": lambda seen: seen.type,
    "dtype": lambda seen: seen.dtype,
    "shape": lambda seen: seen.shape,
    "device": lambda seen: seen.device,
    "layout": lambda seen: seen.layout,
    "strides": lambda seen: seen.strides,
    "requires_grad": lambda seen: seen.requires_grad,
    "is_leaf": lambda seen: seen.is_leaf,
    "conjugate bit": lambda seen: seen.conj,
    "negative bit": lambda seen: seen.neg,
}

# Judges two tensors found at ``path`` after step ``step``.
Judge = Callable[[int, str, TensorSeen, TensorSeen], Closeness]


@dataclass
class Comparison:
    """Findings so far, and how many comparisons were made to get them."""

    findings: list[Finding] = field(default_factory=list)
    count: int = 0

    def check(
        self,
        aspect: str,
        where: str,
        step: int,
        expected: Any,
        found: Any,
        evidence: Mapping[str, Any] | None = None,
    ) -> bool:
        self.count += 1
        if expected == found:
            return True
        self.add(Kind.WRONG, aspect, where, step, expected, found, evidence=evidence)
        return False

    def add(
        self,
        kind: Kind,
        aspect: str,
        where: str,
        step: int,
        expected: Any,
        found: Any,
        tolerated: bool = False,
        evidence: Mapping[str, Any] | None = None,
    ) -> None:
        self.findings.append(
            Finding(kind, aspect, where, step, str(expected), str(found), tolerated, evidence or {})
        )


def plain_judge(case: Case) -> Judge:
    """Judges values by eager alone."""

    def judge(step: int, path: str, expected: TensorSeen, found: TensorSeen) -> Closeness:
        return closeness(expected.values, found.values, case.tolerance)

    return judge


def compare(
    case: Case, expected: Observation, found: Observation, judge: Judge, compiles: bool = True
) -> Comparison:
    """All differences between eager's and the compiler's observation of ``case``.

    ``compiles``: the compiler claims to compile, so that running the graph eagerly is a finding.
    A value that was wrong after one step is not reported again after the next.
    """
    result = Comparison()
    known: set[tuple[str, str]] = set()
    pairs = zip(case.history, expected.steps, found.steps, strict=True)
    for number, (step, eager, compiled) in enumerate(pairs):
        before = len(result.findings)
        _compare_errors(result, number, eager.error, compiled.error)
        if eager.error is None and compiled.error is not None:
            break  # everything after it would only be a consequence
        if any(leaf.text.startswith("unreadable") for leaf in eager.snapshot.leaves.values()):
            break  # torch refuses to say what such a tensor is, so that there is nothing to be like
        result.check("printed", "", number, eager.printed, compiled.printed)
        _compare_rng(result, number, eager, compiled)
        for name, state in eager.ambient.items():
            result.check("ambient state", name, number, state, compiled.ambient[name])
        _compare_snapshots(result, number, eager.snapshot, compiled.snapshot, judge)
        if isinstance(step, Call):
            _compare_compiles(result, number, step, compiled.compiled, eager.error)
        fresh = [f for f in result.findings[before:] if (f.aspect, f.where) not in known]
        result.findings[before:] = fresh
        known |= {(f.aspect, f.where) for f in fresh}
    if compiles and not any(step.error for step in (*expected.steps, *found.steps)):
        _check_compiled(result, len(case.history) - 1, found.compiled)
    return result


def _compare_errors(
    result: Comparison, step: int, eager: ErrorSeen | None, compiled: ErrorSeen | None
) -> None:
    result.count += 1
    if eager is None and compiled is None:
        return
    if eager is not None and _has_no_kernel(eager):
        return
    if eager is not None and compiled is not None:
        if eager.type not in compiled.bases:
            result.add(
                Kind.WRONG, "exception", "error", step,
                f"{eager.type}: {eager.message}", f"{compiled.type}: {compiled.message}",
                evidence={"traceback": compiled.traceback},
            )  # fmt: skip
        elif eager.own:
            # The wording of torch's own errors is nobody's contract; the program's own is.
            result.check("exception message", "error", step, eager.message, compiled.message)
        return
    if compiled is None:
        assert eager is not None
        result.add(
            Kind.WRONG, "exception", "error", step,
            f"{eager.type}: {eager.message}", "no exception",
        )  # fmt: skip
        return
    kind = Kind.REFUSED if compiled.refusal else Kind.CRASH
    headline = next(iter(compiled.message.strip().splitlines()), "")
    result.add(
        kind, "exception", "error", step, "an answer", f"{compiled.type}: {headline}",
        evidence={"traceback": compiled.traceback},
    )  # fmt: skip


def _has_no_kernel(error: ErrorSeen) -> bool:
    """Eager lacks a kernel for this dtype: a compiler that has one is not wrong."""
    return error.type == "NotImplementedError" or "not implemented for" in error.message


def _compare_rng(result: Comparison, step: int, eager: StepSeen, compiled: StepSeen) -> None:
    for name, state in eager.rng.items():
        result.check("rng state", name, step, state, compiled.rng.get(name, state))


def _compare_snapshots(
    result: Comparison, step: int, eager: Snapshot, compiled: Snapshot, judge: Judge
) -> None:
    for path in {**eager.leaves, **eager.tensors, **compiled.leaves, **compiled.tensors}:
        one, other = eager.tensors.get(path), compiled.tensors.get(path)
        if one is not None and other is not None:
            _compare_tensors(result, step, path, one, other, judge)
            continue
        leaf, found = eager.leaves.get(path), compiled.leaves.get(path)
        if leaf is not None and found is not None:
            result.check("object", path, step, _leaf_text(leaf), _leaf_text(found))
            continue
        result.count += 1
        result.add(Kind.WRONG, "structure", path, step, _what(eager, path), _what(compiled, path))
    both = [path for path in eager.tensors if path in compiled.tensors]
    for aspect, key in (("identity", "identity"), ("aliasing", "storage")):
        _compare_groups(result, step, aspect, both, eager, compiled, key)


def _leaf_text(leaf: Any) -> str:
    return f"{leaf.type} {leaf.text}".strip()


def _what(seen: Snapshot, path: str) -> str:
    if path in seen.tensors:
        tensor = seen.tensors[path]
        return f"a tensor of {tensor.dtype}{list(tensor.shape)}"
    return _leaf_text(seen.leaves[path]) if path in seen.leaves else "nothing"


def _compare_tensors(
    result: Comparison, step: int, path: str, one: TensorSeen, other: TensorSeen, judge: Judge
) -> None:
    for aspect, fact in _FACTS.items():
        result.check(aspect, path, step, fact(one), fact(other))
    if one.dtype != other.dtype or one.shape != other.shape:
        return
    result.count += 1
    close = judge(step, path, one, other)
    if close.kind is not Kind.PASS:
        result.add(
            close.kind, "values", path, step,
            close.evidence.get("expected"), close.evidence.get("found"),
            close.tolerated, close.evidence,
        )  # fmt: skip


def _compare_groups(
    result: Comparison,
    step: int,
    aspect: str,
    paths: list[str],
    eager: Snapshot,
    compiled: Snapshot,
    key: str,
) -> None:
    """Whether the same tensors share: both partitions of ``paths`` have to be one."""
    first_eager: dict[int, str] = {}
    first_compiled: dict[int, str] = {}
    for path in paths:
        one = first_eager.setdefault(getattr(eager.tensors[path], key), path)
        other = first_compiled.setdefault(getattr(compiled.tensors[path], key), path)
        expected = f"shared with {one}" if one != path else "its own"
        found = f"shared with {other}" if other != path else "its own"
        evidence = {"other": one if one != path else other}
        if result.check(aspect, path, step, expected, found, evidence) and aspect == "aliasing":
            if one != path:  # where in the shared storage it lies shows only then
                offset = eager.tensors[path].offset - eager.tensors[one].offset
                got = compiled.tensors[path].offset - compiled.tensors[one].offset
                result.check("storage offset", path, step, offset, got)


def _compare_compiles(
    result: Comparison, step: int, call: Call, compiled: Compiled, error: ErrorSeen | None
) -> None:
    if call.compiles is Compiles.ANY or error is not None:
        return
    wanted = call.compiles is Compiles.YES
    result.check(
        "recompiles", "f", step, "a compile" if wanted else "no compile",
        "a compile" if compiled.graphs else "no compile",
    )  # fmt: skip


def _check_compiled(result: Comparison, step: int, compiled: Compiled) -> None:
    result.count += 1
    reason = None
    if compiled.graphs == 0:
        reason = "the backend was never given a graph"
    elif compiled.calls == 0:
        reason = "what the backend returned was never called"
    elif compiled.fallback:
        reason = f"the backend fell back: {compiled.fallback}"
    elif compiled.eager_calls:
        reason = "the captured graph itself ran, eagerly"
    if reason:
        result.add(Kind.NOT_COMPILED, "compiled", "f", step, "compiled code", reason)
