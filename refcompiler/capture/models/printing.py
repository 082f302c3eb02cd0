"""Objects as C code may print them, for ``%`` and ``str.format``: their texts are interpreted."""

from __future__ import annotations

import string
from typing import Any

from refcompiler.capture.natively import interpreting
from refcompiler.interpreter.frame import UNSET

_TEXTS = ("__str__", "__repr__", "__format__")
_NUMBERS = ("__int__", "__index__", "__float__")


class Printed:
    """An object whose class has a text method of the user's."""

    __slots__ = ("machine", "value")

    def __init__(self, machine: Any, value: Any):
        self.machine = machine
        self.value = value

    def __str__(self) -> str:
        with interpreting():
            return self.machine.convert(self.value, 1)

    def __repr__(self) -> str:
        with interpreting():
            return self.machine.convert(self.value, 2)

    def __format__(self, spec: str) -> str:
        with interpreting():
            return self.machine.format(self.value, spec)


def printed(machine: Any, value: Any) -> Any:
    """``value`` as an argument of a text: itself, unless its text is Python of the user's."""
    value = machine.sizes.plain(machine.force(value))
    kind = type(value)
    if any(machine.method_of(kind, name) is not UNSET for name in _TEXTS):
        if all(machine.method_of(kind, name) is UNSET for name in _NUMBERS):
            return Printed(machine, value)
    else:
        machine.check_printable(value)
    return value


def operand(machine: Any, value: Any) -> Any:
    """The right operand of ``text % value``."""
    if type(value) is tuple:
        return tuple([printed(machine, item) for item in value])
    if type(value) is dict:
        return {key: printed(machine, item) for key, item in value.items()}
    return printed(machine, value)


def is_plain(text: str) -> bool:
    """A format whose fields only name their arguments, without parts of them."""
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(text) if field]
    except ValueError:
        return False
    return not any("." in field or "[" in field for field in fields)
