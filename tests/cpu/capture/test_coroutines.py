"""Coroutines that the program drives by hand, and what they await, iterate over and enter."""

from __future__ import annotations

import asyncio
import contextlib
import types
from collections.abc import AsyncIterator, Coroutine, Generator
from typing import Any

import pytest
import torch

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()


def finished(coroutine: Coroutine) -> Any:
    """What ``coroutine`` returns, however often it is suspended."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration as end:
        return end.value


class Doubled:
    """Suspends once with its value; twice that, plus what it is sent, is the answer."""

    def __init__(self, value: Any):
        self.value = value

    def __await__(self) -> Generator:
        sent = yield self.value
        return self.value * 2 if sent is None else self.value * 2 + sent


async def shifted(x):
    return x + 1


async def steps(x):
    a = await shifted(x)
    b = await Doubled(a)
    return a + b


class Scope:
    def __init__(self, log: list, swallows: bool):
        self.log, self.swallows = log, swallows

    async def __aenter__(self) -> Scope:
        self.log.append("enter")
        return self

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> bool:
        self.log.append(None if kind is None else kind.__name__)
        return self.swallows


class Upwards:
    def __init__(self, x: Any, count: int):
        self.x, self.count = x, count

    def __aiter__(self) -> Upwards:
        return self

    async def __anext__(self) -> Any:
        if not self.count:
            raise StopAsyncIteration
        self.count -= 1
        return self.x + self.count


async def multiples(x) -> AsyncIterator:
    for i in range(3):
        yield x * i


@types.coroutine
def received(x):
    return (yield x)


@cases()
def driven_to_its_end():
    return lambda x: finished(steps(x))


@cases()
def driven_step_by_step():
    def f(x):
        coroutine = steps(x)
        first = coroutine.send(None)
        try:
            coroutine.send(x * 5)
        except StopIteration as end:
            return first, end.value, coroutine.cr_running, coroutine.cr_await, coroutine.cr_frame

    return f


@cases(graphs=2, breaks=1)
def suspended_across_a_break():
    def f(x):
        coroutine = steps(x)
        first = coroutine.send(None)
        torch._dynamo.graph_break()
        try:
            coroutine.send(x)
        except StopIteration as end:
            return first, end.value

    return f


@cases(graphs=2, breaks=1)
def break_in_what_is_awaited():
    async def inner(x):
        y = x * 2
        torch._dynamo.graph_break()
        return y + 1

    async def outer(x):
        return await inner(x) * 3

    return lambda x: finished(outer(x))


@cases()
def recursive():
    async def summed(x, n):
        return x if n == 0 else await summed(x, n - 1) + n

    return lambda x: finished(summed(x, 5))


@cases()
def generator_as_coroutine():
    async def f2(x):
        return await received(x) + 1

    def f(x):
        coroutine = f2(x)
        found = coroutine.send(None)
        try:
            coroutine.send(found * 3)
        except StopIteration as end:
            return end.value

    return f


@cases()
def thrown_into():
    async def guarded(x, log):
        try:
            await Doubled(x)
        except KeyError as error:
            log.append(repr(error))
            return x * 5

    def f(x):
        log = []
        coroutine = guarded(x, log)
        coroutine.send(None)
        try:
            coroutine.throw(KeyError("k"))
        except StopIteration as end:
            return end.value, log

    return f


@cases()
def closed_and_dropped():
    async def watched(x, log, name):
        try:
            return await Doubled(x)
        finally:
            log.append(name)

    def f(x):
        log = []
        watched(x, log, "never").close()
        second = watched(x, log, "closed")
        second.send(None)
        second.close()
        third = watched(x, log, "dropped")
        third.send(None)
        del third
        log.append("end")
        return x * 2, log

    return f


@cases(graphs=1, breaks=1)
def never_awaited():
    def f(x):
        shifted(x)
        return x * 2

    return f


@cases()
def errors_of_coroutines():
    async def stops():
        raise StopIteration(3)

    def f(x):
        said = []
        done = shifted(x)
        finished(done)
        for coroutine in (done, stops()):
            try:
                finished(coroutine)
            except RuntimeError as error:
                said.append(str(error))
        return x * 2, said

    return f


@cases(graphs=1, breaks=1)
def tensor_that_is_awaited():
    async def wrong(x):
        return await x

    def f(x):
        try:
            finished(wrong(x))
        except TypeError as error:
            return x * 2, str(error)

    return f


@cases()
def context_managers():
    async def block(x, log, swallows):
        async with Scope(log, swallows) as scope:
            x = x * 2
            scope.log.append("inside")
            if swallows:
                raise ValueError
        return x + 1

    def f(x):
        log = []
        return finished(block(x, log, True)), finished(block(x, log, False)), log

    return f


@cases()
def context_manager_of_a_generator():
    @contextlib.asynccontextmanager
    async def opened(x, log):
        log.append("open")
        try:
            yield x * 2
        finally:
            log.append("close")

    async def block(x, log):
        async with contextlib.AsyncExitStack() as stack:
            y = await stack.enter_async_context(opened(x, log))
            return y + 1

    def f(x):
        log = []
        return finished(block(x, log)), log

    return f


@cases()
def loops():
    async def summed(x):
        total = x
        async for y in Upwards(x, 3):
            total = total + y
        else:
            total = total * 2
        async for y in multiples(x):
            total = total + y
        return total, [y async for y in multiples(x) if y is not x]

    return lambda x: finished(summed(x))


@cases(graphs=1, breaks=1)
def event_loop():
    async def main(x):
        await asyncio.sleep(0)
        return await shifted(x)

    def f(x):
        return asyncio.run(main(x * 2))

    return f


async def scaled(x, log):
    try:
        for i in range(4):
            sent = yield x * i
            if sent is not None:
                x = x + sent
    finally:
        log.append("end")


@cases(graphs=3, breaks=2)
def asynchronous_generator_over_breaks():
    def f(x):
        log = []

        async def body():
            steps = scaled(x, log)
            a = await anext(steps)
            torch._dynamo.graph_break()
            b = await steps.asend(x)
            torch._dynamo.graph_break()
            c = await anext(steps)
            await steps.aclose()
            return a + b + c

        return finished(body()), log

    return f, [(torch.ones(3),)] * 2


@cases(graphs=2, breaks=2)
def asynchronous_generator_left_in_a_loop():
    def f(x):
        log = []

        async def body():
            async for v in scaled(x, log):
                torch._dynamo.graph_break()
                break
            return v + 1

        return finished(body()), log

    return f, [(torch.ones(3),)] * 3


@cases(breaks=2)
def asynchronous_generators_in_each_other():
    async def inner(x):
        yield x + 1
        torch._dynamo.graph_break()
        yield x + 2

    async def outer(x):
        async for v in inner(x):
            yield v * 2

    def f(x):
        async def body():
            return [v async for v in outer(x)]

        return finished(body())

    return f, [(torch.ones(3),)] * 2


@pytest.mark.parametrize("case", cases, ids=str)
def test_coroutines(case: Case) -> None:
    assert check(case) > 0


def test_coroutines_are_handed_out() -> None:
    import refcompiler

    @refcompiler.compile(backend="eager")
    def f(x):
        begun = steps(x)
        begun.send(None)
        return shifted(x * 2), begun

    x = torch.randn(3)
    for _ in range(2):
        fresh, begun = f(x)
        assert isinstance(fresh, types.CoroutineType) and fresh.__name__ == "shifted"
        assert torch.equal(finished(fresh), x * 2 + 1)
        assert torch.equal(finished(begun), x + 1 + (x + 1) * 2)
    assert refcompiler.counters()["fallbacks"] == 0
