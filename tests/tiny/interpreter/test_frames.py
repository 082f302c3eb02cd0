"""Frames as a program sees them: ``sys._getframe``, ``inspect``, tracebacks, warnings."""

from __future__ import annotations

import pytest

from tests.tiny.interpreter.oracle import check, programs

PROGRAMS = programs("""
## attributes
import sys, types
def f(a, b=2):
    c = a
    frame = sys._getframe()
    return frame
def main():
    frame = f(1)
    found = [frame.f_code is f.__code__, frame.f_lineno, sorted(frame.f_locals), frame.f_lasti]
    found += [frame.f_globals is globals(), frame.f_builtins is f.__builtins__, frame.f_trace]
    found += [isinstance(frame, types.FrameType), frame.f_trace_lines, frame.f_trace_opcodes]
    found += [frame.f_back is sys._getframe(), repr(frame).split(', ')[1:]]
    return found
## one_object_per_frame
import sys
def inner():
    return sys._getframe(), sys._getframe(1), sys._getframe(2)
def middle():
    here = sys._getframe()
    a, b, c = inner()
    return here is b, a.f_back is b, b.f_back is c, here == b, here == a
def main():
    here = sys._getframe()
    return middle(), here is sys._getframe()
## too_deep
import sys
def main():
    try:
        sys._getframe(100000)
    except ValueError as error:
        return str(error)
## lines_move
import sys, inspect
def main():
    frame = inspect.currentframe()
    found = [frame.f_lineno]
    found.append(frame.f_lineno)
    x = 1
    found += [
        frame.f_lineno,
        x,
    ]
    return found, 'x' in frame.f_locals
## stack_of_the_library
import inspect, traceback, io
def leaf():
    names = [entry.function for entry in inspect.stack()[:3]]
    text = io.StringIO()
    traceback.print_stack(limit=2, file=text)
    return names, text.getvalue().count('in '), [s.name for s in traceback.extract_stack()[-2:]]
def branch():
    return leaf()
def main():
    return branch()
## through_generators
import sys
def names(count):
    frame, found = sys._getframe(1), []
    while len(found) < count:
        found.append((frame.f_code.co_name, frame.f_lineno))
        frame = frame.f_back
    return found
def inner():
    yield names(3)
def outer():
    yield from inner()
async def coroutine():
    return names(3)
async def awaits():
    return await coroutine()
def main():
    found = [next(outer()), list(outer())]
    try:
        awaits().send(None)
    except StopIteration as stop:
        found.append(stop.value)
    return found
## through_native_calls
import sys
class Named:
    def __enter__(self):
        return sys._getframe(1).f_code.co_name
    def __exit__(self, *args):
        return False
def main():
    with Named() as name:
        return name
## clearing
import sys
def f():
    x = [1]
    return sys._getframe()
def g():
    y = 1
    yield sys._getframe()
def main():
    found, frame = [], f()
    try:
        sys._getframe().clear()
    except RuntimeError as error:
        found.append(str(error))
    found.append(frame.f_locals)
    frame.clear()
    it = g()
    frame = next(it)
    found.append(sorted(frame.f_locals))
    return found
## clearing_closes_the_generator
import gc, sys
def g(log):
    try:
        try:
            1 / 0
        except ZeroDivisionError as error:
            yield error.__traceback__.tb_frame if log else sys._getframe()
        yield 'went on'
    finally:
        log.append('closed')
async def c(log):
    try:
        await Pause()
    finally:
        log.append('closed')
class Pause:
    def __await__(self):
        yield
def outcome(run, *args):
    try:
        return run(*args)
    except (RuntimeError, StopIteration) as error:
        return str(error)
def main():
    log = []
    for _ in range(2):
        it = g(log)
        log += [outcome(next(it).clear), next(it, 'over')]
    it = c(log)
    it.send(None)
    log += [outcome(it.cr_frame.clear), outcome(it.send, None)]
    it = g(log)
    log += [outcome(it.gi_frame.clear), outcome(lambda: type(next(it)).__name__)]
    it = g(log)
    frame = next(it)
    del it
    gc.collect()
    log.append(outcome(frame.clear))
    return log
## attributes_that_cannot_be_set
import sys
def main():
    frame, found = sys._getframe(), []
    given = {'f_lineno': 'a', 'f_code': 1, 'f_globals': {}, 'f_builtins': {}, 'f_lasti': 2}
    for name, value in {**given, 'f_back': None, 'f_locals': {}, 'other': 1}.items():
        for change in (lambda: setattr(frame, name, value), lambda: delattr(frame, name)):
            try:
                found.append(change())
            except Exception as error:
                found.append((type(error), str(error)))
    try:
        frame.f_lineno = 3
    except ValueError as error:
        found.append(str(error))
    frame.f_trace, frame.f_trace_lines = None, False
    del frame.f_trace
    return found, frame.f_trace, frame.f_trace_lines
## thrown_into_what_did_not_begin
def g(a, b=2):
    yield a
async def c(a, b=2):
    pass
def main():
    found = []
    for it in (g(1), c(1)):
        try:
            it.throw(KeyError('thrown'))
        except KeyError as error:
            frame = error.__traceback__.tb_next.tb_frame
            found.append((frame.f_code.co_name, error.__traceback__.tb_next.tb_lineno))
            found.append(dict(frame.f_locals))
            frame.clear()
    return found
## a_closure_of_a_traceback_is_shared
def main():
    shared, gone = 1, 2
    def fails(own):
        return own, shared, gone, 1 / 0
    try:
        fails(3)
    except ZeroDivisionError as error:
        frame = error.__traceback__.tb_next.tb_frame
    shared = 'changed'
    del gone
    return dict(frame.f_locals)
## frame_of_a_traceback_is_the_frame
import sys, types
def generator(log):
    try:
        1 / 0
    except ZeroDivisionError as error:
        frame = error.__traceback__.tb_frame
        log.append(frame is sys._getframe())
        yield frame
def main():
    log = []
    try:
        1 / 0
    except ZeroDivisionError as error:
        frame = error.__traceback__.tb_frame
        log += [frame is sys._getframe(), frame is getattr(error.__traceback__, 'tb_frame')]
        log.append(types.TracebackType(None, sys._getframe(), 20, 2).tb_frame is frame)
    log += [frame.f_lineno, frame.f_code is sys._getframe().f_code, frame.f_back is not None]
    try:
        frame.clear()
    except RuntimeError as error:
        log.append(str(error))
    made = generator(log)
    log += [next(made) is made.gi_frame, repr(frame).split(', ')[1:]]
    made.close()
    return log
## locals_of_tracebacks
import traceback
def inner(x, *rest):
    text = 'local'
    def use():
        return text
    return x / 0
def outer():
    kept = {'a': 1}
    return inner(5, 6)
class Holder:
    value = 3
def main():
    try:
        outer()
    except ZeroDivisionError as error:
        found, entry = [], error.__traceback__
        while entry is not None:
            here = dict(entry.tb_frame.f_locals)
            here.pop('use', None)
            here.pop('error', None)
            here.pop('found', None)
            found.append((entry.tb_frame.f_code.co_name, sorted(here), here.get('text')))
            entry = entry.tb_next
        summary = traceback.TracebackException.from_exception(error, capture_locals=True)
        names = [sorted(f.locals) for f in summary.stack[1:]]
    return found, names
## locals_of_a_class_body_and_a_module
def main():
    found = []
    for text in ('class C:\\\\n    x = 1\\\\n    1 / 0', 'y = 2\\\\n1 / 0'):
        try:
            exec(text, {'__name__': 'm'})
        except ZeroDivisionError as error:
            entry = error.__traceback__
            while entry.tb_next is not None:
                entry = entry.tb_next
            found.append({k: v for k, v in entry.tb_frame.f_locals.items() if k in ('x', 'y')})
    return found
## size_of_the_locals
import sys
def main():
    a, b = 1, 2
    return sys.getsizeof(sys._getframe().f_locals)
## warnings_at_the_callers_line
import warnings
def old():
    warnings.warn('old', DeprecationWarning, stacklevel=2)
def main():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter('always')
        old()
        old()
    return [(w.lineno, w.filename, str(w.message)) for w in seen]
## namedtuples_know_their_module
import collections, enum, typing
def main():
    Point = collections.namedtuple('Point', 'x y')
    Color = enum.Enum('Color', 'red blue')
    T = typing.TypeVar('T')
    return Point.__module__, Color.__module__, T.__module__
""")


@pytest.mark.parametrize("name", PROGRAMS)
def test_frames(name: str) -> None:
    check(PROGRAMS[name])
