"""Corners of the language that people do use: caches, descriptors, dispatch, scopes, flows."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import itertools
import string
import threading
import types
from typing import Any, Generic, TypeVar

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.slow.batteries.idioms.common import Compiled, idiom, state

V = TypeVar("V")


@idiom
def methods_by_functools(compiled: Compiled) -> list[Any]:
    class Layer(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.w = nn.Parameter(torch.ones(n))
            self.calls = 0

        def scaled(self, x, by, *, shift=0):
            self.calls += 1
            return x * self.w * by + shift

        double = functools.partialmethod(scaled, by=2)
        triple = functools.partialmethod(scaled, by=3, shift=1)

        @functools.cached_property
        def mask(self):
            self.calls += 100
            return torch.arange(len(self.w)) % 2

        @functools.singledispatchmethod
        def take(self, x):
            raise TypeError(type(x).__name__)

        @take.register
        def _(self, x: torch.Tensor):
            return x + 1

        @take.register(list)
        @take.register(tuple)
        def _(self, x):
            return sum(map(self.take, x))

        @functools.lru_cache(maxsize=4)  # noqa: B019
        def table(self, n):
            self.calls += 1000
            return torch.linspace(0, 1, n)

        def forward(self, x):
            return (
                self.double(x)
                + self.triple(x) * self.mask
                + self.take([x, (x, x)])
                + self.table(len(x))
            )

    out: list[Any] = []
    layer = Layer(4)
    run = compiled(layer)
    for n in (4, 4):
        out += [run(torch.ones(n)).detach(), layer.calls, "mask" in vars(layer)]
    del layer.mask
    layer.w.data.fill_(2)
    out += [run(torch.ones(4)).detach(), layer.calls, layer.table.cache_info().hits]
    layer.table.cache_clear()
    out += [run(torch.ones(4)).detach(), layer.calls]
    with contextlib.suppress(TypeError):
        out.append(compiled(layer.take)("x"))
    return out


@idiom
def descriptors_that_check(compiled: Compiled) -> list[Any]:
    class Bounded:
        def __init__(self, low, high):
            self.low, self.high = low, high

        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, instance, owner=None):
            return self if instance is None else getattr(instance, self.name)

        def __set__(self, instance, value):
            if not self.low <= value <= self.high:
                raise ValueError(f"{self.name[1:]} = {value}")
            instance.__dict__[self.name] = value
            instance.writes.append((self.name, value))

    class Setting(Generic[V]):
        rate = Bounded(0, 1)
        power = Bounded(1, 4)

        def __init__(self, rate, power):
            self.writes: list[Any] = []
            self.rate, self.power = rate, power

    @compiled
    def f(x, s, rate=None):
        if rate is not None:
            try:
                s.rate = rate
            except ValueError as error:
                return x, str(error), len(s.writes)
        fresh = Setting(s.rate / 2, s.power)
        return x**s.power * fresh.rate, Setting.rate.high, len(s.writes) + len(fresh.writes)

    s = Setting(0.5, 2)
    out: list[Any] = []
    for rate in (None, 0.25, 7, 0.25):
        out += [*f(torch.full((2,), 3.0), s, rate), s.rate, list(s.writes)]
    Bounded.high = 0
    return out


class Registry(type):
    known: dict[str, type] = {}

    def __new__(mcs, name, bases, space, key=None, **more):
        cls = super().__new__(mcs, name, bases, space, **more)
        if key:
            mcs.known[key] = cls
        return cls

    def __getitem__(cls, key):
        return cls.known[key]

    def __len__(cls):
        return len(cls.known)

    @property
    def keys_(cls):
        return sorted(cls.known)


class Op(metaclass=Registry):
    __slots__ = ("k",)

    def __init__(self, k=1):
        self.k = k

    def __init_subclass__(cls, /, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.depth = len(cls.__mro__)

    def __call__(self, x):
        return self.apply(x) * self.k


class Sin(Op, key="sin"):
    def apply(self, x):
        return x.sin()


class Twice(Sin, key="twice"):
    __slots__ = ("also",)

    def apply(self, x):
        return super().apply(super().apply(x)) + getattr(self, "also", 0)


@idiom
def registries_by_metaclass(compiled: Compiled) -> list[Any]:
    @compiled
    def f(x, key, k):
        op = Op[key](k)
        if key == "twice" and k > 1:
            op.also = 10
        return op(x), len(Op), Op.keys_, type(op).depth, isinstance(op, Sin)

    out: list[Any] = []
    x = torch.randn(3)
    for key, k in (("sin", 1), ("twice", 1), ("twice", 2), ("sin", 1)):
        out += f(x, key, k)

    class Cos(Op, key="cos"):
        def apply(self, x):
            return x.cos()

    out += f(x, "cos", 2)
    try:
        f(x, "tan", 1)
    except KeyError as error:
        out.append(str(error))
    del Registry.known["cos"]
    return [*out, *f(x, "sin", 1)]


@idiom
def scopes_and_late_binding(compiled: Compiled) -> list[Any]:
    total, calls = torch.zeros(2), 0

    def make(n):
        count = 0

        def inner(x):
            nonlocal count, total
            count += n
            total = total + x.sum()
            return x * count

        return inner, lambda: count

    @compiled
    def f(x, functions):
        nonlocal calls
        calls += 1
        for g in functions:
            x = g(x)
        late = [lambda x: x + i for i in range(3)]  # noqa: B023
        early = [lambda x, i=i: x + i for i in range(3)]
        return x, [g(x) for g in late], [g(x) for g in early], calls

    pairs = [make(n) for n in (1, 2)]
    out: list[Any] = []
    for n in (2, 3, 2):
        found = f(torch.ones(n), [g for g, _ in pairs])
        out += [found[0], *found[1], *found[2], found[3], *(c() for _, c in pairs), total]

    @compiled
    def counter(x):
        def step():
            nonlocal x
            x = x * 2
            return x

        yield_ = [step() for _ in range(2)]
        del step
        return x, yield_

    x, ys = counter(torch.ones(2))
    return [*out, x, *ys, *counter(torch.ones(3))[1]]


@idiom
def flows_of_exceptions(compiled: Compiled) -> list[Any]:
    class TooLarge(ValueError):
        def __init__(self, n, limit=3):
            super().__init__(f"{n} > {limit}")
            self.n = n

    log: list[str] = []

    def risky(x, n):
        if n > 3:
            raise TooLarge(n)
        if n < 0:
            raise ZeroDivisionError("negative")
        return x / n if n else x

    @compiled
    def f(x, n):
        try:
            y = risky(x, n)
        except TooLarge as error:
            log.append(str(error))
            y = x * error.n
        except (ArithmeticError, KeyError) as error:
            try:
                raise RuntimeError("again") from error
            except RuntimeError as inner:
                log.append(f"{type(inner.__cause__).__name__} {inner.__context__ is error}")
            y = -x
        else:
            log.append("fine")
            y = y + 1
        finally:
            log.append("done")
            x = x * 0
        return y + x

    @compiled
    def g(x, mode):
        for i in range(4):
            try:
                if i == 1 and mode == "continue":
                    continue
                if i == 2 and mode == "break":
                    break
                if i == 3 and mode == "return":
                    return x * 100
                x = x + i
            finally:
                x = x * 2
        else:
            x = -x
        return x

    @compiled
    def h(x, shape):
        try:
            return x.view(shape)
        except RuntimeError as error:
            log.append(str(error)[:25])
            return x.reshape(-1)

    out: list[Any] = []
    for n in (0, 5, -1, 2, 5):
        out.append(f(torch.ones(2), n))
    for mode in ("", "continue", "break", "return"):
        out.append(g(torch.ones(2), mode))
    out += [h(torch.ones(4), (2, 2)), h(torch.ones(4), (3, 3)), h(torch.ones(6), (3, 2))]
    raising = compiled(risky)
    for n in (9, -2, 1):
        try:
            out.append(raising(torch.ones(1), n))
        except Exception as error:
            out += [type(error).__name__, str(error), getattr(error, "n", None)]
    return [*out, log]


@idiom
def iterators_that_live_on(compiled: Compiled) -> list[Any]:
    def windows(xs, n):
        its = itertools.tee(xs, n)
        for i, it in enumerate(its):
            next(itertools.islice(it, i, i), None)
        return zip(*its)

    @compiled
    def f(x, n):
        out = [sum(w) for w in windows(x.unbind(), n)]
        pairs = [a * b for a, b in itertools.pairwise(x.unbind())]
        groups = {k: list(g) for k, g in itertools.groupby(range(len(out)), lambda i: i // 2)}
        chained = itertools.chain.from_iterable([out, pairs])
        return list(chained), groups, list(itertools.zip_longest(out, pairs[:1], fillvalue=None))

    @compiled
    def broken(x):
        found = []
        for (a, b), n in zip(itertools.pairwise(x.unbind()), itertools.count(1)):
            found.append((a * b).item() + n)
        for a, *rest in itertools.permutations(range(3), 2):
            found.append(float(x[a] + sum(rest)))
        it = iter([1, 2, 3])
        for a in it:
            found.append(float(x.sum()) * a + next(it, 0))
        return found, x * 2

    @compiled
    def consumed(x, it):
        first = next(it)
        rest = x + sum(itertools.islice(it, 2))
        return first, rest

    out: list[Any] = []
    for n in (2, 3):
        a, groups, longest = f(torch.arange(4.0), n)
        out += [*a, groups, len(longest)]
        found, y = broken(torch.arange(3.0) + n)
        out += [torch.tensor(found), y]
        it = itertools.cycle([1, 2, n])
        out += [*consumed(torch.ones(1), it), next(it)]
        gen = (i * i for i in range(n, 9))
        out += [*consumed(torch.ones(1), gen), next(gen)]
    return out


@idiom
def matching_on_shapes(compiled: Compiled) -> list[Any]:
    @dataclasses.dataclass(frozen=True, order=True)
    class Conv:
        width: int
        stride: int = 1

    class Kind(enum.StrEnum if hasattr(enum, "StrEnum") else str, enum.Enum):
        MAX = "max"
        MEAN = "mean"

    class Flag(enum.Flag):
        A = enum.auto()
        B = enum.auto()

    @compiled
    def f(x, spec):
        match spec:
            case Conv(width=w, stride=1):
                return F.avg_pool1d(x, w, 1)
            case Conv(w, s) if s > w:
                return x[..., ::s]
            case Conv():
                return F.max_pool1d(x, spec.width, spec.stride)
            case Kind.MAX | Kind.MEAN as kind:
                return getattr(x, kind.value)(-1) if kind is Kind.MEAN else x.amax(-1)
            case {"op": "scale", "by": float() | int() as by, **rest}:
                return x * by + len(rest)
            case [first, *_, last]:
                return f.__wrapped__(x, first) + last if hasattr(f, "__wrapped__") else x + last
            case (str() as name,):
                return getattr(torch, name)(x)
            case Flag.A | Flag.B:
                return x + spec.value
            case torch.Tensor(shape=(n,)) if n == x.shape[-1]:
                return x * spec
            case None | False:
                return x
            case _:
                raise TypeError(type(spec).__name__)

    out: list[Any] = []
    specs = (
        Conv(2),
        Conv(2, 3),
        Conv(2, 2),
        Kind.MAX,
        Kind.MEAN,
        {"op": "scale", "by": 2.5, "more": 1},
        ("sin",),
        torch.arange(6.0),
        None,
        Flag.A,
    )
    for spec in specs:
        try:
            out.append(f(torch.randn(1, 2, 6), spec))
        except TypeError as error:
            out.append(str(error))
    return [*out, sorted([Conv(3), Conv(1, 5), Conv(1)])[0].stride, (Flag.A | Flag.B).value]


@idiom
def modules_with_getattr(compiled: Compiled) -> list[Any]:
    class Wrapper(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner
            self.__dict__["extra"] = {"gain": 2.0}

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                if name in self.__dict__.get("extra", {}):
                    return self.extra[name]
                return getattr(self.inner, name)

        def forward(self, x):
            return self.inner(x) * self.gain + self.weight.sum()

    class Lazy:
        def __getattribute__(self, name):
            if name.startswith("w"):
                return float(len(name))
            return object.__getattribute__(self, name)

        def __getattr__(self, name):
            if name == "nope":
                raise AttributeError(name)
            setattr(self, name, len(self.__dict__) + 1)
            return -1

    wrapped = Wrapper(Wrapper(nn.Linear(2, 2)))
    run, lazy = compiled(wrapped), Lazy()
    out: list[Any] = [run(torch.ones(1, 2)).detach()]
    wrapped.extra["gain"] = 3.0
    out.append(run(torch.ones(1, 2)).detach())
    del wrapped.extra["gain"]
    wrapped.inner.extra["gain"] = 5.0
    out.append(run(torch.ones(1, 2)).detach())
    wrapped.gain = torch.tensor(0.5)
    out.append(run(torch.ones(1, 2)).detach())
    read = compiled(lambda x: x * lazy.www + lazy.first + lazy.second + hasattr(lazy, "nope"))
    for _ in range(3):
        out += [read(torch.ones(1)), dict(vars(lazy))]
    return out + state(wrapped)


@idiom
def locals_of_threads(compiled: Compiled) -> list[Any]:
    context = threading.local()

    class Scope(threading.local):
        depth = 0

        def __init__(self):
            self.names = ["root"]

        @contextlib.contextmanager
        def enter(self, name):
            self.names.append(name)
            self.depth += 1
            try:
                yield self
            finally:
                self.names.pop()
                self.depth -= 1

    scope = Scope()

    @compiled
    def f(x):
        scale = getattr(context, "scale", 1.0)
        with scope.enter("inner") as s:
            y = x * scale + s.depth
        context.calls = getattr(context, "calls", 0) + 1
        return y, ".".join(scope.names), context.calls

    out: list[Any] = [*f(torch.ones(2))]
    context.scale = 3.0
    out += f(torch.ones(2))
    with scope.enter("outer"):
        out += f(torch.ones(2))
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(f(torch.ones(2))))
    thread.start()
    thread.join()
    return [*out, *found, *f(torch.ones(2)), scope.depth]


@idiom
def texts_that_are_run(compiled: Compiled) -> list[Any]:
    activation = "torch.tanh"
    space: dict[str, Any] = {}
    exec("def scaled(x, k=2):\n    return x * k + bias", {"bias": 1.0}, space)
    made = types.FunctionType(space["scaled"].__code__, {"bias": 5.0}, "made", (3,))

    @compiled
    def f(x, expression):
        act = eval(activation)
        y = act(x) + eval(expression, {"torch": torch}, {"x": x, "n": x.shape[0]})
        return y + space["scaled"](x) + made(x)

    out: list[Any] = []
    for n, text in ((2, "x * n"), (3, "x * n"), (2, "x.cos()")):
        out.append(f(torch.ones(n), text))
    activation = "F.relu"
    return [*out, f(-torch.ones(2), "x.cos()"), string.Template("$a").substitute(a=1)]


@idiom
def arrays_reversed(compiled: Compiled) -> list[Any]:
    @compiled
    def f(a, k):
        order = np.argsort(a)[::-1]
        top = a[order[:k]]
        flipped = a[::-1].copy()
        return top * 2, flipped.cumsum(), np.flip(a)[::2].sum(), order

    @compiled
    def g(x, names):
        scores = x.numpy()
        table = {n: float(s) for n, s in zip(names, scores)}
        best = max(table, key=table.get)
        return torch.from_numpy(np.stack([scores, scores[::-1]])) + x, best

    out: list[Any] = []
    for n, k in ((4, 2), (5, 3)):
        a = np.asarray(torch.randn(n).numpy())
        out += [torch.from_numpy(np.ascontiguousarray(v)) for v in f(a, k)[:2]]
        out += [float(f(a, k)[2]), f(a, k)[3].tolist()]
        out += g(torch.randn(n), "abcde"[:n])
    return out
