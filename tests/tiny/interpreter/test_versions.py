"""What only some of the Pythons have, or have otherwise: CPython of each version is the judge."""

from __future__ import annotations

import itertools
import sys

import pytest

from refcompiler.interpreter.helpers import GIVES_BACK, exact_total
from tests.tiny.interpreter.oracle import check, programs

#: Programs that every Python can read, which the versions answer differently.
EVERYWHERE = programs("""
## namespaces_by_name
def main():
    out = []
    for run in (lambda: eval('1 + a', globals={'a': 2}),
                lambda: eval('a', {'a': 1}, locals={'a': 5}),
                lambda: exec('x = 1', globals={}, locals={}), lambda: exec('1', closure=None),
                lambda: eval('1', {}, globals={}), lambda: eval('1', bad=3),
                lambda: exec('y', {}, {}, locals={}), lambda: exec('z = 3', {}, locals=None)):
        try:
            out.append(run())
        except Exception as error:
            out.append((type(error), str(error)))
    return out
## builtins_of_any_mapping
import types
def main():
    space = {'__builtins__': types.MappingProxyType({'min': min})}
    try:
        return eval('min(1, 2)', space), eval('max(1, 2)', space)
    except NameError as error:
        return str(error)
## locals_written_to
import sys
def main(a=1):
    def inner():
        return b
    b = 2
    names = sys._getframe().f_locals
    names['a'], names['b'], names['new'] = 5, 6, 7
    return a, b, inner(), sorted(locals()), sorted(names), names['new'], 'new' in names, len(names)
## locals_and_identity
def main():
    x = 1
    first = locals()
    y = 2
    return first is locals(), sorted(first)
## comprehension_scopes
import sys
x = 'outer'
class C:
    x = 'class'
    names = [sorted(set(locals()) & {'x', 'q'}) for q in (1,)]
    values = [x for x in 'ab']
    nested = [[(y, z) for y in z] for z in ('ab', 'c')]
    after = x
    shown = ['q' in sys._getframe().f_locals for q in (1,)]
top = [sorted(set(locals()) & {'x', 'q'}) for q in (1,)]
def main():
    x = 1
    inner = [lambda: (x, i) for i in range(3)]
    try:
        bad = [1 / x for x in (1, 0)]
    except ZeroDivisionError:
        pass
    del x
    made = {x: [x for x in range(x)] for x in range(3)}
    try:
        x
    except UnboundLocalError as error:
        return C.values, C.nested, C.names, C.after, C.shown, top, made, str(error)
## stop_iteration_thrown_before_the_start
def g():
    yield 1
def main():
    it = g()
    try:
        it.throw(StopIteration(3))
    except BaseException as error:
        return error
## boolean_chains
class Counted:
    asked = 0
    def __init__(self, truth): self.truth = truth
    def __bool__(self):
        Counted.asked += 1
        if self.truth is None: raise KeyError('truth')
        return self.truth
    def __lt__(self, other): return Counted(self.truth)
def main():
    yes, no, bad = Counted(True), Counted(False), Counted(None)
    out = [not not yes, not (yes and no), (yes and no) or yes, not (no or not yes)]
    out += [1 if yes < no else 2]
    out += [[1 for y in (yes, no) if (y and yes) or no], Counted.asked]
    for run in (lambda: [y for y in (yes, bad) if y], lambda: not bad, lambda: not not bad,
                lambda: [1 for y in (yes,) if bad < y]):
        try:
            run()
        except KeyError as error:
            out.append(error)
    return out
""")

SINCE_312 = programs("""
## type_parameters
def first[T: int, *Ts, **P](x: T, *rest) -> T:
    return x
class Box[T](list[T]):
    size: int
    def put[U](self, item: U, default=T) -> T:
        return item, default, __class__
type Pair[A, B] = tuple[A, B]
type Later = undefined_yet
def main():
    params = first.__type_params__
    out = [first(3), [str(p) for p in params], params[0].__bound__, Box.__type_params__]
    out += [Box[int], Box.__orig_bases__, Box().put(4)[:1], Box.put.__annotations__]
    out += [Pair, Pair.__value__, Pair[int, str], Pair.__type_params__, Pair.__module__]
    try:
        Later.__value__
    except NameError as error:
        out.append(str(error))
    return [str(o) for o in out]
## type_parameters_in_a_class
T = 'global'
class Outer:
    T = 'class'
    def plain(self, x: T): pass
    def method[T](self, x: T): pass
    class Inner[T]:
        y: T
        def deep[U: T](self): return T
def main():
    bound = Outer.Inner.deep.__type_params__[0].__bound__
    return (Outer.plain.__annotations__, str(Outer.method.__annotations__),
            str(Outer.Inner.__annotations__), bound is Outer.Inner.__type_params__[0])
## quotes_inside
def main():
    names = {'a': 1}
    return f'{names['a']} {f'{f'{1 + 1}'}'!r:>6}'
""")

SINCE_313 = programs("""
## defaults_of_type_parameters
class Box[T = int, *Ts = *tuple[int, str], **P = [int]]:
    pass
def main():
    return [str(p.__default__) for p in Box.__type_params__], Box.__static_attributes__
## attributes_of_a_class
class C:
    '''A docstring
       with an indent.
    '''
    def __init__(self):
        self.x = self.y = 1
def main():
    return C.__doc__, sorted(C.__static_attributes__), C.__firstlineno__
""")

PROGRAMS = {**EVERYWHERE}
for _version, _programs in (((3, 12), SINCE_312), ((3, 13), SINCE_313)):
    if sys.version_info >= _version:
        PROGRAMS |= _programs


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    check(PROGRAMS[name])


@pytest.mark.skipif(not GIVES_BACK, reason="sum adds up as its items come")
def test_a_total_gives_back_what_rounding_took() -> None:
    items = 0.1, -0.0, 1e16, -1e16, 1e308, float("inf"), float("nan"), 1e-320, 3, True, 2**70
    for chosen in itertools.product(items, repeat=3):
        for start in (0, 0.0, -0.0, 0.7):
            assert repr(exact_total(chosen, start)) == repr(sum(chosen, start))
