"""Operators that run as they are, between parts of their graph that are compiled.

Recurrent networks on a device run in the vendor's library, which takes all weights as one piece of
memory: torch finds that piece behind the weights' backs, by their addresses. A trace has none.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

_RECURRENT = (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)
REASON = "the vendor's library finds the memory that a recurrent network's weights share"


def alone(graph: GraphModule) -> list[Node]:
    """The nodes of ``graph`` that are to run as they are."""
    found = []
    for target in _RECURRENT:
        nodes = graph.graph.find_nodes(op="call_function", target=target)
        found += [node for node in nodes if _on_device(node)]
    return found


def _on_device(node: Node) -> bool:
    value = node.all_input_nodes[0].meta.get("example_value")
    return isinstance(value, torch.Tensor) and value.device.type != "cpu"
