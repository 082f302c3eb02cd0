"""What programs are made of besides tensors: idioms of the language and of its library."""

from conformance.rows.row import Row

ROWS = (
    Row(
        "call and prepare",
        "metaclasses",
        """
        class Ordered(dict):
            def __setitem__(self, k, v):
                dict.setdefault(self, "_order", []).append(k)
                dict.__setitem__(self, k, v)
        class Meta(type):
            made = []
            @classmethod
            def __prepare__(mcs, name, bases, **kw):
                return Ordered()
            def __new__(mcs, name, bases, ns, **kw):
                cls = super().__new__(mcs, name, bases, dict(ns))
                cls.kw = kw
                mcs.made.append(name)
                return cls
            def __init__(cls, name, bases, ns, **kw):
                super().__init__(name, bases, ns)
            def __call__(cls, *a):
                o = super().__call__(*a)
                o.seen = len(Meta.made)
                return o
        def program(x, n):
            class A(metaclass=Meta, scale=n):
                b = 1
                def go(self, t):
                    return t * self.kw["scale"] + self.b
            a = A()
            return a.go(x), a.seen, A._order, A.kw
        """,
        ("f(x, 2)", "f(x, 2)", "f(x2, 3)"),
    ),
    Row(
        "registry of subclasses",
        "metaclasses",
        """
        class Base:
            registry = {}
            def __init_subclass__(cls, /, name=None, **kw):
                super().__init_subclass__(**kw)
                Base.registry[name or cls.__name__] = cls
        def program(x, n):
            class Sub(Base, name=f"s{n}"):
                def __call__(self, t):
                    return t * n
            return Base.registry[f"s{n}"]()(x), sorted(Base.registry)
        """,
        ("f(x, 1)", "f(x, 1)", "f(x2, 2)"),
    ),
    Row(
        "missing keys",
        "containers of the user",
        """
        import types
        M = types.ModuleType("lazy")
        def _ga(name):
            if name.startswith("x"):
                return len(name)
            raise AttributeError(f"no {name}")
        M.__getattr__ = _ga
        class D(dict):
            def __missing__(self, k):
                self[k] = v = k * 2
                return v
        TABLE = D(a=1)
        def program(x, k):
            y = x * TABLE[k]
            try:
                M.q
            except AttributeError as e:
                m = str(e)
            return (
                y + M.xyz,
                m,
                list(TABLE.items()),
                hasattr(M, "xx"),
                hasattr(M, "y"),
                "{z}".format_map(D(z=1)),
            )
        """,
        ("f(x, 3)", "f(x, 3)", "TABLE.clear()", "f(x2, 4)"),
    ),
    Row(
        "special methods",
        "containers of the user",
        """
        class Vec:
            def __init__(self, *v):
                self.v = list(v)
            def __getitem__(self, i):
                return Vec(*self.v[i]) if isinstance(i, slice) else self.v[i]
            def __setitem__(self, i, x):
                self.v[i] = x
            def __delitem__(self, i):
                del self.v[i]
            def __len__(self):
                return len(self.v)
            def __iter__(self):
                yield from self.v
            def __reversed__(self):
                return iter(self.v[::-1])
            def __contains__(self, q):
                return any(q is w for w in self.v)
            def __add__(self, o):
                return Vec(*(a + b for a, b in zip(self, o)))
            def __radd__(self, o):
                return self if o == 0 else NotImplemented
            def __iadd__(self, o):
                self.v.append(o)
                return self
            def __matmul__(self, o):
                return sum(a * b for a, b in zip(self, o))
            def __neg__(self):
                return Vec(*(-a for a in self))
            def __call__(self, *a, **k):
                return len(a) + len(k)
            def __bool__(self):
                return len(self.v) > 1
            def __eq__(self, o):
                return isinstance(o, Vec) and len(self) == len(o)
            def __hash__(self):
                return 7
            def __index__(self):
                return 1
            def __format__(self, s):
                return f"V{len(self)}{s}"
            def __divmod__(self, o):
                return ("dm", o)
            def __rpow__(self, o):
                return o + len(self)
            def __getattr__(self, n):
                if n.startswith("e"):
                    return self.v[int(n[1:])]
                raise AttributeError(n)
        VV = Vec(1, 2)
        def program(x):
            a = Vec(x, 2, x + 1)
            b = a[1:]
            b += 5
            a[0] = x * 3
            del a[1]
            VV.v.append(len(VV))
            u, *w = a
            return (
                a @ Vec(1, 2),
                list(b),
                len(a + a),
                sum([Vec(1), Vec(2)]).v if False else 0,
                x in a,
                a.e1,
                [10, 20][a],
                f"{a:!}",
                divmod(a, 2),
                2**a,
                bool(Vec(1)),
                {a: 1}[Vec(0, 0)],
                -Vec(1),
                u,
                w,
                a(1, k=2),
                list(reversed(b)),
                VV.v,
                a == b,
                not Vec(),
            )
        """,
    ),
    Row(
        "sorted",
        "containers of the user",
        """
        class K:
            log = []
            def __init__(self, n):
                self.n = n
            def __lt__(self, o):
                K.log.append((self.n, o.n))
                return self.n < o.n
        def program(x):
            ks = [K(3), K(1), K(2)]
            s = sorted(ks)
            ks.sort(key=lambda k: -k.n)
            m = min(ks)
            d = sorted({"b": 1, "a": 2}.items(), key=lambda p: p[1], reverse=True)
            t = sorted([x, x[:2]], key=len)
            return (
                [k.n for k in s],
                [k.n for k in ks],
                m.n,
                d,
                len(K.log),
                [len(q) for q in t],
                sorted("bca"),
                max("ab", key=ord),
                x * len(K.log),
            )
        """,
    ),
    Row(
        "thrown into and closed",
        "generators by hand",
        """
        LOG = []
        def gen(x):
            while True:
                try:
                    got = yield x
                    LOG.append(got)
                except ValueError as e:
                    LOG.append(str(e))
                    x = x * 2
                except GeneratorExit:
                    LOG.append("exit")
                    raise
                finally:
                    LOG.append("fin")
        def program(x):
            g = gen(x)
            a = next(g)
            b = g.send(1)
            c = g.throw(ValueError("v"))
            g.close()
            try:
                next(g)
            except StopIteration:
                LOG.append("stop")
            return a + b + c, len(LOG), g.gi_frame
        """,
    ),
    Row(
        "delegation",
        "generators by hand",
        """
        def leaf(n):
            got = yield n
            return (got or 0) + n
        def mid(n):
            a = yield from leaf(n)
            b = yield from leaf(n + 1)
            c = yield from [7, 8]
            return a * b, c
        def program(x):
            g = mid(2)
            out = [next(g), g.send(5), g.send(6), next(g)]
            try:
                next(g)
            except StopIteration as e:
                v = e.value
            def top():
                r = yield from mid(1)
                yield r
            return x * out[1], out, v, list(top())
        """,
    ),
    Row(
        "iterators",
        "generators by hand",
        """
        class It:
            def __init__(self, n):
                self.n = n
            def __iter__(self):
                return self
            def __next__(self):
                if self.n <= 0:
                    raise StopIteration
                self.n -= 1
                return self.n
            def __length_hint__(self):
                return 99
        class Old:
            def __getitem__(self, i):
                if i > 2:
                    raise IndexError
                return i * 10
        SHARED = It(6)
        def program(x):
            a = [next(SHARED, None), next(SHARED, None)]
            z = list(zip(It(2), Old(), strict=False))
            e = list(enumerate(Old(), 5))
            m = max(It(4))
            s = sorted(Old(), reverse=True)
            u, v, w = Old()
            return (
                x * (a[0] or 1),
                a,
                z,
                e,
                m,
                s,
                w,
                20 in Old(),
                list(map(lambda p, q: p + q, It(3), Old())),
                any(i == 10 for i in Old()),
                dict(zip("ab", It(2))),
                tuple(filter(None, It(3))),
                ",".join(str(i) for i in It(2)),
                list(iter(It(2).__next__, 0)),
            )
        """,
        ("f(x)", "f(x)", "f(x)", "f(x2)"),
    ),
    Row(
        "alive between calls",
        "generators by hand",
        """
        def counter(x):
            n = 0
            while True:
                n += 1
                cmd = yield x * n
                if cmd == "reset":
                    n = 0
        GEN = {}
        def program(x, cmd):
            if "g" not in GEN:
                GEN["g"] = counter(x)
                first = next(GEN["g"])
            else:
                first = None
            return GEN["g"].send(cmd), first, GEN["g"].gi_running
        """,
        ("f(x, None)", "f(x2, None)", "f(x, 'reset')", "f(x, None)"),
    ),
    Row(
        "caught by kind",
        "exceptions in groups",
        """
        def program(x, n):
            log = []
            try:
                raise ExceptionGroup(
                    "many",
                    [ValueError(n), TypeError("t"), ExceptionGroup("in", [KeyError("k")])],
                )
            except* ValueError as g:
                log.append((len(g.exceptions), g.exceptions[0].args))
            except* (TypeError, KeyError) as g:
                log.append((g.message, [type(e).__name__ for e in g.exceptions]))
                x = x + 1
            else:
                x = x * 100
            finally:
                log.append("f")
            return x, log
        """,
        ("f(x, 1)", "f(x, 1)", "f(x2, 2)"),
    ),
    Row(
        "written from inside",
        "scopes of comprehensions",
        """
        def program(x):
            total = 0
            calls = []
            def bump(v):
                nonlocal total
                total += v
                calls.append(total)
                return total
            ys = [x * bump(i) for i in range(4) if (k := i) % 2 == 0 or bump(10)]
            d = {j: (last := j) for j in "abc"}
            return (
                ys,
                total,
                calls,
                k,
                last,
                [lambda i=i: i for i in range(3)][1](),
                [f() for f in [lambda: i for i in range(3)]],
            )
        """,
    ),
    Row(
        "deep closures",
        "scopes of comprehensions",
        """
        COUNT = 0
        def make(n):
            total = [0]
            def outer(k):
                acc = n
                def mid(v=[], *, w={}):
                    v.append(k)
                    w[k] = len(v)
                    def inner(t):
                        nonlocal acc
                        acc += k
                        total[0] += 1
                        global COUNT
                        COUNT += 1
                        return t * acc + sum(v)
                    return inner
                return mid
            return outer, total
        OUTER, TOTAL = make(3)
        MID = OUTER(2)
        def program(x):
            f1 = MID()
            f2 = MID()
            def mutable(t, seen=[]):
                seen.append(t.shape[0])
                return len(seen)
            return (
                f1(x) + f2(x),
                TOTAL[0],
                COUNT,
                MID.__defaults__[0],
                MID.__kwdefaults__["w"],
                mutable(x),
                mutable(x),
                mutable.__defaults__,
            )
        """,
    ),
    Row(
        "of classes",
        "patterns",
        """
        import dataclasses
        @dataclasses.dataclass
        class Pt:
            a: int
            b: object
        class K:
            __match_args__ = ("u", "v")
            def __init__(self, u, v):
                self.u = u
                self.v = v
        def which(v):
            match v:
                case Pt(0, b):
                    return ("zero", b)
                case Pt(a=int(n), b=torch.Tensor() as t) if n > 2:
                    return ("big", n, t)
                case Pt():
                    return "pt"
                case K(u, v=[1, *rest]):
                    return ("k", u, rest)
                case {"op": "mul" | "add" as op, **kw}:
                    return (op, kw)
                case [x, y, *_] if x == y:
                    return "pair"
                case str() | bytes():
                    return "text"
                case torch.float32 | None:
                    return "const"
                case float(z):
                    return z
                case _:
                    return "other"
        def program(x, n):
            return [
                which(v)
                for v in (
                    Pt(0, x * n),
                    Pt(n, x),
                    Pt(1, 2),
                    K(5, [1, 2, 3]),
                    {"op": "mul", "k": x},
                    [n, n, 1],
                    "s",
                    None,
                    2.5,
                    torch.float32,
                    K(1, [2]),
                )
            ]
        """,
        ("f(x, 3)", "f(x, 1)", "f(x2, 3)"),
    ),
)
