"""The rest of the language: names, calls, classes, patterns, containers, against CPython."""

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
## lambdas_and_defaults
def main():
    f = lambda x, *, y=2, **k: (x, y, k)
    def g(a, b=[]):
        b.append(a)
        return b
    g(1)
    return f(1), f(1, y=3, z=4), g(2), g.__defaults__, f.__kwdefaults__
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
## decorators
def twice(f):
    def inner(*args, **kwargs):
        return f(*args, **kwargs), f(*args, **kwargs)
    return inner
def tag(name):
    def deco(f):
        f.tag = name
        return f
    return deco
@tag('outer')
@twice
@tag('inner')
def f(x, y=1):
    return x + y
@tag('class')
class C:
    @staticmethod
    @twice
    def s(x):
        return x
    @classmethod
    def c(cls, x):
        return cls.__name__, x
    @property
    def p(self):
        return 'p'
def main():
    return f(1), f(1, y=2), f.tag, C.tag, C.s(1), C().c(2), C.c(3), C().p
## decorator_error
def bad(f):
    return f.nowhere
def main():
    @bad
    def g():
        pass
## classes
class Base:
    kind = 'base'
    def __init__(self, x):
        self.x = x
    def who(self):
        return 'Base', self.x
    @classmethod
    def make(cls):
        return cls(9)
class Derived(Base):
    kind = 'derived'
    def __init__(self, x, y):
        super().__init__(x)
        self.y = y
    def who(self):
        return ('Derived', self.y) + super().who()
    @classmethod
    def make(cls):
        return super().make.__func__, cls(1, 2)
def main():
    d = Derived(1, 2)
    d.kind += '!'
    del d.x
    d.x = 3
    return d, d.who(), Derived.make(), Base.make().who(), isinstance(d, Base), Derived.__mro__
## super_forms
class A:
    def f(self): return 'A'
    def __getattr__(self, name): return 'A.' + name
class B(A):
    def f(self):
        return super(B, self).f() + 'B'
    def g(self):
        def inner():
            return super(B, self).f()
        return inner(), [super(B, self).f() for _ in range(2)], __class__
    def h(self):
        return super().nothing
class C(B):
    f = lambda self: super().f() + 'C'
def main():
    return C().f(), C().g(), C().zzz, C().h()
## super_without_arguments_in_a_function
def f(x):
    return super().x
def main():
    f(1)
## super_without_parameters
class A:
    def f():
        return super().x
def main():
    A.f()
## super_with_self_deleted
class A:
    def f(self):
        del self
        return super().x
def main():
    A().f()
## super_in_a_comprehension
class A:
    def f(self):
        return [super().f for _ in range(1)]
def main():
    A().f()
## super_of_captured_self
class A:
    def f(self):
        def g():
            return self
        return super().__repr__()[:5], g() is self
def main():
    return A().f()
## metaclass
class Meta(type):
    @classmethod
    def __prepare__(meta, name, bases, **kw):
        print('prepare', name, len(bases), kw)
        return {'prepared': 1}
    def __new__(meta, name, bases, ns, **kw):
        print('new', name, sorted(k for k in ns if k[0] != '_'))
        return super().__new__(meta, name, bases, ns)
    def __init__(cls, name, bases, ns, **kw):
        super().__init__(name, bases, ns)
        cls.kw = kw
    def __call__(cls, *args):
        print('call', args)
        return super().__call__(*args)
class A(metaclass=Meta, flag=True):
    def __init__(self, x):
        self.x = x
class B(A):
    pass
def main():
    return B(1), B.kw, A.kw, B.prepared, type(B)
## metaclass_conflict
class M(type): pass
class N(type): pass
class A(metaclass=M): pass
class B(metaclass=N): pass
def main():
    class C(A, B):
        pass
## metaclass_that_is_a_function
def main():
    class C(metaclass=lambda name, bases, ns: (name, bases, sorted(ns))):
        x = 1
    return C
