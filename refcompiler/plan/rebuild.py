"""Rebuilding: from a value of the symbolic domain to Python that makes it after the graph.

What came from outside is read from its source, tensors come from the graph, and what the frame
made is made again, once each, so that shared references stay shared.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import gc
import itertools
import operator
import sys
import types
import weakref
from contextvars import Context, Token
from types import AsyncGeneratorType, CellType, FunctionType, MethodType
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from refcompiler.bytecode.decode import is_literal
from refcompiler.capture.addresses import Address
from refcompiler.capture.arrays.array import Array, ArrayMethod, is_scalar, owner_of
from refcompiler.capture.caches import entries_of, made_again, parameters_of, wrapped_by
from refcompiler.capture.displays import make
from refcompiler.capture.immutable import BUFFERS, FILES, PROTOCOL, closed_file, is_value_class
from refcompiler.capture.kinds import (
    BOUND_IN_C,
    CONSTANT_TYPES,
    is_numpy_scalar,
    is_struct_sequence,
)
from refcompiler.capture.lookup import (
    CACHE,
    is_heap,
    is_of_fixed_class,
    namespace_of,
    slot_of,
)
from refcompiler.capture.policy import bound_owner
from refcompiler.capture.pulled import Delegate, Later, Pulled
from refcompiler.capture.regions.transforms import Pullback
from refcompiler.capture.signals import Restart
from refcompiler.capture.state.contexts import Set
from refcompiler.capture.state.handles import Number
from refcompiler.capture.state.hooks import check_handle
from refcompiler.capture.unread import is_current
from refcompiler.capture.values import External, Lazy, LazyMethod, Literal, Shown, Told, Unread
from refcompiler.guards.arrays import array_view
from refcompiler.guards.classes import FIELD
from refcompiler.guards.iterators import account, restore
from refcompiler.guards.sources import VIEWS, referent, viewed
from refcompiler.interpreter.continued import ended
from refcompiler.interpreter.driven import DRIVEN, driven_by, frame_of, is_driven
from refcompiler.interpreter.frame import NULL, UNSET
from refcompiler.plan.contexts import ContextVariables
from refcompiler.plan.iterating import ITERATORS, Iterators
from refcompiler.plan.objects import Objects
from refcompiler.plan.writing import NotRebuilt
from refcompiler.shapes.node import SYMBOLS
from refcompiler.shapes.text import python

#: What a class has to be given as it is made, and what comes with it by itself.
_AT_FIRST = ("__module__", "__qualname__", "__slots__")
_MADE_WITH_CLASSES = (types.GetSetDescriptorType, types.MemberDescriptorType)
_TEES: tuple[type, ...] = (type(itertools.tee(())[0]), itertools._tee_dataobject)  # type: ignore[attr-defined]
_KEY: type = type(functools.cmp_to_key(len))  # type: ignore[arg-type]
#: References to the annotations of a function that nobody else has: its, a variable's, a call's.
_UNSHARED = 3
#: What ``type`` itself sets elsewhere than in a class's namespace, or does not let set.
_ABOUT_CLASSES = frozenset(
    [name for name, found in vars(type).items() if hasattr(type(found), "__set__")]
) - {"__doc__", "__annotations__", "__abstractmethods__"} | {"__class__"}
_FIXED = (
    type,
    types.ModuleType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.CodeType,
)
_SHOWING = ("format", "str", "repr", "ascii")  # by FORMAT_VALUE's conversion


class Rebuilder(Objects, Iterators, ContextVariables):
    """Writes expressions and statements that rebuild values of one capture."""

    # ---- tensors ----------------------------------------------------------------------------

    def tensor(self, value: torch.Tensor) -> str:
        source = self.machine.fakes_of_inputs.get(id(value))
        if source is not None:
            return self.writer.read(source)
        node = self.machine.recorder.node_of(value)
        if node is None:
            raise self.refuse(value)
        known = self.names.get(id(value))
        if known is not None:
            return known
        name = self.output(node)
        cls = self.machine.recorder.kinds.get(id(value))
        if cls is not None:
            convert = self.writer.constant(torch.Tensor.as_subclass)
            name = self.assign(value, f"{convert}({name}, {self.writer.constant(cls)})")
        if id(value) in self.machine.recorder.floats:
            return f"{name}.item()"
        if self.machine.own_attributes:
            self.names[id(value)] = name
            for (owner, attribute), item in self.machine.own_attributes.items():
                if owner == id(value):
                    self.late.append(f"{name}.{attribute} = {self.expression(item)}")
        return name

    def output(self, node: torch.fx.Node) -> str:
        """The name of what the graph gives for ``node``."""
        if node not in self.outputs:
            self.outputs.append(node)
        return f"__g{self.outputs.index(node)}"

    def number(self, value: Any) -> str:
        """A symbolic number, computed from where its symbols come from."""

        def name(symbol: Any) -> str:
            source = self.machine.sizes.sources.get(symbol)
            if source is not None:
                return self.writer.read(source)
            return self.output(self.machine.recorder.root.numbers[symbol])

        known = self.machine.recorder.root.numbers.get(value.node.expr)
        if known is not None and type(value) is torch.SymBool:
            return f"bool({self.output(known)})"
        text = python(value.node.expr, name)
        return f"({text})" if type(value) is torch.SymBool else text

    def one_number(self, value: Any) -> str:
        """A symbolic number, which is one object wherever the program has it."""
        name = self.names.get(id(value))
        if name is None:
            text = self.number(value)
            if text.isidentifier() or text.isdigit():
                return text
            self.keep.append(value)
            name = self.assign(value, text)
        return name

    # ---- everything -------------------------------------------------------------------------

    def expression(self, value: Any) -> str:
        kind = type(value)
        if kind is Lazy:
            forced = self.machine.forced.get(value.source, UNSET)
            if forced is not UNSET and type(forced) not in (MethodType, functools.partial):
                return self.expression(forced)
            return self.writer.read(value.source)
        if kind is Literal:
            return self.display(value)
        if kind is Unread:
            return self.text(value)
        if kind in SYMBOLS:
            return self.one_number(value)
        if kind is torch.Size and any(type(item) in SYMBOLS for item in value):
            return f"{self.writer.constant(torch.Size)}(({self.many(value)},))"
        if kind is float and value != value:
            for known, source in self.machine.nans:
                if known is value:  # containers ask which one it is
                    return self.writer.read(source)
        if kind in CONSTANT_TYPES or value is NULL or value is UNSET or is_numpy_scalar(kind):
            return self.writer.object(value)
        if issubclass(type(value), torch.Tensor):
            return self.tensor(value)
        name = self.names.get(id(value))
        if name is not None:
            return name
        external = self.machine.external.get(id(value))
        if external is not None:
            return self.external(external)
        original = self.machine.callback_of.get(id(value))
        if original is not None:
            return self.expression(original)
        if issubclass(type(value), type):
            return self.kind(value)
        if issubclass(type(value), _FIXED) and not self.bound_to_state(value):
            if not (issubclass(type(value), types.ModuleType) and is_heap(type(value))):
                return self.writer.constant(value)
        self.keep.append(value)
        return self.whole(value)

    def display(self, value: Literal) -> str:
        """A container whose items need not have been observed."""
        made = value.made
        if made is UNSET:
            if id(value) not in self.displayed:
                self.displayed[id(value)] = value, make(value.kind, value.items)
            made = self.displayed[id(value)][1]
        return self.expression(made)

    def external(self, external: External) -> str:
        return self.writer.read(external.source)

    def bound_to_state(self, value: Any) -> bool:
        """A method in C of an object, or of a class that may be another one in the next call."""
        if type(value) not in BOUND_IN_C[:2]:
            return False
        owner: Any = value.__self__
        if issubclass(type(owner), type):
            known = is_heap(owner) and id(owner) in self.machine.external
            return known or owner in self.machine.own_classes
        return bound_owner(value) is not None

    def build(self, value: Any) -> str:
        kind = type(value)
        if issubclass(kind, type):
            return self.own_class(value)
        if kind is types.GenericAlias:
            made = f"{self.expression(value.__origin__)}, {self.expression(value.__args__)}"
            return self.assign(value, f"{self.writer.constant(kind)}({made})")
        if kind is types.UnionType:
            union = f"{self.writer.constant(functools.reduce)}({self.writer.constant(operator.or_)}"
            return self.assign(value, f"{union}, {self.expression(value.__args__)})")
        constant = self.writer.constant
        if kind is tuple:
            if is_literal(value):
                return constant(value)
            texts = list(map(self.expression, value))
            text = ", ".join(texts)
            if value and not any(item.startswith("__") for item in texts):
                return self.assign(value, f"tuple([{text}])")  # no constant of the plan's
            return self.assign(value, f"({text}{',' if len(value) == 1 else ''})")
        if kind is list:
            name = self.assign(value, "[]")
            if value:
                self.lines.append(f"{name} += [{self.many(value)}]")
            return name
        if kind is dict:
            owner = self.machine.own_namespaces.get(id(value))
            if owner is not None:
                return self.assign(value, self.namespace(owner, self.expression(owner)))
            name = self.assign(value, "{}")
            self.entries(name, value)
            return name
        if kind is set and not all(map(self.is_hashable_yet, value)):
            name = self.assign(value, "set()")
            self.late.append(self.set_items(name, value))
            return name
        if kind in (set, frozenset):
            return self.assign(value, self.new_set(value))
        if kind in (collections.OrderedDict, collections.defaultdict):
            factory = ""
            if kind is collections.defaultdict:
                factory = self.expression(value.default_factory)
            name = self.assign(value, f"{constant(kind)}({factory})")
            self.entries(name, value)
            if own := namespace_of(value):  # ordered dicts have attributes
                self.lines.append(f"{name}.__dict__.update({self.literal(own)})")
            return name
        if kind is collections.deque:
            name = self.assign(value, f"{constant(kind)}((), {constant(value.maxlen)})")
            if value:
                self.lines.append(f"{name}.extend([{self.many(value)}])")
            return name
        if kind is slice:
            parts = self.many((value.start, value.stop, value.step))
            return self.assign(value, f"slice({parts})")
        if kind is MethodType:
            receiver = self.expression(value.__self__)
            of_c = is_of_fixed_class(value)  # whose type may be an extension's, such as Cython's
            method = constant(value.__func__) if of_c else self.expression(value.__func__)
            if not callable(value.__func__):  # which the class of methods does not take
                return self.assign(value, f"classmethod({method}).__get__(None, {receiver})")
            return self.assign(value, f"{constant(MethodType)}({method}, {receiver})")
        if kind in BOUND_IN_C:
            slot = slot_of(value)
            if slot is not None:
                receiver = self.expression(value.__self__)
                told = constant(slot.__objclass__)  # some are told it, and crash without
                return self.assign(value, f"{constant(slot)}.__get__({receiver}, {told})")
            return self.assign(
                value, f"getattr({self.expression(value.__self__)}, {value.__name__!r})"
            )
        if kind is FunctionType:
            return self.function(value)
        if kind is CellType:
            return self.cell(value)
        if kind is functools.partial:
            name = self.assign(
                value,
                f"{constant(kind)}({self.expression(value.func)}, *{self.expression(value.args)},"
                f" **{self.expression(value.keywords)})",
            )
            return name
        if kind in VIEWS:
            mapping = self.expression(viewed(value))
            return self.assign(value, f"{constant(VIEWS[kind])}({mapping})")  # past its class
        if kind is types.MappingProxyType:
            mapping = viewed(value)
            for cls in self.machine.own_classes:
                if viewed(cls.__dict__) is mapping:
                    return self.assign(value, f"{self.kind(cls)}.__dict__")
            return self.assign(value, f"{constant(kind)}({self.expression(mapping)})")
        if issubclass(type(value), ITERATORS):
            return self.iterator(value)
        if kind in DRIVEN:
            if is_driven(value):
                activation = driven_by(value)
                if activation.delegates and kind is types.AsyncGeneratorType:
                    raise self.refuse(value)
                return self.generator(value, activation)
            if frame_of(value) is None:
                names = f"{value.__name__!r}, {value.__qualname__!r}"
                return self.assign(value, f"{constant(ended)}({constant(kind)}, {names})")
        if kind in (Pulled, Later, Delegate):
            return self.expression(value.iterator)
        if kind in (operator.itemgetter, operator.attrgetter, operator.methodcaller):
            function, parts = value.__reduce__()
            return self.assign(value, f"{constant(function)}({self.many(parts)})")
        if kind is super:
            parts = self.many((value.__thisclass__, value.__self__))
            return self.assign(value, f"super({parts})")
        if kind is LazyMethod:
            return self.assign(value, f"{self.expression(value.lazy)}.{value.name}")
        if kind is object:
            return self.assign(value, "object()")
        if kind is RemovableHandle:
            check_handle(self.machine, value)
        if kind is Number and (place := self.machine.outside.place(value)) is not None:
            return self.writer.read(place)
        if kind is Array and not is_scalar(value) and owner_of(value) is not None:
            return self.array_view(value)
        if kind is Array:
            taken = "[()]" if is_scalar(value) else ""  # which is a scalar then
            detached = ".detach()" if value._tensor.requires_grad else ""
            return self.assign(value, f"{self.tensor(value._tensor)}{detached}.numpy(){taken}")
        if kind is Address:
            return self.assign(value, f"id({self.expression(value.of)})")
        if kind is ArrayMethod:
            return self.assign(value, f"{self.expression(value.array)}.{value.name}")
        if issubclass(kind, weakref.ref) and (target := referent(value)) is not None:
            given = (target,) if value.__callback__ is None else (target, value.__callback__)
            made = f"{constant(weakref.ref)}.__new__({self.kind(kind)}, {self.many(given)})"
            return self.instance(value, made) if is_heap(kind) else self.assign(value, made)
        if kind is _KEY:  # it tells its function to nobody else
            function, *of = [part for part in gc.get_referents(value) if part is not _KEY]
            name = f"{constant(functools.cmp_to_key)}({self.expression(function)})"
            return self.assign(value, f"{name}({self.many(of)})" if of else name)
        if kind is Context and self.machine.contexts.is_own(value):
            return self.context(value)
        if kind is Set:
            return self.token(value)
        if kind is type(Token.MISSING):
            return constant(value)
        if kind is CACHE:
            return self.cache(value)
        if kind is types.SimpleNamespace:
            return self.instance(value, f"{constant(kind)}()")
        if (
            kind in (torch.finfo, torch.iinfo)
            or kind.__module__ == "enum"
            or issubclass(kind, enum.Enum)
        ):
            return constant(value)
        if issubclass(type(value), BaseException):
            return self.exception(value)
        if kind in (*_MADE_WITH_CLASSES, types.ClassMethodDescriptorType):
            owner = value.__objclass__
            if not is_heap(owner):
                return constant(value)
            space = constant(type.__dict__["__dict__"].__get__)
            return self.assign(value, f"{space}({self.expression(owner)})[{value.__name__!r}]")
        if kind is types.TracebackType:
            return self.traceback(value)
        if kind is property:
            functions = (value.fget, value.fset, value.fdel, value.__doc__)
            return self.assign(value, f"property({self.many(functions)})")
        if kind in (staticmethod, classmethod):
            name = self.assign(value, f"{kind.__name__}({self.expression(value.__func__)})")
            alike = kind(value.__func__).__dict__
            if not (
                alike.keys() == value.__dict__.keys()
                and all(map(operator.is_, alike.values(), value.__dict__.values()))
            ):
                self.lines.append(f"{name}.__dict__.clear()")
                self.lines.append(f"{name}.__dict__.update({self.literal(value.__dict__)})")
            return name
        if issubclass(type(value), tuple):
            parts = self.expression(tuple(value))
            if is_struct_sequence(kind):
                if kind.n_fields > kind.n_sequence_fields:
                    parts += f", {self.literal(value.__reduce__()[1][1])}"
                return self.assign(value, f"{constant(kind)}({parts})")
            if not is_heap(kind):
                return self.assign(value, f"{constant(kind)}({parts})")
            return self.instance(value, f"tuple.__new__({self.kind(kind)}, {parts})")
        if kind is Pullback:  # of graphs that are made for this capture alone
            raise self.refuse(value)
        if is_heap(kind):
            name = self.instance(value, self.new(value))
            if id(value) in self.machine.open_ranges:  # as one of the profiler's has to be left
                self.late.append(f"{name}.__enter__()")
            return name
        if is_value_class(kind) or kind in BUFFERS or kind in _TEES or kind is FIELD:
            return self.account(value)
        raise self.refuse(value)

    def text(self, value: Unread) -> str:
        """A text that shows tensors or numbers, which nobody has read."""
        if value.made is not None:
            return self.writer.object(value.made)
        name = self.names.get(id(value))
        if name is not None:
            return name
        if not is_current(value):
            raise value.ending()
        return self.assign(value, f"''.join([{', '.join(map(self.part, value.parts))}])")

    def part(self, part: Any) -> str:
        """A part of such a text."""
        if type(part) is Shown:
            return f"{_SHOWING[part.conversion]}({self.expression(part.tensor)})"
        if type(part) is Told:
            return f"{self.writer.constant(part.function)}({self.many(part.args)})"
        return self.expression(part)

    def cache(self, value: Any) -> str:
        """A function under ``lru_cache``, with what it knows."""
        constant, (hits, misses, _, _) = self.writer.constant, value.cache_info()
        of, parameters = wrapped_by(value), constant(parameters_of(value))
        of = self.expression(self.machine.callback_of.get(id(of), of))
        known = self.expression(entries_of(value))
        made = f"{constant(made_again)}({of}, {parameters}, {known}, {hits}, {misses})"
        return self.instance(value, made)

    def array_view(self, value: Array) -> str:
        """A view of an array, which shares its memory and says whose it is."""
        owner, standin = owner_of(value), value._standin
        assert owner is not None
        starts = [a._tensor.storage_offset() * a._standin.itemsize for a in (value, owner)]
        layout = (standin.dtype, standin.shape, starts[0] - starts[1], standin.strides)
        text = ", ".join([self.writer.constant(part) for part in layout])
        view = f"{self.writer.constant(array_view)}({self.expression(owner)}, {text}"
        return self.assign(value, f"{view}, {standin.flags.writeable})")

    def account(self, value: Any) -> str:
        """An object of C by its own account of what it is made of."""
        if type(value) in FILES and value.closed:  # which tells nothing any more
            made = f"{self.writer.constant(closed_file)}({self.writer.constant(type(value))})"
            name = self.assign(value, made)
            if value.__dict__:
                self.lines.append(f"{name}.__dict__.update({self.expression(value.__dict__)})")
            return name
        tee = type(value) in _TEES
        function, args, *state = account(value) if tee else value.__reduce_ex__(PROTOCOL)
        made = f"{self.writer.constant(function)}({self.many(args)})"
        name = self.assign(value, made)
        if state and state[0] is not None:
            self.lines.append(
                f"{self.writer.constant(restore)}({name}, {self.expression(state[0])})"
            )
        return name

    def refuse(self, value: Any) -> BaseException:
        """The graph ends before the first of such objects is made; else nothing is captured."""
        step = self.machine.made.get(type(value))
        kept = issubclass(type(value), weakref.ref)  # a capture keeps what it refers to
        if step is None or kept:
            return NotRebuilt(type(value).__qualname__)
        asynchronous = any(hasattr(type(value), name) for name in ("__await__", "__anext__"))
        if asynchronous:
            _give_up(value)
        row = "coroutine" if asynchronous else "c-function"
        return Restart(step, row, f"a {type(value).__qualname__}, which is not made again")

    def entries(self, name: str, value: dict) -> None:
        lines = self.lines
        for key, item in value.items():
            key_text, item_text = self.expression(key), self.expression(item)
            if not self.is_hashable_yet(key):
                lines = self.late  # and all after it, which keep their order
            lines.append(self.put(name, value, key, key_text, item_text, type(value)))

    # ---- functions and cells ----------------------------------------------------------------

    def function(self, value: FunctionType) -> str:
        constant = self.writer.constant
        if _is_importable(value):
            return constant(value)
        closure = "None"
        if value.__closure__:
            closure = f"({self.many(value.__closure__)},)"
        defaults = self.expression(value.__defaults__)
        name = self.assign(
            value,
            f"{constant(FunctionType)}({constant(value.__code__)}, "
            f"{self.globals(value.__globals__)}, {value.__name__!r}, {defaults}, {closure})",
        )
        if value.__kwdefaults__:
            self.lines.append(f"{name}.__kwdefaults__ = {self.expression(value.__kwdefaults__)}")
        annotations = value.__annotations__
        if annotations or sys.getrefcount(annotations) > _UNSHARED:
            self.lines.append(f"{name}.__annotations__ = {self.expression(annotations)}")
        for attribute in ("__qualname__", "__module__", "__doc__"):
            found = getattr(value, attribute)
            if type(found) is str:
                self.lines.append(f"{name}.{attribute} = {constant(found)}")
        if value.__dict__ and self.machine.own_namespaces.get(id(value.__dict__)) is not value:
            self.lines.append(f"{name}.__dict__ = {self.expression(value.__dict__)}")
            return name
        for key, item in value.__dict__.items():
            self.lines.append(f"{name}.__dict__[{key!r}] = {self.expression(item)}")
        return name

    def globals(self, space: dict[str, Any]) -> str:
        """A module's namespace."""
        source = self.machine.sources.reached.get(id(space))
        if source is None and id(space) in self.names:  # the frame's own
            return self.names[id(space)]
        return self.writer.constant(space) if source is None else self.writer.read(source)

    def cell(self, value: CellType) -> str:
        name = self.assign(value, f"{self.writer.constant(CellType)}()")
        try:
            content = value.cell_contents
        except ValueError:
            return name
        self.lines.append(f"{name}.cell_contents = {self.expression(content)}")
        return name

    # ---- classes ----------------------------------------------------------------------------

    def kind(self, cls: type) -> str:
        """A class; one that the frame has made is made again."""
        step = self.machine.own_classes.get(cls)
        if step is None:
            known = self.machine.external.get(id(cls))
            if known is not None and self.machine.is_made_anew(cls):
                return self.writer.read(known.source)
            return self.writer.constant(cls)
        name = self.names.get(id(cls))
        if name is not None:
            return name
        self.keep.append(cls)
        try:
            return self.whole(cls)
        except NotRebuilt as error:
            raise Restart(step, "c-function", f"a class with a {error}") from None

    def own_class(self, cls: type) -> str:
        constant = self.writer.constant
        namespace: dict[str, Any] = {
            "__qualname__": type.__dict__["__qualname__"].__get__(cls),
            **type.__dict__["__dict__"].__get__(cls),
        }
        if not all(type(key) is str for key in namespace):
            raise NotRebuilt("name that is no plain text")
        first = {
            key: namespace.pop(key)
            for key, item in list(namespace.items())
            if key in _AT_FIRST or (key in _ABOUT_CLASSES and type(item) not in _MADE_WITH_CLASSES)
        }
        bases = self.many(type.__dict__["__bases__"].__get__(cls))
        title = type.__dict__["__name__"].__get__(cls)
        text = ", ".join([f"{key!r}: {self.expression(item)}" for key, item in first.items()])
        name = self.assign(cls, f"type({title!r}, ({bases},), {{{text}}})")
        setter = constant(type.__setattr__)
        for key, item in namespace.items():
            if type(item) not in _MADE_WITH_CLASSES:
                text = self.expression(item)
                self.lines.append(f"{setter}({name}, {key!r}, {text})")
                if type(item) is property:  # its errors name it
                    self.lines.append(f"{text}.__set_name__({name}, {key!r})")
        return name


def _is_importable(function: FunctionType) -> bool:
    """A module's or class's own function, which no frame has made."""
    found: Any = sys.modules.get(function.__module__ or "")
    for name in function.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(name)
    return found is function


def _give_up(value: Any) -> None:
    """End what waits for an item of an asynchronous generator, and is not used: from 3.13 on it
    warns if nothing awaits it. No code of the generator's runs."""
    for part in gc.get_referents(value):
        if type(part) is AsyncGeneratorType and is_driven(part):
            driven_by(part).discard()
            with contextlib.suppress(BaseException):
                value.close()
