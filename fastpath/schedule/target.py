"""What lowering and scheduling may know of a device: these numbers, and nothing else of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """``block``: lanes of a unit where all lanes are independent; ``strip``: where they carry
    accumulators; ``tile``: side of a transposed tile; ``scratch_bytes``: of a unit's scratch rows,
    0 where a unit keeps what it needs again in registers, or computes it again.
    ``streams``: whether stores may go past the caches; ``pairs``: whether loops may take two 16-bit
    elements at a time.
    """

    name: str
    block: int
    strip: int
    tile: int
    scratch_bytes: int
    streams: bool
    pairs: bool


# Scratch rows lie on the stack of a thread.
CPU = Target(
    "cpu", block=4096, strip=256, tile=64, scratch_bytes=96 * 1024, streams=True, pairs=True
)
# A program of the GPU chooses its own blocks; what it reads twice stays in its registers.
GPU = Target("cuda", block=1024, strip=512, tile=64, scratch_bytes=0, streams=False, pairs=False)
