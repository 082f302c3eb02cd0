"""Loops of training: optimizers, schedules, scaling, clipping, and steps compiled whole."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.slow.batteries.idioms.common import Compiled, adapted, descend, fit, idiom, mlp, state

BFLOAT16 = "products in bfloat16"


@idiom
def accumulation_and_clipping(compiled: Compiled) -> list[Any]:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    run = compiled(model)
    out = []

    def step():
        n = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        return n

    run_step = compiled(step)
    for i in range(6):
        (run(torch.randn(6, 8)).square().mean() / 2).backward()
        if i % 2:
            out.append(run_step())
    return out + adapted(model)


@idiom(coarse=BFLOAT16, within=2e-2)
def amp_and_scaler(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    run = compiled(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    out = []
    for i in range(5):
        x = torch.randn(6, 8) * (1e30 if i == 2 else 1)
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.mse_loss(run(x).float(), torch.ones(6, 4))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        out += [loss.detach(), scaler.get_scale()]
    return out + state(model)


@idiom(coarse=BFLOAT16, within=2e-2)
def amp_in_the_function(compiled: Compiled) -> list[Any]:
    model = mlp(drop=0.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out = []

    def step(x):
        with torch.autocast("cpu", torch.bfloat16):
            y = model(x)
        with torch.autocast("cpu", enabled=False):
            return F.mse_loss(y.float(), torch.zeros(6, 4)), y

    run = compiled(step)
    for _ in range(3):
        loss, y = run(torch.randn(6, 8))
        descend(optimizer, loss)
        out += [loss.detach(), y.detach()]
    return out + state(model)


@idiom
def lbfgs(compiled: Compiled) -> list[Any]:
    model = mlp(drop=0.0)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, line_search_fn="strong_wolfe")
    run = compiled(model)
    x = torch.randn(9, 8)
    out = []

    def closure():
        optimizer.zero_grad()
        loss = run(x).square().mean()
        loss.backward()
        return loss

    for _ in range(2):
        out.append(optimizer.step(closure).detach())
    return out + state(model)


@idiom
def sam(compiled: Compiled) -> list[Any]:
    model = mlp(drop=0.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = compiled(model)
    out = []

    def perturb():
        ps = list(model.parameters())
        n = torch.stack([p.grad.norm() for p in ps]).norm()
        with torch.no_grad():
            es = [p.grad * (0.05 / (n + 1e-12)) for p in ps]
            for p, e in zip(ps, es):
                p.add_(e)
        return es

    run_perturb = compiled(perturb)
    for _ in range(3):
        x = torch.randn(6, 8)
        optimizer.zero_grad()
        run(x).square().mean().backward()
        moves = run_perturb()
        optimizer.zero_grad()
        loss = run(x).square().mean()
        loss.backward()
        with torch.no_grad():
            for p, e in zip(model.parameters(), moves):
                p.sub_(e)
        optimizer.step()
        out.append(loss.detach())
    return out + state(model)


@idiom
def one_cycle_and_groups(compiled: Compiled) -> list[Any]:
    model = mlp()
    optimizer = torch.optim.AdamW(
        [
            {"params": model[0].parameters(), "lr": 1e-2},
            {"params": model[3].parameters(), "weight_decay": 0.1},
        ],
        1e-3,
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, [1e-2, 1e-3], total_steps=8)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    run = compiled(step)
    out = []
    for _ in range(6):
        out.append(run(torch.randn(5, 8)).detach())
        schedule.step()
    return out + adapted(model) + [torch.tensor(schedule.get_last_lr())]


@idiom
def many_optimizers(compiled: Compiled) -> list[Any]:
    out = []
    for optimizer_class, options in (
        (torch.optim.Adadelta, {}),
        (torch.optim.Adagrad, {}),
        (torch.optim.Adamax, {}),
        (torch.optim.NAdam, {}),
        (torch.optim.RAdam, {}),
        (torch.optim.ASGD, {}),
        (torch.optim.Rprop, {}),
        (torch.optim.Adafactor, {}),
    ):
        torch.manual_seed(1)
        model = mlp()
        optimizer = optimizer_class(model.parameters(), **options)
        run_step = compiled(optimizer.step)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).square().mean().backward()
            run_step()
        out += adapted(model)
    return out


@idiom
def whole_training_step(compiled: Compiled) -> list[Any]:
    model = mlp(drop=0.2)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    hist = []

    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        g = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        hist.append(float(loss))
        return loss.detach(), g

    run = compiled(step)
    out = []
    for _ in range(4):
        out += run(torch.randn(6, 8), torch.arange(6) % 4)
    return out + hist + adapted(model)


@idiom
def exceptions_in_training(compiled: Compiled) -> list[Any]:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out = []

    def step(x):
        y = model(x)
        if not torch.isfinite(y).all():
            raise FloatingPointError("nan")
        return y.square().mean()

    run = compiled(step)
    for k in range(4):
        try:
            loss = run(torch.full((3, 8), float("nan")) if k == 2 else torch.randn(3, 8))
            out.append(descend(optimizer, loss))
        except FloatingPointError as e:
            out.append(str(e))
    return out + state(model)


@idiom
def curriculum(compiled: Compiled) -> list[Any]:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)

    def f(x, lam, mode):
        y = model(x)
        if mode == "hard":
            y = y * (y.abs() > 0.1)
        elif mode == "soft":
            y = y * torch.sigmoid(10 * (y.abs() - 0.1))
        return lam * y.square().mean() + (1 - lam) * y.abs().mean()

    run = compiled(f)
    out = []
    for k in range(6):
        loss = run(torch.randn(3, 4), k / 5, ["none", "soft", "hard"][k % 3])
        out.append(descend(optimizer, loss))
    return out + state(model)


@idiom
def chunked_loss(compiled: Compiled) -> list[Any]:
    model = nn.Linear(6, 30)

    def f(x, t):
        tot = 0.0
        for xc, tc in zip(x.chunk(3), t.chunk(3)):
            tot = tot + F.cross_entropy(model(xc), tc, reduction="sum")
        return tot / len(x)

    run = compiled(f)
    out = []
    for n in (9, 7, 9):
        loss = run(torch.randn(n, 6), torch.randint(0, 30, (n,)))
        loss.backward()
        out.append(loss.detach())
    return out + [p.grad for p in model.parameters()]


@idiom
def state_dict_round_trip(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    run = compiled(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    out = []
    saved = None
    for k in range(5):
        if k == 2:
            saved = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
        if k == 4:
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
        loss = run(torch.randn(5, 4)).square().mean()
        out.append(descend(optimizer, loss))
    return out + adapted(model) + [run(torch.randn(3, 4)).detach()]


@idiom
def optimizer_compiled_with_scheduler(compiled: Compiled) -> list[Any]:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters(), torch.tensor(1e-2), capturable=False)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
    run_step = compiled(optimizer.step)
    out = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = model(torch.randn(3, 4)).square().mean()
        loss.backward()
        run_step()
        schedule.step()
        out.append(loss.detach())
    return out + adapted(model) + [optimizer.param_groups[0]["lr"].clone()]


@idiom
def foreach_ops(compiled: Compiled) -> list[Any]:
    def f(ps, gs, b):
        torch._foreach_mul_(b, 0.9)
        torch._foreach_add_(b, gs, alpha=0.1)
        n = torch._foreach_norm(gs)
        torch._foreach_addcdiv_(ps, gs, [t.abs() + 1 for t in b], value=-0.1)
        return n

    parameters, gradients, averages = ([torch.randn(k) for k in (3, 5, 7)] for _ in range(3))
    run = compiled(f)
    return [*run(parameters, gradients, averages), *parameters, *averages]


@idiom
def functional_optimizer_state(compiled: Compiled) -> list[Any]:
    model = nn.Linear(4, 2)
    momenta = {}

    def step(x):
        loss = model(x).square().mean()
        gs = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for i, (p, g) in enumerate(zip(model.parameters(), gs)):
                if i not in momenta:
                    momenta[i] = torch.zeros_like(p)
                momenta[i].mul_(0.9).add_(g)
                p.sub_(momenta[i], alpha=0.1)
        return loss

    run = compiled(step)
    return [run(torch.randn(3, 4)).detach() for _ in range(4)] + state(model) + [*momenta.values()]


@idiom
def dynamic_batch_training(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(nn.Linear(6, 12), nn.LayerNorm(12), nn.GELU(), nn.Linear(12, 3))
    lengths = iter([4, 7, 1, 9, 4, 2])
    return fit(
        model,
        lambda: (torch.randn(next(lengths), 6),),
        compiled,
        6,
        lambda y: F.cross_entropy(y, torch.zeros(len(y), dtype=torch.long)),
    )


@idiom
def method_and_property(compiled: Compiled) -> list[Any]:
    class T:
        def __init__(self):
            self.m = nn.Linear(4, 4)
            self.o = torch.optim.SGD(self.m.parameters(), 0.1, momentum=0.9)
            self.log = []
            self._s = 0

        @property
        def step_count(self):
            return self._s

        def loss(self, x):
            return self.m(x).square().mean() * (1 + self.step_count)

        def fit(self, x):
            loss = self.loss(x)
            self.o.zero_grad()
            loss.backward()
            self.o.step()
            self._s += 1
            self.log.append(loss.detach())
            return loss

    trainer = T()
    trainer.loss = compiled(trainer.loss)
    for _ in range(3):
        trainer.fit(torch.randn(3, 4))
    return trainer.log + state(trainer.m)


@idiom
def masked_loss(compiled: Compiled) -> list[Any]:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def f(x, mask):
        y = model(x)
        return y[mask].square().mean() + y.masked_fill(~mask[:, None], 0).sum() / mask.sum().clamp(
            min=1
        )

    run = compiled(f)
    out = []
    for _ in range(4):
        loss = run(torch.randn(9, 8), torch.rand(9) > 0.4)
        out.append(descend(optimizer, loss))
    return out + state(model)


@idiom
def evolution(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    weights = dict(model.named_parameters())

    def es(x):
        n = {k: torch.randn(6, *p.shape) for k, p in weights.items()}
        pop = {k: weights[k] + 0.1 * n[k] for k in weights}
        fit = -torch.vmap(lambda p: torch.func.functional_call(model, p, x).square().mean())(pop)
        a = (fit - fit.mean()) / (fit.std() + 1e-8)
        return fit, {k: torch.tensordot(a, n[k], 1) for k in weights}

    run = compiled(es)
    out = []
    for _ in range(2):
        with torch.no_grad():
            fit, gradients = run(torch.randn(5, 4))
            out.append(fit)
            for k, p in weights.items():
                p.add_(gradients[k], alpha=0.01)
    return out + state(model)
