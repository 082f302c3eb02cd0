"""Images, points and rays."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.slow.batteries.idioms.common import (
    Compiled,
    adapted,
    descend,
    fit,
    idiom,
    values_and_gradients,
)


@idiom
def unet(compiled: Compiled) -> list[Any]:
    class U(nn.Module):
        def __init__(self):
            super().__init__()
            self.d1, self.d2 = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
            self.u = nn.ConvTranspose2d(8, 4, 2, 2)
            self.o = nn.Conv2d(8, 1, 1)

        def forward(self, x):
            a = F.leaky_relu(self.d1(x), 0.2)
            b = F.elu(self.d2(F.max_pool2d(a, 2)))
            return self.o(
                torch.cat(
                    [
                        a,
                        self.u(F.dropout2d(b, 0.2, self.training))
                        + F.interpolate(b, scale_factor=2, mode="bilinear", align_corners=False)[
                            :, :4
                        ],
                    ],
                    1,
                )
            )

    model = U().to(memory_format=torch.channels_last)
    run = compiled(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2, amsgrad=True)
    out = []

    def dice(p, t):
        p = p.sigmoid()
        return 1 - (2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1)

    run_dice = compiled(dice)
    for n in (8, 8, 12):
        x = torch.randn(2, 2, n, n).contiguous(memory_format=torch.channels_last)
        truth = (torch.rand(2, 1, n, n) > 0.5).float()
        y = run(x)
        loss = run_dice(y, truth) + F.binary_cross_entropy_with_logits(
            y, truth, pos_weight=torch.tensor([2.0])
        )
        descend(optimizer, loss)
        out += [loss.detach(), torch.tensor(y.stride())]
    return out + adapted(model)


@idiom
def spatial_transformer(compiled: Compiled) -> list[Any]:
    class S(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3 * 64, 6)

        def forward(self, x):
            th = self.linear(x.flatten(1)).view(-1, 2, 3) * 0.1 + torch.eye(2, 3)
            return (
                F.grid_sample(
                    x,
                    F.affine_grid(th, x.shape, align_corners=False),
                    padding_mode="border",
                    align_corners=False,
                )
                .square()
                .mean()
            )

    return fit(S(), lambda: (torch.randn(2, 3, 8, 8),), compiled)


@idiom
def nerf(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(nn.Linear(3 + 3 * 2 * 4, 32), nn.ReLU(), nn.Linear(32, 4))

    class N(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = model

        def enc(self, x):
            return torch.cat(
                [x] + [f(x * 2.0**i) for i in range(4) for f in (torch.sin, torch.cos)], -1
            )

        def forward(self, o, d):
            t = torch.linspace(0, 1, 12).expand(len(o), 12)
            t = t + torch.rand_like(t) / 12
            p = o[:, None] + d[:, None] * t[..., None]
            y = self.m(self.enc(p))
            sg = F.softplus(y[..., 3])
            dl = torch.cat([t[:, 1:] - t[:, :-1], torch.full((len(o), 1), 1e10)], 1)
            a = 1 - torch.exp(-sg * dl)
            T = torch.cumprod(torch.cat([torch.ones(len(o), 1), 1 - a + 1e-10], 1), 1)[:, :-1]
            w = a * T
            rgb = (w[..., None] * y[..., :3].sigmoid()).sum(1)
            cdf = torch.cumsum(w / (w.sum(1, keepdim=True) + 1e-5), 1).detach()
            u = torch.rand(len(o), 5)
            i = torch.searchsorted(cdf, u, right=True).clamp(max=11)
            return rgb.square().mean() + t.gather(1, i).mean() * 0 + i.sum() * 0

    return fit(N(), lambda: (torch.randn(5, 3), torch.randn(5, 3)), compiled)


@idiom
def point_net(compiled: Compiled) -> list[Any]:
    class P(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Sequential(nn.Conv1d(6, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
            self.linear = nn.Linear(16, 3)

        def forward(self, x):
            B, N, _ = x.shape
            far = torch.zeros(B, dtype=torch.long)
            dist = torch.full((B, N), 1e10)
            ids = []
            for _ in range(4):
                ids.append(far)
                c = x[torch.arange(B), far][:, None]
                dist = torch.minimum(dist, ((x - c) ** 2).sum(-1))
                far = dist.argmax(-1)
            c = x[torch.arange(B)[:, None], torch.stack(ids, 1)]
            k = torch.cdist(c, x).topk(5, largest=False)[1]
            g = x[torch.arange(B)[:, None, None], k]
            e = torch.cat([g - c[:, :, None], g], -1)
            return F.cross_entropy(
                self.linear(
                    self.a(e.flatten(1, 2).transpose(1, 2)).unflatten(2, (4, 5)).amax(-1).mean(-1)
                ),
                torch.zeros(B, dtype=torch.long),
            )

    return fit(P(), lambda: (torch.randn(3, 20, 3),), compiled)


@idiom
def augmentation(compiled: Compiled) -> list[Any]:
    def aug(x, y):
        if torch.rand(()) < 0.5:
            x = x.flip(-1)
        i, j = torch.randint(0, 5, (2,)).tolist()
        x = F.pad(x, (2, 2, 2, 2), mode="reflect")[..., i : i + 8, j : j + 8]
        lam = torch.distributions.Beta(1.0, 1.0).sample()
        p = torch.randperm(len(x))
        return (
            lam * x + (1 - lam) * x[p],
            lam * F.one_hot(y, 3) + (1 - lam) * F.one_hot(y[p], 3),
            torch.where(torch.rand(len(x), 1, 1, 1) < 0.3, 0.0, x),
        )

    run = compiled(aug)
    return [t for _ in range(4) for t in run(torch.randn(4, 3, 8, 8), torch.arange(4) % 3)]


@idiom
def losses(compiled: Compiled) -> list[Any]:
    def f(x, y, t):
        p = torch.exp(-F.cross_entropy(x, t, reduction="none"))
        focal = ((1 - p) ** 2 * -p.log()).mean()
        d = torch.cdist(x, x)
        same = t[:, None] == t[None]
        hp = d.masked_fill(~same, -1e9).max(1)[0]
        hn = d.masked_fill(same, 1e9).min(1)[0]
        trip = F.relu(hp - hn + 0.3).mean()
        c = F.linear(F.normalize(x), F.normalize(y))
        arc = F.cross_entropy(
            torch.where(
                F.one_hot(t, len(y)).bool(),
                torch.cos(torch.acos(c.clamp(-1 + 1e-7, 1 - 1e-7)) + 0.5),
                c,
            )
            * 10,
            t,
        )
        z = F.normalize(torch.cat([x, y[:, : x.shape[1]]]))
        sim = z @ z.T / 0.5
        sim = sim - torch.eye(len(z)) * 1e9
        nce = -F.log_softmax(sim, 1).diagonal(1).mean()
        kl = F.kl_div(x.log_softmax(1), x.flip(0).softmax(1), reduction="batchmean")
        return (
            focal,
            trip,
            arc,
            nce,
            kl,
            F.multi_margin_loss(x, t),
            F.soft_margin_loss(x[:, 0], t.float() * 2 - 1),
            F.poisson_nll_loss(x, x.abs()),
            F.gaussian_nll_loss(x, x * 0, x.abs() + 1),
            F.triplet_margin_loss(x, x.roll(1, 0), x.roll(2, 0)),
            F.hinge_embedding_loss(x[:, 0], t * 2 - 1),
            F.cosine_embedding_loss(x, x.roll(1, 0), t * 2 - 1),
        )

    return values_and_gradients(
        compiled, f, lambda: (torch.randn(6, 5), torch.randn(5, 5), torch.arange(6) % 2)
    )


@idiom
def ssim(compiled: Compiled) -> list[Any]:
    g = torch.exp(-((torch.arange(5.0) - 2) ** 2) / 2)
    w = (g[:, None] * g / g.sum() ** 2).expand(3, 1, 5, 5)

    def f(a, b):
        def mu(x):
            return F.conv2d(x, w, groups=3, padding=2)

        ma, mb = mu(a), mu(b)
        va, vb, c = mu(a * a) - ma**2, mu(b * b) - mb**2, mu(a * b) - ma * mb
        return (
            (2 * ma * mb + 1e-4) * (2 * c + 9e-4) / ((ma**2 + mb**2 + 1e-4) * (va + vb + 9e-4))
        ).mean()

    return values_and_gradients(
        compiled, f, lambda: (torch.rand(2, 3, 9, 9), torch.rand(2, 3, 9, 9))
    )


@idiom
def nms_loop(compiled: Compiled) -> list[Any]:
    def f(b, s):
        o = s.argsort(descending=True)
        keep = []
        while len(o):
            i = o[0]
            keep.append(i)
            if len(o) == 1:
                break
            r = b[o[1:]]
            lt = torch.max(b[i, :2], r[:, :2])
            rb = torch.min(b[i, 2:], r[:, 2:])
            wh = (rb - lt).clamp(min=0)
            it = wh[:, 0] * wh[:, 1]

            def ar(x):
                return (x[..., 2] - x[..., 0]) * (x[..., 3] - x[..., 1])

            o = o[1:][it / (ar(b[i]) + ar(r) - it) <= 0.5]
        return torch.stack(keep)

    x = torch.rand(8, 2)
    return [compiled(f)(torch.cat([x, x + 0.5], 1), torch.rand(8))]


@idiom
def cellular(compiled: Compiled) -> list[Any]:
    k = torch.ones(1, 1, 3, 3)
    k[..., 1, 1] = 0

    def life(x):
        n = F.conv2d(F.pad(x[None, None].float(), (1, 1, 1, 1), mode="circular"), k)[0, 0]
        return (n == 3) | (x & (n == 2))

    run = compiled(life)
    x = torch.rand(9, 9) > 0.6
    for _ in range(4):
        x = run(x)
    return [x]


@idiom
def mandelbrot(compiled: Compiled) -> list[Any]:
    def f(c, n):
        z = torch.zeros_like(c)
        k = torch.zeros(c.shape, dtype=torch.int)
        for _ in range(n):
            m = z.abs() < 2
            z = torch.where(m, z * z + c, z)
            k += m
        return k

    return [
        compiled(f)(
            torch.complex(
                *torch.meshgrid(torch.linspace(-2, 1, 12), torch.linspace(-1, 1, 10), indexing="ij")
            ),
            8,
        )
    ]
