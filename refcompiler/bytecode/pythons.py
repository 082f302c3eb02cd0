"""Which Pythons the interpreter runs, asked before anything of it is imported.

What a new Python needs, in the order in which the tests of opcodes ask for it:

- ``specs/opcodes/row.py``: its name among the versions; rows for opcodes that are new, gone or mean
  something else, and for intrinsic functions. Example programs in which they occur.
- ``bytecode/forms.py``: its forms, those of the version before with the differences, and what its
  instructions take with them. A handler only for what is new in meaning.
- ``interpreter``: a row in ``variables.py`` where ``locals()`` answers otherwise, and the places
  where frame objects and generators stand (``_BEHIND`` in ``tracebacks.py``, ``_MADE_BEFORE`` in
  ``frames.py``).
- ``setup.py``, ``tox.ini``, and a table of ``tests/slow/cpython/reasons.toml``.

For 3.14 these are, by CPython's list of its bytecode changes: ``LOAD_SMALL_INT``,
``LOAD_FAST_BORROW`` and its pair, ``LOAD_COMMON_CONSTANT`` (for ``LOAD_ASSERTION_ERROR``),
``LOAD_SPECIAL`` (for ``BEFORE_WITH`` and ``BEFORE_ASYNC_WITH``), ``BUILD_TEMPLATE`` and
``BUILD_INTERPOLATION``, ``NOT_TAKEN`` and ``POP_ITER``; ``BINARY_OP`` subscribes; ``RETURN_CONST``
and ``BUILD_CONST_KEY_MAP`` are gone; annotations are a function of their own.
"""

from __future__ import annotations

import sysconfig

from refcompiler.bytecode.forms import KNOWN, RUNNING
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def unsupported() -> str | None:
    """Why the interpreter cannot run on this Python, in one line; None if it can."""
    found = f"{RUNNING[0]}.{RUNNING[1]}"
    if RUNNING not in KNOWN:
        *versions, last = [f"{major}.{minor}" for major, minor in sorted(KNOWN)]
        return (
            f"the interpreter of this release runs the bytecode of Python {', '.join(versions)} "
            f"and {last}, not that of {found}: use one of those"
        )
    if FREE_THREADED:
        return (
            "the interpreter needs Python's global lock, which this free-threaded build is made "
            f"without: use the ordinary Python {found}"
        )
    return None
