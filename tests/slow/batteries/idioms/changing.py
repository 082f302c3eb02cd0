"""What changes between calls: globals, classes, flags, dtypes, modes, environments, clocks."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
import types
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stdout
from io import StringIO
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.slow.batteries.idioms.common import Compiled, descend, idiom, mlp, state

SCALE = 2.0
TABLE = {"gelu": F.gelu, "relu": F.relu}
HISTORY: list[int] = []


def helper(x):
    return x * SCALE + len(HISTORY)


@idiom
def globals_that_change(compiled: Compiled) -> list[Any]:
    global SCALE
    module = sys.modules[__name__]
    original = helper

    def f(x, kind):
        global SCALE
        HISTORY.append(x.shape[0])
        if kind == "bump":
            SCALE += 1.0
        return TABLE.get(kind, torch.neg)(helper(x))

    run, out = compiled(f), []
    x = torch.randn(3)
    try:
        for kind in ("gelu", "relu", "bump", "gelu"):
            out += [run(x, kind), SCALE, list(HISTORY)]
        module.helper = lambda x: x - SCALE
        TABLE["gelu"] = torch.sigmoid
        out.append(run(x, "gelu"))
        del TABLE["gelu"]
        out += [run(x, "gelu"), sorted(TABLE)]
    finally:
        module.helper = original
        TABLE["gelu"] = F.gelu
        SCALE = 2.0
        HISTORY.clear()
    return out


@idiom
def classes_that_change(compiled: Compiled) -> list[Any]:
    class Base:
        rate = 2

        def act(self, x):
            return x * self.rate

    class Child(Base):
        pass

    thing = Child()
    run = compiled(lambda x: thing.act(x) + getattr(thing, "offset", 0))
    x = torch.ones(2)
    out = [run(x)]
    Base.rate = 3
    out.append(run(x))
    thing.rate = 5
    out.append(run(x))
    del thing.rate
    Child.act = lambda self, x: Base.act(self, x) - 1
    out.append(run(x))
    Child.offset = property(lambda self: self.rate * 10)
    out.append(run(x))
    thing.act = types.MethodType(lambda self, x: x / self.rate, thing)
    out.append(run(x))
    thing.__class__ = Base
    out.append(run(x))
    thing.__dict__.clear()
    return [*out, run(x)]


@idiom
def flags_of_a_model(compiled: Compiled) -> list[Any]:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
    run = compiled(model)
    out: list[Any] = []

    def call(**options):
        x = torch.randn(3, 4, **options)
        y = run(x)
        out.extend([y.detach(), y.requires_grad, y.dtype])

    call()
    model.eval()
    call()
    model[2].train()
    call()
    model.requires_grad_(False)
    call(requires_grad=True)
    model.double()
    call(dtype=torch.double)
    model.float()
    model[1].momentum, model[1].eps = 0.5, 0.1
    model.train()
    call()
    model[3] = nn.Identity()
    call()
    model.append(nn.Tanh())
    call()
    model[1].track_running_stats = False
    call()
    model[0].weight.requires_grad_(True)
    call()
    model[0].bias = None
    call()
    with torch.no_grad():
        model[0].weight.zero_()
        call()
    model.to(torch.bfloat16)
    call(dtype=torch.bfloat16)
    return out + state(model)


@idiom
def defaults_of_torch(compiled: Compiled) -> list[Any]:
    def f(x):
        grid = torch.linspace(0, 1, 3)
        return x + grid, torch.zeros(2).dtype, (x > 0) * 1.5, torch.tensor(1.5), x.new_ones(1)

    run, out = compiled(f), []
    for dtype in (torch.float32, torch.float64, torch.float32, torch.float16):
        torch.set_default_dtype(dtype)
        try:
            out += [v for v in run(torch.ones(3)) if isinstance(v, torch.Tensor)]
        finally:
            torch.set_default_dtype(torch.float32)
    with torch.device("meta"):
        out += [t.device.type for t in run(torch.ones(3)) if isinstance(t, torch.Tensor)]
    for warn in (True, False):
        torch.use_deterministic_algorithms(warn)
        y = compiled(lambda x, i: x.index_add(0, i, torch.ones(2)))(
            torch.zeros(3), torch.tensor([0, 0])
        )
        out += [y, torch.are_deterministic_algorithms_enabled()]
    return out


@idiom
def modes_of_gradients(compiled: Compiled) -> list[Any]:
    layer = nn.Linear(3, 3)

    @compiled
    def f(x):
        y = layer(x)
        with torch.no_grad():
            z = layer(y)
        with torch.enable_grad():
            w = layer(x.detach())
        return y, z, w, torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    out: list[Any] = []
    contexts = (
        nullcontext(),
        torch.no_grad(),
        torch.inference_mode(),
        torch.enable_grad(),
        torch.autocast("cpu", torch.bfloat16),
        torch.set_grad_enabled(False),
        nullcontext(),
    )
    for context in contexts:
        with context:
            y, z, w, *flags = f(torch.randn(2, 3))
        torch.set_grad_enabled(True)
        out += [y.requires_grad, z.requires_grad, w.requires_grad, y.is_inference(), *flags]
        out += [t.detach().float().clone() for t in (y, z, w)]

    @compiled
    def toggles(x, on):
        torch.set_grad_enabled(on)
        y = layer(x)
        was = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        return y.requires_grad, was

    return [*out, *toggles(torch.ones(3), False), *toggles(torch.ones(3), True)]


@idiom
def clocks_and_environments(compiled: Compiled) -> list[Any]:
    @compiled
    def timed(x, marks):
        start = time.perf_counter()
        y = (x @ x).relu()
        marks.append(time.perf_counter() - start >= 0)
        if os.environ.get("IDIOMS_FAST", "0") == "1":
            y = y * 2
        if os.getenv("IDIOMS_NAME"):
            y = y + len(os.environ["IDIOMS_NAME"])
        return y, sys.version_info >= (3, 8), os.path.join("a", "b")

    out: list[Any] = []
    marks: list[bool] = []
    try:
        for fast, name in (("0", ""), ("1", ""), ("1", "abc"), ("0", "de")):
            os.environ["IDIOMS_FAST"], os.environ["IDIOMS_NAME"] = fast, name
            out += timed(torch.ones(2, 2), marks)
    finally:
        del os.environ["IDIOMS_FAST"], os.environ["IDIOMS_NAME"]
    out += [*timed(torch.ones(2, 2), marks), *marks]

    @compiled
    def sets(x, name):
        os.environ["IDIOMS_SET"] = name
        return x + 1

    try:
        for name in ("a", "b"):
            out += [sets(torch.ones(1), name), os.environ["IDIOMS_SET"]]
    finally:
        os.environ.pop("IDIOMS_SET", None)

    @compiled
    def slept(x):
        time.sleep(0.001)
        return x.sin(), threading.current_thread().name, threading.get_ident() == main

    main = threading.get_ident()
    return [*out, *slept(torch.ones(1)), *slept(torch.ones(2))]


@idiom
def prints_and_outputs(compiled: Compiled) -> list[Any]:
    @compiled
    def f(x, verbose=False, file=None):
        y = x * 2
        if verbose:
            print("shape", x.shape, x.dtype, sep=": ", end=";\n", file=file)
            print(f"{x.shape[0]:>4}|{y.sum().item():.2f}", file=file)
        return y.relu()

    out: list[Any] = []
    for verbose in (False, True, True):
        said = StringIO()
        with redirect_stdout(said):
            out.append(f(torch.arange(3.0), verbose))
        out.append(said.getvalue())
    said = StringIO()
    out += [f(torch.ones(2), True, said), said.getvalue()]

    @compiled
    def captured(x):
        with redirect_stdout(StringIO()) as inner:
            print("inside", end="")
            y = x + 1
        return y, inner.getvalue()

    return [*out, *captured(torch.ones(2)), *captured(torch.ones(3))]


@contextmanager
def patched(owner, **values):
    old = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield owner
    finally:
        for name, value in old.items():
            setattr(owner, name, value)


@idiom
def patches_for_a_while(compiled: Compiled) -> list[Any]:
    class Config:
        gain, depth = 1.0, 1

    model = mlp(4, 4, 4, drop=0.0)

    @compiled
    def f(x):
        for _ in range(Config.depth):
            x = model(x) * Config.gain
        with patched(Config, gain=5.0):
            x = x * Config.gain
        return x + Config.gain

    @compiled
    def stacked(x, n):
        with ExitStack() as stack:
            for i in range(n):
                stack.enter_context(patched(Config, gain=float(i)))
            stack.callback(setattr, Config, "depth", 2)
            x = x * Config.gain
        return x + Config.gain

    x, out = torch.randn(2, 4), []
    out.append(f(x).detach())
    with patched(Config, depth=2, gain=0.5):
        out.append(f(x).detach())
    out.append(f(x).detach())
    for n in (0, 2, 3):
        Config.depth = 1
        out += [stacked(x, n), Config.depth, Config.gain]
    try:
        with patched(Config, gain=3.0):
            out.append(f(x).detach())
            raise KeyError
    except KeyError:
        out.append(f(x).detach())
    return out


@idiom
def numbers_and_flags_as_inputs(compiled: Compiled) -> list[Any]:
    @compiled
    def f(x, n, flag, scale, name, dims, cut):
        y = x.sum(dims) * n if flag else x.mean(dims) / n
        if name in ("a", "b"):
            y = y + scale
        return y[cut], n + 1, not flag, scale * 2, name.upper(), dims, n > 2

    out: list[Any] = []
    x = torch.randn(3, 4, 5)
    calls = (
        (2, True, 0.5, "a", 0, slice(1, 3)),
        (3, True, 0.5, "a", 0, slice(1, 3)),
        (4, False, 1.5, "c", -1, slice(None, None, 2)),
        (0x10, False, float("inf"), "b", (0, 1), ...),
        (True, 1, -0.0, "b", [0, 2], 0),
        (2.0, None, 1, "", 1, None),
        (5, True, float("nan"), "a", 0, slice(1, 3)),
    )
    for call in calls:
        found = f(x, *call)
        out += [found[0], *map(repr, found[1:])]
    out += [repr(f(x.long(), 2, True, 3, "a", 0, 1)[0]), f(x.bool(), 2, True, 3, "a", 0, 1)[0]]
    return out


@idiom
def seeds_and_states(compiled: Compiled) -> list[Any]:
    generator = torch.Generator().manual_seed(5)

    @compiled
    def draws(x):
        return x + torch.rand_like(x), F.dropout(x, 0.5), torch.randn(2, generator=generator)

    @compiled
    def kept(x):
        before = torch.get_rng_state()
        y = torch.rand(3)
        torch.set_rng_state(before)
        return y - torch.rand(3) + x

    @compiled
    def forked(x):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            noise = torch.randn_like(x)
        return noise, torch.randn_like(x), random.random(), random.choice("abc")

    out: list[Any] = []
    for seed in (0, 1, 0):
        torch.manual_seed(seed)
        random.seed(seed)
        generator.manual_seed(seed)
        x = torch.ones(2 + seed)
        out += [*draws(x), *kept(torch.ones(3)), *forked(x), torch.initial_seed()]
    out.append(generator.get_state())
    return out


@idiom
def tensors_replaced_under_a_name(compiled: Compiled) -> list[Any]:
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(2, 2))
            self.register_buffer("mask", torch.ones(2))
            self.plain = torch.full((2,), 3.0)
            self.many = [torch.ones(2), torch.zeros(2)]

        def forward(self, x):
            self.seen = x.shape
            self.plain = self.plain + 1
            self.many[0] = self.many[0] * 2
            return (x @ self.w) * self.mask + self.plain + self.many[-1]

    m = Holder()
    run = compiled(m)
    out: list[Any] = []

    def call(n=2):
        y = run(torch.ones(n, 2))
        out.extend([y.detach(), m.plain.clone(), m.many[0].clone(), m.seen, y.requires_grad])

    call()
    m.w.data = torch.eye(2)
    call(3)
    m.w = nn.Parameter(torch.zeros(2, 2), requires_grad=False)
    call()
    m.mask = torch.tensor([True, False])
    call()
    m.register_buffer("mask", torch.tensor(2, dtype=torch.int8), persistent=False)
    call()
    m.many.append(torch.tensor(5))
    call()
    m.plain = nn.Parameter(torch.zeros(2)).detach().requires_grad_()
    call()
    m.w.data = torch.ones(2, 2).t()
    m.many[:] = m.many[:1]
    call()
    optimizer = torch.optim.SGD(
        [p for p in m.parameters() if p.requires_grad] or [m.mask.float().requires_grad_()], 0.1
    )
    out.append(descend(optimizer, run(torch.ones(1, 2, requires_grad=True)).sum()))
    return out
