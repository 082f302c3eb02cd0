"""The backward where some outputs have no gradient.

A backward is linear in its tangents. Eager does not run what only missing tangents would reach, and
inputs that only they reach get no gradient: ``None`` instead of zeros, and no ``0 * inf``.

Taking that out of the graph is all there is to it, except where a function of several results has
gradients of some (its derivative may ask which), or where the term of a sum that is left lies
otherwise than the sum. There the backward is traced again (:mod:`refcompiler.aot.again`).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge
from torch.fx import Graph, GraphModule, Node

from refcompiler.aot.draws import AGAIN, TURN
from refcompiler.aot.numbers import Given
from refcompiler.histories import is_outdated
from refcompiler.shapes.known import same

_aten = torch.ops.aten


Reached = Mapping[Any, Mapping[int, int]]  # what :func:`reached` gives


def uneven(reached: Reached) -> set[tuple[int, ...]]:
    """Of each function of several results, which of some outputs reach each of its results.

    Each is a number whose bit ``n`` says that output ``n`` does. Functions of which all results are
    reached alike are left out.
    """
    kinds = [tuple(set(results.values())) for results in reached.values() if len(results) > 1]
    return {kind for kind in kinds if len(kind) > 1}


def asking(reached: Reached) -> set[tuple[int, ...]]:
    """Those of :func:`uneven` of which the derivative is a program, which may ask what is there."""
    function = torch.autograd.function.BackwardCFunction
    return uneven({node: ways for node, ways in reached.items() if isinstance(node, function)})


def partly(reached: Reached, tensors: Mapping[int, torch.Tensor], count: int) -> dict[int, int]:
    """By number, which of ``count`` outputs lead to one of ``tensors``: a number whose bits say.

    What all of them lead to, or none, is left out.
    """
    if not reached:
        return {}
    edges = {n: get_gradient_edge(t) for n, t in tensors.items()}
    masks = {n: reached.get(at.node, {}).get(at.output_nr, 0) for n, at in edges.items()}
    return {n: mask for n, mask in masks.items() if 0 < mask < (1 << count) - 1}


def readers(
    reached: Reached, outputs: Sequence[torch.Tensor], tensors: Mapping[Any, torch.Tensor]
) -> dict[Any, int]:
    """By name, which of ``outputs`` are computed from one of ``tensors``: a number whose bits say.

    Itself, and what none is computed from, is left out.
    """
    found = {}
    for name, t in tensors.items():
        if not is_outdated(t) and t.grad_fn in reached:
            own = sum(1 << n for n, output in enumerate(outputs) if output is t)
            found[name] = reached[t.grad_fn].get(t.output_nr, 0) & ~own
    return {name: mask for name, mask in found.items() if mask}


def reached(outputs: Sequence[torch.Tensor]) -> dict[Any, dict[int, int]]:
    """By function and result, which of ``outputs`` lead to it: numbers whose bit ``n`` says that
    output ``n`` does."""
    found: dict[Any, dict[int, int]] = {}
    for n, t in enumerate(outputs):
        if t.grad_fn is not None:
            results = found.setdefault(t.grad_fn, {})
            results[t.output_nr] = results.get(t.output_nr, 0) | 1 << n
    for function in users_first(list(found)):
        mask = functools.reduce(operator.or_, found[function].values())
        for following, n in function.next_functions:
            if following is not None:
                results = found.setdefault(following, {})
                results[n] = results.get(n, 0) | mask
    return found


def users_first(roots: Sequence[Any]) -> list[Any]:
    """Autograd's functions that ``roots`` lead to, each before those that it leads to."""
    order: list[Any] = []
    seen: set[Any] = set()
    for root in roots:
        stack = [] if root in seen else [(root, iter(root.next_functions))]
        seen.add(root)
        while stack:
            function, following = stack[-1]
            other = next((f for f, _ in following if f is not None and f not in seen), None)
            if other is None:
                order.append(function)
                stack.pop()
            else:
                seen.add(other)
                stack.append((other, iter(other.next_functions)))
    return order[::-1]


def is_even(kinds: Collection[tuple[int, ...]], missing: Collection[int]) -> bool:
    """Whether no function of several results has gradients of some of them alone."""
    gone = sum(1 << n for n in missing)
    return all(len({bool(mask & ~gone) for mask in kind}) == 1 for kind in kinds)


