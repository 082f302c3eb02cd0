"""The machine: the loop that runs frames, and the hooks that a domain overrides.

The hooks below are the concrete domain: plain CPython semantics on real objects. The order of
work in every handler is peek, compute, pop, so that a signal raised by a hook leaves the frame
as it was before the instruction.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from refcompiler.bytecode.decode import Program, decode
from refcompiler.errors import InternalError, UnsupportedError
from refcompiler.interpreter.binding import (
    ASYNC_GENERATOR,
    COROUTINE,
    GENERATOR,
    bind,
    raise_binding_error,
)
from refcompiler.interpreter.frame import CALLED, UNSET, Frame
from refcompiler.interpreter.tracebacks import Trace


class Signal(BaseException):
    """Leaves the interpreter; never visible to the user's ``except`` clauses."""


def _push(machine: Machine, frame: Frame, value: Any, extra: Any) -> None:
    frame.stack.append(value)


def _initialised(machine: Machine, frame: Frame, value: Any, extra: Any) -> None:
    if value is not None:
        raise TypeError(f"__init__() should return None, not '{type(value).__name__}'")
    frame.stack.append(extra)


#: What happens in the caller's frame to the value of a frame that returns.
RETURNS: dict[str, Callable[[Any, Frame, Any, Any], None]] = {
    "push": _push,
    "init": _initialised,
}

#: ids of code objects of the interpreter's own objects, which are never interpreted.
NATIVE_CODES: set[int] = set()


def native(cls: type) -> type:
    """Class decorator: the methods of ``cls`` run natively when interpreted code calls them."""
    for value in vars(cls).values():
        if isinstance(value, FunctionType):
            NATIVE_CODES.add(id(value.__code__))
    return cls


HANDLERS: dict[str, Callable[[Any, Frame, Any], None]] = {}


def op(*names: str) -> Callable:
    """Register the handler of the named opcodes."""

    def register(handler: Callable) -> Callable:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register


def program_of(code: CodeType) -> Program:
    """The decoded program with its handlers resolved."""
    program = decode(code)
    if not program.ops:
        missing = {ins.name for ins in program.instructions} - HANDLERS.keys()
        if missing:
            raise UnsupportedError(
                f"{code.co_qualname} uses {', '.join(sorted(missing))}, which the interpreter "
                f"of this release does not run on Python {sys.version_info[0]}."
                f"{sys.version_info[1]}"
            )
        program.ops = [HANDLERS[ins.name] for ins in program.instructions]
    return program


