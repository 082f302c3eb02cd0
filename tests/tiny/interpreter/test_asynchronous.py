"""Asynchronous generators, comprehensions and contexts, and who drives them, against CPython."""

from __future__ import annotations

import pytest

from tests.tiny.interpreter.oracle import check, programs

PROGRAMS = programs("""
## awaited_already
import types
@types.coroutine
def pause():
    yield
async def inner():
    await pause()
async def outer(c):
    await c
def main():
    c = inner()
    c.send(None)
    try:
        outer(c).send(None)
    except RuntimeError as error:
        log = [str(error)]
    c.close()
    for again in (c, inner()):
        try:
            again.send(None), again.send(None)
        except (RuntimeError, StopIteration) as error:
            log.append(repr(error))
    d = outer(c)
    try:
        d.send(None)
    except RuntimeError as error:
        log.append(str(error))
    return log
## yield_from_a_coroutine
async def c():
    return 1
def g():
    yield from c()
def main():
    import warnings
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        list(g())
## async_generator_protocol
async def g():
    try:
        got = yield 1
        while True:
            try:
                got = yield ('got', got)
            except KeyError as error:
                got = error.args
    finally:
        print('closed')
def step(aw):
    try:
        aw.send(None)
    except StopIteration as stop:
        return stop.value
    except BaseException as error:
        return repr(error)
def main():
    a = g()
    log = [
        step(a.__anext__()),
        step(a.asend(5)),
        step(a.athrow(KeyError('k'))),
        step(a.asend(6)),
        step(a.aclose()),
        step(a.__anext__()),
        step(a.aclose()),
        step(a.athrow(KeyError)),
    ]
    b = g()
    log += [step(b.asend(5)), step(b.athrow(ValueError('v'))), step(b.__anext__())]
    c = g()
    log += [step(c.aclose()), step(c.asend(None))]
    return log
## async_generator_awaits
import types, sys
@types.coroutine
def pause(x):
    return (yield x)
async def g(n):
    for i in range(n):
        got = await pause(('pause', i))
        yield i, got
async def run():
    return [x async for x in g(3)]
def main():
    c, log = run(), []
    try:
        while True:
            log.append(c.send(len(log) or None))
    except StopIteration as stop:
        return log, stop.value
## async_generator_hooks
import sys, asyncio
async def g():
    try:
        yield 1
        yield 2
    finally:
        await asyncio.sleep(0)
        print('finalised')
async def go():
    log = []
    old = sys.get_asyncgen_hooks()
    def first(agen):
        log.append(('first', agen.__name__))
        old.firstiter(agen)
    def final(agen):
        log.append(('final', agen.__name__))
        old.finalizer(agen)
    sys.set_asyncgen_hooks(first, final)
    a = g()
    log.append(await a.__anext__())
    del a
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    async for x in g():
        break
    sys.set_asyncgen_hooks(*old)
    return log
def main():
    return asyncio.run(go())
## async_generator_ignores_exit
async def g():
    try:
        yield 1
    except GeneratorExit:
        yield 2
def main():
    a = g()
    try:
        a.__anext__().send(None)
    except StopIteration as stop:
        log = [stop.value]
    try:
        a.aclose().send(None)
    except RuntimeError as error:
        return log, str(error)
## running_twice
async def g():
    yield 1
    try:
        aw.send(None)
    except Exception as error:
        yield repr(error)
def h():
    try:
        next(it)
    except ValueError as error:
        yield str(error)
async def c():
    try:
        me.send(None)
    except ValueError as error:
        return str(error)
def main():
    global it, me, aw
    it = h()
    log = list(it)
    me = c()
    try:
        me.send(None)
    except StopIteration as stop:
        log.append(stop.value)
    a = g()
    for i in range(2):
        aw = a.__anext__()
        try:
            aw.send(None)
        except StopIteration as stop:
            log.append(stop.value)
    return log
## attributes
import types, inspect
@types.coroutine
def pause():
    yield
async def inner():
    x = 1
    await pause()
async def outer(y):
    await inner()
async def agen(z):
    await inner()
    yield z
def gen(q):
    w = q
    yield from [1, 2]
def main():
    c, log = outer(3), []
    log += [inspect.getcoroutinestate(c), c.cr_await, c.cr_running, c.cr_suspended, c.cr_origin]
    log += [c.cr_code is outer.__code__, c.cr_frame.f_code is outer.__code__, c.cr_frame.f_lineno]
    log += [c.cr_frame.f_lasti, inspect.getcoroutinelocals(c)]
    c.send(None)
    log += [
        inspect.getcoroutinestate(c),
        c.cr_await.cr_code is inner.__code__,
        c.cr_frame.f_lineno,
    ]
    log += [inspect.getcoroutinelocals(c.cr_await), inspect.getcoroutinelocals(c)]
    log += [c.cr_await.cr_await.gi_frame.f_code.co_name, c.cr_frame.f_back, c.cr_suspended]
    c.close()
    log += [inspect.getcoroutinestate(c), c.cr_frame, c.cr_code is outer.__code__, c.cr_await]
    a = agen(4)
    log += [a.ag_running, a.ag_frame.f_lineno, a.ag_await, a.ag_code is agen.__code__]
    aw = a.__anext__()
    aw.send(None)
    log += [a.ag_running, a.ag_frame.f_lineno, a.ag_await.cr_code.co_name]
    g = gen(7)
    next(g)
    log += [
        inspect.getgeneratorlocals(g),
        g.gi_yieldfrom.__length_hint__(),
        g.gi_frame.f_locals['w'],
    ]
    for value in (c, a, g, aw, a.aclose(), a.athrow(KeyError), c.__await__() if 0 else None):
        log += [
            type(value).__name__,
            isinstance(value, types.CoroutineType),
            inspect.isawaitable(value),
            inspect.iscoroutine(value),
            inspect.isasyncgen(value),
            inspect.isgenerator(value),
        ]
    for function in (outer, agen, gen, pause, inner):
        log += [
            inspect.iscoroutinefunction(function),
            inspect.isasyncgenfunction(function),
            inspect.isgeneratorfunction(function),
        ]
    import warnings
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        del c, a, aw, value
    return log
## classes_of_abc
import collections.abc as abc, types
async def c():
    pass
async def a():
    yield
def g():
    yield
def main():
    made = c(), a(), g()
    kinds = (
        abc.Coroutine,
        abc.Awaitable,
        abc.AsyncGenerator,
        abc.AsyncIterator,
        abc.Generator,
        abc.Iterator,
        types.CoroutineType,
        types.AsyncGeneratorType,
        types.GeneratorType,
    )
    found = [[isinstance(m, k) for k in kinds] for m in made], [type(m) for m in made]
    made[0].close()
    return (
        found,
        [m.__name__ + m.__qualname__ for m in made],
        [repr(m).split(' at ')[0] for m in made],
    )
## names_are_writable
async def c():
    pass
def main():
    c.__name__, c.__qualname__ = 'n', 'q.n'
    made = c()
    log = [made.__name__, made.__qualname__, made.cr_code.co_name]
    made.__name__ = 'other'
    log.append(made.__name__)
    try:
        made.__name__ = 3
    except TypeError as error:
        log.append(str(error))
    made.close()
    return log
## never_awaited
import warnings
async def c():
    pass
def main():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter('always')
        c()
        d = c()
        d.close()
        e = c()
        del e
    return [(str(w.message), w.category) for w in seen]
## throw_and_close
import types
@types.coroutine
def pause(x):
    try:
        return (yield x)
    except KeyError:
        return (yield 'caught below')
async def a(log):
    try:
        log.append(await pause(1))
        await pause(2)
    finally:
        log.append('finally')
async def b(log):
    try:
        await a(log)
    except ValueError as error:
        log.append(error.args)
        return 'done'
def main():
    log = []
    c = b(log)
    log += [c.send(None), c.throw(KeyError('k')), c.send(3)]
    try:
        c.throw(ValueError(4))
    except StopIteration as stop:
        log.append(stop.value)
    d = b(log)
    d.send(None)
    d.close()
    e = b(log)
    try:
        e.throw(IndexError('fresh'))
    except IndexError as error:
        log.append(error.__traceback__.tb_next.tb_frame.f_code.co_name)
    e = b(log)
    e.close()
    try:
        e.send(None)
    except RuntimeError as error:
        log.append(str(error))
    return log
## thrown_into_fresh
async def c():
    return 1
def main():
    c().throw(KeyError('x'))
## async_comprehension_in_a_function
async def numbers(n):
    for i in range(n):
        yield i
async def run():
    base = 10
    return (
        [base + i async for i in numbers(3)],
        [[i async for i in numbers(j)] for j in range(3)],
        sum([i async for i in numbers(4)]),
        {i: await one(i) for i in range(2)},
    )
async def one(i):
    return i
def main():
    try:
        run().send(None)
    except StopIteration as stop:
        return stop.value
## async_context_managers_of_the_library
import asyncio, contextlib
@contextlib.asynccontextmanager
async def gate(log):
    log.append('in')
    try:
        yield 5
    except KeyError as error:
        log.append(repr(error))
    finally:
        log.append('out')
async def go():
    log = []
    async with gate(log) as x:
        log.append(x)
    async with gate(log):
        raise KeyError('k')
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(gate(log))
        stack.push_async_callback(asyncio.sleep, 0)
    lock = asyncio.Lock()
    async with lock:
        log.append(lock.locked())
    queue = asyncio.Queue()
    await queue.put(1)
    return log, await queue.get(), await asyncio.wait_for(asyncio.sleep(0, 'value'), 5)
def main():
    return asyncio.run(go())
## to_thread_and_context_variables
import asyncio, contextvars
var = contextvars.ContextVar('var', default=0)
def inside(x):
    return x + var.get()
async def child():
    var.set(var.get() + 1)
    await asyncio.sleep(0)
    return var.get()
async def go():
    var.set(10)
    return await asyncio.to_thread(inside, 5), await asyncio.gather(child(), child()), var.get()
def main():
    return asyncio.run(go())
## anext_builtin
async def g():
    yield 1
async def run():
    it = aiter(g())
    return await anext(it), await anext(it, 'default')
def main():
    try:
        run().send(None)
    except StopIteration as stop:
        return stop.value
## wrapped_with_types_coroutine
import types
def plain():
    return 3
def gen():
    yield 1
    return 2
class Like(types.SimpleNamespace):
    pass
async def run():
    return await types.coroutine(gen)()
def main():
    c = run()
    log = [c.send(None)]
    try:
        c.send(None)
    except StopIteration as stop:
        log.append(stop.value)
    wrapped = types.coroutine(gen)
    log += [wrapped is gen, wrapped().gi_code.co_flags & 0x100]
    try:
        types.coroutine(plain)().send
    except AttributeError as error:
        log.append(str(error))
    return log
## where_a_coroutine_was_made
import sys
async def c():
    pass
class Made:
    def __get__(self, one, kind):
        return c()
class Holder:
    attribute = Made()
def nested(n):
    return c() if n == 0 else nested(n - 1)
def made(depth):
    sys.set_coroutine_origin_tracking_depth(depth)
    try:
        return nested(2), Holder.attribute, *map(nested, [1])
    finally:
        sys.set_coroutine_origin_tracking_depth(0)
def main():
    found = []
    for depth in range(5):
        for coroutine in made(depth):
            origin = coroutine.cr_origin
            found.append(origin and [entry for entry in origin if 'user program' in entry[0]])
            coroutine.close()
    return found, sys.get_coroutine_origin_tracking_depth()
## pickling_and_copying
import copy, pickle
async def c():
    pass
def g():
    yield
def main():
    found = []
    made = c()
    for value in (made, g()):
        for operation in (copy.copy, pickle.dumps):
            try:
                operation(value)
            except TypeError as error:
                found.append(str(error))
    made.close()
    return found
""")


@pytest.mark.parametrize("name", PROGRAMS)
def test_asynchronous(name: str) -> None:
    check(PROGRAMS[name])
