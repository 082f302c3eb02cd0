"""Attributes by rule, statements, classes of values, and the ends of objects."""

from conformance.rows.row import Row

ROWS = (
    Row(
        "slots",
        "attributes by rule",
        """
        class S:
            __slots__ = ("_v", "n", "__weakref__")
            def __init__(self, v):
                self._v = v
                self.n = 0
            @property
            def v(self):
                self.n += 1
                return self._v
            @v.setter
            def v(self, new):
                if new is None:
                    raise ValueError("none")
                self._v = new
            @v.deleter
            def v(self):
                del self._v
        G = S(2)
        def program(x, k):
            s = S(x)
            y = s.v * G.v
            G.v = k
            try:
                G.v = None
            except ValueError as e:
                m = str(e)
            del s.v
            try:
                s.extra = 1
            except AttributeError as e:
                m += str(e)
            return y + G.v, G.n, s.n, m, hasattr(s, "v")
        """,
        ("f(x, 1)", "f(x, 1)", "f(x2, 4)"),
    ),
    Row(
        "proxy",
        "attributes by rule",
        """
        class Proxy:
            def __init__(self, t):
                object.__setattr__(self, "t", t)
                object.__setattr__(self, "log", [])
            def __getattribute__(self, n):
                if n in ("t", "log"):
                    return object.__getattribute__(self, n)
                self.log.append("get " + n)
                return getattr(self.t, n)
            def __setattr__(self, n, v):
                self.log.append("set " + n)
                setattr(self.t, n, v)
            def __delattr__(self, n):
                self.log.append("del " + n)
                delattr(self.t, n)
            def __dir__(self):
                return ["zz"]
        class Tgt:
            pass
        TG = Tgt()
        PX = Proxy(TG)
        def program(x):
            PX.a = x.shape[0]
            y = x * PX.a
            del PX.a
            PX.b = getattr(PX, "b", 0) + 1
            return y, PX.log, vars(TG), dir(PX), hasattr(PX, "nope")
        """,
    ),
    Row(
        "methods replaced",
        "attributes by rule",
        """
        class A:
            k = 1
            def go(self, t):
                return t * self.k
        OA = A()
        def program(x, how):
            if how == 1:
                A.go = lambda self, t: t + 100
            elif how == 2:
                A.k = 7
            elif how == 3:
                OA.go = lambda t: t - 1
            elif how == 4:
                del OA.go
            elif how == 5:
                A.__call__ = lambda self, t: t * 5
            r = OA.go(x)
            return (r, OA(x)) if how >= 5 else r
        """,
        (
            "f(x, 0)",
            "f(x, 2)",
            "f(x, 1)",
            "f(x, 3)",
            "f(x, 0)",
            "f(x, 4)",
            "f(x2, 5)",
            "A.k = 2",
            "f(x, 0)",
        ),
    ),
    Row(
        "flags",
        "classes of values",
        """
        import enum
        class Perm(enum.Flag):
            R = enum.auto()
            W = enum.auto()
            X = enum.auto()
            RW = R | W
            @property
            def n(self):
                return len(list(self))
        class Color(str, enum.Enum):
            RED = "r"
            BLUE = "b"
            @classmethod
            def _missing_(cls, v):
                return cls.RED
        class Num(enum.IntEnum):
            ONE = 1
            TWO = 2
        def program(x, p):
            q = p | Perm.X
            return (
                x * q.value * q.n,
                Perm.R in q,
                ~p,
                [m.name for m in Perm],
                Color("zz") is Color.RED,
                Color.BLUE + "x",
                Num.ONE + 1 == Num.TWO,
                Num(2).name,
                Perm["R"] ^ p,
                isinstance(Num.ONE, int),
                f"{Color.RED.value} {Num.TWO:d}",
                Color.__members__["BLUE"].value,
            )
        """,
        ("f(x, Perm.R)", "f(x, Perm.R)", "f(x2, Perm.RW)"),
    ),
    Row(
        "dataclasses",
        "classes of values",
        """
        import dataclasses
        @dataclasses.dataclass(order=True, frozen=True)
        class F:
            n: int
            tag: str = dataclasses.field(default="t", compare=False)
            items: tuple = ()
        @dataclasses.dataclass(slots=True, kw_only=True)
        class S:
            v: object
            w: list = dataclasses.field(default_factory=list)
            def __post_init__(self):
                self.w.append(1)
        @dataclasses.dataclass
        class I(torch.nn.Module if False else object):
            a: int
            b: dataclasses.InitVar[int] = 3
            c: int = dataclasses.field(init=False)
            def __post_init__(self, b):
                self.c = self.a + b
        def program(x, n):
            f1, f2 = F(n), F(2, "z")
            try:
                f1.n = 3
            except dataclasses.FrozenInstanceError as e:
                m = str(e)
            s = S(v=x)
            i = I(n)
            D = dataclasses.make_dataclass("D", [("p", int), ("q", int, 5)])
            return (
                s.v * i.c,
                f1 < f2,
                f1 == F(2),
                hash(f1) == hash(F(n)),
                repr(f1),
                m,
                dataclasses.asdict(i),
                dataclasses.replace(f2, n=9),
                [f.name for f in dataclasses.fields(S)],
                repr(D(n)),
                s.w,
                dataclasses.astuple(f2),
            )
        """,
        ("f(x, 1)", "f(x, 1)", "f(x2, 2)"),
    ),
    Row(
        "of numbers and text",
        "classes of values",
        """
        class Name(str):
            def __new__(cls, v, extra=None):
                o = super().__new__(cls, v.upper())
                o.extra = extra
                return o
            def __add__(self, o):
                return Name(str.__add__(self, o), self.extra)
        class Deg(int):
            def __add__(self, o):
                return Deg((int(self) + int(o)) % 360)
            __radd__ = __add__
            def __repr__(self):
                return f"{int(self)}d"
        class L(list):
            def append(self, v):
                super().append(v)
                self.n = getattr(self, "n", 0) + 1
        class T3(tuple):
            def __new__(cls, *a):
                return super().__new__(cls, a)
            @property
            def first(self):
                return self[0]
        LL = L()
        def program(x):
            n = Name("ab", x) + "c"
            d = Deg(350) + 20
            LL.append(len(LL))
            l = L([1])
            l.append(x)
            t = T3(x, 2)
            return (
                x * d + n.extra,
                n,
                repr(d),
                sum([Deg(200), Deg(200)]),
                LL.n,
                LL,
                l,
                t.first,
                t,
                n.lower(),
                {n: 1}["ABC"],
                isinstance(d, int),
                d == 10,
            )
        """,
    ),
    Row(
        "try and finally",
        "statements",
        """
        LOG = []
        def flow(x, k):
            for i in range(5):
                try:
                    if i == k:
                        continue
                    if i == k + 2:
                        return x * i
                    LOG.append(i)
                except ZeroDivisionError:
                    pass
                else:
                    LOG.append("else")
                finally:
                    LOG.append("fin%d" % i)
                    if k == 9:
                        break
            else:
                LOG.append("loop else")
            return x
        def nested(x):
            try:
                try:
                    raise KeyError("a")
                finally:
                    x = x + 1
            except KeyError as e:
                try:
                    raise ValueError("b") from e
                except ValueError as v:
                    return x, v, v.__cause__ is e
        def program(x, k):
            with torch.no_grad():
                y = flow(x, k)
            return y, nested(x), LOG[-6:], next((i for i in (1, 2) if i > 5), "none")
        """,
        ("f(x, 1)", "f(x, 1)", "f(x, 9)", "f(x2, 4)"),
    ),
    Row(
        "errors and their words",
        "statements",
        """
        def program(x, d):
            out = []
            for op in (
                lambda: d[[]],
                lambda: d["zz"],
                lambda: (1).nope,
                lambda: 1 + "a",
                lambda: [][3],
                lambda: int("q"),
                lambda: {}.pop(1),
                lambda: next(iter([])),
                lambda: x.nope,
                lambda: None(),
                lambda: (lambda a: a)(),
                lambda: undefined_name,
                lambda: 1 / 0,
                lambda: [1, 2].index(5),
                lambda: "a".join([1]),
                lambda: type("T", (), {}).q,
                lambda: object() < object(),
                lambda: len(5),
                lambda: iter(3),
                lambda: {**[1]},
                lambda: max([]),
                lambda: range(1, 2, 0),
                lambda: "abc"[10],
            ):
                try:
                    op()
                except Exception as e:
                    out.append((type(e).__name__, str(e)))
            a = b = None
            try:
                a, b = [1]
            except ValueError as e:
                out.append(str(e))
            try:
                assert d is None, ("msg", 1)
            except AssertionError as e:
                out.append(e.args)
            return x + 1, out
        """,
        ("f(x, {})", "f(x, {})", "f(x2, {'zz': 1})"),
    ),
    Row(
        "unpacking",
        "statements",
        """
        def take(a, /, b, *c, d=4, **e):
            return a, b, c, d, e
        def program(x, n):
            t = (x + n, *range(n))
            d = {"d": 9, "q": x}
            a, (b, *c), *rest = 1, [2, 3, 4], 5, 6
            first, *_ = "héllo"
            return (
                take(*t, **d),
                take(1, *[2], *(3,), **{"z": 1}, y=2),
                [*t, *"ab"],
                {**d, "d": 0},
                {*range(n), 7},
                b,
                c,
                rest,
                first,
                (lambda *a, **k: (a, k))(*d, **d),
            )
        """,
        ("f(x, 3)", "f(x, 3)", "f(x2, 2)"),
    ),
    Row(
        "told in order",
        "ends of objects",
        """
        import sys
        class R:
            def __init__(self, n):
                self.n = n
            def __repr__(self):
                print("repr", self.n)
                return f"R{self.n}"
            def __del__(self):
                print("del", self.n)
        def program(x):
            a = R(1)
            print("start", a, sep="|")
            b = [R(2), R(3)]
            y = x * 2
            del a
            print(b, file=sys.stderr)
            sys.stdout.write("raw\\n")
            b.pop()
            return y
        """,
    ),
)
