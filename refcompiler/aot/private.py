"""What a forward saves that nobody else has: no input, no output, nor a view of one.

Nobody can write to it, so that it needs no check by its version, and costs nothing to keep. Nor
does what is saved of the ``data`` of such a tensor: autograd does not count writes there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch.fx import GraphModule, Node

UNCOUNTED = "uncounted"  # in the meta of a node: what is saved of it has no count of writes


def private_last(tensors: Iterable[Node], shown: Iterable[object]) -> list[Node]:
    """``tensors``, in the end those that are private; else in their order."""
    memory = _memory(shown)
    return sorted(tensors, key=lambda node: _is_private(node, memory))


def _is_private(node: Node, others: set[int]) -> bool:
    return UNCOUNTED in node.meta or _memory([node]).isdisjoint(others)


def private_count(forward: GraphModule, outputs: int, tensors: int) -> int:
    """How many of a forward's saved tensors, which follow its outputs, are private: the last."""
    (output,) = forward.graph.find_nodes(op="output")
    results: Sequence[Node] = output.args[0]
    memory = _memory([*forward.graph.find_nodes(op="placeholder"), *results[:outputs]])
    count = 0
    for node in reversed(results[outputs : outputs + tensors]):
        if not _memory([node]) or not _is_private(node, memory):
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
