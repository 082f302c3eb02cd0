"""The expected-failures file, which the user owns: cases that are known not to conform, and why.

TOML::

    [[expect]]
    id = "operators/aten.erfinv.default/*"     # a case's id; * ? and [...] as in shell patterns
    kind = "wrong"                             # optional: only this verdict is expected
    reason = "no vector form yet, issue 12"    # required

or plain text, one ``pattern  # reason`` per line. An expected failure does not count against the
compiler. A failure of another ``kind`` than expected does. A pattern of which every case that ran
conforms is stale: it is reported, and does not change the exit status.
"""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.verdict import Kind, Verdict


class BadFile(Exception):
    """The file cannot be used; the message is one line that says where and why."""


@dataclass(frozen=True)
class Expectation:
    """One entry: ids that match ``pattern`` are expected to fail (as ``kind``, if given)."""

    pattern: str
    reason: str
    kind: Kind | None = None

    def covers(self, case_id: str) -> bool:
        return fnmatch.fnmatchcase(case_id, self.pattern)

    def expects(self, case_id: str, verdict: Verdict) -> bool:
        return self.covers(case_id) and self.kind in (None, verdict.kind)


def read(path: Path) -> tuple[Expectation, ...]:
    """The entries of a file. Raises :class:`BadFile`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadFile(f"expected-failures file {path} cannot be read: {error}") from error
    if path.suffix == ".toml":
        return _from_toml(text, path)
    return _from_lines(text, path)


def expectation_for(
    case_id: str, verdict: Verdict, expectations: Sequence[Expectation]
) -> Expectation | None:
    """The first entry that expects this failure."""
    return next((e for e in expectations if e.expects(case_id, verdict)), None)


def stale(
    expectations: Sequence[Expectation], outcomes: Sequence[tuple[str, bool]]
) -> list[Expectation]:
    """Entries that cover cases of the run, all of which conform. ``outcomes``: (id, conforms)."""
    old = []
    for entry in expectations:
        covered = [conforms for case_id, conforms in outcomes if entry.covers(case_id)]
        if covered and all(covered):
            old.append(entry)
    return old


def _from_toml(text: str, path: Path) -> tuple[Expectation, ...]:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadFile(f"expected-failures file {path} is not TOML: {error}") from error
    entries = table.get("expect", [])
    if set(table) - {"expect"} or not isinstance(entries, list):
        raise BadFile(f"expected-failures file {path}: only [[expect]] tables are known")
    return tuple(_entry(entry, number, path) for number, entry in enumerate(entries, 1))


def _entry(entry: object, number: int, path: Path) -> Expectation:
    where = f"expected-failures file {path}, entry {number}"
    if not isinstance(entry, dict):
        raise BadFile(f"{where}: not a table")
    unknown = set(entry) - {"id", "kind", "reason"}
    if unknown:
        raise BadFile(f"{where}: unknown key {sorted(unknown)[0]!r}; use id, kind, reason")
    for key in ("id", "reason"):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            raise BadFile(f"{where}: {key!r} is missing")
    kind = entry.get("kind")
    if kind is not None and kind not in set(Kind):
        raise BadFile(f"{where}: unknown kind {kind!r}; use one of {', '.join(Kind)}")
    return Expectation(entry["id"], entry["reason"].strip(), Kind(kind) if kind else None)


def _from_lines(text: str, path: Path) -> tuple[Expectation, ...]:
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        pattern, _, reason = line.partition("#")
        if not pattern.strip():
            continue
        if not reason.strip():
            raise BadFile(
                f"expected-failures file {path}, line {number}: "
                "no reason; write 'pattern  # reason'"
            )
        entries.append(Expectation(pattern.strip(), reason.strip()))
    return tuple(entries)
