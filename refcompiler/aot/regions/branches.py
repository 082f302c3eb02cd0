"""``torch.cond`` and ``torch.while_loop`` in a trace: functional graphs of their own.

The node stays one over ATen graphs. In the backward of ``cond`` a second one runs, whose branches
compute the branch again and then its gradients; an operand that a branch does not read has a
gradient of zeros, as in eager. Where a branch draws random numbers, it draws other ones when it is
computed again, as it does in eager.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import get_proxy_mode, track_tensor_tree
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from refcompiler.aot.draws import INSIDE, drawing
from refcompiler.aot.functional import FunctionalMode, plain
from refcompiler.aot.inputs import Runner, Unsupported
from refcompiler.aot.regions.checkpoint import in_region
from refcompiler.aot.tracing import trace

#: Of the trace that is under way.
DECOMPOSITIONS: ContextVar[dict[Any, Any]] = ContextVar("DECOMPOSITIONS")

_operators = torch.ops.higher_order
_PARTS = "part_"  # attributes of the traced module


def cond(runner: Runner, target: Any, predicate: Any, yes: Any, no: Any, operands: Any) -> Any:
    """Both branches are traced; which one runs is decided by the compiled graph's own values."""
    operands = tuple(operands)
    if not torch.is_grad_enabled() or not any(_differentiable(t) for t in operands):
        return _chosen(runner, predicate, (yes, no), operands)
    return _Cond.apply(runner, (yes, no), predicate, *operands)


def while_loop(
    runner: Runner, target: Any, test: Any, body: Any, carried: Any, more: Any = ()
) -> Any:
    """Test and body are traced once."""
    operands = (*carried, *more)
    if torch.is_grad_enabled() and any(_differentiable(t) for t in operands):
        raise Unsupported("gradients through torch.while_loop")
    given = _plain_all(operands)
    graphs = _traced(_run(runner, test), given, False), _traced(_run(runner, body), given)
    results = _results(graphs[1], given[: len(carried)])
    return _node(target, [*graphs, tuple(carried), tuple(more)], results)


class _Cond(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, runner: Runner, branches: Any, predicate: Any, *operands: Any) -> Any:
        results = _chosen(runner, predicate, branches, operands)
        ctx.runner, ctx.branches = runner, branches
        ctx.wanted = [n for n, needed in enumerate(ctx.needs_input_grad[3:]) if needed]
        ctx.save_for_backward(predicate, *operands)
        ctx.mark_non_differentiable(*[t for t in results if not t.is_floating_point()])
        return results

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        predicate, *operands = ctx.saved_tensors
        given = _plain_all((*operands, *tangents))
        graphs = [
            _traced(_gradients(ctx.runner, branch, len(operands), ctx.wanted), given)
            for branch in ctx.branches
        ]
        results = _results(graphs[0])
        for graph in graphs:
            _same_kinds(results, graph)
        found = _node(_operators.cond, [predicate, *graphs, (*operands, *tangents)], results)
        gradients: list[Any] = [None] * len(operands)
        for n, gradient in zip(ctx.wanted, found, strict=True):
            gradients[n] = gradient
        return (None, None, None, *gradients)


def _chosen(runner: Runner, predicate: Any, branches: Sequence, operands: Sequence) -> Any:
    if not isinstance(predicate, torch.Tensor):
        return Runner(branches[0 if predicate else 1], {}, runner.regions).run(*operands)
    given = _plain_all(operands)
    graphs = [_traced(_run(runner, branch), given) for branch in branches]
    results = _results(graphs[0])
    _same_kinds(results, graphs[1])
    return _node(_operators.cond, [predicate, *graphs, tuple(operands)], results)


def _run(runner: Runner, graph: GraphModule) -> Callable[..., Any]:
    return lambda *operands: Runner(graph, {}, runner.regions).run(*operands)


def _gradients(
    runner: Runner, branch: GraphModule, count: int, wanted: Sequence[int]
) -> Callable[..., Any]:
    """A branch's gradients for the operands ``wanted``, of operands and then tangents."""

    def function(*given: Any) -> list[Any]:
        operands, tangents = list(given[:count]), given[count:]
        with torch.enable_grad():
            for n in wanted:
                operands[n] = operands[n].detach().requires_grad_()
            results = Runner(branch, {}, runner.regions).run(*operands)
            pairs = [(r, t) for r, t in zip(results, tangents, strict=True) if r.requires_grad]
            inputs = [operands[n] for n in wanted]
            found: Sequence[Any] = [None] * len(inputs)
            if pairs:
                outputs, cotangents = zip(*pairs, strict=True)
                found = torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True)
        memory = {plain(t).untyped_storage()._cdata for t in given}
        return [_like(t, g, memory) for t, g in zip(inputs, found, strict=True)]

    return function


def _like(t: torch.Tensor, gradient: torch.Tensor | None, memory: Collection[int]) -> torch.Tensor:
    """A gradient that lies as ``t`` does, whichever branch it comes from, in none of ``memory``."""
    if gradient is None:
        return torch.zeros_like(t)
    shared = plain(gradient).untyped_storage()._cdata in memory
    if plain(gradient).stride() == plain(t).stride() and not shared:
        return gradient
    return torch.empty_like(t).copy_(gradient)


