"""Models of builtins that go through what they are given, or ask how long it is."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from refcompiler.capture import arithmetic, floats
from refcompiler.capture.calls import Calls
from refcompiler.capture.contents import contents
from refcompiler.capture.iterators import view_of
from refcompiler.capture.kinds import MAPPINGS, SEQUENCES, SETS
from refcompiler.capture.lookup import find, is_iterable
from refcompiler.capture.models.registry import model
from refcompiler.capture.natively import natively
from refcompiler.capture.numbered import iterator_of
from refcompiler.capture.signals import Break
from refcompiler.capture.values import Lazy, Literal, Resume, Run
from refcompiler.capture.written import is_appended, is_written_list, length_of_list
from refcompiler.guards.iterators import numbered
from refcompiler.interpreter import helpers
from refcompiler.interpreter.frame import UNSET
from refcompiler.interpreter.resumption import resumable
from refcompiler.shapes.node import SYMBOLS


@model(len)
def _len(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    value = args[0]
    if type(value) is Literal:
        return len(value.items if value.made is UNSET else value.made)
    if type(value) is Lazy and is_appended(m, value):
        if (changing := length_of_list(m, value)) is not None:
            return changing
    if type(value) is Lazy and (m.is_unread(value) or is_written_list(m, value)):
        inner = value.value
        if type(inner) is list and (changing := length_of_list(m, value)) is not None:
            return changing
        if type(inner) in (*SEQUENCES, *MAPPINGS, *SETS):
            m.guard("TYPE", value.source, type(inner))
            m.guard("LENGTH", value.source, len(inner))
            return len(inner)
    value = m.force(value)
    if issubclass(type(value), torch.Tensor):
        if value.dim() == 0:
            raise TypeError("len() of a 0-d tensor")
        return value.shape[0] if not m.recorder.modes else m.operate(len, value)
    if m.method_of(type(value), "__len__") is not UNSET:
        return m.run_special(value, "__len__")
    value = contents(m, value)
    if m.is_foreign(value):
        raise Break("external-object", f"the length of a {type(value).__name__}")
    return len(value)


@model(iter)
def _iter(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    if len(args) != 1:
        return m.call_pure(iter, args, kwargs)
    value = m.force(args[0])
    if not m.nested and m.method_of(type(value), "__iter__") is not UNSET:
        return m.run_special(value, "__iter__")
    if m.has_old_protocol(type(value)):
        return iterator_of(m, value)
    return m.iter(value)


@model(next)
def _next(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    iterator = m.force(args[0])
    if m.is_interpreted(iterator):
        if resumable(iterator):
            return Resume(iterator, None, *args[1:])
        return next(iterator, *args[1:])
    if not m.nested and (run := m.stepping(iterator)) is not None:
        if len(args) == 1:
            return run
        return Run(helpers.next_or, [run.function, tuple(run.args), args[1]])
    if hasattr(type(iterator), "send") and not m.is_foreign(iterator):
        return natively(m, next, iterator, *args[1:])  # its end has a value
    found = m.next(iterator)
    if found is not UNSET:
        return found
    if len(args) > 1:
        return args[1]
    raise StopIteration


@model(numbered)
def _numbered(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    enumeration, item = map(m.force, args)
    if not m.is_foreign(enumeration):
        return numbered(enumeration, item)
    view = view_of(m, enumeration)
    number = m.binary(operator.add, view.parts[1], view.taken)
    view.taken += 1
    return number, item


@model(any)
def _any(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    if m.runs_code(value := m.force(args[0])):
        return Run(helpers.exists, [value])
    iterator = m.iter(value)
    while (item := m.next(iterator)) is not UNSET:
        if m.truth(item):
            return True
    return False


@model(all)
def _all(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    if m.runs_code(value := m.force(args[0])):
        return Run(helpers.every, [value])
    iterator = m.iter(value)
    while (item := m.next(iterator)) is not UNSET:
        if not m.truth(item):
            return False
    return True


@model(sum)
def _sum(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    total = args[1] if len(args) > 1 else kwargs.get("start", 0)
    if m.runs_code(value := m.force(args[0])):
        return Run(helpers.total, [value, total])
    iterator = m.iter(value)
    total = m.force(total)
    if issubclass(type(total), (str, bytes, bytearray)):
        return sum([], total)  # which says what to do instead
    known: list[Any] | None = []  # numbers, which nobody adds but this Python's own sum
    if type(total) not in _NUMBERS:
        known = None
    while (item := m.next(iterator)) is not UNSET:
        item = m.force(item)
        if known is not None and type(item) in _NUMBERS:
            known.append(item)
            continue
        if helpers.GIVES_BACK and _is_unknown(m, total, item):
            every = [*(known or ()), item]
            while (item := m.next(iterator)) is not UNSET:
                every.append(m.force(item))
            if any(type(v) in _FLOATS or id(v) in m.recorder.floats for v in (total, *every)):
                return Run(helpers.total, [every, total])
            return m.force(
                functools.reduce(lambda a, b: m.binary(operator.add, a, b), every, total)
            )
        if known is not None:
            total, known = sum(known, total), None
        total = m.binary(operator.add, total, item)
    return m.force(total) if known is None else sum(known, total)


_NUMBERS = (int, float, bool, complex)
_FLOATS = (float, torch.SymFloat)


def _is_unknown(m: Calls, *values: Any) -> bool:
    """Whether one of the ``values`` is a Python number that other calls have other ones for."""
    return any(type(value) in SYMBOLS or id(value) in m.recorder.floats for value in values)


def _extreme(function: Callable, better: Callable, helper: Callable) -> Callable:
    def run(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
        if "default" in kwargs and len(args) > 1:
            return function(*[None] * len(args), default=None)  # which complains
        key = m.force(kwargs.get("key"))
        value = m.force(args[0]) if len(args) == 1 else list(map(m.force, args))
        if key is None:
            found = floats.extreme(m, function, value)
            if found is NotImplemented and m.sizes.env is not None:
                found = arithmetic.extreme(function, value)
            if found is not NotImplemented:
                return found
        if m.runs_code(value) or (m.is_python(key) and not m.nested):
            given = "default" in kwargs
            return Run(helper, [value, key, given, kwargs.get("default")])
        iterator = m.iter(value)
        best = best_key = UNSET
        while (item := m.next(iterator)) is not UNSET:
            item_key = item if key is None else m.invoke(frame, key, [item])
            if best is UNSET or m.truth(m.binary(better, item_key, best_key)):
                best, best_key = item, item_key
        if best is UNSET:
            if "default" in kwargs:
                return kwargs["default"]
            return function(())  # the complaint, in the words of this Python
        return best

    return run


model(min)(_extreme(min, operator.lt, helpers.smallest))
model(max)(_extreme(max, operator.gt, helpers.largest))


@model(functools.reduce)
def _reduce(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    function, value = m.force(args[0]), m.force(args[1])
    if not is_iterable(type(value)):
        raise TypeError("reduce() arg 2 must support iteration")
    if not m.nested and (m.is_python(function) or m.runs_code(value)):
        initial = args[2] if len(args) > 2 else None
        return Run(helpers.reduce, [function, value, len(args) > 2, initial])
    iterator = m.iter(value)
    total = args[2] if len(args) > 2 else m.next(iterator)
    if total is UNSET:
        raise TypeError("reduce() of empty iterable with no initial value")
    while (item := m.next(iterator)) is not UNSET:
        total = m.invoke(frame, function, [total, item])
    return total


@model(reversed)
def _reversed(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    value = m.force(args[0]) if len(args) == 1 else None
    kind = type(value)
    if m.method_of(kind, "__reversed__") is not UNSET:
        return m.run_special(value, "__reversed__")
    if m.method_of(kind, "__getitem__") is not UNSET and find(kind, "__reversed__")[1] is UNSET:
        return Run(helpers.backwards, [value])
    return m.call_pure(reversed, args, kwargs)
