"""Densities and dynamics: diffusion, flows, distributions, solvers."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
import torch.distributions as D
import torch.nn as nn
import torch.nn.functional as F

from tests.slow.batteries.idioms.common import Compiled, descend, idiom, mlp, state


def timestep_embedding(t: torch.Tensor, dim: int, max_period: float = 10000.0) -> torch.Tensor:
    half = dim // 2
    freqs = torch.exp(-math.log(max_period) * torch.arange(half, dtype=torch.float32) / half)
    args = t[:, None].float() * freqs[None]
    emb = torch.cat([torch.cos(args), torch.sin(args)], -1)
    return F.pad(emb, (0, 1)) if dim % 2 else emb


@idiom
def ddpm_unet_ema_and_samplers(compiled: Compiled) -> list[Any]:
    class Res(nn.Module):
        def __init__(self, i, o, t):
            super().__init__()
            self.n1, self.c1 = nn.GroupNorm(2, i), nn.Conv2d(i, o, 3, padding=1)
            self.t = nn.Linear(t, 2 * o)
            self.n2, self.c2 = nn.GroupNorm(2, o), nn.Conv2d(o, o, 3, padding=1)
            self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

        def forward(self, x, emb):
            h = self.c1(F.silu(self.n1(x)))
            scale, shift = self.t(F.silu(emb))[:, :, None, None].chunk(2, 1)
            return self.skip(x) + self.c2(F.silu(self.n2(h) * (1 + scale) + shift))

    class UNet(nn.Module):
        def __init__(self, c=4, t=8):
            super().__init__()
            self.tdim = t
            self.time = nn.Sequential(nn.Linear(t, t), nn.SiLU(), nn.Linear(t, t))
            self.label = nn.Embedding(4, t)
            self.inp, self.out = nn.Conv2d(1, c, 3, padding=1), nn.Conv2d(c, 1, 3, padding=1)
            self.down = nn.ModuleList([Res(c, c, t), Res(c, 2 * c, t)])
            self.mid = Res(2 * c, 2 * c, t)
            self.up = nn.ModuleList([Res(4 * c, c, t), Res(2 * c, c, t)])

        def forward(self, x, t, y=None):
            emb = self.time(timestep_embedding(t, self.tdim))
            if y is not None:
                emb = emb + self.label(y)
            h, kept = self.inp(x), []
            for block in self.down:
                h = block(h, emb)
                kept.append(h)
                h = F.avg_pool2d(h, 2)
            h = self.mid(h, emb)
            for block in self.up:
                h = F.interpolate(h, scale_factor=2, mode="nearest")
                h = block(torch.cat([h, kept.pop()], 1), emb)
            return self.out(h)

    steps = 8
    betas = torch.linspace(1e-3, 0.3, steps)
    bar = torch.cumprod(1 - betas, 0)
    model = UNet()
    ema = copy.deepcopy(model).eval().requires_grad_(False)
    run = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)

    @torch.no_grad()
    def update(decay=0.9):
        for a, b in zip(ema.parameters(), model.parameters()):
            a.lerp_(b, 1 - decay)

    run_update = compiled(update)
    out: list[Any] = []
    for n in (2, 2, 3):
        x, noise = torch.randn(n, 1, 8, 8), torch.randn(n, 1, 8, 8)
        t = torch.randint(0, steps, (n,))
        a = bar[t].view(-1, 1, 1, 1)
        y = torch.randint(0, 3, (n,)).masked_fill(torch.rand(n) < 0.3, 3)
        loss = F.mse_loss(run(a.sqrt() * x + (1 - a).sqrt() * noise, t, y), noise)
        out.append(descend(optimizer, loss))
        run_update()

    def guided(x, t, y, w):
        both = torch.cat([y, torch.full_like(y, 3)])
        e = ema(x.repeat(2, 1, 1, 1), t.repeat(2), both)
        c, u = e.chunk(2)
        return u + w * (c - u)

    @torch.no_grad()
    def ddim(x, y, n_steps=4, eta=0.0, w=2.0):
        seq = list(range(0, steps, steps // n_steps))
        for i, j in zip(reversed(seq), reversed([-1, *seq[:-1]])):
            t = torch.full((x.shape[0],), i, dtype=torch.long)
            at, an = bar[i], bar[j] if j >= 0 else torch.tensor(1.0)
            e = guided(x, t, y, w)
            x0 = ((x - (1 - at).sqrt() * e) / at.sqrt()).clamp(-1, 1)
            sigma = eta * ((1 - an) / (1 - at) * (1 - at / an)).sqrt()
            x = an.sqrt() * x0 + (1 - an - sigma**2).clamp(min=0).sqrt() * e
            if eta > 0:
                x = x + sigma * torch.randn_like(x)
        return x

    run_ddim = compiled(ddim)
    y = torch.tensor([0, 2])
    for n_steps, eta in ((2, 0.0), (4, 0.5), (2, 0.0)):
        out.append(run_ddim(torch.randn(2, 1, 8, 8), y, n_steps, eta))
    return out + state(model, ema)


@idiom
def edm_heun_sampler(compiled: Compiled) -> list[Any]:
    net = mlp(3, 16, 2, drop=0.0)

    def denoise(x, sigma, data=0.5):
        sigma = torch.as_tensor(sigma, dtype=x.dtype).reshape(-1, 1).expand(x.shape[0], 1)
        total = (sigma**2 + data**2).sqrt()
        c_in, c_out = 1 / total, sigma * data / total
        return data**2 / total**2 * x + c_out * net(torch.cat([c_in * x, sigma.log() / 4], -1))

    def loss(x):
        sigma = (torch.randn(len(x), 1) * 1.2 - 1.2).exp()
        weight = (sigma**2 + 0.25) / (sigma * 0.5) ** 2
        return (weight * (denoise(x + sigma * torch.randn_like(x), sigma) - x) ** 2).mean()

    @torch.no_grad()
    def heun(x, n=4, rho=7, low=0.02, high=5.0, churn=0.0):
        steps = torch.arange(n, dtype=torch.float64)
        t = (high ** (1 / rho) + steps / (n - 1) * (low ** (1 / rho) - high ** (1 / rho))) ** rho
        t = torch.cat([t, torch.zeros_like(t[:1])]).float()
        x = x * t[0]
        for i, (now, after) in enumerate(zip(t[:-1], t[1:])):
            gamma = min(churn / n, math.sqrt(2) - 1)
            hat = now + gamma * now
            x_hat = x + (hat**2 - now**2).clamp(min=0).sqrt() * torch.randn_like(x)
            d = (x_hat - denoise(x_hat, hat)) / hat
            x = x_hat + (after - hat) * d
            if i < n - 1:
                d2 = (x - denoise(x, after)) / after
                x = x_hat + (after - hat) * (0.5 * d + 0.5 * d2)
        return x

    run, run_heun = compiled(loss), compiled(heun)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    out: list[Any] = [descend(optimizer, run(torch.randn(n, 2))) for n in (6, 6, 8)]
    for n, churn in ((3, 0.0), (4, 1.0), (3, 0.0)):
        out.append(run_heun(torch.randn(5, 2), n, churn=churn))
    return out + state(net)


@idiom
def flow_matching_and_schedule(compiled: Compiled) -> list[Any]:
    net = mlp(3, 16, 2, drop=0.0)

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, t, x):
            if t.dim() == 0:
                t = t.expand(x.shape[0])
            return self.net(torch.cat([x, t[:, None]], -1))

        def loss(self, x1):
            x0 = torch.randn_like(x1)
            cost = torch.cdist(x0, x1) ** 2
            x1 = x1[cost.argmin(1)]
            t = torch.rand(len(x1))
            xt = torch.lerp(x0, x1, t[:, None])
            return F.mse_loss(self(t, xt), x1 - x0)

        @torch.inference_mode()
        def sample(self, n, steps=4, method="euler"):
            x, dt = torch.randn(n, 2), 1 / steps
            for i in range(steps):
                t = torch.tensor(i * dt)
                k = self(t, x)
                if method == "midpoint":
                    k = self(t + dt / 2, x + dt / 2 * k)
                x = x + dt * k
            return x

    model = Flow()
    run, sample = compiled(model.loss), compiled(model.sample)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3),
        ],
        [2],
    )
    out: list[Any] = []
    for n in (6, 6, 6, 9):
        out += [descend(optimizer, run(torch.randn(n, 2))), scheduler.get_last_lr()[0]]
        scheduler.step()
    for args in ((4,), (4, 4, "midpoint"), (5, 2), (4,)):
        out.append(sample(*args).clone())
    return out + state(model)


@idiom
def vae_with_distributions(compiled: Compiled) -> list[Any]:
    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.dec = nn.Linear(8, 6), mlp(3, 8, 8, drop=0.0)
            self.prior_mean = nn.Parameter(torch.zeros(3))

        def forward(self, x, samples=1, beta=1.0):
            mu, raw = self.enc(x).chunk(2, -1)
            q = D.Independent(D.Normal(mu, F.softplus(raw) + 1e-3), 1)
            p = D.Independent(D.Normal(self.prior_mean.expand_as(mu), 1.0), 1)
            z = q.rsample((samples,))
            likelihood = D.Independent(D.Bernoulli(logits=self.dec(z)), 1)
            kl = D.kl_divergence(q, p)
            elbo = likelihood.log_prob(x.expand(samples, *x.shape)).mean(0) - beta * kl
            return -elbo.mean(), kl.mean(), likelihood.mean[0]

    model = VAE()
    run = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    out: list[Any] = []
    for n, samples, beta in ((4, 1, 1.0), (4, 1, 0.5), (4, 3, 0.5), (6, 3, 0.25)):
        loss, kl, mean = run(torch.bernoulli(torch.full((n, 8), 0.5)), samples, beta)
        out += [descend(optimizer, loss), kl.detach(), mean.detach()]
    return out + state(model)


@idiom
def mixture_density_and_relaxed(compiled: Compiled) -> list[Any]:
    class MDN(nn.Module):
        def __init__(self, k=3):
            super().__init__()
            self.net, self.k = mlp(2, 8, 3 * k, drop=0.0), k

        def forward(self, x):
            logits, mu, log_sigma = self.net(x).split(self.k, -1)
            parts = D.Normal(mu, log_sigma.clamp(-3, 3).exp())
            return D.MixtureSameFamily(D.Categorical(logits=logits), parts)

    model = MDN()

    def loss(x, y):
        mix = model(x)
        return -mix.log_prob(y).mean() + 0.01 * mix.mixture_distribution.entropy().mean()

    @torch.no_grad()
    def predict(x):
        mix = model(x)
        return mix.mean, mix.variance, mix.sample((2,))

    def relaxed(logits, temperature):
        dist = D.RelaxedOneHotCategorical(temperature, logits=logits)
        z = dist.rsample()
        hard = F.one_hot(z.argmax(-1), z.shape[-1]).type_as(z)
        return (hard - z.detach() + z).square().sum() + D.Categorical(logits=logits).entropy().sum()

    run, run_predict, run_relaxed = compiled(loss), compiled(predict), compiled(relaxed)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    out: list[Any] = []
    for n, temperature in ((5, 1.0), (5, 0.5), (7, 0.5)):
        out.append(descend(optimizer, run(torch.randn(n, 2), torch.randn(n))))
        out += run_predict(torch.randn(n, 2))
        logits = torch.randn(n, 4, requires_grad=True)
        value = run_relaxed(logits, torch.tensor(temperature))
        value.backward()
        out += [value.detach(), logits.grad]
    return out + state(model)


@idiom
def variational_families(compiled: Compiled) -> list[Any]:
    def objective(mean, tril, conc, df):
        scale = torch.tril(tril, -1) + torch.diag_embed(F.softplus(tril.diagonal(dim1=-2, dim2=-1)))
        q = D.MultivariateNormal(mean, scale_tril=scale)
        p = D.MultivariateNormal(torch.zeros_like(mean), torch.eye(mean.shape[-1]))
        z = q.rsample()
        heavy = D.StudentT(df.exp() + 2).log_prob(z).sum(-1)
        simplex = D.Dirichlet(conc.exp())
        flat = D.Dirichlet(torch.ones_like(conc))
        squashed = D.TransformedDistribution(D.Normal(mean, 1.0), [D.transforms.TanhTransform()])
        action = torch.tanh(z) * 0.9
        log_pi = squashed.log_prob(action).sum(-1)
        gamma = D.Gamma(conc.exp(), 1.0).log_prob(torch.ones_like(conc)).sum(-1)
        return (
            D.kl_divergence(q, p) - heavy + D.kl_divergence(simplex, flat) + log_pi - gamma
        ).mean()

    run = compiled(objective)
    out: list[Any] = []
    for b, d in ((2, 3), (2, 3), (3, 2)):
        args = [torch.randn(b, d), torch.randn(b, d, d), torch.randn(b, d), torch.randn(1)]
        for a in args:
            a.requires_grad_()
        value = run(*args)
        value.backward()
        out += [value.detach(), *(a.grad for a in args)]
    return out


@idiom
def glow_with_slogdet(compiled: Compiled) -> list[Any]:
    class ActNorm(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.scale, self.loc = nn.Parameter(torch.ones(c)), nn.Parameter(torch.zeros(c))
            self.register_buffer("initialised", torch.tensor(0, dtype=torch.uint8))

        def forward(self, x):
            if self.initialised.item() == 0:
                with torch.no_grad():
                    self.loc.copy_(-x.mean(0))
                    self.scale.copy_(1 / (x.std(0) + 1e-6))
                    self.initialised.fill_(1)
            return self.scale * (x + self.loc), self.scale.abs().log().sum().expand(len(x))

        def inverse(self, y):
            return y / self.scale - self.loc

    class Mix(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.w = nn.Parameter(torch.linalg.qr(torch.randn(c, c))[0])

        def forward(self, x):
            return x @ self.w.t(), torch.slogdet(self.w)[1].expand(len(x))

        def inverse(self, y):
            return torch.linalg.solve(self.w, y.t()).t()

    class LU(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.m = nn.Parameter(torch.randn(c, c) * 0.1)
            self.log_d = nn.Parameter(torch.zeros(c))

        def parts(self):
            low = torch.tril(self.m, -1) + torch.eye(len(self.m))
            return low, torch.triu(self.m, 1) + torch.diag(self.log_d.exp())

        def forward(self, x):
            low, up = self.parts()
            return x @ (low @ up).t(), self.log_d.sum().expand(len(x))

        def inverse(self, y):
            low, up = self.parts()
            z = torch.linalg.solve_triangular(low, y.t(), upper=False, unitriangular=True)
            return torch.linalg.solve_triangular(up, z, upper=True).t()

    class Flow(nn.Module):
        def __init__(self, c=4):
            super().__init__()
            self.steps = nn.ModuleList([ActNorm(c), Mix(c), LU(c)])

        def forward(self, x):
            total = torch.zeros(len(x))
            for step in self.steps:
                x, d = step(x)
                total = total + d
            return x, total

        def inverse(self, y):
            for step in reversed(self.steps):
                y = step.inverse(y)
            return y

    model = Flow()
    run, run_inverse = compiled(model), compiled(model.inverse)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    out: list[Any] = []
    for n in (6, 6, 6, 9):
        x = torch.randn(n, 4) * 2 + 1
        z, d = run(x)
        base = torch.distributions.Normal(0.0, 1.0)
        out += [descend(optimizer, -(base.log_prob(z).sum(-1) + d).mean()), run_inverse(z).detach()]
    return out + state(model)


@idiom
def masked_autoregressive_and_spline(compiled: Compiled) -> list[Any]:
    class MaskedLinear(nn.Linear):
        def __init__(self, i, o, mask):
            super().__init__(i, o)
            self.register_buffer("mask", mask)

        def forward(self, x):
            return F.linear(x, self.weight * self.mask, self.bias)

    class MADE(nn.Module):
        def __init__(self, d=3, h=8):
            super().__init__()
            degrees = [torch.arange(d), torch.arange(h) % (d - 1), torch.arange(d) - 1]
            first = (degrees[1][:, None] >= degrees[0][None]).float()
            last = (degrees[2][:, None] >= degrees[1][None]).float()
            self.a = MaskedLinear(d, h, first)
            self.b = MaskedLinear(h, 2 * d, last.repeat(2, 1))
            self.d = d

        def forward(self, x):
            mu, s = self.b(torch.relu(self.a(x))).chunk(2, -1)
            return (x - mu) * torch.exp(-s), -s.sum(-1)

        @torch.no_grad()
        def invert(self, z):
            x = torch.zeros_like(z)
            for i in range(self.d):
                mu, s = self.b(torch.relu(self.a(x))).chunk(2, -1)
                x[:, i] = z[:, i] * torch.exp(s[:, i]) + mu[:, i]
            return x

    def spline(x, widths, heights, derivatives, bound=3.0):
        inside = (x > -bound) & (x < bound)
        out, log = x.clone(), torch.zeros_like(x)
        x = x[inside]
        w = F.softmax(widths[inside], -1) * 2 * bound
        h = F.softmax(heights[inside], -1) * 2 * bound
        d = F.pad(F.softplus(derivatives[inside]), (1, 1), value=1.0)
        cw = F.pad(w.cumsum(-1), (1, 0)) - bound
        ch = F.pad(h.cumsum(-1), (1, 0)) - bound
        k = (torch.searchsorted(cw, x[:, None], right=True) - 1).clamp(0, w.shape[-1] - 1)
        xk, yk, wk, hk = (v.gather(-1, k)[:, 0] for v in (cw, ch, w, h))
        dk, dn = d.gather(-1, k)[:, 0], d.gather(-1, k + 1)[:, 0]
        t, s = (x - xk) / wk, hk / wk
        num = hk * (s * t**2 + dk * t * (1 - t))
        den = s + (dk + dn - 2 * s) * t * (1 - t)
        out[inside] = yk + num / den
        slope = s**2 * (dn * t**2 + 2 * s * t * (1 - t) + dk * (1 - t) ** 2)
        log[inside] = slope.log() - 2 * den.log()
        return out, log

    model = MADE()
    head = nn.Linear(3, 3 * 11)

    def loss(x):
        z, log = model(x)
        w, h, d = head(x).view(*x.shape, 11).split([4, 4, 3], -1)
        y, log2 = spline(z, w, h, d)
        return (0.5 * y**2 - log2).sum(-1).mean() - log.mean()

    run, run_invert = compiled(loss), compiled(model.invert)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], 0.01)
    out: list[Any] = []
    for n in (6, 6, 8):
        out += [descend(optimizer, run(torch.randn(n, 3) * 2)), run_invert(torch.randn(n, 3))]
    return out + state(model, head)


@idiom
def adaptive_ode(compiled: Compiled) -> list[Any]:
    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.calls = mlp(2, 8, 2, drop=0.0), 0

        def forward(self, t, y):
            self.calls += 1
            return torch.tanh(self.net(y)) - 0.1 * y * t

    field = Field()

    def step(t, y, dt):
        k1 = field(t, y)
        k2 = field(t + dt / 2, y + dt / 2 * k1)
        k3 = field(t + dt * 0.75, y + dt * 0.75 * k2)
        high = y + dt * (2 / 9 * k1 + 1 / 3 * k2 + 4 / 9 * k3)
        k4 = field(t + dt, high)
        low = y + dt * (7 / 24 * k1 + 0.25 * k2 + 1 / 3 * k3 + 0.125 * k4)
        return high, (high - low).abs().max()

    def solve(y, t0, t1, tolerance=1e-3, most=20):
        t, dt, n = t0, 0.25, 0
        while t < t1 and n < most:
            dt = min(dt, t1 - t)
            candidate, error = step(t, y, dt)
            error = error.item()
            if error < tolerance:
                t, y = t + dt, candidate
            dt *= max(0.2, min(2.0, 0.9 * (tolerance / (error + 1e-12)) ** (1 / 3)))
            n += 1
        return y, n

    run = compiled(solve)
    run_step = compiled(step)
    out: list[Any] = []
    for n, t1 in ((3, 0.5), (3, 0.5), (4, 1.0)):
        y, used = run(torch.randn(n, 2), 0.0, t1)
        y.square().sum().backward()
        out += [y.detach(), used, field.calls]
    y = torch.randn(3, 2)
    for i in range(3):
        y, error = run_step(torch.tensor(i * 0.1), y, torch.tensor(0.1))
        out += [y.detach(), error.detach()]
    return out + [field.calls] + [p.grad for p in field.parameters()]


@idiom
def langevin_and_hmc(compiled: Compiled) -> list[Any]:
    net = mlp(2, 8, 1, drop=0.0)

    def energy(x):
        return net(x).sum() + 0.5 * (x**2).sum()

    def langevin(x, steps, size):
        for _ in range(steps):
            x = x.detach().requires_grad_(True)
            (g,) = torch.autograd.grad(energy(x), x)
            x = x - size * g + math.sqrt(2 * size) * torch.randn_like(x)
        return x.detach()

    def leapfrog(q, p, size, steps):
        g = torch.func.grad(energy)(q)
        for _ in range(steps):
            p = p - 0.5 * size * g
            q = q + size * p
            g = torch.func.grad(energy)(q)
            p = p - 0.5 * size * g
        return q, p

    def hmc(q, size=0.1, steps=3):
        p = torch.randn_like(q)
        start = energy(q) + 0.5 * p.square().sum()
        q2, p2 = leapfrog(q, p, size, steps)
        end = energy(q2) + 0.5 * p2.square().sum()
        accept = torch.rand(()) < torch.exp(start - end)
        return torch.where(accept, q2, q).detach(), accept

    run, run_hmc = compiled(langevin), compiled(hmc)
    x = q = torch.randn(4, 2)
    out: list[Any] = []
    for steps in (2, 2, 3):
        x = run(x, steps, 0.05)
        q, accept = run_hmc(q, steps=steps)
        out += [x, q, accept]
    return out
