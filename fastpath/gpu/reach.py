"""How far the whole numbers of a kernel reach, and so whether it needs 64 bits for them.

A kernel counts its points, and computes places from them, in 32 bits, which costs less. Sums and
products of these wrap around, and are right if what they come to is in range, whatever is within
them. So what has to be in range is: the points, those of the last block that are none included,
since they are compared with how many there are; each place and each position that is a value; and,
in both, what is divided.
"""

from __future__ import annotations

from collections.abc import Iterator

from fastpath.gpu.tiling import Tiling
from fastpath.gpu.words import WORDS
from fastpath.ir.expr import inside
from fastpath.ir.index import Division, Index
from fastpath.ir.size import Number, surely
from fastpath.schedule.kernel import Kernel, Store

WIDE = 2**31 - 1  # the greatest number that 32 bits hold


def reach(kernel: Kernel, plan: Tiling) -> Iterator[Number]:
    """What has to be at most :data:`WIDE` for 32 bits to do.

    Raises :class:`fastpath.ir.size.Undecided` where sizes leave a bound open.
    """
    if plan.stripe:  # blocks are of a power of two points otherwise
        step = WORDS * plan.stripe
        yield -(-plan.x_points // step) * step - 1
    yield _last(plan.x_points)
    if plan.y is not None:
        yield _last(plan.y.extent)
    # Rows that are laid by vectors begin with one before them, and end with one behind.
    yield _last(plan.r_points) + (2 * plan.group if plan.start is not None else 0)
    seen: set[Index] = set()
    for index in _places(kernel):
        yield from _of(index, seen)


def _last(points: Number) -> Number:
    """The last one's number; of how many each call chooses, that, which a kernel is given."""
    return points - 1 if isinstance(points, int) else points


def is_wide(kernel: Kernel, plan: Tiling) -> bool:
    """Whether places need 64 bits. Where each call has other sizes, the kernel's user says so, and
    sees to it that all calls are as it says."""
    if kernel.wide is not None:
        return kernel.wide
    return any(number > WIDE for number in reach(kernel, plan))


def _places(kernel: Kernel) -> Iterator[Index]:
    for stage in kernel.stages:
        stored = [s.index for s in stage.statements if isinstance(s, Store)]
        yield from stored
        data = [value for index in stored for value in index.lookups()]
        for e in inside([*(s.value for s in stage.statements), *data]):
            if e.op in ("load", "guarded"):
                yield e.args[1]
            elif e.op == "index":
                yield e.args[0]
    yield from (t.index for t in kernel.transposed)


def _of(index: Index, seen: set[Index]) -> Iterator[Number]:
    if index in seen:
        return
    seen.add(index)
    low, high = index.bounds()
    yield high
    if not surely(-1, low):
        yield -low - 1
    for atom in index.terms:
        if isinstance(atom, Division):
            yield from _of(atom.dividend, seen)