def _traced(
    function: Callable[..., Any], given: Sequence[torch.Tensor], several: bool = True
) -> GraphModule:
    """The functional graph of ``function`` on fakes like ``given``, apart from what is around.

    ``several``: the function gives a tuple of tensors, not one tensor.
    """

    def program(*operands: torch.Tensor) -> Any:
        with FunctionalMode():
            found = function(*[FunctionalTensor.to_functional(t.detach()) for t in operands])
            results = [plain(t) for t in (found if several else (found,))]
        memory = {t.untyped_storage()._cdata for t in operands}
        if any(t.untyped_storage()._cdata in memory for t in results):
            raise Unsupported("a branch returns a view of an operand")
        return tuple(results) if several else results[0]

    with _alone(given):
        operands = [t.detach() for t in given]
        names = [f"arg{n}" for n in range(len(operands))]
        graph = trace(program, operands, names, DECOMPOSITIONS.get())
    graph.meta[INSIDE] = any(map(drawing, graph.graph.nodes))
    if graph.meta[INSIDE] and in_region():
        raise Unsupported("a branch in a checkpointed region draws random numbers")
    return graph


@contextlib.contextmanager
def _alone(given: Sequence[torch.Tensor]) -> Iterator[None]:
    mode = given[0].fake_mode
    with _disable_current_modes(), mode:
        yield


def _results(graph: GraphModule, like: Sequence[torch.Tensor] | None = None) -> list[torch.Tensor]:
    """Fakes for what ``graph`` gives; a loop gives what it carries where it never runs."""
    values = _values(graph)
    if like is not None:
        _same_kinds(list(like), graph)
    with _alone(values):
        return [
            torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device) for t in values
        ]


def _values(graph: GraphModule) -> list[torch.Tensor]:
    (output,) = graph.graph.find_nodes(op="output")
    return [node.meta["val"] for node in output.args[0]]


def _same_kinds(results: Sequence[torch.Tensor], graph: GraphModule) -> None:
    kinds = [
        [(t.shape, t.stride(), t.dtype, t.device) for t in values]
        for values in (results, _values(graph))
    ]
    if kinds[0] != kinds[1]:
        raise Unsupported("the branches of torch.cond give tensors that lie in different ways")


def _node(target: Any, arguments: Sequence[Any], results: Sequence[torch.Tensor]) -> Any:
    """A node of the trace, ``target(*arguments)``, whose values are ``results``, functional."""
    mode = get_proxy_mode()
    assert mode is not None
    tracer = mode.tracer

    def argument(value: Any) -> Any:
        if isinstance(value, GraphModule):
            number = sum(name.startswith(_PARTS) for name in tracer.root._modules)
            tracer.root.add_module(f"{_PARTS}{number}", value)
            return tracer.create_proxy("get_attr", f"{_PARTS}{number}", (), {})
        if isinstance(value, FunctionalTensor):
            value = plain(value)
        return tracer.unwrap_proxy(value)

    leaf = lambda value: isinstance(value, GraphModule)  # noqa: E731
    proxies = pytree.tree_map(argument, tuple(arguments), is_leaf=leaf)
    proxy = tracer.create_proxy("call_function", target, proxies, {})
    if any(isinstance(a, GraphModule) and a.meta.get(INSIDE) for a in arguments):
        proxy.node.meta[INSIDE] = True
    with _disable_current_modes():
        track_tensor_tree(tuple(results), proxy, constant=None, tracer=tracer)
    return tuple([FunctionalTensor.to_functional(t) for t in results])


def _plain_all(values: Sequence[Any]) -> list[torch.Tensor]:
    if not all(isinstance(t, torch.Tensor) for t in values):
        raise Unsupported("a branch or loop takes a number from outside")
    if not values:
        raise Unsupported("a branch or loop without operands")
    return [plain(t) if isinstance(t, FunctionalTensor) else t for t in values]


def _differentiable(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and t.requires_grad


# ---- a look without a trace -------------------------------------------------------------------


def observed_cond(
    runner: Runner, target: Any, predicate: Any, yes: Any, no: Any, operands: Any
) -> Any:
    """Fakes like the branches' results."""
    return _observed(
        operands, *[Runner(graph, {}, runner.regions).run(*operands) for graph in (yes, no)]
    )


def observed_loop(
    runner: Runner, target: Any, test: Any, body: Any, carried: Any, more: Any = ()
) -> Any:
    operands = (*carried, *more)
    return _observed(operands, Runner(body, {}, runner.regions).run(*operands))


def _observed(operands: Any, *choices: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    made = []
    grows = torch.is_grad_enabled() and any(_differentiable(t) for t in operands)
    for t in choices[0]:
        like = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)
        if grows and t.is_floating_point():
            like = like.requires_grad_().view_as(like).clone()  # a result, not a leaf
        made.append(like)
    return tuple(made)
