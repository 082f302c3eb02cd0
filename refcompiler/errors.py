"""The errors of the front end, named for what they mean.

The user's own exceptions are never wrapped: they come out as eager raises them.
"""

from __future__ import annotations


class RefcompilerError(RuntimeError):
    """Base of every error that this project raises on its own account.

    A ``RuntimeError``, as the errors of ``torch.compile`` are.
    """


class GraphBreakError(RefcompilerError):
    """A graph break where none is allowed (``fullgraph=True``): reason, place, hint."""


class UnsupportedError(RefcompilerError):
    """Input that cannot be handled; the message says what to do instead."""


class BackendError(RefcompilerError):
    """A backend raised, or returned something that is not what the contract promises."""


class ConstraintViolationError(RefcompilerError):
    """A dimension that was marked dynamic cannot be: the place of the mark, and why."""


class RecompileError(RefcompilerError):
    """A recompile where none is allowed: the guard that failed, and which setting forbids it."""


class PackageError(RefcompilerError):
    """A package of a compiled program that cannot be loaded here: damaged, or made for another
    program, version or processor."""


class GuardWarning(RuntimeWarning):
    """A program runs uncompiled, because the guards of what was just compiled for it do not hold.

    Its results are right. Please report it with the script that shows it.
    """


class InternalError(RefcompilerError):
    """Cannot happen. Please report it with the script that shows it."""

    def __init__(self, message: str):
        super().__init__(f"internal error (please report it): {message}")
