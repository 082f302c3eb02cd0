"""Second derivatives: the graph runs again as it is, under autograd, when one is asked for.

A compiled backward has no derivative. What it is the backward of does: from the inputs of the call,
which nothing keeps but who gave them (leaves are found by autograd's own graph), and the tangents,
eager's gradients are computed, this time with a graph of their own.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from refcompiler.aot import merged, ports
from refcompiler.aot.batches import has_batch
from refcompiler.aot.currents import restored
from refcompiler.aot.inputs import Runner
from refcompiler.aot.joined import Joined
from refcompiler.aot.joint import Joint
from refcompiler.aot.ports import RESULT, Key
from refcompiler.aot.reads import Parts
from refcompiler.aot.recomputed import Recomputed
from refcompiler.aot.regions.unrolled import unrolled
from refcompiler.aot.runs import Run
from refcompiler.aot.statistics import TWINS
from refcompiler.reentrant import as_around
from refcompiler.weak import Reference

TWICE = (
    "a graph compiled ahead of time has no second derivative here: it cannot run again (it draws "
    "random numbers that could not be drawn again, reads an input that it writes to, or an input "
    "of the call is gone or was written to since), and a leaf or a result has a hook, the gradient "
    "of a result is asked for, or it is a package. Compute it uncompiled (torch.compiler.disable "
    "or backend='eager')"
)


ASKS = (
    "a custom torch.autograd.Function has gradients of some of its results alone, for which its "
    "backward reads what the compiled graph has not saved, and the graph cannot run again (see "
    "above all whether an input of the call was written to, or is gone). Compute it uncompiled "
    "(torch.compiler.disable or backend='eager')"
)
_VERSION = operator.attrgetter("_version")
#: What a call has noted of its inputs: see :meth:`Derivable.note`.
Notes = tuple[list[int], list[Any], Sequence[int]]


def _version(t: torch.Tensor) -> int:
    """Writes to what inference mode has made are not counted."""
    return -1 if t.is_inference() else t._version


def _noted(t: torch.Tensor) -> tuple[Callable[[], Any], int]:
    """How to come to ``t`` again, and its version; what has a way on is kept alive for it."""
    return (lambda: t) if t.requires_grad and not t.is_leaf else Reference(t), _version(t)


class Derivable:
    """A graph and what a call of it was given, to differentiate it twice.

    ``places``: those of the compiled program's inputs among the ``given`` inputs of the graph and
    its own tensors, which ``lifted`` has by identity. ``outputs``: of those with a tangent, the
    place among the graph's, and whether it is the base of what is there. ``leaves``: by place,
    whether autograd has the input itself. ``repeated``: which inputs autograd is given a second
    time, behind the others. ``written``: the places of those that the graph writes to, of which
    only what it writes there depends, so that any values do. ``then``: enters the state in which
    the graph was traced. ``others``: the places of those in whose stead the program has another
    tensor. ``kept``: by input of the program, the place of those that its forward saves, among what
    the backward takes. ``draws``: whether it draws from the CPU's generator, whose state is noted.
    """

    def __init__(
        self,
        graph: GraphModule,
        places: Sequence[int],
        given: int,
        lifted: Mapping[int, int],
        outputs: Sequence[tuple[int, bool]],
        leaves: Sequence[bool],
        repeated: Sequence[int],
        written: Collection[int],
        then: Callable[[], Any],
        others: Collection[int] = (),
        kept: Mapping[int, int] | None = None,
        draws: bool = False,
        live: Collection[int] = (),
    ):
        self.live = live
        self.merges = False  # whether derivatives are added up with what comes to the results
        self.kept, self.draws = kept or {}, draws
        #: Whether calls keep inputs alive that have a way on, since there is no other way to a
        #: second derivative: the program has gates.
        self.holds = False
        #: By which tangents there are none of, and what is unwanted: the results that gradients
        #: with a graph are of.
        self.keeping: dict[tuple[int, ...], set[Key]] = {}
        self.graph = unrolled(graph)
        self.varies = self.graph is not graph  # what runs is for each call to say
        self.places, self.given, self.lifted = places, given, lifted
        self.outputs, self.repeated, self.then = outputs, repeated, then
        self.written = frozenset(n for n, place in enumerate(places) if place in written)
        away = set(others)
        #: The program's inputs that a call has to be asked for.
        self.asked = [
            n for n, place in enumerate(places) if not leaves[place] and place not in away
        ]
        self.replaced = [n for n, at in enumerate(places) if at in away]
        own = [n for n, at in enumerate(places) if leaves[at] and n not in self.written]
        #: Leaves that are saved, which tells of writes to them, and that are not.
        self.counted = [n for n in own if n in self.kept]
        self.loose = [n for n in own if n not in self.kept]

    @property
    def is_plain(self) -> bool:
        """Whether it has no branches, loops and checkpoints."""
        inner = [m for m in self.graph.modules() if m is not self.graph]
        return not self.varies and not any(isinstance(m, GraphModule) for m in inner)

    @functools.cached_property
    def saved(self) -> list[int]:
        """Of the asked, those that autograd keeps until the only backward frees all."""
        if len(self.outputs) > 1:
            return []
        return [n for n in self.asked if n in self.kept and n not in self.written]

    @functools.cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """These, and their places among what the backward takes."""
        return [(n, self.kept[n]) for n in self.saved]

    @functools.cached_property
    def unsaved(self) -> list[int]:
        return [n for n in self.asked if n not in self.saved]

    @functools.cached_property
    def nothing(self) -> Notes | None:
        """What a call notes if autograd keeps all that it would."""
        some = self.unsaved or self.replaced or self.loose
        return None if some else (self.unsaved, [], ())

    def note(
        self,
        inputs: Sequence[Any],
        originals: Sequence[torch.Tensor],
        saved: Sequence[Any] | None,
    ) -> Notes:
        """What a call keeps of the inputs, without keeping one alive but for what it ``holds``:
        which, and of these, and the versions of the ``loose``.

        ``saved``: what the backward takes first, if autograd keeps it as it is.
        """
        asked = self.asked
        if saved is not None and self.pairs:
            for n, at in self.pairs:
                if saved[at] is not inputs[n]:
                    break
            else:
                if self.nothing is not None:
                    return self.nothing
                asked = self.unsaved
        given = [*map(inputs.__getitem__, asked), *originals]
        versions = [_version(inputs[n]) for n in self.loose]
        if self.holds:
            refs = [_noted(t) if isinstance(t, torch.Tensor) else t for t in given]
            return asked, refs, versions
        try:
            return asked, [*zip(map(Reference, given), map(_VERSION, given))], versions
        except (AttributeError, TypeError, RuntimeError):  # numbers, or made in inference mode
            refs = [
                (Reference(t), _version(t)) if isinstance(t, torch.Tensor) else t for t in given
            ]
            return asked, refs, versions

    def inputs(
        self,
        edges: Sequence[Any],
        noted: Notes,
        count: int,
        saved: Sequence[Any],
    ) -> list[Any] | None:
        """The ``count`` inputs of a call, if each is what it was.

        ``edges``: of those that are tensors, autograd's functions; ``saved``: what its backward
        takes.
        """
        found: list[Any] = [None] * count
        asked, notes, versions = noted
        gone = set() if asked is self.asked else {*self.saved}
        for n in gone:
            found[n] = saved[self.kept[n]]
        for n, kept in zip((*asked, *self.replaced), notes, strict=True):
            if type(kept) is tuple:
                reference, version = kept
                kept = reference()
                if kept is None and n in self.kept:
                    kept = saved[self.kept[n]]
                    gone.add(n)
                elif kept is None or (_version(kept) != version and n not in self.written):
                    return None
            found[n] = kept
        left = iter(edges)
        for n in range(count):
            value = found[n]
            if value is not None and not isinstance(value, torch.Tensor):
                continue
            following, _ = next(left, (None, 0))
            if n in gone and (value is None or not _leads(value, following)):
                return None
            if value is None:
                found[n] = value = getattr(following, "variable", None)
                if value is None:
                    return None
        changed = [_version(found[n]) != at for n, at in zip(self.loose, versions, strict=True)]
        if any(changed) or any(saved[self.kept[n]] is None for n in self.counted):
            return None
        return found

    def run(
        self,
        inputs: Sequence[Any],
        state: torch.Tensor | None = None,
        runner: Callable[..., Runner] = Runner,
        recomputed: Recomputed | None = None,
    ) -> tuple[Any, list[Any]]:
        """The graph once more, by ``runner(graph, its tensors)``, and what it returns, flat.

        ``state``: of the generator, when the call began to draw. ``recomputed``: notes what its
        regions write to from then on.
        """
        copied, live = self.written.difference(self.live), [inputs[n] for n in self.live]
        values = [t.clone() if n in copied else t for n, t in enumerate(inputs)]
        by_place = dict(zip(self.places, values, strict=True))
        replaced = {key: by_place[at] for key, at in self.lifted.items() if at in by_place}
        given = [by_place.get(place) for place in range(self.given)]
        made = runner(self.graph, replaced)
        if recomputed is not None:
            made.regions = {**recomputed.regions()}
        # Behind the others, those of the same place have its: this run's are to be the backward's.
        with torch._C._DisableAutocast(), self.then(), _drawing_from(state), restored(live):
            flat, _ = pytree.tree_flatten(made.run(*given))
        return made, flat

    def place_of(self, tangent: int) -> int | None:
        """The place of a result among what the graph returns, if it is there as it is."""
        place, is_base = self.outputs[tangent]
        return None if is_base else place

    def gradients(
        self,
        inputs: Sequence[Any],
        tangents: Sequence[Any],
        state: torch.Tensor | None = None,
        joined: Joined | None = None,
        places: Sequence[int] = (),
        unwanted: Sequence[int] = (),
    ) -> list[Any]:
        """Those of the inputs, with a graph; None where there is none. Then the parts that autograd
        is to add to those of the ``repeated``.

        ``joined``: of the call, whose results with a tangent have the numbers ``places``.
        ``unwanted``: numbers of inputs whose gradients nobody asks for.
        """
        if joined is None:
            return self._gradients(_ends(inputs), tangents, state, None, unwanted)[2]
        call = joined.node()
        if (
            self.merges
            and call is not None
            and call.of_result is None
            and joined.recomputed is None
            and not has_batch(tangents)
        ):
            run = merged.run_of(call)
            if run is None:
                run = self._run_of(call, inputs, state, joined, places)
                self.merges = run is not None
            if run is not None:
                found = merged.gradients(run, inputs, tangents, unwanted)
                if found is not None:
                    return found
        absent = (*[g is None for g in tangents], *unwanted)
        while True:
            keeping = self.keeping.get(absent, set())
            named = joined.named(keeping, inputs)
            given, port = _ends(inputs), None
            if named:
                given, port = ports.through(joined.node, inputs, named)
            flat, results, found = self._gradients(
                given, tangents, state, joined.recomputed, unwanted
            )
            own = {(RESULT, n): t for n, t in zip(places, results, strict=False)}
            own |= {key: flat[key[1]] for key in joined.views()}
            if self.varies or absent not in self.keeping:
                begin = [t.grad_fn for t in (*inputs, *tangents) if isinstance(t, torch.Tensor)]
                self.keeping[absent] = keeping.union(ports.kept(found, own, begin))
                if len(self.keeping[absent]) > len(keeping):
                    continue  # with a way to these, too
            ports.lead(port, {key: own.pop(key) for key in named})
            joined.lead(own)
            return found

    def _run_of(
        self,
        call: Any,
        inputs: Sequence[Any],
        state: torch.Tensor | None,
        joined: Joined,
        places: Sequence[int],
    ) -> Run | None:
        """A second run for all gradients with a graph of a call (:mod:`refcompiler.aot.merged`)."""
        known = joined.named([(RESULT, n) for n in places], inputs)
        # Its ways end where no others lead to.
        given, port = [t.view_as(t) if _tracked(t) else t for t in inputs], None
        if known:
            given, port = ports.through(joined.node, inputs, known)
        _, flat = self.run(given, state)
        results = self._results(flat)
        own = {(RESULT, n): t for n, t in zip(places, results, strict=False)}
        own |= {key: flat[key[1]] for key in joined.views()}
        ends = {
            key: SimpleNamespace(grad_fn=own[key].grad_fn, output_nr=own[key].output_nr)
            for key in known
        }

        tensors = [Reference(t) for t in inputs if isinstance(t, torch.Tensor)]

        def lead() -> list[Any]:
            return ports.lead(port, ends)

        def named(keys: Sequence[Key]) -> dict[Key, torch.Tensor]:
            return joined.named(keys, [each() for each in tensors])

        run = Run.of(call, given, results, own, named, self.repeated, lead)
        call.second_run = None if run is None else weakref.ref(run)
        return run

    def _results(self, flat: Sequence[Any]) -> list[torch.Tensor]:
        """Those with a tangent, of what a run returns."""
        return [flat[place]._base if is_base else flat[place] for place, is_base in self.outputs]

    def _gradients(
        self,
        inputs: Sequence[Any],
        tangents: Sequence[Any],
        state: torch.Tensor | None,
        recomputed: Recomputed | None,
        unwanted: Sequence[int],
    ) -> tuple[list[Any], list[torch.Tensor], list[Any]]:
        """What a run returns, its results with a tangent, and :meth:`gradients`."""
        _, flat = self.run(inputs, state, recomputed=recomputed)
        results = self._results(flat)
        ends = [(t, g) for t, g in zip(results, tangents, strict=True) if g is not None]
        wanted = {n: t for n, t in enumerate(inputs) if _tracked(t) and n not in unwanted}
        read = {n: wanted[n] for n in self.repeated if n in wanted}
        parts = Parts([end for end, _ in ends], read)
        again = recomputed.again() if recomputed is not None else contextlib.nullcontext()
        with torch._C._DisableAutocast(), as_around(), again:
            found = torch.autograd.grad(
                [end for end, _ in ends],
                [*wanted.values()],
                [tangent for _, tangent in ends],
                create_graph=True,
                allow_unused=True,
            )
        made = dict(zip(wanted, found, strict=True))
        whole = [made.get(n) for n in range(len(inputs))]
        return flat, results, parts.instead(whole, self.repeated)


@contextlib.contextmanager
def _drawing_from(state: torch.Tensor | None) -> Iterator[None]:
    before = None if state is None else torch.get_rng_state()
    if state is not None:
        torch.set_rng_state(state)
    try:
        yield
    finally:
        if before is not None:
            torch.set_rng_state(before)


_aten = torch.ops.aten
#: Where a batch norm has its running statistics, and whether it is for training, which reads none
#: (None: it always is).
_STATISTICS: dict[Any, tuple[slice, int | None]] = {
    TWINS[_aten.cudnn_batch_norm.default]: (slice(3, 5), 5),
    _aten.cudnn_batch_norm_backward.default: (slice(3, 5), None),
    _aten._native_batch_norm_legit_functional.default: (slice(3, 5), 5),
    _aten.native_batch_norm.default: (slice(3, 5), 5),
    _aten.native_batch_norm_backward.default: (slice(3, 5), 7),
}


def reads_written(joint: Joint, slots: int) -> bool:
    """Whether a result or a gradient of the graph depends on what an input held that it writes to.

    ``slots``: how many results come before the new values of those inputs.
    """
    if not joint.written:
        return False
    (output,) = joint.graph.graph.find_nodes(op="output")
    ends = list(output.args[0])
    del ends[slots : slots + len(joint.written)]
    holders = joint.graph.graph.find_nodes(op="placeholder")
    written = {holders[joint.inputs.index(place)] for place in joint.written}
    left = [node for node in ends if isinstance(node, Node)]
    seen = set(left)
    while left:
        for node in _read(left.pop()):
            if node in written:
                return True
            if node not in seen:
                seen.add(node)
                left.append(node)
    return False


def _read(node: Node) -> list[Node]:
    """What a node's value depends on."""
    if node.target is operator.getitem:
        made, place = node.args
        if isinstance(made, Node) and made.target in _STATISTICS and place < 3:
            return _read(made)
    among, flag = _STATISTICS.get(node.target, (None, 0))
    if among is None or flag is not None and node.args[flag] is not True:
        return node.all_input_nodes
    args = [*node.args[: among.start], *node.args[among.stop :]]
    return [arg for arg in args if isinstance(arg, Node)]


