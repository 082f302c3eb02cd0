"""What holds of sizes whatever their symbols are, and what they usually are."""

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


#: What a size that depends on data is taken for where nothing says more.
UNKNOWN = 4096


def usual(size: Any) -> int:
    """The value that a size had while the graph was captured; looking at it decides nothing."""
    if isinstance(size, int):
        return size
    expected = getattr(size.node.shape_env, "expected", {})
    found = expected.get(size.node.expr, size.node.hint)
    return UNKNOWN if found is None else int(found)
