"""Interpreted generators."""

from __future__ import annotations

from types import CodeType, GeneratorType, TracebackType
from typing import Any

from refcompiler.bytecode.forms import UNARY_INTRINSICS
from refcompiler.interpreter.frame import UNSET, Frame
from refcompiler.interpreter.introspection import FrameView
from refcompiler.interpreter.registry import native
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS


@native
class Generator:
    """A generator whose frame the interpreter runs. ``step`` is where capture created it."""

    def __init__(self, machine: Any, frame: Frame):
        self.machine = machine
        self.frame: Frame | None = frame
        self.running = False
        self.started = False
        self.value: Any = None  # of the return statement, once finished
        self.exc: BaseException | None = None  # what it was handling when it was suspended
        self.step = getattr(machine, "steps", 0)
        self.gi_code: CodeType = frame.code
        function = frame.function
        self.__name__ = frame.code.co_name if function is None else function.__name__
        self.__qualname__ = frame.code.co_qualname if function is None else function.__qualname__

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """``isinstance(generator, types.GeneratorType)`` holds; ``type`` tells the truth."""
        return GeneratorType

    def __repr__(self) -> str:
        return f"<generator object {self.__qualname__} at {id(self):#x}>"

    def __iter__(self) -> Generator:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def __del__(self) -> None:
        """A generator that is dropped in the middle of a ``try`` or ``with`` leaves it."""
        frame = self.frame
        if frame is not None and self.started and not self.running:
            if frame.program.handler_at(frame.ip - 1) is not None:
                self.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("cannot pickle 'generator' object")

    # ---- what inspect reads ------------------------------------------------------------------

    @property
    def gi_running(self) -> bool:
        return self.running

    @property
    def gi_suspended(self) -> bool:
        return self.started and not self.running and self.frame is not None

    @property
    def gi_frame(self) -> FrameView | None:
        return None if self.frame is None else FrameView(self.machine, self.frame, None)

    @property
    def gi_yieldfrom(self) -> Any:
        return self._delegate()

    # ---- running -----------------------------------------------------------------------------

    def send(self, value: Any) -> Any:
        found = self.resume(value)
        if found is UNSET:
            raise StopIteration if self.value is None else StopIteration(self.value)
        return found

    def resume(self, value: Any = None) -> Any:
        """Run to the next yield: what it yields, or UNSET at the end (see ``value``)."""
        self._check_idle()
        frame = self.frame
        if frame is None:
            self.value = None
            return UNSET
        if self.started:
            frame.stack.append(value)
        elif value is not None:
            raise TypeError("can't send non-None value to a just-started generator")
        return self._run()

    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> Any:
        error = _thrown(kind, value, traceback)
        if self.running:
            raise ValueError("generator already executing")
        found = self._throw(error)
        if found is UNSET:
            raise StopIteration if self.value is None else StopIteration(self.value)
        return found

    def _throw(self, error: BaseException) -> Any:
        if self.frame is None:
            raise error
        delegate = self._delegate()
        if delegate is None:
            return self._run(error)
        return self._throw_into(delegate, error)

    def close(self) -> None:
        self._check_idle()
        if self.frame is None:
            return
        if not self.started:
            self.frame = None
            return
        try:
            found = self._throw(GeneratorExit())
        except (GeneratorExit, StopIteration) as done:
            done.__traceback__ = self.machine.passing = None  # nobody else will see it
            return
        if found is not UNSET:
            raise RuntimeError("generator ignored GeneratorExit")

    def _check_idle(self) -> None:
        if self.running:
            raise ValueError("generator already executing")

    def _delegate(self) -> Any:
        """The iterator of the ``yield from`` it is suspended in, or None.

        There the instruction after the yield jumps back to SEND.
        """
        frame = self.frame
        if frame is None or not self.started or self.running:
            return None
        instructions = frame.program.instructions
        after = instructions[frame.ip]
        if after.name == "RESUME" and after.arg & 3 == 2:
            return frame.stack[-1]
        return None

    def _throw_into(self, delegate: Any, error: BaseException) -> Any:
        """Pass ``error`` to the sub-iterator; when that ends, go on with its value."""
        frame = self.frame
        assert frame is not None
        own: BaseException = error
        machine = self.machine
        saved, machine.frame = machine.frame, frame  # a delegate sees it on the stack
        frame.back = saved
        try:
            self.running = True
            if isinstance(error, GeneratorExit):
                close = getattr(delegate, "close", None)
                if close is not None:
                    close()
            else:
                throw = getattr(delegate, "throw", None)
                if throw is not None:
                    return throw(error)
        except StopIteration as stop:
            if not isinstance(error, GeneratorExit):
                machine.frame, frame.back = saved, None
                return self._finish_delegation(frame, stop.value)
            own = stop
        except BaseException as raised:
            own = raised
        finally:
            self.running = False
            machine.frame, frame.back = saved, None
        return self._run(own)

    def _finish_delegation(self, frame: Frame, value: Any) -> Any:
        index = frame.ip
        while frame.program.instructions[index].name != "SEND":
            index -= 1
        frame.stack[-1] = value
        frame.ip = frame.program.instructions[index].value
        self.running = False
        return self._run()

    def _run(self, error: BaseException | None = None) -> Any:
        """Run to the next yield or the end; ``error`` is raised where it is suspended."""
        machine, frame = self.machine, self.frame
        assert frame is not None
        self.started = self.running = True
        frame.generator = self  # only while it runs: a suspended one is freed when it is dropped
        machine.outer_excs.append(machine.exc)
        machine.exc = self.exc
        machine.yielded = False
        finished = True
        stopped = None
        try:
            if error is not None:
                self._raise_inside(frame, error)
            value = machine.run(frame)
            finished = not machine.yielded
        except StopIteration as stop:
            if STOPS_BY_ITSELF:
                raise
            stopped = stop
        finally:
            machine.yielded = False
            self.exc = None if finished else machine.exc
            machine.exc = machine.outer_excs.pop()
            self.running = False
            frame.generator = None
            if finished:
                self.frame = None
        if stopped is not None:
            machine.passing = None
            raise _stop_iteration_raised(stopped)
        if finished:
            self.value = value
            return UNSET
        return value

    def _raise_inside(self, frame: Frame, error: BaseException) -> None:
        machine = self.machine
        if frame.ip == 0:  # not started: the traceback shows where it would have begun
            while frame.program.instructions[frame.ip].name != "RETURN_GENERATOR":
                frame.ip += 1
            frame.ip += 1
        else:
            frame.stack.append(None)  # what was sent, which handlers may count on
        if machine.exc is not None:
            machine.chain(error)
        saved, machine.frame = machine.frame, frame
        machine.passing = error
        try:
            machine.unwind(error)
        finally:
            machine.frame = saved


