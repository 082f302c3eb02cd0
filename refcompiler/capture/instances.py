"""Calls of classes: instances are made for real, and their initialisers are interpreted."""

from __future__ import annotations

import enum
import operator
import types
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch.nn.modules.lazy import LazyModuleMixin

from refcompiler.capture.arrays.calls import call_numpy
from refcompiler.capture.immutable import is_computed
from refcompiler.capture.kinds import CONSTANT_TYPES, CONTAINERS
from refcompiler.capture.lookup import find, is_heap
from refcompiler.capture.marking.marked import (
    DISABLED,
    disabled_text,
)
from refcompiler.capture.models.registry import LATE
from refcompiler.capture.native_calls import NativeCalls
from refcompiler.capture.natively import natively
from refcompiler.capture.policy import (
    HIGHER_ORDER_MODULES,
    INTERPRETED_CLASSES,
    INTERPRETED_MODULES,
    PURE_MODULES,
)
from refcompiler.capture.signals import Break
from refcompiler.capture.told import text_of
from refcompiler.capture.values import Lazy, Literal, Run
from refcompiler.capture.wrappers import construct, is_wrapper
from refcompiler.interpreter import helpers
from refcompiler.interpreter.frame import CALLED, UNSET, Frame
from refcompiler.shapes.node import SYMBOLS

_OF_ELEMENTS = frozenset({bool, int, float, complex})

#: What stands in a class for its constructor as type.__call__ knows it.
_CONSTRUCTORS = frozenset({FunctionType, types.BuiltinFunctionType})

_NUMBERS: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


