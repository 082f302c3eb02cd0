"""Signals: spectra, filterbanks, resampling, quantisers."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.slow.batteries.idioms.common import (
    Compiled,
    descend,
    fit,
    idiom,
    state,
    values_and_gradients,
)


def hz_to_mel(f: torch.Tensor) -> torch.Tensor:
    return 2595.0 * torch.log10(1.0 + f / 700.0)


def mel_to_hz(m: torch.Tensor) -> torch.Tensor:
    return 700.0 * (10 ** (m / 2595.0) - 1.0)


@idiom(coarse="squares of what is normalised hardly change: gradients cancel", within=1e-3)
def mel_filterbank(compiled: Compiled) -> list[Any]:
    class LogMel(nn.Module):
        def __init__(self, n_fft=64, hop=16, n_mels=10, rate=8000):
            super().__init__()
            self.n_fft, self.hop = n_fft, hop
            self.register_buffer("window", torch.hann_window(n_fft), persistent=False)
            freqs = torch.linspace(0, rate / 2, n_fft // 2 + 1)
            top = hz_to_mel(torch.tensor(rate / 2.0)).item()
            points = mel_to_hz(torch.linspace(0.0, top, n_mels + 2))
            diff = points[1:] - points[:-1]
            slopes = points[None] - freqs[:, None]
            down, up = -slopes[:, :-2] / diff[:-1], slopes[:, 2:] / diff[1:]
            self.register_buffer("fb", torch.minimum(down, up).clamp(min=0))

        def forward(self, wave):
            if wave.dim() == 1:
                wave = wave[None]
            spec = torch.stft(
                wave, self.n_fft, self.hop, window=self.window, center=True, return_complex=True
            )
            power = spec.real.pow(2) + spec.imag.pow(2)
            mel = torch.einsum("bft,fm->bmt", power, self.fb)
            db = 10.0 * torch.log10(mel.clamp(min=1e-10))
            db = torch.maximum(db, db.amax(dim=(1, 2), keepdim=True) - 80.0)
            return (db - db.mean()) / (db.std() + 1e-5)

    model = LogMel()
    return values_and_gradients(
        compiled,
        model,
        lambda: (torch.randn(2, 400),),
        lambda: (torch.randn(3, 512),),
        lambda: (torch.randn(400),),
    )


@idiom
def multi_resolution_stft_loss(compiled: Compiled) -> list[Any]:
    def magnitude(x, n, hop):
        s = torch.stft(x, n, hop, n, torch.hann_window(n), return_complex=True)
        return s.abs().clamp(min=1e-4)

    def loss(x, y):
        total = x.new_zeros(())
        for n, hop in ((32, 8), (64, 16), (16, 4)):
            a, b = magnitude(x, n, hop), magnitude(y, n, hop)
            total = total + torch.norm(b - a, p="fro") / torch.norm(b, p="fro")
            total = total + F.l1_loss(torch.log(a), torch.log(b))
        return total / 3

    return values_and_gradients(
        compiled,
        loss,
        lambda: (torch.randn(2, 200), torch.randn(2, 200)),
        lambda: (torch.randn(1, 256), torch.randn(1, 256)),
    )


@idiom
def fourier_neural_operator(compiled: Compiled) -> list[Any]:
    class SpectralConv(nn.Module):
        def __init__(self, c, modes):
            super().__init__()
            self.modes = modes
            self.weight = nn.Parameter(torch.randn(c, c, modes, dtype=torch.cfloat) / c)

        def forward(self, x):
            f = torch.fft.rfft(x, norm="ortho")
            out = torch.zeros(x.shape[0], x.shape[1], f.shape[-1], dtype=torch.cfloat)
            out[:, :, : self.modes] = torch.einsum(
                "bix,iox->box", f[:, :, : self.modes], self.weight
            )
            return torch.fft.irfft(out, n=x.shape[-1], norm="ortho")

    class Net(nn.Module):
        def __init__(self, c=4):
            super().__init__()
            self.lift = nn.Linear(2, c)
            self.convs = nn.ModuleList(SpectralConv(c, 3) for _ in range(2))
            self.ws = nn.ModuleList(nn.Conv1d(c, c, 1) for _ in range(2))
            self.project = nn.Linear(c, 1)

        def forward(self, u):
            grid = torch.linspace(0, 1, u.shape[1]).expand(u.shape[0], -1).unsqueeze(-1)
            x = self.lift(torch.cat([u, grid], -1)).permute(0, 2, 1)
            for conv, w in zip(self.convs, self.ws):
                x = F.gelu(conv(x) + w(x))
            return self.project(x.permute(0, 2, 1))

    model = Net()
    run = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    out = []
    for n in (16, 16, 24, 32):
        u = torch.randn(3, n, 1)
        out.append(descend(optimizer, F.mse_loss(run(u), u.roll(1, 1))))
    return out + state(model)


@idiom
def resample_and_delta(compiled: Compiled) -> list[Any]:
    def kernel(old, new, width=6):
        g = math.gcd(old, new)
        old, new = old // g, new // g
        base = min(old, new) * 0.99
        w = math.ceil(width * old / base)
        idx = torch.arange(-w, w + old, dtype=torch.float64)[None, None] / old
        t = torch.arange(0, -new, -1, dtype=torch.float64)[:, None, None] / new + idx
        t = (t * base).clamp(-width, width)
        window = torch.cos(t * math.pi / width / 2) ** 2
        t = t * math.pi
        k = torch.where(t == 0, torch.ones_like(t), t.sin() / t)
        return (k * window * base / old).float(), w, old, new

    def resample(x, old, new):
        if old == new:
            return x
        k, w, old, new = kernel(old, new)
        padded = F.pad(x, (w, w + old))
        y = F.conv1d(padded[:, None], k, stride=old).transpose(1, 2).reshape(x.shape[0], -1)
        return y[..., : math.ceil(new * x.shape[-1] / old)]

    def delta(x, win=5):
        n = (win - 1) // 2
        denom = n * (n + 1) * (2 * n + 1) / 3
        k = torch.arange(-n, n + 1, dtype=x.dtype).repeat(x.shape[1], 1, 1)
        return F.conv1d(F.pad(x, (n, n), mode="replicate"), k, groups=x.shape[1]) / denom

    out = values_and_gradients(
        compiled,
        lambda x: resample(x, 16000, 8000) if x.shape[0] > 2 else resample(x, 4410, 4800),
        lambda: (torch.randn(3, 60),),
        lambda: (torch.randn(2, 50),),
        lambda: (torch.randn(3, 80),),
    )
    return out + values_and_gradients(
        compiled, delta, lambda: (torch.randn(2, 3, 20),), lambda: (torch.randn(2, 4, 30),)
    )


@idiom
def biquad_filter_loop(compiled: Compiled) -> list[Any]:
    class LowPass(nn.Module):
        def __init__(self):
            super().__init__()
            self.cutoff = nn.Parameter(torch.tensor(0.2))
            self.q = nn.Parameter(torch.tensor(0.7))

        def forward(self, x, zi=None):
            w = 2 * math.pi * self.cutoff.clamp(0.01, 0.49)
            alpha = torch.sin(w) / (2 * self.q)
            b1 = 1 - torch.cos(w)
            b0 = b2 = b1 / 2
            a0, a1, a2 = 1 + alpha, -2 * torch.cos(w), 1 - alpha
            z1, z2 = (x.new_zeros(x.shape[0]),) * 2 if zi is None else zi
            ys = []
            for n in range(x.shape[-1]):
                xn = x[:, n]
                y = (b0 * xn + z1) / a0
                z1 = b1 * xn - a1 * y + z2
                z2 = b2 * xn - a2 * y
                ys.append(y)
            return torch.stack(ys, -1), (z1, z2)

    model = LowPass()
    run = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out, zi = [], None
    for n in (8, 8, 5):
        y, zi = run(torch.randn(2, n), zi)
        out.append(descend(optimizer, y.square().mean()))
        zi = tuple(z.detach() for z in zi)
    return out + list(zi) + state(model)


@idiom
def hand_quantisation(compiled: Compiled) -> list[Any]:
    def pack(q):
        q = q.to(torch.uint8).reshape(q.shape[0], -1, 2)
        return q[..., 0] | (q[..., 1] << 4)

    def unpack(p):
        low, high = p & 0xF, p >> 4
        return torch.stack([low, high], -1).reshape(p.shape[0], -1)

    class Int4Linear(nn.Module):
        def __init__(self, linear, group=4):
            super().__init__()
            w = linear.weight.detach()
            g = w.reshape(w.shape[0], -1, group)
            low, high = g.amin(-1, keepdim=True), g.amax(-1, keepdim=True)
            scale = (high - low).clamp(min=1e-6) / 15
            q = ((g - low) / scale).round().clamp(0, 15).reshape(w.shape)
            self.register_buffer("packed", pack(q))
            self.register_buffer("scale", scale)
            self.register_buffer("low", low)
            self.bias = linear.bias
            self.group = group

        def forward(self, x):
            q = unpack(self.packed).reshape(self.scale.shape[0], -1, self.group)
            w = (q.to(x.dtype) * self.scale + self.low).flatten(1)
            return F.linear(x, w, self.bias)

    def dynamic_int8(x, w):
        sx = x.abs().amax(-1, keepdim=True) / 127
        sw = w.abs().amax(-1, keepdim=True) / 127
        qx = torch.clamp(torch.round(x / sx), -128, 127).to(torch.int8)
        qw = torch.clamp(torch.round(w / sw), -128, 127).to(torch.int8)
        acc = qx.to(torch.int32) @ qw.to(torch.int32).t()
        return acc.to(torch.float32) * sx * sw.t()

    def bits(x):
        b = (x.unsqueeze(-1) >> torch.arange(8)) & 1
        parity = b.sum(-1) % 2
        return b.bool(), parity, (b << torch.arange(8)).sum(-1)

    model = Int4Linear(nn.Linear(8, 6))
    run, run8, run_bits = compiled(model), compiled(dynamic_int8), compiled(bits)
    out = []
    for n in (3, 3, 5):
        x = torch.randn(n, 8)
        out += [run(x).detach(), run8(x, torch.randn(4, 8)), *run_bits(torch.arange(n) * 37 % 256)]
    return out


class _Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, levels, symmetric=True):
        ctx.symmetric = symmetric
        low = -levels if symmetric else 0
        ctx.save_for_backward((x >= low) & (x <= levels))
        return x.round().clamp(low, levels)

    @staticmethod
    def backward(ctx, grad):
        (inside,) = ctx.saved_tensors
        return grad * inside if ctx.symmetric else grad * inside * 0.5, None, None


@idiom
def lsq_fake_quant(compiled: Compiled) -> list[Any]:
    class LSQ(nn.Module):
        def __init__(self, bits=4, symmetric=True):
            super().__init__()
            self.levels = 2 ** (bits - 1) - 1 if symmetric else 2**bits - 1
            self.symmetric = symmetric
            self.step = nn.Parameter(torch.tensor(1.0))
            self.register_buffer("initialised", torch.tensor(False))
            self.ready = False

        def forward(self, x):
            if not self.ready:
                with torch.no_grad():
                    self.step.copy_(2 * x.abs().mean() / math.sqrt(self.levels))
                    self.initialised.fill_(True)
                self.ready = True
            g = 1.0 / math.sqrt(x.numel() * self.levels)
            step = (self.step - self.step * g).detach() + self.step * g
            return _Round.apply(x / step, self.levels, self.symmetric) * step

    class QLinear(nn.Linear):
        def __init__(self, *args):
            super().__init__(*args)
            self.qw, self.qx = LSQ(4), LSQ(4, symmetric=False)

        def forward(self, x):
            return F.linear(self.qx(x), self.qw(self.weight), self.bias)

    model = nn.Sequential(QLinear(6, 8), nn.ReLU(), QLinear(8, 3))
    run = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    out = []
    for n in (4, 4, 4, 7):
        x = torch.rand(n, 6)
        out.append(descend(optimizer, F.cross_entropy(run(x), torch.randint(0, 3, (n,)))))
    return out + state(model)


@idiom
def residual_vector_quantizer(compiled: Compiled) -> list[Any]:
    class Codebook(nn.Module):
        def __init__(self, k, d, decay=0.9):
            super().__init__()
            self.decay = decay
            self.register_buffer("embed", torch.randn(k, d))
            self.register_buffer("size", torch.ones(k))
            self.register_buffer("avg", self.embed.clone())

        def forward(self, x):
            flat = x.reshape(-1, x.shape[-1])
            codes = torch.cdist(flat, self.embed).argmin(-1)
            q = F.embedding(codes, self.embed).view_as(x)
            if self.training:
                with torch.no_grad():
                    onehot = F.one_hot(codes, self.size.shape[0]).type(flat.dtype)
                    self.size.mul_(self.decay).add_(onehot.sum(0), alpha=1 - self.decay)
                    self.avg.mul_(self.decay).add_(onehot.t() @ flat, alpha=1 - self.decay)
                    n = self.size.sum()
                    smoothed = (self.size + 1e-5) / (n + len(self.size) * 1e-5) * n
                    self.embed.copy_(self.avg / smoothed.unsqueeze(1))
            return x + (q - x).detach(), codes.view(x.shape[:-1]), F.mse_loss(x, q.detach())

    class RVQ(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.dec = nn.Linear(6, 4), nn.Linear(4, 6)
            self.books = nn.ModuleList(Codebook(5, 4) for _ in range(3))

        def forward(self, x, n_books=None):
            z = self.enc(x)
            residual, total, codes, commit = z, 0.0, [], []
            for book in self.books[:n_books]:
                q, c, loss = book(residual)
                residual, total = residual - q.detach(), total + q
                codes.append(c)
                commit.append(loss)
            return self.dec(total), torch.stack(codes), torch.stack(commit).mean()

    model = RVQ()
    run = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out = []
    for n_books in (None, 2, 3, None):
        x = torch.randn(2, 5, 6)
        y, codes, commit = run(x, n_books)
        out += [descend(optimizer, F.mse_loss(y, x) + 0.25 * commit), codes]
    model.eval()
    with torch.inference_mode():
        y, codes, _ = run(torch.randn(2, 5, 6))
    return out + [y.clone(), codes.clone()] + state(model)


@idiom
def causal_conv_streaming(compiled: Compiled) -> list[Any]:
    class Causal(nn.Module):
        def __init__(self, c, k, d):
            super().__init__()
            self.conv = nn.Conv1d(c, c, k, dilation=d)
            self.pad = (k - 1) * d
            self.cache = None

        def forward(self, x, streaming=False):
            if streaming:
                if self.cache is None:
                    self.cache = x.new_zeros(x.shape[0], x.shape[1], self.pad)
                x = torch.cat([self.cache, x], -1)
                self.cache = x[..., -self.pad :].detach()
            else:
                x = F.pad(x, (self.pad, 0))
            return F.elu(self.conv(x))

    model = nn.ModuleList(Causal(3, 3, d) for d in (1, 2))

    def forward(x, streaming=False):
        for layer in model:
            x = layer(x, streaming=streaming)
        return x

    run = compiled(forward)
    x = torch.randn(1, 3, 18)
    whole = run(x)
    whole.square().sum().backward()
    out = [whole.detach()]
    with torch.no_grad():
        for chunk in x.split([4, 4, 4, 6], -1):
            out.append(run(chunk, streaming=True))
    return out + [p.grad for p in model.parameters()]


@idiom
def spectrogram_augment(compiled: Compiled) -> list[Any]:
    class SpecAugment(nn.Module):
        def __init__(self, f=3, t=4, n=2):
            super().__init__()
            self.f, self.t, self.n = f, t, n

        def mask(self, x, dim, width):
            size = x.shape[dim]
            start = torch.randint(0, size - width, (x.shape[0], 1))
            length = torch.randint(0, width, (x.shape[0], 1))
            at = torch.arange(size)[None]
            m = (at >= start) & (at < start + length)
            m = m.unsqueeze(2 if dim == 1 else 1)
            return x.masked_fill(m, 0.0)

        def forward(self, x):
            if self.training:
                for _ in range(self.n):
                    x = self.mask(x, 1, self.f)
                    x = self.mask(x, 2, self.t)
            return x

    model = nn.Sequential(
        SpecAugment(), nn.Conv1d(8, 4, 3, bias=False), nn.BatchNorm1d(4), nn.ReLU()
    )
    out = fit(model, lambda: (torch.randn(3, 8, 12),), compiled, loss=lambda y: y.square().mean())
    model.eval()
    return out + [compiled(model)(torch.randn(3, 8, 15)).detach()]