## prepare_makes_no_mapping
class M(type):
    @classmethod
    def __prepare__(*a):
        return 3
def main():
    class C(metaclass=M):
        pass
## mro_entries
class Alias:
    def __mro_entries__(self, bases):
        return (dict,)
def main():
    class C(Alias()):
        pass
    return C.__mro__, len(C.__orig_bases__)
## classcell_not_passed_on
class M(type):
    def __new__(meta, name, bases, ns):
        ns.pop('__classcell__')
        return super().__new__(meta, name, bases, ns)
def main():
    class C(metaclass=M):
        def f(self):
            return __class__
## init_subclass_and_set_name
class D:
    def __set_name__(self, owner, name):
        self.name = name
    def __get__(self, obj, cls):
        return self.name, obj is None
class A:
    subs = []
    def __init_subclass__(cls, **kw):
        super().__init_subclass__()
        A.subs.append((cls.__name__, kw))
def main():
    class B(A, x=1):
        field = D()
    return A.subs, B.field, B().field
## class_scope
x = 'global'
def main():
    x = 'local'
    class A:
        y = x
        x = 'class'
        z = x
        def f(self):
            return x
        t = [x for _ in range(1)]
        u = [i for i in x]
        del z
    class B:
        nonlocal x
        x = 'changed'
    class C:
        global w
        w = 5
    return A.y, A.x, A().f(), A.t, A.u, hasattr(A, 'z'), x, w
## class_body_reads_free_variable_through_namespace
class Space(dict):
    def __missing__(self, key):
        if key.startswith('__'):
            raise KeyError(key)
        return 'made ' + key
class M(type):
    @classmethod
    def __prepare__(*a):
        return Space()
def main():
    free = 1
    class C(metaclass=M):
        a = free
        b = anything
    return C.a, C.b
## class_body_raises
def main():
    class C:
        x = 1
        y = x / 0
## nested_classes
def main():
    class A:
        class B:
            def f(self):
                return __class__.__qualname__
        def g(self):
            return self.B().f()
    return A().g(), A.B.__qualname__
## instantiation
class New:
    def __new__(cls, x):
        self = super().__new__(cls)
        self.made = x
        return self
    def __init__(self, x):
        self.x = x
class Other:
    def __new__(cls):
        return 'other'
    def __init__(self):
        print('never')
class Plain: pass
class Sub(Plain):
    def __init__(self, *a, **k):
        self.a, self.k = a, k
def main():
    return New(3), Other(), Plain(), Sub(1, x=2)
## init_returns_something
class A:
    def __init__(self):
        return 3
def main():
    A()
## init_is_a_generator
class A:
    def __init__(self):
        yield 3
def main():
    A()
## init_binding_error
class A:
    def __init__(self, a, b):
        pass
def main():
    A(1)
## object_takes_no_arguments
class A: pass
def main():
    A(1)
## abstract_class
import abc
class A(abc.ABC):
    @abc.abstractmethod
    def f(self): ...
    def __init__(self): print('never')
def main():
    A()
## init_from_an_instance_attribute
class A:
    pass
def main():
    a = A()
    a.__init__ = lambda: 1 / 0
    A.__init__ = lambda self, x: setattr(self, 'x', x)
    return A(3)
## callable_objects
class Call:
    def __call__(self, *args, **kw):
        return args, kw
    def method(self, x):
        return x
class Static:
    __call__ = staticmethod(lambda *a: a)
def main():
    import functools
    c = Call()
    m = c.method
    return c(1, x=2), m(3), Call.method(c, 4), functools.partial(c, 1)(2), Static()(5), max(1, 2)
## calling_nonsense
def main():
    return (3)(4)
## calling_none
def main():
    x = None
    x.foo(1)
