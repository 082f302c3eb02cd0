"""A break in a generator, a special method or a callback costs one break, wherever it is."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import refcompiler
from refcompiler.runtime import drive
from refcompiler.runtime.counters import reasons
from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()


@pytest.mark.parametrize("case", cases, ids=str)
def test_one_break_for_each_print(case: Case) -> None:
    assert check(case) > 20


def _x() -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 4)


# ---- generators ------------------------------------------------------------------------------


def speaking(x, n):
    for i in range(n):
        y = x * 2
        print("in")
        yield y + i


@cases(graphs=3, breaks=2, recompiles=1)
def loop_over_a_generator():
    """What comes before and after the break is in graphs; the consumer's part is too."""

    def f(x):
        def g():
            for _ in range(2):
                y = x * 2
                print("in")
                yield y + 1

        for v in g():
            x = x + v
        return x

    return f


@cases(graphs=2, breaks=1)
def only_one_item_breaks():
    def f(x):
        def g():
            for i in range(4):
                y = x * i
                if i == 2:
                    print("in")
                yield y + 1

        for v in g():
            x = x + v
        return x

    return f


@cases(graphs=3, breaks=2)
def advanced_by_hand():
    def f(x):
        def g():
            got = yield x * 2
            print("got", got)
            got = yield x * got
            print("got", got)
            return got

        it = g()
        a = next(it)
        b = it.send(3)
        c = next(it, 7)
        return a + b * c, next(it, None), it.gi_frame

    return f


@cases(graphs=3, breaks=2)
def delegation():
    def f(x):
        def inner():
            y = x * 2
            print("in")
            got = yield y + 1
            print("again", got)
            return y * 7

        def outer():
            found = yield from inner()
            yield found * 3

        for v in outer():
            x = x + v
        return x

    return f


@cases(graphs=2, breaks=2)
def delegation_to_other_iterators():
    class It:
        def __init__(self, n):
            self.n = n

        def __iter__(self):
            return self

        def __next__(self):
            if self.n == 0:
                raise StopIteration("end")
            self.n -= 1
            return self.n

    def f(x):
        def g():
            found = yield from It(2)
            print(found)
            found = yield from [x, x * 2]
            print(found)
            yield x * 3

        return [v * 2 for v in g()]

    return f


@cases(graphs=3, breaks=2)
def delegate_is_thrown_into():
    def f(x):
        def inner():
            try:
                yield x * 2
            except ValueError as error:
                print("caught", error)
                yield x * 3
            print("ends")

        def outer():
            yield from inner()
            yield x * 5

        it = outer()
        a = next(it)
        b = it.throw(ValueError("v"))
        return a + b * next(it), list(it)

    return f


@cases(graphs=2, breaks=1)
def error_out_of_a_generator():
    def f(x):
        def g():
            yield x * 2
            print("raises")
            raise KeyError("k")

        try:
            for v in g():
                x = x + v
        except KeyError as error:
            return x * 3, error
        return x

    return f


@cases(graphs=2, breaks=1)
def stop_iteration_out_of_a_generator():
    def f(x):
        def g():
            y = x * 2
            print("stops")
            yield next(iter([]))
            yield y

        try:
            return list(g())
        except RuntimeError as error:
            return x * 3, error, error.__cause__

    return f


@cases(graphs=2, breaks=2)
def handled_exceptions_of_both():
    """What a generator handles is not what its consumer handles."""

    def f(x):
        def g():
            try:
                raise KeyError("inner")
            except KeyError:
                y = x * 2
                print("in")
                yield y
                try:
                    raise TypeError("second")
                except TypeError as error:
                    print(repr(error.__context__))
                    yield error

        try:
            raise ValueError("outer")
        except ValueError:
            it = g()
            a = next(it)
            try:
                raise LookupError("third")
            except LookupError as error:
                found = repr(error.__context__)
            return a * 2, found, list(it)

    return f


@cases(graphs=3, breaks=3)
def context_manager_of_a_generator():
    @contextlib.contextmanager
    def managed(x, log):
        print("enter")
        y = x * 2
        try:
            yield y
        except ValueError as error:
            print("caught", error)
            log.append(y * 2)
        print("exit")

    def f(x):
        log = []
        with managed(x, log) as v:
            x = x + v
            raise ValueError("v")
        return x * 2, log

    return f


