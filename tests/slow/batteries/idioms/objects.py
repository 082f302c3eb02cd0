"""What classes do: registries, descriptors, operators, copies, signatures, recursion."""

from __future__ import annotations

import copy
import datetime
import decimal
import fractions
import functools
import inspect
import itertools
import math
import operator
import pickle
import statistics
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self, runtime_checkable

import torch
import torch.nn as nn

from tests.slow.batteries.idioms.common import Compiled, idiom


@idiom
def operators_and_functools(compiled: Compiled) -> list[Any]:
    @functools.total_ordering
    class Version:
        def __init__(self, text):
            self.parts = tuple(map(int, text.split(".")))

        def __eq__(self, other):
            return self.parts == other.parts

        def __lt__(self, other):
            return self.parts < other.parts

        def __hash__(self):
            return hash(self.parts)

    class Layer:
        calls = 0

        def __init__(self, w):
            self.w = w

        @functools.cached_property
        def norm(self):
            Layer.calls += 1
            return self.w.norm()

        @functools.singledispatchmethod
        def scale(self, by):
            raise TypeError(type(by).__name__)

        @scale.register
        def _(self, by: int):
            return self.w * by

        @scale.register
        def _(self, by: str):
            return self.w * float(by)

        def power(self, n, shift=0.0):
            return self.w**n + shift

        square = functools.partialmethod(power, 2, shift=1.0)

        @functools.lru_cache(maxsize=2)  # noqa: B019  (people do)
        def offset(self, n):
            return n * 0.5

    def compose(*functions):
        return functools.reduce(lambda f, g: lambda x: g(f(x)), functions)

    def f(layer, version, by):
        pipeline = compose(
            operator.neg, operator.methodcaller("sin"), operator.itemgetter(slice(2))
        )
        y = pipeline(layer.w) * layer.norm + layer.square()[:2]
        if version >= Version("1.10"):
            y = y + layer.scale(by)[:2]
        y = y + layer.offset(3) + operator.attrgetter("w.ndim")(layer)
        ops = sorted(("add", "mul", "sub"), key=functools.cmp_to_key(lambda a, b: len(a) - len(b)))
        for op in ops:
            y = getattr(operator, op)(y, 2.0)
        y = operator.iadd(y, 1.0)
        return y, operator.index(3), max(Version("1.2"), version).parts

    run = compiled(f)
    out: list[Any] = []
    layer = Layer(torch.randn(3, requires_grad=True))
    for version, by in (("1.2", 2), ("1.10", 2), ("2.0", "1.5"), ("1.10", 2)):
        y, *rest = run(layer, Version(version), by)
        y.sum().backward(retain_graph=True)
        out += [y.detach(), *rest]
    try:
        run(layer, Version("3"), 1.5)
    except TypeError as error:
        out.append(str(error))
    return [*out, Layer.calls, layer.w.grad, Layer.offset.cache_info().hits]


@idiom
def classes_of_classes(compiled: Compiled) -> list[Any]:
    class Registry(type):
        known: dict[str, type] = {}

        def __new__(cls, name, bases, namespace, **options):
            made = super().__new__(cls, name, bases, namespace)
            made.options = options
            if not name.startswith("_"):
                Registry.known[name.lower()] = made
            return made

        def __getitem__(cls, key):
            return Registry.known[key]

        def __call__(cls, *args):
            instance = super().__call__(*args)
            instance.order = len(Registry.known)
            return instance

        def __len__(cls):
            return len(Registry.known)

        def __instancecheck__(cls, instance):
            return hasattr(instance, "apply")

    class _Base(metaclass=Registry):
        __slots__ = ("gain", "order")

        def __init__(self, gain=1.0):
            self.gain = gain

    class Sine(_Base, freq=3.0):
        def apply(self, x):
            return torch.sin(x * type(self).options["freq"]) * self.gain

    class Ramp(_Base):
        __slots__ = ()

        def apply(self, x):
            return x.clamp(min=0) * self.gain

    class Plugin:
        plugins: list[type] = []
        rank = 0

        def __init_subclass__(cls, /, rank=0, **kwargs):
            super().__init_subclass__(**kwargs)
            cls.rank = rank
            Plugin.plugins.append(cls)

        def __class_getitem__(cls, item):
            return types.GenericAlias(cls, (item,))

    class Double(Plugin, rank=2):
        def __call__(self, x):
            return x * 2

    class Shift(Plugin, rank=1):
        def __call__(self, x):
            return x + 1

    def f(x, name, gain):
        op = _Base[name](gain)
        y = op.apply(x)
        for plugin in sorted(Plugin.plugins, key=operator.attrgetter("rank")):
            y = plugin()(y)
        alias = Plugin[int]
        try:
            op.other = 1
            slotted = False
        except AttributeError:
            slotted = True
        return y, len(_Base), op.order, isinstance(op, _Base), alias.__args__[0].__name__, slotted

    def made(x, n):
        cls = type("Made", (nn.Module,), {"forward": lambda self, x: x * self.n, "n": n})
        return cls()(x), cls.__name__

    run, run_made = compiled(f), compiled(made)
    out: list[Any] = []
    for name, gain in (("sine", 1.0), ("ramp", 2.0), ("sine", 1.0)):
        x = torch.randn(4, requires_grad=True)
        y, *rest = run(x, name, gain)
        y.sum().backward()
        out += [y.detach(), *rest, x.grad]
    Sine.options["freq"] = 1.0
    out.append(run(torch.ones(2), "sine", 1.0)[0])
    return out + [v for n in (2, 3, 2) for v in run_made(torch.ones(2), n)]


