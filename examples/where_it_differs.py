"""A model that comes out otherwise compiled: is that wrong, and where does it begin?

In the folder of this file, the same from the command line is `refcompiler locate
where_it_differs:model "torch.linspace(-1, 1, 8)" --backend where_it_differs:backend`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import conformance


def model(x: torch.Tensor) -> torch.Tensor:
    y = torch.exp(x * 2)
    return torch.sigmoid(y).cos()


def backend(
    graph: torch.fx.GraphModule, example_inputs: Sequence[torch.Tensor]
) -> Callable[..., Any]:
    """Computes sigmoid in bfloat16, which nobody asked for."""
    for node in graph.graph.find_nodes(op="call_function", target=torch.sigmoid):
        with graph.graph.inserting_before(node):
            low = graph.graph.call_method("bfloat16", (node.args[0],))
        node.args = (low,)
        with graph.graph.inserting_after(node):
            back = graph.graph.call_method("float", (node,))
        node.replace_all_uses_with(back)
        back.args = (node,)
    graph.recompile()
    return torch.fx.Interpreter(graph).run


def main() -> None:
    found = conformance.locate("where_it_differs:backend")(model, torch.linspace(-1, 1, 8))
    print(found)
    assert found.kind is conformance.Kind.PRECISION and found.differs
    assert found.operator is not None and found.operator.name == "torch.sigmoid"


if __name__ == "__main__":
    main()
