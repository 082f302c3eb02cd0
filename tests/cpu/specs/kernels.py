"""Numba texts of scalar rows as functions over arrays."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from fastpath.cpu import maths
from specs.scalars import Scalar

NUMPY = {
    "bool": np.bool_,
    "uint8": np.uint8,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "float32": np.float32,
    "float64": np.float64,
}


@functools.cache  # a compilation costs more than what is measured with it
def compiled(text: str, arity: int) -> Any:
    """``text`` over ``a``, ``b``, ``c`` as a numba loop from arrays to an array."""
    names = "abc"[:arity]
    elements = ", ".join(f"{name}_in" for name in names)
    lines = [
        f"def kernel({elements}, out):",
        "    for i in range(out.shape[0]):",
        *(f"        {name} = {name}_in[i]" for name in names),
        f"        out[i] = {text}",
    ]
    namespace: dict[str, Any] = {"m": maths, "np": np}
    exec("\n".join(lines), namespace)
    return njit(error_model="numpy")(namespace["kernel"])


def columns(row: Scalar, dtype: str, operands: Sequence[tuple[Any, ...]]) -> list[np.ndarray]:
    """The operand tuples as one array per operand; ``where``'s first is bool."""
    result = []
    for place in range(row.arity):
        kind = np.bool_ if row.name == "where" and place == 0 else NUMPY[dtype]
        with np.errstate(over="ignore"):
            result.append(np.array([operand[place] for operand in operands]).astype(kind))
    return result


def run(kernel: Any, inputs: list[np.ndarray], dtype: str) -> np.ndarray:
    """The kernel on arrays, long enough that the vectorised loop sees every operand."""
    out = np.empty(len(inputs[0]), NUMPY[dtype])
    kernel(*inputs, out)
    return out
