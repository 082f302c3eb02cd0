"""Calls of C code: operations of the graph, pure functions, models; the rest ends the graph."""

from __future__ import annotations

import abc
import collections
import enum
import random
import types
import weakref
from collections.abc import Mapping, Sequence
from contextvars import Context, ContextVar
from decimal import Decimal
from itertools import chain
from types import FunctionType, MethodType
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from refcompiler.capture import arithmetic
from refcompiler.capture.arrays.calls import array_input, call_numpy
from refcompiler.capture.contents import contents, given_back, merges, whole
from refcompiler.capture.displays import call_method, named
from refcompiler.capture.door import UNKNOWN_VALUES
from refcompiler.capture.dropping import is_held
from refcompiler.capture.immutable import Decimals, is_computed, is_value
from refcompiler.capture.kinds import COLLECTIONS, CONSTANT_TYPES
from refcompiler.capture.lookup import find, is_heap, namespace_of, slot_of
from refcompiler.capture.marking.marked import (
    is_allowed,
    substitute_of,
)
from refcompiler.capture.models.drawing import Draw, draw_in_c
from refcompiler.capture.models.printing import arguments
from refcompiler.capture.natively import natively
from refcompiler.capture.numbered import TELLING
from refcompiler.capture.passing import Passing
from refcompiler.capture.personal import is_personal
from refcompiler.capture.policy import (
    AMBIENT_READERS,
    CALLING,
    CHANGING,
    IMPURE_BUILTINS,
    ITERATING,
    PURE_FUNCTIONS,
    PURE_MODULES,
    READING,
    READING_MODULES,
    STATE_READERS,
    bound_owner,
    is_operation,
)
from refcompiler.capture.pulled import Pulled
from refcompiler.capture.signals import Break
from refcompiler.capture.state.functions import BLOCKS, call_block
from refcompiler.capture.state.history import is_node, node_method
from refcompiler.capture.stepping import runs_code
from refcompiler.capture.subclasses import subclass_input
from refcompiler.capture.told import formatted
from refcompiler.capture.values import External, LazyMethod, Literal, Resume, Run
from refcompiler.capture.written import call_method as call_dict_method
from refcompiler.guards.iterators import NUMBERED
from refcompiler.guards.sources import Source, referent
from refcompiler.interpreter import helpers
from refcompiler.interpreter.driven import DRIVEN, is_suspended
from refcompiler.interpreter.frame import UNSET
from refcompiler.interpreter.resumption import can_throw, resumable, runs_now
from refcompiler.naming import operation_name

AUTOCAST_METHODS = {torch.autocast.__enter__.__code__, torch.autocast.__exit__.__code__}
#: What these are made of, or are asked for, is hashed.
_HASHING = frozenset({set, frozenset, dict, collections.OrderedDict, collections.Counter})
_COMPARING = frozenset(
    """
    eq ne lt le gt ge contains indexOf countOf groupby reduce fromkeys _count_elements
    """.split()
)
#: Methods of containers that compare nothing.
_MOVING = frozenset(
    """
    append appendleft extend extendleft insert clear copy reverse rotate sort popleft keys values
    items __len__ __iter__ __reversed__
    """.split()
)
#: Methods in C that change what they are called with, or what their second argument is.
_WRITING = frozenset({"__set__", "__delete__", "__setattr__", "__delattr__", "__setstate__"})
_LASTING = (type, types.ModuleType, FunctionType, property)
#: Methods in C that tell all of an object, or make another with all of it.
_STATE = frozenset({"__reduce__", "__reduce_ex__", "__getstate__"})
#: And what says where in memory it lies.
_TELLING_WHERE = _STATE | {"__hash__", "__repr__", "__str__", "__format__"}
_ACCOUNTS = _STATE | {"__copy__", "copy"}
#: Methods of ``dict`` that leave an ordered dict's order behind.
_OF_DICTS = frozenset("__setitem__ __delitem__ __ior__ clear pop popitem setdefault update".split())
_TYPE_GETATTRIBUTE = type.__getattribute__
#: Classes in C with the common rules for attributes.
_GENERIC = (object, types.ModuleType)
_TYPE_CALL = type.__dict__["__call__"]
#: What calling a weak reference does.
REFERENT = referent
_REF_INIT = weakref.ref.__dict__["__init__"]


