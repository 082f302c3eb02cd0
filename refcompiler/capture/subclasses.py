"""Subclasses of tensors in the symbolic domain.

The graph computes on plain tensors. What class a value has in eager is a side table: results get
the class that ``Tensor.__torch_function__`` would give them, a ``__torch_function__`` of the
user's is interpreted, and values that leave the graph get their class again. Classes that have
operators or a ``__torch_dispatch__`` of their own are not captured.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any

import torch
from torch.overrides import get_default_nowrap_functions
from torch.utils._python_dispatch import _disable_current_modes

from refcompiler.capture.models.registry import operation
from refcompiler.capture.signals import Break, Restart
from refcompiler.capture.state.functions import check_enabled
from refcompiler.capture.wrappers import is_wrapper, wrapper_input
from refcompiler.guards.sources import Source, plain_tensor
from refcompiler.interpreter.frame import UNSET

#: Special names that a class may define without changing what operations on it mean.
_HARMLESS = frozenset(
    """
    __module__ __doc__ __dict__ __weakref__ __torch_function__ __new__ __init__ __annotations__
    __qualname__ __parameters__ __orig_bases__ __static_attributes__ __firstlineno__ __slots__
    """.split()
)
_DISABLED = torch._C._disabled_torch_function_impl
_DEFAULT = torch.Tensor.__dict__["__torch_function__"]


def _own_bases(cls: type) -> Iterator[type]:
    """The bases that the user has written."""
    for base in cls.__mro__:
        if base is torch.Tensor or base is torch.nn.Parameter:
            return
        yield base


def find_own(cls: type, name: str) -> Any:
    """What a class below ``Tensor`` has under that name, or UNSET."""
    for base in _own_bases(cls):
        if name in base.__dict__:
            return base.__dict__[name]
    return UNSET


def is_captured(cls: type) -> bool:
    """Whether values of that subclass of ``Tensor`` can be in a graph."""
    for base in _own_bases(cls):
        if type(base) not in (type(torch.Tensor), type(torch.nn.Parameter), type):
            return False
        if base.__module__.partition(".")[0] == "torch" or not issubclass(base, torch.Tensor):
            return False
        for name in base.__dict__:
            if name.startswith("__") and name.endswith("__") and name not in _HARMLESS:
                return False
    override = find_own(cls, "__torch_function__")
    return override is UNSET or override is _DISABLED or type(override) is classmethod


def dispatches(cls: type) -> bool:
    """Whether operations on values of that class go through ``__torch_function__``."""
    return getattr(cls, "__torch_function__", _DISABLED) is not _DISABLED


def subclass_input(m: Any, value: torch.Tensor, source: Source) -> Any:
    """The fake of a tensor from outside that is of a subclass."""
    cls = type(value)
    if is_wrapper(cls):
        return wrapper_input(m, value, source)
    if not is_captured(cls):
        raise Break("tensor-kind", f"{source} is a {cls.__name__}")
    check_enabled(m)
    m.guard("TYPE", source, cls)
    m.find_guarded(cls, "__torch_function__")
    if not dispatches(cls):
        fake = m.plain_input(value, source)
        m.classes[id(fake)] = cls
        return fake
    with m.recorder.suspension(), torch._C.DisableTorchFunction(), _disable_current_modes():
        plain = plain_tensor(value)
    inner = m.sources.make("plain", source)
    m.lazy(inner, plain)
    m.lazy(source, value)
    fake = m.plain_input(plain, inner)
    m.inputs[id(value)] = m.inputs.pop(id(plain))
    m.input_order[-1] = id(value)
    m.fakes_of_inputs[id(fake)] = source
    m.classes[id(fake)] = m.recorder.kinds[id(fake)] = cls
    return fake


def class_of_call(kinds: Mapping[int, type], given: list[torch.Tensor]) -> type | None:
    """The class whose ``__torch_function__`` a call with these tensors asks."""
    found = {kinds[id(tensor)] for tensor in given if id(tensor) in kinds}
    if len(found) > 1:
        raise Break("tensor-kind", "an operation of tensors of two subclasses")
    return found.pop() if found else None


def converted(m: Any, function: Callable, result: Any, cls: type) -> None:
    """Give what an operation has made the class that eager gives it."""
    if function in get_default_nowrap_functions():
        return
    if isinstance(result, (tuple, list)):
        for item in result:
            converted(m, function, item, cls)
    elif issubclass(type(result), torch.Tensor) and id(result) not in m.recorder.kinds:
        if id(result) in m.fakes_of_inputs:
            raise Break("tensor-kind", "an operation of a subclass gives a plain argument")
        m.classes[id(result)] = m.recorder.kinds[id(result)] = cls


def override(m: Any, function: Callable, cls: type, args: tuple, kwargs: dict) -> Any:
    """``cls.__torch_function__(function, ...)`` of the user's, interpreted."""
    source, found = m.find_guarded(cls, "__torch_function__")
    method = MethodType(m.wrapped(source, found, "__func__"), cls)
    return m.force(m.invoke(m.frame, method, [function, (cls,), args, kwargs]))


