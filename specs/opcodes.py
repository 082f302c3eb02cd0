"""The opcodes of CPython: one row each, with its effect on the stack, meaning and an example.

Source: the documentation of ``dis`` (the sections are its sections) and CPython's ``ceval.c``. The
meanings are those of Python 3.11; 3.12 and 3.13 number, split and merge opcodes differently and
have no rows yet.
"""

from __future__ import annotations

from dataclasses import dataclass

from specs.table import Table

GENERAL = "General instructions"
UNARY = "Unary operations"
BINARY = "Binary and in-place operations"
COROUTINE = "Coroutine opcodes"
MISC = "Miscellaneous opcodes"

HANDLED = "handled"  # a handler of the interpreter runs it
DECODED = "decoded"  # the decoder folds it into what it serves, and no instruction is left
REFUSED = "refused"  # the interpreter says in one line that it does not run it


@dataclass(frozen=True)
class Opcode:
    """``stack`` is the top of the value stack before and after, right end on top; ``...`` is a run.

    ``example`` is a program in which the opcode occurs: the body of a function, or module text
    that defines ``main``. ``reason`` says why a row is not handled.
    """

    name: str
    section: str
    stack: str
    meaning: str
    example: str
    treatment: str = HANDLED
    reason: str | None = None
    versions: tuple[tuple[int, int], ...] = ((3, 11),)

    @property
    def program(self) -> str:
        """``example`` as module text that defines ``main``."""
        if "def main(" in self.example:
            return self.example
        return "def main():\n" + "".join(f"    {line}\n" for line in self.example.split("\n"))


OPCODES: Table[Opcode] = Table("Opcodes")


def _row(name: str, section: str, stack: str, meaning: str, example: str) -> None:
    OPCODES.add(Opcode(name, section, stack, meaning, example))


def _decoded(name: str, section: str, meaning: str, example: str, reason: str) -> None:
    OPCODES.add(Opcode(name, section, "--", meaning, example, DECODED, reason))


def _refused(name: str, stack: str, meaning: str, example: str) -> None:
    reason = "coroutines and asynchronous generators run natively, driven by their event loop"
    OPCODES.add(Opcode(name, COROUTINE, stack, meaning, example, REFUSED, reason))


# ---- general ---------------------------------------------------------------------------------

_decoded(
    "NOP",
    GENERAL,
    "Nothing: a line of source without code of its own.",
    "x = 1\ntry:\n    x += 1\nfinally:\n    x += 2\nreturn x",
    "it marks a line for debuggers only",
)
_row("POP_TOP", GENERAL, "a --", "Drop the top.", "xs = []\nxs.append(1)\nreturn xs")
_row("SWAP", GENERAL, "a ... b -- b ... a", "Exchange the top with the i-th.",
     "x = {'k': 1}\nx['k'] += 1\nreturn x")  # fmt: skip
_row("COPY", GENERAL, "a ... -- a ... a", "Push the i-th value once more.",
     "a = b = [1]\nreturn a is b")  # fmt: skip
_decoded(
    "CACHE",
    GENERAL,
    "Room for what the specialising interpreter remembers of the instruction before.",
    "return len('abc')",
    "it is never executed",
)

# ---- operators -------------------------------------------------------------------------------

_row("UNARY_POSITIVE", UNARY, "a -- r", "r = +a", "x = True\nreturn +x")
_row("UNARY_NEGATIVE", UNARY, "a -- r", "r = -a", "x = 3\nreturn -x")
_row("UNARY_NOT", UNARY, "a -- r", "r is whether a is false.", "x = []\nreturn not x")
_row("UNARY_INVERT", UNARY, "a -- r", "r = ~a", "x = 5\nreturn ~x")
_row("GET_ITER", UNARY, "a -- it", "it = iter(a)", "return [x for x in 'ab']")
_row("GET_YIELD_FROM_ITER", UNARY, "a -- it", "The same, but a generator stays itself.",
     "def g():\n    yield from [1, 2]\nreturn list(g())")  # fmt: skip
_row("BINARY_OP", BINARY, "a b -- r", "One of 13 operators, or its in-place form.",
     "a, b = 7, 2\na += b\nreturn a ** b // 3")  # fmt: skip
_row("BINARY_SUBSCR", BINARY, "a k -- r", "r = a[k]", "d = {'k': 5}\nreturn d['k']")
_row("STORE_SUBSCR", BINARY, "v a k --", "a[k] = v", "d = {}\nd['k'] = 1\nreturn d")
_row("DELETE_SUBSCR", BINARY, "a k --", "del a[k]", "d = {'k': 1}\ndel d['k']\nreturn d")

