"""The machine: what instructions mean for values, as hooks that a domain overrides.

The hooks below are the concrete domain: plain CPython semantics on real objects. The order of
work in every handler is peek, compute, pop, so that a signal raised by a hook leaves the frame
as it was before the instruction.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import (
    BuiltinFunctionType,
    CellType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    MethodType,
)
from typing import Any

from refcompiler.interpreter.binding import COROUTINE, SUSPENDS
from refcompiler.interpreter.callers import add_caller
from refcompiler.interpreter.classes import finish_class
from refcompiler.interpreter.entries import KNOWN, SILENT, meet, meet_argument, meet_class, met
from refcompiler.interpreter.frame import CALLED, UNSET, Frame
from refcompiler.interpreter.frames import innermost
from refcompiler.interpreter.fusion import HOOKS, prepare
from refcompiler.interpreter.generators import Activation, make_generator
from refcompiler.interpreter.introspection import FRAME_READERS
from refcompiler.interpreter.loop import LEAVES, Loop
from refcompiler.interpreter.registry import (
    HANDLERS,
    NATIVE_CODES,
    ORIGINAL,
    READY,
    forget_if_dead,
    original_of,
)
from refcompiler.interpreter.tracebacks import user_part
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS


def _itself(value: Any) -> Any:
    return value


def _push(machine: Machine, frame: Frame, value: Any, extra: Any) -> None:
    frame.stack.append(value)


def _initialised(machine: Machine, frame: Frame, value: Any, extra: Any) -> None:
    value = machine.own(value)
    if value is not None:
        raise TypeError(f"__init__() should return None, not '{type(value).__name__}'")
    frame.stack.append(extra)


def _executed(machine: Machine, frame: Frame, value: Any, extra: Any) -> None:
    frame.stack.append(None)


def _evaluated_once(machine: Machine, frame: Frame, value: Any, extra: Any) -> None:
    forget_if_dead(extra[0], 1)
    frame.stack.append(value)


def _executed_once(machine: Machine, frame: Frame, value: Any, extra: Any) -> None:
    forget_if_dead(extra[0], 1)
    frame.stack.append(None)


#: What happens in the caller's frame to the value of a frame that returns.
RETURNS: dict[str, Callable[[Any, Frame, Any, Any], None]] = {
    "push": _push,
    "init": _initialised,
    "exec": _executed,
    "eval once": _evaluated_once,  # of code that mostly is gone after that
    "exec once": _executed_once,
    "class": finish_class,
}


def _left_once(machine: Machine, frame: Frame, error: BaseException) -> BaseException:
    forget_if_dead(frame.extra[0], 1)
    return error


LEAVES.update(dict.fromkeys(("eval once", "exec once"), _left_once))


class Machine(Loop):
    """CPython's semantics. ``native_calls``: Python callees run natively."""

    fused = True
    enters = True

    def __init__(self, native_calls: bool = False):
        super().__init__(native_calls)
        if native_calls:
            self.fused = False  # it runs single frames, and not often
        elif self.fused:
            prepare(HANDLERS.values())

    def __init_subclass__(cls) -> None:
        """Another domain runs handler by handler."""
        super().__init_subclass__()
        hooks = {name for name in vars(Machine) if not name.startswith("__")} - {"fused"}
        cls.fused = cls.fused and not hooks & vars(cls).keys()

    # ---- names ------------------------------------------------------------------------------

    def load_global(self, frame: Frame, name: str) -> Any:
        return frame.globals[name] if name in frame.globals else self.load_builtin(frame, name)

    def load_builtin(self, frame: Frame, name: str) -> Any:
        if type(frame.globals) is not dict:  # of a class that may know what it does not have
            try:
                return frame.globals[name]
            except KeyError:
                pass
        try:
            return frame.builtins[name]
        except KeyError:
            pass
        raise NameError(f"name '{name}' is not defined", name=name)

    def store_global(self, frame: Frame, name: str, value: Any) -> None:
        frame.globals[name] = value

    def delete_global(self, frame: Frame, name: str) -> None:
        if name not in frame.globals:
            raise NameError(f"name '{name}' is not defined", name=name)
        del frame.globals[name]

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

    def awaited(self, value: Any, name: str) -> Any:
        """``value`` is about to be asked by its method ``name`` for what is awaited."""
        return value

    def append(self, target: Any, value: Any) -> None:
        target.append(value)

    def mapping(self, value: Any) -> Any:
        """``value`` is about to be merged into a dict."""
        if id(type(value)) not in KNOWN:
            meet(value)
        return value

    def keywords(self, named: Any) -> dict[str, Any]:
        """What stands behind ``**`` in a call; the callee complains of keys that are no strings."""
        return dict(named)

    def key(self, value: Any) -> Any:
        """``value`` is about to be hashed."""
        return value if id(type(value)) in KNOWN else met(_itself, value)

    def length(self, value: Any) -> int:
        return met(len, value)

    def truth(self, value: Any) -> bool:
        return (
            value
            if value is True or value is False
            else bool(value)
            if id(type(value)) in KNOWN
            else met(bool, value)
        )

    def is_none(self, value: Any) -> bool:
        return value is None

    def same(self, a: Any, b: Any) -> bool:
        return a is b

    def getattr(self, value: Any, name: str) -> Any:
        return getattr(value, name) if id(type(value)) in KNOWN else met(getattr, value, name)

    def setattr(self, value: Any, name: str, new: Any) -> None:
        if id(type(value)) in KNOWN and id(type(new)) in KNOWN:
            setattr(value, name, new)
        else:
            met_changed(value, name, new)

    def delattr(self, value: Any, name: str) -> None:
        met(delattr, value, name)

    def getitem(self, value: Any, key: Any) -> Any:
        return (
            value[key]
            if id(type(value)) in KNOWN and (type(key) is int or id(type(key)) in KNOWN)
            else met(operator.getitem, value, key)
        )

    def setitem(self, value: Any, key: Any, new: Any) -> None:
        if id(type(value)) in KNOWN and (type(key) is int or id(type(key)) in KNOWN):
            value[key] = new
        else:
            met(operator.setitem, value, key, new)

    def delitem(self, value: Any, key: Any) -> None:
        met(operator.delitem, value, key)

    def contains(self, item: Any, container: Any) -> bool:
        return (
            item in container
            if id(type(item)) in KNOWN and id(type(container)) in KNOWN
            else met(operator.contains, container, item)
        )

    def unary(self, function: Callable, value: Any) -> Any:
        return function(value) if id(type(value)) in KNOWN else met(function, value)

    def binary(self, function: Callable, a: Any, b: Any) -> Any:
        return (
            function(a, b)
            if (type(a) is int or id(type(a)) in KNOWN) and (type(b) is int or id(type(b)) in KNOWN)
            else met(function, a, b)
        )

    def iter(self, value: Any) -> Any:
        return iter(value) if id(type(value)) in KNOWN else met(iter, value)

    def next(self, iterator: Any) -> Any:
        """The next item; UNSET at the end."""
        return next(iterator, UNSET)

    def items_of(self, value: Any) -> Iterable:
        """``value`` as something that C code may iterate."""
        if id(type(value)) not in SILENT:
            meet_argument(value)
        return value

    def format(self, value: Any, spec: str) -> str:
        return format(value, spec) if id(type(value)) in KNOWN else met(format, value, spec)

    def convert(self, value: Any, conversion: int) -> Any:
        return met((None, str, repr, ascii)[conversion], value)  # type: ignore[arg-type]

    def import_name(self, frame: Frame, name: str, names: Any, level: int) -> Any:
        function = frame.builtins.get("__import__")
        if function is None:
            raise ImportError("__import__ not found")
        given = name, frame.globals, frame.mapping, names, level
        return self.natively(frame, function, given, {})

    def exc_match(self, error: BaseException, kinds: Any) -> bool:
        kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise TypeError(
                    "catching classes that do not inherit from BaseException is not allowed"
                )
        return any(kind in type(error).__mro__ for kind in kinds)  # no metaclass is asked

    # ---- special methods --------------------------------------------------------------------

    def type_of(self, value: Any) -> type:
        return type(value)

    def has_special(self, value: Any, name: str) -> bool:
        if id(type(value)) not in KNOWN:
            meet(value)
        return lookup_special(type(value), name, UNSET) is not UNSET

    def special(self, value: Any, name: str) -> Any:
        """The special method ``name`` of ``value``, bound; looked up on the class."""
        found = lookup_special(type(value), name)
        binder = getattr(type(found), "__get__", None)
        return found if binder is None else binder(found, value, type(value))

    def invoke(self, frame: Any, function: Any, args: Sequence, kwargs: Mapping = {}) -> Any:
        """Call ``function`` to its end within this instruction."""
        if type(function) is MethodType:
            args = (function.__self__, *args)
            function = function.__func__
        if (
            type(function) is FunctionType
            and not self.native_calls
            and id(function.__code__) not in NATIVE_CODES
        ):
            found = self.call_python(frame, function, args, kwargs)
            if found is not CALLED:
                return found
            new, self.frame = self.frame, frame
            assert new is not None
            new.back = None
            return self.run(new)
        return self.natively(frame, function, args, kwargs)

    def raising(self, error: BaseException) -> BaseException:
        """``error`` is about to be raised."""
        return error

    def instantiate(self, frame: Frame, cls: type) -> Any:
        """``cls()``, for the class of an exception that is raised."""
        return self.natively(frame, cls, (), {})

    def delegate(self, iterator: Any) -> Any:
        """The iterator of ``yield from`` or ``await`` as something that native code may drive."""
        return iterator

    # ---- calls ------------------------------------------------------------------------------

    def call(self, frame: Frame, function: Any, args: Sequence, kwargs: Mapping) -> Any:
        """Call; the value, or CALLED when a frame was pushed that will deliver it."""
        kind = type(function)
        if kind is MethodType:
            args = [function.__self__, *args]
            function = function.__func__
            kind = type(function)
        if kind is FunctionType:
            if self.native_calls:
                return self.natively(frame, function, args, kwargs)
            program = READY.get(id(function.__code__))
            if program is not None and not program.parameters.suspends:  # the usual case, sooner
                self.push(frame, self.make_frame(function, args, kwargs))
                return CALLED
            if id(function.__code__) in NATIVE_CODES:
                return self.natively(frame, function, args, kwargs)
            return self.call_python(frame, function, args, kwargs)
        reader = FRAME_READERS.get(id(function))
        if reader is not None:
            meet_argument(tuple(args))
            return reader(self, frame, function, args, kwargs)
        if kind is BuiltinFunctionType and id(type(function.__self__)) in _BOUND:
            return _BOUND[id(type(function.__self__))](self, frame, function, args, kwargs)
        if kind is BuiltinFunctionType or self.native_calls:  # as in natively
            for value in args:
                if id(type(value)) not in SILENT:
                    meet_argument(value)
            if kwargs:
                for value in kwargs.values():
                    meet_argument(value)
            caller = frame.program.callers[frame.ip]
            if caller.__globals__ is not frame.globals:
                caller = add_caller(frame)
            return caller(function, args, kwargs)
        if kind is partial:
            args = (*function.args, *args)
            return self.call(frame, function.func, args, {**function.keywords, **kwargs})
        if kind is type:
            return self.call_class(frame, function, args, kwargs)
        found = lookup_special(kind, "__call__")
        if found is _TYPE_CALL:  # a metaclass that does not change what calling a class means
            return self.call_class(frame, function, args, kwargs)
        if type(found) is FunctionType and id(found.__code__) not in NATIVE_CODES:
            return self.call_python(frame, found, (function, *args), kwargs)
        return self.natively(frame, function, args, kwargs)

    def call_of_generator(self, frame: Frame, method: Any, args: Sequence, kwargs: Mapping) -> Any:
        """What ``throw`` raises got its context inside, if it was raised there or only thrown."""
        try:
            return self.natively(frame, method, args, kwargs)
        except BaseException as error:
            if method.__name__ == "throw" and args:
                thrown: Any = args[0]
                if error is thrown or type(error) is thrown or user_part(error.__traceback__):
                    self.passing = error
            raise

    def natively(self, frame: Frame, function: Any, args: Sequence, kwargs: Mapping) -> Any:
        """Call what is not interpreted, in the name of ``frame``."""
        if id(type(function)) not in KNOWN:
            meet(function)
        for value in args:
            if id(type(value)) not in SILENT:
                meet_argument(value)
        if kwargs:
            for value in kwargs.values():
                meet_argument(value)
        caller = frame.program.callers[frame.ip]
        if caller.__globals__ is not frame.globals:
            caller = add_caller(frame)
        return caller(function, args, kwargs)

    def call_class(self, frame: Frame, cls: type, args: Sequence, kwargs: Mapping) -> Any:
        """An instance of a class that ``type`` calls; its ``__init__`` is interpreted."""
        init = lookup_special(cls, "__init__")
        if type(init) is not FunctionType or class_attribute(cls, "__new__") is not _OBJECT_NEW:
            return self.natively(frame, cls, args, kwargs)
        if id(cls) not in KNOWN:
            meet_class(cls)
        made: Any = object.__new__(cls, *args, **kwargs)  # which may say that it takes none
        found = self.call_python(frame, init, (made, *args), kwargs)
        if found is None:  # it has run already
            return made
        if found is not CALLED:
            raise TypeError(f"__init__() should return None, not '{type(found).__name__}'")
        assert self.frame is not None
        self.frame.on_return, self.frame.extra = "init", made
        return CALLED

    def call_python(
        self, frame: Frame, function: FunctionType, args: Sequence, kwargs: Mapping
    ) -> Any:
        if ORIGINAL in function.__dict__:
            function = original_of(function) or function
        flags = function.__code__.co_flags
        new = self.make_frame(function, args, kwargs)
        if flags & SUSPENDS:
            return self.make_generator(new)
        self.push(frame, new)
        return CALLED

    def make_generator(self, frame: Frame) -> Any:
        activation = Activation(self, frame)
        if frame.code.co_flags & COROUTINE and self.frame is not None and (depth := _origin()):
            views = innermost(self, self.frame, depth)
            _set_origin(len(views))  # no native frame is above these
            try:
                return make_generator(activation, views)
            finally:
                _set_origin(depth)
        return make_generator(activation)

    def in_this_thread(self) -> Machine:
        """What runs a generator that another thread than the machine's own resumes."""
        return Machine()


