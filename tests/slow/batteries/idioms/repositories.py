"""Language models as their authors' repositories have them, made small."""

from __future__ import annotations

import inspect
import math
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.slow.batteries.idioms.common import Compiled, adapted, descend, idiom, mlp, state


@dataclass
class GptConfig:
    block_size: int = 8
    vocab_size: int = 17
    n_layer: int = 2
    n_head: int = 2
    n_embd: int = 8
    dropout: float = 0.1
    bias: bool = False


@idiom
def nano_gpt(compiled: Compiled) -> list[Any]:
    class LayerNorm(nn.Module):
        def __init__(self, n, bias):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(n))
            self.bias = nn.Parameter(torch.zeros(n)) if bias else None

        def forward(self, x):
            return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)

    class Attention(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.c_attn = nn.Linear(c.n_embd, 3 * c.n_embd, bias=c.bias)
            self.c_proj = nn.Linear(c.n_embd, c.n_embd, bias=c.bias)
            self.attn_dropout, self.resid_dropout = nn.Dropout(c.dropout), nn.Dropout(c.dropout)
            self.n_head, self.n_embd, self.dropout = c.n_head, c.n_embd, c.dropout
            self.flash = False
            mask = torch.tril(torch.ones(c.block_size, c.block_size))
            self.register_buffer("bias", mask.view(1, 1, c.block_size, c.block_size))

        def forward(self, x):
            B, T, C = x.size()
            q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
            k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            if self.flash:
                p = self.dropout if self.training else 0
                y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
            else:
                att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
                att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
                y = self.attn_dropout(F.softmax(att, dim=-1)) @ v
            y = y.transpose(1, 2).contiguous().view(B, T, C)
            return self.resid_dropout(self.c_proj(y))

    class Block(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.ln_1, self.attn = LayerNorm(c.n_embd, c.bias), Attention(c)
            self.ln_2, self.mlp = LayerNorm(c.n_embd, c.bias), mlp(c.n_embd, 16, c.n_embd)

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class GPT(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.config = c
            self.transformer = nn.ModuleDict(
                {
                    "wte": nn.Embedding(c.vocab_size, c.n_embd),
                    "wpe": nn.Embedding(c.block_size, c.n_embd),
                    "drop": nn.Dropout(c.dropout),
                    "h": nn.ModuleList([Block(c) for _ in range(c.n_layer)]),
                    "ln_f": LayerNorm(c.n_embd, bias=c.bias),
                }
            )
            self.lm_head = nn.Linear(c.n_embd, c.vocab_size, bias=False)
            self.transformer.wte.weight = self.lm_head.weight
            self.apply(self._init_weights)
            for pn, p in self.named_parameters():
                if pn.endswith("c_proj.weight"):
                    nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(2 * c.n_layer))

        def _init_weights(self, module):
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, mean=0.0, std=0.2)

        def forward(self, idx, targets=None):
            b, t = idx.size()
            assert t <= self.config.block_size, f"cannot forward {t}"
            pos = torch.arange(0, t, dtype=torch.long, device=idx.device)
            x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
            for block in self.transformer.h:
                x = block(x)
            x = self.transformer.ln_f(x)
            if targets is None:
                return self.lm_head(x[:, [-1], :]), None
            logits = self.lm_head(x)
            flat = logits.view(-1, logits.size(-1))
            return logits, F.cross_entropy(flat, targets.view(-1), ignore_index=-1)

        def crop_block_size(self, block_size):
            self.config.block_size = block_size
            self.transformer.wpe.weight = nn.Parameter(self.transformer.wpe.weight[:block_size])
            for block in self.transformer.h:
                block.attn.bias = block.attn.bias[:, :, :block_size, :block_size]

        def configure_optimizers(self, weight_decay, learning_rate, betas):
            named = {pn: p for pn, p in self.named_parameters() if p.requires_grad}
            decay = [p for p in named.values() if p.dim() >= 2]
            rest = [p for p in named.values() if p.dim() < 2]
            groups = [
                {"params": decay, "weight_decay": weight_decay},
                {"params": rest, "weight_decay": 0.0},
            ]
            assert "fused" in inspect.signature(torch.optim.AdamW).parameters
            return torch.optim.AdamW(groups, lr=learning_rate, betas=betas)

    @torch.no_grad()
    def generate(run, config, idx, n, temperature=1.0, top_k=None):
        for _ in range(n):
            cond = idx if idx.size(1) <= config.block_size else idx[:, -config.block_size :]
            logits = run(cond)[0][:, -1, :] / temperature
            if top_k is not None:
                v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                logits[logits < v[:, [-1]]] = -float("Inf")
            idx = torch.cat((idx, torch.multinomial(F.softmax(logits, dim=-1), 1)), dim=1)
        return idx

    model = GPT(GptConfig())
    optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.95))
    run = compiled(model)

    def get_lr(it, warmup=2, total=6):
        if it < warmup:
            return 1e-2 * (it + 1) / (warmup + 1)
        ratio = (it - warmup) / (total - warmup)
        return 1e-3 + 0.5 * (1.0 + math.cos(math.pi * ratio)) * 9e-3

    @torch.no_grad()
    def estimate_loss(batches):
        run.eval()
        losses = torch.stack([run(x, y)[1] for x, y in batches])
        run.train()
        return losses.mean()

    def batch():
        x = torch.randint(0, 17, (3, 9))
        return x[:, :-1].contiguous(), x[:, 1:].contiguous()

    held, out = [batch() for _ in range(2)], []
    for it in range(4):
        for group in optimizer.param_groups:
            group["lr"] = get_lr(it)
        if it % 2 == 0:
            out.append(estimate_loss(held))
        for _ in range(2):
            with nullcontext():
                _, loss = run(*batch())
            (loss / 2).backward()
        out.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        out.append(loss.detach())
    model.eval()
    out.append(generate(run, model.config, held[0][0][:1, :2], 8, 0.8, 5))
    for block in model.transformer.h:
        block.attn.flash = True
    model.crop_block_size(4)
    with torch.no_grad():
        out += run(held[0][0][:, :4], held[0][1][:, :4].contiguous())
    return out + adapted(model)


