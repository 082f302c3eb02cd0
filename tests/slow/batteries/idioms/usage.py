"""Programs around a compiled call: options, copies of state, devices of control, odd inputs."""

from __future__ import annotations

import collections
import contextvars
import copy
import functools
import gc
import itertools
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

from tests.slow.batteries.idioms.common import (
    Compiled,
    descend,
    idiom,
    mlp,
    state,
    values_and_gradients,
)

T = TypeVar("T")


@idiom
def data_loader_and_trainer(compiled: Compiled) -> list[Any]:
    class Toy(Dataset):
        def __init__(self, n):
            self.x, self.y = torch.randn(n, 4), torch.randint(0, 3, (n,))

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            return {"inputs": self.x[i], "label": self.y[i], "index": i}

    class Callback:
        def on_batch_end(self, trainer, loss): ...

    class History(Callback):
        def __init__(self):
            self.losses: list[float] = []

        def on_batch_end(self, trainer, loss):
            self.losses.append(loss.item())

    class EarlyStopping(Callback):
        def on_batch_end(self, trainer, loss):
            trainer.should_stop = trainer.global_step >= 7

    @dataclass
    class Trainer:
        model: nn.Module
        callbacks: list[Callback] = field(default_factory=list)
        global_step: int = 0
        should_stop: bool = False

        def training_step(self, batch):
            self.global_step += 1
            logits = self.model(batch["inputs"])
            accuracy = (logits.argmax(-1) == batch["label"]).float().mean()
            return {"loss": F.cross_entropy(logits, batch["label"]), "accuracy": accuracy}

        def fit(self, loader, epochs):
            step = compiled(self.training_step)
            optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
            for _ in range(epochs):
                for batch in loader:
                    found = step(batch)
                    loss = descend(optimizer, found["loss"])
                    yield found["accuracy"]
                    for callback in self.callbacks:
                        callback.on_batch_end(self, loss)
                    if self.should_stop:
                        return

    history = History()
    trainer = Trainer(mlp(4, 8, 3), [history, EarlyStopping()])
    loader = DataLoader(Toy(10), batch_size=4, shuffle=True)
    out: list[Any] = list(trainer.fit(loader, 3))
    return out + history.losses + [trainer.global_step] + state(trainer.model)


@idiom
def generic_containers(compiled: Compiled) -> list[Any]:
    class Stack(Generic[T]):
        def __init__(self, items: list[T] | None = None):
            self._items = list(items or [])

        def push(self, item: T) -> Stack[T]:
            self._items.append(item)
            return self

        def pop(self) -> T:
            if not self:
                raise IndexError("pop from an empty stack")
            return self._items.pop()

        def __len__(self):
            return len(self._items)

        def __iter__(self) -> Iterator[T]:
            yield from reversed(self._items)

        def __eq__(self, other):
            return isinstance(other, Stack) and len(self) == len(other)

        __hash__ = None

    operators = {
        "+": torch.add,
        "*": torch.mul,
        "max": lambda a, b: torch.maximum(a, b),
        "neg": torch.neg,
    }

    def evaluate(tokens: str, **names):
        stack: Stack[torch.Tensor] = Stack()
        for token in tokens.split():
            if (f := operators.get(token)) is not None:
                arity = 1 if token == "neg" else 2
                args = [stack.pop() for _ in range(arity)][::-1]
                stack.push(f(*args))
            elif token.replace(".", "", 1).isdigit():
                stack.push(torch.tensor(float(token)))
            else:
                stack.push(names[token])
        return torch.stack(list(torch.broadcast_tensors(*stack)))

    run = compiled(evaluate)
    out: list[Any] = []
    x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    for text in ("x y + 2 *", "x neg y max 1.5 x *", "x y + 2 *"):
        found = run(text, x=x, y=y)
        found.sum().backward()
        out.append(found.detach())
    for text, error in (("x +", IndexError), ("z", KeyError)):
        for _ in range(2):
            try:
                run(text, x=x, y=y)
            except error as raised:
                out.append(repr(raised))
    return out + [x.grad, y.grad]


