"""Draws programs that mix Python and tensor statements, as source text.

Every tensor is a matrix, a vector of its columns, or a scalar (``m``, ``v``, ``s``), of whatever
shape the arguments have, so that one program serves several shapes. Numbers come from everywhere
that a compiled program has to watch: arguments, globals, attributes, closures, containers, shapes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from conformance.strategies.flow import (
    CONTEXTS,
    COROUTINES,
    DTYPES,
    EXCEPTIONS,
    LOOPS,
    RETURNS,
)
from conformance.strategies.library import LIBRARY, TENSOR_STATE
from conformance.strategies.objects import ARGUMENTS, MODULES, SHARED, SPECIAL
from conformance.strategies.templates import (
    CLASSES,
    CONTAINERS,
    FUNCTIONS,
    GENERATORS,
    HANDLERS,
    MATCHES,
    PRINTS,
    RAISING,
    VIEWS,
)

NUMBERS = ("n", "SCALE", "STATE.n", "factor", "TABLE['k']", "x.shape[0]", "x.shape[1]", "2", "-1",
           "len(ITEMS)", "x.dim()", "0.5", "NET.calls", "0", "STATE.scaled")  # fmt: skip
CONDITIONS = ("n > 2", "SCALE > 2", "STATE.n > 1", "other is None", "x.shape[0] > 2", "x is y",
              "factor == 2", "'k' in TABLE", "len(LOG) > 3", "TRAINING", "x.requires_grad",
              "isinstance(other, torch.Tensor)", "torch.is_grad_enabled()")  # fmt: skip
# {m}, {v}, {s}: a known tensor of that sort; {k}: a number.
EXPRESSIONS = {
    "m": ("{m} + {m}", "{m} * {k}", "{m} + {k}", "{m} - {v}", "torch.relu({m})", "{m}.neg()",
          "torch.where({m} > {k}, {m}, {m} * 2)", "{m}.clone()", "helper({m}, {k})", "{m}[:]",
          "{m}.view_as({m})", "{m}.detach()", "STATE.apply({m})", "{m} + {s}", "bump({m})"),
    "v": ("{m}[0]", "{m}[-1]", "{m}.sum(0)", "{v} + {v}", "{v} * {k}", "{m}.t()[:, 0]",
          "{v}.flip(0)", "{m}.amax(0)", "{v}.abs()", "torch.stack([{v}, {v}]).sum(0)"),
    "s": ("{m}.sum()", "{v}.sum()", "{v}[0]", "{m}[0, 0]", "{s} + {k}", "{m}.max()"),
}  # fmt: skip
WRITES = ("{m}.add_({k})", "{m}[0] = {v}", "{m}[0, 0] += {k}", "{v}.neg_()", "{m}.copy_({m} + 1)",
          "{m} += {v}", "{v}[0] = {k}", "{m}.t()[0].zero_()", "{s}.add_({k})", "{m}.clamp_(-4, 4)",
          "{m}[{m} > 3] = 1", "STATE.t.add_({v}.sum())")  # fmt: skip
PYTHON = ("LOG.append({k})", "TABLE['k'] = TABLE['k'] + 1", "STATE.n += 1", "ITEMS.append({v})",
          "box = [{m}, {v}]\nbox[0].add_(1)\nbox.append(box[0])\nkept.append(box)",
          "kept.append({{'m': {m}, 'k': {k}}})", "kept.append(({s}, {k}))", "STATE.last = {v}",
          "del ITEMS[1:]", "TABLE.update(new={k})", 'kept.append(f"{{{k}}} {{{m}.dim()}}")',
          "STATE.n, n = n, STATE.n", "kept.append([{m} * i for i in range(2)])",
          "kept.append(sorted(TABLE))", "kept.append({m} is {m})")  # fmt: skip
RANDOM = ("{m} = torch.dropout({m}, 0.5, TRAINING)",
          "{v} = {v} * torch.randint(0, 3, {v}.shape)",
          "{m} = {m} + (torch.rand_like({m}) < 0.5)", "{v} = {v}[torch.randperm({v}.shape[0])]",
          "{m}.bernoulli_(0.5)", "n = random.randrange(4)")  # fmt: skip
BREAKS = ("print('at', {k})", "print({s}.item())", "print(f'{{{m}.shape}} {{n}}', end=';')",
          "n = int({s}.item()) % 4")  # fmt: skip
BLOCKS = ("if {c}:", "if {c}:|else:", "if {s} > 0:|else:", "for i in range(2):",
          "for row in {m}:", "while n > 3:\n    n = n - 3", "with torch.no_grad():",
          "try:\n    {fail}|except (ValueError, KeyError) as error:\n    kept.append(repr(error))|"
          "finally:\n    LOG.append('finally')",
          "def local(t):\n    nonlocal n\n    n = n + 1\n    return t * n\n{m} = local({m})\nif n:",
          "with noted({k}):", "for value in items({m}):\n    kept.append(value)")  # fmt: skip
FAILURES = ("raise ValueError('asked')", "TABLE['missing']", "assert n", "pass",
            "if {c}: raise KeyError(n)")  # fmt: skip

# The rest of the module: what the drawn body calls, and the state that it keeps.
MODULE = """
import abc
import bisect
import collections
import contextlib
import contextvars
import copy
import dataclasses
import enum
import functools
import heapq
import inspect
import itertools
import json
import logging
import math
import operator
import pickle
import random
import re
import typing
import warnings
import weakref

