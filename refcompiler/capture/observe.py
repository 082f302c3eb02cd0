"""Observation: the moment a lazy value becomes real, and the guard that this costs."""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Callable
from types import CellType, FunctionType, MethodType
from typing import Any

import torch

from refcompiler.capture.kinds import (
    BOUND_IN_C,
    CONSTANT_TYPES,
    IDENTITY_TYPES,
    MAPPINGS,
    SEQUENCES,
    SETS,
    is_made,
    is_native_enum,
    is_numpy_scalar,
    is_structseq,
)
from refcompiler.capture.policy import bound_owner
from refcompiler.capture.shadows import Shadows
from refcompiler.capture.signals import Break
from refcompiler.capture.values import DELETED, External, Lazy, LazyMethod, Literal, Unread
from refcompiler.capture.written import looked_into
from refcompiler.guards.permanence import lasts
from refcompiler.guards.sources import SCALARS, VIEWS, Source, plain_scalar, viewed
from refcompiler.interpreter.driven import DRIVEN
from refcompiler.interpreter.frame import UNSET

_NUMBERS = (int, float, bool)
_NOT_MADE = 1 << 7  # Py_TPFLAGS_DISALLOW_INSTANTIATION
#: Classes of what is made at once from its parts: their names, and what makes it.
_COMPOSED: dict[type, tuple[tuple[str, ...], Callable[..., Any]]] = {
    MethodType: (("__func__", "__self__"), MethodType),
    super: (("__thisclass__", "__self__"), super),
    slice: (("start", "stop", "step"), slice),
    functools.partial: (
        ("func", "args", "keywords"),
        lambda function, args, keywords: functools.partial(function, *args, **keywords),
    ),
}