class Machine:
    """Runs frames with CPython's semantics. ``native_calls``: Python callees run natively."""

    def __init__(self, native_calls: bool = False):
        self.native_calls = native_calls
        self.frame: Frame | None = None
        self.result: Any = None
        self.yielded = False
        self.exc: BaseException | None = None  # the exception being handled
        self.depth = 0

    # ---- frames -----------------------------------------------------------------------------

    def make_frame(self, function: FunctionType, args: Sequence, kwargs: Mapping) -> Frame:
        """A frame of ``function`` with its arguments bound; TypeErrors are CPython's own."""
        code = function.__code__
        program = program_of(code)
        defaults = function.__defaults__ or ()
        first = code.co_argcount - len(defaults)
        kwdefaults = function.__kwdefaults__ or {}
        fast = bind(
            code,
            args,
            kwargs,
            lambda i: defaults[i - first] if i >= first else UNSET,
            lambda name: kwdefaults.get(name, UNSET),
            len(program.names),
        )
        if fast is None:
            raise_binding_error(function, args, kwargs)
            raise InternalError(f"arguments of {function.__qualname__} bind only natively")
        return self.enter(program, function, fast)

    def enter(self, program: Program, function: FunctionType, fast: list[Any]) -> Frame:
        frame = Frame(program, function.__globals__, _builtins_of(function), None)
        frame.fast = fast
        frame.function = function
        if function.__closure__:
            fast[len(fast) - len(function.__closure__) :] = function.__closure__
        return frame

    def run(self, frame: Frame) -> Any:
        """Run ``frame`` (and what it calls) to its end; its value, or its exception."""
        saved = self.frame
        self.frame = frame
        self.depth += 1
        try:
            self.loop()
            return self.result
        finally:
            self.depth -= 1
            self.frame = saved

    def loop(self) -> None:
        while True:
            try:
                f = self.frame
                while f is not None:
                    i = f.ip
                    f.ip = i + 1
                    f.ops[i](self, f, f.values[i])
                    f = self.frame
                return
            except Signal:
                raise
            except BaseException as exc:
                error = exc
            self.unwind(error)

    def unwind(self, error: BaseException) -> None:
        """Enter the innermost handler of ``error`` among the frames of this run, or raise it."""
        self.chain(error)
        trace = Trace.of(error)
        frame = self.frame
        while frame is not None:
            trace.passed(frame)
            handler = frame.program.handler_at(frame.ip - 1)
            if handler is not None:
                del frame.stack[handler.depth :]
                if handler.lasti:
                    frame.stack.append(frame.ip - 1)
                frame.stack.append(error)
                frame.ip = handler.target
                self.frame = frame
                return
            self.abandon(frame)
            frame = frame.back
        raise trace.finish(error)

    def abandon(self, frame: Frame) -> None:
        """``frame`` is left by an exception."""

    def chain(self, error: BaseException) -> None:
        """Set ``__context__`` as ``raise`` does, without making a cycle."""
        current = self.exc
        if current is None or current is error or error.__context__ is not None:
            return
        link: BaseException | None = current
        seen = set()
        while link is not None and id(link) not in seen:
            if link.__context__ is error:
                link.__context__ = None
                break
            seen.add(id(link))
            link = link.__context__
        error.__context__ = current

    # ---- names ------------------------------------------------------------------------------

    def load_global(self, frame: Frame, name: str) -> Any:
        try:
            return frame.globals[name]
        except KeyError:
            pass
        try:
            return frame.builtins[name]
        except KeyError:
            raise NameError(f"name '{name}' is not defined", name=name) from None

    def store_global(self, frame: Frame, name: str, value: Any) -> None:
        frame.globals[name] = value

    def delete_global(self, frame: Frame, name: str) -> None:
        try:
            del frame.globals[name]
        except KeyError:
            raise NameError(f"name '{name}' is not defined", name=name) from None

    def load_cell(self, cell: CellType) -> Any:
        """The cell's content, or UNSET."""
        try:
            return cell.cell_contents
        except ValueError:
            return UNSET

    def store_cell(self, cell: CellType, value: Any) -> None:
        if value is UNSET:
            del cell.cell_contents
        else:
            cell.cell_contents = value

    # ---- what is observed -------------------------------------------------------------------

    def own(self, value: Any) -> Any:
        """``value`` is about to enter a container, a cell, or C code."""
        return value

    def truth(self, value: Any) -> bool:
        return bool(value)

    def is_none(self, value: Any) -> bool:
        return value is None

    def same(self, a: Any, b: Any) -> bool:
        return a is b

    def getattr(self, value: Any, name: str) -> Any:
        return getattr(value, name)

    def setattr(self, value: Any, name: str, new: Any) -> None:
        setattr(value, name, new)

    def delattr(self, value: Any, name: str) -> None:
        delattr(value, name)

    def getitem(self, value: Any, key: Any) -> Any:
        return value[key]

    def setitem(self, value: Any, key: Any, new: Any) -> None:
        value[key] = new

    def delitem(self, value: Any, key: Any) -> None:
        del value[key]

    def contains(self, item: Any, container: Any) -> bool:
        return operator.contains(container, item)

    def unary(self, function: Callable, value: Any) -> Any:
        return function(value)

    def binary(self, function: Callable, a: Any, b: Any) -> Any:
        return function(a, b)

    def iter(self, value: Any) -> Any:
        return iter(value)

    def next(self, iterator: Any) -> Any:
        """The next item; UNSET at the end."""
        return next(iterator, UNSET)

    def items_of(self, value: Any) -> Iterable:
        """``value`` as something that C code may iterate."""
        return value

    def format(self, value: Any, spec: str) -> str:
        return format(value, spec)

    def convert(self, value: Any, conversion: int) -> Any:
        return (None, str, repr, ascii)[conversion](value)  # type: ignore[misc]

    def import_name(self, frame: Frame, name: str, names: Any, level: int) -> Any:
        function = frame.builtins["__import__"]
        return function(name, frame.globals, frame.mapping, names, level)

    def exc_match(self, error: BaseException, kinds: Any) -> bool:
        for kind in kinds if isinstance(kinds, tuple) else (kinds,):
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise TypeError(
                    "catching classes that do not inherit from BaseException is not allowed"
                )
        return isinstance(error, kinds)

    # ---- special methods --------------------------------------------------------------------

    def type_of(self, value: Any) -> type:
        return type(value)

    def has_special(self, value: Any, name: str) -> bool:
        return hasattr(type(value), name)

    def special(self, value: Any, name: str) -> Any:
        """The special method ``name`` of ``value``, bound; looked up on the class."""
        found = getattr(type(value), name)
        for cls in type(value).__mro__:
            if name in cls.__dict__:
                found = cls.__dict__[name]
                break
        binder = getattr(type(found), "__get__", None)
        return found if binder is None else binder(found, value, type(value))

    def invoke(self, frame: Frame, function: Any, args: Sequence) -> Any:
        """Call ``function`` to its end within this instruction."""
        if type(function) is MethodType:
            args = (function.__self__, *args)
            function = function.__func__
        if (
            type(function) is FunctionType
            and not self.native_calls
            and id(function.__code__) not in NATIVE_CODES
        ):
            found = self.call_python(frame, function, args, {})
            if found is not CALLED:
                return found
            new, self.frame = self.frame, frame
            assert new is not None
            new.back = None
            return self.run(new)
        return function(*args)

    def instantiate(self, frame: Frame, cls: type) -> Any:
        """``cls()``, for the class of an exception that is raised."""
        return cls()

    def stop_value(self, iterator: Any) -> Any:
        """The value of the StopIteration with which ``next`` ended a plain iterator."""
        return None

    # ---- calls ------------------------------------------------------------------------------

    def call(self, frame: Frame, function: Any, args: Sequence, kwargs: Mapping) -> Any:
        """Call; the value, or CALLED when a frame was pushed that will deliver it."""
        if type(function) is MethodType:
            args = (function.__self__, *args)
            function = function.__func__
        if type(function) is FunctionType and not self.native_calls:
            if id(function.__code__) not in NATIVE_CODES:
                return self.call_python(frame, function, args, kwargs)
        frame_reader = _FRAME_READERS.get(function) if _hashable(function) else None
        if frame_reader is not None:
            return frame_reader(self, frame, function, args, kwargs)
        return function(*args, **kwargs)

    def call_python(
        self, frame: Frame, function: FunctionType, args: Sequence, kwargs: Mapping
    ) -> Any:
        if function.__code__.co_flags & (COROUTINE | ASYNC_GENERATOR):
            return function(*args, **kwargs)
        new = self.make_frame(function, args, kwargs)
        if function.__code__.co_flags & GENERATOR:
            return self.make_generator(new)
        new.back = frame
        self.frame = new
        return CALLED


    def make_generator(self, frame: Frame) -> Any:
        from refcompiler.interpreter.generators import Generator

        return Generator(self, frame)


