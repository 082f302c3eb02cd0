"""Interpreted generators."""

from __future__ import annotations

from typing import Any

from refcompiler.interpreter.frame import UNSET, Frame
from refcompiler.interpreter.machine import native


@native
class Generator:
    """A generator whose frame the interpreter runs. ``step`` is where capture created it."""

    def __init__(self, machine: Any, frame: Frame):
        self.machine = machine
        self.frame: Frame | None = frame
        self.running = False
        self.started = False
        self.value: Any = None  # of the return statement, once finished
        self.step = getattr(machine, "steps", 0)
        self.__name__ = frame.code.co_name
        self.__qualname__ = frame.code.co_qualname
        frame.generator = self

    def __iter__(self) -> Generator:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        found = self.resume(value)
        if found is UNSET:
            raise StopIteration(self.value) if self.value is not None else StopIteration
        return found

    def resume(self, value: Any = None) -> Any:
        """Run to the next yield: what it yields, or UNSET at the end (see ``value``)."""
        if self.running:
            raise ValueError("generator already executing")
        if self.frame is None:
            self.value = None
            return UNSET
        if not self.started and value is not None:
            raise TypeError("can't send non-None value to a just-started generator")
        if self.started:
            self.frame.stack.append(value)
        return self._run()

    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> Any:
        error = kind
        if isinstance(kind, type):
            error = value if isinstance(value, BaseException) else kind(*_as_args(value))
        if traceback is not None:
            error = error.with_traceback(traceback)
        frame = self.frame
        if frame is None or not self.started:
            self.frame = None
            raise error
        delegate = frame.stack[-1] if self._delegating(frame) else None
        if delegate is not None:
            found = self._throw_into(delegate, error)
            if found is not UNSET:
                return found
            return self._run()
        return self._run(error)

    def close(self) -> None:
        if self.frame is None or not self.started:
            self.frame = None
            return
        try:
            self.throw(GeneratorExit())
        except (GeneratorExit, StopIteration):
            self.frame = None
            return
        raise RuntimeError("generator ignored GeneratorExit")

    def _delegating(self, frame: Frame) -> bool:
        """Suspended in a ``yield from``: the instruction after the yield jumps back to SEND."""
        instructions = frame.program.instructions
        index = frame.ip
        while index < len(instructions) and instructions[index].name == "RESUME":
            if instructions[index].arg not in (2, 3):
                return False
            index += 1
        return index < len(instructions) and instructions[index].name == (
            "JUMP_BACKWARD_NO_INTERRUPT"
        )

    def _throw_into(self, delegate: Any, error: BaseException) -> Any:
        """Pass ``error`` to the sub-iterator; UNSET when that ended and this one goes on."""
        frame = self.frame
        assert frame is not None
        if isinstance(error, GeneratorExit):
            close = getattr(delegate, "close", None)
            if close is not None:
                close()
        else:
            throw = getattr(delegate, "throw", None)
            if throw is not None:
                try:
                    return throw(error)
                except StopIteration as stop:
                    frame.stack[-1] = stop.value
                    index = frame.ip
                    while frame.program.instructions[index].name != "SEND":
                        index -= 1
                    frame.ip = frame.program.instructions[index].value
                    return UNSET
        return self._run(error)

    def _run(self, error: BaseException | None = None) -> Any:
        machine, frame = self.machine, self.frame
        assert frame is not None
        self.started = self.running = True
        handled = machine.exc
        machine.yielded = False
        finished = True
        try:
            if error is not None:
                saved, machine.frame = machine.frame, frame
                try:
                    machine.unwind(error)
                finally:
                    machine.frame = saved
            value = machine.run(frame)
            finished = not machine.yielded
        except StopIteration as stop:
            raise RuntimeError("generator raised StopIteration") from stop
        finally:
            machine.yielded = False
            machine.exc = handled
            self.running = False
            if finished:
                self.frame = None
        if finished:
            self.value = value
            return UNSET
        return value


def _as_args(value: Any) -> tuple:
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)
