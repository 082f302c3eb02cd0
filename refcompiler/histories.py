"""What autograd has recorded of tensors, also of those that stand for others."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.autograd.graph import Node


def nodes_of(outputs: Sequence[torch.Tensor]) -> list[Node]:
    """The nodes that the engine can come to."""
    found: dict[Node, None] = {}
    left = [t.grad_fn for t in outputs if not is_outdated(t)]
    while left:
        node = left.pop()
        if node is None or node in found:
            continue
        found[node] = None
        left += [following for following, _ in node.next_functions]
    return list(found)


def is_outdated(t: torch.Tensor) -> bool:
    """Whether ``t`` is a view, made without gradients, of what was written to since.

    Autograd has an error for whoever asks then what made it.
    """
    try:
        _ = t.grad_fn
    except RuntimeError:
        return True
    return False


def stale(outputs: Sequence[torch.Tensor], first: int = 0) -> bool:
    """Whether a function of the backward has saved what was written to since: it would raise.

    ``first``: the number of autograd's first function that is asked.
    """
    names: dict[type, list[str]] = {}
    for node in nodes_of(outputs):
        kind = type(node)
        if node._sequence_nr() < first:
            continue
        if kind not in names:
            python = isinstance(node, torch.autograd.function.BackwardCFunction)
            found = [name for name in dir(kind) if name.startswith("_raw_saved_")]
            names[kind] = ["saved_tensors"] if python else [n.replace("_raw", "") for n in found]
        try:
            for name in names[kind]:
                getattr(node, name)
        except RuntimeError:
            return True
    return False
