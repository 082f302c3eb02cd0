"""Warnings: they are put off until the graph has run, and come in their order.

What is said depends on constants alone, so that only the moment is another. The filters are an
ordinary list of the module ``warnings``, whose Python functions are interpreted. As long as the
program has not changed them, ``warnings.warn_explicit`` asks them when it is called after the
graph; an error is then raised by CPython itself, behind a break. From the first change on, capture
asks the filters as the program sees them, and what comes after the graph is told the answer.

Source of the rules: the documentation of ``warnings`` ("The Warnings Filter").
"""

from __future__ import annotations

import builtins
import functools
import logging
import types
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.capture.models.outlets import note_asked
from refcompiler.capture.models.registry import model
from refcompiler.capture.signals import Break, Restart
from refcompiler.capture.values import Lazy, Run, is_changed
from refcompiler.interpreter.frame import UNSET, Frame

_MODULE: Any = types.SimpleNamespace(globals=vars(warnings), builtins=vars(builtins))
_PLAINLY = vars(warnings)["_showwarning_orig"]
_WRITES = vars(warnings)["_showwarnmsg_impl"]
_SHOWS = vars(warnings)["_showwarnmsg"]


class Speech:
    """What one capture has said and changed.

    ``settled`` is how much had been put off at the first change of the filters, None before it.
    ``shown`` are the warnings since the last change that need not be shown again. ``logs`` are the
    lists that record warnings which were put off, and at which steps. ``asked`` are the steps of
    records and warnings, and the loggers.
    """

    def __init__(self) -> None:
        self.settled: int | None = None
        self.shown: set[tuple] = set()
        self.logs: list[tuple[list, int]] = []
        self.asked: list[tuple[int, logging.Logger | None]] = []


def _matches(rule: Sequence, text: str, category: type, module: str, line: int) -> bool:
    _, message, kind, where, number = rule
    return (
        (message is None or message.match(text))
        and issubclass(category, kind)
        and (where is None or where.match(module))
        and number in (0, line)
    )


def action_of(rules: Sequence, text: str, category: type, module: str, line: int) -> str:
    """What the filters say of a warning."""
    for rule in rules:
        if _matches(rule, text, category, module, line):
            return rule[0]
    return warnings.defaultaction  # type: ignore[attr-defined]


def is_error(text: str, category: type[Warning], module: str, line: int) -> bool:
    """Whether the filters make an exception of the warning."""
    return action_of(warnings.filters, text, category, module, line) == "error"


Where = tuple[str, int, str]  # file, line, module


def _say(place: Where, namespace: dict, category: Any, message: Any) -> None:
    file, line, module = place
    registry = namespace.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, file, line, module, registry)


def _say_as(action: str, place: Where, namespace: dict, category: Any, message: Any) -> None:
    """As the filters said that the program saw."""
    before = warnings.filters
    warnings.filters = [(action, None, Warning, None, 0)]
    try:
        _say(place, namespace, category, message)
    finally:
        warnings.filters = before


def _note(action: str, place: Where, namespace: dict, category: Any, text: str) -> None:
    """What C notes of a warning, so that it is not shown again."""
    _, line, _ = place
    _say_as("ignore", place, namespace, category, text)  # forgets what older filters have shown
    registry = namespace["__warningregistry__"]
    if action in ("default", "module", "once"):
        registry[text, category, line] = True
    if action in ("module", "once"):
        registry[text, category] = True


def _now(m: Any, name: str) -> Any:
    """A global of the module ``warnings`` as the program sees it."""
    return m.force(m.load_global(_MODULE, name))


