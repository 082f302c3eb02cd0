"""Functions with cells that native code runs: they hold what they hold in eager."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import refcompiler

MM, SIN = torch.ops.aten.mm.default, torch.ops.aten.sin.default
kept = functools.partial(checkpoint, use_reentrant=False)
contexts = functools.partial(functools.partial, create_selective_checkpoint_contexts)


def policy_of(*operators: Any) -> Callable[..., Any]:
    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        if op in operators:
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    return policy


def region(w: Any) -> Callable[[Any], Any]:
    return lambda a: (a @ w).sin() @ w


def by_partial(x: Any, w: Any, saved: Any) -> Any:
    return kept(region(w), x, context_fn=contexts(policy_of(MM, SIN)))


def by_dict(x: Any, w: Any, saved: Any) -> Any:
    held = {"a": [1, (MM, saved)]}

    def given() -> Any:
        one, (operator, others) = held["a"]
        assert type(held) is dict and type(others) is list and one == 1
        return create_selective_checkpoint_contexts([operator, *others])

    return kept(region(w), x, context_fn=given)


def by_function(x: Any, w: Any, saved: Any) -> Any:
    policy, others = policy_of(MM), saved

    def given(twice: int = 2, *, rest: Any = saved) -> Any:
        assert rest is others and all(map(callable, rest))
        return create_selective_checkpoint_contexts(policy)

    return kept(region(w), x, context_fn=given)


def by_method(x: Any, w: Any, saved: Any) -> Any:
    operators = [MM]

    class Given:
        def __init__(self, *operators: Any):
            self.policy = policy_of(*operators)

        def contexts(self) -> Any:
            assert operators == [MM]
            return create_selective_checkpoint_contexts(self.policy)

    return kept(region(w), x, context_fn=Given(MM, SIN).contexts)


def by_hook(x: Any, w: Any, saved: Any) -> Any:
    factors = {"a": [2.0, (3.0,)]}
    y = x * 2
    y.register_hook(lambda gradient: gradient * factors["a"][0])
    w.register_hook(lambda gradient: gradient * factors["a"][1][0])
    return y @ w


def by_sorting(x: Any, w: Any, saved: Any) -> Any:
    order = {"a": [2, 0, 1]}
    first = sorted(range(3), key=lambda i: order["a"][i])[0]
    return x * first * max((1, 2), key=lambda i: order["a"][i]) @ w


def by_mapping(x: Any, w: Any, saved: Any) -> Any:
    held = (2.0, [3.0, 4.0])
    total = functools.reduce(lambda a, b: a + held[1][b], [0, 1], 0)
    seen = [*filter(lambda i: i in held, [2.0]), *itertools.starmap(lambda i: held[i], [(0,)])]
    return x * sum(map(lambda i: held[1][i], range(2))) * total * sum(seen) @ w


def by_transform(x: Any, w: Any, saved: Any) -> Any:
    held = {"a": [2.0, (w,)]}
    rows = torch.vmap(lambda a: a * held["a"][0] @ held["a"][1][0])(x)
    return rows + torch.func.grad(lambda a: (a @ held["a"][1][0]).sum() * held["a"][0])(x)


def by_branch(x: Any, w: Any, saved: Any) -> Any:
    held = {"a": [2.0, (w,)]}
    return torch.cond(
        x.sum() > 0,
        lambda a: a * held["a"][0] @ held["a"][1][0],
        lambda a: a - held["a"][1][0].sum(),
        (x,),
    )


def by_class(x: Any, w: Any, saved: Any) -> Any:
    rank = {"a": 2, "b": 1}

    class Ranked:
        def __init__(self, name: str):
            self.name = name

        def __lt__(self, other: Any) -> bool:
            return rank[self.name] < rank[other.name]

        def __index__(self) -> int:
            return rank[self.name]

    low = sorted([Ranked("a"), Ranked("b")])[0]
    return x * rank[low.name] * operator.getitem([1.0, 5.0], low) @ w


PROGRAMS = [v for k, v in list(globals().items()) if k.startswith("by_")]


def step(function: Callable[..., Any], seed: int, *rest: Any) -> list[Any]:
    torch.manual_seed(seed)
    x, w = torch.randn(4, 4).requires_grad_(), torch.randn(4, 4).requires_grad_()
    y = function(x, w, *rest)
    y.sum().backward()
    return [y.detach(), x.grad, w.grad]


class Running:
    """Runs graphs as they are, and keeps what they raise; capture would go on without them."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []
        self.errors: list[BaseException] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        self.graphs.append(graph)

        def run(*args: Any) -> Any:
            try:
                return graph(*args)
            except BaseException as error:
                self.errors.append(error)
                raise

        return run


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_cells_hold_objects(program: Callable[..., Any]) -> None:
    backend = Running()
    compiled = refcompiler.compile(program, backend=backend, fullgraph=True)
    saved, compared = [SIN], 0
    for seed in range(2):
        ours, theirs = step(compiled, seed, saved), step(program, seed, saved)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)
            compared += 1
    assert (compared, len(backend.graphs), backend.errors) == (6, 1, [])


def test_a_list_from_outside_is_guarded() -> None:
    backend = Running()
    compiled = refcompiler.compile(by_dict, backend=backend, fullgraph=True)
    for saved in ([], [], [SIN], [SIN]):
        for a, b in zip(step(compiled, 0, saved), step(by_dict, 0, saved), strict=True):
            torch.testing.assert_close(a, b)
    assert (len(backend.graphs), backend.errors) == (2, [])


def changed_later(x: Any, w: Any) -> Any:
    operators = [MM]

    def given() -> Any:
        return create_selective_checkpoint_contexts([*operators])

    y = kept(region(w), x, context_fn=given)
    operators.append("no operator")
    return y


def of_a_tensor(x: Any, w: Any) -> Any:
    t = x.detach() * 2

    def given() -> Any:
        assert type(t) is torch.Tensor
        return create_selective_checkpoint_contexts([MM])

    return kept(region(w), x, context_fn=given)


OUTSIDE = [MM]


def changed_before(x: Any, w: Any) -> Any:
    operators = OUTSIDE
    operators.append(SIN)
    y = kept(region(w), x, context_fn=contexts(policy_of(operators)))
    operators.pop()
    return y


@pytest.mark.parametrize(
    "program, why",
    [
        (changed_later, "is changed after that"),
        (of_a_tensor, "reads a tensor"),
        (changed_before, "what the frame has changed"),
    ],
)
def test_what_cannot_be_handed_over_runs_natively(program: Callable[..., Any], why: str) -> None:
    with pytest.raises(refcompiler.errors.GraphBreakError, match=why):
        step(refcompiler.compile(program, backend="eager", fullgraph=True), 0)
    backend = Running()
    compiled = refcompiler.compile(program, backend=backend)
    for seed in range(2):
        for a, b in zip(step(compiled, seed), step(program, seed), strict=True):
            torch.testing.assert_close(a, b)
    assert backend.errors == []
