"""Numba texts of scalar rows as functions over arrays, and operands that try them."""

from __future__ import annotations

import itertools
import math
import random
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numba import njit

from fastpath.cpu import maths
from specs import dtypes, rounding
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


def fits(value: Any, dtype: str) -> bool:
    """Whether a Python number is a value of the dtype."""
    if dtypes.is_float(dtype):
        return isinstance(value, float)
    if isinstance(value, float):
        return False
    low, high = dtypes.int_range(dtype)
    return low <= value <= high


def representable(value: Any, dtype: str) -> Any:
    """The value as the dtype holds it."""
    if dtypes.is_float(dtype):
        return rounding.to_float(value, dtype)
    return bool(value) if dtype == "bool" else int(value)


def specials(row: Scalar, dtype: str) -> Iterator[tuple[Any, ...]]:
    """The row's special operands that are values of the dtype."""
    for operands in row.special:
        if row.name == "where":
            if fits(operands[1], dtype):
                yield (operands[0], *(representable(v, dtype) for v in operands[1:]))
        elif all(fits(value, dtype) for value in operands):
            yield tuple(representable(value, dtype) for value in operands)


def drawn(row: Scalar, dtype: str, count: int, seed: int) -> Iterator[tuple[Any, ...]]:
    """Random operands: any bits, all magnitudes, and the neighbourhood of 0 and 1."""
    random_ = random.Random(f"{row.name} {dtype} {seed}")
    for _ in range(count):
        operands = tuple(_draw(random_, dtype) for _ in range(row.arity))
        if row.name == "where":
            operands = (random_.random() < 0.5, *operands[1:])
        if row.domain and not all(
            low <= value <= high for value, (low, high) in zip(operands, row.domain, strict=True)
        ):
            continue
        yield operands


def _draw(random_: random.Random, dtype: str) -> Any:
    if dtype == "bool":
        return random_.random() < 0.5
    if not dtypes.is_float(dtype):
        low, high = dtypes.int_range(dtype)
        near = random_.randint(max(low, -9), 9)
        return random_.choice([near, random_.randint(low, high)])
    way = random_.randrange(6)
    if way == 0:  # any bits
        if dtype == "float32":
            return struct.unpack("f", struct.pack("I", random_.getrandbits(32)))[0]
        return struct.unpack("d", struct.pack("Q", random_.getrandbits(64)))[0]
    sign = random_.choice([-1.0, 1.0])
    value = (
        random_.uniform(-1, 1),
        sign * (1 + random_.uniform(-1, 1) * 2.0 ** -random_.randrange(1, 24)),
        sign * math.exp(random_.uniform(-12, 8)),
        random_.uniform(-40, 40),
        random_.uniform(-1000, 1000),
    )[way - 1]
    return rounding.to_float(value, dtype)


def run(kernel: Any, inputs: list[np.ndarray], dtype: str) -> np.ndarray:
    """The kernel on arrays, long enough that the vectorised loop sees every operand."""
    out = np.empty(len(inputs[0]), NUMPY[dtype])
    kernel(*inputs, out)
    return out


def operands_of(row: Scalar, dtype: str, count: int) -> list[tuple[Any, ...]]:
    """Special and random operands of a row, padded to a multiple of the widest vector."""
    found = list(itertools.chain(specials(row, dtype), drawn(row, dtype, count, 0)))
    while len(found) % 64:
        found.append(found[0])
    return found
