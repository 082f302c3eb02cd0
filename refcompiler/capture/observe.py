"""Observation: the moment a lazy value becomes real, and the guard that this costs."""

from __future__ import annotations

import collections
import enum
import functools
import os
import re
import sysconfig
import types
from collections.abc import Callable, Container, Sequence
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any
from weakref import ref

import torch

from refcompiler.ambient import outside_transformations
from refcompiler.capture.door import Recorder
from refcompiler.capture.hashing import check_hashes, insert_anew
from refcompiler.capture.kinds import (
    BOUND_IN_C,
    CONSTANT_TYPES,
    IDENTITY_TYPES,
    MAPPINGS,
    SEQUENCES,
    SETS,
    is_alien,
    is_made,
    is_native_enum,
    is_numpy_scalar,
    is_structseq,
)
from refcompiler.capture.policy import bound_owner
from refcompiler.capture.setorder import alike, likewise
from refcompiler.capture.signals import Break
from refcompiler.capture.values import (
    DELETED,
    External,
    Items,
    Lazy,
    LazyMethod,
    Literal,
    Unread,
)
from refcompiler.capture.written import looked_into
from refcompiler.guards.classes import Build, build_of, is_made_anew
from refcompiler.guards.kinds import Guard, TensorMeta, metadata, separate
from refcompiler.guards.parameters import is_new
from refcompiler.guards.permanence import lasts
from refcompiler.guards.sources import (
    SCALARS,
    VIEWS,
    Source,
    Sources,
    plain_scalar,
    proxied,
    shows_namespace,
    viewed,
)
from refcompiler.interpreter.driven import DRIVEN
from refcompiler.interpreter.frame import UNSET, Frame
from refcompiler.interpreter.machine import Machine

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
_KEYED = frozenset({"HAS", "ABSENT", "LACKS", "SAME", "DISTINCT", "UNIQUE", "METADATA", "STATE"})


_TORCH = os.path.dirname(torch.__file__) + os.sep
_STDLIB = sysconfig.get_path("stdlib") + os.sep


@functools.cache
def _is_library(filename: str) -> bool:
    """A file of torch or of the standard library, on whose behalf a line of the user's runs."""
    if filename.startswith(_STDLIB):
        return filename.startswith(_TORCH) or not filename.startswith(_STDLIB + "site-packages")
    return filename.startswith((_TORCH, "<frozen "))


_new: Any = tuple.__new__  # past the constructor in Python, since there are many guards


def _nowhere() -> None:
    """No frame."""


