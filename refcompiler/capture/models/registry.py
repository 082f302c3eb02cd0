"""The table of models: callables that capture answers for itself."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

#: id of a callable -> its model in the symbolic domain.
MODELS: dict[int, Any] = {}

#: Dotted name of a callable in a module that torch itself loads at its first use -> its model.
LATE: dict[str, Any] = {}

#: Modules whose closures over a function ``func`` transform it, and the model of such a closure;
#: their other functions are inlined.
TRANSFORMING: dict[str, Any] = {}

#: Name of an operation of torch -> ``(machine, function, args, kwargs) -> value``, which may
#: answer NotImplemented to leave the call to the door. Arguments are not observed yet.
OPERATION_MODELS: dict[str, Any] = {}

_KEEP: list[Any] = []  # MODELS knows callables by id

#: How many positional arguments builtins take at least, and at most. Their models get no others,
#: as the functions themselves complain of those.
_TAKEN: dict[Any, tuple[int, int]] = {
    **dict.fromkeys((len, callable, id, hash, repr, abs, any, all), (1, 1)),
    **dict.fromkeys((isinstance, issubclass, hasattr), (2, 2)),
    **dict.fromkeys((iter, next, format), (1, 2)),
    **dict.fromkeys((vars, dir), (0, 1)),
    **dict.fromkeys((max, min), (1, sys.maxsize)),
    sorted: (1, 1),
    sum: (1, 2),
    getattr: (2, 3),
    setattr: (3, 3),
    delattr: (2, 2),
}


def model(*callables: Any) -> Callable:
    """Register a model ``(machine, frame, args, kwargs) -> value``."""

    def register(function: Callable) -> Callable:
        for callable_ in callables:
            # Which of two counts would depend on the order of imports.
            known = MODELS.get(id(callable_), function)
            if getattr(known, "__wrapped__", known) is not function:
                raise ValueError(f"two models of {callable_!r}")
            taken = _TAKEN.get(callable_) if type(callable_) is BuiltinFunctionType else None
            MODELS[id(callable_)] = function if taken is None else _counted(callable_, function)
            _KEEP.append(callable_)
        return function

    return register


def _counted(callable_: Any, function: Callable) -> Callable:
    """The model ``function``, for as many arguments as ``callable_`` takes."""
    least, most = _TAKEN[callable_]
    is_named = callable_ in (max, min, sorted, sum)  # which take some by name

    @functools.wraps(function)
    def counted(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
        if (kwargs and not is_named) or not least <= len(args) <= most:
            return callable_(*[None] * len(args), **kwargs)  # which says so before it looks at them
        return function(m, frame, args, kwargs)

    return counted


def late(*names: str) -> Callable:
    """As :func:`model` for callables known by name; they must be torch's."""

    def register(function: Callable) -> Callable:
        for name in names:
            if name in LATE:
                raise ValueError(f"two models of {name}")
            LATE[name] = function
        return function

    return register


def operation(*names: str) -> Callable:
    """Register a model of the operations (functions, methods) of torch with these names."""

    def register(function: Callable) -> Callable:
        for name in names:
            if OPERATION_MODELS.get(name, function) is not function:
                raise ValueError(f"two models of the operation {name}")
            OPERATION_MODELS[name] = function
        return function

    return register


def constant(value: Any, *callables: Any) -> None:
    """The callables answer ``value`` while capturing."""
    model(*callables)(lambda machine, frame, args, kwargs: value)


def transforms(function: FunctionType) -> bool:
    """Whether ``function`` is what one of torch's transformations has made of another function."""
    code = function.__code__
    return (
        function.__globals__.get("__name__") in TRANSFORMING
        and "func" in code.co_freevars
        and not code.co_qualname.startswith("_")
    )


def named(paths: str) -> list[Any]:
    """The objects at dotted paths under torch, leaving out what this torch version lacks."""
    found = []
    for path in paths.split():
        value: Any = torch
        for name in path.split("."):
            value = getattr(value, name, None)
        if value is not None:
            found.append(value)
    return found
