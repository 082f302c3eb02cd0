"""How long values live, and who finalises what: CPython's moments, to the instruction.

Each function notes in a log when a value dies; the collector of cycles is off.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import FunctionType

import pytest

from refcompiler import interpret
from tests.tiny.interpreter.oracle import FILE

PROGRAM = """
import weakref, gc, sys
class O:
    pass
def r(o, log, name):
    return weakref.ref(o, lambda _: log.append(name))
def t_del():
    log = []
    x = O()
    w = r(x, log, 'x')
    del x
    log.append('after')
    return log
def t_rebind():
    log = []
    x = O()
    w = r(x, log, 'x')
    x = 1
    log.append('after')
    return log
def t_return():
    log = []
    def f():
        x = O()
        log.append(r(x, log, 'x'))
        log.append('end')
    f()
    log.append('after')
    return [l for l in log if type(l) is str]
def t_variables():
    log = []
    def f():
        a, b, c = O(), O(), [O(), O()]
        log.extend([r(b, log, 'b'), r(a, log, 'a'), r(c[0], log, '0'), r(c[1], log, '1')])
    f()
    return [l for l in log if type(l) is str]
def t_arg():
    log = []
    def f(x):
        del x
        log.append('in')
    w = []
    def mk():
        o = O()
        w.append(r(o, log, 'o'))
        return o
    f(mk())
    log.append('after')
    return log
def t_exc():
    log = []
    try:
        x = O()
        w = r(x, log, 'x')
        raise KeyError(1)
    except KeyError as e:
        log.append('in')
    del x
    log.append('after')
    return log
def t_exc2():
    log = []
    def f():
        x = O()
        log.append(r(x, log, 'x'))
        raise KeyError
    try:
        f()
    except KeyError as e:
        log.append('in')
    log.append('after')
    return [l for l in log if type(l) is str]
def t_exc3():
    log = []
    def f():
        x = O()
        log.append(r(x, log, 'x'))
        raise KeyError
    try:
        f()
    except KeyError:
        log.append('in')
    log.append('after')
    return [l for l in log if type(l) is str]
def t_exc4():
    log = []
    class E(Exception):
        pass
    def f():
        e = E()
        log.append(r(e, log, 'E'))
        raise e
    try:
        f()
    except E:
        log.append('in')
    log.append('after')
    return [l for l in log if type(l) is str]
def t_gen():
    log = []
    def g():
        x = O()
        log.append(r(x, log, 'x'))
        yield 1
        yield 2
    it = g()
    next(it)
    log.append('n')
    del it
    log.append('after')
    return [l for l in log if type(l) is str]
def t_gen_finally():
    log = []
    def g():
        try:
            yield 1
        finally:
            log.append('fin')
    it = g()
    next(it)
    del it
    log.append('after')
    return log
def t_gen_yielded():
    log = []
    def g():
        x = O()
        log.append(r(x, log, 'x'))
        yield x
        log.append('resumed')
        del x
        log.append('deleted')
        yield 3
    it = g()
    y = next(it)
    del y
    log.append('n')
    next(it)
    log.append('after')
    return [l for l in log if type(l) is str]
def t_gen_sent():
    log = []
    def g():
        x = yield
        del x
        log.append('del')
        yield
    it = g()
    next(it)
    o = O()
    w = r(o, log, 'o')
    def send(l):
        it.send(l.pop())
    l = [o]
    del o
    send(l)
    log.append('after')
    return log
def t_gen_return():
    log = []
    def g():
        x = O()
        log.append(r(x, log, 'x'))
        yield 1
    it = g()
    next(it)
    next(it, None)
    log.append('after')
    return [l for l in log if type(l) is str]
def t_cycle():
    log = []
    def g():
        x = O()
        log.append(r(x, log, 'x'))
        me = yield
        yield 1
    it = g()
    next(it)
    it.send(it)
    del it
    gc.collect()
    log.append('after')
    return [l for l in log if type(l) is str]
def t_cycle_finally():
    log = []
    def g():
        try:
            me = yield
            yield 1
        finally:
            log.append('fin')
    it = g()
    next(it)
    it.send(it)
    del it
    gc.collect()
    log.append('after')
    return log
def t_call_temp():
    log = []
    def mk():
        o = O()
        log.append(r(o, log, 'o'))
        return o
    mk()
    log.append('after')
    x = [mk()]
    x.clear()
    log.append('after2')
    id(mk())
    log.append('after3')
    (lambda *a, **k: log.append('body'))(mk(), k=mk())
    log.append('after4')
    for i in [mk()]:
        pass
    log.append('loop')
    del i
    log.append('after5')
    return [l for l in log if type(l) is str]
