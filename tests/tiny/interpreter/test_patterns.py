"""The patterns of match statements, against CPython."""

from __future__ import annotations

import pytest

from tests.tiny.interpreter.oracle import check, programs

PROGRAMS = programs("""
## match_literals
def f(x):
    match x:
        case 0: return 'zero'
        case -1 | 1.5: return 'number'
        case 'a' | b'b': return 'text'
        case None | True | False: return 'singleton'
        case 2j: return 'complex'
        case _: return 'other'
def main():
    return [f(x) for x in (0, 0.0, -1, 1.5, 'a', b'b', None, True, False, 2j, 'zz', [], 1)]
## match_sequences
def f(x):
    match x:
        case []: return 'empty'
        case [1, 2]: return 'one two'
        case [x]: return 'single', x
        case [1, *rest]: return 'one', rest
        case (*init, 9): return 'nine', init
        case [a, [b, *c], *_]: return a, b, c
        case [_, _, *_]: return 'two at least'
        case _: return 'other'
def main():
    import collections
    return [f(x) for x in ([], (), [1, 2], [5], [1, 3, 4], [3, 4, 9], [3, [4, 5, 6], 7], [3, 4,
            5], 'ab', b'ab',
                           bytearray(b'a'), {1, 2}, range(2), collections.deque([1, 2]),
                           iter([1]), memoryview(b'xy'))]
## match_mappings
def f(x):
    match x:
        case {'kind': 'a', 'value': v}: return 'a', v
        case {'kind': k, **rest}: return k, rest
        case {1: [x, y], 'z': {'w': w}}: return x, y, w
        case {}: return 'mapping'
    return 'none'
def main():
    import collections, types
    dd = collections.defaultdict(list)
    return [f(x) for x in ({'kind': 'a', 'value': 1}, {'kind': 'b', 'q': 2}, {1: [2, 3],
            'z': {'w': 4}}, {}, {3: 4}, [],
                           types.MappingProxyType({'kind': 1}), dd)], dict(dd)
## match_classes
import dataclasses
@dataclasses.dataclass
class Point:
    x: int
    y: int
class Odd:
    __match_args__ = ('a',)
class Plain: pass
def f(v):
    match v:
        case Point(0, 0): return 'origin'
        case Point(x, y=0): return 'x axis', x
        case Point(x=0, y=y): return 'y axis', y
        case Point(): return 'point'
        case Odd(a): return 'odd', a
        case bool(b): return 'bool', b
        case int(n) if n > 10: return 'big', n
        case int() | float(): return 'number'
        case str(s): return 'str', s
        case list([a, *_]) as whole: return 'list', a, whole
        case dict(d): return 'dict', d
        case tuple((a, b)): return 'pair', a, b
        case Plain(attr=1): return 'attr'
        case Plain(): return 'plain'
def main():
    o, p, q = Odd(), Plain(), Plain()
    o.a = 5
    p.attr = 1
    return [f(v) for v in (Point(0, 0), Point(1, 0), Point(0, 2), Point(3, 4), o, Odd(), True,
            11, 3, 2.5, 's', [1, 2], [],
                           {'a': 1}, (1, 2), (1,), p, q, None)]
## match_class_errors
class P:
    __match_args__ = ('x', 'x')
    x = 1
class L:
    __match_args__ = ['x']
class I:
    __match_args__ = (1,)
class N: pass
def main():
    log = []
    def a():
        match P():
            case P(1, 1): pass
    def b():
        match P():
            case P(1, x=1): pass
    def c():
        match L():
            case L(1): pass
    def d():
        match I():
            case I(1): pass
    def e():
        match N():
            case N(1): pass
    def f():
        match 3:
            case int(1, 2): pass
    def g():
        notype = 3
        match 3:
            case notype(): pass
    def h():
        match P():
            case P(1, 2, 3): pass
    for t in (a, b, c, d, e, f, g, h):
        try:
            t()
        except Exception as error:
            log.append(error)
    return log
## match_values_and_guards
class Color:
    RED, BLUE = 1, 2
def f(x, limit):
    match x:
        case Color.RED: return 'red'
        case Color.BLUE: return 'blue'
        case int(n) if n < limit: return 'small'
        case (1 | 2) as k, [(3 | 4) as l, _]: return k, l
        case {'a': [_, {'b': b}]} if b: return b
        case x if x: return 'truthy'
        case _: return 'falsy'
def main():
    return [f(x, 10) for x in (1, 2, 5, 50, (1, [3, 0]), (2, [5, 0]), {'a': [0, {'b': 6}]},
            {'a': [0, {'b': 0}]}, 0, '')]
## match_by_the_first_base
import collections.abc as abc, collections
class A(abc.Sequence, abc.Mapping):
    def __getitem__(self, i): return 5
    def __len__(self): return 1
    def __iter__(self): return iter([5])
class B(collections.UserDict, abc.Sequence): pass
class C(abc.Mapping, list): pass
class D: pass
abc.Sequence.register(D)
def f(x):
    match x:
        case [*_]: return 'sequence'
        case {}: return 'mapping'
    return 'neither'
def main():
    return [f(x) for x in (A(), B(), '', b'', bytearray(), range(2), {}.keys(),
            collections.OrderedDict(), set())]
## match_duplicate_keys
class K:
    a = 'same'
    b = 'same'
def main():
    match {'same': 1}:
        case {K.a: 1, K.b: 1}: pass
""")


@pytest.mark.parametrize("name", PROGRAMS)
def test_patterns(name: str) -> None:
    check(PROGRAMS[name])
