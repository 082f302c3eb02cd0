"""Plans as rows: sources, guards, and the text behind the guards with the values that it names.

The guards of a loaded plan are printed from their rows, as those of a new one are. The whole text
is then held against :mod:`refcompiler.package.text`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from types import CodeType, MappingProxyType
from typing import Any

from refcompiler.ambient import Autocast
from refcompiler.capture.signals import Reason
from refcompiler.capture.state.switches import Setting, Switch
from refcompiler.errors import PackageError, UnsupportedError
from refcompiler.guards.ambient import Ambient
from refcompiler.guards.classes import Build, Member
from refcompiler.guards.held import Held
from refcompiler.guards.kinds import KINDS as GUARD_KINDS
from refcompiler.guards.kinds import NAMESPACE, Guard
from refcompiler.guards.sizes import Relations, SizedMeta
from refcompiler.guards.sources import FORMS, NOT_SET, Keywords, Positional, Source
from refcompiler.guards.tensors import TensorMeta
from refcompiler.interpreter.frame import NULL, UNSET
from refcompiler.interpreter.registry import program_of
from refcompiler.package import expressions, graphs, names, programs  # noqa: F401  # their kinds
from refcompiler.package.rows import Home, Packer, Refused, Unpacker, described, record, register
from refcompiler.package.text import check, named_in
from refcompiler.plan.build import MISS, Plan
from refcompiler.plan.entry import Entry
from refcompiler.plan.failure import FailedRun, OnError
from refcompiler.plan.resume import FrameLayout, Layout
from refcompiler.plan.writer import Writer
from refcompiler.runtime.failing import read
from refcompiler.runtime.runs import Checked, Remembering

_SINGLE = {"MISS": MISS, "NOT_SET": NOT_SET, "NULL": NULL, "UNSET": UNSET}
_CONSTANT = re.compile(r"__c(\d+)_\w+")


class Raises(OnError):
    """What a loaded plan does with an error of its graph: the modes are restored, and it is raised.

    Nothing captures the call once more, so what the program had done before is not done.
    """

    def __init__(self, grad: bool, autocast: Any, switches: Sequence[Setting]):
        self.grad, self.autocast, self.switches = grad, autocast, switches

    def __call__(self, error: BaseException, values: Sequence[Any], inputs: Sequence[Any]) -> Any:
        error.__traceback__ = None  # the frames may hold a mode, which ends
        self.restore_modes()
        raise error


class Recaptured(OnError):
    """What a plan of an earlier process does: its call is captured, to see where it has failed.

    ``chosen``: what the capture is to take for symbols.
    """

    def __init__(self, home: Home, grad: bool, autocast: Any, switches: Any, chosen: Any):
        self.home, self.chosen = home, chosen
        self.grad, self.autocast, self.switches = grad, autocast, switches

    def __call__(self, error: BaseException, values: Sequence[Any], inputs: Sequence[Any]) -> Any:
        self.restore_modes()  # in which the call is captured
        graph, recover = self.home.captured(self.chosen, values)
        if graph is not None:
            known = self.grad, self.autocast, self.switches
            return OnError(graph, *known, recover)(error, values, inputs)
        if isinstance(error, FailedRun):
            error = error.__cause__  # type: ignore[assignment]
        error.__traceback__ = None  # the frames may hold a mode, which ends
        raise error


class PackedWriter(Writer):
    """Prints functions whose text may name nothing but what it is told of."""

    def __init__(
        self, title: str, known: dict[str, Any], sources: dict[Source, str], own: bool = False
    ):
        super().__init__()
        self.title, self.own = title, own
        self.namespace = {**self.namespace, **known, "__MISS": MISS}
        numbers = [int(found[1]) for name in known if (found := _CONSTANT.fullmatch(name))]
        self._count = itertools.count(1 + max(numbers, default=-1))
        self._names = sources
        self._constants = {id(value): name for name, value in known.items()}

    def function(self, parameters: list[str], lines: list[str], title: str) -> Any:
        text = f"def plan({', '.join(parameters)}):\n" + "".join(f"    {line}\n" for line in lines)
        if not self.own:
            check(text, self.namespace.keys(), self.title)
        return super().function(parameters, lines, title)


# ---- packing -------------------------------------------------------------------------------------


def pack_plan(p: Packer, plan: Plan, place: str) -> Any:
    """``plan`` as a row; ``place`` is the program's file and line.

    Errors: :class:`UnsupportedError` that names what cannot be packaged, and where it is.
    """
    if plan.reason is not None and not p.complete:
        raise UnsupportedError(f"{plan.title} cannot be packaged: {plan.reason}")
    guards = []
    for guard in plan.guards:
        try:
            guards.append(p.pack(guard))
        except Refused as error:
            what = f"the guard {guard.kind} on {guard.source}" if guard.source else guard.kind
            raise _refuse(plan, f"{what} names {error}", guard.where or place) from None
    space = plan.writer.namespace
    known: dict[str, Any] = {}
    text = "def plan():\n" + "".join([f"    {line}\n" for line in plan.body])
    held, used = plan.writer.held, named_in(text)
    spaces = _spaces(plan)
    for name in sorted(used - NAMESPACE.keys() - {"__MISS"}):
        if name in held:
            value: Any = held[name]()
        elif name in space:
            value = space[name]
        else:
            continue
        try:
            if type(value) is MappingProxyType and id(value) in spaces:
                known[name] = p.pack(Space(spaces[id(value)]))
            elif name == "__pending":
                known[name] = p.pack(GOES_ON)
            else:
                known[name] = p.pack(value)
        except Refused as error:
            what = (
                "what the backend made has" if name == "__graph" else "its results or effects name"
            )
            raise _refuse(plan, f"{what} {error}", place) from None
    try:
        needed = [p.pack(source) for source in plan.entry.needed]
        sources = [[p.pack(source), name] for source, name in plan.writer._names.items()]
        graph = p.pack(plan.graph)
    except Refused as error:
        raise _refuse(plan, f"it has {error}", place) from None
    rest = plan.title, plan.parameters, plan.body, plan.operations
    reason = None if plan.reason is None else [*plan.reason]
    return [guards, needed, known, sources, graph, *rest, reason, plan.stands_still]


def _refuse(plan: Plan, why: str, place: str) -> UnsupportedError:
    return UnsupportedError(f"{plan.title} cannot be packaged: {why}{place}")


class Space:
    """The namespace of a class, of which each look is a new proxy."""

    def __init__(self, cls: type):
        self.cls = cls


def _spaces(plan: Plan) -> dict[int, type]:
    found: dict[int, type] = {}

    def add(source: Source | None) -> None:
        while source is not None:
            if source.kind == "space" and source.fixed is not None:
                found[id(source.fixed)] = _named(source.key)
            source = source.parent

    for guard in plan.guards:
        add(guard.source)
        guard.wanted(add)
    for source in plan.entry.needed:
        add(source)
    return found


def _named(value: Any) -> Any:
    return value() if type(value) is Held else value


def unpack_plan(
    u: Unpacker,
    guards: list[Any],
    needed: list[Any],
    known: dict[str, Any],
    sources: list[Any],
    graph: Any,
    title: str,
    parameters: list[str],
    body: list[str],
    operations: int,
    reason: list[Any] | None,
    stands_still: bool,
) -> Plan:
    named = {name: u.value(value) for name, value in known.items()}
    texts = {u.value(source): name for source, name in sources}
    writer = PackedWriter(u.title, named, texts, u.home is not None)
    entry = Entry(u.values(guards), u.values(needed))
    ends = None
    if reason is not None:
        row, context, file, line, function, stack = reason
        stands = tuple([(file, line, name) for file, line, name in stack])
        ends = Reason(row, context, file, line, function, stands)
    given = entry, body, parameters, title, writer, None, operations
    return Plan(*given, ends, stands_still, [])


# ---- kinds ---------------------------------------------------------------------------------------


def _pack_source(p: Packer, source: Source) -> list[Any]:
    known = p.pack(source.parent), p.pack(_named(source.key))
    return [source.kind, *known, source.label, p.pack(source.named)]


def _unpack_source(u: Unpacker, kind: str, parent: Any, key: Any, label: str, named: Any) -> Source:
    if kind not in FORMS:
        raise PackageError(f"{u.title} is malformed: a source of kind {kind!r}")
    made = Source(kind, u.value(parent), u.value(key), label)
    made.named = u.value(named)
    if kind == "space":
        made.fixed = made.key.__dict__
    return made


def _pack_guard(p: Packer, guard: Guard) -> list[Any]:
    expected, source = _named(guard.expected), guard.source
    if guard.kind == "ID" and type(expected) is tuple and source and source.key == "__mro__":
        expected = Bases(expected)
    elif guard.kind == "ID":
        expected = _identified(p, expected, source)
    elif guard.kind == "CODE":
        expected = _identified(p, expected[0], source, True), expected[1]
    return [guard.kind, p.pack(source), p.pack(expected), list(guard.place)]


class Bases:
    """The very tuple that a class has of what it inherits from."""

    def __init__(self, classes: tuple[type, ...]):
        self.classes = classes


def _bases(u: Unpacker, *classes: Any) -> tuple[type, ...]:
    """Where the class inherits otherwise here, what no guard finds."""
    found = tuple(u.values(classes))
    return found[0].__mro__ if found[0].__mro__ == found else found


class Found:
    """A function, or its code, that is read from its place, since it does not name that itself."""

    def __init__(self, source: Source, code: Any, of_code: bool):
        self.source, self.code, self.of_code = source, code, of_code


def _pack_found(p: Packer, found: Found) -> list[Any]:
    return [p.pack(found.source), names.digest_of(found.code, p.complete), found.of_code]


def _unpack_found(u: Unpacker, source: Any, digest: str, of_code: bool) -> Any:
    place = u.value(source)
    found = read(place, {})
    code = names.code_in(found)
    if not names.has_digest(code, digest):
        raise PackageError(f"{u.title} was made for another {place}: its code has changed")
    return code if of_code else found


_IDENTIFIED = frozenset(
    ("named", "globals", "member", "external", "code", "sentinel", "dtype", "layout")
    + ("memory_format", "operator", "logger")
)


def _identified(p: Packer, value: Any, source: Source | None, of_code: bool = False) -> Any:
    """``value``, of which another process can tell which object it is."""
    if value is None or type(value) is bool:
        return value
    try:
        (at,) = p.pack(value)
    except (Refused, TypeError):
        code, root = names.code_in(value), source
        while root is not None and root.parent is not None:
            root = root.parent
        if code is None or source is None or root is None or root.kind == "arg":
            raise Refused(described(value)) from None
        return Found(source, code, of_code)
    if p.rows[at][0] not in _IDENTIFIED:
        raise Refused(f"{described(value)}, by which object it is")
    return value


def _unpack_guard(u: Unpacker, kind: str, source: Any, expected: Any, place: list[Any]) -> Guard:
    if kind not in GUARD_KINDS:
        raise PackageError(f"{u.title} is malformed: a guard of kind {kind!r}")
    return Guard(kind, u.value(source), u.value(expected), (place[0], place[1]))


register("bases", lambda p, v: [p.pack(cls) for cls in v.classes], _bases, Bases)
register("found", _pack_found, _unpack_found, Found)
register("source", _pack_source, _unpack_source, Source)
record(Positional)
record(Keywords)
register("guard", _pack_guard, _unpack_guard, Guard)
register(
    "space",
    lambda p, value: [p.pack(value.cls)],
    lambda u, cls: u.value(cls).__dict__,
    Space,
)
register(
    "held",
    lambda p, value: [p.pack(value())],
    lambda u, value: u.value(value),
    Held,
)


def _pack_run(p: Packer, value: Any) -> list[Any]:
    run = getattr(value, "settled", value)
    if not p.complete or type(run) is not Remembering:
        return [p.pack(value.compiled)]
    if run.generators:
        raise Refused("generators of the program's own")
    return [p.pack(run.compiled), list(run.written), run.random, run.writes]


def _unpack_run(u: Unpacker, compiled: Any, *known: Any) -> Any:
    return Remembering(u.value(compiled), *known) if known else u.value(compiled)


def _pack_on_error(p: Packer, value: OnError) -> list[Any]:
    chosen = None
    if p.complete and isinstance(value, Recaptured):
        chosen = p.pack(value.chosen)
    elif p.complete and value.recover is not None:
        (policy,) = value.recover.args  # type: ignore[attr-defined]
        chosen = p.pack(dict(policy.chosen))
    return [value.grad, p.pack(value.autocast), [p.pack(s) for s in value.switches], chosen]


def _unpack_on_error(u: Unpacker, grad: bool, autocast: Any, switches: Any, chosen: Any) -> Any:
    given = grad, u.value(autocast), u.values(switches)
    return Raises(*given) if u.home is None else Recaptured(u.home, *given, u.value(chosen) or {})


class GoesOn:
    """Whatever drives the frames of a plan's site on after a break."""


