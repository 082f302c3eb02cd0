"""Random programs over ints, lists and dicts, in which every loop ends.

Values flow through a few variables; each statement may raise, which is part of what is compared.
"""

from __future__ import annotations

from hypothesis import strategies as st

from tests.tiny.interpreter import generate_scopes
from tests.tiny.interpreter.generate_scopes import KINDS, without_walrus
from tests.tiny.interpreter.generate_scopes import indent as _indent

VARIABLES = ("a", "b", "c", "xs", "d", "o")
FUNCTIONS = ("f", "g", "h")
DEPTH = 3

names = st.sampled_from(VARIABLES)
numbers = st.integers(-3, 9).map(str)
atoms = st.one_of(
    numbers, names, st.sampled_from(["'s'", "None", "[]", "{}", "(1, 2)", "True", "G"])
)
binary = st.sampled_from([*"+ - // % & | ^ == != < <= >= in is and or".split(), "not in", "is not"])
compared = st.sampled_from(["<", "<=", "==", "!=", "in", "is", ">"])
specs = st.sampled_from(["", ">5", "^7", "03d", "+", ".2f", "x", "_", "<3s", "{a}"])
attributes = st.sampled_from(["v", "w", "nothing", "__class__", "append", "k"])
augmented = st.sampled_from(["+", "-", "|", "//", "&", "%", "@", ">>"])
targets = st.one_of(
    names,
    st.builds("{}.{}".format, names, attributes),
    st.builds("{}[{}]".format, names, numbers),
    st.just("d['k']"),
)


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, inner, binary, inner),
        st.builds("times({}, {})".format, inner, inner),
        st.builds("(-{})".format, inner),
        st.builds("(not {})".format, inner),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("{{'k': {}, 'l': {}}}".format, inner, inner),
        st.builds("[{}, *{}]".format, inner, names),
        st.builds("{}[{}]".format, names, inner),
        st.builds("{}[{}:]".format, names, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("({} {} {} {} {})".format, inner, compared, inner, compared, inner),
        st.builds("[{} for q in range(3) if {}]".format, inner, inner),
        st.builds("list(q + {} for q in {})".format, inner, names),
        st.builds("{{q: {} for q in {}}}".format, inner, names),
        st.builds("f'{{{}}}-{{{}!r:>4}}'".format, names, names),
        st.builds("f'{{{}:{}}}{{{}!s:{{{}}}}}{{{}=}}'".format, names, specs, names, names, names),
        st.builds("'{{:{}}} {{k}}'.format({}, k={})".format, specs, inner, inner),
        st.builds("[[p + q for q in range(2) if {}] for p in {}]".format, inner, names),
        st.builds("[(lambda: ({}, q))() for q in range(2)]".format, inner),
        st.builds("sum(q for p in [{}] for q in p if p)".format, names),
        st.builds("{{q: [(w := q) for _ in {}] for q in {}}}".format, names, names),
        st.builds("{{*{}, {}}}".format, names, inner),
        st.builds("(*{}, {}, *{})".format, names, inner, names),
        st.builds("{{**{}, 'm': {}}}".format, names, inner),
        st.builds("{}[{}:{}:{}]".format, names, inner, inner, inner),
        st.builds("{}.{}".format, names, attributes),
        st.builds("takes({}, *{}, k={}, **{})".format, inner, names, inner, names),
        st.builds("takes(*{}, *{}, c={})".format, names, names, inner),
        st.builds("takes(**{}, a={}, **{})".format, names, inner, names),
        st.builds("(lambda *p, k={}, **q: (p, k, q))(*{}, **{})".format, inner, names, names),
        st.builds("Box({})".format, inner),
        st.builds("o({}, k={})".format, inner, inner),
        st.builds("getattr({}, '{}', {})".format, names, attributes, inner),
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
    st.builds("{} {}= {}".format, names, st.sampled_from(["+", "-", "|", "//"]), expressions),
    st.builds("{}, {} = {}".format, names, names, expressions),
    st.builds("{}, *{} = {}".format, names, names, expressions),
    st.builds("{} = {}".format, targets, expressions),
    st.builds("{} {}= {}".format, targets, augmented, expressions),
    st.builds("{} *= {}".format, targets, st.sampled_from(["-1", "0", "2"])),
    st.builds("{} = {} = {}".format, targets, targets, expressions),
    st.builds("({}, *{}), {} = {}".format, names, names, targets, expressions),
    st.builds("[{}, {}] = {}".format, targets, targets, expressions),
    st.builds("{}[{}:{}] = {}".format, names, numbers, numbers, expressions),
    st.builds("del {}".format, targets),
    st.builds("del {}[{}:], {}".format, names, numbers, targets),
    st.builds("print(*{}, sep={})".format, names, atoms),
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
        kinds += ["if", "for", "while", "try", "try", "except*", "with", "match", "class"]
        kinds += list(_SCOPES)
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
    if kind in _SCOPES:
        return _SCOPES[kind](draw, lambda *given: draw(block(*given)), depth - 1, function)
    return _COMPOUND[kind](draw, depth - 1, loop, function)


def _if(draw: st.DrawFn, depth: int, loop: bool, function: bool) -> list[str]:
    lines = [f"if {draw(expressions)}:", *_indent(draw(block(depth, loop, function)))]
    if draw(st.booleans()):
        lines += ["else:", *_indent(draw(block(depth, loop, function)))]
    return lines


def _for(draw: st.DrawFn, depth: int, loop: bool, function: bool) -> list[str]:
    over = draw(
        st.sampled_from(["range(2)", "gen(2)", "list(d)[:2]", "xs[:2]", "'pq'", "[(1, [2])]"])
    )
    target = draw(st.one_of(targets, st.sampled_from(["(a, (*xs,))", "a, *b"])))
    lines = [f"for {target} in {over}:", *_indent(draw(block(depth, True, function)))]
    if draw(st.booleans()):
        lines += ["else:", *_indent(draw(block(depth, loop, function)))]
    return lines


def _while(draw: st.DrawFn, depth: int, loop: bool, function: bool) -> list[str]:
    body = _indent(draw(block(depth, True, function)))
    return [f"n{depth} = 0", f"while n{depth} < 2:", f"    n{depth} += 1", *body]


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
    head = f"with Manager({draw(st.booleans())}, log) as {draw(targets)}"
    if draw(st.booleans()):
        head += f", Manager({draw(st.booleans())}, log), Manager(True, log) as ({draw(names)})"
    head += ":"
    return [head, *_indent(draw(block(depth, loop, function)))]


def _match(draw: st.DrawFn, depth: int, loop: bool, function: bool) -> list[str]:
    patterns = [
        "int(a)",
        "[a, *b]",
        "{'k': c, **d}",
        "None | True",
        "str() as b",
        "[1, _]",
        "Box(v=a)",
        "Box(a, 2 | 3 as c)",
        "int() | str() as a",
        "[a, [b, *_]] as c",
        "{'k': [a, *_], 'l': _}",
        "-1 | 's' | Color.RED",
        "[Color.RED, *_, 2]",
        "dict(d) | list(d)",
        "(1, 2)",
    ]
    lines = [f"match {draw(expressions)}:"]
    for pattern in draw(st.lists(st.sampled_from(patterns), min_size=1, max_size=3, unique=True)):
        guard = f" if {draw(expressions)}" if draw(st.booleans()) else ""
        lines += [f"    case {pattern}{guard}:"]
        lines += _indent(_indent(draw(block(depth, loop, function))))
    return lines


def _class(draw: st.DrawFn, depth: int, loop: bool, function: bool) -> list[str]:
    body = without_walrus([draw(simple) for _ in range(draw(st.integers(1, 2)))])
    method = ["def m(self, p=1):", *_indent([f"return {draw(expressions)}"])]
    return ["class K:", *_indent([*body, *method]), "print(K().m(), K().m(p=2))"]


_COMPOUND = {
    "if": _if,
    "for": _for,
    "while": _while,
    "try": _try,
    "except*": _except_star,
    "with": _with,
    "match": _match,
    "class": _class,
}
_SCOPES = generate_scopes.make(expressions, names)

PRELUDE = """
log = []
depth = 0
HIDDEN = {'inner', 'it', 'l', 'ticks', 'other'}
def times(x, y):
    # Numbers stay small and sequences short, however often it is done.
    found = x * y
    return found % 997 if isinstance(found, int) else found[:5]
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
    start = ["a, b, c, xs, d, o = x, y, 3, [1, 2], {'k': 1}, Box(x)"]
    text = [PRELUDE, generate_scopes.PRELUDE]
    for name in FUNCTIONS:
        body = draw(block(DEPTH - 1))
        tail = [f"return {draw(expressions)}"]
        text += ["@calls", f"def {name}(x=1, y=2):", *_indent([*start, *body, *tail])]
    body: list[str] = []
    for _ in range(draw(st.integers(3, 6))):
        lines = draw(statement(DEPTH, False, True))
        if draw(st.integers(0, 4)):  # mostly, what one statement raises does not end the program
            lines = ["try:", *_indent(lines), "except Exception as e:", "    log.append(e)"]
        body += lines
    end = ["return [v for v in locals().items() if v[0] not in HIDDEN], log, G"]
    text += ["def main(x=0, y=5):", *_indent([*start, *body, *end])]
    return "\n".join(text) + "\n"
