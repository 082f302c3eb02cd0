"""Python functions that the interpreter runs in place of C code that would call Python code.

Their frames lie on the stack like the program's own and are what a snapshot finds there, but no
traceback shows them. Their code may use the names of this module and nothing else.
"""

from __future__ import annotations

import dis
import sys
from operator import length_hint
from types import CodeType
from typing import Any

from refcompiler.bytecode.decode import decode
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS


def hidden(function: Any) -> Any:
    """Decorator: no traceback shows the frames of ``function``."""
    _hide(function.__code__)
    return function


def _hide(code: CodeType) -> None:
    decode(code).hidden = True
    for constant in code.co_consts:
        if type(constant) is CodeType:  # a comprehension
            _hide(constant)


def _reraising(function: Any) -> Any:
    """``raise`` does not touch the exception's traceback and context."""
    body = bytearray(function.__code__.co_code)
    at = next(i for i in range(0, len(body), 2) if body[i] == dis.opmap["RAISE_VARARGS"])
    body[at : at + 2] = dis.opmap["RERAISE"], 0
    function.__code__ = function.__code__.replace(co_code=bytes(body))
    return function


@hidden
@_reraising
def throw(error: Any) -> Any:
    """What stands on a generator's frame into which ``error`` is thrown."""
    raise error


# ---- consumers of iterables --------------------------------------------------------------------


@hidden
def backwards(value: Any) -> Any:
    """The old protocol of ``reversed``: items by their numbers, which are counted at once."""
    return _downwards(value, len(value))


@hidden
def _downwards(value: Any, number: int) -> Any:
    while number > 0:
        number -= 1
        yield value[number]


@hidden
def items(value: Any) -> Any:
    """The old protocol of sequences: items 0, 1, ... until IndexError (or StopIteration)."""
    i = 0
    while True:
        try:
            item = value[i]
        except (IndexError, StopIteration):
            return
        yield item
        i += 1


# What follows has comprehensions where ``list`` would call the iterator in C.
# ruff: noqa: C416


@hidden
def sized(helper: Any, iterable: Any, *rest: Any) -> Any:
    """One of the helpers below in place of C code that asks how many items there will be."""
    iterator = iter(iterable)
    length_hint(iterable)
    return helper(_left(iterator), *rest)


@hidden
def _left(iterator: Any) -> Any:
    """The items of an iterator that is not asked for its iterator."""
    while True:
        try:
            item = next(iterator)
        except StopIteration:
            return
        yield item


@hidden
def collect(iterable: Any) -> Any:
    return [item for item in iterable]


@hidden
def take_rest(iterable: Any, arg: int) -> Any:
    """What ``a, *b = iterable`` takes: the rest as a list does, which asks for an iterator anew."""
    iterator = iter(iterable)
    found: list[Any] = []
    while len(found) < arg & 255:
        try:
            found += [next(iterator)]
        except StopIteration:
            return found
    return [*found, *[item for item in iterator]]


@hidden
def take(iterable: Any, count: int) -> Any:
    """``count`` items and one more, which is as far as unpacking goes."""
    found: list[Any] = []
    if count == 0:
        for item in iterable:
            return [item]
        return found
    for item in iterable:
        found += [item]
        if len(found) > count:
            break
    return found


@hidden
def consume(iterable: Any, function: Any, rest: Any, named: Any) -> Any:
    """For functions that do nothing before they have all items."""
    return function([item for item in iterable], *rest, **named)


@hidden
def extend(iterable: Any, target: Any) -> Any:
    for item in iterable:
        target.append(item)


@hidden
def plain_total(iterable: Any, start: Any) -> Any:
    for item in iterable:
        start = start + item
    return start


@hidden
def exact_total(iterable: Any, start: Any) -> Any:
    """What rounding takes from a sum of floats is summed too, and given back in the end, or before
    the first item that is no number. (Møller's and Knuth's sum of two, with its error.)

    Nothing is decided by it, as it may not be known yet: it is NaN where the sum has overflowed,
    which is no larger and no smaller than the zero that changes no sum.
    """
    lost, floats = 0.0, type(start) is float
    numbers = floats or type(start) is int
    for item in iterable:
        if floats and type(item) is float:
            found = start + item
            part = found - start
            lost = lost + ((start - (found - part)) + (item - part))
            start = found
        elif floats and isinstance(item, int) and -(2**63) <= item < 2**63:
            start = start + item
        else:
            if floats:
                start = start + (max(-0.0, lost) + min(-0.0, lost))
            numbers = numbers and not floats
            if type(item) is float and type(start) is int:  # a word's, or what follows adds plainly
                numbers = numbers and -(2**63) <= start < 2**63
            whole = type(item) is int or type(item) is bool
            start = start + item
            floats = numbers and type(start) is float
            numbers = numbers and (floats or whole)
    if floats:
        start = start + (max(-0.0, lost) + min(-0.0, lost))
    return start


#: Whether ``sum`` gives back what rounding takes (3.12), and how this Python's adds.
GIVES_BACK = sys.version_info >= (3, 12)
total = exact_total if GIVES_BACK else plain_total


@hidden
def exists(iterable: Any) -> Any:
    for item in iterable:
        if item:
            return True
    return False


@hidden
def every(iterable: Any) -> Any:
    for item in iterable:
        if not item:
            return False
    return True