@idiom
def decorators_and_context_variables(compiled: Compiled) -> list[Any]:
    depth: contextvars.ContextVar[int] = contextvars.ContextVar("depth", default=0)
    calls: collections.Counter[str] = collections.Counter()

    def counted(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            calls[function.__name__] += 1
            token = depth.set(depth.get() + 1)
            try:
                return function(*args, **kwargs)
            finally:
                depth.reset(token)

        inner.calls = calls
        return inner

    def retry(times, catching=ValueError):
        def wrap(function):
            @functools.wraps(function)
            def inner(*args, **kwargs):
                for attempt in itertools.count():
                    try:
                        return function(*args, attempt=attempt, **kwargs)
                    except catching:
                        if attempt + 1 >= times:
                            raise

            return inner

        return wrap

    @counted
    @retry(3)
    def solve(a, b, attempt=0, need=0):
        if attempt < need:
            raise ValueError(f"attempt {attempt} of {need}")
        jitter = 10.0 ** (attempt - 3)
        return torch.linalg.solve(a @ a.mT + jitter * torch.eye(a.shape[-1]), b) * depth.get()

    run = compiled(solve)
    out: list[Any] = []
    for need in (0, 2, 0, 3):
        try:
            out.append(run(torch.randn(3, 3), torch.randn(3, 1), need=need))
        except ValueError as error:
            out.append(str(error))
    return [*out, sorted(calls.items()), depth.get(), solve.__name__]


@idiom
def options_of_compile(compiled: Compiled) -> list[Any]:
    net = mlp(4, 8, 2, drop=0.0)

    def f(x, scale=1.0):
        return net(x).tanh() * scale

    out: list[Any] = []
    for options in ({"fullgraph": True}, {"dynamic": True}, {"dynamic": False, "fullgraph": True}):
        run = compiled(f, **options)
        for n, scale in ((2, 1.0), (5, 0.5), (1, 2)):
            y = run(torch.randn(n, 4), scale)
            y.sum().backward()
            out.append(y.detach())
    whole = compiled(lambda x: x.sin() if torch.sum(x) > 0 else x.cos())
    for sign in (1, -1, 1):
        out.append(whole(torch.ones(3) * sign))
    x = torch.randn(6, 4)
    torch._dynamo.mark_dynamic(x, 0)
    torch._dynamo.maybe_mark_dynamic(x, 1)
    marked = compiled(lambda x: x.reshape(-1, 2).sum(0) / x.shape[0])
    out += [marked(x), marked(torch.randn(8, 4)), marked(torch.randn(3, 2))]
    with torch.compiler.set_stance("force_eager"):
        out.append(f(x).detach())
    return out + [p.grad for p in net.parameters()]


@idiom
def nested_and_odd_inputs(compiled: Compiled) -> list[Any]:
    def f(batch, *rest, key="a", **more):
        x = batch["seq"][0]["x"]
        total = x.sum() * len(rest)
        for _, value in sorted(more.items()):
            total = total + (value.sum() if isinstance(value, torch.Tensor) else float(value or 0))
        flags = dict(batch["flags"])
        if flags.get(key):
            total = -total
        batch["seen"] = batch.get("seen", 0) + 1
        batch["seq"].append({"x": x * 2})
        return {"total": total, "rest": [r if r is None else r + 1 for r in rest]}

    run = compiled(f)
    out: list[Any] = []
    batch: dict[str, Any] = {"seq": [{"x": torch.randn(2, 3)}], "flags": {("a", True), ("b", 0)}}
    out.append(run(batch, 1, torch.zeros(2), None)["total"])
    found = run(batch, torch.ones(1), key="b", w=torch.ones(2), v=None, u=True)
    out += [found["total"], found["rest"][0], batch["seen"], len(batch["seq"])]
    out.append(batch["seq"][-1]["x"])
    batch["seq"].insert(0, {"x": torch.zeros(0, 3)})
    out += [run(batch, 2.5, 3)["total"], batch["seen"]]
    empty = values_and_gradients(
        compiled,
        lambda x: (x.sum(0), x.softmax(-1), F.layer_norm(x, (3,)), torch.cat([x, x[:0]])),
        lambda: (torch.randn(0, 3),),
        lambda: (torch.randn(2, 3),),
        lambda: (torch.randn(1, 3),),
    )
    scalar = compiled(lambda x, n: x**n + n // 2)
    out += [scalar(torch.tensor(2.0), n) for n in (2, 3, 3.0, -1, True)]
    return out + empty


@idiom
def weak_caches_and_collection(compiled: Compiled) -> list[Any]:
    class Cache:
        def __init__(self):
            self.table: dict[tuple[int, str], torch.Tensor] = {}
            self.owners = weakref.WeakKeyDictionary()

        def rotary(self, n: int, d: int, dtype: torch.dtype):
            key = (n, str(dtype))
            if key not in self.table:
                angle = torch.outer(torch.arange(n), 1.0 / 100 ** (torch.arange(0, d, 2) / d))
                self.table[key] = torch.cat([angle, angle], -1).to(dtype)
            return self.table[key]

    cache = Cache()

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(4, 12)

        def forward(self, x):
            cache.owners[self] = cache.owners.get(self, 0) + 1
            q, k, v = self.qkv(x).chunk(3, -1)
            angle = cache.rotary(x.shape[1], x.shape[2], x.dtype)

            def rotate(t):
                a, b = t.chunk(2, -1)
                return t * angle.cos() + torch.cat([-b, a], -1) * angle.sin()

            return F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)

    model = Attention()
    run = compiled(model)
    out: list[Any] = []
    for n in (3, 3, 5, 3):
        y = run(torch.randn(2, n, 4))
        y.sum().backward()
        out.append(y.detach())
    out += [len(cache.table), list(cache.owners.values())]
    double = copy.deepcopy(model).double()
    out.append(compiled(double)(torch.randn(2, 3, 4, dtype=torch.double)).detach())
    grads = [p.grad for p in model.parameters()]
    del double
    gc.collect()
    return out + [len(cache.table), len(cache.owners)] + grads


@idiom
def timers_and_profiling(compiled: Compiled) -> list[Any]:
    class Timer:
        total = 0.0

        def __enter__(self):
            self.start = time.perf_counter()
            return self

        def __exit__(self, *exc):
            Timer.total += time.perf_counter() - self.start
            return False

    net = mlp(4, 8, 2, drop=0.0)

    def step(x, verbose=False):
        with Timer(), torch.profiler.record_function("forward"):
            y = net(x)
        if verbose:
            print(f"mean {y.mean():.3f}, norm {y.detach().norm().item():.2f}", end="", file=sink)
        return y.square().mean()

    class Sink:
        def __init__(self):
            self.text = ""

        def write(self, text):
            self.text += text

        def flush(self): ...

    sink = Sink()
    run = compiled(step)
    out: list[Any] = []
    for verbose in (False, True, True, False):
        loss = run(torch.randn(3, 4), verbose)
        loss.backward()
        out.append(loss.detach())
    return out + [sink.text, Timer.total > 0] + [p.grad for p in net.parameters()]


@idiom
def sorting_and_sets(compiled: Compiled) -> list[Any]:
    def deduplicate(x):
        values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
        common = values[counts > 1]
        return values, inverse, counts.float() / x.numel(), common

    def group_mean(keys, x):
        unique, inverse = keys.unique(return_inverse=True)
        total = x.new_zeros(len(unique), x.shape[1]).index_add_(0, inverse, x)
        return unique, total / inverse.bincount()[:, None]

    def runs(mask):
        padded = F.pad(mask.int(), (1, 1)).diff()
        starts, ends = (padded == 1).nonzero()[:, 0], (padded == -1).nonzero()[:, 0]
        lengths = ends - starts
        if not len(lengths):
            return starts, 0
        longest = lengths.argmax()
        return torch.stack([starts, ends], 1), int(lengths[longest])

    def segments(x, lengths):
        at = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        return torch.zeros(len(lengths)).scatter_reduce(0, at, x, "amax", include_self=False)

    out: list[Any] = []
    a, b, c, d = map(compiled, (deduplicate, group_mean, runs, segments))
    for n in (6, 6, 9):
        keys = torch.randint(0, 4, (n,))
        x = torch.randn(n, 2, requires_grad=True)
        out += a(keys)
        unique, means = b(keys, x)
        means.square().sum().backward()
        out += [unique, means.detach(), x.grad, *c(keys > 1), *c(keys > 9)]
        lengths = torch.tensor([2, n - 3, 1])
        out.append(d(torch.randn(n), lengths))
    return out


@idiom
def complex_numbers(compiled: Compiled) -> list[Any]:
    class ModReLU(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.b = nn.Parameter(torch.full((d,), 0.1))

        def forward(self, z):
            r = z.abs()
            return F.relu(r + self.b) * z / (r + 1e-6)

    class UnitaryRNN(nn.Module):
        def __init__(self, d=4):
            super().__init__()
            self.phase = nn.Parameter(torch.randn(d))
            self.inp = nn.Linear(2, d, dtype=torch.cfloat)
            self.act = ModReLU(d)

        def forward(self, x):
            h = torch.zeros(x.shape[0], len(self.phase), dtype=torch.cfloat)
            turn = torch.polar(torch.ones_like(self.phase), self.phase)
            for t in range(x.shape[1]):
                h = torch.fft.ifft(turn * torch.fft.fft(h, norm="ortho"), norm="ortho")
                h = self.act(h + self.inp(x[:, t].to(torch.cfloat)))
            return torch.view_as_real(h).flatten(1), h.angle()

    model = UnitaryRNN()
    run = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    out: list[Any] = []
    for n, t in ((3, 3), (3, 3), (2, 4)):
        y, angle = run(torch.randn(n, t, 2))
        out += [descend(optimizer, y.square().mean() + angle.cos().mean()), angle.detach()]
    return out + state(model)
