"""Where a tensor's elements lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from refcompiler.shapes.known import same


@dataclass(frozen=True)
class Layout:
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int  # elements, in the storage

    @classmethod
    def of(cls, t: torch.Tensor) -> Layout:
        return cls(tuple(t.shape), tuple(t.stride()), t.storage_offset())

    def is_like(self, other: Layout) -> bool:
        """Whether they are equal, whatever the symbols in them are."""
        return (
            same(self.size, other.size)
            and same(self.stride, other.stride)
            and same((self.offset,), (other.offset,))
        )

    @property
    def end(self) -> int:
        """Elements of the storage up to the last one that is reached."""
        if 0 in self.size:
            return self.offset
        steps = zip(self.size, self.stride, strict=True)
        return self.offset + 1 + sum((n - 1) * step for n, step in steps)


def by_sizes(t: torch.Tensor) -> tuple[tuple[int, ...] | None, ...] | None:
    """The strides of ``t``, each as the dimensions of whose sizes it is the product.

    None for a dimension along which all elements are one; None for a tensor with gaps.
    """
    found: list[tuple[int, ...] | None] = [()] * t.dim()
    inner: tuple[int, ...] = ()
    elements = 1
    for stride, d in sorted([(stride, d) for d, stride in enumerate(t.stride())]):
        size = t.shape[d]
        if size == 1:
            continue
        if stride == 0:
            found[d] = None
            continue
        if stride != elements:
            return None
        found[d] = inner
        inner += (d,)
        elements *= size
    return tuple(found)


def strides_of(sizes: Sequence[Any], known: Sequence[Any]) -> list[Any]:
    """Strides that are given as numbers, or as by :func:`by_sizes`."""
    return [
        0 if each is None else math.prod([sizes[d] for d in each]) if type(each) is tuple else each
        for each in known
    ]


def view_of_bits(
    base: torch.Tensor, dtype: torch.dtype, size: Sequence[int], stride: Sequence[int], offset: int
) -> torch.Tensor:
    """The memory of ``base`` read as ``dtype``, ``offset`` such elements after its first.

    It counts writes with ``base``, and autograd does not see it.
    """
    flat = base.detach()
    if dtype.itemsize != flat.itemsize:
        unit = max(dtype.itemsize, flat.itemsize)
        elements = flat.untyped_storage().nbytes() // unit * unit // flat.itemsize
        flat = flat.as_strided((elements,), (1,), 0)
    start = base.storage_offset() * base.itemsize // dtype.itemsize
    return flat.view(dtype).as_strided(size, stride, start + offset)
