"""Objects and classes that a program reads, and how they may change."""

from __future__ import annotations

from conformance.rows.guarded import Guarded

THING = """
    class Above:
        above = 2

    class Root(Above):
        deep = 2
        def inherited(self, x):
            return x * 3

    class Base(Root):
        base = 2

    class Other(Root):
        n = 8
        def method(self, x):
            return x * 11
        def inherited(self, x):
            return x * 13

    class Thing(Base):
        shared = 2
        def __init__(self, n):
            self.n = n
        def method(self, x):
            return x * self.n
        @property
        def double(self):
            return self.n * 2
        @staticmethod
        def static(x):
            return x * 2
        @classmethod
        def of_class(cls, x):
            return x * cls.shared

    TWIN = Thing(2)

    def strange(self, name):
        return 17 if name == "n" else object.__getattribute__(self, name)
    """

IDENTITY = (
    Guarded(
        "identity", "MARK", "return x * 2 if v is MARK else x + 1",
        {"another": "v = object()", "None": "v = None", "the other side": "MARK = object()"},
        {"the same": "v = MARK"}, setup="MARK = object()",
    ),
    Guarded(
        "equality", "Number(2)", "return x * 2 if v == LIKE else x + 1",
        {"its state": "v.n = 3", "the other's state": "LIKE.n = 3", "another": "v = Number(5)",
         "method": "Number.__eq__ = lambda self, other: False"},
        {"an equal one": "v = Number(2)"},
        setup="""
            class Number:
                def __init__(self, n):
                    self.n = n
                def __eq__(self, other):
                    return self.n == other.n
            LIKE = Number(2)
            """,
    ),
    Guarded(
        "type of an object", "Thing(2)",
        "return x * 2 if type(v) is Thing else x * 3 if isinstance(v, Root) else x + 1",
        {"class": "v.__class__ = Other", "another": "v = Other()", "of no class": "v = object()",
         "number": "v = 3", "bases": "Thing.__bases__ = (Other,)"},
        {"another of its class": "v = Thing(5)", "its state": "v.n = 7"}, setup=THING,
    ),
    Guarded(
        "instance check", "Thing(2)", "return x * 2 if isinstance(v, Virtual) else x + 1",
        {"registered": "Virtual.register(Thing)",
         "hook": "Meta.__instancecheck__ = lambda cls, value: True"},
        {"another registered": "Virtual.register(Other)"},
        setup=THING + """
    import abc
    class Meta(abc.ABCMeta):
        pass
    class Virtual(metaclass=Meta):
        pass
    """,
    ),
    Guarded(
        "callable", "Thing(2)", "return x * 2 if callable(v) else x + 1",
        {"class": "Thing.__call__ = lambda self: 0", "function": "v = len"}, setup=THING,
    ),
    Guarded(
        "weak reference", "weakref.ref(KEPT)", "return x * 2 if v() is None else x * v().n",
        {"its state": "KEPT.n = 5", "dead": "KEPT = None",
         "another": "OTHER_KEPT = Thing(6)\nv = weakref.ref(OTHER_KEPT)"},
        setup=THING + """
    import weakref
    KEPT = Thing(2)
    """,
    ),
    Guarded(
        "context variable", "contextvars.ContextVar('V', default=2)", "return x * v.get()",
        {"set": "v.set(5)", "another": "v = contextvars.ContextVar('V', default=7)"},
        setup="import contextvars",
    ),
)  # fmt: skip

