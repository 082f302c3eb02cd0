"""What is said to the compiler, and calls that come from threads, copies, hooks and modes."""

from __future__ import annotations

import collections
import copy
import functools
import logging
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from tests.slow.batteries.idioms.common import Compiled, descend, idiom, mlp, state

log = logging.getLogger("idioms.speaking")


@torch.compiler.allow_in_graph
def opaque(x, k):
    return x * k + x.shape[0]


@torch.compiler.assume_constant_result
def constant(n):
    return n * 10


@torch.compiler.disable
def hidden(x, seen):
    seen.append(float(x.sum()))
    return x + len(seen)


@idiom
def words_to_the_compiler(compiled: Compiled) -> list[Any]:
    seen: list[float] = []

    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(2, 2)

        @torch.compiler.disable(recursive=False)
        def outer(self, x):
            return self.inner(x) + 1

        def inner(self, x):
            return self.lin(x).relu()

        def forward(self, x, k):
            y = opaque(self.outer(x), k) + constant(3)
            if torch.compiler.is_exporting():
                y = y * 0
            y = hidden(y, seen)
            torch._dynamo.graph_break()
            torch.compiler.cudagraph_mark_step_begin()
            return y.sin()

    part = Part()
    run = compiled(part)
    out: list[Any] = []
    for n, k in ((2, 3), (2, 4), (3, 4)):
        y = run(torch.randn(n, 2), k)
        y.sum().backward()
        out += [y.detach(), part.lin.weight.grad.clone(), len(seen)]
    return [*out, torch.tensor(seen), torch.compiler.is_compiling()]


