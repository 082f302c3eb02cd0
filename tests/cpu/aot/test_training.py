"""Twenty steps of training, model and optimizer compiled ahead of time: eager's bits."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import refcompiler
from refcompiler.backends.registry import lookup_backend

STEPS = 20
optim = torch.optim
OPTIMIZERS: dict[str, tuple[Callable[..., optim.Optimizer], dict[str, Any]]] = {
    "SGD": (optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "SGD, one by one": (optim.SGD, {"foreach": False, "weight_decay": 0.1}),
    "Adam": (optim.Adam, {"amsgrad": True}),
    "AdamW": (optim.AdamW, {"foreach": True}),
    "Adam, fused": (optim.Adam, {"fused": True, "amsgrad": True}),
    "AdamW, fused": (optim.AdamW, {"fused": True}),
    "SGD, fused": (optim.SGD, {"fused": True, "momentum": 0.9}),
    "Adagrad, fused": (optim.Adagrad, {"fused": True}),
    "Adagrad": (optim.Adagrad, {}),
    "NAdam": (optim.NAdam, {}),
    "RMSprop": (optim.RMSprop, {"maximize": True}),
}


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    refcompiler.reset()


#: Their gradients are scaled: by the scaler itself, or (fused) by the step.
SCALED = ("Adam", "AdamW, fused")


class Counted:
    def __init__(self) -> None:
        self.made = lookup_backend("aot_eager")
        self.compiled = self.uncompiled = 0

    takes_symbols = True

    def __call__(self, graph: Any, inputs: Any) -> Any:
        found = self.made(graph, inputs)
        if found.fallback is None:
            self.compiled += 1
        else:
            self.uncompiled += 1
        return found


def train(name: str, backend: Counted | None) -> tuple[list[torch.Tensor], int]:
    """Everything that the steps leave: losses, parameters, optimizer and scaler, generator."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Tanh(), torch.nn.Linear(8, 3)
    model: Any = torch.nn.Sequential(*layers)
    kind, options = OPTIMIZERS[name]
    optimizer = kind(model.parameters(), lr=0.01, **options)
    schedule = optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=6)
    call, step = model, optimizer.step
    if backend is not None:
        call = refcompiler.compile(model, backend=backend)
        step = refcompiler.compile(optimizer.step, backend=backend)
        optimizer.step = step  # type: ignore[method-assign]  # the scaler calls it
    x = torch.randn(16, 4)
    losses = []
    for _ in range(STEPS):
        for part in x.chunk(2):
            loss = call(part).square().mean()
            (scaler.scale(loss) if name in SCALED else loss).backward()
            losses.append(loss.detach())
        if name == "Adam":  # the fused step does it itself
            scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        if name in SCALED:
            scaler.step(optimizer)
            scaler.update()
        else:
            step()
        optimizer.zero_grad()
        schedule.step()
    state = [v for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v)]
    left = [*losses, *model.state_dict().values(), *state, torch.get_rng_state()]
    return [*left, torch.tensor([*schedule.get_last_lr(), scaler.get_scale()])], len(losses)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps(name: str) -> None:
    if name == "SGD, fused":  # torch's compiler leaves such functions alone once it is loaded
        importlib.import_module("torch._dynamo")
    backend = Counted()
    ours, steps = train(name, backend)
    theirs, _ = train(name, None)
    assert steps == 2 * STEPS and len(ours) == len(theirs) > steps + 4
    assert all(map(torch.equal, ours, theirs))
    assert backend.compiled >= 2 and not backend.uncompiled


@pytest.mark.parametrize("name", ["Adam", "NAdam", "RAdam", "ASGD"])
def test_capturable_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts and rates are tensors of the graph; here on a device that torch has not listed."""
    kind: Any = getattr(optim, name)
    file = importlib.import_module(kind.__module__)
    monkeypatch.setattr(file, "_get_capturable_supported_devices", lambda **_: ["cpu"])
    sides = []
    backend = Counted()
    for compiled in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3)
        rate = torch.tensor(0.1)
        optimizer = kind(model.parameters(), lr=rate, foreach=True, capturable=True)
        step = refcompiler.compile(optimizer.step, backend=backend) if compiled else optimizer.step
        for n in range(8):
            model(torch.randn(2, 4)).square().sum().backward()
            step()
            optimizer.zero_grad()
            rate.fill_(0.1 / (n + 1))
        state = [v for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v)]
        sides.append([*model.parameters(), *state])
    assert len(sides[0]) == len(sides[1]) >= 8 and all(map(torch.equal, *sides))
    assert (backend.compiled, backend.uncompiled) == (1, 0)