## properties
class P:
    def __init__(self):
        self._x = 1
    @property
    def x(self):
        return self._x
    @x.setter
    def x(self, v):
        self._x = v * 2
    @x.deleter
    def x(self):
        self._x = None
    @property
    def bad(self):
        return self.nowhere
def main():
    p = P()
    log = [p.x]
    p.x = 5
    log.append(p.x)
    p.x += 1
    log.append(p.x)
    del p.x
    log.append(p.x)
    return log, hasattr(p, 'bad')
## property_without_setter
class P:
    @property
    def x(self):
        return 1
def main():
    P().x = 2
## slots_and_getattribute
class S:
    __slots__ = 'a',
class G:
    def __getattribute__(self, name):
        if name == 'no':
            raise AttributeError('no!')
        return name
    def __setattr__(self, name, value):
        print('set', name, value)
    def __delattr__(self, name):
        print('del', name)
def main():
    s = S()
    s.a = 1
    g = G()
    g.x = 3
    del g.y
    log = [s.a, g.foo, getattr(g, 'no', 'default')]
    try:
        s.b = 1
    except AttributeError as e:
        log.append(str(e))
    return log
## operators
class N:
    def __init__(self, v): self.v = v
    def __repr__(self): return f'N({self.v})'
    def __add__(self, o): return N(self.v + getattr(o, 'v', o))
    def __radd__(self, o): return N(('r', o, self.v))
    def __iadd__(self, o): self.v += 100; return self
    def __matmul__(self, o): return 'matmul'
    def __neg__(self): return N(-self.v)
    def __invert__(self): return 'invert'
    def __lt__(self, o): return 'lt'
    def __eq__(self, o): return 'eq'
    def __contains__(self, o): return o
    def __getitem__(self, k): return k
    def __bool__(self): return self.v > 0
    def __len__(self): return 7
    def __index__(self): return 2
    def __hash__(self): return 1
def main():
    n, m = N(1), N(-2)
    k = n
    k += 5
    return (n + 1, 1 + n, n + m, n @ m, -n, ~n, n < m, n > m, n == m, n != m, 0 in n, 5 in n,
            n[1:2, ...],
            not n, not m, n or 'x', m or 'y', n and 'z', [1, 2, 3][m], k is n, len(n))
## every_binary_operator
def main():
    a, b = 13, 5
    s = {1, 2}
    out = [a + b, a & b, a // b, a << b, a * b, a % b, a | b, a ** b, a >> b, a - b, a / b, a ^ b,
           s | {3}, s - {1}, +a, -a, ~a, not a]
    for value in (13, 13.5):
        x = value; x += 2; out.append(x)
        x = value; x -= 2; out.append(x)
        x = value; x *= 2; out.append(x)
        x = value; x /= 2; out.append(x)
        x = value; x //= 2; out.append(x)
        x = value; x %= 2; out.append(x)
        x = value; x **= 2; out.append(x)
    x = 13; x &= 5; x |= 8; x ^= 3; x <<= 2; x >>= 1
    out.append(x)
    xs = ys = [1]
    xs += [2]; xs *= 2
    return out, xs, ys is xs
## operator_errors
def main():
    log = []
    for f in (lambda: 1 + 'a', lambda: 'a' + 1, lambda: [] - 1, lambda: -'a', lambda: 1 < 'a',
              lambda: 1 // 0, lambda: 1 % 0, lambda: 1 << -1, lambda: 0 ** -1, lambda: 2 in 3,
              lambda: [1][5], lambda: {}['k'], lambda: 'abc'['x'], lambda: (3)[0], lambda: 1 @ 2,
              lambda: len(3), lambda: {[]: 1}, lambda: {[], 1}, lambda: f'{1:q}', lambda: int('z')):
        try:
            f()
        except Exception as e:
            log.append(e)
    return log
