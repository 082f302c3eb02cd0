"""Layers and losses as papers have them, in training and out of it."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

from tests.slow.batteries.idioms.common import Compiled, adapted, descend, idiom, mlp, state


@idiom
def experts_with_routing(compiled: Compiled) -> list[Any]:
    class Router(nn.Module):
        def __init__(self, dim=4, experts=3, top=2):
            super().__init__()
            self.gate = nn.Linear(dim, experts, bias=False)
            self.experts = nn.ModuleList(nn.Linear(dim, dim) for _ in range(experts))
            self.top, self.noise = top, 0.1
            self.register_buffer("load", torch.zeros(experts))

        def forward(self, x):
            logits = self.gate(x)
            if self.training and self.noise:
                logits = logits + self.noise * torch.randn_like(logits)
            weights, index = logits.softmax(-1).topk(self.top, -1)
            weights = weights / weights.sum(-1, keepdim=True)
            out = torch.zeros_like(x)
            for e, expert in enumerate(self.experts):
                rows, place = (index == e).nonzero(as_tuple=True)
                if rows.numel() == 0:
                    continue
                out.index_add_(0, rows, expert(x[rows]) * weights[rows, place, None])
            counts = F.one_hot(index, len(self.experts)).sum((0, 1))
            if self.training:
                self.load.lerp_(counts / counts.sum(), 0.5)
            balance = (logits.softmax(-1).mean(0) * counts / counts.sum()).sum()
            return out, balance * len(self.experts)

    moe = Router()
    run = compiled(moe)
    optimizer = torch.optim.SGD(moe.parameters(), 0.1)
    out: list[Any] = []
    for n in (6, 6, 1):
        y, balance = run(torch.randn(n, 4))
        out += [descend(optimizer, y.square().mean() + 0.01 * balance), y.detach()]
    moe.eval()
    moe.top = 1
    out.append(run(torch.randn(3, 4))[0].detach())

    @compiled
    def dispatched(x, index, experts):
        order = index.argsort(stable=True)
        counts = torch.bincount(index, minlength=len(experts))
        pieces = x[order].split(counts.tolist())
        done = torch.cat([f(p) for f, p in zip(experts, pieces)])
        return torch.empty_like(done).index_copy(0, order, done)

    for n in (5, 7):
        out.append(dispatched(torch.randn(n, 4), torch.randint(3, (n,)), moe.experts).detach())
    return out + state(moe)


@idiom
def averages_and_batch_norms(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    swa = AveragedModel(model)
    run, smooth = compiled(model), compiled(ema)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

    @compiled
    @torch.no_grad()
    def by_hand(source, target, decay):
        for a, b in zip(source.parameters(), target.parameters()):
            b.lerp_(a, 1 - decay)
        torch._foreach_mul_(list(target.parameters())[:1], decay)

    other = mlp(3, 4, 1)
    third = mlp(3, 4, 1)
    out: list[Any] = []
    for step in range(4):
        out.append(descend(optimizer, run(torch.randn(5, 3)).square().mean()))
        ema.update_parameters(model)
        if step % 2:
            swa.update_parameters(model)
        by_hand(other, third, 1 - 1 / (step + 2))
        out.append(smooth(torch.ones(2, 3)).detach())
    update_bn([torch.randn(5, 3) for _ in range(2)], swa)
    swa.eval()
    out += [compiled(swa)(torch.ones(2, 3)).detach(), ema.n_averaged, swa.n_averaged]
    return out + state(model, ema, third)


@idiom
def negatives_that_are_hard(compiled: Compiled) -> list[Any]:
    encoder = mlp(4, 8, 3, drop=0.0)

    def mined(z, labels, margin=0.2, mode="hard"):
        z = F.normalize(z, dim=-1)
        d = torch.cdist(z, z)
        same = labels[:, None] == labels
        eye = torch.eye(len(z), dtype=torch.bool)
        if mode == "hard":
            far = d.masked_fill(~same | eye, -1).amax(1)
            near = d.masked_fill(same, math.inf).amin(1)
            valid = (far >= 0) & near.isfinite()
            return F.relu(far - near + margin)[valid].mean()
        if mode == "semi":
            gap = d[:, :, None] - d[:, None, :] + margin
            keep = same[:, :, None] & ~same[:, None, :] & ~eye[:, :, None]
            keep = keep & (gap > 0) & (gap < margin)
            return (gap * keep).sum() / keep.sum().clamp(min=1)
        sims = z @ z.T / 0.1
        sims = sims.masked_fill(eye, float("-inf"))
        law = sims.log_softmax(1).masked_fill(eye, 0)
        positive = same & ~eye
        return -(law * positive).sum(1).div(positive.sum(1).clamp(min=1)).mean()

    @compiled
    def loss(x, labels, mode):
        return mined(encoder(x), labels, mode=mode)

    optimizer = torch.optim.SGD(encoder.parameters(), 0.1)
    out: list[Any] = []
    for mode in ("hard", "semi", "supervised", "hard"):
        for n in (6, 8):
            labels = torch.arange(n) % 3
            out.append(descend(optimizer, loss(torch.randn(n, 4), labels, mode)))
    return out + state(encoder)


@idiom
def flows_that_invert(compiled: Compiled) -> list[Any]:
    class Coupling(nn.Module):
        def __init__(self, dim, flip):
            super().__init__()
            self.net, self.flip = mlp(dim // 2, 8, dim, drop=0.0), flip

        def forward(self, x, inverse=False):
            a, b = x.chunk(2, -1)[:: -1 if self.flip else 1]
            shift, scale = self.net(a).chunk(2, -1)
            scale = scale.tanh()
            b = (b - shift) * (-scale).exp() if inverse else b * scale.exp() + shift
            x = torch.cat([b, a] if self.flip else [a, b], -1)
            return x, scale.sum(-1) * (-1 if inverse else 1)

    class ActNorm(nn.Module):
        def __init__(self, dim):
            super().__init__()
            self.loc, self.log_scale = (nn.Parameter(torch.zeros(dim)) for _ in range(2))
            self.register_buffer("ready", torch.tensor(False))

        def forward(self, x, inverse=False):
            if self.training and not self.ready:
                with torch.no_grad():
                    self.loc.copy_(-x.mean(0))
                    self.log_scale.copy_(-x.std(0).log())
                    self.ready.fill_(True)
            total = self.log_scale.sum().expand(len(x))
            if inverse:
                return x * (-self.log_scale).exp() - self.loc, -total
            return (x + self.loc) * self.log_scale.exp(), total

    class Flow(nn.ModuleList):
        def forward(self, x, inverse=False):
            total = x.new_zeros(len(x))
            for layer in reversed(self) if inverse else self:
                x, change = layer(x, inverse=inverse)
                total = total + change
            return x, total

    flow = Flow([ActNorm(4), Coupling(4, False), Coupling(4, True)])
    run = compiled(flow)
    optimizer = torch.optim.SGD(flow.parameters(), 0.01)
    out: list[Any] = []
    for n in (6, 6, 5):
        z, total = run(torch.randn(n, 4) * 2 + 1)
        out.append(descend(optimizer, (z.square().sum(-1) / 2 - total).mean()))
    flow.eval()
    x = torch.randn(3, 4)
    z, forth = run(x)
    again, back = run(z, inverse=True)
    return [
        *out,
        z.detach(),
        (forth + back).detach().abs().max() < 1e-4,
        again.detach(),
        *state(flow),
    ]


@idiom
def odes_with_adjoints(compiled: Compiled) -> list[Any]:
    net = mlp(2, 6, 2, drop=0.0)

    def rk4(f, t, x, h):
        k1 = f(t, x)
        k2 = f(t + h / 2, x + h / 2 * k1)
        k3 = f(t + h / 2, x + h / 2 * k2)
        return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + f(t + h, x + h * k3))

    class Adjoint(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, steps, *params):
            ctx.steps = steps
            with torch.no_grad():
                for i in range(steps):
                    x = rk4(lambda t, x: net(x) * (1 + t), i / steps, x, 1 / steps)
            ctx.save_for_backward(x, *params)
            return x

        @staticmethod
        def backward(ctx, a):
            x, *params = ctx.saved_tensors
            grads = [torch.zeros_like(p) for p in params]
            for i in reversed(range(ctx.steps)):
                with torch.enable_grad():
                    x = x.detach().requires_grad_()
                    f = net(x) * (1 + (i + 1) / ctx.steps)
                    gx, *gp = torch.autograd.grad(f, [x, *params], a)
                x = x.detach() - f.detach() / ctx.steps
                a = a + gx / ctx.steps
                grads = [g + p / ctx.steps for g, p in zip(grads, gp)]
            return a, None, *grads

    def solve(x, steps):
        return Adjoint.apply(x, steps, *net.parameters())

    def unrolled(x, steps):
        for i in range(steps):
            x = rk4(lambda t, x: net(x) * (1 + t), i / steps, x, 1 / steps)
        return x

    out: list[Any] = []
    for function in (solve, unrolled):
        run = compiled(function)
        for steps in (2, 3):
            x = torch.randn(3, 2, requires_grad=True)
            y = run(x, steps)
            out += [y.detach(), *torch.autograd.grad(y.sum(), [x, *net.parameters()])]
    return out


@idiom
def tied_and_shared(compiled: Compiled) -> list[Any]:
    class LM(nn.Module):
        def __init__(self, tie=True):
            super().__init__()
            self.embed = nn.Embedding(7, 4, padding_idx=0)
            self.block = nn.Linear(4, 4)
            self.out = nn.Linear(4, 7, bias=False)
            if tie:
                self.out.weight = self.embed.weight

        def forward(self, ids, depth=2):
            x = self.embed(ids)
            for _ in range(depth):
                x = x + self.block(x).relu()
            return F.cross_entropy(self.out(x).flatten(0, 1), ids.flatten(), ignore_index=0)

    model = LM()
    run = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out: list[Any] = [len(list(model.parameters()))]
    for depth in (2, 3):
        out.append(descend(optimizer, run(torch.randint(0, 7, (2, 5)), depth)))
    model.out.weight = nn.Parameter(model.embed.weight.detach().clone())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out.append(descend(optimizer, run(torch.randint(0, 7, (2, 5)))))
    out.append(torch.equal(model.out.weight, model.embed.weight))
    model.block = model.block.double().float()
    model.embed = nn.Embedding.from_pretrained(torch.randn(7, 4), freeze=True)
    out.append(descend(optimizer, run(torch.randint(0, 7, (2, 3)))))
    return out + state(model)


@idiom
def complex_layers(compiled: Compiled) -> list[Any]:
    class ComplexLinear(nn.Module):
        def __init__(self, n, m):
            super().__init__()
            self.w = nn.Parameter(torch.randn(m, n, dtype=torch.cfloat) / 3)
            self.b = nn.Parameter(torch.zeros(m, dtype=torch.cfloat))

        def forward(self, z):
            z = z @ self.w.mH + self.b
            return torch.polar(F.softplus(z.abs() - 0.5), z.angle())

    class Spectral(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(3, dtype=torch.cfloat))
            self.lin = ComplexLinear(3, 3)

        def forward(self, x, keep=3):
            f = torch.fft.rfft(x, norm="ortho")[..., :keep]
            f = self.lin(F.pad(f, (0, 3 - f.shape[-1]))) * self.w
            low = torch.fft.irfft(f, n=x.shape[-1], norm="ortho")
            kept = torch.view_as_real(f).flatten(-2)
            return low + x.mean(-1, keepdim=True), kept, torch.fft.fftshift(f.abs())

    model = Spectral()
    run = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out: list[Any] = []
    for n, keep in ((8, 3), (8, 2), (10, 3)):
        y, kept, power = run(torch.randn(2, n), keep)
        out.append(descend(optimizer, y.square().mean() + kept.abs().mean() + power.mean()))
        out += [y.detach(), power.detach()]

    @compiled
    def roots(c):
        companion = torch.diag(torch.ones(len(c) - 2, dtype=c.dtype), -1)
        companion[:, -1] = -c[:-1] / c[-1]
        return torch.linalg.eigvals(companion).abs().sort().values

    return [
        *out,
        roots(torch.tensor([6.0, -5.0, 1.0])),
        roots(torch.tensor([-6.0, 11.0, -6.0, 1.0])),
    ]


@idiom
def jagged_and_sparse(compiled: Compiled) -> list[Any]:
    @compiled
    def pooled(values, offsets):
        nested = torch.nested.nested_tensor_from_jagged(values, offsets)
        scaled = nested * 2 + 1
        return scaled.values(), scaled.offsets().diff()

    @compiled
    def propagate(index, weights, x, n):
        a = torch.sparse_coo_tensor(index, weights, (n, n))
        return torch.sparse.mm(a.coalesce(), x) + x

    @compiled
    def segments(values, lengths):
        ends = lengths.cumsum(0)
        ids = torch.repeat_interleave(torch.arange(len(lengths)), lengths, output_size=len(values))
        sums = torch.zeros(len(lengths), values.shape[1]).index_add(0, ids, values)
        top = torch.full_like(sums, -math.inf).scatter_reduce(
            0, ids[:, None].expand_as(values), values, "amax"
        )
        return sums, top, ends, torch.segment_reduce(values, "mean", lengths=lengths)

    out: list[Any] = []
    for lengths in ([1, 2, 2], [3, 1], [2, 2, 1]):
        n = sum(lengths)
        values, sizes = torch.randn(n, 3), torch.tensor(lengths)
        offsets = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)])
        out += [*pooled(values, offsets), *segments(values, sizes)]
        index = torch.randint(n, (2, 4))
        out.append(propagate(index, torch.rand(4), torch.randn(n, 2), n))
    bags = nn.EmbeddingBag(9, 3, mode="sum", sparse=True)
    run = compiled(bags)
    optimizer = torch.optim.SparseAdam(list(bags.parameters()), 0.1)
    for n in (4, 6):
        loss = run(torch.randint(9, (n,)), torch.tensor([0, 2])).square().sum()
        out.append(descend(optimizer, loss))
    return out + adapted(bags)


@idiom
def losses_over_time(compiled: Compiled) -> list[Any]:
    class Schedule:
        def __init__(self, total):
            self.step, self.total = 0, total

        def __call__(self):
            self.step += 1
            return 0.5 * (1 + math.cos(math.pi * min(self.step, self.total) / self.total))

    class Weighted(nn.Module):
        def __init__(self, names):
            super().__init__()
            self.weights = nn.ParameterDict({n: nn.Parameter(torch.zeros(())) for n in names})
            self.schedule, self.history = Schedule(4), {n: [] for n in names}

        def forward(self, losses):
            beta, total = self.schedule(), 0.0
            for name, loss in losses.items():
                w = self.weights[name]
                total = total + beta * torch.exp(-w) * loss + w
                self.history[name].append(loss.detach())
            return total, {n: len(h) for n, h in self.history.items()}, round(beta, 4)

    weighted, net = Weighted(["mse", "l1", "kl"]), mlp(3, 6, 2, drop=0.0)

    @compiled
    def step(x, y, extra):
        out = net(x)
        losses = {"mse": F.mse_loss(out, y), "l1": F.smooth_l1_loss(out, y, beta=0.5)}
        if extra:
            losses["kl"] = F.kl_div(out.log_softmax(-1), y.softmax(-1), reduction="batchmean")
        return weighted(losses)

    optimizer = torch.optim.SGD([*net.parameters(), *weighted.parameters()], 0.1)
    out: list[Any] = []
    for extra in (False, True, True, False, True):
        loss, counts, beta = step(torch.randn(4, 3), torch.randn(4, 2), extra)
        out += [descend(optimizer, loss), counts, beta]
    return [*out, *(t for h in weighted.history.values() for t in h), *state(net)]


@idiom
def half_precisions(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))
    run = compiled(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out: list[Any] = []
    for dtype in (torch.bfloat16, torch.float16, None, torch.bfloat16):
        context = torch.autocast("cpu", dtype) if dtype else contextlib.nullcontext()
        with context:
            y = run(torch.randn(3, 4))
            loss = F.mse_loss(y.float(), torch.zeros(3, 2))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        out += [str(y.dtype), loss.detach().isfinite(), scaler.get_scale()]

    @compiled
    def inside(x, on):
        with torch.autocast("cpu", torch.bfloat16, enabled=on):
            a = x @ x.T
            with torch.autocast("cpu", enabled=False):
                b = x @ x.T
            return a.softmax(-1), b, torch.is_autocast_enabled("cpu"), a.dtype

    for on in (True, False):
        a, b, inner, dtype = inside(torch.ones(2, 2), on)
        out += [a, b, inner, str(dtype)]
    return out
