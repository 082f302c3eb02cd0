"""Loops around a model: optimizers, schedules, scaling, penalties, policies, and what they keep."""

from __future__ import annotations

import contextlib
import copy
import math
from collections import deque
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, parametrize
from torch.nn.utils.rnn import (
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
)

from tests.slow.batteries.idioms.common import (
    Compiled,
    adapted,
    descend,
    idiom,
    mlp,
    state,
    values_and_gradients,
)


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                s = self.state[p]
                if not s:
                    s["exp_avg"] = torch.zeros_like(p)
                m = s["exp_avg"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(torch.sign(m * b1 + p.grad * (1 - b1)), alpha=-group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)
        return loss


def newton_schulz(g: torch.Tensor, steps: int = 3) -> torch.Tensor:
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)
    if x.size(0) > x.size(1):
        x = x.T
    for _ in range(steps):
        m = x @ x.T
        x = a * x + (b * m + c * m @ m) @ x
    return x.T if g.size(0) > g.size(1) else x


@idiom
def own_optimizers(compiled: Compiled) -> list[Any]:
    class Muon(torch.optim.Optimizer):
        def __init__(self, params, lr=0.02, momentum=0.9):
            super().__init__(params, {"lr": lr, "momentum": momentum})

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    buffer = self.state[p].setdefault("momentum", torch.zeros_like(p))
                    buffer.lerp_(p.grad, 1 - group["momentum"])
                    update = newton_schulz(p.grad.lerp(buffer, group["momentum"]))
                    p.add_(update, alpha=-group["lr"] * max(1, p.size(0) / p.size(1)) ** 0.5)

    model = mlp(6, 8, 3, drop=0.0)
    matrices = [p for p in model.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if p.ndim != 2]
    muon, lion = Muon(matrices), Lion(others, 1e-3, weight_decay=0.1)
    run, step, step_lion = compiled(model), compiled(muon.step), compiled(lion.step)
    out: list[Any] = []
    for it in range(4):
        loss = F.cross_entropy(run(torch.randn(5, 6)), torch.randint(0, 3, (5,)))
        loss.backward()
        muon.param_groups[0]["lr"] = 0.02 * (1 - it / 8)
        step()
        step_lion()
        muon.zero_grad()
        lion.zero_grad()
        out.append(loss.detach())
    return out + adapted(model)


@idiom
def schedules_and_accumulation(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    decay = [p for n, p in model.named_parameters() if not n.endswith("bias")]
    rest = [p for n, p in model.named_parameters() if n.endswith("bias")]
    optimizer = torch.optim.SGD(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "lr": 0.02}],
        lr=0.1,
        momentum=0.9,
        nesterov=True,
    )

    def warm(step, warmup=2, total=6):
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warm)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)

    def micro(x, y, accumulate):
        return F.cross_entropy(model(x), y, label_smoothing=0.1) / accumulate

    run = compiled(micro)
    out: list[Any] = []
    for it, accumulate in enumerate((1, 2, 2, 3, 1)):
        total = 0.0
        for _ in range(accumulate):
            loss = run(torch.randn(4, 6), torch.randint(0, 3, (4,)), accumulate)
            loss.backward()
            total += loss.item()
        norm = clip_grad_norm_(model.parameters(), 0.5)
        if it % 2:
            clip_grad_value_(model.parameters(), 0.05)
        optimizer.step()
        optimizer.zero_grad(set_to_none=it % 2 == 0)
        scheduler.step()
        if it > 2:
            plateau.step(total)
        out += [total, norm, [g["lr"] for g in optimizer.param_groups]]
    return out + state(model)


@idiom
def whole_step_with_clipping(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), torch.tensor(0.1), momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    ema = copy.deepcopy(model).requires_grad_(False)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.huber_loss(model(x), y)
        loss.backward()
        norm = clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 0.1)
        return loss.detach(), norm

    run = compiled(step)
    out: list[Any] = []
    for n in (4, 4, 6, 4):
        out += run(torch.randn(n, 6), torch.randn(n, 1))
        scheduler.step()
    return out + state(model, ema)


