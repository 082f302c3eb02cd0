"""What was found out, in lines for a terminal and for the head of a script."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.faults.result import Located, Operator
from conformance.verdict import Finding, Kind

_MEANING = {
    Kind.PASS: "nothing differs from eager",
    Kind.REASSOCIATION: "values differ, by no more than rounding explains: no graph is further "
    "from float64 than eager's own error",
    Kind.PRECISION: "values differ by the precision in which they are computed",
    Kind.NONDETERMINISM: "run twice, it gives two answers",
    Kind.NOT_COMPILED: "nothing was compiled",
    Kind.REFUSED: "the compiler refuses the program",
    Kind.WRONG: "it differs from eager, and rounding does not explain it",
    Kind.CRASH: "it ends in an error, or its process does",
}


def text(found: Located) -> str:
    return "\n".join(lines(found))


def lines(found: Located) -> Iterator[str]:
    yield f"{found.compiler}: {found.kind} ({_MEANING[found.kind]})"
    if found.finding is not None:
        yield f"  first at {found.event}"
        yield f"  {found.finding}"
        yield from (f"    {line}" for line in _measured(found.finding))
    if found.differs:
        yield from _where(found)
    others = [pair for pair in found.findings if pair[1] is not found.finding]
    if others:
        yield f"  {len(others)} more differences, such as"
        for event, finding in others[:4]:
            yield f"    {finding.kind} at {event}: {finding}"
    for remark in found.remarks:
        yield f"  note: {remark}"
    yield _counted(found)


def _where(found: Located) -> Iterator[str]:
    if found.ladder:
        yield "ladder (each adds one stage; the first that fails names it)"
    for rung in found.ladder:
        mark = "fails" if rung.differs else "     " if rung.applies else "  -  "
        yield f"  {mark} {rung.stage:18} {rung.what}: {rung.verdict}"
    yield f"stage:     {found.stage or 'not told'}"
    if found.graph is not None:
        place = f", begins at {found.graph.place}" if found.graph.place else ""
        yield f"graph:     {found.graph.number}, {found.graph.nodes} nodes{place}"
        yield f"direction: {found.direction or 'not told'}"
    if found.operator is not None:
        yield from _operator(found.operator)


def _operator(operator: Operator) -> Iterator[str]:
    yield f"operator:  {operator.name} (node {operator.node} of {operator.nodes})"
    if operator.place:
        yield f"  {operator.place}"
    if operator.alone:
        yield "  fails alone, from eager's inputs"
    else:
        yield f"  fails only together with those before it: {', '.join(operator.group)}"
    yield f"  {operator.kind}: {operator.finding}"
    yield from (f"    {line}" for line in _told(operator.evidence))


def _measured(finding: Finding) -> Iterator[str]:
    if finding.aspect == "values":
        yield from _told(finding.evidence)
    yield from str(finding.evidence.get("traceback", "")).strip().splitlines()[-3:]


def _told(evidence: object) -> Iterator[str]:
    if not isinstance(evidence, dict) or not evidence.get("float64"):
        return
    yield (
        f"to float64 ({evidence['reference']!r} there): compiled {evidence['ulp_to_float64']:.4g} "
        f"ulp, eager at most {evidence['ulp_of_eager']:.4g}; allowed are {evidence['allowed']:.3g}"
    )
    yield f"{evidence['unexplained']} of {evidence['elements']} elements are not explained"


def _counted(found: Located) -> str:
    counts = found.counts
    kernels = "" if counts.kernels is None else f", {counts.kernels} kernels"
    return (
        f"looked at: {counts.calls} calls, {counts.graphs} graphs with {counts.graph_calls} calls"
        f"{kernels}; {counts.comparisons} comparisons, {counts.compilations} compilations in "
        f"{counts.processes} processes, {counts.seconds:.1f} s"
    )
