"""The expected-failures file: two forms, clear errors, stale entries."""

import pytest

from conformance import xfails
from conformance.verdict import Kind
from conformance.xfails import BadFile, Expectation, expectation_for, read, stale
from tests.tiny.conformance.samples import passing, wrong


def write(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


def test_lines(tmp_path):
    path = write(tmp_path, "known.txt", "# a heading\n\noperators/aten.sin*  # issue 3\n")
    assert read(path) == (Expectation("operators/aten.sin*", "issue 3"),)


def test_toml(tmp_path):
    text = '[[expect]]\nid = "models/*"\nkind = "wrong"\nreason = " later "\n'
    path = write(tmp_path, "known.toml", text)
    assert read(path) == (Expectation("models/*", "later", Kind.WRONG),)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "models/*\n", "line 1: no reason"),
        ("a.toml", "id = ", "is not TOML"),
        ("a.toml", "[[wanted]]", r"only \[\[expect\]\] tables"),
        ("a.toml", '[[expect]]\nid = "x"', "entry 1: 'reason' is missing"),
        ("a.toml", '[[expect]]\nid = "x"\nreason = "y"\nwhy = 1', "unknown key 'why'"),
        ("a.toml", '[[expect]]\nid = "x"\nreason = "y"\nkind = "odd"', "unknown kind 'odd'"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(tmp_path, name, text, message):
    with pytest.raises(BadFile, match=message) as caught:
        read(write(tmp_path, name, text))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(BadFile, match="cannot be read"):
        read(tmp_path / "none.toml")


def test_a_failure_of_another_kind_is_not_expected():
    entries = (Expectation("made/*", "known", Kind.CRASH), Expectation("made/cos*", "known"))
    assert expectation_for("made/sin/float32/1", wrong(), entries) is None
    assert expectation_for("made/sin/float32/1", wrong(kind=Kind.CRASH), entries) is entries[0]
    assert expectation_for("made/cos/float32/1", wrong(), entries) is entries[1]


def test_an_entry_is_stale_when_all_that_it_covers_conforms():
    entries = tuple(Expectation(p, "known") for p in ("made/sin*", "made/cos*", "made/tan*"))
    outcomes = [("made/sin/1", True), ("made/sin/2", True), ("made/cos/1", True), ("made/cos/2", 0)]
    # what did not run says nothing about the third
    assert stale(entries, outcomes) == [entries[0]]
    assert passing().conforms and xfails.stale((), outcomes) == []
