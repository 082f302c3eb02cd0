"""Soundness: smaller programs of many kinds, each with something changed between its calls."""

from __future__ import annotations

import collections
import contextvars
import dataclasses
import datetime
import decimal
import fractions
import functools
import operator
import re
import sys
import types

import pytest

from tests.cpu.guards.history import Box, Programs, check
from tests.cpu.guards.history import small as _x

program = Programs()


@program
def pass_unread_then_dict_write(compile):
    def f(x, o):
        o.__dict__["k"] = 5
        return x * o.k

    g = compile(f)
    b = Box(1)
    yield g(_x(), b), b.k
    b.k = 7
    yield g(_x(), b), b.k, 3


@program
def attr_in_try(compile):
    def f(x, o):
        try:
            o.k  # noqa: B018
        except AttributeError:
            return x
        return x * 2

    g = compile(f)
    b = Box(1)
    yield g(_x(), b)
    del b.k
    yield g(_x(), b)
    b.k = 1
    yield g(_x(), b)


@program
def key_in_try(compile):
    def f(x, o):
        try:
            o["k"]
        except KeyError:
            return x
        return x * 2

    g = compile(f)
    yield g(_x(), {"k": 1})
    yield g(_x(), {"j": 1})
    yield g(_x(), {"k": 1})


@program
def index_in_try(compile):
    def f(x, o):
        try:
            o[1]
        except IndexError:
            return x
        return x * 2

    g = compile(f)
    yield g(_x(), [1, 2])
    yield g(_x(), [1])
    yield g(_x(), [1, 2, 3])


@program
def cell_unset(compile):
    def make():
        def f(x):
            try:
                return x * k
            except NameError:
                return x

        def set(v):
            nonlocal k
            k = v

        def dele():
            nonlocal k
            del k

        if not _x().numel():
            k = 1
        return f, set, dele

    f, s, d = make()
    g = compile(f)
    yield g(_x())
    s(3)
    yield g(_x())
    d()
    yield g(_x())


@program
def dataclass_args(compile):
    @dataclasses.dataclass
    class D:
        a: int
        b: object

    @dataclasses.dataclass(frozen=True, slots=True)
    class E:
        a: int

    f = compile(lambda x, d, e: x * d.a + e.a + len(d.b))
    yield f(_x(), D(1, [1]), E(1))
    yield f(_x(), D(2, [1]), E(1))
    yield f(_x(), D(2, [1]), E(3))
    yield f(_x(), D(2, [1, 2]), E(3))


@program
def dataclass_eq(compile):
    @dataclasses.dataclass
    class D:
        a: int

    base = D(1)
    f = compile(lambda x, d: x * 2 if d == base else x)
    yield f(_x(), D(1))
    yield f(_x(), D(2))
    base.a = 2
    yield f(_x(), D(2))


@program
def object_key(compile):
    a, b = Box(1), Box(2)
    t = {a: 2}
    f = compile(lambda x, o: x * t.get(o, 7))
    yield f(_x(), a)
    yield f(_x(), b)
    t[b] = 9
    yield f(_x(), b)
    t[a] = 11
    yield f(_x(), a)


@program
def list_of_objects(compile):
    v = [Box(1), Box(2)]
    f = compile(lambda x: x * sum(b.k for b in v))
    yield f(_x())
    v[1].k = 5
    yield f(_x())
    v.pop()
    yield f(_x())
    v[0] = Box(9)
    yield f(_x())


@program
def nested_containers(compile):
    v = {"a": [1, {"b": (2, [3])}]}
    f = compile(lambda x: x * v["a"][1]["b"][1][0] + len(v["a"][1]["b"][1]))
    yield f(_x())
    v["a"][1]["b"][1].append(4)
    yield f(_x())
    v["a"][1]["b"][1][0] = 10
    yield f(_x())
    v["a"][1]["b"] = (1, [2])
    yield f(_x())


@program
def list_subclass(compile):
    class L(list):
        pass

    v = L([1, 2])
    f = compile(lambda x: x * v[0] + len(v) + sum(v))
    yield f(_x())
    v[0] = 3
    yield f(_x())
    v.append(1)
    yield f(_x())


@program
def isinstance_class_swap(compile):
    class A:
        pass

    class B(A):
        pass

    f = compile(lambda x, o: x * 2 if isinstance(o, A) else x)
    yield f(_x(), A())
    yield f(_x(), B())
    yield f(_x(), 1)
    yield f(_x(), None)
    yield f(_x(), _x())


@program
def method_identity(compile):
    class A:
        def m(self, x):
            return x + 1

    a = A()
    f = compile(lambda x, m: m(x))
    yield f(_x(), a.m)
    A.m = lambda self, x: x - 1
    yield f(_x(), a.m)


