"""Networks with state of their own: spikes, memories, worlds, layers that train themselves."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributions as D
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from tests.slow.batteries.idioms.common import (
    Compiled,
    descend,
    idiom,
    mlp,
    state,
)


@idiom
def spiking_and_surrogates(compiled: Compiled) -> list[Any]:
    class Spike(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v, slope):
            ctx.save_for_backward(v)
            ctx.slope = slope
            return (v > 0).float()

        @staticmethod
        def backward(ctx, g):
            (v,) = ctx.saved_tensors
            return g / (ctx.slope * v.abs() + 1) ** 2, None

    class Lif(nn.Module):
        def __init__(self, n, beta=0.9, slope=10.0):
            super().__init__()
            self.beta = nn.Parameter(torch.full((n,), beta))
            self.slope, self.mem = slope, None

        def reset(self):
            self.mem = None

        def forward(self, current):
            if self.mem is None:
                self.mem = torch.zeros_like(current)
            spike = Spike.apply(self.mem - 1.0, self.slope)
            self.mem = self.beta.clamp(0, 1) * self.mem + current - spike.detach()
            return Spike.apply(self.mem - 1.0, self.slope)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)
            self.la, self.lb = Lif(8), Lif(2)

        def forward(self, x, steps):
            for m in self.modules():
                if isinstance(m, Lif):
                    m.reset()
            total, rates = 0, []
            for _ in range(steps):
                s = self.la(self.a(x) * 2)
                total = total + self.lb(self.b(s) * 2)
                rates.append(s.mean())
            return total / steps, torch.stack(rates)

    model = Net()
    run = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out: list[Any] = []
    for n, steps in ((3, 3), (3, 5), (2, 3)):
        y, rates = run(torch.rand(n, 4), steps)
        loss = (y - 0.5).square().mean() + (rates - 0.3).square().sum()
        out += [descend(optimizer, loss), rates.detach(), model.la.mem.detach()]
    return out + state(model)


@idiom
def memories_and_fast_weights(compiled: Compiled) -> list[Any]:
    class Hopfield(nn.Module):
        def __init__(self, d=4, slots=5, beta=2.0):
            super().__init__()
            self.stored, self.beta = nn.Parameter(torch.randn(slots, d)), beta

        def forward(self, q, steps=3):
            energies = []
            for _ in range(steps):
                scores = self.beta * q @ self.stored.mT
                energies.append(-torch.logsumexp(scores, -1) / self.beta + 0.5 * q.square().sum(-1))
                q = scores.softmax(-1) @ self.stored
            return q, torch.stack(energies)

    class DeltaNet(nn.Module):
        def __init__(self, d=4):
            super().__init__()
            self.qkvb = nn.Linear(d, 3 * d + 1)

        def forward(self, x, w=None):
            q, k, v, b = self.qkvb(x).split([4, 4, 4, 1], -1)
            k, b = F.normalize(F.elu(k) + 1, dim=-1), b.sigmoid()
            w = x.new_zeros(len(x), 4, 4) if w is None else w
            out = []
            for t in range(x.shape[1]):
                kt = k[:, t]
                w = torch.baddbmm(
                    w, (b[:, t] * (v[:, t] - (w @ kt[..., None])[..., 0]))[..., None], kt[:, None]
                )
                out.append((w @ q[:, t, :, None])[..., 0])
            return torch.stack(out, 1), w

    class Hebbian(nn.Module):
        def __init__(self, i=4, o=3):
            super().__init__()
            self.register_buffer("w", torch.randn(o, i) / 2)
            self.register_buffer("seen", torch.zeros(o))

        @torch.no_grad()
        def forward(self, x, rate=0.1):
            y = x @ self.w.mT
            winner = y.argmax(1)
            self.seen.scatter_add_(0, winner, torch.ones(len(x)))
            onehot = F.one_hot(winner, 3).float()
            self.w += rate * (onehot.mT @ x - onehot.sum(0)[:, None] * self.w)
            self.w.div_(self.w.norm(dim=1, keepdim=True))
            return y

    hop, delta, hebb = Hopfield(), DeltaNet(), Hebbian()
    runs = [compiled(m) for m in (hop, delta, hebb)]
    optimizer = torch.optim.SGD([*hop.parameters(), *delta.parameters()], 0.1)
    out: list[Any] = []
    w = None
    for n, t in ((2, 3), (2, 3), (2, 4)):
        q, energies = runs[0](torch.randn(n, 4), t)
        y, w = runs[1](torch.randn(n, t, 4), w)
        out += [descend(optimizer, q.square().mean() + y.square().mean()), energies.detach()]
        w = w.detach()
        out += [w, runs[2](torch.randn(n + 1, 4)), hebb.seen.clone()]
    return out + state(hop, delta, hebb)


@idiom
def layers_trained_by_themselves(compiled: Compiled) -> list[Any]:
    class Layer(nn.Linear):
        def __init__(self, i, o):
            super().__init__(i, o)
            self.optimizer = torch.optim.SGD(self.parameters(), 0.1)

        def forward(self, x):
            return torch.relu(super().forward(x / (x.norm(2, 1, keepdim=True) + 1e-4)))

        def goodness(self, pos, neg):
            g = self(pos).pow(2).mean(1), self(neg).pow(2).mean(1)
            return F.softplus(torch.cat([-g[0] + 1.0, g[1] - 1.0])).mean()

    layers = [Layer(6, 8), Layer(8, 8)]
    losses = [compiled(layer.goodness) for layer in layers]

    def overlay(x, y):
        x = x.clone()
        x[:, :3] *= 0.0
        x[range(x.shape[0]), y] = x.max()
        return x

    mark = compiled(overlay)

    def predict(x):
        per = []
        for label in range(3):
            h = overlay(x, torch.full((len(x),), label))
            good = []
            for layer in layers:
                h = layer(h)
                good.append(h.pow(2).mean(1))
            per.append(sum(good))
        return torch.stack(per, 1).argmax(1)

    run = compiled(predict)
    out: list[Any] = []
    for n in (4, 4, 5):
        x, y = torch.rand(n, 6), torch.randint(0, 3, (n,))
        pos, neg = mark(x, y), mark(x, y[torch.randperm(n)])
        for layer, loss in zip(layers, losses):
            out.append(descend(layer.optimizer, loss(pos, neg)))
            pos, neg = layer(pos).detach(), layer(neg).detach()
        with torch.no_grad():
            out.append(run(x))
    return out + state(*layers)


@idiom
def checkpoints_by_hand(compiled: Compiled) -> list[Any]:
    class Checkpoint(torch.autograd.Function):
        @staticmethod
        def forward(ctx, function, n, *args):
            ctx.function, ctx.n = function, n
            ctx.save_for_backward(*args)
            with torch.no_grad():
                return function(*args[:n])

        @staticmethod
        def backward(ctx, *grads):
            args = [t.detach().requires_grad_(t.requires_grad) for t in ctx.saved_tensors]
            with torch.enable_grad():
                y = ctx.function(*args[: ctx.n])
            return (None, None, *torch.autograd.grad(y, args, grads, allow_unused=True))

    class Reversible(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x1, x2, wf, wg):
            y1 = x1 + torch.tanh(x2 @ wf)
            y2 = x2 + torch.tanh(y1 @ wg)
            ctx.save_for_backward(y1.detach(), y2.detach(), wf, wg)
            return y1, y2

        @staticmethod
        def backward(ctx, d1, d2):
            y1, y2, wf, wg = ctx.saved_tensors
            tg = torch.tanh(y1 @ wg)
            x2 = y2 - tg
            dg = d2 * (1 - tg * tg)
            d1 = d1 + dg @ wg.mT
            tf = torch.tanh(x2 @ wf)
            df = d1 * (1 - tf * tf)
            return d1, d2 + df @ wf.mT, x2.mT @ df, y1.mT @ dg

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.wf = nn.Parameter(torch.randn(3, 3) / 2)
            self.wg = nn.Parameter(torch.randn(3, 3) / 2)
            self.block = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 3))

        def forward(self, x, mode):
            if mode == "hand":
                x = Checkpoint.apply(lambda v, w: torch.sin(v @ w), 2, x, self.wf, self.wg)
            elif mode == "reversible":
                a, b = Reversible.apply(x, x * 0.5, self.wf, self.wg)
                a, b = Reversible.apply(a, b, self.wg, self.wf)
                x = a + b
            else:
                reentrant = mode == "old"
                x = checkpoint(self.block, x, use_reentrant=reentrant, preserve_rng_state=True)
            return x.square().mean()

    net = Net()
    run = compiled(net)
    out: list[Any] = []
    for n, mode in (
        (2, "hand"),
        (2, "reversible"),
        (3, "new"),
        (2, "old"),
        (3, "hand"),
        (2, "new"),
    ):
        x = torch.randn(n, 3, requires_grad=True)
        net.zero_grad()
        loss = run(x, mode)
        loss.backward()
        out += [loss.detach(), x.grad, *(p.grad for p in net.parameters() if p.grad is not None)]
    return out


@idiom
def depth_that_depends(compiled: Compiled) -> list[Any]:
    class Exits(nn.Module):
        def __init__(self, d=4, depth=3):
            super().__init__()
            self.blocks = nn.ModuleList(mlp(d, 8, d, drop=0.0) for _ in range(depth))
            self.heads = nn.ModuleList(nn.Linear(d, 2) for _ in range(depth))
            self.halt = nn.Linear(d, 1)

        def forward(self, x, threshold=0.9):
            if self.training:
                outs = []
                for block, head in zip(self.blocks, self.heads):
                    x = x + block(x)
                    outs.append(head(x))
                return outs
            for i, (block, head) in enumerate(zip(self.blocks, self.heads)):
                x = x + block(x)
                logits = head(x)
                if logits.softmax(-1).max() > threshold:
                    return logits, i
            return logits, len(self.blocks)

        def ponder(self, x, limit=4):
            halted = torch.zeros(len(x))
            total, steps = torch.zeros_like(x), torch.zeros(len(x))
            for _ in range(limit):
                p = torch.sigmoid(self.halt(x)).squeeze(1)
                running = (halted < 1).float()
                last = (halted + p * running > 0.95).float() * running
                w = torch.where(last > 0, 1 - halted, p * running)
                halted, steps = halted + w, steps + running
                x = self.blocks[0](x)
                total = total + w[:, None] * x
                if (halted >= 1).all():
                    break
            return total, steps

    model = Exits()
    run, ponder = compiled(model), compiled(model.ponder)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    out: list[Any] = []
    for _ in range(3):
        outs = run(torch.randn(4, 4))
        loss = sum(F.cross_entropy(o, torch.tensor([0, 1, 0, 1])) for o in outs)
        y, steps = ponder(torch.randn(3, 4))
        out += [descend(optimizer, loss + y.square().mean()), y.detach(), steps]
    model.eval()
    with torch.no_grad():
        for threshold in (0.5, 0.999, 0.5):
            out += run(torch.randn(1, 4), threshold)
    return out + state(model)


@idiom
def world_model(compiled: Compiled) -> list[Any]:
    class State(NamedTuple):
        deter: torch.Tensor
        logits: torch.Tensor
        stoch: torch.Tensor

        def feature(self):
            return torch.cat([self.deter, self.stoch.flatten(1)], -1)

    class Rssm(nn.Module):
        def __init__(self, obs=3, act=2, deter=6, groups=2, classes=3):
            super().__init__()
            self.gru = nn.GRUCell(groups * classes + act, deter)
            self.prior = nn.Linear(deter, groups * classes)
            self.posterior = nn.Linear(deter + obs, groups * classes)
            self.decoder = nn.Linear(deter + groups * classes, obs)
            self.shape = (groups, classes)

        def sample(self, flat):
            logits = flat.unflatten(-1, self.shape)
            probs = 0.99 * logits.softmax(-1) + 0.01 / self.shape[-1]
            dist = D.OneHotCategoricalStraightThrough(probs=probs)
            return dist.logits, dist.rsample()

        def initial(self, n):
            return State(
                torch.zeros(n, 6), torch.zeros(n, *self.shape), torch.zeros(n, *self.shape)
            )

        def step(self, state, action, obs=None):
            deter = self.gru(torch.cat([state.stoch.flatten(1), action], -1), state.deter)
            prior = State(deter, *self.sample(self.prior(deter)))
            if obs is None:
                return prior, prior
            return prior, State(deter, *self.sample(self.posterior(torch.cat([deter, obs], -1))))

        def forward(self, obs, actions, first):
            state, priors, posts = self.initial(len(obs)), [], []
            for o, a, f in zip(obs.unbind(1), actions.unbind(1), first.unbind(1)):
                state = State(*(v * (~f).view(-1, *[1] * (v.dim() - 1)) for v in state))
                prior, state = self.step(state, a, o)
                priors.append(prior)
                posts.append(state)
            feature = torch.stack([s.feature() for s in posts], 1)
            kl = torch.stack(
                [
                    0.8 * self.kl(q.logits.detach(), p.logits).clamp(min=0.1).mean()
                    + 0.2 * self.kl(q.logits, p.logits.detach()).clamp(min=0.1).mean()
                    for p, q in zip(priors, posts)
                ]
            ).mean()
            return (self.decoder(feature) - obs).square().mean() + kl, state

        @staticmethod
        def kl(a, b):
            return D.kl_divergence(
                D.Independent(D.OneHotCategorical(logits=a), 1),
                D.Independent(D.OneHotCategorical(logits=b), 1),
            )

        def imagine(self, state, horizon):
            found = []
            for _ in range(horizon):
                state, _ = self.step(state, torch.ones(len(state.deter), 2))
                found.append(self.decoder(state.feature()))
            return torch.stack(found, 1)

    model = Rssm()
    run, imagine = compiled(model), compiled(model.imagine)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out: list[Any] = []
    for n, t in ((2, 3), (2, 3), (3, 2)):
        first = torch.zeros(n, t, dtype=torch.bool)
        first[0, 1] = True
        loss, last = run(torch.randn(n, t, 3), torch.randn(n, t, 2), first)
        out.append(descend(optimizer, loss))
        with torch.no_grad():
            out += [imagine(State(*(v.detach() for v in last)), t), *(v.detach() for v in last)]
    return out + state(model)
