"""What is kept and written: quantised weights, trees, tables, views, images that are augmented."""

from __future__ import annotations

import math
import random
from collections import deque
from typing import Any

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.slow.batteries.idioms.common import (
    Compiled,
    descend,
    fit,
    idiom,
    mlp,
    state,
)


@idiom
def recommenders(compiled: Compiled) -> list[Any]:
    class DeepFm(nn.Module):
        def __init__(self, fields=(5, 7, 3), d=4):
            super().__init__()
            self.register_buffer("offsets", torch.tensor([0, *np.cumsum(fields)[:-1]]))
            self.embed = nn.Embedding(sum(fields), d)
            self.linear = nn.EmbeddingBag(sum(fields), 1, mode="sum")
            self.cross = nn.ParameterList(torch.randn(3 * d) / 3 for _ in range(2))
            self.deep = mlp(3 * d, 8, 1, drop=0.0)

        def forward(self, x):
            x = x + self.offsets
            e = self.embed(x)
            fm = 0.5 * (e.sum(1).square() - e.square().sum(1)).sum(1, keepdim=True)
            flat = e.flatten(1)
            crossed = flat
            for w in self.cross:
                crossed = flat * (crossed @ w)[:, None] + crossed
            deep = self.deep(flat) + crossed.mean(1, keepdim=True)
            return torch.sigmoid(self.linear(x) + fm + deep).squeeze(1)

    class Sasrec(nn.Module):
        def __init__(self, items=9, d=6):
            super().__init__()
            self.items = nn.Embedding(items, d, padding_idx=0, max_norm=None)
            self.attend = nn.MultiheadAttention(d, 2, batch_first=True)
            self.norm = nn.LayerNorm(d)

        def forward(self, seq, pos, neg):
            x = self.items(seq) * self.items.embedding_dim**0.5
            pad = seq == 0
            x = x.masked_fill(pad[..., None], 0.0)
            causal = ~torch.tril(torch.ones(seq.shape[1], seq.shape[1], dtype=torch.bool))
            h, _ = self.attend(self.norm(x), x, x, attn_mask=causal, need_weights=False)
            h = x + h
            p, n = (h * self.items(pos)).sum(-1), (h * self.items(neg)).sum(-1)
            keep = pos != 0
            return -(F.logsigmoid(p[keep]).sum() + F.logsigmoid(-n[keep]).sum()) / keep.sum()

    user, item = nn.Linear(5, 4), nn.Linear(6, 4)

    def towers(u, i, logq):
        a, b = F.normalize(user(u), dim=-1), F.normalize(item(i), dim=-1)
        logits = a @ b.T / 0.1 - logq
        bpr = -F.logsigmoid(logits.diagonal()[:, None] - logits).fill_diagonal_(0).mean()
        return F.cross_entropy(logits, torch.arange(len(u))) + bpr

    deep, sas = DeepFm(), Sasrec()
    out = fit(
        deep,
        lambda: (torch.stack([torch.randint(0, n, (6,)) for n in (5, 7, 3)], 1),),
        compiled,
        loss=lambda p: F.binary_cross_entropy(p, torch.ones_like(p)),
    )
    run, run_towers = compiled(sas), compiled(towers)
    optimizer = torch.optim.SGD([*sas.parameters(), *user.parameters(), *item.parameters()], 0.1)
    for n in (4, 3, 4):
        seq = torch.randint(1, 9, (n, 5))
        seq[:, 0] = 0
        loss = run(seq, seq.roll(-1, 1), torch.randint(1, 9, (n, 5)))
        loss = loss + run_towers(torch.randn(n, 5), torch.randn(n, 6), torch.rand(n))
        out.append(descend(optimizer, loss))
    return out + state(sas, user, item)