@program
def bound_method_other_self(compile):
    class A:
        def __init__(s, k):
            s.k = k

        def m(self, x):
            return x * self.k

    f = compile(lambda x, m: m(x))
    yield f(_x(), A(1).m)
    yield f(_x(), A(2).m)


@program
def func_kw_attr(compile):
    def h(x):
        return x

    h.scale = 2
    f = compile(lambda x: x * h.scale if hasattr(h, "scale") else x)
    yield f(_x())
    h.scale = 3
    yield f(_x())
    del h.scale
    yield f(_x())


@program
def lru(compile):
    state = {"k": 2}

    @functools.lru_cache
    def h(n):
        return n * state["k"]

    f = compile(lambda x: x * h(3))
    yield f(_x())
    state["k"] = 5
    yield f(_x())
    h.cache_clear()
    yield f(_x())


@program
def cached_prop(compile):
    class A:
        k = 2

        @functools.cached_property
        def p(self):
            return self.k * 3

    a = A()
    f = compile(lambda x: x * a.p)
    yield f(_x())
    a.k = 5
    yield f(_x())
    del a.p
    yield f(_x())


@program
def ctx_manager_state(compile):
    class C:
        depth = 0

        def __enter__(s):
            C.depth += 1
            return s

        def __exit__(s, *a):
            C.depth -= 1

    c = C()

    def f(x):
        with c:
            return x * C.depth

    g = compile(f)
    yield g(_x()), C.depth
    C.depth = 4
    yield g(_x()), C.depth


@program
def contextvar(compile):
    v = contextvars.ContextVar("v", default=2)
    f = compile(lambda x: x * v.get())
    yield f(_x())
    v.set(5)
    yield f(_x())


@program
def flags_sys(compile):
    f = compile(lambda x: x * sys.getrecursionlimit())
    old = sys.getrecursionlimit()
    yield f(_x())
    sys.setrecursionlimit(old + 1)
    try:
        yield f(_x())
    finally:
        sys.setrecursionlimit(old)


@program
def dict_view(compile):
    d = {"a": 1, "b": 2}
    f = compile(lambda x: x * sum(d.values()) + len(d.keys()) + ("c" in d.keys()))
    yield f(_x())
    d["a"] = 5
    yield f(_x())
    d["c"] = 1
    yield f(_x())


@program
def counter_defaultdict(compile):
    d = collections.Counter("aab")
    f = compile(lambda x: x * d["a"] + d["zz"])
    yield f(_x())
    d["a"] = 7
    yield f(_x())
    d["zz"] = 3
    yield f(_x())


@program
def chainmap(compile):
    a = {"k": 1}
    b = {"j": 2}
    c = collections.ChainMap(a, b)
    f = compile(lambda x: x * c["k"] + c["j"])
    yield f(_x())
    a["j"] = 9
    yield f(_x())
    del a["j"]
    b["j"] = 4
    yield f(_x())


@program
def user_mapping(compile):
    class M(dict):
        def __getitem__(s, k):
            return dict.__getitem__(s, k) * s.f

        f = 2

    m = M(k=3)
    f = compile(lambda x: x * m["k"])
    yield f(_x())
    M.f = 5
    yield f(_x())
    m.f = 7
    yield f(_x())
    dict.__setitem__(m, "k", 4)
    yield f(_x())


@program
def slots_inherit(compile):
    class A:
        __slots__ = ("a",)

    class B(A):
        __slots__ = ("b",)

    o = B()
    o.a = 1
    o.b = 2
    f = compile(lambda x: x * o.a + o.b)
    yield f(_x())
    o.a = 4
    yield f(_x())
    o.b = _x()
    yield f(_x())


@program
def namedtuple_cls(compile):
    T = collections.namedtuple("T", "a b")
    U = collections.namedtuple("U", "b a")
    f = compile(lambda x, t: x * t.a + t[1])
    yield f(_x(), T(1, 2))
    yield f(_x(), U(1, 2))
    yield f(_x(), T(_x(), 2))


@program
def generator_arg(compile):
    f = compile(lambda x, g: x * sum(g))
    yield f(_x(), (i for i in [1, 2]))
    yield f(_x(), (i for i in [3, 2]))
    yield f(_x(), iter([5]))


@program
def iterator_captured(compile):
    it = iter([1, 2, 3, 4])
    f = compile(lambda x: x * next(it))
    yield f(_x())
    yield f(_x())
    yield f(_x())


@program
def global_counter(compile):
    s = {"__name__": "p"}
    exec("n=0\ndef f(x):\n    global n\n    n+=1\n    return x*n", s)
    f = compile(s["f"])
    for _ in range(4):
        yield f(_x()), s["n"]


