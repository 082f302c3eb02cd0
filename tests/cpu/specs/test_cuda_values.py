"""Lowerings for CUDA against values that eager gave on a GPU, at the ends of the range above all.

``cuda_values.json`` has what was asked of a device once: for each overload (and the number that it
was given, if it takes one) lines of operands and the result, complex numbers by their parts. What
lowerings say is computed of tensors here, as no GPU is needed to see whether it is that.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from specs.dtypes import TensorType
from specs.operators import ON_COMPLEX, OPERATORS
from specs.scalars import PAIRED, SCALARS, cast_text

RECORDED = json.loads(Path(__file__).with_name("cuda_values.json").read_text())["values"]
ULP = 8
NUMBERS = {"addcmul": "value", "addcdiv": "value", "lerp": "weight", "pow": "exponent"}


def _fma(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    if a.dtype == torch.float32:
        return (a.double() * b.double() + c.double()).float()
    found = a * b + c
    for i in range(found.numel()):  # where a product overflows that the sum need not
        x, y, z = a[i].item(), b[i].item(), c[i].item()
        if math.isfinite(x) and math.isfinite(y) and not math.isfinite(x * y):
            found[i] = _scaled_back(x * 0.25 * y + z * 0.25) if math.isfinite(z) else z
    return found


def _scaled_back(number: float) -> float:
    return number * 4 if abs(number) <= torch.finfo(torch.float64).max / 4 else number * math.inf


def _hypot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.where(a.isinf() | b.isinf(), math.inf, torch.hypot(a, b))


def _binade(x: torch.Tensor) -> torch.Tensor:
    exact = SCALARS["binade"].exact
    return torch.tensor([exact(v) for v in x.tolist()], dtype=x.dtype)


_OWN: dict[str, Callable[..., torch.Tensor]] = {
    "truediv": torch.true_divide,
    "fma": _fma,
    "hypot": _hypot,
    "binade": _binade,
}
_NAMES = [name for name in (*SCALARS.names(), *PAIRED.names()) if name != "cast"]


def _apply(name: str, *operands: Any) -> Any:
    if not any(t.is_complex() for t in operands):
        return (_OWN.get(name) or getattr(torch, name))(*operands)
    row = PAIRED[name]
    parts = [part for t in operands for part in (t.real, t.imag)]
    names = _names(parts[0]) | dict(zip("abcd", parts))
    for given, text in row.given:
        names[given] = eval(text, names)
    real = eval(row.real, names)
    return real if row.imag is None else torch.complex(real, eval(row.imag, names))


def _names(like: torch.Tensor) -> dict[str, Any]:
    return {
        **{name: functools.partial(_apply, name) for name in _NAMES},
        "math": math,
        "dtype": str(like.dtype).removeprefix("torch."),
        "const": lambda value: torch.full_like(like, value),
        "conj": lambda z: torch.complex(z.real, -z.imag),
        "is_number": lambda value: isinstance(value, (int, float, complex)),
        "is_tensor": lambda value: isinstance(value, torch.Tensor),
        "is_float": lambda dtype: dtype.startswith("float"),
    }


def _tensors(lines: list[list[str]], dtype: torch.dtype) -> list[torch.Tensor]:
    """The columns of the lines; two for each complex number."""
    columns = [[float(text) for text in column] for column in zip(*lines, strict=True)]
    if not dtype.is_complex:
        return [torch.tensor(column, dtype=dtype) for column in columns]
    part = torch.float32 if dtype == torch.complex64 else torch.float64
    found = [torch.tensor(column, dtype=part) for column in columns]
    return [torch.complex(a, b) for a, b in zip(found[::2], found[1::2], strict=True)]


def _agrees(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Infinities, nan and zeros' signs; the rest within ULP of the larger part."""
    if not wanted.is_complex():
        found, wanted = (torch.stack([t, t]) for t in (found, wanted))
    else:
        found, wanted = (torch.view_as_real(t).T for t in (found, wanted))
    info = torch.finfo(wanted.dtype)
    size = wanted.abs().nan_to_num(0, 0).amax(0).clamp(min=info.smallest_normal)
    near = (found - wanted).abs() <= ULP * info.eps * size
    zeros = (found == 0) & (wanted == 0)
    near &= ~zeros | (found.signbit() == wanted.signbit())
    return (near | (found == wanted) & ~zeros | found.isnan() & wanted.isnan()).all(0)


