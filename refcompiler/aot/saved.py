"""What others than the backward can write to of what eager saves for it, and whether that counts.

Autograd saves tensors, not values: what is saved of an input that the graph has written to is the
input, and a write to it behind the graph is an error of the backward. What is saved of ``x.data``
has the memory of ``x``, and no count of writes to ``x``. A functional graph has values alone. So
the trace asks the tensors that it ran with, and a call keeps its inputs in the places of the values
that these have at its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot

from refcompiler.aot.functional import plain
from refcompiler.aot.layout import Layout
from refcompiler.aot.private import UNCOUNTED, memory
from refcompiler.aot.reads import saved_by
from refcompiler.histories import nodes_of
from refcompiler.shapes.known import same

_SAVED = "saved"  # in the meta of a node: the :class:`Link` of what eager saves with its value
_CUSTOM = torch.autograd.function.BackwardCFunction
_FAR = 1 << 20  # no tensor has been written to so often
_COUNTED = re.compile(r"is at version (\d+); expected version (\d+)")

#: How an input is kept in the place of a value: as it is, or as a view of it with this size,
#: strides and offset. Where it lies otherwise than the value, that is kept with its versions.
AS_IT_IS, VERSIONS = (), None
How = tuple[Any, ...] | None


@dataclass
class Link:
    """``counted``: whether writes to an input or a result are told; ``places``: of the inputs."""

    counted: bool = False
    places: list[int] = field(default_factory=list)

    def add(self, places: Sequence[int] | None) -> None:
        """Another tensor with the value; None: one that counts for itself."""
        if places is not None:
            self.counted = True
            self.places += [place for place in places if place not in self.places]


@dataclass
class Links:
    """``by_memory``: of what eager saves; ``finals``: what inputs hold at the end, by place."""

    by_memory: dict[int | None, Link] = field(default_factory=dict)
    finals: dict[int, torch.Tensor] = field(default_factory=dict)

    def of(self, node: Node) -> Link | None:
        """That of what eager saves with the value of a node, or of what shares memory with it."""
        known: Link | None = node.meta.get(_SAVED)
        return known or self.by_memory.get(memory(node))

    def note(self, graph: GraphModule) -> None:
        """Have each node know whether what is saved of it tells of writes, for a partition."""
        for node in graph.graph.nodes:
            link = self.of(node)
            if link is not None and not link.counted:
                node.meta[UNCOUNTED] = True

    def kept(
        self, saved: Sequence[Node], layouts: Mapping[int, Layout]
    ) -> Iterator[tuple[int, int, How]]:
        """By number of a saved node, the place of the input that is kept in its place, and how.

        ``layouts``: of inputs, at the end of a call.
        """
        by_memory: dict[int, list[int]] = {}
        for place, t in self.finals.items():
            by_memory.setdefault(t.untyped_storage()._cdata, []).append(place)
        for n, node in enumerate(saved):
            own = memory(node)
            link = self.of(node)
            places = [] if own is None or link is None else by_memory.get(own, [])
            if link is not None and link.counted:
                places = [place for place in places if place in link.places]
            found = [(_how(node, self.finals[at], layouts.get(at)), at) for at in places]
            if not found:
                continue
            how, place = next((each for each in found if each[0] is not VERSIONS), found[0])
            assert link is not None
            if how is not VERSIONS or link.counted:
                yield n, place, how


def links(
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[Any],
    results: Iterable[Any],
    written: Sequence[int],
    arguments: Sequence[Any] = (),
) -> Links:
    """Of a graph that is being traced: what autograd has saved on its way to ``outputs``.

    ``inputs`` and ``results`` are functional tensors, those ``written`` inputs of which the end of
    a call may change the memory. ``arguments``: of checkpointed regions, which save them.
    """
    found = Links()
    saved = [*_saved(outputs), *arguments]
    if not saved:
        return found
    numbers = _linked(saved, [*inputs], [t for t in results if isinstance(t, torch.Tensor)])
    mode = get_proxy_mode()
    assert mode is not None
    for t, places in zip(saved, numbers, strict=True):
        proxy = get_proxy_slot(plain(t), mode.tracer, None, lambda known: known.proxy)
        if proxy is not None:
            node = proxy.node
            node.meta.setdefault(_SAVED, Link()).add(places)
            found.by_memory.setdefault(_memory(plain(t)), Link()).add(places)
    found.finals = {n: plain(inputs[n]) for n in written}
    return found


def note_held(outputs: Sequence[torch.Tensor]) -> None:
    """Have the nodes of what custom functions have left with ``ctx`` know that writes to it do not
    count, unless autograd has saved it too. ``outputs``: as in :func:`links`."""
    kinds = [node for node in nodes_of(outputs) if isinstance(node, _CUSTOM)]
    held = [t for node in kinds for t in getattr(node, "held", ()) if type(t) is FunctionalTensor]
    if not held:
        return
    counted = {_memory(plain(t)) for t in _saved(outputs)}
    mode = get_proxy_mode()
    assert mode is not None
    for t in held:
        proxy = get_proxy_slot(plain(t), mode.tracer, None, lambda known: known.proxy)
        if proxy is not None and _memory(plain(t)) not in counted:
            proxy.node.meta[UNCOUNTED] = True


def _linked(
    saved: Sequence[torch.Tensor], inputs: Sequence[Any], results: Sequence[torch.Tensor]
) -> list[list[int] | None]:
    """Of each that is ``saved``: the places of the inputs that count writes with it.

    None where neither inputs nor ``results`` do.
    """
    shown = [(n, t) for n, t in enumerate(inputs) if isinstance(t, torch.Tensor)]
    shown += [(-1, t) for t in results]
    shown = [(n, t) for n, t in shown if not t.is_inference()]
    with Counters([t for _, t in shown]) as counters:
        places: dict[int | None, list[int]] = {}
        for n, t in shown:
            places.setdefault(counters.number(t), []).extend([n] if n >= 0 else [])
        return [None if t.is_inference() else places.get(counters.number(t)) for t in saved]


class Counters:
    """Who counts writes with which of ``tensors``, while it is entered.

    Who counts together has one counter, which is told by a number that it is set to for a moment.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]):
        self.tensors = tuple(tensors)
        self.before = tuple([t._version for t in tensors])

    def __enter__(self) -> Counters:
        _set_versions(self.tensors, range(_FAR, _FAR + len(self.tensors)))
        return self

    def __exit__(self, *error: Any) -> None:
        _set_versions(self.tensors, self.before)

    def number(self, t: torch.Tensor) -> int | None:
        """Which of them counts with ``t``, the last if several do; None: none does."""
        n = t._version - _FAR
        return n if n >= 0 else None

    def asked_by(self, node: Any) -> list[int]:
        """Whose counts a function of autograd's own asks, which is given nothing to do."""
        found: list[int] = []
        try:
            while True:
                try:
                    node(*[None] * len(node._input_metadata))
                    return found
                except RuntimeError as error:
                    known = _COUNTED.search(str(error))
                    if known is None or int(known[1]) < _FAR:
                        return found
                found.append(int(known[1]) - _FAR)
                _set_versions((self.tensors[found[-1]],), (int(known[2]),))
        finally:
            _set_versions([self.tensors[n] for n in found], [_FAR + n for n in found])


