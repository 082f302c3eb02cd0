"""Products by classes of rows (:mod:`fastpath.ir.oddrows`): the vendor's batch, and a kernel for
what lies beside it.

Of a result with odd rows the kernel multiplies the columns that the batch leaves out. Of an operand
with odd rows it adds up the terms that the batch leaves out, into the result, to which the batch
then adds its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fastpath.gpu.build import ALIGNMENT
from fastpath.gpu.compile import Pending, _job, _key, launch, machine_code
from fastpath.gpu.printer import BEGIN, Printed
from fastpath.ir.oddrows import Classes, by_columns, by_terms, classes_of
from fastpath.ir.program import Tensor
from fastpath.ir.types import DTYPE

ROWS, STEP = 32, 64  # of a program, and of a step along the terms: measured on an H200
COLUMNS = 128  # of a program that adds up terms
WARPS, AHEAD = 4, 3


class ByClasses(Pending):
    """The product of two operands that lie as ``left`` and ``right`` do.

    ``way``: :func:`~fastpath.ir.oddrows.by_columns`, or ``by_terms``.
    """

    def __init__(self, way: Any, left: Tensor, right: Tensor, device: torch.device):
        (self.m, self.k), self.n = left.shape, right.shape[1]
        self.dtype, self.way, self.device = left.dtype, way, device
        step = ALIGNMENT // DTYPE[self.dtype].itemsize
        length = self.n if way is by_columns else self.k
        found = classes_of(self.m, length, step)
        assert found is not None and way in (by_columns, by_terms)
        self.classes: Classes = found
        self.strides = left.strides[0], right.strides[1 if way is by_columns else 0]
        self.printed = self.text()
        self.dtypes = (self.dtype,) * 3

    def key(self) -> tuple[Any, ...]:
        return _key(self.printed, self.dtypes, self._capability(), True, self.device.index, ())

    def job(self) -> dict[str, Any]:
        return _job(self.printed, self.dtypes, self._capability(), True)

    def _capability(self) -> int:
        major, minor = torch.cuda.get_device_capability(self.device)
        return 10 * major + minor

    # -- the kernel ------------------------------------------------------------------------------

    def text(self) -> Printed:
        """``p0`` and ``p1`` are the operands, ``p2`` is the result."""
        lines, programs = self._columns() if self.way is by_columns else self._terms()
        name = f"kernel_{self.way.__name__}"
        body = "".join(f"    {line}\n" for line in lines)
        source = f"\n\n@triton.jit\ndef {name}(p0, p1, p2):\n{BEGIN}\n{body}"
        return Printed(name, source, programs, WARPS, stages=AHEAD)

    def _columns(self) -> tuple[list[str], int]:
        c, kind = self.classes, self.dtype
        count = c.first + c.beside  # columns that some row needs: those in front, and those behind
        block = max(16, 1 << (count - 1).bit_length())
        inside = "" if self.k % STEP == 0 else f" & (terms < {self.k})"
        left, right = self.strides
        lines = [
            f"rows = (tl.program_id(0) * {ROWS} + tl.arange(0, {ROWS}))[:, None].to(tl.int64)",
            f"x = tl.arange(0, {block})[None, :]",
            f"columns = tl.where(x < {c.first}, x, x + {c.width - c.first}).to(tl.int64)",
            f"begin = rows % {c.count} * {c.shift}",
            f"beside = (columns < begin) | (columns >= begin + {c.width})",
            f"total = tl.zeros([{ROWS}, {block}], tl.float32)",
            f"for first in range(0, {self.k}, {STEP}):",
            f"    terms = (first + tl.arange(0, {STEP}))[None, :]",
            f"    a = tl.load(p0 + rows * {left} + terms, mask=(rows < {self.m}){inside}, other=0)",
            f"    terms = (first + tl.arange(0, {STEP}))[:, None]",
            f"    b = tl.load(p1 + columns * {right} + terms,"
            f" mask=(columns < {self.n}){inside}, other=0)",
            "    total = tl.dot(a, b, total)",
            f"mask = (rows < {self.m}) & (columns < {self.n}) & beside",
            f"tl.store(p2 + rows * {self.n} + columns, total.to(tl.{kind}), mask=mask)",
        ]
        return lines, -(-self.m // ROWS)

    def _terms(self) -> tuple[list[str], int]:
        c, kind = self.classes, self.dtype
        block = max(16, 1 << (c.beside - 1).bit_length())
        high, wide = -(-self.m // c.count // ROWS), -(-self.n // COLUMNS)
        left, right = self.strides
        lines = [
            "program = tl.program_id(0)",
            f"columns = (program % {wide} * {COLUMNS} + tl.arange(0, {COLUMNS}))[None, :]",
            f"number = program // {wide} % {c.count}",
            f"place = program // {wide * c.count} * {ROWS} + tl.arange(0, {ROWS})",
            f"rows = (place * {c.count} + number)[:, None].to(tl.int64)",
            f"x = tl.arange(0, {block})",
            f"terms = tl.where(x < number * {c.shift}, x, x + {c.width}).to(tl.int64)",
            "across, down = terms[None, :], terms[:, None]",
            f"a = tl.load(p0 + rows * {left} + across,"
            f" mask=(rows < {self.m}) & (across < {self.k}), other=0)",
            f"b = tl.load(p1 + down * {right} + columns,"
            f" mask=(down < {self.k}) & (columns < {self.n}), other=0)",
            f"mask = (rows < {self.m}) & (columns < {self.n})",
            f"tl.store(p2 + rows * {self.n} + columns, tl.dot(a, b).to(tl.{kind}), mask=mask)",
        ]
        return lines, high * wide * c.count

    # -- the call --------------------------------------------------------------------------------

    def run(self) -> Callable[..., Any]:
        """The product of two tensors, as :attr:`way` is."""
        index = self.device.index

        def make(aligned: bool) -> Any:
            given = self.printed, self.dtypes, self._capability(), aligned
            return machine_code(*given, device=index)

        with torch.cuda.device(index):  # into which it is loaded
            beside = launch(make, 3, self.printed.programs, index)
        return self.bound(beside)

    def bound(self, beside: Callable[[int, int, int], None]) -> Callable[..., torch.Tensor]:
        """The product, by the vendor's batch and ``beside``, which takes three addresses."""
        c, (m, k, n), way, strides = self.classes, (self.m, self.k, self.n), self.way, self.strides
        empty, strided = torch.empty, torch.as_strided
        device, dtype = self.device, DTYPE[self.dtype]
        of_left, of_right = strides
        left_size, right_size = (c.count, m // c.count, k), (c.count, k, c.width)
        left_strides = of_left, c.count * of_left, 1
        right_strides: tuple[int, ...] = c.shift * of_right, 1, of_right
        out_size, out_strides = (c.count, m // c.count, c.width), (n + c.shift, c.count * n, 1)
        if way is by_terms:
            left_size, right_size = (c.count, m // c.count, c.width), (c.count, c.width, n)
            left_strides = of_left + c.shift, c.count * of_left, 1
            right_strides = c.shift * of_right, of_right, 1
            out_size, out_strides = (c.count, m // c.count, n), (n, c.count * n, 1)
        adds = way is by_terms
        along = 1 if way is by_columns else 0

        def product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            first, second = left.data_ptr(), right.data_ptr()
            if (first | second) % ALIGNMENT or (left.stride(0), right.stride(along)) != strides:
                plainly: torch.Tensor = way(left, right)
                return plainly
            out = empty((m, n), dtype=dtype, device=device)
            beside(first, second, out.data_ptr())
            a, b = strided(left, left_size, left_strides), strided(right, right_size, right_strides)
            into = strided(out, out_size, out_strides)
            if adds:
                torch.baddbmm(into, a, b, out=into)
            else:
                torch.bmm(a, b, out=into)
            return out

        return product
