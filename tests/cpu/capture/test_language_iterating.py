"""Loops, comprehensions, generators and iterators.

PYTEST_DONT_REWRITE: the assertions inside the cases are part of them.
"""

from __future__ import annotations

import itertools
import operator

import pytest
import torch

import refcompiler
from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
t = torch.randn

COUNT = 0
TENSOR = torch.arange(4.0)
TABLE = {"scale": 2.0, "calls": 0}


# ---- loops -----------------------------------------------------------------------------------


@cases()
def loops():
    def f(x):
        out = []
        for i in range(10):
            if i % 2:
                continue
            if i > 6:
                break
            out.append(x * i)
        else:
            out.append("never")
        for _ in ():
            pass
        else:
            out.append("else")
        n = 3
        while n:
            n -= 1
            x = x + n
        else:
            out.append(n)
        while True:
            if x.dim():
                break
        return x, out

    return f


@cases()
def nested_loops_over_tensors():
    def f(x):
        total = 0
        for row in x:
            for item in row.unbind():
                total = total + item * 2
        return total

    return f


@cases()
def recursion():
    def fact(n, x):
        return x if n == 0 else fact(n - 1, x * n)

    return lambda x: fact(4, x)


@cases()
def mutual_recursion():
    def even(n, x):
        return x if n == 0 else odd(n - 1, x + 1)

    def odd(n, x):
        return -x if n == 0 else even(n - 1, x * 2)

    return lambda x: (even(4, x), odd(4, x))


@cases()
def comprehensions():
    def f(x):
        rows = [r * 2 for r in x]
        table = {i: r for i, r in enumerate(rows) if i != 1}
        lengths = {len(r) for r in rows}
        nested = [a + b for a in rows for b in rows[:2] if a is not b]
        return rows, table, lengths, nested, sum(r.sum() for r in rows), tuple(i for i in "ab")

    return f


@cases()
def lambdas():
    def f(x):
        return (lambda a, b=2, *c, **d: (a * b, c, d))(x, 3, 4, k=x), sorted(
            [3, 1], key=lambda v: v
        )

    return f


# ---- generators and iterators ----------------------------------------------------------------


@cases()
def generator_consumed():
    def rows(x):
        for r in x:
            yield r * 2
        return "end"

    def delegating(x):
        got = yield from rows(x)
        yield got

    def f(x):
        return list(rows(x)), tuple(delegating(x)), dict(enumerate(rows(x))), sum(rows(x))

    return f


@cases()
def generator_send_throw_close():
    def g(x):
        log = []
        try:
            while True:
                try:
                    got = yield x
                    x = x + got
                except ValueError as error:
                    log.append(str(error))
                    yield log
        finally:
            log.append("closed")

    def f(x):
        it = g(x)
        a = next(it)
        b = it.send(2)
        c = it.throw(ValueError("v"))
        it.close()
        return a, b, c, next(it, "default")

    return f


@cases()
def generator_expression_stops_early():
    def f(x):
        it = (i * x for i in itertools.count())
        return next(it), next(it), [v for v, _ in zip(it, range(2))]

    return f


@cases()
def generator_stored_and_resumed():
    class Source:
        def __init__(self, x):
            self.it = self.items(x)

        def items(self, x):
            for i in range(5):
                yield x + i

        def __next__(self):
            return next(self.it)

        def __iter__(self):
            return self

    def f(x):
        source = Source(x)
        first = next(source)
        return first, [v * 2 for v in source]

    return f


@cases()
def iteration_tools():
    def f(x):
        a, b = [x, x + 1, x + 2], (1, 2, 3)
        out = [p * q for p, q in zip(a, b)]
        out += [i * p for i, p in enumerate(a, start=1)]
        out += map(lambda p, q: p - q, a, b)
        out += filter(lambda p: p is not a[0], a)
        out += reversed(a)
        out += itertools.chain(a, [x])
        out += itertools.islice(a, 1, None)
        out += itertools.starmap(operator.mul, zip(a, b))
        out += itertools.accumulate(a)
        out += itertools.accumulate(a, lambda p, q: p * q)
        out += [p + q for p, q in itertools.product(a[:2], a[:2])]
        out += [p + q for p, q in itertools.pairwise(a)]
        out += [p for p, _ in itertools.zip_longest(a, [1], fillvalue=x)]
        out += itertools.repeat(x, 2)
        out += itertools.takewhile(lambda p: p is not a[2], a)
        out += itertools.dropwhile(lambda p: p is not a[2], a)
        out += itertools.compress(a, [1, 0, 1])
        out += itertools.chain.from_iterable([a, a])
        return out

    return f


