"""Classes and their instances: attributes, special methods, inheritance, metaclasses.

PYTEST_DONT_REWRITE: the assertions inside the cases are part of them.
"""

from __future__ import annotations

import abc

import pytest
import torch

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
t = torch.randn


class Scale:
    factor = 2.0

    def __init__(self, k):
        self.k = k

    def __call__(self, x):
        return x * self.k * self.factor

    def method(self, x, y=1):
        return x + self.k * y

    @property
    def half(self):
        return self.k / 2

    @half.setter
    def half(self, value):
        self.k = value * 2

    @half.deleter
    def half(self):
        self.k = 0.0

    @staticmethod
    def plain(x):
        return x + 1

    @classmethod
    def make(cls, k):
        return cls(k)


@cases()
def methods_and_properties():
    s = Scale(3.0)

    def f(x):
        return (
            s(x),
            s.method(x, y=2),
            s.half * x,
            s.plain(x),
            Scale.plain(x),
            s.make(2)(x),
            s.factor,
        )

    return f


@cases()
def object_argument():
    def f(s, x):
        return s(x) + s.half

    s = Scale(2.0)
    return f, [(s, t(3)), (s, t(3)), (s, t(3))]


@cases(recompiles=1, graphs=2)
def object_argument_of_other_contents():
    def f(s, x):
        return s.method(x)

    return f, [(Scale(2.0), t(3)), (Scale(3.0), t(3)), (Scale(2.0), t(3))]


@cases()
def objects_made_inside():
    def f(x):
        s = Scale(x.sum())
        s.half = x.mean()
        y = s(x)
        del s.half
        return y, s, s.method(x)

    return f


@cases(recompiles=1, graphs=2)
def attributes_written():
    s = Scale(1.0)
    s.seen = []

    def f(x):
        s.k = s.k + 1
        s.last = x * s.k
        s.seen.append(s.k)
        s.half = s.half + 0
        s.seen[:-1] = []
        return s.last

    return f, [(t(3),)] * 2, [s]


@cases()
def attribute_deleted():
    s = Scale(1.0)
    s.extra = 5

    def f(x):
        had = hasattr(s, "extra")
        del s.extra
        return x + 1, had, hasattr(s, "extra"), getattr(s, "extra", x)

    def again():
        s.extra = 5

    return f, [(t(3),), again, (t(3),)], [s]


@cases()
def tensor_attribute_replaced():
    s = Scale(torch.ones(3))

    def f(x):
        old, s.k = s.k, x + s.k
        return old, s.k

    return f, [(t(3),)] * 3, [s]


@cases()
def tensor_attribute_changed_in_place():
    s = Scale(torch.ones(3))

    def f(x):
        s.k += x
        s.k.mul_(2)
        return s.k, s.k is s.__dict__["k"]

    return f, [(t(3),)] * 3, [s]


@cases()
def bound_method_kept():
    s = Scale(2.0)
    bound = s.method

    def f(x):
        again = s.method
        return bound(x), again(x), again.__self__ is s, again.__func__ is Scale.method, again

    return f


@cases()
def special_methods():
    class V:
        def __init__(self, v):
            self.v = v

        def __add__(self, other):
            return V(self.v + (other.v if isinstance(other, V) else other))

        __radd__ = __add__

        def __iadd__(self, other):
            self.v = self.v + other
            return self

        def __mul__(self, other):
            return NotImplemented

        def __rmul__(self, other):
            return ("rmul", self.v * other)

        def __neg__(self):
            return V(-self.v)

        def __eq__(self, other):
            return isinstance(other, V) and self.v is other.v

        def __hash__(self):
            return 1

        def __lt__(self, other):
            return self.v is not other.v

        def __getitem__(self, i):
            return self.v[i]

        def __len__(self):
            return self.v.shape[0]

        def __iter__(self):
            return iter(self.v.unbind())

        def __contains__(self, item):
            return item is self.v

        def __bool__(self):
            return True

        def __abs__(self):
            return V(self.v.abs())

        def __matmul__(self, other):
            return self.v @ other.v

        def __int__(self):
            return 7

        def __float__(self):
            return 2.5

        def __index__(self):
            return 1

        def __str__(self):
            return "V!"

        def __repr__(self):
            return "V?"

        def __format__(self, spec):
            return f"<{spec}>"

        def __setitem__(self, i, value):
            self.v = self.v + value

        def __delitem__(self, i):
            self.v = self.v - i

        def __divmod__(self, other):
            return self.v, other

        def __round__(self, n=None):
            return self.v, n

        def __reversed__(self):
            return iter([self.v])

    def f(x):
        a, b = V(x), V(x + 1)
        c = a + b
        c += 1
        c[0] = 3
        del c[2]
        try:
            a * 2
        except TypeError as error:
            text = str(error)
        return (
            (a + 1).v, (2 + a).v, c.v, (-a).v, a == b, a == V(x), a != b, a < b, a[0], len(a),
            list(a), x in a, bool(a), abs(a).v, a @ V(x.T), int(a), float(a), [1, 2][a],
            str(a), repr(a), f"{a:>3} {a!r} {a!s}", 3 * a, text, sum([a, b]).v, sorted([a])[0].v,
            hash(a), {a: 1}[a], max(a, b, key=lambda v: len(v)).v, "%s %r" % (a, a),
            "{} {!r}".format(a, a), range(5)[a], round(a), divmod(a, 2), list(reversed(a)),
        )  # fmt: skip

    return f


