"""Operators and control flow that a program brings: custom ops, branches, loops, scans, checks."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops.map import map as torch_map

from tests.slow.batteries.idioms.common import Compiled, descend, idiom, state


@torch.library.custom_op("idioms::scaled_sin", mutates_args=())
def scaled_sin(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    return torch.sin(x) * scale


@scaled_sin.register_fake
def _(x, scale=1.0):
    return torch.empty_like(x)


def _keep(ctx, inputs, output):
    x, ctx.scale = inputs
    ctx.save_for_backward(x)


scaled_sin.register_autograd(
    lambda ctx, grad: (grad * ctx.saved_tensors[0].cos() * ctx.scale, None), setup_context=_keep
)


@torch.library.custom_op("idioms::accumulate", mutates_args=("into",))
def accumulate(into: torch.Tensor, x: torch.Tensor, weight: int) -> None:
    into.add_(x, alpha=weight)


@torch.library.custom_op("idioms::split_at", mutates_args=())
def split_at(x: torch.Tensor, at: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    at = x.shape[0] // 2 if at is None else at
    return x[:at].clone(), x[at:].clone()


@split_at.register_fake
def _(x, at=None):
    at = x.shape[0] // 2 if at is None else at
    return x.new_empty(at, *x.shape[1:]), x.new_empty(x.shape[0] - at, *x.shape[1:])


@torch.library.custom_op("idioms::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()


@positive.register_fake
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


@torch.library.custom_op("idioms::weighted", mutates_args=())
def weighted(xs: list[torch.Tensor], weights: list[float], mode: str) -> torch.Tensor:
    found = sum(x * w for x, w in zip(xs, weights))
    return found / sum(weights) if mode == "mean" else found.clone()


@weighted.register_fake
def _(xs, weights, mode):
    return torch.empty_like(xs[0])


@idiom
def operators_with_gradients(compiled: Compiled) -> list[Any]:
    out: list[Any] = []

    def f(x, scale):
        return scaled_sin(x.relu(), scale).sum() + torch.ops.idioms.scaled_sin(x).mean()

    run = compiled(f)
    for n, scale in ((3, 2.0), (3, 0.5), (5, 0.5)):
        x = torch.randn(n, 2, requires_grad=True)
        y = run(x, scale)
        y.backward()
        out += [y.detach(), x.grad]
    return out


@idiom
def operators_that_write(compiled: Compiled) -> list[Any]:
    total = torch.zeros(4)

    def f(x, weight):
        view = total[1:3]
        accumulate(view, x[:2], weight)
        accumulate(total, x, 1)
        return total.sum() + view.sum()

    run = compiled(f)
    out: list[Any] = []
    for weight in (1, 2, 2):
        out += [run(torch.randn(4), weight), total.clone()]

    def g(x):
        y = x * 2
        accumulate(y, x, 3)
        accumulate(x, y, 1)
        return y

    run = compiled(g)
    for n in (2, 3):
        x = torch.randn(n)
        out += [run(x), x]
    return out


@idiom
def operators_of_other_shapes(compiled: Compiled) -> list[Any]:
    def f(x, at=None):
        a, b = split_at(x, at)
        return a.sum(0) - b.sum(0), b.shape[0]

    run = compiled(f)
    out: list[Any] = []
    for n, at in ((4, None), (6, None), (6, 1)):
        out += run(torch.randn(n, 2), at)

    def g(x):
        y = positive(x) * 2
        return y, y.numel() > 2, y.sum()

    run = compiled(g)
    for seed in range(3):
        torch.manual_seed(seed)
        out += run(torch.randn(5))
    run = compiled(lambda xs, w, mode: weighted(xs, w, mode) + 1)
    xs = [torch.randn(2), torch.randn(2)]
    out += [
        run(xs, [1.0, 2.0], "mean"),
        run(xs, [1.0, 3.0], "sum"),
        run(xs[::-1], [1.0, 3.0], "sum"),
    ]
    return out


@idiom
def operators_of_a_library(compiled: Compiled) -> list[Any]:
    lib = torch.library.Library("idioms_fragment", "FRAGMENT")
    try:
        if not hasattr(torch.ops.idioms_fragment, "clip2"):
            lib.define("clip2(Tensor x, float low=0, *, float high=1.5) -> Tensor")
        lib.impl(
            "clip2", lambda x, low=0.0, *, high=1.5: x.clamp(low, high), "CompositeExplicitAutograd"
        )
        op = torch.ops.idioms_fragment.clip2

        def f(x, **options):
            return op(x, **options) + op.default(x, 0.5)

        run = compiled(f)
        x = torch.randn(5)
        return [run(x), run(x, high=0.7), run(x, low=0.2), run(x.double())]
    finally:
        lib._destroy()


@idiom
def branches_in_the_graph(compiled: Compiled) -> list[Any]:
    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
            self.bias = nn.Parameter(torch.ones(3))

        def forward(self, x, flag=None):
            where = x.sum() > 0 if flag is None else flag
            y = torch.cond(
                where, lambda x: self.a(x).relu() + self.bias, lambda x: self.b(x) * 2, (x,)
            )
            return torch.cond(where, lambda a, b: a + b, lambda a, b: a - b, (y, x))

    gate = Gate()
    run = compiled(gate)
    optimizer = torch.optim.SGD(gate.parameters(), 0.1)
    out: list[Any] = []
    for sign in (1, -1, 1):
        y = run(torch.rand(2, 3) * sign)
        out += [descend(optimizer, y.square().mean()), y.detach()]
    for flag in (True, False, torch.tensor(True)):
        out.append(run(torch.ones(2, 3), flag).detach())

    def nested(x, k):
        def deep(x):
            return torch.cond(x.sum() > k, lambda x: x + 10, lambda x: x - 10, (x,))

        return torch.cond(x.mean() > 0, deep, lambda x: x.clone(), (x,))

    run = compiled(nested)
    for k in (0, 5, 0):
        out += [run(torch.ones(3), k), run(-torch.ones(3), k)]
    return out + state(gate)


@idiom
def loops_in_the_graph(compiled: Compiled) -> list[Any]:
    def collatz(n):
        return while_loop(
            lambda n, steps: n != 1,
            lambda n, steps: (torch.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1),
            (n, torch.zeros((), dtype=torch.long)),
        )

    def newton(x, tries):
        w = x.abs() + 1

        def close(i, y):
            return (i < tries) & ((y * y - w).abs().max() > 1e-5)

        return while_loop(
            close, lambda i, y: (i + 1, (y + w / y) / 2), (torch.tensor(0), w.clone())
        )

    run, root = compiled(collatz), compiled(newton)
    out: list[Any] = []
    for n in (6, 7, 1):
        out += run(torch.tensor(n))
    for n, tries in ((2, 3), (2, 10), (4, 10)):
        out += root(torch.randn(n), tries)
    return out


@idiom(
    rounded="torch's scan is compiled in eager too, and its own graph rounds as no loop does",
    bound=1e-6,
)
def scans_in_the_graph(compiled: Compiled) -> list[Any]:
    cell = nn.Linear(3, 3)

    def rnn(xs, h):
        def step(h, x):
            h = torch.tanh(cell(h) + x)
            return h, h * 2

        return scan(step, h, xs, dim=0)

    def decays(xs, gates):
        def combine(a, b):
            return a[0] * b[0], a[1] * b[0] + b[1]

        return associative_scan(combine, (gates, xs), dim=0, combine_mode="generic")[1]

    def rows(xs, y):
        return torch_map(lambda x, y: (x * y).sum() + x, xs, y)

    out: list[Any] = []
    run = compiled(rnn)
    for n in (3, 5):
        xs, h = torch.randn(n, 2, 3, requires_grad=True), torch.zeros(2, 3)
        last, ys = run(xs, h)
        (ys.sum() + last.sum()).backward()
        out += [last.detach(), ys.detach(), xs.grad]
    run = compiled(decays)
    out += [run(torch.randn(4, 2), torch.rand(4, 2)), run(torch.randn(6, 2), torch.rand(6, 2))]
    run = compiled(rows)
    out += [run(torch.randn(3, 2), torch.ones(2)), run(torch.randn(2, 2), torch.ones(2))]
    return out


@idiom
def checks_and_sizes(compiled: Compiled) -> list[Any]:
    @compiled
    def take(x, n):
        n = n.item()
        torch._check(n >= 0)
        torch._check(n <= x.shape[0], lambda: f"{n} of {x.shape[0]}")
        return x[:n].sum(), torch.zeros(n + 1).shape[0]

    @compiled
    def filtered(x, mask):
        chosen = torch.masked_select(x, mask)
        where = mask.nonzero()
        if chosen.numel() == 0:
            return x.new_zeros(1), 0
        return chosen.softmax(0), len(where)

    @compiled
    def split(x, lengths):
        return [piece.mean(0) for piece in x.split(lengths.tolist())]

    @compiled
    def unique(x):
        values, inverse, counts = x.unique(return_inverse=True, return_counts=True)
        return values[inverse] - x, counts.max(), len(values)

    out: list[Any] = []
    for n in (1, 3, 0):
        out += take(torch.arange(4.0), torch.tensor(n))
    try:
        take(torch.arange(4.0), torch.tensor(5))
    except Exception as error:
        out += [isinstance(error, RuntimeError)]
    for cut in (0.0, 0.5, 3.0):
        x = torch.randn(6)
        out += filtered(x, x > cut)
    for lengths in ([1, 2, 1], [2, 2], [4]):
        out += split(torch.randn(4, 2), torch.tensor(lengths))
    for high in (2, 5):
        out += unique(torch.randint(high, (6,)))
    return out


@idiom
def checks_of_kinds(compiled: Compiled) -> list[Any]:
    @compiled
    def checked(x, k):
        torch._check(x.dim() == 2, lambda: f"{x.dim()} dimensions")
        torch._check_is_size(k)
        torch._check_value(k < 5, lambda: f"{k} is large")
        torch._check_type(x.dtype.is_floating_point, lambda: "no floats")
        torch._check_index(k < x.shape[0])
        assert x.shape[1] % 2 == 0, f"odd {x.shape[1]}"
        return x[k] * 2

    out: list[Any] = []
    for args in ((2, 2, 1), (3, 4, 2), (2, 3, 1), (2, 2, 7), (2, 2, 3)):
        try:
            out.append(checked(torch.ones(args[:2]), args[2]))
        except Exception as error:
            out += [type(error).__name__, str(error)[:60]]
    for bad in (torch.ones(3), torch.ones(2, 2, dtype=torch.long)):
        try:
            checked(bad, 1)
        except Exception as error:
            out += [type(error).__name__, str(error)[:60]]

    @compiled
    def asserted(x):
        torch._assert(x.shape[0] > 1, "rows")
        torch._assert_async(x.sum() > 0, "negative")
        return x.sqrt()

    out.append(asserted(torch.ones(2)))
    for bad in (torch.ones(1), -torch.ones(2)):
        try:
            asserted(bad)
        except Exception as error:
            out += [type(error).__name__, str(error)[:20]]
    return out


@idiom
def straight_through_and_fake(compiled: Compiled) -> list[Any]:
    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, bits, low, high):
            step = (high - low) / (2**bits - 1)
            ctx.save_for_backward((x >= low) & (x <= high))
            ctx.mark_non_differentiable(codes := ((x - low) / step).round().to(torch.int32))
            return codes.clamp(0, 2**bits - 1) * step + low, codes

        @staticmethod
        def backward(ctx, grad, _):
            (inside,) = ctx.saved_tensors
            return grad * inside, None, None, None

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)
            self.bits = 4
            self.register_buffer("range", torch.tensor([-1.0, 1.0]))
            self.frozen = False

        def forward(self, x):
            if self.training and not self.frozen:
                self.range.lerp_(torch.stack(x.detach().aminmax()), 0.5)
            low, high = self.range
            x, codes = Round.apply(x, self.bits, low, high)
            w = self.inner.weight
            scale = w.detach().abs().amax(1, keepdim=True) / 7
            w = w + ((w / scale).round().clamp(-8, 7) * scale - w).detach()
            fake = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)
            return F.linear(fake, w, self.inner.bias), codes

    layer = Layer()
    run = compiled(layer)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    out: list[Any] = []
    for step in range(5):
        layer.bits = 2 if step == 2 else 4
        layer.frozen = step >= 3
        layer.train(step != 4)
        x = torch.randn(3, 4, requires_grad=True)
        y, codes = run(x)
        out += [descend(optimizer, y.square().mean()), codes, x.grad]
    return out + state(layer)
