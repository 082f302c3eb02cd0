"""Attribute access with CPython's rules on objects from outside, on fakes, and on our own.

Source of the rules: the descriptor guide of CPython's documentation, ``object.__getattribute__``,
``type.__getattribute__`` and ``super``.
"""

from __future__ import annotations

import collections
import functools
import sys
import threading
import types
import typing
from importlib.util import find_spec
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from refcompiler.capture import arithmetic, generators
from refcompiler.capture.addresses import Address
from refcompiler.capture.arithmetic import CLASSES
from refcompiler.capture.arrays.array import Array, special_method
from refcompiler.capture.class_attributes import NAMES_OF_CLASSES, SLOT_TYPES, ClassAttributes
from refcompiler.capture.displays import METHODS, field_from_outside, field_of
from refcompiler.capture.iterators import state_of
from refcompiler.capture.kinds import BOUND_IN_C, CONSTANT_TYPES, IDENTITY_TYPES, is_alien
from refcompiler.capture.lookup import (
    find,
    is_heap,
    is_plain,
    is_property,
    name_at_slots,
    namespace_of,
    shown_name,
)
from refcompiler.capture.natively import QUIET, is_quiet, natively
from refcompiler.capture.signals import Break
from refcompiler.capture.state import history
from refcompiler.capture.state.contexts import Set
from refcompiler.capture.subclasses import attribute
from refcompiler.capture.values import (
    DELETED,
    External,
    Lazy,
    LazyMethod,
    Literal,
    Rethrown,
    Run,
    Unread,
)
from refcompiler.capture.wrappers import is_wrapper, part
from refcompiler.capture.written import looked_into
from refcompiler.guards.classes import FIELD
from refcompiler.guards.permanence import lasts
from refcompiler.guards.sources import Source, filled_slots, shows_namespace
from refcompiler.interpreter.driven import DELEGATES, DRIVEN, PREFIXES
from refcompiler.interpreter.frame import UNSET
from refcompiler.shapes.node import SYMBOLS

#: What tells the state of a generator.
_STATES = frozenset(
    f"{prefix}_{name}"
    for kind, prefix in PREFIXES.items()
    for name in ("running", "suspended", DELEGATES[kind].partition("_")[2])
)
_MODULE_DICTS = ("_parameters", "_buffers", "_modules")
_module_getattr = torch.nn.Module.__getattr__
#: What an object shows of its class, which a fake's is not.
_OF_CLASSES = frozenset({"__module__", "__doc__"})
#: Methods of a list that nothing has to look into.
_LIST_METHODS = frozenset({"append", "extend"})
#: Methods that may leave a dict closed.
_DICT_METHODS = frozenset({"get", "__contains__", "__getitem__", "pop", "setdefault", "update"})


#: What a function refers to by these names, which its class and its code fix.
_SPACES = {"__globals__": "globals", "__builtins__": "builtins"}
#: Classes in C whose instances have attributes as those of the program's classes do.
_PLAIN_IN_C = (types.SimpleNamespace, threading.local)
#: Classes in C whose instances may have attributes of the program's.
_WITH_NAMESPACES = (collections.OrderedDict, staticmethod, classmethod)