def met_changed(value: Any, name: str, new: Any) -> None:
    """Set an attribute of what may be a class or function, or what C code may call."""
    met(setattr, value, name, new)
    meet(value)  # with another base, another method or other code


def lookup_special(cls: type, name: str, default: Any = None) -> Any:
    """The attribute ``name`` in the class's method resolution order, unbound."""
    for base in _MRO(cls) or cls.__mro__:  # a type of C code may not be ready before it is asked
        namespace = _NAMESPACE(base)
        if name in namespace:
            return namespace[name]
    return default


#: The attribute of a class as ``type`` finds it, whatever its metaclass does.
class_attribute = type.__getattribute__

_MRO: Any = type.__dict__["__mro__"].__get__  # a metaclass may say otherwise
_NAMESPACE: Any = type.__dict__["__dict__"].__get__
#: How methods of builtin types are called, by the type's id, where that is not all of it.
_BOUND: dict[int, Callable[..., Any]] = {
    id(GeneratorType): Machine.call_of_generator,
    id(CoroutineType): Machine.call_of_generator,
}

_origin = sys.get_coroutine_origin_tracking_depth
_set_origin = sys.set_coroutine_origin_tracking_depth
_TYPE_CALL = type.__dict__["__call__"]
_OBJECT_NEW = object.__dict__["__new__"]
HOOKS.append(vars(Machine))
