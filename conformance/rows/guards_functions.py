"""Functions and methods that a program calls, and how they may change."""

from __future__ import annotations

from conformance.rows.guarded import Guarded
from conformance.rows.guards_objects import THING

_FUNCTION = """
    K = 2
    def helper(x):
        return x + 1
    def other_helper(x):
        return x + 100
    def made(k):
        def function(x, a=1, *, b=2):
            return helper(x) * k * K + a * b
        return function
    """

ROWS = (
    Guarded(
        "function", "made(3)", "return v(x)",
        {"code": "v.__code__ = made(5).__code__.replace(co_consts=(None, 'other'))",
         "code of another": "old = made(3)\n"
         "def make(k):\n    def other(x, a=1, *, b=2):\n        return x * k\n    return other\n"
         "v.__code__ = make(1).__code__",
         "defaults": "v.__defaults__ = (5,)", "no defaults": "v.__defaults__ = None",
         "keyword default": "v.__kwdefaults__['b'] = 7",
         "keyword defaults": "v.__kwdefaults__ = {'b': 9}",
         "no keyword defaults": "v.__kwdefaults__ = None",
         "closure": "v.__closure__[0].cell_contents = 7",
         "empty cell": "del v.__closure__[0].cell_contents",
         "global": "K = 5", "deleted global": "del K", "global function": "helper = other_helper",
         "code of the callee": "helper.__code__ = other_helper.__code__",
         "another closure": "v = made(8)", "another function": "v = other_helper",
         "builtin": "v = torch.sin",
         "None": "v = None"},
        {"attribute": "v.note = 5", "name": "v.__name__ = 'other'",
         "documentation": "v.__doc__ = 'text'",
         "annotations": "v.__annotations__ = {'x': int}", "another global": "Q = 5",
         "equal closure": "v = made(3)"},
        setup=_FUNCTION,
    ),
    Guarded(
        "function told by identity", "made(2)",
        "own = {KNOWN: 3}\nreturn v(x) * own.get(v, 2) + (v in (torch.sin, KNOWN)) + (v == KNOWN)",
        {"the known one": "v = KNOWN", "known": "KNOWN = made(4)", "another": "v = made(5)"},
        setup="""
            def made(k):
                def function(x):
                    return x * k
                return function
            KNOWN = made(2)
            """,
    ),
    Guarded(
        "what a function is called", "made(3)",
        "return x + len(v.__name__) + getattr(v, 'note', 0), v.__doc__",
        {"name": "v.__name__ = 'other name'", "attribute": "v.note = 7",
         "documentation": "v.__doc__ = 'text'"},
        {"defaults": "v.__defaults__ = (7,)"},
        setup=_FUNCTION,
    ),
    Guarded(
        "nested closures", "outer(2)", "return v()(x)",
        {"cell": "v.__closure__[0].cell_contents = 5", "another": "v = outer(7)"},
        {"an equal one": "v = outer(2)"},
        setup="""
            def outer(k):
                def middle():
                    def inner(x):
                        return x * k
                    return inner
                return middle
            """,
    ),
    Guarded(
        "counter in a closure", "counter()", "return x * v()",
        {"cell": "v.__closure__[0].cell_contents = 50"},
        setup="""
            def counter():
                n = 0
                def count():
                    nonlocal n
                    n += 1
                    return n
                return count
            """,
        steady=False,
    ),
    Guarded(
        "built-in name", "0", "return x * guarded_builtin",
        {"value": "builtins.guarded_builtin = 5", "shadowed": "guarded_builtin = 7",
         "deleted": "del builtins.guarded_builtin"},
        setup="import builtins\nbuiltins.guarded_builtin = 2",
        undo="vars(builtins).pop('guarded_builtin', None)",
    ),
    Guarded(
        "built-in function", "[3, 4]", "return x * len(v) + max(v)",
        {"shadowed": "len = lambda values: 7", "another shadowed": "max = min"},
        {"shadowed elsewhere": "min = max"},
    ),
    Guarded(
        "function of torch", "0", "return F.relu(x) + torch.tanh(x)",
        {"global": "F = types.SimpleNamespace(relu=torch.sin)",
         "replaced": "torch.tanh = torch.sin"},
        setup="import types\nimport torch.nn.functional as F\nTANH = torch.tanh",
        undo="torch.tanh = TANH",
    ),
    Guarded(
        "method", "Thing(2)", "return v.method(x) + v.inherited(x) + v.static(x) + v.of_class(x)",
        {"its state": "v.n = 5", "instance": "v.method = lambda x: x * 7",
         "class": "Thing.method = lambda self, x: x * 7",
         "base": "Root.inherited = lambda self, x: x * 7",
         "in front of the base": "Base.inherited = lambda self, x: x * 7",
         "code": "Thing.method.__code__ = (lambda self, x: x * 7).__code__",
         "static": "Thing.static = staticmethod(torch.sin)",
         "static to method": "Thing.method = staticmethod(torch.sin)",
         "of the class": "Thing.of_class = classmethod(lambda cls, x: x * 9)",
         "shared": "Thing.shared = 9",
         "bases": "Thing.__bases__ = (Other,)", "class of the object": "v.__class__ = Other",
         "deleted": "del Thing.method"},
        {"another method": "Thing.other = lambda self, x: x", "another attribute": "v.q = 3",
         "an equal object": "v = Thing(2)"},
        setup=THING,
    ),
    Guarded(
        "method that calls its base's", "Derived(2)", "return v.method(x)",
        {"base": "Thing.method = lambda self, x: x * 7",
         "in front": "Between.method = lambda self, x: x * 9",
         "own": "Derived.method = lambda self, x: x * 11", "state": "v.n = 5",
         "bases":
            "Derived.__bases__ = (Thing, Other)\nThing.__bases__ = (Other,)\ndel Thing.method"},
        setup=THING + """
    class Between(Thing):
        pass
    class Derived(Between):
        def method(self, x):
            return super().method(x) + 1
    """,
    ),
    Guarded(
        "bound method", "Thing(2).method", "return v(x)",
        {"its state": "v.__self__.n = 5",
         "code": "v.__func__.__code__ = (lambda self, x: x * 7).__code__",
         "of another": "v = Thing(7).method", "plain": "v = torch.sin"},
        {"of the class": "Thing.method = lambda self, x: x * 7",
         "of an equal one": "v = Thing(2).method"},
        setup=THING,
    ),
    Guarded(
        "partial", "functools.partial(scaled, k=2)", "return v(x)",
        {"keyword": "v.keywords['k'] = 5", "another": "v = functools.partial(scaled, k=7)",
         "positional": "v = functools.partial(scaled, b=1)",
         "function": "v = functools.partial(torch.mul, other=2.5)",
         "code": "scaled.__code__ = (lambda x, b=0, *, k=1: x * 9).__code__"},
        {"an equal one": "v = functools.partial(scaled, k=2)", "attribute": "v.q = 3"},
        setup="""
            import functools
            def scaled(x, b=0, *, k=1):
                return x * k + b
            """,
    ),
    Guarded(
        "callable object", "Scale(2)", "return v(x)",
        {"its state": "v.n = 5", "class": "Scale.__call__ = lambda self, x: x * 7",
         "code": "Scale.__call__.__code__ = (lambda self, x: x * 9).__code__"},
        {"of the instance": "v.__call__ = lambda x: x"},
        setup="""
            class Scale:
                def __init__(self, n):
                    self.n = n
                def __call__(self, x):
                    return x * self.n
            """,
    ),
    Guarded(
        "cached function", "cached", "return x * v(3)",
        {"global": "K = 5\nv.cache_clear()", "another": "v = functools.lru_cache(lambda n: 7)"},
        setup="""
            import functools
            K = 2
            @functools.lru_cache
            def cached(n):
                return n * K
            """,
    ),
    Guarded(
        "decorated function", "decorate(plain)", "return v(x)",
        {"wrapped": "v.__closure__[0].cell_contents = torch.sin", "times": "TIMES = 5",
         "code": "plain.__code__ = (lambda x: x * 9).__code__"},
        {"__wrapped__": "v.__wrapped__ = None"},
        setup="""
            import functools
            TIMES = 2
            def decorate(function):
                @functools.wraps(function)
                def wrapper(*args, **kwargs):
                    return function(*args, **kwargs) * TIMES
                return wrapper
            def plain(x):
                return x + 1
            """,
    ),
    Guarded(
        "environment variable", "'GUARDED_VARIABLE'", "return x * int(os.environ.get(v, '2'))",
        {"set": "os.environ[v] = '5'"}, {"another": "os.environ[v + '_ELSE'] = '5'"},
        setup="import os",
        undo="os.environ.pop('GUARDED_VARIABLE', None)\n"
        "os.environ.pop('GUARDED_VARIABLE_ELSE', None)",
    ),
    Guarded(
        "autograd function", "Twice", "return v.apply(x)",
        {"forward": "v.forward = staticmethod(lambda ctx, x: x * 7)",
         "another": "v = Thrice", "code": "v.forward.__code__ = Thrice.forward.__code__"},
        {"documentation": "v.__doc__ = 'text'"},
        setup="""
            class Twice(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x):
                    return x * 2
                @staticmethod
                def backward(ctx, grad):
                    return grad * 2
            class Thrice(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x):
                    return x * 3
                @staticmethod
                def backward(ctx, grad):
                    return grad * 3
            """,
    ),
)  # fmt: skip
