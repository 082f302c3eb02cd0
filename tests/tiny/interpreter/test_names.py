"""Names and where they live: scopes, cells, namespaces, imports, exec and eval, against CPython."""

from __future__ import annotations

import pytest

from tests.tiny.interpreter.oracle import check, programs

PROGRAMS = programs("""
## closures
def counter():
    n = 0
    def step(by=1):
        nonlocal n
        n += by
        return n
    def peek():
        return n
    return step, peek
def main():
    a, peek_a = counter()
    b, peek_b = counter()
    a(); a(5); b()
    return peek_a(), peek_b(), a.__closure__ is not None, a.__code__.co_freevars
## late_binding
def main():
    return ([f() for f in [lambda: i for i in range(3)]],
            [f() for f in [lambda i=i: i for i in range(3)]])
## argument_that_is_a_cell
def main():
    def f(a, b, *c, d=4, **e):
        def g():
            return a, b, c, d, e
        a += 1
        return g
    return f(1, 2, 3, x=5)()
## globals_and_builtins
x = 1
def main():
    global x, y
    x += 1
    y = x * 2
    del x
    len = 3
    return y, len, 'x' in globals(), sorted(k for k in globals() if len and k[0] != '_')
## locals_of_a_function
def main(a=1, *b, c=2):
    d = 3
    def inner():
        return d
    if a > 5:
        e = 1
    found = locals()
    found['extra'] = 9
    again = locals()
    return sorted(again), again is found, vars() is found, dir()
## locals_in_class_and_comprehension
def main():
    y = 2
    class C:
        x = 1
        seen = sorted(locals())
    return [sorted(locals()) for z in range(1)], C.seen
## annotations
def main():
    x: int = 1
    y: undefined_and_not_evaluated
    def f(a: int, *b: str, c: float = 1.0, **d: list) -> dict:
        pass
    class C:
        a: int
        b: str = 'x'
    return f.__annotations__, C.__annotations__, C.b
## future_annotations
from __future__ import annotations
def f(a: nowhere) -> also.nowhere:
    x: 1 / 0 = 1
    return eval('lambda b: b'), exec('def g(z: nope): pass')
def main():
    return f.__annotations__, f(1)[0](3), compile('def h(q: nope): pass', '', 'exec')
## module_annotations
a: int = 3
b: str
def main():
    return __annotations__
## docstrings
def f():
    'doc of f'
class C:
    'doc of C'
def main():
    return f.__doc__, C.__doc__, (lambda: 1).__doc__, C.__module__
## deletion
def main():
    a, b, d, xs = 1, 2, {'k': 1, 'l': 2}, [1, 2, 3]
    class O: pass
    o = O()
    o.x = 1
    del a, d['k'], xs[0], o.x, (b)
    return d, xs, hasattr(o, 'x'), sorted(locals())
## deletion_errors
def main():
    log = []
    class O: pass
    def attribute(): del O().x
    def item(): del {}['k']
    def element(): del [][0]
    def string(): del 'abc'[0]
    for f in (attribute, item, element, string):
        try:
            f()
        except Exception as e:
            log.append(e)
    return log
## annotations_in_a_mapping_of_ones_own
class Space:
    def __init__(self): self.d = {}
    def __getitem__(self, k):
        print('get', k)
        return self.d[k]
    def __setitem__(self, k, v):
        print('set', k, v)
        self.d[k] = v
def main():
    s = Space()
    exec('x: int = 1; y = x', {}, s)
    return s.d['y']
## imports
import os.path as path, sys
from collections import OrderedDict as OD, deque
from json.decoder import JSONDecoder
from os import *
def main():
    import xml.dom.minidom
    import collections.abc as abc
    from math import pi, sqrt as root
    return (path.join('a', 'b'), OD.__name__, deque.__name__, JSONDecoder.__name__,
            xml.dom.__name__, abc.__name__, pi, root(4), sep)
## import_errors
def main():
    log = []
    def a(): import no_such_module_anywhere
    def b(): from math import no_such_name
    def c(): from collections import no_such_name
    def d(): from . import relative
    def e(): import math.nothing
    for f in (a, b, c, d, e):
        try:
            f()
        except Exception as error:
            log.append((type(error), str(error), getattr(error, 'name', None), getattr(error,
            'path', None)))
    return log
## exec_and_eval
def main(y=5):
    space = {}
    exec('def f(x): return x + 1\\nz = f(2)', space)
    exec('y = 7; w = y')
    log = [space['z'], space['f'](3), y, locals()['w'], eval('y + 1'), eval('  y * q', {'q': 2},
            {'y': 3})]
    log.append(eval(compile('[y for y in range(3)]', 'f', 'eval')))
    class C:
        exec('attribute = 1')
        seen = attribute
    log.append(C.seen)
    for bad in ('1 +', 'nowhere', '1 / 0'):
        try:
            eval(bad)
        except Exception as e:
            log.append((type(e), str(e)))
    return log
## exec_with_bad_arguments
def main():
    log = []
    for f in (lambda: exec(3), lambda: exec('1', 3), lambda: exec('1', {}, 3), lambda: eval(),
            lambda: exec('x', {}, {}, {})):
        try:
            f()
        except Exception as e:
            log.append((type(e), str(e)))
    return log
## exec_at_module_level
exec('made = 1')
exec('class K:\\n  z = made')
seen = K.z
def main():
    return made, seen, sorted(n for n in globals() if n[0] != '_')
## import_star_in_class_is_an_error
def main():
    try:
        compile('def f():\\n from os import *', 'f', 'exec')
    except SyntaxError as e:
        return e.msg
## global_shadowing_builtin
def main():
    global len
    len = lambda x: 'mine'
    a = len([])
    del len
    return a, len([])
## nested_functions_three_deep
def main():
    a = 1
    def f():
        b = a + 1
        def g():
            c = a + b
            def h():
                nonlocal b
                b += c
                return a, b, c
            return h
        return g
    h = f()()
    return h(), h()
## cell_survives_del_and_rebind
def main():
    x = [1]
    def get(): return x
    first = get()
    del x
    x = [2]
    return first, get(), get.__closure__[0].cell_contents
""")


@pytest.mark.parametrize("name", PROGRAMS)
def test_names(name: str) -> None:
    check(PROGRAMS[name])
