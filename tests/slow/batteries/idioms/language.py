"""What Python offers, around tensors: exceptions, coroutines, classes of classes, recipes, text."""

from __future__ import annotations

import bisect
import collections
import contextlib
import copy
import datetime
import decimal
import enum
import fractions
import functools
import heapq
import inspect
import io
import itertools
import json
import math
import operator
import pickle
import re
import statistics
import string
import struct
import threading
import types
import typing
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, astuple, dataclass, field, fields, replace
from typing import Any, Literal, Protocol, Self, runtime_checkable

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.slow.batteries.idioms.common import Compiled, descend, idiom, mlp, state


@idiom
def exception_groups_and_notes(compiled: Compiled) -> list[Any]:
    class ShapeError(ValueError):
        def __init__(self, shape, wanted):
            super().__init__(f"{shape} is not {wanted}")
            self.shape = shape

    def check(x, wanted):
        if x.shape[-1] != wanted:
            error = ShapeError(tuple(x.shape), wanted)
            error.add_note(f"mean {len(x)}")
            raise error
        return x

    def all_of(tensors, wanted):
        errors, kept = [], []
        for i, t in enumerate(tensors):
            try:
                kept.append(check(t, wanted) * (i + 1))
            except ShapeError as e:
                errors.append(e)
                if i > 2:
                    errors.append(TypeError("late"))
        told = []
        try:
            if errors:
                raise ExceptionGroup("wrong shapes", errors)
        except* ShapeError as group:
            told += [(e.shape, e.__notes__) for e in group.exceptions]
        except* TypeError as group:
            told.append(str(group.exceptions[0]))
        finally:
            told.append(len(kept))
        return torch.stack(kept).sum(0), told

    def chained(x, k):
        try:
            try:
                return {"a": x.sin()}[k]
            except KeyError as e:
                raise LookupError(f"no {k}") from e
        except LookupError as e:
            cause = type(e.__cause__).__name__
            try:
                raise ValueError(cause)
            except ValueError as again:
                return x.cos() + len(str(again)) + isinstance(again.__context__, LookupError)

    run, run_chained = compiled(all_of), compiled(chained)
    out: list[Any] = []
    for widths in ((3, 3), (3, 2, 3), (3, 2, 3, 4, 5), (3, 3)):
        found, told = run([torch.randn(2, w) for w in widths], 3)
        out += [found, told]
    x = torch.randn(3)
    return out + [run_chained(x, k) for k in "aba"]


@idiom
def coroutines_by_hand(compiled: Compiled) -> list[Any]:
    class Ready:
        def __init__(self, value):
            self.value = value

        def __await__(self):
            got = yield self.value
            return got

    @contextlib.asynccontextmanager
    async def scaled(log, by):
        log.append(f"enter {by}")
        try:
            yield by
        finally:
            log.append(f"leave {by}")

    async def numbers(n):
        for i in range(n):
            yield i + await Ready(i)

    async def layer(x, w, log):
        async with scaled(log, 2.0) as by:
            total = x @ w * by
            async for i in numbers(3):
                total = total + i
            return total.tanh() + sum([i async for i in numbers(2)])

    async def network(x, ws, log):
        for w in ws:
            x = await layer(x, w, log)
        return x

    def drive(coroutine):
        answer = None
        while True:
            try:
                asked = coroutine.send(answer)
            except StopIteration as stop:
                return stop.value
            answer = asked * 10

    def f(x, *ws):
        log: list[str] = []
        return drive(network(x, ws, log)), log

    run = compiled(f)
    out: list[Any] = []
    w = [torch.randn(3, 3, requires_grad=True) for _ in range(2)]
    for count in (1, 2, 2):
        y, log = run(torch.randn(2, 3), *w[:count])
        y.sum().backward()
        out += [y.detach(), log]
    return out + [t.grad for t in w]


