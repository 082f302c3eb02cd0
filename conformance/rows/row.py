"""One hand-written program and its history, as a line of a table."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from conformance.case import (
    Call,
    Case,
    Change,
    Compiles,
    Input,
    Literal,
    Program,
    Step,
    Storage,
    Tensor,
    Tolerance,
)

# Sums and products of these are exact in float32 for as long as they stay small, so that whatever
# order a compiler computes in, the digits are eager's.
_NUMBERS = (0.5, -1.0, 2.0, 3.0, -2.5, 1.0, 4.0, -0.5, 1.5, -3.0, 0.25, 6.0)
_OTHERS = (1.0, 2.0, -0.5, -4.0, 3.0, 0.5, -1.5, 5.0, 2.5, -2.0, 8.0, -0.25)
TOLERANCE = Tolerance(2.0, conditioned=True, mixing=True)


def _floats(name: str, shape: tuple[int, ...], values: tuple[float, ...], grad: bool = False):  # type: ignore[no-untyped-def]
    size = 1
    for length in shape:
        size *= length
    storage = Storage(f"_{name}", "float32", size, Literal(values[:size]))
    return storage, Tensor(name, storage.name, shape, requires_grad=grad)


def _view(name: str, of: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0):  # type: ignore[no-untyped-def]
    return (Tensor(name, of, shape, strides, offset),)


# What a history may mention: vectors of 4 and of 6, matrices of 2 x 3 and of 3 x 4, integers, a
# leaf that requires its gradient, and views of one storage (``whole`` is all of it).
_INPUTS: tuple[tuple[Input, ...], ...] = (
    _floats("x", (4,), _NUMBERS),
    _floats("x2", (4,), _OTHERS),
    _floats("long", (6,), _NUMBERS),
    _floats("longer", (9,), _OTHERS),
    _floats("m", (2, 3), _NUMBERS),
    _floats("m2", (2, 3), _OTHERS),
    _floats("big", (3, 4), _NUMBERS),
    _floats("w", (4,), _NUMBERS, grad=True),
    _floats("w2", (4,), _OTHERS, grad=True),
    (Storage("_i", "int64", 4, Literal((3, 0, 2, 1))), Tensor("i", "_i", (4,))),
    (Storage("_s", "float32", 12, Literal(_NUMBERS)),),
    _view("whole", "_s", (12,), (1,)),
    _view("head", "_s", (4,), (1,)),
    _view("overlap", "_s", (4,), (1,), 2),
    _view("tail", "_s", (4,), (1,), 8),
    _view("strided", "_s", (4,), (2,), 1),
    _view("columns", "_s", (4, 3), (1, 4)),
)


@dataclass(frozen=True)
class Row:
    """A program, what feature it is about, and how it is called.

    ``source`` is a module that imports torch by itself; ``calls`` are, in order, calls of ``f`` (an
    expression that calls it, after ``no_grad:`` in that mode) and changes between them (statements
    over inputs, the program's names and ``model``). ``backward``: send cotangents back after each
    call. ``again``: what a call may compile when nothing but another call lies before it.
    """

    name: str
    feature: str
    source: str
    calls: tuple[str, ...] = ("f(x)", "f(x2)")
    entry: str = "program"
    backward: bool = False
    again: Compiles = Compiles.ANY

    def case(self, suite: str, device: str) -> Case:
        """The row as a case of ``suite``, with those inputs that it mentions."""
        text = textwrap.dedent(self.source).strip("\n")
        return Case(
            suite=suite,
            subject=self.feature,
            variant=self.name,
            program=Program(f"import torch\n{text}\n", self.entry),
            inputs=inputs(self.calls),
            history=self.history(),
            tolerance=TOLERANCE,
            device=device,
            label="case",
        )

    def history(self) -> tuple[Step, ...]:
        steps: list[Step] = []
        for text in self.calls:
            mode, colon, rest = text.partition(": ")
            if not colon or mode not in ("no_grad", "inference_mode"):
                mode, rest = "grad", text
            if re.search(r"\bf\(", rest):
                follows = bool(steps) and isinstance(steps[-1], Call)
                compiles = self.again if follows else Compiles.ANY
                steps.append(Call(rest, compiles, mode, self.backward and mode == "grad"))
            else:
                steps.append(Change(rest))
        return tuple(steps)


def inputs(texts: tuple[str, ...]) -> tuple[Input, ...]:
    """The inputs that ``texts`` mention, each with its storage."""
    words = set(re.findall(r"\w+", " ".join(texts)))
    chosen: dict[str, Input] = {}
    shared = {item.name: item for group in _INPUTS for item in group if isinstance(item, Storage)}
    for group in _INPUTS:
        for item in group:
            if isinstance(item, Tensor) and item.name in words:
                chosen[item.storage] = shared[item.storage]
                chosen[item.name] = item
    return tuple(chosen.values())
