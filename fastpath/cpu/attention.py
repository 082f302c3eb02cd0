"""Which of ATen's attention runs here: scores, softmax and the product with them, chunk by chunk.

The library's kernel for the CPU goes through the keys in blocks and corrects behind each what it
has summed up. Here a chunk of rows has all its scores at once, in memory of the thread that the
caches hold, and both products are those of :mod:`fastpath.cpu.gemm`. Rows of more scores than fit
are left to ATen. What a row without any key gives is as in ATen's ``FlashAttentionKernel.cpp``, and
what one of NaN alone gives: 0 too, if no vector of its scores is whole, since then numbers are
compared one by one there, of which none is greater than the least.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fastpath.cpu import gemm
from fastpath.cpu.compile import LaterByHand, printed_kernel
from fastpath.cpu.launcher import Code
from fastpath.cpu.printer import Printed
from fastpath.handles import views_of_shape
from fastpath.ir.lower import bind
from fastpath.ir.program import Call, Result, Tensor
from fastpath.ir.size import Number
from specs.scalars import NUMBA_SUFFIX

SCORES = 1 << 17  # elements of a chunk's scores: what a thread has of the caches, and of its stack
LEAST_ROWS = 36  # of a chunk: with fewer, copying keys and values takes longer than multiplying
WORK = 16  # multiplications in the time of one element operation

_NUMBERS = (
    *("heads", "rows", "keys", "width", "chunk", "chunks"),
    *("q_b", "q_h", "q_m", "k_b", "k_h", "k_n", "v_b", "v_h", "v_n"),
    *("mask_b", "mask_h", "mask_m", "out_b", "out_h", "out_m", "sums_b", "sums_h", "sums_m"),
)
_GIVEN = ("q", "k", "v", "mask", "out", "sums", "multiply", "bits", *_NUMBERS)
_SCORED = {  # scores = q @ k.t()
    "a": "q + {bytes} * (batch * q_b + head * q_h + first * q_m)",
    "b": "k + {bytes} * (batch * k_b + head * k_h)",
    "c": "scores",
    "m": "count",
    "n": "seen",
    "k": "width",
    "a_m": "q_m",
    "a_k": "1",
    "b_k": "1",
    "b_n": "k_n",
    "c_m": "keys",
}
_WEIGHED = {  # out = scores @ v
    "a": "scores",
    "b": "v + {bytes} * (batch * v_b + head * v_h)",
    "c": "out + {bytes} * (batch * out_b + head * out_h + first * out_m)",
    "m": "count",
    "n": "width",
    "k": "seen",
    "a_m": "keys",
    "a_k": "1",
    "b_k": "v_n",
    "b_n": "1",
    "c_m": "out_m",
}
_TEXT = """\
def kernel(addresses, begin, end):
{loads}
    scores = scratch_{dtype}()
    given = scratch_int64()
    scale = m.cast_f64_{kind}(float_of(bits))
    for unit in range(begin, end):
        each = unit // chunks
        first = (unit - each * chunks) * chunk
        batch = each // heads
        head = each - batch * heads
        count = min(chunk, rows - first)
        seen = {seen}
{scored}
        for row in range(count):
            line = row * keys
            limit = {limit}
            most = low
            over = batch * mask_b + head * mask_h + (first + row) * mask_m
            for n in range(limit):
                value = load_{dtype}_0(scores, line + n) * scale{masked}
                store_{dtype}_0(scores, line + n, value)
                most = m.{greater}_{kind}(most, value)
            base = zero if most == low else most
            total = zero
            for n in range(limit):
                value = m.exp_{kind}(load_{dtype}_0(scores, line + n) - base){blank}
                store_{dtype}_0(scores, line + n, value)
                total = add_reordered(total, value)
            if sums:
                place = batch * sums_b + head * sums_h + (first + row) * sums_m
                added = m.log_{kind}(one if total == zero else total)
                store_{dtype}_2(sums, place, base + added)
            part = one if total == zero else one / total
            for n in range(limit):
                store_{dtype}_0(scores, line + n, load_{dtype}_0(scores, line + n) * part)
            for n in range(limit, seen):
                store_{dtype}_0(scores, line + n, zero)
{weighed}
"""


@dataclass(frozen=True)
class Attention:
    """``softmax(q @ k.t() * scale + mask) @ v`` for matrices ``[batch, heads, rows, width]`` and
    ``[batch, heads, keys, width]``; ``causal``: a row sees the keys up to its own number.

    ``sums``: whether somebody wants the logarithms of what the exponentials of rows add up to.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    scale: float
    causal: bool

    #: How many products it is, and what it holds positions against.
    products = 2
    limit = None

    @property
    def operands(self) -> list[Tensor | None]:
        return [self.q, self.k, self.v, self.mask]

    @property
    def chunk(self) -> int:
        """Rows that a thread takes at once, in whole tiles."""
        rows = gemm.tile_heights(gemm.vector_bytes())[0]
        return min(SCORES // self.k.shape[2], gemm.CHUNK) // rows * rows

    @property
    def one_by_one(self) -> bool:
        """Whether ATen looks for a row's greatest score without vectors."""
        width = 64 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 32
        return self.mask is None and self.k.shape[2] < width // gemm.BYTES[self.q.dtype]

    def printed(self) -> Printed:
        dtype = self.q.dtype
        kind, size = NUMBA_SUFFIX[dtype], gemm.BYTES[dtype]
        names: dict[str, tuple[object, ...]] = {
            f"{what}_{dtype}_{n}": (what, dtype, n) for what in ("load", "store") for n in range(3)
        }
        names["store_int64_3"] = "store", "int64", 3
        names[f"scratch_{dtype}"] = "scratch", SCORES, dtype
        names["scratch_int64"] = "scratch", len(gemm.ARGUMENTS), "int64"
        for name, value in (("low", -math.inf), ("zero", 0.0), ("one", 1.0)):
            names[name] = "const", kind, value
        text = _TEXT.format(
            loads="\n".join(
                f"    {name} = address(addresses, {n})" for n, name in enumerate(_GIVEN)
            ),
            scored=_multiplied(_SCORED, dtype),
            weighed=_multiplied(_WEIGHED, dtype),
            dtype=dtype,
            kind=kind,
            seen="min(keys, first + count)" if self.causal else "keys",
            limit="min(seen, first + row + 1)" if self.causal else "seen",
            masked=f" + load_{dtype}_1(mask, over + n)" if self.mask is not None else "",
            greater="fmax" if self.one_by_one else "maximum",
            blank=" if most != low else zero" if self.one_by_one else "",
        ).replace("{bytes}", str(size))
        return Printed(text, names)

    def compiled(self) -> tuple[LaterByHand, str]:
        """What becomes a callable of work, units, addresses and numbers, and its source."""
        return printed_kernel(self.printed(), len(_GIVEN))

    def named(self) -> dict[str, LaterByHand]:
        """What the texts of a launch name."""
        dtype = self.q.dtype
        return {f"gemm_{dtype}": LaterByHand(lambda: Code(gemm.kernel(dtype)))}

    def arguments(
        self, addresses: Sequence[str], results: Sequence[Result], number: Callable[[Number], str]
    ) -> list[str]:
        """The texts of what a launch is given; ``addresses``: of operands, result and sums."""
        batch, heads, rows, width = self.q.shape
        keys = self.k.shape[2]
        chunk = min(self.chunk, rows)
        chunks = -(-rows // chunk)
        units = batch * heads * chunks
        work = batch * heads * rows * keys * (2 * width + WORK) // WORK
        (bits,) = struct.unpack("q", struct.pack("d", self.scale))
        numbers = [heads, rows, keys, width, chunk, chunks]
        for t in (self.q, self.k, self.v):
            numbers += _steps(t.shape, t.strides)
        numbers += [0] * 3 if self.mask is None else _steps(self.mask.shape, self.mask.strides)
        for result in results:
            numbers += _steps(result.shape, result.strides)
        numbers += [0] * (len(_NUMBERS) - len(numbers))
        return [
            str(work),
            str(units),
            *addresses,
            f"gemm_{self.q.dtype}",
            str(bits),
            *map(str, numbers),
        ]


def _multiplied(numbers: dict[str, str], dtype: str) -> str:
    """The lines that run a product, of one unit of work for each panel."""
    lines = [
        f"store_int64_3(given, {n}, {numbers.get(name, '0')})"
        for n, name in enumerate(gemm.ARGUMENTS)
    ]
    panel = gemm.panel(dtype)
    lines.append(f"call_kernel(multiply, given, 0, ({numbers['n']} + {panel - 1}) // {panel})")
    return "\n".join(f"        {line}" for line in lines)


def _steps(shape: Sequence[Number], strides: Sequence[Number]) -> list[Any]:
    """Strides along batch, heads and rows, 0 where there is one: of dimensions that end there, or
    with the one behind them."""
    steps = [0 if n == 1 else step for n, step in zip(shape, strides, strict=True)]
    return steps if len(steps) == 3 else ([0, 0] + steps)[-4:-1]


def attention(call: Call) -> Attention | None:
    """The attention that ``call`` is, if the kernel is to compute it."""
    if call.name != "aten._scaled_dot_product_flash_attention_for_cpu.default":
        return None
    if not gemm.vector_bytes():
        return None
    given = bind(call.target, call.arguments, call.keywords)
    q, k, v, mask = (given[name] for name in ("query", "key", "value", "attn_mask"))
    tensors = [t for t in (q, k, v, mask) if t is not None]
    if given["dropout_p"] or q.dtype not in gemm.BYTES or len({t.dtype for t in tensors}) > 1:
        return None
    if any(isinstance(t.node, Result) and t.node.bits for t in tensors):
        return None
    if not all(map(views_of_shape, tensors)):
        return None
    if not all(type(n) is int for t in tensors for n in (*t.shape, *t.strides)):
        return None
    if any(len(t.shape) != 4 or 0 in t.shape or t.strides[-1] != 1 for t in (q, k, v)):
        return None
    batch, heads, rows, width = q.shape
    keys = k.shape[2]
    if k.shape != (batch, heads, keys, width) or v.shape != k.shape:
        return None
    if mask is not None and not _over(mask, (batch, heads, rows, keys)):
        return None
    if given["is_causal"] and mask is not None or call.outputs[0].strides[-1] != 1:
        return None
    scale = given["scale"]
    scale = 1 / math.sqrt(width) if scale is None else scale
    if type(scale) not in (int, float):
        return None
    found = Attention(q, k, v, mask, float(scale), bool(given["is_causal"]))
    if rows == 1:  # each key and value is read once: to lay them anew takes longer
        return None
    return found if found.chunk >= min(LEAST_ROWS, rows) else None


def _over(mask: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether ``mask`` broadcasts to ``shape``, with its last dimension as it lies."""
    if len(mask.shape) not in (2, 4) or mask.shape[-1] != shape[-1]:
        return False
    whole = (1,) * (4 - len(mask.shape)) + tuple(mask.shape)
    fits = all(n in (1, wide) for n, wide in zip(whole, shape, strict=True))
    return fits and (mask.strides[-1] == 1 or shape[-1] == 1)
