"""What is said to the compiler, kinds of callables, modes around a call, sizes that change."""

from __future__ import annotations

import contextvars
import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.slow.batteries.idioms.common import Compiled, idiom, mlp


@idiom
def kinds_of_callables(compiled: Compiled) -> list[Any]:
    class Model:
        gain = 2.0

        def __init__(self, w):
            self.w = w

        def method(self, x):
            return x @ self.w

        @classmethod
        def of_class(cls, x):
            return x * cls.gain

        @staticmethod
        def static(x, n=1):
            return x + n

        @property
        def scaled(self):
            return self.w * 2

        def __call__(self, x, *, bias=None):
            return self.method(x) if bias is None else self.method(x) + bias

    class Child(Model):
        gain = 3.0

        @functools.wraps(Model.method)
        def method(self, x):
            return super().method(x) - 1

    w = torch.randn(3, 3, requires_grad=True)
    a, b = Model(w), Child(w)
    x = torch.randn(2, 3)
    out: list[Any] = []
    for model in (a, b, a):
        for function in (model.method, model.of_class, model.static, model):
            out.append(compiled(function)(x))
    out.append(compiled(functools.partial(a, bias=torch.ones(3)))(x))
    out.append(compiled(functools.partial(functools.partial(Model.static, n=2)))(x))
    out.append(compiled(lambda m: m.scaled * m.gain)(b))
    out.append(compiled(torch.relu)(x))
    out.append(compiled(F.softmax)(x, dim=-1))
    out.append(compiled(torch.nn.functional.layer_norm)(x, (3,)))
    out.append(compiled(sum)([x, x]))

    class Decorated(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return self.encode(x) + self.decode(x)

    Decorated.encode = compiled(lambda self, x: x * self.w)
    Decorated.decode = compiled(lambda self, x: x / self.w, dynamic=True)
    module = Decorated()
    for n in (2, 3):
        y = module(torch.ones(n, 3))
        y.sum().backward()
        out.append(y.detach())
    total = sum(t.sum() for t in out if t.requires_grad)
    total.backward()
    return [*(t.detach() for t in out), w.grad, module.w.grad]


@idiom
def generator_and_coroutine_entries(compiled: Compiled) -> list[Any]:
    def batches(x, size):
        for piece in x.split(size):
            yield piece * 2

    async def fetch(x):
        return x.sin()

    def lazily(x):
        return (row.exp() for row in x)

    def mapped(x):
        return map(torch.neg, x), zip(x, x[1:]), enumerate(x)

    out: list[Any] = []
    run = compiled(batches)
    for n in (4, 5, 4):
        out += run(torch.randn(n), 2)
    coroutine = compiled(fetch)(torch.ones(2))
    try:
        coroutine.send(None)
    except StopIteration as stop:
        out.append(stop.value)
    for _ in range(2):
        out += compiled(lazily)(torch.ones(2, 2))
        negs, pairs, numbered = compiled(mapped)(torch.randn(2, 2))
        out += [*negs, *(t for pair in pairs for t in pair), *(i for i, _ in numbered)]
    out.append(compiled(lambda x: torch.stack(list(batches(x, 1))))(torch.ones(3)))
    return out


@idiom
def regions_that_are_disabled(compiled: Compiled) -> list[Any]:
    calls: list[str] = []

    @torch.compiler.disable
    def logged(x):
        calls.append(f"logged {tuple(x.shape)}")
        return x + 1

    @torch.compiler.disable(recursive=False)
    def outer(x):
        return inner(x) * 2

    def inner(x):
        return x.sin()

    @torch.compiler.allow_in_graph
    def fused(x, y):
        return x * y + y

    @torch.compiler.assume_constant_result
    def constant():
        return 3.0

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            x = logged(self.a(x)) * constant()
            return fused(self.skip(x), outer(x))

        @torch.compiler.disable()
        def skip(self, x):
            calls.append("skip")
            return self.b(x)

    net = Net()
    run = compiled(net)
    out: list[Any] = []
    for n in (2, 2, 4):
        y = run(torch.randn(n, 3))
        y.sum().backward()
        out.append(y.detach())
    off = torch.compiler.disable(net)
    out.append(compiled(lambda x: off(x).sum())(torch.ones(2, 3)).detach())

    def graph_break(x, flag):
        y = x.cos()
        torch._dynamo.graph_break()
        return y + 1 if flag else y

    again = compiled(graph_break)
    out += [again(torch.ones(2), f) for f in (True, False, True)]
    return [*out, calls, *(p.grad for p in net.parameters())]


@idiom
def stances_and_errors(compiled: Compiled) -> list[Any]:
    def f(x, n):
        return x * n + x.shape[0]

    def breaks(x):
        if x.sum() > 0:
            return x.sin()
        return x.cos()

    def fails(x, y):
        return x @ y

    def outcome(call):
        try:
            return call()
        except Exception as error:
            return isinstance(error, RuntimeError), bool(str(error))

    run = compiled(f)
    out: list[Any] = [run(torch.ones(2), 1)]
    with torch.compiler.set_stance("force_eager"):
        out += [run(torch.ones(2), 5), run(torch.ones(4), 1)]
    with torch.compiler.set_stance("eager_on_recompile"):
        out += [run(torch.ones(2), 1), run(torch.ones(5), 9)]
    out.append(run(torch.ones(3), 1))

    @torch.compiler.set_stance("force_eager")
    def within():
        return run(torch.ones(7), 2)

    out.append(within())
    whole = compiled(breaks)
    out += [whole(torch.ones(2)), whole(-torch.ones(2)), whole(torch.ones(3))]
    wrong = compiled(fails)
    for shapes in ((2, 3), (3, 3), (2, 3)):
        out.append(outcome(lambda s=shapes: wrong(torch.ones(2, s[0]), torch.ones(s[1], 2))))
    return out


@idiom
def modes_around_a_call(compiled: Compiled) -> list[Any]:
    class Count(TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.names: list[str] = []

        def __torch_function__(self, function, types, args=(), kwargs=None):
            self.names.append(getattr(function, "__name__", "?"))
            return function(*args, **(kwargs or {}))

    class Scale(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            found = function(*args, **(kwargs or {}))
            return found * 2 if function is torch.sin else found

    class Flops(TorchDispatchMode):
        total = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function is torch.ops.aten.mm.default:
                Flops.total += 2 * args[0].numel() * args[1].shape[1]
            return function(*args, **(kwargs or {}))

    def f(x, w):
        return torch.sin(x @ w) + x.sum()

    def inside(x, w):
        with Scale():
            y = torch.sin(x)
        return y + f(x, w)

    run, run_inside = compiled(f), compiled(inside)
    x, w = torch.randn(2, 3), torch.randn(3, 3, requires_grad=True)
    out: list[Any] = [run(x, w).detach()]
    with Scale():
        out += [run(x, w).detach(), run_inside(x, w).detach()]
    out += [run(x, w).detach(), run_inside(x, w).detach()]
    with Flops():
        out.append(run(x, w).detach())
    out.append(Flops.total)
    with torch.no_grad():
        y = run(x, w)
        out += [y.requires_grad, y]
    with torch.inference_mode():
        y = run(x, w)
        out += [y.is_inference(), y.clone()]
    torch.set_grad_enabled(False)
    out.append(run(x, w).requires_grad)
    torch.set_grad_enabled(True)
    out.append(run(x, w).requires_grad)
    old = torch.get_default_dtype()
    made = compiled(lambda n: torch.zeros(n) + torch.tensor(1.5) + torch.arange(0, 1.0, 0.5))
    out.append(made(2))
    torch.set_default_dtype(torch.double)
    out.append(made(2))
    torch.set_default_dtype(old)
    out.append(made(2))
    with torch.autocast("cpu", torch.bfloat16):
        out.append(run(x, w).dtype == torch.bfloat16)
    with torch.device("meta"):
        out.append(made(2).device.type)
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        out.append(run(x, w).detach())
    torch.use_deterministic_algorithms(True)
    out.append(compiled(lambda x: x.new_empty(3).fill_(2))(x))
    torch.use_deterministic_algorithms(False)
    return out


@idiom
def sizes_that_change(compiled: Compiled) -> list[Any]:
    class Pooler(nn.Module):
        def __init__(self):
            super().__init__()
            self.proj = nn.Linear(4, 4)

        def forward(self, x, lengths):
            b, t, d = x.shape
            if t % 2:
                x = F.pad(x, (0, 0, 0, 1))
                t += 1
            mask = torch.arange(t)[None, :] < lengths[:, None]
            h = self.proj(x).view(b, t // 2, 2, d).amax(2)
            m = mask.view(b, t // 2, 2).any(-1)
            pooled = (h * m[..., None]).sum(1) / m.sum(1, keepdim=True)
            if b > 3:
                pooled = torch.cat([pooled[:3], pooled[3:].mean(0, keepdim=True)])
            return pooled * t**-0.5, h.flatten(0, 1)[: b * 2], (b, t, h.numel())

    def grow(x, k):
        pieces = [x]
        for i in range(k):
            pieces.append(pieces[-1][..., : max(1, x.shape[-1] - i)] * 1.1)
        y = torch.cat(pieces, -1)
        n = y.shape[-1]
        return y.unfold(-1, min(3, n), 2).sum(-1), n, torch.linspace(0, 1, n) @ y.mT, y.new_ones(n)

    out: list[Any] = []
    net = Pooler()
    for options in ({}, {"dynamic": True}, {"dynamic": False}):
        run, run_grow = compiled(net, **options), compiled(grow, **options)
        for b, t in ((2, 4), (3, 5), (5, 6), (1, 7), (4, 2)):
            x = torch.randn(b, t, 4, requires_grad=True)
            y, rest, sizes = run(x, torch.randint(1, t + 1, (b,)))
            (y.sum() + rest.square().sum()).backward()
            out += [y.detach(), rest.detach(), sizes, x.grad, *run_grow(torch.randn(b, t), b % 3)]
    x = torch.randn(4, 6, 4)
    torch._dynamo.mark_dynamic(x, 1, min=2, max=64)
    torch._dynamo.mark_static(x, 2)
    y, rest, sizes = compiled(net)(x, torch.full((4,), 3))
    out += [y.detach(), sizes]
    unbacked = torch.randn(5, 3)
    torch._dynamo.decorators.mark_unbacked(unbacked, 0)
    flat = compiled(lambda x: (x * 2).sum(0) / x.shape[0])
    return [*out, flat(unbacked), flat(torch.randn(7, 3)), *(p.grad for p in net.parameters())]


@idiom
def threads_and_contexts(compiled: Compiled) -> list[Any]:
    scale: contextvars.ContextVar[float] = contextvars.ContextVar("scale", default=1.0)
    local = threading.local()
    lock = threading.Lock()
    done: dict[int, float] = {}

    def f(x, i):
        local.n = getattr(local, "n", 0) + 1
        with lock:
            done[i] = done.get(i, 0.0) + i
        return x * scale.get() + local.n

    run = compiled(f)

    def work(i):
        scale.set(float(i % 3))
        return [run(torch.ones(2 + i % 2), i) for _ in range(2)]

    out: list[Any] = []
    with ThreadPoolExecutor(1) as pool:
        for found in pool.map(work, range(4)):
            out += found
    context = contextvars.copy_context()
    out += context.run(work, 5)
    out += [run(torch.ones(2), 1), scale.get(), sorted(done.items()), local.n]
    net = mlp(3, 4, 2, drop=0.0)
    step = compiled(lambda x: net(x).square().mean())
    losses: dict[int, torch.Tensor] = {}

    def train(i, x):
        losses[i] = torch.autograd.grad(step(x), net[0].weight)[0]

    threads = [threading.Thread(target=train, args=(i, torch.ones(2 + i, 3))) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return [*out, *(losses[i] for i in range(3))]


@torch.library.custom_op("refidioms::scaled_add", mutates_args=())
def scaled_add(x: torch.Tensor, y: torch.Tensor, alpha: float, names: list[int]) -> torch.Tensor:
    return torch.from_numpy(x.numpy(force=True) + alpha * y.numpy(force=True)) * len(names)


@scaled_add.register_fake
def _(x, y, alpha, names):
    return torch.empty_like(x)


def _scaled_setup(ctx, inputs, output):
    _, _, ctx.alpha, names = inputs
    ctx.count = len(names)


scaled_add.register_autograd(
    lambda ctx, g: (g * ctx.count, g * ctx.alpha * ctx.count, None, None),
    setup_context=_scaled_setup,
)


@torch.library.custom_op("refidioms::bump", mutates_args={"total"})
def bump(total: torch.Tensor, x: torch.Tensor) -> None:
    total.add_(x.sum())


@torch.library.custom_op("refidioms::positive", mutates_args=())
def positive(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    at = (x > 0).nonzero()
    return at, x.clamp(min=0)


@positive.register_fake
def _(x):
    n = torch.library.get_ctx().new_dynamic_size()
    return x.new_empty(n, x.dim(), dtype=torch.long), torch.empty_like(x)


@idiom
def custom_operators(compiled: Compiled) -> list[Any]:
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(3))
            self.register_buffer("total", torch.zeros(()))

        def forward(self, x, names):
            y = scaled_add(x * 2, self.w.expand_as(x), 0.5, names).tanh()
            bump(self.total, y.detach())
            return y * self.total.detach()

    net = Net()
    run = compiled(net)
    out: list[Any] = []
    for n, names in ((2, [1]), (2, [1, 2]), (4, [3])):
        x = torch.randn(n, 3, requires_grad=True)
        y = run(x, names)
        y.sum().backward()
        out += [y.detach(), x.grad, net.total.clone()]
    gather = compiled(lambda x: positive(x.sin())[1] + 1)
    out += [gather(torch.randn(4)), gather(torch.randn(5))]

    def picked(x):
        at, kept = positive(x)
        return kept.flatten()[: at.shape[0]].sum() + at.float().sum()

    run_picked = compiled(picked)
    return [*out, *(run_picked(torch.randn(n)) for n in (4, 4, 6)), net.w.grad]


@idiom
def functions_with_own_gradients(compiled: Compiled) -> list[Any]:
    class Quantize(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, bits, mode="round", table=None):
            ctx.bits, ctx.mode = bits, mode
            scale = x.detach().abs().amax() / (2 ** (bits - 1) - 1)
            q = getattr(torch, mode)(x / scale)
            ctx.save_for_backward(x, table)
            ctx.mark_non_differentiable(q)
            return q * scale, q, bits

        @staticmethod
        @once_differentiable
        def backward(ctx, g, _, __):
            x, table = ctx.saved_tensors
            keep = x.abs() < ctx.bits
            g = g * keep
            return (g if table is None else g * table), None, None, None

    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(x, beta):
            return x * torch.sigmoid(beta * x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, beta = inputs
            ctx.save_for_backward(x, beta, output)
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx, g):
            if g is None:
                return None, None
            x, beta, y = ctx.saved_tensors
            s = torch.sigmoid(beta * x)
            gx = g * (s + beta * x * s * (1 - s)) if ctx.needs_input_grad[0] else None
            return gx, (g * x * y * (1 - s)).sum() if ctx.needs_input_grad[1] else None

    class Accumulate(torch.autograd.Function):
        @staticmethod
        def forward(ctx, total, x):
            ctx.mark_dirty(total)
            ctx.save_for_backward(x)
            return total.add_(x * x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g, 2 * g * x

    def f(x, beta, bits, table=None):
        a, q, b = Quantize.apply(x, bits, "round" if bits > 3 else "floor", table)
        y = Swish.apply(a, beta)
        return y, q, b, Accumulate.apply(x * 1, y)

    run = compiled(f)
    out: list[Any] = []
    for bits, table in ((4, None), (3, torch.rand(5)), (4, None), (8, torch.rand(5))):
        x = torch.randn(2, 5, requires_grad=True)
        beta = torch.tensor(1.5, requires_grad=bits != 8)
        y, q, b, total = run(x, beta, bits, table)
        total.sum().backward()
        out += [y.detach(), q, b, total.detach(), x.grad, beta.grad]
    twice = compiled(lambda x: Swish.apply(x, torch.tensor(2.0)).sum())
    x = torch.randn(3, requires_grad=True)
    (g,) = torch.autograd.grad(twice(x), x)
    return [*out, g]


@idiom
def tensors_of_own_classes(compiled: Compiled) -> list[Any]:
    class Named(torch.Tensor):
        @staticmethod
        def __new__(cls, data, names=()):
            made = torch.Tensor._make_subclass(cls, data, data.requires_grad)
            made.names_ = tuple(names)
            return made

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            found = super().__torch_function__(function, types, args, kwargs or {})
            if isinstance(found, Named) and not hasattr(found, "names_"):
                given = [a for a in args if isinstance(a, Named)]
                found.names_ = given[0].names_ if given else ()
            return found

    class Diagonal:
        def __init__(self, d):
            self.d = d

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            if function is torch.matmul:
                a, b = args
                return a.d[:, None] * b if isinstance(a, cls) else a * b.d
            if function is torch.trace:
                return args[0].d.sum()
            return NotImplemented

    def named(x, y):
        z = (x + y).sin()
        return z * len(z.names_), z.names_, type(z).__name__

    def diagonal(d, m):
        a = Diagonal(d)
        try:
            torch.add(a, m)
        except TypeError:
            failed = True
        return torch.matmul(a, m) + torch.matmul(m, a) * torch.trace(a), failed

    run, run_diagonal = compiled(named), compiled(diagonal)
    out: list[Any] = []
    for names in ("bt", "btd", "bt"):
        z, seen, kind = run(Named(torch.randn(2, 3), names), torch.ones(3))
        out += [z.as_subclass(torch.Tensor), seen, kind]
        d = torch.randn(3, requires_grad=True)
        y, failed = run_diagonal(d, torch.randn(3, 3))
        y.sum().backward()
        out += [y.detach(), failed, d.grad]
    return out


@idiom
def layouts_that_run_natively(compiled: Compiled) -> list[Any]:
    def gcn(adjacency, x, w):
        h = torch.sparse.mm(adjacency, x @ w).relu()
        return torch.sparse.mm(adjacency, h).log_softmax(-1)

    def jagged(pieces, w):
        nested = torch.nested.nested_tensor(pieces, layout=torch.jagged)
        return [t.sum(0) for t in F.linear(nested, w).unbind()]

    def mixed(x):
        s = (x * (x > 0)).to_sparse()
        return s.coalesce().values() * 2, s.to_dense() + x, s.indices().shape[1]

    run, run_jagged, run_mixed = map(compiled, (gcn, jagged, mixed))
    out: list[Any] = []
    w = torch.randn(3, 3, requires_grad=True)
    for n in (4, 4, 5):
        at = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
        for a in (torch.eye(n).to_sparse_csr(), torch.sparse_coo_tensor(at, torch.ones(n), (n, n))):
            y = run(a, torch.randn(n, 3), w)
            y.sum().backward()
            out.append(y.detach())
        found = run_jagged([torch.randn(k, 3) for k in (2, n)], w)
        out += [t.detach() for t in found]
        out += run_mixed(torch.randn(n, n))
    return [*out, w.grad]