## comparisons
def main():
    def say(x):
        print('say', x)
        return x
    return (1 < 2 < 3, 1 < 3 < 2, say(1) < say(2) < say(0) < say(9), 1 == 1.0 != 2, 1 is 1,
            None is not 1,
            [1] == [1], 'a' in 'abc' in ['abc'], 3 not in {1, 2}, not 1 < 2,
            float('nan') == float('nan'))
## short_circuits
def main():
    def say(x):
        print('say', x)
        return x
    return (say(0) or say(1) or say(2), say(1) and say(0) and say(2), say(0) if say(1) else say(2),
            not (say(0) or say('')), (say(1) or say(2)) and say(3))
## jumps_on_none
def main():
    log = []
    for x in (None, 0, 1):
        if x is None: log.append('none')
        if x is not None: log.append('some')
        log.append(5 if x is None else 6)
        while x is not None:
            x = None
        while x is None:
            x = 1
        while not x: x = 2
    return log
## loops
def main():
    log = []
    for i in range(10):
        if i == 2: continue
        if i == 5: break
        log.append(i)
    else:
        log.append('no')
    for i in (): pass
    else: log.append('else')
    n = 0
    while True:
        n += 1
        if n > 3: break
    while n: n -= 1
    else: log.append('while else')
    for a, (b, *c) in [(1, (2, 3, 4)), (5, (6,))]: log.append((a, b, c))
    for log_[0] in 'ab': pass
    return log
log_ = [0]
## iteration_protocols
class Old:
    def __getitem__(self, i):
        if i == 3: raise IndexError
        return i * i
class It:
    def __init__(self): self.n = 0
    def __iter__(self): return self
    def __next__(self):
        self.n += 1
        if self.n > 3: raise StopIteration
        return self.n
class NoIter:
    __iter__ = None
class BadIter:
    def __iter__(self): return 3
def main():
    log = [[x for x in Old()], list(It()), [*Old()], dict.fromkeys(It())]
    a, b, c = Old()
    for kind in (NoIter, BadIter, int):
        for f in (lambda: [x for x in kind()], lambda: list(kind()), lambda: [*kind()],
                lambda: print(*kind()), unpack):
            try:
                f(kind()) if f is unpack else f()
            except TypeError as e:
                log.append(str(e))
    return log, a, b, c
def unpack(x):
    a, b = x
## iterator_that_raises
class It:
    def __iter__(self): return self
    def __next__(self): raise KeyError('it')
def main():
    for x in It(): pass
## iter_is_called_once
class It:
    def __iter__(self):
        print('iter')
        return iter([1, 2])
    def __len__(self):
        print('len')
        return 2
def f(*a): return a
def main():
    a, b = It()
    c, *d = It()
    return a, b, c, d, [*It()], {*It()}, f(*It()), (*It(), 3), [x for x in It()]
## unpacking
def main():
    a, b = 1, 2
    a, b = b, a
    (c, d), e = [3, 4], 5
    f, *g = 'xyz'
    *h, i = range(4)
    j, *k, l = (1, 2)
    [m] = {7}
    o = p = [0]
    x, y[0] = y = [1], [2]
    return locals()
y = [0]
## unpacking_errors
def main():
    log = []
    def t(f):
        try:
            f()
        except Exception as e:
            log.append(e)
    def few(): a, b, c = 1, 2
    def many(): a, b = 1, 2, 3
    def star(): a, *b, c = [1]
    def non(): a, b = 3
    def nonstar(): a, *b = None
    def key(): a, b = {}
    for f in (few, many, star, non, nonstar, key): t(f)
    return log
## displays
def main():
    d = {'a': 1, **{'b': 2, 'a': 3}, 'c': 4}
    return ([1, *range(2), *'ab'], (*[], 1), {*[1, 2], 3}, d, {1: 2, 3: 4}, {'x': 1, 'y': 2},
            {}, [], (), {1},
            {**{}}, [[i, j] for i in range(2) for j in range(2)], (1, 2, 3), frozenset({1, 2}))
