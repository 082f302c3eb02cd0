"""Operators that run as they are, between parts of their graph that are compiled.

Recurrent networks that cuDNN computes take all weights as one piece of memory: torch finds that
piece behind the weights' backs, by their addresses. A trace has none. Where cuDNN is switched off,
or has not the dtype (bfloat16), torch composes them of other operators, which are compiled.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

_RECURRENT = (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)
REASON = "cuDNN finds the memory that a recurrent network's weights share by addresses"


def alone(graph: GraphModule) -> list[Node]:
    """The nodes of ``graph`` that are to run as they are."""
    found = []
    for target in _RECURRENT:
        nodes = graph.graph.find_nodes(op="call_function", target=target)
        found += [node for node in nodes if _by_cudnn(node)]
    return found


def _by_cudnn(node: Node) -> bool:
    value = node.all_input_nodes[0].meta.get("example_value")
    return isinstance(value, torch.Tensor) and torch.backends.cudnn.is_acceptable(value)
