"""Binding of call arguments to a frame's slots (the rules of CPython's ``initialize_locals``)."""

from __future__ import annotations

import dis
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

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
    fast: list[Any] = [UNSET] * size
    positional, flags = code.co_argcount, code.co_flags
    given = len(args)
    total = positional + code.co_kwonlyargcount
    if given <= positional:
        fast[:given] = args
    elif flags & VARARGS:
        fast[:positional] = args[:positional]
    else:
        return None
    if flags & VARARGS:
        fast[total] = tuple(args[positional:])
    if kwargs or flags & VARKEYWORDS:
        names = code.co_varnames
        extra = {}
        for key, value in kwargs.items():
            slot = -1
            for i in range(code.co_posonlyargcount, total):
                if names[i] == key:
                    slot = i
                    break
            if slot < 0:
                if not (flags & VARKEYWORDS and isinstance(key, str)):
                    return None
                extra[key] = value
            elif fast[slot] is not UNSET:
                return None
            else:
                fast[slot] = value
        if flags & VARKEYWORDS:
            fast[total + bool(flags & VARARGS)] = extra
    for i in range(given if given < positional else positional, positional):
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
