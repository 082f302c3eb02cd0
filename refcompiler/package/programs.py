"""What ahead-of-time autograd makes, as rows: the text around a graph, and the program of training.

A backward is compiled when it first runs; a package has no compiler, so backwards are compiled as
it is saved: for all gradients, and where the outputs are few for each set of them.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from types import BuiltinFunctionType, FunctionType, MappingProxyType
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from refcompiler.aot.again import Then
from refcompiler.aot.bases import Base, Overlapping
from refcompiler.aot.casts import Casts
from refcompiler.aot.depends import Chain, Depends
from refcompiler.aot.gates import REFUSED, Gates, Level, Stages
from refcompiler.aot.inputs import Unsupported, attribute
from refcompiler.aot.later import Later, for_sizes, other_sizes
from refcompiler.aot.layout import Layout
from refcompiler.aot.missing import without
from refcompiler.aot.origin import Example, Number, Origin
from refcompiler.aot.program import Program
from refcompiler.aot.since import Asked, Row
from refcompiler.aot.sizes import Sized
from refcompiler.aot.symbols import fake_mode
from refcompiler.aot.toward import toward
from refcompiler.aot.twice import TWICE, Derivable
from refcompiler.backends.registry import lookup_backend
from refcompiler.errors import PackageError, UnsupportedError
from refcompiler.package import calls  # noqa: F401  # rows for what guards and plans call
from refcompiler.package.rows import Home, NotYet, Packer, Refused, Unpacker, held, record, register
from refcompiler.package.text import named_in, run
from refcompiler.remade import MADE, WRITTEN, is_maker, maker
from refcompiler.runtime.counters import count

#: Outputs with gradients, of which each set has a backward in the package.
FEW = 3
_AOT = "aot"
#: On a backend: the module that packs and unpacks what it writes.
PACKAGES = "packages"


# ---- text ----------------------------------------------------------------------------------------


def _pack_call(p: Packer, call: FunctionType) -> list[Any]:
    source: str = call.source  # type: ignore[attr-defined]
    scope = call.__globals__
    names = {}
    for name in sorted(named_in(source) & scope.keys() - {"__builtins__", "call"}):
        value = scope[name]
        if isinstance(value, Sized):  # which would compile
            value = scope["uncompiled"]
        names[name] = p.pack(value)
    return [source, names]


def _unpack_call(u: Unpacker, source: str, names: dict[str, Any]) -> Callable[..., Any]:
    known = {name: u.value(value) for name, value in names.items()}
    call = run(source, known, u.title, "around a graph", u.home is not None)["call"]
    call.source, call.fallback, call.uncompiled = source, None, known["uncompiled"]
    call.__dict__[WRITTEN] = _AOT
    return call


def written_by(value: Any) -> str | None:
    """Which package has generated the text of a function, if one has."""
    if type(value) is not FunctionType or "__name__" in value.__globals__:  # it is of a module
        return None
    return value.__dict__.get(WRITTEN)


def _packing_of(backend: str) -> Any:
    module = getattr(lookup_backend(backend), PACKAGES, None)
    if module is None:
        raise Refused(f"code of the backend {backend}")
    return importlib.import_module(module)


def _unpack_compiled(u: Unpacker, backend: str, *parts: Any) -> Any:
    try:
        packing = _packing_of(backend)
    except (UnsupportedError, Refused) as error:
        raise PackageError(f"{u.title} needs the backend {backend}: {error}") from error
    return packing.unpack(u, *parts)


register("around", _pack_call, _unpack_call, when=lambda value: written_by(value) == _AOT)
register(
    "compiled",
    lambda p, value: [written_by(value), *_packing_of(written_by(value) or "").pack(p, value)],
    _unpack_compiled,
    when=lambda value: written_by(value) not in (None, _AOT),
)


# ---- functions that were made by functions -------------------------------------------------------


def _pack_made(p: Packer, value: Any) -> list[Any]:
    by, given = value.__dict__[MADE]
    return [by.__module__, by.__qualname__, [p.pack(item) for item in given]]


def _unpack_made(u: Unpacker, module: str, name: str, given: list[Any]) -> Any:
    if not is_maker(module, name):
        raise PackageError(f"{u.title} is malformed: {module}.{name} makes nothing")
    return getattr(sys.modules[module], name)(*u.values(given))


@maker
def viewer(size: Sequence[int], stride: Sequence[int], offset: int) -> Callable[..., torch.Tensor]:
    """What makes a view of a base again, where autograd sees it."""

    def view(base: torch.Tensor) -> torch.Tensor:
        return base.as_strided(size, stride, base.storage_offset() + offset)

    view.__dict__[MADE] = viewer, (size, stride, offset)
    return view


def _is_replay(value: Any) -> bool:
    return (
        isinstance(value, BuiltinFunctionType)
        and value.__name__ == "_view_func_unsafe"
        and isinstance(value.__self__, torch.Tensor)
    )


def _pack_replay(p: Packer, value: Any) -> list[Any]:
    t = value.__self__
    base = t._base
    plain = not (t.is_conj() or t.is_neg() or base.is_conj() or base.is_neg())
    numbers = *t.shape, *t.stride(), t.storage_offset(), base.storage_offset()
    if not plain or t.dtype != base.dtype or not all(type(n) is int for n in numbers):
        raise Refused("an output that is a view with other bits, or with symbols for sizes")
    offset = t.storage_offset() - base.storage_offset()
    return [list(t.shape), list(t.stride()), offset]


register("made", _pack_made, _unpack_made, when=lambda v: MADE in held(v, "__dict__", ()))
register("replay", _pack_replay, lambda u, *parts: viewer(*parts), when=_is_replay)


# ---- programs that are trained -------------------------------------------------------------------


class Backward:
    """The graph of a backward, which is made from its rows where somebody asks for its nodes."""

    def __init__(self, make: Callable[[], Any]):
        self.make = make

    @property
    def graph(self) -> Any:
        return self.make().graph


class Packed(Program):
    """A program with the backwards that its package has, and no compiler for others."""

    watches = False

    def backward_for(self, missing: tuple[int, ...]) -> Callable[[list[Any]], Any]:
        found = self.compiled.get(missing)
        if found is None:
            given = [n for n in range(len(self.results)) if n not in missing]
            raise UnsupportedError(
                f"the package has no backward for gradients of the outputs {given} alone of "
                f"{len(self.results)}: it has those for all, for one, and for each set of "
                f"at most {FEW}"
            )
        return found

    def refuse_casts(
        self, missing: tuple[int, ...], strides: Mapping[int, Sequence[int]], casts: Casts
    ) -> Any:
        """In eager the operators of this backward would cast, and these do not."""
        names = ", ".join([f"{device} to {str(dtype)[6:]}" for device, dtype in casts])
        raise UnsupportedError(
            f"the package has no backward under autocast ({names}): it has those for outside of "
            "autocast, and for the autocast that it was compiled under; call backward there"
        )


class Kept(Program):
    """A program that an earlier process compiled, with the backwards that were asked for.

    For others the whole is compiled again (``source``), and kept with what came of that. Where that
    cannot be, one for other outputs runs as it is, and the next call is captured and compiled.
    """

    home: Home
    source: Callable[[], Origin] | None
    values: list[Any]  # of what the backward takes: sizes, strides, dtype and device
    #: By the gradients that it does not have, what there is of a part.
    known_parts: Mapping[tuple[int, ...], Mapping[str, Any]] = MappingProxyType({})
    of: tuple[Kept, tuple[int, ...]] | None = None  # the program that it is a part of

    @functools.cached_property
    def whole(self) -> Program | None:
        """What this process has compiled of the same, if it can."""
        if self.of is not None:
            program, unwanted = self.of
            return program.whole and program.whole.part(unwanted)
        if self.source is None:
            return None
        call, more = self.source().compiled(self.home.compile)
        made = getattr(call, "program", None)
        alike = isinstance(made, Program) and _are_alike(made.backward, self.backward)
        if more or not alike:  # this call is under way; the next one is captured
            relies = f"relies on {more}" if alike else "is another one"
            self.home.anew(f"what is compiled of the same graph now {relies}")
        if not isinstance(made, Program) or not alike:
            return None
        if more:
            given = made.compile_backward
            made.compile_backward = lambda graph: for_sizes(given, graph, more, other_sizes)
        return made

    def backward_for(self, missing: tuple[int, ...]) -> Callable[[list[Any]], Any]:
        found = self.compiled.get(missing)
        if found is None and self.whole is not None:
            found = self.compiled[missing] = self.whole.backward_for(missing)
            self.has_compiled()
        return found or self._as_it_is(missing)

    def part_again(self, unwanted: tuple[int, ...]) -> Program | None:
        """The program whose backward has no gradients with these numbers."""
        known = self.known_parts.get(unwanted)
        if known is None and (self.whole is None or self.whole.part(unwanted) is self.whole):
            return None
        graph = Backward(lambda: toward(self.backward.make(), unwanted))
        own = {"compiled": {}, "laid": {}, **(known or {})}
        part = replace(self, backward=graph, cast={}, part_for=None, parts={}, is_part=True, **own)
        part.of, part.draws, part.releases = (self, unwanted), self.draws, self.releases
        part.__dict__["selective"] = self.selective
        part.home, part.source, part.values = self.home, self.source, self.values
        return part.by_itself()

    def by_itself(self) -> Kept:
        """With itself asked for what is not there."""
        if self.laid_for is not None:
            self.laid_for = self.laid_again
        self.cast_for = self.cast_again
        if self.source is not None:
            self.second_for, self.depends_for = self.second_again, self.depends_again
        return self

    def laid_again(self, missing: tuple[int, ...], strides: Mapping[int, Sequence[int]]) -> Any:
        """The backward for tangents that lie otherwise."""
        return self.whole and self.whole.backward_of(missing, tuple(strides.items()))

    def cast_again(
        self, missing: tuple[int, ...], strides: Mapping[int, Sequence[int]], casts: Casts
    ) -> Any:
        """The backward under autocast."""
        whole = self.whole
        if whole is None:
            self.home.anew("a backward under autocast")
            raise RuntimeError(
                "a program on disk has no backward under autocast, and is compiled otherwise now; "
                "the next call is captured anew"
            )
        return whole.cast_for and whole.cast_for(missing, strides, casts)

    def second_again(self, missing: tuple[int, ...], chain: Chain) -> Any:
        """The backward of the backward."""
        if self.whole is None:
            raise RuntimeError(TWICE)
        return self.whole.second_backward(missing, chain)

    def depends_again(self, missing: tuple[int, ...], chain: Chain) -> Depends | None:
        """What that depends on."""
        return None if self.whole is None else self.whole.depends(missing, chain)

    def stages(self) -> Stages:
        whole = self.whole
        if whole is None:
            raise RuntimeError(
                REFUSED.format(why="was found on disk, and is compiled otherwise now")
            )
        assert whole.gates is not None
        return whole.gates.stages

    def _as_it_is(self, missing: tuple[int, ...]) -> Callable[[list[Any]], Any]:
        graph = self.backward.make()
        if self.rewrites or missing and not self.values:
            raise RuntimeError(
                "a program on disk has no backward without gradients of the outputs "
                f"{[*missing]}, and is compiled otherwise now; the next call is captured anew"
            )
        if missing:
            with fake_mode(None):
                given = [
                    torch.empty_strided(size, stride, dtype=dtype, device=device)
                    for size, stride, dtype, device in self.values
                ]
                _Noting(graph).run(*given)
            names = [n.target for n in graph.graph.find_nodes(op="placeholder")]
            tangents = names[self.numbers + self.tensors :]
            graph, _ = without(graph, {str(tangents[n]) for n in missing})
        count("uncompiled", f"a backward without gradients of the outputs {missing}")
        self.home.anew("another set of outputs has gradients")
        found = self.compiled[missing] = _boxed(graph.forward)
        return found


def _are_alike(graph: Any, other: Any) -> bool:
    """Whether two graphs are the same, node for node."""
    pairs = itertools.zip_longest(graph.graph.nodes, other.graph.nodes)
    return all(
        a is not None
        and b is not None
        and (a.op, a.name, str(a.target)) == (b.op, b.name, str(b.target))
        and [n.name for n in a.all_input_nodes] == [n.name for n in b.all_input_nodes]
        for a, b in pairs
    )


class _Noting(torch.fx.Interpreter):
    """Notes of each node what it gives."""

    def run_node(self, n: torch.fx.Node) -> Any:
        found = n.meta["val"] = super().run_node(n)
        return found


def _is_concrete(t: torch.Tensor) -> bool:
    return all(type(n) is int for n in (*t.shape, *t.stride()))


def _values(p: Packer, backward: GraphModule) -> list[Any]:
    """Of what a backward takes. Raises :class:`Refused` where sizes are symbols."""
    found = []
    for node in backward.graph.find_nodes(op="placeholder"):
        t = node.meta.get("val")
        if not isinstance(t, torch.Tensor) or not _is_concrete(t):
            raise Refused("several outputs with gradients, and symbols for sizes")
        found.append([[*t.shape], [*t.stride()], p.pack(t.dtype), p.pack(t.device)])
    return found


def _boxed(plainly: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    def call(inputs: list[Any]) -> Any:
        given = [*inputs]
        inputs.clear()
        return plainly(*given)

    return call


def _sets(program: Program) -> Iterator[tuple[int, ...]]:
    """The sets of missing gradients for which a package has a backward; those of views are."""
    every = range(len(program.results))
    views = tuple(range(len(every), len(program.differentiable)))
    yield views
    if len(every) <= FEW:
        for size in range(1, len(every)):
            for missing in itertools.combinations(every, size):
                yield *missing, *views
    else:
        yield from ((*[n for n in every if n != one], *views) for one in every)


#: Those that a package has otherwise, or not: what would be computed again, or compiled.
_OTHERWISE = frozenset(
    (
        "forward",
        "backward",
        "compile_backward",
        "compiled",
        "traced_for",
        "derivable",
        "laid_for",
        "laid",
        "cast_for",
        "cast",
        "second_for",
        "second",
        "depends_for",
        "known_depends",
        "part_for",
        "parts",
        "is_part",
        "told",
        "origin",
    )
)
_FIELDS = [field.name for field in fields(Program) if field.name not in _OTHERWISE]


def _source(p: Packer, program: Program) -> Any:
    """What the program was compiled of, if that has rows."""
    known = program.origin
    if known is None and isinstance(program, Kept) and program.source is not None:
        known = program.source()
    if known is None:
        return None
    try:
        return p.pack(known)
    except Refused:
        if known.sizes is None:
            raise
        return None  # something is known of its sizes that has none


def _needs_it(program: Program) -> str | None:
    """What cannot be made of what was compiled alone."""
    if (program.uneven or program.rewrites) and len(program.differentiable) > 1:
        return "a backward that is traced again where some gradients are missing"
    if program.gates is not None:
        return "results with gradients that are computed from others"
    if program.laid_for is not None:
        return "a backward for each way in which gradients lie"
    return None


def _pack_program(p: Packer, program: Program) -> list[Any]:
    compiled: list[Any] = []
    laid: list[Any] = []
    parts: Mapping[tuple[int, ...], Mapping[str, Any]] = {}
    source = None
    if p.complete:
        source = _source(p, program)
        why = None if source is not None else _needs_it(program)
        if why is not None:
            raise Refused(why)
        parts = _known_parts(program)
        if not (program.compiled or program.laid or parts):
            raise NotYet("a backward that nobody has asked for", program.tell)
        compiled, laid = _backwards(p, program.compiled, program.laid)
    for missing in _sets(program) if not p.complete else ():
        backward = program.compiled.get(missing)
        if backward is None:
            try:
                backward = program.backward_for(missing)
            except Exception as error:
                raise Refused(f"a backward that is not compiled: {error}") from error
        compiled.append([list(missing), p.pack(backward)])
    casts = [] if p.complete else _under_casts(p, program)
    backward_graph = program.backward
    if isinstance(backward_graph, Backward):
        backward_graph = backward_graph.make()
    known = {name: p.pack(_plain(getattr(program, name))) for name in _FIELDS}
    again = p.pack(program.derivable) if p.complete else None
    values = None
    if p.complete and len(program.differentiable) > 1:
        try:
            values = _values(p, backward_graph)
        except Refused:
            if source is None:
                raise
    forward = p.pack(program.forward)
    found = [forward, p.pack(backward_graph), program.selective, compiled, known]
    lies = [program.laid_for is not None, laid]
    toward = [[[*without], *_backwards(p, **known)] for without, known in parts.items()]
    return [*found, again, values, program.draws, source, lies, casts, toward]


def _known_parts(program: Program) -> dict[tuple[int, ...], Mapping[str, Any]]:
    """The backwards of its parts, by the gradients that they do not have."""
    found = dict(program.known_parts) if isinstance(program, Kept) else {}
    for unwanted, part in program.parts.items():
        if part is not None and (part.compiled or part.laid):
            found[unwanted] = {"compiled": part.compiled, "laid": part.laid}
    return found


def _backwards(
    p: Packer, compiled: Mapping[Any, Any], laid: Mapping[Any, Any]
) -> tuple[list[Any], list[Any]]:
    return (
        [[[*missing], p.pack(made)] for missing, made in compiled.items()],
        [
            [[*missing], [[n, [*stride]] for n, stride in other], p.pack(made)]
            for (missing, other), made in laid.items()
        ],
    )


def _unpack_backwards(u: Unpacker, compiled: Any, laid: Any) -> dict[str, Any]:
    return {
        "compiled": {tuple(missing): u.value(value) for missing, value in compiled},
        "laid": {
            (tuple(missing), tuple([(n, tuple(stride)) for n, stride in other])): u.value(value)
            for missing, other, value in laid
        },
    }


def _under_casts(p: Packer, program: Program) -> list[Any]:
    """The backwards under the autocast that the program was compiled under."""
    later = getattr(program.cast_for, "__self__", None)
    found: list[Any] = []
    if not isinstance(later, Later):
        return found
    casts = tuple([(device, dtype) for device, dtype, enabled in later.then.casts if enabled])
    for missing in _sets(program) if casts else ():
        key = missing, (), casts
        if key not in program.cast:
            program.cast[key] = later.cast_for(missing, {}, casts)
        made = program.cast[key] or program.compiled[missing]
        found.append([[*missing], p.pack([*casts]), p.pack(made)])
    return found


def _plain(value: Any) -> Any:
    """Sequences and sets of any class as lists, which serve as well."""
    return list(value) if isinstance(value, (Sequence, set, frozenset)) else value


def _unpack_program(
    u: Unpacker,
    forward: Any,
    backward: Any,
    selective: bool,
    compiled: list[Any],
    known: Any,
    again: Any,
    values: Any,
    draws: bool,
    source: Any,
    lies: Any,
    casts: Sequence[Any] = (),
    parts: Sequence[Any] = (),
) -> Program:
    made = (Packed if u.home is None else Kept)(
        derivable=u.value(again),
        forward=u.value(forward),
        backward=Backward(u.later(backward)),
        compile_backward=_no_compiler,
        **_unpack_backwards(u, compiled, lies[1]),
        **{name: u.value(known[name]) for name in _FIELDS},
    )
    made.__dict__["selective"] = selective
    made.draws = draws and made.derivable is not None
    if isinstance(made, Packed):
        made.cast_for = made.refuse_casts
        for missing, under, value in casts:
            made.cast[tuple(missing), (), tuple(map(tuple, u.value(under)))] = u.value(value)
    if isinstance(made, Kept) and u.home is not None:
        made.home = u.home
        made.source = None if source is None else u.later(source)
        made.values = [[size, stride, *u.values(how)] for size, stride, *how in values or ()]
        u.home.watch(made.tell)
        if lies[0]:
            made.laid_for = made.laid_again
        made.known_parts = {tuple(each): _unpack_backwards(u, *known) for each, *known in parts}
        if len(made.places) > 1:
            made.part_for = made.part_again
        made.by_itself()
        if made.gates is not None:
            made.gates.trace = made.stages
    return made


def _no_compiler(graph: Any) -> Any:
    raise UnsupportedError("a package has no compiler")


def _pack_overlapping(p: Packer, value: Overlapping) -> list[Any]:
    rest = [list(value.written), value.saves, sorted(value.tracked)]
    return [p.pack(value.uncompiled), p.pack(list(value.lifted)), *rest, p.pack(value.programs)]


def _unpack_overlapping(
    u: Unpacker, uncompiled: Any, lifted: Any, written: Any, saves: bool, tracked: Any, known: Any
) -> Overlapping:
    def compile(inputs: Any, bases: Any) -> Any:
        if u.home is not None:
            u.home.anew("inputs overlap in another way")
        raise Unsupported("a package has no compiler")

    made = Overlapping(u.value(uncompiled), u.value(lifted), written, saves, compile, tracked)
    made.programs.update(u.value(known))
    return made


def _pack_derivable(p: Packer, value: Derivable) -> list[Any]:
    graph = value.graph
    owned = {
        id(attribute(graph, n.target)): n.target for n in graph.graph.find_nodes(op="get_attr")
    }
    lifted = [[owned[known], place] for known, place in value.lifted.items() if known in owned]
    then = value.then.__self__  # type: ignore[attr-defined]
    known = [getattr(value, name) for name in _DERIVABLE]
    return [p.pack(graph), lifted, _state(p, then), *[p.pack(_plain(item)) for item in known]]


def _unpack_derivable(u: Unpacker, graph: Any, lifted: Any, state: Any, *known: Any) -> Derivable:
    made = Remade.__new__(Remade)
    made.make, made.owned = u.later(graph), lifted
    made.then = _then(u, state).again
    for name, value in zip(_DERIVABLE, known, strict=True):
        setattr(made, name, u.value(value))
    made.written = frozenset(made.written)
    made.keeping = {}
    return made


_DERIVABLE = (
    *("places", "given", "outputs", "repeated", "written", "asked", "replaced"),
    *("kept", "draws", "holds", "live", "counted", "loose", "varies", "merges"),
)


class Remade(Derivable):
    """One whose graph is made from its rows when it is needed."""

    make: Callable[[], GraphModule]
    owned: list[Any]

    @functools.cached_property
    def graph(self) -> GraphModule:
        return self.make()

    @functools.cached_property
    def lifted(self) -> dict[int, int]:  # type: ignore[override]
        return {id(attribute(self.graph, name)): place for name, place in self.owned}


register(
    "gates",  # whose stages are traced anew
    lambda p, value: [[[[*e.results], [*e.others], e.probed] for e in value.levels]],
    lambda u, levels: Gates(
        [
            Level(tuple(results), tuple((k, n) for k, n in others), probed=probed)
            for results, others, probed in levels
        ],
        None,
    ),
    Gates,
)


def _pack_origin(p: Packer, value: Origin) -> list[Any]:
    examples = [p.pack(example) for example in value.examples]
    known = p.pack(value.sizes), p.pack([*value.decided])
    return [p.pack(value.graph), examples, _state(p, value.then), *known]


def _unpack_origin(
    u: Unpacker, graph: Any, examples: list[Any], state: Any, sizes: Any, decided: Any
) -> Origin:
    known = u.value(sizes), u.value(decided)
    return Origin(u.value(graph), u.values(examples), _then(u, state), *known)


def _state(p: Packer, then: Then) -> list[Any]:
    return [then.grad, p.pack(then.casts), p.pack(then.devices)]


def _then(u: Unpacker, state: list[Any]) -> Then:
    then = Then.__new__(Then)
    then.grad, then.casts, then.devices = state[0], u.value(state[1]), u.value(state[2])
    return then


record(Example)
record(Number)
register("origin", _pack_origin, _unpack_origin, Origin)
register("derivable", _pack_derivable, _unpack_derivable, Derivable, Remade)
register("program", _pack_program, _unpack_program, Program, Packed, Kept)
register("overlapping", _pack_overlapping, _unpack_overlapping, Overlapping)
register(
    "structure",
    lambda p, spec: [pytree.treespec_dumps(spec)],
    lambda u, text: pytree.treespec_loads(text),
    type(pytree.tree_structure((1, 2))),
    type(pytree.tree_structure(1)),
)
record(Row)
record(Asked, "order", "given", "inputs", "results", "late", "rows")
record(Layout, "size", "stride", "offset")
record(Base, "first", "through", "tracked", "layout", "dtype", "members")