def t_with():
    log = []
    class C:
        def __enter__(self):
            return self
        def __exit__(self, *a):
            log.append('exit')
    c = C()
    w = r(c, log, 'c')
    del c
    def mk():
        c = C()
        log.append(r(c, log, 'c2'))
        return c
    with mk():
        log.append('body')
    log.append('after')
    return [l for l in log if type(l) is str]
def t_genexpr():
    log = []
    def mk():
        o = O()
        log.append(r(o, log, 'o'))
        return [o]
    for x in (y for y in mk()):
        break
    del x
    log.append('after')
    return [l for l in log if type(l) is str]
def t_frame():
    log = []
    def f():
        x = O()
        log.append(r(x, log, 'x'))
        return sys._getframe()
    fr = f()
    log.append('held')
    log.append(type(fr.f_locals['x']).__name__)
    fr.clear()
    log.append('cleared')
    del fr
    log.append('after')
    return [l for l in log if type(l) is str]
def t_tb():
    log = []
    def f():
        x = O()
        log.append(r(x, log, 'x'))
        1 / 0
    try:
        f()
    except ZeroDivisionError as e:
        tb = e.__traceback__.tb_next
        log.append(type(tb.tb_frame.f_locals['x']).__name__)
        e2 = e
    log.append('held')
    e2.__traceback__ = None
    del tb
    log.append('dropped')
    return [l for l in log if type(l) is str]
def t_chain():
    log = []
    class E(Exception):
        pass
    def f():
        try:
            e = E()
            log.append(r(e, log, 'e'))
            raise e
        except E:
            pass
        finally:
            e = None
    f()
    log.append('after')
    return [l for l in log if type(l) is str]
def t_reraise():
    log = []
    class E(Exception):
        pass
    def mk():
        e = E()
        log.append(r(e, log, 'e'))
        return e
    try:
        try:
            raise mk()
        except E:
            raise
    except E:
        log.append('in')
    log.append('after')
    try:
        raise mk() from mk()
    except E:
        log.append('in2')
    log.append('after2')
    try:
        try:
            raise mk()
        finally:
            log.append('fin')
    except E:
        pass
    log.append('after3')
    try:
        for x in (mk() for _ in 'ab'):
            raise x
    except E:
        pass
    del x
    log.append('after4')
    return [l for l in log if type(l) is str]
def t_genexc():
    log = []
    class E(Exception):
        pass
    def mk():
        e = E()
        log.append(r(e, log, 'e'))
        return e
    def g():
        try:
            raise mk()
        except E:
            yield 1
        yield 2
    it = g()
    next(it)
    log.append('s')
    next(it)
    log.append('t')
    del it
    it = g()
    next(it)
    del it
    log.append('u')
    it = g()
    next(it)
    it.close()
    log.append('v')
    def h():
        yield 1
        raise mk()
    try:
        list(h())
    except E:
        log.append('in')
    log.append('w')
    it = h()
    next(it)
    try:
        it.throw(mk())
    except E:
        log.append('in')
    log.append('x')
    return [l for l in log if type(l) is str]
async def coro(log):
    x = O()
    log.append(r(x, log, 'x'))
    return 3
def t_coro():
    log = []
    c = coro(log)
    try:
        c.send(None)
    except StopIteration:
        log.append('stop')
    del c
    log.append('after')
    return [l for l in log if type(l) is str]
def t_hasattr():
    log = []
    class E(AttributeError):
        pass
    def mk():
        e = E()
        log.append(r(e, log, 'e'))
        return e
    class P:
        @property
        def p(self):
            raise mk()
    log.append(str(hasattr(P(), 'p')))
    log.append('after')
    return [l for l in log if type(l) is str]
"""

_SPACE: dict = {"__name__": "user"}
exec(compile(PROGRAM, FILE, "exec"), _SPACE)
CASES: list[str] = [name for name in _SPACE if name.startswith("t_")]


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("name", CASES)
def test_lifetime(name: str) -> None:
    function: FunctionType = _SPACE[name]
    expected = function()
    assert len(expected) > 1
    assert interpret(function) == expected
    assert interpret(function) == expected


def test_there_are_cases() -> None:
    assert len(CASES) == 26
