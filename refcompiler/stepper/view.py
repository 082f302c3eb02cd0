"""A frame before an instruction, as text. No code of the program runs to make it."""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from refcompiler.interpreter.frame import NULL, UNSET, Frame
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

#: Types whose ``repr`` is known to run nothing of the program.
_PLAIN = (int, float, complex, bool, str, bytes, bytearray, range, type(None), type(...), slice)
_BRACKETS: dict[type, Sequence[str]] = {
    list: "[]",
    tuple: "()",
    set: "{}",
    frozenset: ("frozenset({", "})"),
    dict: "{}",
}
_ITEMS = 6  # of a container that are shown
_DEPTH = 3
_LENGTH = 60


def shown(value: Any, depth: int = 0) -> str:
    """``value`` in at most some sixty characters; a ``repr`` of the program's is not called."""
    kind = type(value)
    if value is NULL or value is UNSET:
        text = "NULL" if value is NULL else "-"
    elif kind in _PLAIN:
        text = repr(value) if kind is not int or value.bit_length() < 4000 else "<a large int>"
    elif kind in _BRACKETS:
        text = _container(value, depth)
    elif kind is CellType:
        text = f"cell({shown(contents(value), depth)})"
    elif kind is MethodType:
        text = f"<method {shown(value.__func__)[1:-1].partition(' ')[2]}>"
    elif kind in (FunctionType, BuiltinFunctionType):
        text = f"<function {value.__qualname__}>"
    elif kind is CodeType:
        text = f"<code {value.co_qualname}>"
    elif kind is ModuleType:
        text = f"<module {vars(value).get('__name__')}>"
    elif issubclass(kind, type):
        text = f"<class {type.__getattribute__(value, '__qualname__')}>"
    elif issubclass(kind, BaseException):
        inside = ", ".join(shown(a, depth + 1) for a in BaseException.args.__get__(value))  # type: ignore[attr-defined]
        text = f"{kind.__name__}({inside})"
    else:
        text = f"<{kind.__name__}>"
    return text if len(text) <= _LENGTH else text[: _LENGTH - 3] + "..."


def _container(value: Any, depth: int) -> str:
    opened, closed = _BRACKETS[type(value)]
    if depth >= _DEPTH:
        return f"{opened}...{closed}"
    parts: list[str] = []
    for item in value:
        if len(parts) == _ITEMS:
            parts.append("...")
            break
        text = shown(item, depth + 1)
        parts.append(f"{text}: {shown(value[item], depth + 1)}" if type(value) is dict else text)
    if type(value) is tuple and len(value) == 1:
        return f"({parts[0]},)"
    if type(value) is set and not value:
        return "set()"
    return opened + ", ".join(parts) + closed


def contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return UNSET


@dataclass(frozen=True)
class Line:
    """One instruction of the listing."""

    index: int
    offset: int
    name: str
    argument: str
    current: bool

    def __str__(self) -> str:
        return f"{self.offset:5d} {self.name:<26} {self.argument}".rstrip()


class View:
    """What there is to see of ``frame``, whose next instruction is about to run."""

    def __init__(self, frame: Frame, step: int):
        self.frame = frame
        self.step = step
        self.index = frame.ip
        self.code = frame.code
        self.function = frame.code.co_qualname
        self.file = frame.code.co_filename
        self.line = frame.program.line_at(frame.ip)

    @property
    def instruction(self) -> Line:
        return self.listing(0)[0]

    @property
    def source(self) -> str:
        return linecache.getline(self.file, self.line).strip()

    def source_lines(self, around: int) -> list[tuple[int, str]]:
        """Numbered lines about the current one."""
        first = max(self.line - around, 1)
        found = [(n, linecache.getline(self.file, n)) for n in range(first, self.line + around + 1)]
        return [(n, text.rstrip("\n")) for n, text in found if text]

    def listing(self, around: int) -> list[Line]:
        """The instructions about the current one."""
        instructions = self.frame.program.instructions
        first = max(self.index - around, 0)
        return [
            Line(i, ins.offset, ins.name, self._argument(i, ins), i == self.index)
            for i, ins in enumerate(instructions[first : self.index + around + 1], first)
        ]

    def _argument(self, index: int, ins: Any) -> str:
        names = self.frame.program.names
        operator = self.frame.program.values[index]
        if type(operator) is BuiltinFunctionType and ins.name != "LOAD_CONST":
            return operator.__name__
        if ins.name.startswith(("JUMP", "POP_JUMP", "FOR_ITER", "SEND")):
            return f"to {self._offset(ins.value)}"
        if ins.name.endswith(("_FAST", "_DEREF", "_CELL", "_CLOSURE", "_CLASSDEREF", "_AND_CLEAR")):
            if isinstance(ins.value, int) and ins.value < len(names):
                return names[ins.value]
        if ins.name == "LOAD_GLOBAL" and isinstance(ins.value, tuple):
            return str(ins.value[0])
        if ins.name in ("LOAD_CONST", "KW_NAMES"):
            return shown(ins.value)
        if isinstance(ins.value, str):
            return ins.value
        return "" if not ins.arg else str(ins.arg)

    def _offset(self, index: int) -> int:
        instructions = self.frame.program.instructions
        if index < len(instructions):
            return instructions[index].offset
        return len(self.code.co_code)

    def stack(self) -> list[str]:
        """The values on the stack, the lowest first."""
        return [shown(value) for value in self.frame.stack]

    def locals(self) -> dict[str, str]:
        """The variables that have a value: those of a function, or of a class body or module."""
        frame = self.frame
        if frame.mapping is not None:
            if type(frame.mapping) is not dict:
                return {}
            hidden = {"__builtins__", "__name__", "__qualname__", "__module__"}
            return {str(k): shown(v) for k, v in frame.mapping.items() if k not in hidden}
        cells = {*frame.code.co_cellvars, *frame.code.co_freevars}
        found = {}
        for name, value in zip(frame.program.names, frame.fast, strict=True):
            if type(value) is CellType and name in cells:
                value = contents(value)
            if value is not UNSET:
                found[name] = shown(value)
        return found

    def handlers(self) -> list[str]:
        """The entries of the exception table that cover the instruction, innermost first."""
        return [
            f"{self._offset(h.start)} to {self._offset(h.end)} -> {self._offset(h.target)}, "
            f"stack {h.depth}" + (", with the place" if h.lasti else "")
            for h in self.frame.program.handlers
            if h.start <= self.index < h.end
        ]

    def callers(self) -> Iterator[str]:
        """Who called, the nearest first."""
        frame = self.frame.back
        while frame is not None:
            yield f"{frame.code.co_qualname}, {frame.code.co_filename}:{frame.line}"
            frame = frame.back
