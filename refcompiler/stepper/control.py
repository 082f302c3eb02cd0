"""The machine that asks before every instruction, and the rules of where to stop."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from refcompiler.interpreter.current import aside
from refcompiler.interpreter.frame import Frame
from refcompiler.interpreter.loop import Signal
from refcompiler.interpreter.machine import Machine
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS


class Quit(Signal):
    """The program is left in the middle."""


class Observed(Machine):
    """Calls ``before(machine, frame)`` before every instruction of this thread.

    ``before`` may raise :class:`Quit`; another exception of its own ends the run in the same way
    and is kept in ``failure``, as it is not the program's. Handlers run one by one.
    """

    fused = False

    def __init__(self, before: Callable[[Any, Frame], None]):
        super().__init__()
        self.before = before
        self.steps = 0
        self.failure: BaseException | None = None

    def _ask(self, frame: Frame) -> None:
        try:
            aside(self.before, self, frame)
            return
        except Signal:
            raise
        except BaseException as error:
            self.failure = error
        raise Quit("the stepper failed")

    def loop(self) -> None:
        while True:
            try:
                while (f := self.frame) is not None:
                    self.steps += 1
                    self._ask(f)
                    i = f.ip
                    f.ip = i + 1
                    f.ops[i](self, f, f.values[i])
                return
            except Signal:
                raise
            except BaseException as exc:
                error = exc
            try:
                self.unwind(error)
            finally:
                del error


@dataclass(frozen=True)
class Breakpoint:
    """A line, in any file or in files whose path ends so."""

    line: int
    file: str = ""

    @classmethod
    def parse(cls, text: str) -> Breakpoint:
        """``12`` or ``file.py:12``; ValueError with one line otherwise."""
        file, _, line = text.rpartition(":")
        if not line.isascii() or not line.isdigit() or int(line) < 1:
            raise ValueError(f"{text!r} is not a place: write a line number, or file.py:line")
        return cls(int(line), file)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else str(self.line)

    def holds(self, file: str, line: int) -> bool:
        if line != self.line:
            return False
        return not self.file or file == self.file or file.endswith(os.sep + self.file)


class Stops:
    """Decides where to stop. ``only``: patterns of the functions that are looked at, by name."""

    def __init__(self, only: tuple[str, ...] = (), breakpoints: tuple[Breakpoint, ...] = ()):
        self.only = only
        self.breakpoints = list(breakpoints)
        self._rule: Callable[[Frame, int], bool] = lambda frame, line: True
        self._goal: Breakpoint | None = None
        self._last = (0, 0)  # the frame by identity: to hold it would keep its objects alive
        self.stopped = False  # ever

    def looks_at(self, frame: Frame) -> bool:
        code = frame.code
        return not self.only or any(
            fnmatchcase(name, pattern)
            for pattern in self.only
            for name in (code.co_name, code.co_qualname)
        )

    def here(self, frame: Frame) -> bool:
        """Whether to stop before the next instruction of ``frame``; asked once for each."""
        line = frame.program.line_at(frame.ip)
        arrived = self._last != (id(frame), line)
        self._last = id(frame), line
        if not self.looks_at(frame):
            return False
        places = [*self.breakpoints, self._goal] if self._goal else self.breakpoints
        if arrived and any(b.holds(frame.code.co_filename, line) for b in places):
            self._goal = None
        elif not self._rule(frame, line):
            return False
        self.stopped = True
        return True

    # ---- where to stop next, from ``frame`` -------------------------------------------------

    def into(self, frame: Frame) -> None:
        """At the next instruction, whatever frame it is in."""
        self._rule = lambda now, line: True

    def over(self, frame: Frame) -> None:
        """At the next instruction of this frame or a caller."""
        depth = frame.depth
        self._rule = lambda now, line: now.depth <= depth

    def line(self, frame: Frame) -> None:
        """At the next line of this frame, or in a caller."""
        depth, here, start = frame.depth, id(frame), frame.program.line_at(frame.ip)
        self._rule = lambda now, line: (
            now.depth < depth or (now.depth == depth and (id(now) != here or line != start))
        )

    def out(self, frame: Frame) -> None:
        """In a caller."""
        depth = frame.depth
        self._rule = lambda now, line: now.depth < depth

    def breakpoint(self, frame: Frame | None = None) -> None:
        """At a breakpoint only."""
        self._rule = lambda now, line: False

    def until(self, place: Breakpoint) -> None:
        """At ``place``, or a breakpoint."""
        self.breakpoint()
        self._goal = place

    def toggle(self, place: Breakpoint) -> bool:
        """Set or remove a breakpoint; whether there is one now."""
        if place in self.breakpoints:
            self.breakpoints.remove(place)
            return False
        self.breakpoints.append(place)
        return True
