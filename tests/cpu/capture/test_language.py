"""Functions, scopes, arguments, loops, comprehensions, generators, iterators, matching.

PYTEST_DONT_REWRITE: the assertions inside the cases are part of them.
"""

from __future__ import annotations

import functools
import operator

import pytest
import torch

from tests.cpu.capture.oracle import Call, Case, Cases, check

cases = Cases()
t = torch.randn

COUNT = 0
TENSOR = torch.arange(4.0)
TABLE = {"scale": 2.0, "calls": 0}


# ---- scopes ----------------------------------------------------------------------------------


@cases()
def closure_of_a_tensor():
    k = torch.full((4,), 3.0)
    return lambda x: x * k


@cases()
def closure_of_a_number_and_a_function():
    n = 3

    def inner(y):
        return y + n

    def f(x):
        return inner(x) * inner(x + n)

    return f


@cases()
def closure_made_inside():
    def f(x):
        scale = x.sum()

        def inner(y):
            return y * scale

        return inner(x) + inner(x + 1)

    return f


@cases()
def closure_returned():
    def f(x):
        y = x + 1

        def inner(z=2, *, w=x):
            """Doc."""
            return y * z + w

        inner.mark = [y]
        return inner, y

    return f


@cases(recompiles=1, graphs=2)
def nonlocal_counter():
    calls = 0

    def f(x):
        nonlocal calls
        calls += 1
        return x * calls

    return f, [(t(3),), (t(3),)], [f]


@cases()
def nonlocal_tensor():
    total = torch.zeros(3)

    def f(x):
        nonlocal total
        total = total + x
        return total * 2

    return f, [(t(3),)] * 3, [f]


@cases()
def nonlocal_inside():
    def f(x):
        n = 0

        def bump():
            nonlocal n
            n += 2
            return n

        bump()
        return x * bump(), n

    return f


@cases()
def cell_deleted():
    def f(x):
        y = x + 1

        def g():
            return y  # noqa: F821

        r = g()
        del y
        try:
            g()
        except NameError as error:
            return r, str(error)

    return f


@cases()
def late_binding():
    def f(x):
        fs = [lambda y: y * i for i in range(3)]
        gs = [lambda y, i=i: y * i for i in range(3)]
        return [g(x) for g in fs], [g(x) for g in gs]

    return f


@cases(recompiles=1, graphs=2)
def global_written():
    global COUNT
    COUNT = 0

    def f(x):
        global COUNT
        COUNT += 1
        return x + COUNT

    return f, [(t(2),)] * 3, [lambda: COUNT, COUNT]


@cases()
def global_tensor_rebound():
    global TENSOR
    TENSOR = torch.arange(4.0)

    def f(x):
        global TENSOR
        TENSOR = TENSOR * 2
        return x + TENSOR

    return f, [(t(4),)] * 2, [globals]


@cases(recompiles=1, graphs=2)
def global_dict_written():
    TABLE.update(scale=2.0, calls=0)

    def f(x):
        TABLE["calls"] += 1
        return x * TABLE["scale"]

    return f, [(t(2),)] * 2, [TABLE]


@cases()
def global_made_and_deleted():
    def f(x):
        global FRESH
        FRESH = x + 1
        y = FRESH * 2
        del FRESH
        try:
            return FRESH
        except NameError as error:
            return y, str(error), error.name

    return f


@cases()
def builtin_names():
    def f(x):
        return x * len([1, 2]) + abs(-3) + max(1, 2) + min([4, 5]) + round(2.6) + pow(2, 3)

    return f


@cases()
def unbound_local():
    def f(x):
        if x.dim() == 99:
            y = x
        try:
            return y
        except UnboundLocalError as error:
            return x + 1, str(error)

    return f


@cases()
def locals_and_vars():
    def f(x):
        a = x + 1
        b = 2
        return sorted(locals()), a * b

    return f


# ---- arguments -------------------------------------------------------------------------------


@cases()
def default_arguments():
    def f(x, scale=2.0, shift=torch.ones(3), *, flag=True):
        return x * scale + shift if flag else x

    return f, [(t(3),), (t(3),), Call(t(3), scale=2.0)]


@cases(graphs=2, recompiles=2)
def default_arguments_changed():
    def f(x, scale=2.0, *, flag=True):
        return x * scale if flag else x

    return f, [(t(3),), (t(3), 3.0), Call(t(3), flag=False), (t(3), 3.0), (t(3),)]


@cases(graphs=2, recompiles=1)
def mutable_default():
    def f(x, seen=[]):
        y = x + 1
        seen.append(y)
        del seen[:-1]
        return y

    return f, [(t(3),)] * 2, [f]


@cases()
def varargs_and_varkeywords():
    def f(*args, **kwargs):
        return sum(args) * kwargs["scale"], len(args), sorted(kwargs)

    return f, [Call(t(3), t(3), scale=2, other=t(1))] * 2


@cases()
def positional_only_and_keyword_only():
    def f(x, /, y, *, z):
        return x + y * z

    return f, [Call(t(3), t(3), z=2), Call(t(3), y=t(3), z=2)]


@cases()
def stars_at_the_call():
    def g(a, b, *c, d=1, **e):
        return a + b * d, c, e

    def f(x, y):
        args = (x, y)
        return g(*args), g(*args, x, d=3), g(*[x], *(y, 1), **{"d": 2}, z=x), g(**dict(a=x, b=y))

    return f, [(t(3), t(3))] * 2


