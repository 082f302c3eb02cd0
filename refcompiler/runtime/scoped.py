"""Decorators of blocks: a function that runs inside of one, however it suspends."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any


def inside(block: Callable[[], AbstractContextManager], function: Any, what: str) -> Callable:
    """``function`` inside of a ``block()`` for each call.

    A generator or a coroutine is inside while its own code runs, and not while it is suspended:
    what whoever goes on meanwhile has set is left alone. ``what`` names the decorator in errors.
    Errors: ``TypeError`` for a class, an asynchronous generator function and what is not callable.
    """
    if inspect.isclass(function):
        raise TypeError(f"{what} decorates functions, not the class {function.__qualname__}")
    if not callable(function):
        raise TypeError(f"{what} decorates functions, not {function!r}")
    if inspect.isasyncgenfunction(function):
        raise TypeError(f"{what} decorates no asynchronous generators; use it as a block inside")
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generate(*args: Any, **kwargs: Any) -> Any:
            return (yield from _stepwise(block, function(*args, **kwargs)))

        return generate
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wait(*args: Any, **kwargs: Any) -> Any:
            return await _Awaited(_stepwise(block, function(*args, **kwargs)))

        return wait

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with block():
            return function(*args, **kwargs)

    return call


class _Awaited:
    """What ``await`` runs as it would run the coroutine itself."""

    def __init__(self, steps: Generator):
        self.steps = steps

    def __await__(self) -> Generator:
        return self.steps


def _stepwise(block: Callable[[], AbstractContextManager], running: Any) -> Generator:
    """Each step of a generator or coroutine in a block of its own."""
    step, given = running.send, None
    while True:
        try:
            with block():
                found = step(given)
        except StopIteration as stop:
            return stop.value
        try:
            given = yield found
            step = running.send
        except GeneratorExit:
            with block():
                running.close()
            raise
        except BaseException as error:
            step, given = running.throw, error