GOES_ON = GoesOn()


def _pack_frames(p: Packer, layout: Layout) -> list[Any]:
    return [_pack_frame(p, frame) for frame in layout.frames]


def _pack_frame(p: Packer, frame: FrameLayout) -> list[Any]:
    code = frame.program.code
    own = next((path for path in _paths(p.codes, code)), None)
    which = p.pack(code) if own is None else own
    known = p.pack(frame.globals), p.pack(frame.builtins), p.pack(frame.kwnames)
    marks = [p.pack(mark) for mark in frame.stack]
    where = frame.ip, frame.on_return, [*frame.slots], marks, frame.extra
    return [own is not None, which, *known, *where]


def _unpack_frames(u: Unpacker, *frames: Any) -> Layout:
    return Layout([_unpack_frame(u, *frame) for frame in frames])


def _unpack_frame(
    u: Unpacker,
    is_own: bool,
    which: Any,
    globals_: Any,
    builtins: Any,
    kwnames: Any,
    ip: int,
    on_return: str,
    slots: list[int],
    marks: list[Any],
    extra: int,
) -> FrameLayout:
    assert u.home is not None
    code = u.value(which) if not is_own else _at(u.home.codes, which)
    return FrameLayout(
        program_of(code),
        u.value(globals_),
        u.value(builtins),
        ip,
        on_return,
        u.value(kwnames),
        tuple(slots),
        tuple(u.values(marks)),
        extra,
    )


