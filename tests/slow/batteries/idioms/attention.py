"""Transformers: masks, caches, positions, and generation."""

from __future__ import annotations

import collections
import dataclasses
import enum
import math
import typing
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
    state,
    values_and_gradients,
)


@dataclasses.dataclass
class Config:
    width: int = 8
    heads: int = 2
    act: str = "gelu"
    drop: float = 0.1


class Act(enum.Enum):
    GELU = "gelu"
    RELU = "relu"


ACTS = {Act.GELU: F.gelu, Act.RELU: F.relu}


class Out(typing.NamedTuple):
    logits: torch.Tensor
    loss: torch.Tensor | None = None
    hidden: tuple = ()


class Block(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        self.n1, self.n2 = nn.LayerNorm(c.width), nn.LayerNorm(c.width)
        self.a = nn.MultiheadAttention(c.width, c.heads, c.drop, batch_first=True)
        self.m = nn.ModuleDict(
            {"up": nn.Linear(c.width, 2 * c.width), "down": nn.Linear(2 * c.width, c.width)}
        )
        self.gate = nn.Parameter(torch.ones(()))

    def forward(self, x, *, mask=None, return_weights=False):
        h = self.n1(x)
        y, w = self.a(h, h, h, attn_mask=mask, need_weights=return_weights)
        x = x + self.gate * y
        h = ACTS[Act(self.c.act)](self.m["up"](self.n2(x)))
        return x + self.m["down"](h), w


class Model(nn.Module):
    def __init__(self, c=None, depth=2):
        super().__init__()
        self.c = c or Config()
        self.embedding = nn.Embedding(20, self.c.width)
        self.blocks = nn.ModuleList(Block(self.c) for _ in range(depth))
        self.linear = nn.Linear(self.c.width, 20)
        self.apply(self._init)
        self.register_buffer("mask", torch.full((16, 16), -torch.inf).triu(1), persistent=False)
        self.hits = collections.Counter()

    @staticmethod
    def _init(m):
        if isinstance(m, nn.Linear):
            nn.init.trunc_normal_(m.weight, std=0.02)
            nn.init.zeros_(m.bias)

    def forward(self, ids, labels=None, output_hidden=False, **kw):
        self.hits["calls"] += 1
        x = self.embedding(ids)
        hs = []
        for b in self.blocks:
            if output_hidden:
                hs.append(x)
            x, w = b(
                x,
                mask=self.mask[: ids.shape[1], : ids.shape[1]],
                return_weights=kw.get("weights", False),
            )
        logits = self.linear(x)
        loss = None
        if labels is not None:
            told, truth = logits[:, :-1].reshape(-1, 20), labels[:, 1:].reshape(-1)
            loss = F.cross_entropy(told, truth, ignore_index=-100)
        return Out(logits, loss, tuple(hs))


@idiom(
    captured="attention computes otherwise where it is compiled",
    coarse="gradients through the last norm are rounding, and steps of Adam whatever they point to",
    within=1e-2,
)
def transformer_encoder(compiled: Compiled) -> list[Any]:
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True, norm_first=False),
        2,
        enable_nested_tensor=True,
    )
    run = compiled(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    out = []
    for _ in range(3):
        x = torch.randn(3, 6, 8)
        pad = torch.arange(6) >= torch.tensor([[6], [4], [3]])
        loss = run(x, src_key_padding_mask=pad).square().mean()
        out.append(descend(optimizer, loss))
    model.eval()
    x = torch.randn(3, 6, 8)
    with torch.no_grad():
        out += [
            run(x),
            run(x, src_key_padding_mask=torch.arange(6) >= torch.tensor([[6], [4], [3]])),
            run(x, mask=nn.Transformer.generate_square_subsequent_mask(6), is_causal=True),
        ]
    return out + adapted(model)


@idiom
def mha_with_weights(compiled: Compiled) -> list[Any]:
    model = nn.MultiheadAttention(
        8, 2, dropout=0.1, batch_first=True, add_bias_kv=True, add_zero_attn=True
    )

    def f(x, pad):
        y, w = model(x, x, x, key_padding_mask=pad, average_attn_weights=False)
        return y.square().mean() + w.sum() * 0.1

    class W(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = model

        def forward(self, x, pad):
            return f(x, pad)

    return fit(
        W(), lambda: (torch.randn(2, 5, 8), torch.arange(5) > torch.tensor([[4], [2]])), compiled
    )


@idiom
def kv_cache(compiled: Compiled) -> list[Any]:
    class A(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(8, 24)
            self.linear = nn.Linear(8, 8)
            self.register_buffer("k", torch.zeros(2, 16, 8))
            self.register_buffer("v", torch.zeros(2, 16, 8))

        def forward(self, x, pos):
            q, k, v = self.qkv(x).chunk(3, -1)
            self.k[:, pos : pos + x.shape[1]] = k
            self.v[:, pos : pos + x.shape[1]] = v
            n = pos + x.shape[1]
            mask = torch.ones(x.shape[1], n, dtype=torch.bool).tril(pos)

            def h(t):
                return t.unflatten(-1, (2, 4)).transpose(1, 2)

            return self.linear(
                F.scaled_dot_product_attention(
                    h(q), h(self.k[:, :n]), h(self.v[:, :n]), attn_mask=mask
                )
                .transpose(1, 2)
                .flatten(2)
            )

    model = A().eval()
    run = compiled(model)
    out = []
    with torch.no_grad():
        out.append(run(torch.randn(2, 5, 8), 0))
        for p in range(5, 9):
            out.append(run(torch.randn(2, 1, 8), p))
    return out + state(model)


@idiom
def vit_interpolated_positions(compiled: Compiled) -> list[Any]:
    class V(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.Conv2d(3, 8, 4, 4)
            self.pos = nn.Parameter(torch.randn(1, 8, 4, 4))
            self.cls = nn.Parameter(torch.zeros(1, 1, 8))
            self.b = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
            self.linear = nn.Linear(8, 3)

        def forward(self, x):
            x = self.p(x)
            x = x + F.interpolate(self.pos, size=x.shape[-2:], mode="bicubic", align_corners=False)
            x = torch.cat([self.cls.expand(len(x), -1, -1), x.flatten(2).transpose(1, 2)], 1)
            return self.linear(self.b(x)[:, 0]).square().mean()

    sizes = iter([16, 24, 32])
    return fit(V(), lambda: (torch.randn(2, 3, (n := next(sizes)), n),), compiled)


@idiom
def swin_shift(compiled: Compiled) -> list[Any]:
    class S(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(8, 24)
            self.bias = nn.Parameter(torch.zeros(2, 16, 16))
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            B, H, W, C = x.shape
            x = torch.roll(x, (-2, -2), (1, 2))
            w = x.view(B, H // 4, 4, W // 4, 4, C).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, C)
            q, k, v = self.qkv(w).view(-1, 16, 3, 2, 4).permute(2, 0, 3, 1, 4)
            a = (q @ k.transpose(-2, -1) * 0.5 + self.bias).softmax(-1)
            y = self.linear((a @ v).transpose(1, 2).reshape(-1, 16, C))
            return (
                torch.roll(
                    y.view(B, H // 4, W // 4, 4, 4, C)
                    .permute(0, 1, 3, 2, 4, 5)
                    .reshape(B, H, W, C),
                    (2, 2),
                    (1, 2),
                )
                .square()
                .mean()
            )

    return fit(S(), lambda: (torch.randn(2, 8, 8, 8),), compiled)


@idiom
def t5_bias(compiled: Compiled) -> list[Any]:
    class T(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(8, 2)
            self.linear = nn.Linear(8, 24)

        def forward(self, x):
            n = x.shape[1]
            r = torch.arange(n)[None] - torch.arange(n)[:, None]
            b = (r > 0).long() * 4
            r = r.abs()
            large = 2 + (torch.log(r.float() / 2 + 1e-9) / math.log(8) * 2).long()
            b = b + torch.where(r < 2, r, large.clamp(max=3))
            q, k, v = [t.unflatten(-1, (2, 4)).transpose(1, 2) for t in self.linear(x).chunk(3, -1)]
            return (
                F.scaled_dot_product_attention(
                    q, k, v, attn_mask=self.embedding(b).permute(2, 0, 1)[None]
                )
                .square()
                .mean()
            )

    lengths = iter([5, 9, 12])
    return fit(T(), lambda: (torch.randn(2, next(lengths), 8),), compiled)


@idiom
def linear_attention(compiled: Compiled) -> list[Any]:
    class L(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 24)

        def forward(self, x):
            q, k, v = self.linear(x).chunk(3, -1)
            q, k = F.elu(q) + 1, F.elu(k) + 1
            kv = torch.cumsum(k[..., :, None] * v[..., None, :], 1)
            z = torch.cumsum(k, 1)
            return (
                (
                    torch.einsum("bnd,bnde->bne", q, kv)
                    / (torch.einsum("bnd,bnd->bn", q, z)[..., None] + 1e-6)
                )
                .square()
                .mean()
            )

    return fit(L(), lambda: (torch.randn(2, 7, 8),), compiled)


@idiom
def rotary_complex(compiled: Compiled) -> list[Any]:
    def f(q, k):
        n, d = q.shape[-2:]
        fr = torch.polar(
            torch.ones(n, d // 2),
            torch.outer(
                torch.arange(n).float(), 1.0 / 10000 ** (torch.arange(0, d, 2).float() / d)
            ),
        )

        def rot(t):
            return (
                torch.view_as_real(
                    torch.view_as_complex(t.float().reshape(*t.shape[:-1], -1, 2)) * fr
                )
                .flatten(-2)
                .type_as(t)
            )

        return rot(q) @ rot(k).transpose(-1, -2)

    return values_and_gradients(
        compiled,
        f,
        lambda: (torch.randn(2, 5, 8), torch.randn(2, 5, 8)),
        lambda: (torch.randn(2, 7, 8), torch.randn(2, 7, 8)),
    )


@idiom
def gpt_like(compiled: Compiled) -> list[Any]:
    model = Model()
    run = compiled(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    out = []
    for n in (6, 9, 6):
        tokens = torch.randint(0, 20, (2, n))
        found = run(tokens, labels=tokens, output_hidden=n == 9)
        optimizer.zero_grad()
        found.loss.backward()
        optimizer.step()
        out += [found.loss.detach(), *[h.detach() for h in found.hidden]]
    model.eval()
    with torch.no_grad():
        ids = torch.randint(0, 20, (1, 3))
        for _ in range(4):
            ids = torch.cat([ids, run(ids).logits[:, -1].argmax(-1, keepdim=True)], 1)
    return out + [ids, model.hits["calls"]] + adapted(model)


@idiom
def submodules_compiled(compiled: Compiled) -> list[Any]:
    model = Model()
    for i, b in enumerate(model.blocks):
        model.blocks[i].forward = compiled(b.forward)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out = []
    for n in (6, 9):
        i = torch.randint(0, 20, (2, n))
        r = model(i, labels=i)
        optimizer.zero_grad()
        r.loss.backward()
        optimizer.step()
        out.append(r.loss.detach())
    return out + state(model)
