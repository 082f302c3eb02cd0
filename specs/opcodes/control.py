"""Rows of jumps, loops, calls and functions."""

from __future__ import annotations

from specs.opcodes.row import (
    MISC,
    ONLY_311,
    ONLY_312,
    SINCE_312,
    SINCE_313,
    UNTIL_312,
    Chapter,
)

ROWS = Chapter()
decoded, handled = ROWS.decoded, ROWS.handled

# ---- control flow ------------------------------------------------------------------------------

_NONE = "x = None\nn = 0\nwhile x is None:\n    n += 1\n    x = n if n > 2 else None\nreturn x"
_SOME = "x = 3\nwhile x is not None:\n    x = x - 1 if x else None\nreturn x"
_IF = "x = 1\nif x: r = 'yes'\nelse: r = 'no'\nif not x: r += '!'\nreturn r"
handled("JUMP_FORWARD", MISC, "--", "Go on at the target.",
        "n = 0\nfor i in (0, 1):\n    if i:\n        n += 1\n    else:\n        n += 2\n"
        "    n *= 2\n    n -= 1\nreturn n")  # fmt: skip
handled("JUMP_BACKWARD", MISC, "--", "Go on at the target.",
     "n = 0\nfor i in 'abc':\n    n += 1\nreturn n")  # fmt: skip
_FROM = "def g():\n    yield from (1, 2)\nreturn list(g())"
decoded("JUMP_BACKWARD_NO_INTERRUPT", MISC, "--", "The same, without looking for signals.", _FROM,
        "it closes the loop of a SEND; elsewhere it is a JUMP_BACKWARD")  # fmt: skip
handled(
    "POP_JUMP_FORWARD_IF_FALSE", MISC, "a --", "Go on at the target if a is false.", _IF, ONLY_311
)
handled(
    "POP_JUMP_FORWARD_IF_TRUE", MISC, "a --", "Go on at the target if a is true.", _IF, ONLY_311
)
handled("POP_JUMP_BACKWARD_IF_FALSE", MISC, "a --", "Go on at the target if a is false.",
     "return [x for x in range(5) if x % 2]", ONLY_311)  # fmt: skip
handled("POP_JUMP_BACKWARD_IF_TRUE", MISC, "a --", "Go on at the target if a is true.",
     "n = 3\nwhile n:\n    n -= 1\nreturn n", ONLY_311)  # fmt: skip
handled(
    "POP_JUMP_FORWARD_IF_NONE", MISC, "a --", "Go on at the target if a is None.", _SOME, ONLY_311
)
handled(
    "POP_JUMP_FORWARD_IF_NOT_NONE",
    MISC,
    "a --",
    "Go on at the target unless a is None.",
    _NONE,
    ONLY_311,
)
handled(
    "POP_JUMP_BACKWARD_IF_NONE", MISC, "a --", "Go on at the target if a is None.", _NONE, ONLY_311
)
handled(
    "POP_JUMP_BACKWARD_IF_NOT_NONE",
    MISC,
    "a --",
    "Go on at the target unless a is None.",
    _SOME,
    ONLY_311,
)
_TEST = "Go on at the target if a is {}."
handled("POP_JUMP_IF_FALSE", MISC, "a --", _TEST.format("false"), _IF, ONLY_312)
handled("POP_JUMP_IF_TRUE", MISC, "a --", _TEST.format("true"), _IF, ONLY_312)
handled("POP_JUMP_IF_FALSE", MISC, "a --", _TEST.format("False; a is a bool"), _IF, SINCE_313)
handled("POP_JUMP_IF_TRUE", MISC, "a --", _TEST.format("True; a is a bool"), _IF, SINCE_313)
handled("POP_JUMP_IF_NONE", MISC, "a --", _TEST.format("None"), _SOME, SINCE_312)
handled("POP_JUMP_IF_NOT_NONE", MISC, "a --", _TEST.format("not None"), _NONE, SINCE_312)
handled("JUMP_IF_FALSE_OR_POP", MISC, "a -- [a]", "Keep a false a and go on at the target.",
     "x = 0\nreturn x and 5", ONLY_311)  # fmt: skip
handled("JUMP_IF_TRUE_OR_POP", MISC, "a -- [a]", "Keep a true a and go on at the target.",
     "x = 0\nreturn x or 5", ONLY_311)  # fmt: skip
_FOR = "n = 0\nfor i in (1, 2):\n    n += i\nreturn n"
handled("FOR_ITER", MISC, "it -- [it a]", "The next item, or drop it and go on at the target.",
        _FOR, ONLY_311)  # fmt: skip
handled("FOR_ITER", MISC, "it -- [it a]", "The same; it goes on after the END_FOR at the target.",
        _FOR, SINCE_312)  # fmt: skip
