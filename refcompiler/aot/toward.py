"""The backward that goes to some of the inputs alone, as ``autograd.grad`` of these asks for it.

Eager runs what is on the ways to what is asked for: the gradient by a picture computes none of the
weights', and a weight that was written to since does not matter. A compiled backward is one
function of autograd for all inputs, so what nobody asks for is taken out of its graph, for each set
of inputs that is asked for.
"""

from __future__ import annotations

import operator
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from types import FrameType
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge
from torch.fx import Graph, GraphModule, Node

from refcompiler.aot.gates import PROBE
from refcompiler.aot.missing import trimmed
from refcompiler.aot.wanted import asked_by, goes_to

#: Whether the backward that runs now, and any around it, is asked for no certain gradients.
goes_everywhere = torch.autograd.Variable._execution_engine.is_checkpoint_valid
_LEAF = type(get_gradient_edge(PROBE).node)
_MAIN = threading.main_thread().ident or 0
_BETWEEN = (__package__, torch.autograd.__name__)  # the engine's caller and a backward
#: What ATen's derivatives of several operands call the list of those that are wanted.
_MASKS = ("output_mask", "grad_input_mask")


def asks_for_some(count: int) -> bool:
    """Whether the backward under way is asked for fewer gradients than the ``count`` that there
    are, which costs little to tell. Who asks for as many is likely to ask for all.

    To be called by the backward of the compiled function, where certain gradients are asked for.
    """
    wanted = _asked_for(_caller())
    if wanted is None:  # a device's thread, or who calls the engine otherwise
        waiting = sys._current_frames().get(_MAIN)
        wanted = None if waiting is None else asked_by(waiting)
    return not wanted or len(wanted) < count


def unasked(edges: Sequence[Any], places: Sequence[int]) -> Sequence[int]:
    """Numbers of the inputs to which the backward under way does not go.

    ``edges``: autograd's functions of those at ``places``. To be called as the above.
    """
    wanted = _asked_for(_caller())
    leaves = None if wanted is None else {*map(_leaf, wanted)}
    found = []
    for n, (node, _) in zip(places, edges, strict=False):
        if leaves is None or type(node) is not _LEAF:
            goes = node is None or goes_to(node)
        else:  # of which autograd tells by an error
            goes = id(node.variable) in leaves
        if not goes:
            found.append(n)
    return found


def _caller() -> FrameType | None:
    """Who has called the backward that has called who calls this."""
    try:
        return sys._getframe(3)  # a frame that is looked at costs: not the backward's own
    except ValueError:  # a device's thread
        return None


def _asked_for(frame: FrameType | None) -> Sequence[Any] | None:
    """What the backward under way is asked for; None: the functions themselves are to tell."""
    while frame is not None:
        wanted = asked_by(frame)
        if wanted is not None or frame.f_globals.get("__package__") not in _BETWEEN:
            return wanted or None  # a backward for all within another one
        frame = frame.f_back
    return None  # a device's thread


def _leaf(asked: Any) -> int:
    if isinstance(asked, torch.Tensor):
        return id(asked)
    return id(asked.node.variable) if type(asked.node) is _LEAF else 0


def toward(backward: GraphModule, unwanted: Collection[int]) -> GraphModule:
    """``backward`` with None for the gradients with these numbers. It takes the same inputs."""
    graph = Graph()
    made: dict[Node, Node] = {}
    values = graph.graph_copy(backward.graph, made)
    (output,) = backward.graph.find_nodes(op="output")
    kept = tuple([None if n in unwanted else v for n, v in enumerate(values)])
    graph.output(kept).meta = dict(output.meta)  # what a backend noted there
    trimmed(graph)
    for node, mask in _masks(graph):
        _ask_less(node, mask)
    return GraphModule(backward, graph, "backward")


def _masks(graph: Graph) -> Iterator[tuple[Node, int]]:
    """The derivatives that are told which gradients are wanted, and the argument that says it."""
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        for n, argument in enumerate(schema.arguments if schema is not None else ()):
            if argument.name in _MASKS and n < len(node.args):
                yield node, n


def _ask_less(node: Node, at: int) -> None:
    """Have a derivative give what is read of its results, as eager's does."""
    if not all(user.target is operator.getitem for user in node.users):
        return
    read = {user.args[1] for user in node.users}
    mask = [wanted and n in read for n, wanted in enumerate(node.args[at])]
    node.update_arg(at, mask)
    value = node.meta.get("val")
    if isinstance(value, (tuple, list)):
        node.meta["val"] = type(value)(v if n in read else None for n, v in enumerate(value))
