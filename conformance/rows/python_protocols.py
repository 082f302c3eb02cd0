"""What objects say of themselves: copies, subclasses of containers, members, warnings, records."""

from conformance.rows.row import Row

ROWS = (
    Row("dispatch on a class", "functools", '''
        import functools
        class Kinds:
            @functools.singledispatchmethod
            def go(self, value, x):
                return x
            @go.register
            def _(self, value: int, x):
                return x * value
            @go.register(list)
            def _(self, value, x):
                return [self.go(v, x) for v in value]
        K = Kinds()
        def program(x, value):
            return K.go(value, x + 1)
        ''', ("f(x, 2)", "f(x, [1, 'a'])", "f(x2, 2)", "f(x, 'b')")),
    Row("cached methods", "functools", '''
        import functools
        class Model:
            n = 2
            @functools.cached_property
            def p(self):
                self.runs = getattr(self, "runs", 0) + 1
                return self.n * 3
            twice = functools.partialmethod(lambda self, x, k: x * k, k=2)
        M = Model()
        def program(x):
            return M.twice(x) * M.p, M.runs
        ''', ("f(x)", "f(x)", "del M.p; M.n = 5", "f(x2)")),
    Row("keys from a comparison", "functools", '''
        import functools
        def program(x, items):
            up = functools.cmp_to_key(lambda a, b: a - b)
            down = sorted(items, key=functools.cmp_to_key(lambda a, b: b - a))
            items.sort(key=up)
            return x * down[0], down, items, max(items, key=up)
        ''', ("f(x, [3, 1, 2])", "f(x, [4, 9, 2])")),
    Row("signatures", "copy and inspect", '''
        import inspect
        def helper(a, b=2, *c, d: int = 3, **e):
            return a
        class Caller:
            def __call__(self, u, v=1):
                return u
        C = Caller()
        def program(x, g):
            s = inspect.signature(helper)
            bound = s.bind(1, d=4)
            bound.apply_defaults()
            return (x * len(inspect.signature(g).parameters), str(s), dict(bound.arguments),
                    list(inspect.signature(C).parameters), str(inspect.signature(C.__call__)))
        ''', ("f(x, lambda a: a)", "f(x, lambda a, b: a)", "f(x2, helper)")),
    Row("copies by a protocol", "copy and inspect", '''
        import copy
        class Own:
            def __init__(self, n):
                self.n = n
            def __copy__(self):
                return Own(self.n + 10)
            def __deepcopy__(self, memo):
                return Own(copy.deepcopy(self.n, memo) + 100)
        class Reduced:
            def __init__(self, n):
                self.n = n
            def __reduce__(self):
                return Reduced, (self.n + 1,)
        class State:
            def __init__(self):
                self.a, self.b = 1, 2
            def __getstate__(self):
                return {"a": self.a}
            def __setstate__(self, state):
                self.__dict__.update(state, b=5)
        class Slots:
            __slots__ = ("a", "b")
            def __init__(self):
                self.a, self.b = 1, [2]
        OBJECTS = [Own(1), Reduced(2), State(), Slots()]
        def program(x):
            shallow = [copy.copy(o) for o in OBJECTS]
            deep = copy.deepcopy(OBJECTS)
            deep[3].b.append(3)
            both = copy.deepcopy([OBJECTS[0], OBJECTS[0]])
            return (x * shallow[0].n, shallow[1].n, deep[0].n, deep[1].n, deep[2].b, deep[3].b,
                    OBJECTS[3].b, both[0] is both[1])
        ''', ("f(x)", "OBJECTS[0].n = 5", "f(x)", "f(x2)")),
    Row("dataclasses", "copy and inspect", '''
        import copy
        import dataclasses
        import typing
        @dataclasses.dataclass
        class Point:
            a: int
            b: typing.Any = None
            c: list = dataclasses.field(default_factory=list)
            def __post_init__(self):
                self.e = self.a + 1
        @dataclasses.dataclass(frozen=True, order=True, slots=True)
        class Fixed:
            a: int
            b: int = 2
        P = Point(1, 2)
        def program(x):
            made = Point(2, x)
            made.c.append(1)
            other = dataclasses.replace(P, a=5)
            try:
                Fixed(1).a = 3
            except dataclasses.FrozenInstanceError as error:
                text = str(error)
            return (x * made.e, made.c, other.a, [f.name for f in dataclasses.fields(P)],
                    P == Point(1, 2), repr(other), copy.copy(P) == P, text,
                    sorted([Fixed(2), Fixed(1, 3)]), Fixed(1) < Fixed(2), dataclasses.asdict(P))
        ''', ("f(x)", "P.a = 3", "f(x)", "f(x2)")),
    Row("counter", "user containers", '''
        import collections
        C = collections.Counter("aab")
        def program(x):
            C["z"] += 2
            C.update("ab")
            more = collections.Counter(a=1) + C
            C.subtract({"b": 1})
            return (x * C["a"], C["missing"], C.most_common(2), more, more - C, C & more,
                    sorted(C.elements()), C.total(), len(C), dict(C), "q" in C, bool(C))
        ''', ("f(x)", "f(x)", "C.clear()", "f(x2)")),
    Row("methods of a subclass of list", "user containers", '''
        class Stack(list):
            def push(self, value):
                self.append(value)
                self.count = len(self)
            def __add__(self, other):
                return Stack([*self, *other])
        S = Stack()
        def program(x):
            before = bool(S)
            S.push(x * 2)
            S.extend([1])
            S[0] = 3
            alias = S
            return (x + 1 if before else x - 1, S[-1], S.count, type(S + [1]).__name__, [*S], S[:1],
                    alias is S, 3 in S, S.index(3), S == [3, 1], S.pop())
        ''', ("f(x)", "f(x)", "S.clear()", "f(x2)")),
    Row("methods of a subclass of dict", "user containers", '''
        class Lower(dict):
            def __setitem__(self, key, value):
                super().__setitem__(key.lower(), value)
            def __missing__(self, key):
                return len(key)
        L = Lower(b=2)
        def program(x):
            L["ABC"] = x
            L["abc"] += 1
            del L["b"]
            L.update(b=3)
            return (L["abc"], L["nope"], list(L), L.get("nope"), {**L}, L | {"z": 1}, len(L),
                    L.setdefault("r", 4), L.pop("r"), L.keys() & {"b"}, type(L).__name__)
        ''', ("f(x)", "f(x)", "L['b'] = 7", "f(x2)")),
    Row("iterators of C over the program's", "itertools", '''
        import itertools
        def program(x, given):
            y = x + 1
            chained = itertools.chain.from_iterable(given)
            first = next(chained)
            return y, first, sorted(chained), next(chained, "over")
        ''', ("f(x, map(range, (2, 3)))", "f(x, [[1, 2], (3,)])",
              "f(x2, itertools.starmap(itertools.repeat, [(1, 2), (3, 1)]))",
              "f(x, itertools.starmap(itertools.repeat, [(1, 2), (3, 1)]))")),
    Row("reversed", "itertools", '''
        import collections.abc
        class Few(collections.abc.Sequence):
            def __init__(self, *items):
                self.items = items
            def __len__(self):
                return len(self.items)
            def __getitem__(self, i):
                return self.items[i]
        class Old:
            def __len__(self):
                return 3
            def __getitem__(self, i):
                return i * 2
        F = Few(1, 2, 3)
        def program(x):
            return ([x * n for n in reversed(F)], list(reversed(Old())), F.index(2), 3 in F,
                    F.count(1), sum(F))
        ''', ("f(x)", "F.items = (5, 2)", "f(x2)")),
    Row("enumerations", "members", '''
        import enum
        class Color(enum.Enum):
            RED = 1
            BLUE = 2
            def doubled(self):
                return self.value * 2
            @classmethod
            def pick(cls, n):
                return cls(n)
        class Mode(enum.Flag):
            R = enum.auto()
            W = enum.auto()
            RW = R | W
        class Name(enum.StrEnum):
            P = enum.auto()
        def program(x, color, mode):
            try:
                Color(9)
            except ValueError as error:
                text = str(error)
            y = x * color.value if Mode.R in mode else x
            return (y, color.doubled(), Color.pick(2).name, Color["RED"] is Color(1), len(Color),
                    str(color), repr(mode | Mode.W), bool(mode & Mode.W), text, Name.P + "z",
                    Name.P.upper(), {color: 1}[color], [c.name for c in Color])
        ''', ("f(x, Color.RED, Mode.R)", "f(x, Color.BLUE, Mode.W)", "f(x2, Color.RED, Mode.RW)")),
    Row("metaclass", "members", '''
        class Meta(type):
            def __call__(cls, *args):
                made = type.__call__(cls, *args)
                made.extra = 3
                return made
            def __getattr__(cls, name):
                return name + "!"
            def __len__(cls):
                return 4
            def __iter__(cls):
                return iter([1, 2])
            def __instancecheck__(cls, value):
                return value == 5
            @property
            def prop(cls):
                return 9
        class Made(metaclass=Meta):
            def __init__(self, n):
                self.n = n
        def program(x):
            made = Made(2)
            return (x * made.n * made.extra, Made.zig, len(Made), list(Made), isinstance(5, Made),
                    isinstance(6, Made), Made.prop, hasattr(Made, "none"))
        '''),
    Row("named tuples", "members", '''
        import typing
        class Pair(typing.NamedTuple):
            a: typing.Any
            b: int = 2
            def total(self):
                return self.a * self.b
        def program(x, given):
            pair = Pair(x)
            return (pair.total(), pair._replace(b=3).total(), pair._asdict()["b"], Pair._fields,
                    given.a + given.b, given, Pair._make([1, 2]), [*given][1], pair[0] is x)
        ''', ("f(x, Pair(x2))", "f(x, Pair(x2, 4))")),
    Row("given in order", "warnings", '''
        import warnings
        def helper(y):
            warnings.warn(f"of {y.dim()} dimensions", stacklevel=2)
            return y * 2
        def program(x):
            y = helper(x + 1)
            warnings.warn("old", DeprecationWarning)
            warnings.warn(UserWarning("an instance", 3))
            return y
        ''', ("f(x)", "f(x2)")),
    Row("that become errors", "warnings", '''
        import warnings
        def strict(action):
            warnings.resetwarnings()
            warnings.simplefilter(action)
        def program(x):
            y = x * 2
            try:
                warnings.warn("now", FutureWarning)
            except FutureWarning as error:
                return y + 1, str(error)
            return y, ""
        ''', ("strict('ignore')", "f(x)", "strict('error')", "f(x)", "strict('ignore')", "f(x2)")),
    Row("records in order", "logging", '''
        import io
        import logging
        WRITTEN = io.StringIO()
        TEXTS = []
        def log():
            return logging.getLogger("program")
        def set_up():
            kept = logging.StreamHandler(WRITTEN)
            kept.setFormatter(logging.Formatter("%(levelname)s %(message)s %(lineno)d"))
            log().handlers, log().propagate = [kept], False
            log().setLevel(logging.INFO)
        def seen():
            TEXTS.append(WRITTEN.getvalue())
        set_up()
        def program(x):
            y = x + 1
            log().info("shape %s of %d", tuple(x.shape), x.dim())
            if log().isEnabledFor(logging.DEBUG):
                y = y * 3
            log().debug("hidden at first")
            logging.getLogger("program").warning("loud")
            return y
        ''', ("f(x)", "seen()", "f(x)", "log().setLevel(logging.DEBUG)", "f(x2)", "seen()")),
    Row("a handler of the program's", "logging", '''
        import logging
        SEEN = []
        class Keep(logging.Handler):
            def emit(self, record):
                SEEN.append((record.levelname, record.getMessage(), record.lineno))
        def log():
            return logging.getLogger("other program")
        def set_up():
            log().handlers, log().propagate = [Keep()], False
            log().setLevel(logging.INFO)
        set_up()
        def program(x):
            log().info("once")
            y = x + len(SEEN)
            log().info("twice")
            return y * len(SEEN), SEEN[-1][1]
        ''', ("f(x)", "f(x)", "SEEN.clear()", "f(x2)")),
    Row("formats of objects", "text", '''
        import re
        import string
        class Size:
            def __init__(self, n):
                self.n = n
            def __format__(self, spec):
                return f"<{self.n}:{spec}>"
            def __repr__(self):
                return "R" * self.n
        WORD = re.compile(r"[a-z]+")
        def program(x, n, text, size):
            return (x + n, f"{n:>5} {n:+d} {text!r:^9} {n / 3:.{n}f} {size:spec} {size!r:>4} {n=}",
                    "{0:04d} {k[0]} {o.n}".format(n, k=[text], o=size),
                    "%5.2f|%-5s|%r|%%" % (n / 3, text, size),
                    string.Template("$a-${b}").substitute(a=text, b=n), WORD.sub("#", text + "1"),
                    text.translate(str.maketrans("a", "z")), text.zfill(5), format(n, "b"),
                    f"{x.shape} {x.dtype}", "{a}".format_map({"a": n}))
        ''', ("f(x, 3, 'ab', Size(2))", "f(x, 4, 'cab', Size(3))")),
)  # fmt: skip
