"""The stepper without a terminal: a line per instruction."""

from __future__ import annotations

from typing import Any, TextIO

from refcompiler.interpreter.frame import Frame
from refcompiler.own_builtins import BUILTINS
from refcompiler.stepper.control import Quit, Stops
from refcompiler.stepper.view import View

__builtins__ = BUILTINS


class OutputLost(Exception):
    """The trace cannot be written; the message says why."""


def printable(text: str, out: TextIO) -> str:
    """``text`` with escapes for what the encoding of ``out`` has no bytes for."""
    encoding = getattr(out, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


class Trace:
    """Writes what runs: a heading per function, source lines, instructions, stack, variables."""

    def __init__(self, out: TextIO, stops: Stops, most: int | None = None):
        self.out = out
        self.stops = stops
        self.most = most
        self.written = 0
        # Frames by identity: to hold one would keep the program's objects alive.
        self._at = (0, 0)
        self._seen: dict[int, dict[str, str]] = {}
        self._blocks: list[str] = []

    def before(self, machine: Any, frame: Frame) -> None:
        if not self.stops.here(frame):
            return
        if self.written == self.most:
            raise Quit(f"stopped after {self.most} instructions")
        self.written += 1
        view = View(frame, machine.steps)
        self._heading(view)
        stack = ", ".join(view.stack())
        self._write(f"{view.step:6d} {str(view.instruction):<52} [{stack}]")

    def _write(self, line: str) -> None:
        try:
            self.out.write(printable(line, self.out) + "\n")
        except BrokenPipeError:  # whoever read it has seen enough
            raise
        except (OSError, ValueError) as error:  # the latter where it is closed
            raise OutputLost(str(error)) from None

    def _heading(self, view: View) -> None:
        here = id(view.frame)
        last, line = self._at
        self._at = here, view.line
        if last != here:
            self._write(f"{view.function}  {view.file}:{view.line}")
        if last != here or line != view.line:
            self._write(f"       {view.line:5d} | {view.source}")
        variables = view.locals()
        known = self._seen.get(here, {}) if view.index else {}
        changed = {name: text for name, text in variables.items() if known.get(name) != text}
        gone = known.keys() - variables.keys()
        self._seen[here] = variables
        for name, text in changed.items():
            self._write(f"             {name} = {text}")
        for name in sorted(gone):
            self._write(f"             {name} has no value")
        blocks = view.handlers()
        if blocks and (blocks != self._blocks or last != here):
            self._write(f"             handlers: {'; '.join(blocks)}")
        self._blocks = blocks
