"""Generators and coroutines alike: CPython's objects whose bodies the interpreter may run.

They have the same states under other names, and so do asynchronous generators; one step of any of
them is one resumption of its driver.
"""

from __future__ import annotations

import contextlib
import dis
from operator import attrgetter
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from refcompiler.interpreter.generators import Activation, activation_of, is_driver
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

#: How their attributes begin.
PREFIXES: dict[type, str] = {GeneratorType: "gi", CoroutineType: "cr", AsyncGeneratorType: "ag"}
#: The attribute that tells to what one delegates.
DELEGATES: dict[type, str] = {
    GeneratorType: "gi_yieldfrom",
    CoroutineType: "cr_await",
    AsyncGeneratorType: "ag_await",
}
DRIVEN = frozenset(PREFIXES)


async def _started_later() -> Any:
    yield


def _getters(name: str) -> dict[type, Any]:
    return {kind: attrgetter(f"{prefix}_{name}") for kind, prefix in PREFIXES.items()}


def _is_begun(value: Any) -> bool:
    """Of an asynchronous generator, which tells it from CPython 3.12 on."""
    frame = value.ag_frame
    return frame is not None and frame.f_lasti > _FIRST and not value.ag_running


#: The last instruction of the part of a body that makes the generator.
_FIRST = next(
    i.offset for i in dis.get_instructions(_started_later) if i.opname == "RETURN_GENERATOR"
)
_FRAMES, _RUNNING, _SUSPENDED = _getters("frame"), _getters("running"), _getters("suspended")
_SUSPENDED[AsyncGeneratorType] = _is_begun
_DELEGATE = {kind: attrgetter(name) for kind, name in DELEGATES.items()}


def frame_of(value: Any) -> Any:
    """The native frame; None at the end."""
    return _FRAMES[type(value)](value)


def is_running(value: Any) -> bool:
    return _RUNNING[type(value)](value)


def is_suspended(value: Any) -> bool:
    return _SUSPENDED[type(value)](value)


def delegate_of(value: Any) -> Any:
    """To what it delegates; None while its frame runs.

    That is not asked of CPython: up to 3.12 it looks for the delegate behind the instruction that
    runs, where a counter of its specialising interpreter may look like one.
    """
    return None if _runs(value) else _DELEGATE[type(value)](value)


def _runs(value: Any) -> bool:
    """An asynchronous generator is said to run while it awaits, too."""
    if not is_running(value):
        return False
    return type(value) is not AsyncGeneratorType or frame_of(value).f_back is not None


def driven_by(value: Any) -> Activation:
    """What a generator or coroutine of the interpreter's drives, which has not ended."""
    return activation_of(frame_of(value))


def is_driven(value: Any) -> bool:
    """Whether ``value`` is one of the interpreter's that has not ended."""
    if type(value) not in DRIVEN:
        return False
    frame = frame_of(value)
    return frame is not None and is_driver(frame)


def advance(value: Any) -> None:
    """Resume the driver, whatever it yields, and be it to its end."""
    step = value.asend(None) if type(value) is AsyncGeneratorType else value
    with contextlib.suppress(StopIteration, StopAsyncIteration):
        step.send(None)