@idiom
def many_schedulers_and_swap(compiled: Compiled) -> list[Any]:
    out: list[Any] = []
    for make in (
        lambda p: torch.optim.RMSprop(p, 1e-2, centered=True, momentum=0.5),
        lambda p: torch.optim.Adagrad(p, 1e-2, lr_decay=0.1),
        lambda p: torch.optim.NAdam(p, 1e-2, decoupled_weight_decay=True, weight_decay=0.1),
        lambda p: torch.optim.Adam(p, 1e-2, amsgrad=True, foreach=False),
        lambda p: torch.optim.Adadelta(p, 0.5),
    ):
        model = nn.Linear(4, 2)
        optimizer = make(model.parameters())
        scheduler = torch.optim.lr_scheduler.CyclicLR(
            optimizer, 1e-3, 1e-2, step_size_up=2, cycle_momentum=False
        )
        step = compiled(optimizer.step)
        for _ in range(3):
            loss = model(torch.randn(3, 4)).square().mean()
            loss.backward()
            step()
            scheduler.step()
            optimizer.zero_grad()
            out.append(loss.detach())
        saved = optimizer.state_dict()
        optimizer.load_state_dict(saved)
        model(torch.randn(3, 4)).sum().backward()
        step()
        out += adapted(model)
    return out


