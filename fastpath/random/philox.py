"""Eager's random numbers on CUDA: Philox words as expressions of an element's place.

Eager's kernels draw with a grid of threads, and a thread's words follow from the generator's seed,
its offset and the thread's number; so any element's number can be computed anywhere, if one knows
how many threads eager has. Sources: torch's ``ATen/native/cuda/DistributionTemplates.h``,
``Dropout.cu`` and ``ATen/core/TransformationHelper.h``, and recorded streams.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from fastpath.ir import expr as E
from fastpath.ir.elementwise import apply
from fastpath.ir.expr import Expr
from fastpath.ir.index import Index
from fastpath.ir.types import DTYPE
from refcompiler.aot.draws import WATCHERS

BLOCK = 256  # threads of eager's blocks
UNROLL = 4  # words that a thread takes at once


@dataclass(frozen=True)
class Grid:
    """The threads that eager draws ``count`` elements with; ``resident`` is how many of them the
    GPU holds at once."""

    count: int
    resident: int

    @property
    def threads(self) -> int:
        return BLOCK * min(self.resident // BLOCK, math.ceil(self.count / BLOCK))

    @property
    def advance(self) -> int:
        """By how much the generator's offset grows."""
        return ((self.count - 1) // (self.threads * UNROLL) + 1) * UNROLL


def resident(device: torch.device) -> int:
    """How many threads the GPU holds at once."""
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count * properties.max_threads_per_multi_processor


def reserving(device: torch.device) -> Callable[[int], tuple[int, int]]:
    """``reserve(advance)``: the default generator's seed, as an int64, and a quarter of its offset,
    which then has grown by ``advance``."""

    def reserve_philox(advance: int) -> tuple[int, int]:
        index = device.index
        generator = torch.cuda.default_generators[index]
        seed, offset = generator.initial_seed(), generator.get_offset()
        generator.set_offset(offset + advance)
        for watch in list(WATCHERS):
            states = (seed, offset), (seed, offset + advance)
            watch("reserve_philox", None, f"cuda:{index}", *states, kept=False)
        return seed - (1 << 64) if seed >> 63 else seed, offset // 4

    return reserve_philox


@dataclass(frozen=True)
class Drawn:
    """What is drawn: an operation on a seed, a counter and a place, and its dtype."""

    op: str
    dtype: str

    def of(self, *operands: Expr) -> Expr:
        return Expr(self.op, operands, self.dtype)


WORD = Drawn("philox", "int64")  # of 32 bits
#: Half of a pair of normal numbers (Box and Muller 1958), which two words of one computation give:
#: the sine's at even places, the cosine's at odd ones. Its functions are the device's fast ones,
#: as in CUDA's ``curand_normal.h``.
NORMAL = Drawn("philox_normal", "float32")
#: The logarithm, by the device's fast function, of the number that :func:`unit` makes of a word; of
#: what is next to 1 the number next to 0, by which no exponential is 0.
LOGARITHM = Drawn("philox_log", "float32")


@dataclass(frozen=True)
class Stream:
    """What a draw reserved: expressions of its seed and of a quarter of its offset."""

    seed: Expr
    counter: Expr
    grid: Grid

    def _word(self, counter: Index, index: Index, word: Index, what: Drawn = WORD) -> Expr:
        at = apply("add", self.counter, E.position(counter))
        return what.of(self.seed, at, E.position(index * 4 + word))

    def strided(self, place: Index, what: Drawn = WORD) -> Expr:
        """Of the element at ``place`` in memory: threads take elements a grid apart."""
        thread, turn = place.mod(self.grid.threads), place.floordiv(self.grid.threads)
        return self._word(turn.floordiv(UNROLL), thread, turn.mod(UNROLL), what)

    def vectorised(self, place: Index, width: int) -> Expr:
        """The same where a thread takes ``width`` elements side by side, as dropout does."""
        if width == 1:
            return self.strided(place)
        group, within = place.floordiv(width), place.mod(width)
        thread, turn = group.mod(self.grid.threads), group.floordiv(self.grid.threads)
        if width > UNROLL:
            turn = turn * (width // UNROLL) + within.floordiv(UNROLL)
        return self._word(turn, thread, within.mod(UNROLL))

    def by_address(self, place: Index, shift: Expr, width: int) -> Expr:
        """The same where each call tells the width's binary logarithm: ``width`` for what begins as
        the allocator's blocks do."""
        usual = apply("eq", shift, E.const(width.bit_length() - 1, "int64"))
        return apply("where", usual, self.vectorised(place, width), self.shifted(place, shift))

    def shifted(self, place: Index, shift: Expr) -> Expr:
        """The same for a width that is known by its binary logarithm, in each call."""
        at = E.position(place)
        group = apply("rshift", at, shift)
        within = apply("sub", at, apply("lshift", group, shift))
        turn = _of("truncdiv", group, self.grid.threads)
        thread = apply("sub", group, _of("mul", turn, self.grid.threads))
        single = apply("eq", shift, E.const(0, "int64"))
        twice = _of("maximum", _of("sub", shift, 2), 0)
        several = apply("add", apply("lshift", turn, twice), _of("rshift", within, 2))
        counter = apply("where", single, _of("rshift", turn, 2), several)
        word = _of("bitwise_and", apply("where", single, turn, within), 3)
        at = apply("add", self.counter, counter)
        return apply("philox", self.seed, at, apply("add", _of("lshift", thread, 2), word))


def _of(op: str, x: Expr, number: int) -> Expr:
    return apply(op, x, E.const(number, "int64"))


def unit(word: Expr) -> Expr:
    """In (0, 1], in float32."""
    scaled = apply("mul", E.cast(word, "float32"), E.const(2.0**-32, "float32"))
    return apply("add", scaled, E.const(2.0**-33, "float32"))


def _number(value: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """On the CPU, whatever is the default."""
    return torch.tensor(value, dtype=dtype, device="cpu")


def uniform(word: Expr, low: float, high: float, dtype: str) -> Expr:
    """In [low, high), as ``dtype``, whose upper bound eager moves to the lower one."""
    u = unit(word)
    if (low, high) != (0.0, 1.0):
        # Eager's bounds, and their difference, are numbers of the result's dtype.
        first, last = (_number(bound, DTYPE[dtype]) for bound in (low, high))
        span, low = (last - first).item(), first.item()
        # CUDA's compiler contracts the two operations.
        u = apply("fma", u, E.const(span, "float32"), E.const(low, "float32"))
    value = E.cast(E.cast(u, dtype), "float32")
    ends = (E.cast(E.cast(E.const(bound, "float32"), dtype), "float32") for bound in (low, high))
    lower, upper = ends
    return apply("where", apply("eq", value, upper), lower, value)


def normal(drawn: Expr, mean: float, std: float) -> Expr:
    """As CUDA's compiler contracts the product and the sum."""
    mean, std = (_number(n).item() for n in (mean, std))
    return apply("fma", drawn, E.const(std, "float32"), E.const(mean, "float32"))


def exponential(logarithm: Expr, rate: float) -> Expr:
    """With the quotient first, as eager has it, in float32."""
    return apply("mul", E.const((-1.0 / _number(rate)).item(), "float32"), logarithm)


def below(word: Expr, p: float) -> Expr:
    """Whether the number is below ``p``, which eager rounds to float32."""
    return apply("lt", unit(word), E.const(_number(p).item(), "float32"))


def within(word: Expr, count: int, low: int) -> Expr:
    """``low + word % count``."""
    return apply("add", apply("remainder", word, E.const(count, "int64")), E.const(low, "int64"))


def dropout_width(itemsize: int, count: int, alignment: int) -> int:
    """How many elements a thread of eager's dropout takes at once; ``alignment`` in bytes."""
    width = max(1, min(16, alignment) // itemsize)
    while count % width:
        width //= 2
    return width


def dropout_scale(p: float) -> float:
    """What eager multiplies by: of float32, like the probability that it is the inverse of."""
    kept = _number(1.0 - p)
    return (1.0 / kept).item()


def reserving_for_dropout(device: torch.device) -> Callable[..., tuple[int, int, int]]:
    """``reserve(advance, count, input)``: as :func:`reserving`, and the binary logarithm of how
    many of ``count`` elements a thread takes at once, which depends on the input's address."""
    reserve = reserving(device)

    def reserve_dropout(advance: int, count: int, given: torch.Tensor) -> tuple[int, int, int]:
        address = given.data_ptr()
        width = dropout_width(given.itemsize, count, address & -address)
        return (*reserve(advance), width.bit_length() - 1)

    return reserve_dropout
