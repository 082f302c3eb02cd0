"""What lowering and scheduling may know of a device: these numbers, and nothing else of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """``block``: lanes of a unit where all lanes are independent; ``strip``: where they carry
    accumulators; ``tile``: side of a transposed tile, which has ``narrowest`` rows at least, or
    up to ``flat`` where tiles follow each other along what they turn, 0 if none do;
    ``scratch_bytes``: of a unit's scratch rows, 0 where a unit keeps what it needs again in
    registers, or computes it again. ``unit``: elements of a unit, at least, where there are more
    than lanes; 0 where loops have no innermost one, and lanes are computed all at once.
    ``streams``: whether stores may go past the caches; ``pairs``: whether loops may take two 16-bit
    elements at a time.

    A reduction of at least ``long`` terms (``tall`` where the results are neighbours in memory, and
    not the terms) is split where its results make at most ``workers`` pieces of work, into pieces
    of about ``piece`` terms, or of more where that makes ``enough`` pieces of work: of rows, up to
    ``whole`` terms, which a unit takes all at once. ``neighbours`` are results side by side in
    memory that make one of them.

    ``predicated``: whether to read on a condition costs no more than to read. ``ends``: points up
    to which reductions that nothing waits for share a kernel, 0 for none. ``fused``: whether a
    multiplication and an addition that round once cost one of them, and a quotient many.
    ``in_place``: whether a kernel may write where it reads. ``strips``: bytes of accumulators
    of the strips that a thread takes at once, if they are its own, and ``again`` of what these go
    through, where they do so more than once: what lies side by side in memory is read faster.
    ``rows``: that a unit takes at once where it only adds up what it reads. ``across``: whether
    it is dear to read from line to line of memory, so that it is done once. ``wide``: whether
    eager computes variances in float64. ``recomputed``: what it may cost at most, in additions,
    that two kernels compute the same of a tensor or two, rather than one stores it. ``scatters``:
    whether any units may write, or add, to the same element. ``run``: bytes that lie
    side by side, at least, of what is worth going through again by the unit that reduced it, unless
    it holds ``whole`` of its points or fewer; 0 if it always is. ``slab``: bytes of each of the
    vectors of a table that are read for all positions before others are; 0 for all of them.
    """

    name: str
    block: int
    strip: int
    tile: int
    scratch_bytes: int
    unit: int
    streams: bool
    pairs: bool
    long: int
    tall: int
    workers: int
    piece: int
    neighbours: int
    enough: int | None
    whole: int = 0
    predicated: bool = True
    ends: int = 0
    fused: bool = False
    in_place: bool = False
    strips: int = 0
    again: int = 0
    rows: int = 1
    across: bool = False
    factors: bool = False
    narrowest: int = 16
    flat: int = 0
    wide: bool = False
    recomputed: int = 8
    scatters: bool = False
    run: int = 0
    slab: int = 0

    def pieces(self, length: int, results: int, rows: bool) -> int:
        """How many partial results each of ``results`` reductions of ``length`` terms is made of.

        ``rows``: whether its terms, rather than the results, are neighbours in memory.
        """
        work = results if rows else -(-results // self.neighbours)
        if length < (self.long if rows else self.tall) or work > self.workers:
            return 1
        found = max(2, length // self.piece)
        if self.enough is None:
            return found
        enough = -(-self.enough // work)
        if rows and self.whole:
            enough = max(enough, length // self.whole)
        return max(2, min(found, enough))


# Scratch rows lie on the stack of a thread.
CPU = Target(
    "cpu",
    block=4096,
    strip=256,
    tile=64,
    scratch_bytes=96 * 1024,
    unit=2048,
    streams=True,
    pairs=True,
    long=32_768,
    tall=32_768,
    workers=8,
    piece=8_192,
    neighbours=1,
    enough=None,
    predicated=False,
    in_place=True,
    strips=16 * 1024,
    again=512 * 1024,
    rows=4,
    across=True,
    factors=True,
    narrowest=4,
    flat=256,
    wide=True,
)
# A program of the GPU chooses its own blocks; what it reads twice stays in its registers.
GPU = Target(
    "cuda",
    block=1024,
    strip=512,
    tile=64,
    scratch_bytes=0,
    unit=0,
    streams=False,
    pairs=False,
    long=32_768,
    tall=512,
    workers=256,
    piece=32,
    neighbours=128,
    enough=528,
    whole=16_384,
    ends=1 << 19,
    fused=True,
    in_place=True,
    recomputed=24,
    scatters=True,
    run=32,
    slab=256,
)
