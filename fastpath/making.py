"""Calls that are added to a traced graph, with the fake results that its other nodes carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

_NONE: Mapping[str, Any] = {}


def asked(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any] = _NONE) -> Any:
    """What the stand-in of an operator gives for nodes of a graph."""
    given, named = torch.fx.node.map_arg((tuple(args), {**kwargs}), lambda n: n.meta["val"])
    with torch.no_grad():
        return target(*given, **named)


def called(
    graph: Graph,
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] = _NONE,
    like: Node | None = None,
) -> Node:
    """A call where ``graph`` inserts. ``like``: the node whose part of a joint graph it is of."""
    node = graph.call_function(target, tuple(args), {**kwargs})
    if like is not None:
        node.meta.update(like.meta)
    node.meta["val"] = asked(target, args, kwargs)
    return node
