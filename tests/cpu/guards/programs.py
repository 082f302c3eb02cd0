"""What the programs of the histories share: their table, and a tensor and globals to begin with."""

from __future__ import annotations

from typing import Any

import torch

from tests.cpu.guards.history import Program


class Programs(dict[str, Program]):
    """Programs by name, in the order in which they are written."""

    def add(self, function: Program) -> Program:
        """The decorator that puts a program into the table; two of one name are an error."""
        name = function.__name__.strip("_")
        if name in self:
            raise ValueError(f"there are two programs {name!r}: rename one of them")
        self[name] = function
        return function


def numbers() -> torch.Tensor:
    """A new float32 tensor of shape (2, 3): 0 to 5."""
    return torch.arange(6.0).reshape(2, 3)


def globals_of(text: str, **names: Any) -> dict[str, Any]:
    """The globals of a program of its own, after ``text`` has run in them."""
    made: dict[str, Any] = {"__name__": "program", "torch": torch, **names}
    exec(text, made)
    return made
