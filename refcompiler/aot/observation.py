"""What a caller can see of a graph besides values, found by running it on fakes as eager would.

Aliasing of outputs with inputs and with each other, identity, changed inputs, gradient flags.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from refcompiler.aot.bases import Base, member
from refcompiler.aot.chains import GIVEN, OUTPUT, Over, Views
from refcompiler.aot.inputs import Unsupported, has_bits
from refcompiler.aot.layout import Layout
from refcompiler.aot.numbers import symbols_of, value_of
from refcompiler.aot.through import Through
from refcompiler.aot.views import (
    SYMBOLIC,
    Copy,
    OfFunction,
    has_gaps_or_overlaps,
    is_data,
    is_of_function,
    is_recorded,
    is_untracked,
    leads_to,
    lies_in,
    refuses_writes,
    replayed,
    whole_of,
)
from refcompiler.aot.watching import Watching, edge
from refcompiler.histories import is_outdated, stale


@dataclass(frozen=True)
class View:
    """How a view is made again of its base.

    ``replay(base)`` repeats the view's operations, and autograd sees them; where it is None, the
    layout is taken of the base's storage, ``offset`` relative to the base's own, in ``dtype``.
    Where sizes are symbols: ``replay(base, numbers)`` with ``numbers`` of the call, and without a
    replay the layout is taken of the base so that autograd sees it, if it does in eager.
    ``bits``: its dtype is another one than the base's, whose memory it reads. ``whole``: it is the
    base, detached. ``before``: it was made without gradients and is older than the last write to
    its base, of which autograd refuses to tell what it is. ``apart``: it is of the base's ``data``,
    writes to which are not writes to the base, and was written to so many times (else -1).
    ``older``: it was made before the last write to its base, of which autograd sees none; behind it
    it leads to what that is of, if that is a view itself.
    ``over``: another view of that base, of which it is made again in the base's stead.
    """

    layout: Layout
    dtype: torch.dtype
    replay: Callable[..., torch.Tensor] | None
    requires_grad: bool
    grad_mode: bool  # whether the view was made where autograd recorded
    numbers: tuple[Any, ...] = ()
    seen: bool = False  # without a replay: whether autograd sees it
    bits: bool = False
    whole: bool = False
    before: bool = False
    apart: int = -1
    over: Over | None = None
    detached: bool = False  # a view that was detached, which autograd takes for none
    older: bool = False

    @property
    def parts(self) -> tuple[Any, ...]:
        """The numbers that it is made again with."""
        at = self.layout
        if self.whole:
            return ()
        return self.numbers if self.replay is not None else (*at.size, *at.stride, at.offset)


@dataclass(frozen=True)
class Same:
    """The output is the very object that input ``place`` is."""

    place: int


@dataclass(frozen=True)
class Again:
    """The output is the very object that an earlier output is."""

    output: int


@dataclass(frozen=True)
class ViewOf:
    """The output is a view of input ``place``; ``moved``: of the memory that it is given."""

    place: int
    view: View
    moved: bool = False


@dataclass(frozen=True)
class Value:
    """A tensor that the graph makes: ``slot`` says which, ``view`` how the output lies in it."""

    slot: int
    view: View | None = None


@dataclass(frozen=True)
class Plain:
    """Not a tensor."""

    value: Any


Output = Same | Again | ViewOf | Value | Plain | Through


@dataclass(frozen=True)
class Slot:
    """A tensor with memory of its own that leaves the graph: output ``output``, or its base.

    ``layout``: as eager's tensor lies, which the compiled value has to. ``inference``: it is made
    in inference mode, where the call is not. ``version``: how often the graph has written to it.
    """

    output: int
    is_base: bool
    layout: Layout
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    inference: bool = False
    version: int = 0


@dataclass(frozen=True)
class Write:
    """What the graph does to an input.

    ``tracked``: autograd sees it; ``layout``: its size, strides or offset afterwards if they are
    others, and by how many elements the offset has ``moved``. ``expanded``: its dimensions along
    which all elements are one, as of a view of what is written to. ``counted``: its version tells,
    by so many ``times``.
    """

    place: int
    tracked: bool
    requires_grad: bool
    layout: Layout | None = None
    moved: int = 0
    expanded: tuple[int, ...] = ()
    counted: bool = True
    times: int = 1
    #: Whether autograd, which sees none of the writes, sees it read before the last of them, and
    #: behind that.
    read: tuple[bool, bool] = (False, False)
    #: Methods, with arguments, that say all of it; none: they do not.
    steps: Sequence[tuple[str, Sequence[Any]]] = ()
    older: bool = False  # whether a view that leaves the graph was made before

    @property
    def ahead(self) -> bool:
        """Whether autograd sees it read, behind all writes alone."""
        return self.read == (False, True)

    @property
    def plain(self) -> bool:
        """Whether all that there is to it is new values, in their own places."""
        return self.layout is None and not self.expanded and self.counted


@dataclass(frozen=True)
class Move:
    """Input ``place`` has the memory of output ``output`` afterwards.

    The output is one of those behind the caller's. ``times``: what its version tells of that and
    of writes to either memory.
    """

    place: int
    output: int
    times: int


@dataclass
class Observation:
    outputs: list[Output] = field(default_factory=list)
    spec: Any = None  # the nesting of the outputs
    slots: list[Slot] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    #: Outputs that are views, in the order in which autograd was told of them.
    views: list[int] = field(default_factory=list)
    numbers: list[Any] = field(default_factory=list)  # that the epilogue needs of the graph
    bits: frozenset[int] = frozenset()  # places of inputs with a conjugate or negative bit
    switches: bool | None = None  # the gradient mode that the graph leaves, if it is another one
    stale: bool = False  # whether a backward would find written to what it has saved
    repacked: bool = False  # whether hooks would be given what was written to, past autograd, since

    def versions(self, outputs: Sequence[Any]) -> dict[int, int]:
        """By number of a slot, its version, where what runs may give it another one.

        ``outputs``: the nodes that compute the slots. Those that make a tensor of none may do it by
        writes, which eager's bindings do not count.
        """
        return {
            n: slot.version
            for n, (slot, node) in enumerate(zip(self.slots, outputs, strict=False))
            if not slot.inference and (slot.version or not any(map(_holds, node.all_input_nodes)))
        }

    def layouts(self, inputs: Sequence[Any]) -> dict[int, Layout]:
        """How ``inputs`` lie at the end, by place, where that is known."""
        found = {n: Layout.of(t) for n, t in enumerate(inputs) if isinstance(t, torch.Tensor)}
        found |= {w.place: w.layout for w in self.writes if w.layout is not None}
        for move in self.moves:
            output = self.outputs[move.output]
            if isinstance(output, Value) and output.view is None:
                found[move.place] = self.slots[output.slot].layout
            else:
                del found[move.place]
        return found

    def write(self, place: int, requires_grad: bool) -> Write:
        """A write that only the trace saw."""
        found = Write(place, False, requires_grad, counted=False)
        self.writes.append(found)
        return found

    def age(self, is_older: Callable[[torch.Tensor], bool], flat: Sequence[Any]) -> None:
        """Have views know that they are older than writes that autograd does not see, and those
        that it sees that there are older ones."""
        counted = {w.place: n for n, w in enumerate(self.writes) if w.counted and not w.layout}
        for n, output in enumerate(self.outputs[: len(flat)]):
            view = tracked(output)
            if view is None or not isinstance(output, ViewOf) or output.place not in counted:
                continue
            at = counted[output.place]
            if is_older(flat[n]) and self.writes[at].tracked:
                self.writes[at] = replace(self.writes[at], older=True)
            elif is_older(flat[n]) and not any(isinstance(part, SYMBOLIC) for part in view.parts):
                self.outputs[n] = replace(output, view=replace(view, older=True))

    @property
    def passes(self) -> bool:
        """Whether a result is a view that a custom function made of an input."""
        return any(isinstance(o, Through) and o.place is not None for o in self.outputs)

    def lets_write(self) -> None:
        """Have views that custom functions made of what nobody has be results as others are."""
        self.outputs = [
            Value(o.slot) if isinstance(o, Through) and o.place is None else o for o in self.outputs
        ]

    @property
    def requires_grad(self) -> bool:
        """Whether anything that leaves the graph takes part in autograd."""
        written = any(w.tracked and w.requires_grad for w in self.writes)
        return written or any(slot.requires_grad for slot in self.slots)


def observe(
    gm: torch.fx.GraphModule,
    fakes: Sequence[torch.Tensor],
    replaced: dict[int, int],
    given: int,
    bases: Sequence[Base] = (),
) -> Observation:
    """Run ``gm`` on ``fakes`` (the first ``given`` are its own inputs, the last are ``bases``).

    ``replaced``: the place of each lifted tensor by the id of the real one. Raises
    :class:`Unsupported` for what an epilogue cannot restore.
    """
    grad_mode = torch.is_grad_enabled()
    # No leaves: eager accepts writes to what is a leaf only here. And objects of their own.
    inputs = [Copy.apply(t) if grad_mode and _requires_grad(t) else _alias(t) for t in fakes]
    for base, t in zip(bases, inputs[len(inputs) - len(bases) :], strict=True):
        if base.tracked:
            for place, *how in base.members:
                is_base = not base.through and place == base.first
                inputs[place] = t if is_base else member(t, *how)
    before = [_State(t) if isinstance(t, torch.Tensor) else None for t in inputs]
    lifted = {key: inputs[place] for key, place in replaced.items()}
    modes = {t.fake_mode for t in inputs if isinstance(t, FakeTensor)}
    for mode in modes:
        mode.ordered = False
    try:
        watching = Watching(gm, lifted, inputs)
        outputs = watching.run(*inputs[:given])
        left = torch.is_grad_enabled()
    finally:
        torch._C._set_grad_enabled(grad_mode)
    if any(getattr(mode, "ordered", False) for mode in modes):
        raise Unsupported("a tensor that is written to partly overlaps one that is read")
    seen = _Observer(inputs, before).of(outputs)
    for at, write in enumerate(seen.writes):
        steps = watching.readers.steps.get(id(inputs[write.place]), ())
        known = [type(n) is int for _, given in steps for n in pytree.tree_leaves(given)]
        if write.tracked and len(steps) == write.times and all(known):
            write = seen.writes[at] = replace(write, steps=steps)
        versions = watching.readers.reads.get(id(t := inputs[write.place]))
        if versions and not bases and not write.tracked:
            read = min(versions) < t._version, max(versions) == t._version
            if write.layout is not None and read[1]:
                raise Unsupported("the graph reads what it has changed in size past autograd")
            seen.writes[at] = replace(write, read=read)
    if not bases:
        seen.age(watching.readers.is_older, pytree.tree_leaves(outputs))
    flat = {place for base in bases if not base.tracked for place, *_ in base.members}
    if any(w.tracked and w.requires_grad and w.place in flat for w in seen.writes):
        raise Unsupported("a write makes autograd track what shares memory, unknown to it before")
    if watching.hooked and not watching.hooked.isdisjoint(
        [edge(t) for t in (*pytree.tree_leaves(outputs), *inputs) if _requires_grad(t)]
    ):  # whose others come behind it, and see what it makes of the gradient
        raise Unsupported("a hook of the graph is on a tensor that leaves it")
    seen.switches = left if left != grad_mode else None
    if watching.writes is not None and seen.requires_grad:
        tracked = [t for t in (*pytree.tree_leaves(outputs), *inputs) if _requires_grad(t)]
        seen.repacked = watching.writes.pass_by(tracked)
    if seen.writes and seen.requires_grad:
        seen.stale = stale(
            [t for t in (*pytree.tree_leaves(outputs), *inputs) if _requires_grad(t)]
        )
    tensors = [n for n, t in enumerate(fakes) if isinstance(t, torch.Tensor)]
    seen.bits = frozenset([n for n in tensors if has_bits(fakes[n])])
    return seen


def _holds(node: torch.fx.Node) -> bool:
    """Whether a node has a tensor, not a number."""
    return not isinstance(node.meta.get("val"), SYMBOLIC)


def _requires_grad(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and t.requires_grad


def _alias(t: Any) -> Any:
    """Another tensor with the memory of ``t``, for the graph may change sizes of its inputs."""
    return t.data.requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t


#: What tensors are while a graph is observed: fakes, and the module's own.
def expanded(t: torch.Tensor) -> tuple[int, ...]:
    """The dimensions of ``t`` that its memory does not have."""
    if t.layout is not torch.strided:
        return ()
    return tuple([d for d, (n, s) in enumerate(zip(t.shape, t.stride())) if s == 0 and n != 1])


class _State:
    """What of an input is compared after the run."""

    def __init__(self, t: torch.Tensor):
        self.version = t._version
        self.layout = Layout.of(t)
        self.memory = t.untyped_storage()  # kept, so that its address is no other's
        self.storage = self.memory._cdata
        self.requires_grad = t.requires_grad
        self.dtype = t.dtype
        self.function = t.grad_fn


class _Observer:
    def __init__(self, inputs: Sequence[Any], before: Sequence[_State | None]):
        self.inputs, self.before = inputs, before
        self.seen = Observation()
        self.places = {id(t): n for n, t in reversed(list(enumerate(inputs)))}
        self.storages: dict[int, list[int]] = {}
        for n, state in enumerate(before):
            if state is not None:
                self.storages.setdefault(state.storage, []).append(n)
        self.by_storage: dict[int, list[int]] = {}  # outputs that are tensors of the graph
        self.flat: list[Any] = []

    def of(self, outputs: Any) -> Observation:
        seen = self.seen
        self.flat, seen.spec = pytree.tree_flatten(outputs)
        for n, t in enumerate(self.inputs):
            if isinstance(t, torch.Tensor) and self._has_moved(n):
                self._move(n, t)
        earlier: dict[int, int] = {}
        found: list[Output | None] = []
        for n, t in enumerate(self.flat):
            found.append(self._output(n, t, earlier))
        for places in self.by_storage.values():
            for n, output in zip(places, self._group(places), strict=True):
                found[n] = output
        seen.outputs = found  # type: ignore[assignment]
        self._chain()
        for n, t in enumerate(self.inputs):
            if isinstance(t, torch.Tensor):
                self._input(n)
        self._numbers()
        return seen

    def _chain(self) -> None:
        """Have views made again of those views that they were made of."""
        known: dict[Over, torch.Tensor] = {}
        for n, t in enumerate(self.inputs):
            if isinstance(t, torch.Tensor) and t._is_view() and not self._has_moved(n):
                known[GIVEN, n] = t
        made = {n: view for n, output in enumerate(self.seen.outputs) if (view := tracked(output))}
        known |= {(OUTPUT, n): self.flat[n] for n in made}
        views = Views(known)
        turns = {n: turn for n in made if (turn := views.turn(self.flat[n])) is not None}
        self.seen.views = sorted(turns, key=turns.__getitem__)
        for n, view in made.items():
            found, output = views.over(self.flat[n]), self.seen.outputs[n]
            if found is not None and isinstance(output, ViewOf | Value):
                over, make, numbers = found
                chained = replace(view, replay=make, numbers=numbers, over=over)
                self.seen.outputs[n] = replace(output, view=chained)

    def _numbers(self) -> None:
        """What the epilogue needs to know, and no input tells."""
        known: set[Any] = set()
        for t in self.inputs:
            known |= symbols_of(t)
        found: dict[Any, Any] = {}
        for output in self.seen.outputs:
            if isinstance(output, Plain) and not symbols_of(output.value) <= known:
                found[output.value.node] = output.value
            elif isinstance(output, ViewOf | Value) and output.view is not None:
                more = _roots(output.view.parts, known)
                if more and output.view.before:
                    raise Unsupported("a view older than a write has sizes that the graph finds")
                found |= more
            elif isinstance(output, Through):
                at = output.layout
                found |= _roots((*at.size, *at.stride, at.offset), known)
        for write in self.seen.writes:
            if write.layout is not None:
                at = write.layout
                found |= _roots((*at.size, *at.stride, write.moved), known)
        self.seen.numbers = list(found.values())

    def _output(self, n: int, t: Any, earlier: dict[int, int]) -> Output | None:
        if not isinstance(t, torch.Tensor):
            return Plain(t)
        if t.layout is not torch.strided:
            raise Unsupported("an output is not a strided tensor")
        known = is_outdated(t) or id(t) in self.places
        if not known and t.is_leaf and t.grad is not None:
            raise Unsupported("a tensor of the graph is given a gradient")
        if id(t) in self.places:
            return Same(self.places[id(t)])
        if id(t) in earlier:
            return Again(earlier[id(t)])
        earlier[id(t)] = n
        storage = t.untyped_storage()._cdata
        place = self._owner(t)
        if place is None:
            self.by_storage.setdefault(storage, []).append(n)
            return None
        moved = self._is_of_moved(t, place)
        try:
            return ViewOf(place, self._view(t, self.inputs[place]), moved)
        except OfFunction:
            base, before = self.inputs[place], self.before[place]
            same = t.dtype == base.dtype and not has_bits(base) and not t.is_inference()
            assert before is not None
            if moved or not same or base._version != before.version or is_outdated(t):
                raise
            at = Layout.of(t)
            layout = Layout(at.size, at.stride, at.offset - Layout.of(base).offset)
            return Through(self._slot(n, False, t), place, layout, _name_of(t))

    def _is_of_moved(self, t: torch.Tensor, place: int) -> bool:
        """Whether ``t`` is a view of an input that it shares its new memory with."""
        own = self.inputs[place]
        storages = t.untyped_storage()._cdata, own.untyped_storage()._cdata
        moved = self._has_moved(place) and storages[0] == storages[1]
        return moved and t._base is own and not t.requires_grad

    def _has_moved(self, place: int) -> bool:
        before = self.before[place]
        assert before is not None
        return self.inputs[place].untyped_storage()._cdata != before.storage

    def _move(self, n: int, t: torch.Tensor) -> None:
        before = self.before[n]
        assert before is not None
        if t.grad_fn is not before.function or t.requires_grad != before.requires_grad:
            raise Unsupported("the graph gives other memory to an input that autograd tracks")
        if t.dtype != before.dtype:
            raise Unsupported("the graph gives an input memory of another dtype")
        self.seen.moves.append(Move(n, len(self.flat), t._version - before.version))
        self.flat.append(t.detach())

    def _owner(self, t: torch.Tensor) -> int | None:
        """The input whose memory ``t`` has; among several with one memory, its base, or the one
        whose writes it counts."""
        if t._is_view():
            assert t._base is not None
            place = self.places.get(id(t._base))
            if place is not None and not self._has_moved(place):
                return place
            if place is not None and self._is_of_moved(t, place):
                return place
        sharing = self.storages.get(t.untyped_storage()._cdata, ())
        counted = (n for n in sharing if not is_data(t, self.inputs[n]))
        return next(counted, sharing[0] if sharing else None)

    def _view(self, t: torch.Tensor, base: torch.Tensor) -> View:
        replay: Callable[..., torch.Tensor] | None = None
        numbers: tuple[Any, ...] = ()
        seen = False
        if t._is_view() and t._base is base:
            replay, numbers, seen = replayed(t)
        layout = Layout.of(t)
        whole = not t._is_view() and t.dtype == base.dtype and layout.is_like(Layout.of(base))
        if replay is None:
            if t.is_conj() != base.is_conj() or t.is_neg() != base.is_neg():
                raise Unsupported("an output shares memory with a conjugate or negative")
            if t.requires_grad and not seen:
                raise Unsupported("an output shares memory in a way that autograd does not see")
            if t.requires_grad and expanded(base):
                # Of elements that are one, as_strided gives each a share of the sum of gradients.
                raise Unsupported("an output is a view, by symbols, of what is expanded")
            start = base.storage_offset()
            if t.dtype != base.dtype:
                if symbols_of(t) or symbols_of(base) or start * base.itemsize % t.itemsize:
                    raise Unsupported("an output shares memory with a tensor of another dtype")
                start = start * base.itemsize // t.itemsize
            layout = Layout(layout.size, layout.stride, layout.offset - start)
        # A view of what requires a gradient requires one too, made where autograd records or not.
        before = is_outdated(t)
        if before and refuses_writes(t):
            raise Unsupported("an output is one of several views of what was written to since")
        tracked = is_recorded(t)
        if base.requires_grad and t.requires_grad:
            tracked = not before and t.grad_fn is not None
        if t.requires_grad and not base.requires_grad and t.grad_fn is not None:
            raise OfFunction("an output is a view of what requires no gradient")
        if base.requires_grad and t.requires_grad and tracked and not leads_to(t, base):
            raise Unsupported("an output is a view of one that was made without gradients")
        bits = t.dtype != base.dtype
        apart = t._version if replay is None and is_data(t, base) else -1
        flags = tracked, numbers, seen, bits, whole, before, apart, None, not t._is_view()
        return View(layout, t.dtype, replay, t.requires_grad, *flags)

    def _group(self, places: Sequence[int]) -> list[Output]:
        """Outputs with one memory, which no input has."""
        tensors = [self.flat[n] for n in places]
        first = tensors[0]
        alone = len(tensors) == 1 and not has_gaps_or_overlaps(first) and not has_bits(first)
        if alone and not refuses_writes(first) and not is_untracked(first):
            count = len(self.seen.slots)
            if first._is_view() and not is_of_function(first):
                with contextlib.suppress(Unsupported):  # a view that cannot be made again
                    return self._of_base(places)
                del self.seen.slots[count:]
            slot = self._slot(places[0], False, first)
            if not is_of_function(first):
                return [Value(slot)]
            at = Layout.of(first)
            return [Through(slot, None, Layout(at.size, at.stride, 0), _name_of(first))]
        return self._of_base(places)

    def _of_base(self, places: Sequence[int]) -> list[Output]:
        """Outputs that are views of what the graph has made, or that tensor."""
        tensors = [self.flat[n] for n in places]
        roots = [t._base if t._is_view() else t for t in tensors]
        if any(t.is_inference() for t in tensors):  # which know no base
            roots = [whole_of(tensors)] * len(tensors)
        chosen = max(range(len(roots)), key=lambda n: (roots[n].requires_grad, -n))
        root = roots[chosen]
        base = next((n for n, t in zip(places, tensors) if t is root), None)
        if base is not None:
            slot = self._slot(base, False, root)
        else:
            slot = self._slot(places[chosen], True, root)
        found: list[Output] = []
        for t in tensors:
            if t is not root and t._base is not root and not lies_in(t, root):
                raise Unsupported("results share memory that none of them has all of")
            found.append(Value(slot) if t is root else Value(slot, self._view(t, root)))
        return found

    def _slot(self, output: int, is_base: bool, t: torch.Tensor) -> int:
        if has_bits(t):
            raise Unsupported("an output has a conjugate or negative bit")
        inside = t.is_inference()
        known = t.dtype, t.device, t.requires_grad, inside, 0 if inside else t._version
        slot = Slot(output, is_base, Layout.of(t), *known)
        self.seen.slots.append(slot)
        return len(self.seen.slots) - 1

    def _input(self, n: int) -> None:
        t, before = self.inputs[n], self.before[n]
        assert before is not None
        layout = Layout.of(t)
        if self._has_moved(n):
            return
        _check_flag(t, before)
        tracked = t.grad_fn is not before.function
        other = layout if not layout.is_like(before.layout) else None
        counted = t._version != before.version
        if counted or tracked or other is not None:
            moved = layout.offset - before.layout.offset
            times = t._version - before.version
            write = Write(n, tracked, t.requires_grad, other, moved, counted=counted, times=times)
            self.seen.writes.append(write)


def _name_of(t: torch.Tensor) -> str:
    """Of the function that made ``t``, as autograd's errors tell it."""
    assert t.grad_fn is not None
    return t.grad_fn.name().partition("Backward")[0]


def tracked(output: Output) -> View | None:
    """The view that an output is, if autograd is to see how it is made."""
    if not isinstance(output, ViewOf | Value) or output.view is None:
        return None
    view, moved = output.view, isinstance(output, ViewOf) and output.moved
    known = view.replay is not None or view.seen
    return view if known and view.requires_grad and not view.before and not moved else None


def _check_flag(t: torch.Tensor, before: _State) -> None:
    if before.requires_grad and not t.requires_grad:
        raise Unsupported("the graph detaches an input")
    if t.requires_grad != before.requires_grad and t._version == before.version:
        raise Unsupported("the graph changes whether an input requires gradients")


def _roots(numbers: Iterable[Any], known: set[Any]) -> dict[Any, Any]:
    """The symbols in ``numbers`` that are not ``known``, as numbers, by their nodes."""
    found = {}
    for number in numbers:
        for symbol in symbols_of(number) - known:
            value = value_of(number.node.shape_env, symbol)
            found[value.node] = value
    return found
