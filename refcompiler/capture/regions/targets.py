"""What the nodes of regions run: a transformation of torch over a graph instead of a function.

Each maker gives a function ``(graph modules ..., tensors ...) -> tuple of tensors`` that any
backend can run or trace; everything else that the transformation needs is in its closure.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._guards import TracingContext
from torch.autograd.function import once_differentiable
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from refcompiler.capture.door import indices_as_tensors
from refcompiler.reentrant import called, demand, severed
from refcompiler.remade import made, maker


class _Slot:
    def __repr__(self) -> str:
        return "<tensor>"


SLOT = _Slot()


def is_tensor(value: Any) -> bool:
    return issubclass(type(value), torch.Tensor)


def tensors_of(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if is_tensor(leaf)]


@dataclass(frozen=True)
class Form:
    """The structure of a value without its tensors."""

    leaves: tuple[Any, ...]
    spec: Any

    @classmethod
    def of(cls, value: Any) -> Form:
        leaves, spec = pytree.tree_flatten(value)
        return cls(tuple([SLOT if is_tensor(leaf) else leaf for leaf in leaves]), spec)

    @property
    def tensors(self) -> int:
        return sum(leaf is SLOT for leaf in self.leaves)

    def fill(self, tensors: Sequence[Any]) -> Any:
        given = iter(tensors)
        return pytree.tree_unflatten(
            [next(given) if leaf is SLOT else leaf for leaf in self.leaves], self.spec
        )


def named(function: Any, name: str) -> Callable:
    """``function`` as graphs print it."""
    function.__name__ = function.__qualname__ = name
    return function


def transformation(
    name: str,
    transform: Callable[[Callable], Callable],
    arguments: Form,
    value: Form,
    element_indices: bool = False,
) -> Callable:
    """``transform(function)(*args, **kwargs)``, where a graph computes the function.

    ``arguments`` is the form of ``(args, kwargs)``, ``value`` that of what the function returns.
    The tensors are those of the arguments, then the ones that the graph reads besides.
    ``element_indices``: where the graph indexes with tensors of one element, torch's own mode for
    that is on.
    """
    count = arguments.tensors
    mode = indices_as_tensors if element_indices else contextlib.nullcontext

    def run(graph: torch.fx.GraphModule, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        lifted = tensors[count:]

        def function(*args: Any, **kwargs: Any) -> Any:
            return value.fill(graph.forward(*tensors_of((args, kwargs)), *lifted))

        args, kwargs = arguments.fill(tensors[:count])
        with mode():
            return tuple(tensors_of(transform(function)(*args, **kwargs)))

    return named(run, name)


def pullback(arguments: Form, cotangent: Form, value: Form, options: dict[str, Any]) -> Callable:
    """The function that ``torch.func.vjp`` gives, applied: primals, cotangents, lifted."""
    primals = arguments.tensors
    cotangents = cotangent.tensors

    def run(graph: torch.fx.GraphModule, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        lifted = tensors[primals + cotangents :]

        def function(*args: Any) -> Any:
            return value.fill(graph.forward(*tensors_of(args), *lifted))

        args, _ = arguments.fill(tensors[:primals])
        pull = torch.func.vjp(function, *args, **options)[1]
        given = cotangent.fill(tensors[primals : primals + cotangents])
        return tuple(tensors_of(pull(given)))

    return named(run, "vjp_pullback")


@maker
def checkpointed(options: dict[str, Any], saved: Sequence[int]) -> Callable:
    """``torch.utils.checkpoint.checkpoint`` of a graph.

    ``saved``: which of the graph's tensors the function is called with, so that they are saved, and
    a write to one until the backward is an error. All others a recompute reads as they are then.
    Where torch's own stack traces, it gets its operator for it, which tags what to recompute.
    """
    tagged = torch.ops.higher_order.tag_activation_checkpoint
    context = options.get("context_fn")
    options, reentrant = {**options}, options.get("use_reentrant", False)
    options["use_reentrant"] = False  # its function takes all that it reads
    rest = {k: v for k, v in options.items() if k != "context_fn"}

    def run(graph: torch.fx.GraphModule, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if TracingContext.try_get() is not None:
            if context is not None:
                graph.meta["_checkpoint_context_fn"] = context
            return tuple(tagged(graph, *tensors, **rest))
        given = severed(tensors) if reentrant else tensors
        results = tuple(checkpoint(*called(graph, given, saved), **options))
        if reentrant:
            demand(results)
        return results

    given = {**options, "use_reentrant": reentrant}
    run.region, run.options, run.saved = "checkpoint", given, saved  # type: ignore[attr-defined]
    return named(made(run, checkpointed, given, saved), "checkpoint")


@maker
def nested(name: str) -> Callable:
    """A graph that occurs several times under one ``name``; torch's own stack compiles it once."""
    operator = torch.ops.higher_order.invoke_subgraph

    def run(graph: torch.fx.GraphModule, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if TracingContext.try_get() is not None:
            return tuple(operator(graph, name, *tensors))
        return tuple(graph.forward(*tensors))

    return named(made(run, nested, name), "nested_region")


@dataclass(frozen=True)
class Differentiation:
    """How a custom ``autograd.Function`` computes and what it keeps.

    ``inputs`` tensors go into ``apply``, then ``lifted`` values that forward or backward read
    besides, numbers among them; ``outputs`` tensors come out of forward's graph, followed by
    intermediates that the backward's graph takes. That graph takes the gradients, then the
    intermediates, then inputs and outputs by their places in ``kept_inputs`` and ``kept_outputs``.
    Where gradients are not materialized there is a backward for each choice of outputs that have
    one, ``given``; all take the same.
    """

    name: str
    inputs: int
    outputs: int
    forward_reads: tuple[int, ...]
    kept_inputs: tuple[int, ...]
    kept_outputs: tuple[int, ...]
    non_differentiable: tuple[int, ...]
    dirty: tuple[int, ...]  # inputs that forward changes in place
    materialize: bool
    given: tuple[tuple[int, ...], ...]  # for each backward, the outputs that have a gradient
    #: For each backward and input, the place of its gradient in what the backward's graph gives.
    gradients: tuple[tuple[int | None, ...], ...]
    failing: dict[tuple[int, ...], Exception]  # what backward raises for other choices of outputs
    once: bool  # backward is not differentiable itself
    #: Which of the kept, by number, forward has left with ``ctx`` and not given to autograd, so
    #: that nobody counts writes to it, or packs it, or computes it again.
    held: frozenset[int] = frozenset()

    def way(self, gradients: Sequence[Any]) -> int:
        """Which backward it is."""
        if len(self.given) == 1 and not self.failing:
            return 0
        found = tuple([i for i, g in enumerate(gradients) if g is not None])
        if found in self.failing:
            error = self.failing[found]
            raise type(error)(*error.args)
        return self.given.index(found)


def custom_function(rule: Differentiation) -> Callable:
    """``autograd.Function.apply`` over a graph for forward and one for each backward."""
    graph_count = 1 + len(rule.given)

    def forward(ctx: Any, graphs: Any, *tensors: Any) -> Any:
        found = graphs[0](*[tensors[i] for i in rule.forward_reads])
        outputs = tuple(found[: rule.outputs])
        ctx.graphs = graphs[1:]
        ctx.count = len(tensors)
        ctx.between = len(found) - rule.outputs
        ctx.mark_non_differentiable(*[outputs[i] for i in rule.non_differentiable])
        ctx.mark_dirty(*[tensors[i] for i in rule.dirty])
        ctx.set_materialize_grads(rule.materialize)
        kept = [
            *found[rule.outputs :],
            *[tensors[i] for i in rule.kept_inputs],
            *[outputs[i] for i in rule.kept_outputs],
        ]
        saved = [is_tensor(value) and n not in rule.held for n, value in enumerate(kept)]
        ctx.held = [None if own else value for own, value in zip(saved, kept)]
        ctx.save_for_backward(*itertools.compress(kept, saved))
        return outputs

    def backward(ctx: Any, *grads: Any) -> Any:
        # Who asks for nothing may be asked again when what was saved is freed.
        saved = iter(ctx.saved_tensors if None in ctx.held else ())
        kept = [next(saved) if value is None else value for value in ctx.held]
        way = rule.way(grads)
        found = ctx.graphs[way](*grads, *kept)
        gradients = [None if i is None else found[i] for i in rule.gradients[way]]
        return (None, *gradients, *[None] * (ctx.count - rule.inputs))

    kind: Any = type(
        rule.name,
        (torch.autograd.Function,),
        {
            "forward": staticmethod(forward),
            "backward": staticmethod(once_differentiable(backward) if rule.once else backward),
        },
    )

    def run(*given: Any) -> Any:
        return kind.apply(given[:graph_count], *given[graph_count:])

    return named(run, rule.name)
