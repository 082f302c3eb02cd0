"""How a scheduled kernel is laid over programs of the GPU: which axes, in which blocks.

A program takes a block of the *kept* points (all outer axes and the lanes, flattened, the fastest
last) and, where the kernel reduces, blocks of the *reduced* points one after the other, or all of
them at once if they fit into its registers (``persistent``). A kernel with transposed tiles takes
squares of its lane and its tile axis instead. Where each call chooses the numbers of points, blocks
are laid for those of the call that is compiled for, and are right for any.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastpath.gpu.kinds import kinds_of
from fastpath.gpu.moments import one_pass
from fastpath.gpu.online import online
from fastpath.gpu.rows import VECTOR, common_beginning
from fastpath.gpu.words import MOST_PIECE, WORDS, draws, piece_of, stripe_of
from fastpath.ir.expr import Expr, inside
from fastpath.ir.index import Axis, Division, Index
from fastpath.ir.size import Number, hint, known
from fastpath.schedule.kernel import Accumulate, Kernel, Stage, Store, itemsize

# Measured on an H200, as are the shapes below: what is nearest to the speed of a copy.
LANES = 32  # threads of a warp
PERSISTENT = 16_384  # reduced points that one program may hold in its registers
WINDOW = 4  # elements that are read one by one at each point, at least, for what follows
STRIDED = 2  # points of a thread that loads them one by one
VECTORS = 32  # bytes that a thread of a kernel without reductions loads from each buffer
LEAST_ROW, MOST_ROW = 512, 4096  # points of a row of which a program has a block
MOST_OUTSIDE = 0.25  # of its points
QUOTIENTS = 2  # of other axes' numbers, at least
SECTOR = 32  # bytes that memory moves at once
LINE = 128  # bytes of a row that a program of column sums takes
HELD_LINE, HELD_WARPS = 64, 8  # the same where it holds them all, and its warps at most
HELD_EXPONENTIALS = 4  # the same of a softmax
ROWS = 16  # that it adds up at a time, or half as many, or twice
SHORT = 512  # rows that are few
LARGE = 1 << 25  # points whose elements come from memory, rather than out of the cache
FEW = 264  # programs that are too few: two for each multiprocessor
A_THREAD = 32  # points of a thread that reduces rows
WORD = 4  # bytes of elements of which a thread that reduces long rows has half as many points
HALVED = 4096  # points of a row of narrower elements, stored as such, of which it has as few
MOST_WARPS = 16
A_SCAN, A_POINT = 8, 4  # points of a thread that scans rows of words, and registers for each
SERIES = {"i0", "i0e", "i1", "i1e"}  # functions by series of some thirty terms
DRAWING = 4  # warps of a program that draws
DRAWING_ALONE = 2  # the same, where it reads nothing and draws no normal numbers
TOGETHER = 2  # warps of a program that takes one of two ways for all its points
LONG = 4096  # points of a row from which on it is laid by vectors
LOOPED = 2048  # points of a row that a program which loops takes at a time
A_LOOP = 16  # points of its threads
A_MOMENT_LOOP, MOMENT_WARPS = 8, 8  # the same of one that adds up moments, and its warps
A_LONGER_LOOP = 8  # the same of one of 16 warps, which goes through a longer row
AGAIN_WARPS = 16  # of a program that goes through its row more than once
AGAIN_LOOP = 8  # points of its threads
# Of rows of so many points a program has more warps, and in a softmax of so many bytes: else the
# cache would hold the rows of so many programs no more. Rows that are laid by vectors, and moments,
# need registers for that. A multiprocessor has as many as two such programs need, if each thread
# has a vector of each row's block.
LONGER, LONGER_BYTES, LONGER_WARPS, LONGER_REGISTERS = 32_768, 64_000, 32, 32
WIDER_WARPS, WIDER_LOOP = 32, 4  # the same, where it stores wider elements than it reads
SHARING = 1056  # rows, of which a program takes two that read the same weights
SHARED = 4096  # points of these, at most
OWN = 2  # elements of their own that these read at each point, at most
SQUARE = 256  # bytes of a row of a tile that is transposed
MOST_SIDE = 128  # elements of it


@dataclass(frozen=True)
class Tiling:
    """``x``: the kept axes, slowest first; ``y``: the tile axis; ``r``: the reduced axes;
    ``outer``: axes of which a program has one value each.

    ``x_block``, ``y_block`` and ``r_block`` are powers of two; 1 where there is nothing to block.
    ``start`` and ``group``: where a row begins by which its vectors are laid, and the elements of
    the largest one, where rows do not begin or end with vectors (:mod:`fastpath.gpu.vectors`).
    ``stripe``: how far apart the four pieces lie that a block is made of, where random words are
    shared by points that lie so far apart (:mod:`fastpath.gpu.words`).
    ``registers``: of a thread at most, where more would keep programs from running beside others.
    """

    x: tuple[Axis, ...]
    y: Axis | None
    r: tuple[Axis, ...]
    x_block: int
    y_block: int
    r_block: int
    persistent: bool
    warps: int
    outer: tuple[Axis, ...] = ()
    start: Index | None = None
    group: int = 1
    stripe: int = 0
    registers: int | None = None

    @property
    def x_points(self) -> Any:
        return math.prod(a.extent for a in self.x)

    @property
    def r_points(self) -> Any:
        return math.prod(a.extent for a in self.r)

    @property
    def piece(self) -> int:
        """Points of each of the four pieces of a block, where it is made of these."""
        return self.x_block // WORDS

    @property
    def programs(self) -> int:
        """How many there are in the call that is compiled for."""
        blocks = blocks_of(self.x_points, self.x_block)
        if self.stripe:
            blocks = -(-self.x_points // (WORDS * self.stripe)) * (self.stripe // self.piece)
        high = blocks_of(self.y.extent, self.y_block) if self.y is not None else 1
        return math.prod(hint(a.extent) for a in self.outer) * high * blocks

    def programs_text(self, number: Callable[[Number], str]) -> str:
        """How many there are, as Python; ``number`` prints sizes."""
        if not self.sized:
            return str(self.programs)
        factors = [number(a.extent) for a in self.outer]
        factors.append(blocks_text(self.x_points, self.x_block, number))
        if self.y is not None:
            factors.append(blocks_text(self.y.extent, self.y_block, number))
        return " * ".join(factors)

    @property
    def sized(self) -> bool:
        """Whether each call has other numbers of points."""
        axes = (*self.outer, *self.x, *self.r, *((self.y,) if self.y is not None else ()))
        return not known(*(a.extent for a in axes))

    @property
    def whole_blocks(self) -> int:
        """How many of the first ones have no point outside, of points whose number is known."""
        if self.stripe:
            return int(self.x_points // (WORDS * self.stripe) * (self.stripe // self.piece))
        return int(self.x_points // self.x_block)


def blocks_of(points: Number, block: int) -> int:
    """How many blocks they are, in the call that is compiled for."""
    return -(-hint(points) // block)


def blocks_text(points: Number, block: int, number: Callable[[Number], str]) -> str:
    """How many blocks they are, as Python and as Triton."""
    if known(points):
        return str(blocks_of(points, block))
    return f"(({number(points)} + {block - 1}) // {block})"


def power_above(n: int) -> int:
    """The least power of two that is not below ``n``."""
    return 1 << max(n - 1, 0).bit_length()


def tiling(kernel: Kernel) -> Tiling:
    if kernel.tile is not None:
        return _square(kernel)
    x = (*kernel.outer, *((kernel.lane,) if kernel.lane is not None else ()))
    nests = {stage.axes for stage in kernel.stages if stage.axes}
    assert len(nests) <= 1, "a kernel reduces over one set of axes"
    if not nests:
        return _pointwise(kernel, x)
    (r,) = nests
    return _columns(kernel, x, r) if keeps_lanes(kernel) else _rows(kernel, x, r)


def keeps_lanes(kernel: Kernel) -> bool:
    """Whether neighbours in memory belong to different results."""
    return kernel.lane is not None and hint(kernel.lane.extent) > 1


def _least(kernel: Kernel) -> int:
    """Bytes of an element, where it has the fewest."""
    return min(itemsize(b.dtype) for b in kernel.buffers)


def _pointwise(kernel: Kernel, x: tuple[Axis, ...]) -> Tiling:
    points = _count(x)
    stripe = stripe_of(kernel, x)
    if stripe:
        piece = piece_of(stripe, _vector_of_each(kernel))
        warps = DRAWING if _reads(kernel) or _draws_normals(kernel) else DRAWING_ALONE
        return Tiling(x, None, (), WORDS * piece, 1, 1, True, warps, stripe=stripe)
    a_thread = min(16, VECTORS // _least(kernel))
    if _strides(kernel, x):
        a_thread = min(a_thread, STRIDED)
    elif _adds_apart(kernel, x):  # what a warp reads, and adds at once, are whole lines then
        a_thread = 1
    elif _waits_for_itself(kernel):
        a_thread *= 2
    elif kinds_of(kernel, x):  # what goes to and fro between threads is a vector of each at most
        a_thread = VECTOR // _least(kernel)
    elif row := _row_of_each(kernel, x, a_thread):
        warps = max(1, row // (a_thread * LANES))
        return Tiling(x[-1:], None, (), row, 1, 1, True, warps, x[:-1])
    most = (TOGETHER if _agrees(kernel) else 4) * LANES * a_thread
    block = min(most, max(LANES, power_above(points)))
    return Tiling(x, None, (), block, 1, 1, True, max(1, block // (a_thread * LANES)))


def _row_of_each(kernel: Kernel, x: tuple[Axis, ...], a_thread: int) -> int:
    """The block of a program that has points of one row alone: where places take several quotients
    of the other axes' numbers, which it then computes once. 0 where that is not so, or where too
    many of its threads' points would lie outside, or rows begin between halves of vectors."""
    if len(x) < 2 or not known(*(a.extent for a in x)) or draws(kernel):
        return 0
    length, size = x[-1].extent, _least(kernel)
    if length < LEAST_ROW or length * size % (VECTOR // 2) or _of_others(kernel, x[-1]) < QUOTIENTS:
        return 0
    block = power_above(length)
    if block > MOST_ROW:
        block = MOST_ROW // 2
    # A thread has its points by vectors, one for each so many; what of these no row has is no work.
    together = block // a_thread * (VECTOR // size // (2 if length * size % VECTOR else 1))
    rest = length % block
    points = length - rest + -(-rest // together) * together
    return block if points - length <= MOST_OUTSIDE * points else 0


def _of_others(kernel: Kernel, last: Axis) -> int:
    """How many quotients places take of the numbers of other axes than the last."""
    found: set[Division] = set()
    stack = [e.args[1] for g in kernel.stages for e in (*g.loads(), *g.guarded())]
    while stack:
        for atom in stack.pop().terms:
            if isinstance(atom, Division) and atom not in found:
                stack.append(atom.dividend)
                if last not in atom.dividend.axes():
                    found.add(atom)
    return len(found)


def _adds_apart(kernel: Kernel, x: tuple[Axis, ...]) -> bool:
    """Whether what neighbours give is added each at a place of its own."""
    return any(
        s.adds and x and any(x[-1] in value.axes() for value in s.index.lookups())
        for s in kernel.scattered()
    )


def _waits_for_itself(kernel: Kernel) -> bool:
    """Whether a value is a long series, each step of which waits for the one before: with more
    points, a thread has more of them on their way."""
    values = inside(s.value for stage in kernel.stages for s in stage.statements)
    return any(e.op in SERIES and e.dtype == "float32" for e in values)


def _vector_of_each(kernel: Kernel) -> int:
    """Points of which each thread of a program that draws has a vector, if it reads memory too."""
    return DRAWING * LANES * VECTOR // _least(kernel) if _reads(kernel) else MOST_PIECE


def _reads(kernel: Kernel) -> bool:
    return any(stage.loads() or stage.guarded() for stage in kernel.stages)


def _draws_normals(kernel: Kernel) -> bool:
    """Whether it draws what each thread needs many registers for."""
    return any(e.op == "philox_normal" for e in draws(kernel))


def _agrees(kernel: Kernel) -> bool:
    """Whether sines and cosines are computed together, by one of two ways for all of a program's
    points: its threads wait for each other to agree on it (:func:`maths.sine_and_cosine`)."""
    found = {*inside(s.value for stage in kernel.stages for s in stage.statements)}
    sines = (e for e in found if e.op == "sin" and e.dtype == "float32")
    return any(Expr("cos", e.args, e.dtype) in found for e in sines)


def _strides(kernel: Kernel, x: tuple[Axis, ...]) -> bool:
    """Whether each point reads several elements that do not lie side by side with its neighbours',
    those of a window, say: then no thread can load several at once, and each load of a warp touches
    the more lines the more points a thread computes."""
    read = [e for stage in kernel.stages for e in (*stage.loads(), *stage.guarded())]
    steps = [e.args[1].coefficient(x[-1]) for e in read if x and not e.args[1].lookups()]
    return sum(step is not None and abs(hint(step)) > 1 for step in steps) >= WINDOW


def _square(kernel: Kernel) -> Tiling:
    lane, tile = kernel.lane, kernel.tile
    assert lane is not None and tile is not None
    side = min(MOST_SIDE, SQUARE // _least(kernel))
    x_block, y_block = (min(side, power_above(hint(a.extent))) for a in (lane, tile))
    warps = max(1, min(MOST_WARPS, x_block * y_block // (16 * LANES)))
    return Tiling((lane,), tile, (), x_block, y_block, 1, True, warps, kernel.outer)


def _rows(kernel: Kernel, x: tuple[Axis, ...], r: tuple[Axis, ...]) -> Tiling:
    """Neighbours in memory are reduced together: a program takes whole rows, short ones several."""
    width, rows = _count(r), _count(x)
    if not known(*(a.extent for a in r)):
        return _rows_of_any_length(kernel, x, r, width)
    laid = width >= LONG and rows > 1 and not kernel.in_place  # whose ends would be read again
    common = common_beginning(kernel, r) if laid else None
    start, group = common or (None, 1)
    if width > PERSISTENT:
        registers = None
        warps, points = _once_along(kernel, width) if rows > FEW else (MOST_WARPS, A_LOOP)
        if _passes(kernel) > 1:  # so few rows at a time that the cache still holds them
            size = max(itemsize(b.dtype) for b in kernel.buffers if not b.written)
            warps, points = AGAIN_WARPS, AGAIN_LOOP
            if _widens(kernel):  # neighbours are stored by neighbours, each a vector
                warps, points = WIDER_WARPS, WIDER_LOOP
            elif start is None and one_pass(kernel.stages) is None:
                soft = online(kernel.stages) is not None and width * size >= LONGER_BYTES
                if width >= LONGER or soft:
                    warps = LONGER_WARPS
                    points = AGAIN_LOOP if width >= LONGER else min(AGAIN_LOOP, VECTOR // size)
                    registers = LONGER_REGISTERS if points * size == VECTOR else None
        block = warps * points * LANES
        return Tiling(x, None, r, 1, 1, block, False, warps, (), start, group, 0, registers)
    r_block = power_above(width + group - 1)
    x_block = min(max(1, A_THREAD * LANES // r_block), power_above(rows)) if start is None else 1
    # Threads for the points that are there, which may be little more than half of the block.
    points = r_block if width > r_block * 3 // 4 else r_block // 2
    # A few programs only wait for memory: more threads do so at a time.
    a_thread = A_THREAD if rows > FEW else A_THREAD // 4
    if rows > FEW and _in_halves(kernel, width, r_block):
        a_thread = A_THREAD // 2
    warps = max(1, min(MOST_WARPS, x_block * points // (a_thread * LANES)))
    if x_block == 1 and start is None and rows >= SHARING and _weighted(kernel, x, r):
        x_block = 2 if r_block <= SHARED else 1
    registers = None
    if rows > FEW and _scans_words(kernel):
        points = x_block * r_block
        warps = max(1, min(MOST_WARPS, points // (A_SCAN * LANES)))
        a_thread = points // (warps * LANES)
        registers = A_POINT * a_thread if warps == MOST_WARPS and a_thread < A_THREAD else None
    return Tiling(
        x, None, r, x_block, 1, r_block, True, max(1, warps), (), start, group, 0, registers
    )


def _once_along(kernel: Kernel, width: int) -> tuple[int, int]:
    """The warps of a program that goes through a long row once, and the points of its threads.

    The longer a row takes, the more of the device waits for the last ones: fewer rows are on their
    way at a time where each has more warps. What adds up moments keeps much for each point.
    """
    if one_pass(kernel.stages) is not None:
        return MOMENT_WARPS, A_MOMENT_LOOP
    if width >= LONGER:
        return MOST_WARPS, A_LONGER_LOOP
    return LOOPED // (A_LOOP * LANES), A_LOOP


def _in_halves(kernel: Kernel, width: int, r_block: int) -> bool:
    """Whether threads have half as many points: of long rows of words, and of rows that are stored
    in elements as narrow as those that are read."""
    if width >= LONG and _least(kernel) >= WORD:
        return True
    if kernel.running():
        return False
    stores = (s for g in kernel.stages if g.axes for s in g.statements if isinstance(s, Store))
    return r_block == HALVED and any(stores) and not _narrows(kernel) and not _widens(kernel)


def _scans_words(kernel: Kernel) -> bool:
    """Whether it is one scan of words into words: its threads wait for each other again and again,
    so that there should be many programs, with few points to a thread and registers for these."""
    running = [
        s for g in kernel.stages for s in g.statements if isinstance(s, Accumulate) and s.running
    ]
    return len(running) == 1 and {itemsize(b.dtype) for b in kernel.buffers} == {WORD}


def _rows_of_any_length(
    kernel: Kernel, x: tuple[Axis, ...], r: tuple[Axis, ...], width: int
) -> Tiling:
    """Each call has another length: what does not fit into a block is gone through in several."""
    r_block = min(power_above(width), LOOPED)
    x_block = max(1, A_THREAD * LANES // (4 * r_block))
    warps = max(1, x_block * r_block // (A_LOOP * LANES))
    return Tiling(x, None, r, min(x_block, power_above(_count(x))), 1, r_block, False, warps)


def _count(axes: tuple[Axis, ...]) -> int:
    """How many points there are, in the call that is compiled for."""
    return math.prod(hint(a.extent) for a in axes)


def _weighted(kernel: Kernel, x: tuple[Axis, ...], r: tuple[Axis, ...]) -> bool:
    """Whether all rows read some elements alike, and few of their own: registers hold two rows."""
    read = {e.args for stage in kernel.stages if stage.axes for e in stage.loads()}
    axes = [index.axes() for _, index in read if index.axes() & {*r}]
    own = sum(bool(found & {*x}) for found in axes)
    return own < len(axes) and own <= OWN and not _narrows(kernel)


def _narrows(kernel: Kernel) -> bool:
    """Whether narrower elements are stored than are read, of which a thread's vector has more: with
    more than a row to a program, values would go from thread to thread."""
    read = [itemsize(b.dtype) for b in kernel.buffers if not b.written]
    return bool(read) and _least(kernel) < min(read)


def _widens(kernel: Kernel) -> bool:
    """Whether a row that is stored has wider elements than one that is read."""
    stores = [s for stage in kernel.stages if stage.axes for s in stage.statements]
    sizes = {b.name: itemsize(b.dtype) for b in kernel.buffers}
    wide = [sizes[s.buffer] for s in stores if isinstance(s, Store)]
    return bool(wide) and max(wide) > _least(kernel)


def _passes(kernel: Kernel) -> int:
    """How often a program that takes one row in blocks reads it."""
    passes = sum(bool(stage.axes and stage.loads()) for stage in kernel.stages)
    return passes - (online(kernel.stages) is not None or one_pass(kernel.stages) is not None)


def _accesses(kernel: Kernel) -> int:
    """Of each element that a program goes through for the first time, what is read and written."""
    stage = _first_pass(kernel)
    stores = sum(isinstance(s, Store) for s in stage.statements)
    return len(stage.loads()) + len(stage.guarded()) + stores


def _first_pass(kernel: Kernel) -> Stage:
    (stage, *_) = (g for g in kernel.stages if g.axes)
    return stage


def _columns(kernel: Kernel, x: tuple[Axis, ...], r: tuple[Axis, ...]) -> Tiling:
    """Neighbours in memory are different results: rows of blocks are added up one on another."""
    width, results = _count(r), _count(x)
    held = PERSISTENT // power_above(width)
    if _passes(kernel) > 1 and known(*(a.extent for a in r)) and held * _least(kernel) >= SECTOR:
        # Each would come from memory again: of so many programs the cache does not hold all.
        x_block = min(power_above(results), held, HELD_LINE // _least(kernel))
        if results > FEW * x_block:
            most = HELD_EXPONENTIALS if _adds_exponentials(kernel) else HELD_WARPS
            warps = max(1, min(most, x_block * power_above(width) // (A_THREAD * LANES)))
            return Tiling(x, None, r, x_block, 1, power_above(width), True, warps)
    x_block = min(power_above(results), LINE // min(4, _least(kernel)))
    if results <= FEW * x_block and x_block > LANES:
        x_block = LANES
    rows, a_thread = _rows_at_once(kernel, results <= FEW * x_block, width, width * results)
    r_block = min(power_above(width), rows)
    warps = max(1, min(8, x_block * r_block // (a_thread * LANES)))
    persistent = width <= r_block and known(*(a.extent for a in r))
    return Tiling(x, None, r, x_block, 1, r_block, persistent, warps)


def _adds_exponentials(kernel: Kernel) -> bool:
    """Whether it is a softmax, or begins like one: what its threads compute and tell each other
    takes as long as memory does."""
    adding = [s for g in kernel.stages for s in g.statements if isinstance(s, Accumulate)]
    return any(s.kind == "sum" and any(e.op == "exp" for e in inside([s.value])) for s in adding)


def _rows_at_once(kernel: Kernel, few: bool, width: int, points: int) -> tuple[int, int]:
    """How many rows a program of column sums adds up at a time, and the points of its threads."""
    if few:  # programs, which only wait for memory: for more of it at a time
        rows = 4 * ROWS
        return rows, 16 if width <= rows else 8
    narrow = _least(kernel) < WORD
    if one_pass(kernel.stages) is not None:
        return ROWS, 32 if narrow and width > SHORT else 16
    stage = _first_pass(kernel)
    loads = stage.loads()
    if len(loads) > 1:
        sums = sum(isinstance(s, Accumulate) for s in stage.statements)
        of_points = sum(kernel.lane in e.args[1].axes() for e in loads)
        if of_points < len(loads) and narrow and sums == of_points == 2:
            return 2 * ROWS, 64  # what is a row's own threads would tell each other
        if not any(isinstance(s, Store) for s in stage.statements):
            return 2 * ROWS, 16
        return (ROWS if points > LARGE else 2 * ROWS), 32
    if _accesses(kernel) > 1:
        return 2 * ROWS, 32
    return ROWS // 2, 16 if width <= SHORT else 4
