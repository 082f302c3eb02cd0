"""torch.func, custom functions of autograd, hooks, checkpoints and copies of compiled things."""

from __future__ import annotations

import copy
import functools
import io
import pickle
import threading
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)
from torch.utils.checkpoint import checkpoint

from tests.slow.batteries.idioms.common import (
    Compiled,
    adapted,
    descend,
    idiom,
    mlp,
    state,
    values_and_gradients,
)


@idiom
def ensemble_by_stacking(compiled: Compiled) -> list[Any]:
    models = [mlp(4, 6, 2, drop=0.0) for _ in range(3)]
    params, buffers = stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")

    def one(p, b, x):
        return functional_call(base, (p, b), (x,))

    def predict(p, b, x):
        shared = vmap(one, in_dims=(0, 0, None))(p, b, x)
        return shared.mean(0), shared.var(0)

    def loss(p, b, x, y):
        out = vmap(one, in_dims=(0, 0, 0), randomness="same")(p, b, x)
        return F.mse_loss(out, y)

    run, run_loss = compiled(predict), compiled(loss)
    optimizer = torch.optim.SGD(params.values(), 0.1)
    out: list[Any] = []
    for n in (4, 4, 6):
        value = run_loss(params, buffers, torch.randn(3, n, 4), torch.randn(3, n, 2))
        out.append(descend(optimizer, value))
        out += [v.detach() for v in run(params, buffers, torch.randn(n, 4))]
    return out + [p.detach() for p in params.values()]


@idiom
def influence_and_fisher(compiled: Compiled) -> list[Any]:
    model = mlp(4, 5, 3, drop=0.0)
    params = {k: v.detach() for k, v in model.named_parameters()}

    def loss(p, x, y):
        return F.cross_entropy(functional_call(model, p, (x[None],)), y[None])

    def fisher(p, x, y):
        g = vmap(grad(loss), in_dims=(None, 0, 0))(p, x, y)
        norms = torch.stack([v.flatten(1).norm(dim=1) for v in g.values()]).norm(dim=0)
        return {k: (v**2).mean(0) for k, v in g.items()}, norms

    def private(p, x, y, clip=1.0):
        g, values = vmap(grad_and_value(loss), (None, 0, 0))(p, x, y)
        norms = torch.stack([v.flatten(1).norm(dim=1) for v in g.values()]).norm(dim=0)
        factor = (clip / (norms + 1e-6)).clamp(max=1.0)
        total = {k: torch.einsum("b,b...->...", factor, v) for k, v in g.items()}
        noisy = {k: v + 0.1 * torch.randn_like(v) for k, v in total.items()}
        return {k: p[k] - 0.1 * noisy[k] / len(x) for k in p}, values

    run, run_private = compiled(fisher), compiled(private)
    out: list[Any] = []
    for n, clip in ((4, 1.0), (4, 0.5), (6, 0.5)):
        x, y = torch.randn(n, 4), torch.randint(0, 3, (n,))
        f, norms = run(params, x, y)
        params, values = run_private(params, x, y, clip)
        out += [*f.values(), norms, values]
    return out + list(params.values())


@idiom
def jacobians_of_a_field(compiled: Compiled) -> list[Any]:
    net = mlp(3, 8, 3, drop=0.0)

    def divergence(x):
        return vmap(lambda v: torch.trace(jacrev(net)(v)))(x)

    def hutchinson(x, e):
        y, pull = vjp(net, x)
        return y, (pull(e)[0] * e).sum(-1)

    def forward_mode(x, t):
        return jvp(net, (x,), (t,))

    def laplacian(x):
        return vmap(hessian(lambda v: net(v).square().sum()))(x).diagonal(dim1=-2, dim2=-1).sum(-1)

    runs = [compiled(f) for f in (divergence, laplacian)]
    run_h, run_f = compiled(hutchinson), compiled(forward_mode)
    run_j = compiled(lambda x: vmap(jacfwd(net))(x).flatten(1))
    out: list[Any] = []
    for n in (4, 4, 5):
        x = torch.randn(n, 3)
        out += [r(x).detach() for r in (*runs, run_j)]
        out += [v.detach() for v in (*run_h(x, torch.sign(torch.randn(n, 3))), *run_f(x, x * 2))]
    loss = compiled(lambda x: hutchinson(x, torch.ones_like(x))[1].square().mean())(x)
    loss.backward()
    return out + [p.grad for p in net.parameters()]


