"""Training curves of many families of models, compiled ahead of time beside eager, bit for bit.

Each model is trained twice from the same weights and the same random numbers, dropout included: as
eager does it, and under a backend. Losses of every step, and at the end gradients, parameters,
buffers and the generator's state, have to be the same bits. A model that computes otherwise when
it is compiled (it asks ``torch.compiler.is_compiling()``) has to be what its captured graph is.

    python -m tests.slow.batteries.training [NAME ...] [--backend B] [--steps N]
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch.utils import _pytree as pytree

import refcompiler
from benchmarks.family_models import BOTH, IMAGES, PLAIN, SOUND, TEXT, calls
from refcompiler.backends.registry import lookup_backend

FAMILIES = [*TEXT, *BOTH, *IMAGES, *SOUND, *PLAIN]
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
}


@dataclass
class Curve:
    """One training: ``losses`` of its steps, and ``end``, everything that it left behind."""

    losses: list[torch.Tensor]
    end: list[torch.Tensor | None]
    compared: int = 0


@dataclass
class Result:
    family: str
    optimizer: str
    difference: str = ""
    against: str = "eager"
    graphs: int = 0
    breaks: int = 0
    compared: int = 0  # tensors
    uncompiled: list[str] = field(default_factory=list)  # why, of each such graph
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        return not self.difference and self.compared > 0


class Backend:
    """A backend by name that keeps what its graphs say about not being compiled."""

    def __init__(self, name: str):
        self.made = lookup_backend(name)
        self.graphs = 0
        self.uncompiled: list[str] = []
        if hasattr(self.made, "takes_symbols"):
            self.takes_symbols = self.made.takes_symbols

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        found = self.made(graph, inputs)
        self.graphs += 1
        if reason := getattr(found, "fallback", None):
            self.uncompiled.append(reason)
        return found


def train(model: torch.nn.Module, call: Callable, inputs: Any, optimizer: str, steps: int) -> Curve:
    """``steps`` steps of ``call``, which is ``model`` or what was compiled of it."""
    torch.manual_seed(1)
    random.seed(1)
    numpy.random.seed(1)  # masks of models of sound
    made = OPTIMIZERS[optimizer](model.parameters())
    losses = []
    for _ in range(steps):
        made.zero_grad()
        found = loss(call(**copy.deepcopy(inputs)))
        found.backward()
        made.step()
        losses.append(found.detach())
    gradients = [p.grad for p in model.parameters()]
    return Curve(losses, [*gradients, *model.state_dict().values(), torch.get_rng_state()])


def loss(result: Any) -> torch.Tensor:
    """The mean square of the first tensor with a gradient."""
    tensors = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
    return next(t for t in tensors if t.requires_grad).float().square().mean()


def difference(ours: Curve, theirs: Curve) -> tuple[str, int]:
    """What first differs in a bit, and how many tensors were compared."""
    count = 0
    for n, (a, b) in enumerate(zip(ours.losses, theirs.losses, strict=True)):
        count += 1
        if not same(a, b):
            return f"the loss of step {n}: {a.item()!r}, eager {b.item()!r}", count
    for n, (a, b) in enumerate(zip(ours.end, theirs.end, strict=True)):
        count += 1
        if not same(a, b):
            return f"tensor {n} of gradients, state and generator", count
    return "", count


def same(a: Any, b: Any) -> bool:
    if not isinstance(b, torch.Tensor):
        return bool(a == b)
    if not isinstance(a, torch.Tensor) or (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    return torch.equal(a.detach().nan_to_num(), b.detach().nan_to_num())


def compare(family: str, optimizer: str, backend: str, steps: int) -> Result:
    result = Result(family, optimizer)
    _, model, inputs = next(iter(calls(family)))
    model.train()
    twin = copy.deepcopy(model)
    start_values = copy.deepcopy(model)
    try:
        expected = train(twin, twin, inputs, optimizer, steps)
    except (RuntimeError, ValueError) as error:
        result.against = f"eager refuses: {error}"[:80]
        return result
    refcompiler.reset()
    counted = Backend(backend)
    start = time.process_time()
    try:
        call = refcompiler.compile(model, backend=counted)
        found = train(model, call, inputs, optimizer, steps)
    except Exception as error:
        result.difference = f"{type(error).__name__}: {error}"[:300]
        return result
    result.seconds = time.process_time() - start
    result.difference, result.compared = difference(found, expected)
    result.graphs, result.uncompiled = counted.graphs, counted.uncompiled
    result.breaks = refcompiler.counters()["breaks"]
    if result.difference and backend != "eager":
        refcompiler.reset()
        twin = copy.deepcopy(start_values)
        captured = train(twin, refcompiler.compile(twin, backend="eager"), inputs, optimizer, steps)
        if difference(captured, expected)[0]:
            result.against = "the captured graph"
            result.difference, result.compared = difference(found, captured)
    return result


def run(names: Sequence[str], backend: str, steps: int) -> list[Result]:
    found = []
    for name in names:
        for optimizer in OPTIMIZERS:
            result = compare(name, optimizer, backend, steps)
            found.append(result)
            said = result.difference or f"equal to {result.against}"
            print(
                f"{name} {optimizer}: {said}; {result.graphs} graphs, {result.breaks} breaks, "
                f"{result.compared} tensors, {result.seconds:.1f} s {result.uncompiled[:2]}",
                flush=True,
            )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.slow.batteries.training")
    parser.add_argument("names", nargs="*", help="families (none: all)")
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    if unknown := set(given.names) - set(FAMILIES):
        parser.error(f"no family {sorted(unknown)[0]!r}: choose from {', '.join(FAMILIES)}")
    warnings.simplefilter("ignore")
    found = run(given.names or FAMILIES, given.backend, given.steps)
    found = [r for r in found if not r.against.startswith("eager refuses")]
    good = [r for r in found if r.good]
    otherwise = sum(r.against != "eager" for r in good)
    graphs = sum(r.graphs for r in found)
    uncompiled = sum(len(r.uncompiled) for r in found)
    families = len({r.family for r in found})
    compared = sum(r.compared for r in found)
    print(f"{len(good)} of {len(found)} trainings of {families} families are the same bits")
    print(
        f"{otherwise} of them the captured graph's, the rest eager's; {compared} tensors compared"
    )
    print(f"{graphs} graphs, {uncompiled} of them run as they are")
    return 0 if len(good) == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
