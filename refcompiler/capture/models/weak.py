"""Weak references: one with a callback to what the frame has made tells of its end, which a capture
would put off."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from refcompiler.capture.models.registry import model
from refcompiler.capture.signals import Break


@model(weakref.ref)
def _ref(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    _check(m, args)
    return m.call_builtin_class(frame, weakref.ref, args, kwargs)


@model(weakref.ref.__new__)
def _new(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    """Of a subclass of theirs, as weak dictionaries have it."""
    _check(m, args[1:])
    return m.call_native(frame, weakref.ref.__new__, args, kwargs)


def _check(m: Any, args: Sequence) -> None:
    if len(args) < 2 or m.force(args[1]) is None:
        return
    target = m.force(args[0])
    lives_on = isinstance(target, type) and target not in m.own_classes
    if not lives_on and m.source_of(target) is None:
        kind = type(target).__qualname__
        raise Break("c-function", f"a weak reference that tells of the end of a {kind}")


@model(weakref.proxy)
def _proxy(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    raise Break("c-function", "weakref.proxy, behind which any attribute may lie")


_FINALIZE: Any = weakref.finalize


@model(_FINALIZE, _FINALIZE.__call__, _FINALIZE.peek, _FINALIZE.detach, _FINALIZE.alive.fget)
def _finalize(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    raise Break("c-function", "weakref.finalize, whose table changes as objects end")
