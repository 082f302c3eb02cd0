"""Objects whose end the program can tell, and the instruction that drops the last reference.

A generator that is suspended in a ``try`` or ``with`` runs code of the user's when it is closed; an
object that somebody refers to weakly, or whose class has a ``__del__``, tells of its end too. While
capturing, what was read of such an object from before the graph holds it, so that nothing tells
that the program has dropped it. Where one is in the frames' hands as a capture begins, each
instruction that may drop it is followed by a look whether the program can still reach it; if it
cannot, the graph ends before that instruction, which then drops it for real.

What the frame itself has made capture keeps too, so that no two objects have one number. A
generator that it suspends in a ``try``, and that only such an object holds, would outlive what the
program thinks of it: a capture that ends with one is made again, and then lets go of what nobody
else holds behind each instruction. The generator then ends by the rules of CPython's own count.
"""

from __future__ import annotations

import builtins
import collections
import functools
import gc
import itertools
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import CellType, FrameType, FunctionType, MethodType
from typing import Any

import torch
from torch.utils.weak import WeakIdRef

from refcompiler.bytecode.decode import Program
from refcompiler.capture.entering import Handler, entering_ops
from refcompiler.capture.kinds import BOUND_IN_C
from refcompiler.capture.lookup import find, is_heap, namespace_of
from refcompiler.capture.signals import Restart
from refcompiler.capture.values import DELETED, External, Lazy, Literal
from refcompiler.interpreter.continued import Switch
from refcompiler.interpreter.driven import DRIVEN, delegate_of, driven_by, is_driven
from refcompiler.interpreter.frame import Frame
from refcompiler.interpreter.resumption import finalises, may_finalise
from refcompiler.weak import Reference

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
    *BOUND_IN_C,
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
    if kind is functools.partial:
        return True
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
    if kind is functools.partial:
        return bool(weakref.getweakrefcount(value))
    if issubclass(kind, torch.Tensor):  # a module of torch's refers weakly to its parameters
        refs = weakref.getweakrefs(value) if kind is torch.Tensor else ()
        # and capture to what it reads, and compiled code to its results
        return any(type(ref) not in (WeakIdRef, Reference) for ref in refs)
    if not is_heap(kind) or issubclass(kind, (type, BaseException)):
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
    return bool(found) or _leads_to_generator([value], set(), _FEW)


def _generators(values: Iterable[Any], seen: set[int], most: int) -> Iterator[Any]:
    """Generators that ``values`` lead to through objects of all kinds, each with the way to it.

    A way is a pair of an object and the way to its owner.
    """
    pending: collections.deque = collections.deque((value, None) for value in values)
    while pending and len(seen) < most:
        value, way = pending.popleft()
        if type(value) is Lazy:
            value = value.value
        if id(value) in seen or issubclass(type(value), (*_NO_PARTS, torch.nn.Module)):
            continue
        seen.add(id(value))
        parts: Iterable[Any] = ()
        if type(value) is FunctionType:
            parts = (*(value.__closure__ or ()), *(value.__defaults__ or ()))
        elif type(value) not in DRIVEN:
            parts = gc.get_referents(value)
        else:
            yield value, way
            if is_driven(value) and (frame := driven_by(value).frame) is not None:
                parts = _values(frame)
        pending.extend((part, (value, way)) for part in parts)


def _leads_to_generator(values: Iterable[Any], seen: set[int], most: int) -> bool:
    return any(finalises(value) for value, _ in _generators(values, seen, most))


def _held_deep(values: list[Any], known: dict[int, Any], ours: set[int]) -> Iterator[Any]:
    """Generators that ``values`` alone lead to, beside the ``known`` ones.

    ``ours``: the ids of whoever asks, who is no holder.
    """
    seen: set[int] = set()
    found = list(_generators(values, seen, _FEW))
    ways = [(value, way) for value, way in found if id(value) not in known and tells(value)]
    chains = [(value, [value, *_along(way)]) for value, way in ways]
    every = [part for _, chain in chains for part in chain]
    owned = _owned(every, seen | ours)
    for value, chain in chains:
        if not any(id(part) in owned for part in chain):
            yield value


def _along(way: Any) -> Iterator[Any]:
    while way is not None:
        value, way = way
        yield value


