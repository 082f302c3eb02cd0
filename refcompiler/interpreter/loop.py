"""The loop that runs frames: calls, returns and exceptions between them, and nothing of values."""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

from refcompiler.bytecode.decode import Program
from refcompiler.errors import InternalError
from refcompiler.interpreter import entries, recursion
from refcompiler.interpreter.binding import raise_binding_error
from refcompiler.interpreter.failures import Failure, is_own
from refcompiler.interpreter.frame import Frame
from refcompiler.interpreter.frames import native_depth, set_run_code
from refcompiler.interpreter.registry import READY, program_of
from refcompiler.interpreter.signals import Signal
from refcompiler.interpreter.tracebacks import (
    Values,
    chain,
    chain_native,
    has_context,
    user_part,
    with_entry,
    with_final_values,
)
from refcompiler.interpreter.tracing import run_traced, trace_left, trace_raised, trace_thrown
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

_handled = sys.exception

#: What an exception that leaves a frame is for the one it returns to, by ``on_return``: that or
#: another exception, or None where the frame goes on.
LEAVES: dict[str, Callable[[Any, Frame, BaseException], BaseException | None]] = {}


class Loop:
    """Runs frames to their end. ``native_calls``: Python callees run natively."""

    shows_values = True  # the frames of tracebacks have the frames' values
    shows_failures = True  # the interpreter's own errors pass the program's handlers

    trace_function: Any = None  # what sys.settrace has set
    tracer: Any = None  # the same, but for its own frames

    #: The hooks are those of the concrete domain: see :mod:`refcompiler.interpreter.fusion`.
    fused = False
    #: Python code that C code calls is interpreted: see :mod:`refcompiler.interpreter.entries`.
    enters = False

    def __init__(self, native_calls: bool = False):
        self.native_calls = native_calls
        if native_calls:
            self.enters = False
        self.frame: Frame | None = None
        self.result: Any = None
        self.yielded = False  # the frame is suspended: ``result`` is what it yields
        self.delegates = False  # or, if this is set, what it delegates to
        self.thread = get_ident()
        self.exc: BaseException | None = None  # the exception being handled in this generator
        self.outer_excs: list[BaseException | None] = []  # and in those that resumed it
        self.exc_around = _handled()  # and by whoever called what runs here
        self.reraised: BaseException | None = None  # raised again: gets no entry and no context
        self.passing: BaseException | None = None  # left an inner run: has its context already
        self.depth = 0
        self.limit = recursion.limit()  # of interpreted frames
        self.room = 0  # nested runs for which the native stack is deep enough

    # ---- frames -----------------------------------------------------------------------------

    def make_frame(self, function: FunctionType, args: Sequence, kwargs: Mapping) -> Frame:
        """A frame of ``function`` with its arguments bound; TypeErrors are CPython's own."""
        program = READY.get(id(function.__code__)) or program_of(function.__code__)
        parameters = program.parameters
        if len(args) == parameters.exactly and not kwargs:
            return self.enter(program, function, [*args, *parameters.blank])
        fast = parameters.bind(function, args, kwargs)
        if fast is None:
            raise_binding_error(function, args, kwargs)
            raise InternalError(f"arguments of {function.__qualname__} bind only natively")
        return self.enter(program, function, fast)

    def enter(self, program: Program, function: FunctionType, fast: list[Any]) -> Frame:
        as_any: Any = function  # typeshed does not agree on this attribute
        builtins = as_any.__builtins__
        if type(builtins) is not dict and isinstance(builtins, ModuleType):
            builtins = vars(builtins)
        frame = Frame(program, function.__globals__, builtins, None, fast)
        frame.function = function
        closure = function.__closure__
        if closure:
            fast[len(fast) - len(closure) :] = closure
        return frame

    def run(self, frame: Frame, error: BaseException | None = None) -> Any:
        """Run ``frame`` (and what it calls) to its end; its value, or its exception.

        ``error`` is raised where the frame is suspended.
        """
        saved, kept = self.frame, self.result
        self.depth += 1
        outermost = self.depth == 1
        before: Any = None
        if outermost:
            self.limit = recursion.begin(self)
            before = entries.begin(self)
            frame.depth = native_depth() - 2  # without this one and its caller
        else:
            frame.depth = (self.depth if saved is None else saved.depth) + 1
        native_limit = 0
        try:
            if self.depth > self.room:
                native_limit = recursion.make_room(frame.depth)
                self.room = self.depth + recursion.LEVELS
            if frame.depth > self.limit:
                raise RecursionError("maximum recursion depth exceeded")
            self.frame = frame
            if error is not None:
                self.throw(frame, error)
                error = None  # its traceback leads here: no cycle
            self.loop()
            result, self.result = self.result, kept
            return result
        except Failure as failure:
            if not outermost:
                raise
            failed = failure.as_error()
        finally:
            self.depth -= 1
            self.frame = saved
            if native_limit:
                self.room = self.depth
                recursion.give_back(native_limit)
            if outermost:
                recursion.end(self)
                entries.end(before)
        raise failed

    def reenter(self, frame: Frame) -> Any:
        """Run ``frame`` for C code, which may call at any time, between any two steps of this."""
        kept = self.result, self.yielded, self.delegates, self.reraised, self.passing
        handled = self.exc
        self.yielded = self.delegates = False
        passing = None
        try:
            return self.run(frame)
        except BaseException as error:
            frame = None  # type: ignore[assignment]  # which may hold the error
            error.__traceback__ = user_part(error.__traceback__)
            if not has_context(error, self.handled()):
                passing = error  # without the context that it would get where C code was called
            raise
        finally:
            self.result, self.yielded, self.delegates, self.reraised, self.passing = kept
            self.exc = handled
            if passing is not None:
                self.passing, passing = passing, None

    def throw(self, frame: Frame, error: BaseException) -> None:
        """Let ``error`` be raised where ``frame`` is suspended."""
        frame.stack.append(None)  # what was sent, which handlers may count on
        self.passing = error
        try:
            if self.tracer is not None:
                trace_thrown(self, frame, error)
            self.unwind(error)
        finally:
            del error

    def loop(self) -> None:
        fused = self.fused
        while True:
            try:
                f = self.frame
                while f is not None:
                    if self.tracer is not None:
                        run_traced(self, f)
                        f = self.frame
                        continue
                    ops, values = f.program.fused.ops if fused else f.ops, f.values
                    while f is self.frame:
                        i = f.ip
                        f.ip = i + 1
                        ops[i](self, f, values[i])
                    f = self.frame
                return
            except Signal:
                raise
            except BaseException as exc:
                error = exc
            try:
                self.unwind(error)
            finally:
                del error  # its traceback leads here: no cycle

    def unwind(self, error: BaseException) -> None:
        """Enter the innermost handler of ``error`` among the frames of this run, or raise it."""
        frame = self.frame
        if self.shows_failures and is_own(error):
            raise Failure(error, repr(frame))
        shown = error is not self.reraised
        if shown and error is not self.passing:
            chain_native(error, self.handled())
        self.reraised = self.passing = None
        traceback = user_part(error.__traceback__)
        while frame is not None:
            index = frame.ip - 1
            handler = frame.program.handler_at(index)
            if shown and not frame.program.hidden:
                values = Values.FINAL if handler is None else Values.LIVE
                traceback = with_entry(
                    frame, traceback, values if self.shows_values else Values.NONE
                )
                if self.tracer is not None:
                    trace_raised(self, frame, error, traceback)
            elif not shown:
                reraise = frame.program.instructions[index]
                if reraise.name == "RERAISE" and reraise.arg:  # it stands where it first raised
                    index = frame.stack[-1 - reraise.arg]
                if handler is None and self.shows_values:
                    traceback = with_final_values(frame, index, traceback)
            shown = True
            if handler is not None:
                error.__traceback__ = traceback
                del frame.stack[handler.depth :]
                if handler.lasti:
                    frame.stack.append(index)
                frame.stack.append(error)
                frame.ip = handler.target
                frame.kwnames = ()
                self.frame = frame
                return
            if self.tracer is not None:
                trace_left(self, frame, index)
            self.abandon(frame)
            if frame.on_return in LEAVES:
                error.__traceback__ = traceback
                found = LEAVES[frame.on_return](self, frame, error)
                if found is None:
                    return
                if found is not error:
                    error, traceback = found, None
            frame = frame.back
        error.__traceback__ = traceback
        self.passing = error
        context = error.__context__
        try:
            raise error
        finally:
            error.__context__ = context  # native code around this may handle something itself
            del error, traceback, context

    def abandon(self, frame: Frame) -> None:
        """``frame`` is left by an exception."""

    def handled(self) -> BaseException | None:
        """The exception that is handled: here, where this generator was resumed, or around."""
        if self.exc is not None:
            return self.exc
        for exc in reversed(self.outer_excs):
            if exc is not None:
                return exc
        return self.exc_around

    def chain(self, error: BaseException) -> None:
        """Set ``__context__`` as ``raise`` does, without making a cycle."""
        chain(error, self.handled())

    def push(self, frame: Frame, new: Frame) -> None:
        """Let ``new`` run next, and return to ``frame``."""
        new.depth = frame.depth + 1
        if new.depth > self.limit:
            raise RecursionError("maximum recursion depth exceeded")
        new.back = frame
        self.frame = new

    def module_frame(self, code: CodeType, globals_: dict, locals_: Any) -> Frame:
        """A frame of module-level code, whose names live in ``locals_``."""
        builtins = globals_["__builtins__"]
        frame = Frame(
            program_of(code),
            globals_,
            vars(builtins) if isinstance(builtins, ModuleType) else builtins,
            None,
        )
        frame.mapping = locals_
        return frame


set_run_code(Loop.run.__code__)