@idiom
def descriptors_and_hooks_of_attributes(compiled: Compiled) -> list[Any]:
    class Bounded:
        def __init__(self, low, high):
            self.low, self.high = low, high

        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, instance, owner=None):
            return self if instance is None else getattr(instance, self.name)

        def __set__(self, instance, value):
            if not self.low <= value <= self.high:
                raise ValueError(f"{self.name[1:]} out of range")
            setattr(instance, self.name, value)

        def __delete__(self, instance):
            delattr(instance, self.name)

    class Tracked:
        rate = Bounded(0.0, 1.0)

        def __init__(self, rate):
            object.__setattr__(self, "reads", [])
            self.rate = rate
            self.extra = 1.0

        def __getattribute__(self, name):
            if name == "extra":
                object.__getattribute__(self, "reads").append(name)
            return super().__getattribute__(name)

        def __getattr__(self, name):
            if name.startswith("get_"):
                return lambda: getattr(self, name[4:])
            raise AttributeError(name)

        def __setattr__(self, name, value):
            super().__setattr__(name, value * 2 if name == "extra" else value)

        def __delattr__(self, name):
            self.reads.append(f"del {name}")
            super().__delattr__(name)

    def f(x, tracked, rate):
        try:
            tracked.rate = rate
        except ValueError as error:
            return x, str(error)
        y = x * tracked.rate + tracked.extra + tracked.get_extra()
        tracked.extra = tracked.extra + 1
        if rate > 0.8:
            del tracked.rate
        return y, getattr(tracked, "rate", "gone"), Tracked.rate.high

    run = compiled(f)
    tracked = Tracked(0.5)
    out: list[Any] = []
    for rate in (0.5, 0.25, 2.0, 0.9, 0.5):
        y, *rest = run(torch.ones(2), tracked, rate)
        out += [y, *rest, tracked.__dict__["extra"], list(tracked.reads)]
    return out


@idiom
def signatures_and_protocols(compiled: Compiled) -> list[Any]:
    @runtime_checkable
    class Scorer(Protocol):
        def score(self, x: torch.Tensor) -> torch.Tensor: ...

    class Dot:
        def __init__(self, w):
            self.w = w

        def score(self, x):
            return x @ self.w

    def norm(x, eps=1e-6):
        return x / (x.norm() + eps)

    def attend(x, mask=None, *, scale):
        x = x * scale
        return x if mask is None else x.masked_fill(mask, 0.0)

    class Container:
        def __init__(self, **services):
            self.services = services

        def call(self, function, x):
            names = list(inspect.signature(function).parameters)[1:]
            given = {n: self.services[n] for n in names if n in self.services}
            return function(x, **given)

    def f(x, container, functions, scorer):
        for function in functions:
            x = container.call(function, x)
        if isinstance(scorer, Scorer):
            x = scorer.score(x)
        hints = typing.get_type_hints(Scorer.score)
        bound = inspect.signature(attend).bind(x, scale=1)
        bound.apply_defaults()
        kinds = [p.kind.name for p in inspect.signature(attend).parameters.values()]
        modes = typing.get_args(Literal["a", "b"])
        return x, sorted(hints), list(bound.arguments), kinds, modes, inspect.isfunction(norm)

    run = compiled(f)
    out: list[Any] = []
    container = Container(scale=2.0)
    w = torch.randn(3, requires_grad=True)
    for functions, scorer in (([norm, attend], Dot(w)), ([attend], None), ([norm, attend], Dot(w))):
        y, *rest = run(torch.randn(2, 3), container, functions, scorer)
        out += [y.detach(), *rest]
        container.services["mask"] = torch.tensor([True, False, False])
    return out


