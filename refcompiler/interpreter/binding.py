"""Binding of call arguments to a frame's slots (the rules of CPython's ``initialize_locals``)."""

from __future__ import annotations

import dis
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

from refcompiler.bytecode.decode import slot_names
from refcompiler.interpreter.frame import UNSET

VARARGS, VARKEYWORDS = 0x04, 0x08
GENERATOR = 0x20
ASYNCHRONOUS = 0x80 | 0x100 | 0x200  # coroutine, iterable coroutine, asynchronous generator
_EMPTY_BODY = bytes(
    b
    for name, arg in (("RESUME", 0), ("LOAD_CONST", 0), ("RETURN_VALUE", 0))
    for b in (dis.opmap[name], arg)
)


def raise_binding_error(function: FunctionType, args: Sequence[Any], kwargs: Mapping) -> None:
    """Raise the TypeError that CPython raises for this call; returns if there is none.

    A function with the same signature and an empty body is called, so the message is CPython's.
    """
    code = function.__code__
    empty = code.replace(
        co_code=_EMPTY_BODY,
        co_consts=(None,),
        co_exceptiontable=b"",
        co_flags=code.co_flags & ~0x2A0,
    )
    stub = FunctionType(empty, {}, function.__name__, function.__defaults__, function.__closure__)
    stub.__kwdefaults__ = function.__kwdefaults__
    stub.__qualname__ = function.__qualname__
    stub(*args, **kwargs)


class Parameters:
    """What binding needs to know of a code object."""

    __slots__ = (
        "code",
        "positional",
        "total",
        "varargs",
        "varkeywords",
        "slots",
        "plain",
        "keyword_only",
        "blank",
    )

    def __init__(self, code: CodeType):
        self.code = code  # keeps the id, under which this is found, from being used again
        self.positional = code.co_argcount
        self.total = code.co_argcount + code.co_kwonlyargcount
        self.varargs = bool(code.co_flags & VARARGS)
        self.varkeywords = bool(code.co_flags & VARKEYWORDS)
        names = code.co_varnames
        self.slots = {names[i]: i for i in range(code.co_posonlyargcount, self.total)}
        self.plain = not (self.varargs or self.varkeywords)
        self.keyword_only = names[self.positional : self.total]
        self.blank = [UNSET] * (len(slot_names(code)) - self.total)

    def positionally(self, function: FunctionType, args: Sequence[Any]) -> list[Any] | None:
        """The slots of a call without keywords, or None if that takes :func:`bind` to say."""
        if not self.plain:
            return None
        missing = self.positional - len(args)
        if missing:
            defaults = function.__defaults__
            if missing < 0 or defaults is None or missing > len(defaults):
                return None
            args = [*args, *defaults[len(defaults) - missing :]]
        if self.keyword_only:
            given = function.__kwdefaults__
            if given is None or len(given) < len(self.keyword_only):
                return None
            try:
                return [*args, *[given[name] for name in self.keyword_only], *self.blank]
            except KeyError:
                return None
        return [*args, *self.blank]


_PARAMETERS: dict[int, Parameters] = {}


def parameters_of(code: CodeType) -> Parameters:
    found = _PARAMETERS.get(id(code))
    if found is None:
        found = _PARAMETERS[id(code)] = Parameters(code)
    return found


def bind(
    code: CodeType,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    default: Callable[[int], Any],
    kwdefault: Callable[[str], Any],
    size: int,
) -> list[Any] | None:
    """The slots of a new frame of ``size``, or None when the arguments do not fit.

    ``default(i)`` gives the default of positional parameter ``i`` and ``kwdefault(name)`` that of
    a keyword-only one; both answer UNSET when there is none, and are asked only when needed.
    """
    known = parameters_of(code)
    positional = known.positional
    given = len(args)
    fast = [*args, *([UNSET] * (size - given))]
    if given == positional == known.total and known.plain and not kwargs:
        return fast
    if given > positional:
        if not known.varargs:
            return None
        fast = [*args[:positional], *([UNSET] * (size - positional))]
    total = known.total
    if known.varargs:
        fast[total] = tuple(args[positional:])
    if kwargs or known.varkeywords:
        extra = {}
        slots = known.slots
        for key, value in kwargs.items():
            slot = slots.get(key)
            if slot is None:
                if not (known.varkeywords and isinstance(key, str)):
                    return None
                extra[key] = value
            elif fast[slot] is not UNSET:
                return None
            else:
                fast[slot] = value
        if known.varkeywords:
            fast[total + known.varargs] = extra
    for i in range(given, positional):
        if fast[i] is UNSET:
            fast[i] = value = default(i)
            if value is UNSET:
                return None
    for i in range(positional, total):
        if fast[i] is UNSET:
            fast[i] = value = kwdefault(code.co_varnames[i])
            if value is UNSET:
                return None
    return fast