@cases()
def getattr_hooks():
    class Dynamic:
        def __init__(self):
            object.__setattr__(self, "store", {})

        def __getattr__(self, name):
            if name.startswith("t_"):
                return self.store[name]
            raise AttributeError(name)

        def __setattr__(self, name, value):
            self.store[name] = value

        def __delattr__(self, name):
            del self.store[name]

    def f(x):
        d = Dynamic()
        d.t_a = x + 1
        d.t_b = 2
        del d.t_b
        return d.t_a, hasattr(d, "other"), getattr(d, "none", 3), list(d.store)

    return f


@cases()
def getattribute_hook():
    class Logged:
        def __init__(self):
            self.log = []
            self.k = 2.0

        def __getattribute__(self, name):
            if name != "log":
                self.log.append(name)
            return super().__getattribute__(name)

    def f(x):
        d = Logged()
        return x * d.k, d.log

    return f


@cases(graphs=2, recompiles=1)
def getattribute_hook_outside():
    class Logged:
        def __init__(self):
            self.log = []
            self.k = 2.0

        def __getattribute__(self, name):
            if name != "log":
                self.log.append(name)
                del self.log[:-1]
            return super().__getattribute__(name)

    d = Logged()
    d.k
    return (lambda x: x * d.k), [(t(2),)] * 3, [d.log]


@cases()
def descriptors():
    class Data:
        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, obj, cls=None):
            return self if obj is None else getattr(obj, self.name) * 2

        def __set__(self, obj, value):
            setattr(obj, self.name, value + 1)

    class NonData:
        def __get__(self, obj, cls=None):
            return ("class", cls.__name__) if obj is None else ("object", obj.k)

    class H:
        d = Data()
        n = NonData()

        def __init__(self, k):
            self.k = k
            self.d = k

    outside = H(3)

    def f(x):
        h = H(x)
        first = h.d
        h.d = 5
        h.__dict__["n"] = "own"
        outside.d = x
        return first, h.d, h.n, H.n, outside.n, type(H.d).__name__

    return f, [(t(2),)] * 2, [outside]


@cases(graphs=1, breaks=1)
def slots_that_derived_classes_hide():
    class S:
        __slots__ = ("a", "__own")

        def __init__(self, a):
            S.a.__set__(self, a)
            self.__own = a + 1

        def own(self):
            return self.__own

    class Hidden(S):
        __slots__ = ("b",)
        a = property(lambda self: 5)

        def hidden(self):
            return super().a

    class Twice(S):
        __slots__ = ("a",)

        def hidden(self):
            return super().a

    def f(x):
        s, twice, y = Hidden(3), Twice(4), x * 2
        s.b = twice.a = 7
        print(end="")
        return s.hidden(), s.a, s.b, s.own(), twice.hidden(), twice.a, twice, y

    return f, [(t(3),)] * 2


@cases()
def slots():
    class S:
        __slots__ = ("a", "b", "__weakref__")

        def __init__(self, a):
            self.a = a

    outside = S(torch.ones(3))

    def f(x):
        s = S(x)
        s.b = s.a + 1
        outside.b = outside.a * x
        outside.a = outside.b + 1
        try:
            s.c = 1
        except AttributeError as error:
            text = str(error)
        del s.a
        return s, outside.b, hasattr(s, "a"), text, hasattr(outside, "b")

    return f, [(t(3),)] * 2, [outside]