import numpy
import torch
import torch.utils.checkpoint

LEVEL = contextvars.ContextVar("level", default=1)
SCALE = 2
TRAINING = True
TABLE = {"k": 1}
LOG = []
ITEMS = []
SEEN = set()


@dataclasses.dataclass
class Pair:
    a: object
    b: int = 2

    def _replaced(self, **changes):
        return dataclasses.replace(self, **changes)


class State:
    level = 1

    def __init__(self, n, t):
        self.n = n
        self.t = t

    def apply(self, t):
        return t * self.n + self.t

    @property
    def scaled(self):
        return self.n * 2

    @scaled.setter
    def scaled(self, value):
        self.n = value - 1


STATE = State(1, torch.ones(()))


class Guarded:
    def __init__(self, name):
        self.name = name

    def __enter__(self):
        LOG.append(("entered", self.name))
        return self

    def __exit__(self, kind, error, where):
        LOG.append(kind and kind.__name__)
        return kind is ValueError


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((), 2.0))
        self.register_buffer("count", torch.zeros(()))
        self.layers = torch.nn.ModuleList([torch.nn.ReLU(), torch.nn.Identity()])
        self.factor = 2
        self.calls = 1

    def forward(self, t):
        if self.training:
            self.count.add_(1)
        for layer in self.layers:
            t = layer(t) * self.factor
        return t + self.weight


NET = Net()


def helper(t, k):
    if k > 2:
        return t + k
    return t * SCALE


def scale_up():
    global SCALE
    SCALE = SCALE % 3 + 1


def items(t):
    for row in t:
        yield row * SCALE


@contextlib.contextmanager
def noted(name):
    LOG.append(("in", name))
    try:
        yield
    finally:
        LOG.append(("out", name))


def make():
    factor = 2

    def bump(t):
        nonlocal factor
        factor = factor % 3 + 1
        return t + factor

    def change(value):
        nonlocal factor
        factor = value

    def program(x, y, n=2, other=None):
        kept = []
        m0, v0, s0 = x * 1, y[0], y.sum()
