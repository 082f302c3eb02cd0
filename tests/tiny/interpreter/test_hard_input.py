"""Threads, generators that the collector closes, handling while C code calls, deep recursion."""

from __future__ import annotations

import pytest

from tests.tiny.interpreter.oracle import check, programs

PROGRAMS = programs(r"""
## one_generator_in_many_threads
import threading
def g():
    x = 0
    while True:
        try:
            x += (yield x) or 1
        except KeyError:
            x = 100
def main():
    it = g()
    out = [next(it)]
    runs = [lambda n=n: it.send(n) for n in range(4)]
    for run in (*runs, lambda: it.throw(KeyError('k')), it.close, lambda: next(it, 'over')):
        thread = threading.Thread(target=lambda: out.append(run()))
        thread.start()
        thread.join()
    return out
## a_generator_that_another_thread_executes
import threading
def main():
    begun, go_on, out = threading.Event(), threading.Event(), []
    def g():
        begun.set()
        go_on.wait(60)
        yield 1
        yield 2
    it = g()
    thread = threading.Thread(target=lambda: out.append(next(it)))
    thread.start()
    begun.wait(60)
    for run in (lambda: next(it), it.close, lambda: it.throw(KeyError)):
        try:
            run()
        except ValueError as error:
            out.append(error)
    go_on.set()
    thread.join()
    return out, list(it)
## what_a_thread_handles_is_its_own
import sys, threading
def main():
    out, hook = [], threading.excepthook
    def work(fails):
        out.append(sys.exception())
        if fails:
            raise KeyError('thread')
    threading.excepthook = lambda given: out.append(given.exc_value)
    try:
        1 / 0
    except ZeroDivisionError:
        for fails in (False, True):
            thread = threading.Thread(target=work, args=(fails,))
            thread.start()
            thread.join()
        out.append(sys.exception())
    finally:
        threading.excepthook = hook
    return out
## recursion_in_many_threads
import threading
def main():
    out = []
    def deep(n):
        return n and 1 + deep(n - 1)
    def endless():
        return endless()
    def work():
        try:
            endless()
        except RecursionError:
            out.append(deep(200))
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return out
## the_collector_closes
import gc, sys
class Node:
    pass
def main():
    log, hook = [], sys.unraisablehook
    sys.unraisablehook = lambda given: log.append(repr(given.exc_value))
    def g(node, how):
        try:
            yield from inner(node)
        finally:
            log.append((how, repr(sys.exception())))
            if how == 'yields':
                yield
            if how == 'raises':
                raise KeyError(how)
    def inner(node):
        with Manager():
            yield node
    class Manager:
        def __enter__(self):
            pass
        def __exit__(self, *error):
            log.append(error[0])
    try:
        for how in ('ends', 'yields', 'raises'):
            node = Node()
            node.it = g(node, how)
            next(node.it)
            try:
                raise ValueError(how)
            except ValueError:
                del node
                gc.collect()
    finally:
        sys.unraisablehook = hook
    return log
## the_collector_closes_in_another_thread
import gc, threading
class Node:
    pass
def main():
    log = []
    def g(node):
        try:
            yield
        finally:
            log.append(threading.current_thread().name)
    def make():
        node = Node()
        node.it = g(node)
        next(node.it)
    gc.disable()
    try:
        make()
        thread = threading.Thread(target=gc.collect, name='collector')
        thread.start()
        thread.join()
    finally:
        gc.enable()
    return log
## handled_while_c_code_calls
import sys, weakref
class Odd:
    def __del__(self):
        log.append(sys.exception())
    def __str__(self):
        return repr(sys.exception())
    def __eq__(self, other):
        raise
log = []
def main():
    def note(x):
        log.append(sys.exception())
        try:
            {}[x]
        except KeyError as error:
            log.append(error.__context__)
    odd = Odd()
    alive = weakref.ref(odd, lambda _: log.append(sys.exception()))
    try:
        1 / 0
    except ZeroDivisionError as handled:
        list(map(note, [1]))
        log.append(f'{odd}')
        try:
            odd == 1
        except ZeroDivisionError as error:
            log.append(error is handled)
        del odd
    return log, sys.exception()
## recursion_everywhere
class Deep:
    def __repr__(self): return f'{self!r}'
    def __eq__(self, other): return self == other
    def __getattr__(self, name): return getattr(self, name + '_')
    def __hash__(self): return hash(self)
    def __call__(self): return self()
    def __add__(self, other): return self + other
def main():
    out = []
    def endless():
        yield from endless()
    async def awaits():
        await awaits()
    runs = [repr, hash, lambda deep: deep == deep, lambda deep: deep.x, lambda deep: deep()]
    runs += [lambda deep: deep + 1, lambda deep: next(endless()), lambda _: awaits().send(None)]
    for run in runs:
        try:
            out.append(run(Deep()))
        except RecursionError:
            out.append('too deep')
    return out
## callbacks_of_c_libraries
import ctypes, re, xml.parsers.expat
def main():
    out = []
    def order(a, b):
        try:
            {}[0]
        except KeyError:
            return a[0] - b[0]
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.POINTER(ctypes.c_int)] * 2)
    values = (ctypes.c_int * 5)(5, 3, 1, 9, 2)
    ctypes.CDLL(None).qsort(values, 5, ctypes.sizeof(ctypes.c_int), kind(order))
    parser = xml.parsers.expat.ParserCreate()
    def end(name):
        out.append(name)
        if name == 'b':
            raise ValueError(name)
    parser.EndElementHandler = end
    try:
        parser.Parse('<a><c/><b/></a>', True)
    except ValueError as error:
        out.append(str(error))
    return list(values), out, re.sub('[0-9]', lambda found: str(int(found[0]) + 1), 'a1b2')
""")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    check(PROGRAMS[name])