#: Methods that take all items of their argument before they do anything.
_CONSUMING_METHODS = frozenset({"join", "extend", "difference", "intersection", "issubset"})


#: Methods that run a generator or coroutine.
_RESUMING = frozenset({"send", "throw", "close", "__next__"})
#: Owners of methods in C that look into what they are given.
_READERS = CONSTANT_TYPES | {bytearray, memoryview}


def _reads(function: Any, name: str) -> bool:
    """Whether C code looks into its arguments, rather than passing them on or keeping them."""
    if type(function) is type:
        return function in READING
    owner = getattr(function, "__self__", None)
    if issubclass(type(owner), type):  # such as int.from_bytes
        return owner in READING and name != "__new__"
    return getattr(function, "__module__", "") in READING_MODULES or type(owner) in _READERS - {
        type(None)
    }


def _text_of_set(kind: type, text: Any) -> str:
    """What ``__repr__`` says of a set of class ``kind``, where it says ``text`` of a plain one."""
    if type(text) is not str:
        raise Break("c-function", f"{kind.__name__}.__repr__ of an object from outside")
    items = text[text.index("(") :] if text[0] != "{" else f"({text})"
    return kind.__name__ + items


def _owner(function: Any) -> Any:
    """The class whose method it is; that of anything else."""
    found = getattr(function, "__self__", function)
    return found if issubclass(type(found), type) else type(found)


