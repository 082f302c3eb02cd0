"""The signals with which capture leaves the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from traceback import FrameSummary
from typing import NamedTuple

from refcompiler.interpreter.signals import Signal
from specs.breaks import BREAKS


class Reason(NamedTuple):
    """Why a graph ends: the row's name, what was met, and the user's place.

    ``stack`` are the frames alive there, outermost first: (file, line, function).
    """

    row: str
    context: str
    file: str = ""
    line: int = 0
    function: str = ""
    stack: tuple[tuple[str, int, str], ...] = ()

    @property
    def reason(self) -> str:
        """All of it but the place, by torch's name."""
        row = BREAKS[self.row]
        return f"{self.row}: {self.context}\n  {row.explanation}\n  Hint: {row.hint}"

    @property
    def user_stack(self) -> list[FrameSummary]:
        """``stack`` by torch's name, as :mod:`traceback` has it."""
        return [
            FrameSummary(file, line, name, lookup_line=False) for file, line, name in self.stack
        ]

    def __str__(self) -> str:
        row = BREAKS[self.row]
        return (
            f"{self.row}: {self.context}\n  at {self.file}:{self.line} in {self.function}\n"
            f"  {row.explanation}\n  Hint: {row.hint}"
        )


class Break(Signal):
    """The current instruction cannot be captured: the graph ends before it."""

    def __init__(self, row: str, context: str):
        super().__init__(row, context)
        self.row = row
        self.context = context


class Prepare(Signal):
    """Do ``action``, which the program does once, ahead of the graph, and capture again.

    If it raises, the graph ends before instruction number ``step`` of the root's.
    """

    def __init__(self, step: int, row: str, context: str, action: Callable[[], None]):
        super().__init__(step, row, context)
        self.step = step
        self.row = row
        self.context = context
        self.action = action


class Again(Signal):
    """Capture again from the start, with what this one has learnt."""


class Restart(Signal):
    """Capture again from the start, and break at root instruction number ``step``."""

    def __init__(self, step: int, row: str, context: str):
        super().__init__(step, row, context)
        self.step = step
        self.row = row
        self.context = context
