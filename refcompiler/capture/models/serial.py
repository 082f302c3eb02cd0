"""``json`` of plain data: what it gives depends on its arguments alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from refcompiler.capture.models.registry import model
from refcompiler.capture.natively import natively
from refcompiler.capture.signals import Break

_ATOMS = (str, int, float, bool, type(None))


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind in (list, tuple):
        return all(map(_is_plain, value))
    if kind is dict:
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return kind in _ATOMS


def _plainly(function: Callable) -> None:
    @model(function)
    def run(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
        forced = [m.force(value) for value in args]
        named = {key: m.force(value) for key, value in kwargs.items()}
        if not all(map(_is_plain, (*forced, *named.values()))):
            raise Break("c-function", f"json.{function.__name__} of objects")
        found = natively(m, function, *forced, **named)
        m.recorder.keep.append(found)
        return found


_plainly(json.dumps)
_plainly(json.loads)
