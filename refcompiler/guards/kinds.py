"""What each guard kind checks: as Python text for the generated guards, and as a function.

One entry per row of :data:`specs.guards.GUARDS`. The generated text is what runs at each entry;
``check`` is the plain meaning, which explains failures and which the text is tested against.
"""

from __future__ import annotations

import enum
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch

from refcompiler.ambient import mode_around
from refcompiler.guards import ambient
from refcompiler.guards.ambient import Ambient
from refcompiler.guards.arrays import array_tensor
from refcompiler.guards.caches import cached
from refcompiler.guards.classes import build_of, is_built, is_plain
from refcompiler.guards.constants import (
    equals_text,
    is_asked_once,
    is_code,
    is_written,
    keys_text,
    same_constant,
)
from refcompiler.guards.held import named
from refcompiler.guards.iterators import Ahead, account, apart, fed, shape
from refcompiler.guards.parameters import parameter
from refcompiler.guards.sizes import (
    Relations,
    relation_check,
    relation_text,
    sized_check,
    sized_text,
    wanted,
)
from refcompiler.guards.sources import (
    NOT_SET,
    Source,
    contents_of,
    default_of,
    filled_slots,
    namespace_of,
    plain_scalar,
    plain_tensor,
    proxied,
    referent,
    set_here,
    viewed,
)
from refcompiler.guards.tensors import (
    CALLED,
    METADATA,
    TensorMeta,
    metadata,
    separate,
    storage_pattern,
    tensor_check,
    tensor_text,
)
from refcompiler.guards.wrappers import WrapperMeta, wrapper_check
from refcompiler.interpreter.continued import suspension
from refcompiler.interpreter.driven import driven_by
from refcompiler.shapes.text import NAMES
from specs.guards import GUARDS


class Guard(NamedTuple):
    """``place`` is the user's (file, line) whose execution recorded the guard."""

    kind: str
    source: Source | None
    expected: Any
    place: tuple[str, int]

    def explain(self, value: Any) -> str:
        """The sentence for this guard when it fails on ``value``."""
        rule = KINDS[self.kind]
        want = named(self.expected)
        try:
            found = rule.found(value)
        except Exception:  # it is of another kind altogether
            found = _short(value)
        expected = rule.show(want)
        if rule.difference is not None:
            expected, found = rule.difference(want, value)
        if found == expected:  # they differ in what does not show
            found += f" of class {type(value).__qualname__}"
        source: Any = self.source
        if isinstance(self.expected, Relations):
            source, found = self.expected.found(value)
        text = GUARDS[self.kind].explain.format(source=source, expected=expected, found=found)
        return text + self.where

    def explain_unreadable(self, error: Exception) -> str:
        """The sentence where reading the value has raised ``error``."""
        expected = "a value"
        if self.kind not in ("PRESENT", "NOT_NONE"):
            try:
                expected = KINDS[self.kind].show(named(self.expected))
            except Exception:  # one of the user's that cannot be printed
                expected = type(named(self.expected)).__name__
        found = f"nothing ({type(error).__name__}: {error})"
        return f"{self.source}: expected {expected}, found {found}{self.where}"

    @property
    def where(self) -> str:
        """The user's line, as explanations end."""
        return f" (guarded at {self.place[0]}:{self.place[1]})" if self.place[0] else ""

    def wanted(self, read: Callable[[Source], Any]) -> Any:
        """``expected`` with each source replaced by what ``read`` gives for it."""
        if self.kind in ("SAME", "DISTINCT"):
            return read(self.expected)
        if self.kind in ("UNIQUE", "SEPARATE"):
            return [read(source) for source in self.expected]
        if self.kind == "STORAGE":
            return [read(source) for source in self.expected[0]], self.expected[1]
        if self.kind == "APART":
            return tuple([[read(source) for source in sources] for sources in self.expected])
        if self.kind in ("SIZED", "RELATION"):
            return wanted(self.expected, read)
        return self.expected


Text = Callable[[str, Any, Callable[[Any], str]], str]


@dataclass(frozen=True)
class Kind:
    """``text(value, expected, constant)`` is the condition as Python over the value's name.

    ``fails`` is the text of its opposite, where ``not (...)`` is not as good. ``once``: the texts
    name the value once only. ``difference(expected, value)``: both in words, where ``show`` and
    ``found`` would say much that is the same.
    """

    text: Text
    check: Callable[[Any, Any], bool]
    show: Callable[[Any], str] = lambda value: _described(value, 3)
    found: Callable[[Any], str] = lambda value: _short(value)
    fails: Text | None = None
    once: bool = False
    difference: Callable[[Any, Any], tuple[str, str]] | None = None


