"""What the symbolic domain keeps on the stack besides real objects."""

from __future__ import annotations

import collections
import weakref
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from refcompiler.bytecode.decode import Program
from refcompiler.capture.settable import table_of
from refcompiler.capture.signals import Restart
from refcompiler.guards.sources import VIEWS, Source
from refcompiler.interpreter.driven import DRIVEN, frame_of
from refcompiler.interpreter.frame import UNSET
from refcompiler.shapes.node import SYMBOLS


class Place(NamedTuple):
    """Where a frame of the user's stood when an operation was recorded."""

    program: Program
    ip: int
    globals: dict[str, Any]
    mapping: Any = None


class Lazy:
    """A value from outside that nothing has observed yet, so that no guard depends on it."""

    __slots__ = ("source", "value")

    def __init__(self, source: Source, value: Any):
        self.source = source
        self.value = value

    def __repr__(self) -> str:
        return f"<lazy {self.source}>"


class Literal:
    """A list, tuple or dict that the frame has made, and into which nothing has looked.

    ``items`` (a list, or a dict) may be lazy; ``made`` is the container, once somebody asks for it.
    """

    __slots__ = ("kind", "items", "made")

    def __init__(self, kind: type, items: Any):
        self.kind = kind
        self.items = items
        self.made: Any = UNSET


class Shown(NamedTuple):
    """A tensor in a text: ``conversion`` is FORMAT_VALUE's, ``version`` the one that is shown."""

    tensor: Any
    conversion: int
    version: int


class Told(NamedTuple):
    """Numbers in a text, as ``function`` tells them: symbols, or floats that nothing observed."""

    function: Any
    args: tuple[Any, ...]

    def is_known(self) -> bool:
        return all(type(n) not in SYMBOLS or n.node.has_hint() for n in _numbers(self.args))


class Unread:
    """A text with tensors or numbers in it, of which the program has read nothing yet: often none
    ever does.

    Where it only lives on, it is made after the graph, of ``parts``: texts, tensors and numbers.
    Whoever asks for it ends the graph before the instruction ``step``, which makes the text, if
    there are tensors in it; numbers are constants from then on.
    """

    __slots__ = ("__weakref__", "parts", "step", "made")

    def __init__(self, step: int, parts: tuple[Any, ...]):
        self.step = step
        self.parts = parts
        self.made: str | None = None

    def read(self, machine: Any) -> str:
        if self.made is None:
            if any(type(p) is Shown or type(p) is Told and not p.is_known() for p in self.parts):
                raise self.ending()
            self.made = "".join([_read(machine, part) for part in self.parts])
        return self.made

    def is_of_numbers(self) -> bool:
        """Whether there are no tensors in it, so that it may be made later than it is."""
        return not any(type(part) is Shown for part in self.parts)

    def ending(self) -> Restart:
        return Restart(self.step, "data-dependent-value", "a tensor is formatted")


def _numbers(value: Any) -> list[Any]:
    if type(value) in (tuple, torch.Size):
        return [number for item in value for number in _numbers(item)]
    return [*value.values()] if type(value) is dict else [value]


def _read(machine: Any, part: Any) -> str:
    if type(part) is Told:
        return part.function(*[_known(machine, arg) for arg in part.args])
    return machine.force(part)


def _known(machine: Any, value: Any) -> Any:
    if type(value) is dict:
        return {key: _known(machine, item) for key, item in value.items()}
    return machine.sizes.key(machine.force(value))  # in tuples at any depth


def items_in(value: Any, *kinds: type) -> Any:
    """The items of an open literal of one of ``kinds``; or UNSET."""
    if type(value) is Literal and value.made is UNSET and value.kind in kinds:
        return value.items
    return UNSET


class LazyMethod:
    """A method of an unobserved container, so that what it holds stays unguarded."""

    __slots__ = ("lazy", "name")

    def __init__(self, lazy: Lazy | Literal, name: str):
        self.lazy = lazy
        self.name = name


class Run(NamedTuple):
    """A call that is all that is left of an instruction or a model: its value is theirs."""

    function: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any] = {}


class Resume(NamedTuple):
    """The same for ``next(generator)``, and ``send`` and ``throw`` of one or of a coroutine."""

    generator: Any
    sent: Any = None
    default: Any = UNSET
    error: BaseException | None = None


class Asked:
    """A call of a function under ``lru_cache`` after the graph.

    ``made``: the capture itself has made the first one.
    """

    __slots__ = ("function", "kwargs", "made")

    def __init__(self, function: Any, kwargs: Mapping, made: bool):
        self.function = weakref.ref(function)
        self.kwargs = kwargs
        self.made = made

    def __call__(self, *args: Any) -> None:
        if self.made:
            self.made = False
            return
        function = self.function()
        if function is not None:
            function(*args, **self.kwargs)


class External:
    """An object from outside, known by identity. ``original`` is what a shadow started with.

    ``tail`` is what was appended to a list that nothing has looked into, ``written`` what was
    written to a dict (:mod:`refcompiler.capture.written`).
    """

    __slots__ = ("value", "source", "shadow", "original", "tail", "written")

    def __init__(self, value: Any, source: Source):
        self.value = value
        self.source = source
        self.shadow: Any = None
        self.original: Any = None
        self.tail: list[Any] | None = None
        self.written: dict[Any, Any] | None = None


class Items(list):
    """What a deque held, and whether it was more than written to since: its iterators ask that."""

    def __init__(self, of: Any):
        super().__init__(collections.deque.__iter__(of))
        self._watch = collections.deque.__iter__(of)

    def are_in_place(self) -> bool:
        try:
            next(self._watch, None)
        except RuntimeError:
            return False
        return True


def is_in_place(external: External) -> bool:
    """Whether a deque from outside has what it had, but for items that were assigned to."""
    return type(external.original) is Items and external.original.are_in_place()


def _same(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def is_changed(external: External) -> bool:
    shadow, original = external.shadow, external.original
    if shadow is original:
        return False
    if type(shadow) in DRIVEN:
        return original.runs > 0 or frame_of(shadow) is None  # closed before it began
    if isinstance(shadow, (tuple, frozenset, MappingProxyType, *VIEWS)):
        return False
    if isinstance(shadow, dict):
        return not (_same(shadow, original) and _same(shadow.values(), original.values()))
    if issubclass(type(shadow), set) and table_of(shadow) != table_of(original):
        return True  # its order may depend on it
    return not _same(shadow, original)


class Rethrown:
    """An exception from outside that the frame raises, and what it was like before."""

    LINKS = ("__context__", "__cause__", "__suppress_context__")
    OWN = (*LINKS, "__traceback__")

    __slots__ = ("error", "source", "traceback", "links")

    def __init__(self, error: BaseException, source: Source):
        self.error = error
        self.source = source
        self.traceback = error.__traceback__
        self.links = [getattr(error, name) for name in self.LINKS]

    def changes(self) -> dict[str, Any]:
        """The links that are not what they were."""
        pairs = zip(self.LINKS, self.links, strict=True)
        return {
            name: found for name, old in pairs if (found := getattr(self.error, name)) is not old
        }

    def undo(self) -> None:
        for name, value in zip(self.LINKS, self.links, strict=True):
            setattr(self.error, name, value)
        self.error.__traceback__ = self.traceback


class _Deleted:
    def __repr__(self) -> str:
        return "DELETED"


DELETED: Any = _Deleted()
