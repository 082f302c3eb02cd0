"""The registry of idioms, and what many of them are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn as nn

Compiled = Callable[..., Any]  # of a function or module, and options of refcompiler.compile
Program = Callable[[Compiled], "list[Any]"]


@dataclass(frozen=True)
class Idiom:
    """A small program and how what it returns is judged.

    The program takes what compiles a function or a module, and returns all that can be observed.
    """

    name: str
    program: Program
    captured: str = ""  # why it is compared with its captured graph, not with eager
    rounded: str = ""  # why it has not eager's bits under a backend that runs eager's kernels
    bound: float = 0.0  # and what it is within there, of the largest magnitude
    coarse: str = ""  # why a code generator is further from eager than rounding in float32
    within: float = 3e-5  # and what it is within there


IDIOMS: dict[str, Idiom] = {}


def idiom(program: Program | None = None, **known: Any) -> Any:
    """Registers a program; ``known``: exceptions, as :class:`Idiom` names them."""

    def register(program: Program) -> Program:
        IDIOMS[program.__name__] = Idiom(program.__name__, program, **known)
        return program

    return register if program is None else register(program)


@dataclass(frozen=True)
class Adapted:
    """What an optimizer of normalised steps trained.

    Where a gradient is zero up to rounding (a bias before a batch norm, attention's key bias), a
    normalised step is as long as any, and where it goes is noise. So a code generator is judged by
    the losses and outputs, not by these; a backend that runs eager's kernels has to have them.
    """

    tensor: torch.Tensor


def state(*modules: nn.Module) -> list[Any]:
    """Parameters and buffers as they are now."""
    return [
        value.detach().clone()
        for module in modules
        for value in module.state_dict().values()
        if isinstance(value, torch.Tensor)
    ]


def adapted(*modules: nn.Module) -> list[Any]:
    """:func:`state` of modules that were trained by normalised steps."""
    return [Adapted(value) for value in state(*modules)]


def mlp(inputs: int = 8, hidden: int = 16, outputs: int = 4, drop: float = 0.1) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.GELU(), nn.Dropout(drop), nn.Linear(hidden, outputs)
    )


def descend(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> torch.Tensor:
    """One step of training, outside of what is compiled; gives the loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def fit(
    model: nn.Module,
    make: Callable[[], Sequence[Any]],
    compiled: Compiled,
    steps: int = 3,
    loss: Callable[[Any], torch.Tensor] | None = None,
) -> list[Any]:
    """Losses of a few steps of AdamW, and the state after them.

    ``make`` draws what the model takes; ``loss`` takes what it gives (default: that is the loss).
    """
    run = compiled(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    out = []
    for _ in range(steps):
        found = run(*make())
        out.append(descend(optimizer, loss(found) if loss else found))
    return out + adapted(model)


def values_and_gradients(
    compiled: Compiled,
    function: Callable[..., Any],
    *makes: Callable[[], Sequence[Any]],
    grad: bool = True,
) -> list[Any]:
    """What the function gives for what each of ``makes`` draws, and gradients of its squares."""
    run = compiled(function)
    out: list[Any] = []
    for make in makes:
        args = make()
        leaves = []
        for arg in args:
            if grad and isinstance(arg, torch.Tensor) and arg.is_floating_point():
                leaves.append(arg.requires_grad_())
        found = torch.utils._pytree.tree_leaves(run(*args))
        out += [t.detach() if isinstance(t, torch.Tensor) else t for t in found]
        ends = [t for t in found if isinstance(t, torch.Tensor) and t.requires_grad]
        if ends:
            reals = [torch.view_as_real(t) if t.is_complex() else t for t in ends]
            total = sum(t.square().sum() for t in reals)
            out += torch.autograd.grad(total, leaves, allow_unused=True)
    return out
