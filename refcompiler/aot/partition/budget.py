"""Which results are worth their memory: a knapsack of bytes against the work of computing again."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.fx import Node

from refcompiler.shapes.known import usual

_STEPS = 256  # of the memory, in which the knapsack counts
_WORK_OF_A_BYTE = 20.0  # floating-point operations that a processor does while it moves one


def worth_saving(
    nodes: Sequence[Node], sizes: Sequence[float], memory: float, there: Collection[Node]
) -> set[Node]:
    """Those of ``nodes`` to keep in ``memory`` bytes, so that the least work is done again.

    ``there``: what each can be computed from; the way from there to a node is its work.
    """
    step = memory / _STEPS
    if step <= 0:
        return set()
    best = [0.0] * (_STEPS + 1)  # work that is saved, by steps of memory that are used
    taken: list[list[bool]] = []
    weights = [math.ceil(size / step) for size in sizes]
    values = [work(node, there) for node in nodes]
    for value, weight in zip(values, weights, strict=True):
        row = [False] * (_STEPS + 1)
        for used in range(_STEPS, weight - 1, -1):
            with_it = best[used - weight] + value
            if with_it > best[used]:
                best[used], row[used] = with_it, True
        taken.append(row)
    kept: set[Node] = set()
    used = _STEPS
    for node, weight, row in reversed(list(zip(nodes, weights, taken, strict=True))):
        if row[used]:
            kept.add(node)
            used -= weight
    # Steps are rounded up: what still fits, the most valuable first.
    left = memory - sum(size for node, size in zip(nodes, sizes, strict=True) if node in kept)
    for _, size, node in sorted(zip(values, sizes, nodes), key=lambda entry: -entry[0]):
        if node not in kept and size <= left:
            kept.add(node)
            left -= size
    return kept


def work(node: Node, there: Collection[Node]) -> float:
    """Floating-point operations, and bytes in their measure, to compute ``node`` again."""
    found: set[Node] = set()
    stack = [node]
    total = 0.0
    while stack:
        top = stack.pop()
        if top in found or top.op != "call_function" or (top in there and top is not node):
            continue
        found.add(top)
        total += _work_of(top)
        stack += top.all_input_nodes
    return total


def _work_of(node: Node) -> float:
    value = node.meta.get("val")
    results = value if isinstance(value, (tuple, list)) else [value]
    tensors = [t for t in results if isinstance(t, torch.Tensor)]
    moved = sum(math.prod(map(usual, t.shape)) * t.itemsize for t in tensors)
    return _WORK_OF_A_BYTE * moved + _operations(node, value)


def _operations(node: Node, value: Any) -> float:
    # Here, as only a budget asks: it imports Triton, whatever device there is.
    from torch.utils.flop_counter import flop_registry

    count = flop_registry.get(getattr(node.target, "overloadpacket", None))
    if count is None:
        return 0.0
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    return float(usual(count(*args, **kwargs, out_val=value)))
