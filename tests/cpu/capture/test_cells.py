"""Variables of closures: what cells hold stays unobserved, and cells themselves are objects."""

from __future__ import annotations

import functools
import inspect
import types

import pytest
import torch

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()


def N(n=4):
    return [(torch.ones(3), i) for i in range(n)]


@cases()
def pass_int():
    def f(x, n):
        def g():
            return n

        return x + 1, g()

    return f, N()


@cases()
def pass_str_obj():
    class Holder:
        def __init__(self, v):
            self.v = v

    def f(x, s, o):
        def g():
            return s, o

        return x + 1, g()

    return f, [(torch.ones(3), "a" * i, Holder(i)) for i in range(4)]


@cases(graphs=2, breaks=1)
def pass_break():
    def f(x, n, o):
        def g():
            return n, o

        y = x + 1
        torch._dynamo.graph_break()
        return y * 2, g

    return f, [(torch.ones(3), "a" * i, [i]) for i in range(4)]


@cases(graphs=2, breaks=1)
def cell_list_literal():
    def f(x, n):
        acc = [n]

        def add(v):
            acc.append(v)

        add(x + 1)
        add(n)
        torch._dynamo.graph_break()
        add(x + 2)
        return acc, add

    return f, N()


@cases(graphs=2, breaks=1)
def cell_dict_literal():
    def f(x, n):
        st = {"n": n, "x": x}

        def get(k):
            return st[k]

        def put(k, v):
            st[k] = v

        put("y", get("x") + 1)
        torch._dynamo.graph_break()
        put("z", get("y") * 2)
        return st

    return f, N()


@cases(breaks=1)
def cell_self_literal():
    def f(x, n):
        held = [x]

        def g():
            return held

        held.append(g)
        torch._dynamo.graph_break()
        return held[0] + 1, len(held), held[1]() is held

    return f, N()


@cases(graphs=4, breaks=2, recompiles=2)
def nonlocal_change():
    def f(x, n):
        c = n

        def inc():
            nonlocal c
            c = c + 1
            return c

        y = x * 2
        a = inc()
        torch._dynamo.graph_break()
        b = inc()
        return y + 1, a, b, c

    return f, N()


@cases()
def nonlocal_swap():
    def f(x, a, b):
        def swap():
            nonlocal a, b
            a, b = b, a

        swap()
        return x + 1, a, b

    return f, [(torch.ones(3), "a" * i, "b" * i) for i in range(4)]


@cases(graphs=2, recompiles=1)
def closures_eq():
    def f(x, n):
        def g():
            return n

        def h():
            return n

        c, d = g.__closure__[0], h.__closure__[0]
        return x + 1, c is d, c == d, inspect.getclosurevars(g).nonlocals["n"] == n

    return f, N()


@cases(graphs=2, recompiles=1)
def locals_in_nested():
    def f(x, n):
        def g():
            n
            return locals()

        return x + 1, g(), sorted(locals())

    return f, N()


@cases()
def lru_closure():
    def f(x, n):
        seen = []

        @functools.lru_cache
        def g(k):
            seen.append(k)
            return k + 1

        a = g(1) + g(1)
        return x * a, seen

    return f, N()


@cases()
def comp_cell():
    def f(x, n):
        fs = [lambda: (n, i) for i in range(3)]
        return x + 1, [q() for q in fs]

    return f, [(torch.ones(3), "s" * i) for i in range(4)]


@cases(breaks=1)
def cell_empty():
    def f(x, n):
        def g():
            return later

        c = g.__closure__[0]
        try:
            c.cell_contents
        except ValueError as e:
            m = str(e)
        torch._dynamo.graph_break()
        try:
            c.cell_contents
        except ValueError as e:
            m += str(e)
        later = x + 1
        y = c.cell_contents * 2
        del c.cell_contents
        try:
            g()
        except NameError as e:
            m += str(e)
        c.cell_contents = y
        return later, m

    return f, N()


@cases(graphs=2, breaks=2, recompiles=2)
def cell_outside():
    c = types.CellType(3)

    def f(x, n):
        c.cell_contents += n
        torch._dynamo.graph_break()
        c.cell_contents = c.cell_contents * 2
        return x * c.cell_contents

    return f, N(3), [c]


@cases(graphs=2, recompiles=1)
def cell_outside_made_fn():
    def mk(n):
        def g():
            return n

        return g

    def f(x, g):
        c = g.__closure__[0]
        y = x * c.cell_contents
        c.cell_contents = 5
        return y + g()

    return f, [(torch.ones(3), mk(i)) for i in (2, 2, 3)]


@cases()
def cell_sorted_key():
    def f(x, n):
        order = {"a": 2, "b": 1}
        return (
            x + 1,
            sorted("ab", key=lambda k: order[k]),
            max([1, 2], key=lambda v: -v * (n is not None)),
        )

    return f, [(torch.ones(3), "s" * i) for i in range(4)]


@cases(graphs=4, breaks=4, recompiles=6)
def cell_partial():
    def f(x, n):
        def g(a, b):
            return a, b, n

        h = functools.partial(g, n)
        torch._dynamo.graph_break()
        return x + 1, h(2)

    return f, [(torch.ones(3), "s" * i) for i in range(4)]


@cases(graphs=4, recompiles=3)
def cell_class_body():
    def f(x, n):
        class A:
            k = n

            def m(self):
                return n

        return x + 1, A().m(), A.k

    return f, [(torch.ones(3), "s" * i) for i in range(4)]


@cases()
def cell_tensor_view():
    def f(x, n):
        def g():
            return x

        x = x + 1
        y = g()

        def h():
            nonlocal x
            x = x * 2

        h()
        return y, g(), x

    return f, N()


@cases(graphs=3, breaks=3, recompiles=4)
def cell_exc():
    def f(x, n):
        err = None

        def g():
            nonlocal err
            try:
                raise ValueError(n)
            except ValueError as e:
                err = e

        g()
        torch._dynamo.graph_break()
        return x + 1, str(err), err.__traceback__ is not None

    return f, [(torch.ones(3), "s" * i) for i in range(3)]


@pytest.mark.parametrize("case", cases, ids=str)
def test_captured_as_in_eager(case: Case) -> None:
    assert check(case) > 0