def held_alone(frames: list[Frame]) -> list[Any]:
    """The objects in the hands of ``frames``, and perhaps of nobody else, whose end tells."""
    told: dict[int, Any] = {}
    asked: dict[int, Any] = {}
    passing: dict[int, Any] = {}
    known: collections.Counter[int] = collections.Counter()  # by object, references that are theirs

    def visit(value: Any) -> bool:
        if issubclass(type(value), _PASSING):
            passing[id(value)] = value
            known.update(map(id, gc.get_referents(value)))
        elif tells(value):
            (told if type(value) in DRIVEN else asked)[id(value)] = value
        return False

    for frame in frames:
        known.update(map(id, _values(frame)))
    seen = _walk(_all_values(frames), _MOST, visit)
    # Who holds an object is asked of all that the process has, which takes long; how many hold it
    # is known. Beside those of the frames there is a reference in the table and one in the call.
    ours = {id(asked), id(passing)}
    seen |= ours
    owned = _owned(_held_more(asked, known), seen)
    if asked.keys() - owned:
        # What else somebody has, as a module its namespace, keeps what is in it.
        outside = _owned(_held_more(passing, known), seen)
        owned |= _walk([passing[key] for key in outside], _MOST, lambda value: False)
    told.update((id(v), v) for v in _held_deep(_all_values(frames), told, ours))
    return [*told.values(), *(value for key, value in asked.items() if key not in owned)]


def _held_more(table: dict[int, Any], known: collections.Counter[int]) -> list[Any]:
    """What of ``table``, whose keys are ids, there are more references to than are ``known``."""
    return [table[key] for key in table if sys.getrefcount(table[key]) > known[key] + 2]


def _owned(values: list[Any], seen: set[int]) -> set[int]:
    """The ids of ``values`` that something refers to which is neither capture's nor ``seen``."""
    if not values:
        return set()
    passing = (Lazy, External, FrameType, list, tuple)
    owners = [r for r in gc.get_referrers(*values) if id(r) not in seen and type(r) not in passing]
    found = {id(part) for owner in owners for part in gc.get_referents(owner)}
    return {id(value) for value in values if id(value) in found}


def _all_values(frames: list[Frame]) -> list[Any]:
    """Made anew for each that asks: one that lived on would count as a holder."""
    return [value for frame in frames for value in _values(frame)]


def _values(frame: Frame) -> list[Any]:
    extra = frame.extra
    more = [] if extra is None else list(extra) if type(extra) is tuple else [extra]
    return [*frame.fast, *frame.stack, *more]


def is_unfinished(machine: Any) -> bool:
    """Whether a generator that would run code at its end is held by what capture alone keeps."""
    if not any(map(_is_suspended_in_try, machine.activations)):
        return False
    let_go = [value for value in machine.recorder.keep if _is_kept(value)]
    numbers = set(map(id, _doubled(machine)))
    # beside the table above and the one of what is kept, a reference lies in the call
    alone = [v for v in let_go if sys.getrefcount(v) == 4 + (id(v) in numbers)]
    return _leads_to_generator(alone, {id(machine)}, _MOST)


def _is_suspended_in_try(activation: Any) -> bool:
    frame = activation.frame
    if frame is None:
        return False
    handler = frame.program.user_handler_at(frame.ip - 1)
    return handler is not None and not _passes_by(frame, handler.target)


def _passes_by(frame: Frame, place: int) -> bool:
    """Whether the handler at ``place`` catches what has names only, none of which ends generators.

    ``except IndexError`` runs nothing then, and no other ``try`` lies around it.
    """
    program, codes = frame.program, frame.program.instructions
    outer = program.handler_at(place)
    if codes[place].name != "PUSH_EXC_INFO" or outer is None:
        return False
    leaving = [ins.name for ins in codes[outer.target : outer.target + 3]]
    if leaving != ["COPY", "POP_EXCEPT", "RERAISE"] or program.user_handler_at(outer.target):
        return False
    place += 1
    while codes[place].name == "LOAD_GLOBAL" and codes[place + 1].name == "CHECK_EXC_MATCH":
        name = program.values[place][0]
        kind = frame.globals.get(name) or getattr(builtins, name, None)
        if not isinstance(kind, type) or issubclass(GeneratorExit, kind):
            return False
        if not codes[place + 2].name.startswith("POP_JUMP"):
            return False
        place = program.values[place + 2]
    return codes[place].name == "RERAISE"