class Once(torch.autograd.Function):
    """The last of the tensors that it is given, whose derivative is refused when it is asked for.

    ``count`` of them; by the others autograd sees what they are computed from. ``why``: the error.
    """

    @staticmethod
    def forward(ctx: Any, why: str, count: int, *tensors: torch.Tensor) -> Any:
        ctx.why = why
        return tuple([t.detach() for t in tensors[len(tensors) - count :]])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(ctx.why)


def derivable(
    derivable: Derivable,
    inputs: Sequence[Any],
    tangents: Sequence[Any],
    state: torch.Tensor | None = None,
    joined: Joined | None = None,
    places: Sequence[int] = (),
    unwanted: Sequence[int] = (),
) -> list[Any]:
    """The gradients of a call, whose functions are autograd's own: the graph runs again for them.

    So they have eager's bits, also where a formula is another one for gradients with a graph
    (``silu``), and what comes back through them is added up at each leaf in eager's order.
    """
    with torch.enable_grad():
        return derivable.gradients(inputs, tangents, state, joined, places, unwanted)


def _ends(inputs: Sequence[Any]) -> list[Any]:
    """``inputs``, or views where a run that ends at them would come to more.

    That is another input that one is computed from, the same one again, or hooks.
    """
    tracked = [t for t in inputs if _tracked(t)]
    apart = all(t.is_leaf for t in tracked) and len({*map(id, tracked)}) == len(tracked)
    return [
        t.view_as(t) if _tracked(t) and not (apart and not t._backward_hooks) else t for t in inputs
    ]


def once(gradients: Sequence[Any], read: Sequence[torch.Tensor], why: str = TWICE) -> list[Any]:
    """Gradients without a derivative, which are computed from what was ``read``."""
    places = [n for n, g in enumerate(gradients) if isinstance(g, torch.Tensor)]
    found = list(gradients)
    with torch.enable_grad():
        made = Once.apply(why, len(places), *read, *[gradients[n] for n in places])
    for n, g in zip(places, made, strict=True):
        found[n] = g
    return found


def _leads(t: torch.Tensor, node: Any) -> bool:
    """Whether ``node`` is where autograd goes on from ``t``."""
    return t.grad_fn is node or getattr(node, "variable", None) is t


def _tracked(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad
