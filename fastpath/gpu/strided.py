"""Every other element of a row, or every fourth: neighbours read words that they have a part of.

A thread that reads elements which lie apart would have an instruction for each, of a few bytes, and
a warp's would touch the same lines again and again. Where neighbours are two or four elements
apart, what lies between is read with them, as words side by side, of which a thread loads vectors.
A word may end behind the tensor's last element, but lies in its memory: that begins and ends with
vectors (:mod:`fastpath.gpu.vectors`).
"""

from __future__ import annotations

from typing import NamedTuple

from fastpath.ir.index import Axis, Index
from fastpath.ir.size import known

STEPS = (2, 4)
MOST = 8  # bytes of a word


class Part(NamedTuple):
    """Element ``place`` of the word at ``word``, which has ``bits``."""

    word: Index
    place: Index
    bits: int


def part_of(index: Index, last: Axis, itemsize: int) -> Part | None:
    """``index`` as part of a word, if those of neighbours, along ``last``, lie side by side."""
    step = index.coefficient(last)
    if step not in STEPS or step * itemsize > MOST or index.lookups() or not known(last.extent):
        return None
    word, place = index.floordiv(step), index.mod(step)
    if word.coefficient(last) != 1 or last in place.axes():
        return None
    return Part(word, place, 8 * itemsize * step)