def _set_versions(tensors: Sequence[torch.Tensor], versions: Sequence[int]) -> None:
    torch._C._autograd._unsafe_set_version_counter(tuple(tensors), tuple(versions))


def _saved(outputs: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    for t, _ in saved_by(outputs):
        if type(t) is FunctionalTensor and t.layout is torch.strided:
            yield t


def _memory(t: torch.Tensor) -> int:
    return t.untyped_storage()._cdata


def _how(node: Node, final: torch.Tensor, at: Layout | None) -> How:
    """How an input is the value of ``node``. It lies as ``at`` says, and is to have ``final``."""
    value = node.meta["val"]
    if at is None or not same(final.shape, at.size) or not same(final.stride(), at.stride):
        return VERSIONS
    if value.dtype != final.dtype:
        return VERSIONS
    if Layout.of(value).is_like(Layout.of(final)):
        return AS_IT_IS
    numbers = *value.shape, *value.stride(), value.storage_offset(), final.storage_offset()
    if not all(type(n) is int for n in numbers):
        return VERSIONS
    moved = value.storage_offset() - final.storage_offset()
    return tuple(value.shape), value.stride(), moved


def keep(node: Any, found: Sequence[tuple[int, torch.Tensor, How]]) -> None:
    """Have a call keep these inputs, as they are now, in the places of what it has saved.

    ``node``: of its function. Under saved-tensor hooks autograd has what was saved.
    """
    kept, versions = node.kept, node.versions
    if not kept:
        return
    for n, t, how in found:
        own = t.detach()
        if how is None:
            own.data = kept[n]  # whose writes it counts from now on as those of the input
        elif how:
            size, stride, moved = how
            own = own.as_strided(size, stride, own.storage_offset() + moved)
        kept[n] = own
        if n < len(versions):
            versions[n] = own._version
