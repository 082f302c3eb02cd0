"""``id`` of what the frame has made, as a key, compared, and as the number itself."""

from __future__ import annotations

import collections

import pytest
import torch

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()


class Holder:
    def __init__(self, v):
        self.v = v


def three():
    return [(torch.randn(3, 4),) for _ in range(3)]


@cases(graphs=3, recompiles=2)
def seen_set():
    def f(x):
        y = x + 1
        seen, out = set(), []
        for t in (x, y, x, y):
            if id(t) in seen:
                continue
            seen.add(id(t))
            out.append(t * 2)
        return out, len(seen)

    return f, three()


@cases(graphs=4, breaks=1, recompiles=2)
def by_id_break():
    kept = []

    def f(x):
        y, o = x + 1, Holder(x * 2)
        d = {id(y): y, id(o): o}
        torch._dynamo.graph_break()
        kept.extend(d.values())  # so that no later object has the same address
        return d[id(y)] * 2 + d[id(o)].v, id(y) in d, id(x) in d, list(d) == [id(y), id(o)]

    return f, three()


@cases()
def ids_as_values():
    def f(x):
        o, made, t = Holder(1), [x], (x, 2)
        a = [id(o), id(made), id(t), id(o)]
        return (
            x + 1,
            a[0] == a[3],
            a[0] != a[1],
            a.index(id(t)),
            len(set(a)),
            isinstance(a[0], int),
            type(a[0]) is int,
            a[0] == 5,
            5 == a[0],
            bool(a[0]),
            id(o) == id(o),
        )

    return f, three()


@cases(graphs=4, breaks=1, recompiles=2)
def id_math():
    kept = []

    def f(x):
        y = x + 1
        i = id(y)
        z = y * 2
        j = i + 1
        kept.append(y)
        return z * 3, j - 1 == id(y), "%d" % i == str(i), hex(i).startswith("0x"), i > 0

    return f, three()


@cases()
def topo():
    class N:
        def __init__(self, val, parents=()):
            self.val, self.parents = val, parents

    def f(x):
        a = N(x)
        b = N(a.val * 2, (a,))
        c = N(a.val + b.val, (a, b))
        d = N(b.val - c.val, (b, c))
        visited, order = set(), []

        def visit(n):
            if id(n) in visited:
                return
            visited.add(id(n))
            for q in n.parents:
                visit(q)
            order.append(n)

        visit(d)
        grads = {id(n): 0.0 for n in order}
        grads[id(d)] = 1.0
        for n in reversed(order):
            for q in n.parents:
                grads[id(q)] = grads[id(q)] + grads[id(n)]
        return d.val * grads[id(a)], len(order)

    return f, three()


@cases(graphs=3, recompiles=2)
def memo_dict_get():
    def f(x):
        memo = {}

        def calc(t):
            k = id(t)
            hit = memo.get(k)
            if hit is not None:
                return hit
            memo[k] = r = t.sin()
            return r

        y = x + 1
        return calc(y) + calc(y) + calc(x), len(memo)

    return f, three()


@cases(graphs=3, breaks=1, recompiles=2)
def id_repr():
    kept = []

    def f(x):
        o = object()
        s = f"{id(o)}"
        y = x + 1
        kept.append(o)
        return y, s == str(id(o)), "%x" % id(o) == hex(id(o))[2:]

    return f, three()


@cases()
def id_self_cyc():
    def f(x):
        d = {}
        d[id(d)] = d
        held = [d]
        return x + 1, d[id(d)] is d, held[0] is d

    return f, three()


@cases(graphs=3, breaks=1, recompiles=2)
def id_closure():
    kept = []

    def f(x):
        def g():
            return x

        h = {id(g): g}
        k = id(g)
        torch._dynamo.graph_break()
        kept.extend(h.values())
        return h[k]() + 1, k == id(g)

    return f, three()


@cases()
def id_param():
    lin = torch.nn.Linear(4, 4)

    def f(x):
        out = x
        local = {id(q): n for n, q in lin.named_parameters()}
        y = x + 1
        local[id(y)] = "y"
        for q in lin.parameters():
            out = out + q.sum() * len(local[id(q)])
        return out, local[id(y)]

    return f, three()


@cases()
def id_counter():
    def f(x):
        ts = [x + 1, x + 2]
        ts = ts + ts[:1]
        c = collections.Counter(id(t) for t in ts)
        dd = collections.defaultdict(list)
        for t in ts:
            dd[id(t)].append(t)
        return (
            [c[id(t)] for t in ts],
            sum(sum(v) for v in dd.values()),
            c.most_common(1)[0][0] == id(ts[0]),
        )

    return f, three()


@cases()
def id_match():
    def f(x):
        o = Holder(1)
        i = id(o)
        match i:
            case 5:
                r = 1
            case int():
                r = 2
            case _:
                r = 3
        return x * r

    return f, three()


@pytest.mark.parametrize("case", cases, ids=str)
def test_captured_as_in_eager(case: Case) -> None:
    assert check(case) > 0
