"""Generators in use: closures, methods, inspection, consumers in C, against CPython."""

from __future__ import annotations

import pytest

from tests.tiny.interpreter.oracle import check, programs

PROGRAMS = programs("""
## generator_expression_is_lazy
def main():
    def f(x):
        print('f', x)
        return x
    g = (f(x) for x in range(3))
    print('made')
    return next(g)
## generator_expression_evaluates_first_iterable
def main():
    return (x for x in nowhere)
## closures_in_generators
def main():
    total = 0
    def add():
        nonlocal total
        for i in range(3):
            total += i
            yield total
    return list(add()), total
## methods
class Tree:
    def __init__(self, *parts):
        self.parts = parts
    def __iter__(self):
        for p in self.parts:
            if isinstance(p, Tree):
                yield from p
            else:
                yield p
def main():
    return list(Tree(1, Tree(2, 3), Tree(Tree(4))))
## inspection
import inspect, types, collections.abc
def g():
    yield 1
    yield from [2]
def main():
    it = g()
    log = [inspect.isgenerator(it), isinstance(it, types.GeneratorType), iter(it) is it,
           isinstance(it, collections.abc.Generator), it.__name__, it.__qualname__,
           inspect.isgeneratorfunction(g), inspect.getgeneratorstate(it)]
    next(it)
    log += [inspect.getgeneratorstate(it), it.gi_running, it.gi_yieldfrom, it.gi_frame.f_lineno]
    next(it)
    log += [it.gi_yieldfrom is not None, it.gi_code.co_name, it.gi_suspended]
    list(it)
    log += [inspect.getgeneratorstate(it), it.gi_frame]
    return log
## binding_error
def g(a, *, b):
    yield a
def main():
    return g(1, 2)
## interleaved
def g(name):
    for i in range(3):
        yield name + str(i)
def main():
    a, b = g('a'), g('b')
    return [next(a), next(b), next(a), next(b)], list(zip(a, b)), list(a)
## star_arguments
def g(n):
    yield from range(n)
def f(*args):
    return args
def main():
    a, *b = g(4)
    return f(*g(3)), [*g(2), *g(3)], {*g(2)}, a, b
## unpack_too_many
def g():
    yield 1
    yield 2
    print('not reached')
    yield 3
    print('nor this')
def main():
    a, b = g()
## map_and_filter
def g(n):
    for i in range(n):
        yield i
def main():
    return list(map(lambda x: x + 1, g(3))), list(filter(None, g(3))), list(zip(g(2), g(3)))
## itertools
import itertools
def fib():
    a, b = 0, 1
    while True:
        yield a
        a, b = b, a + b
def main():
    return list(itertools.islice(fib(), 10)), list(itertools.takewhile(lambda x: x < 30, fib()))
## yield_as_expression
def g():
    x = [(yield 1), (yield 2)]
    y = {(yield 3): (yield 4)}
    return x, y, f'{(yield 5)}'
def main():
    it = g()
    next(it)
    try:
        for s in 'abcdef':
            it.send(s)
    except StopIteration as e:
        return e.value
## try_finally_order
def g(log):
    try:
        try:
            yield 1
        finally:
            log.append('a')
            yield 2
            log.append('b')
    except ValueError:
        log.append('c')
        yield 3
    finally:
        log.append('d')
def main():
    log = []
    it = g(log)
    log.append(next(it))
    log.append(it.throw(ValueError))
    log.append(next(it))
    log.append(next(it, 'end'))
    return log
## coroutines_run_natively
import asyncio
async def add(a, b):
    await asyncio.sleep(0)
    return a + b
async def numbers():
    for i in range(3):
        yield i
async def total():
    async with asyncio.Lock():
        return sum([x async for x in numbers()]) + await add(1, 2)
def main():
    return asyncio.run(total())
## types_coroutine
import types
@types.coroutine
def pause():
    yield 'paused'
    return 5
async def run():
    return await pause()
def main():
    c = run()
    log = [c.send(None)]
    try:
        c.send(None)
    except StopIteration as e:
        log.append(e.value)
    return log
## frames_of_a_throw_through_a_delegation
import sys
def names():
    found, frame = [], sys._getframe(1)
    while frame is not None and frame.f_code.co_name != 'main':
        found.append(frame.f_code.co_name)
        frame = frame.f_back
    return found, frame is not None
def inner(log):
    try:
        yield 1
    except ValueError:
        log.append(names())
        yield 2
def outer(log):
    log.append(names())
    yield from inner(log)
def main():
    log = []
    it = outer(log)
    return next(it), it.throw(ValueError), log
## throw_class_that_makes_something_else
class E(Exception):
    def __new__(cls):
        return 3
def g():
    try:
        yield 1
    except TypeError as e:
        yield str(e)
def main():
    it = g()
    next(it)
    return it.throw(E), list(it)
## closing_forgets_what_was_handled
import weakref
class O(Exception): pass
def g():
    try:
        raise O
    except O:
        yield 1
def main():
    it = g()
    next(it)
    r = weakref.ref(it.gi_frame.f_code)
    o = O()
    r = weakref.ref(o)
    def h():
        try:
            raise o
        except O:
            yield 1
    it = h()
    next(it)
    it.close()
    del o, h, it
    return r() is None
## generators_are_not_copied
import copy, pickle
def g():
    yield 1
def main():
    log = []
    for f in (copy.copy, copy.deepcopy, pickle.dumps):
        try:
            f(g())
        except TypeError as e:
            log.append(str(e))
    return log
## context_taken_away
from contextlib import contextmanager, ExitStack
class MyException(Exception): pass
@contextmanager
def my_cm():
    try: yield
    except BaseException:
        exc = MyException()
        try: raise exc
        finally: exc.__context__ = None
@contextmanager
def stacked():
    with ExitStack() as stack:
        stack.enter_context(my_cm())
        yield stack
def main():
    log = []
    for cm in (my_cm, stacked):
        try:
            with cm(): raise IndexError()
        except MyException as exc:
            log.append(exc.__context__)
    return log
## thrown_while_another_is_handled
log = []
def gen(): yield (yield 0)
def tell(*calls):
    it = gen()
    for name, args in calls:
        try: getattr(it, name)(*args)
        except BaseException as e: log.append(e)
def main():
    try: raise TypeError(1)
    except TypeError:
        tell(('throw', (GeneratorExit,)))
        tell(('__next__', ()), ('throw', (GeneratorExit,)), ('throw', (KeyError,)))
        tell(('__next__', ()), ('throw', (KeyError(1),)), ('throw', (KeyError, 2)))
    return log
## function_name_changed
def g():
    yield 1
g.__name__ = 'other'
g.__qualname__ = 'an.other'
def main():
    it = g()
    return it.__name__, it.__qualname__
""")


@pytest.mark.parametrize("name", PROGRAMS)
def test_generators_used(name: str) -> None:
    check(PROGRAMS[name])
