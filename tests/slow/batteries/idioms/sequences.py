"""Recurrent networks, scans, sound, and what is decoded step by step."""

from __future__ import annotations

import random
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.slow.batteries.idioms.common import (
    Compiled,
    adapted,
    descend,
    fit,
    idiom,
    state,
    values_and_gradients,
)


@idiom
def truncated_bptt(compiled: Compiled) -> list[Any]:
    recurrent, head = nn.GRU(4, 8, 2, batch_first=True, dropout=0.1), nn.Linear(8, 2)
    optimizer = torch.optim.SGD([*recurrent.parameters(), *head.parameters()], 0.1)

    def unroll(x, s):
        y, s = recurrent(x, s)
        return head(y), s

    run = compiled(unroll)
    out = []
    hidden = torch.zeros(2, 3, 8)
    for _ in range(4):
        y, hidden = run(torch.randn(3, 5, 4), hidden)
        loss = y.square().mean()
        descend(optimizer, loss)
        hidden = hidden.detach_()
        out.append(loss.detach())
    return out + state(recurrent, head)


@idiom
def lstm_cell_loop(compiled: Compiled) -> list[Any]:
    cell, head = nn.LSTMCell(4, 8), nn.Linear(8, 4)
    optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], 1e-2)

    def roll(x, n):
        hx = cx = torch.zeros(3, 8)
        ys = []
        for _ in range(n):
            hx, cx = cell(x, (hx, cx))
            x = head(hx)
            ys.append(x)
        return torch.stack(ys, 1)

    run = compiled(roll)
    out = []
    for n in (3, 3, 5):
        loss = (run(torch.randn(3, 4), n) - 1).abs().mean()
        out.append(descend(optimizer, loss))
    return out + adapted(cell, head)


@idiom
def packed_sequences(compiled: Compiled) -> list[Any]:
    recurrent = nn.LSTM(4, 8, batch_first=True, bidirectional=True)

    def f(x, n):
        p, _ = recurrent(pack_padded_sequence(x, n, batch_first=True, enforce_sorted=False))
        return pad_packed_sequence(p, batch_first=True)[0].sum(1)

    run = compiled(f)
    out = []
    for n in ([5, 3, 2], [4, 5, 1]):
        y = run(torch.randn(3, 5, 4), torch.tensor(n))
        y.sum().backward()
        out.append(y.detach())
    return out + [p.grad for p in recurrent.parameters()]


@idiom
def seq2seq_teacher_forcing(compiled: Compiled) -> list[Any]:
    encoder, decoder, head = nn.GRU(4, 8), nn.GRUCell(4, 8), nn.Linear(8, 4)
    modules = nn.ModuleList([encoder, decoder, head])

    def f(x, y, p):
        _, s = encoder(x)
        s = s[0]
        i = torch.zeros(x.shape[1], 4)
        loss = 0.0
        for t in range(len(y)):
            s = decoder(i, s)
            o = head(s)
            loss = loss + F.mse_loss(o, y[t])
            i = y[t] if random.random() < p else o.detach()
        return loss / len(y)

    random.seed(0)
    run = compiled(f)
    optimizer = torch.optim.SGD(modules.parameters(), 0.1)
    out = []
    for _ in range(3):
        loss = run(torch.randn(5, 2, 4), torch.randn(4, 2, 4), 0.5)
        out.append(descend(optimizer, loss))
    return out + state(modules) + [random.random()]


