"""What holds of sizes whatever their symbols are, and what they usually are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from refcompiler.shapes.node import SYMBOLS


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


def environment_of(graph: torch.fx.GraphModule) -> Any:
    """The environment of the symbols that the nodes of a captured graph have; None without any."""
    for node in graph.graph.nodes:
        value = node.meta.get("example_value")
        for each in value if type(value) in (tuple, list) else (value,):
            if type(each) in SYMBOLS:
                return each.node.shape_env
            if isinstance(each, torch.Tensor) and each._has_symbolic_sizes_strides:
                numbers = *each.shape, *each.stride(), each.storage_offset()
                return next(n for n in numbers if type(n) in SYMBOLS).node.shape_env
    return None


#: What a size that depends on data is taken for where nothing says more.
UNKNOWN = 4096


def usual(size: Any) -> int:
    """The value that a size had while the graph was captured; looking at it decides nothing."""
    if isinstance(size, int):
        return size
    expected = getattr(size.node.shape_env, "expected", {})
    found = expected.get(size.node.expr, size.node.hint)
    return UNKNOWN if found is None else int(found)
