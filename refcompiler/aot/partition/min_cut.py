"""The partitioner that saves as few bytes as it can and computes cheap operators again.

Between what the backward reads and what must not be computed again (matrix products, convolutions,
attention, draws, reductions) lie regions of cheap operators. In each, the tensors to save are a
minimum cut of the region, weighted by bytes. With less memory than that takes, dear operators are
computed again too: those whose results are the largest for what they cost.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from refcompiler.aot.draws import draws
from refcompiler.aot.joint import LEAF, WRITTEN
from refcompiler.aot.numbers import ARITHMETIC
from refcompiler.aot.partition.budget import worth_saving
from refcompiler.aot.partition.packing import packed_of, packs
from refcompiler.aot.partition.split import Parts, is_number, split
from refcompiler.aot.private import UNCOUNTED, memory
from refcompiler.shapes.known import usual

_SOURCE, _SINK = "source", "sink"
_LAST_RESORT = 1e18  # bytes
_SAVED = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)
_aten = torch.ops.aten

# Elementwise by their tag are pointwise; besides these are cheap, or move no data at all.
_CHEAP = {
    getattr(_aten, name)
    for name in (
        "_to_copy alias as_strided broadcast_in_dim cat clone copy constant_pad_nd diagonal "
        "empty empty_like empty_strided expand flip full full_like lift_fresh_copy new_empty "
        "new_empty_strided new_full new_ones new_zeros ones ones_like permute scalar_tensor "
        "select slice slice_scatter select_scatter squeeze split split_with_sizes stack t "
        "transpose tril triu unbind unfold unsqueeze view _unsafe_view view_as_real "
        "view_as_complex zeros zeros_like arange native_dropout_backward detach repeat roll"
    ).split()
    if hasattr(_aten, name)
}


def min_cut_partition(
    joint_module: GraphModule,
    joint_inputs: Sequence[Any],
    *,
    num_fwd_outputs: int,
    activation_memory_budget: float = 1.0,
    **_: Any,
) -> tuple[GraphModule, GraphModule]:
    """Forward and backward with the fewest saved bytes that cheap recomputation allows.

    ``activation_memory_budget``: from 1 (that many bytes) down to 0 (as few as are possible when
    everything but draws is computed again); in between, the share of the difference that may be
    saved. A backend takes it by ``functools.partial(min_cut_partition, ...)``.
    """
    number = isinstance(activation_memory_budget, (int, float))
    if not number or not 0 <= activation_memory_budget <= 1:
        raise ValueError(
            f"activation_memory_budget is a share from 0 to 1, not {activation_memory_budget!r}"
        )
    parts = Parts(joint_module, num_fwd_outputs)
    saved = usually = saved_by(parts, is_cheap)
    twice: set[Node] = set()
    if activation_memory_budget < 1:
        saved = _within(parts, usually, activation_memory_budget)
        twice = {n for n in parts.nodes if is_cheap(n)} - usually - saved - parts.late
    in_order = sorted(saved, key=parts.order.__getitem__)
    return split(parts, in_order, packed_of(saved, parts.outputs), twice)


def _within(parts: Parts, usually: set[Node], budget: float) -> set[Node]:
    least = saved_by(parts, may_repeat)
    spare = budget * (sum(map(_size, usually)) - sum(map(_size, least)))
    undecided = [n for n in usually - least if n.op != "placeholder"]
    # Of two that are worth the same, the later is kept: what is early would be there longest.
    choice = sorted(undecided, key=parts.order.__getitem__, reverse=True)
    kept = worth_saving(choice, [_size(n) for n in choice], spare, usually)
    return saved_by(parts, lambda node: node not in kept and may_repeat(node))


def may_repeat(node: Node) -> bool:
    """Whether computing ``node`` again gives the same, whatever it costs."""
    target = node.target
    if is_cheap(node):
        return True
    if _policy(node) in _SAVED or not isinstance(target, torch._ops.OpOverload):
        return False
    if target.namespace not in ("aten", "prims") or target._schema.is_mutable:
        return False
    return torch.Tag.nondeterministic_seeded not in target.tags


def _policy(node: Node) -> Any:
    """What a selective checkpoint said of ``node``."""
    return node.meta.get("recompute")


def is_cheap(node: Node) -> bool:
    """Whether computing ``node`` again costs little next to reading its result.

    What a selective checkpoint wants saved counts as dear.
    """
    if node.op != "call_function" or _policy(node) in _SAVED:
        return False
    target = node.target
    if target in (getattr, operator.getitem) or (is_number(node) and target in ARITHMETIC):
        return True
    if not isinstance(target, torch._ops.OpOverload) or draws(target):
        return False
    return torch.Tag.pointwise in target.tags or target.overloadpacket in _CHEAP


def _size(node: Node) -> float:
    """Bytes that saving ``node`` keeps alive; infinite for what is no tensor."""
    value = node.meta.get("val")
    if is_number(node):
        return 0.0
    if node.op == "placeholder":
        # It is there anyway; one that is written to is another tensor by then.
        return _LAST_RESORT if WRITTEN in node.meta else 0.0
    if not isinstance(value, torch.Tensor):
        return math.inf
    # one more: among equals, the tensor that is nearer to the input or is one instead of two
    bytes_each = 1 if packs(node) else value.itemsize
    return float(math.prod(map(usual, value.shape)) * bytes_each) + 1.0


def saved_by(parts: Parts, repeats: Callable[[Node], bool]) -> set[Node]:
    """What to save where the backward may compute again what ``repeats``."""
    wanted = parts.wanted()
    region: set[Node] = set()
    stack = list(wanted)
    fixed: set[Node] = set()  # what is there or must not be computed again
    while stack:
        node = stack.pop()
        if node in region or node in fixed or node.op == "get_attr":
            continue
        if repeats(node):
            region.add(node)
            stack += node.all_input_nodes
        else:
            fixed.add(node)
    import networkx  # takes longer to import than most graphs to cut

    graph = networkx.DiGraph()
    reads = set(wanted)
    results = set(parts.outputs)
    others = _others(parts, wanted)
    for node in (*region, *fixed):
        size = 0.0 if node in results else _size(node)
        if node not in reads and memory(node) in others:
            size = _LAST_RESORT
        graph.add_edge((node, 0), (node, 1), capacity=size)
        for given in node.all_input_nodes if node in region else ():
            if given.op != "get_attr":
                graph.add_edge((given, 1), (node, 0), capacity=math.inf)
    saved: set[Node] = set()
    for component in networkx.weakly_connected_components(graph):
        members = {node for node, _ in component}
        saved |= _cut(graph.subgraph(component), members & fixed, members & reads)
    return saved


def _others(parts: Parts, wanted: Sequence[Node]) -> set[Any]:
    """Memory that the program may write to between forward and backward, unseen by eager.

    That of inputs and results of which the backward reads nothing, where eager saves what is
    computed of them. Who writes to a leaf (an optimizer's step) is told by autograd that the
    backward came too late: what a cast of a parameter takes is not saved for that.
    """
    given = [n for n in parts.inputs if LEAF not in n.meta]
    found = {memory(n) for n in (*given, *parts.outputs) if isinstance(n, Node)}
    return found - {memory(n) for n in wanted if UNCOUNTED not in n.meta} - {None}


def _cut(graph: Any, fixed: set[Node], reads: set[Node]) -> set[Node]:
    if not reads:
        return set()
    if not fixed:  # made of constants alone
        return set()
    if len(graph) == 2:
        return set(reads)
    import networkx

    network = networkx.DiGraph(graph)
    for node in fixed:
        network.add_edge(_SOURCE, (node, 0), capacity=math.inf)
    for node in reads:
        network.add_edge((node, 1), _SINK, capacity=math.inf)
    _, (near, _far) = networkx.minimum_cut(
        network, _SOURCE, _SINK, flow_func=networkx.algorithms.flow.boykov_kolmogorov
    )
    return {
        entry[0]
        for entry in near
        if entry != _SOURCE and entry[1] == 0 and (entry[0], 1) not in near
    }
