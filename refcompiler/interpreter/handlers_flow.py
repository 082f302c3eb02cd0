"""Opcodes that decide: operators, tests, jumps, loops, calls, unpacking, formatting, imports."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from sys import getrefcount
from types import ModuleType
from typing import Any

from refcompiler.interpreter.frame import CALLED, NULL, UNSET, Frame
from refcompiler.interpreter.handlers_stack import callee_name, is_iterable
from refcompiler.interpreter.machine import RETURNS, Machine
from refcompiler.interpreter.native import instruction
from refcompiler.interpreter.registry import OPERANDS, op
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

#: The references to a list that an attribute alone holds, when they are counted.
_ALONE = 2  # that and the question

_UNARY = {
    "UNARY_POSITIVE": operator.pos,
    "UNARY_NEGATIVE": operator.neg,
    "UNARY_INVERT": operator.invert,
}


def _make_unary(function: Any) -> Any:
    def handler(m: Machine, f: Frame, arg: Any) -> None:
        f.stack[-1] = m.unary(function, f.stack[-1])

    return handler


for _name, _function in _UNARY.items():
    op(_name)(_make_unary(_function))

#: The operators of BINARY_OP in the order of CPython's ``_nb_ops``.
BINARY_OPERATORS = (
    operator.add,
    operator.and_,
    operator.floordiv,
    operator.lshift,
    operator.matmul,
    operator.mul,
    operator.mod,
    operator.or_,
    operator.pow,
    operator.rshift,
    operator.sub,
    operator.truediv,
    operator.xor,
    operator.iadd,
    operator.iand,
    operator.ifloordiv,
    operator.ilshift,
    operator.imatmul,
    operator.imul,
    operator.imod,
    operator.ior,
    operator.ipow,
    operator.irshift,
    operator.isub,
    operator.itruediv,
    operator.ixor,
)

COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}


OPERANDS["BINARY_OP"] = BINARY_OPERATORS
OPERANDS["COMPARE_OP"] = COMPARISONS


@op("TO_BOOL")
def to_bool(m: Machine, f: Frame, arg: Any) -> None:
    f.stack[-1] = m.truth(f.stack[-1])


@op("UNARY_NOT")
def unary_not(m: Machine, f: Frame, arg: Any) -> None:
    f.stack[-1] = not m.truth(f.stack[-1])


@op("BINARY_OP")
def binary_op(m: Machine, f: Frame, function: Any) -> None:
    s = f.stack
    found = m.binary(function, s[-2], s[-1])
    s.pop()
    s[-1] = found


@op("COMPARE_OP")
def compare_op(m: Machine, f: Frame, function: Any) -> None:
    s = f.stack
    found = m.binary(function, s[-2], s[-1])
    s.pop()
    s[-1] = found


@op("IS_OP")
def is_op(m: Machine, f: Frame, invert: int) -> None:
    s = f.stack
    found = m.same(s[-2], s[-1]) != bool(invert)
    s.pop()
    s[-1] = found


@op("CONTAINS_OP")
def contains_op(m: Machine, f: Frame, invert: int) -> None:
    s = f.stack
    found = m.contains(s[-2], s[-1]) != bool(invert)
    s.pop()
    s[-1] = found


# ---- jumps -----------------------------------------------------------------------------------


@op("JUMP_FORWARD", "JUMP_BACKWARD")
def jump(m: Machine, f: Frame, target: int) -> None:
    f.ip = target


@op("POP_JUMP_IF_FALSE", "POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_FALSE")
def pop_jump_if_false(m: Machine, f: Frame, target: int) -> None:
    if not m.truth(f.stack[-1]):
        f.ip = target
    f.stack.pop()


@op("POP_JUMP_IF_TRUE", "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE")
def pop_jump_if_true(m: Machine, f: Frame, target: int) -> None:
    if m.truth(f.stack[-1]):
        f.ip = target
    f.stack.pop()


@op("POP_JUMP_IF_NONE", "POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NONE")
def pop_jump_if_none(m: Machine, f: Frame, target: int) -> None:
    if m.is_none(f.stack[-1]):
        f.ip = target
    f.stack.pop()


@op("POP_JUMP_IF_NOT_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE")
def pop_jump_if_not_none(m: Machine, f: Frame, target: int) -> None:
    if not m.is_none(f.stack[-1]):
        f.ip = target
    f.stack.pop()


@op("JUMP_IF_FALSE_OR_POP")
def jump_if_false_or_pop(m: Machine, f: Frame, target: int) -> None:
    if m.truth(f.stack[-1]):
        f.stack.pop()
    else:
        f.ip = target


@op("JUMP_IF_TRUE_OR_POP")
def jump_if_true_or_pop(m: Machine, f: Frame, target: int) -> None:
    if m.truth(f.stack[-1]):
        f.ip = target
    else:
        f.stack.pop()


# ---- iteration and unpacking -----------------------------------------------------------------


@op("GET_ITER")
def get_iter(m: Machine, f: Frame, arg: Any) -> None:
    f.stack[-1] = m.iter(f.stack[-1])


@op("FOR_ITER")
def for_iter(m: Machine, f: Frame, target: int) -> None:
    item = m.next(f.stack[-1])
    if item is UNSET:
        f.stack.pop()
        f.ip = target
    else:
        f.stack.append(item)


@op("UNPACK_SEQUENCE")
def unpack_sequence(m: Machine, f: Frame, count: int) -> None:
    value = f.stack[-1]
    items = _unpack(m, value, count, None)
    f.stack.pop()
    f.stack.extend(reversed(items))


def _unpack(m: Machine, value: Any, count: int, after: int | None) -> list[Any]:
    """``count`` items of ``value``; with ``after`` all of them, that many more at the least."""
    iterator: Iterator[Any] | None = None
    try:
        iterator = iter(m.items_of(value))
    except TypeError:
        if is_iterable(m, value):
            raise
    if iterator is None:
        raise TypeError(f"cannot unpack non-iterable {m.type_of(value).__name__} object")
    items: list[Any] = []
    while len(items) < count and (item := next(iterator, UNSET)) is not UNSET:
        items.append(item)
    if len(items) == count:
        if after is not None:
            items += iterator  # which is asked for an iterator again, but only here
        elif next(iterator, UNSET) is not UNSET:
            raise ValueError(f"too many values to unpack (expected {count})")
    least = count + (after or 0)
    if len(items) < least:
        at_least = "" if after is None else "at least "
        raise ValueError(
            f"not enough values to unpack (expected {at_least}{least}, got {len(items)})"
        )
    return items


@op("UNPACK_EX")
def unpack_ex(m: Machine, f: Frame, arg: int) -> None:
    before, after = arg & 255, arg >> 8
    items = _unpack(m, f.stack[-1], before, after)
    middle = len(items) - after
    f.stack.pop()
    f.stack.extend(reversed([*items[:before], items[before:middle], *items[middle:]]))


# ---- calls -----------------------------------------------------------------------------------


@op("KW_NAMES")
def kw_names(m: Machine, f: Frame, names: tuple[str, ...]) -> None:
    f.kwnames = names


@op("CALL")
def call(m: Machine, f: Frame, count: int) -> None:
    s = f.stack
    base = len(s) - count
    function = s[base - 2]
    if function is NULL:
        function, args = s[base - 1], s[base:]
    else:
        args = s[base - 1 :]
    names = f.kwnames
    if names:
        kwargs = dict(zip(names, args[-len(names) :], strict=True))
        del args[-len(names) :]
        found = m.call(f, function, args, kwargs)
        f.kwnames = ()
    else:
        found = m.call(f, function, args, {})
    del s[base - 2 :]
    if found is not CALLED:
        s.append(found)


@op("CALL_KW")
def call_kw(m: Machine, f: Frame, count: int) -> None:
    """The names of the last arguments lie on top."""
    s = f.stack
    base = len(s) - count - 1
    function = s[base - 2]
    names = m.own(s[-1])
    first = base if function is NULL else base - 1
    if function is NULL:
        function = s[base - 1]
    named = len(s) - 1 - len(names)
    found = m.call(f, function, s[first:named], dict(zip(names, s[named:-1], strict=True)))
    del s[base - 2 :]
    if found is not CALLED:
        s.append(found)


@op("CALL_FUNCTION_EX")
def call_function_ex(m: Machine, f: Frame, flags: int) -> None:
    s = f.stack
    given = 2 + (flags & 1)
    function = s[-given]
    args = s[-given + 1]
    kwargs = m.mapping(s[-1]) if flags & 1 else {}
    items: Any = None
    try:
        items = m.items_of(args)
        if type(items) is not tuple:  # C code may get the very tuple that was given
            items = list(items)
    except TypeError:
        if is_iterable(m, args):
            raise
        items = None
    if items is None:
        kind = m.type_of(args).__name__
        name = callee_name(m.own(function))
        raise TypeError(f"{name} argument after * must be an iterable, not {kind}")
    found = m.call(f, function, items, m.keywords(kwargs))
    del s[-given - 1 :]  # and the NULL below
    if found is not CALLED:
        s.append(found)


@op("RETURN_VALUE")
def return_value(m: Machine, f: Frame, arg: Any) -> None:
    value = f.stack[-1]
    back = f.back
    if f.view is None and getrefcount(f.fast) == _ALONE:
        f.fast.reverse()  # what a list holds goes from its end, the first variable first
    if back is None:
        m.result = value
        m.frame = None
    elif f.on_return == "push":
        m.frame = back
        back.stack.append(value)
    else:
        m.frame = back
        RETURNS[f.on_return](m, back, value, f.extra)


# ---- formatting and imports ------------------------------------------------------------------


@op("FORMAT_VALUE")
def format_value(m: Machine, f: Frame, flags: int) -> None:
    s = f.stack
    given = 2 if flags & 4 else 1
    spec = m.own(s[-1]) if flags & 4 else ""
    value = s[-given]
    if flags & 3:
        value = m.convert(value, flags & 3)
    text = m.format(value, spec)
    del s[-given:]
    s.append(text)


@op("CONVERT_VALUE")
def convert_value(m: Machine, f: Frame, conversion: int) -> None:
    f.stack[-1] = m.convert(f.stack[-1], conversion)


@op("FORMAT_SIMPLE")
def format_simple(m: Machine, f: Frame, arg: Any) -> None:
    f.stack[-1] = m.format(f.stack[-1], "")


@op("FORMAT_WITH_SPEC")
def format_with_spec(m: Machine, f: Frame, arg: Any) -> None:
    s = f.stack
    s[-2] = m.format(s[-2], m.own(s[-1]))
    s.pop()


@op("PRINT_EXPR")
def print_expr(m: Machine, f: Frame, arg: Any) -> None:
    m.invoke(f, sys.displayhook, (f.stack[-1],))
    f.stack.pop()


@op("IMPORT_NAME")
def import_name(m: Machine, f: Frame, name: str) -> None:
    s = f.stack
    module = m.import_name(f, name, m.own(s[-1]), m.own(s[-2]))
    s.pop()
    s[-1] = module


@op("IMPORT_FROM")
def import_from(m: Machine, f: Frame, name: str) -> None:
    module = f.stack[-1]
    try:
        found = m.getattr(module, name)
    except AttributeError:
        found = UNSET
    if found is UNSET:
        found = _submodule(module, name)
    f.stack.append(found)


def _submodule(module: Any, name: str) -> Any:
    """``name`` among the imported modules, for circular imports, or CPython's complaint.

    A module is stood in for by what that looks at, so that its ``__getattr__`` is asked once.
    """
    if type(module) is ModuleType:
        known = vars(module)
        module = ModuleType("")
        vars(module).clear()
        vars(module).update({key: known[key] for key in _MODULE_FACTS if key in known})
    return instruction("IMPORT_FROM", 0, 1, (name,))(module)


_MODULE_FACTS = ("__name__", "__file__", "__spec__")


@op("IMPORT_STAR")
def import_star(m: Machine, f: Frame, arg: Any) -> None:
    module = m.own(f.stack[-1])
    namespace = vars(module)
    names = namespace.get("__all__")
    if names is None:
        names = [name for name in namespace if not name.startswith("_")]
    target = f.globals if f.mapping is None else f.mapping
    for name in names:
        target[name] = getattr(module, name)
    f.stack.pop()
