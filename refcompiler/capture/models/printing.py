"""Objects as C code may print them, for ``%`` and ``str.format``: their texts are interpreted."""

from __future__ import annotations

import _string  # type: ignore[import-not-found]
from collections.abc import Iterable, Mapping, Sequence
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
    value = machine.shown(machine.force(value))
    kind = type(value)
    if any(machine.method_of(kind, name) is not UNSET for name in _TEXTS):
        if all(machine.method_of(kind, name) is UNSET for name in _NUMBERS):
            return Printed(machine, value)
    else:
        machine.check_printable(value)
    return value


def operand(machine: Any, value: Any) -> Any:
    """The right operand of ``text % value``."""
    if issubclass(type(value), tuple):
        return tuple([printed(machine, item) for item in tuple.__iter__(value)])
    if type(value) is dict:
        return {key: printed(machine, item) for key, item in value.items()}
    return printed(machine, value)


def arguments(
    machine: Any, text: str, args: Sequence, kwargs: Mapping
) -> tuple[str, list[Any], dict[str, Any]]:
    """What ``text.format(...)`` is called with: parts of arguments that it names are arguments."""
    fields = Fields(args, kwargs)
    try:
        text = fields.apart(text)
    except (ValueError, IndexError, KeyError):  # which C code raises as well
        fields.whole |= {*range(len(args)), *kwargs}
        fields.parts.clear()
    for name, (value, path) in fields.parts.items():
        for is_attribute, key in path:
            value = (machine.getattr if is_attribute else machine.getitem)(value, key)
        fields.parts[name] = value
    whole, given = fields.whole, {**kwargs, **fields.parts}
    return (
        text,
        [printed(machine, v) if i in whole else None for i, v in enumerate(args)],
        {name: printed(machine, v) if name in whole else None for name, v in given.items()},
    )


class Fields:
    """The fields of a format. ``parts``: of the arguments; ``whole``: which are named as such."""

    def __init__(self, args: Sequence, kwargs: Mapping):
        self.args = args
        self.kwargs = kwargs
        self.parts: dict[str, Any] = {}
        self.whole: set[int | str] = set()
        self.counted = 0  # fields without a number
        self.numbered = False

    def apart(self, text: str) -> str:
        """``text`` with a name of its own for each ``{0.part[1]}``."""
        pieces = []
        for literal, field, spec, conversion in _string.formatter_parser(text):
            pieces.append(literal.replace("{", "{{").replace("}", "}}"))
            if field is None:
                continue
            name = self.field(*_string.formatter_field_name_split(field))
            convert = f"!{conversion}" if conversion else ""
            pieces.append(f"{{{name}{convert}{':' + self.apart(spec) if spec else ''}}}")
        return "".join(pieces)

    def field(self, name: int | str, path: Iterable) -> int | str:
        if name == "":
            name, self.counted = self.counted, self.counted + 1
        elif type(name) is int:
            self.numbered = True
        if self.numbered and self.counted:
            raise ValueError("some fields have numbers and others have none")
        parts = list(path)
        if parts:
            value = self.args[name] if isinstance(name, int) else self.kwargs[name]
            name = f" {len(self.parts)}"  # which is no name of an argument
            self.parts[name] = value, parts
        self.whole.add(name)
        return name
