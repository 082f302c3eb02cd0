"""What is alive at a break: iterators, generators, exceptions, context managers, classes."""

from __future__ import annotations

import contextlib
import gc
import inspect
import itertools
import weakref

import pytest
import torch

import refcompiler
from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()


@pytest.mark.parametrize("case", cases, ids=str)
def test_alive(case: Case) -> None:
    assert check(case) > 20


# ---- iterators -------------------------------------------------------------------------------


@cases(graphs=2, breaks=1)
def loop_that_breaks_once():
    def f(x):
        for i in range(20):
            x = x + i
            if i == 2:
                print(i)
        return x

    return f


@cases(graphs=2, breaks=1)
def nested_loops_that_break_once():
    def f(x):
        for i, (a, b) in enumerate(zip([1, 2, 3], (4, 5, 6), strict=False)):
            for k, v in {"p": a, "q": b}.items():
                x = x * v + i
                if i == 0 and k == "p":
                    print(i, k)
        return x

    return f


@cases(graphs=3, breaks=2, recompiles=1)
def loop_that_breaks_at_each_item():
    """One plan for all items, and one for the end."""

    def f(x):
        for _ in range(4):
            x = x * 2
            print("item")
        return x + 1

    return f


@cases(graphs=3, breaks=3, recompiles=2)
def loop_that_breaks_at_each_number():
    """A number of the loop that the graph uses is a constant of it, until it has changed."""

    def f(x):
        for i in [1, 2, 3, 4]:
            x = x + i
            print(i)
        return x

    return f


@cases(graphs=2, breaks=1)
def iterators_of_itertools():
    def f(x):
        it = itertools.islice(itertools.chain([1, 2], itertools.count(5)), 9)
        pairs = itertools.product([1, 2], "ab")
        turns = itertools.cycle([3, 4, 5])
        x = x + next(it) + next(turns)
        next(pairs)
        print("break")
        for v, w in zip(it, turns, strict=False):
            x = x + v * w
        return x, list(pairs), list(it), next(turns)

    return f


@cases(graphs=2, breaks=1)
def map_and_filter():
    def f(x):
        count = [0]

        def add(t):
            count[0] += 1
            return t + count[0]

        both = filter(lambda t: t % 2, map(add, range(9)))
        x = x + next(both)
        print("break")
        for v in both:
            x = x * v
        return x, count

    return f


@cases(graphs=2, breaks=3)
def dict_iterator_that_notices_changes():
    def f(x):
        d = {"a": 1, "b": 2, "c": 3}
        try:
            for k, v in d.items():
                x = x + v
                if k == "a":
                    print(k)
                if k == "b":
                    d["z"] = 5
        except RuntimeError as error:
            return x, str(error), d
        return x

    return f


@cases(graphs=2, breaks=3)
def iterator_shared_by_two_loops():
    def f(x):
        it = iter([1, 2, 3, 4, 5, 6])
        for a, b in zip(it, it, strict=False):
            x = x + a * b
            if a == 1:
                print(a)
            if a == 3:
                break
        print(list(it))
        return x, list(it)

    return f


@cases(graphs=2, breaks=2, recompiles=1)
def iterator_given_by_the_caller():
    def f(x, it):
        for v in it:
            x = x * v
        print(next(it, "end"))
        return x

    return f, [(_x(), iter([1, 2, 3])), (_x(), iter([1, 2, 3])), (_x(), iter([5, 6]))]


@cases(graphs=2, recompiles=1)
def iterator_partly_used():
    def f(x, it):
        return x * next(it) + next(it)

    it = enumerate([4, 5, 6, 7])

    def g(x, it):
        (a, b), (c, d) = next(it), next(it)
        return x * a + b - c * d

    return g, [(_x(), it), (_x(), it), lambda: None], [it]


@cases(graphs=2, breaks=1)
def user_iterator_alive():
    class It:
        def __init__(self, n):
            self.n, self.i = n, 0

        def __iter__(self):
            return self

        def __next__(self):
            if self.i == self.n:
                raise StopIteration
            self.i += 1
            return self.i

    def f(x):
        it = It(5)
        for v in it:
            x = x + v
            if v == 2:
                print(v)
        return x, it

    return f