def _hashable(value: Any) -> bool:
    return type(value).__hash__ is not None and type(value).__name__ in (
        "builtin_function_or_method",
        "type",
    )


def _builtins_of(function: FunctionType) -> dict:
    builtins = function.__builtins__
    return builtins if isinstance(builtins, dict) else vars(builtins)


def frame_locals(machine: Machine, frame: Frame) -> dict[str, Any]:
    """What ``locals()`` answers in ``frame``."""
    if frame.mapping is not None:
        return frame.mapping
    found = {}
    for name, value in zip(frame.program.names, frame.fast, strict=True):
        if type(value) is CellType and name in frame.code.co_cellvars + frame.code.co_freevars:
            value = machine.load_cell(value)
        if value is not UNSET:
            found[name] = machine.own(value)
    return found


def super_of(machine: Machine, frame: Frame) -> Any:
    """The arguments of a ``super()`` without any: the ``__class__`` cell and the first local."""
    names = frame.program.names
    if frame.code.co_argcount == 0 or "__class__" not in names:
        raise RuntimeError("super(): no arguments")
    cls = machine.load_cell(frame.fast[names.index("__class__")])
    self = frame.fast[0]
    if type(self) is CellType and names[0] in frame.code.co_cellvars:
        self = machine.load_cell(self)
    return cls, self


def _super(machine: Machine, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    return super(*(args or super_of(machine, frame)))


def _locals(machine: Machine, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    return function(*args, **kwargs) if args else frame_locals(machine, frame)


def _globals(machine: Machine, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    return frame.globals


def _dir(machine: Machine, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    return function(*args, **kwargs) if args else sorted(frame_locals(machine, frame))


def _evaluate(machine: Machine, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    if len(args) == 1:
        args = (args[0], frame.globals, frame_locals(machine, frame))
    return function(*args, **kwargs)


def _exc_info(machine: Machine, frame: Frame, function: Any, args: Any, kwargs: Any) -> Any:
    error = machine.exc
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


#: Builtins that read the calling frame, which natively would be the interpreter's own.
_FRAME_READERS: dict[Any, Callable] = {
    super: _super,
    locals: _locals,
    vars: _locals,
    globals: _globals,
    dir: _dir,
    eval: _evaluate,
    exec: _evaluate,
    sys.exc_info: _exc_info,
}
