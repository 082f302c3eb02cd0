"""The backend: ``(graph module, example inputs, **options) -> callable``."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from fastpath.agreement import FirstCall
from fastpath.decompositions import table
from fastpath.device import Device, device_of
from fastpath.held import held_of, mark_held
from fastpath.images import both_channels_last, channels_last
from fastpath.ir.size import Undecided
from fastpath.masked import sum_masked
from fastpath.options import Options, named, options_of, tell_unused
from fastpath.report import Report, remember
from fastpath.subexpressions import merge_equal
from fastpath.tracing import Stages, record
from refcompiler.aot import aot_autograd
from refcompiler.aot.inputs import Unsupported
from refcompiler.aot.partition import min_cut_partition
from refcompiler.aot.sizes import compile_for_sizes, number_inputs
from refcompiler.logs import log_of, wanted

MOST_PROGRAMS = 4  # of one graph, for sizes that the first is not made for
LARGE = 20  # nodes of a graph that may have kernels enough to be compiled beside each other
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
    ``TypeError`` for an unknown option and ``ValueError`` for a wrong one, or for a ``mode`` that
    there is not: see :func:`fastpath.options.options_of`.
    """
    mode = options.pop("mode", None)
    chosen = options_of({**options.pop("options", {}), **options}, mode)
    again = functools.partial(compile_graph, options=named(chosen))

    def by_sizes(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return compile_for_sizes(gm, inputs, number_inputs(inputs), again, _crowded)

    if _on_gpu(example_inputs):
        if len(gm.graph.nodes) > LARGE:
            from fastpath.gpu import server

            server.start()  # while the graph is traced
        if chosen.cudagraphs and number_inputs(example_inputs):  # which a recording would keep
            return by_sizes(gm, example_inputs)
    kernels = _Kernels(chosen)
    report = kernels.report
    backend = aot_autograd(
        fw_compiler=kernels.forward,
        bw_compiler=kernels.backward,
        inference_compiler=kernels.inference,
        decompositions=table() if chosen.numerics == "fast" else {},
        partition_fn=kernels.partition,
        without_symbols=by_sizes,
        eager_draws=True,
    )
    call: Any = backend(gm, example_inputs)
    if hasattr(call, "report"):  # of the program for these sizes
        return call
    if call.fallback is not None:
        report.nodes, report.fallback = len(gm.graph.nodes), call.fallback
    report.guarded = getattr(call, "uncompiled", None)
    call.report = remember(report)
    call.launches = kernels.launches
    call.kernel_sources = kernels.sources
    return call


def _on_gpu(inputs: Sequence[Any]) -> bool:
    return any(isinstance(t, torch.Tensor) and t.is_cuda for t in inputs)


def _crowded(call: Any, why: str) -> None:
    call.report.crowded += 1
    call.report.reasons.setdefault("sizes", why)


class _Kernels:
    """Compiles the ATen graphs of one program."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.lays_out = options.numerics == "fast"
        self.report = Report()
        self.launches = ""  # the source of what launches the forward's kernels
        self.sources: list[str] = []
        self.stages = Stages()

    def inference(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        _or_as_it_is(merge_equal, graph)
        if self.lays_out and device_of(graph).is_cpu:
            _or_as_it_is(channels_last, graph)
        return self.forward(graph, inputs)

    def partition(
        self, joint: torch.fx.GraphModule, inputs: Sequence[Any], *, num_fwd_outputs: int
    ) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule]:
        _or_as_it_is(sum_masked, joint)
        parts = min_cut_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs)
        for part in parts:
            _or_as_it_is(merge_equal, part)
        mark_held(*parts, num_fwd_outputs)
        if self.lays_out and not keeps_steps(joint) and device_of(joint).is_cpu:
            _or_as_it_is(both_channels_last, *parts, num_fwd_outputs)
        return parts

    def forward(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if self.launches:  # for inputs that overlap
            self.report.overlapping.append(Report())
            with self.stages.stage("overlapping"):
                return _compiled(graph, self.report.overlapping[-1], self.options)
        with self.stages.stage("forward"):
            call = _compiled(graph, self.report, self.options)
        self.launches = getattr(call, "source", graph.code)
        self.sources += getattr(call, "kernel_sources", ())
        return call

    def backward(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        report = self.report.of_backward()
        try:
            _or_as_it_is(sum_masked, graph)  # of one that was traced later
            with self.stages.stage("backward"):
                # Boxed, so that saved tensors are freed early.
                return _compiled(graph, report, self.options, boxed=True)
        except Unsupported as error:  # too late to run the program as it is
            return _as_it_is(graph, report, str(error))


def _compiled(
    graph: torch.fx.GraphModule, report: Report, options: Options, boxed: bool = False
) -> Callable[..., Any]:
    """The callable of one functional ATen graph, which takes and returns what the graph does.

    ``boxed``: it takes its inputs in a list, which it empties.
    """
    report.nodes = sum(n.op == "call_function" for n in graph.graph.nodes)
    if keeps_steps(graph):
        return _as_it_is(graph, report, "a loop whose steps are kept for its gradients")
    device = device_of(graph)
    tell_unused(options, device.device.type)
    try:
        return _launching(graph, report, device, options, boxed)
    except Unsupported:
        raise
    except Undecided as error:  # a program for any sizes; one for each can be made
        raise Unsupported(f"the sizes leave open {error}") from error
    except Exception as error:  # the program is right and ours is not: say so, but go on
        return _as_it_is(graph, report, _told(error))


def keeps_steps(graph: torch.fx.GraphModule) -> bool:
    """Whether sizes are how often a loop runs. The graph runs then, as an ATen graph with a
    backward, not what it was traced of: torch's own gradients of such a loop lack what goes
    through what is carried, if that asks for none to begin with.
    """
    kept = torch.ops.higher_order.while_loop_stack_output
    return any(node.target is kept for node in graph.graph.nodes)


def _told(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        reason = f"the package {package} is not installed: pip install {package}"
    else:
        reason = f"internal error (please report it): {type(error).__name__}: {error}"
    warnings.warn(f"fastpath runs a graph uncompiled: {reason}", stacklevel=3)
    return reason


def _or_as_it_is(lay_out: Callable[..., Any], *given: Any) -> None:
    """Errors inside are ours, not the program's, which then runs as the caller wrote it."""
    try:
        lay_out(*given)
    except Exception as error:
        raise Unsupported(_told(error)) from error


def _launching(
    graph: torch.fx.GraphModule,
    report: Report,
    device: Device,
    options: Options,
    boxed: bool,
    values: Mapping[Any, int] | None = None,
    more: int = MOST_PROGRAMS,
) -> Callable[..., Any]:
    """``values`` are what the symbols stand for, if not their hints; ``more``: how many programs
    may still be made for sizes that this one is not for."""
    tune = options.max_autotune and not device.is_cpu and options.numerics == "fast"
    products = (_tuned if tune else _known)(graph, device, options)
    report.products += len(products)
    program, scheduled, written = _written(
        graph, report, device, options, boxed, values, more, products
    )
    record(graph, program, scheduled, written)
    if wanted(_GRAPHS):
        _GRAPHS.info("ATen graph:\n%s", graph.print_readable(print_output=False))
    if wanted(_CODE):
        parts = [written.source, *written.kernel_sources]
        _CODE.info("wrapper and %d kernels:\n%s", len(parts) - 1, "\n\n".join(parts))
    if report.aten_calls:
        _HINTS.info("left to ATen:\n%s", report)
    if options.cudagraphs and not device.is_cpu:
        from fastpath.graphs import replayed

        return replayed(written, graph, device, report)
    return written


def _written(
    graph: torch.fx.GraphModule,
    report: Report,
    device: Device,
    options: Options,
    boxed: bool,
    values: Mapping[Any, int] | None,
    more: int,
    products: Mapping[str, Any],
) -> tuple[Any, list[Any], Any]:
    """The program of ``graph``, its kernels as they are scheduled, and the callable.

    ``products``: the tiles of those that kernels of ours compute, by their nodes' names.
    """
    from fastpath.accumulating import accumulate_products, has_sums_of_products
    from fastpath.activations import fuse_activations
    from fastpath.embeddings import sum_embeddings
    from fastpath.ir.described import Sizes
    from fastpath.ir.lower import Lowering
    from fastpath.oddrows import split_odd_rows
    from fastpath.padding import pad_products
    from fastpath.residuals import fuse_residuals
    from fastpath.straight import has_masks_apart, lay_masks
    from fastpath.wrapper import Wrapper

    own = graph
    if not device.is_cpu and options.numerics == "fast":
        own = _copy(graph)
        sum_embeddings(own)
        if options.shape_padding:
            split_odd_rows(own, products)
            pad_products(own, products)
        if options.epilogue_fusion:
            fuse_activations(own, products)
            kept = graph.meta.get("outputs")
            fuse_residuals(own, device.adds_residuals, products, kept)
    if device.is_cpu and options.numerics == "fast":
        if has_masks_apart(graph):
            own = _copy(graph)
            lay_masks(own)
        if options.epilogue_fusion and has_sums_of_products(graph):
            own = _copy(graph) if own is graph else own
            accumulate_products(own)
    sizes = Sizes(values)
    lowering = Lowering(own, device.target, device.device, options, sizes, products)
    program = lowering.run()
    program.epilogues = options.epilogue_fusion
    program.products = options.numerics == "fast"
    if options.cudagraphs and not device.is_cpu:
        program.written = {}  # an input that a recording is given a copy of is written to behind it
    otherwise = _Otherwise(graph, report, device, options, boxed, sizes, more)
    first = FirstCall(graph, device.device, report)
    wrapper = Wrapper(
        program, lowering.constants, report, device, boxed, otherwise, first, held_of(graph)
    )
    call: Any = wrapper.write()
    return program, wrapper.scheduled, call


def _copy(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """One to rewrite: whose graph it is keeps it, and may compile it once more."""
    made = torch.fx.Graph()
    result: Any = made.graph_copy(graph.graph, {}, return_output_node=True)
    output, original = result
    made.output(output).meta = dict(original.meta)
    found = torch.fx.GraphModule(graph, made)
    found.meta.update(graph.meta)  # such as which outputs are new values of inputs
    return found


def _known(graph: torch.fx.GraphModule, device: Device, options: Options) -> Mapping[str, Any]:
    """The products that kernels of ours compute, whatever the sizes of their tiles."""
    if device.is_cpu or options.numerics != "fast":
        return {}
    from fastpath.ir.products import of_few_rows, of_odd_rows

    few = of_few_rows(graph.graph) if options.epilogue_fusion else {}
    return of_odd_rows(graph.graph) | few if options.shape_padding else few


def _tuned(graph: torch.fx.GraphModule, device: Device, options: Options) -> Mapping[str, Any]:
    from fastpath.gpu.tuning import tuned

    plain = dataclasses.replace(options, cudagraphs=False, asked=frozenset())

    def compile_part(part: torch.fx.GraphModule, products: Mapping[str, Any]) -> Any:
        return _written(part, Report(), device, plain, False, None, 0, products)[2]

    return tuned(graph, device.target, device.device, plain, compile_part)


class _Otherwise:
    """Calls whose sizes a program is not made for: another one is, at the first of them."""

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        report: Report,
        device: Device,
        options: Options,
        boxed: bool,
        sizes: Any,
        more: int,
    ):
        self.graph, self.report, self.device, self.boxed = graph, report, device, boxed
        self.options = options
        self.sizes, self.more = sizes, more
        self.program: Callable[..., Any] | None = None

    def __call__(self, values: tuple[int, ...], *inputs: Any) -> Any:
        if self.program is None:
            self.program = self._make(dict(zip(self.sizes.symbols(), values, strict=True)))
        return self.program(*inputs)

    def _make(self, values: dict[Any, int]) -> Callable[..., Any]:
        if self.more:
            with torch.no_grad():
                return _launching(
                    self.graph,
                    self.report,
                    self.device,
                    self.options,
                    self.boxed,
                    values,
                    self.more - 1,
                )
        self.report.crowded += 1
        plainly = self.graph.forward
        return (lambda inputs: plainly(*inputs)) if self.boxed else plainly


def _as_it_is(graph: torch.fx.GraphModule, report: Report, reason: str) -> Callable[..., Any]:
    _HINTS.info("a graph of %d nodes runs uncompiled: %s", report.nodes, reason)
    report.falls_back(reason)
    return graph.forward