@idiom
def mini_gpt_trainer(compiled: Compiled) -> list[Any]:
    class CfgNode:
        def __init__(self, **kwargs):
            self.__dict__.update(kwargs)

        def to_dict(self):
            return {
                k: v.to_dict() if isinstance(v, CfgNode) else v for k, v in self.__dict__.items()
            }

        def merge_from_dict(self, d):
            self.__dict__.update(d)

    class Trainer:
        def __init__(self, config, model):
            self.config, self.model = config, model
            self.callbacks = defaultdict(list)
            self.iter_num = 0

        def add_callback(self, onevent, callback):
            self.callbacks[onevent].append(callback)

        def trigger_callbacks(self, onevent):
            for callback in self.callbacks.get(onevent, []):
                callback(self)

        def run(self):
            optimizer = torch.optim.SGD(self.model.parameters(), self.config.lr)
            forward = compiled(self.step)
            while self.iter_num < self.config.max_iters:
                x = torch.randn(3, self.config.model.width)
                self.loss = forward(x, torch.randint(0, 2, (3,)))
                self.model.zero_grad(set_to_none=True)
                self.loss.backward()
                optimizer.step()
                self.trigger_callbacks("on_batch_end")
                self.iter_num += 1

        def step(self, x, y):
            logits = self.model(x) / self.config.temperature
            if self.iter_num >= self.config.model.get_from:
                logits = logits.clamp(-1, 1)
            return F.cross_entropy(logits, y)

    config = CfgNode(
        lr=0.1, max_iters=5, temperature=1.0, model=CfgNode(width=4, get_from=3, name="m")
    )
    model = mlp(4, 8, 2, drop=0.0)
    trainer = Trainer(config, model)
    out: list[Any] = []
    trainer.add_callback("on_batch_end", lambda t: out.append(t.loss.detach()))

    def cool(t):
        if t.iter_num == 1:
            t.config.merge_from_dict({"temperature": 0.5})

    trainer.add_callback("on_batch_end", cool)
    trainer.run()
    return [*out, config.to_dict(), *state(model)]