def ask(
    m: Any, function: Callable, kinds: tuple[type, ...], args: tuple, kwargs: dict | None
) -> Any:
    """What objects that are no tensors answer for an operation: the first that knows, as in torch.

    Their classes' ``__torch_function__`` is interpreted.
    """
    for kind in kinds:
        if issubclass(kind, torch.Tensor):
            raise Break("tensor-kind", f"an operation of a tensor and a {kind.__name__}")
        source, found = m.find_guarded(kind, "__torch_function__")
        if type(found) is not classmethod:
            raise Break("tensor-kind", f"{kind.__name__}.__torch_function__, no classmethod")
        method = MethodType(m.wrapped(source, found, "__func__"), kind)
        given = [function, kinds, args]  # where there are no others, torch names none
        answer = m.force(m.invoke(m.frame, method, given if kwargs is None else [*given, kwargs]))
        if answer is not NotImplemented:
            return answer
    raise Restart(m.steps, "tensor-kind", f"no __torch_function__ for {function.__name__}")


@operation("__torch_function__")
def _default(m: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    """``Tensor.__torch_function__``, which a user's calls for the default."""
    cls, called, _, *rest = [m.force(a) for a in (*args, *kwargs.values())]
    if not issubclass(type(cls), type):
        return NotImplemented
    given = rest[0] if rest else ()
    named = rest[1] if len(rest) > 1 and rest[1] is not None else {}
    outer, m.recorder.converting = m.recorder.converting, cls
    try:
        return called(*given, **named)
    finally:
        m.recorder.converting = outer


def attribute(m: Any, value: torch.Tensor, name: str) -> Any:
    """An attribute that the classes below ``Tensor`` define, or UNSET."""
    cls = m.classes[id(value)]
    if find_own(cls, name) is UNSET:
        return UNSET
    source, found = m.find_guarded(cls, name)
    if type(found) is property:
        return m.invoke(m.frame, m.wrapped(source, found, "fget"), [value])
    if not is_data_descriptor(found) and _has_own(m, value, name):
        return UNSET
    if type(found) is FunctionType:
        return MethodType(m.from_class(source, found), value)
    if type(found) in (staticmethod, classmethod):
        return m.bind_found(source, found, value, cls, name)
    if hasattr(type(found), "__get__") or isinstance(found, types.MemberDescriptorType):
        raise Break("tensor-kind", f"attribute {name} of a {cls.__name__}")
    return m.plain_class_value(source, found)


def is_data_descriptor(found: Any) -> bool:
    """Whether an attribute of a class goes before one of the instance, as CPython has it."""
    return hasattr(type(found), "__set__")


def _has_own(m: Any, value: torch.Tensor, name: str) -> bool:
    """Whether the tensor itself has an attribute of that name."""
    real = m.real_of(value)
    if real is None:
        return (id(value), name) in m.own_attributes
    if (id(real), name) in m.overlay or name in real.__dict__:
        return True
    parent = m.namespace(real, m.fakes_of_inputs[id(value)])
    m.lazy(parent, real.__dict__)
    m.guard("ABSENT", parent, name)
    return False


@operation("as_subclass")
def _as_subclass(m: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    given = [m.force(a) for a in (*args, *kwargs.values())]
    if len(given) != 2 or not isinstance(given[1], type):
        return NotImplemented
    tensor, cls = given
    if find_own(m.classes.get(id(tensor), torch.Tensor), "__torch_function__") is not UNSET:
        raise Break("tensor-kind", "as_subclass of a tensor with a __torch_function__ of its own")
    if cls is not torch.Tensor:
        check_enabled(m)
        if not (is_captured(cls) and dispatches(cls)):
            raise Break("tensor-kind", f"as_subclass({cls.__name__})")
    made = torch.ops.aten.alias.default(tensor)
    m.recorder.kinds.pop(id(made), None)
    m.classes.pop(id(made), None)
    if cls is not torch.Tensor:
        m.classes[id(made)] = m.recorder.kinds[id(made)] = cls
    return made


def connect(m: Any) -> None:
    """The door asks for classes."""
    recorder = m.recorder
    recorder.class_of = lambda given: class_of_call(recorder.kinds, given)
    recorder.convert = lambda function, result, cls: converted(m, function, result, cls)
    recorder.ask = lambda function, kinds, args, kwargs: ask(m, function, kinds, args, kwargs)
    recorder.override = lambda function, cls, args, kwargs: override(m, function, cls, args, kwargs)