@idiom
def scaler_and_autocast(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def forward(x, y, enabled=True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            logits = model(x)
            with torch.autocast("cpu", enabled=False):
                penalty = logits.float().square().mean()
            loss = F.cross_entropy(logits, y)
        return loss + 0.01 * penalty, logits.dtype

    run = compiled(forward)
    out: list[Any] = []
    for enabled in (True, True, False, True):
        x = torch.randn(4, 6) * (1 if enabled else 10)
        loss, dtype = run(x, torch.randint(0, 3, (4,)), enabled)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        out += [loss.detach(), str(dtype), norm, scaler.get_scale()]
    return out + state(model)


@idiom
def ppo_with_gae(compiled: Compiled) -> list[Any]:
    class Agent(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
            self.pi, self.v = nn.Linear(8, 2), nn.Linear(8, 1)
            self.log_std = nn.Parameter(torch.zeros(2))

        def dist(self, h):
            return torch.distributions.Normal(self.pi(h), self.log_std.exp().expand(len(h), -1))

        def act(self, s, a=None):
            h = self.body(s)
            d = self.dist(h)
            if a is None:
                a = d.sample()
            return a, d.log_prob(a).sum(1), d.entropy().sum(1), self.v(h).squeeze(1)

    agent = Agent()

    @torch.no_grad()
    def gae(rewards, values, dones, last, gamma=0.99, lam=0.95):
        advantages = torch.zeros_like(rewards)
        carry = 0.0
        for t in reversed(range(len(rewards))):
            following = last if t == len(rewards) - 1 else values[t + 1]
            alive = 1.0 - dones[t]
            delta = rewards[t] + gamma * following * alive - values[t]
            advantages[t] = carry = delta + gamma * lam * alive * carry
        return advantages, advantages + values

    def loss(s, a, old, advantage, returns, value, clip=0.2):
        _, new, entropy, v = agent.act(s, a)
        ratio = (new - old).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy = torch.max(-advantage * ratio, -advantage * ratio.clamp(1 - clip, 1 + clip)).mean()
        clipped = value + (v - value).clamp(-clip, clip)
        critic = 0.5 * torch.max((v - returns) ** 2, (clipped - returns) ** 2).mean()
        with torch.no_grad():
            kl = ((ratio - 1) - (new - old)).mean()
        return policy + 0.5 * critic - 0.01 * entropy.mean(), kl

    act, run_gae, run = compiled(agent.act), compiled(gae), compiled(loss)
    optimizer = torch.optim.SGD(agent.parameters(), 0.05)
    out: list[Any] = []
    for steps in (4, 4, 5):
        s = torch.randn(steps, 3, 4)
        with torch.no_grad():
            rows = [act(s[t]) for t in range(steps)]
        a, old, _, v = (torch.stack(r) for r in zip(*rows))
        rewards, dones = torch.randn(steps, 3), (torch.rand(steps, 3) < 0.2).float()
        adv, ret = run_gae(rewards, v, dones, act(s[-1])[3].detach())
        flat = [t.flatten(0, 1) for t in (s, a, old, adv, ret, v)]
        for index in torch.randperm(steps * 3).split(6):
            value, kl = run(*(t[index] for t in flat))
            out += [descend(optimizer, value), kl]
    return out + state(agent)


@idiom
def sac_with_targets(compiled: Compiled) -> list[Any]:
    actor, alpha = mlp(3, 8, 2, drop=0.0), nn.Parameter(torch.zeros(()))
    critics = nn.ModuleList(mlp(4, 8, 1, drop=0.0) for _ in range(2))
    targets = copy.deepcopy(critics).requires_grad_(False)

    def policy(s):
        mu, log = actor(s).chunk(2, -1)
        std = log.tanh().mul(2).exp()
        x = mu + std * torch.randn_like(mu)
        a = x.tanh()
        log_p = (-0.5 * ((x - mu) / std) ** 2 - std.log() - (1 - a**2 + 1e-6).log()).sum(-1)
        return a, log_p

    def q(nets, s, a):
        return torch.stack([n(torch.cat([s, a], -1)).squeeze(-1) for n in nets])

    def critic_loss(s, a, r, s2):
        with torch.no_grad():
            a2, lp = policy(s2)
            y = r + 0.9 * (q(targets, s2, a2).min(0).values - alpha.exp() * lp)
        return F.mse_loss(q(critics, s, a), y.expand(2, -1))

    def actor_loss(s):
        a, lp = policy(s)
        return (alpha.exp().detach() * lp - q(critics, s, a).amin(0)).mean(), (
            -alpha * (lp.detach() - 1).mean()
        )

    @torch.no_grad()
    def soft_update(tau=0.1):
        for t, c in zip(targets.parameters(), critics.parameters()):
            t.mul_(1 - tau).add_(c, alpha=tau)

    runs = [compiled(f) for f in (critic_loss, actor_loss, soft_update)]
    o_c = torch.optim.SGD(critics.parameters(), 0.05)
    o_a = torch.optim.SGD([*actor.parameters(), alpha], 0.05)
    out: list[Any] = []
    for n in (6, 6, 8):
        s, a, r, s2 = torch.randn(n, 3), torch.randn(n, 1), torch.randn(n), torch.randn(n, 3)
        out.append(descend(o_c, runs[0](s, a, r, s2)))
        for p in critics.parameters():
            p.requires_grad = False
        out.append(descend(o_a, sum(runs[1](s))))
        for p in critics.parameters():
            p.requires_grad = True
        runs[2]()
    return out + state(actor, critics, targets)


@idiom
def metric_learning(compiled: Compiled) -> list[Any]:
    net = mlp(6, 8, 4, drop=0.0)
    proxies = nn.Parameter(torch.randn(3, 4))

    def batch_hard(x, y, margin=0.3):
        e = F.normalize(net(x), dim=1)
        d = torch.cdist(e, e)
        same = y[:, None] == y[None]
        eye = torch.eye(len(y), dtype=torch.bool)
        positive = d.masked_fill(~same | eye, 0).amax(1)
        negative = d.masked_fill(same, float("inf")).amin(1)
        keep = torch.isfinite(negative)
        triplet = F.relu(positive - negative + margin)[keep]
        if triplet.numel() == 0:
            return e.sum() * 0, 0.0
        active = (triplet > 0).float().mean().item()
        return triplet.mean(), active

    def arcface(x, y, s=8.0, m=0.2):
        cos = F.linear(F.normalize(net(x)), F.normalize(proxies)).clamp(-1 + 1e-6, 1 - 1e-6)
        theta = torch.acos(cos)
        hot = torch.zeros_like(cos).scatter_(1, y[:, None], 1.0)
        return F.cross_entropy(s * torch.cos(theta + m * hot), y)

    run, run_arc = compiled(batch_hard), compiled(arcface)
    optimizer = torch.optim.SGD([*net.parameters(), proxies], 0.05)
    out: list[Any] = []
    for n in (8, 8, 10, 2):
        x, y = torch.randn(n, 6), torch.arange(n) % 3 if n > 2 else torch.zeros(2, dtype=torch.long)
        loss, active = run(x, y)
        out += [descend(optimizer, loss + run_arc(x, y)), active]
    return out + state(net)


@idiom
def segmentation_losses(compiled: Compiled) -> list[Any]:
    def lovasz_grad(sorted_truth):
        total = sorted_truth.sum()
        intersection = total - sorted_truth.cumsum(0)
        union = total + (1 - sorted_truth).cumsum(0)
        j = 1.0 - intersection / union
        if len(sorted_truth) > 1:
            j[1:] = j[1:] - j[:-1]
        return j

    def lovasz(p, t, ignore=255):
        c = p.shape[1]
        p, t = p.permute(0, 2, 3, 1).reshape(-1, c), t.reshape(-1)
        valid = t != ignore
        p, t = p[valid], t[valid]
        losses = []
        for k in range(c):
            truth = (t == k).float()
            if truth.sum() == 0:
                continue
            errors, order = (truth - p[:, k]).abs().sort(descending=True)
            losses.append(errors @ lovasz_grad(truth[order]))
        return torch.stack(losses).mean()

    def dice(p, t, eps=1.0):
        hot = F.one_hot(t.clamp(max=p.shape[1] - 1), p.shape[1]).permute(0, 3, 1, 2).float()
        inter = (p * hot).sum((2, 3))
        return 1 - ((2 * inter + eps) / (p.sum((2, 3)) + hot.sum((2, 3)) + eps)).mean()

    def boundary(t):
        m = t.float()[:, None]
        return (F.max_pool2d(m, 3, 1, 1) + F.max_pool2d(-m, 3, 1, 1)).clamp(0, 1)[:, 0]

    def total(logits, t):
        p = logits.softmax(1)
        ce = F.cross_entropy(logits, t, ignore_index=255, reduction="none")
        weight = 1 + 2 * boundary(t.clamp(max=1))
        k = max(1, int(0.5 * ce.numel()))
        ohem = (ce * weight).flatten().topk(k)[0].mean()
        return ohem + dice(p, t) + lovasz(p, t)

    run = compiled(total)
    out: list[Any] = []
    for n, size in ((1, 6), (1, 6), (2, 5)):
        logits = torch.randn(n, 3, size, size, requires_grad=True)
        t = torch.randint(0, 3, (n, size, size))
        t[:, 0, 0] = 255
        loss = run(logits, t)
        loss.backward()
        out += [loss.detach(), logits.grad]
    return out


@idiom
def packed_batches(compiled: Compiled) -> list[Any]:
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(10, 4, padding_idx=0)
            self.rnn = nn.GRU(4, 5, bidirectional=True, batch_first=True)
            self.out = nn.Linear(10, 3)

        def forward(self, seqs: list[torch.Tensor]):
            lengths = torch.tensor([len(s) for s in seqs])
            x = pad_sequence(seqs, batch_first=True)
            packed = pack_padded_sequence(
                self.e(x), lengths, batch_first=True, enforce_sorted=False
            )
            y, h = self.rnn(packed)
            y, n = pad_packed_sequence(y, batch_first=True)
            mask = torch.arange(y.shape[1])[None] < n[:, None]
            return self.out(y), mask, torch.cat([*h], -1)

    model = Tagger()
    run = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out: list[Any] = []
    for lengths in ((3, 5), (3, 5), (4, 1, 2)):
        y, mask, h = run([torch.randint(1, 10, (n,)) for n in lengths])
        out += [descend(optimizer, y[mask].square().mean() + h.mean()), mask]
    packed = pack_sequence([torch.randn(3, 4), torch.randn(2, 4)])
    out.append(compiled(lambda p: model.rnn(p)[0].data * 2)(packed).detach())
    return out + state(model)


@idiom
def adapters_by_parametrization(compiled: Compiled) -> list[Any]:
    class Low(nn.Module):
        def __init__(self, o, i, rank=2, alpha=4.0):
            super().__init__()
            self.a, self.b = nn.Parameter(torch.randn(rank, i)), nn.Parameter(torch.zeros(o, rank))
            self.scale, self.enabled = alpha / rank, True

        def forward(self, w):
            return w + self.scale * self.b @ self.a if self.enabled else w

    class DoRA(nn.Module):
        def __init__(self, linear, rank=2):
            super().__init__()
            self.linear = linear.requires_grad_(False)
            self.a = nn.Parameter(torch.randn(rank, linear.in_features))
            self.b = nn.Parameter(torch.zeros(linear.out_features, rank))
            self.m = nn.Parameter(linear.weight.norm(dim=1).detach())

        def forward(self, x):
            w = self.linear.weight + self.b @ self.a
            return F.linear(x, w / w.norm(dim=1, keepdim=True).detach() * self.m[:, None])

    @contextlib.contextmanager
    def disabled(module):
        lows = [m for m in module.modules() if isinstance(m, Low)]
        for low in lows:
            low.enabled = False
        try:
            yield
        finally:
            for low in lows:
                low.enabled = True

    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), DoRA(nn.Linear(8, 3)))
    parametrize.register_parametrization(model[0], "weight", Low(8, 6))
    model[0].parametrizations.weight.original.requires_grad_(False)
    run = compiled(model)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
    out: list[Any] = []
    for it in range(4):
        x = torch.randn(4, 6)
        with disabled(model) if it == 2 else contextlib.nullcontext():
            out.append(descend(optimizer, run(x).square().mean()))
        with parametrize.cached():
            out.append(run(x).detach())
    parametrize.remove_parametrizations(model[0], "weight", leave_parametrized=True)
    return [*out, run(x).detach(), *state(model)]


@idiom
def replay_and_normalised_returns(compiled: Compiled) -> list[Any]:
    class RunningStats:
        def __init__(self):
            self.n, self.mean, self.m2 = 0, 0.0, 0.0

        def push(self, x: torch.Tensor):
            for v in x.tolist():
                self.n += 1
                d = v - self.mean
                self.mean += d / self.n
                self.m2 += d * (v - self.mean)

        @property
        def std(self):
            return math.sqrt(self.m2 / max(1, self.n - 1)) or 1.0

    stats, buffer = RunningStats(), deque(maxlen=6)
    model = mlp(3, 6, 1, drop=0.0)

    def step(batch, rewards):
        stats.push(rewards)
        r = (rewards - stats.mean) / (stats.std + 1e-8)
        buffer.append((batch.mean(0), r.mean()))
        x = torch.stack([b for b, _ in buffer])
        y = torch.stack([v for _, v in buffer])
        return F.mse_loss(model(x).squeeze(-1), y)

    run = compiled(step)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    out: list[Any] = []
    for n in (3, 3, 4, 3, 3, 2, 3, 3):
        out.append(descend(optimizer, run(torch.randn(n, 3), torch.randn(n))))
    return out + [stats.n, round(stats.mean, 6), len(buffer)] + state(model)


@idiom
def moe_with_capacity(compiled: Compiled) -> list[Any]:
    class MoE(nn.Module):
        def __init__(self, d=6, e=4, k=2, capacity=1.5):
            super().__init__()
            self.gate = nn.Linear(d, e, bias=False)
            self.w1, self.w2 = (
                nn.Parameter(torch.randn(e, d, 8)),
                nn.Parameter(torch.randn(e, 8, d)),
            )
            self.e, self.k, self.capacity = e, k, capacity
            self.register_buffer("load", torch.zeros(e))

        def forward(self, x):
            b, t, d = x.shape
            flat = x.reshape(-1, d)
            p = self.gate(flat).softmax(-1)
            top, at = p.topk(self.k, -1)
            top = top / top.sum(-1, keepdim=True)
            cap = math.ceil(self.capacity * self.k * len(flat) / self.e)
            hot = F.one_hot(at, self.e).permute(1, 0, 2).reshape(-1, self.e)
            rank = (hot.cumsum(0) - 1).reshape(self.k, -1, self.e).permute(1, 0, 2)
            rank = rank.gather(-1, at[..., None]).squeeze(-1)
            top = top * (rank < cap)
            slot = F.one_hot(rank.clamp(max=cap), cap + 1)[..., :cap]
            dispatch = torch.einsum(
                "nke,nkc,nk->nec", F.one_hot(at, self.e).float(), slot.float(), top
            )
            inside = torch.einsum("nec,nd->ecd", (dispatch > 0).float(), flat)
            h = torch.bmm(F.gelu(torch.bmm(inside, self.w1)), self.w2)
            fraction = F.one_hot(at[:, 0], self.e).float().mean(0)
            if self.training:
                self.load.lerp_(fraction, 0.1)
            aux = self.e * (fraction * p.mean(0)).sum()
            return torch.einsum("nec,ecd->nd", dispatch, h).view(b, t, d), aux

    model = MoE()
    run = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    out: list[Any] = []
    for b, t in ((2, 5), (2, 5), (2, 7), (1, 3)):
        y, aux = run(torch.randn(b, t, 6))
        out.append(descend(optimizer, y.square().mean() + 0.01 * aux))
    model.eval()
    return out + [run(torch.randn(2, 5, 6))[0].detach()] + state(model)


@idiom
def speculative_and_constrained(compiled: Compiled) -> list[Any]:
    class LM(nn.Module):
        def __init__(self, v=8, d=6, most=16):
            super().__init__()
            self.e, self.q, self.k, self.o = (
                nn.Embedding(v, d),
                nn.Linear(d, d),
                nn.Linear(d, d),
                nn.Linear(d, v),
            )
            self.register_buffer("cache", torch.zeros(most, d))

        def forward(self, ids, start: int):
            x = self.e(ids)
            n = start + len(ids)
            self.cache[start:n] = x
            past = self.cache[:n]
            scores = self.q(x) @ self.k(past).t()
            later = torch.arange(n)[None] > torch.arange(start, n)[:, None]
            return self.o(scores.masked_fill(later, float("-inf")).softmax(-1) @ past + x)

    draft, target = LM(), LM()
    run_d, run_t = compiled(draft), compiled(target)

    def sample(logits, top_p=0.9, banned=()):
        logits = logits.clone()
        logits[list(banned)] = float("-inf")
        p, order = logits.softmax(-1).sort(descending=True)
        p[p.cumsum(-1) - p > top_p] = 0
        return order[torch.multinomial(p / p.sum(), 1)]

    run_sample = compiled(sample)
    out: list[Any] = []
    with torch.no_grad():
        ids = torch.tensor([1])
        while len(ids) < 10:
            guess = ids
            for _ in range(2):
                logits = run_d(guess, 0)[-1]
                guess = torch.cat([guess, run_sample(logits, banned=(0, int(guess[-1])))])
            found = run_t(guess, 0)[len(ids) - 1 :].argmax(-1)
            same = (found[:-1] == guess[len(ids) :]).cumprod(0).sum().item()
            ids = torch.cat([guess[: len(ids) + same], found[same : same + 1]])
            out += [ids, same]
    return out + [draft.cache, target.cache]


@idiom(rounded="with symbols, gradients lie as the results they are of", bound=1e-6)
def time_series_patches(compiled: Compiled) -> list[Any]:
    class RevIN(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.w, self.b = nn.Parameter(torch.ones(c)), nn.Parameter(torch.zeros(c))

        def forward(self, x, mode: str):
            if mode == "norm":
                self.mean = x.mean(1, keepdim=True).detach()
                self.std = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5).detach()
                return (x - self.mean) / self.std * self.w + self.b
            if mode == "denorm":
                return (x - self.b) / (self.w + 1e-10) * self.std + self.mean
            raise NotImplementedError(mode)

    class PatchTS(nn.Module):
        def __init__(self, c=2, patch=4, stride=2, horizon=3, d=6):
            super().__init__()
            self.revin, self.patch, self.stride = RevIN(c), patch, stride
            self.embed = nn.Linear(patch, d)
            self.mix = nn.GRU(d, d, batch_first=True)
            self.head = nn.Linear(d, horizon)

        def forward(self, x):
            b, t, c = x.shape
            x = self.revin(x, "norm").transpose(1, 2).reshape(b * c, t)
            x = F.pad(x, (0, self.stride), mode="replicate")
            patches = x.unfold(-1, self.patch, self.stride)
            h, _ = self.mix(self.embed(patches))
            y = self.head(h[:, -1]).view(b, c, -1).transpose(1, 2)
            return self.revin(y, "denorm")

    def quantile_loss(p, t, qs=(0.1, 0.5, 0.9)):
        d = t[..., None] - p[..., None]
        q = torch.tensor(qs)
        return torch.maximum(q * d, (q - 1) * d).mean()

    model = PatchTS()
    run = compiled(model)
    run_loss = compiled(quantile_loss)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out: list[Any] = []
    for b, t in ((2, 12), (2, 12), (3, 12), (2, 16)):
        x = torch.randn(b, t, 2).cumsum(1)
        out += [descend(optimizer, run_loss(run(x), torch.randn(b, 3, 2))), model.revin.mean]
    for _ in range(2):
        try:
            compiled(model.revin)(x, "other")
        except NotImplementedError as error:
            out.append(str(error))
    out += values_and_gradients(
        compiled,
        lambda x: (x.cumsum(0) / torch.arange(1, len(x) + 1)[:, None]).diff(dim=0).logcumsumexp(0),
        lambda: (torch.randn(5, 2),),
        lambda: (torch.randn(7, 2),),
    )
    return out + state(model)