@program
def names_exc(compile):
    def f(x, p):
        try:
            open(p)
        except OSError as e:
            return x, str(e), e.errno, e.filename, e.args

    g = compile(f)
    yield g(_x(), "/nonexistent/a")
    yield g(_x(), "/nonexistent/bb")
    yield g(_x(), "/")


@program
def exc_arg(compile):
    def f(x, e):
        try:
            raise e
        except ValueError as err:
            return x * len(err.args), str(err)
        except TypeError as err:
            return x, repr(err)

    g = compile(f)
    yield g(_x(), ValueError(1))
    yield g(_x(), ValueError(1, 2))
    yield g(_x(), TypeError("q"))


@program
def annotations(compile):
    def h(a: int):
        return a

    f = compile(lambda x: x * len(h.__annotations__) + len(h.__name__))
    yield f(_x())
    h.__annotations__["q"] = 1
    yield f(_x())
    h.__name__ = "longer"
    yield f(_x())


@program
def type_attr_via_instance_type(compile):
    class A:
        k = 1

    a = A()
    f = compile(lambda x: x * type(a).k + a.__class__.k)
    yield f(_x())
    A.k = 3
    yield f(_x())


@program
def super_chain(compile):
    class A:
        def m(s, x):
            return x + 1

    class B(A):
        def m(s, x):
            return super().m(x) * 2

    class C(B):
        def m(s, x):
            return super().m(x) * 3

    c = C()
    f = compile(lambda x: c.m(x))
    yield f(_x())
    A.m = lambda s, x: x + 5
    yield f(_x())
    B.m = lambda s, x: x
    yield f(_x())
    del C.m
    yield f(_x())


@program
def operator_attrgetter(compile):
    g = operator.attrgetter("k")
    i = operator.itemgetter("q")
    b = Box(2)
    d = {"q": 3}
    f = compile(lambda x: x * g(b) + i(d))
    yield f(_x())
    b.k = 3
    yield f(_x())
    d["q"] = 8
    yield f(_x())


@program
def property_setter_swap(compile):
    class A:
        _v = 1

        @property
        def v(s):
            return s._v

        @v.setter
        def v(s, n):
            s._v = n

    a = A()

    def f(x):
        a.v = a.v + 1
        return x * a.v

    g = compile(f)
    yield g(_x()), a._v
    yield g(_x()), a._v
    A.v = property(lambda s: 100, lambda s, n: None)
    yield g(_x()), a._v


@program
def kwdict_order(compile):
    f = compile(lambda x, **k: (x, list(k.items())))
    yield f(_x(), a=1, b=2)
    yield f(_x(), b=2, a=1)
    yield f(_x(), a=1.0, b=2)


@program
def varargs(compile):
    f = compile(lambda x, *a: x * len(a) + sum(a))
    yield f(_x())
    yield f(_x(), 1)
    yield f(_x(), 1, 2)
    yield f(_x(), 1, True)


@program
def decimal_fraction(compile):
    f = compile(lambda x, a, b: x * float(a) + float(b))
    yield f(_x(), fractions.Fraction(1, 2), decimal.Decimal("1.5"))
    yield f(_x(), fractions.Fraction(1, 3), decimal.Decimal("1.5"))
    yield f(_x(), fractions.Fraction(1, 3), decimal.Decimal("2.5"))


@program
def datetime_(compile):
    f = compile(lambda x, d: x * d.day + (d > datetime.date(2020, 1, 5)))
    yield f(_x(), datetime.date(2020, 1, 1))
    yield f(_x(), datetime.date(2020, 1, 9))


@program
def re_pattern(compile):
    p = [re.compile("a+")]
    f = compile(lambda x, s: x * len(p[0].findall(s)))
    yield f(_x(), "aba")
    yield f(_x(), "b")
    p[0] = re.compile("b")
    yield f(_x(), "bbb")


@program
def simple_ns(compile):
    n = types.SimpleNamespace(k=1)
    f = compile(lambda x: x * n.k * getattr(n, "j", 1))
    yield f(_x())
    n.k = 2
    yield f(_x())
    n.j = 3
    yield f(_x())


@program
def mutable_default(compile):
    def f(x, acc=[]):  # noqa: B006
        acc.append(1)
        return x * len(acc)

    g = compile(f)
    yield g(_x())
    yield g(_x())
    yield g(_x(), [1, 2])
    yield g(_x())


@program
def class_var_list(compile):
    class A:
        items = [1]

        def m(s, x):
            s.items.append(1)
            return x * len(s.items)

    a = A()
    g = compile(lambda x: a.m(x))
    yield g(_x())
    A.items = []
    yield g(_x())
    a.items = [1, 2, 3]
    yield g(_x()), A.items


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", program)
def test_program(name):
    assert not check(program[name]).fallbacks
