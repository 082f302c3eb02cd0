"""Which of ATen's matrix products run by :mod:`fastpath.cpu.gemm`, and what its kernel is given.

That is a matter of sizes: products of few rows or columns only stream an operand through, which
there is nothing to gain by copying first, unless all is so small that the way into the library
takes longer. And of the processor: the kernel is measured against the library that torch has on x86
on AMD's Zen, for which that library's fastest code is not, and on Intel's with AVX-512, where
products of up to some rows are ahead because what is added to them need not be copied first;
elsewhere it takes what is so small that it is the way into the library that costs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fastpath.cpu import gemm
from fastpath.cpu.attention import Attention, attention
from fastpath.cpu.compile import LaterByHand, compile_product
from fastpath.cpu.rowsums import RowSums, row_sums
from fastpath.handles import views_of_shape
from fastpath.ir.program import Call, Result, Tensor
from fastpath.ir.size import Number, hint

# In multiplications: what is so small that the way into the library costs, on processors that
# were measured and on others, and beyond what the library is ahead, on Intel's and on AMD's where
# vectors have 32 bytes.
TINY, SMALL, MIDDLE, LARGE = 1 << 18, 1 << 21, 1 << 27, 1 << 28
#: Rows from which on it pays, for a matrix that lies along its rows, to copy it: Intel, AVX-512.
MANY_ROWS = 96
LEAST_ROWS, LEAST_COLUMNS, LEAST_TERMS = 12, 8, 8
#: Of one product with fewer: multiplications with those that fill its tiles, and copied elements of
#: the second matrix, up to which the way into the library takes longer than all of it (2 us), as
#: measured on Intel's with vectors of 64 and of 32 bytes.
SHORT, COPIED = 1 << 15, 1 << 12
FEW_TERMS = 4  # with so many and fewer the library is slower, whatever the other sizes
WORK = 16  # multiplications in the time of one element operation
_FIRST = {"aten.mm.default": 0, "aten.bmm.default": 0}
_FIRST |= {"aten.addmm.default": 1, "aten.baddbmm.default": 1}


@dataclass(frozen=True)
class Product:
    """``a @ b + s`` for matrices ``[batch, m, k]`` and ``[batch, k, n]``; ``s`` may be none."""

    a: Tensor
    b: Tensor
    s: Tensor | None
    batch: Number
    m: Number
    n: Number
    k: int
    dtype: str

    #: How many products it is, and what it holds positions against.
    products = 1
    limit = None

    def named(self) -> dict[str, Any]:
        """What the texts of a launch name besides addresses."""
        return {}

    @property
    def operands(self) -> list[Tensor | None]:
        return [self.a, self.b, self.s]

    @property
    def tensors(self) -> list[Tensor]:
        return [t for t in self.operands if t is not None]

    def compiled(self) -> tuple[LaterByHand, str]:
        """What becomes a callable of what :meth:`arguments` gives, and what it is."""
        return compile_product(self.dtype)

    def arguments(
        self, addresses: Sequence[str], results: Sequence[Result], number: Callable[[Number], str]
    ) -> list[str]:
        """The texts of what a launch is given, for operands and the result at ``addresses``;
        ``number`` prints sizes."""
        a, b = (_strides(t, 3) for t in (self.a, self.b))
        s = (0, 0, 0) if self.s is None else _strides(self.s, 3)
        c = (0, 0, *results[0].strides)[-3:]
        batch, m, n = map(number, (self.batch, self.m, self.n))
        panels = f"-({n} // -{gemm.panel(self.dtype)})"
        units = f"{batch} * {gemm.chunks(m)} * {panels}"
        work = f"{batch} * {m} * {n} * {self.k} // {WORK}"
        numbers = [self.m, self.n, self.k, a[1], a[2], b[1], b[2], s[1], c[1]]
        numbers += [a[0], b[0], s[0], c[0]]
        return [work, units, *addresses, *map(number, numbers)]


Known = Product | RowSums | Attention


@functools.cache
def processor() -> str:
    """What LLVM calls it."""
    import llvmlite.binding as llvm

    name: str = llvm.get_host_cpu_name()
    return name


def ahead(count: int, m: int, n: int, k: int, plain: bool) -> bool:
    """Whether the kernel is ahead of the library for ``count`` products of those sizes; ``plain``
    says that the second matrix lies along its rows, in which the library does not copy it where
    the first has few."""
    work, wide = m * n * k, gemm.vector_bytes() == 64
    if processor().startswith("znver"):
        return wide or work <= LARGE
    if not wide:
        return count * work <= SMALL
    return count * work <= TINY or (count == 1 and work <= MIDDLE and (m >= MANY_ROWS or not plain))


def short(m: int, n: int, k: int, dtype: str) -> bool:
    """Whether the kernel is ahead for one product of few rows, columns or terms."""
    if k <= FEW_TERMS and m >= LEAST_ROWS and n >= LEAST_COLUMNS:
        return m * n * k <= LARGE
    least, panel = gemm.tile_heights(gemm.vector_bytes())[-1], gemm.panel(dtype)
    high, wide = -(-m // least) * least, -(-n // panel) * panel
    return high * wide * k <= SHORT and wide * k <= COPIED


def products_of(calls: Iterable[Call]) -> dict[Call, Known]:
    """Those of ``calls`` that kernels are to compute which are written by hand."""
    found = {call: product_of(call) or row_sums(call) or attention(call) for call in calls}
    return {call: known for call, known in found.items() if known is not None}


def product_of(call: Call) -> Product | None:
    """The product that ``call`` is, if the kernel is to compute it."""
    first = _FIRST.get(call.name)
    if first is None or not gemm.vector_bytes():
        return None
    if any(call.keywords.get(name, 1) != 1 for name in ("alpha", "beta")):
        return None
    a, b = call.arguments[first : first + 2]
    s = call.arguments[0] if first else None
    (result,) = call.outputs
    if any(t.dtype not in ("float32", "float64") for t in (a, b)) or result.bits:
        return None
    if len({t.dtype for t in (a, b, *([] if s is None else [s]))}) > 1:
        return None
    *batch, m, n = result.shape
    k = a.shape[-1]
    if type(k) is not int or not k or result.strides[-1] != 1:
        return None
    count, rows, columns = batch[0] if batch else 1, hint(m), hint(n)
    if k < LEAST_TERMS or rows < LEAST_ROWS or columns < LEAST_COLUMNS:
        if hint(count) != 1 or not short(rows, columns, k, a.dtype):
            return None
    elif not ahead(hint(count), rows, columns, k, b.strides[-1] == 1):
        return None
    found = Product(a, b, s, count, m, n, k, a.dtype)
    if any(isinstance(t.node, Result) and t.node.bits for t in found.tensors):
        return None
    if not all(map(views_of_shape, found.tensors)):
        return None
    if not all(1 in _strides(t, 2) for t in (a, b)):
        return None
    if s is not None and (s.shape[-1:] != (n,) or s.strides[-1] != 1):
        return None
    return found


def _strides(t: Tensor, rank: int) -> tuple[Any, ...]:
    """The strides of the last ``rank`` dimensions, 0 along those that the tensor has not."""
    steps = [0 if n == 1 else step for n, step in zip(t.shape, t.strides, strict=True)]
    return tuple([0] * rank + steps)[-rank:]
