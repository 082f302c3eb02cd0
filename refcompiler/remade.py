"""Functions that say how they were made, so that another process can make them again.

A function in a function names nothing that can be written to a file. One of which is known which
function of a module has made it, and of what, is as good as its maker's name and what that was
given: see :mod:`refcompiler.package`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: The attribute that has the maker and what it was given.
MADE = "__refcompiler_made__"
#: The attribute of functions whose text is generated: which package of this project wrote it.
WRITTEN = "__refcompiler_written__"
_MAKERS: set[str] = set()


def maker(function: Any) -> Any:
    """A decorator of functions that may be named in a file, and are called then."""
    _MAKERS.add(f"{function.__module__}.{function.__qualname__}")
    return function


def is_maker(module: str, name: str) -> bool:
    return f"{module}.{name}" in _MAKERS


def made(function: Any, by: Callable[..., Any], *given: Any) -> Any:
    """``function``, which ``by(*given)`` has made."""
    function.__dict__[MADE] = by, given
    return function
