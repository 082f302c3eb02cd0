"""Classes: attributes, properties, descriptors, metaclasses, dunders, dataclasses, enums."""

from conformance.rows.row import Row

ROWS = (
    Row("attribute changed", "attributes", '''
        class Holder:
            def __init__(self):
                self.n = 2
            def apply(self, x):
                self.n += 1
                return x * self.n
        HOLDER = Holder()
        def program(x):
            return HOLDER.apply(x)
        ''', ("f(x)", "f(x)", "HOLDER.n = 0", "f(x)")),
    Row("class attribute", "attributes", '''
        class Holder:
            scale = 2
        HOLDER = Holder()
        def program(x):
            return x * HOLDER.scale
        ''', ("f(x)", "Holder.scale = 3", "f(x)", "HOLDER.scale = 4", "f(x)")),
    Row("attribute deleted", "attributes", '''
        class Holder:
            n = 1
        HOLDER = Holder()
        HOLDER.n = 5
        def program(x):
            y = x * HOLDER.n
            del HOLDER.n
            return y, HOLDER.n, hasattr(HOLDER, "n"), "n" in vars(HOLDER)
        ''', ("f(x)", "HOLDER.n = 7", "f(x)")),
    Row("slots", "attributes", '''
        class Slotted:
            __slots__ = ("n", "t")
        S = Slotted()
        S.n = 2
        def program(x):
            S.t = x * S.n
            S.n += 1
            return S.t, S.n, hasattr(S, "q")
        ''', ("f(x)", "f(x)", "S.n = 9", "f(x)")),
    Row("getattr", "attributes", '''
        class Loose:
            def __getattr__(self, name):
                if name.startswith("n"):
                    return len(name)
                raise AttributeError(f"no {name}")
        LOOSE = Loose()
        def program(x):
            try:
                LOOSE.zero
            except AttributeError as error:
                return x * LOOSE.nnn, getattr(LOOSE, "q", 7), str(error)
        ''', ("f(x)", "LOOSE.nnn = 10", "f(x)")),
    Row("setattr", "attributes", '''
        class Watched:
            def __init__(self):
                object.__setattr__(self, "log", [])
            def __setattr__(self, name, value):
                self.log.append(name)
                object.__setattr__(self, name, value)
        W = Watched()
        def program(x):
            W.t = x + len(W.log)
            W.n = 3
            return W.t * W.n
        ''', ("f(x)", "f(x2)")),
    Row("property", "properties", '''
        class Box:
            def __init__(self, t):
                self._t = t
                self.reads = 0
            @property
            def t(self):
                self.reads += 1
                return self._t * 2
            @t.setter
            def t(self, value):
                self._t = value + 1
        BOX = Box(torch.ones(4))
        def program(x):
            BOX.t = x
            return BOX.t + BOX.t, BOX.reads
        '''),
    Row("cached_property", "properties", '''
        import functools
        class Box:
            n = 2
            @functools.cached_property
            def doubled(self):
                return self.n * 2
        BOX = Box()
        def program(x):
            return x * BOX.doubled, sorted(vars(BOX))
        ''', ("f(x)", "BOX.n = 5", "f(x)", "del BOX.doubled", "f(x)")),
    Row("data descriptor", "descriptors", '''
        class Field:
            def __set_name__(self, owner, name):
                self.name = "_" + name
            def __get__(self, instance, owner=None):
                return self if instance is None else getattr(instance, self.name, 0) * 2
            def __set__(self, instance, value):
                setattr(instance, self.name, value + 1)
        class Record:
            n = Field()
        R = Record()
        def program(x):
            R.n = R.n + 1
            return x * R.n, Record.n.name
        ''', ("f(x)", "f(x)", "R.n = 10", "f(x)")),
    Row("static and class methods", "descriptors", '''
        class Maker:
            scale = 2
            @staticmethod
            def plus(x, n):
                return x + n
            @classmethod
            def times(cls, x):
                return x * cls.scale
        class Other(Maker):
            scale = 3
        def program(x):
            return Maker.plus(x, 1), Maker.times(x), Other().times(x), Other.plus(x, 2)
        ''', ("f(x)", "Other.scale = 4", "f(x)")),
    Row("bound methods", "descriptors", '''
        class Acc:
            def __init__(self):
                self.seen = []
            def add(self, x, k=1):
                self.seen.append(k)
                return x * k
        A = Acc()
        ADD = A.add
        def program(x):
            g = A.add
            return g(x, 2), ADD(x), Acc.add(A, x, 3), g.__self__ is A, g == ADD
        '''),
    Row("super", "inheritance", '''
        class Base:
            def __init__(self, n):
                self.n = n
            def apply(self, x):
                return x + self.n
        class Left(Base):
            def apply(self, x):
                return super().apply(x) * 2
        class Right(Base):
            def apply(self, x):
                return super().apply(x) - 1
        class Both(Left, Right):
            def __init__(self, n):
                super().__init__(n + 1)
        def program(x, n):
            both = Both(n)
            return both.apply(x), both.n, [c.__name__ for c in Both.__mro__]
        ''', ("f(x, 1)", "f(x, 2)")),
    Row("method replaced", "inheritance", '''
        class Worker:
            def work(self, x):
                return x + 1
        W = Worker()
        def program(x):
            return W.work(x)
        ''', ("f(x)", "Worker.work = lambda self, x: x * 3", "f(x)",
              "W.work = lambda x: x - 5", "f(x)")),
    Row("class changed", "inheritance", '''
        class A:
            def go(self, x):
                return x + 1
        class B:
            def go(self, x):
                return x * 2
        O = A()
        def program(x):
            return O.go(x), type(O).__name__
        ''', ("f(x)", "O.__class__ = B", "f(x)")),
    Row("registry", "metaclasses", '''
        class Meta(type):
            names = []
            def __new__(cls, name, bases, space, tag="none"):
                made = super().__new__(cls, name, bases, space)
                made.tag = tag
                cls.names.append(name)
                return made
            def __len__(cls):
                return len(cls.tag)
            def __call__(cls, *args):
                made = super().__call__(*args)
                made.called = True
                return made
        def program(x):
            class Thing(metaclass=Meta, tag="inner"):
                def __init__(self, t):
                    self.t = t
            thing = Thing(x * 2)
            return thing.t * len(Thing), thing.called, Thing.tag, len(Meta.names)
        '''),
    Row("init_subclass", "metaclasses", '''
        KNOWN = {}
        class Plugin:
            def __init_subclass__(cls, key=None, **more):
                super().__init_subclass__(**more)
                KNOWN[key] = cls.__name__
        def program(x):
            class Mine(Plugin, key="mine"):
                pass
            return x + len(KNOWN), Mine.__name__
        '''),
    Row("instance and subclass checks", "isinstance and type", '''
        import abc
        import collections.abc
        class Shape(abc.ABC):
            @abc.abstractmethod
            def area(self): ...
        class Square(Shape):
            def area(self):
                return 4
        class Duck:
            def __len__(self):
                return 3
        def program(x):
            found = [isinstance(x, torch.Tensor), isinstance(Square(), Shape),
                     isinstance(Duck(), collections.abc.Sized), isinstance(x, (int, list)),
                     type(x) is torch.Tensor, type(x.shape) is torch.Size, isinstance(3, int | str)]
            try:
                Shape()
            except TypeError as error:
                found.append(type(error).__name__)
            return x + sum(v is True for v in found), found
        '''),
    Row("of a parameter", "isinstance and type", '''
        P = torch.nn.Parameter(torch.ones(4))
        def program(x):
            y = P * 2
            kinds = [type(v).__name__ for v in (P, y, x, x.dtype, x.device, P.data)]
            return isinstance(P, torch.nn.Parameter), isinstance(y, torch.nn.Parameter), kinds, y
        '''),
    Row("dynamic class", "isinstance and type", '''
        def program(x):
            Made = type("Made", (), {"n": 3, "go": lambda self, v: v * self.n})
            return Made().go(x), Made.__name__, callable(Made)
        '''),
    Row("plain", "dataclasses", '''
        from dataclasses import dataclass, field, replace, asdict
        @dataclass
        class Point:
            t: torch.Tensor
            n: int = 2
            log: list = field(default_factory=list)
            def __post_init__(self):
                self.log.append(self.n)
        def program(x):
            p = Point(x * 2)
            q = replace(p, n=5)
            q.t = q.t + 1
            return p, q, p.t * q.n
        '''),
    Row("frozen, ordered, with slots", "dataclasses", '''
        from dataclasses import dataclass, FrozenInstanceError
        @dataclass(frozen=True, order=True, slots=True)
        class Version:
            major: int
            minor: int = 0
        def program(x):
            a, b = Version(1, 2), Version(1, 3)
            try:
                a.major = 2
            except FrozenInstanceError as error:
                return x * (a < b), str(error), repr(max(a, b)), hash(a) == hash(Version(1, 2))
        '''),
    Row("argument changed", "dataclasses", '''
        from dataclasses import dataclass
        @dataclass
        class Config:
            scale: float = 2.0
            name: str = "a"
        C = Config()
        def program(x, c):
            c.name += "!"
            return x * c.scale, c.name
        ''', ("f(x, C)", "C.scale = 0.5", "f(x, C)", "f(x, Config(3.0))")),
    Row("made and returned", "namedtuples", '''
        import collections
        import typing
        Pair = collections.namedtuple("Pair", "left right", defaults=[7])
        class Typed(typing.NamedTuple):
            t: torch.Tensor
            n: int = 3
            def total(self):
                return self.t * self.n
        def program(x):
            p = Pair(x + 1)
            q = p._replace(right=x)
            a, b = q
            return p, q, Typed(x).total(), Typed(a, 4), p._fields, q._asdict()
        '''),
    Row("as an argument", "namedtuples", '''
        import collections
        Pair = collections.namedtuple("Pair", "left right")
        def program(p):
            return Pair(p.right, p.left * 2), p[0] is p.left, len(p)
        ''', ("f(Pair(x, 2))", "f(Pair(x2, 3))", "f(Pair(x, x))")),
    Row("members", "enums", '''
        import enum
        class Mode(enum.Enum):
            UP = "up"
            DOWN = "down"
            def apply(self, x):
                return x + 1 if self is Mode.UP else x - 1
        class Level(enum.IntEnum):
            LOW = 1
            HIGH = 5
        class Flags(enum.Flag):
            A = enum.auto()
            B = enum.auto()
        def program(x, mode):
            return (mode.apply(x) * Level.HIGH, mode.name, Mode("up") is Mode.UP, list(Mode),
                    (Flags.A | Flags.B).value, Level.LOW < Level.HIGH, Mode["DOWN"].value)
        ''', ("f(x, Mode.UP)", "f(x, Mode.DOWN)", "f(x2, Mode.UP)")),
    Row("arithmetic", "dunders", '''
        class Money:
            def __init__(self, t):
                self.t = t
            def __add__(self, other):
                return Money(self.t + getattr(other, "t", other))
            __radd__ = __add__
            def __mul__(self, k):
                return NotImplemented if isinstance(k, str) else Money(self.t * k)
            def __neg__(self):
                return Money(-self.t)
            def __iadd__(self, other):
                self.t.add_(other)
                return self
            def __matmul__(self, other):
                return (self.t * other.t).sum()
        def program(x):
            a = Money(x * 1)
            b = a
            b += 2
            try:
                a * "k"
            except TypeError as error:
                return (1 + a + a).t, (-a * 2).t, a @ b, a is b, str(error)
        '''),
    Row("comparison, hash, bool", "dunders", '''
        class Key:
            def __init__(self, n):
                self.n = n
            def __eq__(self, other):
                return isinstance(other, Key) and self.n % 3 == other.n % 3
            def __hash__(self):
                return self.n % 3
            def __lt__(self, other):
                return self.n < other.n
            def __bool__(self):
                return self.n > 1
            def __repr__(self):
                return f"Key({self.n})"
        def program(x):
            table = {Key(1): x, Key(4): x * 2, Key(2): x * 3}
            order = sorted([Key(5), Key(2), Key(3)])
            return table[Key(7)], len(table), repr(order), Key(3) and x, Key(1) != Key(4)
        '''),
    Row("container", "dunders", '''
        class Bag:
            def __init__(self, *items):
                self.items = list(items)
            def __getitem__(self, key):
                return Bag(*self.items[key]) if isinstance(key, slice) else self.items[key]
            def __setitem__(self, key, value):
                self.items[key] = value
            def __delitem__(self, key):
                del self.items[key]
            def __len__(self):
                return len(self.items)
            def __iter__(self):
                return iter(self.items)
            def __contains__(self, value):
                return any(value is item for item in self.items)
            def __reversed__(self):
                return reversed(self.items)
        B = Bag(1, 2, 3, 4)
        def program(x):
            B[0] = x
            B[1] += 5
            del B[2]
            return [v * 2 for v in B], len(B), x in B, B[1:].items, list(reversed(B)), bool(B)
        ''', ("f(x)", "B.items.extend([5, 6])", "f(x2)")),
    Row("sequence by getitem alone", "dunders", '''
        class Rows:
            def __init__(self, m):
                self.m = m
            def __getitem__(self, n):
                if n >= self.m.shape[0]:
                    raise IndexError(n)
                return self.m[n]
        def program(m):
            return [row * 2 for row in Rows(m)], list(Rows(m))[0]
        ''', ("f(m)", "f(big)")),
    Row("callable, call, index, format", "dunders", '''
        class Thing:
            def __call__(self, x, k=2):
                return x * k
            def __index__(self):
                return 2
            def __format__(self, spec):
                return f"<{spec}>"
            def __str__(self):
                return "thing"
            def __float__(self):
                return 1.5
        T = Thing()
        def program(x):
            return T(x), T(x, k=3), [0, 1, 2, 3][T], f"{T:abc} {T} {T!s:>7}", x * float(T)
        '''),
    Row("new and del", "dunders", '''
        class Single:
            made = None
            def __new__(cls, *args):
                if cls.made is None:
                    cls.made = super().__new__(cls)
                return cls.made
            def __init__(self, n):
                self.n = n
        def program(x, n):
            a, b = Single(n), Single(n + 1)
            return a is b, x * a.n
        ''', ("f(x, 1)", "f(x, 5)")),
)  # fmt: skip
