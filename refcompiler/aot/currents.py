"""What inputs hold when a backward runs, for what a checkpointed region computes again then.

Autograd keeps the arguments of such a region, and nothing that its function reads besides, such as
a module's buffers: a recompute reads these as they are by then, and what the function writes to
them it writes again. So a trace has one more input for each of those, which nothing but the
backward reads, and the backward's graph gives new values behind its gradients. A call keeps the
tensor, and counts no writes to it. Of what is only read the forward saves an alias, with no count.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import (
    get_proxy_mode,
    get_proxy_slot,
    track_tensor_tree,
)
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.checkpoint import CheckpointPolicy

from refcompiler.aot.functional import plain
from refcompiler.aot.inputs import Unsupported, fake_like
from refcompiler.aot.layout import Layout
from refcompiler.aot.private import UNCOUNTED
from refcompiler.remade import made, maker
from refcompiler.shapes.known import same

#: In the meta of such an input: how many writes to it the backward counts.
CURRENT = "current"
#: In the meta of an alias of an input that is only read: the input's place.
READ = "read again"
_NAME = "currents_"
_newest = torch.autograd._get_sequence_nr
_WRITES = "a checkpointed region writes to a value of the graph"


class Currents:
    """Those of a trace.

    ``inputs``: what the graph runs with, functional tensors by place; ``unfit``: the places of
    those that cannot be written to in a backward. ``known``: the places of an earlier trace, which
    this one has too, and no others.
    """

    def __init__(
        self,
        inputs: Sequence[Any],
        unfit: Collection[int],
        mode: FakeTensorMode,
        known: Sequence[int] | None,
    ):
        self.inputs = {n: t for n, t in enumerate(inputs) if isinstance(t, torch.Tensor)}
        self.unfit, self.mode, self.known = unfit, mode, known
        self.first = {n: plain(t) for n, t in self.inputs.items()}
        #: By place, what stands in a recompute for an input that the forward has written to.
        self.made: dict[int, _Current] = {}
        #: Places of what regions read that is no argument of theirs, and of arguments; by place,
        #: what a recompute reads for it. By identity, the places of what stands for inputs.
        self.read: set[int] = set()
        self.arguments: set[int] = set()
        self.saved: list[Any] = []  # all arguments, which eager saves
        #: These, each with autograd's newest functions before its region and behind it.
        self.spans: list[tuple[Any, int, int]] = []
        self.aliases: dict[int, Any] = {}
        self.places_of = {id(t): n for n, t in self.inputs.items()}
        self.standing: list[Any] = []
        self.backward = False
        self.refused = ""
        self.ends: dict[int, torch.Tensor] = {}
        self.changed: dict[int, int] = {}  # places of what the forward has written to, by identity
        self.memories: set[int] = set()  # of these
        self.results: list[tuple[Any, torch.Tensor]] = []

    def __enter__(self) -> Currents:
        self.token = CURRENTS.set(self)
        return self

    def __exit__(self, *error: Any) -> None:
        CURRENTS.reset(self.token)

    def end(self, results: Any) -> None:
        """The forward is at its end, and gives ``results``."""
        self.backward = True
        self.ends = {n: plain(t) for n, t in self.inputs.items()}
        for n, value in self.ends.items():
            if value is not self.first[n]:
                self.changed[id(self.inputs[n])] = n
                self.memories.add(_memory(value))
        leaves = [t for t in pytree.tree_leaves(results) if isinstance(t, torch.Tensor)]
        self.results = [(t, plain(t)) for t in leaves]
        for n in self.known or ():
            self._current(n)
        for n in sorted(self.read - {*self.changed.values(), *self.unfit} - self.arguments):
            self.aliases[n] = self._alias(n)

    def _alias(self, place: int) -> Any:
        """An input as it is when the backward runs, for what reads no other value of it."""
        tracing = get_proxy_mode()
        assert tracing is not None
        known = self.ends[place]
        given = get_proxy_slot(known, tracing.tracer).proxy
        alias = torch.ops.aten.alias.default
        proxy = tracing.tracer.create_proxy("call_function", alias, (given,), {})
        with _disable_current_modes(), self.mode, torch.no_grad():
            value = alias(known)
        with _disable_current_modes():
            track_tensor_tree(value, proxy, constant=None, tracer=tracing.tracer)
        proxy.node.meta[UNCOUNTED], proxy.node.meta[READ] = True, place
        proxy.node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
        tensor = FunctionalTensor.to_functional(value)
        return tensor.requires_grad_(self.inputs[place].requires_grad)

    @contextlib.contextmanager
    def again(
        self, operands: Sequence[Any], saved: Collection[int] | None, outside: Sequence[Any]
    ) -> Iterator[list[Any]]:
        """A region is computed again: of what it is given, in the place of ``operands``.

        ``saved``: which of them are its arguments (None: those that the forward does not write to);
        ``outside``: what they are outside of it.
        """
        if not self.backward:
            own: list[Any] = []
            for n, (t, there) in enumerate(zip(operands, outside, strict=True)):
                if saved is not None and n in saved and isinstance(there, FunctionalTensor):
                    own.append(there)
                place = self.places_of.get(id(there))
                if place is not None:
                    known = self.arguments if saved is None or n in saved else self.read
                    known.add(place)
                    self.places_of[id(t)] = place
                    self.standing.append(t)
            self.saved += own
            first = _newest()
            yield [*operands]
            self.spans += [(t, first, _newest()) for t in own]
            return
        if saved is None:
            saved = [n for n, t in enumerate(operands) if id(t) not in self.changed]
        pairs = zip(operands, outside, strict=True)
        given = [self._instead(*pair, n not in saved) for n, pair in enumerate(pairs)]
        known = {id(current.tensor) for current in self.made.values()}
        tensors = [t for t in given if isinstance(t, torch.Tensor) and id(t) not in known]
        before = [plain(t) for t in tensors]
        inside = [t for n, t in enumerate(given) if n not in saved and id(t) not in self.changed]
        tensors_inside = [plain(t) for t in inside if isinstance(t, torch.Tensor)]
        if not self.memories.isdisjoint(map(_memory, tensors_inside)):
            self.refused = "a checkpointed region reads a view of an input that is written to"
        try:
            yield given
        finally:
            if any(plain(t) is not value for t, value in zip(tensors, before, strict=True)):
                self.refused = self.refused or _WRITES

    def _instead(self, t: Any, outside: Any, is_read: bool) -> Any:
        if not is_read:  # saved, so that a write since is an error
            return t
        alias = self.aliases.get(self.places_of.get(id(outside), -1))
        if alias is not None:
            return alias
        place = self.changed.get(id(t))
        if place is None or place in self.unfit:
            return t
        if self.known is not None and place not in self.known:
            self.refused = "another backward reads what a checkpointed region writes to"
            return t
        return self._current(place).tensor

    def _current(self, place: int) -> _Current:
        if place not in self.made:
            tracing = get_proxy_mode()
            assert tracing is not None
            proxy = tracing.tracer.create_proxy("placeholder", f"{_NAME}{place}", (), {})
            with _disable_current_modes(), self.mode, torch.no_grad():
                value = fake_like(self.first[place])
            with _disable_current_modes():
                track_tensor_tree(value, proxy, constant=None, tracer=tracing.tracer)
            proxy.node.meta[UNCOUNTED] = True
            proxy.node.meta[CURRENT] = 0
            tensor = FunctionalTensor.to_functional(value)
            tensor.requires_grad_(self.inputs[place].requires_grad)
            self.made[place] = _Current(proxy.node, value, tensor, Layout.of(tensor))
        return self.made[place]

    def renewed(self) -> list[torch.Tensor | None]:
        """The backward has run: new values, by place, None of those that are only read."""
        if self.refused:
            raise Unsupported(self.refused)
        if any(plain(t) is not before for t, before in self.results):
            raise Unsupported("the backward writes to a result of the forward")
        if any(plain(self.inputs[n]) is not value for n, value in self.ends.items()):
            raise Unsupported("the backward writes to an input of the forward")
        found = {n: self.made[n].renewed() for n in sorted(self.made)}
        if self.known is None:
            for n in [n for n, value in found.items() if value is None]:
                node = self.made[n].node
                if not node.users:
                    node.graph.erase_node(node)
                    del found[n], self.made[n]
        return [*found.values()]

    @property
    def places(self) -> list[int]:
        return sorted(self.made)


@dataclass
class _Current:
    """``node``: the graph's input, ``value``: what it is in the trace, ``tensor``: what has it."""

    node: Node
    value: torch.Tensor
    tensor: Any
    layout: Layout

    def renewed(self) -> torch.Tensor | None:
        """A new value, which is computed of the old one, or the backward would not take that."""
        value = plain(self.tensor)
        if value is self.value:
            return None
        if not Layout.of(self.tensor).is_like(self.layout) or self.tensor.grad_fn is not None:
            raise Unsupported("a checkpointed region changes more of an input than its values")
        self.node.meta[CURRENT] = self.tensor._version
        tracing = get_proxy_mode()
        assert tracing is not None
        maker = get_proxy_slot(value, tracing.tracer).proxy.node
        makers = [maker, *maker.all_input_nodes] if maker.target is operator.getitem else [maker]
        lies = same(value.stride(), self.value.stride())
        if lies and any(self.node in each.all_input_nodes for each in makers):
            return value
        return plain(FunctionalTensor.to_functional(self.value).copy_(self.tensor))


