"""Programs as people write them: protocols, observers, state machines, chains of maps, stacks."""

from __future__ import annotations

import collections
import contextlib
import functools
import typing
import warnings
import weakref

import numpy as np
import pytest
import torch

import refcompiler
from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()


def three():
    return [(torch.randn(3, 4),) for _ in range(3)]


@cases(graphs=2, breaks=1)
def chainmap_scopes():
    def f(x):
        base = {"a": x, "b": 1}
        env = collections.ChainMap({}, base)
        env["a"] = x + 1
        child = env.new_child({"c": x * 2})
        torch._dynamo.graph_break()
        child["b"] = 5
        return child["a"] + child["c"] * child["b"], dict(env), list(child), child.maps[-1] is base

    return f, three()


@cases(graphs=2, breaks=1)
def singledispatchmethod():
    class Proc:
        @functools.singledispatchmethod
        def run(self, v):
            return v

        @run.register
        def _(self, v: int):
            return v + 1

        @run.register
        def _(self, v: torch.Tensor):
            return v * 2

        @run.register(list)
        def _(self, v):
            return [self.run(i) for i in v]

    pr = Proc()

    def f(x):
        y = pr.run(x)
        torch._dynamo.graph_break()
        return pr.run([y, 1, "a"])

    return f, three()


@cases(graphs=2, breaks=1)
def exitstack_callbacks():
    def f(x):
        log = []

        @contextlib.contextmanager
        def cm(n):
            log.append(("in", n))
            try:
                yield x * n
            finally:
                log.append(("out", n))

        with contextlib.ExitStack() as st:
            vals = [st.enter_context(cm(i)) for i in range(3)]
            st.callback(log.append, "cb")
            st.push(lambda *a: log.append(a[0]) or True)
            torch._dynamo.graph_break()
            y = sum(vals)
            raise_it = st.pop_all()
        with raise_it:
            1 / 0
        return y, log

    return f, three()


@cases(breaks=1)
def protocol_runtime():
    @typing.runtime_checkable
    class HasRun(typing.Protocol):
        def run(self, x): ...

    class A:
        def run(self, x):
            return x + 1

    class B:
        pass

    objs = [A(), B(), A()]

    def f(x):
        for o in objs:
            if isinstance(o, HasRun):
                x = o.run(x)
        torch._dynamo.graph_break()
        return x, [isinstance(o, HasRun) for o in objs]

    return f, three()


@cases(breaks=1)
def observer_pattern():
    class Subj:
        def __init__(self):
            self._obs = weakref.WeakSet()
            self.v = None

        def attach(self, o):
            self._obs.add(o)

        def set(self, v):
            self.v = v
            for o in sorted(self._obs, key=lambda o: o.k):
                o.notify(v)

    class Ob:
        def __init__(self, k):
            self.k = k
            self.got = []

        def notify(self, v):
            self.got.append(v * self.k)

    def f(x):
        s = Subj()
        obs = [Ob(i) for i in range(1, 4)]
        for o in obs:
            s.attach(o)
        s.set(x)
        return [o.got[0] for o in obs], len(s._obs)

    return f, three()


@cases(graphs=2, breaks=1, recompiles=1)
def state_machine_gen():
    def machine():
        state = "idle"
        n = 0
        while True:
            ev = yield state, n
            match state, ev:
                case "idle", "go":
                    state = "run"
                case "run", "tick":
                    n += 1
                case "run", "stop":
                    state = "idle"
                case _, "quit":
                    return n

    def f(x, evs):
        m = machine()
        next(m)
        hist = []
        try:
            for e in evs:
                hist.append(m.send(e))
                if e == "tick":
                    torch._dynamo.graph_break()
        except StopIteration as s:
            return x * s.value, hist
        return x + len(hist), hist

    return f, [
        (torch.ones(3), ("go", "tick", "quit")),
        (torch.ones(3), ("go", "stop")),
        (torch.ones(3), ("go", "tick", "quit")),
    ]


@cases(graphs=2, breaks=1)
def tree_map():
    def tmap(fn, t):
        if isinstance(t, dict):
            return {k: tmap(fn, v) for k, v in t.items()}
        if isinstance(t, tuple) and hasattr(t, "_fields"):
            return type(t)(*(tmap(fn, v) for v in t))
        if isinstance(t, (list, tuple)):
            return type(t)(tmap(fn, v) for v in t)
        return fn(t)

    Pt = collections.namedtuple("Pt", "a b")

    def f(x):
        t = {"q": [x, (x + 1, Pt(x, 2))], "r": {"s": 3}}
        u = tmap(lambda v: v * 2, t)
        torch._dynamo.graph_break()
        return tmap(lambda v: v + 1 if isinstance(v, torch.Tensor) else str(v), u)

    return f, three()


@cases(graphs=2, breaks=1)
def setattr_hooks():
    class T:
        def __init__(self):
            object.__setattr__(self, "d", {})

        def __setattr__(self, n, v):
            self.d[n] = ("set", v)

        def __getattr__(self, n):
            try:
                return self.d[n][1]
            except KeyError:
                raise AttributeError(n) from None

        def __delattr__(self, n):
            del self.d[n]

        def __dir__(self):
            return sorted(self.d)

    def f(x):
        t = T()
        t.a = x
        t.b = x + 1
        torch._dynamo.graph_break()
        del t.a
        return t.b * 2, hasattr(t, "a"), dir(t), getattr(t, "q", 3)

    return f, three()


@cases(graphs=5, breaks=4, recompiles=3)
def a_loop_over_a_generator_inside_another():
    def inner(n):
        for i in range(n):
            yield i

    def outer(n):
        yield from inner(n)
        yield 10

    def f(x):
        for i in outer(3):
            x = x + i
            torch._dynamo.graph_break()
        return x * 2

    return f, three()


