"""Guards and where they come from: what a capture has seen of the world outside of its frame."""

from __future__ import annotations

import functools
import os
import sysconfig
from collections.abc import Callable
from types import CodeType
from typing import Any
from weakref import ref

import torch

from refcompiler.capture.door import Recorder
from refcompiler.capture.signals import Break
from refcompiler.capture.values import External, Lazy
from refcompiler.guards.classes import Build, build_of, is_made_anew
from refcompiler.guards.kinds import Guard
from refcompiler.guards.parameters import is_new
from refcompiler.guards.sources import Source, Sources, shows_namespace
from refcompiler.interpreter.frame import Frame
from refcompiler.interpreter.machine import Machine

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


class Guarding(Machine):
    """Sources and guards, and what the capture knows of objects from outside."""

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

    def observe(self, lazy: Lazy) -> Any:
        raise NotImplementedError

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

    def is_made_anew(self, cls: type) -> bool:
        """Whether a class is told by how it is built, not by which one it is."""
        known = self.made_anew.get(cls)
        if known is None:
            build = build_of(cls) if is_made_anew(cls) and cls not in self.own_classes else None
            known = self.made_anew[cls] = build or False
        return known is not False

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
