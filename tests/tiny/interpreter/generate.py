"""Random programs over ints, lists and dicts, in which every loop ends.

Values flow through a few variables; each statement may raise, which is part of what is compared.
"""

from __future__ import annotations

from hypothesis import strategies as st

VARIABLES = ("a", "b", "c", "xs", "d")
FUNCTIONS = ("f", "g", "h")
KINDS = ("ValueError", "KeyError", "ZeroDivisionError", "(TypeError, IndexError)", "Exception")
DEPTH = 3

names = st.sampled_from(VARIABLES)
numbers = st.integers(-3, 9).map(str)
atoms = st.one_of(numbers, names, st.sampled_from(["'s'", "None", "[]", "{}", "(1, 2)", "True"]))
binary = st.sampled_from("+ - * // % & | ^ == != < <= in is and or".split())


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, inner, binary, inner),
        st.builds("(-{})".format, inner),
        st.builds("(not {})".format, inner),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("{{'k': {}, 'l': {}}}".format, inner, inner),
        st.builds("[{}, *{}]".format, inner, names),
        st.builds("{}[{}]".format, names, inner),
        st.builds("{}[{}:]".format, names, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("({} < {} < {})".format, inner, inner, inner),
        st.builds("[{} for q in range(3) if {}]".format, inner, inner),
        st.builds("list(q + {} for q in {})".format, inner, names),
        st.builds("{{q: {} for q in {}}}".format, inner, names),
        st.builds("f'{{{}}}-{{{}!r:>4}}'".format, names, names),
        st.builds("{}({}, {})".format, st.sampled_from(FUNCTIONS), inner, inner),
        st.builds("{}({}, y={})".format, st.sampled_from(FUNCTIONS), inner, inner),
        st.builds("{}(*{})".format, st.sampled_from(FUNCTIONS), inner),
        st.builds("(c := {})".format, inner),
        st.builds("(lambda p, q={}: {})({})".format, inner, inner, inner),
        st.builds("list(gen({}))".format, inner),
        st.builds("len({})".format, inner),
    )


expressions = st.recursive(atoms, _compound, max_leaves=4)
simple = st.one_of(
    st.builds("{} = {}".format, names, expressions),
    st.builds("{} {}= {}".format, names, st.sampled_from(["+", "-", "*", "|", "//"]), expressions),
    st.builds("{}, {} = {}".format, names, names, expressions),
    st.builds("{}, *{} = {}".format, names, names, expressions),
    st.builds("d[{}] = {}".format, expressions, expressions),
    st.builds("xs.append({})".format, expressions),
    st.builds("del {}".format, names),
    st.builds("del d[{}]".format, expressions),
    st.builds("print({})".format, expressions),
    st.builds("assert {}, {}".format, expressions, atoms),
    st.builds("raise {}({})".format, st.sampled_from(["ValueError", "KeyError"]), atoms),
    st.builds("raise ValueError({}) from KeyError({})".format, atoms, atoms),
    st.just("pass"),
)


