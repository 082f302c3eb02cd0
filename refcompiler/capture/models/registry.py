"""The table of models: callables that capture answers for itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

#: id of a callable -> its model in the symbolic domain.
MODELS: dict[int, Any] = {}

#: Modules whose closures over a function ``func`` transform it, and the model of such a closure;
#: their other functions are inlined.
TRANSFORMING: dict[str, Any] = {}

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


def constant(value: Any, *callables: Any) -> None:
    """The callables answer ``value`` while capturing."""
    model(*callables)(lambda machine, frame, args, kwargs: value)


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