ATTRIBUTES = (
    Guarded(
        "attribute", "Thing(2)", "return x * v.n",
        {"value": "v.n = 5", "float": "v.n = 2.0", "tensor": "v.n = torch.ones(4)",
         "deleted": "del v.n", "deleted, and on the class": "del v.n\nThing.n = 7",
         "dict": "v.__dict__ = {'n': 6}", "in the dict": "v.__dict__['n'] = 4",
         "object": "v = Thing(9)", "class": "v.__class__ = Other\ndel v.n",
         "plain class attribute": "Thing.n = 7",
         "data descriptor": "Thing.n = property(lambda self: 21)",
         "getattribute": "Thing.__getattribute__ = strange",
         "getattribute of a base": "Root.__getattribute__ = strange"},
        {"another attribute": "v.m = 3", "a new class attribute": "Thing.m = 3",
         "another instance": "TWIN.n = 7",
         "getattr": "Thing.__getattr__ = lambda self, name: 17", "method": "v.method = None",
         "an equal object": "v = Thing(2)"},
        setup=THING,
    ),
    Guarded(
        "missing attribute", "Thing(2)",
        "return x * 2 if hasattr(v, 'm') else x * getattr(v, 'k', 3)",
        {"set": "v.m = 1", "default": "v.k = 7", "on the class": "Thing.m = 1",
         "on a base": "Root.k = 9", "getattr": "Thing.__getattr__ = lambda self, name: 17",
         "in the dict": "v.__dict__['m'] = 1", "class": "Other.m = 4\nv.__class__ = Other"},
        {"another attribute": "v.q = 3", "another class attribute": "Base.q = 3"},
        setup=THING,
    ),
    Guarded(
        "namespace of an object", "Thing(2)", "return x * v.__dict__['n'], sorted(vars(v))",
        {"value": "v.n = 5", "added": "v.m = 5", "deleted": "del v.n",
         "dict": "v.__dict__ = {'n': 6}"},
        {"class": "Thing.m = 4"}, setup=THING,
    ),
    Guarded(
        "slots", "Slotted(2)", "return x * v.n, hasattr(v, 'm')",
        {"value": "v.n = 5", "set": "v.m = 1", "deleted": "del v.n", "another": "v = Slotted(7)",
         "descriptor": "Slotted.n = property(lambda self: 9)"},
        {"an equal one": "v = Slotted(2)"},
        setup="""
            class Slotted:
                __slots__ = ("n", "m")
                def __init__(self, n):
                    self.n = n
            """,
    ),
    Guarded(
        "class attribute", "Thing(2)", "return x * v.shared + v.base * v.deep * v.above",
        {"value": "Thing.shared = 5", "of a base": "Base.base = 5", "of the root": "Root.deep = 5",
         "shadowed by the instance": "v.shared = 7", "shadowed by the class": "Thing.deep = 7",
         "shadowed in the middle": "Base.deep = 7", "deleted": "del Thing.shared",
         "bases": "Other.base = 9\nThing.__bases__ = (Other,)", "class": "v.__class__ = Other",
         "property": "Thing.shared = property(lambda self: 11)",
         "bases of a base": "Root.__bases__ = (type('New', (), {'above': 23}),)"},
        {"another": "Thing.q = 3", "of a base, shadowed": "Base.shared = 9",
         "another class": "Other.shared = 9"},
        setup=THING,
    ),
    Guarded(
        "attribute of a class", "Thing", "return x * v.shared, v.__name__",
        {"value": "v.shared = 5", "of the metaclass": "Meta.shared = property(lambda cls: 7)",
         "deleted": "del v.shared", "name": "v.__name__ = 'Named'", "another": "v = Else",
         "getattribute": "Meta.__getattribute__ = strange"},
        {"beside": "v.q = 3"},
        setup="""
            class Meta(type):
                pass
            class Thing(metaclass=Meta):
                shared = 2
            class Else(metaclass=Meta):
                shared = 2
            def strange(cls, name):
                return 3 if name == "shared" else type.__getattribute__(cls, name)
            """,
    ),
    Guarded(
        "property", "Thing(2)", "return x * v.double",
        {"its state": "v.n = 5", "another": "Thing.double = property(lambda self: 9)",
         "constant": "Thing.double = 9",
         "code": "Thing.double.fget.__code__ = (lambda self: 9).__code__",
         "in the dict": "v.n = 4\nv.__dict__['double'] = 13", "deleted": "del Thing.double",
         "setter": "Thing.double = Thing.double.setter(None)"},
        {"dict beside": "v.__dict__['double'] = 13"},
        setup=THING,
    ),
    Guarded(
        "descriptor", "Owner()", "return x * v.n",
        {"its state": "DESCRIPTOR.k = 5", "its class": "Descriptor.__get__ = lambda *args: 9",
         "shadowed": "v.__dict__['n'] = 7", "replaced": "Owner.n = 11",
         "set added":
            "v.__dict__['n'] = 7\nDescriptor.__set__ = lambda *args: None\nDESCRIPTOR.k = 4"},
        {"another attribute": "DESCRIPTOR.q = 3", "of the owner": "v.q = 3"},
        setup="""
            class Descriptor:
                k = 2
                def __get__(self, owner, kind):
                    return self.k
            DESCRIPTOR = Descriptor()
            class Owner:
                n = DESCRIPTOR
            """,
    ),
    Guarded(
        "fallback for attributes", "Loose()", "return x * v.missing",
        {"method": "Loose.__getattr__ = lambda self, name: 9", "set": "v.missing = 5",
         "its state": "v.k = 7", "on the class": "Loose.missing = 6",
         "code": "Loose.__getattr__.__code__ = (lambda self, name: 4).__code__",
         "getattribute": "Loose.__getattribute__ = strange"},
        {"another attribute": "v.q = 3"},
        setup="""
            class Loose:
                k = 2
                def __getattr__(self, name):
                    return self.k
            def strange(self, name):
                return 17 if name == "missing" else object.__getattribute__(self, name)
            """,
    ),
    Guarded(
        "every attribute through a method", "Watched()", "return x * v.n",
        {"method": "Watched.__getattribute__ = strange", "value": "v.n = 5",
         "global": "FACTOR = 7", "deleted": "del Watched.__getattribute__"},
        {"another attribute": "v.q = 3"},
        setup="""
            FACTOR = 2
            class Watched:
                n = 3
                def __getattribute__(self, name):
                    found = object.__getattribute__(self, name)
                    return found * FACTOR if name == "n" else found
            def strange(self, name):
                return 17 if name == "n" else object.__getattribute__(self, name)
            """,
    ),
    Guarded(
        "special methods", "Odd(2)",
        "total = x * len(v) + v[1] + sum(v) + (v + 1) + (2 - v) + (-v) + int(3 in v) + v(1)\n"
        "with v as w:\n    total = total + w\nreturn total * 2 if v else total",
        {name: f"Odd.{name} = lambda self, *args: {result}" for name, result in {
            "__len__": 5, "__getitem__": 7, "__iter__": "iter([4])", "__add__": 8, "__rsub__": 9,
            "__neg__": 10, "__contains__": False, "__call__": 12, "__enter__": 13,
            "__bool__": False,
        }.items()} | {"state": "v.n = 6",
        "radd of nobody": "Odd.__radd__ = lambda *args: 3\nv.n = 4"},
        {"of the instance": "v.__len__ = lambda: 5", "not used": "Odd.__mul__ = lambda *args: 5"},
        setup="""
            class Odd:
                def __init__(self, n): self.n = n
                def __len__(self): return self.n
                def __getitem__(self, i): return self.n + i
                def __iter__(self): return iter([self.n, 1])
                def __add__(self, other): return self.n + other
                def __rsub__(self, other): return other - self.n
                def __neg__(self): return -self.n
                def __contains__(self, item): return item == 3
                def __call__(self, k): return self.n * k
                def __enter__(self): return self.n
                def __exit__(self, *error): pass
                def __bool__(self): return True
            """,
    ),
    Guarded(
        "dataclass", "Point(2, [3])", "return x * v.a + v.b[0], repr(v)",
        {"field": "v.a = 5", "item": "v.b[0] = 5", "default": "del v.a\nPoint.a = 7",
         "replaced": "v = dataclasses.replace(v, a=9)"},
        {"a copy": "v = Point(2, [3])"},
        setup="""
            import dataclasses
            @dataclasses.dataclass
            class Point:
                a: int
                b: list
            """,
    ),
    Guarded(
        "attribute of a module", "space", "return x * v.k",
        {"value": "v.k = 5", "deleted": "del v.k",
         "getattr": "del v.k\nv.__getattr__ = lambda name: 7",
         "class": "v.__class__ = Special"},
        {"another": "v.q = 3", "getattr that is not asked": "v.__getattr__ = lambda name: 7"},
        setup="""
            import types
            space = types.ModuleType("space")
            space.k = 2
            class Special(types.ModuleType):
                k = property(lambda self: 11)
            """,
    ),
    Guarded(
        "number of a class of its own", "Number(2)", "return x * int(v) + v.k + (v + 1)",
        {"value": "v = Number(5)", "class": "Number.k = 7", "own": "v.k = 9", "float": "v = 2.5",
         "operator": "Number.__add__ = lambda self, other: 40"},
        {"equal": "v = Number(2)", "another attribute": "v.q = 1"},
        setup="""
            class Number(int):
                k = 3
            """,
    ),
    Guarded(
        "named tuple by its names", "Pair(2, 3)", "return x * v.first + v.second + len(v._fields)",
        {"item": "v = Pair(5, 3)", "tuple": "v = (2, 3)",
         "property": "Pair.first = property(lambda self: 7)"},
        {"equal": "v = Pair(2, 3)"},
        setup="""
            import collections
            Pair = collections.namedtuple("Pair", "first second")
            """,
    ),
    Guarded(
        "names of an object", "Named()",
        "return x * len([name for name in dir(v) if name in ('first', 'second', 'third')])",
        {"new": "v.second = 1", "of the class": "Named.third = 1", "deleted": "del v.first"},
        {"value": "v.first = 9"},
        setup="""
            class Named:
                def __init__(self):
                    self.first = 1
            """,
    ),
    Guarded(
        "asked by its class's class", "Plain()", "return x * (2 if isinstance(v, Asking) else 3)",
        {"attribute": "v.answer = 1", "of the class": "Plain.answer = 1",
         "question": "Meta.__instancecheck__ = lambda cls, value: True",
         "bases": "Plain.__bases__ = (Asking,)"},
        {"another": "v.q = 1"},
        setup="""
            class Meta(type):
                def __instancecheck__(cls, value):
                    return hasattr(value, "answer")
            class Asking(metaclass=Meta):
                pass
            class Root:
                pass
            class Plain(Root):
                pass
            """,
    ),
    Guarded(
        "made by its class's class", "Made", "return x * v(3).n",
        {"call": "Meta.__call__ = lambda cls, n: types.SimpleNamespace(n=11)", "times": "v.k = 4",
         "init": "v.__init__ = lambda self, n: setattr(self, 'n', 1)"},
        {"another": "v.q = 1"},
        setup="""
            import types
            class Meta(type):
                def __call__(cls, n):
                    made = super().__call__(n)
                    made.n *= cls.k
                    return made
            class Made(metaclass=Meta):
                k = 2
                def __init__(self, n):
                    self.n = n
            """,
    ),
    Guarded(
        "object among others", "Plain()",
        "return x * [BESIDE, v].index(KNOWN if v is KNOWN else v) + (v in [KNOWN]) + "
        "len({v, KNOWN})",
        {"the known one": "v = KNOWN", "the other": "v = BESIDE", "known": "KNOWN = BESIDE"},
        setup="""
            class Plain:
                pass
            KNOWN, BESIDE = Plain(), Plain()
            """,
    ),
    Guarded(
        "import inside", "0", "import guarded_space\nfrom guarded_space import q\n"
        "return x * guarded_space.k + q",
        {"value": "space.k = 5", "name": "space.q = 5",
         "module": "sys.modules['guarded_space'] = other"},
        {"another": "space.z = 3"},
        setup="""
            import sys, types
            space, other = types.ModuleType("guarded_space"), types.ModuleType("guarded_space")
            space.k, space.q, other.k, other.q = 2, 3, 4, 5
            sys.modules["guarded_space"] = space
            """,
        undo="sys.modules.pop('guarded_space')",
    ),
)  # fmt: skip

ROWS = (*IDENTITY, *ATTRIBUTES)
