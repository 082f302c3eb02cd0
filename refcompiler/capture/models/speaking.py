"""Log records: they are put off until the graph has run, and come in their order.

What is said depends on constants alone, so that only the moment is another. A record that goes
through handlers or filters of the user's is handled by CPython itself, behind a break: the program
may look at what they did. Warnings are in :mod:`refcompiler.capture.models.warned`.

Source of the rules: the documentation of ``logging``.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from refcompiler.capture.calls import Calls
from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.capture.models.outlets import note_asked
from refcompiler.capture.models.registry import model
from refcompiler.capture.models.warned import caller_of
from refcompiler.capture.signals import Break
from refcompiler.capture.spoken import say
from refcompiler.capture.values import Lazy, Unread

# ---- logging ----------------------------------------------------------------------------------

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_PLAIN = (logging.Logger, logging.RootLogger)
_SHOWN = CONSTANT_TYPES | {torch.SymInt, torch.SymFloat, torch.SymBool}


def _is_enabled(m: Calls, logger: Any, level: int) -> bool:
    if type(logger) not in _PLAIN:
        raise Break("io", f"a {type(logger).__name__}, which is no plain logger")
    source = m.source_of(logger)
    if source is not None:
        m.guard("ID", source, logger)
    note_asked(m, logger)
    found = logger.isEnabledFor(level)
    m.guard("STATE", None, (logger.isEnabledFor, (level,), found))
    return found


def _only_writes(logger: logging.Logger) -> bool:
    """Whether nothing but the library's own handlers sees the records of ``logger``."""
    if logger.filters:
        return False
    speaker: logging.Logger | None = logger
    while speaker is not None:
        for handler in speaker.handlers:
            own = (handler.formatter, handler)
            if handler.filters or not all(o is None or _is_library(type(o)) for o in own):
                return False
        speaker = speaker.parent if speaker.propagate else None
    return True


def _is_library(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "logging"


def _log(m: Calls, frame: Any, logger: Any, level: int, given: Sequence, kwargs: Mapping) -> None:
    if not _is_enabled(m, logger, level):
        return
    m.guard("STATE", None, (_only_writes, (logger,), _only_writes(logger)))
    if not _only_writes(logger):
        raise Break("io", "a log record for handlers or filters of the program's")
    values = tuple([value if _is_shown_only(m, value) else m.force(value) for value in given])
    if kwargs or not all(
        type(value) in _SHOWN or type(value) in (Lazy, Unread) for value in values
    ):
        raise Break("io", "a log record of objects, or with further arguments")
    speaker = caller_of(frame, 1)
    place = speaker.code.co_filename, speaker.line, speaker.code.co_name
    m.deferred.append((functools.partial(say, logger, level, place), values))


def _is_shown_only(m: Calls, value: Any) -> bool:
    """An argument that nothing has looked at, which the record shows whatever it is."""
    if type(value) is Unread:
        return value.is_of_numbers()
    if type(value) is not Lazy or type(value.value) not in CONSTANT_TYPES:
        return False
    source = value.source
    if source.kind != "arg" or source.parent is not None or source in m.forced:
        return False
    m.guard("TYPE", source, type(value.value))
    return True


def _method(level: int) -> Callable:
    def run(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> None:
        _log(m, frame, m.force(args[0]), level, args[1:], kwargs)

    return run


def _function(level: int) -> Callable:
    def run(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> None:
        m.guard("STATE", None, (_has_handlers, (), _has_handlers()))
        if not _has_handlers():
            raise Break("io", "logging configures itself")
        _log(m, frame, logging.root, level, args, kwargs)

    return run


def _has_handlers() -> bool:
    return bool(logging.root.handlers)


for _name, _level in _LEVELS.items():
    model(getattr(logging.Logger, _name))(_method(_level))
    model(getattr(logging, _name))(_function(_level))


@model(logging.Logger.log)
def _log_at(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> None:
    logger, level, *rest = args
    level = m.force(level)
    if type(level) is not int:
        raise Break("io", "a log record whose level is no integer")
    _log(m, frame, m.force(logger), level, rest, kwargs)


@model(logging.Logger.isEnabledFor)
def _enabled(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> bool:
    logger, level = [m.force(value) for value in (*args, *kwargs.values())]
    return _is_enabled(m, logger, level)


@model(logging.getLogger)
def _get_logger(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    """Makes the logger at the first call, which nobody sees."""
    found = logging.getLogger(*[m.force(value) for value in (*args, *kwargs.values())])
    return m.lazy(m.sources.constant(found, "logger"), found)
