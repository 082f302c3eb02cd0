"""The frame: what one activation of a code object knows."""

from __future__ import annotations

from types import CodeType
from typing import Any

from refcompiler.bytecode.decode import Program
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS


class _Marker:
    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return self.name


UNSET: Any = _Marker("UNSET")  # a local variable without a value
NULL: Any = _Marker("NULL")  # the stack's empty callable slot
CALLED: Any = _Marker("CALLED")  # answer of a call that pushed a frame


def is_mark(value: Any) -> bool:
    """Whether ``value`` may lie on a stack without being a value of the program.

    UNSET does from 3.12 on, where the variable of a comprehension hides nothing.
    """
    return value is NULL or value is UNSET


class Frame:
    """One activation. ``fast`` holds locals, cells and free variables in CPython's order.

    ``back`` is the caller in the same run, ``on_return`` names what happens to the value there
    (:data:`refcompiler.interpreter.machine.RETURNS`), with ``extra`` as its argument.
    """

    __slots__ = (
        "program",
        "ops",
        "values",
        "globals",
        "builtins",
        "mapping",
        "fast",
        "stack",
        "ip",
        "back",
        "on_return",
        "extra",
        "kwnames",
        "function",
        "depth",
        "snapshot",
        "view",
        "trace",
        "__weakref__",
    )

    def __init__(
        self,
        program: Program,
        globals_: dict,
        builtins: dict,
        back: Frame | None,
        fast: list[Any] | None = None,
    ):
        self.program = program
        self.ops = program.ops
        self.values = program.values
        self.globals = globals_
        self.builtins = builtins
        self.mapping: Any = None  # the namespace of a class body or module; None in a function
        self.fast: list[Any] = [UNSET] * len(program.names) if fast is None else fast
        self.stack: list[Any] = []
        self.ip = 0
        self.back = back
        self.on_return = "push"
        self.extra: Any = None
        self.kwnames: tuple[str, ...] = ()
        self.function: Any = None
        self.depth = 0  # interpreted frames below this one
        self.snapshot: Any = None  # the dict that locals() gave out
        self.view: Any = None  # a weak reference to its frame object
        self.trace: Any = None  # see refcompiler.interpreter.tracing

    @property
    def code(self) -> CodeType:
        return self.program.code

    @property
    def line(self) -> int:
        """The line of the instruction that runs (``ip`` is already past it)."""
        return self.program.line_at(max(self.ip - 1, 0))

    @property
    def visible(self) -> Frame:
        """This frame, or the one that the helper runs for whose frame this is."""
        frame = self
        while frame.program.hidden and frame.back is not None:
            frame = frame.back
        return frame

    def __repr__(self) -> str:
        return f"<frame of {self.code.co_qualname} at {self.code.co_filename}:{self.line}>"
