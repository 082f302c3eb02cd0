"""What is held beside the memory that a program of a training step uses.

Of a backward's inputs somebody else holds parameters, and what the caller passed; the others,
computed by the forward and saved, are gone behind their last use. A forward's own memory is there
beside all that its backward needs, if it is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from torch.fx import GraphModule, Node

_HELD = "held"


@dataclass(frozen=True)
class Held:
    """``part``: which program of a training step it is, ``forward`` or ``backward``, or none;
    ``inputs``: the places of those that others hold too."""

    part: str = ""
    inputs: frozenset[int] = frozenset()


def mark_held(forward: GraphModule, backward: GraphModule, outputs: int) -> None:
    """``outputs``: how many of the forward's are the program's; the others are saved."""
    (output,) = forward.graph.find_nodes(op="output")
    saved = cast(Sequence[Any], output.args[0])[outputs:]
    output.meta[_HELD] = "forward"
    (last,) = backward.graph.find_nodes(op="output")
    last.meta[_HELD] = "backward"
    holders = backward.graph.find_nodes(op="placeholder")
    for holder, source in zip(holders, saved, strict=False):  # the others are tangents
        holder.meta[_HELD] = isinstance(source, Node) and source.op == "placeholder"


def held_of(graph: GraphModule) -> Held:
    holders = graph.graph.find_nodes(op="placeholder")
    (output,) = graph.graph.find_nodes(op="output")
    inputs = frozenset(n for n, holder in enumerate(holders) if holder.meta.get(_HELD))
    return Held(output.meta.get(_HELD, ""), inputs)
