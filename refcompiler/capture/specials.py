"""Special methods whose frames instructions push: attributes, items, truth, operators, ``with``.

See :mod:`refcompiler.capture.entering`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from refcompiler.capture.addresses import STAND_INS
from refcompiler.capture.arithmetic import SIGNS
from refcompiler.capture.arrays.array import Array
from refcompiler.capture.entering import ENTERING, enter, enter_special, enters
from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.capture.lookup import find, is_heap
from refcompiler.capture.operators import (
    _DUNDERS,
    _JOINED,
    _OF_SEQUENCES,
    _ORDER,
    COMPARING,
    FORMATTING,
    TEXTS,
    is_foreign_to_torch,
)
from refcompiler.capture.values import Lazy, Literal, Run, Unread
from refcompiler.interpreter import helpers
from refcompiler.interpreter.frame import CALLED, NULL, UNSET, Frame
from refcompiler.interpreter.handlers_blocks import special_of
from refcompiler.interpreter.registry import HANDLERS
from refcompiler.shapes.node import SYMBOLS

_NUMERIC = SYMBOLS | {int, float}


def kind_of(value: Any) -> type:
    if type(value) is Literal:
        return value.kind
    if type(value) is Unread:
        return str
    return type(value.value) if type(value) is Lazy else type(value)


def is_users(value: Any) -> bool:
    """An instance of a class like the user's, which may have special methods in Python."""
    kind = kind_of(value)
    return (
        is_heap(kind) and kind not in SYMBOLS and not issubclass(kind, (torch.Tensor, *STAND_INS))
    )


# ---- attributes and items --------------------------------------------------------------------


@enters("LOAD_ATTR")
def load_attr(m: Any, f: Frame, name: str) -> None:
    s = f.stack
    found = m.attribute(s[-1], name)
    if type(found) is Run:
        enter(m, f, found.function, list(found.args), 1)
    else:
        s[-1] = found


@enters("LOAD_METHOD")
def load_method(m: Any, f: Frame, name: str) -> None:
    s = f.stack
    found = m.attribute(s[-1], name)
    if type(found) is Run:
        found = m.call(f, found.function, found.args, {})
    s[-1] = NULL
    if found is not CALLED:
        s.append(found)


@enters("STORE_ATTR")
def store_attr(m: Any, f: Frame, name: str) -> None:
    s = f.stack
    left = m.assign(s[-1], name, s[-2])
    if left is None:
        del s[-2:]
    else:
        enter(m, f, left.function, list(left.args), 2, "drop")


@enters("SET_ADD")
def set_add(m: Any, f: Frame, depth: int) -> None:
    m.insert(m.own(f.stack[-depth - 1]), f.stack[-1])
    f.stack.pop()


@enters("MAP_ADD")
def map_add(m: Any, f: Frame, depth: int) -> None:
    s = f.stack
    m.insert(m.own(s[-depth - 2]), s[-2], m.own(s[-1]))
    del s[-2:]


def _on_container(name: str, method: str, operands: int, way: str) -> None:
    """An instruction on an item: the container lies below the key, what is stored below that."""
    otherwise = HANDLERS[name]

    @enters(name)
    def handler(m: Any, f: Frame, arg: Any) -> None:
        s = f.stack
        if not is_users(s[-2]) or m.method_of(kind_of(s[-2]), method) is UNSET:
            otherwise(m, f, arg)
            return
        s[-2] = value = m.force(s[-2])
        args = [m.force(s[-1])]
        if operands == 3:
            args.append(m.force(s[-3]))
        enter_special(m, f, value, method, args, operands, way)


_on_container("BINARY_SUBSCR", "__getitem__", 2, "push")
_on_container("STORE_SUBSCR", "__setitem__", 3, "drop")
_on_container("DELETE_SUBSCR", "__delitem__", 2, "drop")
_contains_op = HANDLERS["CONTAINS_OP"]


@enters("CONTAINS_OP")
def contains_op(m: Any, f: Frame, invert: int) -> None:
    s = f.stack
    if not is_users(s[-1]):
        _contains_op(m, f, invert)
        return
    s[-1] = container = m.force(s[-1])
    kind, item = type(container), m.force(s[-2])
    source, method = m.find_guarded(kind, "__contains__")
    if m.method_of(kind, "__contains__") is not UNSET:
        m.from_class(source, method)
        helper = helpers.lacks if invert else helpers.has
        enter(m, f, helper, [method, container, item], 2)
    elif method is UNSET and m.runs_code(container):
        enter(m, f, helpers.not_among if invert else helpers.among, [container, item], 2)
    else:
        _contains_op(m, f, invert)


# ---- truth and operators ---------------------------------------------------------------------


def _testing(name: str, way: str) -> None:
    otherwise = HANDLERS.get(name)
    if otherwise is None:
        return

    @enters(name)
    def handler(m: Any, f: Frame, arg: Any) -> None:
        if is_users(f.stack[-1]):
            f.stack[-1] = value = m.force(f.stack[-1])
            kind = type(value)
            source, method = m.find_guarded(kind, "__bool__")
            if m.method_of(kind, "__bool__") is not UNSET:
                m.from_class(source, method)
                enter(m, f, helpers.boolean, [method, value], 0, way)
                return
            if method is UNSET and m.method_of(kind, "__len__") is not UNSET:
                enter(m, f, helpers.filled, [value], 0, way)
                return
        otherwise(m, f, arg)