@hidden
def largest(iterable: Any, key: Any, has_default: bool, default: Any) -> Any:
    best = best_key = None
    found = False
    for item in iterable:
        item_key = item if key is None else key(item)
        if not found or item_key > best_key:
            found, best, best_key = True, item, item_key
    if found:
        return best
    if has_default:
        return default
    return max([])


@hidden
def smallest(iterable: Any, key: Any, has_default: bool, default: Any) -> Any:
    best = best_key = None
    found = False
    for item in iterable:
        item_key = item if key is None else key(item)
        if not found or item_key < best_key:
            found, best, best_key = True, item, item_key
    if found:
        return best
    if has_default:
        return default
    return min([])


@hidden
def reduce(function: Any, iterable: Any, found: bool, result: Any) -> Any:
    for item in iterable:
        if found:
            result = function(result, item)
        else:
            found, result = True, item
    if found:
        return result
    raise TypeError("reduce() of empty iterable with no initial value")


@hidden
def sort(iterable: Any, key: Any, reverse: Any) -> Any:
    values = collect(iterable)
    keys = values if key is None else [key(item) for item in values]
    order = sorted(range(len(values)), key=keys.__getitem__, reverse=reverse)
    return [values[i] for i in order]


@hidden
def sort_in_place(target: Any, key: Any, reverse: Any) -> Any:
    keys = [key(item) for item in target]
    order = sorted(range(len(keys)), key=keys.__getitem__, reverse=reverse)
    target[:] = [target[i] for i in order]


@hidden
def next_or(function: Any, args: Any, default: Any) -> Any:
    try:
        return function(*args)
    except StopIteration:
        return default


# ---- special methods ---------------------------------------------------------------------------


@hidden
def boolean(method: Any, value: Any) -> Any:
    found = method(value)
    if found is True or found is False:
        return found
    raise TypeError(f"__bool__ should return bool, returned {type(found).__name__}")


@hidden
def filled(value: Any) -> Any:
    return len(value) > 0


@hidden
def has(method: Any, container: Any, item: Any) -> Any:
    return True if method(container, item) else False


@hidden
def lacks(method: Any, container: Any, item: Any) -> Any:
    return False if method(container, item) else True


@hidden
def among(container: Any, item: Any) -> Any:
    for other in container:
        if other is item or other == item:
            return True
    return False


@hidden
def not_among(container: Any, item: Any) -> Any:
    for other in container:
        if other is item or other == item:
            return False
    return True


@hidden
def attribute(getattribute: Any, fallback: Any, value: Any, name: str) -> Any:
    try:
        return getattribute(value, name)
    except AttributeError:
        pass
    return fallback(value, name)


@hidden
def computed(getter: Any, given: Any, fallback: Any, value: Any, name: str) -> Any:
    try:
        return getter(*given)
    except AttributeError:
        pass
    return fallback(value, name)


@hidden
def attribute_or(value: Any, name: str, default: Any) -> Any:
    try:
        return getattr(value, name)
    except AttributeError:
        return default


@hidden
def has_attribute(value: Any, name: str) -> Any:
    try:
        getattr(value, name)
    except AttributeError:
        return False
    return True


@hidden
def create(new: Any, cls: Any, args: Any, named: Any) -> Any:
    """A call of a class with ``__new__`` in Python and no ``__init__``."""
    made = new(cls, *args, **named)
    if type(made) is not cls and cls in type(made).__mro__:
        type(made).__init__(made, *args, **named)
    return made


@hidden
def construct(new: Any, init: Any, cls: Any, args: Any, named: Any) -> Any:
    """A call of a class whose ``__new__`` is a Python function."""
    made = new(cls, *args, **named)
    if type(made) is not cls:
        if cls not in type(made).__mro__:
            return made
        init = type(made).__init__
    found = init(made, *args, **named)
    if found is not None:
        raise TypeError(f"__init__() should return None, not '{type(found).__name__}'")
    return made


@hidden
def operate(method: Any, a: Any, b: Any, reflected: Any, complain: Any, symbol: str) -> Any:
    """A binary operator whose left operand has ``method``; ``reflected`` is the right one's."""
    found = method(a, b)
    if found is NotImplemented and reflected is not None:
        found = reflected(b, a)
    return complain(symbol, a, b) if found is NotImplemented else found


@hidden
def update(method: Any, a: Any, b: Any, otherwise: Any) -> Any:
    """An operator with assignment."""
    found = method(a, b)
    return otherwise(a, b) if found is NotImplemented else found


@hidden
def reflect(method: Any, a: Any, b: Any, complain: Any, symbol: str) -> Any:
    """The same where only the right operand has a method."""
    found = method(b, a)
    return complain(symbol, a, b) if found is NotImplemented else found


@hidden
def unsupported(symbol: str, a: Any, b: Any) -> Any:
    names = f"'{type(a).__name__}' and '{type(b).__name__}'"
    raise TypeError(f"unsupported operand type(s) for {symbol}: {names}")


@hidden
def unordered(symbol: str, a: Any, b: Any) -> Any:
    names = f"'{type(a).__name__}' and '{type(b).__name__}'"
    raise TypeError(f"'{symbol}' not supported between instances of {names}")


@hidden
def identical(symbol: str, a: Any, b: Any) -> Any:
    return a is b


@hidden
def different(symbol: str, a: Any, b: Any) -> Any:
    return a is not b
