"""One program under one compiler: graphs, breaks, time, and everything that comes out."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._dynamo
from torch.utils import _pytree as pytree

import refcompiler
from refcompiler.runtime.counters import reasons
from tests.slow.batteries.entries import Program

CALLS = 2
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
EXACT = {"rtol": 0.0, "atol": 0.0}  # numbers of one byte, floats too


@dataclass
class Outcome:
    """``seconds``: of this process's time for the first call, so for capture and one run.

    ``whole``: one graph or none, and nothing ran beside it. ``difference``: how what came out
    differs from eager's, empty if it does not.
    """

    graphs: int = 0
    breaks: int = 0
    seconds: float = 0.0
    error: str = ""
    difference: str = ""
    why: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        return not self.error and not self.breaks and self.graphs <= 1


class Counting:
    """A backend that runs the graph as it is and counts."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, module: torch.fx.GraphModule, _inputs: Any) -> Callable:
        self.graphs += 1
        return module.forward


def _tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in a value; objects that pytree does not know give those in their namespace."""
    found: list[torch.Tensor] = []
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif isinstance(getattr(leaf, "__dict__", None), dict) and not callable(leaf):
            found.extend(_tensors(leaf.__dict__))
    return found


def _run(function: Callable, program: Program) -> dict[str, Any]:
    """What a call shows: its value, its arguments afterwards, gradients, and the random state."""
    torch.manual_seed(1)
    given = (program.args, program.kwargs)
    with torch.set_grad_enabled(program.grad):
        start = time.process_time()
        value = function(*program.args, **program.kwargs)
        seconds = time.process_time() - start
    seen: dict[str, Any] = {"seconds": seconds}
    outputs = _tensors(value)
    if program.values:  # before backward, which draws no numbers
        seen["random"] = [torch.get_rng_state()]
    seen["value"] = [t.detach() if t.layout is torch.strided else t.to_dense() for t in outputs]
    seen["needs"] = [t.requires_grad for t in outputs]
    seen["arguments"] = _tensors(given)
    seen["plain"] = [
        repr(leaf) for leaf in pytree.tree_leaves(value) if isinstance(leaf, (int, float, str))
    ]
    seen["same"] = [
        [i for i, other in enumerate(seen["arguments"]) if other is tensor] for tensor in outputs
    ]
    if isinstance(program.function, torch.nn.Module):
        module = program.function
        seen["state"] = [
            t.detach().clone() for t in module.state_dict().values() if isinstance(t, torch.Tensor)
        ]
        loss = [t.sum() for t in outputs if t.requires_grad and t.is_floating_point()]
        parameters = [p for p in module.parameters() if p.requires_grad]
        if program.grad and loss and parameters:
            found = torch.autograd.grad(sum(loss), parameters, allow_unused=True)
            seen["gradients"] = [g for g in found if g is not None]
            seen["used"] = [g is not None for g in found]
    return seen


def difference(expected: dict[str, Any], found: dict[str, Any], values: bool) -> str:
    for name in expected:
        mine, theirs = found.get(name), expected[name]
        if name == "seconds":
            continue
        if name in ("needs", "used", "same", "plain"):
            if mine != theirs and (values or name != "plain"):
                return f"{name}: {mine}, eager {theirs}"
            continue
        if mine is None or len(mine) != len(theirs):
            return f"{name}: another number of tensors"
        for a, b in zip(mine, theirs, strict=True):
            kinds = [(t.dtype, tuple(t.shape), t.layout, t.device) for t in (a, b)]
            if a.layout is torch.strided is b.layout:
                kinds = [(*k, t.stride()) for k, t in zip(kinds, (a, b), strict=True)]
            if kinds[0] != kinds[1]:
                return f"{name}: {kinds[0]}, eager {kinds[1]}"
            if not values and name in ("value", "arguments"):
                continue
            try:
                tolerance = TOLERANCE if a.element_size() > 1 else EXACT
                torch.testing.assert_close(a, b, equal_nan=True, check_stride=False, **tolerance)
            except AssertionError as error:
                return f"{name}: {str(error).splitlines()[0]}"
    return ""


def eager(program: Program) -> list[dict[str, Any]]:
    program = program.fresh()
    return [_run(program.function, _call_of(program)) for _ in range(CALLS)]


def _call_of(program: Program) -> Program:
    """The same program with arguments of its own."""
    args, kwargs = copy.deepcopy((program.args, program.kwargs))
    return Program(program.function, args, kwargs, program.grad, program.values)


def ours(function: Callable, backend: Callable) -> Callable:
    refcompiler.reset()
    return refcompiler.compile(function, backend=backend)


def theirs(function: Callable, backend: Callable) -> Callable:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    return torch.compile(function, backend=backend)


COMPILERS = {"refcompiler": ours, "torch": theirs}


def _why(compiler: str) -> list[str]:
    """A line for each graph break of the run that is just over."""
    if compiler == "refcompiler":
        found = [*reasons("breaks"), *reasons("fallbacks")]
    else:
        table = torch._dynamo.utils.counters["graph_break"]
        found = [reason for reason, count in table.items() for _ in range(count)]
    return [str(reason).splitlines()[0][:160] for reason in found]


def measure(program: Program, compiler: str, expected: list[dict[str, Any]]) -> Outcome:
    """The outcome of ``CALLS`` calls of a fresh copy of ``program``."""
    program = program.fresh()
    outcome, backend = Outcome(), Counting()
    compiled = COMPILERS[compiler](program.function, backend)
    for number, eagers in enumerate(expected):
        try:
            found = _run(compiled, _call_of(program))
        except Exception as error:
            outcome.error = f"{type(error).__name__}: {error}".splitlines()[0][:160]
            break
        if not number:
            outcome.seconds = found["seconds"]
        outcome.difference = outcome.difference or difference(eagers, found, program.values)
    outcome.graphs = backend.graphs
    outcome.why = _why(compiler)
    outcome.breaks = len(outcome.why)
    return outcome


def quiet() -> None:
    """Neither torch's warnings nor a second thread: times are of one."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
