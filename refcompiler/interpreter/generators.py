"""Generators, coroutines and asynchronous generators whose bodies the interpreter runs.

They are CPython's own objects. Their native body, the driver, runs the interpreted frame from one
suspension to the next, and does natively what that suspension stands for: it yields, or it
delegates (``yield from``, ``await``). So everything that belongs to the object and not to the body
is CPython's: ``send``, ``throw``, ``close``, the checks of its state, delegation in C, finalisation
and its hooks, the warning of what was never awaited, and what type tests and C code expect.

A driver's code object bears the name, file and first line of the user's, so that a frame or code
object that native code takes from a generator shows the right place; interpreted code gets the
user's own (see :mod:`refcompiler.interpreter.introspection`).
"""

# ruff: noqa: E722 (a driver runs in the user's namespace, where any name may mean anything)

from __future__ import annotations

import dis
import sys
from _thread import get_ident
from collections.abc import AsyncGenerator, Generator, Iterable
from types import CodeType, FunctionType
from typing import Any

from refcompiler.bytecode.decode import Program
from refcompiler.interpreter.binding import ASYNC_GENERATOR, COROUTINE, ITERABLE_COROUTINE
from refcompiler.interpreter.callers import call_below
from refcompiler.interpreter.frame import Frame
from refcompiler.interpreter.handling import Links, links_of, restore
from refcompiler.interpreter.signals import Signal
from refcompiler.interpreter.tracebacks import DRIVERS, chain, user_part
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

_handled = sys.exception


class Activation:
    """What a driver drives. ``step`` is where capture created it.

    After :meth:`resume` either the frame has returned, or it is suspended in a yield or, with
    ``delegates``, in a delegation; :meth:`take` gives what it returned, yields or delegates to.
    """

    __slots__ = ("machine", "frame", "value", "sent", "error", "delegates", "exc", "kept", "step")

    def __init__(self, machine: Any, frame: Frame):
        self.machine = machine
        self.frame: Frame | None = frame
        self.value: Any = None
        self.sent: Any = None
        self.error: BaseException | None = None  # to be raised where it is suspended
        self.delegates = False
        self.exc: BaseException | None = None  # what it was handling when it was suspended
        self.kept: Links | None = None  # what handling that natively must not change
        self.step = getattr(machine, "steps", 0)

    def resume(self) -> bool:
        """Run on; whether the frame is suspended again."""
        frame, machine = self.frame, self.machine
        delegated, self.delegates = self.delegates, False
        if frame is None:  # discarded
            if isinstance(self.error, GeneratorExit):  # which an asynchronous one must not end
                raise self.error
            return False
        if machine.thread != get_ident():
            machine = machine.in_this_thread()
        saved = machine.exc
        outer = _handled()
        machine.outer_excs.append(saved if outer is None else outer)
        machine.exc = self.exc
        suspended = False
        try:
            if self.error is not None:
                if not delegated:  # there the driver handled ``exc``, so CPython itself saw to it
                    chain(self.error, self.exc)
                self.value = machine.run(frame, self.thrown())
            else:
                if frame.ip:
                    frame.stack.append(self.sent)
                    self.sent = None
                self.value = machine.run(frame)
            suspended = machine.yielded
        except GeneratorExit:
            machine.passing = None  # mostly nobody else will see it
            raise
        finally:
            machine.yielded = False
            machine.outer_excs.pop()
            if suspended:
                self.exc = machine.exc
                if machine.delegates:
                    machine.delegates = False
                    self.delegates = True
            else:
                self.exc = self.frame = None
            machine.exc = saved
        return suspended

    def thrown(self) -> BaseException | None:
        found, self.error = self.error, None
        return found

    def take(self) -> Any:
        found, self.value = self.value, None
        return found

    def catch(self) -> None:
        """What was thrown into the generator or came out of its delegate goes to the frame."""
        error = _handled()
        assert error is not None
        if isinstance(error, Signal):  # not the program's: nothing of it may catch that
            raise error
        error.__traceback__ = user_part(error.__traceback__)
        self.error = error

    def handle(self) -> None:
        """Raise what the frame handles, for the driver to handle it natively in a delegation.

        There CPython gives it as context to what is thrown in or raised below, but not to what only
        passes. :meth:`handles` follows, and undoes what raising it again changes.
        """
        error = self.exc
        assert error is not None
        self.kept = links_of(error)
        raise error

    def handles(self) -> None:
        kept, self.kept = self.kept, None
        assert kept is not None
        restore(kept)

    def clean(self) -> None:
        """An error leaves the generator: its traceback is the user's alone."""
        error = _handled()
        assert error is not None
        error.__traceback__ = user_part(error.__traceback__)

    def discard(self) -> None:
        """The frame will not be run again: the generator ends when it is resumed or closed."""
        self.frame = None


