"""Numerical programs: arrays, transformations of functions, densities, spectra, splines."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.distributions as D
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap

from tests.slow.batteries.idioms.common import (
    Compiled,
    fit,
    idiom,
    mlp,
    values_and_gradients,
)


@idiom
def arrays_beside_tensors(compiled: Compiled) -> list[Any]:
    def schedule(x, n):
        betas = np.linspace(1e-4, 0.02, n, dtype=np.float64)
        bars = np.cumprod(1.0 - betas)
        table = torch.from_numpy(np.sqrt(bars)).float()
        posterior = betas[1:] * (1.0 - bars[:-1]) / (1.0 - bars[1:])
        return x * table[-1] + float(posterior.mean()) + np.float32(0.5)

    def positions(d, n):
        angle = np.arange(n)[:, None] / np.power(10000, 2 * (np.arange(d)[None] // 2) / d)
        angle[:, 0::2], angle[:, 1::2] = np.sin(angle[:, 0::2]), np.cos(angle[:, 1::2])
        return torch.tensor(angle, dtype=torch.float32)

    def mixed(a, x):
        b = np.where(a > 0, a, a**2).clip(0, 2).reshape(-1, 2)
        c = np.stack([b.mean(1), b.std(1)], axis=-1) @ np.eye(2)
        order = np.argsort(a, kind="stable")[::-1]
        pad = np.pad(a, (1, 2), constant_values=1)
        u, at = np.unique(np.floor(a), return_inverse=True)
        y = x + torch.as_tensor(c[: x.shape[0]], dtype=x.dtype)
        return y, a[order], pad, u, at, int(np.prod(b.shape)), np.einsum("ij,kj->ik", b, b)

    def scalars(x, s):
        y = x * s + np.pi
        return y * np.int64(3) - np.sqrt(2.0), isinstance(s, np.floating), float(s) * 2

    run = [compiled(f) for f in (schedule, positions, mixed, scalars)]
    out: list[Any] = []
    for n in (4, 6, 4):
        out += [run[0](torch.ones(2), n), run[1](4, n)]
        for value in run[2](np.random.RandomState(n).randn(n), torch.ones(2, 2)):
            out.append(torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value)
        out += run[3](torch.ones(2), np.float32(n / 3))
    return out


@idiom
def transformations_composed(compiled: Compiled) -> list[Any]:
    net = mlp(3, 6, 2, drop=0.0)
    params = {k: v.detach() for k, v in net.named_parameters()}

    def apply(p, x):
        return functional_call(net, p, (x,))

    def tangents(p, x1, x2):
        jac = vmap(jacrev(apply), (None, 0))
        j1, j2 = jac(p, x1), jac(p, x2)
        return sum(
            torch.einsum("naf,mbf->nmab", a.flatten(2), b.flatten(2))
            for a, b in zip(j1.values(), j2.values())
        )

    def clipped(p, x, y, bound=1.0):
        def loss(p, x, y):
            return F.cross_entropy(apply(p, x[None]), y[None])

        grads, losses = vmap(torch.func.grad_and_value(loss), (None, 0, 0))(p, x, y)
        norm = sum(g.flatten(1).square().sum(1) for g in grads.values()).sqrt()
        scale = (bound / (norm + 1e-6)).clamp(max=1.0)
        noise = {k: torch.randn_like(p[k]) * 0.1 for k in p}
        return {
            k: (g * scale.view(-1, *[1] * (g.dim() - 1))).mean(0) + noise[k]
            for k, g in grads.items()
        }, losses

    def hvp(x, v):
        f = lambda x: apply(params, x).square().sum() + (x**3).sum()  # noqa: E731
        return jvp(grad(f), (x,), (v,))[1], vjp(grad(f), x)[1](v)[0], hessian(f)(x) @ v

    def laplacian(x):
        u = lambda x: apply(params, x).tanh().sum()  # noqa: E731
        return vmap(lambda x: jacfwd(grad(u))(x).diagonal().sum())(x)

    def batched(xs, w):
        a = vmap(vmap(torch.dot, (None, 0)), (0, None))(xs, w)
        b = vmap(lambda x, i: x.index_select(0, i).sum(), in_dims=(0, None), out_dims=0)(
            xs, torch.tensor([0, 2])
        )
        c = vmap(lambda x: x + torch.rand(2).sum(), randomness="different")(xs)
        d = vmap(lambda x: torch.where(x > 0, x, x.exp()).sort().values, chunk_size=2)(xs)
        e, push = linearize(lambda x: x.sin() * x, xs)
        return a, b, c, d, e, push(torch.ones_like(xs))

    run = [compiled(f) for f in (tangents, clipped, hvp, laplacian, batched)]
    out: list[Any] = []
    for n in (2, 3, 2):
        out.append(run[0](params, torch.randn(n, 3), torch.randn(2, 3)))
        grads, losses = run[1](params, torch.randn(n, 3), torch.randint(0, 2, (n,)))
        out += [*grads.values(), losses]
        out += run[2](torch.randn(3), torch.randn(3))
        out.append(run[3](torch.randn(n, 3)))
        out += run[4](torch.randn(n, 3), torch.randn(4, 3))
    return out


@idiom
def densities_by_name(compiled: Compiled) -> list[Any]:
    def continuous(a, b):
        p = F.softplus(b) + 0.1
        made = [
            D.Laplace(a, p),
            D.Cauchy(a, p),
            D.Gumbel(a, p),
            D.LogNormal(a, p),
            D.Exponential(p),
            D.Gamma(p, p + 1),
            D.Beta(p, p + 1),
            D.StudentT(p + 2, a, p),
            D.Weibull(p, p + 1),
            D.HalfNormal(p),
            D.Pareto(p, p + 1),
            D.Kumaraswamy(p, p + 1),
            D.VonMises(a, p),
            D.Uniform(a - p, a + p),
            D.ContinuousBernoulli(logits=a),
        ]
        total = a.new_zeros(())
        for d in made:
            value = d.sample()
            total = total + d.log_prob(value).mean()
        moments = torch.stack([d.mean.nan_to_num(0, 0, 0).mean() for d in made[2:12]])
        return total, moments

    def discrete(logits, rate):
        made = [
            D.Categorical(logits=logits),
            D.OneHotCategorical(logits=logits),
            D.Bernoulli(logits=logits),
            D.Poisson(rate),
            D.Geometric(probs=logits.sigmoid()),
            D.Binomial(5, logits=logits),
            D.NegativeBinomial(rate, logits=logits),
            D.Multinomial(4, logits=logits),
        ]
        values = [d.sample() for d in made]
        logs = torch.stack([d.log_prob(v).sum() for d, v in zip(made, values)])
        return [*values, logs, made[0].entropy(), made[2].entropy().sum()]

    def pairs(a, b):
        p = F.softplus(b) + 0.1
        n = D.Independent(D.Normal(a, p), 1)
        flow = D.TransformedDistribution(
            n, [D.AffineTransform(0.5, 2.0), D.TanhTransform(cache_size=1)]
        )
        x = flow.rsample()
        tril = torch.diag_embed(p) + b[..., None] * 0.1 * torch.ones(3, 3).tril(-1)
        mvn = D.MultivariateNormal(a, scale_tril=tril)
        low = D.LowRankMultivariateNormal(a, b[..., None], p)
        mix = D.MixtureSameFamily(D.Categorical(logits=a), D.Normal(b, p))
        kl = D.kl_divergence(n, D.Independent(D.Normal(torch.zeros_like(a), 1.0), 1))
        kls = D.kl_divergence(D.Gamma(p, p), D.Gamma(p + 1, p)) + D.kl_divergence(
            D.Beta(p, p), D.Beta(p + 1, p)
        )
        dirichlet = D.Dirichlet(p)
        terms = flow.log_prob(x), mvn.log_prob(b), low.log_prob(b), kl, dirichlet.entropy()
        return (
            *terms,
            kls.sum(-1),
            mix.log_prob(a[..., 0]),
            mvn.rsample().sum(-1),
            mix.cdf(b[..., 0]),
        )

    out = values_and_gradients(
        compiled, pairs, *[lambda n=n: (torch.randn(n, 3), torch.randn(n, 3)) for n in (2, 4, 2)]
    )
    run, run_discrete = compiled(continuous), compiled(discrete)
    for n in (2, 3, 2):
        a, b = torch.randn(n, 3, requires_grad=True), torch.randn(n, 3, requires_grad=True)
        total, moments = run(a, b)
        (total + moments.sum()).backward()
        out += [total.detach(), moments.detach(), a.grad, b.grad]
        out += run_discrete(torch.randn(n, 3), torch.rand(n, 3) * 3)
    return out


@idiom
def special_functions(compiled: Compiled) -> list[Any]:
    def smooth(x, y):
        p = torch.sigmoid(x) * 0.98 + 0.01
        q = y.abs() + 0.5
        return torch.stack(
            [
                torch.special.erfcx(x),
                torch.special.i0e(x) + torch.special.i1(x),
                torch.special.ndtri(p) + torch.special.log_ndtr(x),
                torch.special.digamma(q) + torch.polygamma(1, q),
                torch.special.multigammaln(q + 2, 2),
                torch.special.xlog1py(x, q) + torch.special.xlogy(x, q),
                torch.special.entr(p) + torch.logit(p),
                torch.special.expit(x).logit(eps=1e-3),
                torch.sinc(x) + torch.special.exp2(x) + torch.expm1(x),
                torch.hypot(x, y) + torch.atan2(x, q) + torch.ldexp(x, y.detach().round().int()),
                torch.logcumsumexp(x, -1) + torch.logaddexp2(x, y),
                torch.lgamma(q) + torch.erfinv(p) + torch.acosh(q + 1) + torch.atanh(p),
                torch.copysign(q, x) + torch.fmod(x, 0.7) + torch.frac(y),
                torch.nan_to_num(x / 0.0, 1.0, 2.0, -2.0) * 0
                + torch.heaviside(x.detach(), y.detach()) * y,
            ]
        )

    def rough(x, y):
        q = x.abs() + 0.1
        return (
            torch.special.gammainc(q, y.abs()),
            torch.special.gammaincc(q, y.abs()),
            torch.special.zeta(q + 1.5, q),
            torch.special.bessel_j0(x) + torch.special.bessel_y1(q),
            torch.special.modified_bessel_k0(q),
            torch.special.chebyshev_polynomial_t(x, 3),
            torch.special.hermite_polynomial_h(x, 2),
            torch.special.airy_ai(x),
            torch.nextafter(x, y),
            torch.signbit(x),
            torch.frexp(x)[0],
            torch.bitwise_xor(x.long(), y.long()),
            torch.gcd((x * 10).long(), (y * 10).long()),
            torch.special.spherical_bessel_j0(x),
        )

    makes = [lambda n=n: (torch.randn(2, n), torch.randn(2, n)) for n in (3, 5, 3)]
    out = values_and_gradients(compiled, smooth, *makes)
    return out + values_and_gradients(compiled, rough, *makes, grad=False)


@idiom(
    rounded="LAPACK's least squares, whose last bits depend on where its matrices lie",
    bound=1e-5,
    coarse="decompositions in float32 of what a kernel has rounded otherwise",
    within=1e-3,
)
def decompositions(compiled: Compiled) -> list[Any]:
    def pca(x, k):
        x = x - x.mean(0)
        _, s, v = torch.linalg.svd(x, full_matrices=False)
        return s[:k] ** 2 / (len(x) - 1), (x @ v[:k].mT).abs(), torch.linalg.matrix_rank(x)

    def whiten(x):
        x = x - x.mean(0)
        c = x.mT @ x / (len(x) - 1) + 1e-3 * torch.eye(x.shape[1])
        values, vectors = torch.linalg.eigh(c)
        zca = vectors @ torch.diag(values.rsqrt()) @ vectors.mT
        chol = torch.linalg.cholesky(c)
        return x @ zca, torch.linalg.solve_triangular(chol, x.mT, upper=False), torch.logdet(c)

    def regress(x, y):
        a = torch.linalg.lstsq(x, y).solution
        q, r = torch.linalg.qr(x)
        b = torch.linalg.solve_triangular(r, q.mT @ y, upper=True)
        c = torch.cholesky_solve(x.mT @ y, torch.linalg.cholesky(x.mT @ x))
        lu, pivots = torch.linalg.lu_factor(x.mT @ x)
        d = torch.linalg.lu_solve(lu, pivots, x.mT @ y)
        return a, b, c, d, torch.linalg.pinv(x) @ y, torch.linalg.cond(x)

    def dynamics(a, t):
        e = torch.matrix_exp(a * t)
        s = torch.linalg.matrix_power(a, 3) + torch.linalg.inv(torch.eye(len(a)) + a @ a.mT)
        sign, log = torch.linalg.slogdet(torch.eye(len(a)) * 2 + a * 0.1)
        vals = torch.linalg.eigvals(a).abs().sort().values
        norms = [torch.linalg.norm(a, p) for p in ("fro", "nuc", 2, 1, math.inf)]
        chain = torch.linalg.multi_dot([a, e, s])
        return chain, sign * log, vals, torch.stack(norms), torch.linalg.vander(a[0], N=3)

    def kron(a, b):
        k = torch.kron(a, b)
        return (
            torch.block_diag(a, b),
            k.trace(),
            torch.tensordot(a, b, 1),
            torch.cov(a),
            torch.cross(F.pad(a, (0, 1)), F.pad(b, (1, 0)), dim=-1),
        )

    run = compiled(pca)
    out: list[Any] = []
    for n in (6, 8, 6):
        out += run(torch.randn(n, 3) * torch.tensor([3.0, 2.0, 1.0]), 2)
    for function, make in (
        (whiten, lambda n: (torch.randn(n + 3, 3),)),
        (regress, lambda n: (torch.randn(n + 3, 3), torch.randn(n + 3, 2))),
        (lambda a: dynamics(a, 0.3), lambda n: (torch.randn(n, n),)),
        (
            kron,
            lambda n: (
                (torch.randn(n - 1, 2), torch.randn(2, 2)) if n == 3 else (torch.randn(2, 2),) * 2
            ),
        ),
    ):
        makes = [lambda n=n, make=make: make(n) for n in (3, 4, 3)]
        out += values_and_gradients(compiled, function, *makes[: 1 if function is kron else 3])
    return out


@idiom
def spectra_and_analytic_signals(compiled: Compiled) -> list[Any]:
    def hilbert(x):
        n = x.shape[-1]
        h = torch.zeros(n)
        h[0] = 1
        h[1 : (n + 1) // 2] = 2
        if n % 2 == 0:
            h[n // 2] = 1
        z = torch.fft.ifft(torch.fft.fft(x) * h)
        phase = torch.angle(z)
        jump = torch.diff(phase)
        wrapped = (jump + math.pi) % (2 * math.pi) - math.pi
        return z.abs(), torch.cumsum(wrapped, -1), z.real - x

    def cepstrum(x):
        s = torch.fft.rfft(x * torch.hann_window(x.shape[-1], periodic=False))
        log = torch.log(s.abs() + 1e-3)
        c = torch.fft.irfft(log, n=x.shape[-1])
        auto = torch.fft.irfft(s * s.conj(), n=x.shape[-1])
        return (
            c,
            auto / auto[..., :1],
            torch.fft.fftshift(s.abs(), -1),
            torch.fft.rfftfreq(x.shape[-1]),
        )

    def filtered(x):
        f = torch.fft.fft2(x)
        fy, fx = torch.fft.fftfreq(x.shape[-2])[:, None], torch.fft.fftfreq(x.shape[-1])
        low = torch.exp(-20 * (fy**2 + fx**2))
        y = torch.fft.ifft2(f * low).real
        laplace = torch.fft.ifft2(-4 * math.pi**2 * (fy**2 + fx**2) * f).real
        return y, laplace, torch.fft.rfft2(y, norm="ortho").abs().pow(2).flatten(-2).sum(-1)

    def rotated(z, w):
        y = z * torch.polar(torch.ones(()), w) + z.conj() * 1j
        m = torch.view_as_real(y).square().sum(-1).sqrt()
        g = torch.complex(y.imag, y.real).mT @ z
        return m, g.abs(), torch.sgn(y).real, (y**2).imag, torch.outer(z[0], z[0].conj()).real

    out = values_and_gradients(
        compiled, hilbert, *[lambda n=n: (torch.randn(2, n),) for n in (8, 7, 8)]
    )
    out += values_and_gradients(
        compiled, cepstrum, *[lambda n=n: (torch.randn(2, n),) for n in (8, 10)]
    )
    out += values_and_gradients(
        compiled, filtered, *[lambda n=n: (torch.randn(n, 4, 5),) for n in (1, 2)]
    )
    make = [lambda n=n: (torch.randn(2, n, dtype=torch.cfloat), torch.randn(n)) for n in (3, 4, 3)]
    return out + values_and_gradients(compiled, rotated, *make)


@idiom
def own_generators(compiled: Compiled) -> list[Any]:
    generator = torch.Generator().manual_seed(7)

    def noise(x, g):
        keep = torch.empty_like(x).bernoulli_(0.7, generator=g)
        y = x * keep + torch.randn(x.shape, generator=g) * 0.1
        order = torch.randperm(x.shape[0], generator=g)
        picked = torch.multinomial(y.softmax(-1), 2, replacement=True, generator=g)
        jitter = torch.empty(3).uniform_(-1, 1, generator=g) + torch.empty(3).normal_(1, 2)
        return y[order], picked, jitter, torch.randint(0, 5, (2,), generator=g)

    def forked(x, seed):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            a = torch.rand_like(x)
        return a, torch.rand_like(x), F.dropout(x, 0.5), F.gumbel_softmax(x, hard=True)

    def more(x):
        y = F.rrelu(x, training=True) + F.alpha_dropout(x, 0.2, True)
        z = torch.poisson(x.abs()) + torch.empty_like(x).exponential_() + torch.normal(x, 1.0)
        w = torch.empty(4).log_normal_() + torch.empty(4).cauchy_() + torch.empty(4).geometric_(0.4)
        return y, z, w, F.dropout1d(x, 0.5), F.feature_alpha_dropout(x, 0.5, True)

    run = [compiled(f) for f in (noise, forked, more)]
    out: list[Any] = []
    for n in (3, 4, 3):
        out += run[0](torch.randn(n, 3), generator)
        out += run[1](torch.randn(n, 3), n)
        out += run[2](torch.randn(n, 3))
    return [*out, generator.get_state()]


@idiom
def splines_and_bases(compiled: Compiled) -> list[Any]:
    class Kan(nn.Module):
        def __init__(self, i=3, o=2, grid=4, order=3):
            super().__init__()
            h = 2.0 / grid
            knots = torch.arange(-order, grid + order + 1) * h - 1
            self.register_buffer("grid", knots.expand(i, -1).contiguous())
            self.base = nn.Parameter(torch.randn(o, i) / 2)
            self.spline = nn.Parameter(torch.randn(o, i, grid + order) / 4)
            self.order = order

        def bases(self, x):
            x, g = x.unsqueeze(-1), self.grid
            b = ((x >= g[:, :-1]) & (x < g[:, 1:])).to(x.dtype)
            for k in range(1, self.order + 1):
                left = (x - g[:, : -(k + 1)]) / (g[:, k:-1] - g[:, : -(k + 1)]) * b[:, :, :-1]
                right = (g[:, k + 1 :] - x) / (g[:, k + 1 :] - g[:, 1:(-k)]) * b[:, :, 1:]
                b = left + right
            return b.contiguous()

        @torch.no_grad()
        def update_grid(self, x, margin=0.01):
            n = self.grid.shape[1] - 2 * self.order
            s = torch.sort(x, dim=0)[0]
            at = torch.linspace(0, len(x) - 1, n, dtype=torch.int64)
            inner = s[at] + torch.arange(n)[:, None] * margin
            step = (inner[-1] - inner[0]) / (n - 1)
            low = inner[:1] - step * torch.arange(self.order, 0, -1)[:, None]
            high = inner[-1:] + step * torch.arange(1, self.order + 1)[:, None]
            self.grid.copy_(torch.cat([low, inner, high]).T)

        def forward(self, x):
            flat = F.linear(F.silu(x), self.base)
            return flat + F.linear(self.bases(x).view(len(x), -1), self.spline.view(2, -1))

    model = Kan()
    update = compiled(model.update_grid)
    out = fit(
        model, lambda: (torch.rand(5, 3) * 2 - 1,), compiled, loss=lambda y: (y - 1).square().mean()
    )
    x = torch.rand(6, 3)
    update(x)
    return [*out, model.grid.clone(), compiled(model)(x).detach()]