_DROPPED = "FOR_ITER drops the iterator, and nothing else leads there"
decoded("END_FOR", MISC, "it a --", "The end of a loop.", _FOR, _DROPPED, ONLY_312)
decoded("END_FOR", MISC, "a --", "The end of a loop; a POP_TOP drops the iterator after it.", _FOR,
        _DROPPED, SINCE_313)  # fmt: skip

# ---- calls and functions -----------------------------------------------------------------------

_CALL = "f = max\nreturn f(1, 2)"
handled("PUSH_NULL", MISC, "-- NULL", "The empty slot below a callable.", _CALL, UNTIL_312)
handled("PUSH_NULL", MISC, "f -- f NULL", "The empty slot above it, which we keep below.", _CALL,
        SINCE_313)  # fmt: skip
handled("CALL", MISC, "NULL f ... | f self ... -- r", "Call with count arguments.", _CALL,
        UNTIL_312)  # fmt: skip
handled("CALL", MISC, "f NULL ... | f self ... -- r", "Call with count arguments.", _CALL,
        SINCE_313)  # fmt: skip
handled("KW_NAMES", MISC, "--", "The names of the last arguments of the call that follows.",
        "return dict(a=1)", UNTIL_312)  # fmt: skip
handled("CALL_KW", MISC, "f NULL ... names -- r", "Call; names are those of the last arguments.",
        "return dict(a=1)", SINCE_313)  # fmt: skip
_EX = "a, k = (1,), {}\nreturn max(*a, 2, **k)"
handled("CALL_FUNCTION_EX", MISC, "NULL f args [kwargs] -- r", "f(*args, **kwargs)", _EX, UNTIL_312)
handled("CALL_FUNCTION_EX", MISC, "f NULL args [kwargs] -- r", "f(*args, **kwargs)", _EX,
        SINCE_313)  # fmt: skip
_DEF = "y = 1\ndef f(a: int, b=2, *, c=3):\n    return a, b, c, y\nreturn f(0), f.__annotations__"
handled("MAKE_FUNCTION", MISC, "[defaults] [kwdefaults] [annotations] [closure] code -- f",
     "A function; the argument's bits say what lies below the code.",
        _DEF, UNTIL_312)  # fmt: skip
handled("MAKE_FUNCTION", MISC, "code -- f", "A function; what follows adds to it.", _DEF,
        SINCE_313)  # fmt: skip
decoded("SET_FUNCTION_ATTRIBUTE", MISC, "a f -- f",
        "Give a function its defaults, annotations or closure.", _DEF,
        "the decoder writes one MAKE_FUNCTION, with all that lies below the code",
        SINCE_313)  # fmt: skip
handled("LOAD_BUILD_CLASS", MISC, "-- f", "What makes a class of its body.",
     "class C: pass\nreturn C.__name__")  # fmt: skip
handled("RETURN_GENERATOR", MISC, "-- None", "The call ends here with a generator of this frame.",
     "def g():\n    yield 1\nreturn list(g())")  # fmt: skip
handled("SEND", MISC, "it None -- r",
        "Delegate to it, whatever is sent or thrown; its value when it ends.", _FROM)  # fmt: skip
decoded("END_SEND", MISC, "it r -- r", "Drop an iterator that has ended.", _FROM,
        "SEND has dropped it", SINCE_312)  # fmt: skip
decoded("CLEANUP_THROW", MISC, "it sent error -- None r",
        "What came out of an iterator that an error was thrown into; the value of its end.",
        "def h():\n    yield 1\ndef g():\n    try:\n        yield from h()\n"
        "    except KeyError as e:\n        yield e\n"
        "it = g()\nreturn next(it), it.throw(KeyError(3))",
        "SEND stands for the whole delegation", SINCE_312)  # fmt: skip
handled("RESUME", MISC, "--", "A frame starts, or goes on after a yield.", "return 1")
decoded(
    "PRECALL",
    MISC,
    "--",
    "Prepares the call that follows for specialisation.",
    "return len('abc')",
    "CALL does the whole call",
    ONLY_311,
)
decoded(
    "EXTENDED_ARG",
    MISC,
    "--",
    "More bits of the next instruction's argument.",
    "return [" + ", ".join(f"{i}, x" for i in range(300)) + "]\nx = 1",
    "the decoder adds the bits to the argument",
)
_INTRINSIC = (
    "a = [1]\ndef f[T](x: T) -> T:\n    return x\nreturn (+a[0], *a), f(3), str(f.__type_params__)"
)
_WRITTEN = "the decoder writes the function that it names (see the intrinsic functions)"
decoded("CALL_INTRINSIC_1", MISC, "a -- r", "A function of one operand within the interpreter.",
        _INTRINSIC, _WRITTEN, SINCE_312)  # fmt: skip
decoded("CALL_INTRINSIC_2", MISC, "a b -- r", "A function of two operands.", _INTRINSIC, _WRITTEN,
        SINCE_312)  # fmt: skip