@idiom
def sizes_that_are_marked(compiled: Compiled) -> list[Any]:
    @compiled
    def f(x, y):
        n, m = x.shape
        pad = 4 - n % 4 if n % 4 else 0
        x = F.pad(x, (0, 0, 0, pad))
        grid = torch.arange(n)[:, None] * torch.arange(m)
        half = x[: (n + 1) // 2]
        return x.view(-1, 4, m).sum(1), grid, half, y.reshape(n, -1), f"{n}x{m}", n > m, math_(n, m)

    def math_(n, m):
        return max(n, m) ** 2 - min(n, m) // 2, (n, m) < (4, 4), int(n / m), divmod(n, 3)

    out: list[Any] = []
    for n, m in ((3, 2), (5, 2), (8, 2), (8, 5), (1, 1), (0, 3)):
        x, y = torch.randn(n, m), torch.randn(n * 2)
        if n > 1:
            torch._dynamo.mark_dynamic(x, 0)
            torch._dynamo.maybe_mark_dynamic(y, 0)
        else:
            torch._dynamo.mark_static(x, 0)
        if n == 0:
            y = torch.randn(0, 2)
            continue
        out += f(x, y)
    dynamic = compiled(lambda x: (x.T @ x, x.numel() // 2, x.stride()), dynamic=True)
    static = compiled(lambda x: (x.T @ x, x.numel() // 2, x.stride()), dynamic=False)
    for n in (2, 3, 1):
        out += [*dynamic(torch.ones(n, 2)), *static(torch.ones(n, 2))]
    return out


@idiom
def many_threads_at_once(compiled: Compiled) -> list[Any]:
    model = mlp(3, 4, 2, drop=0.0).requires_grad_(False)
    run = compiled(model)
    counts: collections.Counter = collections.Counter()
    lock = threading.Lock()

    @compiled
    def work(x, name):
        with lock:
            counts[name] += 1
        with torch.no_grad():
            return run(x) * counts[name], torch.is_grad_enabled()

    inputs = [torch.full((n % 3 + 1, 3), float(n)) for n in range(8)]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda x: work(x, f"t{int(x[0, 0])}"), inputs))
    out = [t for pair in found for t in pair]
    barrier, results = threading.Barrier(2), {}

    def both(i):
        torch.set_grad_enabled(i == 0)
        barrier.wait()
        results[i] = compiled(lambda x: (x * 2, torch.is_grad_enabled()))(torch.ones(2))

    threads = [threading.Thread(target=both, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return [*out, dict(sorted(counts.items())), *results[0], *results[1], torch.is_grad_enabled()]


@idiom
def modes_that_watch(compiled: Compiled) -> list[Any]:
    class Count(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.seen = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen += 1
            return func(*args, **(kwargs or {}))

    class Double(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            return found * 2 if func is torch.sin else found

    @compiled
    def f(x):
        return torch.sin(x) + torch.cos(x)

    @compiled
    def g(x):
        with Double():
            y = torch.sin(x)
        return y, torch.sin(x)

    out: list[Any] = [f(torch.ones(2))]
    with Count() as count:
        out += [f(torch.ones(2)), count.seen > 0]
    with Double():
        out.append(f(torch.ones(2)))
    with torch.profiler.record_function("span"):
        out += [f(torch.ones(3)), *g(torch.ones(2)), *g(torch.ones(3))]
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.double(), lambda t: t.float()):
        x = torch.ones(2, requires_grad=True)
        y = f(x)
    y.sum().backward()
    out += [y.detach(), x.grad]
    with torch.autograd.set_multithreading_enabled(False), torch.autograd.detect_anomaly(False):
        x = torch.ones(2, requires_grad=True)
        f(x).sum().backward()
    return [*out, x.grad]


@idiom
def warnings_and_logs(compiled: Compiled) -> list[Any]:
    said: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record):
            said.append(f"{record.levelname} {record.getMessage()}")

    handler = Keep()
    log.addHandler(handler)
    log.setLevel(logging.INFO)

    @functools.cache
    def once(text):
        log.warning("once: %s", text)

    @compiled
    def f(x, n):
        log.debug("hidden %s", n)
        if n > 1:
            log.info("shape %s of %d", tuple(x.shape), n)
            warnings.warn(f"{n} is large", UserWarning, stacklevel=2)
        once(x.dim())
        y = x * n
        log.isEnabledFor(logging.ERROR) and log.error("end")
        return y

    out: list[Any] = []
    try:
        for n in (1, 2, 3, 2):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                out += [f(torch.ones(n), n), [str(w.message) for w in caught]]
        log.setLevel(logging.CRITICAL)
        out.append(f(torch.ones(2), 2))
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)
    return [*out, said]


@idiom
def copies_of_what_is_compiled(compiled: Compiled) -> list[Any]:
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.seen = nn.Linear(2, 2), 0

        def forward(self, x):
            self.seen += 1
            return self.lin(x) * self.seen

    net = Net()
    run = compiled(net)
    out: list[Any] = [run(torch.ones(1, 2)).detach(), net.seen]
    twin = copy.deepcopy(run)
    with torch.no_grad():
        for p in run.parameters():
            p.zero_()
    out += [twin(torch.ones(1, 2)).detach(), run(torch.ones(1, 2)).detach(), net.seen, twin.seen]
    run.lin.bias.data.fill_(3)
    out += [run(torch.ones(1, 2)).detach(), isinstance(run, nn.Module), run.training]
    run.eval()
    out += [net.training, [n for n, _ in net.named_parameters()]]
    run.register_forward_hook(lambda m, a, y: y + 100)
    out.append(run(torch.ones(1, 2)).detach())
    holder = nn.ModuleDict({"a": run, "b": nn.Linear(2, 1)})
    out.append(holder["b"](holder["a"](torch.ones(1, 2))).detach())
    net.load_state_dict({k: torch.ones_like(v) for k, v in net.state_dict().items()})
    out += [run(torch.ones(1, 2)).detach(), len(list(holder.parameters()))]
    method = compiled(net.forward)
    out += [method(torch.ones(1, 2)).detach(), net.seen]
    return out + state(net)


@idiom
def results_that_alias(compiled: Compiled) -> list[Any]:
    @compiled
    def f(x, y, inplace):
        a = x.view(-1)
        b = x if inplace else x.clone()
        b.mul_(2)
        c = a[1:3]
        c.add_(y)
        return a, b, c, x.T, y, [x, y]

    out: list[Any] = []
    for inplace in (True, False, True):
        x, y = torch.arange(4.0).view(2, 2), torch.ones(2)
        a, b, c, t, same, pair = f(x, y, inplace)
        a.add_(100)
        out += [x, b, c, t, same is y, pair[0] is x, a.data_ptr() == x.data_ptr(), x._version]

    @compiled
    def cache(store, key, x):
        store.setdefault(key, []).append(x)
        store["last"] = x
        store[key][0].add_(1)
        return torch.stack(store[key]).sum(0)

    store: dict[str, Any] = {}
    for key in ("a", "b", "a"):
        x = torch.ones(2)
        out += [cache(store, key, x), store["last"] is x, len(store[key]), x]

    @compiled
    def g(xs):
        xs[0], xs[-1] = xs[-1], xs[0]
        xs += [xs[0] * 2]
        del xs[1]
        return xs, xs[0]

    for n in (2, 3):
        xs = [torch.full((1,), float(i)) for i in range(n)]
        found, first = g(xs)
        out += [found is xs, first is xs[0], len(xs), *xs]
    return out


@idiom
def gradients_and_leaves(compiled: Compiled) -> list[Any]:
    w = torch.ones(3, requires_grad=True)

    @compiled
    def f(x, detach):
        y = x * w
        z = y.detach() if detach else y
        with torch.no_grad():
            w.add_(0.5)
        return z.sum() + y.square().sum(), y.requires_grad, y.is_leaf, z.grad_fn is None

    @compiled
    def trained(x):
        loss = (x * w).square().mean()
        loss.backward()
        with torch.no_grad():
            w.sub_(w.grad, alpha=0.1)
            w.grad.zero_()
        return loss.detach()

    @compiled
    def frozen(x, on):
        w.requires_grad_(on)
        y = (x * w).sum()
        return y, y.requires_grad

    out: list[Any] = []
    for detach in (False, True):
        x = torch.randn(3, requires_grad=True)
        try:
            found = f(x, detach)
            found[0].backward()
            out += [found[0].detach(), *found[1:], x.grad, w.grad]
        except RuntimeError as error:
            out.append("modified by an inplace operation" in str(error))
        w.grad = None
    for _ in range(3):
        out += [trained(torch.ones(3)), w.detach().clone()]
    for on in (False, True):
        out += [t.detach() if isinstance(t, torch.Tensor) else t for t in frozen(torch.ones(3), on)]
    other = mlp(3, 4, 1)
    optimizer = torch.optim.SGD(other.parameters(), 0.1)
    out.append(descend(optimizer, compiled(other)(torch.ones(2, 3)).sum()))
    return [*out, w.detach(), *state(other)]
