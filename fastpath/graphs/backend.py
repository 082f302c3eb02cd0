"""The backend ``cudagraphs``: eager's launches as device graphs, over AOT autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.graph import _BoxedCodeGen

from fastpath.device import device_of
from fastpath.graphs import replayed
from fastpath.graphs.launches import Launches
from fastpath.report import Report, remember
from refcompiler.aot import aot_autograd
from refcompiler.logs import log_of

_HINTS = log_of("perf_hints")


def cudagraphs(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile a torch-level graph: its ATen operators, recorded once and replayed.

    Results are eager's, bit for bit. A graph that is not on one CUDA device runs as it is, and
    ``report.why_ungraphed`` of the result (a :class:`fastpath.report.Report`) says why.
    """
    report = Report()

    def compiled(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return _recorded(graph, report, boxed=False)

    def backward(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        report.backwards.append(Report())
        return _recorded(graph, report.backwards[-1], boxed=True)

    call: Any = aot_autograd(fw_compiler=compiled, bw_compiler=backward)(gm, example_inputs)
    report.nodes, report.fallback = len(gm.graph.nodes), call.fallback
    report.guarded = getattr(call, "uncompiled", None)
    call.report = remember(report)
    return call


# A graph is for sizes that are known.
cudagraphs.takes_symbols = False  # type: ignore[attr-defined]


def _recorded(graph: torch.fx.GraphModule, report: Report, boxed: bool) -> Callable[..., Any]:
    device = device_of(graph)
    nodes = graph.graph.nodes
    if boxed:
        graph.graph.set_codegen(_BoxedCodeGen())
        graph.recompile()
    forward = graph.forward

    def call(*inputs: Any) -> Any:
        return forward(*inputs)

    call._boxed_call = boxed  # type: ignore[attr-defined]
    if device.is_cpu:
        report.why_ungraphed = "the graph is for the CPU, which has no device graphs"
        _HINTS.info("a graph runs as it is: %s", report.why_ungraphed)
        return call
    names = [str(n.target) for n in nodes if n.op == "placeholder"]
    draws = any(torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ()) for n in nodes)
    kept = [t for t in graph.state_dict().values() if isinstance(t, torch.Tensor)]
    call.recordable = Launches(  # type: ignore[attr-defined]
        call, names, boxed, opaque=set(names), draws=draws, constants=kept
    )
    return replayed(call, graph, device, report)
