"""Generators and coroutines that go on where another one, or a snapshot of one, stood.

CPython cannot make a suspended generator. A new driver is brought to the place instead: its first
resumption does nothing but suspend it, in a yield or in a delegation to a :class:`Switch`, which
can also take it out of there again. What its frame is then to do is replaced at will.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import AsyncGeneratorType, CodeType, CoroutineType, GeneratorType
from typing import Any

from refcompiler.interpreter.binding import ASYNC_GENERATOR, COROUTINE
from refcompiler.interpreter.driven import (
    advance,
    delegate_of,
    driven_by,
    is_driven,
    is_running,
)
from refcompiler.interpreter.frame import NULL, UNSET, Frame
from refcompiler.interpreter.generators import Activation, make_generator
from refcompiler.interpreter.machine import Machine
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS


def executing(code: CodeType) -> ValueError:
    """What CPython says where a frame is resumed that runs already."""
    kind = "coroutine" if code.co_flags & COROUTINE else "generator"
    if code.co_flags & ASYNC_GENERATOR:
        kind = "async generator"
    return ValueError(f"{kind} already executing")


class Switch:
    """What a generator delegates to: ``inner``, once the generator has been brought here."""

    __slots__ = ("inner", "entering", "leaving")

    def __init__(self, inner: Any):
        self.inner = inner
        self.entering = True
        self.leaving = False

    def __iter__(self) -> Switch:
        return self

    def __next__(self) -> Any:
        if self.entering:
            self.entering = False
            return None
        if self.leaving:
            raise StopIteration
        return next(self.inner) if hasattr(self.inner, "__next__") else self.inner.send(None)

    def send(self, value: Any) -> Any:
        return next(self) if value is None else self.inner.send(value)

    def throw(self, *error: Any) -> Any:
        throw = getattr(self.inner, "throw", None)
        if throw is not None:
            return throw(*error)
        raise error[0] if isinstance(error[0], BaseException) else error[0](*error[1:2])

    def close(self) -> None:
        close = getattr(self.inner, "close", None)
        if close is not None:
            close()


class Continued(Activation):
    """``runs`` counts how often the frame was resumed; ``running``: it is on a stack of frames."""

    __slots__ = ("moving", "runs", "running", "host", "unawaited")

    def __init__(self, machine: Any, frame: Frame):
        super().__init__(machine, frame)
        self.moving = False
        self.runs = 0
        self.running = False
        self.unawaited: Any = None  # a coroutine that is kept until something awaits it
        #: What goes on below the driver's frame while the generator's frame is on a stack.
        self.host: Callable[[], None] | None = None

    def resume(self) -> bool:
        if self.moving:
            self.moving = False
            return True
        if self.host is not None:
            host, self.host = self.host, None
            self.exc, self.value, self.delegates = None, None, False
            host()
            if self.running:  # an exception has left everything
                self.discard()
            return self.frame is not None
        if self.running and self.frame is not None:
            raise executing(self.frame.program.code)
        self.runs += 1
        self.begin()
        return super().resume()

    def begin(self) -> None:
        """Its frame is resumed."""
        self.unawaited = None


class _Native(Machine):
    """The concrete domain; Python that the bodies of generators call runs natively."""

    fused = False

    def __init__(self) -> None:
        super().__init__(native_calls=True)

    def delegate(self, iterator: Any) -> Any:
        switch = Switch(iterator)
        switch.entering = False
        return switch


def continued(
    machine: Any, frame: Frame, handled: BaseException | None, delegate: Any, names: tuple[str, str]
) -> Any:
    """One that goes on with ``frame``; ``delegate`` is UNSET unless it delegates."""
    activation = Continued(machine, frame)
    made = make_generator(activation)
    made.__name__, made.__qualname__ = names
    if frame.ip:
        move(made, activation, handled, delegate)
    return made


def generator_of(layout: Any, name: str, qualname: str) -> Any:
    """A generator or coroutine for a frame of ``layout``, which :func:`replace` completes."""
    activation = Continued(_Native(), layout.frames_of([None] * layout.size))
    made = make_generator(activation)
    made.__name__, made.__qualname__ = name, qualname
    return made


def ended(kind: type, name: str, qualname: str) -> Any:
    """A generator or coroutine whose body has ended."""
    made: Any = _ENDED[kind]()
    if kind is AsyncGeneratorType:
        with contextlib.suppress(StopIteration):
            made.aclose().send(None)
    else:
        made.close()
    made.__name__, made.__qualname__ = name, qualname
    return made


def _generator() -> Any:
    yield


async def _coroutine() -> None:
    pass


async def _async_generator() -> Any:
    yield


_ENDED: dict[type, Callable[[], Any]] = {
    GeneratorType: _generator,
    CoroutineType: _coroutine,
    AsyncGeneratorType: _async_generator,
}


def move(
    generator: Any, activation: Continued, handled: BaseException | None, delegate: Any
) -> None:
    """Suspend ``generator`` in a yield, or in a delegation to ``delegate``."""
    leave_delegation(generator)
    activation.exc = handled
    activation.moving = True
    activation.delegates = delegate is not UNSET
    activation.value = None
    if activation.delegates:
        activation.value = Switch(delegate)
    if is_running(generator):  # it is suspended when what it hosts returns
        activation.moving = False
    else:
        advance(generator)


def replace(
    generator: Any, layout: Any, values: Any, handled: BaseException | None, delegate: Any
) -> None:
    """Let ``generator`` go on with another frame."""
    activation = driven_by(generator)
    assert type(activation) is Continued
    activation.frame = frame = layout.frames_of(values)
    activation.running = False
    if frame.ip:
        move(generator, activation, handled, delegate)


def finish(generator: Any) -> None:
    """The generator's frame has ended elsewhere: so does the generator."""
    activation = driven_by(generator)
    activation.discard()  # so that what follows ends the driver
    if not is_running(generator):
        leave_delegation(generator)
        advance(generator)


def leave_delegation(generator: Any) -> None:
    """The next resumption of ``generator`` goes on behind the delegation that it is in."""
    switch = delegate_of(generator)
    if type(switch) is Switch:
        switch.leaving = True


def continues(value: Any) -> Continued | None:
    """What drives ``value``, if that is a generator which can be continued elsewhere."""
    if not is_driven(value) or is_running(value):
        return None
    activation = driven_by(value)
    if type(activation) is not Continued or activation.delegates != (
        type(delegate_of(value)) is Switch
    ):
        return None
    return activation


def suspension(value: Any) -> tuple | None:
    """Where a generator that can be continued stands: what a capture of it depends on."""
    activation = continues(value)
    if activation is None:
        return None
    frame = activation.frame
    assert frame is not None
    return (
        id(frame.program),
        id(frame.globals),
        frame.ip,
        tuple([item is NULL for item in frame.stack]),
        tuple([i for i, item in enumerate(frame.fast) if item is not UNSET]),
        activation.delegates,
        activation.exc is None,
    )
