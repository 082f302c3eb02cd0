"""Generators and what drives them, against CPython."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from refcompiler.interpreter import driven
from refcompiler.interpreter.api import interpret
from tests.tiny.interpreter.oracle import check, programs

PROGRAMS = programs("""
## loop
def count(n):
    i = 0
    while i < n:
        yield i
        i += 1
    return 'done'
def main():
    return list(count(4)), [x for x in count(2)], sum(count(5)), dict(enumerate(count(2)))
## send_and_return
def echo():
    log = []
    while True:
        got = yield len(log)
        if got is None:
            return log
        log.append(got)
def main():
    g = echo()
    out = [next(g), g.send('a'), g.send('b')]
    try:
        g.send(None)
    except StopIteration as stop:
        return out, stop.value
## stop_iteration_at_the_end
def one():
    yield 1
def main():
    g = one()
    next(g)
    next(g)
## exhausted_twice
def one():
    yield 1
    return 5
def main():
    g = one()
    log = [next(g, 'end'), next(g, 'end'), next(g, 'end')]
    try:
        g.send(3)
    except StopIteration as e:
        log.append(e.value)
    return log
## send_to_fresh
def one():
    x = yield 1
def main():
    one().send(3)
## throw_caught
def g():
    while True:
        try:
            x = yield 'ready'
        except ValueError as e:
            yield 'caught ' + str(e)
        else:
            yield x
def main():
    it = g()
    return [next(it), it.throw(ValueError('a')), next(it), it.send(3), next(it),
            it.throw(ValueError, 'b'), next(it), it.throw(ValueError)]
## throw_uncaught
def g():
    yield 1
    yield 2
def main():
    it = g()
    next(it)
    it.throw(KeyError('x'))
## throw_into_fresh
def g():
    yield 1
def main():
    it = g()
    try:
        it.throw(KeyError('x'))
    except KeyError as e:
        return e, list(it)
## throw_into_exhausted
def g():
    yield 1
def main():
    it = g()
    list(it)
    it.throw(KeyError('x'))
## throw_nonsense
def g():
    yield 1
def main():
    g().throw(3)
## throw_instance_with_value
def g():
    yield 1
def main():
    g().throw(ValueError(1), 2)
## throw_bad_traceback
def g():
    yield 1
def main():
    g().throw(ValueError(1), None, 2)
## throw_converts
def g():
    try:
        yield 1
    except ValueError:
        raise KeyError('from inside')
def main():
    it = g()
    next(it)
    it.throw(ValueError(1))
## close_runs_finally
def g(log):
    try:
        yield 1
    finally:
        log.append('closed')
def main():
    log = []
    it = g(log)
    next(it)
    it.close()
    it.close()
    return log, list(it)
## close_fresh
def g(log):
    log.append('ran')
    yield 1
def main():
    log = []
    it = g(log)
    it.close()
    return log, list(it)
## close_ignored
def g():
    while True:
        try:
            yield 1
            return
        except GeneratorExit:
            pass
def main():
    it = g()
    next(it)
    try:
        it.close()
    except RuntimeError as e:
        next(it, None)
        return str(e)
## close_returns
def g():
    try:
        yield 1
    except GeneratorExit:
        return 2
def main():
    it = g()
    next(it)
    return it.close()
## close_raises
def g():
    try:
        yield 1
    finally:
        1 / 0
def main():
    it = g()
    next(it)
    it.close()
## dropped_generator_closes
def g(log):
    try:
        yield 1
    finally:
        log.append('finally')
def main():
    log = []
    it = g(log)
    next(it)
    del it
    log.append('after')
    return log
## break_closes
def g(log):
    try:
        yield 1
        yield 2
    finally:
        log.append('finally')
def main():
    log = []
    for x in g(log):
        log.append(x)
        break
    log.append('after')
    return log
## yield_from_generator
def inner():
    got = yield 1
    yield got
    return 'value'
def outer():
    result = yield from inner()
    yield result
    result = yield from [7, 8]
    yield result
def main():
    g = outer()
    return [next(g), g.send('sent'), next(g), next(g), next(g), next(g)]
## yield_from_native_value
class It:
    def __init__(self):
        self.n = 0
    def __iter__(self):
        return self
    def __next__(self):
        self.n += 1
        if self.n == 3:
            raise StopIteration('native')
        return self.n
def outer():
    return (yield from It()), (yield from ())
def main():
    g = outer()
    log = [next(g), next(g)]
    try:
        next(g)
    except StopIteration as e:
        log.append(e.value)
    return log
## yield_from_send_to_plain_iterator
def outer():
    yield from iter([1, 2])
def main():
    g = outer()
    next(g)
    g.send(3)
## yield_from_throw
def inner(log):
    try:
        yield 1
    except ValueError as e:
        log.append(e.args)
        yield 'handled'
    return 'result'
def outer(log):
    log.append((yield from inner(log)))
    yield 'end'
def main():
    log = []
    g = outer(log)
    return [next(g), g.throw(ValueError('v')), next(g)], log
## yield_from_throw_without_throw
def outer():
    try:
        yield from [1, 2]
    except KeyError as e:
        yield e.args
def main():
    g = outer()
    return next(g), g.throw(KeyError('k')), next(g, 'end')
## yield_from_throw_finishes
def inner():
    try:
        yield 1
    except ValueError:
        return 'from inner'
def outer():
    x = yield from inner()
    yield x
def main():
    g = outer()
    return next(g), g.throw(ValueError), next(g, 'end')