## display_errors
def main():
    log = []
    for f in (lambda: {**3}, lambda: {**[1]}, lambda: [*3], lambda: {*3}, lambda: {**{1: 2},
            **None}):
        try:
            f()
        except Exception as e:
            log.append(e)
    return log
## comprehensions
def main():
    n = 10
    xs = [x * n for x in range(4) if x % 2 if x > 0]
    d = {k: v for k, v in zip('abc', range(3))}
    s = {x % 3 for x in range(10)}
    nested = [[y for y in range(x)] for x in range(4)]
    flat = [y for x in nested for y in x]
    walrus = [last := x for x in range(5)]
    if (m := len(xs)) > 1: pass
    cond = [y := f(x) for x in range(3) if (z := x + 1)]
    return xs, d, s, nested, flat, last, m, y, z, cond
def f(x): return x ** 2
## comprehension_errors
def main():
    return [1 / x for x in (1, 0)]
## f_strings
class F:
    def __format__(self, spec): return 'F:' + spec
    def __repr__(self): return 'repr'
    def __str__(self): return 'str'
def main():
    x, w, name = 3.14159, 10, 'é'
    return (f'{x:.2f}|{x:>{w}.{2}}|{name!r}|{name!s}|{name!a}|{F()}|{F()!r:>8}|{F():a{w}b}|'
            f'{x=}|{w + 1 = :>5}|{{}}|'
            f"{'nested ' + f'{w}'}" + f'' + f'{1}' + '%s %d' % ('a', 3) + '{}-{x}'.format(1, x=2))
## strings_and_numbers
def main():
    s = 'hello world'
    return (s[1], s[-3:], s[::-1], s[2:8:2], s.split(), s * 2, 'lo' in s, b'ab'[0], 'a' < 'b',
            s.upper().title(),
            10 ** 30, -7 // 2, -7 % 3, 7 / 2, 1e3, 2j * 2j, 0x10, round(2.5), divmod(-7, 2),
            int('12', 3),
            True + True, abs(-3), 0.1 + 0.2, 5 .bit_length(), (1, 2) < (1, 3), [1, 2] + [3])
## slices
def main():
    xs = list(range(10))
    log = [xs[:], xs[2:5], xs[::-2], xs[5:2:-1], xs[-3:]]
    xs[2:4] = 'ab'
    xs[::3] = [0] * len(xs[::3])
    del xs[1:3]
    del xs[-1]
    xs[0] += 5
    i = 1
    xs[i], i = 9, 2
    return log, xs, i, slice(1, 2), slice(1, 2, 3)
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
## attribute_errors
def main():
    log = []
    class O:
        def __repr__(self): return 'O'
    o = O()
    for f in (lambda: o.x, lambda: (3).real.nope, lambda: O.y, lambda: o.x(), lambda: [].pus(1)):
        try:
            f()
        except Exception as e:
            log.append((str(e), e.name, e.obj is not None))
    return log
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
## match_duplicate_keys
class K:
    a = 'same'
    b = 'same'
def main():
    match {'same': 1}:
        case {K.a: 1, K.b: 1}: pass
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
## import_star_in_class_is_an_error
def main():
    try:
        compile('def f():\\n from os import *', 'f', 'exec')
    except SyntaxError as e:
        return e.msg
## recursion
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
def hanoi(n, a, b, c):
    return [] if n == 0 else hanoi(n - 1, a, c, b) + [(a, c)] + hanoi(n - 1, b, a, c)
def even(n): return True if n == 0 else odd(n - 1)
def odd(n): return False if n == 0 else even(n - 1)
def main():
    return fib(12), hanoi(3, 'a', 'b', 'c'), even(20)
## mutated_arguments
def main():
    def f(xs, d):
        xs.append(1)
        xs += [2]
        d['k'] = xs
        xs = []
    a, b = [], {}
    f(a, b)
    return a, b
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
## ellipsis_and_constants
def main():
    return ..., __debug__, NotImplemented, (1, (2, (3,))), -0.0, 1_000, 'a' 'b', rb'\\x'
