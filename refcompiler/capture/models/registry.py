"""The table of models: callables that capture answers for itself."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
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


def model(*callables: Any) -> Callable:
    """Register a model ``(machine, frame, args, kwargs) -> value``."""

    def register(function: Callable) -> Callable:
        for callable_ in callables:
            # Which of two counts would depend on the order of imports.
            if MODELS.get(id(callable_), function) is not function:
                raise ValueError(f"two models of {callable_!r}")
            MODELS[id(callable_)] = function
            _KEEP.append(callable_)
        return function

    return register


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
