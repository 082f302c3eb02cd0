"""Operands that try a scalar row: its special ones, and random ones of every magnitude."""

from __future__ import annotations

import itertools
import math
import random
import struct
from collections.abc import Iterator
from typing import Any

from specs import dtypes, rounding
from specs.scalars import Scalar


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


def operands_of(row: Scalar, dtype: str, count: int) -> list[tuple[Any, ...]]:
    """Special and random operands of a row, padded to a multiple of the widest vector."""
    found = list(itertools.chain(specials(row, dtype), drawn(row, dtype, count, 0)))
    while len(found) % 64:
        found.append(found[0])
    return found
