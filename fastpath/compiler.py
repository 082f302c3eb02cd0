"""The backend: ``(graph module, example inputs, **options) -> callable``."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch

from fastpath.decompositions import table
from fastpath.device import Device, device_of
from fastpath.options import Options, options_of
from fastpath.report import Report, remember
from refcompiler.aot import aot_autograd
from refcompiler.aot.inputs import Unsupported
from refcompiler.aot.partition import min_cut_partition
from refcompiler.aot.sizes import compile_for_sizes, number_inputs
from refcompiler.logs import log_of, wanted

_GRAPHS, _CODE, _HINTS = map(log_of, ("aot_graphs", "output_code", "perf_hints"))


def compile_graph(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any
) -> Callable[..., Any]:
    """Compile a torch-level graph for inputs like ``example_inputs`` (real or fake tensors).

    The result takes the graph's inputs and returns what ``gm`` returns, with eager's values,
    dtypes, strides, aliasing, mutations and gradients. It relies on the caller for guards: later
    inputs have to agree with the examples in dtype, size, strides, device and gradient flag. It
    carries ``report`` (a :class:`fastpath.report.Report`), ``source``, ``launches`` (the source of
    what allocates and launches the forward's kernels) and ``kernel_sources``.

    A graph that cannot be compiled is run as it is, and ``report.fallback`` says why. Raises
    ``TypeError`` for an unknown option and ``ValueError`` for a wrong one: see
    :class:`fastpath.options.Options`.
    """
    chosen = options_of({**options.pop("options", {}), **options})
    numbers = number_inputs(example_inputs)
    if numbers:
        compile = functools.partial(compile_graph, options=asdict(chosen))
        return compile_for_sizes(gm, example_inputs, numbers, compile, _crowded)
    kernels = _Kernels(chosen)
    report = kernels.report
    backend = aot_autograd(
        fw_compiler=kernels.forward,
        bw_compiler=kernels.backward,
        decompositions=table(),
        partition_fn=min_cut_partition,
    )
    call: Any = backend(gm, example_inputs)
    if call.fallback is not None:
        report.nodes, report.fallback = len(gm.graph.nodes), call.fallback
    report.guarded = getattr(call, "uncompiled", None)
    call.report = remember(report)
    call.launches = kernels.launches
    call.kernel_sources = kernels.sources
    return call


def _crowded(call: Any, why: str) -> None:
    call.report.crowded += 1
    call.report.reasons.setdefault("sizes", why)


class _Kernels:
    """Compiles the ATen graphs of one program."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.report = Report()
        self.launches = ""  # the source of what launches the forward's kernels
        self.sources: list[str] = []

    def forward(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if self.launches:  # for inputs that overlap
            self.report.overlapping.append(Report())
            return _compiled(graph, self.report.overlapping[-1], self.options)
        call = _compiled(graph, self.report, self.options)
        self.launches = getattr(call, "source", graph.code)
        self.sources += getattr(call, "kernel_sources", ())
        return call

    def backward(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        report = Report()
        self.report.backwards.append(report)
        try:
            return _compiled(graph, report, self.options, boxed=True)  # saved tensors are freed early
        except Unsupported as error:  # too late to run the program as it is
            return _as_it_is(graph, report, str(error))


def _compiled(
    graph: torch.fx.GraphModule, report: Report, options: Options, boxed: bool = False
) -> Callable[..., Any]:
    """The callable of one functional ATen graph, which takes and returns what the graph does.

    ``boxed``: it takes its inputs in a list, which it empties.
    """
    report.nodes = sum(n.op == "call_function" for n in graph.graph.nodes)
    device = device_of(graph)
    try:
        return _launching(graph, report, device, options, boxed)
    except Unsupported:
        raise
    except Exception as error:  # the program is right and ours is not: say so, but go on
        reason = f"internal error (please report it): {type(error).__name__}: {error}"
        warnings.warn(f"fastpath runs a graph uncompiled: {reason}", stacklevel=2)
        return _as_it_is(graph, report, reason)


def _launching(
    graph: torch.fx.GraphModule, report: Report, device: Device, options: Options, boxed: bool
) -> Callable[..., Any]:
    from fastpath.ir.lower import Lowering
    from fastpath.padding import pad_products
    from fastpath.wrapper import Wrapper

    if not device.is_cpu:
        pad_products(graph)
    lowering = Lowering(graph, device.target, device.device, options)
    program = lowering.run()
    written: Any = Wrapper(program, lowering.constants, report, device, boxed).write()
    if wanted(_GRAPHS):
        _GRAPHS.info("ATen graph:\n%s", graph.print_readable(print_output=False))
    if wanted(_CODE):
        parts = [written.source, *written.kernel_sources]
        _CODE.info("wrapper and %d kernels:\n%s", len(parts) - 1, "\n\n".join(parts))
    if report.aten_calls:
        _HINTS.info("left to ATen:\n%s", report)
    return written


def _as_it_is(graph: torch.fx.GraphModule, report: Report, reason: str) -> Callable[..., Any]:
    _HINTS.info("a graph of %d nodes runs uncompiled: %s", report.nodes, reason)
    report.fallback = reason
    return graph.forward