@idiom
def functional_maml(compiled: Compiled) -> list[Any]:
    model = mlp(1, 8, 1, drop=0.0)
    params = dict(model.named_parameters())

    def loss(p, x, y):
        return F.mse_loss(functional_call(model, p, (x,)), y)

    def adapt(p, x, y, x2, y2, steps=1):
        for _ in range(steps):
            g = grad(loss)(p, x, y)
            p = {k: v - 0.1 * g[k] for k, v in p.items()}
        return loss(p, x2, y2)

    def meta(p, *tasks, steps=1):
        return vmap(functools.partial(adapt, steps=steps), in_dims=(None, 0, 0, 0, 0))(
            p, *tasks
        ).mean()

    run = compiled(meta)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out: list[Any] = []
    for steps, tasks in ((1, 3), (1, 3), (2, 3), (1, 4)):
        data = [torch.randn(tasks, 5, 1) for _ in range(4)]
        out.append(descend(optimizer, run(params, *data, steps=steps)))
    return out + state(model)


class ScaleGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, name=None):
        ctx.scale, ctx.name = scale, name
        ctx.shape = x.shape
        ctx.mark_non_differentiable()
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        assert g.shape == ctx.shape
        factor = ctx.scale if ctx.name != "neg" else -ctx.scale
        return g * factor, None, None


class MemoryEfficientSwish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, i):
        ctx.save_for_backward(i)
        return i * torch.sigmoid(i)

    @staticmethod
    def backward(ctx, g):
        (i,) = ctx.saved_tensors
        s = torch.sigmoid(i)
        return g * (s * (1 + i * (1 - s)))


class TopK(torch.autograd.Function):
    """Two outputs, one of them of indices; a context with ``setup_context``."""

    @staticmethod
    def forward(x, k):
        return x.topk(k, -1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, _ = inputs
        ctx.size = x.shape[-1]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, g, _):
        (at,) = ctx.saved_tensors
        if not ctx.needs_input_grad[0]:
            return None, None
        return g.new_zeros(*g.shape[:-1], ctx.size).scatter(-1, at, g), None


class FusedLinearLoss(torch.autograd.Function):
    """Gradients made in forward, chunk by chunk, as large vocabularies have it."""

    @staticmethod
    def forward(ctx, x, w, target, chunks):
        gx, gw, total = torch.empty_like(x), torch.zeros_like(w), x.new_zeros(())
        for piece, t, out in zip(x.chunk(chunks), target.chunk(chunks), gx.chunk(chunks)):
            logits = piece @ w.t()
            p = logits.softmax(-1)
            total += F.cross_entropy(logits, t, reduction="sum")
            p[torch.arange(len(t)), t] -= 1
            out.copy_(p @ w)
            gw.addmm_(p.t(), piece)
        ctx.save_for_backward(gx / len(x), gw / len(x))
        return total / len(x)

    @staticmethod
    def backward(ctx, g):
        gx, gw = ctx.saved_tensors
        return g * gx, g * gw, None, None


@idiom
def custom_functions(compiled: Compiled) -> list[Any]:
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 9, bias=False)

        def forward(self, x, target, scale=0.5, name=None, chunks=2):
            h = MemoryEfficientSwish.apply(self.a(x))
            values, at = TopK.apply(h, 3)
            h = ScaleGrad.apply(h, scale, name) + F.pad(values, (0, 3))
            return FusedLinearLoss.apply(h, self.b.weight, target, chunks), at

    model = Net()
    run = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    out: list[Any] = []
    for n, scale, name, chunks in ((4, 0.5, None, 2), (4, 2.0, "neg", 2), (5, 2.0, None, 3)):
        x = torch.randn(n, 6, requires_grad=True)
        loss, at = run(x, torch.randint(0, 9, (n,)), scale, name, chunks=chunks)
        out += [descend(optimizer, loss), at, x.grad]
    return out + state(model)


