"""Which of ATen's sums of rows run here: rows of one matrix added to those that integers name.

Gradients of embeddings are such sums, and of what is read at positions that are data. Each thread
has a part of the result's rows and goes through all positions, in their order: so what is added to
one row is so in eager's order, however many threads there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastpath.cpu.compile import LaterByHand, PrintedFinder, printed_kernel
from fastpath.cpu.printer import Printed
from fastpath.handles import views_of_shape
from fastpath.ir.expr import Bounds
from fastpath.ir.gathers import out_of_bounds
from fastpath.ir.lower import bind
from fastpath.ir.program import Call, Result, Tensor
from fastpath.ir.scatters import as_scatter
from fastpath.ir.size import Number
from specs.dtypes import REDUCED, compute_dtype, is_float
from specs.scalars import NUMBA_SUFFIX, cast_text

PARTS = 64  # of the result, among which threads choose
NO_ROW = -(1 << 63)  # a position that nobody has: none is passed over
_TEXT = """\
def kernel(addresses, begin, end):
    out = address(addresses, 0)
    places = address(addresses, 1)
    source = address(addresses, 2)
    under = address(addresses, 3)
    outside = address(addresses, 4)
    rows = address(addresses, 5)
    width = address(addresses, 6)
    count = address(addresses, 7)
    step = address(addresses, 8)
    wraps = address(addresses, 9)
    left_out = address(addresses, 10)
    parts = address(addresses, 11)
    across = address(addresses, 12)
    times = {times}
    while begin < end:
        stop = {stop}
        first = rows * begin // parts
        last = rows * stop // parts
        if under:
            for at in range(first * width, last * width):
                store_{dtype}_0(out, at, load_{dtype}_3(under, at))
        else:
            for at in range(first * width, last * width):
                store_{dtype}_0(out, at, zero)
{counted}        for n in range(count):
            given = int64(load_{index}_1(places, n))
            row = given + wraps if given < 0 else given
            if row >= first and row < last:
                if given != left_out:
                    base = row * width
                    line = n * step
{share}                    for at in range(width):
                        value = load_{dtype}_0(out, base + at)
                        more = load_{dtype}_2(source, line + {at})
                        value = {sum}
                        store_{dtype}_0(out, base + at, {rounded})
            elif outside and (row < 0 or row >= rows):
                report(outside, 1, given)
        begin = stop
"""
# How often each row of the part is named, and what each time then counts for.
_COUNTED = """\
        for row in range(last - first):
            store_int64_0(times, row, 0)
        for n in range(count):
            row = int64(load_{index}_1(places, n))
            if row >= first and row < last:
                store_int64_0(times, row - first, load_int64_0(times, row - first) + 1)
"""
_SHARE = """\
                    share = one / m.cast_i64_f64(load_int64_0(times, row - first))
                    share = {narrowed}