@idiom
def generators_that_talk(compiled: Compiled) -> list[Any]:
    def averager():
        total, count, mean = 0.0, 0, None
        while True:
            try:
                value = yield mean
            except GeneratorExit:
                return
            except ValueError:
                total, count = 0.0, 0
                continue
            total, count = total + value, count + 1
            mean = total / count

    def chunks(x, size):
        pieces = yield from (p.sum() for p in x.split(size))
        return pieces

    def outer(x):
        first = yield from chunks(x, 2)
        yield first is None
        return "done"

    def f(x, reset_at):
        gen = averager()
        next(gen)
        means = []
        for i, v in enumerate(x.unbind()):
            if i == reset_at:
                gen.throw(ValueError)
            means.append(gen.send(v))
        gen.close()
        it, rest = outer(x), []
        while True:
            try:
                rest.append(next(it))
            except StopIteration as stop:
                return torch.stack(means), rest, stop.value

    def scheduler(tasks):
        queue = collections.deque(tasks.items())
        order, results = [], {}
        while queue:
            name, task = queue.popleft()
            try:
                next(task)
                order.append(name)
                queue.append((name, task))
            except StopIteration as stop:
                results[name] = stop.value
        return order, results

    def power(x, n):
        y = x
        for _ in range(n):
            y = y * x
            yield
        return y

    def both(x):
        order, found = scheduler({"a": power(x, 2), "b": power(x + 1, 3), "c": power(x, 0)})
        return order, torch.stack([found[k] for k in sorted(found)])

    run, run_both = compiled(f), compiled(both)
    out: list[Any] = []
    for n, at in ((4, -1), (5, 2), (4, -1)):
        means, rest, end = run(torch.randn(n), at)
        out += [means, *rest, end]
        order, found = run_both(torch.randn(n))
        out += [order, found]
    return out


@idiom
def contextlib_tools(compiled: Compiled) -> list[Any]:
    class Resource(contextlib.ContextDecorator):
        opened = 0

        def __enter__(self):
            Resource.opened += 1
            return self

        def __exit__(self, kind, value, traceback):
            Resource.opened -= 1
            return kind is not None and issubclass(kind, ZeroDivisionError)

        def close(self):
            Resource.opened -= 10

    @Resource()
    def decorated(x):
        return x * Resource.opened

    def f(x, d, frozen=False):
        done = []
        y = x
        with contextlib.suppress(KeyError, IndexError):
            y = y + d["bias"]
            done.append("bias")
            y = y * d["gain"]
            done.append("gain")
        with contextlib.ExitStack() as stack:
            stack.callback(done.append, "left")
            stack.push(lambda *_: done.append("pushed"))
            stack.enter_context(torch.no_grad() if frozen else contextlib.nullcontext())
            y = y.sin()
            if len(d) > 2:
                later = stack.pop_all()
                later.close()
        with Resource():
            y = y / (len(d) - 1 and 1.0)
            1 // len(d)
            done.append("divided")
        with contextlib.closing(Resource()) as r:
            done.append(r.opened)
        with contextlib.redirect_stdout(io.StringIO()) as text:
            done.append(text.getvalue())
        return decorated(y), done

    run = compiled(f)
    out: list[Any] = []
    x = torch.randn(3, requires_grad=True)
    for d in ({"bias": 1.0}, {"bias": 1.0, "gain": 2.0}, {}, {"bias": 1.0, "gain": 3.0, "z": 0}):
        for frozen in (False, True):
            y, done = run(x, d, frozen)
            out += [y.requires_grad, y.detach(), done, Resource.opened]
    return out


