"""Teachers, averages, adapters and several losses at once."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.slow.batteries.idioms.common import Compiled, adapted, descend, fit, idiom, mlp, state


@idiom
def ema_teacher(compiled: Compiled) -> list[Any]:
    student = mlp()
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), 1e-2)
    study, teach = compiled(student), compiled(teacher)
    out = []

    @torch.no_grad()
    def update():
        for a, b in zip(teacher.parameters(), student.parameters()):
            a.lerp_(b, 0.1)

    follow = compiled(update)
    for _ in range(4):
        x = torch.randn(6, 8)
        with torch.no_grad():
            target = teach(x)
        loss = F.mse_loss(study(x), target)
        descend(optimizer, loss)
        follow()
        out.append(loss.detach())
    return out + adapted(student, teacher)


@idiom
def swa(compiled: Compiled) -> list[Any]:
    model = mlp()
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = compiled(model)
    schedule = torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.05)
    out = []
    for _ in range(4):
        loss = run(torch.randn(6, 8)).square().mean()
        descend(optimizer, loss)
        average.update_parameters(model)
        schedule.step()
        out.append(loss.detach())
    run_average = compiled(average)
    return out + state(model, average) + [run_average(torch.ones(2, 8)).detach()]


@idiom
def lora(compiled: Compiled) -> list[Any]:
    class Lora(nn.Module):
        def __init__(self, base, r=2):
            super().__init__()
            self.base = base.requires_grad_(False)
            self.a = nn.Parameter(torch.randn(r, base.in_features) * 0.1)
            self.b = nn.Parameter(torch.zeros(base.out_features, r))
            self.drop = nn.Dropout(0.2)

        def forward(self, x):
            return self.base(x) + F.linear(F.linear(self.drop(x), self.a), self.b) * 2

    model = nn.Sequential(Lora(nn.Linear(8, 8)), nn.ReLU(), Lora(nn.Linear(8, 3)))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2)
    run = compiled(model)
    out = []
    for _ in range(4):
        loss = F.cross_entropy(run(torch.randn(6, 8)), torch.arange(6) % 3)
        out.append(descend(optimizer, loss))
    for layer in (model[0], model[2]):
        with torch.no_grad():
            layer.base.weight += layer.b @ layer.a * 2
            layer.b.zero_()
    return out + [run(torch.ones(2, 8)).detach()] + adapted(model)


@idiom
def byol(compiled: Compiled) -> list[Any]:
    online, target, pred = mlp(), mlp(), nn.Linear(4, 4)
    optimizer = torch.optim.SGD([*online.parameters(), *pred.parameters()], 0.1)

    def loss(a, b):
        p1, p2 = pred(online(a)), pred(online(b))
        with torch.no_grad():
            t1, t2 = target(a), target(b)
        return 2 - F.cosine_similarity(p1, t2.detach()).mean() - F.cosine_similarity(p2, t1).mean()

    run = compiled(loss)
    out = []
    for _ in range(3):
        value = run(torch.randn(5, 8), torch.randn(5, 8))
        out.append(descend(optimizer, value))
    return out + state(online, target, pred)


@idiom
def contrastive_queue(compiled: Compiled) -> list[Any]:
    class Moco(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = nn.Linear(8, 4)
            self.k = nn.Linear(8, 4).requires_grad_(False)
            self.register_buffer("queue", F.normalize(torch.randn(4, 12), dim=0))
            self.register_buffer("ptr", torch.zeros(1, dtype=torch.long))

        def forward(self, a, b):
            q = F.normalize(self.q(a), dim=1)
            with torch.no_grad():
                for x, y in zip(self.k.parameters(), self.q.parameters()):
                    x.data = x.data * 0.9 + y.data * 0.1
                k = F.normalize(self.k(b), dim=1)
            logits = (
                torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.clone().detach()], 1) / 0.1
            )
            p = int(self.ptr)
            self.queue[:, p : p + k.shape[0]] = k.T
            self.ptr[0] = (p + k.shape[0]) % 12
            return F.cross_entropy(logits, torch.zeros(len(a), dtype=torch.long))

    model = Moco()
    run = compiled(model)
    optimizer = torch.optim.SGD(model.q.parameters(), 0.1)
    out = []
    for _ in range(4):
        loss = run(torch.randn(4, 8), torch.randn(4, 8))
        out.append(descend(optimizer, loss))
    return out + state(model)


@idiom
def knowledge_distillation(compiled: Compiled) -> list[Any]:
    teacher, student = nn.Linear(4, 5).eval(), nn.Linear(4, 5)
    teach, study = compiled(teacher), compiled(student)
    optimizer = torch.optim.SGD(student.parameters(), 0.1)
    distil = compiled(
        lambda a, b, y, T: (
            F.kl_div(
                (a / T).log_softmax(-1),
                (b / T).log_softmax(-1),
                log_target=True,
                reduction="batchmean",
            )
            * T
            * T
            + F.cross_entropy(a, y)
        )
    )
    out = []
    for temperature in (2.0, 2.0, 4.0):
        x = torch.randn(6, 4)
        with torch.inference_mode():
            taught = teach(x)
        loss = distil(study(x), taught.clone(), torch.arange(6) % 5, temperature)
        out.append(descend(optimizer, loss))
    return out + state(student)


@idiom
def barlow_and_whitening(compiled: Compiled) -> list[Any]:
    class B(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 4)
            self.bn = nn.BatchNorm1d(4, affine=False)

        def forward(self, a, b):
            za, zb = self.bn(self.linear(a)), self.bn(self.linear(b))
            c = za.T @ zb / len(a)
            off = c.flatten()[:-1].view(3, 5)[:, 1:].flatten()
            u, sv, _ = torch.linalg.svd(za.T @ za / len(a) + 0.1 * torch.eye(4))
            return (
                (c.diagonal() - 1).square().sum()
                + 0.01 * off.square().sum()
                + sv.log().square().sum() * 0.01
            )

    return fit(B(), lambda: (torch.randn(8, 6), torch.randn(8, 6)), compiled)


@idiom
def multi_task_uncertainty(compiled: Compiled) -> list[Any]:
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 8)
            self.h = nn.ModuleList([nn.Linear(8, 1), nn.Linear(8, 3)])
            self.s = nn.Parameter(torch.zeros(2))

        def forward(self, x, a, b):
            h = self.linear(x).tanh()
            loss = torch.stack(
                [F.l1_loss(self.h[0](h)[:, 0], a), F.nll_loss(self.h[1](h).log_softmax(-1), b)]
            )
            return (loss * torch.exp(-self.s) + self.s).sum(), loss.detach()

    model = M()
    run = compiled(model)
    optimizer = torch.optim.RAdam(model.parameters(), 1e-2)
    out = []
    for _ in range(3):
        loss, ls = run(torch.randn(5, 4), torch.randn(5), torch.randint(0, 3, (5,)))
        descend(optimizer, loss)
        out += [loss.detach(), ls]
    return out + adapted(model)


@idiom
def gradient_reversal(compiled: Compiled) -> list[Any]:
    class Rev(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, a):
            ctx.a = a
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return -ctx.a * g, None

    features, labels, domains = nn.Linear(8, 8), nn.Linear(8, 3), nn.Linear(8, 2)

    def loss(x, p):
        h = features(x).relu()
        return F.cross_entropy(labels(h), torch.zeros(len(x), dtype=torch.long)) + F.cross_entropy(
            domains(Rev.apply(h, p)), torch.ones(len(x), dtype=torch.long)
        )

    run = compiled(loss)
    modules = nn.ModuleList([features, labels, domains])
    optimizer = torch.optim.SGD(modules.parameters(), 0.1)
    out = []
    for k in range(4):
        value = run(torch.randn(5, 8), k / 4)
        out.append(descend(optimizer, value))
    return out + state(modules)


@idiom
def two_losses_shared_trunk(compiled: Compiled) -> list[Any]:
    trunk, first, second = nn.Linear(8, 8), nn.Linear(8, 2), nn.Linear(8, 2)
    run = compiled(lambda x: (first(h := trunk(x).relu()), second(h), h))
    modules = nn.ModuleList([trunk, first, second])
    out = []
    for _ in range(2):
        ya, yb, h = run(torch.randn(4, 8))
        loss_a, loss_b = ya.square().mean(), yb.abs().mean()
        gradients_a = torch.autograd.grad(loss_a, trunk.parameters(), retain_graph=True)
        gradients_b = torch.autograd.grad(loss_b, trunk.parameters(), retain_graph=True)
        (gradient_h,) = torch.autograd.grad(loss_a + loss_b, h, retain_graph=True)
        dot = sum((x * y).sum() for x, y in zip(gradients_a, gradients_b))
        (loss_a + loss_b).backward()
        out += [*gradients_a, *gradients_b, gradient_h, dot]
    return out + [p.grad for p in modules.parameters()]


@idiom
def maml(compiled: Compiled) -> list[Any]:
    model = mlp(drop=0.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def inner(ps, x, y):
        return F.mse_loss(torch.func.functional_call(model, ps, x), y)

    def outer(x, y):
        ps = dict(model.named_parameters())
        for _ in range(2):
            gs = torch.autograd.grad(inner(ps, x, y), [*ps.values()], create_graph=True)
            ps = {k: p - 0.1 * g for (k, p), g in zip(ps.items(), gs)}
        return inner(ps, x, y)

    run = compiled(outer)
    out = []
    for _ in range(2):
        loss = run(torch.randn(5, 8), torch.randn(5, 4))
        out.append(descend(optimizer, loss))
    return out + state(model)


@idiom
def frozen_then_unfrozen(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    run = compiled(model)
    out = []
    for k in range(4):
        model[0].requires_grad_(k % 2 == 1)
        model[1].train(k != 2)
        model.zero_grad()
        loss = run(torch.randn(4, 8)).square().mean()
        loss.backward()
        out += [loss.detach()] + [
            p.grad if p.grad is None else p.grad.clone() for p in model.parameters()
        ]
    return out + state(model)
