"""What holds of sizes whatever their symbols are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx.experimental.symbolic_shapes import statically_known_true


def same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether sizes are equal whatever the symbols are."""
    if len(a) != len(b):
        return False
    for n, m in zip(a, b):
        if isinstance(n, int) and isinstance(m, int):
            if n != m:
                return False
        elif not statically_known_true(n == m):
            return False
    return True
