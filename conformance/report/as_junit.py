"""A report as JUnit XML, which continuous-integration systems show."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from conformance.report.results import Report, Result
from conformance.verdict import Kind

# What XML 1.0 has no way to write.
_UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def dump(report: Report) -> str:
    """One ``testsuite`` per suite and one ``testcase`` per case.

    A crash is an ``error``, any other failure a ``failure``; an expected failure is ``skipped``
    with its reason.
    """
    root = ElementTree.Element("testsuites", name=f"{report.compiler} ({report.frontend})")
    for suite in report.suites():
        results = [r for r in report.results if r.case.suite == suite]
        failures = sum(r.fails and r.verdict.kind is not Kind.CRASH for r in results)
        element = ElementTree.SubElement(
            root,
            "testsuite",
            name=suite,
            tests=str(len(results)),
            failures=str(failures),
            errors=str(sum(r.fails and r.verdict.kind is Kind.CRASH for r in results)),
            skipped=str(sum(r.expected is not None for r in results)),
            time=f"{sum(r.seconds for r in results):.3f}",
        )
        for result in results:
            _add(element, result)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add(suite: ElementTree.Element, result: Result) -> None:
    case = result.case
    element = ElementTree.SubElement(
        suite,
        "testcase",
        classname=f"{case.suite}.{case.subject}",
        name=f"{case.variant}/{case.id.rsplit('/', 1)[-1]}",
        time=f"{result.seconds:.3f}",
    )
    if result.conforms:
        return
    text = _clean("\n".join(str(finding) for finding in result.verdict.findings))
    if result.expected is not None:
        ElementTree.SubElement(element, "skipped", message=_clean(result.expected.reason))
        return
    tag = "error" if result.verdict.kind is Kind.CRASH else "failure"
    worst = _clean(str(result.verdict.worst))
    failure = ElementTree.SubElement(element, tag, message=worst, type=str(result.verdict.kind))
    failure.text = text + (f"\nshown by {result.repro}" if result.repro else "")


def _clean(text: str) -> str:
    return _UNWRITABLE.sub("\ufffd", text)
