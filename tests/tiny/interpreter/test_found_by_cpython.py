"""Programs for each class of failure that CPython's own tests have found."""

from __future__ import annotations

import builtins

import pytest

from tests.tiny.interpreter.oracle import check, programs

PROGRAMS = programs("""
## builtins_are_replaced
import builtins
def swapped(name, value, run):
    old = getattr(builtins, name)
    if value is None:
        delattr(builtins, name)
    else:
        setattr(builtins, name, value)
    try:
        return run()
    finally:
        setattr(builtins, name, old)
def numbers():
    for i in [1, 2]:
        try:
            yield i / (i - 1)
        except ZeroDivisionError as error:
            yield repr(error)
def work(*args, **kwargs):
    class Local:
        def __init__(self, x=2):
            self.x = x
    def inner(a, b, *rest, c=4):
        return a, b, rest, c
    return list(numbers()), inner(*args, **kwargs), [n for n in (1, 2)], Local().x
def main():
    found = [work(1, 2, c=3)]
    for name in ('isinstance', 'type', 'dict', 'getattr', 'iter', 'next', 'tuple', 'zip'):
        found.append(swapped(name, None, lambda: work(1, 2, 3)))
    return found, swapped('len', lambda x: 7, lambda: (len('a'), work(1, 2)))
## class_statement_without_its_builtin
def main():
    space = {'__builtins__': {}}
    try:
        exec('class A: pass', space)
    except NameError as error:
        return str(error), sorted(space)
## module_of_a_called_class
class Meta(type):
    def __new__(cls, name, bases, space):
        return super().__new__(cls, name, bases, space)
def main():
    a = type('A', (), {'x': 1})
    b = type('B', (), {'__module__': 'elsewhere'})
    c = Meta('C', (a,), {})
    d = type.__new__(Meta, 'D', (), {})
    return [(k.__module__, k.__qualname__, list(vars(k))[:2]) for k in (a, b, c, d)]
## builtins_of_a_made_function
def main():
    def plain():
        return 1
    made = type(plain)(plain.__code__, {})
    space = {'type': type, '__builtins__': {'None': None}}
    exec('def f(): pass\\ng = type(f)(f.__code__, {})', space)
    safe = space['__builtins__']
    return (made.__builtins__ is plain.__builtins__, space['f'].__builtins__ is safe,
            space['g'].__builtins__ is safe, made())
## bases_are_a_tuple
class Entry:
    def __mro_entries__(self, bases):
        return (int,) if type(bases) is tuple else ()
class Meta(type):
    @classmethod
    def __prepare__(cls, name, bases, **kwargs):
        return {'prepared': (type(bases).__name__, bases, kwargs)}
    def __new__(cls, name, bases, space, **kwargs):
        return super().__new__(cls, name, bases, {**space, 'got': (type(bases).__name__, bases)})
    def __init__(cls, name, bases, space, **kwargs):
        pass
def main():
    class A(metaclass=Meta, key=1):
        pass
    class B(Entry()):
        pass
    return A.prepared, A.got, B.__bases__, type(B.__orig_bases__), len(B.__orig_bases__)
## compile_given_twice
def main():
    twice, many = (('1', 'f', 'eval'), {'mode': 'eval'}), (('1', 'f', 'eval', 0, 0, -1, 2), {})
    for args, kwargs in (twice, many):
        try:
            compile(*args, **kwargs)
        except TypeError as error:
            yield_ = str(error)
    return yield_, compile(source='1', filename='f', mode='eval').co_filename
## names_of_a_mapping
class Names:
    def __getitem__(self, key):
        raise KeyError(key)
    def keys(self):
        return ['z', 'a']
def main():
    return eval('dir()', {}, Names())
## the_given_tuple_arrives
def main():
    given = 1, 2
    def f(*args):
        return args
    return f(*given), type('%s')('%s %s') % given, isinstance(*(1, int))
## keyword_that_is_no_string_twice
def f(*args, **kwargs):
    return args, kwargs
def main():
    found = []
    for call in (lambda: f(**{1: 2}, **{1: 3}), lambda: f(**{1: 2}), lambda: f(a=1, **{'a': 2})):
        try:
            call()
        except TypeError as error:
            found.append(str(error))
    return found
## globals_that_answer_what_they_do_not_have
class Numbers(dict):
    def __missing__(self, key):
        return int(key.removeprefix('n'))
def main():
    space = Numbers()
    f = eval('lambda: (n1 + n2, len([n3]))', space)
    try:
        eval('lambda: other', space)()
    except ValueError as error:
        return [f() for _ in range(60)], str(error), sorted(space)
## partial_runs_what_it_holds
import functools, sys
def f(a, b, *, c):
    return sys._getframe().f_back.f_code.co_name, a, b, c
def main():
    g = functools.partial(f, 1, c=2)
    space = {'__name__': 'elsewhere'}
    functools.partial(exec, 'def h(): return __name__')(space)
    return g(3), g(b=4, c=5), functools.partial(g, 9)(), space['h']()
## frames_of_tracebacks
import sys
def entries(error):
    found, entry = [], error.__traceback__
    while entry is not None:
        frame = entry.tb_frame
        names = {k: v for k, v in frame.f_locals.items() if type(v) in (int, str)}
        code = frame.f_code
        place = frame.f_lineno, frame.f_lasti == entry.tb_lasti
        found.append((code.co_name, names, place if found else None))  # the first one went on
        entry = entry.tb_next
    return found
def left(a, b=2):
    c = a + b
    def inner():
        return c, a
    if c:
        raise KeyError(c)
    never = 1
def first_instruction(x):
    return nowhere + x
def reraised(x):
    try:
        left(x)
    finally:
        x = 'changed'
def named(x):
    try:
        left(x)
    except KeyError as error:
        raise ValueError(x) from error
def suppressed(x):
    class Manager:
        def __enter__(self):
            return self
        def __exit__(self, *args):
            pass
    with Manager():
        y = 5
        left(x)
def catching(run):
    before = 1
    try:
        run(7)
    except Exception as caught:
        error = caught
        before = 'now'
    after = 2
    return error
def body(x):
    class A:
        z = 3
        left(z)
def main():
    runs = (left, first_instruction, reraised, named, suppressed, body)
    errors = [catching(run) for run in runs]
    return [entries(e) for e in errors], entries(errors[3].__cause__)
## values_live_as_long_as_the_traceback
import gc, weakref
class Thing:
    pass
def fails(thing):
    raise ValueError
def catches():
    thing = Thing()
    found = weakref.ref(thing)
    try:
        fails(thing)
    except ValueError as error:
        thing = None
        frame = error.__traceback__.tb_next.tb_frame
        held = found() is not None, frame.f_locals['thing'] is found()
        frame.clear()
        return found, held, found() is None
def keeps(found):
    thing = Thing()
    found.append(weakref.ref(thing))
    try:
        fails(1)
    except ValueError as error:
        kept = error
    return kept
def main():
    found, *rest = catches()
    refs = []
    error = keeps(refs)
    gc.collect()
    alive = refs[0]() is not None
    error.__traceback__.tb_frame.clear()
    gc.collect()
    return rest, found() is None, alive, refs[0]() is None
## suggestions_know_the_locals
import io, traceback, sys
def f():
    blech = 1
    print(bluch)
def main():
    try:
        f()
    except NameError as error:
        shown = traceback.TracebackException.from_exception(error, capture_locals=True)
        return list(shown.format())[-1], [s.locals for s in shown.stack][1]
## code_dies_with_its_function
import weakref
def when_dead(code, name, log):
    return weakref.ref(code, lambda reference: log.append(name))
def main():
    log, kept = [], []
    f = eval('lambda: 42')
    kept.append(when_dead(f.__code__, 'a lambda', log))
    del f
    log.append(1)
    space = {}
    exec('def g(): pass', space)
    kept.append(when_dead(space['g'].__code__, 'a function', log))
    del space['g']
    log.append(2)
    log.append(3)
    f = eval('lambda x: -x')
    found = sorted([1, 2], key=f), [f(3), eval('f(4)')]
    kept.append(when_dead(f.__code__, 'a function that was called', log))
    code = f.__code__
    del f
    log.append(4)
    again = type(main)(code, {})
    del code
    log += [again(5), *map(again, [6])]
    del again
    log.append(5)
    return log, found
## code_that_is_run_again
def main():
    code = compile('y = x + 1\\ndef f(): return y\\nf', 'here', 'exec')
    space, found = {'x': 1}, []
    for x in range(3):
        space['x'] = x
        exec(code, space)
        found += [space['f'](), space['y'], space['f'].__code__ is found[2] if x else None]
        found[2] = space['f'].__code__
    found[2] = None
    return found, eval(eval("compile('7', '', 'eval')")), exec(compile('f()', '', 'exec'), space)
## a_traceback_knows_the_code
import dis, io, traceback
def divides():
    return 1 / 0
def main():
    found = []
    for run in (divides, lambda: exec('x = 1\\ny = 1 / 0', {})):
        try:
            run()
        except ZeroDivisionError as error:
            kept = error
        entry = kept.__traceback__.tb_next
        while entry.tb_next is not None:
            entry = entry.tb_next
        code = entry.tb_frame.f_code
        text = io.StringIO()
        dis.distb(entry, file=text)
        found += [code is run.__code__, code.co_consts, list(code.co_positions())]
        found += [getattr(entry.tb_frame, 'f_code') is code, len(dis.Bytecode(code).dis())]
        found += ['-->' in text.getvalue(), entry.tb_lasti]
    return found
## traceback_of_a_frame_object
import sys, traceback, types
def f(x):
    return sys._getframe()
def main():
    frame = f(3)
    line = f.__code__.co_firstlineno
    made = types.TracebackType(None, frame, frame.f_lasti, line)
    shown = traceback.extract_tb(made)
    try:
        types.TracebackType(None, frame, 1, 2, 3)
    except TypeError as error:
        return made.tb_frame.f_locals['x'], made.tb_lineno - line, shown[0].name, str(error)
""")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    kept = dict(vars(builtins))
    try:
        machine = check(PROGRAMS[name])
    finally:
        vars(builtins).update(kept)
    assert machine.instructions > 10
