"""Functional graphs of functions within a trace: as they are traced, and what nodes they become."""

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
from refcompiler.aot.regions.checkpoint import pairing
from refcompiler.aot.tracing import trace

#: Of the trace that is under way.
DECOMPOSITIONS: ContextVar[dict[Any, Any]] = ContextVar("DECOMPOSITIONS")

_PARTS = "part_"  # attributes of the traced module


def run(runner: Runner, graph: GraphModule) -> Callable[..., Any]:
    return lambda *operands: Runner(graph, {}, runner.regions).run(*operands)


class Kept:
    """What a backward needs of operands that are tensors, which autograd saves, and numbers."""

    def __init__(self, operands: Sequence[Any]):
        self._all: list[Any] = list(operands)
        self._places = [n for n, t in enumerate(operands) if isinstance(t, torch.Tensor)]

    def tensors(self) -> list[torch.Tensor]:
        """The tensors, which are not kept."""
        found = [self._all[n] for n in self._places]
        for n in self._places:
            self._all[n] = None
        return found

    def filled(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """The operands, with ``tensors`` in their places."""
        found = list(self._all)
        for n, t in zip(self._places, tensors, strict=True):
            found[n] = t
        return found


class Casts:
    """Autocast as it is in a forward, for what the backward computes again."""

    def __init__(self) -> None:
        self._states = [
            (device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))
            for device in ("cpu", "cuda")
        ]

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for device, dtype, enabled in self._states:
                if enabled or torch.is_autocast_enabled(device):
                    stack.enter_context(torch.autocast(device, dtype, enabled=enabled))
            yield


def memory_of(values: Sequence[Any]) -> set[int]:
    return {plain(t).untyped_storage()._cdata for t in values if isinstance(t, torch.Tensor)}


def like(t: torch.Tensor, gradient: torch.Tensor | None, memory: Collection[int]) -> torch.Tensor:
    """A gradient that lies as ``t`` does, whichever branch it comes from, in none of ``memory``."""
    if gradient is None:
        return torch.zeros_like(t)
    shared = plain(gradient).untyped_storage()._cdata in memory
    if plain(gradient).stride() == plain(t).stride() and not shared:
        return gradient
    return torch.empty_like(t).copy_(gradient)


def traced(function: Callable[..., Any], given: Sequence[Any], several: bool = True) -> GraphModule:
    """The functional graph of ``function`` on fakes like ``given``, apart from what is around.

    ``given``: tensors and numbers; a float is an input of the graph as a tensor, of which torch's
    operators take nothing else. ``several``: the function gives a tuple of tensors, not one tensor.
    """

    def program(*operands: Any) -> Any:
        with FunctionalMode():
            found = function(*[_functional(t) for t in operands])
            results = [plain(t) for t in (found if several else (found,))]
        memory = {t.untyped_storage()._cdata for t in operands if isinstance(t, torch.Tensor)}
        if any(t.untyped_storage()._cdata in memory for t in results):
            raise Unsupported("a branch returns a view of an operand")
        return tuple(results) if several else results[0]

    with alone(given):
        operands = [_changing(t) if isinstance(t, torch.Tensor) else t for t in given]
        names = [f"arg{n}" for n in range(len(operands))]
        graph = trace(program, operands, names, DECOMPOSITIONS.get())
        _ask_for_floats(graph, given)
    graph.meta[INSIDE] = any(map(drawing, graph.graph.nodes))
    return graph


def _changing(t: Any) -> Any:
    """A fake like ``t`` of which no value is known: a loop begins with it, and goes on."""
    operand = t.detach()
    operand.constant = None
    return operand


def _ask_for_floats(graph: GraphModule, given: Sequence[Any]) -> None:
    """Inputs that are floats become tensors that the graph asks for their value."""
    for node, value in zip(graph.graph.find_nodes(op="placeholder"), given, strict=True):
        if not _is_float(value):
            continue
        with graph.graph.inserting_after(node):
            number = graph.graph.call_function(torch.ops.aten._local_scalar_dense.default, (node,))
        node.replace_all_uses_with(number, lambda user, number=number: user is not number)
        number.meta["val"] = value
        node.meta["val"] = torch.empty((), dtype=torch.float64)
    graph.recompile()