# ---- asynchronous code -----------------------------------------------------------------------

_SETTING = """
import asyncio
class C:
    async def __aenter__(self): return 1
    async def __aexit__(self, *args): return False
async def numbers():
    yield 1
async def run():
    async with C() as x:
        return [y async for y in numbers()], await asyncio.sleep(0), [y async for y in numbers()], x
async def loop():
    total = 0
    async for y in numbers():
        total += y
    return total
def main():
    return asyncio.run(run()), asyncio.run(loop())
"""
_refused("GET_AWAITABLE", "a -- aw", "The iterator that awaiting a drives.", _SETTING)
_refused("GET_AITER", "a -- ait", "ait = a.__aiter__()", _SETTING)
_refused("GET_ANEXT", "ait -- ait aw", "The awaitable of the next item.", _SETTING)
_refused("END_ASYNC_FOR", "aw error --", "Leave the loop at StopAsyncIteration.", _SETTING)
_refused("BEFORE_ASYNC_WITH", "m -- exit aw", "Look up __aexit__ and call __aenter__.", _SETTING)
_refused("ASYNC_GEN_WRAP", "v -- w", "Mark v as yielded by an asynchronous generator.", _SETTING)

# ---- statements ------------------------------------------------------------------------------

_row("PRINT_EXPR", MISC, "a --", "sys.displayhook(a): an expression at the prompt.",
     "exec(compile('1 + 1', 'p', 'single'))")  # fmt: skip
_row("RETURN_VALUE", MISC, "a --", "Return a from the frame.", "return 3")
_row("YIELD_VALUE", MISC, "a -- sent", "Suspend with a; on resumption what was sent is on top.",
     "def g():\n    x = yield 1\n    yield x\nit = g()\nreturn next(it), it.send(5)")  # fmt: skip
_row("SETUP_ANNOTATIONS", MISC, "--", "Make __annotations__ in the namespace if it is not there.",
     "class C:\n    x: int\nreturn C.__annotations__")  # fmt: skip
_row("IMPORT_STAR", MISC, "module --", "Put the module's public names into the namespace.",
     "from math import *\ndef main():\n    return floor(2.5)")  # fmt: skip
_row("IMPORT_NAME", MISC, "level names -- module", "Import; with names the submodule itself.",
     "import os.path\nreturn os.path.join('a', 'b')")  # fmt: skip
_row("IMPORT_FROM", MISC, "module -- module a", "The attribute, else the submodule of that name.",
     "from math import pi\nreturn pi")  # fmt: skip

# ---- exceptions ------------------------------------------------------------------------------

_TRY = "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    return str(e)"
_GROUP = (
    "try:\n    try:\n        raise ExceptionGroup('g', [ValueError(1), KeyError(2)])\n"
    "    except* ValueError as e:\n        return_ = e.exceptions\n"
    "except ExceptionGroup as rest:\n    return len(rest.exceptions), len(return_)"
)
_row("PUSH_EXC_INFO", MISC, "error -- handled error",
     "error is handled from now on; keep what was handled until now.", _TRY)  # fmt: skip
_row("POP_EXCEPT", MISC, "handled --", "What was handled before is handled again.", _TRY)
_row("CHECK_EXC_MATCH", MISC, "error kinds -- error r", "r is whether except kinds catches.", _TRY)
_row("CHECK_EG_MATCH", MISC, "error kinds -- rest match",
     "Split for except*: what kinds catch, and the rest; a None on top if nothing does.",
     _GROUP)  # fmt: skip
_row("PREP_RERAISE_STAR", MISC, "original errors -- error",
     "What is left to raise after the except* clauses, or None.", _GROUP)  # fmt: skip
_row("RAISE_VARARGS", MISC, "[error [cause]] --", "raise; raise error; raise error from cause.",
     "try:\n    raise KeyError(1) from ValueError(2)\n"
     "except KeyError as e:\n    return e")  # fmt: skip
_row("RERAISE", MISC, "error --", "Raise error again, its traceback as it is.",
     "try:\n    try:\n        1 / 0\n    except KeyError:\n        pass\n"
     "except ZeroDivisionError:\n    return 'through'")  # fmt: skip
_row("LOAD_ASSERTION_ERROR", MISC, "-- AssertionError", "Whatever the name means now.",
     "try:\n    assert not 1, 'm'\nexcept AssertionError as e:\n    return str(e)")  # fmt: skip
_WITH = (
    "import contextlib\nwith contextlib.suppress(ZeroDivisionError) as x:\n    1 / 0\n"
    "return x"
)  # fmt: skip
_row("BEFORE_WITH", MISC, "m -- exit a", "Look up __exit__ and push m.__enter__().", _WITH)
_row("WITH_EXCEPT_START", MISC, "exit lasti handled error -- exit lasti handled error r",
     "r = exit(type(error), error, its traceback)", _WITH)  # fmt: skip

