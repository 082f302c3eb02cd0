"""Numbers that tensors hold: what a graph computes from symbols alone is a symbol again.

``torch.div(n, 2, rounding_mode="floor")`` of a size gives a tensor of no dimension. Where a
program asks for its number, or gives it as a size, the graph is looked at from there back to the
symbols, so that what nobody asks for costs nothing. Whole numbers and truth values only: they are
exact.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from refcompiler.capture.known import is_data
from refcompiler.capture.policy import operation_name

_EXACT = (torch.int64, torch.bool)
_NUMBERS = (int, bool, torch.SymInt, torch.SymBool)
#: Operations that give what they are given, in tensors of no dimension.
_SAME = frozenset(
    "tensor scalar_tensor clone detach contiguous long to cpu view reshape squeeze __pos__".split()
)


class _Unknown(Exception):
    """Not a number that symbols tell."""


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
    if node is None or recorder.suspended or recorder.switched or recorder.kinds:
        return None
    if recorder.mutates and any(map(is_data, recorder.scope.graph.nodes)):
        return None
    with torch._C.DisableTorchFunction():
        try:
            return _held(node, {})
        except _Unknown:
            return None


def _held(node: Any, found: dict[Any, Any]) -> Any:
    """What ``node`` gives, as a number."""
    if type(node) in (int, bool):
        return node
    if not isinstance(node, torch.fx.Node):
        raise _Unknown
    if node not in found:
        found[node] = _computed(node, found)
    return found[node]


def _computed(node: torch.fx.Node, found: dict[Any, Any]) -> Any:
    value = node.meta.get("example_value")
    if type(value) in _NUMBERS:
        return value
    if not isinstance(value, torch.Tensor) or value.dtype not in _EXACT or value.dim():
        raise _Unknown
    if value.is_inference() or value._version or node.op not in ("call_function", "call_method"):
        raise _Unknown
    name = node.target if isinstance(node.target, str) else operation_name(node.target)
    name = name.strip("_")
    if name in _SAME:
        return _converted(_held(node.args[0], found), value.dtype)
    if name in ("div", "divide") and node.kwargs.keys() == {"rounding_mode"}:
        a, b = [_held(part, found) for part in node.args]
        return _quotient(a, b, node.kwargs["rounding_mode"])
    operation = _OPERATIONS.get(name)
    if operation is None or node.kwargs or not 1 <= len(node.args) <= 2:
        raise _Unknown
    parts = [_held(part, found) for part in node.args]
    if any(type(part) not in (int, torch.SymInt) for part in parts):
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

    first = 0 if name in ("zeros", "ones", "empty", "full", "arange") else 1
    given = (*args[:first], *map(known, args[first:]))
    return given, {key: known(value) for key, value in kwargs.items()}
