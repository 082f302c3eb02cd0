"""Native code that runs while an exception is handled: it sees that exception, as CPython's does.

``sys.exception()``, a bare ``raise`` and the ``__context__`` of what is raised below ask for the
exception that the native frames above handle. The interpreter's frames keep theirs to themselves,
so it is handled natively around the call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

_handled = sys.exception
Links = tuple[BaseException, Any, BaseException | None, BaseException | None]


def links_of(error: BaseException) -> Links:
    """What raising ``error`` here will change of it, and of what is handled already."""
    link, seen = _handled(), set()
    while link is not None and link.__context__ is not error and id(link) not in seen:
        seen.add(id(link))
        link = link.__context__
    if link is error or link is not None and link.__context__ is not error:
        link = None
    return error, error.__traceback__, error.__context__, link


def restore(links: Links) -> None:
    """Undo what raising has changed."""
    error, traceback, context, link = links
    error.__traceback__, error.__context__ = traceback, context
    if link is not None:
        link.__context__ = error


def under(error: BaseException, function: Callable, *args: Any) -> Any:
    """``function(*args)``, while ``error`` is handled."""
    links = links_of(error)
    try:
        raise error
    except BaseException:
        restore(links)
        return function(*args)