def _memory(t: torch.Tensor) -> int:
    return t.untyped_storage()._cdata


#: Those of the trace that is under way.
CURRENTS: ContextVar[Currents | None] = ContextVar("CURRENTS", default=None)


def again(operands: Sequence[Any], saved: Collection[int] | None, outside: Sequence[Any]) -> Any:
    """While a region is computed, in whatever trace: what it is given."""
    known = CURRENTS.get()
    if known is None:
        return contextlib.nullcontext([*operands])
    return known.again(operands, saved, outside)


def arrange(graph: GraphModule, inputs: int, places: Sequence[int]) -> None:
    """Put what stands for the inputs at ``places`` behind the ``inputs`` others."""
    holders = graph.graph.find_nodes(op="placeholder")
    by_name = {str(node.target): node for node in holders}
    own = [by_name[f"{_NAME}{place}"] for place in places]
    others = [node for node in holders if node not in own]
    for node in reversed([*others[:inputs], *own, *others[inputs:]]):
        graph.graph._root.append(node)


def is_current(node: Any) -> bool:
    """Whether a node is such an input, or what a backward takes for one."""
    return node.op == "placeholder" and str(node.target).startswith(_NAME)


def currents_of(forward: GraphModule, backward: GraphModule, saved: Sequence[Any]) -> list[int]:
    """Which of those that a forward saves are such. What it computes of one would be too early."""
    holders = forward.graph.find_nodes(op="placeholder")
    if any(user.op != "output" for node in filter(is_current, holders) for user in node.users):
        raise Unsupported("a partitioner computes in the forward what a checkpoint computes again")
    found = [n for n, node in enumerate(saved) if isinstance(node, Node) and is_current(node)]
    taken = [*filter(is_current, backward.graph.find_nodes(op="placeholder"))]
    if len(found) != len(taken):
        raise Unsupported("a partitioner does not save what a checkpoint reads in the backward")
    return found