## yield_from_uncaught
def inner():
    yield 1
    1 / 0
def outer():
    yield from inner()
def main():
    return list(outer())
## yield_from_close
def inner(log):
    try:
        yield 1
    finally:
        log.append('inner')
def outer(log):
    try:
        yield from inner(log)
    finally:
        log.append('outer')
def main():
    log = []
    g = outer(log)
    next(g)
    g.close()
    return log
## yield_from_nonsense
def outer():
    yield from 3
def main():
    return list(outer())
## recursion_through_yield_from
def walk(tree):
    if isinstance(tree, list):
        for part in tree:
            yield from walk(part)
    else:
        yield tree
def main():
    return list(walk([1, [2, [3, [4, []]], 5], [[6]]]))
## stop_iteration_inside
def g():
    yield 1
    raise StopIteration('oops')
def main():
    return list(g())
## next_inside
def g():
    yield next(iter([]))
def main():
    return list(g())
## already_running
def main():
    def g():
        yield next(it)
    it = g()
    return next(it)
## already_running_send_and_close
def main():
    log = []
    def g():
        for action in (lambda: it.send(None), lambda: it.close(), lambda: it.throw(KeyError)):
            try:
                action()
            except ValueError as e:
                log.append(str(e))
        yield 1
    it = g()
    next(it)
    return log
## exception_state_is_its_own
import sys
def g():
    try:
        raise KeyError('g')
    except KeyError:
        yield repr(sys.exc_info()[1])
        yield repr(sys.exc_info()[1])
    yield repr(sys.exc_info()[1])
def main():
    it = g()
    log = [next(it), repr(sys.exc_info()[1])]
    try:
        raise ValueError('main')
    except ValueError:
        log.append(next(it))
        log.append(repr(sys.exc_info()[1]))
        log.append(next(it))
    log.append(repr(sys.exc_info()[1]))
    return log
## exception_state_of_the_caller_is_seen
import sys
def g():
    yield repr(sys.exc_info()[1])
    yield repr(sys.exc_info()[1])
    try:
        1 / 0
    except ZeroDivisionError as e:
        yield e
    raise
def main():
    it = g()
    log = []
    try:
        raise ValueError('main')
    except ValueError:
        log.append(next(it))
    log.append(next(it))
    try:
        raise KeyError('again')
    except KeyError:
        log.append(next(it))
    try:
        next(it)
    except RuntimeError as e:
        log.append(e)
    return log
## context_in_throw
def g():
    try:
        raise KeyError('own')
    except KeyError:
        yield 1
def main():
    it = g()
    next(it)
    try:
        raise OSError('caller')
    except OSError:
        it.throw(ValueError('thrown'))
## context_in_throw_without_own
def g():
    yield 1
def main():
    it = g()
    next(it)
    try:
        raise OSError('caller')
    except OSError:
        it.throw(ValueError('thrown'))
## with_inside
class C:
    def __init__(self, log):
        self.log = log
    def __enter__(self):
        self.log.append('in')
    def __exit__(self, *a):
        self.log.append(('out', a[0]))
def g(log):
    with C(log):
        yield 1
        yield 2
def main():
    log = []
    list(g(log))
    it = g(log)
    next(it)
    it.close()
    it = g(log)
    next(it)
    try:
        it.throw(KeyError)
    except KeyError:
        log.append('key')
    return log
## generator_expressions
def main():
    xs = [1, 2, 3]
    g = (x * y for x in xs for y in range(x) if y % 2 == 0)
    return list(g), sum(x for x in xs), max((x, -x) for x in xs), any(x > 2 for x in xs)
""")


@pytest.mark.parametrize("name", PROGRAMS)
def test_generators(name: str) -> None:
    check(PROGRAMS[name])


def test_what_a_generator_handles_comes_before_what_its_native_consumer_handles() -> None:
    def failing() -> Iterator[BaseException]:
        try:
            raise KeyError("inner")
        except KeyError as error:
            yield error
            for fails in (None, [].pop, lambda: int("e")):
                try:
                    if fails is None:
                        raise TypeError("second")
                    fails()
                except Exception as second:
                    yield second

    def contexts(generator: Iterator[BaseException]) -> list[list[str]]:
        next(generator)
        try:
            raise ValueError("outer")
        except ValueError:
            return [linked(error) for error in generator]

    def linked(error: BaseException | None) -> list[str]:
        return [] if error is None else [repr(error), *linked(error.__context__)]

    found = contexts(interpret(failing))
    assert len(found) == 3 and all("KeyError" in links[1] for links in found)
    assert found == contexts(failing())


def test_what_runs_is_not_asked_for_its_delegate(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython up to 3.12 may read memory that is none, if it is asked."""
    asked: list[object] = []
    for kind, getter in driven._DELEGATE.items():
        monkeypatch.setitem(
            driven._DELEGATE, kind, lambda value, get=getter: asked.append(value) or get(value)
        )

    def generator() -> Iterator[object]:
        yield driven.delegate_of(made)
        yield from [None]

    async def asynchronous() -> AsyncIterator[object]:
        yield driven.delegate_of(later)

    async def coroutine() -> object:
        return driven.delegate_of(last)

    made, later, last = generator(), asynchronous(), coroutine()
    assert next(made) is None
    for step in (later.asend(None), last):
        with pytest.raises((StopIteration, StopAsyncIteration)) as ended:
            step.send(None)
        assert ended.value.value is None
    assert not asked
    next(made)
    assert driven.delegate_of(made) is not None and asked == [made]