@idiom
def containers_of_the_library(compiled: Compiled) -> list[Any]:
    class Config(collections.UserDict):
        def __missing__(self, key):
            return f"no {key}"

    class Layers(collections.UserList):
        def forward(self, x):
            for layer in self:
                x = layer(x)
            return x

    def f(x, overrides):
        defaults = {"scale": 1.0, "shift": 0.0, "power": 2}
        chain = collections.ChainMap(overrides, defaults)
        child = chain.new_child({"shift": 0.5})
        y = x * chain["scale"] + child["shift"]
        order = collections.OrderedDict((k, chain[k]) for k in sorted(chain))
        order.move_to_end("power", last=False)
        last = order.popitem()
        count = collections.Counter("abracadabra")
        count.subtract({"a": 2, "z": 1})
        most = (count + collections.Counter(a=1)).most_common(2)
        window = collections.deque([x.sum()], maxlen=3)
        for i in range(4):
            window.append(y.mean() * i)
        window.rotate(1)
        window.appendleft(x.amax())
        groups = collections.defaultdict(list)
        for i, row in enumerate(y):
            groups[i % 2].append(row)
        config = Config(a=1)
        layers = Layers([torch.sin]) + [torch.cos]
        stacked = {k: torch.stack(v).sum(0) for k, v in groups.items()}
        return (
            layers.forward(torch.stack(list(window))),
            list(order),
            last,
            most,
            stacked,
            config["a"],
            config["b"],
            dict(chain.maps[0]),
        )

    run = compiled(f)
    out: list[Any] = []
    for n, overrides in ((3, {}), (4, {"scale": 2.0}), (3, {"shift": 1.5, "scale": 3.0}), (3, {})):
        found, names, last, most, stacked, *rest = run(torch.randn(n, 2), overrides)
        out += [found, names, last, most, *stacked.values(), *rest]
    return out


@idiom
def heaps_and_bisection(compiled: Compiled) -> list[Any]:
    @dataclass(order=True)
    class Node:
        cost: float
        at: tuple[int, int] = field(compare=False)
        path: list[str] = field(compare=False, default_factory=list)

    def shortest(grid, start, goal):
        heap, seen = [Node(0.0, start)], set()
        while heap:
            node = heapq.heappop(heap)
            if node.at == goal:
                return node.cost, node.path
            if node.at in seen:
                continue
            seen.add(node.at)
            for name, (dy, dx) in {"d": (1, 0), "r": (0, 1), "u": (-1, 0)}.items():
                y, x = node.at[0] + dy, node.at[1] + dx
                if 0 <= y < len(grid) and 0 <= x < len(grid[0]):
                    cost = node.cost + grid[y][x]
                    heapq.heappush(heap, Node(cost, (y, x), [*node.path, name]))
        raise ValueError("no way")

    def along(costs, grid):
        total, path = shortest(grid, (0, 0), (2, 2))
        y = x = 0
        soft = costs.new_zeros(())
        for move in path:
            y, x = y + (move == "d") - (move == "u"), x + (move == "r")
            soft = soft + costs[y, x]
        return soft, total, "".join(path)

    def huffman(logits, text):
        heap = [(n, c, c) for c, n in collections.Counter(text).items()]
        heapq.heapify(heap)
        codes = dict.fromkeys(text, "")
        while len(heap) > 1:
            (a, ka, x), (b, kb, y) = heapq.heappop(heap), heapq.heappop(heap)
            for c in x:
                codes[c] = "0" + codes[c]
            for c in y:
                codes[c] = "1" + codes[c]
            heapq.heappush(heap, (a + b, min(ka, kb), x + y))
        lengths = torch.tensor([float(len(codes[c])) for c in sorted(codes)])
        return (logits[: len(lengths)].softmax(0) * lengths).sum(), codes

    def bucketed(x, edges, k):
        at = [bisect.bisect_right(edges, n) for n in (x.shape[0], k, 2.5)]
        bisect.insort(edges, k)
        merged = list(heapq.merge(edges, [0, 100]))
        top = heapq.nlargest(2, merged, key=lambda v: -abs(v - k))
        return x * at[0] + sum(at), at, merged, top

    run, run_huffman, run_bucketed = map(compiled, (along, huffman, bucketed))
    out: list[Any] = []
    costs = torch.tensor([[1.0, 3, 1], [1, 5, 1], [4, 2, 1]], requires_grad=True)
    for grid in ([[1, 3, 1], [1, 5, 1], [4, 2, 1]], [[1, 9, 1], [1, 9, 1], [1, 1, 1]]) * 2:
        soft, *rest = run(costs, grid)
        soft.backward()
        out += [soft.detach(), *rest]
    for text in ("abracadabra", "mississippi", "abracadabra"):
        out += run_huffman(torch.arange(8.0), text)
    edges = [2, 4, 8]
    for n, k in ((3, 5), (4, 1), (3, 5)):
        out += run_bucketed(torch.ones(n), edges, k)
    return [*out, edges, costs.grad]