def _is_float(value: Any) -> bool:
    return isinstance(value, float | torch.SymFloat)


def _functional(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return FunctionalTensor.to_functional(value.detach())


@contextlib.contextmanager
def alone(given: Sequence[Any]) -> Iterator[None]:
    """With the fakes' mode, and no other."""
    mode = next(t.fake_mode for t in given if isinstance(t, torch.Tensor))
    with _disable_current_modes(), mode:
        yield


def values_of(graph: GraphModule) -> list[torch.Tensor]:
    (output,) = graph.graph.find_nodes(op="output")
    return [node.meta["val"] for node in output.args[0]]


def results_of(graph: GraphModule) -> list[torch.Tensor]:
    """Fakes for what ``graph`` gives."""
    values = values_of(graph)
    with alone(values):
        return [
            torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device) for t in values
        ]


def same_kinds(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> None:
    kinds = [
        [(t.shape, t.stride(), t.dtype, t.device) for t in values] for values in (some, others)
    ]
    if kinds[0] != kinds[1]:
        raise Unsupported("a branch or step gives tensors that lie in different ways")


def emit(target: Any, arguments: Sequence[Any], results: Sequence[torch.Tensor]) -> Any:
    """A node of the trace, ``target(*arguments)``, whose values are ``results``, functional."""
    mode = get_proxy_mode()
    assert mode is not None
    tracer = mode.tracer

    def argument(value: Any) -> Any:
        if isinstance(value, GraphModule):
            number = sum(name.startswith(_PARTS) for name in tracer.root._modules)
            tracer.root.add_module(f"{_PARTS}{number}", value)
            return tracer.create_proxy("get_attr", f"{_PARTS}{number}", (), {})
        if _is_float(value):
            value = torch.scalar_tensor(value, dtype=torch.float64)
        if isinstance(value, FunctionalTensor):
            value = plain(value)
        return tracer.unwrap_proxy(value)

    draws = any(isinstance(a, GraphModule) and a.meta.get(INSIDE) for a in arguments)
    pair = pairing(results[0].device) if draws else None
    leaf = lambda value: isinstance(value, GraphModule)  # noqa: E731
    proxies = pytree.tree_map(argument, tuple(arguments), is_leaf=leaf)
    proxy = tracer.create_proxy("call_function", target, proxies, {})
    if pair is not None:
        proxy.node.meta[INSIDE] = True
        pair(proxy.node)
    with _disable_current_modes():
        track_tensor_tree(tuple(results), proxy, constant=None, tracer=tracer)
    return tuple([FunctionalTensor.to_functional(t) for t in results])


def plain_all(values: Sequence[Any], none: bool = False) -> list[Any]:
    """What ``values`` hold, tensors (``none``: or none) and numbers."""
    if not all(isinstance(t, (torch.Tensor, torch.SymInt, int)) or _is_float(t) for t in values):
        raise Unsupported("a branch or loop takes what is no tensor, integer or float from outside")
    if not none and not any(isinstance(t, torch.Tensor) for t in values):
        raise Unsupported("a branch or loop without operands")
    return [plain(t) if isinstance(t, FunctionalTensor) else t for t in values]


def once(given: Sequence[Any]) -> None:
    """In a backward of what has graphs of its own, which autograd is not to differentiate."""
    if torch.is_grad_enabled() and any(map(differentiable, given)):
        raise Unsupported("second derivatives of a branch or loop")


def continuous(t: torch.Tensor) -> bool:
    """Whether its numbers may have a gradient."""
    return t.is_floating_point() or t.is_complex()


def differentiable(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and t.requires_grad


def observed(operands: Any, *choices: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    made = []
    grows = torch.is_grad_enabled() and any(differentiable(t) for t in operands)
    for t in choices[0]:
        like = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)
        if grows and continuous(t):
            like = like.requires_grad_().view_as(like).clone()  # a result, not a leaf
        made.append(like)
    return tuple(made)
