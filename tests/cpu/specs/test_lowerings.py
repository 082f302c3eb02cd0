"""Every pointwise lowering gives what eager gives, in every dtype that the row accepts."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from specs import dtypes, rounding
from specs.operators import OPERATORS, Arg, Operator
from tests.cpu.specs.evaluate import Number, dtype_of, lowered, name_of, typed

ROWS = OPERATORS.where(lambda row: row.kind in ("pointwise", "cast") and row.lowering is not None)
SIZE = 24
VALUES = (0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 3.0, 100.0, -0.001, math.inf, -math.inf, math.nan)


def tensor(arg: Arg, dtype: str, random_: random.Random, size: int = SIZE) -> torch.Tensor:
    low, high = arg.values if arg.values else (-10.0, 10.0)
    if dtype == "bool":
        return torch.tensor([random_.random() < 0.5 for _ in range(size)])
    if dtypes.is_float(dtype):
        special = [] if arg.values else list(VALUES)
        numbers: list[Any] = special + [
            random_.uniform(low, high) for _ in range(size - len(special))
        ]
        random_.shuffle(numbers)
        return torch.tensor(numbers, dtype=torch.float64).to(dtype_of(dtype))
    first, last = dtypes.int_range(dtype)
    first, last = max(first, int(low)), min(last, int(high))
    numbers = [random_.randint(first, last) for _ in range(size)]
    if arg.nonzero:
        numbers = [number or 1 for number in numbers]
    return torch.tensor(numbers, dtype=dtype_of(dtype))


def scalar(arg: Arg, dtype: str, random_: random.Random) -> Any:
    if dtype == "bool" and arg.kind == "scalar" and not arg.values:
        return True
    low, high = arg.values if arg.values else (0, 4)
    whole = random_.randint(math.ceil(low), math.floor(high)) if low < high else low
    if arg.kind == "int" or (arg.kind == "scalar" and not dtypes.is_float(dtype)):
        return (whole or 1) if arg.nonzero else whole
    if arg.kind == "scalar" and random_.random() < 0.3:
        return whole or 1
    return random_.uniform(low, high) if low < high else low


def argument(arg: Arg, dtype: str, random_: random.Random, *, number: bool) -> Any:
    if arg.kind == "tensor" or (arg.kind == "operand" and not number):
        if arg.max_rank == 0:
            return tensor(arg, dtype, random_)[-1].nan_to_num(1.0)
        return tensor(arg, dtype, random_)
    if arg.kind == "mask":
        return tensor(arg, "bool", random_)
    if arg.kind == "operand":
        return scalar(
            Arg(arg.name, "scalar", values=arg.values, nonzero=arg.nonzero), dtype, random_
        )
    if arg.kind == "choice":
        return random_.choice(arg.values)
    if arg.kind == "dtype":
        return dtype_of(random_.choice(dtypes.ALL))
    if arg.kind == "bool":
        return random_.random() < 0.5
    assert arg.kind in ("scalar", "float", "int"), arg.kind
    return scalar(arg, dtype, random_)


def cases(row: Operator, dtype: str, count: int) -> Iterator[dict[str, Any]]:
    random_ = random.Random(f"{row.name} {dtype}")
    for i in range(count):
        args = {}
        for arg in row.args:
            if not arg.reached or (arg.optional and i % 2 and arg.kind != "tensor"):
                continue
            args[arg.name] = argument(arg, dtype, random_, number=i % 2 == 1)
        yield args


def eager(row: Operator, args: dict[str, Any]) -> torch.Tensor:
    function: Any = torch
    for part in row.call.split(".")[1:]:
        function = getattr(function, part)
    places = [args[a.name] for a in row.args if not a.keyword and a.name in args]
    named = {a.name: args[a.name] for a in row.args if a.keyword and a.name in args}
    return function(*places, **named)


def explain(row: Operator, args: dict[str, Any], i: int) -> str:
    values = {
        n: (v.expand(SIZE).flatten()[i].item() if isinstance(v, torch.Tensor) else v)
        for n, v in args.items()
    }
    return f"{row.name}{values}"


def close(row: Operator, got: Number, want: Any) -> bool:
    """Within twice the bound, since eager may be as far from the exact value as we are."""
    if got.value == want or not dtypes.is_float(got.dtype):
        return bool(got.value == want)
    bound = 2 * row.tolerance.get(got.dtype, 0.0)
    if rounding.ulp_error(got.value, want, got.dtype) <= bound:
        return True
    unit = rounding.ulp(got.largest(), got.dtype)
    return row.cancels and math.isfinite(want) and abs(got.value - want) <= bound * unit


# Where eager contradicts itself between its vector and its scalar loops.
NAN_FREE = ("aten.copysign.Tensor", "aten.signbit.default", "aten.hardtanh_backward.default")


def excused(row: Operator, args: dict[str, Any], i: int) -> bool:
    values = [v.flatten()[i].item() for v in args.values() if isinstance(v, torch.Tensor)]
    if row.name in NAN_FREE:
        return any(v != v for v in values)
    return row.name == "aten.gelu.default" and math.isinf(values[0])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_lowering_gives_what_eager_gives(row: Operator) -> None:
    compared = 0
    for dtype in sorted(row.dtypes):
        for args in itertools.islice(cases(row, dtype, 6), 6):
            if not row.lowers(typed(args)):
                continue
            try:
                expected = eager(row, args)
            except (RuntimeError, TypeError) as error:
                pytest.fail(f"eager rejects {explain(row, args, 0)} on {dtype}: {error}")
            (kind,) = row.infer(typed(args))
            assert kind.dtype == name_of(expected.dtype), f"{dtype}: {typed(args)}"
            assert kind.shape == tuple(expected.shape)
            found = lowered(row, args)
            for i, (got, want) in enumerate(zip(found, expected.flatten().tolist(), strict=True)):
                assert close(row, got, want) or excused(row, args, i), (
                    f"{explain(row, args, i)} on {dtype} is {want!r} in eager, not {got.value!r}"
                )
                compared += 1
    assert compared >= SIZE * len(row.dtypes) / 2
