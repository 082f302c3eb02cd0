"""Nodes that do something besides computing their results, and so stay in a graph."""

from __future__ import annotations

from typing import Any

import torch

from refcompiler.aot.draws import draws


def checks(target: Any) -> bool:
    """Whether a node's target only looks at its operands, and raises if they are wrong."""
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return not target._schema.returns and not target._schema.is_mutable


def stays(node: torch.fx.Node) -> bool:
    """Whether a node stays though nothing reads its results."""
    return node.op == "call_function" and (draws(node.target) or checks(node.target))
