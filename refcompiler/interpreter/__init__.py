"""CPython's bytecode in Python. In: a frame. Out: its value, its exception, or a signal.

One set of opcode handlers (``handlers_*``) serves every domain. A domain is a subclass of
:class:`~refcompiler.interpreter.machine.Machine`: the machine itself is the concrete domain
(plain CPython semantics); capture overrides its hooks.
"""

from refcompiler.bytecode.pythons import unsupported
from refcompiler.errors import UnsupportedError

if complaint := unsupported():  # modules of this package look instructions up by their names
    raise UnsupportedError(complaint)

from refcompiler.interpreter import (
    handlers_blocks,
    handlers_flow,
    handlers_generators,
    handlers_intrinsics,
    handlers_stack,
)

__all__ = [
    "handlers_blocks",
    "handlers_flow",
    "handlers_generators",
    "handlers_intrinsics",
    "handlers_stack",
]