## global_shadowing_builtin
def main():
    global len
    len = lambda x: 'mine'
    a = len([])
    del len
    return a, len([])
## try_in_loop_with_unpack
def main():
    out = []
    for item in [(1, 2), 3, (4,), (5, 6)]:
        try:
            a, b = item
        except (TypeError, ValueError) as e:
            out.append(type(e).__name__)
            continue
        out.append(a + b)
    return out
## conditional_expressions_in_calls
def f(*a, **k): return a, k
def main():
    return f(*(1, 2) if True else (), **({'a': 1} if False else {}),
            x=[i for i in range(2) if i or not i])
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
## type_three_arguments
def main():
    T = type('T', (dict,), {'f': lambda self: len(self)})
    return T(a=1).f(), T.__mro__
## sorted_with_cmp_and_bisect
import functools, bisect, heapq
def main():
    xs = sorted('bca', key=functools.cmp_to_key(lambda a, b: (a > b) - (a < b)))
    h = [3, 1, 2]
    heapq.heapify(h)
    return xs, bisect.bisect([1, 3, 5], 4), heapq.heappop(h)
## weak_references_die
import weakref
def main():
    class O: pass
    o = O()
    r = weakref.ref(o)
    def f(x):
        try:
            raise ValueError(x)
        except ValueError:
            pass
    f(o)
    del o
    return r() is None
## augmented_attributes_and_items
class O: n = 0
def main():
    o = O()
    o.n += 1
    o.n -= 3
    d = {'a': [1]}
    d['a'] += [2]
    d['b'] = d.get('b', 0) + 1
    t = ([],)
    try:
        t[0].append(1)
        t[0] += [2]
    except TypeError as e:
        return o.n, O.n, d, t, str(e)
## conversions_that_fail
class B:
    def __bool__(self): return 3
class L:
    def __len__(self): return -1
class R:
    def __repr__(self): return 3
class F:
    def __format__(self, s): return 3
def main():
    log = []
    for f in (lambda: not B(), lambda: 1 if L() else 2, lambda: f'{R()!r}', lambda: f'{F()}',
            lambda: [1][1.5]):
        try:
            f()
        except Exception as e:
            log.append(e)
    return log
""")


@pytest.mark.parametrize("name", PROGRAMS)
def test_language(name: str) -> None:
    check(PROGRAMS[name])


def test_many_constants_and_names() -> None:
    """More than 255 of each, and jumps over more than 255 instructions: EXTENDED_ARG."""
    lines = ["def main():", "    total = 0", "    for k in range(2):", "        if k > 5:"]
    lines += [f"            v{i} = total * {i + 1000}" for i in range(300)]
    lines += ["        else:"]
    lines += [f"            v{i} = total + {i + 0.5}; total += v{i} > {i}" for i in range(300)]
    lines += ["        try:"]
    lines += [f"            total += g.a{i}" for i in range(300)]
    lines += ["        except KeyError:", "            pass"]
    lines += ["    def inner():", f"        return {' + '.join(f'v{i}' for i in range(300))}"]
    lines += [f"    big = [{', '.join(f'v{i}' for i in range(300))}]"]
    lines += ["    return total, inner(), big, {" + ", ".join(f"'k{i}': v{i}" for i in range(300))]
    lines[-1] += "}"
    head = ["class G:", *(f"    a{i} = {i}" for i in range(300)), "g = G()"]
    machine = check("\n".join(head + lines))
    assert machine.instructions > 3000


@pytest.mark.parametrize("count", [200, 300, 70000])
def test_long_displays(count: int) -> None:
    check(
        f"def main():\n    return sum([{', '.join(f'x{i % 7}' for i in range(count))}])\n"
        + "x0 = x1 = x2 = x3 = x4 = x5 = x6 = 1\n"
    )
