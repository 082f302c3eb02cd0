"""What a graph computes more than once is computed once: common subexpression elimination.

An operator on equal operands gives equal results, so the first of its nodes is read in the place of
the others, and what is detached in the place of what comes of that. What the caller gets stays a
tensor of its own, as in eager, where two parameters with equal gradients have two: there the later
one becomes a copy.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from refcompiler.aot.draws import TURN, draws
from refcompiler.aot.effects import checks
from refcompiler.aot.numbers import ARITHMETIC
from refcompiler.fakes.symbolic_sizes import is_contiguous
from specs.strides import is_dense

_LIBRARIES = ("aten", "prims")
_DECIDED = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_PLAIN = {int, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
_THE_SAME = {torch.ops.aten.detach.default, torch.ops.aten.alias.default}  # but for autograd
_clone = torch.ops.aten.clone.default


def merge_equal(graph: GraphModule) -> int:
    """Rewrite ``graph`` (functional ATen, with fakes); returns how many nodes are read no more.

    Left alone are draws and checks, operators of other libraries, and what a checkpoint computes
    once more, so as not to keep it. Nothing is merged in a graph that writes to tensors.
    """
    count = 0
    if not any(map(_is_writing, graph.graph.nodes)):
        count = _Merging(graph.graph).run()
    if count:
        graph.recompile()
    return count


class _Merging:
    """``shown``: the memory of the results, as the fakes have it."""

    def __init__(self, graph: Graph):
        self.graph = graph
        (output,) = graph.find_nodes(op="output")
        self.results = frozenset(output.all_input_nodes)
        self.shown = {place for node in self.results for place in _memory(node)}

    def run(self) -> int:
        found: dict[Any, Node] = {}
        count = 0
        for node in list(self.graph.nodes):
            if node.target in _THE_SAME and node not in self.results:
                node.replace_all_uses_with(node.all_input_nodes[0])
                self.graph.erase_node(node)
                count += 1
                continue
            key = _key(node) if all(map(_is_strided, _tensors(node))) else None
            first = node if key is None else found.setdefault(key, node)
            if first is not node:
                count += self._merge(node, first)
        return count

    def _merge(self, node: Node, first: Node) -> bool:
        own, others = _memory(node), _memory(first)
        if self.shown.isdisjoint(own) or self.shown.isdisjoint(others):
            if not self.shown.isdisjoint(own):
                self.shown |= others
            node.replace_all_uses_with(first)
            self.graph.erase_node(node)
            return True
        if own == others or not _is_dense(node):  # views of one tensor, or several results
            return False
        node.target, node.args, node.kwargs = _clone, (first,), {}
        return True


def _is_writing(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _tensors(node: Node) -> list[torch.Tensor]:
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else [value]
    return [t for t in values if isinstance(t, torch.Tensor)]


def _is_strided(t: torch.Tensor) -> bool:
    return t.layout is torch.strided  # others have memory in several parts


def _memory(node: Node) -> set[int]:
    return {t.untyped_storage()._cdata for t in _tensors(node) if _is_strided(t)}


def _is_dense(node: Node) -> bool:
    """Whether a copy of a node's result lies as that does, whatever its sizes are."""
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor):
        return False
    if value._has_symbolic_sizes_strides:
        return is_contiguous(value)
    return value.storage_offset() == 0 and is_dense(value.shape, value.stride())


def _key(node: Node) -> Any:
    """Equal for nodes whose results are; None for those that are not to be merged."""
    if node.op != "call_function" or not _gives_the_same(node.target):
        return None
    if any(t.layout is not torch.strided for t in _tensors(node)):
        return None
    try:
        named = sorted(node.kwargs.items())
        return node.target, node.meta.get(TURN), _constant(node.args), _constant(named)
    except _Unknown:
        return None


def _gives_the_same(target: Any) -> bool:
    """Whether equal operands are all that equal results take."""
    if target is operator.getitem or target in ARITHMETIC:
        return True
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in _LIBRARIES:
        return False
    return not (draws(target) or checks(target) or _DECIDED & {*target.tags})


class _Unknown(Exception):
    """An operand of a kind that is not compared."""


def _constant(value: Any) -> Any:
    """``value`` with its type, as 1, 1.0 and True are equal; floats by their bits."""
    kind = type(value)
    if kind is Node:
        return value
    if isinstance(value, (tuple, list)):
        return tuple, *map(_constant, value)
    if kind in (float, complex):
        return kind, repr(value)
    if kind in _PLAIN:
        return kind, value
    raise _Unknown
