"""What rules for operators that draw have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastpath.ir.elementwise import NotLowered
from fastpath.ir.index import contiguous_strides
from fastpath.ir.types import name_of
from specs.dtypes import int_range, is_float, is_int

_EXACT = {"float16": 1 << 11, "bfloat16": 1 << 8, "float32": 1 << 24, "float64": 1 << 53}


@dataclass(frozen=True)
class Drawer:
    """What a rule draws with. ``state``: the kept state of the generator that it starts from,
    whose own state then stays as it is; ``generator``: one that is not the default."""

    lowering: Any
    state: Any = None
    generator: Any = None


Rule = Callable[[Drawer, Any, dict[str, Any]], Any]


def dense(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether the elements surely fill their memory, each a place of its own."""
    if not all(isinstance(n, int) for n in (*shape, *strides)):
        return tuple(strides) == tuple(contiguous_strides(shape))
    expected = 1
    for stride, n in sorted((s, n) for s, n in zip(strides, shape) if n != 1):
        if stride != expected:
            return False
        expected *= n
    return True


def floating(val: Any) -> str:
    dtype = name_of(val.dtype)
    if not is_float(dtype):
        raise NotLowered(f"a distribution of real numbers in {dtype}")
    return dtype


def bounds_of_integers(val: Any, bound: dict[str, Any]) -> tuple[int, int]:
    """Of ``randint`` and ``random_``: the least number and the one behind the greatest."""
    low, high = bound.get("low", bound.get("from", 0)), bound.get("high", bound.get("to"))
    dtype = name_of(val.dtype)
    if not isinstance(low, int) or not isinstance(high, int) or low >= high:
        raise NotLowered("bounds that eager refuses, or no upper bound")
    if is_int(dtype):
        least, most = int_range(dtype)
    elif is_float(dtype):
        most = _EXACT[dtype]
        least = -most
    else:
        raise NotLowered(f"integers in {dtype}")
    if low < least or high - 1 > most or high - low >= 1 << 63:
        raise NotLowered("bounds that the dtype does not hold")
    return low, high
