"""Nodes that do something besides computing their results, and so stay in a graph."""

from __future__ import annotations

from typing import Any

import torch

from refcompiler.aot.draws import drawing


def checks(target: Any) -> bool:
    """Whether a node's target only looks at its operands, and raises if they are wrong."""
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return not target._schema.returns and not target._schema.is_mutable


#: Whose derivatives, of complex results, refuse a loss that depends on a vector's phase.
_OF_VECTORS = frozenset(
    {
        torch.ops.aten.linalg_eig.default,
        torch.ops.aten._linalg_eigh.default,
        torch.ops.aten._linalg_svd.default,
    }
)


def derivative_checks(node: torch.fx.Node) -> bool:
    """Whether the derivative of a node's target looks at gradients, and raises if they are wrong.

    Autograd leaves such checks out where it is traced.
    """
    if node.target not in _OF_VECTORS:
        return False
    return any(t.is_complex() for t in node.meta["val"] if isinstance(t, torch.Tensor))


def stays(node: torch.fx.Node) -> bool:
    """Whether a node stays though nothing reads its results."""
    return drawing(node) or (node.op == "call_function" and checks(node.target))