class NativeCalls(Passing):
    """The callees that are not Python functions."""

    def constants(self, args: Sequence, kwargs: Mapping) -> tuple[list, dict] | None:
        """The arguments if all of them are constants."""
        forced = [self.force(a) for a in args]
        named = {k: self.force(v) for k, v in kwargs.items()}
        if all(type(v) in CONSTANT_TYPES for v in (*forced, *named.values())):
            return forced, named
        return None

    def call_opaque(self, function: Any, args: Sequence, kwargs: Mapping) -> Any:
        """A function that is one operation of the graph (``allow_in_graph``)."""
        forced = tuple([self.pass_operand(a) for a in args])
        named = {k: self.pass_operand(v) for k, v in kwargs.items()}
        recorder = self.recorder
        name = operation_name(function)
        try:
            with recorder.suspension():
                result = function(*forced, **named)
        except UNKNOWN_VALUES as error:
            raise Break("data-dependent-value", f"{name}, which looks at values") from error
        recorder.check(name, result)
        recorder.record(function, forced, named, result)
        recorder.mutates = True  # nobody knows what it does to its arguments
        return result

    def call_assumed(self, function: Any, args: Sequence, kwargs: Mapping) -> Any:
        """A function whose value is taken to be the same at every call."""
        given = []
        for value in (*args, *kwargs.values()):
            value = self.force(value)
            if issubclass(type(value), torch.Tensor):
                why = f"{function.__qualname__} is assumed constant and is given a tensor"
                raise Break("operation-not-modelled", why)
            given.append(value)
        named = dict(zip(kwargs, given[len(args) :], strict=True))
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            value = function(*given[: len(args)], **named)
        if type(value) in CONSTANT_TYPES:
            return value
        return self.lazy(self.sources.constant(value, function.__name__), value)

    def call_native(self, frame: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
        if is_operation(function):
            return self.call_operation(function, args, kwargs)
        if is_allowed(function):
            return self.call_opaque(function, args, kwargs)
        name = getattr(function, "__name__", type(function).__name__)
        bound = bound_owner(function)
        if issubclass(type(function), types.MethodWrapperType):
            if type(function.__self__) is MethodType:
                if name == "__call__":
                    return self.call(frame, function.__self__, args, kwargs)
                if name in _TELLING_WHERE:
                    raise Break("c-function", f"{name} of a bound method")
            slot = find(function.__objclass__, name)[1]
            args = (function.__self__, *args)
            return self.call_descriptor(frame, slot, name, args, kwargs)
        if type(bound) is random.Random:
            return draw_in_c(self, bound, name, args, kwargs)
        if bound is not None:
            return self.call_bound(function, bound, name, args, kwargs)
        owner = getattr(function, "__self__", None)
        if owner is tuple and name == "__new__":
            made = named(self, args, kwargs)
            if made is not UNSET:
                return made
        if issubclass(type(owner), type) and not issubclass(
            type(function), types.MethodWrapperType
        ):
            module = owner.__module__  # a class method in C, such as dict.fromkeys
            if owner is types.ModuleType:
                raise Break("c-function", "a module is made")
        elif issubclass(type(function), enum.Enum):
            raise TypeError(f"'{type(function).__name__}' object is not callable")
        elif hasattr(function, "__objclass__"):
            return self.call_descriptor(frame, function, name, args, kwargs)
        else:
            module = getattr(function, "__module__", None) or ""
        if module in ("torch", "torch._C") and name in STATE_READERS:
            return self.read_state(function, args, kwargs)
        if module == "torch._C" and name == "_set_grad_enabled":
            return self.operate(
                function, *[arithmetic.with_plain_bools(self, self.force(a)) for a in args]
            )
        if "autocast" in name and frame.code in AUTOCAST_METHODS:  # they are nodes as a whole
            return function(*map(self.force, args))
        if module.startswith("torch"):
            raise Break("ambient-state", f"{module}.{name}")
        if self.is_foreign(function):
            raise Break("c-function", f"a {type(function).__name__} from outside")
        if module.partition(".")[0] == "numpy":
            return call_numpy(self, function, args, kwargs)
        if is_computed(function, name):
            return self.compute(function, args, kwargs)
        if module in PURE_MODULES or f"{module}.{name}" in PURE_FUNCTIONS:
            if name in IMPURE_BUILTINS:
                raise Break(IMPURE_BUILTINS[name], f"{module}.{name}")
            if function is abc.get_cache_token:
                return self.read_state(function, args, kwargs)
            return self.call_pure(function, args, kwargs)
        substitute = substitute_of(function)
        if substitute is not None:
            return self.call(frame, substitute, args, kwargs)
        raise Break("c-function", f"{module}.{name}".lstrip("."))

    def read_state(self, function: Any, args: Sequence, kwargs: Mapping) -> Any:
        """A global setting of torch; what capture may change itself is in AMBIENT."""
        given = tuple([self.force(a) for a in args])
        name = function.__name__
        own = self.recorder.switched and "autocast" in name  # what capture has set itself
        if kwargs or own or name in AMBIENT_READERS:
            return function(*given, **{k: self.force(v) for k, v in kwargs.items()})
        found = function(*given)
        self.guard("STATE", None, (function, given, found))
        return found

    def call_bound(
        self, function: Any, owner: Any, name: str, args: Sequence, kwargs: Mapping
    ) -> Any:
        """A C method of an object."""
        if type(owner) is NUMBERED and name in TELLING:
            raise Break("external-iterator", f"{name} of one over __getitem__")
        if type(owner) is ContextVar:
            return self.contexts.call(owner, name, args, kwargs)
        if type(owner) is Context:
            return self.contexts.method(owner, name, args, kwargs)
        if args and name in _CONSUMING_METHODS and self.runs_code(given := self.force(args[-1])):
            if name == "extend":
                return self.run_helper(helpers.extend, True, given, owner)
            rest = tuple(args[:-1]), kwargs
            return self.run_helper(helpers.consume, name == "join", given, function, *rest)
        if type(owner) in DRIVEN and name in _RESUMING and runs_now(owner):
            raise ValueError(f"{type(owner).__name__} already executing")
        if type(owner) in DRIVEN and not kwargs and args:
            asked = self.resumption(owner, name, args)
            if asked is not None:
                return asked
        if issubclass(type(owner), enum.Enum):  # what a member inherits from str or int
            return self.call_pure(function, args, kwargs)
        if type(owner) is collections.OrderedDict and name in _ACCOUNTS:
            known = self.external.get(id(owner))
            original = owner if known is None else known.value
            if known is not None and (namespace_of(original) or id(original) in self.changed):
                raise Break("external-object", "a copy of an ordered dict with attributes")
        if self.is_foreign(owner):
            if (
                type(owner) is types.MappingProxyType
                and self.external[id(owner)].shadow is not None
            ):
                return self.call_pure(function, args, kwargs)
            if issubclass(type(owner), dict) and name in ("get", "__getitem__", "__contains__"):
                if id(owner) not in self.insides:
                    return self.read_foreign_dict(owner, name, args)
            # What stands for the contents has no attributes.
            slot, inside = slot_of(function), owner if name in _STATE else contents(self, owner)
            if slot is object.__init__ and not args and not kwargs:  # which does nothing
                return None
            if inside is not owner and slot is not None:
                bound = slot.__get__(inside, slot.__objclass__)
                found = self.call_bound(bound, inside, name, args, kwargs)
                if name == "__repr__" and type(inside) in (set, frozenset):
                    found = _text_of_set(type(owner), found)
                return given_back(owner, inside, found)
            raise Break("c-function", f"{type(owner).__name__}.{name} of an object from outside")
        if type(owner) is str and name == "format_map" and len(args) == 1 and not kwargs:
            mapping = self.force(args[0])
            if type(mapping) is dict and all(type(key) is str for key in mapping):
                name, args, kwargs = "format", (), mapping
        if type(owner) is str and name == "format":
            text = formatted(self, owner, args, kwargs)
            if text is not None:
                return text
            owner, args, kwargs = arguments(self, owner, args, kwargs)
            function = owner.format
        if type(owner) is list and name == "sort" and not args:
            from refcompiler.capture.models.ordering import in_order

            key = self.force(kwargs.get("key"))
            if self.is_python(key) and not self.nested and not self.is_foreign(owner):
                return Run(helpers.sort_in_place, [owner, key, kwargs.get("reverse", False)])
            owner[:] = in_order(self, self.frame, list(owner), kwargs)
            return None
        module = type(owner).__module__
        builtin_base = any(
            not is_heap(base) and base.__module__ in PURE_MODULES and name in base.__dict__
            for base in type(owner).__mro__
        )
        if module in PURE_MODULES or builtin_base or module.startswith("refcompiler."):
            return self.call_pure(function, args, kwargs)
        if is_node(self, owner):
            return node_method(self, function)
        if type(owner) in BLOCKS and name in ("__enter__", "__exit__"):
            return call_block(self, owner, name)
        if type(owner) is torch.device and name in ("__enter__", "__exit__"):
            return self.call_device_block(owner, name, args)
        if type(owner) in CONSTANT_TYPES or issubclass(type(owner), torch.Tensor):
            return self.call_pure(function, args, kwargs)
        if is_computed(function, name):
            return self.compute(function, args, kwargs)
        raise Break("c-function", f"{type(owner).__qualname__}.{name}")

    def resumption(self, generator: Any, name: str, args: Sequence) -> Resume | None:
        """``generator.send`` or ``generator.throw``, if its frame can be pushed."""
        if name == "send" and len(args) == 1 and resumable(generator):
            sent = self.force(args[0])
            if sent is None or is_suspended(generator):
                return Resume(generator, sent)
        elif name == "throw":
            kind, *rest = [self.force(value) for value in args]
            error = rest[0] if rest and rest[0] is not None else kind
            if issubclass(type(error), type) and issubclass(error, BaseException):
                if is_heap(error) and self.method_of(error, "__init__") is not UNSET:
                    return None
                error = error()
            if issubclass(type(error), BaseException) and can_throw(generator, error):
                self.raising(error)
                if len(rest) > 1 and rest[1] is not None:
                    error.__traceback__ = rest[1]
                return Resume(generator, error=error)
        return None

    def referent(self, ref: weakref.ref) -> Any:
        """What a weak reference leads to."""
        found, source = REFERENT(ref), self.source_of(ref)
        if source is not None:
            return self.lazy(self.sources.make("referent", source), found)
        elsewhere = self.is_given(found) and not self.continues  # the caller holds it
        if found is not None and not elsewhere and not is_held(self, found):
            raise Break("external-object", "a weak reference to what capture alone may hold")
        return found

    def is_given(self, value: Any) -> bool:
        """Whether it is an object from outside."""
        return self.source_of(value) is not None or id(value) in self.fakes_of_inputs

    def call_device_block(self, device: torch.device, name: str, args: Sequence) -> Any:
        """``with torch.device(...)``: the stack of function modes is as before at a graph's end."""
        if name == "__enter__":
            self.open_devices.append((device, self.steps))
            return device.__enter__()
        if not self.open_devices or type(self.open_devices[-1][0]) is not torch.device:
            raise Break("ambient-state", "a block of a device that was entered before is left")
        self.open_devices.pop()
        return device.__exit__(*map(self.force, args))

    def call_descriptor(
        self, frame: Any, function: Any, name: str, args: Sequence, kwargs: Mapping
    ) -> Any:
        """An unbound slot or method of a built-in class, such as ``object.__setattr__``."""
        if args:
            receiver = self.force(args[0])
            if function is _TYPE_CALL:
                return self.make_instance(frame, receiver, args[1:], kwargs)
            if function.__objclass__ in _GENERIC and issubclass(
                type(receiver), function.__objclass__
            ):
                if name == "__setattr__" and len(args) == 3:
                    self.plain_setattr(receiver, self.force(args[1]), args[2])
                    return None
                if name == "__getattribute__" and len(args) == 2:
                    if issubclass(type(receiver), types.ModuleType):
                        return self.module_attribute(receiver, self.force(args[1]))
                    return self.getattribute(receiver, self.force(args[1]))
                if name == "__delattr__" and len(args) == 2:
                    self.plain_delattr(receiver, self.force(args[1]))
                    return None
            if function is REFERENT and len(args) == 1 and not kwargs:
                return self.referent(receiver)
            if function is _REF_INIT:  # which does nothing
                return None
            if function is object.__init__ and len(args) == 1 and not kwargs:  # neither does this
                return None
            if function is _TYPE_GETATTRIBUTE and issubclass(type(receiver), type):
                return self.plain_class_attribute(receiver, self.force(args[1]))
            if function.__objclass__ is type and issubclass(type(receiver), type):
                if name == "__setattr__" and len(args) == 3:
                    self.plain_setattr(receiver, self.force(args[1]), args[2])
                    return None
                if name == "__delattr__" and len(args) == 2:
                    self.plain_delattr(receiver, self.force(args[1]))
                    return None
            if name in _WRITING:
                for value in map(self.force, args[:2]):
                    if self.is_given(value) or issubclass(type(value), _LASTING):
                        if id(value) not in map(id, self.own_classes):
                            raise Break("external-object", f"{name} of a {type(value).__name__}")
            ordered = issubclass(type(receiver), collections.OrderedDict)
            if ordered and function.__objclass__ is dict and name in _OF_DICTS:
                raise Break("c-function", f"dict.{name} past an ordered dict's order")
            if self.is_foreign(receiver):
                if issubclass(type(receiver), dict) and name in (
                    "get",
                    "__getitem__",
                    "__contains__",
                ):
                    if id(receiver) not in self.insides:
                        return self.read_foreign_dict(receiver, name, args[1:])
                inside = receiver if name in _STATE else contents(self, receiver)
                if inside is not receiver:
                    given = (inside, *args[1:])
                    found = self.call_descriptor(frame, function, name, given, kwargs)
                    if name == "__repr__" and type(inside) in (set, frozenset):
                        found = _text_of_set(type(receiver), found)
                    return given_back(receiver, inside, found)
                raise Break("c-function", f"{function.__qualname__} of an object from outside")
            if issubclass(type(receiver), torch.Tensor):
                return self.call_operation(function, args, kwargs)
            args = (receiver, *args[1:])
        if function.__objclass__.__module__ in PURE_MODULES:
            return self.call_pure(function, args, kwargs)
        if is_computed(function, name):
            return self.compute(function, args, kwargs)
        raise Break("c-function", function.__qualname__)

    def is_value(self, value: Any) -> bool:
        """One that is guarded by what it is made of."""
        found = is_value(value)
        if found and type(value) is Decimal and self.decimals is None:
            self.decimals = Decimals(self)
        return found

    def compute(self, function: Any, args: Sequence, kwargs: Mapping) -> Any:
        """A method of a value or a buffer, or the class of one."""
        if self.decimals is None and Decimal in (function, *map(_owner, (function, *args))):
            self.decimals = Decimals(self)
        return self.call_pure(function, args, kwargs)

    def subclass_input(self, value: torch.Tensor, source: Source) -> Any:
        return subclass_input(self, value, source)

    def shadow_array(self, external: External) -> Any:
        return array_input(self, external)

    def read_foreign_dict(self, value: dict, name: str, args: Sequence) -> Any:
        """One key of an instance of a dict's subclass, as ``dict`` itself reads it."""
        key = self.force(args[0])
        if type(key) not in CONSTANT_TYPES and not issubclass(type(key), (type, FunctionType)):
            raise Break("external-object", f"an item of a {type(value).__name__}")
        source = self.external[id(value)].source
        present = dict.__contains__(value, key)
        self.guard("HAS" if present else "LACKS", source, key)
        if name == "__contains__":
            return present
        if present:
            item = dict.__getitem__(value, key)
            return self.lazy(self.sources.make("dict_item", source, key), item)
        if name == "get":
            return args[1] if len(args) > 1 else None
        raise KeyError(key)

    def getattribute(self, value: Any, name: str) -> Any:
        """``object.__getattribute__``: without ``__getattr__``."""
        return self.plain_attribute(value, name)

    def call_pure(self, function: Any, args: Sequence, kwargs: Mapping) -> Any:
        name = getattr(function, "__name__", "")
        iterates, calls = name in ITERATING, name in CALLING
        if args and (function is reversed or merges(function, name)):
            args = [*args[:-1], whole(self, function, args[-1])]
        later = len(args) > 1 or function is chain
        forced = [self.pass_native(a, iterates, calls, later) for a in args]
        named = {k: self.pass_native(v, False, calls) for k, v in kwargs.items()}
        if _reads(function, name):
            forced = [self.read_in_c(value, name) for value in forced]
        if function is enumerate and forced and runs_code(self, forced[0]):
            forced[0] = Pulled(self, forced[0])  # whose items may be passed over (`numbered`)
        owner = function if type(function) is type else type(getattr(function, "__self__", None))
        if owner in _HASHING or name in _COMPARING:
            for value in forced:
                self.hashes(value)
        container = getattr(function, "__self__", None)
        if type(container) in COLLECTIONS and name not in _MOVING:
            if sum([self.hashes(value) for value in forced]):
                self.hashes(container)
        if name in CHANGING:
            forced = [contents(self, value) for value in forced]
        if name in CHANGING and any(self.is_foreign(value) for value in forced):
            raise Break("external-object", f"{name} changes an object from outside")
        found = None
        if self.sizes.env is not None:
            found, forced, named = arithmetic.call(self, function, forced, named)
        if found is None:
            found = natively(self, function, *forced, **named)
        if type(found) in (tuple, frozenset) and any(found is i for i in self.insides.values()):
            found = type(found)(iter(found))  # of a subclass's instance C code makes a new one
        self.is_personal |= is_personal(name, container, [*forced, *named.values()], found)
        if type(found) not in DRIVEN:  # which end when the program drops it
            self.recorder.keep.append(found)  # identity tables must not see its id again
            for made in (found, *found) if type(found) is tuple else (found,):
                self.made.setdefault(type(made), self.steps)
        return found

    def call_lazy_method(
        self, frame: Any, method: LazyMethod, args: Sequence, kwargs: Mapping
    ) -> Any:
        lazy = method.lazy
        if isinstance(lazy, Literal):
            found = call_method(self, lazy, method.name, args, kwargs)
            if found is UNSET:
                found = self.call(frame, self.force(method), args, kwargs)
            return found
        if issubclass(type(lazy.value), torch.Tensor):
            raise Break("tensor-kind", f"{lazy.source} has layout {lazy.value.layout}")
        if method.name == "append":
            if len(args) == 1 and not kwargs and self.is_unseen(lazy):
                self.append(lazy, args[0])
                return None
            return self.call_pure(self.observe(lazy).append, args, kwargs)
        if method.name == "extend" and type(lazy.value) is list:
            if len(args) == 1 and not kwargs and self.extend(lazy, args[0]):
                return None
            return self.call(frame, self.observe(lazy).extend, args, kwargs)
        found = call_dict_method(self, lazy, method.name, args, kwargs)
        if found is UNSET:
            bound = getattr(self.observe(lazy), method.name)
            found = self.call(frame, bound, args, kwargs)
        return found

    def awaited(self, value: Any, name: str) -> Any:
        value = self.force(value)
        kind = type(value)
        if self.method_of(kind, name) is UNSET:
            if self.is_foreign(value) or issubclass(kind, torch.Tensor):
                raise Break("coroutine", f"a {self.type_of(value).__name__} from outside")
        return value

    def make_instance(self, frame: Any, cls: type, args: Sequence, kwargs: Mapping) -> Any:
        raise NotImplementedError  # Instances

    # filled by the machine
    continues: bool  # whether it goes on after a break
    decimals: Decimals | None
    draws: list[Draw]
    made: dict[type, int]  # of what classes objects were made, and at which step the first
    open_devices: list[tuple[Any, int]]  # blocks that were entered, and at which step