@cases(graphs=2, breaks=2)
def generator_and_its_consumer_share_objects():
    def f(x):
        shared = [x * 2]

        def g():
            print(len(shared))
            shared.append(shared[0] * 3)
            yield shared
            print(len(shared))
            yield it

        it = g()
        first = next(it)
        first.append(first[1] + 1)
        second = next(it)
        return first is shared, second is it, shared, next(it, None)

    return f


@cases(graphs=1, breaks=1)
def running_generator_is_asked():
    def f(x):
        def g():
            yield inspect.getgeneratorstate(it)
            print("in")
            yield inspect.getgeneratorstate(it), x * 2

        it = g()
        states = [inspect.getgeneratorstate(it)]
        states.append(next(it))
        states.append(inspect.getgeneratorstate(it))
        states.append(next(it))
        states.append(next(it, inspect.getgeneratorstate(it)))
        return states, inspect.getgeneratorstate(it), x * 3

    return f


@cases(graphs=2, breaks=2)
def running_generator_is_asked_natively():
    @refcompiler.disable
    def ask(it):
        try:
            return next(it)
        except ValueError as error:
            return str(error), inspect.getgeneratorstate(it), it.gi_yieldfrom

    def f(x):
        def inner():
            y = x * 2
            yield y, ask(outer), ask(it), outer.gi_yieldfrom is it

        def delegating():
            yield from it

        it, outer = inner(), delegating()
        (found,) = outer
        return found[0] * 2, found[1:], it.gi_frame, outer.gi_running

    return f


# Where a generator is dropped is not where a break may be forced at will: what is made natively
# then is another generator.
dropped = Cases()


@pytest.mark.parametrize("case", dropped, ids=str)
def test_closed_when_dropped(case: Case) -> None:
    assert check(case) > 20


def closing(x, log):
    try:
        yield x * 2
        yield x * 3
    finally:
        log.append(x.shape)
        print("left")


@dropped(graphs=2, breaks=2)
def loop_is_left_early():
    """A break where a generator is closed by whoever drops it last."""

    def f(x):
        log = []
        for v in closing(x, log):
            x = x + v
            break
        x = x * 3
        print("then")
        return x, log

    return f


@dropped(graphs=2, breaks=2)
def generator_is_dropped_by_a_return():
    def f(x):
        log = []

        def g():
            it = closing(x, log)
            return next(it) + 1

        y = g() * 2
        print("then")
        return y, log

    return f


@dropped(breaks=1)
def generator_is_dropped_at_the_end():
    log = []

    def f(x):
        it = closing(x, log)
        return next(it) + 1

    return f, [(_x(),), (_x(),)], log


@dropped(graphs=2, breaks=3)  # the return that closes it is one
def generator_outlives_a_break_unread():
    def f(x):
        log = []

        def g():
            it = closing(x, log)
            y = next(it) + 1
            print("break")
            return y * 2

        y = g()
        print("then")
        return y, log

    return f


@dropped(graphs=1, breaks=0)
def closed_without_a_break():
    def f(x):
        log = []

        def g():
            try:
                yield x * 2
            finally:
                log.append(x + 1)

        for v in g():
            x = x + v
            break
        return x, log

    return f


def test_generator_that_broke_is_given_back() -> None:
    def numbers(x):
        try:
            y = x * 2
            print("in")
            yield y
            yield y + 1
        finally:
            left.append(len(left))

    def f(x):
        it = numbers(x)
        return next(it), it

    left: list[int] = []
    refcompiler.reset()
    compiled = refcompiler.compile(f, backend="eager")
    for run in (f, compiled, compiled):
        first, it = run(_x())
        assert inspect.isgenerator(it) and inspect.getgeneratorstate(it) == "GEN_SUSPENDED"
        assert torch.equal(first + 1, next(it)) and it.gi_code.co_name == "numbers"
        it.close()
    assert left == [0, 1, 2]
    assert refcompiler.counters()["breaks"] == 1


