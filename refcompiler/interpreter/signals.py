"""What leaves the interpreter without being the program's."""

from __future__ import annotations


class Signal(BaseException):
    """Leaves the interpreter; never visible to the user's ``except`` clauses."""
