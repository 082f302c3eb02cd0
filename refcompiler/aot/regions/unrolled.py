"""Branches and loops over values: which branch, and how many steps, is asked of tensors.

For a graph that runs again to be differentiated twice. Torch's operators have no second derivative:
what is asked of them is refused, or what comes past them is all there is. Here autograd sees each
step. Within a transformation of ``torch.func`` tensors have no values to ask, and operators stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from refcompiler.aot.inputs import attribute

_operators = torch.ops.higher_order
_Values = Sequence[Any]
_transformed = torch._C._are_functorch_transforms_active


def cond(predicate: Any, yes: Any, no: Any, operands: _Values = ()) -> Any:
    if _transformed():
        return _operators.cond(predicate, yes, no, operands)
    return (yes if predicate else no).forward(*operands)


def while_loop(
    test: Any, body: Any, carried: _Values, more: _Values = (), **options: Any
) -> tuple[Any, ...]:
    """``options`` say what the body writes to."""
    if _transformed():
        found: tuple[Any, ...] = _operators.while_loop(test, body, carried, more, **options)
        return found
    carried = [t.clone() if isinstance(t, torch.Tensor) else t for t in carried]
    while test.forward(*carried, *more):
        carried = body.forward(*carried, *more)
    return tuple(carried)


def scan(step: Any, init: _Values, xs: _Values, rest: _Values = ()) -> tuple[Any, ...]:
    if _transformed():
        whole: tuple[Any, ...] = _operators.scan(step, init, xs, rest)
        return whole
    carried, count = list(init), len(init)
    found = []
    for n in range(xs[0].shape[0]):
        results = step.forward(*carried, *[t[n] for t in xs], *rest)
        carried = list(results[:count])
        found.append(results[count:])
    return (*carried, *map(torch.stack, zip(*found, strict=True)))


def mapped(step: Any, xs: _Values, rest: _Values = ()) -> tuple[Any, ...]:
    if _transformed():
        whole: tuple[Any, ...] = _operators.map_impl(step, xs, rest)
        return whole
    return scan(step, (), xs, rest)


_INSTEAD: dict[Any, Callable[..., Any]] = {
    _operators.cond: cond,
    _operators.while_loop: while_loop,
    _operators.scan: scan,
    _operators.map_impl: mapped,
}


def unrolled(gm: GraphModule) -> GraphModule:
    """``gm``, or where it has branches or loops, also in graphs of its own, a copy without them."""
    parts = {
        name: unrolled(part) for name, part in gm.named_children() if isinstance(part, GraphModule)
    }
    changed = {name: part for name, part in parts.items() if part is not gm.get_submodule(name)}
    if not changed and not any(node.target in _INSTEAD for node in _calls(gm)):
        return gm
    graph = Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    held = [node.target for node in graph.nodes if node.op in ("get_attr", "call_module")]
    copy = GraphModule({**{name: attribute(gm, name) for name in held}, **changed}, graph)
    for node in _calls(copy):
        node.target = _INSTEAD.get(node.target, node.target)
    copy.recompile()
    return copy


def _calls(gm: GraphModule) -> list[Any]:
    return [node for node in gm.graph.nodes if node.op == "call_function"]