# ---- names -----------------------------------------------------------------------------------

_CELL = "x = 1\ndef f():\n    nonlocal x\n    x += 1\n    return x\nreturn f(), x"
_CLASS = "y = 2\nclass C:\n    x = y\n    z = x\n    del x\nreturn C.z, hasattr(C, 'x')"
_row("LOAD_CONST", MISC, "-- a", "A constant of the code object.", "x = 1.5\nreturn x")
_row("LOAD_FAST", MISC, "-- a", "A local variable, or UnboundLocalError.", "x = 1\nreturn x")
_row("STORE_FAST", MISC, "a --", "Set a local variable.", "x = 1\nreturn x")
_row("DELETE_FAST", MISC, "--", "Unset a local variable, or UnboundLocalError.",
     "x = 1\ndel x\nreturn locals()")  # fmt: skip
_row("LOAD_NAME", MISC, "-- a", "The namespace's, else the global, else the builtin.", _CLASS)
_row("STORE_NAME", MISC, "a --", "Set a name in the namespace.", _CLASS)
_row("DELETE_NAME", MISC, "--", "Remove a name from the namespace, or NameError.", _CLASS)
_row("LOAD_GLOBAL", MISC, "-- [NULL] a", "The global, else the builtin; a NULL below for a call.",
     "return len('abc')")  # fmt: skip
_row("STORE_GLOBAL", MISC, "a --", "Set a global variable.",
     "def main():\n    global g\n    g = 1\n    return g")  # fmt: skip
_row("DELETE_GLOBAL", MISC, "--", "Remove a global variable, or NameError.",
     "def main():\n    global g\n    g = 1\n    del g\n    return 'g' in globals()")  # fmt: skip
_row("MAKE_CELL", MISC, "--", "Put a new cell in the slot, with the value that was there.", _CELL)
_row("LOAD_CLOSURE", MISC, "-- cell", "The cell itself, for the closure of a function.", _CELL)
_row("LOAD_DEREF", MISC, "-- a", "A cell's content, or NameError.", _CELL)
_row("STORE_DEREF", MISC, "a --", "Set a cell's content.", _CELL)
_row("DELETE_DEREF", MISC, "--", "Empty a cell, or NameError.",
     "x = 1\ndef f():\n    nonlocal x\n    del x\nf()\n"
     "try:\n    x\nexcept NameError as e:\n    return str(e)")  # fmt: skip
_row("LOAD_CLASSDEREF", MISC, "-- a", "In a class body: the namespace's, else the cell's.",
     "x = 1\nclass C:\n    y = x\nreturn C.y")  # fmt: skip
_row("COPY_FREE_VARS", MISC, "--", "Put the closure's cells into their slots.", _CELL)

# ---- attributes, items, containers -----------------------------------------------------------

_OBJECT = "class O: pass\no = O()\no.x = 1\nr = o.x\ndel o.x\nreturn r, vars(o)"
_row("LOAD_ATTR", MISC, "a -- r", "r = a.name", _OBJECT)
_row("STORE_ATTR", MISC, "v a --", "a.name = v", _OBJECT)
_row("DELETE_ATTR", MISC, "a --", "del a.name", _OBJECT)
_row("LOAD_METHOD", MISC, "a -- NULL r | f a", "Like LOAD_ATTR, for a call that follows.",
     "return 'a'.upper()")  # fmt: skip
_row("BUILD_TUPLE", MISC, "... -- t", "The count values on top as a tuple.",
     "a = 1\nreturn a, a")  # fmt: skip
_row("BUILD_LIST", MISC, "... -- l", "The same as a list.", "a = 1\nreturn [a, a]")
_row("BUILD_SET", MISC, "... -- s", "The same as a set.", "a = 1\nreturn {a, 2}")
_row("BUILD_MAP", MISC, "k v ... -- d", "Pairs as a dict.", "a = 1\nreturn {a: 2, 3: a}")
_row("BUILD_CONST_KEY_MAP", MISC, "v ... keys -- d", "Values and a tuple of keys as a dict.",
     "a = 1\nreturn {'x': a, 'y': 2}")  # fmt: skip
_row("BUILD_STRING", MISC, "... -- s", "Strings joined.", "a = 1\nreturn f'{a} and {a}'")
_row("BUILD_SLICE", MISC, "start stop [step] -- s", "slice(start, stop, step)",
     "i, xs = 1, [1, 2, 3, 4]\nreturn xs[i:3], xs[::i]")  # fmt: skip
