"""The local variables of an interpreted frame as a mapping: ``locals()`` and ``f_locals``.

Until 3.12 both are one dict of the frame, brought up to date when it is asked for. From 3.13 on
(PEP 667) ``locals()`` is a new dict each time, and ``f_locals`` writes through to the variables.
In a class body or a module both are the namespace.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, MutableMapping
from types import CellType
from typing import Any

from refcompiler.interpreter.frame import UNSET, Frame
from refcompiler.interpreter.registry import native
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS


def _cell(frame: Frame, slot: int) -> CellType | None:
    """The cell in ``slot``, unless that holds the variable itself, which may be a cell."""
    value = frame.fast[slot]
    code = frame.code
    if type(value) is not CellType:
        return None
    if slot < len(code.co_varnames) and frame.program.names[slot] not in code.co_cellvars:
        return None
    return value


def _value(machine: Any, frame: Frame, slot: int) -> Any:
    cell = _cell(frame, slot)
    return frame.fast[slot] if cell is None else machine.load_cell(cell)


def _values(machine: Any, frame: Frame) -> dict[str, Any]:
    """The variables that are in slots, and have a value."""
    found = {}
    for slot, name in enumerate(frame.program.names):
        value = _value(machine, frame, slot)
        if value is not UNSET:
            found[name] = machine.own(value)
    return found


def _hidden(machine: Any, frame: Frame) -> dict[str, Any]:
    """In a class body or module: the variables of the comprehension that runs (PEP 709)."""
    names = frame.code.co_varnames
    if not names:
        return {}
    found = {name: _value(machine, frame, slot) for slot, name in enumerate(names)}
    return {name: machine.own(value) for name, value in found.items() if value is not UNSET}


def _one_dict(machine: Any, frame: Frame) -> Any:
    """The frame's dict, brought up to date."""
    if frame.mapping is not None:
        hidden = _hidden(machine, frame)
        return {**frame.mapping, **hidden} if hidden else frame.mapping
    found: dict[str, Any] = {} if frame.snapshot is None else frame.snapshot
    values = _values(machine, frame)
    for name in frame.program.names:
        if name in values:
            found[name] = values[name]
        else:
            found.pop(name, None)
    frame.snapshot = found
    return found


def _new_dict(machine: Any, frame: Frame) -> Any:
    """A dict of what the variables are now, and of what was added through ``f_locals``."""
    if frame.mapping is not None and not _hidden(machine, frame):
        return frame.mapping
    return {**_values(machine, frame), **(frame.snapshot or {})}


def _written_through(machine: Any, frame: Frame) -> Any:
    if frame.mapping is not None and not _hidden(machine, frame):
        return frame.mapping
    return FrameLocalsProxy.of(machine, frame)


_ANSWERS = {(3, 11): (_one_dict, _one_dict), (3, 12): (_one_dict, _one_dict)}
#: What ``locals()`` answers in a frame, and what ``f_locals`` of its frame object does.
frame_locals, visible_locals = _ANSWERS.get(sys.version_info[:2], (_new_dict, _written_through))
#: Of a native frame: it knows its type and the complaints of this version.
_NATIVE: Any = (lambda: sys._getframe().f_locals)()


@MutableMapping.register
@native
class FrameLocalsProxy:
    """The variables of one frame, and in ``frame.snapshot`` what else was put there."""

    __slots__ = ("_machine", "_frame", "_shown")
    _machine: Any
    _frame: Frame
    _shown: bool  # its text is being made

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """As the program may call it: with the frame object of an interpreted or native frame."""
        if len(args) == 1 and not kwargs and type(getattr(args[0], "_frame", None)) is Frame:
            return cls.of(args[0]._machine, args[0]._frame)
        return type(_NATIVE)(*args, **kwargs)

    @classmethod
    def of(cls, machine: Any, frame: Frame) -> FrameLocalsProxy:
        made = object.__new__(cls)
        made._machine, made._frame, made._shown = machine, frame, False
        return made

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(_NATIVE)

    def _dict(self) -> dict[str, Any]:
        found = _values(self._machine, self._frame)
        return {**found, **(self._frame.snapshot or {})}

    def _slot(self, key: Any) -> int | None:
        return {name: slot for slot, name in enumerate(self._frame.program.names)}.get(key)

    def __repr__(self) -> str:
        if self._shown:
            return "{...}"
        self._shown = True
        try:
            return repr(self._dict())
        finally:
            self._shown = False

    def __sizeof__(self) -> int:
        return _NATIVE.__sizeof__()

    def __len__(self) -> int:
        return len(self._dict())

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._dict()))

    def __reversed__(self) -> Any:
        return list(reversed(self._dict()))

    def __contains__(self, key: Any) -> bool:
        return key in self._dict()

    def __getitem__(self, key: Any) -> Any:
        found = self._dict()
        if key not in found:
            raise KeyError(f"local variable '{key!r}' is not defined")
        return found[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        frame, slot = self._frame, self._slot(key)
        if slot is None:
            if frame.snapshot is None:
                frame.snapshot = {}
            frame.snapshot[key] = value
            return
        cell = _cell(frame, slot)
        if cell is None:
            frame.fast[slot] = value
        else:
            self._machine.store_cell(cell, value)

    def __delitem__(self, key: Any) -> None:
        del _NATIVE[key]  # which raises

    def __eq__(self, other: object) -> Any:
        if type(other) is FrameLocalsProxy:
            return self._frame is other._frame
        return self._dict() == other if isinstance(other, dict) else NotImplemented

    __hash__: Any = None

    def __or__(self, other: Any) -> Any:
        other = other._dict() if type(other) is FrameLocalsProxy else other
        return self._dict() | other if isinstance(other, dict) else NotImplemented

    def __ror__(self, other: Any) -> Any:
        return other | self._dict() if isinstance(other, dict) else NotImplemented

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self

    def keys(self) -> list[str]:
        return list(self._dict())

    def values(self) -> list[Any]:
        return list(self._dict().values())

    def items(self) -> list[tuple[str, Any]]:
        return list(self._dict().items())

    def get(self, key: Any, default: Any = None) -> Any:
        return self._dict().get(key, default)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, other: Any) -> None:
        if not isinstance(other, dict | FrameLocalsProxy | type(_NATIVE)):
            _NATIVE.update(other)  # which raises
        for key, value in other.items():
            self[key] = value

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("cannot pickle 'FrameLocalsProxy' object")

    def copy(self) -> dict[str, Any]:
        return self._dict()
