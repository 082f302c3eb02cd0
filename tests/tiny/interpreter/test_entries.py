"""Python code that C code calls is interpreted: special methods, descriptors, callbacks.

Every body notes whether it was interpreted, natively and in the interpreter, once for objects that
were made outside and once for those whose classes and functions interpreted code has made itself.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from refcompiler import interpret
from tests.tiny.interpreter.noting import NOTES, note

#: What a special method answers, where that is not its object.
ANSWERS = {
    **dict.fromkeys(["__bool__", "__contains__", "__instancecheck__", "__subclasscheck__"], "True"),
    **dict.fromkeys(["__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"], "True"),
    **dict.fromkeys(["__len__", "__hash__", "__index__", "__int__", "__length_hint__"], "3"),
    **dict.fromkeys(["__repr__", "__str__", "__format__", "__fspath__"], "'text'"),
    **dict.fromkeys(["__iter__", "__reversed__", "__dir__", "__await__"], "iter(['a'])"),
    **dict.fromkeys(["__init__", "__exit__", "__set__", "__delete__", "__set_name__"], "None"),
    **dict.fromkeys(["__init_subclass__", "__setattr__", "__delattr__", "__del__"], "None"),
    "__bytes__": "b''",
    "__float__": "1.0",
    "__complex__": "1j",
    "__sizeof__": "5",
    "__reduce_ex__": "(list, ())",
}
BINARY = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "matmul": "@",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "lshift": "<<",
    "rshift": ">>",
    "and": "&",
    "or": "|",
    "xor": "^",
}
COMPARED = {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">="}
#: By special method: a program that has it called, and nothing else.
SPECIAL = {
    **{f"__{name}__": f"x {op} 1" for name, op in BINARY.items()},
    **{f"__r{name}__": f"1 {op} x" for name, op in BINARY.items()},
    **{f"__i{name}__": f"x {op}= 1" for name, op in BINARY.items()},
    **{f"__{name}__": f"x {op} 1" for name, op in COMPARED.items()},
    "__neg__": "-x",
    "__pos__": "+x",
    "__invert__": "~x",
    "__abs__": "abs(x)",
    "__divmod__": "divmod(x, 1)",
    "__rdivmod__": "divmod(1, x)",
    "__round__": "round(x)",
    "__trunc__": "__import__('math').trunc(x)",
    "__floor__": "__import__('math').floor(x)",
    "__ceil__": "__import__('math').ceil(x)",
    "__bool__": "if x: pass",
    "__len__": "not x",
    "__length_hint__": "__import__('operator').length_hint(x)",
    "__hash__": "{x: 1}",
    "__index__": "[1, 2, 3, 4][x]",
    "__int__": "int(x)",
    "__float__": "float(x)",
    "__complex__": "complex(x)",
    "__bytes__": "bytes(x)",
    "__repr__": "repr([x])",
    "__str__": "str(x)",
    "__format__": "f'{x:>3}'",
    "__fspath__": "__import__('os').fspath(x)",
    "__dir__": "dir(x)",
    "__sizeof__": "sys.getsizeof(x)",
    "__reduce_ex__": "__import__('pickle').dumps(x)",
    "__getitem__": "x[1]",
    "__setitem__": "x[1] = 2",
    "__delitem__": "del x[1]",
    "__contains__": "1 in x",
    "__iter__": "for _ in x: pass",
    "__reversed__": "reversed(x)",
    "__call__": "list(map(x, [1]))",
    "__getattr__": "x.missing",
    "__getattribute__": "x.missing",
    "__setattr__": "x.name = 1",
    "__delattr__": "del x.name",
    "__enter__": "type(x).__exit__ = lambda *e: None\nwith x: pass",
    "__init_subclass__": "class Below(type(x)): pass",
    "__class_getitem__": "type(x)[1]",
    "__init__": "type(x)(1)",
    "__new__": "type(x)()",
    "__get__": "class Owner: attribute = x\nOwner().attribute",
    "__set__": "class Owner: attribute = x\nOwner().attribute = 1",
    "__delete__": "class Owner: attribute = x\ndel Owner().attribute",
    "__set_name__": "class Owner: attribute = x",
    "__mro_entries__": "class Below(x): pass",
    "__instancecheck__": "isinstance(1, x)",
    "__subclasscheck__": "issubclass(int, x)",
    "__await__": "async def f(): await x\nf().send(None)",
    "__copy__": "__import__('copy').copy(x)",
    "__deepcopy__": "__import__('copy').deepcopy(x)",
}
#: Programs with classes or functions ``f`` of their own; what they note is in their text.
PROGRAMS = {
    "next": """
        class Counted:
            def __iter__(self):
                return note('iter', self)
            def __next__(self):
                if note('next', len(seen)) > 2:
                    raise StopIteration
                seen.append(1)
                return seen
        def main(x):
            first, *rest = Counted()
            return list(Counted()), tuple(zip(Counted(), 'ab')), [*Counted()]
        seen = []
    """,
    "old_iteration": """
        class Old:
            def __getitem__(self, i):
                return note('getitem', 'abc'[i])
        def main(x):
            return list(Old()), 'c' in Old(), [c for c in Old()]
    """,
    "exit": """
        class Manager:
            def __enter__(self): return note('enter', self)
            def __exit__(self, *error): return note('exit', True)
        def main(x):
            with Manager(): raise KeyError
    """,
    "async_protocols": """
        class Both:
            def __aiter__(self): return note('aiter', self)
            def __anext__(self): return note('anext', self)
            def __await__(self):
                note('await')
                raise StopAsyncIteration
                yield
            async def __aenter__(self): note('aenter')
            async def __aexit__(self, *error): note('aexit')
        async def run():
            async with Both():
                async for _ in Both(): pass
        def main(x):
            try: run().send(None)
            except StopIteration: pass
    """,
    "reflected_and_refused": """
        class A:
            def __add__(self, other): return note('add', NotImplemented)
            def __lt__(self, other): return note('lt', NotImplemented)
        class B(A):
            def __radd__(self, other): return note('radd', 5)
            def __gt__(self, other): return note('gt', True)
        def main(x):
            return A() + B(), A() < B(), [A()] < [B()]
    """,
    "in_containers": """
        class Item:
            def __init__(self, n): self.n = n
            def __lt__(self, other): return note('lt', self.n < other.n)
            def __eq__(self, other): return note('eq', self.n == other.n)
            def __hash__(self): return note('hash', self.n)
            def __radd__(self, other): return note('radd', other + self.n)
            def __repr__(self): return note('repr', f'<{self.n}>')
        def main(x):
            import heapq
            items = [Item(3), Item(1), Item(2)]
            heapq.heapify(items)
            return (sorted(items)[0].n, max(items).n, sum(items), items == list(items[::-1]),
                    Item(2) in items, items.index(Item(3)), repr({1: items}), '%s' % items,
                    len({*items, Item(1)}), print(items, file=__import__('io').StringIO()))
    """,
    "finaliser": """
        class Dies:
            def __del__(self): note('del')
        def main(x):
            a = [Dies(), 1]
            del a[0]
            return Dies() is None
    """,
    "missing": """
        class Default(dict):
            def __missing__(self, key): return note('missing', key)
        def main(x):
            d = Default()
            return d['k'], '{a}'.format_map(d), 'x' % d if False else '%(z)s' % d
    """,
    "properties": """
        class Owner:
            @property
            def p(self): return note('fget', 1)
            @p.setter
            def p(self, value): note('fset')
            @p.deleter
            def p(self): note('fdel')
            @classmethod
            def c(cls): return note('class', 2)
            @staticmethod
            def s(n): return note('static', n)
        def main(x):
            o = Owner()
            o.p = o.p
            del o.p
            return list(map(Owner.s, [o.c()])), getattr(o, 'p'), hasattr(o, 'p')
    """,
    "cached_property_and_slots": """
        import functools
        class Owner:
            @functools.cached_property
            def p(self): return note('cached', 1)
        class Meta(type):
            @property
            def q(cls): return note('meta', 3)
        class Slots(metaclass=Meta):
            __slots__ = ('a',)
            def __getattr__(self, name): return note('getattr', name)
        def main(x):
            return Owner().p, Slots.q, Slots().a
    """,
    "metaclass": """
        class Meta(type):
            def __call__(cls, *args): return note('call', super().__call__(*args))
            def __new__(meta, *args, **kw): return note('new', super().__new__(meta, *args))
            def __init__(cls, *args, **kw): note('init')
            def __prepare__(*args, **kw): return note('prepare', {})
            def __getattr__(cls, name): return note('getattr', name)
            def __setattr__(cls, name, value): note('setattr')
            def __iter__(cls): return note('iter', iter('ab'))
            def __contains__(cls, item): return note('contains', True)
            def __len__(cls): return note('len', 2)
            def __eq__(cls, other): return note('eq', cls is other)
            def mro(cls): return note('mro', super().mro())
        def main(x):
            class C(metaclass=Meta): pass
            C.name = 1
            return type(C()) is C, C.lacking, list(C), 1 in C, len(C), C == C, [*map(C, '')] == []
    """,
    "new_and_init": """
        class Made(int):
            def __new__(cls, n): return note('new', super().__new__(cls, n))
            def __init__(self, n): note('init')
        class Problem(Exception):
            def __init__(self, *args): note('problem')
            def __str__(self): return note('str', 'problem')
        def main(x):
            try: raise Problem
            except Problem as error: return str(error), Made(3), list(map(Made, [1]))
    """,
    "methods_called_by_name": """
        import io, json
        class Raw(io.RawIOBase):
            def readable(self): return note('readable', True)
            def readinto(self, buffer): return note('readinto', 0)
        class File:
            def write(self, text): note('write')
        class Mapping:
            def keys(self): return note('keys', ['a'])
            def __getitem__(self, key): return note('getitem', key)
        def main(x):
            print('a', file=File(), end='')
            json.loads('{"a": [1]}', object_hook=lambda d: note('hook', d))
            json.dumps({'a': {1}}, default=lambda o: note('default', 1))
            return io.BufferedReader(Raw()).read(1), dict(Mapping()), {**Mapping()}
    """,
    "buffer": """
        class Lines:
            def readline(self): return note('readline', b'')
        def main(x):
            import tokenize
            return next(tokenize.tokenize(Lines().readline)).string
    """,
}
#: Programs to which a function ``f`` is given that notes its calls and answers with its argument.
CALLBACKS = {
    "map": "list(map(f, [1]))",
    "map_made_before": "list(m)",
    "filter": "list(filter(f, [1]))",
    "sorted": "sorted([2, 1], key=f)",
    "sort": "[2, 1].sort(key=f)",
    "min": "min([2, 1], key=f)",
    "max": "max([2, 1], key=f)",
    "iter": "iter(f, 1).__next__()",
    "reduce": "functools.reduce(f, [1, 2])",
    "partial": "functools.partial(f, 1)()",
    "partial_in_map": "list(map(functools.partial(f, 1), [1]))",
    "method_in_map": "list(map(types.MethodType(f, 1), [1]))",
    "lru_cache": "functools.lru_cache(f)(1)",
    "cmp_to_key": "sorted([2, 1], key=functools.cmp_to_key(f))",
    "singledispatch": "functools.singledispatch(f)(1)",
    "accumulate": "list(itertools.accumulate([1, 2], f))",
    "groupby": "list(itertools.groupby([1], f))",
    "starmap": "list(itertools.starmap(f, [(1,)]))",
    "takewhile": "list(itertools.takewhile(f, [1]))",
    "dropwhile": "list(itertools.dropwhile(f, [1]))",
    "filterfalse": "list(itertools.filterfalse(f, [1]))",
    "chained": "list(itertools.chain(map(f, [1]), filter(f, [2])))",
    "defaultdict": "collections.defaultdict(lambda: f(1))[1]",
    "defaultdict_made_before": "d[1]",
    "sub": "re.sub('a', f, 'ab')",
    "bisect": "bisect.bisect([1], 1, key=f)",
    "property": "type('C', (), {'p': property(f)})().p",
    "type": "type('C', (), {'__add__': f})() + 1",
    "set_on_a_class": "C = type('C', (), {})\nc = C()\nc == 1\nC.__add__ = f\nc + 1",
    "setattr_on_a_class": "C = type('C', (), {})\nc = C()\nsetattr(C, '__add__', f)\nc + 1",
    "another_base": "C.__bases__ = (type('D', (object,), {'__add__': f}),)\nC() + 1",
    "another_class": "c = C()\nc.__class__ = type('D', (B,), {'__add__': f})\nc + 1",
    "weakref": "s = {1}\nr = weakref.ref(s, f)\ndel s",
    "finalize": "s = {1}\nr = weakref.finalize(s, f, 1)\ndel s",
    "context": "contextvars.copy_context().run(f, 1)",
    "error_handler": "codecs.register_error('own', lambda e: f(('', e.end)))\n"
    "'é'.encode('ascii', 'own')",
    "module_getattr": "m = types.ModuleType('m')\nm.__getattr__ = f\nm.lacking",
    "hook": "old = sys.displayhook\nsys.displayhook = f\nexec(compile('1', '', 'single'))\n"
    "sys.displayhook = old",
    "call_of_a_builtin": "operator.call(f, 1) if hasattr(operator, 'call') else f(1)",
    "methodcaller": "operator.methodcaller('m')(type('C', (), {'m': f})())",
    "attrgetter": "operator.attrgetter('p')(type('C', (), {'p': property(f)})())",
    "done_callback": "loop = asyncio.new_event_loop()\nfuture = loop.create_future()\n"
    "future.add_done_callback(f)\nfuture.set_result(1)\nloop.run_until_complete(future)\n"
    "loop.close()",
    "thread": "t = threading.Thread(target=f, args=(1,))\nt.start()\nt.join()",
    "code_changed": "def g(x): pass\nsorted([1], key=g)\n"
    "g.__code__ = f.__code__\nsorted([1], key=g)",
}
MODULES = (
    "asyncio, bisect, codecs, collections, contextvars, functools, itertools, operator, re, sys, "
    "threading, types, weakref"
)


def class_with(name: str) -> str:
    """The text of a class that has one special method."""
    answer = ANSWERS.get(name, "self")
    if name == "__new__":
        answer = "object.__new__(self)"
    if name == "__mro_entries__":
        answer = "()"
    kind = "@classmethod\n    " if name == "__class_getitem__" else ""
    return (
        f"class Case:\n    {kind}def {name}(self, *args, **kwargs):\n"
        f"        return note('{name}', {answer})\n"
    )


def indented(text: str) -> str:
    return textwrap.indent(textwrap.dedent(text), "    ")


def program(kind: str, name: str) -> str:
    """Defines ``make()``, which answers what ``main`` is given, and ``main``."""
    if kind == "special":
        return (
            f"{class_with(name)}def make(): return Case()\ndef main(x):\n{indented(SPECIAL[name])}"
        )
    if kind == "callback":
        return (
            "def f(*args): return note('f', args[0] if args else 1)\n"
            "class B: pass\nclass C(B): pass\n"
            "def make(): return f, map(f, [1]), collections.defaultdict(lambda: f(1))\n"
            f"def main(x):\n    f, m, d = x\n{indented(CALLBACKS[name])}"
        )
    return f"{textwrap.dedent(PROGRAMS[name])}\ndef make(): return None\n"


CASES = [
    *(("special", name) for name in SPECIAL),
    *(("callback", name) for name in CALLBACKS),
    *(("program", name) for name in PROGRAMS),
]


def namespace() -> dict[str, Any]:
    found: dict[str, Any] = {"note": note, "__name__": "programs"}
    exec(f"import {MODULES}", found)
    return found


def noted(run: Callable[[], Any]) -> tuple[list[str], set[bool], str]:
    NOTES.clear()
    try:
        run()
        outcome = "returned"
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"
    return [name for name, _ in NOTES], {where for _, where in NOTES}, outcome


@pytest.mark.parametrize(("kind", "name"), CASES, ids=lambda part: part)
def test_what_c_code_calls_is_interpreted(kind: str, name: str) -> None:
    code = compile(program(kind, name), f"<{name}>", "exec", dont_inherit=True)

    def outside() -> tuple[Any, Any]:
        space = namespace()
        exec(code, space)
        return space["main"], space["make"]()

    def run(call: Callable) -> Any:
        function, given = outside()
        NOTES.clear()
        return call(function, given)

    def all_of_it(call: Callable) -> Any:
        def inside() -> None:
            exec(code, space)
            given = space["make"]()
            NOTES.clear()
            space["main"](given)

        space = namespace()
        return call(inside)

    names, where, outcome = noted(lambda: run(lambda f, *args: f(*args)))
    assert names and where == {False}
    assert name not in SPECIAL or name in names
    assert noted(lambda: run(interpret)) == (names, {True}, outcome)
    assert noted(lambda: all_of_it(interpret)) == (names, {True}, outcome)


def test_every_special_method_of_the_data_model_is_on_the_list() -> None:
    """What builtin types define is tried, but for what C code asks of Python classes nowhere."""
    defined = {
        name
        for kind in (int, float, complex, str, list, dict, set, type, object, slice, property)
        for name in dir(kind)
        if name.startswith("__") and callable(getattr(kind, name, None))
    }
    text = "".join(PROGRAMS.values())
    tried = {name for name in defined if name in SPECIAL or f"def {name}" in text}
    assert (
        defined - tried
        == {
            *(
                "__base__",
                "__class__",
                "__reduce__",
                "__getstate__",
                "__getnewargs__",
                "__getformat__",
            ),
            *(
                "__subclasshook__",
                "__subclasses__",
                "__replace__",
                "__buffer__",
                "__release_buffer__",
            ),
        }
        & defined
    )
