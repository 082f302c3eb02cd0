"""What is done to modules and within them: hooks, checkpoints, pruning, other dtypes."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from tests.slow.batteries.idioms.common import (
    Adapted,
    Compiled,
    adapted,
    descend,
    fit,
    idiom,
    mlp,
    state,
)


@idiom
def checkpointed(compiled: Compiled) -> list[Any]:
    blocks = nn.ModuleList([mlp(8, 16, 8) for _ in range(3)])

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.bs = blocks

        def forward(self, x):
            for b in self.bs:
                x = x + checkpoint(b, x, use_reentrant=False)
            return x

    model = M()
    run = compiled(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    out = []
    for _ in range(3):
        loss = run(torch.randn(4, 8)).square().mean()
        out.append(descend(optimizer, loss))
    sequence = nn.Sequential(*blocks)
    run_sequence = compiled(lambda x: checkpoint_sequential(sequence, 2, x, use_reentrant=False))
    loss = run_sequence(torch.randn(4, 8, requires_grad=True)).sum()
    loss.backward()
    out.append(loss.detach())
    return out + adapted(model) + [p.grad for p in model.parameters()]


@idiom
def tied_weights(compiled: Compiled) -> list[Any]:
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(20, 8, padding_idx=0)
            self.l = nn.Linear(8, 8)
            self.h = nn.Linear(8, 20, bias=False)
            self.h.weight = self.embedding.weight

        def forward(self, i):
            return self.h(torch.tanh(self.l(self.embedding(i))))

    model = M()
    run = compiled(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    out = []
    for _ in range(4):
        i = torch.randint(0, 20, (3, 5))
        loss = F.cross_entropy(
            run(i).flatten(0, 1), i.flatten(), ignore_index=0, label_smoothing=0.1
        )
        out.append(descend(optimizer, loss))
    return out + adapted(model)


@idiom
def parametrizations(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)),
        nn.ReLU(),
        nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)),
        nn.Tanh(),
        nn.utils.parametrizations.orthogonal(nn.Linear(8, 8)),
    )
    run = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out = []
    for _ in range(3):
        loss = run(torch.randn(4, 8)).square().mean()
        out.append(descend(optimizer, loss))
    return out + state(model)


@idiom
def old_norms(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(
        nn.utils.weight_norm(nn.Linear(8, 8)), nn.ReLU(), nn.utils.spectral_norm(nn.Linear(8, 4))
    )
    run = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out = []
    for _ in range(3):
        loss = run(torch.randn(4, 8)).square().mean()
        out.append(descend(optimizer, loss))
    return out + state(model)


@idiom
def forward_and_backward_hooks(compiled: Compiled) -> list[Any]:
    model = mlp(drop=0.0)
    seen = []
    model[0].register_forward_hook(lambda mod, i, o: o * 2)
    model[0].register_full_backward_hook(lambda mod, gi, go: seen.append(go[0].clone()))
    model[3].register_forward_pre_hook(lambda mod, i: (i[0] + 1,))
    for p in model.parameters():
        p.register_hook(lambda g: g * 0.5)
    model[3].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    run = compiled(model)
    for _ in range(2):
        run(torch.randn(4, 8)).square().mean().backward()
    return seen + [p.grad for p in model.parameters()]


@idiom
def pruning(compiled: Compiled) -> list[Any]:
    model = mlp()
    prune.l1_unstructured(model[0], "weight", 0.5)
    prune.random_structured(model[3], "weight", 0.25, dim=0)
    run = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out = []
    for _ in range(3):
        loss = run(torch.randn(4, 8)).square().mean()
        out.append(descend(optimizer, loss))
    prune.remove(model[0], "weight")
    return out + [run(torch.ones(1, 8)).detach()] + state(model)


@idiom
def quantisation_aware(compiled: Compiled) -> list[Any]:
    scale = nn.Parameter(torch.tensor(0.1))
    weight = nn.Parameter(torch.randn(4, 8))

    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, g):
            return g

    def f(x):
        q = Round.apply(weight / scale).clamp(-8, 7) * scale
        return (
            F.linear(torch.fake_quantize_per_tensor_affine(x, 0.05, 0, -128, 127), q)
            .square()
            .mean()
        )

    run = compiled(f)
    optimizer = torch.optim.Adam([scale, weight], 1e-2)
    out = []
    for _ in range(3):
        loss = run(torch.randn(6, 8))
        out.append(descend(optimizer, loss))
    return out + [Adapted(scale.detach()), Adapted(weight.detach())]


@idiom
def norms_and_statistics(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.BatchNorm2d(6, momentum=None),
        nn.ReLU(),
        nn.InstanceNorm2d(6, affine=True, track_running_stats=True),
        nn.Conv2d(6, 6, 3, groups=3),
        nn.GroupNorm(2, 6),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.BatchNorm1d(6),
        nn.Linear(6, 2),
    )
    run = compiled(model)
    optimizer = torch.optim.SGD(
        model.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=1e-2
    )
    out = []
    for _ in range(3):
        loss = F.cross_entropy(run(torch.randn(5, 3, 8, 8)), torch.arange(5) % 2)
        out.append(descend(optimizer, loss))
    model.eval()
    out.append(run(torch.randn(2, 3, 8, 8)).detach())
    model.train()
    model[1].eval()
    out.append(run(torch.randn(4, 3, 8, 8)).detach())
    return out + state(model)


@idiom
def in_place_activations(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 4, 1),
        nn.LeakyReLU(0.1, inplace=True),
        nn.Dropout(0.3),
        nn.Hardswish(),
        nn.Flatten(),
        nn.LazyLinear(2),
    )
    model(torch.zeros(1, 3, 6, 6))
    run = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out = []
    for _ in range(3):
        loss = run(torch.randn(2, 3, 6, 6)).square().mean()
        out.append(descend(optimizer, loss))
    return out + state(model)


@idiom(coarse="all of it is in float16", within=5e-3)
def fp16_cpu(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.RMSNorm(16), nn.Linear(16, 4)).half()
    run = compiled(model)
    y = run(torch.randn(3, 8).half())
    y.float().square().mean().backward()
    return [y.detach()] + [p.grad for p in model.parameters()]


@idiom(coarse="one of the calls is in bfloat16", within=2e-2)
def dtype_and_device_moves(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    run = compiled(model)
    out = [run(torch.ones(2, 4)).detach()]
    model.double()
    out.append(run(torch.ones(2, 4, dtype=torch.double)).detach())
    model.bfloat16()
    out.append(run(torch.ones(2, 4, dtype=torch.bfloat16)).detach())
    model.float()
    out.append(run(torch.ones(2, 4)).detach())
    model.to(memory_format=torch.preserve_format)
    return out


@idiom
def weight_surgery(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    run = compiled(model)
    x = torch.randn(3, 4)
    out = [run(x).detach()]
    model[0] = nn.Linear(4, 8)
    out.append(run(x).detach())
    model[2].weight = nn.Parameter(torch.ones(2, 8))
    out.append(run(x).detach())
    model.append(nn.Softmax(-1))
    out.append(run(x).detach())
    del model[1]
    out.append(run(x).detach())
    model[0].bias = None
    out.append(run(x).detach())
    model[0].weight.data.mul_(2)
    out.append(run(x).detach())
    return out


@idiom
def running_normaliser(compiled: Compiled) -> list[Any]:
    class R(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))
            self.register_buffer("var", torch.ones(4))
            self.register_buffer("count", torch.tensor(1e-4))

        def forward(self, x):
            if self.training:
                m, v, n = x.mean(0), x.var(0, unbiased=False), len(x)
                d = m - self.mean
                t = self.count + n
                self.mean = self.mean + d * n / t
                self.var = (self.var * self.count + v * n + d**2 * self.count * n / t) / t
                self.count = t
            return ((x - self.mean) / (self.var + 1e-8).sqrt()).clamp(-5, 5)

    model = R()
    run = compiled(model)
    out = [run(torch.randn(6, 4) * 3 + 1) for _ in range(3)]
    model.eval()
    return out + [run(torch.ones(2, 4))] + state(model)


@idiom
def stochastic_depth(compiled: Compiled) -> list[Any]:
    class S(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(4)])

        def forward(self, x):
            for layer in self.layers:
                if self.training and torch.rand(1).item() < 0.3:
                    continue
                x = x + layer(x) * torch.empty(len(x), 1).bernoulli_(0.8) / 0.8
            return x.square().mean()

    return fit(S(), lambda: (torch.randn(3, 4),), compiled, 4)


@idiom
def hyper_network(compiled: Compiled) -> list[Any]:
    class H(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 4 * 5 + 5)
            self.z = nn.Parameter(torch.randn(3))

        def forward(self, x):
            p = self.linear(self.z)
            return F.linear(x, p[:20].view(5, 4), p[20:]).square().mean()

    return fit(H(), lambda: (torch.randn(3, 4),), compiled)


@idiom
def mixture_of_experts(compiled: Compiled) -> list[Any]:
    class Moe(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 4)
            self.e = nn.ModuleList([mlp(8, 8, 8) for _ in range(4)])

        def forward(self, x):
            w, i = self.linear(x).softmax(-1).topk(2)
            w = w / w.sum(-1, keepdim=True)
            y = torch.zeros_like(x)
            for n, e in enumerate(self.e):
                r, k = torch.where(i == n)
                if r.numel():
                    y.index_add_(0, r, e(x[r]) * w[r, k, None])
            return y

    model = Moe()
    run = compiled(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    out = []
    for _ in range(3):
        loss = (run(torch.randn(9, 8)) - 1).square().mean()
        out.append(descend(optimizer, loss))
    return out + adapted(model)


@idiom
def sparse_embedding(compiled: Compiled) -> list[Any]:
    bag = nn.EmbeddingBag(20, 4, mode="sum", sparse=True)
    optimizer = torch.optim.SparseAdam(bag.parameters(), 1e-2)
    run = compiled(bag)
    out = []
    for _ in range(3):
        loss = run(torch.randint(0, 20, (3, 4))).square().mean()
        out.append(descend(optimizer, loss))
    return out + adapted(bag)


@idiom
def dlrm(compiled: Compiled) -> list[Any]:
    class D(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.ModuleList([nn.EmbeddingBag(30, 4, mode=m) for m in ("sum", "mean", "max")])
            self.b = nn.Linear(5, 4)
            self.t = nn.Linear(4 + 6, 1)

        def forward(self, x, i, o):
            v = torch.stack([self.b(x).relu()] + [e(i, o) for e in self.e], 1)
            z = v @ v.transpose(1, 2)
            a, b = torch.tril_indices(4, 4, -1)
            return F.binary_cross_entropy_with_logits(
                self.t(torch.cat([v[:, 0], z[:, a, b]], 1))[:, 0], torch.ones(len(x))
            )

    return fit(
        D(),
        lambda: (torch.randn(3, 5), torch.randint(0, 30, (9,)), torch.tensor([0, 2, 6])),
        compiled,
    )


@idiom
def deep_equilibrium(compiled: Compiled) -> list[Any]:
    inner, outer = nn.Linear(6, 6), nn.Linear(4, 6)

    class Fixed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, z, x, *ps):
            with torch.enable_grad():
                z1 = z.detach().requires_grad_()
                x1 = x.detach().requires_grad_()
                y = torch.tanh(F.linear(z1, ps[0], ps[1]) + x1)
            ctx.y, ctx.z, ctx.x, ctx.ps = y, z1, x1, ps
            return y.detach()

        @staticmethod
        def backward(ctx, g):
            v = g
            for _ in range(5):
                v = torch.autograd.grad(ctx.y, ctx.z, v, retain_graph=True)[0] + g
            gs = torch.autograd.grad(ctx.y, [ctx.x, *ctx.ps], v)
            return None, *gs

    def f(x):
        x = outer(x)
        z = torch.zeros(len(x), 6)
        with torch.no_grad():
            for _ in range(5):
                z = torch.tanh(inner(z) + x)
        return Fixed.apply(z, x, inner.weight, inner.bias)

    run = compiled(f)
    modules = nn.ModuleList([inner, outer])
    optimizer = torch.optim.SGD(modules.parameters(), 0.1)
    out = []
    for _ in range(2):
        loss = run(torch.randn(3, 4)).square().mean()
        out.append(descend(optimizer, loss))
    return out + state(modules)


@idiom
def graph_network(compiled: Compiled) -> list[Any]:
    class Gcn(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 3)

        def agg(self, x, e):
            return (
                torch.zeros_like(x).index_add(0, e[1], x[e[0]])
                / torch.zeros(len(x))
                .scatter_add(0, e[1], torch.ones(e.shape[1]))
                .clamp(min=1)[:, None]
            )

        def forward(self, x, e):
            return self.b(self.agg(F.relu(self.a(self.agg(x, e))), e))

    model = Gcn()
    run = compiled(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    out = []
    for n in (10, 12, 15):
        loss = F.cross_entropy(
            run(torch.randn(n, 8), torch.randint(0, n, (2, 3 * n))), torch.arange(n) % 3
        )
        out.append(descend(optimizer, loss))
    return out + adapted(model)


@idiom
def capsules(compiled: Compiled) -> list[Any]:
    class C(nn.Module):
        def __init__(self):
            super().__init__()
            self.W = nn.Parameter(torch.randn(1, 6, 3, 4, 2) * 0.1)

        def forward(self, x):
            u = (self.W @ x[:, :, None, :, None])[..., 0]
            b = torch.zeros(*u.shape[:3], 1)

            def sq(v):
                return (n := v.square().sum(-1, keepdim=True)) / (1 + n) * v / (n + 1e-8).sqrt()

            for r in range(3):
                c = b.softmax(2)
                v = sq((c * u).sum(1))
                b = b + (u * v[:, None]).sum(-1, keepdim=True) if r < 2 else b
            return (v.norm(dim=-1) - 1).square().mean()

    return fit(C(), lambda: (torch.randn(2, 6, 2),), compiled)


@idiom
def closures_and_partials(compiled: Compiled) -> list[Any]:
    scale = [2.0]
    k = {"a": 1}

    def mk(p):
        def f(x, q=3):
            return x**p * scale[0] + k["a"] * q

        return f

    f = compiled(functools.partial(mk(2), q=5))
    x = torch.randn(3)
    out = [f(x)]
    scale[0] = 3.0
    out.append(f(x))
    k["a"] = 2
    out.append(f(x))
    g = compiled(lambda *a, **kw: sum(a) + kw.get("z", 0))
    out += [g(x, x), g(x, x, x), g(x, z=x)]
    return out


@idiom
def nested_structures(compiled: Compiled) -> list[Any]:
    def f(b):
        return {
            "a": [t * 2 for t in b["xs"]],
            "b": (b["y"]["z"].sum(), *[None, b.get("n")]),
            "c": {k: v + 1 for k, v in b["y"].items()},
            **{f"k{i}": t for i, t in enumerate(b["xs"])},
        }

    run = compiled(f)
    r = run({"xs": [torch.ones(2), torch.zeros(3)], "y": {"z": torch.arange(3.0)}, "n": 4})
    r2 = run({"xs": [torch.ones(2)], "y": {"z": torch.arange(4.0), "w": torch.ones(1)}})
    return torch.utils._pytree.tree_leaves((r, r2)) + [list(r), list(r2)]
