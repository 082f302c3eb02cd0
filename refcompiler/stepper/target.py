"""What the command line names: a function in a module or a file, and arguments as literals."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any


class BadTarget(Exception):
    """What was named cannot be stepped through; the message is one line that says why."""


def function_of(target: str) -> Any:
    """The callable that ``module:function`` or ``file.py:function`` names, importing its module.

    ``function`` may be dotted (``Class.method``). Errors: :class:`BadTarget`; what the module
    itself raises while it is imported comes out as it is.
    """
    place, colon, name = target.rpartition(":")
    if not (place and colon and name):
        raise BadTarget(f"{target!r} names no function: write module:function or file.py:function")
    found: Any = _from_file(place) if place.endswith(".py") else _from_path(place)
    for part in name.split("."):
        if not hasattr(found, part):
            raise BadTarget(f"{place} has no {name!r}")
        found = getattr(found, part)
    if not callable(found):
        raise BadTarget(f"{target} is of type {type(found).__name__}, which cannot be called")
    return found


def _from_path(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise BadTarget(f"{name!r} is neither a module's name nor a file that ends in .py")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` has it
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(missing + "."):  # not what the module imports
            raise BadTarget(f"there is no module {missing!r} here") from None
        raise


def _from_file(path: str) -> ModuleType:
    if not os.path.isfile(path):
        raise BadTarget(f"there is no file {path}")
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))  # as `python file.py` has it
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def arguments_of(texts: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments: Python literals, the latter as ``name=literal``."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        keyword = bool(equals) and name.isidentifier()
        value = _literal(rest if keyword else text)
        if not keyword:
            if kwargs:
                raise BadTarget(f"the argument {text} comes after one with a name")
            args.append(value)
        elif name in kwargs:
            raise BadTarget(f"the argument {name} is given twice")
        else:
            kwargs[name] = value
    return args, kwargs


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise BadTarget(
            f"the argument {text} is not a Python literal (a string needs quotes: \"'text'\")"
        ) from None