class Observing(Machine):
    """Sources, guards, graph inputs, and the shadows of external containers."""

    enters = False

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder
        self.arrays: list[tuple[Source, Any, Any]] = []  # of numpy, from outside; and their fakes
        self.sources = Sources()
        #: Of what the root function only calls, with the arguments that it got.
        self.called_code: CodeType | None = None
        self.homes: set[int] = set()  # ids of the globals that live as long as the plan's site
        self.guards: dict[tuple, Guard] = {}
        self.lazies: dict[Source, Lazy] = {}
        self.forced: dict[Source, Any] = {}
        self.external: dict[int, External] = {}
        #: How classes are built that functions make; False for all others.
        self.made_anew: dict[type, Build | bool] = {}
        self.composing: set[int] = set()  # ids of what is observed part by part
        self.inputs: dict[int, tuple[Any, Source, Any]] = {}  # real tensor -> its fake
        self.input_order: list[int] = []
        self.fakes_of_inputs: dict[int, Source] = {}
        self.overlay: dict[tuple[int, str], Any] = {}
        self.changed: dict[int, External] = {}
        self.classes = recorder.classes
        self.retained: set[int] = set()  # inputs that the program made keep their gradient
        #: What was used as a key or compared by identity: its class, and where it comes from.
        self.hashed: dict[int, tuple[type, Source]] = {}
        self.node_kinds: set[type] = set()  # of autograd's nodes that the program has got
        self.nans: list[tuple[float, Source]] = []
        #: The frame and instruction that guards were recorded for last, and where they stand.
        self.placed: tuple[Callable[[], Any], int, tuple[str, int]] = _nowhere, 0, ("", 0)
        self.own_namespaces: dict[int, Any] = {}  # id of a __dict__ -> the frame's own instance
        self.handed_out: dict[int, Any] = {}  # id of a __dict__ that was read -> its instance
        self.plain_kinds: dict[type, bool] = {}  # whether ``object``'s rules hold for attributes
        self.globals_written: set[int] = set()  # ids of the namespaces of modules
        self.dict_kinds: dict[type, str] = {}  # how the __dict__ of instances is reached

    # filled by the machine
    sizes: Any
    outside: Any  # the handles from there, see refcompiler.capture.state.handles
    standins: dict[int, Any]  # the array that has one, by the id of that
    own_classes: dict[type, int]  # that the frame has made, and the steps of their statements

    # ---- guards -----------------------------------------------------------------------------

    def guard(
        self,
        kind: str,
        source: Source | None,
        expected: Any = None,
        place: tuple[str, int] | None = None,
    ) -> None:
        """``place``: of the user's program, instead of where it is now."""
        key = (kind, source, expected if kind in _KEYED else None)
        if key not in self.guards:
            if kind == "ID" and is_new(source):
                raise Break("tensor-kind", f"the identity of {source}, which each call makes")
            if kind == "TYPE" and self.is_made_anew(expected):
                assert source is not None
                self.observe(self.lazy(self.sources.make("class_of", source), expected))
                return
            self.guards[key] = _new(Guard, (kind, source, expected, place or self.place()))

    def place(self) -> tuple[str, int]:
        """The user's file and line that runs now."""
        frame = self.frame
        if frame is None:
            return "", 0
        known, ip, place = self.placed
        if known() is not frame or frame.ip != ip:  # one instruction records several guards
            place = self._place_of(frame)
            self.placed = ref(frame), frame.ip, place
        return place

    def _place_of(self, frame: Frame) -> tuple[str, int]:
        inner = frame = frame.visible
        while frame.back is not None and _is_library(frame.code.co_filename):
            frame = frame.back.visible
        if _is_library(frame.code.co_filename):
            frame = inner
        if self.called_code is not None and frame.back is None:  # on whose behalf the root runs
            return self.called_code.co_filename, self.called_code.co_firstlineno
        return frame.code.co_filename, frame.line

    def lazy(self, source: Source, value: Any) -> Lazy:
        found = self.lazies.get(source)
        if found is None:
            found = self.lazies[source] = Lazy(source, value)
        return found

    def source_of(self, value: Any) -> Source | None:
        external = self.external.get(id(value))
        return None if external is None else external.source

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
            if known.tail is not None and known.source is target.source:
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

    def is_made_anew(self, cls: type) -> bool:
        """Whether a class is told by how it is built, not by which one it is."""
        known = self.made_anew.get(cls)
        if known is None:
            build = build_of(cls) if is_made_anew(cls) and cls not in self.own_classes else None
            known = self.made_anew[cls] = build or False
        return known is not False

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

    def member(self, source: Source, name: str) -> Source:
        return self.sources.make("attr", source, name)

    def item(self, source: Source, key: Any, kind: str = "item", label: str = "") -> Source:
        return self.sources.make(kind, source, key, label)

    def namespace(self, value: Any, source: Source) -> Source:
        """The source of ``value.__dict__``."""
        kind = self.dict_kinds.get(type(value))
        if kind is None:
            plain = shows_namespace(type(value)) and all(
                "__getattribute__" not in c.__dict__ for c in type(value).__mro__[:-1]
            )
            kind = self.dict_kinds[type(value)] = "dict" if plain else "hidden_dict"
        return self.sources.make(kind, source)

    # ---- tensors ----------------------------------------------------------------------------

    def tensor_input(self, value: torch.Tensor, source: Source) -> Any:
        known = self.inputs.get(id(value))
        if known is not None:
            fake = known[2]
            self.guard("SAME", source, self.fakes_of_inputs[id(fake)])
            return fake
        kind = type(value)
        if kind is not torch.Tensor and kind is not torch.nn.Parameter:
            return self.subclass_input(value, source)
        return self.plain_input(value, source)

    def subclass_input(self, value: torch.Tensor, source: Source) -> Any:
        raise NotImplementedError

    @staticmethod
    def input_name(source: Source) -> str:
        return _input_name(source)

    def plain_input(self, value: torch.Tensor, source: Source) -> Any:
        """A tensor whose operations are torch's own."""
        with torch._C.DisableTorchFunction():
            if is_alien(value):
                raise Break("tensor-kind", f"{source} has layout {value.layout}")
            if torch._C._functorch.is_functorch_wrapped_tensor(value):
                raise Break("higher-order", f"{source} belongs to a function transformation")
            fake = self.sizes.tensor(value, source)
            if fake is None:
                with outside_transformations():
                    fake = self.recorder.fake_mode.fake_of(value)
                self.guard("TENSOR", source, TensorMeta.of(value))
        if self.arrays:
            self.check_apart(value, source)
        return self.enter_input(value, source, fake)

    def enter_input(self, value: torch.Tensor, source: Source, fake: Any) -> Any:
        """The graph gets ``value``, which is at ``source``, and ``fake`` stands for it."""
        node = self.recorder.add_input(_input_name(source), fake)
        is_parameter = isinstance(value, torch.nn.Parameter)
        node.meta["refcompiler_static"] = is_parameter and not is_new(source)
        self.inputs[id(value)] = (value, source, fake)
        self.input_order.append(id(value))
        self.fakes_of_inputs[id(fake)] = source
        return fake

    def check_apart(self, value: torch.Tensor, source: Source) -> None:
        """A graph knows of shared memory by shared storages, which arrays do not have."""
        with torch._C.DisableTorchFunction():
            apart = separate(value, *[known for known, _, _ in self.inputs.values()])
        if not apart:
            raise Break("external-object", f"{source} lies over the memory of another input")

    def read_metadata(self, name: str, fake: Any) -> Any:
        """Metadata that the TENSOR guard leaves out, because programs seldom read it."""
        real = self.real_of(fake)
        if real is not None:
            if name == "retains_grad" and id(fake) in self.retained:
                return True
            found = metadata(real, name)
            self.guard("METADATA", self.fakes_of_inputs[id(fake)], (name, found))
            return found
        unknown = name in ("is_shared", "is_pinned")
        if unknown or (name == "is_inference" and self._given_inference()):
            raise Break("operation-not-modelled", f"{name} of a result")
        for real, source, _ in list(self.inputs.values()):  # what a view inherits
            self.guard("METADATA", source, (name, metadata(real, name)))
        return metadata(fake, name)

    def _given_inference(self) -> bool:
        """Whether an input comes from inference mode; if none does, fakes answer for results."""
        found = [
            (source, metadata(real, "is_inference")) for real, source, _ in self.inputs.values()
        ]
        for source, answer in found:
            self.guard("METADATA", source, ("is_inference", answer))
        return any(answer for _, answer in found)

    def real_of(self, fake: Any) -> torch.Tensor | None:
        """The real tensor of a fake that is a graph input."""
        source = self.fakes_of_inputs.get(id(fake))
        return None if source is None else self.lazies[source].value

    # ---- containers -------------------------------------------------------------------------

    def _adopt(self, external: External, shadow: Any, original: Any) -> Any:
        external.shadow, external.original = shadow, original
        self.external[id(shadow)] = external
        return shadow

    def _parts(self, external: External, parts: Sequence[tuple[Source, Any]]) -> list[Any]:
        """What an object is made of that cannot be made before its parts are."""
        self.composing.add(id(external.value))
        try:
            return [self.observe(self.lazy(source, part)) for source, part in parts]
        finally:
            self.composing.discard(id(external.value))

    def shadow_sequence(self, external: External) -> Any:
        value, source = external.value, external.source
        self.guard("LENGTH", source, len(value))
        shadow: Any = None
        if issubclass(type(value), tuple):
            parts = [(self.item(source, i), item) for i, item in enumerate(value)]
            items = self._parts(external, parts)
            kind = type(value)
            if is_structseq(kind):
                shadow = kind(items)
            else:
                shadow = tuple(items) if kind is tuple else tuple.__new__(kind, items)
            return self._adopt(external, shadow, shadow)
        is_list = type(value) is list
        if not is_list:
            self.observe(self.lazy(self.member(source, "maxlen"), value.maxlen))
        shadow = [] if is_list else collections.deque(maxlen=value.maxlen)
        self._adopt(external, shadow, None)  # first, since a list may hold itself
        for i, item in enumerate(value):
            shadow.append(self.observe(self.lazy(self.item(source, i), item)))
        external.original = list(shadow) if is_list else Items(shadow)
        return shadow

    def shadow_mapping(self, external: External, overwritten: Container = ()) -> Any:
        """``overwritten``: keys of which the values are no matter."""
        value, source = external.value, external.source
        kind = type(value)
        shadow: Any = kind()
        self._adopt(external, shadow, None)
        numbers = self.outside.keys(self, source, value)
        if numbers is None and all(type(key) in CONSTANT_TYPES for key in value):
            self.guard("KEYS", source, tuple(value))
            keys = [(key, self.item(source, key)) for key in value]
        else:
            self.guard("LENGTH", source, len(value))
            given, items = self.sources.make("keys", source), self.sources.make("values", source)
            forced = numbers or [
                self.observe(self.lazy(self.item(given, i), key)) for i, key in enumerate(value)
            ]
            keys = [(key, self.item(items, i)) for i, key in enumerate(forced)]
        for (key, item_source), item in zip(keys, value.values(), strict=True):
            matters = not overwritten or key not in overwritten
            held = self.observe(self.lazy(item_source, item)) if matters else UNSET
            insert_anew(self, shadow, key, held)
        check_hashes(self, value, shadow)
        if kind is collections.defaultdict:
            factory = self.member(source, "default_factory")
            shadow.default_factory = self.observe(self.lazy(factory, value.default_factory))
        external.original = dict(shadow)
        return shadow

    def _shadow_proxy(self, external: External) -> Any:
        """Of a dict, which may be written to; a class's ``__dict__`` is not."""
        value, source = external.value, external.source
        if (mapping := proxied(value)) is not None:
            if type(mapping) not in MAPPINGS:
                return value  # asked natively
            held = self.observe(self.lazy(self.sources.make("proxied", source), mapping))
            return self._adopt(external, types.MappingProxyType(held), value)
        if type(viewed(value)) is not dict:  # it asks a class for what it gives
            raise Break("external-object", "a view of a mapping from outside")
        self.guard("KEYS", source, tuple(value))
        shadow = {
            key: self.observe(self.lazy(self.item(source, key, "member", str(key)), item))
            for key, item in value.items()
        }
        return self._adopt(external, types.MappingProxyType(shadow), value)

    def _shadow_set(self, external: External) -> Any:
        value, source = external.value, external.source
        if not all(type(item) in CONSTANT_TYPES for item in value):
            return self._shadow_objects(external)
        shadow, expected = alike(value), alike(value)
        if shadow is None or expected is None:
            raise Break("external-object", f"{source} is a set whose order depends on its past")
        self.guard("EQUALS", source, expected)
        return self._adopt(external, shadow, expected)

    def _shadow_objects(self, external: External) -> Any:
        """A set of objects: which they are is guarded one by one, in the set's order."""
        value, source = external.value, external.source
        self.guard("LENGTH", source, len(value))
        places = self.sources.make("keys", source)
        items = [self.observe(self.lazy(self.item(places, i), v)) for i, v in enumerate(value)]
        shadow: Any = alike(value)
        if any(a is not b for a, b in zip(items, value, strict=True)):
            made = likewise(value, items)
            if made is None:
                made = set()
                for item in items:
                    insert_anew(self, made, item)
            shadow = made if type(value) is set else type(value)(made)
        if shadow is None or list(map(id, shadow)) != list(map(id, items)):
            raise Break("external-object", f"{source} is a set whose order depends on its past")
        return self._adopt(external, shadow, alike(shadow))

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


_NO_WORD = re.compile(r"[\W_]+")


def _input_name(source: Source) -> str:
    text = _NO_WORD.sub("_", str(source)).strip("_")
    if not text or text[0].isdigit():
        text = f"input_{text}"
    return text[-60:].lstrip("_0123456789") or "input"
