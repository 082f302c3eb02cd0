"""The gradient of an embedding's rows, by a kernel that sorts nothing.

Eager sorts the positions, to add up the rows of one. Where there are few, each program looks
through all of them instead: the first that has its position adds up the rows of those that have it
too, in their order, in float32, and rounds the sum once; the others have nothing to do. So no sum
depends on which program is first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from fastpath.gpu.compile import Pending, _job, _key, launch, machine_code
from fastpath.gpu.printer import BEGIN, Printed
from fastpath.gpu.tiling import power_above
from fastpath.handles import views_of_shape
from fastpath.ir.index import contiguous_strides
from fastpath.ir.program import Call, Result, Tensor
from specs.scalars import TRITON_TYPE

NAME = "aten.embedding_dense_backward.default"
MOST, WIDEST = 8192, 4096  # positions, each of which is compared with each; elements of a row
AT_ONCE, ROWS = 256, 16  # positions that a program compares at once, and rows that it adds
_TEXT = """\
@triton.jit
def kernel_embedding(p0, p1, p2):
{begin}
    i = tl.program_id(0)
    own = tl.load(p0 + i)
    earlier = 0
    for first in range(0, i, {at_once}):
        n = first + tl.arange(0, {at_once})
        earlier += tl.sum((tl.load(p0 + n, mask=n < i, other=-1) == own).to(tl.int32))
    if (earlier == 0) & (own >= 0) & (own != {left_out}):
        x = tl.arange(0, {block})[None, :]
        total = tl.zeros([{block}], tl.float32)
        for first in range(i // {at_once} * {at_once}, {count}, {at_once}):
            n = first + tl.arange(0, {at_once})
            found = tl.load(p0 + n, mask=(n >= i) & (n < {count}), other=-1) == own
            if tl.sum(found.to(tl.int32)) > 0:
                for part in range(0, {at_once}, {rows}):
                    k = first + part + tl.arange(0, {rows})
                    those = tl.load(p0 + k, mask=(k >= i) & (k < {count}), other=-1) == own
                    if tl.sum(those.to(tl.int32)) > 0:
                        places = k[:, None].to(tl.int64) * {width} + x
                        mask = those[:, None] & (x < {width})
                        row = tl.load(p1 + places, mask=mask, other=0).to(tl.float32)
                        total += tl.sum(row, 0)
        at = tl.arange(0, {block})
        tl.store(p2 + own * {width} + at, total.to(tl.{dtype}), mask=at < {width})
"""


class Embedding(Pending):
    """``run(positions, rows, result)``, of addresses: adds ``count`` rows of ``width`` elements up
    by their positions, into a result that is zero. Rows at ``left_out`` are passed over."""

    def __init__(self, dtype: str, count: int, width: int, left_out: int, device: int):
        block = power_above(width)
        text = _TEXT.format(
            begin=BEGIN,
            at_once=AT_ONCE,
            rows=ROWS,
            count=count,
            width=width,
            block=block,
            left_out=left_out,
            dtype=TRITON_TYPE.get(dtype, dtype),
        )
        self.printed = Printed("kernel_embedding", f"\n\n{text}", count, 8 if block > 256 else 4)
        self.dtypes, self.device = ("int64", dtype, dtype), device

    def key(self) -> tuple[Any, ...]:
        return _key(self.printed, self.dtypes, self._capability(), True, self.device, ())

    def job(self) -> dict[str, Any]:
        return _job(self.printed, self.dtypes, self._capability(), True)

    def _capability(self) -> int:
        major, minor = torch.cuda.get_device_capability(self.device)
        return 10 * major + minor

    def run(self) -> Callable[..., None]:
        def make(aligned: bool) -> Any:
            given = self.printed, self.dtypes, self._capability(), aligned
            return machine_code(*given, device=self.device)

        with torch.cuda.device(self.device):  # into which it is loaded
            return launch(make, 3, self.printed.programs, self.device)


def embedding_of(call: Call, device: int) -> tuple[tuple[Tensor, Tensor], Embedding] | None:
    """Positions and rows of the gradient that ``call`` is, and what adds them up, if this is the
    faster way."""
    if call.name != NAME:
        return None
    rows, positions, _, left_out, by_frequency = call.arguments
    numbers = (*rows.shape, *rows.strides, *positions.shape, *positions.strides, left_out)
    if any(type(n) is not int for n in numbers) or by_frequency:
        return None
    (result,) = call.outputs
    contiguous = [(t.shape, t.strides) for t in (rows, positions, result)]
    if any(tuple(strides) != contiguous_strides(shape) for shape, strides in contiguous):
        return None
    if any(isinstance(t.node, Result) and t.node.bits for t in (rows, positions)):
        return None
    count, width = math.prod(positions.shape), rows.shape[-1]
    kinds = positions.dtype == "int64" and rows.dtype in ("float32", "float16", "bfloat16")
    if not kinds or not 0 < count <= MOST or not 0 < width <= WIDEST:
        return None
    if not views_of_shape(rows) or not views_of_shape(positions):
        return None
    return (positions, rows), Embedding(rows.dtype, count, width, left_out, device)