@idiom
def recursion_and_memory(compiled: Compiled) -> list[Any]:
    def fft(x):
        n = x.shape[0]
        if n == 1:
            return x
        even, odd = fft(x[::2]), fft(x[1::2])
        turn = torch.exp(-2j * math.pi * torch.arange(n // 2) / n) * odd
        return torch.cat([even + turn, even - turn])

    def strassen(a, b):
        n = a.shape[0]
        if n <= 2:
            return a @ b
        h = n // 2
        (a11, a12), (a21, a22) = ((a[i : i + h, j : j + h] for j in (0, h)) for i in (0, h))
        (b11, b12), (b21, b22) = ((b[i : i + h, j : j + h] for j in (0, h)) for i in (0, h))
        m1, m2 = strassen(a11 + a22, b11 + b22), strassen(a21 + a22, b11)
        m3, m4 = strassen(a11, b12 - b22), strassen(a22, b21 - b11)
        m5, m6 = strassen(a11 + a12, b22), strassen(a21 - a11, b11 + b12)
        m7 = strassen(a12 - a22, b21 + b22)
        top = torch.cat([m1 + m4 - m5 + m7, m3 + m5], 1)
        return torch.cat([top, torch.cat([m2 + m4, m1 - m2 + m3 + m6], 1)])

    memory: dict[tuple[int, int], float] = {}

    def ways(n, k):
        if (n, k) not in memory:
            memory[n, k] = 1.0 if k in (0, n) else ways(n - 1, k - 1) + ways(n - 1, k)
        return memory[n, k]

    def bernstein(t, points):
        n = points.shape[0] - 1
        return sum(ways(n, k) * t**k * (1 - t) ** (n - k) * points[k] for k in range(n + 1))

    def flatten(tree):
        match tree:
            case torch.Tensor():
                return [tree]
            case {**items}:
                return [leaf for _, v in sorted(items.items()) for leaf in flatten(v)]
            case [*items]:
                return [leaf for v in items for leaf in flatten(v)]
        return []

    def whole(tree):
        return torch.cat([t.flatten() for t in flatten(tree)])

    run = [compiled(g) for g in (fft, strassen, bernstein, whole)]
    out: list[Any] = []
    for n in (8, 4, 8):
        out.append(run[0](torch.randn(n, dtype=torch.cfloat)))
        a = torch.randn(n, n, requires_grad=True)
        y = run[1](a, torch.randn(n, n))
        y.sum().backward()
        out += [y.detach(), a.grad]
        out.append(run[2](torch.rand(3, 1), torch.randn(n, 2)))
        x = torch.randn(2)
        out.append(run[3]({"b": [x, (x + 1, {"z": x})], "a": x * n, "c": None}))
    return [*out, len(memory)]


@idiom
def copies_within(compiled: Compiled) -> list[Any]:
    @dataclass
    class Beam:
        tokens: list[int]
        score: torch.Tensor
        cache: dict[str, torch.Tensor] = field(default_factory=dict)

        def fork(self, token, gain) -> Self:
            child = copy.copy(self)
            child.tokens = [*self.tokens, token]
            child.score = self.score + gain
            child.cache = copy.deepcopy(self.cache)
            child.cache["k"].mul_(2)
            return child

    class Clonable:
        def __init__(self, x):
            self.x, self.depth = x, 0

        def __copy__(self):
            new = type(self).__new__(type(self))
            new.__dict__.update(self.__dict__)
            new.depth += 1
            return new

        def __deepcopy__(self, memo):
            return type(self)(self.x.clone())

        def __reduce__(self):
            return (type(self), (self.x,))

    def f(beam, gains):
        children = [beam.fork(i, g) for i, g in enumerate(gains)]
        best = max(range(len(children)), key=lambda i: (len(children[i].tokens), -i))
        thing = Clonable(gains)
        shallow, deep = copy.copy(thing), copy.deepcopy(thing)
        shared = [gains, gains]
        twice = copy.deepcopy(shared)
        twice[0].add_(1)
        return children, best, shallow.depth, shallow.x is gains, deep.x is gains, twice[1]

    run = compiled(f)
    out: list[Any] = []
    for n in (2, 3, 2):
        beam = Beam([0], torch.zeros(()), {"k": torch.ones(2)})
        children, *rest = run(beam, torch.randn(n))
        out += [[c.tokens for c in children], *(c.score for c in children), *rest]
        out += [children[0].cache["k"], beam.cache["k"]]
    blob = pickle.dumps(children[0].tokens)
    return [*out, pickle.loads(blob)]


@idiom
def numbers_of_the_library(compiled: Compiled) -> list[Any]:
    def f(x, lengths):
        third = fractions.Fraction(1, 3) + fractions.Fraction(len(lengths), 6)
        y = x * float(third) + third.denominator
        with decimal.localcontext() as context:
            context.prec = 4
            seventh = decimal.Decimal(1) / decimal.Decimal(7)
        y = y + float(seventh)
        y = y * statistics.fmean(lengths) - statistics.median(lengths)
        day = datetime.date(2024, 2, 28) + datetime.timedelta(days=len(lengths))
        y = y + math.sin(2 * math.pi * day.timetuple().tm_yday / 366)
        y = y * math.gcd(*lengths) / math.comb(5, 2) + math.prod(lengths) + math.isqrt(17)
        mantissa, exponent = math.frexp(6.5)
        y = (
            y
            + mantissa * exponent
            + math.hypot(3, 4)
            + math.copysign(1, -0.0)
            + math.fsum([0.1] * 3)
        )
        low, high = divmod(-7, 3)
        y = y + low * high + round(2.5) + round(2.675, 2) + (7).bit_length() + int("ff", 16)
        return y, str(seventh), day.isoformat(), f"{third}", (0.1).hex(), (0.75).as_integer_ratio()

    run = compiled(f)
    out: list[Any] = []
    for lengths in ([2, 4], [3, 6, 9], [2, 4]):
        out += run(torch.ones(2), lengths)
    return out


@idiom
def numbers_with_operators(compiled: Compiled) -> list[Any]:
    class Dual:
        __slots__ = ("dx", "x")
        __array_priority__ = 100

        def __init__(self, x, dx=0.0):
            self.x, self.dx = x, dx

        def __add__(self, other):
            other = other if isinstance(other, Dual) else Dual(other)
            return Dual(self.x + other.x, self.dx + other.dx)

        __radd__ = __add__

        def __mul__(self, other):
            other = other if isinstance(other, Dual) else Dual(other)
            return Dual(self.x * other.x, self.x * other.dx + self.dx * other.x)

        __rmul__ = __mul__

        def __neg__(self):
            return -1.0 * self

        def __sub__(self, other):
            return self + -other

        def __rsub__(self, other):
            return other + -self

        def __pow__(self, n: int):
            return functools.reduce(operator.mul, [self] * n)

        def __truediv__(self, other):
            return self * other**-1

        def sin(self):
            return Dual(self.x.sin(), self.x.cos() * self.dx)

    class Poly(Sequence):
        def __init__(self, *c):
            self.c = c

        def __len__(self):
            return len(self.c)

        def __getitem__(self, i):
            return self.c[i]

        def __call__(self, x):
            return functools.reduce(lambda a, c: a * x + c, reversed(self), 0.0)

        def __matmul__(self, other):
            out = [0.0] * (len(self) + len(other) - 1)
            for (i, a), (j, b) in itertools.product(enumerate(self), enumerate(other)):
                out[i + j] += a * b
            return Poly(*out)

        def __bool__(self):
            return any(self.c)

        def __index__(self):
            return len(self.c)

        def __contains__(self, c):
            return c in self.c

        def __eq__(self, other):
            return self.c == other.c

        def __hash__(self):
            return hash(self.c)

    def f(x, p, q):
        d = Dual(x, torch.ones_like(x))
        y = 2.0 * d**3 - d.sin() + (1 - d) / 2.0
        product = p @ q
        z = product(d)
        flags = bool(p), 2.0 in p, list(reversed(q)), p == q, [0, 1, 2, 3][p:], {p: 1}.get(q)
        return torch.stack([y.x, y.dx, z.x, z.dx]), product.c, flags

    run = compiled(f)
    out: list[Any] = []
    for p, q in (((1.0, 2.0), (3.0,)), ((0.0,), (1.0, 2.0, 3.0)), ((1.0, 2.0), (1.0, 2.0))):
        out += run(torch.randn(3), Poly(*p), Poly(*q))
    return out
