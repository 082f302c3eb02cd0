"""Coroutines, asynchronous generators and what drives them, against CPython."""

from __future__ import annotations

import pytest

from tests.tiny.interpreter.oracle import check, programs

PROGRAMS = programs("""
## driven_by_hand
import types
@types.coroutine
def ask(x):
    return (yield x)
async def inner(a):
    return a + await ask(a)
async def outer():
    return [await inner(1), await inner(10), await ask('end')]
def main():
    c = outer()
    log = [c.send(None), c.send(5), c.send(7)]
    try:
        c.send('x')
    except StopIteration as stop:
        return log, stop.value
## asyncio_tasks
import asyncio
async def work(name, n, log):
    for i in range(n):
        log.append((name, i))
        await asyncio.sleep(0)
    return name * n
async def go(log):
    a, b = asyncio.create_task(work('a', 3, log)), asyncio.ensure_future(work('b', 2, log))
    return await asyncio.gather(a, b, work('c', 1, log))
def main():
    log = []
    return asyncio.run(go(log)), log
## task_is_cancelled
import asyncio
async def sleeper(log):
    try:
        await asyncio.sleep(100)
    except asyncio.CancelledError as error:
        log.append(repr(error))
        raise
    finally:
        log.append('finally')
async def go():
    log = []
    task = asyncio.create_task(sleeper(log))
    await asyncio.sleep(0)
    task.cancel('enough')
    try:
        await task
    except asyncio.CancelledError as error:
        log.append(error.args)
    try:
        async with asyncio.timeout(0.001):
            await sleeper(log)
    except TimeoutError as error:
        log.append(type(error.__cause__).__name__)
    return log, task.cancelled()
def main():
    return asyncio.run(go())
## task_group
import asyncio
async def fail(kind):
    await asyncio.sleep(0)
    raise kind('x')
async def go():
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail(KeyError))
            group.create_task(fail(ValueError))
    except* KeyError as errors:
        found = [repr(e) for e in errors.exceptions]
    except* ValueError as errors:
        found = found + [repr(e) for e in errors.exceptions]
    return found
def main():
    try:
        return asyncio.run(go())
    except ExceptionGroup as group:
        return group.message, [repr(e) for e in group.exceptions]
## error_through_awaits
async def a():
    raise KeyError('a')
async def b():
    try:
        await a()
    except KeyError as error:
        raise ValueError('b') from error
async def c():
    await b()
def main():
    c().send(None)
## context_while_awaiting_in_a_handler
async def a():
    raise KeyError('a')
async def b():
    try:
        1 / 0
    except ZeroDivisionError:
        await a()
def main():
    b().send(None)
## context_taken_away_stays_away_in_an_await
async def leave(error):
    try:
        fixed = error.__context__
        raise error
    except BaseException:
        error.__context__ = fixed
        raise
async def b(log):
    try:
        try:
            raise IndexError
        except IndexError:
            await leave(KeyError('left'))
    except KeyError as error:
        log.append(repr(error.__context__))
def main():
    log = []
    try:
        b(log).send(None)
    except StopIteration:
        return log
## context_of_what_is_thrown_through_a_delegation
def inner():
    yield 1
def outer():
    try:
        raise IndexError
    except IndexError:
        yield from inner()
def main():
    log = []
    for thrown in KeyError('thrown'), StopIteration('thrown'), GeneratorExit('thrown'):
        g = outer()
        next(g)
        try:
            g.throw(thrown)
        except BaseException as error:
            log.append((repr(error), repr(error.__context__), repr(thrown.__context__)))
    return log
## handling_in_a_delegation_leaves_other_errors_alone
def inner(log):
    log.append(repr((yield 1)))
def outer(log, old):
    try:
        raise old
    except KeyError as error:
        log.append(len(lines(error)))
        yield from inner(log)
        log.append((repr(error.__context__), len(lines(error))))
def lines(error):
    found, entry = [], error.__traceback__
    while entry is not None:
        found.append(entry.tb_lineno)
        entry = entry.tb_next
    return found
def main():
    log, old, new = [], KeyError('old'), ValueError('new')
    g = outer(log, old)
    new.__context__ = old
    try:
        raise new
    except ValueError:
        next(g)
    log.append(repr(new.__context__))
    log.append(next(g, 'end'))
    return log
## handled_while_delegating
import sys
def inner():
    yield repr(sys.exc_info()[1])
    try:
        raise KeyError
    except KeyError:
        yield repr(sys.exc_info()[1])
    yield repr(sys.exc_info()[1])
def middle():
    yield from inner()
def outer():
    try:
        1 / 0
    except ZeroDivisionError:
        yield from middle()
    yield repr(sys.exc_info()[1])
def main():
    it = outer()
    log = [next(it)]
    try:
        raise ValueError
    except ValueError:
        log += [next(it), next(it)]
    return log + list(it)
## thrown_into_what_has_ended
import sys
async def c():
    pass
def g():
    yield
def main():
    it, other, found = c(), g(), []
    it.close()
    other.close()
    try:
        1 / 0
    except ZeroDivisionError:
        for throw in (it.throw, other.throw):
            for error in (KeyError('thrown'), KeyError, 3):
                try:
                    throw(error)
                except Exception as found_error:
                    found.append(found_error)
    return found
## stop_iteration_in_a_coroutine
async def a():
    raise StopIteration(3)
def main():
    a().send(None)
## stop_async_iteration_in_an_async_generator
async def g():
    yield 1
    raise StopAsyncIteration
async def run():
    return [x async for x in g()]
def main():
    run().send(None)
## async_for_and_with
class Gate:
    def __init__(self, log):
        self.log = log
    async def __aenter__(self):
        self.log.append('in')
        return self
    async def __aexit__(self, kind, error, traceback):
        self.log.append((kind and kind.__name__, repr(error)))
        return kind is KeyError
class Count:
    def __init__(self, n):
        self.n = n
    def __aiter__(self):
        return self
    async def __anext__(self):
        if not self.n:
            raise StopAsyncIteration
        self.n -= 1
        return self.n
async def run():
    log = []
    async with Gate(log) as gate, Gate(log):
        log.append(gate is not None)
    async with Gate(log):
        raise KeyError('swallowed')
    async for i in Count(3):
        if i == 1:
            continue
        log.append(i)
    else:
        log.append('else')
    async for i in Count(3):
        break
    else:
        log.append('not here')
    return (
        log,
        [x async for x in Count(4) if x % 2],
        {x async for x in Count(2)},
        {x: [y async for y in Count(x)] async for x in Count(3)},
        [x async for x in (y async for y in Count(2))],
    )
def main():
    try:
        run().send(None)
    except StopIteration as stop:
        return stop.value
## bad_protocols
class NoEnter:
    async def __aexit__(self, *a):
        pass
class NoExit:
    async def __aenter__(self):
        pass
class Plain:
    def __aenter__(self):
        return 3
    def __aexit__(self, *a):
        return 4
class BadAexit:
    async def __aenter__(self):
        pass
    def __aexit__(self, *a):
        return 4
class BadIter:
    def __aiter__(self):
        return 3
class BadNext:
    def __aiter__(self):
        return self
    def __anext__(self):
        return 3
class BadAwait:
    def __await__(self):
        return 3
class CoroAwait:
    def __await__(self):
        return coro()
class NextOnly:
    def __aiter__(self):
        return self
async def coro():
    pass
async def w(x):
    async with x:
        pass
async def f(x):
    async for i in x:
        pass
async def a(x):
    await x
def main():
    found = []
    import warnings
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        for run, value in [
            (w, 3),
            (w, NoEnter()),
            (w, NoExit()),
            (w, Plain()),
            (w, BadAexit()),
            (f, 3),
            (f, [1]),
            (f, BadIter()),
            (f, BadNext()),
            (f, NextOnly()),
            (a, 3),
            (a, BadAwait()),
            (a, CoroAwait()),
            (a, iter([1])),
        ]:
            try:
                run(value).send(None)
            except Exception as error:
                found.append((type(error), str(error), repr(error.__cause__)))
    return found
## await_objects
class Give:
    def __init__(self, *values):
        self.values = values
    def __await__(self):
        for value in self.values:
            got = yield value
        return got
class Raw:
    def __await__(self):
        return iter([1, 2])
async def run():
    return await Give(1, 2), await Raw(), await Give('x')
def main():
    c, log = run(), []
    try:
        value = None
        while True:
            log.append(c.send(value))
            value = None if log[-1] in (1, 2) and len(log) > 1 else len(log)
    except StopIteration as stop:
        return log, stop.value
""")


@pytest.mark.parametrize("name", PROGRAMS)
def test_coroutines(name: str) -> None:
    check(PROGRAMS[name])