def updating(
    compiled: Callable[[list[Any]], Any], graph: GraphModule, places: Sequence[int]
) -> Callable[[list[Any]], Any]:
    """``compiled``, a backward, which writes to the inputs at ``places`` what it gives for them.

    The last of what ``graph`` gives are these.
    """
    if not places:
        return compiled
    holders = graph.graph.find_nodes(op="placeholder")
    by_name = {str(node.target): (n, node.meta.get(CURRENT)) for n, node in enumerate(holders)}
    return _updating(compiled, [by_name.get(f"{_NAME}{place}") for place in places])


@maker
def _updating(
    compiled: Callable[[list[Any]], Any], places: Sequence[tuple[int, int] | None]
) -> Callable[[list[Any]], Any]:
    """``places``: of each such input among what the backward takes, and the writes to count."""
    count = len(places)

    def call(arguments: list[Any]) -> Any:
        tensors = [None if place is None else arguments[place[0]] for place in places]
        found = compiled(arguments)
        for t, place, value in zip(tensors, places, found[-count:], strict=True):
            if value is not None and place is not None:
                write(t, value, place[1])
        return found[:-count]

    return made(call, _updating, compiled, places)


def write(t: torch.Tensor, value: torch.Tensor, times: int) -> None:
    """Give ``t`` this value, with so many writes counted."""
    if not times:
        t.data.copy_(value)
        return
    with torch.no_grad():
        t.copy_(value)
    if times > 1:
        torch.autograd.graph.increment_version([t] * (times - 1))


@contextlib.contextmanager
def restored(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """What these hold, and their versions, are as before afterwards."""
    kept = [(t, t.detach().clone(), t._version) for t in tensors]
    try:
        yield
    finally:
        for t, value, version in kept:
            t.data.copy_(value)
            torch._C._autograd._unsafe_set_version_counter((t,), (version,))
