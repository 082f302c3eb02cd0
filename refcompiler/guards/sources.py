"""Sources: the ways in which a value is reached from a call's arguments."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import inspect
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from contextvars import Context, ContextVar, Token
from types import CodeType, GetSetDescriptorType, MemberDescriptorType
from typing import Any, NamedTuple

import torch

#: kind -> (expression over the parent {p} and the key {k}, the same for people)
FORMS: dict[str, tuple[str, str]] = {
    "arg": ("{k}", "{n}"),
    "const": ("{k}", "{n}"),
    "space": ("{k}", "{n}"),  # the namespace of a class
    "class_of": ("type({p})", "type({p})"),
    "attr": ("{p}.{k}", "{p}.{k}"),
    "dict": ("{p}.__dict__", "{p}"),
    # past a ``__getattribute__`` of the user's, which runs as often as in eager mode
    "slot": ("object_getattribute({p}, {k})", "{p}.{n}"),
    "hidden_dict": ("namespace_of({p})", "{p}"),  # behind the user's __getattribute__
    "filled": ("filled_slots({p})", "{p}"),
    "item": ("{p}[{k}]", "{p}[{k}]"),
    "member": ("{p}[{k}]", "{p}.{n}"),
    "dict_item": ("dict_getitem({p}, {k})", "{p}[{k}]"),
    "keys": ("list({p})", "{p}.keys()"),
    "values": ("list({p}.values())", "{p}.values()"),
    "length": ("len({p})", "len({p})"),
    "referent": ("referent({p})", "{p}()"),  # of a weak reference, past a subclass's own call
    "ahead": ("Ahead({p})", "{p}"),  # the items that an iterator will give
    "part": ("account({p})[1][{k}]", "{p}.parts[{k}]"),  # of an iterator over others
    "place": ("account({p})[2]", "{p}.index"),  # of an iterator over numbered items
    "fed": ("fed({p})", "{p}.parts[0]"),
    "activation": ("driven_by({p})", "{p}"),  # of a generator or coroutine
    "local": ("{p}.frame.fast[{k}]", "{p}.{n}"),
    "stacked": ("{p}.frame.stack[{k}]", "{p}.stack[{k}]"),
    "handled": ("exception_around()", "sys.exception()"),  # by whoever calls what is compiled
    "context": ("{p}.get(NOT_SET)", "{p}"),
    "in_context": ("{p}.get({k}, NOT_SET)", "{p}[{n}]"),
    "context_default": ("default_of({p})", "{p}"),
    "proxied": ("proxied({p})", "{p}"),  # the dict under a mapping proxy
    "viewed": ("viewed({p})", "{p}.mapping"),  # and under a view of its keys, values or items
    "made_of": ("{p}.__reduce_ex__(4)", "{p}"),  # of a value of a class in C
    "set_here": ("set_here({p})", "{p}"),  # of a token
    "mode_around": ("mode_around({p})", "{p}"),  # of an inference mode that was entered
    "start": ("{p}.__reduce__()[1][1]", "{p}.count"),  # of an enumeration
    "plain": ("plain_tensor({p})", "{p}"),  # of a tensor of a subclass
    "parameter": ("parameter({k})", "{n}"),  # that each call makes
    "array": ("array_tensor({p})", "{p}"),  # over the memory of a numpy array
    "number": ("{p}.item()", "{p}.item()"),  # in a tensor of one element
    "scalar": ("plain_scalar({p})", "{p}"),  # of an instance of a number's or text's subclass
    "contents": ("contents_of({p})", "{p}"),  # of a container that says how it is read itself
    "closure": ("{p}.__closure__[{k}]", "{n}"),
    "cached": ("cached({p}, {k})", "{p}{k}"),  # what a wrapper of lru_cache knows of a call
    "cell": ("{p}.cell_contents", "{p}"),
    "default": ("{p}.__defaults__[{k}]", "{p}.__defaults__[{k}]"),
    "kwdefault": ("{p}.__kwdefaults__[{k}]", "{p}.__kwdefaults__[{k}]"),
}


#: Where ``nn.Module`` keeps what is read as its attribute.
_REGISTRIES = frozenset({"_parameters", "_buffers", "_modules"})


#: What a weak reference leads to.
referent: Any = weakref.ref.__dict__["__call__"]
#: What stands for the value of a context variable that has none.
NOT_SET: Any = type("NotSet", (), {"__repr__": lambda self: "not set", "__slots__": ()})()


class Source:
    """How to reach a value. Interned by :class:`Sources`, so identity is equality."""

    __slots__ = ("kind", "parent", "key", "label", "fixed", "named", "_text")

    def __init__(self, kind: str, parent: Source | None, key: Any, label: str):
        self.kind = kind
        self.parent = parent
        self.key = key
        self.label = label
        #: What its text names: each ``__dict__`` of a class is a new proxy.
        self.fixed: Any = None
        #: What the user calls the items of arguments that are handed on as they are.
        self.named: Positional | Keywords | None = None
        self._text = ""

    def expression(self, parent: str, constant: Callable[[Any], str]) -> str:
        """Python text that reads the value, given the text of the parent."""
        form = FORMS[self.kind][0]
        if self.kind == "space":
            return f"{constant(self.key)}.__dict__" if self.fixed is None else constant(self.fixed)
        if self.kind in ("arg", "attr"):
            return form.format(p=parent, k=self.key)
        return form.format(p=parent, k=constant(self.key) if "{k}" in form else "")

    def __str__(self) -> str:
        if not self._text:
            parent = str(self.parent) if self.parent is not None else ""
            key = self.label or (self.key if self.kind in ("arg", "attr") else repr(self.key))
            form = FORMS[self.kind][1]
            outer = self.parent
            if self.kind in ("item", "dict_item") and outer is not None and outer.named is not None:
                self._text = outer.named(self.key)
                return self._text
            if outer is not None and outer.kind == "member" and outer.key in _REGISTRIES:
                parent, form = str(outer.parent), "{p}.{n}"  # as users write it
            self._text = form.format(p=parent, k=key, n=self.label or self.key)
        return self._text

    def __repr__(self) -> str:
        return f"Source({self})"


def spelt_out(source: Source) -> str:
    """As its text, with the registries that an attribute of a module lies in, as torch has it."""
    outer = source.parent
    if outer is None or outer.named is not None:
        return str(source)
    parent = spelt_out(outer)
    if outer.kind == "member" and outer.key in _REGISTRIES:
        return f"{parent}[{source.key!r}]"
    key = source.label or (source.key if source.kind == "attr" else repr(source.key))
    return FORMS[source.kind][1].format(p=parent, k=key, n=source.label or source.key)


def name_arguments(args: Source, kwargs: Source, code: CodeType, skipped: int) -> None:
    """What is handed on to the function of ``code`` has the names that it has there.

    ``skipped``: how many arguments the function gets before those.
    """
    count = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[skipped : code.co_argcount]
    rest = list(code.co_varnames[count:])
    star = rest.pop(0) if code.co_flags & inspect.CO_VARARGS else args.key
    stars = rest.pop(0) if code.co_flags & inspect.CO_VARKEYWORDS else kwargs.key
    known = frozenset(code.co_varnames[:count])
    args.label, kwargs.label = "positional arguments", "keyword arguments"
    args.named = Positional(tuple(names), str(star))
    kwargs.named = Keywords(tuple(sorted(known)), str(stars))


class Positional(NamedTuple):
    """What the user calls positional arguments: by ``names``, and behind them of ``star``."""

    names: tuple[str, ...]
    star: str

    def __call__(self, i: Any) -> str:
        count = len(self.names)
        return self.names[i] if i < count else f"{self.star}[{i - count}]"


class Keywords(NamedTuple):
    """The same of keyword arguments, which come by name."""

    names: tuple[str, ...]
    stars: str

    def __call__(self, name: Any) -> str:
        return name if name in self.names else f"{self.stars}[{name!r}]"


class Sources:
    """Makes sources, one object for each distinct one."""

    def __init__(self) -> None:
        self._known: dict[tuple, Source] = {}
        self._constants: dict[int, Source] = {}
        self._spaces: dict[int, Source] = {}
        self.reached: dict[int, Source] = {}  # namespaces that are read from what holds them

    def make(self, kind: str, parent: Source | None, key: Any = None, label: str = "") -> Source:
        known = (kind, parent, type(key), key)
        found = self._known.get(known)
        if found is None:
            found = self._known[known] = Source(kind, parent, key, label)
        return found

    def space(self, cls: type) -> Source:
        """The namespace of a class that the guards of its parents already fix."""
        found = self._spaces.get(id(cls))
        if found is None:
            found = self._spaces[id(cls)] = Source("space", None, cls, cls.__qualname__)
            found.fixed = cls.__dict__
        return found

    def constant(self, value: Any, label: str) -> Source:
        """An object that the guards of its parents already fix, such as a module's namespace."""
        found = self.reached.get(id(value)) or self._constants.get(id(value))
        if found is None:
            found = self._constants[id(value)] = Source("const", None, value, label)
        return found


