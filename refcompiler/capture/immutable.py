"""Values of C classes: ``Decimal``, ``datetime`` and their like, which are what they are made of.

A class of the standard library in C that compares and hashes by value is one of values: nothing
changes an instance, its ``__reduce__`` tells what it is made of, and its methods depend on it and
on their arguments alone, but for those that ask a clock or a place. Such a value is computed while
capturing, as a number is; one from outside is guarded by what it is made of.

Buffers in memory (:data:`BUFFERS`) do change. One that the frame has made is used for real while
capturing and made again after the graph by its own account; one from outside ends the graph.
"""

from __future__ import annotations

import array
import decimal
import functools
import io
import sys
import weakref
from typing import Any

from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.capture.lookup import find, is_heap

#: Containers that a program alone can reach, whose operations have no other effects.
FILES = frozenset({io.StringIO, io.BytesIO})
BUFFERS = frozenset({array.array, bytearray}) | FILES
#: What reads a clock, a time zone or a locale.
_ASKING = frozenset(
    "now today utcnow fromtimestamp utcfromtimestamp timestamp astimezone strftime strptime".split()
)
#: How a value tells what it is made of; an older protocol leaves out the ``fold`` of times.
PROTOCOL = 4


_KNOWN: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def closed_file(kind: type) -> Any:
    """One of :data:`FILES` that was closed."""
    made = kind()
    made.close()
    return made


def is_value_class(kind: Any) -> bool:
    """A C class of the standard library whose instances are equal by value and never change."""
    if not issubclass(type(kind), type):
        return False
    known = _KNOWN.get(kind)
    if known is None:
        known = _KNOWN[kind] = _compares_by_value(kind)
    return known


def _compares_by_value(kind: type) -> bool:
    if is_heap(kind) or kind in CONSTANT_TYPES:
        return False
    package = (kind.__module__ or "").partition(".")[0]
    if package in ("builtins", "types", "weakref") or package not in sys.stdlib_module_names:
        return False
    owners = [find(kind, name) for name in ("__eq__", "__hash__", "__reduce__", "__reduce_ex__")]
    (_, equal), (_, hashed), *accounts = owners
    return (
        equal is not object.__dict__["__eq__"]
        and hashed is not None
        and hashed is not object.__dict__["__hash__"]
        and any(owner is not object for owner, _ in accounts)
    )


def is_value(value: Any) -> bool:
    """An instance of such a class that is made of constants and of other values."""
    if not is_value_class(type(value)):
        return False
    made = account(value)
    return made is not None and all(type(p) in CONSTANT_TYPES or is_value(p) for p in made[1])


def account(value: Any) -> tuple[Any, tuple] | None:
    """The class or function that makes ``value``, and what of; None if it does not tell."""
    try:
        found = value.__reduce_ex__(PROTOCOL)
    except TypeError:
        return None
    if type(found) is not tuple or any(part is not None for part in found[2:]):
        return None
    return found[0], found[1]


def is_computed(function: Any, name: str) -> bool:
    """Whether ``function``, of C, is a method or constructor of values that asks nobody else."""
    if name in _ASKING:
        return False
    if is_value_class(function):
        return True
    owner = function
    if not issubclass(type(function), type):
        owner = getattr(function, "__objclass__", None)
    if owner is None:
        owner = getattr(function, "__self__", None)
        if not issubclass(type(owner), type):
            owner = type(owner)
    return is_value_class(owner) or (issubclass(type(owner), type) and owner in BUFFERS)


# ---- decimal's rules ---------------------------------------------------------------------------


def rules() -> tuple:
    """What the context of the thread says about arithmetic."""
    context = decimal.getcontext()
    traps = tuple(sorted([signal.__name__ for signal, on in context.traps.items() if on]))
    limits = context.prec, context.Emin, context.Emax, context.capitals, context.clamp
    return (context.rounding, *limits, traps)


def raised() -> frozenset[Any]:
    """The signals whose flags are up."""
    return frozenset(signal for signal, on in decimal.getcontext().flags.items() if on)


def put_up(signals: frozenset[Any]) -> None:
    """What the arithmetic that a capture did once has told the context, at each call."""
    flags = decimal.getcontext().flags
    for signal in signals:
        flags[signal] = True


def _set(signals: frozenset[Any]) -> None:
    flags = decimal.getcontext().flags
    for signal in flags:
        flags[signal] = signal in signals


class Decimals:
    """The context of ``decimal``, for one capture that has met such a number."""

    def __init__(self, machine: Any):
        machine.guard("STATE", None, (rules, (), rules()))
        self.before = raised()
        _set(frozenset())

    def tell(self, machine: Any) -> None:
        """Let the calls put up the flags that this capture has put up."""
        signals = raised()
        if signals:
            machine.deferred.append((functools.partial(put_up, signals), ()))

    def close(self) -> None:
        _set(self.before)