@cases()
def super_forms():
    class A:
        tag = "a"

        def __init__(self, x):
            self.log = ["A"]
            self.x = x

        def run(self, x):
            return x + 1

        @classmethod
        def make(cls, x):
            return cls(x)

        @property
        def p(self):
            return self.x * 3

    class B(A):
        tag = "b"

        def __init__(self, x):
            super().__init__(x)
            self.log.append("B")

        def run(self, x):
            return super().run(x) * 2

        @classmethod
        def make(cls, x):
            return super().make(x + 1)

        @property
        def p(self):
            return super().p + 1

    class C(A):
        def run(self, x):
            return super(C, self).run(x) - 3

    class D(B, C):
        def run(self, x):
            return [super().run(x), A.run(self, x), super().tag, super(B, self).run(x)]

    def f(x):
        d = D.make(x)
        return d.run(x), d.log, d.p, D.__mro__[1].__name__, isinstance(d, C), d.x

    return f


@cases()
def abstract_classes():
    class Base(abc.ABC):
        @abc.abstractmethod
        def run(self, x): ...

        def go(self, x):
            return self.run(x) + 1

    class Real(Base):
        def run(self, x):
            return x * 2

    def f(x):
        try:
            Base()
        except TypeError as error:
            text = str(error)
        return Real().go(x), isinstance(Real(), Base), text

    return f


@cases()
def metaclasses():
    class Meta(type):
        def __call__(cls, *args):
            made = super().__call__(*args)
            made.made = cls.__name__
            return made

        @property
        def title(cls):
            return cls.__name__ + "!"

        def __len__(cls):
            return 3

        def __iter__(cls):
            return iter([1, 2])

        def __contains__(cls, item):
            return item == 1

    class M(metaclass=Meta):
        def __init__(self, v):
            self.v = v

    def f(x):
        m = M(x + 1)
        return m.v, m.made, M.title, len(M), list(M), 1 in M

    return f


@cases()
def custom_new():
    class N:
        def __new__(cls, x):
            self = super().__new__(cls)
            self.tag = "new"
            return self

        def __init__(self, x):
            self.x = x * 2

    class Other:
        def __new__(cls, x):
            return x + 5

    def f(x):
        n = N(x)
        return n, n.tag, n.x, Other(x)

    return f


@cases()
def builtin_subclasses():
    class L(list):
        def total(self):
            return sum(self)

    class D(dict):
        def __missing__(self, key):
            return key * 2

        def __getattr__(self, name):
            return self[name]

    class T(tuple):
        def first(self):
            return self[0]

    class I(int):  # noqa: E742
        pass

    class S(str):
        pass

    def f(x):
        a = L([x, x])
        a.append(x)
        d = D(k=x)
        d["l"] = x + 1
        tup = T((x, 1))
        return a, a.total(), d, d["zz"], d.k, d.l, tup.first(), tup, I(3) + 1, S("a") + "b", I(4)

    return f


@cases()
def external_builtin_subclasses():
    class L(list):
        pass

    class D(dict):
        pass

    a, d = L([torch.ones(2), 2.0]), D(k=torch.ones(2))

    def f(x):
        return x * a[1] + a[0] + d["k"], len(a), "k" in d, [i for i in a], list(d), d.get("q")

    return f, [(t(2),)] * 2, [a, d]


@cases(graphs=2, recompiles=1)
def class_attributes():
    class K:
        count = 0
        table = {}

    def f(x):
        K.table["x"] = 1
        return x * K.count + len(K.table)

    def bump():
        K.count = 5

    return f, [(t(2),), bump, (t(2),)], [K.table]


@cases()
def class_attribute_written():
    class K:
        count = torch.zeros(2)

    def f(x):
        K.count = K.count + x
        return K.count * 2

    return f, [(t(2),)] * 2, [lambda: K.count]


@cases()
def class_statement_inside():
    def f(x):
        y = x + 1
        return y

    return f


@cases()
def slots_without_a_value():
    class Point:
        __slots__ = ("a", "b")

    given = Point()

    def f(x):
        told = []
        for point in (given, Point()):
            for again in range(2):
                try:
                    point.b
                except AttributeError as error:
                    told.append((str(error), error.name, error.obj is point))
                try:
                    del point.b
                except AttributeError as error:
                    told.append((str(error), error.name))
                if not again:
                    point.b = x
                    del point.b
        return x + 1, told

    return f, [(t(2),)] * 2


@pytest.mark.parametrize("case", cases, ids=str)
def test_objects(case: Case) -> None:
    assert check(case) > 0
