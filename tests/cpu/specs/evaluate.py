"""Pointwise lowerings evaluated element by element with the meanings of the scalar rows.

Every step is rounded to the computing dtype, as a kernel would, so the result is what a correct
kernel without contraction gives.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from specs import dtypes, rounding
from specs.dtypes import TensorType
from specs.operators import Operator
from specs.scalars import SCALARS, Scalar


@dataclass(frozen=True)
class Number:
    """One element on its way: a Python number of a dtype, and the largest number it came from."""

    value: Any
    dtype: str
    size: float = 0.0

    def largest(self) -> float:
        """The magnitude of the largest finite number that it was computed from, itself included."""
        own = abs(float(self.value))
        return max(self.size, own) if math.isfinite(own) else self.size


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    return getattr(torch, name)


def cast(x: Number, dtype: str) -> Number:
    """As the scalar row ``cast``; the reduced floats live in float32."""
    value = rounding.store(SCALARS["cast"].meaning(dtype)(x.value), dtype)
    return Number(value, dtype, x.largest())


def widen(x: Number, dtype: str) -> Number:
    """The same value in the computing dtype."""
    return Number(x.value, dtype, x.size)


def _apply(row: Scalar, *operands: Number) -> Number:
    computing = operands[-1].dtype
    names = {operand.dtype for operand in operands[row.name == "where" :]}
    assert len(names) == 1, f"{row.name} on {names}"
    assert computing in row.dtypes, f"{row.name} has no meaning on {computing}"
    result = "bool" if row.result == "bool" else computing
    value = row.meaning(computing)(*(operand.value for operand in operands))
    size = max(operand.largest() for operand in operands)
    return Number(rounding.store(value, result), result, size)


def largest(dtype: str) -> float:
    return torch.finfo(dtype_of(dtype)).max if dtypes.is_float(dtype) else 0.0


def typed(args: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with tensors and dtypes as the rules want them."""

    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return TensorType(name_of(value.dtype), tuple(value.shape))
        if isinstance(value, torch.dtype):
            return name_of(value)
        if isinstance(value, (list, tuple)):
            return [convert(v) for v in value]
        return value

    return {name: convert(value) for name, value in args.items()}


def lowered(row: Operator, args: Mapping[str, Any]) -> list[Number]:
    """The operator's result, flattened, from its lowering; tensors broadcast."""
    full = row.complete(args)
    computation = row.computation(typed(full))
    tensors = {n: v for n, v in full.items() if isinstance(v, torch.Tensor)}
    shape = torch.broadcast_shapes(*(t.shape for t in tensors.values()))
    columns = {n: t.expand(shape).flatten().tolist() for n, t in tensors.items()}

    def const(value: Any) -> Number:
        number = Number(value, dtypes.number_dtype(value))
        return Number(cast(number, computation.compute).value, computation.compute)

    def rounded(value: Any) -> Number:
        number = cast(Number(value, dtypes.number_dtype(value)), computation.common)
        return widen(number, computation.compute)

    names: dict[str, Any] = {row.name: functools.partial(_apply, row) for row in SCALARS}
    names |= {
        "const": const,
        "rounded": rounded,
        "cast": lambda x, dtype: cast(x, dtype),
        "dtype": computation.compute,
        "common": computation.common,
        "result": computation.result,
        "largest": largest(computation.result),
        "plain": full,
        "math": math,
        "is_float": dtypes.is_float,
        "is_int": dtypes.is_int,
        "nonzero": lambda x: x,
    }

    def operand(arg: Any, value: Any, dtype: str, zero_dim: bool) -> Number:
        number = Number(value, dtype)
        if not arg.promotes:
            return number
        target = computation.scalars if zero_dim else computation.common
        return widen(cast(number, target), computation.compute)

    results = []
    assert row.lowering is not None
    for i in range(math.prod(shape)):
        local = {}
        for arg in row.args:
            value = full[arg.name]
            if arg.name in tensors:
                tensor = tensors[arg.name]
                local[arg.name] = operand(
                    arg, columns[arg.name][i], name_of(tensor.dtype), not tensor.shape
                )
            elif arg.promotes and value is not None:
                local[arg.name] = operand(arg, value, dtypes.number_dtype(value), True)
            else:
                local[arg.name] = value
        found = eval(row.lowering, {"__builtins__": {}}, names | local)
        if found.dtype != computation.result:
            found = cast(found, computation.result)
        results.append(found)
    return results
