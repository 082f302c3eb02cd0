"""Guards of constants: what a program cannot tell apart, as a function and as Python text."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch

#: Classes whose equal instances are one object.
_SINGLETONS = (bool, torch.dtype, torch.layout, torch.memory_format)
#: Classes whose instances are one constant if they are equal.
PLAIN = frozenset({int, bool, str, bytes, type(None)})


def equals_text(v: str, want: Any, constant: Callable[[Any], str]) -> str:
    kind = type(want)
    if want is None or want is ... or want is NotImplemented:
        return f"{v} is {want!r}"
    if kind in _SINGLETONS:
        return f"{v} is {constant(want)}"
    if not v.isidentifier():  # an expression, to be evaluated once
        return f"same_constant({v}, {constant(want)})"
    if kind is tuple and want and all(type(item) in PLAIN for item in want):
        classes = tuple(map(type, want))
        return (
            f"type({v}) is tuple and tuple(map(type, {v})) == {constant(classes)}"
            f" and {v} == {constant(want)}"
        )
    if kind is float and math.isnan(want):
        return f"type({v}) is float and {v} != {v}"
    if kind is float and want == 0.0:
        return (
            f"type({v}) is float and {v} == 0.0 and copysign(1.0, {v}) == "
            f"{math.copysign(1.0, want)}"
        )
    if kind in (int, str, bytes, float):
        return f"type({v}) is {kind.__name__} and {v} == {constant(want)}"
    if kind is torch.device or kind is torch.Size:
        return f"type({v}) is {constant(kind)} and {v} == {constant(want)}"
    return f"same_constant({v}, {constant(want)})"


def is_asked_once(want: Any) -> bool:
    """Whether the text names the value once only, whatever reads it."""
    return want is None or want is ... or want is NotImplemented or type(want) in _SINGLETONS


def same_constant(value: Any, want: Any) -> bool:
    """Of one class and equal all the way down, in order: what a program cannot tell apart.

    Floats are equal by their text (NaN equals NaN, 0.0 differs from -0.0), and so are complex
    numbers, ranges (which are equal by their items otherwise) and numpy's scalars.
    """
    kind = type(want)
    if type(value) is not kind:
        return False
    if kind in (set, frozenset, tuple):
        return len(value) == len(want) and all(
            same_constant(a, b) for a, b in zip(value, want, strict=True)
        )
    if kind in (int, str, bytes) or kind in _SINGLETONS:
        return bool(value == want)
    if kind is torch.device or kind is torch.Size:
        return bool(value == want)
    return repr(value) == repr(want)


def keys_text(v: str, want: tuple, constant: Callable[[Any], str]) -> str:
    if not want:
        return f"not {v}"
    if all(type(key) in (str, int, bytes) for key in want):
        classes = tuple([type(key) for key in want])
        return f"tuple({v}) == {constant(want)} and tuple(map(type, {v})) == {constant(classes)}"
    return f"same_constant(tuple({v}), {constant(want)})"


def is_written(code: CodeType) -> bool:
    """Whether code is in no file: what writes it as text may write it again, as equal code."""
    return code.co_filename[:1] == "<"


def is_code(code: CodeType, want: CodeType) -> bool:
    """Whether ``code`` is ``want``, or was written anew and cannot be told from it."""
    if code is want:
        return True
    return is_written(want) and code == want and code.co_filename == want.co_filename
