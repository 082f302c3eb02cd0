"""Rows of variables: local, global, in cells and in namespaces."""

from __future__ import annotations

from specs.opcodes.row import (
    MISC,
    ONLY_311,
    SINCE_312,
    SINCE_313,
    UNTIL_312,
    Chapter,
)

ROWS = Chapter()
decoded, handled = ROWS.decoded, ROWS.handled

# ---- names -------------------------------------------------------------------------------------

_CELL = "x = 1\ndef f():\n    nonlocal x\n    x += 1\n    return x\nreturn f(), x"
_CLASS = "y = 2\nclass C:\n    x = y\n    z = x\n    del x\nreturn C.z, hasattr(C, 'x')"
handled("LOAD_CONST", MISC, "-- a", "A constant of the code object.", "x = 1.5\nreturn x")
_FAST = "x = 1\nif x:\n    return x"
handled("LOAD_FAST", MISC, "-- a", "A local variable, or UnboundLocalError.", _FAST, ONLY_311)
handled("LOAD_FAST", MISC, "-- a", "A local variable that has a value, or its cell.",
        "def main(x=1):\n    return x", SINCE_312)  # fmt: skip
handled("LOAD_FAST_CHECK", MISC, "-- a", "A local variable, or UnboundLocalError.",
        "x = 1\nif x > 1:\n    del x\nreturn x", SINCE_312)  # fmt: skip
handled("LOAD_FAST_AND_CLEAR", MISC, "-- a | NULL",
        "Take a local variable's value, if any, before a comprehension uses the name.",
        "x = 1\ny = [x for x in 'ab']\nreturn x, y", SINCE_312)  # fmt: skip
handled("STORE_FAST", MISC, "a --", "Set a local variable, or unset it with a NULL (3.12).", _FAST)
_TWO = "a, b = 1, [2]\nc = a, b\nreturn [x for x in (a, b)], c"
_SPLIT = "the decoder writes its two halves"
decoded("LOAD_FAST_LOAD_FAST", MISC, "-- a b", "Two local variables.", _TWO, _SPLIT, SINCE_313)
decoded(
    "STORE_FAST_LOAD_FAST", MISC, "a -- b", "Set one and load another.", _TWO, _SPLIT, SINCE_313
)
decoded(
    "STORE_FAST_STORE_FAST", MISC, "b a --", "Set two local variables.", _TWO, _SPLIT, SINCE_313
)
handled("DELETE_FAST", MISC, "--", "Unset a local variable, or UnboundLocalError.",
     "x = 1\ndel x\nreturn locals()")  # fmt: skip
handled("LOAD_NAME", MISC, "-- a", "The namespace's, else the global, else the builtin.", _CLASS)
handled("STORE_NAME", MISC, "a --", "Set a name in the namespace.", _CLASS)
handled("DELETE_NAME", MISC, "--", "Remove a name from the namespace, or NameError.", _CLASS)
handled("LOAD_GLOBAL", MISC, "-- [NULL] a", "The global, else the builtin; for a call a NULL.",
        "return len('abc')", UNTIL_312)  # fmt: skip
handled("LOAD_GLOBAL", MISC, "-- a [NULL]", "The same, the NULL above; for us it lies below.",
        "return len('abc')", SINCE_313)  # fmt: skip
handled("STORE_GLOBAL", MISC, "a --", "Set a global variable.",
     "def main():\n    global g\n    g = 1\n    return g")  # fmt: skip
handled("DELETE_GLOBAL", MISC, "--", "Remove a global variable, or NameError.",
     "def main():\n    global g\n    g = 1\n    del g\n    return 'g' in globals()")  # fmt: skip
handled(
    "MAKE_CELL", MISC, "--", "Put a new cell in the slot, with the value that was there.", _CELL
)
handled("LOAD_CLOSURE", MISC, "-- cell", "The cell itself, for the closure of a function.", _CELL,
        UNTIL_312)  # fmt: skip
handled("LOAD_DEREF", MISC, "-- a", "A cell's content, or NameError.", _CELL)
handled("STORE_DEREF", MISC, "a --", "Set a cell's content.", _CELL)
handled("DELETE_DEREF", MISC, "--", "Empty a cell, or NameError.",
     "x = 1\ndef f():\n    nonlocal x\n    del x\nf()\n"
     "try:\n    x\nexcept NameError as e:\n    return str(e)")  # fmt: skip
_IN_CLASS = "x = 1\nclass C:\n    y = x\nreturn C.y"
handled("LOAD_CLASSDEREF", MISC, "-- a", "In a class body: the namespace's, else the cell's.",
     _IN_CLASS, ONLY_311)  # fmt: skip
handled("COPY_FREE_VARS", MISC, "--", "Put the closure's cells into their slots.", _CELL)
handled("LOAD_LOCALS", MISC, "-- d", "The namespace of a class body or a module.", _IN_CLASS,
        SINCE_312)  # fmt: skip
handled("LOAD_FROM_DICT_OR_DEREF", MISC, "d -- a", "The namespace's, else the cell's.", _IN_CLASS,
        SINCE_312)  # fmt: skip
handled("LOAD_FROM_DICT_OR_GLOBALS", MISC, "d -- a",
        "The namespace's, else the global, else the builtin: for type parameters in a class.",
        "class C:\n    def f[T](self, x: int): pass\nreturn C.f.__annotations__",
        SINCE_312)  # fmt: skip