def activation_of(driver: Any) -> Activation:
    """What the driver whose frame object is given drives."""
    return driver.f_locals[_HIDDEN]


def is_driver(frame: Any) -> bool:
    return id(frame.f_code) in DRIVERS


# ---- drivers ---------------------------------------------------------------------------------


def _generator(run: Activation) -> Generator:
    try:
        while run.resume():
            try:
                if not run.delegates:
                    run.sent = yield run.take()
                elif run.exc is None:
                    run.sent = yield from run.take()
                else:
                    try:
                        run.handle()
                    except:
                        run.handles()
                        run.sent = yield from run.take()
            except:
                run.catch()
        return run.take()
    except:
        run.clean()
        raise


async def _coroutine(run: Activation) -> Any:
    try:
        while run.resume():
            try:
                if run.exc is None:
                    run.sent = await run.take()
                else:
                    try:
                        run.handle()
                    except:
                        run.handles()
                        run.sent = await run.take()
            except:
                run.catch()
        return run.take()
    except:
        run.clean()
        raise


async def _async_generator(run: Activation) -> AsyncGenerator:
    try:
        while run.resume():
            try:
                if not run.delegates:
                    run.sent = yield run.take()
                elif run.exc is None:
                    run.sent = await run.take()
                else:
                    try:
                        run.handle()
                    except:
                        run.handles()
                        run.sent = await run.take()
            except:
                run.catch()
    except:
        run.clean()
        raise


_HIDDEN = ".0"  # named as the hidden parameter of a generator expression
#: The interpreter hands over iterators: what turns objects into them has been done.
_DONE_BEFORE = (dis.opmap["GET_YIELD_FROM_ITER"], dis.opmap["GET_AWAITABLE"])


def _template(function: Any) -> CodeType:
    code: CodeType = function.__code__
    body = bytearray(code.co_code)
    for i in range(0, len(body), 2):
        if body[i] in _DONE_BEFORE:
            body[i : i + 2] = dis.opmap["NOP"], 0
    lines = bytearray()
    for i in range(0, len(body) // 2, 8):  # all of it is the first line, without columns
        lines += bytes((0x80 | 13 << 3 | min(8, len(body) // 2 - i) - 1, 0))
    return code.replace(co_code=bytes(body), co_varnames=(_HIDDEN,), co_linetable=bytes(lines))


_TEMPLATES: dict[int, CodeType] = {
    0: _template(_generator),
    COROUTINE: _template(_coroutine),
    ASYNC_GENERATOR: _template(_async_generator),
}


def _driver(program: Program) -> CodeType:
    """The driver of the generators of ``program``."""
    code = program.code
    template = _TEMPLATES[code.co_flags & (COROUTINE | ASYNC_GENERATOR)]
    made = template.replace(
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_filename=code.co_filename,
        co_firstlineno=code.co_firstlineno,
        co_flags=template.co_flags | code.co_flags & ITERABLE_COROUTINE,
    )
    DRIVERS[id(made)] = code
    return made


def make_generator(activation: Activation, views: Iterable[Any] = ()) -> Any:
    """The generator, coroutine or asynchronous generator that runs the activation's frame.

    ``views`` are the frames that it says it was made in (``cr_origin``), innermost first.
    """
    frame = activation.frame
    assert frame is not None
    program = frame.program
    if program.driver is None:
        program.driver = _driver(program)
    made = call_below(views, FunctionType(program.driver, frame.globals), activation)
    function = frame.function
    if function is not None:
        made.__name__ = function.__name__
        made.__qualname__ = function.__qualname__
    return made
