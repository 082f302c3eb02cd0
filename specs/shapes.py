"""Shape rules that operator rows name, over shapes as tuples of integers.

A rule gets the arguments by name, complete, with tensors as objects that have a ``shape``
(:class:`specs.dtypes.TensorType` or the like), and returns one shape per output. Bad arguments
raise ``ValueError`` (or ``IndexError`` for a dimension out of range), as eager does.
Source: the shape sections of the PyTorch reference pages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Shape = tuple[int, ...]
ShapeRule = Callable[[Mapping[str, Any]], tuple[Shape, ...]]
SHAPE_RULES: dict[str, ShapeRule] = {}


def shape_rule(function: ShapeRule) -> ShapeRule:
    """Register a rule under the function's name."""
    SHAPE_RULES[function.__name__] = function
    return function


def broadcast(*shapes: Sequence[int]) -> Shape:
    """The common shape: aligned at the end, lengths equal or 1."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for axis, length in enumerate(shape, rank - len(shape)):
            if length != 1 and result[axis] not in (1, length):
                raise ValueError(f"shapes {[tuple(s) for s in shapes]} do not broadcast")
            if length != 1:
                result[axis] = length
    return tuple(result)


def wrap(dim: int, rank: int) -> int:
    """A dimension counted from 0; a 0-dim tensor counts as having one."""
    limit = max(rank, 1)
    if not -limit <= dim < limit:
        raise IndexError(f"dimension {dim} is out of range for {rank} dimensions")
    return dim % limit


def wrap_all(dims: Any, rank: int) -> list[int]:
    """Distinct dimensions from 0; ``None`` or an empty list means all."""
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return list(range(rank))
    wrapped = [wrap(dim, rank) for dim in ([dims] if isinstance(dims, int) else dims)]
    if len(set(wrapped)) != len(wrapped):
        raise ValueError(f"dimensions {dims} are not distinct")
    return wrapped


def reduced(shape: Sequence[int], dims: Any, keepdim: bool) -> Shape:
    """The shape after reducing ``dims``."""
    gone = set(wrap_all(dims, len(shape)))
    if keepdim:
        return tuple(1 if axis in gone else n for axis, n in enumerate(shape))
    return tuple(n for axis, n in enumerate(shape) if axis not in gone)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "shape")


def _tensors(args: Mapping[str, Any]) -> list[Shape]:
    return [tuple(value.shape) for value in args.values() if _is_tensor(value)]


def _shape(args: Mapping[str, Any], name: str = "self") -> Shape:
    return tuple(args[name].shape)


@shape_rule
def broadcasting(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """All tensors broadcast."""
    return (broadcast(*_tensors(args)),)


@shape_rule
def like_first(args: Mapping[str, Any]) -> tuple[Shape, ...]:
    """The first tensor's shape."""
    return (_tensors(args)[0],)
