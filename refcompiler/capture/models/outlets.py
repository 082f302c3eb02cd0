"""Where log records and warnings go, and whether the program has changed that.

Records and warnings are put off until the graph has run, when everything that the program has
written is there already. One that was said before, between or after writes to what decides about
it (``sys.stderr``, a logger's handlers, ``logging.lastResort``) would be told by what is there in
the end; so the graph ends before the first of them then, and CPython says it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from typing import Any

from refcompiler.capture.signals import Restart
from refcompiler.capture.values import is_changed
from refcompiler.interpreter.frame import UNSET


def note_asked(m: Any, logger: logging.Logger | None = None) -> None:
    """What becomes of a record of ``logger``, or of a warning, was decided here, or is later."""
    m.speech.asked.append((m.steps, logger))


def check_outlets(m: Any) -> None:
    """At the end of a capture: nothing that was asked about has been changed in it."""
    asked = m.speech.asked
    if not asked:
        return
    step, _ = asked[0]
    written = m.written_global(vars(sys), "stderr") not in (UNSET, sys.stderr)
    if written or (id(vars(sys)), "stderr") in m.overlay:  # and perhaps written back
        raise Restart(step, "io", "a log record or warning, and another sys.stderr")
    changed = {owner for owner, _ in m.overlay}
    for known in m.external.values():
        if known.tail or known.written or is_changed(known):
            changed.add(id(known.value))
    for step, logger in asked:
        if logger is not None and any(id(part) in changed for part in _decide(logger)):
            raise Restart(step, "io", "a log record, and changes of what becomes of such")


def _decide(logger: logging.Logger) -> Iterator[Any]:
    """What decides about the records of ``logger``."""
    yield vars(logging)
    yield from _with_namespace(logger.manager)
    speaker: logging.Logger | None = logger
    handlers = [] if logging.lastResort is None else [logging.lastResort]
    while speaker is not None:
        yield from _with_namespace(speaker)
        yield speaker.handlers
        yield speaker.filters
        handlers += speaker.handlers
        speaker = speaker.parent
    for handler in handlers:
        yield from _with_namespace(handler)
        yield handler.filters
        if handler.formatter is not None:
            yield from _with_namespace(handler.formatter)


def _with_namespace(value: Any) -> tuple[Any, Any]:
    return value, vars(value)
