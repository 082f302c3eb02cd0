"""The arithmetic of the figures, on times that are made up."""

from __future__ import annotations

import importlib.util

import pytest

from benchmarks import harness
from benchmarks.__main__ import ELSEWHERE, SECTIONS
from benchmarks.harness import Row, alternate, calls_to_fill, duration, quartiles, refreshed, table


def test_ways_take_turns_and_the_ratio_is_of_the_medians() -> None:
    order: list[str] = []
    ours, theirs = iter([1.0, 9.0, 2.0]), iter([4.0, 3.0, 8.0])

    def way(name: str, times) -> float:
        order.append(name)
        return next(times)

    row = alternate(
        "x", lambda: way("a", ours), lambda: way("b", theirs), against="b", goal=0.5, rounds=3
    )
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert (row.ours, row.theirs, row.ratio) == (2.0, 4.0, 0.5)
    assert (row.low, row.high) == (0.25, 1.625)  # of 1/4, 9/3 and 2/8, in order 1/4 1/4 3


def test_quartiles() -> None:
    assert quartiles([3.0]) == (3.0, 3.0)
    assert quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (2.0, 4.0)


def test_calls_fill_the_sample() -> None:
    now = [0.0]

    def way() -> None:
        now[0] += 0.001

    number = calls_to_fill(way, 0.05, lambda: now[0])
    assert 50 <= number <= 100


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (12.345, "12.3 s"),
        (1.5, "1.50 s"),
        (0.25, "250 ms"),
        (0.0012, "1.20 ms"),
        (3.5e-6, "3.50 us"),
        (4.2e-8, "42.0 ns"),
    ],
)
def test_duration(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_the_table_says_what_is_met_and_what_is_missed() -> None:
    met = Row("m", 1.0, 4.0, 0.25, 0.2, 0.3, 5, "t", 0.25)
    missed = Row("n", 1.0, 2.0, 0.5, 0.4, 0.6, 5, "t", 0.25)
    plain = Row("o", 1.0, 2.0, 0.5, 0.4, 0.6, 5, "t")
    lines = table([met, missed, plain]).splitlines()
    assert lines[2] == "| m | 1.00 s | 4.00 s | t | 0.25 (0.20-0.30) | 0.25: met | 5 |"
    assert "0.25: **missed**" in lines[3]
    assert lines[4].endswith("|  | 5 |")
    assert len({line.count("|") for line in lines}) == 1


def test_only_the_section_is_refreshed() -> None:
    document = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n<!-- begin y -->\n<!-- end y -->\n"
    changed = refreshed(document, "x", "new\n")
    assert changed == document.replace("old", "new")
    assert refreshed(changed, "x", "new\n") == changed


@pytest.mark.parametrize("document", ["", "<!-- begin x -->\n", "<!-- end x --><!-- begin x -->\n"])
def test_a_document_without_markers_is_an_error(document: str) -> None:
    with pytest.raises(ValueError, match="no markers '<!-- begin x -->'"):
        refreshed(document, "x", "new")


def test_every_section_has_a_module_and_a_place_in_the_document() -> None:
    document = harness.DOCUMENT.read_text(encoding="utf-8")
    for section in SECTIONS:
        assert importlib.util.find_spec(f"benchmarks.{section}") is not None
        assert refreshed(document, section, "@ here\n").count("@ here\n") == 1
    assert document.count("<!-- begin ") == len(SECTIONS) + len(ELSEWHERE)
