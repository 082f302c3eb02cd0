"""The backend: ``(graph module, example inputs, **options) -> callable``."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fastpath.aot.capture import Capture, capture
from fastpath.report import Report, remember
from refcompiler.aot.inputs import Unsupported
from refcompiler.aot.overlap import disjoint
from refcompiler.aot.sizes import compile_for_sizes, number_inputs
from refcompiler.logs import log_of, wanted

_GRAPHS, _CODE, _HINTS = map(log_of, ("aot_graphs", "output_code", "perf_hints"))


def compile_graph(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any
) -> Callable[..., Any]:
    """Compile a torch-level graph for inputs like ``example_inputs`` (real or fake tensors).

    The result takes the graph's inputs and returns what ``gm`` returns, with eager's values,
    dtypes, strides, aliasing and mutations. It relies on the caller for guards: later inputs have
    to agree with the examples in dtype, size, strides, device and gradient flag. It carries
    ``report`` (a :class:`fastpath.report.Report`), ``source`` and ``kernel_sources``.

    A graph that cannot be compiled is run as it is, and ``report.fallback`` says why. Raises
    ``TypeError`` for an unknown option.
    """
    for name in (*options.pop("options", ()), *options):
        raise TypeError(f"fastpath has no option {name!r}; it takes none")
    numbers = number_inputs(example_inputs)
    if numbers:
        return compile_for_sizes(gm, example_inputs, numbers, compile_graph, _crowded)
    try:
        captured = capture(gm, example_inputs)
    except Unsupported as error:
        return _uncompiled(gm, str(error))
    except Exception as error:  # a bad program has to fail as eager fails, when it is called
        return _uncompiled(gm, f"{type(error).__name__}: {error}")
    try:
        return _compile(gm, example_inputs, captured)
    except Unsupported as error:
        return _uncompiled(gm, str(error))
    except Exception as error:  # the program is right and ours is not: say so, but go on
        reason = f"internal error (please report it): {type(error).__name__}: {error}"
        warnings.warn(f"fastpath runs a graph uncompiled: {reason}", stacklevel=2)
        return _uncompiled(gm, reason)


def _crowded(call: Any, why: str) -> None:
    call.report.runtime_fallbacks += 1
    call.report.reasons.setdefault("sizes", why)


def _uncompiled(gm: torch.fx.GraphModule, reason: str) -> Callable[..., Any]:
    report = remember(Report(nodes=len(gm.graph.nodes), fallback=reason))
    _HINTS.info("a graph of %d nodes runs uncompiled: %s", report.nodes, reason)

    def call(*inputs: Any) -> Any:
        return gm(*inputs)

    call.report = report  # type: ignore[attr-defined]
    call.source = gm.code  # type: ignore[attr-defined]
    call.kernel_sources = []  # type: ignore[attr-defined]
    return call


def _compile(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], captured: Capture
) -> Callable[..., Any]:
    from fastpath.cpu.compile import compile_kernel
    from fastpath.ir.lower import Lowering
    from fastpath.wrapper import Wrapper

    lowering = Lowering(captured.graph)
    program = lowering.run()
    report = Report(nodes=sum(n.op == "call_function" for n in captured.graph.graph.nodes))
    wrapper = Wrapper(captured, program, lowering.constants, compile_kernel, report)
    written: Any = wrapper.write()
    call = _guarded(gm, written, captured, example_inputs, report)
    remember(report)
    if wanted(_GRAPHS):
        _GRAPHS.info("ATen graph:\n%s", captured.graph.print_readable(print_output=False))
    if wanted(_CODE):
        parts = [written.source, *written.kernel_sources]
        _CODE.info("wrapper and %d kernels:\n%s", len(parts) - 1, "\n\n".join(parts))
    if report.aten_calls:
        _HINTS.info("left to ATen:\n%s", report)
    return call


def _guarded(
    gm: torch.fx.GraphModule,
    call: Callable[..., Any],
    captured: Capture,
    examples: Sequence[Any],
    report: Report,
) -> Callable[..., Any]:
    """``call``, with the run-time conditions that the caller's guards do not cover."""
    if torch.is_autocast_enabled("cpu"):
        call = _with_attributes(_without_autocast(call), call)
    if not captured.written:
        return call
    check = disjoint([*examples, *captured.lifted], captured.written)
    lifted = captured.lifted

    @functools.wraps(call)
    def checked(*inputs: Any) -> Any:
        if check(*inputs, *lifted):
            return call(*inputs)
        report.runtime_fallbacks += 1
        return gm(*inputs)

    return checked


def _without_autocast(call: Callable[..., Any]) -> Callable[..., Any]:
    def run(*inputs: Any) -> Any:
        # The casts are in the graph already.
        with torch._C._DisableAutocast():
            return call(*inputs)

    return run


def _with_attributes(call: Any, like: Any) -> Any:
    return functools.wraps(like)(call)
