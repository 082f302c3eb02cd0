"""One step of ``map``, ``filter``, ``compress``, ``zip`` and ``enumerate`` in frames of the stack.

These iterators run in C. Where what they go over, or the function that they call, is Python code,
the functions here do the same for one item, and the interpreter runs them.
"""

from __future__ import annotations

from itertools import compress
from typing import Any

from refcompiler.capture.iterators import Parts, view_of
from refcompiler.capture.values import Run
from refcompiler.guards.iterators import account, numbered
from refcompiler.interpreter.helpers import hidden
from refcompiler.interpreter.resumption import resumable
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS


@hidden
def mapped(function: Any, iterators: Any) -> Any:
    return function(*[next(iterator) for iterator in iterators])


@hidden
def zipped(iterators: Any) -> Any:
    return tuple([next(iterator) for iterator in iterators])


@hidden
def filtered(function: Any, iterator: Any) -> Any:
    while True:
        item = next(iterator)
        if item if function is None else function(item):
            return item


@hidden
def compressed(items: Any, selectors: Any) -> Any:
    while True:
        item = next(items)
        if next(selectors):
            return item


@hidden
def enumerated(enumeration: Any, iterator: Any) -> Any:
    return numbered(enumeration, next(iterator))


COMPOSED = frozenset({map, filter, compress, zip, enumerate})


def runs_code(machine: Any, iterator: Any) -> bool:
    """Whether an iterator in C runs Python code for its next item."""
    return type(iterator) in COMPOSED and step(machine, iterator) is not None


def step(machine: Any, iterator: Any) -> Run | None:
    """The call that gives the next item; None where C code may do it."""
    kind = type(iterator)
    if machine.is_foreign(iterator):
        view = view_of(machine, iterator)
        if type(view) is not Parts:
            return None
        parts = [machine.force(part) for part in view.parts]
    else:
        _, args, *rest = account(iterator)
        if rest and kind is zip:
            return None  # a strict one
        parts = [_inner(machine, part) for part in args]
        if not any(_runs(machine, part) for part in parts):
            return None
    if kind is map:
        return Run(mapped, [parts[0], tuple(parts[1:])])
    if kind is zip:
        return Run(zipped, [tuple(parts)])
    if kind is filter:
        return Run(filtered, parts)
    if kind is compress:
        return Run(compressed, parts)
    return Run(enumerated, [iterator, parts[0]])


def _inner(machine: Any, part: Any) -> Any:
    """What C code holds in disguise."""
    original = machine.callback_of.get(id(part))
    return machine.unwrapped(part) if original is None else original


def _runs(machine: Any, part: Any) -> bool:
    if not hasattr(type(part), "__next__"):
        return callable(part) and machine.is_python(part)
    return resumable(part) or machine.stepping(part) is not None