def asks_once(guard: Guard) -> bool:
    """Whether the text of ``guard`` names its value once only."""
    if guard.kind == "EQUALS":
        return is_asked_once(guard.expected)
    return KINDS[guard.kind].once


#: What C alone describes, without asking an object of the user's for its text.
_DESCRIBED = frozenset(
    {int, float, complex, bool, str, bytes, type(None), range, torch.Size, torch.dtype}
    | {torch.device, torch.layout, torch.memory_format, FunctionType, CodeType, ModuleType}
)
_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("{", "}"),
}


_LONG = 2000  # bits, of which Python would refuse to make digits (``sys.set_int_max_str_digits``)


def _short(value: Any) -> str:
    """No code of the user's runs, which could print, count or raise."""
    text = _described(value, 3)
    return text if len(text) < 120 else text[:117] + "..."


def _described(value: Any, depth: int) -> str:
    kind = type(value)
    if kind is FunctionType:
        code = value.__code__
        return f"{repr(value)[:-1]}, {code.co_filename}:{code.co_firstlineno}>"
    if kind is int and value.bit_length() > _LONG:
        return f"an int of {value.bit_length()} bits"
    if kind in _DESCRIBED:
        return repr(value)
    if issubclass(kind, type):
        return type.__repr__(value)
    if issubclass(kind, enum.Enum):
        return f"{kind.__name__}.{value._name_}"
    if kind is BuiltinFunctionType:
        return f"<built-in function {value.__name__}>"
    if depth and kind in _BRACKETS:
        first, last = _BRACKETS[kind]
        comma = "," if kind is tuple and len(value) == 1 else ""
        return f"{first}{', '.join([_described(v, depth - 1) for v in value])}{comma}{last}"
    if depth and kind is dict:
        pairs = [
            f"{_described(k, depth - 1)}: {_described(v, depth - 1)}" for k, v in value.items()
        ]
        return f"{{{', '.join(pairs)}}}"
    return object.__repr__(value)


def _tensor_told(value: Any) -> str:
    return TensorMeta.told(value) if issubclass(type(value), torch.Tensor) else _short(value)


def _name(function: Any) -> str:
    return getattr(function, "__name__", None) or _short(function)


def _without_text(v: str, want: tuple, constant: Callable[[Any], str]) -> str:
    return f"not ({_without_fails(v, want, constant)})"


def _without_fails(v: str, want: tuple, constant: Callable[[Any], str]) -> str:
    """Of three ways the fastest; the numbers are nanoseconds, measured with CPython 3.11."""
    size, names = want
    singly, all_names, all_keys = 14 * len(names), 100 + 10 * len(names), 50 + 8 * size
    if singly <= min(all_names, all_keys):
        return " or ".join([f"{constant(name)} in {v}" for name in sorted(names)])
    if all_names <= all_keys:
        return f"not {v}.keys().isdisjoint({constant(tuple(sorted(names)))})"
    return f"not {constant(frozenset(names))}.isdisjoint({v})"


def _code_text(v: str, want: tuple, constant: Callable[[Any], str]) -> str:
    text = f"{v}.__code__ is {constant(want[0])}"
    if is_written(want[0]):
        text = f"is_code({v}.__code__, {constant(want[0])})"
    return text if want[1] is None else f"{text} and {v}.__globals__ is {constant(want[1])}"


def _code_fails(v: str, want: tuple, constant: Callable[[Any], str]) -> str:
    text = f"{v}.__code__ is not {constant(want[0])}"
    if is_written(want[0]):
        text = f"not is_code({v}.__code__, {constant(want[0])})"
    return text if want[1] is None else f"{text} or {v}.__globals__ is not {constant(want[1])}"


def _plain_text(v: str, want: type | None, constant: Callable[[Any], str]) -> str:
    """``want`` is a class without the three, which cannot be given them; it is told sooner."""
    return f"is_plain({v})" if want is None else f"(type({v}) is {constant(want)} or is_plain({v}))"