class Attributes(ClassAttributes):
    """The attribute hooks of the symbolic domain."""

    def getattr(self, value: Any, name: str) -> Any:
        found = self.attribute(value, name)
        return self.invoke(self.frame, *found) if type(found) is Run else found

    def attribute(self, value: Any, name: str) -> Any:
        """The attribute, or the :class:`Run` that is left to do for it."""
        if type(value) is Literal:
            if value.made is UNSET and name in METHODS.get(value.kind, frozenset()):
                return LazyMethod(value, name)
            found = field_of(self, value, name)
            if found is not UNSET:
                return found
            value = self.look_into(value)
        if type(value) is Unread:
            value = value.read(self)
        if type(value) is Lazy:
            inner = type(value.value)
            if name in _DICT_METHODS and (inner is dict or inner.__name__ == "OrderedDict"):
                self.guard("TYPE", value.source, inner)
                return LazyMethod(value, name)
            if name in _LIST_METHODS and inner is list and self.is_unseen(value):
                self.guard("TYPE", value.source, list)
                return LazyMethod(value, name)
            if issubclass(inner, tuple):
                found = field_from_outside(self, value, name)
                if found is not UNSET:
                    return found
            if issubclass(inner, torch.Tensor) and is_alien(value.value):
                if type(find(inner, name)[1]) is types.MethodDescriptorType:
                    return LazyMethod(value, name)  # which is called natively
            value = self.observe(value)
        if issubclass(type(value), torch.Tensor):
            return self.tensor_attribute(value, name)
        kind = type(value)
        if kind in SYMBOLS:
            return arithmetic.attribute(self, value, name)
        if kind is FunctionType:
            return self.function_attribute(value, name)
        if issubclass(type(value), type):
            return self.class_attribute(value, name)
        if kind is ModuleType:
            return self.module_attribute(value, name)
        if issubclass(kind, ModuleType):
            source, getattribute = self.find_in(kind, "__getattribute__")
            if type(getattribute) is FunctionType:
                self.from_class(source, getattribute)
                return self.with_fallback(value, name, getattribute)
            return self.module_attribute(value, name)
        if kind is super:
            return self.super_attribute(value, name)
        if kind in CONSTANT_TYPES:
            return getattr(value, name)
        if kind is LazyMethod:
            return self.attribute(self.bound(value), name)
        if kind is Array and (method := special_method(value, name)) is not None:
            return method
        if not is_heap(kind) and kind not in _PLAIN_IN_C:
            if issubclass(kind, BaseException) and self.is_foreign(value):
                return self.exception_attribute(value, name)
            return self.builtin_attribute(value, name)
        return self.object_attribute(value, name)

    def builtin_attribute(self, value: Any, name: str) -> Any:
        if kind_is_method(value):
            if name in ("__self__", "__func__", "__name__", "__qualname__", "__doc__"):
                return getattr(value, name)
            if type(value) is MethodType:
                if find(MethodType, name)[1] is not UNSET:  # it comes before the function's
                    return getattr(value, name)
                return self.getattr(value.__func__, name)
        if type(value) in DRIVEN and name in _STATES:
            return state_of(self, value, name)
        if type(value) is CellType and name == "cell_contents":
            held = self.load_cell(value)
            return CellType().cell_contents if held is UNSET else held  # as CPython raises
        if history.is_node(self, value):
            return history.node_attribute(self, value, name)
        if self.is_foreign(value) and not issubclass(type(value), IDENTITY_TYPES):
            if type(value) is torch.Generator and name == "device":
                return generators.device(self, value)
            if type(value) is typing.ParamSpec and name in ("args", "kwargs"):  # in C from 3.12 on
                found = getattr(value, name)
                own = self.external.get(id(value))
                return found if own is None else self.lazy(self.member(own.source, name), found)
            try:
                found = getattr(value, name)
            except AttributeError:
                if namespace_of(value) is None and is_plain(value):
                    raise
                why = f"{name}, which a {type(value).__name__} lacks now"
                raise Break("external-object", why) from None
            if getattr(found, "__self__", None) is value:
                return found  # a C method: whether it may be called is the caller's question
            raise Break("external-object", f"attribute {name} of a {type(value).__name__}")
        external = self.external.get(id(value))
        if type(value) in _WITH_NAMESPACES and external is None and name == "__dict__":
            self.own_namespaces[id(value.__dict__)] = value
        if type(value) in _WITH_NAMESPACES and external is not None:
            if name == "__dict__":
                return self.hand_out(external)
            described = find(type(value), name)[1]
            if described is UNSET or not hasattr(type(described), "__set__"):
                own = self.instance_value(external, value, name, False)
                if own is not UNSET:
                    return own
                if described is UNSET:
                    text = f"'{shown_name(value)}' object has no attribute '{name}'"
                    raise AttributeError(text, name=name, obj=value)
        return getattr(value, name)

    def exception_attribute(self, value: BaseException, name: str) -> Any:
        """Of an exception from outside; what raising it has changed is the frame's own."""
        raised = self.rethrown.get(id(value))
        if raised is not None and (name == "__traceback__" or name in raised.changes()):
            return getattr(value, name)
        return self.plain_attribute(value, name)

    def function_attribute(self, value: FunctionType, name: str) -> Any:
        external = self.external.get(id(value))
        if name in _SPACES:  # from outside, also where the frame has made the function
            space = getattr(value, name)
            return self.lazy(self.sources.constant(space, _SPACES[name]), space)
        if external is None:
            return getattr(value, name)
        if name == "__code__":
            self.guard("CODE", external.source, (value.__code__, None))
            return value.__code__
        if name in NAMES_OF_CLASSES or name in (
            "__defaults__",
            "__kwdefaults__",
            "__closure__",
            "__annotations__",
        ):
            return self.lazy(self.member(external.source, name), getattr(value, name))
        if name == "__dict__":
            return self.hand_out(external)
        if id(value.__dict__) in self.external:  # the program has it
            found = self.instance_value(external, value, name, False)
        else:
            found = self.overlay.get((id(value), name), UNSET)
        if found is not UNSET and found is not DELETED:
            return found
        if name in value.__dict__ and id(value.__dict__) not in self.external:
            parent = self.namespace(value, external.source)
            self.lazy(parent, value.__dict__)
            return self.lazy(self.item(parent, name, "member", name), value.__dict__[name])
        if found is UNSET and find(FunctionType, name)[1] is not UNSET:
            return getattr(value, name)  # a bound C method such as __get__
        parent = self.namespace(value, external.source)
        self.lazy(parent, value.__dict__)
        self.guard("ABSENT", parent, name)
        raise AttributeError(f"'function' object has no attribute '{name}'", name=name, obj=value)

    def module_attribute(self, value: ModuleType, name: str) -> Any:
        namespace, title = namespace_of(value), name_of(value)
        if type(namespace) is not dict:  # not made yet, or its class has another attribute so named
            raise Break("external-object", f"attribute {name} of a {type(value).__name__}")
        if name == "__dict__" and shows_namespace(type(value)):
            return self.lazy(self.module_space(value), namespace)
        found = self.written_global(namespace, name)
        if found is DELETED and name in namespace:
            text = f"module '{title}' has no attribute '{name}'"
            raise AttributeError(text, name=name, obj=value)
        if found is not UNSET and found is not DELETED:
            return found
        source = self.module_space(value)
        self.fix_class(value)
        if type(value) is not ModuleType:
            owner, described = self.find_in(type(value), name)
            if described is not UNSET and hasattr(type(described), "__set__"):
                external = self.external.get(id(value))
                return self.data_descriptor(external, value, name, owner, described)
        if name not in namespace and not self.binds(value, namespace, name):
            if type(value) is not ModuleType:
                if described is not UNSET and owner is not None:
                    return self.bind_found(owner, described, value, type(value), name)
                if described is UNSET and "__getattr__" not in namespace:
                    return self.kept_elsewhere(value, namespace, name)
                return getattr(value, name)
            if find(ModuleType, name)[1] is not UNSET:
                return getattr(value, name)
            self.guard("ABSENT", source, name)
            fallback = namespace.get("__getattr__")
            if fallback is None:
                self.guard("ABSENT", source, "__getattr__")
                return getattr(value, name)  # CPython's error
            fallback = self.item(source, "__getattr__", "member", "__getattr__")
            return Run(self.lazy(fallback, namespace["__getattr__"]), [name])
        return self.lazy(self.item(source, name, "member", name), namespace[name])

    def binds(self, module: ModuleType, namespace: dict[str, Any], name: str) -> bool:
        """Whether asking has imported a submodule of a library's (``torch.onnx``), which is there
        from then on."""
        title = name_of(module)
        if "__getattr__" not in namespace or title.partition(".")[0] not in QUIET:
            return False
        try:
            if "__path__" not in namespace or find_spec(f"{title}.{name}") is None:
                return False
            natively(self, getattr, module, name)
        except (AttributeError, ImportError, ValueError):
            return False
        return name in namespace

    def kept_elsewhere(self, module: ModuleType, namespace: dict[str, Any], name: str) -> Any:
        """What the class of a module has for attributes that are not there, such as settings.

        Operators of a library (``torch.ops``) are made when they are asked for, and kept.
        """
        space = self.module_space(module)
        source, fallback = self.find_guarded(type(module), "__getattr__")
        if type(fallback) is not FunctionType:
            return getattr(module, name)
        writes = type(find(type(module), "__setattr__")[1]) is FunctionType
        if is_quiet(fallback) and not writes:
            found = getattr(module, name)
            if name not in namespace:
                return found
            return self.lazy(self.item(space, name, "member", name), namespace[name])
        if not writes:
            self.guard("ABSENT", space, name)
        self.from_class(source, fallback)
        return Run(fallback, [module, name])

    def module_space(self, module: ModuleType) -> Source:
        """The namespace of a module: of one that may go as the module's attribute."""
        namespace, known = namespace_of(module), self.source_of(module)
        if known is not None and id(namespace) not in self.homes and not lasts(module):
            self.sources.reached.setdefault(id(namespace), self.namespace(module, known))
        source = self.sources.constant(namespace, name_of(module))
        self.lazy(source, namespace)
        return source

    def import_name(self, frame: Any, name: str, names: Any, level: int) -> Any:
        module = super().import_name(frame, name, names, level)
        known = name_of(module)
        if known.partition(".")[0] not in QUIET and sys.modules.get(known) is module:
            modules = self.sources.constant(sys.modules, "sys.modules")
            self.lazy(modules, sys.modules)
            source = self.item(modules, known, "dict_item")
            self.lazy(source, module)
            self.guard("ID", source, module)
        return module

    def fix_class(self, module: ModuleType) -> None:
        """A module of the user's may get another class."""
        if name_of(module).partition(".")[0] not in QUIET:
            source = self.sources.constant(module, name_of(module))
            self.lazy(source, module)
            self.guard("TYPE", source, type(module))

    def super_attribute(self, value: Any, name: str) -> Any:
        start, receiver = value.__thisclass__, value.__self__
        if receiver is None:
            return getattr(value, name)
        if name == "__class__":  # of the object itself, not of the receiver
            return super
        cls = value.__self_class__
        mro = cls.__mro__
        for base in mro[mro.index(start) + 1 :]:
            heap = is_heap(base) and base not in self.own_classes
            if name in base.__dict__:
                found = base.__dict__[name]
                source = None
                if heap:
                    source = self.class_member(base, name)
                if receiver is cls and type(found) in (FunctionType, property):
                    return self.from_class(source, found)  # there is no instance to bind it to
                return self.bind_found(source, found, receiver, cls, name)
            if heap:
                self.class_lacks(base, name)
        raise AttributeError(f"'super' object has no attribute '{name}'", name=name)

    # ---- instances --------------------------------------------------------------------------

    def object_attribute(self, value: Any, name: str) -> Any:
        if type(value) is RemovableHandle and id(value) in self.hooks:
            if name not in ("remove", "__enter__", "__exit__"):
                raise Break("operation-not-modelled", f"{name} of the handle of a hook")
        source, getattribute = self.find_guarded(type(value), "__getattribute__")
        if type(getattribute) is FunctionType:
            self.from_class(source, getattribute)
            return self.with_fallback(value, name, getattribute)
        if self.is_foreign(value):
            self.check_plain(value, name)
        return self.plain_attribute(value, name)

    def check_plain(self, value: Any, name: str) -> None:
        """C may keep the attributes of an object from outside in its own way."""
        plain = self.plain_kinds.get(type(value))
        if plain is None:
            plain = self.plain_kinds[type(value)] = is_plain(value)
        if not plain:
            raise Break("external-object", f"attribute {name} of a {type(value).__name__}")
        if issubclass(type(value), threading.local):  # a thread's first look runs ``__init__``
            natively(self, namespace_of, value)

    def plain_attribute(self, value: Any, name: str) -> Any:
        """``object.__getattribute__``, then ``__getattr__``."""
        cls = type(value)
        external = self.external.get(id(value))
        if name == "__dict__" and external is not None and issubclass(cls, threading.local):
            return self.hand_out(external)
        source, found = self.find_guarded(cls, name)
        if found is not UNSET and hasattr(type(found), "__set__"):
            made = self.data_descriptor(external, value, name, source, found)
            return self.or_fallback(made, value, name)
        own = self.instance_value(external, value, name, found is not UNSET)
        if own is not UNSET:
            if source is not None:
                self.guard("TYPE", source, type(found))  # which does not come first
            return own
        if found is not UNSET:
            return self.or_fallback(self.bind_found(source, found, value, cls, name), value, name)
        source, fallback = self.find_guarded(cls, "__getattr__")
        self.from_class(source, fallback)
        if fallback is UNSET:
            shown = shown_name(value) if cls is type(value) else cls.__name__
            text = f"'{shown}' object has no attribute '{name}'"
            raise AttributeError(text, name=name, obj=value)
        if fallback is _module_getattr and external is not None:
            return self.registered(external, value, name)
        return Run(fallback, [value, name])

    def instance_value(
        self, external: External | None, value: Any, name: str, shadows: bool
    ) -> Any:
        """The entry of the instance's namespace, or UNSET."""
        if external is None:
            return (namespace_of(value) or {}).get(name, UNSET)
        overlaid = self.overlay.get((id(external.value), name), UNSET)
        if overlaid is not UNSET:
            return UNSET if overlaid is DELETED else overlaid
        namespace = namespace_of(external.value)
        if namespace is None:
            return UNSET
        known = looked_into(self, self.external.get(id(namespace)))
        if known is not None and known.shadow is not None:
            return known.shadow.get(name, UNSET)
        parent = self.namespace(external.value, external.source)
        if name in namespace:
            self.lazy(parent, namespace)
            return self.lazy(self.item(parent, name, "member", name), namespace[name])
        self.lazy(parent, namespace)
        self.guard("ABSENT", parent, name)
        return UNSET

    def data_descriptor(
        self, external: External | None, value: Any, name: str, source: Source | None, found: Any
    ) -> Any:
        kind = type(found)
        if is_property(found):
            if found.fget is None:
                return getattr(value, name)
            return Run(self.wrapped(source, found, "fget"), [value])
        if name == "__class__":
            return type(value)
        if name == "__dict__":
            if external is None:
                namespace = namespace_of(value)
                self.own_namespaces[id(namespace)] = value
                return namespace
            return self.hand_out(external)
        if kind is types.MemberDescriptorType:
            if external is None:
                return getattr(value, name)
            overlaid = self.overlay.get((id(value), name), UNSET)
            if overlaid is not UNSET and overlaid is not DELETED:
                return overlaid
            if overlaid is not DELETED and name not in filled_slots(value):
                parent = self.sources.make("filled", external.source)
                self.lazy(parent, filled_slots(value))
                self.guard("ABSENT", parent, name)
                overlaid = DELETED
            if overlaid is DELETED:
                text = f"'{name_at_slots(type(value))}' object has no attribute '{name}'"
                raise AttributeError(text, name=name, obj=value)
            return self.lazy(self.slot(external, name), object.__getattribute__(value, name))
        getter_source, getter = self.find_guarded(kind, "__get__")
        if type(getter) is FunctionType:
            self.from_class(source, found)
            self.from_class(getter_source, getter)
            return Run(getter, [found, value, type(value)])
        if external is not None and kind is types.GetSetDescriptorType:
            overlaid = self.overlay.get((id(value), name), UNSET)
            if overlaid is not UNSET and overlaid is not DELETED:
                return overlaid
            return self.lazy(self.slot(external, name), object.__getattribute__(value, name))
        if getter is UNSET:
            return self.set_only(source, found, value, name)
        if source is not None and kind is FIELD:
            self.field_of_class(source, found)
        elif source is not None:
            self.guard("ID", source, found)
        return getattr(value, name)

    def set_only(self, source: Source | None, found: Any, value: Any, name: str) -> Any:
        """An attribute whose descriptor says how it is assigned to, and not what it is."""
        external = self.external.get(id(value))
        if external is None:
            own = namespace_of(value)
            return own[name] if own is not None and name in own else found
        item = self.hand_out(external)
        if item is not None and name in item:
            return self.getitem(item, name)
        return self.plain_class_value(source, found)

    def slot(self, external: External, name: str) -> Source:
        """The source of what a descriptor in C reads from an instance."""
        if self.namespace(external.value, external.source).kind == "dict":
            return self.member(external.source, name)
        return self.sources.make("slot", external.source, name, name)

    def bind_found(
        self, source: Source | None, found: Any, value: Any, cls: type, name: str
    ) -> Any:
        """A class's non-data attribute as seen from an instance."""
        kind = type(found)
        if kind is FunctionType:
            return MethodType(self.from_class(source, found), value)
        if kind is staticmethod:
            return self.wrapped(source, found, "__func__")
        if kind is classmethod:
            return MethodType(self.wrapped(source, found, "__func__"), cls)
        if is_property(found):
            return Run(self.wrapped(source, found, "fget"), [value])
        if type(found) is types.BuiltinFunctionType:
            return self.from_class(source, found)
        if kind is functools.cached_property:
            return self.cached(source, found, value)
        if issubclass(type(found), SLOT_TYPES):
            self.from_class(source, found)
            receiver = value
            external = self.external.get(id(value))
            if external is not None and external.shadow is not None:
                receiver = external.shadow
            return found.__get__(receiver, cls)
        getter_source, getter = self.find_guarded(kind, "__get__")
        if type(getter) is FunctionType:
            self.from_class(source, found)
            self.from_class(getter_source, getter)
            return Run(getter, [found, value, cls])
        if getter is not UNSET:
            self.from_class(source, found)
            return found.__get__(value, cls)
        return self.plain_class_value(source, found)

    def cached(self, source: Source | None, found: Any, value: Any) -> Any:
        """``functools.cached_property``: the value is kept in the instance's namespace."""
        self.from_class(source, found)
        made = self.force(self.invoke(self.frame, self.wrapped(source, found, "func"), [value]))
        external = self.external.get(id(value))
        if external is None:
            value.__dict__[found.attrname] = made
        else:
            self.write_attribute(external, found.attrname, made)
        return made

    def registered(self, external: External, value: Any, name: str) -> Any:
        """``nn.Module.__getattr__``: parameters, buffers, submodules."""
        parent = self.namespace(value, external.source)
        for kind in _MODULE_DICTS:
            entries = value.__dict__.get(kind)
            if entries is None:
                continue
            entries_source = self.item(parent, kind, "member", kind)
            known = looked_into(self, self.external.get(id(entries)))
            if known is not None and known.shadow is not None:
                if name in known.shadow:
                    return known.shadow[name]
                continue
            overlaid = self.overlay.get((id(entries), name), UNSET)
            if overlaid is not UNSET and overlaid is not DELETED:
                return overlaid
            if name in entries:
                self.lazy(parent, value.__dict__)
                self.lazy(entries_source, entries)
                return self.lazy(self.item(entries_source, name, "member", name), entries[name])
        for kind in _MODULE_DICTS:
            if kind in value.__dict__:
                source = self.item(parent, kind, "member", kind)
                self.lazy(source, value.__dict__[kind])
                self.guard("ABSENT", source, name)
        raise AttributeError(
            f"'{type(value).__name__}' object has no attribute '{name}'", name=name, obj=value
        )

    # ---- tensors ----------------------------------------------------------------------------

    def tensor_attribute(self, value: torch.Tensor, name: str) -> Any:
        if name == "__class__":
            return self.type_of(value)
        if name in _OF_CLASSES:
            return getattr(self.type_of(value), name)
        if name == "grad" and self.recorder.modes:
            raise Break("ambient-state", "a TorchFunctionMode is asked for a gradient")
        if id(value) in self.classes and (own := attribute(self, value, name)) is not UNSET:
            return own
        if is_wrapper(type(value)) and (own := part(self, value, name)) is not UNSET:
            return own
        if name == "__dict__":  # a fake's is its own
            raise Break("operation-not-modelled", "attributes of a tensor")
        real = self.real_of(value)
        if name == "_base":
            return history.base(self, value, real)
        if real is None:
            found = self.own_attributes.get((id(value), name), UNSET)
            if found is not UNSET:
                return found
            if name == "grad" and value.is_leaf:
                with torch._C.DisableTorchFunction():
                    return value.grad
            if name in history.NAMES:
                found = history.attribute(self, value, name)
                if found is not UNSET:
                    return found
        else:
            overlaid = self.overlay.get((id(real), name), UNSET)
            if overlaid is not UNSET and name != "data":
                return overlaid
            if name in getattr(real, "__dict__", {}):
                source = self.fakes_of_inputs[id(value)]
                parent = self.namespace(real, source)
                self.lazy(parent, real.__dict__)
                return self.lazy(self.item(parent, name, "member", name), real.__dict__[name])
            if name == "grad":
                source = self.fakes_of_inputs[id(value)]
                with torch._C.DisableTorchFunction():
                    grad = real.grad
                return self.lazy(self.member(source, "grad"), grad)
            if name == "grad_fn":
                found = history.of_an_input(self, value, real)
                if found is not UNSET:
                    return found
        owner, found = self.find_guarded(torch.nn.Parameter, name)
        if type(found) is FunctionType and not is_quiet(found):
            self.from_class(owner, found)  # a method that somebody added to torch.Tensor
        if found is UNSET:
            if real is not None:
                parent = self.namespace(real, self.fakes_of_inputs[id(value)])
                self.lazy(parent, real.__dict__)
                self.guard("ABSENT", parent, name)
            raise AttributeError(
                f"'{self.type_of(value).__name__}' object has no attribute '{name}'",
                name=name,
                obj=value,
            )
        if type(found) is types.MethodDescriptorType:
            return found.__get__(value)  # past what fakes have of that name
        if not (self.recorder.kinds or self.recorder.modes):
            return getattr(value, name)
        self.recorder.asked = True
        try:
            return getattr(value, name)
        finally:
            self.recorder.asked = False

    def type_of(self, value: Any) -> type:
        value = self.force(value)
        if issubclass(type(value), torch.Tensor):
            if id(value) in self.classes:
                return self.classes[id(value)]
            return torch.nn.Parameter if getattr(value, "_is_param", False) else torch.Tensor
        if type(value) in SYMBOLS:
            return CLASSES[type(value)]
        return value.__class__ if type(value) in (Array, Address, Set) else type(value)

    def has_special(self, value: Any, name: str) -> bool:
        return self.find_guarded(type(self.force(value)), name)[1] is not UNSET

    def special(self, value: Any, name: str) -> Any:
        value = self.force(value)
        source, found = self.find_guarded(type(value), name)
        bound = self.bind_found(source, found, value, type(value), name)
        return self.invoke(self.frame, *bound) if type(bound) is Run else bound

    # filled by the machine
    open_ranges: set[int]  # of the profiler, that the frame has entered
    after: list[tuple[Source, str]]  # methods to call after the graph, of what
    own_attributes: dict[tuple[int, str], Any]  # (id of a tensor made in the frame, name) -> value
    hooks: dict[int, Any]  # id of its handle -> a hook that the frame has registered
    rethrown: dict[int, Rethrown]


def name_of(module: Any) -> str:
    """The name of a module, without asking code of its class's for it."""
    found = (namespace_of(module) or {}).get("__name__")
    return found if isinstance(found, str) else ""


def kind_is_method(value: Any) -> bool:
    return type(value) is MethodType or type(value) in BOUND_IN_C
