"""Containers and the standard library: order, iteration tools, functools, text, warnings."""

from conformance.rows.row import Row

ROWS = (
    Row("order kept", "dicts and sets", '''
        TABLE = {"b": 1, "a": 2}
        def program(x):
            TABLE["c"] = x
            TABLE["b"] = TABLE.pop("b") + 1
            return list(TABLE), x * TABLE["b"], TABLE.setdefault("d", 4)
        ''', ("f(x)", "f(x)", "del TABLE['a']", "f(x2)")),
    Row("reordered by the caller", "dicts and sets", '''
        def program(table):
            out = 0
            for place, key in enumerate(table):
                out = out + table[key] * (place + 1)
            return out
        ''', ("f({'a': x, 'b': x2})", "f({'b': x2, 'a': x})", "f({'a': x2, 'b': x, 'c': x})")),
    Row("methods", "dicts and sets", '''
        def program(x):
            table = dict(a=x, b=x + 1)
            table |= {"c": 3}
            table.update([("d", 4)], e=5)
            first = table.popitem()
            both = {**table, "a": 0} | {"z": x}
            try:
                table["missing"]
            except KeyError as error:
                return first, both, table.get("q", x), str(error), list(table.items())[1][1]
        '''),
    Row("views are live", "dicts and sets", '''
        def program(x):
            table = {"a": x}
            keys, values = table.keys(), table.values()
            table["b"] = x * 2
            return list(keys), [v + 1 for v in values], "b" in keys, len(values), keys & {"a"}
        '''),
    Row("sets", "dicts and sets", '''
        SEEN = {1, 2}
        def program(x, n):
            new = n not in SEEN
            SEEN.add(n)
            other = {k * 2 for k in SEEN} | frozenset((1,))
            return x * len(other) if new else x, sorted(other - SEEN), SEEN <= other
        ''', ("f(x, 3)", "f(x, 3)", "SEEN.clear()", "f(x, 3)")),
    Row("changed while iterated", "dicts and sets", '''
        def program(x):
            table = {1: x, 2: x}
            try:
                for key in table:
                    table[key + 10] = x
            except RuntimeError as error:
                return x + 1, str(error), len(table)
        '''),
    Row("list methods", "lists", '''
        ITEMS = [3, 1, 2]
        def program(x):
            ITEMS.append(len(ITEMS))
            ITEMS.sort(reverse=True)
            ITEMS[1:2] = [7, 8]
            out = [x * n for n in ITEMS[::2]]
            ITEMS.remove(7)
            ITEMS.insert(0, ITEMS.pop())
            return out, ITEMS.index(8), ITEMS * 2
        ''', ("f(x)", "f(x)", "ITEMS[:] = [5, 4, 7]", "f(x2)")),
    Row("tensors in a list argument", "lists", '''
        def program(items):
            items.append(items[0] + 1)
            items[0] = items[-1]
            items.reverse()
            return sum(items), len(items)
        ''', ("ITEMS = [x, x2]", "f(ITEMS)", "f(ITEMS)", "f([x2])")),
    Row("aliases in containers", "lists", '''
        def program(x):
            y = x * 2
            row = [y]
            nest = [row, row, {"k": row}]
            nest[0].append(x)
            y.add_(1)
            return nest, nest[0] is nest[1]
        '''),
    Row("recursive", "lists", '''
        def program(x):
            loop = [x * 2]
            loop.append(loop)
            return loop, loop[1][1][0] + 1
        '''),
    Row("subclasses", "user containers", '''
        class Stack(list):
            def push(self, value):
                self.append(value)
                self.count = len(self)
        class Table(dict):
            def __missing__(self, key):
                self[key] = len(key)
                return self[key]
        S = Stack()
        T = Table()
        def program(x):
            S.push(x * T["abc"])
            return S[-1], S.count, T, type(S + [1]).__name__
        '''),
    Row("collections", "user containers", '''
        import collections
        RECENT = collections.deque(maxlen=2)
        GROUPS = collections.defaultdict(list)
        ORDER = collections.OrderedDict(a=1, b=2, c=3)
        COUNTS = collections.Counter("ab")
        def program(x):
            RECENT.append(x + 1)
            GROUPS["k"].append(x)
            ORDER.move_to_end("a")
            COUNTS.update("ac")
            both = collections.ChainMap({"n": 2}, {"n": 5, "m": 3})
            return (x * both["n"] + both["m"], list(ORDER), len(RECENT), COUNTS.most_common(1),
                    RECENT[0] * 2)
        ''', ("f(x)", "f(x2)", "ORDER.move_to_end('b')", "f(x)")),
    Row("UserDict", "user containers", '''
        import collections
        class Lower(collections.UserDict):
            def __setitem__(self, key, value):
                super().__setitem__(key.lower(), value)
        L = Lower()
        def program(x):
            L["ABC"] = x * 2
            return L["abc"] + 1, list(L), "abc" in L
        '''),
    Row("partial", "functools", '''
        import functools
        def base(a, b, *, c=1):
            return a * b + c
        OUTER = functools.partial(base, c=5)
        def program(x):
            inner = functools.partial(OUTER, x)
            return inner(2), inner(3, c=1), inner.keywords, list(map(inner, (1, 2)))
        ''', ("f(x)", "OUTER = functools.partial(base, c=7)", "f(x)")),
    Row("reduce and wraps", "functools", '''
        import functools
        def doubled(g):
            @functools.wraps(g)
            def wrapper(*args, **more):
                return g(*args, **more) * 2
            return wrapper
        @doubled
        def plus(x, n=1):
            """Adds."""
            return x + n
        def program(x):
            total = functools.reduce(lambda a, b: a * 2 + b, [x, x + 1, x + 2])
            return total, plus(x), plus(x, n=3), plus.__name__, plus.__doc__, plus.__wrapped__(x)
        '''),
    Row("lru_cache", "functools", '''
        import functools
        RUNS = []
        @functools.lru_cache
        def slow(n):
            RUNS.append(n)
            return n * 2
        def program(x, n):
            return x * slow(n) + slow(n)
        ''', ("f(x, 2)", "f(x, 2)", "f(x, 3)")),
    Row("singledispatch", "functools", '''
        import functools
        @functools.singledispatch
        def kind(value):
            return "other"
        @kind.register
        def _(value: int):
            return value + 1
        @kind.register(list)
        def _(value):
            return [kind(v) for v in value]
        def program(x, value):
            return x * 2, kind(value)
        ''', ("f(x, 3)", "f(x, [1, 'a'])", "f(x, 'b')")),
    Row("total_ordering and cmp_to_key", "functools", '''
        import functools
        @functools.total_ordering
        class Size:
            def __init__(self, n):
                self.n = n
            def __eq__(self, other):
                return self.n == other.n
            def __lt__(self, other):
                return self.n < other.n
        def program(x):
            order = sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))
            return x * order[0], order, Size(2) >= Size(1)
        '''),
    Row("variables", "contextvars", '''
        import contextvars
        DEPTH = contextvars.ContextVar("DEPTH", default=1)
        def program(x):
            token = DEPTH.set(DEPTH.get() + 1)
            y = x * DEPTH.get()
            DEPTH.reset(token)
            return y, DEPTH.get()
        ''', ("f(x)", "DEPTH.set(5)", "f(x)")),
    Row("pipeline", "itertools", '''
        import itertools
        import operator
        def program(x):
            a = [x, x + 1, x + 2]
            out = list(itertools.chain(a, [x]))
            out += itertools.islice(a, 1, None)
            out += itertools.starmap(operator.mul, zip(a, (1, 2, 3)))
            out += itertools.accumulate(a)
            out += [p + q for p, q in itertools.pairwise(a)]
            out += [p + q for p, q in itertools.zip_longest(a, [1], fillvalue=2)]
            out += itertools.compress(a, [1, 0, 1])
            return out
        '''),
    Row("groups and products", "itertools", '''
        import itertools
        def program(x):
            pairs = sorted([("b", 1), ("a", 2), ("b", 3)], key=lambda p: p[0])
            groups = {k: [n for _, n in g] for k, g in itertools.groupby(pairs, key=lambda p: p[0])}
            grid = [x * p + q for p, q in itertools.product((1, 2), repeat=2)]
            return groups, grid, list(itertools.combinations("abc", 2))
        '''),
    Row("tee and cycle", "itertools", '''
        import itertools
        def program(x):
            left, right = itertools.tee(x * n for n in range(3))
            turn = itertools.cycle((1, -1))
            return [v * next(turn) for v in left], list(right)
        '''),
    Row("builtins", "iteration", '''
        def program(x):
            a = [x, x * 2, x * 3]
            it = iter(a)
            return (next(it), list(enumerate(a, 1)), list(map(lambda p, q: p - q, a, a[1:])),
                    [v for v in filter(lambda v: v is not x, a)], list(reversed(a)),
                    min([3, 1]), max((), default=x), sum(a), any(v is x for v in a), next(it, None))
        '''),
    Row("comprehensions", "iteration", '''
        def program(m):
            rows = [r * 2 for r in m]
            table = {n: r for n, r in enumerate(rows) if n != 1}
            return rows, table, [a + b for a in rows for b in rows[:2] if a is not b]
        ''', ("f(m)", "f(big)")),
    Row("for and while with else", "iteration", '''
        def program(x, limit):
            n = 0
            while n < limit:
                x = x + n
                n += 1
                if n == 4:
                    break
            else:
                x = x * 2
            return x, n
        ''', ("f(x, 2)", "f(x, 6)", "f(x, 0)")),
    Row("over a shape", "iteration", '''
        def program(x):
            out = x * 0
            for n in range(x.shape[0]):
                out[n] = x[: n + 1].sum()
            return out, len(x), [int(s) for s in x.shape]
        ''', ("f(x)", "f(long)", "f(longer)")),
    Row("patterns", "matching", '''
        class Point:
            __match_args__ = ("a", "b")
            def __init__(self, a, b):
                self.a, self.b = a, b
        def program(x, value):
            match value:
                case int(n) if n > 2:
                    return x * n
                case [first, *rest]:
                    return x + first, rest
                case {"k": k, **more}:
                    return x * k, more
                case Point(a, b=0):
                    return x - a
                case None | "none":
                    return x
                case _:
                    return x * 0
        ''', ("f(x, 3)", "f(x, [1, 2])", "f(x, {'k': 2, 'l': 1})", "f(x, Point(1, 0))",
              "f(x, 'none')", "f(x, 1)")),
    Row("formats", "text", '''
        def program(x, n, name):
            return (x + 1, f"{n:04d} {n=} {name!r:>8} {x.shape[0]:x}",
                    "%s-%d-%.2f" % (name, n, n / 3), "{0}{k}".format(n, k=name),
                    name.upper().center(9, "*"), "a,b".split(","), str(x.dtype))
        ''', ("f(x, 3, 'ab')", "f(x, 17, 'c')")),
    Row("printed in order", "text", '''
        def program(x):
            print("first", x.shape, sep="|", end=";")
            y = x * 2
            print(f"{y.dim()}", end="")
            y = y + 1
            print()
            return y
        '''),
    Row("a tensor printed", "text", '''
        def program(x):
            y = x * 2
            print(y, y.sum().item())
            return f"{y[0].item():.3f}", repr(y + 1), str(y.tolist())
        '''),
    Row("bytes and re", "text", '''
        import re
        def program(x, text):
            found = re.findall(r"(\\d+)", text)
            return x * len(found), found, text.encode().hex(), sum(map(int, found))
        ''', ("f(x, 'a1b22')", "f(x, 'none')")),
    Row("caught and counted", "warnings", '''
        import warnings
        def program(x):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                y = x * 2
                warnings.warn("careful", UserWarning)
                y = y + 1
            return y, [(w.category.__name__, str(w.message)) for w in seen]
        '''),
    Row("turned into errors", "warnings", '''
        import warnings
        def program(x):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    warnings.warn("old", DeprecationWarning)
                except DeprecationWarning as error:
                    return x + 1, str(error)
        '''),
    Row("copies", "copy and inspect", '''
        import copy
        class Box:
            def __init__(self, t):
                self.t, self.items = t, [1]
        def program(x):
            box = Box(x * 2)
            shallow, deep = copy.copy(box), copy.deepcopy({"n": [1, 2]})
            shallow.items.append(2)
            deep["n"].append(3)
            return shallow.t is box.t, box.items, deep, shallow.t + 1
        '''),
    Row("signature", "copy and inspect", '''
        import inspect
        def helper(a, b=2, *c, d, **e):
            return a
        def program(x):
            names = list(inspect.signature(helper).parameters)
            return x * len(names), names, inspect.isfunction(helper)
        '''),
    Row("operator", "operators", '''
        import operator
        class Holder:
            n = 3
        def program(x):
            get, attr = operator.itemgetter(1, 0), operator.attrgetter("n")
            a, b = get((x, 2))
            total = operator.iadd([1], [2])
            return operator.add(b, a), attr(Holder) * x, operator.methodcaller("sum")(x), total
        '''),
    Row("numbers", "operators", '''
        import math
        def program(x, n):
            return (x * (n // 2), n % 3, divmod(-n, 2), n ** 2, -n >> 1, n & 1, ~n, round(n / 3, 2),
                    math.sqrt(n), int("12") + n, math.floor(n / 2), bool(n), complex(n, 1), n / 4)
        ''', ("f(x, 7)", "f(x, 4)", "f(x, -3)")),
    Row("chained and short", "operators", '''
        def program(x, n, other=None):
            chosen = other if other is not None else x
            flag = 0 < n < 5 and not n == 2
            return chosen * 2 if flag else chosen + (n or 10), (y := n + 1) * y
        ''', ("f(x, 3)", "f(x, 2)", "f(x, 0)", "f(x, 3, x2)")),
    Row("is and in", "operators", '''
        def program(x, y):
            items = [x, y]
            return x is y, items[0] is x, any(v is y for v in [x]), x * (2 if x is y else 3)
        ''', ("f(x, x2)", "f(x, x)", "f(x2, x)")),
    Row("on a tensor's value", "branches", '''
        def program(x):
            y = x * 2
            if y.sum() > 0:
                return y + 1
            return y - 1
        ''', ("f(x)", "x.neg_()", "f(x)", "f(x2)")),
    Row("on an item", "branches", '''
        def program(x):
            n = int(x[0].item())
            y = x + n
            return y * 2 if n > 0 else y, n
        ''', ("f(x2)", "f(x2 * 3)", "f(-x2)")),
    Row("on a shape", "branches", '''
        def program(x):
            if x.shape[0] > 5:
                return x.sum()
            return x.view(2, -1) if x.shape[0] % 2 == 0 else x
        ''', ("f(x)", "f(long)", "f(longer)", "f(x2)")),
    Row("random", "random numbers", '''
        import random
        def program(x):
            n = random.randrange(1, 5)
            keep = torch.randint(0, 2, (4,))
            return x * n * keep, random.choice("abc")
        ''', ("f(x)", "f(x)", "torch.manual_seed(3)", "f(x)")),
    Row("seeded inside", "random numbers", '''
        def program(x, seed):
            torch.manual_seed(seed)
            return x + torch.randint(0, 9, (4,)), torch.randperm(4)
        ''', ("f(x, 1)", "f(x, 2)", "f(x, 1)")),
    Row("a module's state", "modules", '''
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("steps", torch.zeros(()))
                self.scale = 2
                self.log = []
            def forward(self, x):
                self.steps += 1
                self.log.append(self.training)
                return x * self.scale if self.training else x
        ''', ("f(x)", "model.eval()", "f(x)", "model.train()\nmodel.scale = 3", "f(x)"), "Net()"),
    Row("hooks", "modules", '''
        LOG = []
        class Net(torch.nn.Module):
            def forward(self, x):
                return x * 2
        def make():
            net = Net()
            net.register_forward_pre_hook(lambda module, args: LOG.append("before"))
            net.register_forward_hook(lambda module, args, out: out + len(LOG))
            return net
        ''', ("f(x)", "f(x)"), "make()"),
    Row("containers", "modules", '''
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.parts = torch.nn.ModuleList([torch.nn.ReLU(), torch.nn.Identity()])
                self.named = torch.nn.ModuleDict({"a": torch.nn.Hardtanh()})
            def forward(self, x):
                for part in self.parts:
                    x = part(x) + 1
                for name, part in self.named.items():
                    x = part(x) * len(name)
                return x, len(self.parts), [type(p).__name__ for p in self.children()]
        ''', ("f(x)", "model.parts.append(torch.nn.Hardtanh())", "f(x)",
              "model.parts[0] = torch.nn.Identity()", "f(x)"), "Net()"),
)  # fmt: skip
