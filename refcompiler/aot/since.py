"""What eager saves for a backward, and others may have written to since: then it refuses that.

Eager asks all that its functions have saved, also what a compiled backward does not read: of which
only the dtype is wanted, what a partitioner computes of something else, what a custom function
unpacks for nothing. Autograd counts writes for tensors that share memory, so a trace notes whose
count eager asks, input's or result's. Of these a call keeps what it saves anyhow, and of others
something without memory that tells their count.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx import Node

from refcompiler.aot.kept import refuse
from refcompiler.aot.missing import Reached, users_first
from refcompiler.aot.ports import INPUT, RESULT, Key
from refcompiler.aot.private import memory
from refcompiler.aot.reads import is_packed, saved_by, saves_lists
from refcompiler.aot.saved import Counters
from refcompiler.aot.wanted import goes_to
from refcompiler.histories import nodes_of

_NUMBERED = re.compile(r"Backward\d*$")


class Row(NamedTuple):
    """A function of autograd that has saved a tensor.

    ``turn``: when eager comes to it; ``tangents`` (bits) lead to it, and it leads to the inputs
    ``ends`` (bits). The tensor has ``size`` (None: that has symbols), and is the result ``place``
    of the function ``maker`` (None: that of the input).
    """

    turn: int
    tangents: int
    ends: int
    size: tuple[int, ...] | None
    maker: str | None = None
    place: int = 0

    def within(self, other: Row) -> bool:
        """Whether a backward that comes to this one comes to the other, before that."""
        inside = self.tangents | other.tangents == other.tangents
        return inside and self.ends | other.ends == other.ends and other.turn <= self.turn


@dataclass
class Since:
    """``rows``: by input's place or result. ``order``: of the inputs' numbers in ``ends``, the
    numbers that they have."""

    rows: dict[Key, list[Row]] = field(default_factory=dict)
    order: Sequence[int] = ()

    def without(self, places: Collection[int]) -> Since:
        """The same but for inputs at ``places``."""
        rows = {
            (kind, n): each
            for (kind, n), each in self.rows.items()
            if kind != INPUT or n not in places
        }
        return replace(self, rows=rows)

    def taking(self, places: Mapping[int, int]) -> Since:
        """The same where inputs have other numbers, ``places`` by those that they have."""
        return replace(self, order=[places.get(n, n) for n in self.order])


def since(
    outputs: Sequence[torch.Tensor],
    ways: Reached,
    inputs: Mapping[int, torch.Tensor],
    shown: Mapping[Key, torch.Tensor],
    regions: Sequence[tuple[torch.Tensor, int, int]],
) -> Since:
    """Of a graph that is being traced: whose count of writes autograd asks on its way.

    ``ways``: what :func:`refcompiler.aot.missing.reached` says of ``outputs``, which of one says
    nothing. ``inputs``: by number, those that gradients come to. ``shown``: what others have.
    ``regions``: what checkpointed regions are given, with the numbers of autograd's functions
    before and behind.
    """
    shown = {key: t for key, t in shown.items() if not t.is_inference()}
    pairs = _told(outputs, shown, regions)
    found = Since(order=range(1 + max(inputs, default=-1)))
    if not pairs:
        return found
    ends, every = _ends(outputs, inputs), (1 << len(outputs)) - 1
    given = {None, *[t.grad_fn for t in inputs.values()]}
    newest = max(node._sequence_nr() for *_, node in pairs)
    for key, t, node in pairs:
        asked = functools.reduce(operator.or_, ways.get(node, {}).values(), 0) if ways else every
        whole = shown[key]
        of, own = whole if t is None else t, whole.grad_fn
        is_input = key[0] == INPUT and of.grad_fn is own and own in given
        maker: tuple[str | None, int] = (None, 0)
        if not is_input:
            maker = (_named(node), 0) if own is node and not of._is_view() else _maker(of)
        row = Row(newest - node._sequence_nr(), asked, ends[node], _size(of), *maker)
        found.rows.setdefault(key, []).append(row)
    found.rows = {key: _first(rows) for key, rows in found.rows.items()}
    return found


def _first(rows: list[Row]) -> list[Row]:
    found: list[Row] = []
    for row in sorted(rows, key=lambda row: row.turn):
        if not any(map(row.within, found)):
            found.append(row)
    return found


def _told(
    outputs: Sequence[torch.Tensor],
    shown: Mapping[Key, torch.Tensor],
    regions: Sequence[tuple[torch.Tensor, int, int]],
) -> list[tuple[Key, Any, Any]]:
    """Whose count tells of a tensor, which a function has saved: the key, both. None in the place
    of a tensor in a list."""
    nodes, keys = nodes_of(outputs), [*shown]
    saved = [*_saved(outputs), *_arguments(nodes, regions)]
    lists = [*filter(saves_lists, nodes)]
    if not saved and not lists:
        return []
    found: list[tuple[Key, Any, Any]] = []
    with Counters([*shown.values()]) as counters:
        for t, node in saved:
            n = counters.number(t)
            if n is not None:
                found.append((keys[n], t, node))
        for node in lists:
            found += [(keys[n], None, node) for n in counters.asked_by(node)]
    return found


def _saved(outputs: Sequence[torch.Tensor]) -> Iterator[tuple[torch.Tensor, Any]]:
    for t, node in saved_by(outputs):
        if type(t) is FunctionalTensor and t.layout is torch.strided and not t.is_inference():
            yield t, node


def _arguments(
    nodes: Sequence[Any], regions: Sequence[tuple[torch.Tensor, int, int]]
) -> Iterator[tuple[torch.Tensor, Any]]:
    """What regions are given, with the first function in each whose backward asks for it."""
    if not regions:
        return
    turns = sorted([(node._sequence_nr(), n) for n, node in enumerate(nodes) if is_packed(node)])
    for t, first, last in regions:
        for turn, n in reversed(turns):
            if first <= turn < last:
                yield t, nodes[n]


def _ends(outputs: Sequence[torch.Tensor], inputs: Mapping[int, torch.Tensor]) -> dict[Any, int]:
    """By function of autograd, the inputs (bits) that it leads to."""
    edges: dict[Any, int] = {}
    leaves: dict[int, int] = {}
    for n, t in inputs.items():
        if t.grad_fn is None:
            leaves[id(t)] = 1 << n
        else:
            edge = t.grad_fn, t.output_nr
            edges[edge] = edges.get(edge, 0) | 1 << n
    found: dict[Any, int] = {None: 0}
    for node in reversed(users_first([t.grad_fn for t in outputs if t.grad_fn is not None])):
        mask = leaves.get(id(getattr(node, "variable", None)), 0)
        for edge in node.next_functions:
            mask |= found[edge[0]] | edges.get(edge, 0)
        found[node] = mask
    return found


def _size(t: torch.Tensor) -> tuple[int, ...] | None:
    return None if t._has_symbolic_sizes_strides else tuple(t.shape)


def _maker(t: torch.Tensor) -> tuple[str, int]:
    """The function that gave what has been saved, as autograd names it behind a write to that."""
    if t.grad_fn is None:
        return "", 0
    as_strided = "AsStridedBackward0" if _says_backward() else "AsStrided"
    return (as_strided, 0) if t._is_view() else (_named(t.grad_fn), t.output_nr)


#: Where a call keeps what counts with a key: among its saved tensors, or among those for this.
At = tuple[bool, int]


@dataclass
class Asked:
    """What a program knows of it, in plain values, which a package keeps.

    ``rows``: in eager's order, with what tells of a write. Where no saved tensor does, a call has
    something without memory: of the ``inputs`` that the function takes, by number, of ``results``,
    then of inputs as they are when the call ends, at the places ``late``. ``order``: as of
    :class:`Since`; ``given``: by place, the numbers of inputs that the function takes as they are.
    """

    order: Sequence[int]
    given: Mapping[int, int]
    inputs: Sequence[int]
    results: Sequence[int]
    late: Sequence[int]
    rows: Sequence[tuple[Row, At, Key]]

    @staticmethod
    def of(
        known: Since,
        inputs: Mapping[int, Node],
        written: Collection[int],
        made: Sequence[Node],
        shared: Sequence[Node],
        kept_written: Mapping[int, int],
    ) -> Asked | None:
        """``inputs``: by place, those that the graph takes; ``written``: places of those that are
        others by the call's end, or other tensors. ``made``: the results; ``shared``: what the
        forward saves that others may write to; ``kept_written``: by place, the numbers of those of
        it that are inputs which the call has written to."""
        if not known.rows:
            return None
        own: dict[int | None, list[Key]] = {}
        for place, node in inputs.items():
            if place not in written:
                own.setdefault(memory(node), []).append((INPUT, place))
        for n, node in enumerate(made):
            own.setdefault(memory(node), []).append((RESULT, n))
        kept = {(INPUT, place): n for place, n in kept_written.items() if n < len(shared)}
        for n, node in enumerate(shared):
            for key in own.get(memory(node), ()):
                kept.setdefault(key, n)
        given = {place: n for n, place in enumerate(inputs) if place not in written}
        return Asked._made(known, kept, given)

    @staticmethod
    def _made(known: Since, kept: Mapping[Key, int], given: Mapping[int, int]) -> Asked:
        """``kept``: by key, the place of what tells its count among what is saved."""
        others = [key for key in known.rows if key not in kept]
        own = [key for key in others if key[0] == INPUT and key[1] in given]
        results = [key for key in others if key[0] == RESULT]
        late = [key for key in others if key[0] == INPUT and key[1] not in given]
        places: dict[Key, At] = {key: (True, n) for key, n in kept.items()}
        places |= {key: (False, n) for n, key in enumerate([*own, *results, *late])}
        rows = [(row, places[key], key) for key, each in known.rows.items() for row in each]
        rows.sort(key=lambda each: each[0].turn)
        numbers = [given[n] for _, n in own], [n for _, n in results], [n for _, n in late]
        return Asked([*known.order], dict(given), *numbers, rows)

    def note(self, node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Have a call keep what tells of inputs and results. Of what is a leaf that is itself."""
        found = [inputs[n] for n in self.inputs]
        found += [outputs[n] for n in self.results]
        node.tellers = tellers = [*map(_teller, found)]
        node.told = [t._version for t in tellers]

    def check(self, node: Any, asked: int, edges: Sequence[Any], places: Sequence[int]) -> None:
        """Raise what eager does for a backward of the tangents ``asked`` (bits).

        ``edges``: autograd's functions of the inputs ``places``. To be called in that backward.
        """
        nodes = dict(zip(places, edges, strict=False))
        for row, (is_kept, n), key in self.rows:
            if not row.tangents & asked:
                continue
            tensors, versions = (node.kept, node.versions) if is_kept else (node.tellers, node.told)
            if tensors is None or n >= len(versions) or tensors[n]._version == versions[n]:
                continue
            ends = [nodes.get(at) for end, at in enumerate(self.order) if row.ends >> end & 1]
            if any(edge and edge[0] and goes_to(edge[0]) for edge in ends):
                refuse(tensors[n], versions[n], row.size, *self._maker(row, key, nodes))

    def _maker(self, row: Row, key: Key, nodes: Mapping[int, Any]) -> tuple[str, int]:
        if row.maker is not None:
            return row.maker, row.place
        node, n = nodes.get(self.given.get(key[1], -1)) or (None, 0)
        return ("", 0) if node is None or hasattr(node, "variable") else (_named(node), n)