#: The ``__dict__`` of an object whose class has another attribute of that name, a property say.
_hidden_namespace: Any = ctypes.pythonapi.PyObject_GenericGetDict
_hidden_namespace.restype = ctypes.py_object
_hidden_namespace.argtypes = (ctypes.py_object, ctypes.c_void_p)


def shows_namespace(cls: type) -> bool:
    """Whether ``object.__getattribute__(value, "__dict__")`` is the namespace of an instance."""
    if issubclass(cls, threading.local):
        return False
    for base in cls.__mro__:
        found = base.__dict__.get("__dict__")
        if found is not None:
            return type(found) in (GetSetDescriptorType, MemberDescriptorType)
    return True


def namespace_of(value: Any) -> dict:
    """The instance's ``__dict__``; no code of the user's runs, whatever the class says of it.

    But a thread's first look at one of its own, of a ``threading.local``, calls ``__init__``.
    """
    if shows_namespace(type(value)):
        return object.__getattribute__(value, "__dict__")
    if issubclass(type(value), threading.local):
        return threading.local.__getattribute__(value, "__dict__")
    return _hidden_namespace(value, None)


def rules_of(kind: type) -> Any:
    """The class in C that sets and deletes an instance's attributes, if no other does."""
    for base in (type, threading.local):
        if issubclass(kind, base):
            return base
    return object


