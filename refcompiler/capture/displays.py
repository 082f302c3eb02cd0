"""Instructions that make containers and fill them, in the symbolic domain."""

from __future__ import annotations

from collections.abc import Callable
from types import CellType
from typing import Any

from refcompiler.capture.entering import ENTERING, enters
from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.capture.literals import extend, items_in, sequence, update
from refcompiler.capture.values import Lazy, Literal
from refcompiler.interpreter.frame import UNSET, Frame
from refcompiler.interpreter.registry import HANDLERS


def _take(f: Frame, count: int) -> list[Any]:
    return f.stack[len(f.stack) - count :]


def _replace(f: Frame, count: int, value: Any) -> None:
    if count:
        del f.stack[-count:]
    f.stack.append(value)


@enters("BUILD_TUPLE")
def build_tuple(m: Any, f: Frame, count: int) -> None:
    _replace(f, count, sequence(m, tuple, _take(f, count)))


@enters("BUILD_LIST")
def build_list(m: Any, f: Frame, count: int) -> None:
    _replace(f, count, Literal(list, _take(f, count)))


@enters("BUILD_CONST_KEY_MAP")
def build_const_key_map(m: Any, f: Frame, count: int) -> None:
    *values, keys = _take(f, count + 1)
    _replace(f, count + 1, Literal(dict, dict(zip(m.own(keys), values, strict=True))))


@enters("BUILD_SET")
def build_set(m: Any, f: Frame, count: int) -> None:
    made: set[Any] = set()
    for item in _take(f, count):
        m.insert(made, item)
    _replace(f, count, made)


@enters("BUILD_MAP")
def build_map(m: Any, f: Frame, count: int) -> None:
    items = _take(f, 2 * count)
    keys = [m.key(key) for key in items[::2]]
    if all(type(key) in CONSTANT_TYPES for key in keys):
        _replace(f, 2 * count, Literal(dict, dict(zip(keys, items[1::2], strict=True))))
        return
    made: dict[Any, Any] = {}
    for key, item in zip(keys, items[1::2], strict=True):
        m.insert(made, key, m.own(item))
    _replace(f, 2 * count, made)


def _kept(m: Any, value: Any) -> Any:
    """What a cell holds, which the interpreter alone reads: as unobserved as it is."""
    return value if type(value) is Lazy or type(value) is Literal else m.own(value)


@enters("MAKE_CELL")
def make_cell(m: Any, f: Frame, slot: int) -> None:
    value = f.fast[slot]
    f.fast[slot] = CellType() if value is UNSET else CellType(_kept(m, value))


@enters("STORE_DEREF")
def store_deref(m: Any, f: Frame, slot: int) -> None:
    m.store_cell(f.fast[slot], _kept(m, f.stack[-1]))
    f.stack.pop()


@enters("LIST_TO_TUPLE")
def list_to_tuple(m: Any, f: Frame, arg: Any) -> None:
    items = items_in(f.stack[-1], list)
    f.stack[-1] = tuple(m.own(f.stack[-1])) if items is UNSET else sequence(m, tuple, items)


_unpack = ENTERING["UNPACK_SEQUENCE"]


@enters("UNPACK_SEQUENCE")
def unpack_sequence(m: Any, f: Frame, count: int) -> None:
    value = f.stack[-1]
    items = UNSET if type(value) is not Literal else items_in(value, value.kind)
    if type(items) is not list or len(items) != count:
        _unpack(m, f, count)
    else:
        f.stack.pop()
        f.stack.extend(reversed(items))


def _joining(name: str, join: Callable[[Any, Any, Any], bool]) -> None:
    """An instruction that adds the items of the operand on top to a container below it."""
    otherwise = ENTERING.get(name, HANDLERS[name])

    @enters(name)
    def handler(m: Any, f: Frame, depth: int) -> None:
        s = f.stack
        if join(m, s[-depth - 1], s[-1]):
            s.pop()
        else:
            otherwise(m, f, depth)


def _merge(m: Any, target: Any, value: Any) -> bool:
    """Keyword arguments, of which none is given twice."""
    known, items = items_in(target, dict), items_in(value, dict)
    return (
        known is not UNSET
        and items is not UNSET
        and not known.keys() & items
        and (update(target, value))
    )


_joining("LIST_EXTEND", extend)
_joining("DICT_UPDATE", lambda m, target, value: update(target, value))
_joining("DICT_MERGE", _merge)