"""
COUNTED_ROWS = 4096  # of a part, on a thread's stack


@dataclass(frozen=True)
class RowSums:
    """``under``, or zeros, ``[rows, width]``, with the ``count`` rows of ``source`` (``step``
    elements apart, of elements that are ``across`` apart) added to the rows at ``places``.
    ``left_out``: a position that is passed over; ``limit``: what is raised for one that is none, if
    anything is. ``shared``: whether what is added to a row is divided by how often that is done."""

    places: Tensor
    source: Tensor
    under: Tensor | None
    rows: int
    width: int
    count: int
    step: int
    across: int
    left_out: int = NO_ROW
    limit: Bounds | None = None
    shared: bool = False

    #: It is no product of matrices.
    products = 0

    def named(self) -> dict[str, Any]:
        """What the texts of a launch name besides addresses."""
        return {}

    @property
    def operands(self) -> list[Tensor | None]:
        return [self.places, self.source, self.under]

    def printed(self) -> Printed:
        dtype, index = self.source.dtype, self.places.dtype
        names: dict[str, tuple[object, ...]] = {
            f"store_{dtype}_0": ("store", dtype, 0),
            f"load_{index}_1": ("load", index, 1),
        }
        for place in (0, 2, 3):
            names[f"load_{dtype}_{place}"] = ("load", dtype, place)
        kept = compute_dtype(dtype)
        names["zero"] = ("const", NUMBA_SUFFIX[kept], 0.0)
        rounded = "value" if kept == dtype else cast_text("numba", kept, dtype, "value")
        texts = {"counted": "", "share": "", "sum": "value + more", "stop": "end", "times": "0"}
        texts["at"] = "at" if self.across == 1 else "at * across"
        if self.shared:
            names["store_int64_0"], names["load_int64_0"] = (
                ("store", "int64", 0),
                ("load", "int64", 0),
            )
            names["scratch_times"] = ("scratch", -(-self.rows // self.parts), "int64")
            names["one"] = ("const", "f64", 1.0)
            narrowed = cast_text("numba", "float64", dtype, "share")  # as a factor of ``add`` is
            texts["stop"], texts["times"] = "begin + 1", "scratch_times()"
            texts["counted"] = _COUNTED.format(index=index)
            texts["share"] = _SHARE.format(narrowed=narrowed)
            texts["sum"] = f"m.fma_{NUMBA_SUFFIX[kept]}(more, share, value)"
        return Printed(_TEXT.format(dtype=dtype, index=index, rounded=rounded, **texts), names)

    @property
    def parts(self) -> int:
        """Those of a shared sum go through all positions one by one, not a thread's together."""
        wanted = max(PARTS // 8, -(-self.rows // COUNTED_ROWS)) if self.shared else PARTS
        return min(wanted, self.rows)

    def compiled(self) -> tuple[LaterByHand, str]:
        """What becomes a callable of work, units, addresses and numbers, and its source."""
        return printed_kernel(self.printed(), 13)

    def finder(self) -> PrintedFinder:
        printed = self.printed()
        return PrintedFinder(printed.source, printed.names, 13, None)

    def arguments(
        self, addresses: Sequence[str], results: Sequence[Result], number: Callable[[Number], str]
    ) -> list[str]:
        """The texts of what a launch is given; of ``addresses`` the last are those of the result
        and, if it asks for one, of what it leaves word in."""
        places, source, under, out, *outside = addresses
        parts = self.parts
        work = 2 * (self.rows + self.count) * self.width
        wraps = self.rows if self.limit is not None and self.limit.wraps else 0
        numbers = [self.rows, self.width, self.count, self.step, wraps, self.left_out, parts]
        numbers.append(self.across)
        texts = [out, places, source, under, *(outside or ["0"])]
        return [str(work), str(parts), *texts, *map(str, numbers)]


def row_sums(call: Call) -> RowSums | None:
    """The sum of rows that ``call`` is, if the kernel is to compute it."""
    rule = _RULES.get(call.name)
    if rule is None:
        return None
    (result,) = call.outputs
    found = rule(bind(call.target, call.arguments, call.keywords), result)
    if found is None or not is_float(found.source.dtype) or result.bits:
        return None
    if found.source.dtype != result.dtype or found.places.dtype not in ("int32", "int64"):
        return None
    tensors = [t for t in found.operands if t is not None]
    if any(isinstance(t.node, Result) and t.node.bits for t in tensors):
        return None
    dense = [t for t in (found.places, found.under) if t is not None]
    if not all(map(views_of_shape, tensors)) or not all(_dense(t.shape, t.strides) for t in dense):
        return None
    return found if _dense(result.shape, result.strides) else None


def _dense(shape: Sequence[Number], strides: Sequence[Number]) -> bool:
    """Whether elements follow each other in memory."""
    step = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if type(n) is not int or n == 0 or n != 1 and stride != step:
            return False
        step *= n
    return True


def _steps(t: Tensor, rank: int) -> tuple[int, int] | None:
    """How far rows of ``t`` are apart, whose numbers its first ``rank`` dimensions count, and the
    elements of a row."""
    if not all(type(n) is int and n > 0 for n in (*t.shape, *t.strides)):
        return None
    width = math.prod(t.shape[rank:])
    across = 1
    if not _dense(t.shape[rank:], t.strides[rank:]):
        long = [s for n, s in zip(t.shape[rank:], t.strides[rank:], strict=True) if n != 1]
        if len(long) != 1:
            return None
        (across,) = long
    outer = [(n, s) for n, s in zip(t.shape[:rank], t.strides[:rank], strict=True) if n != 1]
    for (_, slow), (n, fast) in zip(outer, outer[1:]):
        if slow != n * fast:
            return None
    return outer[-1][1] if outer else width, across


def _embedding(given: dict[str, Any], result: Result) -> RowSums | None:
    source, places = given["grad_output"], given["indices"]
    rows, padding = given["num_weights"], given["padding_idx"]
    shared = bool(given["scale_grad_by_freq"])
    if type(rows) is not int or type(padding) is not int:
        return None
    rank = len(places.shape)
    steps = _steps(source, rank)
    if steps is None or source.shape[:rank] != places.shape:
        return None
    left_out = padding if padding >= 0 else NO_ROW
    sizes = source.shape[-1], math.prod(places.shape), *steps
    return RowSums(places, source, None, rows, *sizes, left_out, shared=shared)


def _index_add(given: dict[str, Any], result: Result) -> RowSums | None:
    under, places, source = given["self"], given["index"], given["source"]
    if given["dim"] not in (0, -len(under.shape)) or given.get("alpha", 1) != 1:
        return None
    if len(under.shape) < 2 or len(places.shape) != 1 or source.shape[1:] != under.shape[1:]:
        return None
    if source.dtype in REDUCED and as_scatter(under, 0, places, 1):
        return None  # sums that are rounded at their end
    return _added(under, places, source, Bounds(under.shape[0], False, *_ROWS_OF["RuntimeError"]))


def _index_put(given: dict[str, Any], result: Result) -> RowSums | None:
    under, (places, *others), source = given["self"], given["indices"], given["values"]
    if not given.get("accumulate") or places is None or any(i is not None for i in others):
        return None
    if source.shape != (*places.shape, *under.shape[1:]):
        return None
    return _added(under, places, source, Bounds(under.shape[0], True, *_ROWS_OF["IndexError"]))


def _added(under: Tensor, places: Tensor, source: Tensor, limit: Bounds) -> RowSums | None:
    steps = _steps(source, len(places.shape))
    if steps is None or not all(type(n) is int for n in (*under.shape, *places.shape)):
        return None
    width, count = math.prod(under.shape[1:]), math.prod(places.shape)
    if under.dtype != source.dtype or not width or not under.shape[0]:
        return None
    sizes = under.shape[0], width, count, *steps
    return RowSums(places, source, under, *sizes, limit=limit)


_ROWS_OF = {error: out_of_bounds(error, 0) for error in ("RuntimeError", "IndexError")}
_RULES: dict[str, Callable[[dict[str, Any], Result], RowSums | None]] = {
    "aten.embedding_dense_backward.default": _embedding,
    "aten.index_add.default": _index_add,
    "aten.index_put.default": _index_put,
    "aten._unsafe_index_put.default": _index_put,
}
