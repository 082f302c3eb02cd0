"""Parts of random programs that make scopes: functions, classes, generators, coroutines.

Each part is a function of ``draw`` and ``block``; ``block(depth, loop, function)`` draws statements
(``loop``: break and continue are allowed; ``function``: so is return). It answers with lines.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

Block = Callable[[int, bool, bool], list[str]]
Part = Callable[[st.DrawFn, Block, int, bool], list[str]]

KINDS = ("ValueError", "KeyError", "ZeroDivisionError", "(TypeError, IndexError)", "Exception")

#: What the parts use. Everything that a program observes goes to ``log``, which ``main`` returns.
PRELUDE = """
G = 7
class Color: RED = 1; NAMES = ('s', 2)
class Box:
    __match_args__ = ('v', 'w')
    def __init__(self, v): self.v = v
    @property
    def w(self): return self.v + 1
    @w.setter
    def w(self, value):
        if value == 0: raise ValueError('zero')
        self.v = value
    @w.deleter
    def w(self): log.append('deleted')
    def __getitem__(self, key):
        if isinstance(key, int) and key > 2: raise IndexError(key)
        return (self.v, key)
    def __setitem__(self, key, value): self.v = value
    def __iadd__(self, other):
        self.v = [self.v, other]
        return self
    def __eq__(self, other): return isinstance(other, Box) and self.v == other.v
    def __contains__(self, item): return item == self.v
    def __bool__(self): return self.v != 0
    def __call__(self, *args, **kwargs): return args, kwargs
def takes(a, /, b=2, *rest, c=3, **others): return a, b, rest, c, others
def twice(f):
    def run(*args, **kwargs): return f(*args, **kwargs), f(*args, **kwargs)
    return run
def tag(value):
    def mark(f):
        try: f.tag = value
        except AttributeError as e: log.append(e)
        return f
    return mark
class Meta(type):
    def __new__(meta, name, bases, space, **options):
        log.append((name, sorted(k for k in space if k[0] != '_'), options))
        return super().__new__(meta, name, bases, space)
    def __init__(cls, name, bases, space, **options): super().__init__(name, bases, space)
    def __call__(cls, *args): return super().__call__(*args)
class Base:
    def __init__(self, v=0): self.v = v
    def __init_subclass__(cls, **options): log.append((cls.__name__, options))
    def m(self, p=1): return ('Base.m', p)
    @classmethod
    def c(cls, p=1): return (cls.__name__, p)
    @staticmethod
    def s(p=1): return ('s', p)
class Named:
    def __set_name__(self, owner, name): log.append((owner.__name__, name))
    def __get__(self, instance, owner): return ('got', instance is None)
def pump(it, *calls):
    out = []
    for name, args in calls:
        try: out.append(getattr(it, name)(*args))
        except BaseException as e: out.append(e)
    log.append(out)
    return len(out)
class Pause:
    def __init__(self, v): self.v = v
    def __await__(self): return (yield self.v)
class Ticks:
    def __init__(self, n): self.n = n
    def __aiter__(self): return self
    async def __anext__(self):
        self.n -= 1
        if self.n < 0: raise StopAsyncIteration
        return await Pause(self.n)
class Guard:
    def __init__(self, suppress): self.suppress = suppress
    async def __aenter__(self): return await Pause('enter')
    async def __aexit__(self, *error):
        log.append(error[1])
        await Pause('exit')
        return self.suppress
def drive(coroutine, at):
    out = []
    for i in range(12):
        try: out.append(coroutine.throw(KeyError(i)) if i == at else coroutine.send(i or None))
        except StopIteration as e: out.append(('end', e.value)); break
        except Exception as e: out.append(e); break
    log.append(out)
    coroutine.close()