def _indent(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


@st.composite
def block(draw: st.DrawFn, depth: int, loop: bool = False, function: bool = True) -> list[str]:
    """Lines of one to three statements; ``loop``: break and continue are allowed."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        lines += draw(statement(depth, loop, function))
    return lines


@st.composite
def statement(draw: st.DrawFn, depth: int, loop: bool, function: bool) -> list[str]:
    kinds = ["simple", "simple"]
    if depth:
        kinds += ["if", "for", "while", "try", "try", "except*", "with", "match", "nested", "class"]
    if loop:
        kinds += ["break", "continue"]
    if function:
        kinds.append("return")
    kind = draw(st.sampled_from(kinds))
    if kind == "simple":
        return [draw(simple)]
    if kind in ("break", "continue"):
        return [f"if {draw(expressions)}:", f"    {kind}"]
    if kind == "return":
        return [f"if {draw(expressions)}:", f"    return {draw(expressions)}"]
    return _COMPOUND[kind](draw, depth - 1, loop, function)


def _if(draw: st.DrawFn, depth: int, loop: bool, function: bool) -> list[str]:
    lines = [f"if {draw(expressions)}:", *_indent(draw(block(depth, loop, function)))]
    if draw(st.booleans()):
        lines += ["else:", *_indent(draw(block(depth, loop, function)))]
    return lines


def _for(draw: st.DrawFn, depth: int, loop: bool, function: bool) -> list[str]:
    over = draw(st.sampled_from(["range(3)", "gen(2)", "list(d)", "xs[:3]", "'pq'"]))
    lines = [f"for {draw(names)} in {over}:", *_indent(draw(block(depth, True, function)))]
    if draw(st.booleans()):
        lines += ["else:", *_indent(draw(block(depth, loop, function)))]
    return lines


def _while(draw: st.DrawFn, depth: int, loop: bool, function: bool) -> list[str]:
    body = _indent(draw(block(depth, True, function)))
    return [f"n{depth} = 0", f"while n{depth} < 3:", f"    n{depth} += 1", *body]


def _try(draw: st.DrawFn, depth: int, loop: bool, function: bool) -> list[str]:
    lines = ["try:", *_indent(draw(block(depth, loop, function)))]
    caught = draw(st.lists(st.sampled_from(KINDS), max_size=2, unique=True))
    for kind in caught:
        body = draw(block(depth, loop, function))
        if draw(st.booleans()):
            body = [*body, "raise"]
        lines += [f"except {kind} as e:", *_indent(["log.append(e)", *body])]
    if caught and draw(st.booleans()):
        lines += ["else:", *_indent(draw(block(depth, loop, function)))]
    if not caught or draw(st.booleans()):
        lines += ["finally:", *_indent(draw(block(depth, loop, function)))]
    return lines


def _except_star(draw: st.DrawFn, depth: int, loop: bool, function: bool) -> list[str]:
    """A group is raised, and its clauses may raise; control may not leave such a clause."""
    parts = draw(st.lists(st.sampled_from(["ValueError(1)", "KeyError(2)", "OSError(3)"]),
                          min_size=1, max_size=3))  # fmt: skip
    lines = ["try:", *_indent(draw(block(depth, loop, function)))]
    lines += [f"    raise ExceptionGroup('g', [{', '.join(parts)}])"]
    for kind in draw(st.lists(st.sampled_from(KINDS[:3]), min_size=1, max_size=2, unique=True)):
        body = draw(block(depth, False, False))
        if draw(st.booleans()):
            body = [*body, draw(st.sampled_from(["raise", "raise OSError(4)", "raise e"]))]
        lines += [f"except* {kind} as e:", *_indent(["log.append(e)", *body])]
    return lines


def _with(draw: st.DrawFn, depth: int, loop: bool, function: bool) -> list[str]:
    head = f"with Manager({draw(st.booleans())}, log) as {draw(names)}:"
    return [head, *_indent(draw(block(depth, loop, function)))]


def _match(draw: st.DrawFn, depth: int, loop: bool, function: bool) -> list[str]:
    patterns = [
        "int(a)",
        "[a, *b]",
        "{'k': c, **d}",
        "None | True",
        "str() as b",
        "[1, _]",
        "(1, 2)",
    ]
    lines = [f"match {draw(expressions)}:"]
    for pattern in draw(st.lists(st.sampled_from(patterns), min_size=1, max_size=3, unique=True)):
        guard = f" if {draw(expressions)}" if draw(st.booleans()) else ""
        lines += [f"    case {pattern}{guard}:"]
        lines += _indent(_indent(draw(block(depth, loop, function))))
    return lines


def _nested(draw: st.DrawFn, depth: int, loop: bool, function: bool) -> list[str]:
    """A closure, or a generator, that changes the variables around it."""
    declared = "nonlocal" if function else "global"
    body = [f"{declared} a, xs", *draw(block(depth, False, True))]
    if draw(st.booleans()):
        body = [*body, f"got = yield {draw(expressions)}", "yield got"]
        run = ["it = inner()", "print(next(it, 'end'))", f"print(it.{draw(_DRIVERS)})"]
    else:
        run = ["print(inner())"]
    return ["def inner():", *_indent(body), *run]


def _class(draw: st.DrawFn, depth: int, loop: bool, function: bool) -> list[str]:
    body = [draw(simple) for _ in range(draw(st.integers(1, 2)))]
    method = ["def m(self, p=1):", *_indent([f"return {draw(expressions)}"])]
    return ["class K:", *_indent([*body, *method]), "print(K().m(), K().m(p=2))"]


_DRIVERS = st.sampled_from(["send(5)", "throw(KeyError(7))", "close()", "__next__()"])
_COMPOUND = {
    "if": _if,
    "for": _for,
    "while": _while,
    "try": _try,
    "except*": _except_star,
    "with": _with,
    "match": _match,
    "nested": _nested,
    "class": _class,
}

PRELUDE = """
log = []
depth = 0
class Manager:
    def __init__(self, suppress, log): self.suppress, self.log = suppress, log
    def __enter__(self): return 1
    def __exit__(self, *error):
        self.log.append(error[1])
        return self.suppress
def gen(n):
    try:
        for i in range(n):
            sent = yield i
            if sent: print('sent', sent)
    finally:
        log.append('gen')
def calls(f):
    def limited(*args, **kwargs):
        global depth
        depth += 1
        if depth > 20: raise ValueError('depth')
        return f(*args, **kwargs)
    return limited
"""


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Module text with functions f, g, h that may call each other, and ``main``."""
    start = ["a, b, c, xs, d = x, y, 3, [1, 2], {'k': 1}"]
    text = [PRELUDE]
    for name in FUNCTIONS:
        body = draw(block(DEPTH - 1))
        tail = [f"return {draw(expressions)}"]
        text += ["@calls", f"def {name}(x=1, y=2):", *_indent([*start, *body, *tail])]
    body = draw(block(DEPTH))
    end = ["return [v for v in locals().items() if v[0] != 'inner' and v[0] != 'it'], log"]
    text += ["def main(x=0, y=5):", *_indent([*start, *body, *end])]
    return "\n".join(text) + "\n"
