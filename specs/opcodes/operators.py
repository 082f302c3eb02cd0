"""Rows of moving values and of operators."""

from __future__ import annotations

from specs.opcodes.row import (
    BINARY,
    GENERAL,
    ONLY_311,
    SINCE_312,
    SINCE_313,
    UNARY,
    UNTIL_312,
    Chapter,
)

ROWS = Chapter()
decoded, handled = ROWS.decoded, ROWS.handled

# ---- general -----------------------------------------------------------------------------------

decoded(
    "NOP",
    GENERAL,
    "--",
    "Nothing: a line of source without code of its own.",
    "x = 1\ntry:\n    x += 1\nfinally:\n    x += 2\nreturn x",
    "it marks a line for debuggers only",
)
handled("POP_TOP", GENERAL, "a --", "Drop the top.", "xs = []\nxs.append(1)\nreturn xs")
handled("SWAP", GENERAL, "a ... b -- b ... a", "Exchange the top with the i-th.",
     "x = {'k': 1}\nx['k'] += 1\nreturn x")  # fmt: skip
handled("COPY", GENERAL, "a ... -- a ... a", "Push the i-th value once more.",
     "a = b = [1]\nreturn a is b")  # fmt: skip
decoded(
    "CACHE",
    GENERAL,
    "--",
    "Room for what the specialising interpreter remembers of the instruction before.",
    "return len('abc')",
    "it is never executed",
)

# ---- operators ---------------------------------------------------------------------------------

handled("UNARY_POSITIVE", UNARY, "a -- r", "r = +a", "x = True\nreturn +x", ONLY_311)
handled("UNARY_NEGATIVE", UNARY, "a -- r", "r = -a", "x = 3\nreturn -x")
_NOT = "x = []\nreturn not x"
handled("UNARY_NOT", UNARY, "a -- r", "r is whether a is false.", _NOT, UNTIL_312)
handled("UNARY_NOT", UNARY, "a -- r", "The same of a bool: a TO_BOOL comes first.", _NOT, SINCE_313)
handled("TO_BOOL", UNARY, "a -- r", "r = bool(a); left out before a test, which asks itself.",
        "x = []\nreturn not not x", SINCE_313)  # fmt: skip
handled("UNARY_INVERT", UNARY, "a -- r", "r = ~a", "x = 5\nreturn ~x")
handled("GET_ITER", UNARY, "a -- it", "it = iter(a)", "return [x for x in 'ab']")
handled("GET_YIELD_FROM_ITER", UNARY, "a -- it", "The same, but a generator stays itself.",
     "def g():\n    yield from [1, 2]\nreturn list(g())")  # fmt: skip
handled("BINARY_OP", BINARY, "a b -- r", "One of 13 operators, or its in-place form.",
     "a, b = 7, 2\na += b\nreturn a ** b // 3")  # fmt: skip
handled("BINARY_SUBSCR", BINARY, "a k -- r", "r = a[k]", "d = {'k': 5}\nreturn d['k']")
_SLICE = "xs = [1, 2, 3]\nxs[1:2] = xs[:1]\nreturn xs"
_AS_SLICE = "the decoder writes BUILD_SLICE and the subscript"
decoded("BINARY_SLICE", BINARY, "a start stop -- r", "r = a[start:stop]", _SLICE,
        _AS_SLICE, SINCE_312)  # fmt: skip
decoded("STORE_SLICE", BINARY, "v a start stop --", "a[start:stop] = v", _SLICE,
        _AS_SLICE, SINCE_312)  # fmt: skip
handled("STORE_SUBSCR", BINARY, "v a k --", "a[k] = v", "d = {}\nd['k'] = 1\nreturn d")
handled("DELETE_SUBSCR", BINARY, "a k --", "del a[k]", "d = {'k': 1}\ndel d['k']\nreturn d")