_row("LIST_TO_TUPLE", MISC, "l -- t", "t = tuple(l)", "a = [1]\nreturn (*a, 2)")
_row("LIST_APPEND", MISC, "l ... a -- l ...", "Of a comprehension.", "return [x for x in 'ab']")
_row("SET_ADD", MISC, "s ... a -- s ...", "Of a comprehension.", "return {x for x in 'ab'}")
_row("MAP_ADD", MISC, "d ... k v -- d ...", "Of a comprehension.",
     "return {x: 1 for x in 'ab'}")  # fmt: skip
_row("LIST_EXTEND", MISC, "l ... a -- l ...", "Of a display: every item of a.",
     "a = (1, 2)\nreturn [0, *a]")  # fmt: skip
_row("SET_UPDATE", MISC, "s ... a -- s ...", "Of a display: every item of a.",
     "a = (1, 2)\nreturn {0, *a}")  # fmt: skip
_row("DICT_UPDATE", MISC, "d ... a -- d ...", "Of a display: later keys win.",
     "a = {'x': 1}\nreturn {'x': 0, **a}")  # fmt: skip
_row("DICT_MERGE", MISC, "f ... d ... a -- f ... d ...", "Of a call: no key may be given twice.",
     "a = {'x': 1}\nreturn dict(y=2, **a)")  # fmt: skip
_row("UNPACK_SEQUENCE", MISC, "a -- ...", "Exactly count items, the first on top.",
     "a, b = 'xy'\nreturn b, a")  # fmt: skip
_row("UNPACK_EX", MISC, "a -- ... l ...", "Items before and after a list of those between.",
     "a, *b, c = 'vwxyz'\nreturn a, b, c")  # fmt: skip
_row("CONTAINS_OP", MISC, "a b -- r", "a in b, or not in.", "x = 1\nreturn x in [1], x not in [1]")
_row("IS_OP", MISC, "a b -- r", "a is b, or is not.", "x = []\nreturn x is x, x is not None")
_row("COMPARE_OP", MISC, "a b -- r", "<, <=, ==, !=, > or >=; r may be any object.",
     "x = 1\nreturn x < 2, x != 1")  # fmt: skip

# ---- control flow ----------------------------------------------------------------------------

_NONE = "x = None\nn = 0\nwhile x is None:\n    n += 1\n    x = n if n > 2 else None\nreturn x"
_SOME = "x = 3\nwhile x is not None:\n    x = x - 1 if x else None\nreturn x"
_IF = "x = 1\nif x: r = 'yes'\nelse: r = 'no'\nif not x: r += '!'\nreturn r"
_row("JUMP_FORWARD", MISC, "--", "Go on at the target.",
     "x = 0\nfor i in 'ab':\n    try:\n        x += 1\n        y = 1 / (x - 1)\n"
     "    except ZeroDivisionError:\n        y = 0\n    else:\n        y = 5\n"
     "    x += y\nreturn x, [a or b for a in '' for b in '']")  # fmt: skip
_row("JUMP_BACKWARD", MISC, "--", "Go on at the target.",
     "n = 0\nfor i in 'abc':\n    n += 1\nreturn n")  # fmt: skip
_row("JUMP_BACKWARD_NO_INTERRUPT", MISC, "--", "The same, without looking for signals.",
     "def g():\n    yield from (1, 2)\nreturn list(g())")  # fmt: skip
_row("POP_JUMP_FORWARD_IF_FALSE", MISC, "a --", "Go on at the target if a is false.", _IF)
_row("POP_JUMP_FORWARD_IF_TRUE", MISC, "a --", "Go on at the target if a is true.", _IF)
_row("POP_JUMP_BACKWARD_IF_FALSE", MISC, "a --", "Go on at the target if a is false.",
     "return [x for x in range(5) if x % 2]")  # fmt: skip
_row("POP_JUMP_BACKWARD_IF_TRUE", MISC, "a --", "Go on at the target if a is true.",
     "n = 3\nwhile n:\n    n -= 1\nreturn n")  # fmt: skip
_row("POP_JUMP_FORWARD_IF_NONE", MISC, "a --", "Go on at the target if a is None.", _SOME)
_row("POP_JUMP_FORWARD_IF_NOT_NONE", MISC, "a --", "Go on at the target unless a is None.", _NONE)
_row("POP_JUMP_BACKWARD_IF_NONE", MISC, "a --", "Go on at the target if a is None.", _NONE)
_row("POP_JUMP_BACKWARD_IF_NOT_NONE", MISC, "a --", "Go on at the target unless a is None.", _SOME)
_row("JUMP_IF_FALSE_OR_POP", MISC, "a -- [a]", "Keep a false a and go on at the target.",
     "x = 0\nreturn x and 5")  # fmt: skip