@model(vars(warnings)["_filters_mutated"])
def _mutated(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> None:
    speech = m.speech
    if speech.settled is None:
        speech.settled = len(m.deferred)
    speech.shown.clear()
    if not m.deferred[speech.settled :] or m.deferred[-1] != _FORGET:
        m.deferred.append(_FORGET)
    rules = _now(m, "filters")
    known = m.external.get(id(rules))
    now = known is not None and known.value is warnings.filters and not is_changed(known)
    m.recorder.filtered = not now  # the graph runs under those that are there


_FORGET = vars(warnings)["_filters_mutated"], ()


@model(warnings.warn)
def _warn(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Run | None:
    given = dict(zip(("message", "category", "stacklevel", "source"), args, strict=False))
    given = {k: m.force(v) for k, v in (given | dict(kwargs)).items()}
    message: Any = given.get("message")
    category: Any = given.get("category")
    text: Any = message
    if issubclass(type(message), Warning):
        category, text = type(message), _fixed_text(m, message)
    else:
        category = UserWarning if category is None else category
    level = given.get("stacklevel", 1)
    known = given.keys() <= {"message", "category", "stacklevel", "source"}
    if not known or type(text) is not str or type(level) is not int or given.get("source"):
        raise Break("io", "warnings.warn of an object, or with further arguments")
    if not isinstance(category, type) or not issubclass(category, Warning):
        raise Break("io", "warnings.warn with a category that is no class of warnings")
    speaker = caller_of(frame, level)
    namespace = speaker.globals
    module = namespace.get("__name__") or "<string>"
    place = speaker.code.co_filename, speaker.line, module
    if m.speech.settled is None and not is_watched(m):
        asked = text, category, module, speaker.line
        raises = is_error(*asked)
        m.guard("STATE", None, (is_error, asked, raises))
        if raises:
            raise Break("io", "a warning that is an error")
        note_asked(m)
        m.deferred.append((functools.partial(_say, place, namespace, category), (message,)))
        return None
    return _answer(m, place, namespace, category, message, text)


def is_watched(m: Any) -> bool:
    """Whether warnings go to where the program may look before the graph has run."""
    names = "showwarning", "_showwarnmsg_impl"
    if any(m.written_global(vars(warnings), name) is not UNSET for name in names):
        return True
    shown = warnings.showwarning is not _PLAINLY
    m.guard("STATE", None, (_is_replaced, (), shown))
    if shown:
        return True
    log = getattr(vars(warnings)["_showwarnmsg_impl"], "__self__", None)
    if type(log) is not list:
        return False
    place = m.frame
    while place is not None:
        if any(type(held) is Lazy and held.value is log for held in (*place.fast, *place.stack)):
            return True
        place = place.back
    m.speech.logs.append((log, m.steps))
    return id(log) in m.external


def check_logs(m: Any) -> None:
    """At the end of a capture: no warning was put off that belongs into a list it has read."""
    for log, step in m.speech.logs:
        if id(log) in m.external:
            raise Restart(step, "io", "a warning that the program records")


def _is_replaced() -> bool:
    return warnings.showwarning is not _PLAINLY


def _answer(
    m: Any, place: Where, namespace: dict, category: Any, message: Any, text: str
) -> Run | None:
    """By the filters as the program sees them."""
    file, line, module = place
    rules = [tuple(map(m.force, m.force(rule))) for rule in m.items_of(_now(m, "filters"))]
    action = action_of(rules, text, category, module, line)
    if action not in ("ignore", "error", "always", "default", "module", "once"):
        raise Break("io", f"a warning that the filters give the action {action!r}")
    writes = _now(m, "_showwarnmsg_impl") is _WRITES
    plain = writes and _now(m, "showwarning") is _PLAINLY
    key = (id(namespace), text, category, line if action == "default" else 0)
    first = (id(namespace), text, category, line)
    note = functools.partial(_note, action, place, namespace, category), (text,)
    if action == "ignore":
        m.deferred.append(note)
        return None
    if plain and action != "error":
        say = functools.partial(_say_as, action, place, namespace, category)
        note_asked(m)
        m.deferred.append((say, (message,)))
        m.speech.shown |= {key, first}
        return None
    if action != "always" and m.speech.settled is None:
        raise Break("io", "a warning that may have been given before")
    if first in m.speech.shown:
        return None
    m.deferred.append(note)
    if key in m.speech.shown:  # of another line: C notes this one as well
        m.speech.shown.add(first)
        return None
    made = message
    if not issubclass(type(message), Warning):
        made = m.force(m.invoke(m.frame, category, [message]))
    if action == "error":
        raise made
    if action != "always":
        m.speech.shown |= {key, first}
    told = m.force(m.invoke(m.frame, warnings.WarningMessage, [made, category, file, line]))
    return Run(_SHOWS, [told])


@model(_WRITES)
def _write(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> None:
    note_asked(m)
    m.deferred.append((_WRITES, tuple(map(m.force, args))))


def _fixed_text(m: Any, message: Warning) -> str:
    kind = type(message)
    plain = m.method_of(kind, "__str__") is UNSET
    plain = plain and all(type(a) in CONSTANT_TYPES for a in message.args)
    if not plain or m.is_foreign(message):
        raise Break("io", f"a {kind.__name__} whose text is made by Python code or from outside")
    return str(message)


def caller_of(frame: Any, level: int) -> Frame:
    """The frame that a warning of this stack level is said to be from."""
    while frame is not None and (level > 1 or frame.program.hidden):
        level -= not frame.program.hidden
        frame = frame.back
    if frame is None:
        raise Break("io", "a warning about a caller of the compiled function")
    return frame