@idiom
def llama_with_static_cache(compiled: Compiled) -> list[Any]:
    def precompute_freqs_cis(dim, end, theta=10000.0):
        freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: dim // 2].float() / dim))
        freqs = torch.outer(torch.arange(end).float(), freqs)
        return torch.polar(torch.ones_like(freqs), freqs)

    def apply_rotary(xq, xk, cis):
        out = []
        for x in (xq, xk):
            c = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
            cis_ = cis.view(1, c.shape[1], 1, c.shape[-1])
            out.append(torch.view_as_real(c * cis_).flatten(3).type_as(x))
        return out

    def repeat_kv(x, n):
        b, t, h, d = x.shape
        if n == 1:
            return x
        return x[:, :, :, None, :].expand(b, t, h, n, d).reshape(b, t, h * n, d)

    class RMSNorm(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(d))

        def _norm(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

        def forward(self, x):
            return self._norm(x.float()).type_as(x) * self.weight

    class Attention(nn.Module):
        def __init__(self, d=8, heads=4, kv=2):
            super().__init__()
            self.heads, self.kv, self.hd = heads, kv, d // heads
            self.wq = nn.Linear(d, d, bias=False)
            self.wk = nn.Linear(d, kv * self.hd, bias=False)
            self.wv = nn.Linear(d, kv * self.hd, bias=False)
            self.wo = nn.Linear(d, d, bias=False)
            self.cache_k = torch.zeros(2, 12, kv, self.hd)
            self.cache_v = torch.zeros(2, 12, kv, self.hd)

        def forward(self, x, start, cis, mask):
            b, t, _ = x.shape
            xq = self.wq(x).view(b, t, self.heads, self.hd)
            xk = self.wk(x).view(b, t, self.kv, self.hd)
            xv = self.wv(x).view(b, t, self.kv, self.hd)
            xq, xk = apply_rotary(xq, xk, cis)
            self.cache_k = self.cache_k.to(xq)
            self.cache_k[:b, start : start + t] = xk
            self.cache_v[:b, start : start + t] = xv
            keys = repeat_kv(self.cache_k[:b, : start + t], self.heads // self.kv)
            values = repeat_kv(self.cache_v[:b, : start + t], self.heads // self.kv)
            xq, keys, values = (z.transpose(1, 2) for z in (xq, keys, values))
            scores = xq @ keys.transpose(2, 3) / math.sqrt(self.hd)
            if mask is not None:
                scores = scores + mask
            y = F.softmax(scores.float(), dim=-1).type_as(xq) @ values
            return self.wo(y.transpose(1, 2).contiguous().view(b, t, -1))

    class Llama(nn.Module):
        def __init__(self, vocab=13, d=8):
            super().__init__()
            self.embed = nn.Embedding(vocab, d)
            self.norms = nn.ModuleList(RMSNorm(d) for _ in range(4))
            self.attns = nn.ModuleList(Attention(d) for _ in range(2))
            self.w1, self.w2, self.w3 = nn.Linear(d, 16), nn.Linear(16, d), nn.Linear(d, 16)
            self.out = nn.Linear(d, vocab, bias=False)
            self.freqs_cis = precompute_freqs_cis(2, 24)

        @torch.inference_mode()
        def forward(self, tokens, start: int):
            _, t = tokens.shape
            h = self.embed(tokens)
            cis = self.freqs_cis[start : start + t]
            mask = None
            if t > 1:
                mask = torch.triu(torch.full((t, t), float("-inf")), diagonal=1)
                mask = torch.hstack([torch.zeros((t, start)), mask]).type_as(h)
            for i, attn in enumerate(self.attns):
                h = h + attn(self.norms[2 * i](h), start, cis, mask)
                n = self.norms[2 * i + 1](h)
                h = h + self.w2(F.silu(self.w1(n)) * self.w3(n))
            return self.out(h).float()

    def sample_top_p(probs, p):
        probs_sort, probs_idx = torch.sort(probs, dim=-1, descending=True, stable=True)
        probs_sum = torch.cumsum(probs_sort, dim=-1)
        probs_sort[probs_sum - probs_sort > p] = 0.0
        probs_sort.div_(probs_sort.sum(dim=-1, keepdim=True))
        return torch.gather(probs_idx, -1, torch.multinomial(probs_sort, num_samples=1))

    model = Llama().eval()
    run, choose = compiled(model), compiled(sample_top_p)
    out: list[Any] = []
    for batch, length in ((2, 3), (1, 5)):
        tokens = torch.randint(0, 13, (batch, length))
        prev = 0
        while tokens.shape[1] < 9:
            logits = run(tokens[:, prev:], prev)
            prev = tokens.shape[1]
            token = choose(torch.softmax(logits[:, -1] / 0.7, dim=-1), 0.9)
            tokens = torch.cat([tokens, token], 1)
            out.append(logits.clone())
        out += [tokens, *(a.cache_k.clone() for a in model.attns)]
    return out


@idiom
def rwkv_in_both_forms(compiled: Compiled) -> list[Any]:
    class TimeMix(nn.Module):
        def __init__(self, d=4):
            super().__init__()
            self.decay, self.bonus = nn.Parameter(torch.randn(d)), nn.Parameter(torch.randn(d))
            self.mix = nn.Parameter(torch.rand(3, d))
            self.k, self.v, self.r, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))

        def forward(self, x, state=None):
            b, t, d = x.shape
            if state is None:
                state = (x.new_zeros(b, d), x.new_zeros(b, d), x.new_full((b, d), -1e30)) + (
                    x.new_zeros(b, d),
                )
            num, den, top, last = state
            before = torch.cat([last[:, None], x[:, :-1]], 1)
            xk, xv, xr = (x * m + before * (1 - m) for m in self.mix)
            k, v, r = self.k(xk), self.v(xv), torch.sigmoid(self.r(xr))
            w = -torch.exp(self.decay)
            out = torch.empty_like(v)
            for i in range(t):
                ki, vi = k[:, i], v[:, i]
                q = torch.maximum(top, self.bonus + ki)
                a, e = torch.exp(top - q), torch.exp(self.bonus + ki - q)
                out[:, i] = (a * num + e * vi) / (a * den + e)
                q = torch.maximum(top + w, ki)
                a, e = torch.exp(top + w - q), torch.exp(ki - q)
                num, den, top = a * num + e * vi, a * den + e, q
            return self.o(r * out), (num, den, top, x[:, -1])

    model = TimeMix()
    run = compiled(model)
    out: list[Any] = []
    for t in (4, 3, 4):
        x = torch.randn(2, t, 4, requires_grad=True)
        y, s = run(x)
        (y.square().mean() + s[0].mean()).backward()
        out += [y.detach(), x.grad, *(v.detach() for v in s)]
    with torch.no_grad():
        s, pieces = None, []
        for i in range(4):
            y, s = run(x[:, i : i + 1], s)
            pieces.append(y)
        out.append(torch.cat(pieces, 1))
    return out + [p.grad for p in model.parameters()]


@idiom
def mamba_with_steps(compiled: Compiled) -> list[Any]:
    class Mamba(nn.Module):
        def __init__(self, d=4, n=3, width=3, rank=2):
            super().__init__()
            self.inner, self.n, self.rank, self.width = 2 * d, n, rank, width
            self.in_proj = nn.Linear(d, 4 * d, bias=False)
            self.conv = nn.Conv1d(2 * d, 2 * d, width, groups=2 * d, padding=width - 1)
            self.x_proj = nn.Linear(2 * d, rank + 2 * n, bias=False)
            self.dt_proj = nn.Linear(rank, 2 * d)
            a = torch.arange(1, n + 1, dtype=torch.float32).repeat(2 * d, 1)
            self.A_log, self.D = nn.Parameter(torch.log(a)), nn.Parameter(torch.ones(2 * d))
            self.out_proj = nn.Linear(2 * d, d, bias=False)

        def ssm(self, x):
            dt, b, c = self.x_proj(x).split([self.rank, self.n, self.n], -1)
            return F.softplus(self.dt_proj(dt)), b, c, -torch.exp(self.A_log.float())

        def forward(self, u):
            x, z = self.in_proj(u).chunk(2, -1)
            x = F.silu(self.conv(x.mT)[..., : u.shape[1]]).mT
            dt, b, c, a = self.ssm(x)
            da = torch.exp(torch.einsum("bld,dn->bldn", dt, a))
            dbu = torch.einsum("bld,bln,bld->bldn", dt, b, x)
            h = x.new_zeros(x.shape[0], self.inner, self.n)
            ys = []
            for i in range(x.shape[1]):
                h = da[:, i] * h + dbu[:, i]
                ys.append(torch.einsum("bdn,bn->bd", h, c[:, i]))
            y = torch.stack(ys, 1) + x * self.D
            return self.out_proj(y * F.silu(z))

        def step(self, u, conv_state, state):
            x, z = self.in_proj(u).chunk(2, -1)
            conv_state.copy_(torch.roll(conv_state, shifts=-1, dims=-1))
            conv_state[:, :, -1] = x
            x = (conv_state * self.conv.weight[:, 0]).sum(-1) + self.conv.bias
            x = F.silu(x)
            dt, b, c, a = self.ssm(x)
            da = torch.exp(torch.einsum("bd,dn->bdn", dt, a))
            state.copy_(state * da + x[..., None] * torch.einsum("bd,bn->bdn", dt, b))
            y = torch.einsum("bdn,bn->bd", state, c) + self.D * x
            return self.out_proj(y * F.silu(z))

    model = Mamba()
    run, step = compiled(model), compiled(model.step)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out: list[Any] = []
    for t in (4, 5, 4):
        out.append(descend(optimizer, run(torch.randn(2, t, 4)).square().mean()))
    with torch.no_grad():
        u = torch.randn(2, 4, 4)
        conv_state, ssm_state = torch.zeros(2, 8, 3), torch.zeros(2, 8, 3)
        steps = torch.stack([step(u[:, i], conv_state, ssm_state) for i in range(4)], 1)
        out += [steps, run(u), conv_state, ssm_state]
    return out + state(model)
