"""Parameters that a call of a plan makes before its graph, for those that the program makes in it.

A graph cannot make a leaf that gradients reach from outside. So it gets one as an input, which is
empty; its contents are assigned where the program makes it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from refcompiler.guards.sources import Source


class Fresh(NamedTuple):
    """The key, as a tuple, of a source of kind ``parameter``: the ``number``-th one of a capture.

    ``shape`` is of ints; the strides are those of the contents.
    """

    number: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool


def parameter(fresh: tuple) -> torch.nn.Parameter:
    """What :class:`Fresh` says. Raises RuntimeError where integers are to require gradients."""
    _, shape, dtype, device, requires_grad = fresh
    return torch.nn.Parameter(torch.empty(shape, dtype=dtype, device=device), requires_grad)


def is_new(source: Source | None) -> bool:
    """Whether each call makes what is there, which then is no other thing that it has."""
    return source is not None and source.kind == "parameter"