@idiom
def quantised_weights(compiled: Compiled) -> list[Any]:
    nf4 = torch.tensor(
        [-1.0, -0.696, -0.525, -0.395, -0.284, -0.185, -0.091, 0.0]
        + [0.08, 0.161, 0.246, 0.338, 0.441, 0.563, 0.723, 1.0]
    )

    def pack(w, block=8):
        flat = w.reshape(-1, block)
        scale = flat.abs().amax(1, keepdim=True)
        at = (flat / scale)[..., None].sub(nf4).abs().argmin(-1).to(torch.uint8)
        return at[:, ::2] << 4 | at[:, 1::2], scale

    def unpack(packed, scale, shape):
        high, low = packed >> 4, packed & 0xF
        return (nf4[torch.stack([high, low], -1).flatten(1).int()] * scale).view(shape)

    class Nf4Linear(nn.Module):
        def __init__(self, linear):
            super().__init__()
            packed, scale = compiled(pack)(linear.weight.detach())
            self.register_buffer("packed", packed)
            self.register_buffer("scale", scale)
            self.shape, self.bias = linear.weight.shape, linear.bias

        def forward(self, x):
            return F.linear(x, unpack(self.packed, self.scale, self.shape), self.bias)

    class Bit(nn.Linear):
        def forward(self, x):
            q = 127.0 / x.abs().max(dim=-1, keepdim=True).values.clamp(min=1e-5)
            xq = x + ((x * q).round().clamp(-128, 127) / q - x).detach()
            s = 1.0 / self.weight.abs().mean().clamp(min=1e-5)
            w = self.weight
            wq = w + ((w * s).round().clamp(-1, 1) / s - w).detach()
            return F.linear(F.layer_norm(xq, xq.shape[-1:]), wq, self.bias)

    class Int8Cache:
        def __init__(self):
            self.values: list[tuple[torch.Tensor, torch.Tensor]] = []

        def update(self, k):
            scale = k.abs().amax(-1, keepdim=True) / 127
            self.values.append(((k / scale).round().to(torch.int8), scale))
            return torch.cat([q.to(k.dtype) * s for q, s in self.values], 1)

    def int8_product(x, w):
        sx, sw = x.abs().amax(1, keepdim=True) / 127, w.abs().amax(1, keepdim=True) / 127
        qx, qw = (x / sx).round().to(torch.int8), (w / sw).round().to(torch.int8)
        return torch._int_mm(qx, qw.t()).float() * sx * sw.t(), qx, qw.sum(1, dtype=torch.int32)

    class Observed(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("low", torch.tensor(float("inf")))
            self.register_buffer("high", torch.tensor(float("-inf")))
            self.w = nn.Linear(8, 4)

        def forward(self, x):
            if self.training:
                self.low.copy_(torch.minimum(self.low, x.detach().min()))
                self.high.copy_(torch.maximum(self.high, x.detach().max()))
            scale = (self.high - self.low) / 255
            zero = (-self.low / scale).round().clamp(0, 255).to(torch.int32)
            x = torch.fake_quantize_per_tensor_affine(x, scale, zero, 0, 255)
            s = self.w.weight.detach().abs().amax(1) / 127
            zeros = torch.zeros(4, dtype=torch.int32)
            w = torch.fake_quantize_per_channel_affine(self.w.weight, s, zeros, 0, -128, 127)
            return F.linear(x, w, self.w.bias)

    packed, bit, observed = Nf4Linear(nn.Linear(8, 4)), Bit(8, 4), Observed()
    runs = [compiled(m) for m in (packed, bit, observed)]
    out: list[Any] = [packed.packed, packed.scale]
    for n in (3, 5, 3):
        for run in runs:
            x = torch.randn(n, 8, requires_grad=True)
            y = run(x)
            y.square().sum().backward()
            out += [y.detach(), x.grad]
    cache, product = Int8Cache(), compiled(int8_product)
    update = compiled(cache.update)
    out += [update(torch.randn(1, 2, 4)) for _ in range(3)]
    for n in (20, 24):
        out += product(torch.randn(n, 16), torch.randn(8, 16))
    return out + [p.grad for m in (packed, bit, observed) for p in m.parameters()]


@idiom
def views_and_writes(compiled: Compiled) -> list[Any]:
    def life(grid, steps):
        for _ in range(steps):
            padded = F.pad(grid[None, None].float(), (1, 1, 1, 1), mode="circular")[0, 0]
            around = padded.unfold(0, 3, 1).unfold(1, 3, 1).sum((-1, -2)) - grid
            grid.copy_((around == 3) | (grid.bool() & (around == 2)))
        return grid.sum()

    def shuffle(x, order):
        x[order] = x[order.flip(0)].clone()
        x.t()[0].mul_(2)
        top, rest = x.split([1, x.shape[0] - 1])
        top += rest.sum(0)
        x.diagonal()[:] = -1
        x.view(-1)[::3].neg_()
        x.masked_fill_(x > 2, 2.0)
        y = x[1:, ::2]
        y[y < 0] = y[y < 0].abs() * 0.5
        x[..., -1:].copy_(x[..., :1].exp())
        x.index_put_((order[:2], order[:2]), torch.tensor(0.25), accumulate=True)
        return y, x.sum(), x.stride()

    def ring(buffer, x, at):
        n = x.shape[0]
        where = (at + torch.arange(n)) % buffer.shape[0]
        buffer[where] = x
        head = buffer.narrow(0, 0, 2)
        head.lerp_(torch.zeros_like(head), 0.5)
        return buffer.roll(-at, 0)[:n], at + n

    def outs(x, y):
        torch.add(x, 1, out=y)
        torch.sort(
            x, dim=0, stable=True, out=(y[:0].new_empty(0), torch.empty(0, dtype=torch.long))
        )
        z = torch.empty(0)
        torch.cumsum(x, 0, out=z)
        w = y.as_strided((2, 2), (1, 1), 1)
        return z * 2, w + 0, y.resize_(x.numel() - 1).shape, x.swapaxes_(0, -1).shape

    def leaky(w, x):
        y = (x @ w).neg_()
        y[0] *= 2
        a, b = y.unbind(1)[:2]
        z = torch.zeros(2, *a.shape)
        z[0], z[1] = a, b * a
        return z.cumsum_(0) if z.requires_grad else z

    run = [compiled(f) for f in (life, shuffle, ring, outs, leaky)]
    out: list[Any] = []
    buffer, at = torch.zeros(5, 2), 0
    w = torch.randn(3, 3, requires_grad=True)
    for n in (4, 5, 4):
        grid = (torch.rand(n, n) > 0.5).int()
        out += [run[0](grid, 2), grid]
        x = torch.randn(n, n)
        y, total, strides = run[1](x, torch.randperm(n))
        out += [x, y, total, strides]
        found, at = run[2](buffer, torch.randn(n - 1, 2), at)
        out += [found, buffer.clone(), at]
        y = torch.zeros(n)
        out += [*run[3](torch.randn(n), y), y]
        z = run[4](w, torch.randn(n, 3))
        z.square().sum().backward()
        out.append(z.detach())
    return [*out, w.grad]


@idiom
def augmentations_by_policy(compiled: Compiled) -> list[Any]:
    def blend(a, b, f):
        return (f * a + (1 - f) * b).clamp(0, 1)

    def grey(x):
        return (x * x.new_tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(-3, keepdim=True)

    def blur(x, sigma):
        at = torch.arange(-1.0, 2)
        k = torch.exp(-(at**2) / (2 * sigma**2))
        k = (k[:, None] * k[None]) / (k.sum() ** 2)
        pad = F.pad(x, (1, 1, 1, 1), mode="reflect")
        return F.conv2d(pad, k.expand(3, 1, 3, 3), groups=3)

    def posterize(x, bits):
        shift = 8 - bits
        return ((x * 255).to(torch.uint8) >> shift << shift).float() / 255

    def equalize(x):
        planes = []
        for plane in (x * 255).long().unbind(1):
            hist = torch.bincount(plane.flatten(), minlength=256)
            cdf = hist.cumsum(0)
            low = cdf[cdf > 0][0]
            table = ((cdf - low) * 255 // (cdf[-1] - low).clamp(min=1)).clamp(0, 255)
            planes.append(table[plane])
        return torch.stack(planes, 1).float() / 255

    def erase(x, size):
        h, w = x.shape[-2:]
        top, left = random.randrange(h - size + 1), random.randrange(w - size + 1)
        x = x.clone()
        x[..., top : top + size, left : left + size] = torch.rand(3, 1, 1)
        return x

    def rotate(x, degrees):
        a = math.radians(degrees)
        theta = torch.tensor([[math.cos(a), -math.sin(a), 0.0], [math.sin(a), math.cos(a), 0.0]])
        grid = F.affine_grid(theta.expand(len(x), 2, 3), list(x.shape), align_corners=False)
        return F.grid_sample(x, grid, mode="bilinear", align_corners=False)

    policy = {
        "contrast": lambda x: blend(x, grey(x).mean((-1, -2), keepdim=True), 1.4),
        "colour": lambda x: blend(x, grey(x), 0.5),
        "solarize": lambda x: torch.where(x > 0.5, 1 - x, x),
        "flip": lambda x: x.flip(-1),
        "blur": lambda x: blur(x, 0.8),
        "posterize": lambda x: posterize(x, 3),
        "equalize": equalize,
        "erase": lambda x: erase(x, 2),
        "rotate": lambda x: rotate(x, 30),
    }

    def cutmix(x, y, alpha=1.0):
        lam = float(np.float64(random.betavariate(alpha, alpha)))
        h, w = x.shape[-2:]
        cut = math.sqrt(1 - lam)
        ch, cw = int(h * cut), int(w * cut)
        cy, cx = random.randint(0, h - 1), random.randint(0, w - 1)
        y0, y1 = max(cy - ch // 2, 0), min(cy + ch // 2, h)
        x0, x1 = max(cx - cw // 2, 0), min(cx + cw // 2, w)
        x = x.clone()
        x[..., y0:y1, x0:x1] = x.flip(0)[..., y0:y1, x0:x1]
        lam = 1 - (y1 - y0) * (x1 - x0) / (h * w)
        one = F.one_hot(y, 3).float()
        return x, lam * one + (1 - lam) * one.flip(0)

    apply = compiled(lambda x, name: policy[name](x))
    mix = compiled(cutmix)
    out: list[Any] = []
    x = torch.rand(2, 3, 6, 6)
    for name in policy:
        out.append(apply(x, name))
    for _ in range(3):
        for name in random.sample(["flip", "erase", "colour", "contrast"], 2):
            x = apply(x, name)
        out += mix(x, torch.randint(0, 3, (2,)))
    return out


@idiom
def replay_and_distributional(compiled: Compiled) -> list[Any]:
    class SumTree:
        def __init__(self, n):
            self.n, self.tree = n, torch.zeros(2 * n)

        def set(self, i, value):
            i = i + self.n
            self.tree[i] = value
            while i > 1:
                i //= 2
                self.tree[i] = self.tree[2 * i] + self.tree[2 * i + 1]

        def find(self, mass):
            at = torch.ones_like(mass, dtype=torch.long)
            for _ in range(int(math.log2(self.n))):
                left = self.tree[2 * at]
                right = mass > left
                mass = torch.where(right, mass - left, mass)
                at = 2 * at + right.long()
            return at - self.n

    class C51(nn.Module):
        def __init__(self, actions=2, atoms=7):
            super().__init__()
            self.net = mlp(3, 8, actions * atoms, drop=0.0)
            self.register_buffer("z", torch.linspace(-2, 2, atoms))
            self.actions, self.atoms = actions, atoms

        def forward(self, x):
            return self.net(x).view(-1, self.actions, self.atoms).log_softmax(-1)

        def project(self, rewards, dones, probs, gamma=0.9):
            dz = self.z[1] - self.z[0]
            tz = (rewards[:, None] + gamma * (1 - dones[:, None]) * self.z).clamp(-2, 2)
            b = (tz - self.z[0]) / dz
            low, up = b.floor().long(), b.ceil().long()
            low[(up > 0) & (low == up)] -= 1
            up[(low < self.atoms - 1) & (low == up)] += 1
            m = torch.zeros_like(probs)
            offset = torch.arange(0, m.numel(), self.atoms)[:, None]
            m.view(-1).index_add_(0, (low + offset).view(-1), (probs * (up.float() - b)).view(-1))
            m.view(-1).index_add_(0, (up + offset).view(-1), (probs * (b - low.float())).view(-1))
            return m

    def vtrace(logp, old, rewards, values, last, gamma=0.9):
        ratio = (logp - old).exp().detach()
        rho, c = ratio.clamp(max=1.0), ratio.clamp(max=1.0)
        nxt = torch.cat([values[1:], last[None]])
        delta = rho * (rewards + gamma * nxt - values)
        acc, out = torch.zeros_like(last), deque()
        for i in reversed(range(len(rewards))):
            acc = delta[i] + gamma * c[i] * acc
            out.appendleft(acc)
        vs = torch.stack(list(out)) + values
        after = torch.cat([vs[1:], last[None]])
        return vs.detach(), (rho * (rewards + gamma * after - values)).detach()

    tree, model = SumTree(8), C51()
    put, find = compiled(tree.set), compiled(tree.find)
    online, project, trace = compiled(model), compiled(model.project), compiled(vtrace)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out: list[Any] = []
    for i in range(8):
        put(i, 0.5 + i % 3)
    for n in (4, 4, 3):
        at = find(torch.rand(n) * tree.tree[1])
        x, a = torch.randn(n, 3), torch.randint(0, 2, (n,))
        with torch.no_grad():
            p = online(torch.randn(n, 3)).exp()
            best = (p * model.z).sum(-1).argmax(1)
            target = project(torch.randn(n), torch.randint(0, 2, (n,)).float(), p[range(n), best])
        kl = -(target * online(x)[torch.arange(n), a]).sum(-1)
        out += [at, target, descend(optimizer, kl.mean())]
        for i, v in zip(at.tolist(), kl.detach().tolist()):
            put(i, abs(round(v, 2)))
        out += trace(*(torch.randn(n, 2) for _ in range(4)), torch.randn(2))
    return [*out, tree.tree, *state(model)]
