"""Adversaries, autoencoders, flows, diffusion: models that generate."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from tests.slow.batteries.idioms.common import Compiled, adapted, descend, fit, idiom, mlp, state


@idiom
def gan(compiled: Compiled) -> list[Any]:
    generator, critic = mlp(4, 16, 8), mlp(8, 16, 1)
    optimizer_g, optimizer_d = (
        torch.optim.Adam(generator.parameters(), 1e-2),
        torch.optim.Adam(critic.parameters(), 1e-2),
    )
    generate, judge = compiled(generator), compiled(critic)
    out = []
    for _ in range(4):
        real = torch.randn(6, 8)
        fake = generate(torch.randn(6, 4))
        loss_d = F.binary_cross_entropy_with_logits(
            judge(real), torch.ones(6, 1)
        ) + F.binary_cross_entropy_with_logits(judge(fake.detach()), torch.zeros(6, 1))
        descend(optimizer_d, loss_d)
        loss_g = F.binary_cross_entropy_with_logits(judge(fake), torch.ones(6, 1))
        descend(optimizer_g, loss_g)
        out += [loss_d.detach(), loss_g.detach()]
    return out + adapted(generator, critic)


@idiom
def gan_in_one_function(compiled: Compiled) -> list[Any]:
    generator, critic = mlp(4, 16, 8), mlp(8, 16, 1)
    optimizer_g, optimizer_d = (
        torch.optim.SGD(generator.parameters(), 1e-2),
        torch.optim.SGD(critic.parameters(), 1e-2),
    )

    def losses(real, z):
        fake = generator(z)
        return F.softplus(critic(fake.detach())).mean() + F.softplus(
            -critic(real)
        ).mean(), F.softplus(-critic(fake)).mean()

    step = compiled(losses)
    out = []
    for _ in range(4):
        loss_d, loss_g = step(torch.randn(6, 8), torch.randn(6, 4))
        optimizer_d.zero_grad()
        optimizer_g.zero_grad()
        loss_g.backward(retain_graph=True)
        descend(optimizer_d, loss_d)
        optimizer_g.step()
        out += [loss_d.detach(), loss_g.detach()]
    return out + state(generator, critic)


@idiom
def wgan_gp(compiled: Compiled) -> list[Any]:
    critic = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.RMSprop(critic.parameters(), 1e-3)
    judge = compiled(critic)
    out = []
    for _ in range(3):
        a, b = torch.randn(5, 8), torch.randn(5, 8)
        mixed = torch.rand(5, 1)
        x = (mixed * a + (1 - mixed) * b).requires_grad_()
        y = judge(x)
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        loss = judge(a).mean() - judge(b).mean() + 10 * ((gradient.norm(2, dim=1) - 1) ** 2).mean()
        descend(optimizer, loss)
        out += [loss.detach(), gradient.detach()]
    return out + adapted(critic)


@idiom(rounded="a result and its gradient used together (docs/ahead-of-time.md)", bound=1e-6)
def gradient_penalty_r1(compiled: Compiled) -> list[Any]:
    critic = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(critic.parameters(), 0.1)

    def loss(x):
        x = x.detach().requires_grad_()
        y = critic(x)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return F.softplus(-y).mean() + 5 * g.square().sum(1).mean()

    run = compiled(loss)
    out = []
    for _ in range(3):
        value = run(torch.randn(5, 4))
        out.append(descend(optimizer, value))
    return out + state(critic)


@idiom
def vae(compiled: Compiled) -> list[Any]:
    encoder, decoder = nn.Linear(8, 6), nn.Linear(3, 8)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 1e-2)

    def loss(x):
        mu, lv = encoder(x).chunk(2, -1)
        q = Normal(mu, (lv / 2).exp())
        z = q.rsample()
        return (
            F.mse_loss(decoder(z), x, reduction="sum")
            + kl_divergence(q, Normal(torch.zeros_like(mu), torch.ones_like(mu))).sum()
        )

    run = compiled(loss)
    out = []
    for _ in range(3):
        value = run(torch.randn(5, 8))
        out.append(descend(optimizer, value))
    return out + adapted(encoder, decoder)


@idiom
def vq_vae(compiled: Compiled) -> list[Any]:
    class VQ(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.dec = nn.Linear(8, 4), nn.Linear(4, 8)
            self.cb = nn.Embedding(6, 4)
            self.register_buffer("count", torch.zeros(6))

        def forward(self, x):
            z = self.enc(x)
            d = torch.cdist(z, self.cb.weight)
            i = d.argmin(-1)
            q = self.cb(i)
            with torch.no_grad():
                self.count.mul_(0.9).add_(F.one_hot(i, 6).float().sum(0), alpha=0.1)
            st = z + (q - z).detach()
            return F.mse_loss(self.dec(st), x) + F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(
                z, q.detach()
            ), i

    model = VQ()
    run = compiled(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    out = []
    for _ in range(3):
        loss, i = run(torch.randn(7, 8))
        descend(optimizer, loss)
        out += [loss.detach(), i]
    return out + adapted(model)


@idiom
def realnvp(compiled: Compiled) -> list[Any]:
    nets = nn.ModuleList(
        [nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8)) for _ in range(3)]
    )
    base = MultivariateNormal(torch.zeros(8), torch.eye(8))
    optimizer = torch.optim.Adam(nets.parameters(), 1e-2)

    def nll(x):
        ld = 0
        for n in nets:
            a, b = x.chunk(2, 1)
            s, t = n(a).chunk(2, 1)
            s = torch.tanh(s)
            x = torch.cat([b * s.exp() + t, a], 1)
            ld = ld + s.sum(1)
        return -(base.log_prob(x) + ld).mean()

    run = compiled(nll)
    out = []
    for _ in range(3):
        loss = run(torch.randn(5, 8))
        out.append(descend(optimizer, loss))
    return out + adapted(nets)


@idiom
def diffusion(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(nn.Linear(9, 32), nn.SiLU(), nn.Linear(32, 8))
    betas = torch.linspace(1e-4, 0.02, 50)
    kept = torch.cumprod(1 - betas, 0)

    def loss(x):
        t = torch.randint(0, 50, (len(x),))
        e = torch.randn_like(x)
        a = kept[t][:, None]
        return F.mse_loss(
            model(torch.cat([a.sqrt() * x + (1 - a).sqrt() * e, t[:, None] / 50], 1)), e
        )

    def sample(x, t):
        e = model(torch.cat([x, torch.full((len(x), 1), t / 50)], 1))
        x = (x - betas[t] / (1 - kept[t]).sqrt() * e) / (1 - betas[t]).sqrt()
        return x + betas[t].sqrt() * torch.randn_like(x) if t > 0 else x

    run, run_sample = compiled(loss), compiled(sample)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    out = []
    for _ in range(3):
        value = run(torch.randn(6, 8))
        out.append(descend(optimizer, value))
    x = torch.randn(3, 8)
    with torch.no_grad():
        for t in range(6, -1, -1):
            x = run_sample(x, t)
    return out + [x] + adapted(model)


@idiom
def boltzmann(compiled: Compiled) -> list[Any]:
    weight = torch.randn(6, 4) * 0.1
    visible, hidden = torch.zeros(6), torch.zeros(4)

    def cd(v):
        h = torch.bernoulli(torch.sigmoid(v @ weight + hidden))
        v1 = torch.bernoulli(torch.sigmoid(h @ weight.T + visible))
        p = torch.sigmoid(v1 @ weight + hidden)
        weight.add_((v.T @ h - v1.T @ p) / len(v), alpha=0.1)
        visible.add_((v - v1).mean(0) * 0.1)
        hidden.add_((h - p).mean(0) * 0.1)
        return v1

    run = compiled(cd)
    with torch.no_grad():
        out = [run((torch.rand(7, 6) > 0.5).float()) for _ in range(3)]
    return out + [weight, visible, hidden]


@idiom
def gumbel_and_st(compiled: Compiled) -> list[Any]:
    class G(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 6)
            self.embedding = nn.Embedding(6, 3)

        def forward(self, x):
            g = F.gumbel_softmax(self.linear(x), 0.5, hard=True)
            return (g @ self.embedding.weight - 1).square().mean() + F.gumbel_softmax(
                self.linear(x)
            ).square().mean()

    return fit(G(), lambda: (torch.randn(5, 4),), compiled)


@idiom
def masked_autoencoder(compiled: Compiled) -> list[Any]:
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.d = nn.Linear(6, 8), nn.Linear(8, 6)
            self.t = nn.Parameter(torch.zeros(8))

        def forward(self, x):
            N, L, D = x.shape
            k = L // 2
            idx = torch.rand(N, L).argsort(1)
            res = idx.argsort(1)
            h = self.e(x.gather(1, idx[:, :k, None].expand(-1, -1, D)))
            h = torch.cat([h, self.t.expand(N, L - k, -1)], 1).gather(
                1, res[..., None].expand(-1, -1, 8)
            )
            m = torch.ones(N, L)
            m[:, :k] = 0
            m = m.gather(1, res)
            return ((self.d(h) - x).square().mean(-1) * m).sum() / m.sum()

    model = M()
    run = compiled(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, betas=(0.9, 0.95))
    out = []
    for _ in range(3):
        loss = run(torch.randn(2, 6, 6))
        out.append(descend(optimizer, loss))
    return out + adapted(model)
