"""The row of an opcode, and the versions it can be of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from specs.table import Table

Version = tuple[int, int]
PY311, PY312, PY313 = (3, 11), (3, 12), (3, 13)
#: Runs of versions, named for where they begin and end.
ALL: tuple[Version, ...] = (PY311, PY312, PY313)
ONLY_311, UNTIL_312 = ALL[:1], ALL[:2]
ONLY_312, SINCE_312 = ALL[1:2], ALL[1:]
SINCE_313 = ALL[2:]

GENERAL = "General instructions"
UNARY = "Unary operations"
BINARY = "Binary and in-place operations"
COROUTINE = "Coroutine opcodes"
MISC = "Miscellaneous opcodes"
INTRINSIC = "Intrinsic functions"

HANDLED = "handled"  # a handler of the interpreter runs it
DECODED = "decoded"  # the decoder writes it as others, or folds it into what it serves
ABSENT = "absent"  # no code object shows it


@dataclass(frozen=True)
class Opcode:
    """``stack`` is the top of the value stack before and after, right end on top; ``...`` is a run.

    ``example`` is a program in which the opcode occurs: the body of a function, or module text
    that defines ``main``. ``reason`` says why a row is not handled. A name has a row for each
    meaning that it had.
    """

    name: str
    section: str
    stack: str
    meaning: str
    example: str
    treatment: str = HANDLED
    reason: str | None = None
    versions: tuple[Version, ...] = ALL

    @property
    def program(self) -> str:
        """``example`` as module text that defines ``main``."""
        if "def main(" in self.example:
            return self.example
        return "def main():\n" + "".join(f"    {line}\n" for line in self.example.split("\n"))


def table(rows: Iterable[Opcode], version: Version) -> Table[Opcode]:
    """The rows of one version by their names; two rows of one name are an error."""
    found = (row for row in rows if version in row.versions)
    return Table(f"Opcodes of Python {version[0]}.{version[1]}", found)


class Chapter(list[Opcode]):
    """Rows in the order in which they are written down."""

    def handled(
        self,
        name: str,
        section: str,
        stack: str,
        meaning: str,
        example: str,
        versions: tuple[Version, ...] = ALL,
    ) -> None:
        self.append(Opcode(name, section, stack, meaning, example, versions=versions))

    def decoded(
        self,
        name: str,
        section: str,
        stack: str,
        meaning: str,
        example: str,
        reason: str,
        versions: tuple[Version, ...] = ALL,
    ) -> None:
        self.append(Opcode(name, section, stack, meaning, example, DECODED, reason, versions))

    def absent(
        self,
        name: str,
        section: str,
        meaning: str,
        reason: str,
        versions: tuple[Version, ...] = SINCE_312,
    ) -> None:
        self.append(Opcode(name, section, "--", meaning, "", ABSENT, reason, versions))
