"""Which inputs share memory with one that the graph writes to, found at each call.

The trace takes every input for a tensor of its own. That is right, however inputs are related, for
as long as none that is written to overlaps another one. Those that do are made views of a common
base (:mod:`refcompiler.aot.bases`).
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor

from refcompiler.remade import made, maker

_ADDRESS = torch.Tensor.data_ptr


def span(t: torch.Tensor) -> int:
    """Bytes from the first to the end of the last element (strides are never negative)."""
    if 0 in t.shape:
        return 0
    return t.itemsize * (1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride())))


def disjoint(
    examples: Sequence[torch.Tensor], written: Sequence[int], saves: bool = False
) -> Callable[..., bool]:
    """A test of inputs sized like ``examples``: no written one overlaps another.

    Numbers among them are passed over. Memory spans are compared, so interleaved views count as
    overlapping. ``saves``: inputs are saved for a backward, which a write to another view of
    their base would forbid: views of one base count too.
    """
    viewed = list(written) if saves else []
    places = [n for n, t in enumerate(examples) if isinstance(t, torch.Tensor)]
    symbolic = any(examples[n]._has_symbolic_sizes_strides for n in places)
    spans = [] if symbolic else [span(examples[n]) for n in places]
    changed = set(written)
    marks = [n in changed for n in places]
    return _test(viewed, places, spans, marks, symbolic)


@maker
def _test(
    viewed: Sequence[int],
    places: Sequence[int],
    spans: Sequence[int],
    marks: Sequence[bool],
    symbolic: bool,
) -> Callable[..., bool]:
    """The test of the tensors at ``places``, which reach over ``spans`` bytes (if those are not
    ``symbolic``) and of which some are written to (``marks``); ``viewed``: see :func:`disjoint`."""
    # Addresses and bytes that passed: those of parameters and buffers seldom change.
    last: tuple[Sequence[int], Sequence[int]] = [], []
    rest = Rest()

    def check(*inputs: Any) -> bool:
        nonlocal last, rest
        for n in viewed:
            if inputs[n]._is_view() and len(_neighbours(inputs, n)) > 1:
                return False
        tensors = [inputs[n] for n in places] if len(places) < len(inputs) else inputs
        starts = [*map(_ADDRESS, tensors)]
        lengths = [span(t) for t in tensors] if symbolic else spans
        if starts == last[0] and lengths == last[1]:
            return True
        moved: Sequence[int] = range(len(starts))
        if lengths == last[1]:
            moved = [n for n, start in enumerate(last[0]) if start != starts[n]]
        if len(moved) <= FEW:
            apart, rest = _apart(starts, lengths, marks, moved), Rest()
        elif len(moved) == len(starts):
            apart, rest = _all_apart(starts, lengths, marks), Rest()
        else:
            if moved != rest.moved:
                rest = Rest.of(starts, lengths, moved)
            apart = rest.clear(starts, lengths) or _all_apart(starts, lengths, marks)
        if apart:
            last = starts, lengths
        return apart

    return made(check, _test, viewed, places, spans, marks, symbolic)


#: As many inputs are compared with each of the others; more are sorted.
FEW = 6


class Rest(NamedTuple):
    """Where all inputs lie but those that ``moved``, as an optimizer's gradients do at each step:
    in order where they begin, and the end of all up to each."""

    moved: Sequence[int] = ()
    begins: Sequence[int] = ()
    ends: Sequence[int] = ()

    @classmethod
    def of(cls, starts: Sequence[int], lengths: Sequence[int], moved: Sequence[int]) -> Rest:
        gone = set(moved)
        stay = sorted(
            (starts[n], starts[n] + lengths[n]) for n in range(len(starts)) if n not in gone
        )
        ends = itertools.accumulate((end for _, end in stay), max)
        return cls(moved, [start for start, _ in stay], [*ends])

    def clear(self, starts: Sequence[int], lengths: Sequence[int]) -> bool:
        """Whether those that moved surely overlap nothing: neither each other nor the rest."""
        last = 0
        for start, end in sorted([(starts[n], starts[n] + lengths[n]) for n in self.moved]):
            before = bisect_left(self.begins, end)
            if start < last or (before and self.ends[before - 1] > start):
                return False
            last = end
        return True


def _apart(
    starts: Sequence[int], lengths: Sequence[int], marks: Sequence[bool], moved: Sequence[int]
) -> bool:
    """Whether those at ``moved`` overlap none, where that matters."""
    for m in moved:
        low, mark = starts[m], marks[m]
        end = low + lengths[m]
        n = 0
        for start in starts:
            if start < end and low < start + lengths[n] and n != m and (mark or marks[n]):
                return False
            n += 1
    return True


def _all_apart(starts: Sequence[int], lengths: Sequence[int], marks: Sequence[bool]) -> bool:
    end = written_end = 0
    for start, length, mark in sorted(zip(starts, lengths, marks)):
        if length == 0:
            continue
        if start < (end if mark else written_end):
            return False
        end = max(end, start + length)
        if mark:
            written_end = max(written_end, end)
    return True


def _neighbours(tensors: Sequence[Any], place: int) -> list[int]:
    """The places of those that have the storage of the one at ``place``."""
    own = tensors[place].untyped_storage()._cdata
    numbered = [(n, t) for n, t in enumerate(tensors) if isinstance(t, torch.Tensor)]
    return [n for n, t in numbered if t.untyped_storage()._cdata == own]


def groups(
    tensors: Sequence[torch.Tensor], written: Sequence[int], saves: bool = False
) -> list[list[int]]:
    """The places of ``tensors``, real or fake, that overlap each other and a written one.

    ``saves``: as in :func:`disjoint`.
    """
    apart: list[list[int]] = []
    for n in written if saves else ():
        if tensors[n]._is_view() and not any(n in places for places in apart):
            places = _neighbours(tensors, n)
            apart += [places] if len(places) > 1 else []
    gone = {n for places in apart for n in places}
    known = [n for n, t in enumerate(tensors) if n not in gone and 0 not in t.shape]
    found: list[list[int]] = []
    end: tuple[int, int] | None = None
    for (memory, start), n in sorted([(_address(tensors[n]), n) for n in known]):
        if end is None or (memory, start) >= end:
            found.append([])
            end = (memory, start)
        found[-1].append(n)
        end = max(end, (memory, start + span(tensors[n])))
    marks = set(written)
    return apart + [
        sorted(places) for places in found if len(places) > 1 and not marks.isdisjoint(places)
    ]


def _address(t: torch.Tensor) -> tuple[int, int]:
    """What memory, and the byte in it: a fake has a storage, but no address."""
    if isinstance(t, FakeTensor):
        return t.untyped_storage()._cdata, t.storage_offset() * t.itemsize
    return 0, t.data_ptr()
