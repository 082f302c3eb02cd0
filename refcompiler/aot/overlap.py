"""Whether inputs that a graph writes to share memory with other inputs, found at each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def span(t: torch.Tensor) -> int:
    """Bytes from the first to the end of the last element (strides are never negative)."""
    if 0 in t.shape:
        return 0
    return t.itemsize * (1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride())))


def disjoint(examples: Sequence[torch.Tensor], written: Sequence[int]) -> Callable[..., bool]:
    """A test of inputs sized like ``examples``: no written one overlaps another.

    Memory spans are compared, so interleaved views count as overlapping: safe, and rare.
    """
    spans = [span(t) for t in examples]
    others = {n: [m for m in range(len(examples)) if m != n] for n in written}

    def check(*inputs: Any) -> bool:
        starts = [t.data_ptr() for t in inputs]
        for n, rest in others.items():
            low, high = starts[n], starts[n] + spans[n]
            for m in rest:
                start = starts[m]
                if start < high and low < start + spans[m]:
                    return False
        return True

    return check
