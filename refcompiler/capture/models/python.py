"""Models of callables that run differently in the symbolic domain than natively."""

from __future__ import annotations

import _thread
import abc
import builtins
import functools
import importlib.util
import inspect
import operator
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from refcompiler.capture.addresses import address_of
from refcompiler.capture.arithmetic import EXAMPLES
from refcompiler.capture.calls import Calls
from refcompiler.capture.displays import make
from refcompiler.capture.immutable import is_value
from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.capture.lookup import asks, find, is_heap, namespace_of
from refcompiler.capture.models.classes import call_type
from refcompiler.capture.models.registry import constant, model, named
from refcompiler.capture.natively import QUIET, is_quiet, natively
from refcompiler.capture.operators import _DUNDERS
from refcompiler.capture.signals import Break
from refcompiler.capture.told import text_of
from refcompiler.capture.values import DELETED, Lazy, Literal, Run
from refcompiler.interpreter import helpers, recursion
from refcompiler.interpreter.frame import UNSET
from refcompiler.interpreter.introspection import frame_locals, super_of
from refcompiler.shapes.node import SYMBOLS

constant(True, *named("compiler.is_dynamo_compiling"))
constant(False, *named("compiler.is_exporting jit.is_scripting"))
constant(False, *named("jit.is_tracing"))
constant(None, torch._C._log_api_usage_once)