def _paths(codes: Sequence[Any], code: CodeType) -> Iterator[list[int]]:
    """Where ``code`` is among ``codes``, or among the constants of one, and so on."""
    for n, each in enumerate(codes):
        if each is code:
            yield [n]
        elif isinstance(each, CodeType):
            yield from ([n, *path] for path in _paths(each.co_consts, code))


def _at(codes: Sequence[Any], path: Sequence[int]) -> CodeType:
    first, *rest = path
    code: CodeType = codes[first]
    return _at(code.co_consts, rest) if rest else code


def _goes_on(u: Unpacker) -> Any:
    assert u.home is not None
    return u.home.pending()


register("goes on", lambda p, value: [], _goes_on, GoesOn)
register("frames", _pack_frames, _unpack_frames, Layout)
register("run", _pack_run, _unpack_run, Checked, Remembering)
register("on error", _pack_on_error, _unpack_on_error, OnError, Raises, Recaptured)
register(
    "sentinel",
    lambda p, value: [next(name for name, known in _SINGLE.items() if known is value)],
    lambda u, name: _SINGLE[name],
    when=lambda value: any(value is known for known in _SINGLE.values()),
)
for _record in (
    Ambient,
    Autocast,
    Build,
    Member,
    Relations,
    Setting,
    SizedMeta,
    Switch,
    TensorMeta,
):
    record(_record)
