"""Inputs that overlap, one of which is written to: views of a common base, which is the input.

A write to one of them is then a write to the base, and shows in the others while tracing as it does
in eager. For each way in which a call's inputs overlap there is a program of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from refcompiler.aot.inputs import Unsupported, has_bits
from refcompiler.aot.layout import Layout
from refcompiler.aot.overlap import groups
from refcompiler.fakes.overlap import overlaps_itself
from specs.strides import contiguous

#: Ways of overlapping that one graph has programs for; with others it runs as it is.
LIMIT = 16

#: What a base is to a member: what it is a view of, or was detached from, or is the ``data`` of.
SEEN, DETACHED, DATA = "", "detached", "data"


@dataclass(frozen=True)
class Base:
    """What the inputs at ``members`` are views of, each as its layout says.

    ``tracked``: it is the tensor that autograd knows as their base, and which ``first`` is itself
    or (``through``) has as its base; members of which it knows nothing (they are detached) are
    hidden, as ``DETACHED`` or ``DATA``. Otherwise it is flat memory, which autograd does not see,
    of the dtype of ``first``; members may have others.
    """

    first: int
    through: bool
    tracked: bool
    layout: Layout
    dtype: torch.dtype
    members: tuple[tuple[int, Layout, torch.dtype, str], ...]  # the last: whether it is hidden

    def source(self, values: Sequence[str]) -> str:
        """The expression that gives it in a call whose inputs are named ``values``."""
        first = values[self.first]
        if self.tracked:
            return f"{first}._base" if self.through else first
        at = self.layout
        return f"{first}.detach().as_strided({at.size}, {at.stride}, {at.offset})"

    def of(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """The base of ``tensors``, which it was found for."""
        first = tensors[self.first]
        if self.tracked:
            return first._base if self.through else first
        at = self.layout
        with torch.no_grad():
            return first.detach().as_strided(at.size, at.stride, at.offset)


def bases_of(
    tensors: Sequence[torch.Tensor],
    written: Sequence[int],
    saves: bool = False,
    tracked: Collection[int] = (),
) -> tuple[Base, ...]:
    """The bases that ``tensors`` need, when those at ``written`` are written to.

    ``saves``: some are saved for a backward. ``tracked``: places of those that require gradients
    after the call. Raises :class:`Unsupported` where they overlap in a way that a base cannot
    express.
    """
    return tuple([_base(tensors, places, tracked) for places in groups(tensors, written, saves)])


def _base(tensors: Sequence[torch.Tensor], places: Sequence[int], tracked: Collection[int]) -> Base:
    members = [tensors[n] for n in places]
    first = max(members, key=lambda t: t.itemsize)  # whose memory the others can be read from
    if any(map(has_bits, members)):
        raise Unsupported("an input that is written to shares memory with a conjugate or negative")
    memory = first.untyped_storage()._cdata
    if any(t.untyped_storage()._cdata != memory for t in members):
        raise Unsupported("an input that is written to shares memory with another storage")
    differentiable = [n for n in places if tensors[n].requires_grad or n in tracked]
    if torch.is_grad_enabled() and differentiable:
        known = next((n for n in differentiable if tensors[n].requires_grad), differentiable[0])
        root = _root(tensors[known])
        if tensors[known].requires_grad and not root.requires_grad:
            raise Unsupported("an input that is written to shares memory with a leaf's view")
        if root.untyped_storage()._cdata != memory:  # by set_
            raise Unsupported("an input that is written to has other memory than what it is of")
        hidden = {n for n in places if _root(tensors[n]) is not root}
        unknown = any(not _is_inside(tensors[n], root) for n in hidden)
        if unknown or hidden.intersection(differentiable):
            raise Unsupported("an input that is written to shares memory, unknown to autograd")
        if any(t.dtype != root.dtype for t in members):
            raise Unsupported("an input that is written to shares memory, of another dtype")
        seen = next(n for n in places if n not in hidden)
        how = {n: DETACHED if _counts_with(tensors[n], root) else DATA for n in hidden}
        layouts = _layouts(tensors, places, how)
        return Base(seen, root is not tensors[seen], True, Layout.of(root), root.dtype, layouts)
    layouts = _layouts(tensors, places, {})
    unit = first.itemsize
    low = min(at.offset * dtype.itemsize // unit for _, at, dtype, _ in layouts)
    end = max(-(-at.end * dtype.itemsize // unit) for _, at, dtype, _ in layouts)
    if end * unit > first.untyped_storage().nbytes():
        raise Unsupported("an input that is written to shares half an element with one that ends")
    place = next(n for n in places if tensors[n] is first)
    return Base(place, False, False, Layout((end - low,), (1,), low), first.dtype, layouts)


def _layouts(
    tensors: Sequence[torch.Tensor], places: Sequence[int], hidden: Mapping[int, str]
) -> tuple[tuple[int, Layout, torch.dtype, str], ...]:
    return tuple(
        [(n, Layout.of(tensors[n]), tensors[n].dtype, hidden.get(n, SEEN)) for n in places]
    )


def _is_inside(t: torch.Tensor, root: torch.Tensor) -> bool:
    """Whether all that ``t`` has are elements of ``root``."""
    whole, part = Layout.of(root), Layout.of(t)
    dense = whole.end - whole.offset == root.numel() and not overlaps_itself(root)
    return dense and whole.offset <= part.offset and part.end <= whole.end


def _counts_with(t: torch.Tensor, root: torch.Tensor) -> bool:
    """Whether a write to ``root`` is one to ``t``: not to its ``data``."""
    if t.is_inference() or root.is_inference():
        return False
    before = t._version
    with _unsafe_preserve_version_counter(root):
        torch.autograd.graph.increment_version(root)
        return t._version != before


def member(base: torch.Tensor, at: Layout, dtype: torch.dtype, hidden: str = SEEN) -> torch.Tensor:
    """The view of ``base`` that a member is; one that is ``hidden`` autograd does not see.

    Writes through views of it can be traced if ``as_strided`` is the first view, or there is none.
    """
    if hidden:
        view = member(base, at, dtype)
        return view.data if hidden == DATA and isinstance(base, FakeTensor) else view.detach()
    if base.itemsize == dtype.itemsize:
        view = base.as_strided(at.size, at.stride, at.offset)
        return view if base.dtype == dtype else view.view(dtype)
    flat = base.view(dtype)
    if at.stride != contiguous(at.size):
        return flat.as_strided(at.size, at.stride, at.offset)
    start = flat.storage_offset()
    return flat[at.offset - start : at.end - start].view(at.size)


def _root(t: torch.Tensor) -> torch.Tensor:
    """What gradients of ``t`` and of its views have in common: a leaf's are its own, also where it
    is a view of what has none."""
    return t._base if t._is_view() and not (t.is_leaf and t.requires_grad) else t


def share(mode: FakeTensorMode, fakes: list[torch.Tensor], bases: Sequence[Base]) -> None:
    """Let members of flat bases, the last of ``fakes``, be views of them."""
    for base, flat in zip(bases, fakes[len(fakes) - len(bases) :], strict=True):
        if base.tracked:
            continue
        for place, *how in base.members:
            with mode, torch.no_grad():
                view = member(flat, *how).detach()
            fakes[place] = view.requires_grad_(fakes[place].requires_grad)


class Overlapping:
    """``call(*inputs)`` where what is written to overlaps: a program for each way of overlapping.

    ``lifted``: tensors that follow the inputs. ``compile(inputs, bases)`` makes a program.
    ``written``, ``saves`` and ``tracked``: as in :func:`bases_of`.
    """

    def __init__(
        self,
        uncompiled: Any,
        lifted: Sequence[torch.Tensor],
        written: Sequence[int],
        saves: bool,
        compile: Callable[[Sequence[Any], tuple[Base, ...]], Callable[..., Any]],
        tracked: Collection[int] = (),
    ):
        self.uncompiled, self.lifted, self.written = uncompiled, lifted, written
        self.saves, self.tracked = saves, frozenset(tracked)
        self.compile = compile
        self.programs: dict[tuple[Base, ...], Callable[..., Any]] = {}
        self.refused: dict[tuple[Base, ...], str] = {}  # why some of them are the graph as it is

    def __call__(self, *inputs: Any) -> Any:
        return self.program(inputs)(*inputs)

    def program(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        try:
            bases = bases_of([*inputs, *self.lifted], self.written, self.saves, self.tracked)
        except Unsupported as error:
            return self._as_it_is(str(error))
        passed = [n for base in bases for n in self._passed(base) if n < len(inputs)]
        if any(inputs[n]._backward_hooks for n in passed):
            return self._as_it_is("a hook is on an input that overlaps one that is written to")
        found = self.programs.get(bases)
        if found is None:
            if len(self.programs) >= LIMIT:
                return self._as_it_is(f"inputs overlap in more than {LIMIT} ways")
            try:
                found = self.compile(inputs, bases)
            except Unsupported as error:
                self.refused[bases] = str(error)
                found = self.uncompiled
            self.programs[bases] = found
        return self._as_it_is(self.refused.get(bases, "")) if found is self.uncompiled else found

    def _as_it_is(self, why: str) -> Callable[..., Any]:
        self.uncompiled.why = why
        return self.uncompiled

    def _passed(self, base: Base) -> list[int]:
        """The members that autograd sees, and whose hooks would not be called: gradients go to the
        base. They are its own where no write that autograd sees comes between."""
        if not base.tracked:
            return []
        places = [n for n, *_ in base.members]
        whole = not base.through and self.tracked.isdisjoint(places)
        return [n for n in places if n != base.first] if whole else places
