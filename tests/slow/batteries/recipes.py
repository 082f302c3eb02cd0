"""Ways to train a model: which optimizer, and what is done around its steps."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch.utils import _pytree as pytree

Optimizer = Callable[..., torch.optim.Optimizer]
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]

SGD: Optimizer = lambda parameters, **more: torch.optim.SGD(  # noqa: E731
    parameters, lr=0.01, momentum=0.9, **more
)
ADAMW: Optimizer = lambda parameters, **more: torch.optim.AdamW(  # noqa: E731
    parameters, lr=1e-3, **more
)


@dataclass(frozen=True)
class Recipe:
    """``backwards`` per step; ``scale``: a gradient scaler's first; ``checkpoint``: the model's
    layers are computed again in the backward; ``compiled``: the optimizer's step is compiled too.
    """

    optimizer: Optimizer
    backwards: int = 1
    scale: float | None = None
    checkpoint: bool = False
    compiled: bool = False


PLAIN = {"SGD": Recipe(SGD), "AdamW": Recipe(ADAMW)}
MORE = {
    "accumulated gradients": Recipe(ADAMW, backwards=3),
    "scaled gradients": Recipe(SGD, scale=2.0**10),
    "checkpoints": Recipe(ADAMW, checkpoint=True),
    "SGD compiled": Recipe(SGD, compiled=True),
    "AdamW foreach": Recipe(lambda p: ADAMW(p, foreach=True)),
    "AdamW foreach compiled": Recipe(lambda p: ADAMW(p, foreach=True), compiled=True),
    "AdamW fused": Recipe(lambda p: ADAMW(p, fused=True)),
    "AdamW fused compiled": Recipe(lambda p: ADAMW(p, fused=True), compiled=True),
}
RECIPES = PLAIN | MORE


@dataclass
class Curve:
    """One training: ``losses`` of its steps, and ``end``, everything that it left behind."""

    losses: list[torch.Tensor]
    end: list[torch.Tensor | None]


class Untrainable(Exception):
    """The model has no such recipe."""


def seed() -> None:
    torch.manual_seed(1)
    random.seed(1)
    numpy.random.seed(1)  # masks of models of sound


def prepare(model: torch.nn.Module, recipe: Recipe) -> None:
    """What the recipe changes of a model before it is compiled."""
    if not recipe.checkpoint:
        return
    if not getattr(model, "supports_gradient_checkpointing", False):
        raise Untrainable("the model has no checkpoints")
    model.gradient_checkpointing_enable({"use_reentrant": False})


def train(
    model: torch.nn.Module,
    call: Callable[..., Any],
    inputs: Any,
    recipe: Recipe,
    steps: int,
    compiled: Compile = lambda function: function,
) -> Curve:
    """``steps`` steps of ``call``, which is ``model`` or what was compiled of it.

    ``compiled`` compiles the optimizer's step, where the recipe says so.
    """
    seed()
    made = recipe.optimizer(list(model.parameters()))
    step: Any = compiled(made.step) if recipe.compiled else made.step
    scaler = torch.amp.GradScaler(
        "cpu", init_scale=recipe.scale or 1.0, growth_interval=4, enabled=recipe.scale is not None
    )
    losses = []
    for _ in range(steps):
        made.zero_grad()
        for _ in range(recipe.backwards):
            found = loss(call(**copy.deepcopy(inputs)))
            scaler.scale(found / recipe.backwards).backward()
            losses.append(found.detach())
        if recipe.scale is None:
            step()
        else:
            scaler.step(made)
            scaler.update()
    gradients = [p.grad for p in model.parameters()]
    return Curve(losses, [*gradients, *model.state_dict().values(), states(model)])


def states(model: torch.nn.Module) -> torch.Tensor:
    """Of the generators that the model may draw from."""
    devices = {p.device for p in model.parameters() if p.is_cuda}
    return torch.cat([torch.get_rng_state(), *map(torch.cuda.get_rng_state, devices)])


def loss(result: Any) -> torch.Tensor:
    """The mean square of the first tensor with a gradient."""
    tensors = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
    first = next(t for t in tensors if t.requires_grad)
    return first.to(torch.promote_types(first.dtype, torch.float32)).square().mean()
