"""``fill_diagonal_`` in a trace, by a view of the diagonal.

Torch composes it of ``as_strided``, and what is written through that cannot be led back to what the
matrix is a view of.
"""

from __future__ import annotations

from typing import Any

import torch

from refcompiler.aot.inputs import Runner


def fill_diagonal_(
    runner: Runner, target: Any, t: torch.Tensor, fill_value: Any, wrap: bool = False
) -> torch.Tensor:
    """One of several diagonals below each other (``wrap``) is torch's matter, as one of more
    dimensions is."""
    if t.dim() != 2 or not all(t.shape) or (wrap and t.shape[0] > t.shape[1] + 1):
        return t.fill_diagonal_(fill_value, wrap)
    t.diagonal().fill_(fill_value)
    return t
