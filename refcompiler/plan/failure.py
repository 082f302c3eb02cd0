"""An error inside a graph's run: the modes are left, and the traceback shows the user's lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType

import torch

from refcompiler.ambient import Autocast
from refcompiler.capture.state.switches import Setting
from refcompiler.interpreter.tracebacks import Values, with_entry


def on_error(
    graph: torch.fx.GraphModule,
    grad: bool,
    autocast: Autocast | None,
    switches: Sequence[Setting] = (),
) -> Callable[[BaseException], BaseException]:
    """What a plan does with an error of its graph: the error that it raises then.

    ``grad`` and ``autocast`` are the modes at the start, where the graph changes them: ``with``
    restores them when an error leaves its block. So are the ``switches`` that the graph sets.
    """

    def failed(error: BaseException) -> BaseException:
        node = failing_node(error.__traceback__, graph)
        error.__traceback__ = None  # the graph's frame may hold a mode, which ends with it
        if autocast is not None:
            torch._C._set_grad_enabled(grad)
            autocast.set()
        for switch, before, _ in switches:
            switch.set(*before)
        if node is not None:
            traceback: TracebackType | None = None
            for place in reversed(node.meta.get("refcompiler_places", ())):
                traceback = with_entry(place, traceback, Values.NONE)
            error.__traceback__ = traceback
        return error

    return failed


_RUN_NODE = torch.fx.Interpreter.run_node.__code__


def failing_node(
    traceback: TracebackType | None, graph: torch.fx.GraphModule
) -> torch.fx.Node | None:
    """The node that was running; None where a backend runs something else."""
    code = type(graph).forward.__code__
    lines = getattr(graph, "_lineno_map", None)
    while traceback is not None:
        if traceback.tb_frame.f_code is code and lines:
            index = lines.get(traceback.tb_lineno - getattr(graph, "_prologue_start", 0))
            nodes = list(graph.graph.nodes)
            return nodes[index] if index is not None and index < len(nodes) else None
        elif traceback.tb_frame.f_code is _RUN_NODE:
            node = traceback.tb_frame.f_locals["n"]
            return next((n for n in graph.graph.nodes if n.name == node.name), None)
        traceback = traceback.tb_next
    return None