@pytest.mark.parametrize(
    ("what", "dtype"), [(what, d) for what in RECORDED for d in RECORDED[what]]
)
def test_a_lowering_gives_what_a_gpu_gave(what: str, dtype: str) -> None:
    name, _, number = what.partition(" ")
    kind: torch.dtype = getattr(torch, dtype)
    lines = [line.split(" -> ") for line in RECORDED[what][dtype]]
    operands = _tensors([given.split() for given, _ in lines], kind)
    results = [result.split() for _, result in lines]
    complex_result = kind.is_complex and len(results[0]) == 2
    (wanted,) = _tensors(results, kind if complex_result else operands[0].abs().dtype)
    row = (ON_COMPLEX if kind.is_complex else OPERATORS)[name]
    arguments: dict[str, Any] = {
        arg.name: t for arg, t in zip((a for a in row.args if a.reached), operands)
    }
    names = _names(operands[0]) | {"alpha": 2, **arguments}
    if number:
        value = complex(number) if "j" in number else float(number)
        names[NUMBERS.get(name.split(".")[1], "other")] = value
    if name == "aten.div.Scalar":
        names |= {"plain": {"other": value}, "other": torch.full_like(operands[0], value)}
    else:
        names["plain"] = dict(names)
    found = eval(row.lowering_on("cuda"), names)
    assert len(wanted) >= 8
    wrong = (~_agrees(found, wanted)).nonzero().flatten().tolist()
    assert not wrong, [(lines[i], found[i].item()) for i in wrong[:5]]


def test_a_scaled_operand_that_overflows_is_added_unrounded() -> None:
    """As on an H100: ``torch.sub(-inf, 3.4e38, alpha=-1.5)`` is -inf there."""
    x = torch.tensor([-math.inf, -3e38])
    other = torch.full_like(x, 3.4028234663852886e38)
    names = _names(x) | {"self": x, "other": other, "plain": {"other": other}, "alpha": -1.5}
    found = eval(OPERATORS["aten.sub.Tensor"].lowering_on("cuda"), names)
    torch.testing.assert_close(found, torch.tensor([-math.inf, 2.104235e38]))


def test_floats_become_short_integers_by_way_of_longer_ones() -> None:
    """As on an H100: 1e10 is -1 in 8 and 16 bits, 0 in 8 bits without a sign, 2e19 is 255."""
    for target, way in (("int8", "int32"), ("int16", "int32"), ("uint8", "int64")):
        text = cast_text("triton", "float32", target, "x")
        assert text == f"x.to(tl.{way}).to(tl.{target})"
    assert cast_text("triton", "int64", "int8", "x") == "x.to(tl.int8)"


def test_powers_of_the_logarithm_are_left_to_aten_on_cuda() -> None:
    row, z = ON_COMPLEX["aten.pow.Tensor_Scalar"], TensorType("complex64", (3,))
    for exponent, kernel in ((2, True), (3, False), (-2, False)):
        arguments = {"self": z, "exponent": exponent}
        assert row.lowers(arguments) and row.lowers(arguments, "cuda") == kernel


def test_each_lowering_of_complex_numbers_for_cuda_was_asked() -> None:
    """But for those that are the CPU's there too, and rows that only change signs or move."""
    own = {row.name for row in ON_COMPLEX if row.cuda}
    asked = {what.partition(" ")[0] for what, by in RECORDED.items() if "complex64" in by}
    assert own - asked <= {"aten.neg.default", "aten.log2.default", "aten.mul.Scalar"}
    assert asked - own <= {"aten.angle.default"}
