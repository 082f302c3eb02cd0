"""Texts of numbers that are symbols, which stay unread as long as the program only passes them on.

``"step %d" % i``, ``"{}".format(i)``, ``str(i)`` and ``"step " + str(i)``, also of tuples and
sizes of numbers; see :mod:`refcompiler.capture.unread` for ``f"step {i}"``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from refcompiler.capture.values import Lazy, Told, Unread
from refcompiler.shapes.node import SYMBOLS

#: Where a specification may be wrong for a number and not for another.
_EXTREMES: dict[type, tuple[Any, ...]] = {
    torch.SymInt: (0, 2**63 - 1, -(2**63), 1),
    torch.SymFloat: (0.5, -0.0, math.inf, math.nan),
    torch.SymBool: (True, False, True, False),
}
_TUPLES = (tuple, torch.Size)
_SIMPLE = frozenset((str, int, float, bool, type(None)))


def is_open(m: Any) -> bool:
    """Whether a text need not be made at once: no C code and no region waits for it."""
    return m.recorder.scope.outer is None and not m.nested


def text_of(m: Any, function: Any, *args: Any) -> Unread | None:
    """The text ``function(*args)``, if symbols are among ``args`` and what they hold, and it is
    one for all numbers."""
    kinds = {type(leaf) for arg in args for leaf in _leaves(arg)}
    if not kinds & SYMBOLS or kinds - SYMBOLS - _SIMPLE or not is_open(m):
        return None
    return Unread(m.steps, (Told(function, args),)) if _is_total(function, args) else None


def formatted(m: Any, text: str, args: Sequence, kwargs: Mapping) -> Unread | None:
    """``text.format(*args, **kwargs)``, of numbers and texts alone."""
    values = [_observed(m, value) for value in args]
    if not kwargs:
        return text_of(m, str.format, text, *values)
    named = {key: _observed(m, value) for key, value in kwargs.items()}
    return None if args else text_of(m, str.format_map, text, named)


def _observed(m: Any, value: Any) -> Any:
    return m.force(value) if type(value) is Lazy and type(value.value) in _SIMPLE else value


def of_number(m: Any, value: Any, function: Any, spec: Any) -> Told | None:
    """The text of ``value``, if that is a number which need not be a constant."""
    kind = type(value)
    rest = (spec,) if spec else ()
    if kind is Lazy and type(value.value) is float and value.source not in m.forced:
        if not _is_total(function, (value, *rest)):
            return None
        m.guard("TYPE", value.source, float)
    elif kind not in SYMBOLS or not _is_total(function, (value, *rest)):
        return None
    return Told(function, (value, *rest))


def joined(a: Any, b: Any) -> Unread | None:
    """``a + b`` of an unread text and another text."""
    parts: list[Any] = []
    for text in (a, b):
        if type(text) is Unread and text.made is None:
            parts += text.parts
        elif type(text) is str:
            parts.append(text)
        else:
            return None
    return Unread((a if type(a) is Unread else b).step, tuple(parts))


def _leaves(value: Any) -> list[Any]:
    if type(value) in _TUPLES:
        return [leaf for item in value for leaf in _leaves(item)]
    if type(value) is dict:
        return [leaf for item in value.items() for leaf in item]
    return [value]


def _is_total(function: Any, args: tuple[Any, ...]) -> bool:
    """Whether no number makes ``function`` raise."""
    try:
        for i in range(len(_EXTREMES[torch.SymInt])):
            function(*[_extreme(arg, i) for arg in args])
    except (ValueError, OverflowError, TypeError, LookupError, MemoryError):
        return False
    return True


def _extreme(value: Any, i: int) -> Any:
    kind = torch.SymFloat if type(value) is Lazy else type(value)
    if kind in _TUPLES:
        return kind([_extreme(item, i) for item in value])
    if kind is dict:
        return {key: _extreme(item, i) for key, item in value.items()}
    return _EXTREMES[kind][i] if kind in _EXTREMES else value
