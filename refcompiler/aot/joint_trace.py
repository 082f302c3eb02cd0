"""Forward and backward of a torch-level graph, traced into one functional ATen graph.

The graph runs once on functional tensors under autograd, then autograd's engine runs on what that
recorded, so the backward's operators and their order are eager's. Each node knows which of the two
phases it belongs to.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd.graph import get_gradient_edge
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils import _pytree as pytree

from refcompiler.aot.bases import Base, member
from refcompiler.aot.casts import Casts, cached_casts, casting
from refcompiler.aot.currents import Currents, arrange
from refcompiler.aot.defaults import settled
from refcompiler.aot.depends import Chain, Depends
from refcompiler.aot.derived import derived
from refcompiler.aot.draws import finish
from refcompiler.aot.effects import derivative_checks
from refcompiler.aot.functional import FunctionalMode, plain
from refcompiler.aot.inputs import Runner, Unsupported, has_bits, resolved
from refcompiler.aot.joint import FORWARD, LEAF, PHASE, WRITTEN, Joint
from refcompiler.aot.layout import Layout, strides_of
from refcompiler.aot.missing import Reached, partly, reached, readers
from refcompiler.aot.numbers import begin, symbols_of
from refcompiler.aot.observation import Observation, Value, expanded
from refcompiler.aot.order import Arrivals, turns
from refcompiler.aot.ports import INPUT, RESULT, Key
from refcompiler.aot.reads import Parts, Writes, lay_out_gradients
from refcompiler.aot.recording import record
from refcompiler.aot.refusing import Refusals
from refcompiler.aot.regions.inner import DECOMPOSITIONS
from refcompiler.aot.regions.table import REGIONS
from refcompiler.aot.stages import staged
from refcompiler.aot.sums import Sums
from refcompiler.aot.traced import Recorded, Traced
from refcompiler.aot.tracing import Decompositions
from refcompiler.aot.tracing import trace as trace_graph
from refcompiler.aot.viewed import Viewed
from refcompiler.aot.watching import shares_elements
from refcompiler.histories import nodes_of
from refcompiler.shapes.env import ShapeEnv
from refcompiler.shapes.known import same


def trace(
    gm: torch.fx.GraphModule,
    mode: FakeTensorMode,
    fakes: Sequence[torch.Tensor],
    replaced: Mapping[int, int],
    given: int,
    seen: Observation,
    training: bool,
    decompositions: Decompositions,
    parameters: Sequence[bool],
    bases: Sequence[Base] = (),
    missing: Collection[int] = (),
    reads: Sequence[int] | None = None,
    staged: bool = False,
    strides: Mapping[int, Sequence[Any]] | None = None,
    casts: Casts = (),
    second: Chain | None = None,
    asks: bool = False,
    keeps_gaps: bool = False,
    currents: Sequence[int] | None = None,
    refusals: Refusals | None = None,
    viewed: Sequence[int] | None = None,
) -> Joint:
    """The joint graph of ``gm``; without ``training`` it has no tangents and no gradients.

    ``parameters``: which inputs are leaves of autograd in eager. ``bases``: the last of ``fakes``,
    whose members are no inputs of the graph, but views of these. ``missing``: which of the tangents
    autograd is not given, though the graph takes them. ``reads``: as those of the joint graph, of
    one that was traced before; None: none are wanted. ``staged``: the backward ends where something
    of ``inner`` is on its way and begins anew there; what comes to that is among the outputs too.
    ``strides``: of tangents that lie otherwise than what they are of, by the number of each among
    ``cotangents``. ``casts``: the
    dtypes of autocast, by device, that the backward runs under. ``second``: the gradients in the
    graph are those of gradients, of the inputs with these numbers, or those of such: there is a
    tangent more for each of them, and behind the gradients for the inputs come those for all
    tangents but the last. ``asks``: there are none, but what they would depend on is noted.
    ``keeps_gaps``: see :class:`FunctionalMode`. ``currents``: those of the joint graph, of one that
    was traced before; None: as many as it takes. ``refusals``: what earlier traces have learnt;
    this one may raise :class:`Learnt`. ``viewed``: as ``reads``, of views that have a tangent.
    """
    env = mode.shape_env
    tracer = _Tracer(gm, dict(replaced), given, seen, training, parameters, bases, env)
    tracer.missing, tracer.reads, tracer.staged, tracer.casts = missing, reads, staged, casts
    tracer.second, tracer.asks, tracer.keeps_gaps = second, asks, keeps_gaps
    tracer.mode, tracer.known_currents = mode, currents
    tracer.viewed = Viewed(seen, viewed if training and not bases else None, env)
    tracer.refusals = refusals or Refusals()
    tracer.refusals.begin()
    tracer.expanded = {n: expanded(t) for n, t in enumerate(fakes) if _is_tensor(t)}
    tracer.flagged = {n for n, t in enumerate(fakes) if _is_tensor(t) and t.requires_grad}
    primals = tracer.primals
    tangents = []
    if training:
        with mode, torch.no_grad():
            for n, (layout, dtype, device) in enumerate(tracer.layouts(fakes)):
                stride = strides_of(layout.size, (strides or {}).get(n, layout.stride))
                made = torch.empty_strided(layout.size, stride, dtype=dtype, device=device)
                tangents.append(made)
            first = len(tangents)
            like = [fakes[n] for n in (*primals, *(currents or ()))]
            like += [t for n, t in enumerate(tangents) if tracer.counts(n)]
            for n in itertools.chain.from_iterable(second or ()):
                known = like[n]
                made = torch.empty(known.shape, dtype=known.dtype, device=known.device)
                tangents.append(made)
                like.append(made)
    with mode, torch.no_grad():
        leaves = [_leaf(fakes[n]) for n in primals]

    def inference(primals: list[torch.Tensor]) -> list[Any]:
        return tracer.program(primals, [])

    table = dict(decompositions)
    known = DECOMPOSITIONS.set(table)
    # Without the Python dispatcher: its decompositions are not eager's (dropout, resizing).
    with (
        mode,
        _engine_in_this_thread(),
        torch.set_grad_enabled(torch.is_grad_enabled()),
        torch.autograd.set_detect_anomaly(False),  # which looks at values
    ):
        try:
            if training:
                given_to = (leaves, tangents)
                graph = trace_graph(tracer.program, given_to, ("primals", "tangents"), table)
            else:
                graph = trace_graph(inference, (leaves,), ("primals",), table)
        finally:
            DECOMPOSITIONS.reset(known)
    finish(graph)
    again = tracer.currents.places if tracer.currents is not None else []
    arrange(graph, len(primals), again)
    primals = [*primals, *again]
    holders = graph.graph.find_nodes(op="placeholder")
    counted = {*tracer.cotangents}
    if second is not None:
        counted.update(range(first, len(tangents)))
    for n, node in enumerate(holders[len(primals) :]):
        if n not in counted:  # of an input of which only the metadata changes
            graph.graph.erase_node(node)
    if training:  # else when what is dead is gone
        for node in filter(derivative_checks, graph.graph.nodes):
            raise Unsupported(f"the derivative of {node.target} checks the gradients' values")
        record(graph)
        graph.recompile()
    for place, holder in zip(primals, holders, strict=False):
        if place < len(parameters) and parameters[place]:
            holder.meta[LEAF] = True
    for place in tracer.written:
        owner, *_ = tracer.members.get(place, (place, None))
        holders[primals.index(owner)].meta[WRITTEN] = True
    outputs = len(seen.slots) + len(tracer.written) + len(seen.numbers)
    return Joint(
        graph=graph,
        inputs=primals,
        outputs=outputs,
        tangents=tracer.tangents,
        written=tracer.written,
        reads=tracer.several,
        parts=tracer.parts,
        order=tracer.order,
        depends=tracer.depends,
        turns=tracer.turns,
        currents=again,
        rewrites=tracer.rewrites,
        cotangents=tracer.cotangents,
        viewed=tracer.own_views,
        **vars(tracer.recorded),
    )


def _leaf(t: Any) -> Any:
    """With its flag also where autograd does not record: operators choose by it (``matmul``)."""
    if not _is_tensor(t):
        return t
    return resolved(t.detach()).requires_grad_(t.requires_grad)


@contextlib.contextmanager
def _engine_in_this_thread() -> Iterator[None]:
    """Modes belong to threads, and the engine would use others for other devices."""
    with torch.autograd.set_multithreading_enabled(False):
        yield


class _Tracer:
    def __init__(
        self,
        gm: torch.fx.GraphModule,
        replaced: dict[int, int],
        given: int,
        seen: Observation,
        training: bool,
        parameters: Sequence[bool],
        bases: Sequence[Base],
        env: Any,
    ):
        count = len(parameters)
        self.bases = {count + n: base for n, base in enumerate(bases)}
        self.members = {n: (p, *how) for p, base in self.bases.items() for n, *how in base.members}
        self.primals = [n for n in range(count + len(bases)) if n not in self.members]
        self.parameters, self.env = parameters, env
        self.gm, self.replaced, self.given = gm, replaced, given
        self.seen, self.training = seen, training
        self.written: list[int] = []
        self.expanded: dict[int, tuple[int, ...]] = {}
        self.copies: dict[int, Any] = {}  # edges to what is written to in their place
        self.lies: dict[int, Layout] = {}  # written inputs, as autograd sees them, at the end
        self.flagged: set[int] = set()  # inputs that require gradients
        self.missing: Collection[int] = ()  # tangents that autograd is not given
        self.staged = False
        self.second: Chain | None = None  # of whose gradients there are gradients
        self.asks = False
        self.recorded = Recorded()
        self.depends: Depends | None = None
        self.casts: Casts = ()
        self.parts: list[tuple[int, Key]] = []
        self.inputs: Sequence[Any] = ()  # by place, as the graph is run with them
        self.flat: Sequence[Any] = ()  # what that returns
        self.keeps_gaps = False
        self.refusals = Refusals()
        self.mode: Any = None
        self.currents: Currents | None = None
        self.known_currents: Sequence[int] | None = None
        self.rewrites = False
        self.reads: Sequence[int] | None = None
        self.viewed: Any = None
        self.own_views: list[int] = []
        self.several: list[int] = []  # of those that were found
        self.order: list[int] = []
        self.turns: dict[int, int] = {}
        self.tangents = [n for n, slot in enumerate(seen.slots) if slot.requires_grad]
        self.cotangents = list(range(len(self.tangents)))  # of all that are given, those that count
        self.tracked = {
            w.place: w
            for w in seen.writes
            if w.tracked and w.requires_grad and w.place not in self.members
        }
        self.of_views = len(self.tangents) + len(self.tracked)  # the number of their first tangent

    def layouts(self, fakes: Sequence[torch.Tensor]) -> Iterator[tuple[Layout, Any, Any]]:
        """How the tangents lie: as the outputs, then as the written inputs."""
        for n in self.tangents:
            slot = self.seen.slots[n]
            yield slot.layout, slot.dtype, slot.device
        for place, write in self.tracked.items():
            layout = self.lies[place] = write.layout or Layout.of(fakes[place])
            yield layout, fakes[place].dtype, fakes[place].device
        for n, view in self.viewed.views.items():
            output = self.seen.outputs[n]
            own = isinstance(output, Value)
            device = (self.seen.slots[output.slot] if own else fakes[output.place]).device
            yield view.layout, view.dtype, device

    def counts(self, tangent: int) -> bool:
        """Whether one that is made is of a view that has one, as far as that is known, or of no
        view."""
        places = self.viewed.places(self.viewed.wanted or ())
        return tangent < self.of_views or tangent - self.of_views in places

    def _check_numbers(self) -> None:
        """Views that are made again find numbers of their own: the others' order is another one."""
        given = [symbols_of(number) for number in self.seen.numbers]
        layouts = [self.seen.slots[n].layout for n in self.tangents]
        given += [symbols_of(part) for at in layouts for part in (*at.size, *at.stride)]
        if any(map(self.env.is_unbacked_symint, set().union(*given))):
            raise Unsupported("the place of a view, which data tells, is a number that is needed")

    def program(self, primals: list[torch.Tensor], tangents: list[torch.Tensor]) -> list[Any]:
        begin(self.env, primals)
        numbers = len(self.env.made) if isinstance(self.env, ShapeEnv) else 0
        self.functional = FunctionalMode(self.keeps_gaps)
        with self.functional, cached_casts():
            leaves = [self._functional(n, t) for n, t in zip(self.primals, primals, strict=True)]
            cotangents = [FunctionalTensor.to_functional(t) for t in tangents]
            if self.second is not None:
                last = self.second[-1] if self.second and not self.asks else ()
                given = len(cotangents) - len(last)
                cotangents[:given] = [t.requires_grad_() for t in cotangents[:given]]
            inputs = self._inputs(leaves)
            with self._currents(inputs) as currents:
                found = self._forward(inputs)
                if isinstance(self.env, ShapeEnv) and len(self.env.made) > numbers:
                    self._check_numbers()
                values = [*map(plain, found), *self.seen.numbers]
                if not self.training:
                    return values
                currents.end(self.flat)
                for node in _nodes():
                    node.meta.setdefault(PHASE, FORWARD)
                gradients, begun = self._backward(found, leaves, cotangents)
                renewed = currents.renewed()
                self.rewrites = any(value is not None for value in renewed)
            gradients[len(leaves) : len(leaves)] = [None] * len(renewed)
            found = [None if g is None else plain(g) for g in (*gradients, *begun)]
            count = len(gradients)
            return [*values, *found[:count], *renewed, *found[count:]]

    def _currents(self, inputs: Sequence[Any]) -> Currents:
        unfit = {*self.tracked, *self.bases, *self.members, *self.seen.bits}
        unfit |= {move.place for move in self.seen.moves}
        self.currents = Currents(inputs, unfit, self.mode, self.known_currents)
        return self.currents

    def _inputs(self, leaves: Sequence[Any]) -> list[Any]:
        """By place: what the graph is given, then the bases."""
        inputs: dict[int, Any] = {}
        for place, leaf in zip(self.primals, leaves, strict=True):
            inputs[place] = leaf
            if place in self.tracked:
                inputs[place] = copy = self._copied(leaf)
                self.copies[place] = get_gradient_edge(copy) if copy.requires_grad else None
        for place, (base, *how) in self.members.items():
            inputs[place] = member(inputs[base], *how)
        return [inputs[place] for place in range(len(inputs))]

    def _copied(self, leaf: Any) -> Any:
        """What is written to in the place of ``leaf``, since eager's is no leaf."""
        usual = same(torch.empty_like(leaf).stride(), leaf.stride())
        if not self.keeps_gaps or usual or shares_elements(plain(leaf)):
            return leaf.clone()
        how = {"dtype": leaf.dtype, "device": leaf.device}
        return torch.empty_strided(leaf.shape, leaf.stride(), **how).copy_(leaf)

    def _functional(self, n: int, t: torch.Tensor) -> Any:
        if not _is_tensor(t):
            return t
        if n >= len(self.parameters) or not self.parameters[n]:
            return FunctionalTensor.to_functional(t)
        # A leaf, whose casts autocast remembers.
        return FunctionalTensor.to_functional(t.detach()).requires_grad_(t.requires_grad)

    def _forward(self, inputs: Sequence[Any]) -> list[Any]:
        """The slots' values, laid out as in eager, then the new values of written inputs."""
        lifted = {key: inputs[place] for key, place in self.replaced.items()}
        self.inputs = inputs
        self.first = Writes({place: inputs[place] for place in self.tracked if self.training})
        result = self._run(lifted, inputs[: self.given])
        flat, _ = pytree.tree_flatten(result)
        flat += [inputs[move.place] for move in self.seen.moves]
        self.flat = flat
        found: list[Any] = []
        slots = len(self.tangents)
        for slot in self.seen.slots:
            t = flat[slot.output]
            t = t._base if slot.is_base else t
            # Eager has copied it, without the bits that it is given without.
            found.append(t.clone() if any(t is inputs[n] for n in self.seen.bits) else t)
        self.turns = turns({n: found[n] for n in self.tangents if self.training})
        writes = {w.place: w for w in self.seen.writes}
        for place, t in enumerate(inputs):
            if not _is_tensor(t) or not self._returns(place):
                continue
            torch._sync(t)
            write = writes.get(place)
            changed = torch._functionalize_has_data_mutation(t.elem)
            if changed and write is None:  # no version told of it (a batch norm's statistics)
                write = self.seen.write(place, place in self.flagged)
            if not changed:
                continue
            dims = self.expanded[place]
            if write is not None and dims and write.layout is None:
                if place in self.tracked:
                    raise Unsupported("a tensor that is written to overlaps itself")
                # Memory that it shares was written to through another tensor.
                self.seen.writes[self.seen.writes.index(write)] = replace(write, expanded=dims)
                for d in reversed(dims):
                    t = t.select(d, 0)
            if place in self.tracked:
                lies = self.lies.get(place)
                if lies and not all(type(n) is int for n in (*lies.size, *lies.stride)):
                    t = self._laid_out(t, lies)  # it tells a call how the tangent is to lie
                self.tangents.append(len(found))
                self.cotangents.append(slots + list(self.tracked).index(place))
            self.written.append(place)
            found.append(t)
        return [*map(self._laid_out, found, self._layouts()), *found[len(self.seen.slots) :]]

    def _run(self, lifted: dict[int, Any], inputs: Sequence[Any]) -> Any:
        """What the graph returns; the gradient mode that it leaves is the epilogue's to set."""
        with torch.set_grad_enabled(torch.is_grad_enabled()), settled(self.gm):
            after = self.first.look if self.first.left else None
            return Runner(self.gm, lifted, REGIONS, after, self.refusals).run(*inputs)

    def _returns(self, place: int) -> bool:
        """Whether an input's new value may be asked for, and not its base's or its members'."""
        if any(move.place == place for move in self.seen.moves):
            return False  # it has other memory by then
        if place in self.bases:
            return self.bases[place].tracked
        if place not in self.members:
            return True
        return not self.bases[self.members[place][0]].tracked  # which was written to, none knows

    def _layouts(self) -> list[Layout]:
        return [slot.layout for slot in self.seen.slots]

    def _laid_out(self, t: Any, layout: Layout) -> Any:
        lies = same(plain(t).stride(), layout.stride)
        # With bits where it was written to through its conjugate.
        if not same(t.shape, layout.size) or lies and not has_bits(plain(t)):
            return t
        made = torch.empty_strided(layout.size, layout.stride, dtype=t.dtype, device=t.device)
        return made.copy_(t)

    def _backward(
        self, found: Sequence[Any], primals: Sequence[Any], given: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """The gradients of all inputs, and what comes back to the stages' beginnings."""
        wanted = {n: t for n, t in enumerate(primals) if _is_tensor(t) and t.requires_grad}
        there = [n for n in range(len(self.tangents)) if n not in self.missing]
        outputs = [found[self.tangents[n]] for n in there]
        forward = self.gm, self.seen, self.bases, self.members, self.inputs, self.flat
        traced = Traced(*forward, found, self.written, self.tracked, self.tangents)
        between = traced.between()
        ways = reached(outputs) if len(between) > 1 else {}
        inner = readers(ways, outputs, between)
        by_place = {self.primals[n]: t for n, t in wanted.items()}
        parts_of = partly(ways, by_place, len(outputs))
        views = self._views(found, ways, inner)
        if views:
            there += views
            outputs += views.values()
            ways = reached(outputs)
            masks = partly(ways, by_place, len(outputs))
            parts_of = {place: masks[place] for place in parts_of}
        whole = not self.missing and not self.staged and self.second is None
        known = outputs, ways, wanted, self.first, self.currents, whole
        self.recorded = traced.recorded(*known)
        self.recorded.inner, self.recorded.partly = inner, parts_of
        if self.second is not None:
            results = dict(zip(there, outputs, strict=True))
            shown = dict(enumerate(found[at] for at in self.tangents if at < len(found)))
            return self._derivatives(self.second, results, wanted, given, shown), []
        with casting(dict(self.casts)), torch.no_grad():
            begun = self._stages(between, there, outputs, given) if self.staged else []
            handles = lay_out_gradients(outputs)  # first, as others look at gradients too
            shared = {n: self._read(n, t) for n, t in wanted.items() if self._is_shared(n)}
            parts = Parts(outputs, shared)
            arrivals = Arrivals(outputs, wanted)
            watched = self.refusals.watched(outputs)
            try:
                with self._summed(outputs):
                    gradients = torch.autograd.grad(
                        outputs,
                        [*wanted.values()],
                        [given[self.cotangents[n]] for n in there],
                        allow_unused=True,
                    )
            except RuntimeError as error:
                self.refusals.learn(error, watched and watched.last)
                raise
        for handle in handles:
            handle.remove()
        self.order = arrivals.order()
        result: list[Any] = [None] * len(primals)
        for n, gradient in zip(wanted, gradients, strict=True):
            result[n] = gradient
        if self.reads is None:
            return result, begun
        first, more, self.several = parts.given(self.reads)
        for n, part in first.items():
            result[n] = part
        return [*result, *more], begun

    def _views(
        self, found: Sequence[Any], ways: Reached, inner: Mapping[Key, int]
    ) -> dict[int, torch.Tensor]:
        """Those that leave the graph and have a tangent, which there is, by its number."""
        known = self.flat, self.inputs, self.tracked, inner, ways
        self.own_views = self.viewed.chosen(*known)
        first, end = len(self.tangents), len(found) + len(self.seen.numbers)
        self.tangents += range(end, end + len(self.own_views))
        self.cotangents += [self.of_views + at for at in self.viewed.places(self.own_views)]
        there = {n: self.flat[at] for n, at in enumerate(self.own_views, first)}
        return {n: t for n, t in there.items() if n not in self.missing and not self.staged}

    @contextlib.contextmanager
    def _summed(self, outputs: Sequence[torch.Tensor]) -> Iterator[None]:
        """Have the engine's sums lie as in eager while it runs from ``outputs`` on."""
        self.functional.sums = sums = Sums(outputs, nodes_of(outputs))
        try:
            yield
        finally:
            sums.end()
            self.functional.sums = None

    def _derivatives(
        self,
        chain: Chain,
        results: Mapping[int, Any],
        inputs: Mapping[int, Any],
        given: Sequence[Any],
        shown: Mapping[int, Any],
    ) -> list[Any]:
        """The last derivatives that ``chain`` says, for inputs and tangents.

        ``shown``: by number of the tangent, all results that have one.
        """
        own, last = len(self.primals), sum(map(len, chain))
        first = own + len(self.known_currents or ())  # which have numbers, and no gradients
        tangents = [given[n] for n in self.cotangents]
        more = given[len(given) - last :]
        found, self.depends = derived(
            *(chain, results, inputs, tangents, more, first),
            shown if self.asks else None,
            self._summed,
        )
        if self.asks:
            return [None] * own
        end = first + len(tangents) + sum(map(len, chain[:-1]))
        return [found.get(n) for n in (*range(own), *range(first, end))]

    def _stages(
        self,
        between: Mapping[Key, Any],
        there: Sequence[int],
        outputs: Sequence[Any],
        given: Sequence[Any],
    ) -> list[Any]:
        """What comes back to each that is inner; see :func:`staged`."""
        slots, results = len(self.seen.slots), []
        for n, output in zip(there, outputs, strict=True):
            at = self.tangents[n]
            key = (RESULT, at) if at < slots else (INPUT, self.written[at - slots])
            results.append((at, key, output, given[self.cotangents[n]]))
        self.parts, begun = staged({key: between[key] for key in self.recorded.inner}, results)
        return begun

    def _read(self, n: int, primal: Any) -> Any:
        """What those who read an input lead to, as autograd has it."""
        return self.copies.get(self.primals[n]) or primal

    def _is_shared(self, n: int) -> bool:
        """Whether an input may be what others than this graph read, in the same backward."""
        place = self.primals[n]
        other = place in self.bases or place in self.seen.bits
        return self.reads is not None and not other


def _is_tensor(t: Any) -> bool:
    return isinstance(t, torch.Tensor)


def _nodes() -> Any:
    mode = get_proxy_mode()
    assert mode is not None
    return mode.tracer.graph.nodes
