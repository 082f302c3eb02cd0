"""Numbers that tensors hold: what a graph computes from symbols alone is a symbol again.

``torch.div(n, 2, rounding_mode="floor")`` of a size gives a tensor of no dimension. Where a
program asks for its number, or gives it as a size, the graph is looked at from there back to the
symbols, and to numbers that are :mod:`steady <refcompiler.capture.steady>`, so that what nobody
asks for costs nothing. Whole numbers and truth values only, which are exact, and what is rounded up
or down of one quotient of them, where rounding to float32 cannot change that.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import _disable_current_modes

from refcompiler.capture.known import is_data
from refcompiler.naming import target_name

_EXACT = (torch.int64, torch.bool)
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_NUMBERS = (int, bool, torch.SymInt, torch.SymBool)
#: Operations that give what they are given, in tensors of no dimension.
_SAME = frozenset(
    "tensor scalar_tensor clone detach contiguous long to cpu view reshape squeeze __pos__".split()
)


class _Unknown(Exception):
    """Not a number that symbols tell."""


_FLOATS = (torch.float32, torch.float64)
#: A quotient of less, to which whole numbers were added that often, is off by less than 2**21 *
#: 4 * 2**-24 of its distance to the next whole number, in float32.
_SAFE, _ADDED = 2**21, 3


class _Ratio(NamedTuple):
    """What a tensor of floats holds: ``above / below``, a constant, computed in ``steps``."""

    above: Any
    below: int
    steps: int = 1

    def checked(self) -> _Ratio:
        if self.below <= 0 or self.steps > _ADDED:
            raise _Unknown
        if not (self.above <= _SAFE and self.above >= -_SAFE):  # a guard, of a symbol
            raise _Unknown
        return self

    def plus(self, number: Any, sign: int = 1) -> _Ratio:
        if type(number) not in (int, torch.SymInt):
            raise _Unknown
        return _Ratio(sign * self.above + number * self.below, self.below, self.steps + 1).checked()

    def floor(self) -> _Ratio:
        return _Ratio(self.above // self.below, 1)

    def ceil(self) -> _Ratio:
        return _Ratio((self.above + self.below - 1) // self.below, 1)


def _divided(a: Any, b: Any) -> _Ratio:
    if type(a) not in (int, torch.SymInt) or type(b) is not int:
        raise _Unknown
    return _Ratio(a, b).checked()


_DIVIDING = frozenset({"div", "divide", "truediv"})
#: What is done with a quotient, and with a whole number beside it.
_OF_RATIOS: dict[str, Callable] = {
    "ceil": lambda a: a.ceil(),
    "floor": lambda a: a.floor(),
    "neg": lambda a: a.plus(0, -1),
    "add": lambda a, b: a.plus(b) if type(a) is _Ratio else b.plus(a),
    "radd": lambda a, b: a.plus(b),
    "sub": lambda a, b: a.plus(-b) if type(a) is _Ratio else b.plus(a, -1),
    "rsub": lambda a, b: a.plus(b, -1),
}


def _quotient(a: Any, b: Any, rounding: Any) -> Any:
    if not {type(a), type(b)} <= {int, torch.SymInt}:
        raise _Unknown
    if rounding == "trunc" and not (_low(a) >= 0 and _low(b) > 0):
        raise _Unknown
    if rounding not in ("floor", "trunc") or not (_low(b) > 0 or _high(b) < 0):
        raise _Unknown
    return a // b


def _converted(number: Any, dtype: torch.dtype) -> Any:
    if dtype is torch.bool:
        return number != 0 if type(number) in (int, torch.SymInt) else number
    if type(number) is _Ratio and number.below == 1 and dtype is torch.int64:
        return number.above
    if type(number) not in (int, bool, torch.SymInt):
        raise _Unknown
    return int(number) if type(number) is bool else number


def _low(number: Any) -> float:
    if type(number) is torch.SymInt:
        return number.node.shape_env.knowledge.range_of(number.node.expr).low
    return number


def _high(number: Any) -> float:
    if type(number) is torch.SymInt:
        return number.node.shape_env.knowledge.range_of(number.node.expr).high
    return number


def _extreme(name: str) -> Callable[[Any, Any], Any]:
    return lambda a, b: getattr(torch, name)(a, b)


_OPERATIONS: dict[str, Callable] = {
    name: getattr(operator, name) for name in "add sub mul eq ne lt le gt ge neg abs".split()
}
_OPERATIONS |= {
    "multiply": operator.mul,
    "subtract": operator.sub,
    "maximum": _extreme("sym_max"),
    "minimum": _extreme("sym_min"),
    "floor_divide": lambda a, b: _quotient(a, b, "floor"),
    "floordiv": lambda a, b: _quotient(a, b, "floor"),
    "rsub": lambda a, b: b - a,
    "radd": operator.add,
    "rmul": operator.mul,
    "rfloordiv": lambda a, b: _quotient(b, a, "floor"),
}


def number_of(recorder: Any, fake: torch.Tensor) -> Any:
    """The symbol, or the number, that a tensor of one element holds; None if nobody knows it."""
    if recorder.fake_mode.shape_env is None or recorder.scope is not recorder.root:
        return None
    node = recorder.scope.nodes.get(id(fake))
    if node is None or recorder.suspended or recorder.kinds:
        return None
    if recorder.mutates and any(map(is_data, recorder.scope.graph.nodes)):
        return None
    with torch._C.DisableTorchFunction():
        try:
            number = _held(recorder, node, {})
            return None if type(number) is _Ratio else number
        except _Unknown:
            return None


def _held(recorder: Any, node: Any, found: dict[Any, Any]) -> Any:
    """What ``node`` gives, as a number."""
    if type(node) in (int, bool):
        return node
    if not isinstance(node, torch.fx.Node):
        raise _Unknown
    if node not in found:
        found[node] = _computed(recorder, node, found)
    return found[node]


def _computed(recorder: Any, node: torch.fx.Node, found: dict[Any, Any]) -> Any:
    value = node.meta.get("example_value")
    if type(value) in _NUMBERS:
        return value
    if not isinstance(value, torch.Tensor) or value.dim():
        raise _Unknown
    exact = value.dtype in _EXACT
    if node.op == "placeholder" and exact:
        kept = recorder.steady(value, node)
        if kept is None:
            raise _Unknown
        with _disable_current_modes():
            return kept.item()
    if value.is_inference() or value._version or node.op not in ("call_function", "call_method"):
        raise _Unknown
    name = target_name(node.target).strip("_")
    if not (exact or (value.dtype in _FLOATS and (name in _OF_RATIOS or name in _DIVIDING))):
        raise _Unknown
    if name in _SAME:
        return _converted(_held(recorder, node.args[0], found), value.dtype)
    rounds = node.kwargs.keys() == {"rounding_mode"}
    if node.kwargs and not (rounds and name in _DIVIDING):
        raise _Unknown
    parts = [_held(recorder, part, found) for part in node.args]
    if rounds:
        above, below = parts
        return _quotient(above, below, node.kwargs["rounding_mode"])
    if name in _DIVIDING and len(parts) == 2:
        return _divided(*parts)
    kinds = {*map(type, parts)}
    operation = (_OF_RATIOS if _Ratio in kinds else _OPERATIONS).get(name)
    if operation is None or not 1 <= len(parts) <= 2 or not kinds <= {int, torch.SymInt, _Ratio}:
        raise _Unknown
    if len(parts) == 2 and kinds == {_Ratio}:  # which may be a whole number only together
        raise _Unknown
    return operation(*parts)


#: What reads one number, and the number that it gives.
_READING: dict[str, Callable] = {
    "bool": bool, "is_nonzero": bool, "int": torch.sym_int, "index": torch.sym_int,
    "item": lambda n: n, "tolist": lambda n: n, "float": torch.sym_float,
}  # fmt: skip


def read(recorder: Any, function: Any, fake: torch.Tensor) -> tuple[Any, ...]:
    """``(function(fake),)`` where it reads a number that symbols tell, or ``()``."""
    reading = _READING.get(getattr(function, "__name__", "").strip("_"))
    held = None if reading is None else number_of(recorder, fake)
    if reading is None or held is None:
        return ()
    return (reading(held),)


#: Operations of which a tensor may say a size or a place.
SIZED = frozenset(
    """
    view reshape expand repeat tile unflatten as_strided narrow split split_with_sizes zeros ones
    empty full new_zeros new_ones new_empty new_full arange select roll unfold __getitem__
    """.split()
)


def as_numbers(recorder: Any, name: str, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments of an operation of :data:`SIZED`, with numbers for tensors that hold one."""

    def known(value: Any) -> Any:
        kind = type(value)
        if kind in (tuple, list):
            return kind([known(item) for item in value])
        if kind is slice:
            return slice(known(value.start), known(value.stop), known(value.step))
        if issubclass(kind, torch.Tensor) and not value.dim() and value.dtype is torch.int64:
            held = number_of(recorder, value)
            return value if held is None else held
        return value

    first = _first_size(name)
    given = (*args[:first], *map(known, args[first:]))
    return given, {key: known(value) for key, value in kwargs.items()}


def _first_size(name: str) -> int:
    return 0 if name in ("zeros", "ones", "empty", "full", "arange") else 1


def as_known(
    recorder: Any, name: str, args: tuple, kwargs: dict
) -> tuple[tuple, dict[str, Any]] | None:
    """The arguments of an operation that asks tensors for numbers, where capture knows them all.

    Those of whole numbers are asked, but for the tensor that the operation is one of.
    """
    found: list[Any] = []

    def known(value: Any, asked: bool) -> Any:
        kind = type(value)
        if kind in (tuple, list):
            return kind([known(item, True) for item in value])
        if kind is slice:
            return slice(*[known(part, True) for part in (value.start, value.stop, value.step)])
        if not asked or not issubclass(kind, torch.Tensor) or value.dim():
            return value
        if value.dtype not in _WHOLE:
            return value
        number = recorder.known(torch.Tensor.item, (value,))
        found.append(number)
        return number[0] if number else value

    first = _first_size(name)
    given = tuple([known(value, i >= first) for i, value in enumerate(args)])
    named = {key: known(value, True) for key, value in kwargs.items()}
    return (given, named) if found and all(found) else None
