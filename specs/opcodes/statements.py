"""Rows of statements and of exceptions."""

from __future__ import annotations

from specs.opcodes.row import (
    MISC,
    ONLY_311,
    SINCE_312,
    Chapter,
)

ROWS = Chapter()
decoded, handled = ROWS.decoded, ROWS.handled

# ---- statements --------------------------------------------------------------------------------

handled("PRINT_EXPR", MISC, "a --", "sys.displayhook(a): an expression at the prompt.",
     "exec(compile('1 + 1', 'p', 'single'))", ONLY_311)  # fmt: skip
handled("RETURN_VALUE", MISC, "a --", "Return a from the frame.", "x = 3\nreturn x")
decoded("RETURN_CONST", MISC, "--", "Return a constant.", "return 3",
        "the decoder writes LOAD_CONST and RETURN_VALUE", SINCE_312)  # fmt: skip
handled("YIELD_VALUE", MISC, "a -- sent", "Suspend with a; then what was sent is on top.",
     "def g():\n    x = yield 1\n    yield x\nit = g()\nreturn next(it), it.send(5)")  # fmt: skip
handled("SETUP_ANNOTATIONS", MISC, "--", "Make __annotations__ in the namespace if it has none.",
     "class C:\n    x: int\nreturn C.__annotations__")  # fmt: skip
handled("IMPORT_STAR", MISC, "module --", "Put the module's public names into the namespace.",
     "from math import *\ndef main():\n    return floor(2.5)", ONLY_311)  # fmt: skip
handled("IMPORT_NAME", MISC, "level names -- module", "Import; with names the submodule itself.",
     "import os.path\nreturn os.path.join('a', 'b')")  # fmt: skip
handled("IMPORT_FROM", MISC, "module -- module a", "The attribute, else a submodule of that name.",
     "from math import pi\nreturn pi")  # fmt: skip

# ---- exceptions --------------------------------------------------------------------------------

_TRY = "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    return str(e)"
_GROUP = (
    "try:\n    try:\n        raise ExceptionGroup('g', [ValueError(1), KeyError(2)])\n"
    "    except* ValueError as e:\n        return_ = e.exceptions\n"
    "except ExceptionGroup as rest:\n    return len(rest.exceptions), len(return_)"
)
handled("PUSH_EXC_INFO", MISC, "error -- handled error",
     "error is handled from now on; keep what was handled until now.", _TRY)  # fmt: skip
handled("POP_EXCEPT", MISC, "handled --", "What was handled before is handled again.", _TRY)
handled(
    "CHECK_EXC_MATCH", MISC, "error kinds -- error r", "r is whether except kinds catches.", _TRY
)
handled("CHECK_EG_MATCH", MISC, "error kinds -- rest match",
     "Split for except*: what kinds catch, and the rest; a None on top if nothing does.",
     _GROUP)  # fmt: skip
handled("PREP_RERAISE_STAR", MISC, "original errors -- error",
     "What is left to raise after the except* clauses, or None.", _GROUP, ONLY_311)  # fmt: skip
handled("RAISE_VARARGS", MISC, "[error [cause]] --", "raise; raise error; raise error from cause.",
     "try:\n    raise KeyError(1) from ValueError(2)\n"
     "except KeyError as e:\n    return e")  # fmt: skip
handled("RERAISE", MISC, "error --", "Raise error again, its traceback as it is.",
     "try:\n    try:\n        1 / 0\n    except KeyError:\n        pass\n"
     "except ZeroDivisionError:\n    return 'through'")  # fmt: skip
handled("LOAD_ASSERTION_ERROR", MISC, "-- AssertionError", "Whatever the name means now.",
     "try:\n    assert not 1, 'm'\nexcept AssertionError as e:\n    return str(e)")  # fmt: skip
_WITH = (
    "import contextlib\nwith contextlib.suppress(ZeroDivisionError) as x:\n    1 / 0\n"
    "return x"
)  # fmt: skip
handled("BEFORE_WITH", MISC, "m -- exit a", "Look up __exit__ and push m.__enter__().", _WITH)
handled("WITH_EXCEPT_START", MISC, "exit lasti handled error -- exit lasti handled error r",
     "r = exit(type(error), error, its traceback)", _WITH)  # fmt: skip