# ---- generators ------------------------------------------------------------------------------


def _x():
    return torch.arange(12.0).reshape(3, 4)


def numbers(x, n):
    for i in range(n):
        yield x * i


@cases(graphs=2, breaks=1)
def generator_partly_used():
    def f(x):
        g = numbers(x, 6)
        a = next(g) + next(g)
        print("break")
        return a + next(g) + sum(g)

    return f


@cases(graphs=2, breaks=1)
def generator_enumerated():
    def f(x):
        for i, v in enumerate(numbers(x, 5), 3):
            x = x + v * i
            if i == 3:
                print(i)
        return x

    return f


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_generators_given_back(taken: int) -> None:
    """One graph; what comes out of them later is eager's too."""

    def f(x, n, *, offset=1):
        log = []

        def g(first, *rest, k):
            yield first * n
            for v in rest:
                log.append(len(rest))
                yield v + k

        made = g(x, x + 1, x + 2, k=offset)
        return [next(made) for _ in range(taken)], made, log

    refcompiler.reset()
    compiled = refcompiler.compile(f, backend="eager")
    for n in (2, 2, 3):
        (first, made, log), (first_c, made_c, log_c) = f(_x(), n), compiled(_x(), n)
        assert type(made_c) is type(made) and inspect.isgenerator(made_c)
        assert (made_c.__name__, made_c.__qualname__) == (made.__name__, made.__qualname__)
        states = inspect.getgeneratorstate(made_c), inspect.getgeneratorstate(made)
        assert states[0] == states[1]
        if not taken:
            assert made_c.gi_code is made.gi_code
        found = first + list(made), first_c + list(made_c)
        assert len(found[0]) == len(found[1]) == 3 and log == log_c == [2, 2]
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    counted = refcompiler.counters()
    many = 1 if taken == 0 else 2  # what has not begun holds n as it is
    assert (counted["graphs"], counted["breaks"], counted["recompiles"]) == (many, 0, many - 1)


def test_what_raises_behind_a_break_keeps_nothing_alive() -> None:
    """When its error is gone, so is what its frames held, without the collector of cycles."""

    def refused(x, made):
        mine = made(x.shape)
        return mine, x @ x.double()

    def f(x, made):
        print("breaks")
        return refused(x + 1, made)

    refcompiler.reset()
    compiled = refcompiler.compile(f, backend="eager")
    alive: list[weakref.ref] = []

    class Made:
        def __init__(self, shape):
            alive.append(weakref.ref(self))

    gc.disable()
    try:
        for run in (f, compiled, compiled):
            with contextlib.suppress(RuntimeError):
                run(torch.randn(3, 3), Made)
            assert alive.pop()() is None, run
    finally:
        gc.enable()
    assert refcompiler.counters()["breaks"] and not alive


@cases(graphs=2, breaks=1)
def generator_that_is_sent_to():
    def f(x):
        def g():
            t = x
            while True:
                k = yield t
                if k is None:
                    return
                t = t * k

        i = g()
        a, b = next(i), i.send(2)
        print("break")
        c = i.send(3)
        i.close()
        return a, b, c, list(i)

    return f


@cases(breaks=1)
def generator_that_is_thrown_into():
    def f(x):
        log = []

        def g():
            try:
                yield x
            except ValueError as error:
                log.append(str(error))
                yield x * 2
            finally:
                log.append("left")

        i = g()
        a = next(i)
        print("break")
        b = i.throw(ValueError("v"))
        return a, b, next(i, None), log

    return f


@cases(breaks=1)
def delegating_generators():
    def f(x):
        def inner(n):
            got = yield from range(n)
            yield got
            return n * 2

        def outer():
            a = yield from inner(2)
            b = yield from inner(3)
            yield a + b

        g = outer()
        found = [next(g), next(g)]
        print(found)
        found += g
        return x * found[-1], found

    return f


