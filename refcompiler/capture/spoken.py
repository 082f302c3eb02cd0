"""Log records that are put off until the graph has run."""

from __future__ import annotations

import functools
import logging
from typing import Any

from refcompiler.interpreter.frame import Frame


def say(
    logger: logging.Logger, level: int, place: tuple[str, int, str], text: Any, *values: Any
) -> None:
    """Hand a record to ``logger`` that is from ``place``: a file, a line and a function's name."""
    file, line, function = place
    logger.handle(logger.makeRecord(logger.name, level, file, line, text, values, None, function))


def is_said_within(frame: Frame | None, call: Any) -> bool:
    """Whether ``call`` is a record of what ``frame`` has called, which names its own code."""
    if type(call) is not functools.partial or call.func is not say:
        return False
    file, _, function = call.args[-1]
    while frame is not None:
        if (frame.code.co_filename, frame.code.co_name) == (file, function):
            return False
        frame = frame.back
    return True
