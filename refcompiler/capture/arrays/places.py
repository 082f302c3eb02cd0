"""Single elements of arrays at places that are symbols, which numpy does not take."""

from __future__ import annotations

from typing import Any

import torch

from refcompiler.capture.arrays.array import Array
from refcompiler.interpreter.frame import UNSET
from refcompiler.shapes.node import SYMBOLS

_PLACES = frozenset((int, torch.SymInt))
_FLOATS = frozenset((torch.float32, torch.float64))
_NUMBERS: dict[torch.dtype, frozenset[type]] = {
    torch.int64: _PLACES,
    torch.float32: frozenset((int, float, torch.SymInt, torch.SymFloat)),
    torch.float64: frozenset((int, float, torch.SymInt, torch.SymFloat)),
}


def _is_element(array: Array, key: Any) -> bool:
    """Whether ``key`` is the place of one element of ``array``, which later calls have to keep."""
    places = key if type(key) is tuple else (key,)
    shape = array._standin.shape
    return len(places) == len(shape) and all(
        type(n) in _PLACES
        and (type(n) is int or n.node.has_hint())
        and bool(n >= 0)
        and bool(n < size)
        for n, size in zip(places, shape, strict=True)
    )


def _has_symbol(key: Any) -> bool:
    return any(type(n) in SYMBOLS for n in (key if type(key) is tuple else (key,)))


def put_number(machine: Any, array: Array, key: Any, new: Any) -> bool:
    """``array[key] = new`` of a number, where one of these is a symbol; whether that was it."""
    if not (_has_symbol(key) or type(new) in SYMBOLS):
        return False
    into = array._tensor.dtype
    if type(new) is Array:
        given = new._tensor.dtype
        if new._standin.ndim or not (given is into or {given, into} <= _FLOATS):
            return False
        new = new._tensor
    elif type(new) not in _NUMBERS.get(into, ()):
        return False
    if not array._standin.flags.writeable or not _is_element(array, key):
        return False
    machine.setitem(array._tensor, key, new)
    return True


def element(machine: Any, array: Array, key: Any) -> Any:
    """``array[key]``, one element at a place that is a symbol; or UNSET."""
    if not _has_symbol(key) or not _is_element(array, key):
        return UNSET
    places = key if type(key) is tuple else (key,)
    here = tuple([n if type(n) is int else n.node.hint for n in places])
    found = machine.getitem(array._tensor, key)
    return Array(machine, machine.operate(torch.clone, found), array._standin[here])