# ---- consumers in C ---------------------------------------------------------------------------

_CONSUMERS: dict[str, Callable] = {
    "sum": sum,
    "list": list,
    "tuple": tuple,
    "star": lambda g: [*g],
    "call": lambda g: torch.stack([*g]),
    "arguments": lambda g: max(*(t.shape[0] for t in g)),
    "join": lambda g: ",".join(str(t.shape) for t in g),
    "any": lambda g: any(t is None for t in g),
    "extend": lambda g: [].extend(g),
    "dict": lambda g: dict((i, t) for i, t in enumerate(g)),
    "zip": lambda g: [a * b for a, b in zip(g, [2, 3], strict=False)],
    "map": lambda g: list(map(torch.neg, g)),
    "filter": lambda g: [t for t in filter(torch.is_tensor, g)],
    "enumerate": lambda g: [i * t for i, t in enumerate(g, 3)],
    "starred": lambda g: (lambda a, *b: (a, b))(*g),
}


@pytest.mark.parametrize("consume", _CONSUMERS.values(), ids=_CONSUMERS)
def test_consumer(consume: Callable) -> None:
    """A graph before the first break and one after each, unless nothing is left to compute."""

    def f(x):
        return consume(speaking(x * 2, 3)), x * 3

    def make() -> Any:
        return f

    make.__name__ = "consumer"
    check(Case(make, {"breaks": 3, "fallbacks": 0}, ("eager",)))


def _speaks(t):
    print("key")
    return -t


_CALLBACKS: dict[str, Callable] = {
    "sorted": lambda x: sorted([2, 1], key=_speaks),
    "sort": lambda x: [2, 1].sort(key=_speaks),
    "max": lambda x: max([1, 2], key=_speaks),
    "min": lambda x: min(1, 2, key=_speaks),
    "reduce": lambda x: functools.reduce(lambda a, b: _speaks(a) * b, [x, x, x]),
    "map": lambda x: [t * 2 for t in map(_speaks, [x, x])],
    "filter": lambda x: list(filter(lambda t: _speaks(t) is None, [x, x])),
    "starred": lambda x: torch.stack([*map(_speaks, (x, x))]),
}


@pytest.mark.parametrize("call", _CALLBACKS.values(), ids=_CALLBACKS)
def test_callback(call: Callable) -> None:
    def f(x):
        return call(x * 2), x * 3

    def make() -> Any:
        return f

    make.__name__ = "callback"
    check(Case(make, {"breaks": 2, "fallbacks": 0}, ("eager",)))


def test_where_a_known_break_goes_on_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames are described the first time, and while an error is handled."""
    described = []

    def counting(frames, *given):
        described.append(len(frames))
        return drive_describe(frames, *given)

    drive_describe = drive.describe
    monkeypatch.setattr(drive, "describe", counting)

    def inner(x, held):
        if x.sum() > 100:
            return x * 2
        return x + 1

    def f(x, held):
        unread = held  # noqa: F841
        try:
            return inner(x * 2, None) + x.tolist()[int(held)]
        except IndexError:
            return inner(x * 3, None)

    refcompiler.reset()
    compiled = refcompiler.compile(f, backend="eager")
    seen = []
    for held in (0, 1, 7, 1):
        before = len(described)
        for scale in (1.0, 50.0):
            x = _x()[0] * scale
            assert torch.equal(compiled(x, held), f(x, held))
        seen.append(len(described) - before)
    assert seen[0] > 0 and seen[2] > 0  # then in a handler, which is always looked at
    assert seen[1] == seen[3] == 0
    assert refcompiler.counters()["fallbacks"] == 0


def test_reason_names_the_users_line() -> None:
    def f(x):
        return sum(speaking(x, 1))

    def lines() -> Iterator[str]:
        for reason in reasons("breaks"):
            yield reason.function
            yield from [name for _, _, name in reason.stack]

    refcompiler.reset()
    refcompiler.compile(f, backend="eager")(_x())
    inner = f"{test_reason_names_the_users_line.__name__}.<locals>.f"
    assert list(lines()) == ["speaking", inner, "speaking"]
