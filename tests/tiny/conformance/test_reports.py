"""Every form of a report is well formed and says what was found."""

import io
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from rich.console import Console

from conformance.report import as_html, as_json, as_junit, as_text
from conformance.report.results import Result
from conformance.verdict import MISSING_PACKAGE, Finding, Kind, Verdict
from tests.tiny.conformance.samples import case, mixed_report, passing, report, wrong


def test_json_is_strict_and_complete():
    data = json.loads(as_json.dump(mixed_report()), parse_constant=pytest.fail)
    assert data["schema"] == 1 and data["conforms"] is False
    assert [r["id"] for r in data["results"]][:2] == [
        "made/sin/float32/ok",
        "made/cos/float32/aten",
    ]
    bad = next(r for r in data["results"] if r["id"].endswith("bad"))
    assert bad["findings"][0]["evidence"]["found"] == "nan"
    assert "def program" in bad["program"] and bad["history"][0] == "f(x)"
    assert data["verdicts"]["made"]["wrong"] == 2 and data["verdicts"]["made"]["crash"] == 1
    assert data["stale_expectations"] == [{"id": "made/cos/*", "reason": "old"}]


def test_junit_counts_agree_with_what_it_lists():
    root = ElementTree.fromstring(as_junit.dump(mixed_report()))
    (suite,) = root
    found = {tag: len(suite.findall(f"testcase/{tag}")) for tag in ("failure", "error", "skipped")}
    assert found == {"failure": 1, "error": 1, "skipped": 1}
    assert {k: int(suite.get(k)) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": 6,
        "failures": 1,
        "errors": 1,
        "skipped": 1,
    }
    assert suite.find("testcase/skipped").get("message") == "known <since> May"


class Tags(HTMLParser):
    """Collects what a page refers to, and checks that its elements nest."""

    VOID = {"meta", "input"}

    def __init__(self):
        super().__init__()
        self.open, self.links = [], []

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_stands_alone_and_escapes():
    results = (Result(case("<script>alert(1)</script>"), wrong(), 0.1, repro="repros/a.py"),)
    page = as_html.dump(report(*results), {"repros/a.py": "if 1 < 2: pass"})
    tags = Tags()
    tags.feed(page)
    assert tags.open == [] and tags.links == []
    assert "<script>alert(1)" not in page and "if 1 &lt; 2: pass" in page
    assert not re.search(r"https?://|@import|url\(", page)


def test_the_page_shows_every_outcome():
    page = as_html.dump(mixed_report())
    for text in ("does not conform", "made/sin/int8/bad", "known &lt;since&gt; May", "fell-back"):
        assert text in page


def test_the_tables_fit_a_terminal():
    console = Console(width=80, record=True, file=open("/dev/null", "w"))
    console.print(as_text.tables(mixed_report()))
    text = console.export_text()
    assert "made/sin/int8/bad" in text and "stale expectation" in text
    assert re.search(r"wrong +2", text) and re.search(r"of these, expected +1", text)


def test_what_was_not_run_is_said_in_a_line():
    finding = Finding(
        Kind.REFUSED, MISSING_PACKAGE, "", 0, "the package p", "not installed: pip install p", True
    )
    absent = Result(case("absent"), Verdict((finding,)), 0.1)
    found = report(Result(case("ok"), passing(), 0.1), absent, absent)
    line = "2 cases were not run: the package p is not installed: pip install p"
    assert found.conforms and found.not_run == [line]
    console = Console(file=io.StringIO(), width=100)
    console.print(as_text.tables(found))
    assert line in console.file.getvalue()
    assert not mixed_report().not_run
