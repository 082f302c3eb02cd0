"""Objects whose end the program can tell, and the instruction that drops the last reference.

A generator that is suspended in a ``try`` or ``with`` runs code of the user's when it is closed; an
object that somebody refers to weakly, or whose class has a ``__del__``, tells of its end too. While
capturing, what was read of such an object from before the graph holds it, so that nothing tells
that the program has dropped it. Where one is in the frames' hands as a capture begins, each
instruction that may drop it is followed by a look whether the program can still reach it; if it
cannot, the graph ends before that instruction, which then drops it for real.
"""

from __future__ import annotations

import collections
import functools
import gc
import itertools
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from types import CellType, FrameType, FunctionType, MethodType
from typing import Any

import torch

from refcompiler.bytecode.decode import Program
from refcompiler.capture.entering import Handler, entering_ops
from refcompiler.capture.lookup import find, is_heap, namespace_of
from refcompiler.capture.signals import Restart
from refcompiler.capture.values import DELETED, External, Lazy, Literal
from refcompiler.interpreter.continued import Switch
from refcompiler.interpreter.driven import DRIVEN, delegate_of, driven_by, is_driven
from refcompiler.interpreter.frame import Frame
from refcompiler.interpreter.resumption import finalises, may_finalise

#: What only passes values on: looked into for what the frames hold.
_PASSING: tuple[type, ...] = (
    Literal,
    list,
    tuple,
    dict,
    set,
    frozenset,
    collections.deque,
    CellType,
    MethodType,
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    functools.partial,
    map,
    filter,
    zip,
    enumerate,
    type(iter([])),
    type(iter(())),
    itertools.chain,
    itertools.islice,
)
_NO_PARTS = (type, types.ModuleType, types.CodeType, str, bytes, int, float, torch.Tensor)
_FEW = 200  # objects that a look goes through where there is one for each name
_MOST = 5000  # objects that a look goes through; what is further away is taken to be there
#: Instructions that drop nothing.
_DROPS_NOTHING = frozenset(
    """
    RESUME NOP CACHE PUSH_NULL COPY SWAP KW_NAMES PRECALL EXTENDED_ARG MAKE_CELL COPY_FREE_VARS
    PUSH_EXC_INFO GET_ITER
    """.split()
)


def may_tell(kind: type) -> bool:
    """Whether somebody may come to ask to be told of the end of an instance of ``kind``."""
    if not is_heap(kind) or not kind.__weakrefoffset__:
        return False
    return not issubclass(kind, (torch.Tensor, torch.nn.Module, type, BaseException))


def tells(value: Any) -> bool:
    """Whether the program can tell when ``value`` ends."""
    kind = type(value)
    if kind in DRIVEN:
        return finalises(value) or may_finalise(value)
    if issubclass(kind, weakref.ref) and value.__callback__ is not None:
        return True  # while it lives, the end of another does
    if not is_heap(kind) or issubclass(kind, (torch.Tensor, type, BaseException)):
        return False
    if type(find(kind, "__del__")[1]) is FunctionType:
        return True
    return not issubclass(kind, torch.nn.Module) and weakref.getweakrefcount(value) > 0


def _walk(values: list[Any], most: int, visit: Callable[[Any], bool]) -> set[int]:
    """Ask ``visit`` about ``values`` and what is in the containers among them, until one is so.

    The ids of what was asked about.
    """
    pending, seen = values, set[int]()
    while pending and len(seen) < most:
        value = pending.pop()
        if type(value) is Lazy:
            value = value.value
        if id(value) in seen:
            continue
        seen.add(id(value))
        if visit(value):
            break
        if issubclass(type(value), _PASSING):
            pending += gc.get_referents(value)
    return seen


def ends_tell(value: Any) -> bool:
    """Whether the program can tell when ``value`` ends, or what it alone may hold."""
    found: list[bool] = []

    def visit(value: Any) -> bool:
        if tells(value):
            found.append(True)
        return bool(found)

    _walk([value], _FEW, visit)
    return bool(found)


def held_alone(frames: list[Frame]) -> list[Any]:
    """The objects in the hands of ``frames``, and perhaps of nobody else, whose end tells."""
    told: dict[int, Any] = {}
    asked: dict[int, Any] = {}
    known: collections.Counter[int] = collections.Counter()  # by object, references that are theirs

    def visit(value: Any) -> bool:
        if issubclass(type(value), _PASSING):
            known.update(map(id, gc.get_referents(value)))
        elif tells(value):
            (told if type(value) in DRIVEN else asked)[id(value)] = value
        return False

    for frame in frames:
        known.update(map(id, _values(frame)))
    seen = _walk([value for frame in frames for value in _values(frame)], _MOST, visit)
    # Who holds an object is asked of all that the process has, which takes long; how many hold it
    # is known. Beside those of the frames there is a reference in the table and one in the call.
    held = [asked[key] for key in asked if sys.getrefcount(asked[key]) > known[key] + 2]
    owned = _owned(held, seen | {id(asked)})
    return [*told.values(), *(value for key, value in asked.items() if key not in owned)]


