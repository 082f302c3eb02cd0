"""Symbolic numbers as the ``int`` and ``float`` that a program takes them for.

What Python does to numbers by arithmetic stays symbolic; what needs the number itself (a hash, a
text, a length, a loop) gets it, and later calls have to have the same.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from refcompiler.capture.signals import Break
from refcompiler.shapes.node import SYMBOLS

_NUMBERS = (int, float, bool)
#: The classes that a program sees.
CLASSES: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
EXAMPLES: dict[type, Any] = {torch.SymInt: 2, torch.SymFloat: 0.5, torch.SymBool: True}


def _divmod(a: Any, b: Any) -> Any:
    return a // b, a % b


#: C functions that have a symbolic answer.
_SYMBOLIC: dict[Any, Callable] = {
    abs: abs,
    divmod: _divmod,
    math.floor: math.floor,
    math.ceil: math.ceil,
    math.trunc: math.trunc,
    math.sqrt: torch.sym_sqrt,
    operator.index: lambda n: n,
    int: torch.sym_int,
    float: torch.sym_float,
    int.__index__: lambda n: n,
}
#: Methods and functions that keep what they are given, and do not ask for its hash.
_KEEPING = frozenset(
    """
    append appendleft insert extend extendleft list tuple enumerate zip map filter reversed chain
    repeat deque partial Size sorted __setitem__ setitem isinstance accumulate __new__
    """.split()
)


def decided(value: Any) -> Any:
    """A comparison as the bool that it is here; one of what depends on data stays open."""
    if type(value) is torch.SymBool and value.node.has_hint():
        return bool(value)
    return value


def binary(machine: Any, function: Callable, a: Any, b: Any) -> Any:
    """An operator with a symbol among its operands."""
    plain = machine.sizes.plain
    for value in (a, b):
        if type(value) not in SYMBOLS and type(value) not in _NUMBERS:
            return machine.binary(function, plain(a), plain(b))
    try:
        return decided(function(a, b))
    except TypeError:  # an operator that torch's symbols do not have
        return function(plain(a), plain(b))


def unary(machine: Any, function: Callable, value: Any) -> Any:
    try:
        return function(value)
    except TypeError:
        return function(machine.sizes.plain(value))


def call(machine: Any, function: Callable, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The symbolic answer of a C function, or None and what to call it with."""
    if not any(_has_symbol(v) for v in (*args, *kwargs.values())):
        return None, args, kwargs
    try:
        symbolic = _SYMBOLIC.get(function)
    except TypeError:  # it has no hash
        symbolic = None
    if symbolic is not None and not kwargs and all(type(v) in SYMBOLS for v in args[:1]):
        return symbolic(*args), args, kwargs
    if function is round and len(args) == 1 and not kwargs:
        return round(args[0]), args, kwargs
    if getattr(function, "__name__", "") in _KEEPING:
        return None, args, kwargs
    plain = machine.sizes.plain
    return None, list(map(plain, args)), {key: plain(v) for key, v in kwargs.items()}


def _has_symbol(value: Any) -> bool:
    kind = type(value)
    return kind in SYMBOLS or (
        issubclass(kind, tuple) and any(type(item) in SYMBOLS for item in value)
    )


def ending(error: BaseException) -> Break | None:
    """The break for what only capture raises: a number was needed that is a symbol."""
    if isinstance(error, GuardOnDataDependentSymNode):
        return Break("data-dependent-branch", str(error).split("\n")[0])
    if type(error) is TypeError and "non-nested Sym" in str(error):
        return Break("c-function", "a hash of a container of numbers that are dynamic")
    return None