class Instances(NativeCalls):
    """Classes as callees."""

    # ---- classes ----------------------------------------------------------------------------

    def call_class(self, frame: Any, cls: type, args: Sequence, kwargs: Mapping) -> Any:
        if cls in SYMBOLS:  # what C code takes the type of a number to be
            return self.call(frame, _NUMBERS[cls], args, kwargs)
        source, meta_call = self.find_in(type(cls), "__call__")
        if type(meta_call) is FunctionType:
            self.from_class(source, meta_call)
            if issubclass(type(cls), enum.EnumMeta) and not _says_what_is_missing(cls):
                return self.call_pure(cls, args, kwargs)
            return self.call(frame, meta_call, (cls, *args), kwargs)
        if issubclass(type(meta_call), type):  # a TypedDict's is dict, which binds to nothing
            return self.call(frame, meta_call, args, kwargs)
        return self.make_instance(frame, cls, args, kwargs)

    def make_instance(self, frame: Any, cls: type, args: Sequence, kwargs: Mapping) -> Any:
        """``type.__call__``: ``__new__``, then ``__init__``."""
        if issubclass(cls, types.ModuleType):
            raise Break("c-function", "a module is made")
        if issubclass(cls, LazyModuleMixin):  # with hooks, and parameters that are none yet
            raise Break("tensor-kind", f"construction of a {cls.__name__}")
        if not is_heap(cls):
            return self.call_builtin_class(frame, cls, args, kwargs)
        if is_wrapper(cls):
            return construct(self, cls, args, kwargs)
        if issubclass(cls, torch.Tensor) or issubclass(cls, torch.autograd.Function):
            raise Break("tensor-kind", f"construction of a {cls.__name__}")
        module = cls.__module__
        if (
            module.startswith("torch.")
            and module.startswith(HIGHER_ORDER_MODULES)
            and module not in INTERPRETED_MODULES
            and f"{module}.{cls.__qualname__}" not in INTERPRETED_CLASSES
        ):
            known = LATE.get(f"{module}.{cls.__qualname__}")
            if known is not None:
                return known(self, frame, args, kwargs)
            raise Break("higher-order", f"{module}.{cls.__qualname__}")
        if cls.__dict__.get(DISABLED):
            raise Break("disabled-function", disabled_text(cls))
        if type(find(cls, "__del__")[1]) is FunctionType:
            raise Break("c-function", f"a {cls.__qualname__}, at whose end code of its own runs")
        new_source, new = self.find_guarded(cls, "__new__")
        base = getattr(new, "__self__", object)  # whose constructor in C it is
        if type(new) is types.BuiltinFunctionType and base is not object:
            if is_heap(base) and base.__module__ not in PURE_MODULES:
                raise Break("c-function", f"construction of a {cls.__qualname__}")
        if type(new) is staticmethod:
            new = self.wrapped(new_source, new, "__func__")
        elif type(new) is FunctionType:
            self.from_class(new_source, new)
        if type(new) is FunctionType:
            init_source, init = self.find_guarded(cls, "__init__")
            if not self.nested and not issubclass(cls, torch.nn.Module):
                if init is object.__init__ or type(init) is FunctionType:
                    if init is object.__init__:
                        return Run(helpers.create, [new, cls, tuple(args), kwargs])
                    self.from_class(init_source, init)
                    return Run(helpers.construct, [new, init, cls, tuple(args), kwargs])
            made = self.force(self.invoke(frame, new, (cls, *args), kwargs))
            if cls not in type(made).__mro__:
                return made
            cls = type(made)
        elif type(new) not in _CONSTRUCTORS:  # any other object, as type.__call__ asks for it
            new = self.force(self.getattr(cls, "__new__"))
            made = self.force(self.invoke(frame, new, (cls, *args), kwargs))
            if cls not in type(made).__mro__:
                return made
        elif new is object.__new__:
            made = object.__new__(cls)
        elif issubclass(cls, type):
            raise Break("c-function", f"the call of the metaclass {cls.__qualname__}")
        elif (find(cls, "__init__")[0] is object and new is not object.__new__) or issubclass(
            cls, (BaseException, tuple, str, int, float, frozenset)
        ):
            made = self.call_constructor(cls, new, cls, args, kwargs)
        else:
            made = new(cls)
        self.recorder.keep.append(made)
        self.made.setdefault(cls, self.steps)
        init_source, init = self.find_guarded(type(made), "__init__")
        if type(init) is FunctionType:
            self.from_class(init_source, init)
            found = self.call(frame, init, (made, *args), kwargs)
            if found is CALLED:
                pushed = self.frame
                assert pushed is not None
                pushed.on_return, pushed.extra = "init", made
                if issubclass(cls, torch.nn.Module):
                    self.constructors.append((pushed, self.steps))
                return CALLED
            return made
        if init is object.__init__:
            if (args or kwargs) and new is object.__new__:
                raise TypeError(f"{cls.__name__}() takes no arguments")
            return made
        if type(init) is not types.WrapperDescriptorType:
            result = self.force(self.invoke(frame, self.special(made, "__init__"), args, kwargs))
            if result is not None:
                raise TypeError(f"__init__() should return None, not '{type(result).__name__}'")
            return made
        self.call_constructor(cls, init, made, args, kwargs)
        return made

    def call_constructor(
        self, cls: type, function: Any, first: Any, args: Sequence, kwargs: Mapping
    ) -> Any:
        """``__new__`` or ``__init__`` in C, of a class of the user's; a container's iterates."""
        takes = issubclass(cls, CONTAINERS)
        if issubclass(cls, dict) and args:
            if self.method_of(type(self.force(args[0])), "keys") is not UNSET:
                args = (self.mapping(args[0]), *args[1:])
        forced = [self.pass_native(a, takes) for a in args]
        if issubclass(cls, (set, frozenset, dict)):
            for value in forced:
                self.hashes(value)
        named = {k: self.pass_native(v) for k, v in kwargs.items()}
        return natively(self, function, first, *forced, **named)

    def element(self, tensor: Any) -> Any:
        """The number in a tensor of one element."""
        return self.force(self.invoke(self.frame, torch.Tensor.item, [tensor]))

    def known_index(self, value: Any) -> Any:
        """The number in ``value`` where that is a tensor whose number is known."""
        forced = self.force(value)
        if issubclass(type(forced), torch.Tensor):
            known = self.recorder.known(operator.index, (forced,))
            return known[0] if known else value
        return value

    def with_plain_keys(self, pairs: Any) -> Any:
        """A list of pairs for a dict, with no symbol among its keys, whose hashes C code asks."""
        value = self.force(pairs)
        if type(value) is not list:
            return pairs
        forced = [self.force(pair) for pair in value]
        if not any(type(p) is tuple and p and type(self.force(p[0])) in SYMBOLS for p in forced):
            return pairs
        return [
            (self.sizes.plain(self.force(p[0])), *p[1:]) if type(p) is tuple and p else p
            for p in forced
        ]

    def call_builtin_class(self, frame: Any, cls: type, args: Sequence, kwargs: Mapping) -> Any:
        if cls is bool and len(args) == 1:
            held = args[0].value if type(args[0]) is Lazy else None
            if type(args[0]) is Literal or type(held) in CONTAINERS:
                return self.truth(args[0])
        if cls is range:
            args = [self.known_index(arg) for arg in args]
        if cls in CONSTANT_TYPES or issubclass(cls, BaseException):
            if args and issubclass(type(self.force(args[0])), torch.Tensor):
                if not issubclass(cls, BaseException):
                    if len(args) == 1 and not kwargs and cls in _OF_ELEMENTS:
                        if known := self.recorder.known(cls, (self.force(args[0]),)):
                            return known[0]
                        if self.recorder.captures_numbers and cls is not complex:
                            return self.call(frame, cls, [self.element(args[0])], {})
                    raise Break("data-dependent-value", f"{cls.__name__}() of a tensor")
        if cls is torch.Generator or cls.__module__.startswith("torch._C"):
            raise Break("ambient-state", f"construction of a {cls.__qualname__}")
        if cls is str and len(args) == 1 and not kwargs:
            text = text_of(self, cls, self.force(args[0]))
            if text is not None:
                return text
        if cls is str and args:
            return self.convert(args[0], 1) if len(args) == 1 else self.call_pure(cls, args, kwargs)
        if cls is dict and args and self.method_of(type(self.force(args[0])), "keys") is not UNSET:
            args = (self.mapping(args[0]), *args[1:])
        elif cls is dict and len(args) == 1:
            args = [self.with_plain_keys(args[0])]
        if cls is bool and args:
            return self.as_bool(args[0])
        if cls is object:
            made = object(*args, **kwargs)
            self.recorder.keep.append(made)
            return made
        if cls in (int, float, complex) and args:
            value = self.force(args[0])
            for name in ("__int__", "__index__") if cls is int else (f"__{cls.__name__}__",):
                if self.method_of(type(value), name) is not UNSET:
                    return self.force(self.call_special(value, name))
                if find(type(value), name)[1] is not UNSET:  # the one of a class in C
                    break
        if cls.__module__ in PURE_MODULES or cls.__module__ == "torch":
            return self.call_pure(cls, args, kwargs)
        if cls.__module__ == "numpy":
            return call_numpy(self, cls, args, kwargs)
        if is_computed(cls, cls.__name__):
            return self.compute(cls, args, kwargs)
        raise Break("c-function", f"class {cls.__module__}.{cls.__qualname__}")

    # ---- C functions ------------------------------------------------------------------------

    def instantiate(self, frame: Frame, cls: type) -> Any:
        return self.force(self.invoke(frame, cls, []))

    # filled by the machine
    constructors: list[tuple[Frame, int]]  # of modules, and the steps that called them


def _says_what_is_missing(cls: type) -> bool:
    """An enum of the user's that finds members by Python code."""
    owner: Any = find(cls, "_missing_")[0]
    return owner is not None and owner.__module__ != "enum"
