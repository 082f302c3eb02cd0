"""Calls: binding, the order of evaluation, recursion, and what C code calls, against CPython."""

from __future__ import annotations

import pytest

from tests.tiny.interpreter.oracle import check, programs

PROGRAMS = programs("""
## lambdas_and_defaults
def main():
    f = lambda x, *, y=2, **k: (x, y, k)
    def g(a, b=[]):
        b.append(a)
        return b
    g(1)
    return f(1), f(1, y=3, z=4), g(2), g.__defaults__, f.__kwdefaults__
## calling_nonsense
def main():
    return (3)(4)
## calling_none
def main():
    x = None
    x.foo(1)
## binding
def f(a, b=2, /, c=3, *args, d, e=5, **kw):
    return a, b, c, args, d, e, kw
def g(a, /, b):
    return a, b
def h(*, k):
    return k
def n():
    pass
def k(a, **kw):
    return a, kw
def v(*args):
    return args
class M:
    def m(self, x): return x
def main():
    log = [f(1, d=4), f(1, 2, 3, 4, 5, d=6, z=7), f(1, d=2, a=3, b=4), k(1, self=2), v(),
            v(*[1], *(2, 3))]
    for call in (lambda: f(), lambda: f(1), lambda: f(1, c=2), lambda: g(1), lambda: g(1, 2, 3),
            lambda: g(a=1, b=2),
                 lambda: g(1, b=2, c=3), lambda: g(1, 2, b=3), lambda: h(), lambda: h(1),
                 lambda: h(k=1, l=2),
                 lambda: n(1), lambda: n(1, 2), lambda: n(x=1), lambda: k(), lambda: k(1, a=2),
                 lambda: v(x=1),
                 lambda: f(d=1), lambda: M().m(), lambda: M().m(1, 2), lambda: M.m(),
                 lambda: M().m(y=1),
                 lambda: g(**{'b': 1}), lambda: g(*[1, 2, 3]), lambda: k(**{1: 2}), lambda: k(1,
                 **{'b': 1}, **{'b': 2}),
                 lambda: k(1, b=1, **{'b': 2}), lambda: k(*3), lambda: k(**3), lambda: len(*3),
                 lambda: len(**[1]),
                 lambda: M(1), lambda: n(*None), lambda: M().m(*1), lambda: print(**{'a': 1},
                 **{'a': 1}),
                 lambda: k(1, **{'b': 1}, **{3: 1}), lambda: [].append(1, 2), lambda: len(),
                 lambda: int(x=1)):
        try:
            log.append(call())
        except Exception as e:
            log.append((type(e), str(e)))
    return log
## defaults_are_looked_up_at_the_call
def f(a, b=1, *, c=2):
    return a, b, c
def main():
    log = [f(0)]
    f.__defaults__ = (7, 8)
    f.__kwdefaults__ = {'c': 9}
    log.append(f())
    f.__defaults__ = None
    f.__kwdefaults__ = None
    try:
        f(1)
    except TypeError as e:
        log.append(str(e))
    f.__code__ = (lambda *a: a).__code__
    log.append(f(4, 5))
    return log
## star_call_mappings
class Keys:
    def keys(self): return ['a', 'b']
    def __getitem__(self, k): return k * 2
def f(**kw): return kw
def main():
    return f(**Keys()), {**Keys()}, f(x=1, **Keys()), dict(**Keys(), c=1)
## evaluation_order
def say(x):
    print(x)
    return x
def f(*a, **k): return a, k
def main():
    d = {}
    d[say('key')] = say('value')
    {say(1): say(2), say(3): say(4)}
    f(say('a'), *[say('b')], k=say('c'), **{'l': say('d')})
    x = [0, 0]
    x[say(0)] += say(5)
    say(1) + say(2) * say(3)
    return d, x
## recursion_limit_is_changed
import sys
def down(n):
    return down(n + 1)
def main():
    before = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(400)
        down(0)
    except RecursionError:
        return 'deep'
    finally:
        sys.setrecursionlimit(before)
## getframe
import sys, inspect, collections, enum, typing, dataclasses
def where():
    f = sys._getframe(1)
    return f.f_code.co_name, f.f_lineno, sorted(f.f_locals), f.f_globals['__name__']
class E(enum.Enum):
    A = 1
    B = enum.auto()
T = collections.namedtuple('T', 'a b', defaults=[5])
class N(typing.NamedTuple):
    x: int
    y: str = 'q'
@dataclasses.dataclass(order=True)
class D:
    a: int
    b: list = dataclasses.field(default_factory=list)
    def __post_init__(self): self.c = self.a * 2
def main():
    local = 1
    me = inspect.currentframe()
    return (where(), me.f_code.co_name, me.f_back is not None, E.B, E['A'].value, T(1),
            T.__module__, N(1), N.__module__, D(1) < D(2), D(3), D(4).c)
## deep_getframe
import sys
def main():
    sys._getframe(100000)
## warnings_point_at_the_user
import warnings
def old():
    warnings.warn('old', DeprecationWarning, stacklevel=2)
def main():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        old()
        warnings.warn('here')
        warnings.warn(RuntimeWarning('instance'))
        try:
            warnings.warn('bad', int)
        except TypeError as e:
            print(e)
    return [(str(w.message), w.category, w.lineno, w.filename) for w in caught]
## recursion
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
def hanoi(n, a, b, c):
    return [] if n == 0 else hanoi(n - 1, a, c, b) + [(a, c)] + hanoi(n - 1, b, a, c)
def even(n): return True if n == 0 else odd(n - 1)
def odd(n): return False if n == 0 else even(n - 1)
def main():
    return fib(12), hanoi(3, 'a', 'b', 'c'), even(20)
## callbacks_from_native_code
def main():
    def key(x):
        return -x
    def fail(x):
        raise ValueError(x)
    log = [sorted([1, 3, 2], key=key), list(map(lambda x, y: x + y, [1], [2])),
            list(filter(lambda x: x > 1, [1, 2]))]
    try:
        list(map(fail, [7]))
    except ValueError as e:
        log.append(e)
    return log
## functools_tools
import functools
@functools.lru_cache(maxsize=None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
@functools.wraps(fib)
def wrapped(*a): return fib(*a)
class C:
    @functools.cached_property
    def p(self):
        print('computed')
        return 3
@functools.singledispatch
def kind(x): return 'object'
@kind.register
def _(x: int): return 'int'
def main():
    c = C()
    return (fib(30), wrapped.__name__, c.p + c.p, functools.reduce(lambda a, b: a * b, range(1,
            6)), kind(1), kind(''))
## printing
def main():
    print('a', 1, [2], sep='-', end='!\\n')
    print()
    return None
## conditional_expressions_in_calls
def f(*a, **k): return a, k
def main():
    return f(*(1, 2) if True else (), **({'a': 1} if False else {}),
            x=[i for i in range(2) if i or not i])
## sorted_with_cmp_and_bisect
import functools, bisect, heapq
def main():
    xs = sorted('bca', key=functools.cmp_to_key(lambda a, b: (a > b) - (a < b)))
    h = [3, 1, 2]
    heapq.heapify(h)
    return xs, bisect.bisect([1, 3, 5], 4), heapq.heappop(h)
""")


@pytest.mark.parametrize("name", PROGRAMS)
def test_calls(name: str) -> None:
    check(PROGRAMS[name])