"""
END = "\n    program.change = change\n    return program\n"


#: Where nothing is nested any more. Python compiles no function of more than 20 blocks within each
#: other, of which a handler with a name, in a ``try`` with a ``finally``, takes three.
DEEPEST = -3


@dataclass
class Writer:
    """Statements so far, and the tensors that they may mention."""

    draw: Callable[..., Any]
    focus: tuple[str, ...]  # statements that this program shall have more of
    names: dict[str, list[str]] = field(
        default_factory=lambda: {"m": ["x", "y", "m0"], "v": ["v0"], "s": ["s0"]}
    )
    made: int = 0

    def pick(self, choices: tuple[str, ...] | list[str]) -> str:
        return self.draw(st.sampled_from(choices))

    def filled(self, template: str) -> str:
        """Assigned names are the program's own; arguments stay what the caller gave."""
        words = {sort: self.pick(names) for sort, names in self.names.items()}
        if template.startswith(("{m} =", "{v} =")) or "\n{m} =" in template:
            words["m"], words["v"] = "m0", "v0"
        words |= {"k": self.pick(NUMBERS), "c": self.pick(CONDITIONS)}
        if "{fail}" in template:
            words["fail"] = self.pick(FAILURES).format(**words)
        return template.format(**words)

    def assignment(self) -> str:
        sort = self.pick(("m", "m", "v", "s"))
        text = self.filled(self.pick(EXPRESSIONS[sort]))
        self.made += 1
        name = f"{sort}{self.made}"
        self.names[sort] = [*self.names[sort], name]
        return f"{name} = {text}"

    def statement(self, depth: int) -> str:
        kinds = ("assign", "assign", "write", "python", "focus", "focus")
        nested = 4 if depth <= DEEPEST else 5 if depth <= 0 else 6
        kind = self.pick(kinds[:nested])
        if kind == "focus":
            template = self.pick(self.focus)
            compound = template in BLOCKS or template in HANDLERS
            return self.block(template, depth) if compound else self.filled(template)
        if kind == "write":
            return self.filled(self.pick(WRITES))
        if kind == "python":
            return self.filled(self.pick(PYTHON))
        return self.assignment()

    def block(self, template: str, depth: int) -> str:
        """A compound statement; what its parts define is not known after it."""
        lines = []
        for part in self.filled(template).split("|"):
            before = {sort: list(names) for sort, names in self.names.items()}
            inner = [self.statement(depth - 1) for _ in range(self.draw(st.integers(1, 2)))]
            lines.append(part)
            lines += [textwrap.indent(text, "    ") for text in inner]
            self.names = before
        return "\n".join(lines)


FOCI: dict[str, tuple[str, ...]] = {
    "tensors": (*WRITES,),
    "state": PYTHON,
    "branches": BLOCKS[:3],
    "loops": (*BLOCKS[3:6], BLOCKS[-1]),
    "exceptions": (BLOCKS[7],),
    "closures": (BLOCKS[8], "{m} = bump({m})"),
    "contexts": (BLOCKS[6], BLOCKS[9]),
    "breaks": (*BREAKS, *PRINTS),
    "random": RANDOM,
    "classes": CLASSES,
    "generators": GENERATORS,
    "functions": FUNCTIONS,
    "containers": CONTAINERS,
    "handlers": (*HANDLERS, *MATCHES),
    "errors": (*RAISING, *HANDLERS[:2]),
    "views": VIEWS,
    "returns": RETURNS,
    "iteration": LOOPS,
    "modes": CONTEXTS,
    "raising": EXCEPTIONS,
    "coroutines": COROUTINES,
    "dtypes": DTYPES,
    "special methods": SPECIAL,
    "modules": MODULES,
    "arguments": ARGUMENTS,
    "sharing": SHARED,
    "library": LIBRARY,
    "tensors' state": TENSOR_STATE,
    "everything": (
        *BLOCKS,
        *BREAKS,
        *RANDOM,
        *PYTHON,
        *CLASSES,
        *GENERATORS,
        *FUNCTIONS,
        *CONTAINERS,
        *HANDLERS,
        *MATCHES,
        *VIEWS,
        *PRINTS,
        *RETURNS,
        *LOOPS,
        *CONTEXTS,
        *EXCEPTIONS,
        *COROUTINES,
        *DTYPES,
        *SPECIAL,
        *MODULES,
        *ARGUMENTS,
        *SHARED,
        *LIBRARY,
        *TENSOR_STATE,
    ),
}


@st.composite
def modules(draw: st.DrawFn, focus: str) -> str:
    """The source of a module whose ``make()`` gives ``program(x, y, n=2, other=None)``."""
    writer = Writer(draw, FOCI[focus])
    lines = [writer.statement(2) for _ in range(draw(st.integers(2, 6)))]
    early = draw(st.sampled_from((None, *CONDITIONS)))
    if early:
        place = draw(st.integers(0, len(lines)))
        lines.insert(place, f"if {early}:\n    return m0, kept, n")
        lines.append("m0 = m0 + 1")
    known = [name for names in writer.names.values() for name in names]
    results = draw(st.lists(st.sampled_from(known), min_size=1, max_size=4))
    lines.append(f"return {', '.join(results)}, {{'kept': kept, 'n': n}}")
    body = textwrap.indent("\n".join(lines), " " * 8)
    return MODULE.strip("\n") + "\n" + body + "\n" + END