def _is_kept(value: Any) -> bool:
    """Whether it is an object that the program made, and no tensor."""
    return value is not None and not issubclass(type(value), torch.Tensor)


def _doubled(machine: Any) -> Iterable[Any]:
    """What capture holds once more: whose ``__dict__`` the program has."""
    return machine.own_namespaces.values()


class Dropping:
    """Watches ``values`` through one capture, and lets go of what it keeps if it ``releases``."""

    def __init__(self, machine: Any, values: list[Any], releases: bool = False):
        self.machine = machine
        self.releases = releases
        self._kept: list[int] = []  # where in the table
        self._known = 0  # how much of the table has been looked at
        # of one that runs its shadow is on the stack
        known = [machine.external.get(id(value)) for value in values]
        real = [v if e is None else e.value for v, e in zip(values, known, strict=True)]
        self.values = list({id(value): value for value in real}.values())
        self._tables: dict[int, list[Handler]] = {}
        #: By the id of a value those on the way to it from the frames: nothing is kept alive here.
        self._ways: dict[int, list[int] | None] = {}

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
        self._ways.clear()
        return found

    def look(self) -> None:
        """End the graph before this instruction if it has dropped one of the objects."""
        machine = self.machine
        if self.releases and any(map(_is_suspended_in_try, machine.activations)):
            self._release()
        if machine.frame is None:  # with the outermost frame all goes, after its effects
            return
        for value in self.values:
            if not self._is_over(value) and not self._is_held(value):
                why = f"the end of a {type(value).__name__}, of which the program can tell"
                raise Restart(machine.steps, "external-object", why)

    def _release(self) -> None:
        """Let go of what the program has dropped; what it alone held is next."""
        table = self.machine.recorder.keep
        self._kept += [i for i in range(self._known, len(table)) if _is_kept(table[i])]
        self._known = len(table)
        found = True
        while found:
            found = False
            for place in self._kept[::-1]:
                count = sys.getrefcount(table[place])  # the table's, and one in the call
                if count > 3 or (count == 3 and not self._forget(table[place])):
                    continue
                self._kept.remove(place)
                table[place] = None
                found = True

    def _forget(self, value: Any) -> bool:
        """``value``, held once more than by the table: whether that was capture too."""
        known = self.machine.own_namespaces
        for number, owner in known.items():
            if owner is value:
                del known[number]
                return True
        return False

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
        held = [part for frame in frames for part in _values(frame)]
        way = self._ways.get(id(value))
        if way is not None and self._leads(held, way):
            return True
        self._ways[id(value)] = None
        pending: collections.deque = collections.deque((part, None) for part in held)
        seen: set[int] = set()
        while pending:
            found, link = pending.popleft()
            if type(found) is Lazy:
                found = found.value
            known = self.machine.external.get(id(found))
            link = (id(found), link)
            if found is value or (known is not None and known.value is value):
                self._ways[id(value)] = _in_order(link)
                return True
            if id(found) in seen:
                continue
            seen.add(id(found))
            if len(seen) > _MOST:
                return True
            pending.extend((part, link) for part in self._parts(found, known))
        return False

    def _leads(self, held: Iterable[Any], way: list[int]) -> bool:
        """Whether ``way`` to a value, found before, is still one."""
        for number in way:
            for part in held:
                found = part.value if type(part) is Lazy else part
                if id(found) == number:
                    break
            else:
                return False
            held = self._parts(found, self.machine.external.get(number))
        return True

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


def _in_order(link: Any) -> list[int]:
    found = []
    while link is not None:
        number, link = link
        found.append(number)
    return found[::-1]


def is_held(machine: Any, value: Any) -> bool:
    """Whether the frames hold ``value``, or lead to it; capture itself holds more."""
    return Dropping(machine, [])._is_held(value)


def _looking(op: Handler) -> Handler:
    def run(m: Any, f: Frame, value: Any) -> None:
        op(m, f, value)
        m.dropping.look()

    return run
