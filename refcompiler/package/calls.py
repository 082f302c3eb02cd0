"""Calls that guards and plans make: partial functions, methods, loggers, and what caches know."""

from __future__ import annotations

import functools
import logging
from types import MethodType
from typing import Any

from refcompiler.capture.values import Asked
from refcompiler.errors import PackageError
from refcompiler.guards.caches import Known
from refcompiler.package.rows import Packer, Refused, Unpacker, described, register


def _pack_partial(p: Packer, value: functools.partial) -> list[Any]:
    if value.__dict__:
        raise Refused(f"{described(value)} with attributes of its own")
    return [p.pack(value.func), p.pack(value.args), p.pack(value.keywords)]


def _unpack_partial(u: Unpacker, function: Any, args: Any, kwargs: Any) -> Any:
    return functools.partial(u.value(function), *u.value(args), **u.value(kwargs))


def _pack_method(p: Packer, value: MethodType) -> list[Any]:
    return [p.pack(value.__func__), p.pack(value.__self__)]


def _unpack_method(u: Unpacker, function: Any, owner: Any) -> Any:
    return MethodType(u.value(function), u.value(owner))


def _is_known(value: Any) -> bool:
    """A logger that its name leads to."""
    if type(value) is logging.RootLogger:
        return value is logging.root
    return (
        issubclass(type(value), logging.Logger)
        and logging.Logger.manager.loggerDict.get(value.name) is value
    )


def _unpack_logger(u: Unpacker, name: str | None) -> Any:
    found = logging.root if name is None else logging.Logger.manager.loggerDict.get(name)
    if not isinstance(found, logging.Logger):
        raise PackageError(f"{u.title} needs the logger {name}, which nobody has asked for yet")
    return found


def _pack_known(p: Packer, value: Known) -> list[Any]:
    function, args, kwargs = value.function(), *value.call
    if function is None:
        raise Refused("what a cache knows that is gone")
    return [p.pack(function), p.pack(args), p.pack(kwargs)]


def _pack_asked(p: Packer, value: Asked) -> list[Any]:
    function = value.function()
    if function is None:
        raise Refused("a call of a function that is gone")
    return [p.pack(function), p.pack(dict(value.kwargs))]


register("partial", _pack_partial, _unpack_partial, functools.partial)
register("method", _pack_method, _unpack_method, MethodType)
register(
    "logger",
    lambda p, value: [None if value is logging.root else value.name],
    _unpack_logger,
    when=_is_known,
)
register(
    "known",
    _pack_known,
    lambda u, function, args, kwargs: Known(u.value(function), u.value(args), u.value(kwargs)),
    Known,
)
register(  # another process has not made the first one
    "asked",
    _pack_asked,
    lambda u, function, kwargs: Asked(u.value(function), u.value(kwargs), False),
    Asked,
)
