"""Operators whose kernels ask whether gradients are recorded, and keep for the backward only then.

A compiled forward runs with gradients off, since its graph says all that a backward needs; these
have to see them on.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule

_ASKING = frozenset({torch.ops.aten.mkldnn_rnn_layer.default})


def as_recording(op: Any, *args: Any) -> Any:
    """``op(*args)`` as below autograd in eager, where gradients are on."""
    with torch._C._AutoDispatchBelowAutograd(), torch.enable_grad():
        return op(*args)


def record(graph: GraphModule) -> None:
    """Let the graph's operators that ask for it see gradients on; it is to be recompiled."""
    for node in graph.graph.nodes:
        if node.target in _ASKING:
            node.args, node.target = (node.target, *node.args), as_recording