@cases(graphs=2, recompiles=1)
def counters_that_are_called_step():
    class State:
        def __init__(self):
            self.step = 0
            self.start = 9

    state, counts = State(), {"step": 0}

    def f(x):
        counts["step"] += 1
        state.step += 2
        state.start -= 1
        return x * counts["step"] + state.step - state.start

    return f, [(torch.randn(3, 4),) for _ in range(5)], [counts, state]


@cases(graphs=2, recompiles=1)
def rates_that_decay_in_place():
    state, weights = {"lr": 0.1, "t": 1.5}, torch.ones(3, 4)

    def f(x):
        state["lr"] *= 0.9
        state["t"] += state["lr"]
        state["t"] /= 1.25
        state["t"] -= 0.01
        weights.add_(x, alpha=-state["lr"])
        lr = state["lr"]
        lr **= 2
        return x * state["t"], weights * lr, lr

    return f, [(torch.randn(3, 4),) for _ in range(4)], [state, weights]


@cases(graphs=2, recompiles=1)
def a_module_s_temperature():
    class Cooling(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 2)
            self.temperature = 2.0

        def forward(self, x):
            self.temperature *= 0.9
            return (self.inner(x) / self.temperature).softmax(-1)

    m = Cooling()
    return m, [(torch.randn(3, 4),) for _ in range(4)], [m]


@cases()
def tensors_by_their_old_constructors():
    def f(x, a, n):
        table = np.array([[i / (j + 1) for j in range(4)] for i in range(3)])
        table[:, 0] = np.sin(table[:, 0])
        x = x + torch.FloatTensor(table) + torch.Tensor([1, 2.5, 3, True])
        made = torch.LongTensor([[1], [2]]), torch.BoolTensor([True]), torch.DoubleTensor([0.1])
        sizes = torch.Tensor(2, 3).shape, torch.IntTensor(x.size()).dtype, torch.Tensor().shape
        shared = torch.FloatTensor(a)
        shared += 1
        sizes += (torch.LongTensor([torch.tensor(n), 4, made[0][1, 0]]),)
        return x, made, sizes, shared, torch.Tensor(n, 1).fill_(2.0), torch.LongTensor(np.arange(2))

    arrays = [np.full(2, n, dtype=np.float32) for n in (1, 2)]
    return f, [(torch.randn(3, 4), a, 2) for a in arrays], arrays


@cases(graphs=1, breaks=1)
def old_constructors_that_mean_something_else():
    def f(x):
        return x * 2, torch.Tensor(x) is x

    return f, three()


@cases(graphs=3, recompiles=2)
def masks_of_lengths_that_change():
    def f(x, sizes):
        mask = torch.tensor([[i < s for i in range(4)] for s in sizes])
        return (
            x * mask,
            torch.tensor([[s, 1.5] for s in sizes]),
            torch.tensor([(s, 2) for s in sizes]),
        )

    return f, [(torch.randn(3, 4), sizes) for sizes in ([1, 2, 3], [2, 2, 2], [4, 1, 3])]


@cases()
def texts_of_tensors_that_nobody_reads():
    def f(x):
        y = x * 2
        texts = {"all": f"{y} of {y.shape}", "sum": f"{y.sum()!r}"}

        def why():
            return texts["all"] + f"{x}"

        kept = [f"{x.max()}", 1]
        return y + kept[1] + len(texts)

    return f, three()


@cases(graphs=5, breaks=1, recompiles=3)
def texts_of_tensors_that_are_read():
    log = []

    def f(x, way):
        text = f"sum {x.sum().round()}"
        x = x + 1
        if way == 0:
            log.append(text)
        elif way == 1 and "7" in text:
            x = x * 2
        elif way == 2:
            return x, [text]
        return x * 3, lambda: text

    return f, [(torch.ones(3, 4) * i, i) for i in range(4)], log


@cases(graphs=2, breaks=3)
def a_pullback_that_outlives_the_graph():
    def f(x):
        y = x * 2
        out, pull = torch.func.vjp(torch.cos, y)
        torch._dynamo.graph_break()
        return pull(x)[0] + 1, out

    return f, three()


@pytest.mark.parametrize("case", cases, ids=str)
def test_captured_as_in_eager(case: Case) -> None:
    assert check(case) > 0


def test_numbers_that_are_only_reported_are_soon_left_to_python() -> None:
    """What follows the break has no tensors: it stops compiling early, and nobody is warned."""
    best = [float("inf")]

    def step(x: torch.Tensor) -> tuple:
        loss = (x * 2).sum().item()
        best[0] = min(best[0], loss)
        return f"{loss:.4f}".replace("0", "o"), best[0]

    compiled = refcompiler.compile(step, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(20):
            x = torch.full((3,), 7.5 - i * 1.3)
            best[0] = float("inf") if i == 0 else best[0]
            before = list(best)
            found = compiled(x)
            after, best[:] = list(best), before
            assert found == step(x) and best == after
    counted = refcompiler.counters()
    assert (counted["graphs"], counted["breaks"], counted["fallbacks"]) == (1, 1, 0)
    assert counted["recompiles"] == 3 and counted["captures"] == 5


def test_what_follows_a_break_compiles_on_where_it_has_a_graph() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return x + round(x.sum().item())

    compiled = refcompiler.compile(step, backend="eager", dynamic=False)
    for i in range(6):
        x = torch.full((3,), float(i))
        assert compiled(x).equal(step(x))
    assert refcompiler.counters()["graphs"] == 7 and refcompiler.counters()["fallbacks"] == 0