def _named(node: Any) -> str:
    name: str = node.name()
    return name if _says_backward() else _NUMBERED.sub("", name)


@functools.cache
def _says_backward() -> bool:
    """Whether this torch calls a function ``MulBackward0`` in its error, or ``Mul``."""
    with torch.inference_mode(False), torch.enable_grad():
        t = torch.ones((), requires_grad=True, device="cpu").exp()
        saver: Any = t.grad_fn
        t.add_(1)
    try:
        _ = saver._saved_result
    except RuntimeError as error:
        return "Backward0" in str(error)
    return False


_NOTHING: dict[Any, torch.Tensor] = {}


def _teller(t: torch.Tensor) -> torch.Tensor:
    """What counts writes with ``t``, and has no memory, unless that is a leaf's of autograd."""
    if t.is_leaf and t.requires_grad:
        return t
    own = t.detach()
    kind = t.dtype, t.device
    if kind not in _NOTHING:
        _NOTHING[kind] = torch.empty(1, dtype=t.dtype, device=t.device)
    own.data = _NOTHING[kind]
    return own


def note_late(node: Any, found: Sequence[torch.Tensor]) -> None:
    """Have a call keep what tells of these inputs too, as they are now."""
    if not node.hooked_tensors:
        tellers = [*map(_teller, found)]
        node.tellers = [*node.tellers, *tellers]
        node.told = [*node.told, *[t._version for t in tellers]]
