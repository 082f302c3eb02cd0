"""The recursion limit that a program sees, apart from the one that the interpreter needs.

Interpreted frames are counted by the interpreter. A frame that an interpreted one calls through C
(a generator, a property, ``__enter__``) takes a run of its own, and so several native frames, for
which the native limit is raised as runs nest, and lowered as they end. It is raised by what the
interpreter's own frames need and no more: native recursion ends where it would end without the
interpreter, since it is C's stack that the limit protects.
"""

from __future__ import annotations

import sys
from _thread import RLock

from refcompiler.interpreter.frames import native_depth
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

_getframe = sys._getframe
_get, _set = sys.getrecursionlimit, sys.setrecursionlimit

#: Runs for which room is made at once.
LEVELS = 8
#: Native frames that these take, and what the interpreter's own helpers need on top of them.
MARGIN = LEVELS * 24 + 150


class _Limit:
    """``visible`` is what the program has set; ``active`` are the machines at work."""

    def __init__(self) -> None:
        self.visible = _get()
        self.active: set[int] = set()


_LIMIT = _Limit()
_LOCK = RLock()  # a signal handler or finaliser may run interpreted code in the middle


def begin(machine: object) -> int:
    """``machine`` starts to run; the limit for it."""
    with _LOCK:
        if not _LIMIT.active:
            _LIMIT.visible = _get()
        _LIMIT.active.add(id(machine))
    return _LIMIT.visible


def end(machine: object) -> None:
    """``machine`` has ended; the last one leaves the limit that the program has set."""
    with _LOCK:
        _LIMIT.active.discard(id(machine))
        if not _LIMIT.active and _get() != _LIMIT.visible:
            _lower(_LIMIT.visible)


#: How deep the native frames are of runs that made room, by the frames' ids: where counting ends.
_DEPTHS: dict[int, int] = {}


def make_room(depth: int, ends: bool = True) -> int:
    """Let :data:`LEVELS` more runs nest on top of a frame at ``depth``; the native limit before.

    ``ends``: the caller's frame will call :func:`give_back`.
    """
    before = _get()
    native = native_depth(_DEPTHS)
    if ends:
        _DEPTHS[id(_getframe(1))] = native - 1
    need = native + max(_LIMIT.visible - depth, 0) + MARGIN
    if need > before:
        with _LOCK:
            _set(max(need, _get()))
    return before


def give_back(before: int) -> None:
    """The runs have ended. Other threads may need what was raised meanwhile."""
    _DEPTHS.pop(id(_getframe(1)), None)
    with _LOCK:
        if len(_LIMIT.active) <= 1 and _get() != before:
            _lower(before)


def _lower(limit: int) -> None:
    try:
        _set(limit)
    except RecursionError:  # deeper than that natively: whoever ends later lowers it
        pass


def limit() -> int:
    """What the program sees; outside of any run (a single step) that is the native limit."""
    return _LIMIT.visible if _LIMIT.active else _get()


def set_limit(wanted: int, depth: int) -> None:
    """What ``sys.setrecursionlimit`` does for a frame at ``depth``."""
    if wanted <= depth:
        raise RecursionError(
            f"cannot set the recursion limit to {wanted} at the recursion depth {depth}: "
            "the limit is too low"
        )
    _LIMIT.visible = wanted
    make_room(depth, ends=False)