@model(
    *named("_C._has_torch_function _C._has_torch_function_unary _C._has_torch_function_variadic"),
    *named("overrides.has_torch_function"),
)
def _has_torch_function(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> bool:
    """Eager has no mode here, and fakes stand for plain tensors."""
    if m.function_modes:
        raise Break("ambient-state", "a function of torch's in Python is handed to a mode")
    given = [m.force(a) for a in args]
    given = [*given[0]] if len(given) == 1 and type(given[0]) is tuple else given
    return any(asks(type(m.force(value))) for value in given)


# Capture's own modes are not the program's.
@model(torch._C._len_torch_function_stack)
def _function_modes(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> int:
    return m.ambient.function_modes + len(m.function_modes)


@model(torch._C._len_torch_dispatch_stack)
def _dispatch_modes(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> int:
    return m.ambient.dispatch_modes


constant(None, *named("_C._get_dispatch_mode"))


@model(*named("_C._is_torch_function_mode_enabled"))
def _has_function_modes(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> bool:
    return bool(m.function_modes)


# ---- builtins that read or write attributes ---------------------------------------------------


@model(getattr)
def _getattr(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    name = m.force(args[1])
    if not issubclass(type(name), str):
        raise TypeError(f"attribute name must be string, not '{type(name).__name__}'")
    if len(args) == 2:
        return m.attribute(args[0], name)
    try:
        found = m.attribute(args[0], name)
    except AttributeError:
        return args[2]
    return Run(helpers.attribute_or, [args[0], name, args[2]]) if type(found) is Run else found


@model(hasattr)
def _hasattr(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    name = m.force(args[1])
    try:
        found = m.attribute(args[0], name)
    except AttributeError:
        return False
    if type(found) is Run:
        return Run(helpers.has_attribute, [args[0], name])
    if type(found) is Lazy:
        m.guard("PRESENT", found.source)
    return True


@model(setattr)
def _setattr(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    return m.assign(args[0], m.force(args[1]), args[2])


@model(delattr)
def _delattr(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> None:
    m.delattr(args[0], m.force(args[1]))


@model(super)
def _super(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    if kwargs:
        raise TypeError("super() takes no keyword arguments")
    return super(*[m.force(a) for a in (args or super_of(m, frame))])


@model(locals)
def _locals(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    return frame_locals(m, frame)


@model(vars)
def _vars(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    if not args:
        return frame_locals(m, frame)
    try:
        return m.getattr(args[0], "__dict__")
    except AttributeError:
        complaint = "vars() argument must have __dict__ attribute"
    raise TypeError(complaint)


@model(globals)
def _globals(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    return m.lazy(m.sources.constant(frame.globals, "globals"), frame.globals)


@model(sys.exc_info)
def _exc_info(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    error = m.handled()
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


@model(sys.exception)
def _exception(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    return m.handled()


# ---- builtins that ask about types ------------------------------------------------------------


@model(type)
def _type(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    if len(args) == 1:
        value = args[0]
        if type(value) is Literal:
            return value.kind
        if type(value) is Lazy and not issubclass(type(value.value), torch.Tensor):
            m.guard("TYPE", value.source, type(value.value))
            return type(value.value)
        return m.type_of(m.force(value))
    return call_type(m, frame, args, kwargs)


@model(isinstance)
def _isinstance(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> bool:
    value, classes = args[0], _plain(m, args[1])
    if type(value) is Literal and value.made is UNSET and not _asks(m, value.kind, classes):
        empty: Any = () if issubclass(value.kind, tuple) else ({} if value.kind is dict else [])
        return _native_isinstance(m, make(value.kind, empty), classes)
    if type(value) is Lazy and value.source not in m.forced:
        inner = value.value
        if not issubclass(type(inner), torch.Tensor) and not _asks(m, type(inner), classes):
            m.guard("TYPE", value.source, type(inner))
            return _native_isinstance(m, inner, classes)
    return _native_isinstance(m, m.force(value), classes)


def _asks(m: Calls, kind: type, classes: Any) -> bool:
    """Whether code of the user's decides what an instance of ``kind`` is an instance of."""
    for cls in classes if isinstance(classes, tuple) else (classes,):
        if isinstance(cls, tuple):
            if _asks(m, kind, cls):
                return True
        elif type(cls) is not type:
            hook = find(type(cls), "__instancecheck__")[1]
            if type(hook) is FunctionType and not is_quiet(hook):
                return True
    return m.method_of(kind, "__getattribute__") is not UNSET


def _plain(m: Calls, classes: Any) -> Any:
    classes = m.force(classes)
    if isinstance(classes, tuple):
        return tuple([_plain(m, c) for c in classes])
    return classes


def _native_isinstance(m: Calls, value: Any, classes: Any) -> bool:
    if isinstance(classes, tuple):
        return any(_native_isinstance(m, value, cls) for cls in classes)
    if issubclass(type(value), torch.Tensor):
        if isinstance(classes, type):
            if issubclass(m.type_of(value), classes):
                return True
            if classes.__module__.startswith("torch._subclasses"):
                return False
            if classes is torch.nn.Buffer:  # any tensor with a mark, which fakes do not have
                return _is_marked(m, value, "_is_buffer")
        return isinstance(value, classes)
    value = EXAMPLES.get(type(value), value)
    m.fix_bases(type(value))
    if classes is type(value):  # nobody else is asked then
        return True
    source, hook = m.find_guarded(type(classes), "__instancecheck__")
    if type(hook) is FunctionType and not is_quiet(hook):
        m.from_class(source, hook)
        return m.truth(m.invoke(m.frame, hook, [classes, value]))
    if issubclass(type(classes), type) and classes in type(value).__mro__:
        return True
    if type(classes) is type and m.method_of(type(value), "__getattribute__") is not UNSET:
        return issubclass(m.force(m.getattr(value, "__class__")), classes)
    found = natively(m, isinstance, value, classes)
    _guard_registry(m, type(value), classes)
    return found


def _is_marked(m: Calls, value: torch.Tensor, name: str) -> bool:
    try:
        return bool(m.force(m.getattr(value, name)))
    except AttributeError:
        return False


def _guard_registry(m: Calls, kind: Any, classes: Any) -> None:
    """A class of the user's may be registered with an abstract one at any time."""
    for cls in classes if isinstance(classes, tuple) else (classes,):
        if issubclass(type(cls), abc.ABCMeta) and isinstance(kind, type) and is_heap(kind):
            if (kind.__module__ or "").partition(".")[0] not in QUIET:
                m.guard("STATE", None, (issubclass, (kind, cls), issubclass(kind, cls)))


@model(issubclass)
def _issubclass(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> bool:
    kind, classes = m.force(args[0]), _plain(m, args[1])
    if issubclass(type(kind), type):
        m.fix_bases(kind)
    found = natively(m, issubclass, kind, classes)
    _guard_registry(m, kind, classes)
    return found


@model(callable)
def _callable(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> bool:
    value = m.force(args[0])
    if is_heap(type(value)) and not issubclass(type(value), (type, torch.Tensor)):
        return m.find_guarded(type(value), "__call__")[1] is not UNSET
    return callable(value)


def _has_other_names(m: Calls, value: Any, classes: tuple[type, ...]) -> bool:
    """Whether the frame has given names to an object from outside, or taken some."""
    namespace = namespace_of(value)
    names = {name for space in (namespace or {}, *[c.__dict__ for c in classes]) for name in space}
    owners = {id(value), id(namespace), *map(id, classes)}  # a module's are its namespace's
    for (owner, name), new in m.overlay.items():
        if owner in owners and (new is DELETED or name not in names):
            return True
    known = m.external.get(id(namespace))
    return known is not None and known.shadow is not None and set(known.shadow) != set(known.value)


@model(dir)
def _dir(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    """The names of an object: those of its own, and those of its classes."""
    given = tuple(map(m.force, args))
    if not given:
        return sorted(frame_locals(m, frame))
    if len(given) == 1 and not kwargs:
        value = given[0]
        if m.method_of(type(value), "__dir__") is not UNSET:
            return Run(sorted, [m.force(m.call_special(value, "__dir__"))])
        classes = value.__mro__ if issubclass(type(value), type) else type(value).__mro__
        told = value.__func__ if type(value) is MethodType else value  # a method has its function's
        if _has_other_names(m, told, (*classes, *type(told).__mro__)):
            raise Break("external-object", f"the names of a {type(value).__name__} now")
        source, namespace = m.source_of(told), namespace_of(told)
        if source is not None and type(namespace) is dict:
            names = m.namespace(told, source)
            m.lazy(names, namespace)
            m.guard("KEYS", names, tuple(namespace))
        m.fix_bases(classes[0])
        for cls in classes:
            home = (cls.__module__ or "").partition(".")[0]
            if is_heap(cls) and cls not in m.own_classes and home not in QUIET:
                m.guard("KEYS", m.class_namespace(cls), tuple(cls.__dict__))
    return m.call_pure(dir, given, kwargs)


#: Modules that note the ids of objects, for as long as they print them.
_RECURSION = ("dataclasses", "reprlib")


@model(_thread.get_ident)
def _get_ident(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> int:
    if frame.globals.get("__name__") not in _RECURSION:
        m.guard("STATE", None, (_thread.get_ident, (), _thread.get_ident()))
    return _thread.get_ident()


@model(sys.getrecursionlimit)
def _getrecursionlimit(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> int:
    m.guard("STATE", None, (sys.getrecursionlimit, (), recursion.limit()))
    return recursion.limit()


@model(sys.intern)
def _intern(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    return sys.intern(*[m.force(value) for value in args])


@model(os.fspath)
def _fspath(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    value = m.force(args[0])
    if m.method_of(type(value), "__fspath__") is UNSET or issubclass(type(value), (str, bytes)):
        return natively(m, os.fspath, value)
    return Run(m.getattr(value, "__fspath__"), [])


@model(id)
def _id(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    value = m.force(args[0])
    if frame.globals.get("__name__") in _RECURSION:
        return id(value)
    m.is_personal = True
    is_tensor = issubclass(type(value), torch.Tensor)
    real = m.real_of(value) if is_tensor else value
    source = m.fakes_of_inputs.get(id(value)) or m.source_of(value)
    if type(value) in CONSTANT_TYPES or type(value) in SYMBOLS:
        raise Break("c-function", "builtins.id of a constant")
    if source is None or real is None or not (real is value or is_tensor):
        return address_of(m, value)
    if m.is_foreign(value) or issubclass(type(value), (torch.Tensor, type, FunctionType)):
        m.guard("ID", source, real)
        return id(real)
    raise Break("c-function", "builtins.id")


#: Attributes that tell a signature other than the code's.
_SHOWN = ("__signature__", "__text_signature__")


@model(inspect.signature)
def _signature(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> inspect.Signature:
    """Depends on a function and on what it shows of itself, which are guarded."""
    value = m.force(args[0])
    if m.is_foreign(value):
        # with __code__ it is taken for a function
        names = (*_SHOWN, "__wrapped__", "__code__")
        if m.method_of(type(value), "__call__") is UNSET or any(
            m.invoke(frame, hasattr, [value, name]) for name in names
        ):
            raise Break("c-function", "inspect.signature of a callable object")
        value = m.force(m.getattr(value, "__call__"))
    function = value.__func__ if type(value) is MethodType else value
    while type(function) is FunctionType and m.source_of(function) is not None:
        if any(m.invoke(frame, hasattr, [function, name]) for name in _SHOWN):
            raise Break("c-function", "inspect.signature of what says another than its code")
        for name in ("__defaults__", "__kwdefaults__", "__annotations__"):
            found = m.force(m.getattr(function, name)) or ()
            for part in found.values() if type(found) is dict else found:
                m.sizes.plain(part)
        if not m.invoke(frame, hasattr, [function, "__wrapped__"]):
            break
        function = m.force(m.getattr(function, "__wrapped__"))
    return inspect.signature(value, **{k: m.force(v) for k, v in kwargs.items()})


@model(hash)
def _hash(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    value = m.sizes.plain(m.force(args[0]))
    m.check_own(value, "__hash__")
    m.is_personal = True
    if m.method_of(type(value), "__hash__") is not UNSET:
        return natively(m, hash, value)
    if issubclass(type(value), (int, float, str, bytes, tuple, type(None))) or is_value(value):
        return natively(m, hash, value)
    raise Break("c-function", "builtins.hash")


@model(functools._lru_cache_wrapper)
def _cache(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    """A cache in front of a function that is interpreted when it is called."""
    function, *rest = map(m.force, args)
    make: Any = functools._lru_cache_wrapper
    made = make(m.pass_native(function, False, True), *rest)
    m.recorder.keep.append(made)
    m.made.setdefault(type(made), m.steps)
    return made


@model(repr)
def _repr(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    return text_of(m, repr, m.force(args[0])) or m.convert(args[0], 2)


@model(format)
def _format(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> str:
    return m.format(args[0], m.force(args[1]) if len(args) > 1 else "")


@model(abs)
def _abs(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    value = m.force(args[0])
    if issubclass(type(value), torch.Tensor):
        return m.operate(abs, value)
    if m.method_of(type(value), "__abs__") is not UNSET:
        return m.call_special(value, "__abs__")
    return m.unary(operator.abs, value) if type(value) in SYMBOLS else abs(value)


@model(round)
def _round(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    value = m.force(args[0])
    if issubclass(type(value), torch.Tensor):
        kind = m.type_of(value)
        raise TypeError(f"type {kind.__name__} doesn't define __round__ method")
    return m.call_pure(round, args, kwargs)


def _operator_model(function: Callable) -> Callable:
    return lambda m, frame, args, kwargs: m.binary(function, *args)


for _function in _DUNDERS:
    model(_function)(_operator_model(_function))
model(operator.getitem)(lambda m, frame, args, kwargs: m.getitem(*args))
model(operator.setitem)(lambda m, frame, args, kwargs: m.setitem(*args))
model(operator.contains)(lambda m, frame, args, kwargs: m.contains(args[1], args[0]))
model(operator.is_)(lambda m, frame, args, kwargs: m.same(*args))
model(operator.is_not)(lambda m, frame, args, kwargs: not m.same(*args))
model(operator.truth)(lambda m, frame, args, kwargs: m.as_bool(*args))
model(operator.not_)(lambda m, frame, args, kwargs: m.negation(*args))
model(operator.neg)(lambda m, frame, args, kwargs: m.unary(operator.neg, *args))


_NAMES = inspect.signature(importlib.import_module)


@model(builtins.__import__)
def _import(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    name = m.force(args[0])
    if name not in sys.modules:
        if name.partition(".")[0] != "torch":
            raise Break("io", f"import of {name}")
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            importlib.import_module(name)  # which torch puts off for the sake of its own start
    return m.call_pure(builtins.__import__, args, kwargs)


@model(importlib.import_module)
def _import_module(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    """As the statement does, for which ``package`` is the frame's own."""
    given = [m.force(a) for a in args]
    named = {k: m.force(v) for k, v in kwargs.items()}
    bound = _NAMES.bind(*given, **named)
    bound.apply_defaults()
    name, package = bound.args
    if not isinstance(name, str) or (name.startswith(".") and not package):
        return importlib.import_module(*given, **named)  # raises
    name = importlib.util.resolve_name(name, package)
    return m.import_name(frame, name, ("",), 0)


def _plain_call(function: Callable) -> Callable:
    return lambda m, frame, args, kwargs: m.call_pure(function, args, kwargs)


for _kind in (str, bytes, bytearray):  # static methods in C, which know no class and no module
    model(_kind.maketrans)(_plain_call(_kind.maketrans))


@model(operator.call)
def _call(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    return m.call(frame, args[0], args[1:], kwargs)