@cases()
def strict_zip():
    def f(x):
        try:
            return list(zip([x], [1, 2], strict=True))
        except ValueError as error:
            return x + 1, str(error)

    return f


@cases()
def enumerations_over_what_runs_code():
    module = torch.nn.Linear(4, 4)

    def f(x):
        out, state = [], {}
        with torch.no_grad():
            for i, (p, g) in enumerate(zip(module.parameters(), (x, x * 2), strict=False)):
                state[i] = p * g.sum()
        for i, p in enumerate(filter(lambda p: p.dim() == 2, module.parameters()), 3):
            out.append(p * i)
        numbered = enumerate(zip(module.parameters(), (v for v in (1, 2)), strict=False), 1)
        for i, (j, (p, v)) in enumerate(numbered):
            out.append((p.sum() * (i + j * v), x))
        rest = enumerate(map(operator.neg, (v for v in (x, x + 1, x + 2))))
        return out, state, next(rest), list(rest)

    return f


@cases(graphs=3, breaks=3, recompiles=1)
def enumerations_that_go_on_behind_a_break():
    module = torch.nn.Linear(4, 4)

    def f(x):
        out = []
        for i, (p, g) in enumerate(zip(module.parameters(), (1, 2), strict=False)):
            out.append(p * i + g)
            print(end="")
        rest = enumerate(zip(module.parameters(), (v for v in (1, 2)), strict=False))
        out.append(next(rest))
        print(end="")
        return out, list(rest), x + 1

    return f


@cases()
def groups_and_sorting():
    def f(x):
        pairs = [("b", x), ("a", x + 1), ("b", x * 2)]
        pairs.sort(key=lambda p: p[0])
        groups = {k: [v for _, v in g] for k, g in itertools.groupby(pairs, key=lambda p: p[0])}
        return groups, sorted(pairs, key=operator.itemgetter(0), reverse=True)[0]

    return f


@cases()
def next_with_default():
    def f(x):
        it = iter([x, x + 1])
        return next(it), next(it), next(it, None), next(iter(()), x)

    return f


@cases()
def iter_with_sentinel():
    def f(x):
        values = [1, 2, 3]
        return x + 1, list(iter(values.pop, 1)), values

    return f


@cases()
def any_all_sum_min_max():
    def f(x):
        items = [1, 0, 3]
        return (
            x + any(items), all(items), sum(items, 10), min(items), max(items, key=lambda v: -v),
            max((), default=x), sum([x, x]), sum([[x], [1]], []), any(v is x for v in [x]),
        )  # fmt: skip

    return f


class Loader:
    """Its own iterator, which begins anew whenever somebody asks for one."""

    def __init__(self, n):
        self.n, self.i, self.asked = n, n, 0

    def __iter__(self):
        self.i, self.asked = 0, self.asked + 1
        return self

    def __next__(self):
        if self.i >= self.n:
            raise StopIteration
        self.i += 1
        return self.i


def _twice(function):
    def f(x):
        return function(OUTSIDE), OUTSIDE.asked, OUTSIDE.i, x + OUTSIDE.i

    return f


OUTSIDE = Loader(3)
_AGAIN = {
    "starred": lambda b: [first_and_rest(b), [*b, *b], (*b,), {*b}],
    "map_filter": lambda b: [[*map(str, b)], [*filter(None, b)], [*enumerate(b)]],
    "zip": lambda b: [dict(zip(b, "abc", strict=True)), [*zip(b, b, [1, 2, 3], strict=False)]],
    "made": lambda b: [dict.fromkeys(b), set().union(b, b), sum(b), max(b), sorted(b), 2 in b],
    "chain": lambda b: [[*itertools.chain(b, b)], [*itertools.chain.from_iterable([b, b])]],
    "itertools": lambda b: [
        [*itertools.islice(b, 2)],
        [*itertools.accumulate(b)],
        [*itertools.product(b, b)],
        [*itertools.pairwise(b)],
        [*itertools.compress(b, [1, 0, 1])],
    ],  # fmt: skip
}


def first_and_rest(b):
    first, *rest = b
    return first, rest


@pytest.mark.parametrize("name", _AGAIN)
def test_an_iterator_from_outside_that_begins_anew(name: str) -> None:
    compiled = refcompiler.compile(_twice(_AGAIN[name]), backend="eager")
    seen = []
    for call in (compiled, _twice(_AGAIN[name])):
        OUTSIDE.__init__(3)  # type: ignore[misc]
        seen.append(str([call(torch.zeros(2)), call(torch.ones(2))]))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("case", cases, ids=str)
def test_language(case: Case) -> None:
    assert check(case) > 0
