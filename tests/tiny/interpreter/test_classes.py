"""Classes: their making, super(), metaclasses, descriptors and instances, against CPython."""

from __future__ import annotations

import pytest

from tests.tiny.interpreter.oracle import check, programs

PROGRAMS = programs("""
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
## new_is_put_back
class A:
    def __new__(cls, *args):
        raise ValueError('A')
class B(A):
    __new__ = object.__new__
    def __init__(self, x):
        self.x = x
def attempt(make, *args):
    try:
        return make(*args).x
    except (AttributeError, TypeError, ValueError) as error:
        return str(error)
def main():
    found = [attempt(A), attempt(B, 3)]
    del B.__new__
    found.append(attempt(B, 3))
    del A.__new__
    return found, attempt(B, 3), attempt(A), attempt(A, 1)
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
## type_three_arguments
def main():
    T = type('T', (dict,), {'f': lambda self: len(self)})
    return T(a=1).f(), T.__mro__
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
""")


@pytest.mark.parametrize("name", PROGRAMS)
def test_classes(name: str) -> None:
    check(PROGRAMS[name])
