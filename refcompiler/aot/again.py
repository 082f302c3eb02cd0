"""The backward where some outputs have no gradient, traced again: as autograd's engine runs it.

The forward has run by then, and what it saved is all there is: the second trace's forward has to be
the first one's, node for node. Its backward is compiled for those saved values.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils._device import DeviceContext

from refcompiler.aot.currents import is_current
from refcompiler.aot.joint import FORWARD, PHASE, Joint
from refcompiler.aot.partition.split import Parts, Unsaved, finished
from refcompiler.shapes.node import SYMBOLS

Signatures = Mapping[str, Any]


def signatures(joint: Joint) -> Signatures:
    """What each node of the forward computes, by its name."""
    return {n.name: _signature(n) for n in joint.graph.graph.nodes if _is_early(n)}


def _is_early(node: Node) -> bool:
    return node.op == "placeholder" or node.meta.get(PHASE) == FORWARD


def _signature(node: Node) -> Any:
    return node.target, [n.name for n in node.all_input_nodes if not _is_constant(n)]


def _is_constant(node: Node) -> bool:
    """Whether it is a size that the first trace has made a constant, which no later one reads."""
    value = node.meta.get("val")
    return type(value) in SYMBOLS and value.node.maybe_as_int() is not None


def backward_like(
    joint: Joint, first: Signatures, backward: GraphModule, wanted: slice = slice(None)
) -> GraphModule | None:
    """The backward of ``joint``, with the placeholders of ``backward``, another trace's.

    ``first``: the signatures of that trace. None where the two differ in more than the backward, or
    where this backward reads what that one did not. ``wanted``: which of the gradients.
    """
    by_name = {}
    for node in joint.graph.graph.nodes:
        if _is_early(node):
            is_tangent = node.op == "placeholder" and node.name.startswith("tangents")
            if first.get(node.name) != _signature(node) and not is_tangent:
                return None
            by_name[node.name] = node
    graph = Graph()
    made: dict[Node, Node] = {}
    for holder in backward.graph.find_nodes(op="placeholder"):
        copy = graph.placeholder(holder.target)
        copy.meta = dict(holder.meta)
        if str(holder.target).startswith("tangents") or is_current(holder):
            copy.meta = dict(by_name[holder.target].meta)  # which may lie otherwise, or count less
        if holder.target in by_name:
            made[by_name[holder.target]] = copy
    for node in by_name.values():
        if str(node.target).startswith("tangents") and node not in made:  # of a second backward
            made[node] = graph.placeholder(str(node.target))
            made[node].meta = dict(node.meta)
    try:
        again = finished(Parts(joint.graph, joint.outputs, wanted), graph, made)
    except Unsaved:
        return None
    (output,), (noted,) = (gm.graph.find_nodes(op="output") for gm in (again, backward))
    output.meta = dict(noted.meta)  # what a backend noted there
    return again


class Then:
    """The state of this thread that decides what a graph means while it is traced."""

    def __init__(self) -> None:
        self.grad = torch.is_grad_enabled()
        self.casts = [
            (device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))
            for device in ("cpu", "cuda")
        ]
        count = torch._C._len_torch_function_stack()
        modes = [torch._C._get_function_stack_at(n) for n in range(count)]
        self.devices = [mode.device for mode in modes if isinstance(mode, DeviceContext)]

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """In a thread that has the state that threads begin with."""
        with contextlib.ExitStack() as stack:
            for device, dtype, enabled in self.casts:
                if enabled:
                    stack.enter_context(torch.autocast(device, dtype))
            for device in self.devices:
                stack.enter_context(device)
            stack.enter_context(torch.set_grad_enabled(self.grad))
            yield

    def run(self, function: Callable[[], Any]) -> Any:
        """``function()`` as then: apart from the modes and the backward that are under way."""
        results: list[Any] = []
        errors: list[BaseException] = []

        def body() -> None:
            try:
                with self.again():
                    results.append(function())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=body, name="refcompiler backward")
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]