class Observing(Shadows):
    """What is lazy, forced; objects, functions and classes by their kinds; cells."""

    def is_hidden(self, value: Any) -> bool:
        """An object from outside whose contents C code would read unguarded."""
        kind = type(value)
        return self.is_foreign(value) and not issubclass(kind, (enum.Enum, BaseException))

    def is_foreign(self, value: Any) -> bool:
        """An object from outside that has state of its own (not a constant, not a shadow)."""
        external = self.external.get(id(value))
        return (
            external is not None
            and external.shadow is None
            and not issubclass(type(value), (type, FunctionType, *IDENTITY_TYPES))
            and not is_native_enum(type(value))
        )

    continues: bool  # whether capture goes on after a break

    # ---- forcing ----------------------------------------------------------------------------

    def force(self, value: Any) -> Any:
        """``value`` observed: a constant, a fake tensor, a shadow, or the object itself."""
        kind = type(value)
        if kind is Lazy:
            return self.observe(value)
        if kind is LazyMethod and type(value.lazy) is Literal:
            return getattr(self.look_into(value.lazy), value.name)
        if kind is Literal:
            return self.look_into(value)
        if kind is Unread:
            return value.read(self)
        return value

    own = force

    def bound(self, method: LazyMethod) -> Any:
        """The method itself, of the container observed."""
        return getattr(self.force(method.lazy), method.name)

    def look_into(self, literal: Literal) -> Any:
        """The container that the frame has made, all that it holds observed."""
        if literal.made is UNSET:
            if literal.kind is dict:
                made: Any = {key: self.force(item) for key, item in literal.items.items()}
            else:
                items = [self.force(item) for item in literal.items]
                kind = literal.kind
                made = items if kind is list else tuple.__new__(kind, items)
            literal.made, literal.items = made, None
        return literal.made

    def observe(self, lazy: Lazy) -> Any:
        source = lazy.source
        found = self.forced.get(source, UNSET)
        if found is UNSET:
            found = self.forced[source] = self._observe(lazy.value, source)
        return found

    def _observe(self, value: Any, source: Source) -> Any:
        kind = type(value)
        if kind is int or kind is float:
            number = self.sizes.number(value, source)
            if number is not None:
                return number
        elif kind is torch.Size:
            sizes = self._observe_sizes(value, source)
            if sizes is not None:
                return sizes
        if kind in CONSTANT_TYPES or is_numpy_scalar(kind):
            self.guard("EQUALS", source, value)
            if kind is float and value != value:
                self._observe_nan(value, source)
            return value
        if issubclass(kind, torch.Tensor):
            return self.tensor_input(value, source)
        if is_native_enum(kind):
            self.guard("TYPE", source, kind)
            self.guard("EQUALS", source, value)
            self.external.setdefault(id(value), External(value, source))
            return value
        if issubclass(kind, enum.Enum) or issubclass(type(value), IDENTITY_TYPES):
            return self._observe_identity(value, source)
        if issubclass(kind, type):
            if self.is_made_anew(value):
                self.observe_class(value, source)
                return value
            self.guard("ID", source, value)
            self.external.setdefault(id(value), External(value, source))
            return value
        known = self.external.get(id(value))
        if known is not None:
            if id(value) in self.composing:
                raise Break("external-object", f"a {kind.__name__} that contains itself")
            if known.source is not source:
                self.guard("SAME", source, known.source)
            if known.shadow is None and id(value) in self.globals_written:
                return self._observe_object(known, kind)  # a module's namespace as a dict
            if known.tail is not None:
                self.refuse_lengths(value, source)
                tail, known.tail = known.tail, None
                try:
                    self.shadow_sequence(known).extend([*map(self.force, tail)])
                except BaseException:  # it stays one that nothing has looked into
                    self.external.pop(id(known.shadow), None)
                    known.shadow, known.tail = None, tail
                    raise
            known = looked_into(self, known)
            return known.value if known.shadow is None else known.shadow
        external = self.external[id(value)] = External(value, source)
        try:
            return self._observe_object(external, kind)
        except BaseException:  # a part cannot be observed, so that the whole is not either
            del self.external[id(value)]
            self.external.pop(id(external.shadow), None)
            external.shadow = None
            raise

    def _observe_sizes(self, value: torch.Size, source: Source) -> torch.Size | None:
        """Sizes of a tensor as a value of their own; None if all of them are constants."""
        places = [self.item(source, i) for i in range(len(value))]
        made = [self.sizes.number(n, place) for n, place in zip(value, places, strict=True)]
        if all(n is None for n in made):
            return None
        self.guard("TYPE", source, torch.Size)
        self.guard("LENGTH", source, len(value))
        for i, number in enumerate(made):
            if number is None:
                self.guard("EQUALS", places[i], value[i])
                made[i] = value[i]
        return torch.Size(made)

    def _observe_nan(self, value: float, source: Source) -> None:
        """Containers ask which object it is, since it equals none."""
        for known, other in self.nans:
            self.guard("SAME" if value is known else "DISTINCT", source, other)
            if value is known:
                return
        self.nans.append((value, source))

    def _observe_object(self, external: External, kind: type) -> Any:
        value, source = external.value, external.source
        if kind is FunctionType:
            self.observe_function(value, source)
            return value
        self.guard("TYPE", source, kind)
        if kind in _COMPOSED:
            names, make = _COMPOSED[kind]
            parts = [(self.member(source, name), getattr(value, name)) for name in names]
            made = make(*self._parts(external, parts))
            return self._adopt(external, made, made)
        if kind is list or kind is tuple:
            self.refuse_lengths(value, source)
        if kind in SEQUENCES or (issubclass(type(value), tuple) and hasattr(kind, "_fields")):
            return self.shadow_sequence(external)
        if issubclass(type(value), tuple) and is_structseq(kind):
            if kind.__flags__ & _NOT_MADE:  # such as sys.flags: there is one, of numbers
                self.guard("ID", source, value)
                external.shadow = external.original = value
                return value
            return self.shadow_sequence(external)
        if kind in MAPPINGS:
            return self._with_writes(value, self.shadow_mapping(external))
        if kind in SETS:
            return self._shadow_set(external)
        if kind is types.MappingProxyType:
            return self._shadow_proxy(external)
        if kind in VIEWS and type(viewed(value)) in MAPPINGS:
            held = self.observe(self.lazy(self.sources.make("viewed", source), viewed(value)))
            return self._adopt(external, VIEWS[kind](held), value)
        if kind in DRIVEN:
            return self.shadow_generator(external)
        if self.is_value(value):
            place = self.sources.make("made_of", source)
            self.lazy(place, parts := value.__reduce_ex__(4))
            self.guard("EQUALS", place, parts)
            external.shadow = external.original = value  # which never changes
            return value
        if issubclass(type(value), SCALARS):
            plain = self.sources.make("scalar", source)
            self.observe(self.lazy(plain, plain_scalar(value)))
        if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
            return self.shadow_array(external)
        return value

    def refuse_lengths(self, value: list | tuple, source: Source) -> None:
        """What a loop with breaks in it has gathered, numbers that tensors had, is of any length.

        Who looks into it behind the loop does so natively, once it was of two.
        """
        policy = self.sizes.policy
        if not self.continues or not policy.automatic or policy.shapes or policy.scalars:
            return
        if value and all(type(item) in _NUMBERS for item in value):
            if policy.history.changes_length(str(source), len(value)):
                raise Break(
                    "external-object", f"{source}, numbers of which there are more or fewer"
                )

    def insert(self, target: Any, key: Any, *value: Any) -> None:
        raise NotImplementedError

    def is_value(self, value: Any) -> bool:
        raise NotImplementedError

    def shadow_array(self, external: External) -> Any:
        raise NotImplementedError

    def shadow_generator(self, external: External) -> Any:
        raise NotImplementedError

    def _with_writes(self, namespace: dict, shadow: Any) -> Any:
        """The shadow of an instance's ``__dict__`` takes over what was written to attributes."""
        owner = self.handed_out.get(id(namespace))
        if owner is not None:
            for key, value in list(self.overlay.items()):
                if key[0] == id(owner) and not self.is_slot(owner, key[1]):
                    own = self.namespace(owner, self.external[id(owner)].source)
                    self.lazy(own, namespace)
                    if own is not self.external[id(namespace)].source:
                        self.guard("SAME", own, self.external[id(namespace)].source)
                    del self.overlay[key]
                    if value is DELETED:
                        shadow.pop(key[1], None)
                    else:
                        shadow[key[1]] = self.force(value)
        if id(namespace) in self.globals_written:
            for key in [key for key in self.overlay if key[0] == id(namespace)]:
                value = self.overlay.pop(key)
                if value is DELETED:
                    shadow.pop(key[1], None)
                else:
                    shadow[key[1]] = value
        return shadow

    def is_slot(self, owner: Any, name: str) -> bool:
        """An attribute that is not kept in ``__dict__``."""
        for base in type(owner).__mro__:
            if name in base.__dict__:
                return type(base.__dict__[name]) is types.MemberDescriptorType
        return False

    def append(self, target: Any, value: Any) -> None:
        """To a list from outside without looking into it: other lengths are as good."""
        if not (type(value) is Unread and value.is_of_numbers()):
            value = self.force(value)
        if type(target) is Lazy and type(target.value) is list:
            known = self.external.get(id(target.value))
            if known is None:
                self.guard("TYPE", target.source, list)
                known = External(target.value, target.source)
                known.tail = []
                self.external[id(target.value)] = known
            if known.tail is not None:
                if known.source is not target.source:
                    self.guard("SAME", target.source, known.source)
                known.tail.append(value)
                return
        self.force(target).append(self.force(value))

    def _observe_identity(self, value: Any, source: Source) -> Any:
        owner = bound_owner(value) if type(value) in BOUND_IN_C else None
        if owner is not None:
            # a method of an object in C: lists' append and the like
            self.guard("TYPE", source, type(value))
            receiver = self.observe(self.lazy(self.member(source, "__self__"), owner))
            self.guard("EQUALS", self.member(source, "__name__"), value.__name__)
            receiver = self.sizes.plain(receiver)  # a number's method is no symbol's
            for base in type(owner).__mro__:  # past a subclass's method of the same name
                found: Any = base.__dict__.get(value.__name__)
                if type(found) in (types.MethodDescriptorType, types.WrapperDescriptorType):
                    if not issubclass(type(receiver), found.__objclass__):
                        break  # what stands for an array has methods of its own
                    return found.__get__(receiver, found.__objclass__)
            return getattr(receiver, value.__name__)
        alias = type(value) in (types.GenericAlias, types.UnionType)  # made anew at each run
        self.guard("EQUALS" if alias else "ID", source, value)
        self.external.setdefault(id(value), External(value, source))
        return value

    def observe_class(self, cls: type, source: Source) -> None:
        """One that a function makes anew; so may be some of its bases."""
        known = self.external.get(id(cls))
        if known is not None:
            if known.source is not source:
                self.guard("SAME", source, known.source)
            return
        self.external[id(cls)] = External(cls, source)
        self.hashed[id(cls)] = type, source
        self.guard("CLASS", source, self.made_anew[cls])
        bases = self.member(source, "__mro__")
        for i, base in enumerate(cls.__mro__):
            if i and self.is_made_anew(base):
                self.lazy(bases, cls.__mro__)
                self.observe(self.lazy(self.item(bases, i), base))

    def observe_function(self, value: FunctionType, source: Source) -> None:
        """One that is made again and again is known by what it does; a tensor's method is itself.

        Of those many have one decorator's code (``Tensor.__rsub__``, ``Tensor.__rpow__``).
        """
        if is_made(value) and torch.Tensor.__dict__.get(value.__name__) is not value:
            self.guard("TYPE", source, FunctionType)
            space = None if self.reach_globals(value, source) else value.__globals__
            self.guard("CODE", source, (value.__code__, space))
        else:
            self.guard("ID", source, value)

    def reach_globals(self, function: FunctionType, source: Source) -> bool:
        """Globals that may go are read from the function; whether these are."""
        space = function.__globals__
        if id(space) in self.homes or ("__name__" in space and lasts(space)):
            return False
        own = self.member(source, "__globals__")
        known = self.sources.reached.setdefault(id(space), own)
        self.lazy(own, space)
        if known is not own:
            self.guard("SAME", own, known)
        return True

    # ---- cells ------------------------------------------------------------------------------

    def load_cell(self, cell: CellType) -> Any:
        external = self.external.get(id(cell))
        if external is None:
            return super().load_cell(cell)
        found = self.overlay.get((id(cell), "cell_contents"), UNSET)
        if found is not UNSET:
            return UNSET if found is DELETED else found
        value = super().load_cell(cell)
        if value is UNSET:
            self.guard("EMPTY", external.source)
            return UNSET
        return self.lazy(self.sources.make("cell", external.source), value)

    def store_cell(self, cell: CellType, value: Any) -> None:
        external = self.external.get(id(cell))
        if external is None:
            super().store_cell(cell, value)
        else:
            self.write(external, "cell_contents", DELETED if value is UNSET else value)

    def adopt_cells(self, function: FunctionType, source: Source) -> None:
        """Make the cells of a function from outside known."""
        names = function.__code__.co_freevars
        for i, (cell, name) in enumerate(zip(function.__closure__ or (), names)):
            if id(cell) not in self.external:
                cell_source = self.sources.make("closure", source, i, name)
                self.external[id(cell)] = External(cell, cell_source)
                self.lazy(cell_source, cell)

    # ---- effects ----------------------------------------------------------------------------

    def write(self, external: External, name: str, value: Any) -> None:
        """Remember a write to an object from outside, to be replayed after the graph."""
        key = (id(external.value), name)
        self.overlay[key] = value
        self.changed[id(external.value)] = external