def _owned(values: list[Any], seen: set[int]) -> set[int]:
    """The ids of ``values`` that something refers to which is neither capture's nor ``seen``."""
    if not values:
        return set()
    passing = (Lazy, External, FrameType, list, tuple)
    owners = [r for r in gc.get_referrers(*values) if id(r) not in seen and type(r) not in passing]
    found = {id(part) for owner in owners for part in gc.get_referents(owner)}
    return {id(value) for value in values if id(value) in found}


def _values(frame: Frame) -> list[Any]:
    extra = frame.extra
    more = [] if extra is None else list(extra) if type(extra) is tuple else [extra]
    return [*frame.fast, *frame.stack, *more]


class Dropping:
    """Watches ``values`` through one capture."""

    def __init__(self, machine: Any, values: list[Any]):
        self.machine = machine
        # of one that runs its shadow is on the stack
        known = [machine.external.get(id(value)) for value in values]
        real = [v if e is None else e.value for v, e in zip(values, known, strict=True)]
        self.values = list({id(value): value for value in real}.values())
        self._tables: dict[int, list[Handler]] = {}

    def ops(self, program: Program) -> list[Handler]:
        """The handlers of ``program``, with a look after those that may drop something."""
        known = self._tables.get(id(program))
        if known is None:
            plain = program.entering or entering_ops(program)
            known = self._tables[id(program)] = [
                op if ins.name in _DROPS_NOTHING or ins.name.startswith("LOAD_") else _looking(op)
                for ins, op in zip(program.instructions, plain, strict=True)
            ]
        return known

    def ends_tell(self, value: Any) -> bool:
        return ends_tell(value)

    def close(self) -> set[int]:
        """Capture is over; the ids of what is not to be held from here on."""
        found = set(map(id, self.values))
        self.values = []
        return found

    def look(self) -> None:
        """End the graph before this instruction if it has dropped one of the objects."""
        machine = self.machine
        if machine.frame is None:  # with the outermost frame all goes, after its effects
            return
        for value in self.values:
            if not self._is_over(value) and not self._is_held(value):
                why = f"the end of a {type(value).__name__}, of which the program can tell"
                raise Restart(machine.steps, "external-object", why)

    def _is_over(self, value: Any) -> bool:
        """A generator that runs nothing any more if it is closed where it stands now."""
        if type(value) not in DRIVEN:
            return False
        known = self.machine.external.get(id(value))
        return not finalises(value if known is None or known.shadow is None else known.shadow)

    def _is_held(self, value: Any) -> bool:
        frames = []
        frame = self.machine.frame
        while frame is not None:
            frames.append(frame)
            frame = frame.back
        pending: collections.deque = collections.deque()
        for frame in frames:
            pending.extend(_values(frame))
        seen: set[int] = set()
        while pending:
            found = pending.popleft()
            if type(found) is Lazy:
                found = found.value
            known = self.machine.external.get(id(found))
            if found is value or (known is not None and known.value is value):
                return True
            if id(found) in seen:
                continue
            seen.add(id(found))
            if len(seen) > _MOST:
                return True
            pending.extend(self._parts(found, known))
        return False

    def _parts(self, value: Any, known: External | None) -> Iterator[Any]:
        """What ``value`` holds, as the program has made it."""
        overlay = self.machine.overlay
        kind = type(value)
        if issubclass(kind, _NO_PARTS):
            return
        if known is not None and known.shadow is not None:
            value = known.shadow
        if known is not None and known.tail:
            yield from known.tail
        if known is not None and known.written:
            yield from known.written.values()
        if kind is CellType:
            item = overlay.get((id(value), "cell_contents"), DELETED)
            if item is not DELETED:
                yield item
                return
        elif kind in DRIVEN:
            if is_driven(value):
                activation = driven_by(value)
                if activation.frame is not None:
                    yield from _values(activation.frame)
                yield from (activation.exc, activation.value)
                delegate = delegate_of(value)
                yield delegate.inner if type(delegate) is Switch else delegate
                return
        elif kind is FunctionType:
            yield from value.__closure__ or ()
            yield from value.__defaults__ or ()
            return
        elif is_heap(kind):
            namespace = namespace_of(value) or {}
            for name, item in namespace.items():
                if (id(value), name) not in overlay:
                    yield item
            for (owner, _), item in overlay.items():
                if owner == id(value) and item is not DELETED:
                    yield item
            if not issubclass(kind, _PASSING):
                return
        for part in gc.get_referents(value):
            if not issubclass(type(part), _NO_PARTS):
                yield part


def is_held(machine: Any, value: Any) -> bool:
    """Whether the frames hold ``value``, or lead to it; capture itself holds more."""
    return Dropping(machine, [])._is_held(value)


def _looking(op: Handler) -> Handler:
    def run(m: Any, f: Frame, value: Any) -> None:
        op(m, f, value)
        m.dropping.look()

    return run
