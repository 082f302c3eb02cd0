"""Repositories of images and of optimizers: generators, pools, style by hooks, steps by hand."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.optimizer import Optimizer

from tests.slow.batteries.idioms.common import Compiled, descend, idiom, mlp, state


@idiom
def stylegan_pieces(compiled: Compiled) -> list[Any]:
    class EqualLinear(nn.Module):
        def __init__(self, i, o, bias=0.0, lr_mul=1.0):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(o, i) / lr_mul)
            self.bias = nn.Parameter(torch.full((o,), bias))
            self.scale, self.lr_mul = lr_mul / math.sqrt(i), lr_mul

        def forward(self, x):
            return F.linear(x, self.weight * self.scale, self.bias * self.lr_mul)

    class ModConv(nn.Module):
        def __init__(self, i, o, k=3, demodulate=True, upsample=False):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(1, o, i, k, k))
            self.modulation = EqualLinear(4, i, bias=1.0)
            self.noise = nn.Parameter(torch.zeros(1) + 0.1)
            self.demodulate, self.upsample, self.k = demodulate, upsample, k

        def forward(self, x, style, noise=None):
            b, c, h, w = x.shape
            weight = self.weight * self.modulation(style).view(b, 1, c, 1, 1)
            if self.demodulate:
                weight = weight * torch.rsqrt(weight.pow(2).sum([2, 3, 4], keepdim=True) + 1e-8)
            o = weight.shape[1]
            if self.upsample:
                weight = weight.transpose(1, 2).reshape(b * c, o, self.k, self.k)
                y = F.conv_transpose2d(x.reshape(1, b * c, h, w), weight, stride=2, groups=b)
            else:
                weight = weight.view(b * o, c, self.k, self.k)
                y = F.conv2d(x.reshape(1, b * c, h, w), weight, padding=self.k // 2, groups=b)
            y = y.view(b, o, y.shape[-2], y.shape[-1])
            noise = torch.randn(b, 1, *y.shape[-2:]) if noise is None else noise
            return F.leaky_relu(y + self.noise * noise, 0.2) * math.sqrt(2)

    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.mapping = nn.Sequential(EqualLinear(4, 4, lr_mul=0.01), nn.LeakyReLU(0.2))
            self.const = nn.Parameter(torch.randn(1, 3, 4, 4))
            self.a, self.b = ModConv(3, 4), ModConv(4, 3, upsample=True)
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, zs, inject=None, truncation=1.0):
            zs = [z * torch.rsqrt(z.square().mean(1, keepdim=True) + 1e-8) for z in zs]
            ws = [self.mapping(z) for z in zs]
            if self.training:
                self.mean.copy_(ws[0].detach().mean(0).lerp(self.mean, 0.9))
            if truncation < 1:
                ws = [self.mean + truncation * (w - self.mean) for w in ws]
            if len(ws) > 1:
                at = inject if inject is not None else random.randint(1, 1)
                latent = torch.cat([ws[0][:, None].repeat(1, at, 1), ws[1][:, None]], 1)
            else:
                latent = ws[0][:, None].repeat(1, 2, 1)
            x = self.a(self.const.repeat(latent.shape[0], 1, 1, 1), latent[:, 0])
            return self.b(x, latent[:, 1]), latent

    generator = Generator()
    run = compiled(generator)
    optimizer = torch.optim.Adam(generator.parameters(), 1e-2, betas=(0.0, 0.99))
    mean_path, out = torch.zeros(()), []
    for step in range(3):
        zs = [torch.randn(2, 4) for _ in range(1 + step % 2)]
        images, latents = run(zs)
        noise = torch.randn_like(images) / math.sqrt(images.shape[2] * images.shape[3])
        (grad,) = torch.autograd.grad((images * noise).sum(), latents, retain_graph=True)
        lengths = grad.pow(2).sum(2).mean(1).sqrt()
        mean_path = mean_path + 0.1 * (lengths.mean() - mean_path)
        out += [descend(optimizer, F.softplus(-images.mean([1, 2, 3])).mean()), mean_path]
    generator.eval()
    with torch.no_grad():
        images, _ = run([torch.randn(1, 4)], truncation=0.7)
    return [*out, images, generator.mean]


@idiom
def cycle_gan_with_pool(compiled: Compiled) -> list[Any]:
    class ImagePool:
        def __init__(self, size):
            self.size, self.num, self.images = size, 0, []

        def query(self, images):
            found = []
            for image in images:
                image = torch.unsqueeze(image.data, 0)
                if self.num < self.size:
                    self.num += 1
                    self.images.append(image)
                    found.append(image)
                elif random.uniform(0, 1) > 0.5:
                    at = random.randint(0, self.size - 1)
                    kept = self.images[at].clone()
                    self.images[at] = image
                    found.append(kept)
                else:
                    found.append(image)
            return torch.cat(found, 0)

    def net(i, o):
        return nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(i, 4, 3),
            nn.InstanceNorm2d(4),
            nn.ReLU(True),
            nn.Conv2d(4, o, 3, padding=1),
            nn.Tanh(),
        )

    g_ab, g_ba, d = net(2, 2), net(2, 2), nn.Sequential(nn.Conv2d(2, 1, 4, 2, 1))
    pool = ImagePool(3)

    def set_requires_grad(nets, flag):
        for n in nets:
            for p in n.parameters():
                p.requires_grad = flag

    @compiled
    def generators(a, b):
        fake = g_ab(a)
        score = d(fake)
        gan = F.mse_loss(score, torch.tensor(1.0).expand_as(score))
        cycle = F.l1_loss(g_ba(fake), a) + F.l1_loss(g_ab(g_ba(b)), b)
        return gan + 10.0 * cycle + 5.0 * F.l1_loss(g_ab(b), b), fake

    @compiled
    def discriminator(real, fake):
        fake = pool.query(fake)
        return 0.5 * ((d(real) - 1).square().mean() + d(fake.detach()).square().mean())

    og = torch.optim.SGD([*g_ab.parameters(), *g_ba.parameters()], 0.01)
    od = torch.optim.SGD(d.parameters(), 0.01)
    out: list[Any] = []
    for _ in range(4):
        a, b = torch.randn(2, 2, 6, 6), torch.randn(2, 2, 6, 6)
        set_requires_grad([d], False)
        loss, fake = generators(a, b)
        out.append(descend(og, loss))
        set_requires_grad([d], True)
        out.append(descend(od, discriminator(b, fake)))
    return out + [len(pool.images), *pool.images] + state(g_ab, g_ba, d)


@idiom
def style_transfer_by_hooks(compiled: Compiled) -> list[Any]:
    vgg = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, padding=1),
        nn.ReLU(inplace=False),
    ).requires_grad_(False)

    class Features:
        def __init__(self, module, layers):
            self.found: dict[int, torch.Tensor] = {}
            self.hooks = [module[i].register_forward_hook(self.hook(i)) for i in layers]

        def hook(self, i):
            def keep(module, args, output):
                self.found[i] = output

            return keep

        def close(self):
            for h in self.hooks:
                h.remove()

    features = Features(vgg, (0, 3))
    run = compiled(vgg)

    def gram(f):
        b, c, h, w = f.shape
        f = f.view(b, c, h * w)
        return f @ f.transpose(1, 2) / (c * h * w)

    def total_variation(x):
        return (x[..., 1:] - x[..., :-1]).abs().mean() + (
            x[..., 1:, :] - x[..., :-1, :]
        ).abs().mean()

    tv, style_of = compiled(total_variation), compiled(gram)
    run(torch.rand(1, 3, 6, 6))
    target = {k: style_of(v).clone() for k, v in features.found.items()}
    image = torch.rand(1, 3, 6, 6, requires_grad=True)
    optimizer = torch.optim.LBFGS([image], max_iter=3, history_size=3)
    out: list[Any] = []

    def closure():
        optimizer.zero_grad()
        with torch.no_grad():
            image.clamp_(0, 1)
        run(image)
        loss = sum(F.mse_loss(style_of(features.found[k]), t) for k, t in target.items())
        loss = loss + 0.1 * tv(image)
        loss.backward()
        out.append(loss.detach())
        return loss

    for _ in range(2):
        optimizer.step(closure)
    features.close()
    features.found.clear()
    run(image)
    return [*out, image.detach(), len(features.found)]


@idiom
def muon_and_friends(compiled: Compiled) -> list[Any]:
    @compiled
    def newton_schulz(g, steps=3):
        a, b, c = (3.4445, -4.7750, 2.0315)
        x = g.double()
        if g.size(-2) > g.size(-1):
            x = x.mT
        x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
        for _ in range(steps):
            m = x @ x.mT
            x = a * x + (b * m + c * m @ m) @ x
        return (x.mT if g.size(-2) > g.size(-1) else x).to(g.dtype)

    class Muon(Optimizer):
        def __init__(self, params, lr=0.02, momentum=0.95, nesterov=True):
            super().__init__(params, {"lr": lr, "momentum": momentum, "nesterov": nesterov})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    buf = state.setdefault("momentum_buffer", torch.zeros_like(p.grad))
                    buf.lerp_(p.grad, 1 - group["momentum"])
                    g = p.grad.lerp_(buf, group["momentum"]) if group["nesterov"] else buf
                    scale = max(1, p.size(-2) / p.size(-1)) ** 0.5
                    p.add_(newton_schulz(g), alpha=-group["lr"] * scale)

    class Lookahead:
        def __init__(self, inner, k=2, alpha=0.5):
            self.inner, self.k, self.alpha, self.count = inner, k, alpha, 0
            self.slow = [[p.detach().clone() for p in g["params"]] for g in inner.param_groups]
            self.sync = compiled(self._sync)

        @torch.no_grad()
        def _sync(self, fast, slow):
            for f, s in zip(fast, slow):
                s += self.alpha * (f - s)
                f.copy_(s)

        def step(self):
            self.inner.step()
            self.count += 1
            if self.count % self.k == 0:
                for g, slow in zip(self.inner.param_groups, self.slow):
                    self.sync(g["params"], slow)

    @compiled
    @torch.no_grad()
    def lars(params, grads, momenta, lr, trust=0.02, decay=1e-4):
        for p, g, m in zip(params, grads, momenta):
            wn, gn = p.norm(), g.norm()
            g = g.add(p, alpha=decay) if p.ndim > 1 else g
            ratio = torch.where((wn > 0) & (gn > 0), trust * wn / (gn + decay * wn), 1.0)
            m.mul_(0.9).add_(g * ratio)
            p.sub_(m * lr)

    net, other = mlp(4, 6, 3, drop=0.0), mlp(4, 6, 3, drop=0.0)
    run = compiled(net)
    muon = Muon([p for p in net.parameters() if p.ndim == 2])
    rest = Lookahead(torch.optim.SGD([p for p in net.parameters() if p.ndim < 2], 0.1))
    momenta = [torch.zeros_like(p) for p in other.parameters()]
    out: list[Any] = []
    for step in range(4):
        x, y = torch.randn(5, 4), torch.randint(0, 3, (5,))
        loss = F.cross_entropy(run(x), y)
        net.zero_grad()
        loss.backward()
        muon.step()
        rest.step()
        params = list(other.parameters())
        grads = torch.autograd.grad(F.cross_entropy(other(x), y), params)
        lars(params, grads, momenta, 0.1 * 0.9**step)
        out.append(loss.detach())
    return out + state(net, other) + momenta