@idiom
def recipes_of_itertools(compiled: Compiled) -> list[Any]:
    def roundrobin(*iterables):
        nexts = itertools.cycle(iter(it).__next__ for it in iterables)
        active = len(iterables)
        while active:
            try:
                for nxt in nexts:
                    yield nxt()
            except StopIteration:
                active -= 1
                nexts = itertools.cycle(itertools.islice(nexts, active))

    def sliding(iterable, n):
        it = iter(iterable)
        window = collections.deque(itertools.islice(it, n - 1), maxlen=n)
        for x in it:
            window.append(x)
            yield tuple(window)

    def f(x, names):
        rows = x.unbind()
        out = [a * b for a, b in itertools.pairwise(rows)]
        out += itertools.accumulate(rows, torch.maximum, initial=rows[0])
        out += [sum(w) for w in sliding(rows, 3)]
        out += itertools.starmap(torch.add, zip(rows, rows[1:]))
        out += roundrobin(rows[:1], rows[1:3], [])
        a, b = itertools.tee(rows)
        next(b, None)
        out += [p - q for p, q in zip(a, b)]
        out += [r * s for r, s in itertools.product(rows[:2], (1.0, -1.0))]
        out += [r for r, keep in zip(rows, itertools.cycle((True, False))) if keep]
        out += itertools.compress(rows, (0, 1, 1))
        out += [p + q for p, q in itertools.combinations(rows, 2)]
        out += [r * n for r, n in zip(rows, itertools.count(2, 3))]
        out += [r.sum() * (m or 0) + x[0] for r, m in itertools.zip_longest(rows, (1.0,))]
        runs = [(k, len(list(g))) for k, g in itertools.groupby(names)]
        short = list(itertools.takewhile(lambda n: n < "c", names))
        short += itertools.dropwhile(lambda n: n < "c", names)
        flat = list(itertools.chain.from_iterable(zip(names, names[1:])))
        perms = ["".join(p) for p in itertools.permutations(names[:3], 2)]
        return torch.stack(out), runs, short, flat, perms, list(itertools.repeat("r", len(rows)))

    run = compiled(f)
    out: list[Any] = []
    for n, names in ((3, "aabc"), (4, "abccd"), (3, "aabc")):
        x = torch.randn(n, 2, requires_grad=True)
        found, *rest = run(x, names)
        found.square().sum().backward()
        out += [found.detach(), *rest, x.grad]
    return out


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
        pipeline = compose(operator.neg, operator.methodcaller("sin"), operator.itemgetter(slice(2)))
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
def text_and_formats(compiled: Compiled) -> list[Any]:
    pattern = re.compile(r"(?P<op>[a-z]+)(?:\((?P<arg>-?[\d.]+)\))?")

    def parse(x, spec):
        trace = []
        for m in pattern.finditer(spec):
            op, arg = m["op"], m["arg"]
            if arg is None:
                x = getattr(torch, op)(x)
            else:
                x = getattr(torch, op)(x, float(arg))
            trace.append(f"{op:>6}|{float(arg or 0):+.2f}|{tuple(x.shape)!s}")
        return x, "\n".join(trace)

    def layers(x, weights):
        found = {k: v for k, v in weights.items() if re.fullmatch(r"layer\.\d+\.weight", k)}
        for k in sorted(found, key=lambda k: int(k.split(".")[1])):
            x = x @ found[k]
        left = sorted(weights.keys() - found.keys())
        name = string.Template("$n layers of ${d}").substitute(n=len(found), d=x.shape[-1])
        return x, left, name.title().center(30, "*"), json.dumps({"left": left, "n": len(found)})

    def settings(x, text):
        config = json.loads(text)
        for key, value in config.items():
            match key.partition("_"):
                case ["add", _, ""]:
                    x = x + value
                case ["mul", "_", how] if how.isdigit():
                    x = x * value * int(how)
                case [_, "_", _] | [_, "", _]:
                    x = x - len(key)
        packed = struct.pack("<if", len(config), 0.5)
        return x, packed.hex(), struct.unpack("<if", packed), "%-5s|%05.1f" % (text[:3], 2.5)

    a, b, c = map(compiled, (parse, layers, settings))
    out: list[Any] = []
    for spec in ("sin mul(2) relu", "add(-1.5) tanh", "sin mul(2) relu"):
        out += a(torch.ones(2), spec)
    weights = {f"layer.{i}.weight": torch.randn(3, 3) for i in (10, 9, 1)} | {"bias": torch.ones(1)}
    out += b(torch.randn(2, 3), weights)
    weights["layer.2.weight"] = torch.randn(3, 3)
    out += b(torch.randn(2, 3), weights)
    for text in ('{"add": 1, "mul_2": 3}', '{"other_x": null, "add": 0.5}', '{"add": 1, "mul_2": 3}'):
        out += c(torch.ones(2), text)
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
def bindings_and_closures(compiled: Compiled) -> list[Any]:
    total = 0.0

    def f(x, /, n, *rest, scale: float = 1.0, **options):
        nonlocal total
        total += n
        late = [lambda v: v * i for i in range(3)]
        bound = [lambda v, i=i: v * i for i in range(3)]
        y = sum(g(x) for g in late) + sum(g(x) for g in bound)
        if (size := len(rest)) > 1 and (last := rest[-1]) is not None:
            y = y + last * size
        first, *middle, end = [*rest, 1.0, 2.0, *options.values()]
        matrix = [[i * j for j in range(i)] for i in range(3) if i]
        counter = itertools.count()
        names = {k: next(counter) for k in sorted(options)}
        del first
        try:
            first  # noqa: B018
        except UnboundLocalError:
            y = y - end
        local = sorted(k for k in locals() if len(k) == 1)
        return y * scale, middle, matrix, names, local

    def counter():
        count = 0

        def bump(x):
            nonlocal count
            count += 1
            return x * count

        def reset():
            nonlocal count
            count = 0

        bump.reset = reset
        bump.history = []
        return bump

    bump = counter()

    def g(x):
        y = bump(x) + bump(x)
        bump.history.append(x.shape[0])
        if len(bump.history) == 2:
            bump.reset()
        return y

    run, run_g = compiled(f), compiled(g)
    out: list[Any] = []
    for args, options in (((1,), {}), ((2, 1.0, 3.0), {"b": 2.0, "a": 1.0}), ((1,), {"scale": 2.0})):
        out += [*run(torch.ones(2), *args, **options), total]
    out += [run_g(torch.ones(n)) for n in (2, 3, 2)]
    return [*out, bump.history]


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
        y = y + mantissa * exponent + math.hypot(3, 4) + math.copysign(1, -0.0) + math.fsum([0.1] * 3)
        low, high = divmod(-7, 3)
        y = y + low * high + round(2.5) + round(2.675, 2) + (7).bit_length() + int("ff", 16)
        return y, str(seventh), day.isoformat(), f"{third}", 0.1 .hex(), (0.75).as_integer_ratio()

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