"""

_CALLS = st.lists(
    st.sampled_from(
        [
            "('__next__', ())",
            "('send', (5,))",
            "('throw', (KeyError(7),))",
            "('throw', (ValueError,))",
            "('throw', (GeneratorExit,))",
            "('close', ())",
        ]
    ),
    min_size=2,
    max_size=6,
)
_LAST = st.sampled_from(["aclose()", "athrow(KeyError(1))", "asend(3)"])


def indent(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def without_walrus(lines: list[str]) -> list[str]:
    """For a class body, where a comprehension may not have one."""
    return [line.replace(":=", "or") for line in lines]


def _declared(function: bool) -> str:
    return "nonlocal a, xs" if function else "global G"


def make(expressions: st.SearchStrategy[str], names: st.SearchStrategy[str]) -> dict[str, Part]:
    """The parts, with what to draw expressions and variables from."""

    def nested(draw: st.DrawFn, block: Block, depth: int, function: bool) -> list[str]:
        """A closure that changes the variables around it, perhaps decorated."""
        lines = []
        decorators = ["@twice", f"@tag({draw(expressions)})", "@calls", "@takes"]
        for decorator in draw(st.lists(st.sampled_from(decorators), max_size=2)):
            lines.append(decorator)
        parameters = draw(
            st.sampled_from(["", "p=1", "p=1, *q", "*, p=a", "*p, k=1, **q", "p=xs, /, k=2"])
        )
        arguments = draw(st.sampled_from(["", "", "1", "k=2", "*xs", "**d", "1, 2, k=3"]))
        lines.append(f"def inner({parameters}):")
        lines += indent([_declared(function), *block(depth, False, True)])
        lines += indent([f"return {draw(expressions)}"])
        return [*lines, f"print(inner({arguments}))"]

    def generator(draw: st.DrawFn, block: Block, depth: int, function: bool) -> list[str]:
        inner = draw(st.sampled_from(["gen(2)", "gen(a)", "xs", "(q for q in xs)", "it"]))
        body = [_declared(function), f"got = yield {draw(expressions)}", *block(depth, False, True)]
        tried = [f"more = yield from {inner}", f"yield got, more, {draw(expressions)}"]
        lines = [*body, "try:", *indent(tried)]
        if draw(st.booleans()):
            kind = draw(st.sampled_from([*KINDS, "GeneratorExit", "BaseException"]))
            after = draw(st.sampled_from(["raise", "yield 'after'", "return 9", "pass"]))
            lines += [f"except {kind} as e:", *indent(["log.append(e)", after])]
        lines += ["finally:", *indent(block(0, False, False))]
        lines += [f"return {draw(expressions)}"]
        calls = ", ".join(draw(_CALLS))
        use = draw(
            st.sampled_from([f"pump(inner(), {calls})", "print([*inner()])", "a, *xs = inner()"])
        )
        return ["it = gen(3)", "def inner():", *indent(lines), use]

    def coroutine(draw: st.DrawFn, block: Block, depth: int, function: bool) -> list[str]:
        awaits = {
            "await": [f"got = await Pause({draw(expressions)})"],
            "for": ["async for a in Ticks(2):", *indent(block(depth, True, True))],
            "with": [
                f"async with Guard({draw(st.booleans())}) as c:",
                *indent(block(depth, False, True)),
            ],
            "list": [f"xs = [({draw(expressions)}, q) async for q in Ticks(2) if q]"],
            "many": ["xs = [await Pause(q) for q in range(2)]"],
            "agen": ["async for a in ticks(): log.append(a)"],
            "by hand": ["other = ticks()", "log.append(await other.asend(None))",
                        f"log.append(await other.{draw(_LAST)})"],
        }  # fmt: skip
        chosen = draw(st.lists(st.sampled_from(sorted(awaits)), min_size=1, max_size=3))
        body = [line for name in chosen for line in awaits[name]]
        asynchronous = [
            "try:",
            f"    sent = yield {draw(expressions)}",
            f"    yield sent, await Pause({draw(expressions)})",
            "finally:",
            "    log.append('ticks')",
            *indent(block(0, False, False)),
        ]
        lines = [_declared(function), *block(0, False, True), *body, f"return {draw(expressions)}"]
        at = draw(st.sampled_from([-1, -1, 1, 2, 3]))
        return [
            *("async def ticks():", *indent(asynchronous)),
            *("async def inner():", *indent(lines)),
            f"drive(inner(), {at})",
        ]

    def inheriting(draw: st.DrawFn, block: Block, depth: int, function: bool) -> list[str]:
        """Two classes, the second of the first, whose methods go through super."""
        heads = ["class K(Base):", "class K(Base, key=1):", "class K(Base, metaclass=Meta2):",
                 "class K(Base, Box):", f"@tag({draw(expressions)})\nclass K(Base):"]  # fmt: skip
        head = draw(st.sampled_from(heads)).split("\n")
        setup = ["class Meta2(Meta): pass"]
        first = [
            f"k = {draw(expressions)}",
            "n = Named()",
            "def __init__(self, v=1):",
            *indent(["super().__init__(v)", f"self.u = {draw(expressions)}"]),
            "def m(self, p=1):",
            *indent([*block(0, False, True), "return (__class__.__name__, super().m(p))"]),
            "@property",
            "def w(self):",
            *indent([f"return {draw(expressions)}"]),
        ]
        second = [
            *block(0, False, False),
            "def m(self, p=1): return [super().m(q) for q in (0, 1)] if p else super(L, self).m()",
            "@classmethod",
            "def c(cls, p=1): return super().c(p)",
            "@w.setter" if draw(st.booleans()) else "@K.w.setter",
            "def w(self, value): self.v = value",
            "def __getattr__(self, name): return name * 2",
        ]
        uses = ["l.m()", "l.m(0)", "l.c()", "L.c(2)", "l.s()", "l.w", "l.missing", "l.n", "L.n",
                "L.__mro__", "l.u", "l.v", "l()", "K.m(l)", "super(L, l).m()"]  # fmt: skip
        chosen = draw(st.lists(st.sampled_from(uses), min_size=2, max_size=4, unique=True))
        return [
            *setup,
            *head,
            *indent(without_walrus(first)),
            "class L(K):",
            *indent(without_walrus(second)),
            "l = L()",
            f"l.w = {draw(expressions)}",
            *(f"print({use})" for use in chosen),
        ]

    def declares(draw: st.DrawFn, block: Block, depth: int, function: bool) -> list[str]:
        """Scopes three deep: global, nonlocal and a cell that is deleted and made again."""
        change = draw(st.sampled_from(["=", "+=", "-=", "|="]))
        lines = [
            "def inner(b=b):",
            "    global G",
            f"    G {change} {draw(expressions)}",
            "    kept = b",
            "    def deeper():",
            "        nonlocal kept, b",
            f"        kept {change} {draw(expressions)}",
            f"        {draw(st.sampled_from(['del b', 'b = 1', 'pass', 'del kept']))}",
            f"        return [lambda: (kept, q, {draw(names)}) for q in range(2)]",
            "    made = deeper()",
            f"    {draw(st.sampled_from(['kept = 4', 'del kept', 'pass']))}",
            "    return [f() for f in made], G, b",
            "print(inner())",
        ]
        return lines

    return {
        "nested": nested,
        "generator": generator,
        "coroutine": coroutine,
        "inheriting": inheriting,
        "declares": declares,
    }