def filled_slots(value: Any) -> list[str]:
    """The attributes in slots that have a value; no code of the user's runs."""
    found = []
    for base in type(value).__mro__:
        for name, slot in base.__dict__.items():
            if type(slot) is MemberDescriptorType:
                with contextlib.suppress(AttributeError):
                    slot.__get__(value, type(value))
                    found.append(name)
    return found


def default_of(var: ContextVar) -> Any:
    """What a context variable is where nothing has set it."""
    return Context().run(var.get)


_PROBE: ContextVar[None] = ContextVar("probe")


def set_here(token: Token) -> bool:
    """Whether a token was made in the context that runs, which contexts tell nobody."""
    mine = _PROBE.set(None)
    try:
        here = [part for part in gc.get_referents(mine) if type(part) is Context]
    finally:
        _PROBE.reset(mine)
    return any(part is here[0] for part in gc.get_referents(token))


#: Classes whose subclasses' instances have an unchangeable value besides their attributes.
SCALARS = (int, float, complex, str, bytes)


def plain_scalar(value: Any) -> Any:
    """The value of an instance of a subclass; no code of the user's runs."""
    for base in (int, float, complex):
        if issubclass(type(value), base):
            return base.__pos__(value)
    return str.__str__(value) if issubclass(type(value), str) else bytes.__getitem__(value, _ALL)


_ALL = slice(None)


def contents_of(value: Any) -> Any:
    """What an instance of a subclass of a container of C holds; no code of the user's runs."""
    kind = type(value)
    if issubclass(kind, OrderedDict):
        return {key: dict.__getitem__(value, key) for key in OrderedDict.__iter__(value)}
    if issubclass(kind, dict):
        return dict(dict.items(value))
    base: Any = next(c for c in (list, tuple, set, frozenset, deque) if issubclass(kind, c))
    return [*base.__iter__(value)] if base is deque else base(base.__iter__(value))


def plain_tensor(value: torch.Tensor) -> torch.Tensor:
    """A tensor of a subclass as one of ``torch.Tensor``."""
    with torch._C.DisableTorchFunctionSubclass():
        return value.as_subclass(torch.Tensor)


#: The method that makes each kind of view of a dict, or of an ordered one.
VIEWS: dict[type, Any] = {
    type(getattr(kind(), name)()): getattr(kind, name)
    for kind in (dict, OrderedDict)
    for name in ("keys", "values", "items")
}


def viewed(view: Any) -> Any:
    """The dict under a view of its keys, values or items; ``view.mapping`` is a proxy of it."""
    (mapping,) = gc.get_referents(view)
    return mapping


def proxied(proxy: Any) -> Any:
    """What a mapping proxy shows; None for the namespace of a class, which that alone sees."""
    (mapping,) = gc.get_referents(proxy)
    return None if type(mapping) is dict and "__module__" in mapping else mapping