def is_empty(cell: CellType) -> bool:
    """Whether a closure's variable has no value."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


def _twice(values: Sequence[Any]) -> str:
    """Which of them are one object."""
    first: dict[int, int] = {}
    places = [first.setdefault(id(value), i) for i, value in enumerate(values)]
    same = [f"{place} and {i}" for i, place in enumerate(places) if place != i]
    return f"one object at {', '.join(same)}"[:120]


#: ``found`` is given the value, or, for a kind without a source, what ``Guard.wanted`` gives.
KINDS: dict[str, Kind] = {
    "TYPE": Kind(
        lambda v, want, c: f"type({v}) is {c(want)}",
        lambda value, want: type(value) is want,
        found=lambda value: repr(type(value)),
        fails=lambda v, want, c: f"type({v}) is not {c(want)}",
        once=True,
    ),
    "ID": Kind(
        lambda v, want, c: f"{v} is {c(want)}",
        lambda value, want: value is want,
        show=_short,
        fails=lambda v, want, c: f"{v} is not {c(want)}",
        once=True,
    ),
    "EQUALS": Kind(equals_text, same_constant, show=_short),
    "NONE": Kind(
        lambda v, want, c: f"{v} is None",
        lambda value, want: value is None,
        fails=lambda v, want, c: f"{v} is not None",
        once=True,
    ),
    "NOT_NONE": Kind(
        lambda v, want, c: f"{v} is not None",
        lambda value, want: value is not None,
        fails=lambda v, want, c: f"{v} is None",
        once=True,
    ),
    # reading the value through its source is the check
    "PRESENT": Kind(lambda v, want, c: "True", lambda value, want: True),
    "PLAIN": Kind(
        _plain_text,
        lambda value, want: is_plain(value),
        show=lambda want: "a value that is no descriptor",
        found=lambda value: f"one of {type(value)!r}",
        once=True,
    ),
    "LENGTH": Kind(
        lambda v, want, c: f"len({v}) == {want}",
        lambda value, want: len(value) == want,
        found=lambda value: str(len(value)),
        fails=lambda v, want, c: f"len({v}) != {want}",
        once=True,
    ),
    "TRUTH": Kind(
        lambda v, want, c: v if want else f"not {v}",
        lambda value, want: bool(value) is want,
        found=lambda value: str(bool(value)),
        fails=lambda v, want, c: f"not {v}" if want else v,
        once=True,
    ),
    "KEYS": Kind(
        keys_text,
        lambda value, want: same_constant(tuple(value), want),
        show=_short,
        found=lambda value: _short(tuple(value)),
    ),
    "HAS": Kind(
        lambda v, want, c: f"dict_contains({v}, {c(want)})",
        lambda value, want: want in value,
        found=lambda value: _short(list(value)),
        fails=lambda v, want, c: f"not dict_contains({v}, {c(want)})",
        once=True,
    ),
    "ABSENT": Kind(
        lambda v, want, c: f"{c(want)} not in {v}",
        lambda value, want: want not in value,
        found=lambda value: _short(list(value)),
        fails=lambda v, want, c: f"{c(want)} in {v}",
        once=True,
    ),
    "LACKS": Kind(
        lambda v, want, c: f"not dict_contains({v}, {c(want)})",
        lambda value, want: not dict.__contains__(value, want),
        found=lambda value: _short(list(dict.keys(value))),
        fails=lambda v, want, c: f"dict_contains({v}, {c(want)})",
        once=True,
    ),
    "WITHOUT": Kind(
        _without_text,
        lambda value, want: want[1].isdisjoint(value),
        show=lambda want: ", ".join(sorted(want[1])),
        found=lambda value: _short(list(value)),
        fails=_without_fails,
    ),
    "CODE": Kind(
        _code_text,
        lambda value, want: (
            is_code(value.__code__, want[0]) and (want[1] is None or value.__globals__ is want[1])
        ),
        show=lambda want: _short(want[0]),
        found=lambda value: _short(getattr(value, "__code__", value)),
        fails=_code_fails,
    ),
    "CLASS": Kind(
        lambda v, want, c: f"is_built({v}, {c(want)})",
        is_built,
        show=str,
        found=lambda value: _short(value) if build_of(value) is None else str(build_of(value)),
        once=True,
    ),
    "TENSOR": Kind(
        tensor_text,
        tensor_check,
        show=str,
        found=_tensor_told,
    ),
    "SIZED": Kind(
        sized_text,
        sized_check,
        show=str,
        found=_tensor_told,
    ),
    "WRAPPER": Kind(
        lambda v, want, c: f"wrapper_check({v}, {c(want)})",
        wrapper_check,
        show=str,
        found=lambda value: (
            str(WrapperMeta.of(value)) if hasattr(value, "__tensor_flatten__") else _short(value)
        ),
        once=True,
    ),
    "RELATION": Kind(relation_text, relation_check, show=str),
    "EMPTY": Kind(
        lambda v, want, c: f"is_empty({v})",
        lambda value, want: is_empty(value),
        found=lambda value: _short(value.cell_contents),
    ),
    "METADATA": Kind(
        lambda v, want, c: f"{v}.{want[0]}{'()' if want[0] in CALLED else ''} == {c(want[1])}",
        lambda value, want: metadata(value, want[0]) == want[1],
        show=lambda want: f"{want[0]} = {want[1]}",
        found=lambda value: ", ".join(
            f"{name} = {metadata(value, name)}" for name in sorted(METADATA)
        ),
    ),
    "STATE": Kind(
        lambda v, want, c: equals_text(f"{c(want[0])}({', '.join(map(c, want[1]))})", want[2], c),
        lambda value, want: same_constant(want[0](*want[1]), want[2]),
        show=lambda want: f"{_name(want[0])}{want[1]!r} = {want[2]!r}",
        found=lambda want: _short(want[0](*want[1])),
    ),
    # ``expected`` is a source; the generated guards give ``text`` the name of its value.
    "SAME": Kind(lambda v, want, c: f"{v} is {want}", lambda v, want: v is want, show=str),
    "DISTINCT": Kind(
        lambda v, want, c: f"{v} is not {want}", lambda v, want: v is not want, show=str
    ),
    "UNIQUE": Kind(
        lambda v, want, c: f"len({{{', '.join(f'id({w})' for w in want)}}}) == {len(want)}",
        lambda value, want: len({id(w) for w in want}) == len(want),
        show=lambda want: ", ".join(map(str, want)),
        found=_twice,
    ),
    "STORAGE": Kind(
        lambda v, want, c: f"storage_pattern({', '.join(want[0])}) == {c(want[1])}",
        lambda value, want: storage_pattern(*want[0]) == want[1],
        show=lambda want: f"{', '.join(map(str, want[0]))} in storages {want[1]}",
        found=lambda want: str(storage_pattern(*want[0])),
    ),
    "SEPARATE": Kind(
        lambda v, want, c: f"separate({', '.join(want)})",
        lambda value, want: separate(*want),
        show=lambda want: ", ".join(map(str, want)),
        found=lambda value: "overlapping ones",
    ),
    "SHAPE": Kind(
        lambda v, want, c: f"shape({v}) == {c(want)}",
        lambda value, want: shape(value) == want,
        show=_short,
        found=lambda value: _short(shape(value)),
    ),
    "SUSPENDED": Kind(
        lambda v, want, c: f"suspension({v}) == {c(want)}",
        lambda value, want: suspension(value) == want,
        show=lambda want: f"instruction {want[2]}",
        found=lambda value: f"instruction {(suspension(value) or '???')[2]}",
    ),
    "ENDS": Kind(
        lambda v, want, c: f"{v}.ends({want})",
        lambda value, want: value.ends(want),
        found=lambda value: f"{len(value.items)} or more",
    ),
    "APART": Kind(
        lambda v, want, c: f"apart([{', '.join(want[0])}], [{', '.join(want[1])}])",
        lambda value, want: apart(*want),
        show=lambda want: ", ".join(str(part) for parts in want for part in parts),
        found=lambda value: "one of them inside another",
    ),
    "AMBIENT": Kind(
        ambient.ambient_text,
        lambda value, want: Ambient.now() == want,
        show=str,
        found=lambda value: str(Ambient.now()),
        difference=lambda want, value: ambient.difference(want, Ambient.now()),
    ),
}

#: What the generated guards may name.
NAMESPACE: dict[str, Any] = {
    **NAMES,
    **ambient.NAMES,
    "copysign": math.copysign,
    "same_constant": same_constant,
    "is_code": is_code,
    "is_built": is_built,
    "is_plain": is_plain,
    "is_empty": is_empty,
    "storage_pattern": storage_pattern,
    "Ahead": Ahead,
    "account": account,
    "apart": apart,
    "exception_around": sys.exception,
    "fed": fed,
    "shape": shape,
    "driven_by": driven_by,
    "suspension": suspension,
    "NOT_SET": NOT_SET,
    "dict_getitem": dict.__getitem__,
    "array_tensor": array_tensor,
    "parameter": parameter,
    "separate": separate,
    "referent": referent,
    "cached": cached,
    "wrapper_check": wrapper_check,
    "default_of": default_of,
    "set_here": set_here,
    "mode_around": mode_around,
    "plain_tensor": plain_tensor,
    "proxied": proxied,
    "viewed": viewed,
    "plain_scalar": plain_scalar,
    "contents_of": contents_of,
    "namespace_of": namespace_of,
    "dict_contains": dict.__contains__,
    "filled_slots": filled_slots,
    "object_getattribute": object.__getattribute__,
}