#: From 3.12 on a generator's bytecode turns a StopIteration into a RuntimeError.
STOPS_BY_ITSELF = "INTRINSIC_STOPITERATION_ERROR" in UNARY_INTRINSICS

Generator.__name__ = "generator"  # what error messages show


def _stop_iteration_raised(stop: StopIteration) -> RuntimeError:
    error = RuntimeError("generator raised StopIteration")
    error.__cause__ = error.__context__ = stop
    return error


def _thrown(kind: Any, value: Any, traceback: Any) -> BaseException:
    """The exception that the arguments of ``throw`` stand for (CPython's ``_gen_throw``)."""
    if traceback is not None and not isinstance(traceback, TracebackType):
        raise TypeError("throw() third argument must be a traceback object")
    if isinstance(kind, type) and issubclass(kind, BaseException):
        if isinstance(value, kind):
            error = value
        elif value is None:
            error = kind()
        else:
            error = kind(*value) if isinstance(value, tuple) else kind(value)
        if not isinstance(error, BaseException):
            error = TypeError(
                f"calling {kind!r} should have returned an instance of BaseException, "
                f"not {type(error).__name__}"
            )
    elif isinstance(kind, BaseException):
        if value is not None:
            raise TypeError("instance exception may not have a separate value")
        error = kind
    else:
        raise TypeError(
            "exceptions must be classes or instances deriving from BaseException, "
            f"not {type(kind).__name__}"
        )
    return error if traceback is None else error.with_traceback(traceback)
