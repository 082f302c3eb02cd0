"""What a forward saves that nobody else has: no input, no output, nor a view of one.

Nobody can write to it, so that it needs no check by its version, and costs nothing to keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch.fx import GraphModule, Node


def private_last(tensors: Iterable[Node], shown: Iterable[object]) -> list[Node]:
    """``tensors``, in the end those that share no memory with ``shown``; else in their order."""
    memory = _memory(shown)
    return sorted(tensors, key=lambda node: _memory([node]).isdisjoint(memory))


def private_count(forward: GraphModule, outputs: int, tensors: int) -> int:
    """How many of a forward's saved tensors, which follow its outputs, are private: the last."""
    (output,) = forward.graph.find_nodes(op="output")
    results: Sequence[Node] = output.args[0]
    memory = _memory([*forward.graph.find_nodes(op="placeholder"), *results[:outputs]])
    count = 0
    for node in reversed(results[outputs : outputs + tensors]):
        own = _memory([node])
        if not own or not own.isdisjoint(memory):
            break
        count += 1
    return count


def memory(node: object) -> int | None:
    """What tells the memory of a node's tensor from other memory; None of what has none."""
    t = node.meta.get("val") if isinstance(node, Node) else None
    if not isinstance(t, torch.Tensor) or t.layout is not torch.strided:
        return None
    return t.untyped_storage()._cdata


def _memory(nodes: Iterable[object]) -> set[int]:
    return {each for each in map(memory, nodes) if each is not None}