@cases(graphs=2, breaks=1)
def generator_over_a_closure():
    def f(x):
        scale = 2

        def g():
            nonlocal scale
            for i in range(4):
                scale += 1
                yield x * scale + i

        i = g()
        a = next(i)
        scale = 7
        print("break")
        b = next(i)
        return a, b, scale, sum(i)

    return f


@cases(graphs=2, breaks=1)
def generator_that_prints():
    def f(x):
        def g():
            yield x
            print("inside")
            yield x * 2

        return sum(g()) + 1

    return f


# ---- exceptions ------------------------------------------------------------------------------


@cases(graphs=2, breaks=1)
def exception_being_handled():
    def f(x):
        try:
            x = x + 1
            raise ValueError("a", 2)
        except ValueError as error:
            print(error)
            x = x * 2
        return x + 1

    return f


@cases(graphs=2, breaks=1)
def exception_kept():
    def f(x):
        kept = None
        try:
            {}["key"]
        except KeyError as error:
            kept = error
        x = x + 1
        print("break")
        return x * 2, kept

    return f


@cases(graphs=2, breaks=1)
def exception_raised_on():
    def f(x):
        try:
            try:
                x = x + 1
                raise KeyError("k")
            except KeyError as error:
                print("first")
                error.note = x * 2
                raise
        except KeyError as error:
            return x + 1, str(error), error.note, error

    return f


@cases(graphs=2, breaks=1)
def exception_with_a_cause():
    def f(x):
        try:
            try:
                x = x + 1
                raise KeyError("k")
            except KeyError as error:
                print("first")
                raise ValueError("v") from error
        except ValueError as error:
            return x * 2, error, error.__cause__ is error.__context__

    return f


@cases(graphs=3, breaks=2)
def finally_with_an_exception():
    def f(x):
        try:
            try:
                x = x + 1
                raise KeyError("k")
            finally:
                print("finally")
                x = x * 2
        except KeyError as error:
            print(error)
        return x + 3

    return f


@cases(breaks=1)
def exceptions_with_state_in_c():
    def f(x):
        kept = []
        for make in (
            lambda: int("x"),
            lambda: [].nothing,
            lambda: undefined,  # noqa: F821
            lambda: {}[3],
            lambda: next(iter(())),
            lambda: b"\xff".decode(),
        ):
            try:
                make()
            except Exception as error:
                kept.append(error)
        x = x + 1
        print("break")
        return x, [(type(e), e.args, getattr(e, "name", None)) for e in kept], kept

    return f


# ---- with ------------------------------------------------------------------------------------


class Logging:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, kind, error, traceback):
        self.log.append(("out", kind and kind.__name__, traceback is not None))
        return self.swallow


@contextlib.contextmanager
def managed(log):
    log.append("enter")
    try:
        yield 3
    except KeyError as error:
        log.append(str(error))
    finally:
        log.append("leave")


@cases(graphs=2, breaks=1)
def block_of_the_users():
    def f(x):
        log = []
        with Logging(log, True):
            x = x + 1
            print("inside")
            x = x * 2
            raise KeyError("k")
        return x + 1, log

    return f


@cases(graphs=2, breaks=1)
def block_of_a_generator():
    def f(x):
        log = []
        with managed(log) as v, Logging(log):
            x = x + v
            print("inside")
            x = x * 2
            raise KeyError("k")
        return x + 1, log

    return f


@cases(graphs=2, breaks=1)
def suppressing():
    def f(x):
        with contextlib.suppress(KeyError):
            x = x + 1
            print("inside")
            x = x * 2
            raise KeyError("k")
        return x + 1

    return f


@cases(graphs=2, breaks=1)
def stack_of_contexts():
    def f(x):
        log = []
        with contextlib.ExitStack() as stack:
            stack.enter_context(Logging(log))
            v = stack.enter_context(managed(log))
            stack.callback(log.append, "called")
            x = x + v
            print("inside")
            x = x * 2
        return x + 1, log

    return f