@cases()
def wrong_arguments_caught():
    def g(a, b):
        return a

    def f(x):
        found = []
        for args, kwargs in (((x,), {}), ((x, x, x), {}), ((x,), {"c": 1}), ((x,), {"a": 1})):
            try:
                g(*args, **kwargs)
            except TypeError as error:
                found.append(str(error))
        return x * 2, found

    return f


@cases()
def keyword_dict_mutated_inside():
    def g(**kwargs):
        kwargs["y"] = kwargs.pop("x") + 1
        return kwargs

    def f(x):
        given = {"x": x}
        return g(**given), given

    return f


@cases()
def unpacking():
    def f(x):
        a, (b, *c), d = x[0], [x[1], x[2], 3], 4
        *e, last = range(4)
        first, *_ = "abc"
        i, j = j, i = 1, 2
        return a + b, c, d, e, last, first, i, j, [*c, *e], {**{"k": a}, "l": b}, (*c,), {*e}

    return f


@cases()
def unpacking_a_tensor():
    def f(x):
        a, b, c = x
        head, *rest = x
        return a + b, c, rest, head

    return f


@cases()
def walrus_and_chains():
    def f(x):
        if (n := x.shape[0]) > 2 and 1 < n < 5:
            x = x + n
        values = [y := i * 2, y + 1] if (i := 3) else []
        return x, values, y, n if n else None, not n, n or x, n and 7

    return f


@cases()
def conditional_expressions_on_shapes():
    def f(x, y=None):
        y = x if y is None else y
        return (x + y if x.dim() == 2 else x - y), "big" if x.numel() > 5 else "small"

    return f


@cases()
def assertions():
    def f(x):
        assert x.dim() == 2, "two"
        try:
            assert x.dim() == 3, f"not {x.dim()}"
        except AssertionError as error:
            return x + 1, str(error)

    return f


# ---- match -----------------------------------------------------------------------------------


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


@cases()
def matching():
    def kind(value):
        match value:
            case int() | float():
                return "number"
            case "a" | "b" as letter:
                return letter
            case [first, *rest] if len(rest) > 1:
                return first, rest
            case (a, b):
                return b, a
            case {"k": v, **rest}:
                return v, rest
            case Point(x, y=0):
                return x
            case Point(x=x, y=y):
                return x, y
            case torch.Tensor():
                return value * 2
            case None:
                return "none"
            case _:
                return "other"

    def f(x):
        values = [1, 2.0, "b", [x, 1, 2], (x, 2), {"k": x, "l": 3}, Point(x, 0), Point(x, 5)]
        return [kind(v) for v in [*values, x, None, b"z"]]

    return f


@cases(graphs=2, recompiles=2)
def matching_an_argument():
    def f(x, mode):
        match mode:
            case "double":
                return x * 2
            case {"scale": s}:
                return x * s
            case _:
                return x

    return f, [(t(2), "double"), (t(2), {"scale": 3}), (t(2), 7), (t(2), "double")]


# ---- functions of functions ------------------------------------------------------------------


@cases()
def decorators():
    def doubled(g):
        @functools.wraps(g)
        def wrapper(*args, **kwargs):
            return g(*args, **kwargs) * 2

        return wrapper

    @doubled
    def h(x, y=1):
        """Doc."""
        return x + y

    return lambda x: (h(x), h(x, y=3), h.__name__, h.__doc__, h.__wrapped__(x))


@cases()
def partials():
    def g(a, b, *, c=1, d=2):
        return a * b + c - d

    outer = functools.partial(g, d=5)

    def f(x):
        inner = functools.partial(g, x)
        again = functools.partial(inner, c=3)
        return inner(2), again(3, d=1), outer(x, 2), again.keywords, list(map(inner, (1, 2)))

    return f


@cases()
def partial_returned():
    def g(a, b):
        return a * b

    def f(x):
        return functools.partial(g, x + 1, b=2), x

    return f


@cases()
def reduce():
    def f(x):
        return (
            functools.reduce(lambda a, b: a + b, [x, x, x]),
            functools.reduce(operator.mul, [1, 2, 3], x),
        )

    return f


@cases()
def operator_module():
    def f(x):
        return (
            operator.add(x, 1), operator.matmul(x, x.T), operator.neg(x), operator.getitem(x, 0),
            operator.attrgetter("shape")(x), operator.itemgetter(1, 0)([x, 2]),
            operator.methodcaller("sum", 0)(x), operator.iadd(x + 0, 1), operator.truth([1]),
            operator.concat([1], [x]), operator.eq(2, 2), operator.contains([1], 1),
            operator.invert(x > 0), operator.pow(x, 2), operator.index(3), operator.not_([]),
        )  # fmt: skip

    return f


@cases()
def function_attributes():
    def g(x):
        return x * g.scale

    g.scale = 2.5

    def f(x):
        return g(x), g.__name__, g.__defaults__, g.__code__.co_argcount, hasattr(g, "none")

    return f


@cases(recompiles=1, graphs=2)
def function_attribute_written():
    def g(x):
        g.calls += 1
        return x + 1

    g.calls = 0
    return (lambda x: g(x)), [(t(2),)] * 2, [g]


@cases()
def imports_inside():
    def f(x):
        import math
        from math import sqrt as root

        import torch.nn.functional as F

        return F.relu(x) * math.pi + root(4.0)

    return f


@pytest.mark.parametrize("case", cases, ids=str)
def test_language(case: Case) -> None:
    assert check(case) > 0
