"""Binding of call arguments to a frame's slots (the rules of CPython's ``initialize_locals``)."""

from __future__ import annotations

import dis
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

from refcompiler.bytecode.decode import slot_names
from refcompiler.interpreter.frame import UNSET
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

VARARGS, VARKEYWORDS = 0x04, 0x08
GENERATOR = 0x20
COROUTINE, ITERABLE_COROUTINE, ASYNC_GENERATOR = 0x80, 0x100, 0x200
ASYNCHRONOUS = COROUTINE | ITERABLE_COROUTINE | ASYNC_GENERATOR
SUSPENDS = GENERATOR | ASYNCHRONOUS
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
    """What binding needs to know of a code object.

    ``exactly`` is the number of positional arguments that need no further thought (-1: none), and
    ``blank`` what follows them in the frame's slots. ``suspends``: a call does not run the body.
    """

    __slots__ = (
        "code",
        "positional",
        "total",
        "varargs",
        "varkeywords",
        "slots",
        "names",
        "size",
        "blank",
        "keyword_only",
        "exactly",
        "suspends",
    )

    def __init__(self, code: CodeType):
        self.code = code  # keeps the id, under which this is found, from being used again
        self.positional = code.co_argcount
        self.total = code.co_argcount + code.co_kwonlyargcount
        self.varargs = bool(code.co_flags & VARARGS)
        self.varkeywords = bool(code.co_flags & VARKEYWORDS)
        self.names = code.co_varnames
        self.slots = {self.names[i]: i for i in range(code.co_posonlyargcount, self.total)}
        self.size = len(slot_names(code))
        self.keyword_only = self.names[self.positional : self.total]
        self.blank = [UNSET] * (self.size - self.total)
        plain = self.positional == self.total and not (self.varargs or self.varkeywords)
        self.exactly = self.total if plain else -1
        self.suspends = bool(code.co_flags & SUSPENDS)

    def place(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any] | None:
        """The slots with what is given, UNSET elsewhere; None when that does not fit."""
        positional = self.positional
        given = len(args)
        if given <= positional:
            fast = [*args, *([UNSET] * (self.size - given))]
        elif self.varargs:
            fast = [*args[:positional], *([UNSET] * (self.size - positional))]
        else:
            return None
        if self.varargs:
            fast[self.total] = tuple(args[positional:])
        if kwargs or self.varkeywords:
            extra = {}
            slots = self.slots
            for key, value in kwargs.items():
                slot = slots.get(key)
                if slot is None:
                    if not (self.varkeywords and isinstance(key, str)):
                        return None
                    extra[key] = value
                elif fast[slot] is not UNSET:
                    return None
                else:
                    fast[slot] = value
            if self.varkeywords:
                fast[self.total + self.varargs] = extra
        return fast

    def bind(
        self, function: FunctionType, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> list[Any] | None:
        """The slots of a call of ``function``, or None when the arguments do not fit."""
        if kwargs or self.varargs or self.varkeywords:
            return self._by_name(function, args, kwargs)
        missing = self.positional - len(args)
        if missing:
            defaults = function.__defaults__
            if missing < 0 or defaults is None or missing > len(defaults):
                return None
            args = [*args, *defaults[-missing:]]
        if not self.keyword_only:
            return [*args, *self.blank]
        given = function.__kwdefaults__
        if given is None or len(given) < len(self.keyword_only):
            return None
        try:
            return [*args, *map(given.__getitem__, self.keyword_only), *self.blank]
        except KeyError:
            return None

    def _by_name(
        self, function: FunctionType, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> list[Any] | None:
        fast = self.place(args, kwargs)
        if fast is None:
            return None
        positional = self.positional
        given = len(args)
        if given < positional:
            defaults: Any = function.__defaults__ or ()
            first = positional - len(defaults)
            for i in range(given, positional):
                if fast[i] is UNSET:
                    if i < first:
                        return None
                    fast[i] = defaults[i - first]
        for i in range(positional, self.total):
            if fast[i] is UNSET:
                defaults = function.__kwdefaults__
                if defaults is None or self.names[i] not in defaults:
                    return None
                fast[i] = defaults[self.names[i]]
        return fast


_PARAMETERS: dict[int, Parameters] = {}


def parameters_of(code: CodeType) -> Parameters:
    found = _PARAMETERS.get(id(code))
    if found is None:
        found = _PARAMETERS[id(code)] = Parameters(code)
    return found


def forget_parameters(code: CodeType) -> None:
    _PARAMETERS.pop(id(code), None)


def bind(
    code: CodeType,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    default: Callable[[int], Any],
    kwdefault: Callable[[str], Any],
) -> list[Any] | None:
    """The slots of a new frame, or None when the arguments do not fit.

    ``default(i)`` gives the default of positional parameter ``i`` and ``kwdefault(name)`` that of
    a keyword-only one; both answer UNSET when there is none, and are asked only when needed.
    """
    known = parameters_of(code)
    fast = known.place(args, kwargs)
    if fast is None:
        return None
    for i in range(len(args), known.positional):
        if fast[i] is UNSET:
            fast[i] = value = default(i)
            if value is UNSET:
                return None
    for i in range(known.positional, known.total):
        if fast[i] is UNSET:
            fast[i] = value = kwdefault(code.co_varnames[i])
            if value is UNSET:
                return None
    return fast
