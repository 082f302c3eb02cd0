"""What Python offers, around tensors: exceptions, coroutines, contexts, containers, text."""

from __future__ import annotations

import bisect
import collections
import contextlib
import heapq
import io
import itertools
import json
import re
import string
import struct
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.slow.batteries.idioms.common import Compiled, idiom


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
        return x, packed.hex(), struct.unpack("<if", packed), f"{text[:3]:<5}|{2.5:05.1f}"

    a, b, c = map(compiled, (parse, layers, settings))
    out: list[Any] = []
    for spec in ("sin mul(2) relu", "add(-1.5) tanh", "sin mul(2) relu"):
        out += a(torch.ones(2), spec)
    weights = {f"layer.{i}.weight": torch.randn(3, 3) for i in (10, 9, 1)} | {"bias": torch.ones(1)}
    out += b(torch.randn(2, 3), weights)
    weights["layer.2.weight"] = torch.randn(3, 3)
    out += b(torch.randn(2, 3), weights)
    for text in (
        '{"add": 1, "mul_2": 3}',
        '{"other_x": null, "add": 0.5}',
        '{"add": 1, "mul_2": 3}',
    ):
        out += c(torch.ones(2), text)
    return out


@idiom
def bindings_and_closures(compiled: Compiled) -> list[Any]:
    total = 0.0

    def f(x, /, n, *rest, scale: float = 1.0, **options):
        nonlocal total
        total += n
        late = [lambda v: v * i for i in range(3)]  # noqa: B023  (late, as people find out)
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
            first  # noqa: B018, F821
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
    for args, options in (
        ((1,), {}),
        ((2, 1.0, 3.0), {"b": 2.0, "a": 1.0}),
        ((1,), {"scale": 2.0}),
    ):
        out += [*run(torch.ones(2), *args, **options), total]
    out += [run_g(torch.ones(n)) for n in (2, 3, 2)]
    return [*out, bump.history]