@idiom
def neural_turing(compiled: Compiled) -> list[Any]:
    class N(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.LSTMCell(4 + 3, 8)
            self.k = nn.Linear(8, 3)
            self.e = nn.Linear(8, 3)
            self.s = nn.Linear(8, 3)
            self.o = nn.Linear(8, 2)

        def forward(self, xs):
            M = torch.full((xs.shape[1], 5, 3), 0.1)
            h = c = torch.zeros(xs.shape[1], 8)
            r = torch.zeros(xs.shape[1], 3)
            loss = 0
            for x in xs:
                h, c = self.cell(torch.cat([x, r], 1), (h, c))
                w = F.cosine_similarity(M, self.k(h)[:, None], -1).softmax(1)
                sh = self.s(h).softmax(1)
                w = sum(sh[:, i : i + 1] * w.roll(i - 1, 1) for i in range(3))
                w = w**2 / (w**2).sum(1, keepdim=True)
                r = (w[..., None] * M).sum(1)
                M = (
                    M * (1 - w[..., None] * self.e(h).sigmoid()[:, None])
                    + w[..., None] * self.k(h)[:, None]
                )
                loss = loss + self.o(h).square().mean()
            return loss

    return fit(N(), lambda: (torch.randn(4, 2, 4),), compiled)


@idiom
def crf(compiled: Compiled) -> list[Any]:
    def f(e, t, tags):
        a = e[0]
        s = e[0].gather(1, tags[0][:, None])[:, 0]
        for i in range(1, len(e)):
            a = torch.logsumexp(a[:, :, None] + t, 1) + e[i]
            s = s + t[tags[i - 1], tags[i]] + e[i].gather(1, tags[i][:, None])[:, 0]
        return (a.logsumexp(1) - s).mean()

    def viterbi(e, t):
        v = e[0]
        bs = []
        for i in range(1, len(e)):
            v, b = (v[:, :, None] + t).max(1)
            v = v + e[i]
            bs.append(b)
        k = v.argmax(1)
        path = [k]
        for b in reversed(bs):
            k = b.gather(1, k[:, None])[:, 0]
            path.append(k)
        return torch.stack(path[::-1])

    e, t, g = torch.randn(6, 3, 4), torch.randn(4, 4), torch.randint(0, 4, (6, 3))
    return values_and_gradients(compiled, f, lambda: (e.clone(), t.clone(), g)) + [
        compiled(viterbi)(e, t)
    ]


@idiom
def ctc(compiled: Compiled) -> list[Any]:
    model = nn.Linear(8, 6)

    def f(x, t, n):
        return F.ctc_loss(model(x).log_softmax(-1), t, torch.full((3,), 10), n)

    run = compiled(f)
    out = []
    for _ in range(2):
        loss = run(torch.randn(10, 3, 8), torch.randint(1, 6, (3, 4)), torch.tensor([4, 3, 2]))
        loss.backward()
        out.append(loss.detach())
    return out + [p.grad for p in model.parameters()]


@idiom
def soft_dtw(compiled: Compiled) -> list[Any]:
    def f(a, b):
        D = torch.cdist(a, b)
        n, m = D.shape
        R = [[None] * (m + 1) for _ in range(n + 1)]
        inf = torch.tensor(1e9)
        for i in range(n + 1):
            for j in range(m + 1):
                if i == j == 0:
                    R[i][j] = torch.zeros(())
                elif i == 0 or j == 0:
                    R[i][j] = inf
                else:
                    before = torch.stack([-R[i - 1][j], -R[i][j - 1], -R[i - 1][j - 1]])
                    R[i][j] = D[i - 1, j - 1] - 0.1 * torch.logsumexp(before / 0.1, 0)
        return R[n][m]

    return values_and_gradients(compiled, f, lambda: (torch.randn(4, 2), torch.randn(5, 2)))


@idiom
def beam_search(compiled: Compiled) -> list[Any]:
    embedding, weight = torch.randn(10, 8), torch.randn(8, 10)

    def step(seq, sc):
        lp = (embedding[seq[:, -1]] @ weight).log_softmax(-1)
        t, i = (sc[:, None] + lp).flatten().topk(3)
        b, w = i // 10, i % 10
        return torch.cat([seq[b], w[:, None]], 1), t

    run = compiled(step)
    sequences, scores = torch.zeros(3, 1, dtype=torch.long), torch.tensor([0.0, -1e9, -1e9])
    for _ in range(5):
        sequences, scores = run(sequences, scores)
    return [sequences, scores]


@idiom
def sampling(compiled: Compiled) -> list[Any]:
    def f(logits, t, k, p):
        logits = logits / t
        logits = logits.masked_fill(logits < logits.topk(k)[0][..., -1:], -torch.inf)
        s, i = logits.sort(descending=True)
        c = s.softmax(-1).cumsum(-1)
        rm = c - s.softmax(-1) > p
        logits = logits.masked_fill(torch.zeros_like(rm).scatter(1, i, rm), -torch.inf)
        return torch.multinomial(logits.softmax(-1), 2), -torch.empty_like(
            logits
        ).exponential_().log()

    run = compiled(f)
    return [
        t
        for a in ((0.7, 5, 0.9), (1.0, 8, 0.8), (0.5, 8, 0.95))
        for t in run(torch.randn(3, 12), *a)
    ]


@idiom
def ragged_text(compiled: Compiled) -> list[Any]:
    class T(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(50, 8, padding_idx=0)
            self.gru = nn.GRU(8, 8, batch_first=True)
            self.linear = nn.Linear(8, 2)

        def forward(self, i):
            x = self.embedding(i)
            m = (i != 0)[..., None].float()
            h, _ = self.gru(x)
            return F.cross_entropy(
                self.linear((h * m).sum(1) / m.sum(1).clamp(min=1)), i.sum(1) % 2
            )

    lengths = iter([5, 8, 8, 6])
    return fit(T(), lambda: (torch.randint(0, 50, (3, next(lengths))),), compiled, 4)


@idiom
def selective_scan(compiled: Compiled) -> list[Any]:
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.A = nn.Parameter(torch.rand(8, 4))
            self.linear = nn.Linear(8, 8 + 8)
            self.dt = nn.Linear(8, 8)

        def forward(self, x):
            b, c = self.linear(x).split([8, 8], -1)
            b, c = b[..., :4], c[..., :4]
            dt = F.softplus(self.dt(x))
            h = torch.zeros(x.shape[0], 8, 4)
            ys = []
            for t in range(x.shape[1]):
                h = (
                    torch.exp(-dt[:, t, :, None] * self.A) * h
                    + dt[:, t, :, None] * b[:, t, None] * x[:, t, :, None]
                )
                ys.append((h * c[:, t, None]).sum(-1))
            return torch.stack(ys, 1).square().mean()

    return fit(M(), lambda: (torch.randn(2, 6, 8),), compiled)


@idiom
def s4_diagonal(compiled: Compiled) -> list[Any]:
    class S(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Parameter(torch.rand(4, 6))
            self.w = nn.Parameter(torch.randn(4, 6))
            self.c = nn.Parameter(torch.randn(4, 6, 2))

        def forward(self, x):
            lam = torch.complex(-self.a.exp(), self.w)
            k = (
                2
                * torch.einsum(
                    "hn,hnl->hl",
                    torch.view_as_complex(self.c),
                    torch.exp(lam[..., None] * torch.arange(x.shape[-1]) * 0.1),
                ).real
            )
            return (
                F.conv1d(F.pad(x, (x.shape[-1] - 1, 0)), k.flip(-1)[:, None], groups=4)
                .square()
                .mean()
            )

    return fit(S(), lambda: (torch.randn(2, 4, 9),), compiled)


@idiom
def fft_convolution(compiled: Compiled) -> list[Any]:
    class H(nn.Module):
        def __init__(self):
            super().__init__()
            self.k = nn.Parameter(torch.randn(4, 16) * 0.1)
            self.d = nn.Parameter(torch.randn(4))

        def forward(self, x):
            n = x.shape[-1]
            y = torch.fft.irfft(
                torch.fft.rfft(x, n=2 * n) * torch.fft.rfft(self.k, n=2 * n), n=2 * n
            )[..., :n]
            return (y + x * self.d[:, None]).square().mean()

    return fit(H(), lambda: (torch.randn(2, 4, 16),), compiled)


@idiom
def wavenet(compiled: Compiled) -> list[Any]:
    class W(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = nn.ModuleList([nn.Conv1d(4, 8, 2, dilation=2**i) for i in range(4)])
            self.r = nn.ModuleList([nn.Conv1d(4, 4, 1) for _ in range(4)])
            self.o = nn.Conv1d(4, 6, 1)

        def forward(self, x):
            k = 0
            for i, (c, r) in enumerate(zip(self.c, self.r)):
                a, b = c(F.pad(x, (2**i, 0))).chunk(2, 1)
                z = r(torch.tanh(a) * torch.sigmoid(b))
                x = x + z
                k = k + z
            return F.cross_entropy(self.o(F.relu(k))[..., :-1], (x[:, 0, 1:] > 0).long())

    return fit(W(), lambda: (torch.randn(2, 4, 30),), compiled)


@idiom
def stft_and_mel(compiled: Compiled) -> list[Any]:
    bank = torch.rand(33, 10)
    window = torch.hann_window(64)

    def f(x):
        s = torch.stft(x, 64, 16, window=window, return_complex=True)
        p = s.abs().pow(2)
        m = torch.log(p.transpose(1, 2) @ bank + 1e-6)
        y = torch.istft(s * 0.5, 64, 16, window=window, length=x.shape[-1])
        return m, y

    return values_and_gradients(
        compiled, f, lambda: (torch.randn(2, 400),), lambda: (torch.randn(2, 512),)
    )


@idiom
def griffin_lim(compiled: Compiled) -> list[Any]:
    window = torch.hann_window(32)

    def step(mag, ph):
        s = mag * torch.exp(1j * ph)
        y = torch.istft(s, 32, 8, window=window)
        return torch.stft(y, 32, 8, window=window, return_complex=True).angle()

    run = compiled(step)
    magnitude = torch.rand(17, 20)
    phase = torch.rand(17, 20) * 6
    for _ in range(3):
        phase = run(magnitude, phase)
    return [phase.cos()]


@idiom
def kalman(compiled: Compiled) -> list[Any]:
    A = torch.eye(3) + 0.1 * torch.randn(3, 3)
    H = torch.randn(2, 3)

    def f(ys, q, r):
        x, P = torch.zeros(3), torch.eye(3)
        ll = 0.0
        for y in ys:
            x = A @ x
            P = A @ P @ A.T + q.exp() * torch.eye(3)
            S = H @ P @ H.T + r.exp() * torch.eye(2)
            e = y - H @ x
            K = torch.linalg.solve(S, H @ P).T
            x = x + K @ e
            P = P - K @ H @ P
            ll = ll - 0.5 * (e @ torch.linalg.solve(S, e) + torch.logdet(S))
        return ll, x

    return values_and_gradients(
        compiled, f, lambda: (torch.randn(6, 2), torch.tensor(-1.0), torch.tensor(0.0))
    )
