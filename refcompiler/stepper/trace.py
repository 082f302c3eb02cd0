"""The stepper without a terminal: a line per instruction."""

from __future__ import annotations

from typing import Any, TextIO

from refcompiler.interpreter.frame import Frame
from refcompiler.own_builtins import BUILTINS
from refcompiler.stepper.control import Quit, Stops
from refcompiler.stepper.view import View

__builtins__ = BUILTINS


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
        print(f"{view.step:6d} {str(view.instruction):<52} [{stack}]", file=self.out)

    def _heading(self, view: View) -> None:
        here = id(view.frame)
        last, line = self._at
        self._at = here, view.line
        if last != here:
            print(f"{view.function}  {view.file}:{view.line}", file=self.out)
        if last != here or line != view.line:
            print(f"       {view.line:5d} | {view.source}", file=self.out)
        variables = view.locals()
        known = self._seen.get(here, {}) if view.index else {}
        changed = {name: text for name, text in variables.items() if known.get(name) != text}
        gone = known.keys() - variables.keys()
        self._seen[here] = variables
        for name, text in changed.items():
            print(f"             {name} = {text}", file=self.out)
        for name in sorted(gone):
            print(f"             {name} has no value", file=self.out)
        blocks = view.handlers()
        if blocks and (blocks != self._blocks or last != here):
            print(f"             handlers: {'; '.join(blocks)}", file=self.out)
        self._blocks = blocks