def without(backward: GraphModule, missing: Collection[str]) -> tuple[GraphModule, bool]:
    """``backward`` for calls that give None for the placeholders named in ``missing``.

    And whether that is all there is to it: no zeros are in the place of a missing value, and no
    gradient is a constant, which eager gives only where there is something to give it for. It takes
    the same inputs. What a node computes of missing values alone is missing; a sum with a missing
    term is the other one; elsewhere a missing value is zeros, as in eager, which gives zeros to
    what takes several gradients (the parts of a split) when one of them is there.
    """
    graph = Graph()
    made: dict[Node, Node] = {}
    gone: set[Node] = set()  # missing values
    zeros: dict[Node, Node] = {}
    constant = False  # whether a gradient is no function of tangents: some must be there for it
    tangential: set[Node] = set()  # computed of tangents
    numbers = Given(graph)
    for node in backward.graph.nodes:
        if node.op == "output":
            results = [
                None if v in gone else made[v] if v is not None else None for v in node.args[0]
            ]
            graph.output(tuple(results)).meta = dict(node.meta)  # what a backend noted there
            constant |= any(v is not None and v not in tangential for v in node.args[0])
            continue
        given = node.all_input_nodes
        if node.op == "placeholder":
            made[node] = graph.node_copy(node)
            if str(node.target) in missing:
                gone.add(node)
            if str(node.target).startswith("tangents"):
                tangential.add(node)
            numbers.learn(made[node])
            continue
        linear = [n for n in given if n in tangential]
        if linear:
            tangential.add(node)
            if all(n in gone for n in linear):
                constant |= node.target is _aten.add.Tensor and len(given) > len(linear)
                gone.add(node)
                continue
        lost = [n for n in linear if n in gone]
        if lost:
            other = _sum(graph, node, gone, made)
            if other is not None:
                made[node] = other
                continue
            for n in lost:
                if n not in zeros:
                    zeros[n] = made[n] = _zeros(graph, n, numbers)
        made[node] = graph.node_copy(node, made.__getitem__)
        numbers.learn(made[node])
    trimmed(graph)
    return GraphModule(backward, graph, "backward"), not zeros and not constant


def trimmed(graph: Graph) -> None:
    """Take out of a backward what nothing needs, with the draws of regions that nothing needs."""
    runs = _runs(graph)
    graph.eliminate_dead_code(lambda node: _stays(node) and node.meta.get(TURN) in runs)


def _stays(node: Node) -> bool:
    return node.is_impure() and AGAIN not in node.meta


def _runs(graph: Graph) -> set[int | None]:
    """The runs of checkpointed regions that something needs; others are none, and draw nothing.

    ``None`` is what is in no such region.
    """
    (output,) = graph.find_nodes(op="output")
    left = [output, *[n for n in graph.nodes if _stays(n) and TURN not in n.meta]]
    seen = set(left)
    while left:
        for node in left.pop().all_input_nodes:
            if node not in seen:
                seen.add(node)
                left.append(node)
    return {node.meta.get(TURN) for node in seen}


def _sum(graph: Graph, node: Node, gone: set[Node], made: dict[Node, Node]) -> Node | None:
    """The other term of a sum of two tensors, as the sum would give it."""
    if node.target not in (_aten.add.Tensor, _aten.sub.Tensor) or len(node.args) != 2:
        return None
    left, right = node.args
    if not isinstance(left, Node) or not isinstance(right, Node):
        return None
    alpha = node.kwargs.get("alpha", 1)
    kept = right if left in gone else left
    value, other = node.meta.get("val"), kept.meta.get("val")
    if not _alike(value, other):
        return None
    factor = 1 if kept is left else alpha if node.target is _aten.add.Tensor else -alpha
    if factor == 1:
        return made[kept]
    scaled = graph.call_function(_aten.mul.Scalar, (made[kept], factor))
    scaled.meta = dict(node.meta)
    return scaled


def _alike(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return False
    return a.dtype == b.dtype and same(a.shape, b.shape) and same(a.stride(), b.stride())


def _zeros(graph: Graph, node: Node, numbers: Given) -> Node:
    value = node.meta["val"]
    options = {"dtype": value.dtype, "device": value.device}
    size, stride = [numbers(n) for n in value.shape], [numbers(n) for n in value.stride()]
    empty = graph.call_function(_aten.empty_strided.default, (size, stride), options)
    empty.meta = dict(node.meta)
    zeros = graph.call_function(_aten.fill.Scalar, (empty, 0))
    zeros.meta = dict(node.meta)
    return zeros