@idiom
def hooks_that_record(compiled: Compiled) -> list[Any]:
    class Extractor:
        def __init__(self, model, names):
            self.features: dict[str, torch.Tensor] = {}
            self.handles = [
                module.register_forward_hook(functools.partial(self.keep, name))
                for name, module in model.named_modules()
                if name in names
            ]

        def keep(self, name, module, inputs, output):
            self.features[name] = output

        def remove(self):
            for handle in self.handles:
                handle.remove()

    class CAM:
        def __init__(self, layer):
            self.activation = self.gradient = None
            layer.register_forward_hook(self.save)

        def save(self, module, args, out):
            self.activation = out.detach()
            if out.requires_grad:
                out.register_hook(lambda g: setattr(self, "gradient", g.detach()))

        def map(self):
            weights = self.gradient.mean((2, 3), keepdim=True)
            return F.relu((weights * self.activation).sum(1))

    net = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
    )
    cam, extractor = CAM(net[2]), Extractor(net, {"0", "4"})
    run = compiled(net)
    out: list[Any] = []
    for step in range(4):
        scores = run(torch.randn(2, 1, 8, 8))
        scores[:, step % 3].sum().backward()
        out += [scores.detach(), cam.map(), *(f.detach() for f in extractor.features.values())]
        if step == 1:
            extractor.remove()
            extractor.features.clear()
        if step == 2:
            net[5].register_forward_pre_hook(
                lambda m, args, kwargs: ((args[0] * 0.5,), kwargs), with_kwargs=True
            )
    return out + [p.grad for p in net.parameters()]


@idiom
def saved_tensors_offloaded(compiled: Compiled) -> list[Any]:
    block = mlp(6, 12, 6, drop=0.2)
    packed: list[Any] = []

    def pack(t):
        packed.append(tuple(t.shape))
        return t.to(torch.float64)

    def unpack(t):
        return t.to(torch.float32)

    def step(x, offload):
        if offload:
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                return block(x).square().mean()
        return checkpoint(block, x, use_reentrant=False).square().mean()

    run = compiled(step)
    optimizer = torch.optim.SGD(block.parameters(), 0.1)
    out: list[Any] = []
    for offload in (False, False, True, True):
        x = torch.randn(3, 6, requires_grad=True)
        out += [descend(optimizer, run(x, offload)), x.grad]
    return out + state(block)


@idiom
def copied_and_pickled(compiled: Compiled) -> list[Any]:
    model = mlp(4, 6, 2)
    run = compiled(model)
    x = torch.randn(3, 4)
    out = [run(x).detach()]
    twin = copy.deepcopy(run)
    with torch.no_grad():
        for p in twin.parameters():
            p.mul_(0.5)
    out += [twin.eval()(x).detach(), run(x).detach(), twin.training, run.training]
    buffer = io.BytesIO()
    torch.save({k.removeprefix("_orig_mod."): v for k, v in run.state_dict().items()}, buffer)
    buffer.seek(0)
    fresh = mlp(4, 6, 2)
    fresh.load_state_dict(torch.load(buffer))
    again = compiled(fresh)
    again.eval()
    out.append(again(x).detach())
    ema = copy.deepcopy(model)
    loaded = pickle.loads(pickle.dumps(model.state_dict()))
    ema.load_state_dict({k: v * 0.9 for k, v in loaded.items()})
    out.append(compiled(ema)(x).detach())
    run.eval()
    fresh.load_state_dict(ema.state_dict(), strict=True)
    with torch.no_grad():
        out += [run(x), again(x)]
    return out + [sorted(k.removeprefix("_orig_mod.") for k in run.state_dict())]