_row("JUMP_IF_TRUE_OR_POP", MISC, "a -- [a]", "Keep a true a and go on at the target.",
     "x = 0\nreturn x or 5")  # fmt: skip
_row("FOR_ITER", MISC, "it -- [it a]", "The next item, or drop it and go on at the target.",
     "n = 0\nfor i in (1, 2):\n    n += i\nreturn n")  # fmt: skip

# ---- calls and functions ---------------------------------------------------------------------

_row("PUSH_NULL", MISC, "-- NULL", "The empty slot below a callable.", "f = len\nreturn f('ab')")
_row("CALL", MISC, "NULL f ... | f self ... -- r", "Call with count arguments.",
     "return max(1, 2)")  # fmt: skip
_row("KW_NAMES", MISC, "--", "The names of the last arguments of the call that follows.",
     "return dict(a=1)")  # fmt: skip
_row("CALL_FUNCTION_EX", MISC, "NULL f args [kwargs] -- r", "f(*args, **kwargs)",
     "a, k = (1,), {}\nreturn max(*a, 2, **k)")  # fmt: skip
_row("MAKE_FUNCTION", MISC, "[defaults] [kwdefaults] [annotations] [closure] code -- f",
     "A function; the argument's bits say what lies below the code.",
     "y = 1\ndef f(a: int, b=2, *, c=3):\n    return a, b, c, y\n"
     "return f(0), f.__annotations__")  # fmt: skip
_row("LOAD_BUILD_CLASS", MISC, "-- f", "What makes a class of its body.",
     "class C: pass\nreturn C.__name__")  # fmt: skip
_row("RETURN_GENERATOR", MISC, "-- None", "The call ends here with a generator of this frame.",
     "def g():\n    yield 1\nreturn list(g())")  # fmt: skip
_row("SEND", MISC, "it v -- it r", "Send v to it; at its end drop it for its value, and jump.",
     "def g():\n    yield from (1, 2)\nreturn list(g())")  # fmt: skip
_row("RESUME", MISC, "--", "A frame starts, or goes on after a yield.", "return 1")
_decoded(
    "PRECALL",
    MISC,
    "Prepares the call that follows for specialisation.",
    "return len('abc')",
    "CALL does the whole call",
)
_decoded(
    "EXTENDED_ARG",
    MISC,
    "More bits of the next instruction's argument.",
    "return [" + ", ".join(f"{i}, x" for i in range(300)) + "]\nx = 1",
    "the decoder adds the bits to the argument",
)

# ---- formatting and patterns -----------------------------------------------------------------

_MATCH = (
    "class P:\n    __match_args__ = 'x',\n    x = 1\nlog = []\n"
    "for v in (P(), [1, 2], {'k': 5}, 7):\n    match v:\n"
    "        case P(x): log.append(x)\n        case [a, *b]: log.append((a, b))\n"
    "        case {'k': k}: log.append(k)\n        case _: log.append('other')\nreturn log"
)
_row("FORMAT_VALUE", MISC, "a [spec] -- s", "format(a, spec), after str, repr or ascii if asked.",
     "x = 1.5\nreturn f'{x!r:>{5}}'")  # fmt: skip
_row("GET_LEN", MISC, "a -- a n", "n = len(a)", _MATCH)
_row("MATCH_MAPPING", MISC, "a -- a r", "r is whether a pattern may take a as a mapping.", _MATCH)
_row("MATCH_SEQUENCE", MISC, "a -- a r", "The same for a sequence: no str, bytes, bytearray.",
     _MATCH)  # fmt: skip
_row("MATCH_KEYS", MISC, "a keys -- a keys values", "The keys' values, or None if one is missing.",
     _MATCH)  # fmt: skip
_row("MATCH_CLASS", MISC, "a cls names -- values",
     "The attributes that a class pattern takes apart, or None.", _MATCH)  # fmt: skip


def markdown() -> str:
    """The chapter's table, for the documentation."""
    lines = ["| opcode | stack | meaning | |", "|---|---|---|---|"]
    section = ""
    for row in sorted(OPCODES, key=lambda r: r.section):
        if row.section != section:
            section = row.section
            lines.append(f"| **{section}** | | | |")
        note = "" if row.reason is None else f"{row.treatment}: {row.reason}"
        stack = row.stack.replace("|", "\\|")
        lines.append(f"| `{row.name}` | `{stack}` | {row.meaning} | {note} |")
    return "\n".join(lines) + "\n"
