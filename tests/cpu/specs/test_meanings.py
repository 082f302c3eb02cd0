"""The exact meanings against eager: exactly on integers and bool, closely in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from specs import dtypes, rounding
from specs.scalars import SCALARS, Scalar
from tests.cpu.specs.evaluate import dtype_of
from tests.cpu.specs.operands import drawn, specials

# scalar rows whose torch function has another name
NAMES: dict[str, Callable[..., torch.Tensor]] = {
    "truediv": torch.true_divide,
    "floordiv": torch.floor_divide,
    "truncdiv": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    **{name: getattr(torch.special, name) for name in ("i0e", "i1", "i1e")},
    "lshift": torch.bitwise_left_shift,
    "rshift": torch.bitwise_right_shift,
    "binade": lambda x: torch.where(
        x.isfinite() & (x != 0), x.abs() / torch.frexp(x).mantissa.abs() / 2, x.abs()
    ),
}
# eager's own distance from the exact value in float64, where it is more than 2 ULP
LOOSE = {"lgamma": 64.0, "tan": 4.0, "pow": 4.0, "acosh": 4.0, "erfc": 4.0, "floordiv": 4.0}
LOOSE |= dict.fromkeys(("i0", "i0e", "i1", "i1e"), 8.0) | {"digamma": 512.0}
# where eager's vector functions fail: the meaning is right, and a kernel may be better than eager
WEAK: dict[str, Callable[..., bool]] = {
    "digamma": lambda x: x < 0 or abs(x - 1.4616321449683622) < 0.1,  # near its roots
    "fmod": lambda x, y: abs(x) > abs(y) * 2.0**500,
    "sinh": lambda x: abs(x) > 709,
    "cosh": lambda x: abs(x) > 709,
}
# what no operator of eager's is by itself: fma is part of kernels, philox has published vectors
ALONE = ("cast", "fma", "philox")
ROWS = SCALARS.where(lambda row: row.name not in ALONE)
DIVIDING = ("truncdiv", "floordiv", "remainder", "fmod")


def skipped(row: Scalar, dtype: str, operands: tuple[Any, ...]) -> bool:
    """What eager raises for, or leaves open."""
    if dtypes.is_float(dtype):
        nan = any(isinstance(v, float) and v != v for v in operands)
        if row.name in WEAK and WEAK[row.name](*operands):
            return True
        return nan and row.name in ("copysign", "signbit")
    if row.name in DIVIDING:
        return operands[1] == 0 or (operands[1] == -1 and operands[0] < 0)
    return row.name == "pow" and operands[1] < 0


def same(row: Scalar, got: Any, exact: Any, dtype: str) -> bool:
    if not dtypes.is_float(dtype):
        return bool(got == rounding.store(exact, dtype))
    if got == 0 and exact == 0 and row.name in ("minimum", "maximum", "fmin", "fmax", "lgamma"):
        return True
    return rounding.ulp_error(got, exact, dtype) <= LOOSE.get(row.name, 2.0)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_meaning_is_eagers(row: Scalar) -> None:
    function = NAMES.get(row.name) or getattr(torch, row.name)
    compared = 0
    for dtype in sorted(row.dtypes - {"float32"}):
        operands = [
            values
            for values in [*specials(row, dtype), *drawn(row, dtype, 200, 2)]
            if not skipped(row, dtype, values)
        ]
        columns = []
        for place in range(row.arity):
            kind = "bool" if row.name == "where" and place == 0 else dtype
            columns.append(torch.tensor([v[place] for v in operands], dtype=dtype_of(kind)))
        try:
            results = function(*columns).tolist()
        except RuntimeError as error:
            assert "not implemented" in str(error) or "not supported" in str(error), error
            continue
        meaning = row.meaning(dtype)
        result = "bool" if row.result == "bool" else dtype
        for values, got in zip(operands, results, strict=True):
            exact = meaning(*values)
            assert same(row, got, exact, result), (
                f"{row.name}{values} on {dtype} is {got!r} in eager, the meaning says {exact}"
            )
            compared += 1
    assert compared >= 60


def test_casts_are_eagers() -> None:
    row = SCALARS["cast"]
    compared = 0
    for source in sorted(row.dtypes):
        values = [v for (v,) in [*specials(row, source), *drawn(row, source, 200, 3)]]
        tensor = torch.tensor(values, dtype=dtype_of(source))
        for target in dtypes.ALL:
            meaning = row.meaning(target)
            for value, got in zip(
                tensor.tolist(), tensor.to(dtype_of(target)).tolist(), strict=True
            ):
                exact = meaning(value)
                if target in dtypes.REDUCED:  # eager goes through float32
                    exact = rounding.to_float(exact, "float32")
                expected = rounding.store(exact, target)
                equal = got == expected or (math.isnan(got) and math.isnan(expected))
                assert equal, f"{value!r} from {source} to {target} is {got!r}, not {expected!r}"
                compared += 1
    assert compared > 15_000
