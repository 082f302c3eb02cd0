"""Backends with one fault each, at a stage that is known: what a search has to find."""

from __future__ import annotations

import ctypes
import itertools
import operator
import os
import random
import time

import torch
from torch.fx import GraphModule

from refcompiler.aot import aot_autograd
from refcompiler.aot.partition import default_partition, min_cut_partition

_numbers = itertools.count()


def _scaled(gm: GraphModule, wanted, factor: float = 1.01) -> GraphModule:
    """Nodes that are ``wanted`` are ``factor`` times too large."""
    for node in list(gm.graph.nodes):
        if node.op in ("call_function", "call_method") and wanted(node):
            with gm.graph.inserting_after(node):
                made = gm.graph.call_function(torch.mul, (node, factor))
            node.replace_all_uses_with(made)
            made.args = (node, factor)
    gm.recompile()
    return gm


def _is(node, *names: str) -> bool:
    if node.op not in ("call_function", "call_method"):
        return False
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name.partition(".")[0] in names


class Run(torch.fx.Interpreter):
    """Node by node: compiled code in the eyes of whoever only sees a callable."""

    def __call__(self, *args):
        return self.run(*args)


def forward(gm, inputs):
    return Run(_scaled(gm, lambda n: _is(n, "tanh")))


def third_graph(gm, inputs):
    """Wrong in graph number 2 of a process."""
    wrong = next(_numbers) == 2
    return Run(_scaled(gm, lambda n: wrong and _is(n, "sin")))


def adjacent(gm, inputs):
    """Wrong where exp reads a product that nobody else does."""

    def wanted(node):
        read = node.all_input_nodes
        return _is(node, "exp") and any(_is(n, "mul") and len(n.users) == 1 for n in read)

    return Run(_scaled(gm, wanted))


def low_precision(gm, inputs):
    """Takes tanh in bfloat16; what comes behind it hides that."""
    for node in [n for n in gm.graph.nodes if _is(n, "tanh")]:
        with gm.graph.inserting_before(node):
            low = gm.graph.call_method("bfloat16", (node.args[0],))
        node.args = (low,)
        with gm.graph.inserting_after(node):
            back = gm.graph.call_method("float", (node,))
        node.replace_all_uses_with(back)
        back.args = (node,)
    gm.recompile()
    return Run(gm)


def drops_mutation(gm, inputs):
    for node in list(gm.graph.nodes):
        if node.op == "call_method" and node.target == "add_":
            node.target = "add"
        elif node.op == "call_function" and node.target is operator.iadd:
            node.target = operator.add
    gm.recompile()
    return Run(gm)


def other_draws(gm, inputs):
    run = Run(gm)

    def call(*args):
        torch.rand(1)
        return run(*args)

    return call


def other_dtype(gm, inputs):
    run = Run(gm)
    return lambda *args: tuple(o.double() for o in run(*args))


def other_strides(gm, inputs):
    run = Run(gm)
    return lambda *args: tuple(o.t().contiguous().t() for o in run(*args))


def dies_of_tanh(gm, inputs):
    run, dies = Run(gm), any(_is(n, "tanh") for n in gm.graph.nodes)
    return lambda *args: ctypes.string_at(0) if dies else run(*args)


def raises_at_tanh(gm, inputs):
    if any(_is(n, "tanh") for n in gm.graph.nodes):
        raise RuntimeError("no tanh today")
    return Run(gm)


def hangs_at_tanh(gm, inputs):
    run, hangs = Run(gm), any(_is(n, "tanh") for n in gm.graph.nodes)

    def call(*args):
        while hangs:
            time.sleep(0.1)
        return run(*args)

    return call


def unsteady(gm, inputs):
    factor = 1 + random.SystemRandom().uniform(0.1, 0.2)
    return Run(_scaled(gm, lambda n: _is(n, "tanh"), factor))


def symbolic(gm, inputs):
    """Wrong in graphs that have symbols."""
    symbols = any(isinstance(i, torch.SymInt) for i in inputs)
    return Run(_scaled(gm, lambda n: symbols and _is(n, "tanh")))


symbolic.takes_symbols = True


def noise(gm, inputs):
    """Rounds otherwise than eager, as often as eager."""
    run = Run(gm)

    def call(*args):
        out = run(*[a.double() if isinstance(a, torch.Tensor) else a for a in args])
        return tuple(o.float() for o in out)

    return call


def reuses_memory(gm, inputs):
    run, kept = Run(gm), []

    def call(*args):
        out = run(*args)
        if not kept:
            kept.extend(torch.empty_like(o) for o in out)
        return tuple([k.copy_(o) for k, o in zip(kept, out)])

    return call


def exits(gm, inputs):
    os._exit(3)


# -- stages of ahead-of-time compilation ----------------------------------------------------------


def _compiler(wanted):
    def compile(graph, inputs):
        return _scaled(graph, wanted).forward

    return compile


def _as_it_is(graph, inputs):
    return graph.forward


backward = aot_autograd(
    fw_compiler=_as_it_is, bw_compiler=_compiler(lambda n: "cos" in str(n.target))
)
kernel = aot_autograd(fw_compiler=_compiler(lambda n: "tanh" in str(n.target)))


def _wrong_tanh(x):
    return 1.01 * (1 - 2 / (torch.exp(2 * x) + 1))


decomposition = aot_autograd(
    fw_compiler=_as_it_is, decompositions={torch.ops.aten.tanh.default: _wrong_tanh}
)


def _wrong_partition(joint, inputs, *, num_fwd_outputs):
    forward, backward = min_cut_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs)
    return forward, _scaled(backward, lambda n: "mul" in str(n.target))


partition = aot_autograd(fw_compiler=_as_it_is, partition_fn=_wrong_partition)
right = aot_autograd(fw_compiler=_as_it_is, partition_fn=default_partition)


def checks_nothing(gm, inputs):
    """The entropy of targets that eager refuses."""

    def entropy(x, y, weight=None, reduction="mean"):
        return -(y * x.log() + (1 - y) * (1 - x).log()).mean()

    for node in gm.graph.nodes:
        if _is(node, "binary_cross_entropy"):
            node.target = entropy
            node.kwargs = {}
    gm.recompile()
    return Run(gm)


def other_quotient(gm, inputs):
    """Rounds a quotient before it rounds it down."""
    for node in gm.graph.nodes:
        if _is(node, "div"):
            node.target, node.kwargs = (lambda x, y: torch.floor(x / y)), {}
    gm.recompile()
    return Run(gm)


def only_eager(gm, inputs):
    return lambda *args: gm(*args)