for _name in HANDLERS:
    if _name in ("UNARY_NOT", "TO_BOOL") or _name.endswith(("_IF_FALSE", "_IF_TRUE")):
        _testing(_name, "operand")
for _name in ("JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP"):
    _testing(_name, "test")


_unary_not = ENTERING.get("UNARY_NOT", HANDLERS["UNARY_NOT"])


@enters("UNARY_NOT")
def unary_not(m: Any, f: Frame, arg: Any) -> None:
    if kind_of(f.stack[-1]) in _NUMERIC:
        f.stack[-1] = m.negation(f.stack[-1])
    else:
        _unary_not(m, f, arg)


#: What happens where no operand's method knows.
_LAST: dict[Callable, Callable] = {operator.eq: helpers.identical, operator.ne: helpers.different}
_LAST.update(dict.fromkeys(_ORDER, helpers.unordered))


def _method(m: Any, kind: type, name: str, other: type) -> Any:
    """The Python function behind operator ``name``; UNSET if there is none; None: who knows."""
    if kind in CONSTANT_TYPES:
        return None if issubclass(other, kind) else UNSET  # it knows constants only
    if kind in SYMBOLS:
        return None if issubclass(other, (int, float)) else UNSET
    owner, found = find(kind, name)
    if found is not UNSET and owner is not object and type(found) is not FunctionType:
        return None
    if is_heap(kind):
        source, found = m.find_guarded(kind, name)
        m.from_class(source, found)
    return found if type(found) is FunctionType else UNSET


def _candidates(m: Any, function: Callable, a: Any, b: Any) -> tuple | None:
    """The left operand's method and the right one's; None where there is more to it."""
    left, right = type(a), type(b)
    if issubclass(left, torch.Tensor) or issubclass(right, torch.Tensor):
        return _candidates_by_tensors(m, function, a, b)
    if Array in (left, right):  # whose methods are no program's
        return None
    if function in _OF_SEQUENCES and (left in _JOINED or right in _JOINED):
        return None  # which say no in words of their own
    if function in FORMATTING and left in TEXTS:
        return None
    name, reflected, inplace = _DUNDERS[function]
    assert reflected is not None
    if inplace is not None and find(left, inplace)[1] is not UNSET:
        return None
    if left is not right and left in right.__mro__:  # it may come first
        return None
    if function is operator.ne and any(find(k, "__ne__")[0] is object for k in (left, right)):
        return None
    method, other = _method(m, left, name, right), UNSET
    if left is not right or name in _COMPARED:
        other = _method(m, right, reflected, left)
    if method is None or other is None or method is other is UNSET:
        return None
    return method, other


def _candidates_by_tensors(m: Any, function: Callable, a: Any, b: Any) -> tuple | None:
    """The method of the operand that torch does not know; torch's own says no."""
    name, reflected, inplace = _DUNDERS[function]
    left, right = type(a), type(b)
    if is_foreign_to_torch(left):
        if inplace is not None and find(left, inplace)[1] is not UNSET:
            return None
        found = _method(m, left, name, right)
        return (found, UNSET) if type(found) is FunctionType else None
    if inplace is None and reflected is not None and is_foreign_to_torch(right):
        found = _method(m, right, reflected, left)
        return (UNSET, found) if type(found) is FunctionType else None
    return None


_COMPARED = frozenset(_DUNDERS[function][0] for function in COMPARING)


#: An operator with assignment -> the one without.
_PLAIN: dict[Callable, Callable] = {
    function: next(f for f, names in _DUNDERS.items() if names == (method, reflected, None))
    for function, (method, reflected, inplace) in _DUNDERS.items()
    if inplace is not None
}


def _operating(name: str) -> None:
    otherwise = HANDLERS[name]

    @enters(name)
    def handler(m: Any, f: Frame, function: Callable) -> None:
        s = f.stack
        if not (is_users(s[-1]) or is_users(s[-2])):
            otherwise(m, f, function)
            return
        a, b = m.force(s[-2]), m.force(s[-1])
        inplace = _DUNDERS[function][2]
        if inplace is not None and m.method_of(type(a), inplace) is not UNSET:
            source, method = m.find_guarded(type(a), inplace)
            m.from_class(source, method)
            enter(m, f, helpers.update, [method, a, b, _PLAIN[function]], 2)
            return
        found = _candidates(m, function, a, b)
        if found is None:
            otherwise(m, f, function)
            return
        method, other = found
        last, symbol = _LAST.get(function, helpers.unsupported), SIGNS.get(function, "")
        if method is UNSET:
            enter(m, f, helpers.reflect, [other, a, b, last, symbol], 2)
        else:
            rest = None if other is UNSET else other
            enter(m, f, helpers.operate, [method, a, b, rest, last, symbol], 2)


_operating("BINARY_OP")
_operating("COMPARE_OP")


# ---- with ------------------------------------------------------------------------------------


@enters("BEFORE_WITH")
def before_with(m: Any, f: Frame, arg: Any) -> None:
    s = f.stack
    value = m.force(s[-1])
    come = special_of(m, value, "__enter__", "context manager")
    leave = special_of(m, value, "__exit__", "context manager")
    found = m.call(f, come, [], {})
    s[-1] = leave
    if found is not CALLED:
        s.append(found)


@enters("WITH_EXCEPT_START")
def with_except_start(m: Any, f: Frame, arg: Any) -> None:
    s = f.stack
    error = m.own(s[-1])
    found = m.call(f, s[-4], [type(error), error, error.__traceback__], {})
    if found is not CALLED:
        s.append(found)