@idiom
def threads_share_a_model(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    run = compiled(model)
    inputs = [torch.randn(n, 4) for n in (2, 3, 4, 2, 5, 3)]
    found: dict[int, Any] = {}

    def work(index):
        with torch.no_grad():
            for _ in range(3):
                found[index] = run(inputs[index])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(inputs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return [found[i] for i in range(len(inputs))]


@idiom
def compiler_switches(compiled: Compiled) -> list[Any]:
    @torch.compiler.disable
    def host_side(x):
        return float(x.abs().max()), x.tolist()[0]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        @torch.compiler.disable(recursive=False)
        def middle(self, x):
            return self.b(x) * 2

        def forward(self, x):
            y = torch.relu(self.a(x))
            top, first = host_side(y.detach())
            y = self.middle(y)
            torch._dynamo.graph_break()
            return y / max(top, 1e-3) + first[0]

    model = Net()
    run = compiled(model)
    whole = compiled(lambda x: model.a(x).sin(), fullgraph=True, dynamic=True)
    out: list[Any] = []
    for n in (2, 3, 3):
        y = run(torch.randn(n, 4))
        y.sum().backward()
        x = torch.randn(n + 1, 4)
        torch._dynamo.mark_dynamic(x, 0)
        out += [y.detach(), whole(x).detach()]
    with torch.inference_mode():
        out.append(run(torch.randn(2, 4)).clone())
    return out + [p.grad for p in model.parameters()]


@idiom
def lazy_modules_and_lists(compiled: Compiled) -> list[Any]:
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.LazyConv2d(4, 3, padding=1), nn.LazyBatchNorm2d())
            self.heads = nn.ModuleDict({"a": nn.LazyLinear(2), "b": nn.LazyLinear(3)})
            self.scales = nn.ParameterList([nn.Parameter(torch.ones(4, 1, 1)) for _ in range(2)])
            self.bias = nn.ParameterDict({"a": nn.Parameter(torch.zeros(2))})

        def forward(self, x, tasks=("a", "b")):
            h = self.stem(x)
            for s in self.scales:
                h = F.relu(h * s)
            h = F.adaptive_avg_pool2d(h, 2).flatten(1)
            out = {}
            for name, head in self.heads.items():
                if name not in tasks:
                    continue
                out[name] = head(h)
                if name in self.bias:
                    out[name] = out[name] + self.bias[name]
            return out

    model = Net()
    run = compiled(model)
    run(torch.randn(2, 3, 6, 6))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    out: list[Any] = []
    for tasks in (("a", "b"), ("b",), ("a", "b")):
        found = run(torch.randn(2, 3, 6, 6), tasks)
        out += [sorted(found), descend(optimizer, sum(v.square().mean() for v in found.values()))]
    model.scales.append(nn.Parameter(torch.full((4, 1, 1), 0.5)))
    out += [v.detach() for v in run(torch.randn(2, 3, 6, 6)).values()]
    return out + adapted(model)


@idiom(rounded="TorchScript has its own formula of a derivative", bound=1e-6)
def scripted_and_layouts(compiled: Compiled) -> list[Any]:
    @torch.jit.script
    def gelu_fast(x):
        return 0.5 * x * (1.0 + torch.tanh(0.79788456 * x * (1.0 + 0.044715 * x * x)))

    conv = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)
    ).to(memory_format=torch.channels_last)

    def step(x):
        h = gelu_fast(conv(x))
        return h.permute(0, 2, 3, 1).flatten(0, 2), h.is_contiguous(
            memory_format=torch.channels_last
        )

    run = compiled(step)
    out: list[Any] = []
    for n, form in (
        (2, torch.channels_last),
        (2, torch.contiguous_format),
        (0, torch.channels_last),
        (3, torch.channels_last),
    ):
        if n == 0:
            conv.eval()
        y, last = run(torch.randn(n, 3, 5, 5).to(memory_format=form))
        y.square().sum().backward()
        out += [y.detach(), last]
        conv.train()
    half = values_and_gradients(
        compiled,
        lambda a, b: (a @ b).softmax(-1).to(torch.float32).logsumexp(-1),
        lambda: (torch.randn(3, 4, dtype=torch.bfloat16), torch.randn(4, 5, dtype=torch.bfloat16)),
        lambda: (torch.randn(3, 4, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)),
        lambda: (torch.randn(3, 4, dtype=torch.float16), torch.randn(4, 5, dtype=torch.float16)),
    )
    return out + half + [p.grad for p in conv.parameters()]
