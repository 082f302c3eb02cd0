"""What the parts of rebuilding have in common: lines, names, and each other's rules."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from refcompiler.capture.machine import Symbolic
from refcompiler.plan.writer import Writer


class NotRebuilt(Exception):
    """A value for which there is no rule; capture ends before it was made, or runs natively."""


class Writing:
    """Statements and expressions over the values of one capture."""

    def __init__(self, machine: Symbolic, writer: Writer, ends: bool = False):
        self.machine = machine
        self.ends = ends  # nothing is captured after it
        self.writer = writer
        self.names: dict[int, str] = {}
        self.keep: list[Any] = []
        self.outputs: list[torch.fx.Node] = []
        self.lines: list[str] = []
        self.late: list[str] = []  # to run after side effects are replayed
        self.last: list[str] = []  # to run after everything else
        self.unfinished: set[int] = set()  # instances that lack attributes so far
        self._count = itertools.count()

    def assign(self, value: Any, text: str) -> str:
        name = f"__r{next(self._count)}"
        self.lines.append(f"{name} = {text}")
        self.names[id(value)] = name
        return name

    def is_hashable_yet(self, key: Any) -> bool:
        """Not before the object has its attributes: those made again, and those written after."""
        if type(key) in (tuple, frozenset):
            return all(map(self.is_hashable_yet, key))
        return id(key) not in self.unfinished and id(key) not in self.machine.changed

    def many(self, values: Any) -> str:
        return ", ".join([self.expression(v) for v in values])

    def expression(self, value: Any) -> str:
        """The text of a value, which is made by the lines so far."""
        raise NotImplementedError

    def kind(self, cls: type) -> str:
        """The text of a class."""
        raise NotImplementedError

    def refuse(self, value: Any) -> BaseException:
        """What to raise for a value that has no rule."""
        raise NotImplementedError
