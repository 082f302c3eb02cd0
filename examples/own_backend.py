"""A backend of one's own, and what the conformance suite says about it.

In the folder of this file, the same from the command line is
`refcompiler conform --backend own_backend:backend --only counter --only cnn`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.fx.experimental.proxy_tensor import make_fx

import conformance


def backend(
    graph: torch.fx.GraphModule, example_inputs: Sequence[torch.Tensor]
) -> Callable[..., Sequence[torch.Tensor]]:
    """Break the captured graph down to ATen operators, and drop those whose result nobody uses.

    On fakes: tracing on the inputs themselves would update a model's buffers once too often, which
    the suite then reports as wrong values of a buffer.
    """
    lowered = make_fx(graph, tracing_mode="fake")(*example_inputs)
    lowered.graph.eliminate_dead_code()
    lowered.recompile()
    return lowered


def main() -> None:
    report = conformance.run("own_backend:backend", only=["counter", "cnn"])
    for result in report.failures:
        print(f"{result.verdict.kind}: {result.case.id}")
    print(f"{len(report.results)} cases, {report.comparisons} comparisons:", end=" ")
    print("conforms" if report.conforms else f"{len(report.failures)} failures")
    assert report.conforms


if __name__ == "__main__":
    main()
