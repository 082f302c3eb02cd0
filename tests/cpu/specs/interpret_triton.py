"""Runs the Triton texts and holds them to their rows: prints how many values it compared.

``python interpret_triton.py FOLDER [DEVICE]``, in a process of its own: the generated kernels are
written into the folder. On the CPU it needs ``TRITON_INTERPRET=1``, which leaves out two things:
libdevice, which the interpreter has not, and rounding to bfloat16, which it truncates. That of
Triton 3.6 and 3.7 has no ``~`` with NumPy 2 either, and its extremes propagate each NaN.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

import torch
import triton

from specs import dtypes, rounding
from specs.scalars import SCALARS
from tests.cpu.specs import triton_source
from tests.cpu.specs.evaluate import dtype_of
from tests.cpu.specs.measure import needs_libdevice
from tests.cpu.specs.operands import drawn, specials
from tests.cpu.specs.triton_source import BLOCK, Text

# NumPy, which the interpreter computes with, has its own say on what these leave open.
FREE_ZERO = ("minimum", "maximum", "fmin", "fmax")

_BEFORE_3_8 = triton.__version__.startswith(("3.6.", "3.7."))


def operands(text: Text) -> list[tuple[Any, ...]]:
    row = SCALARS["cast" if text.name.startswith("cast") else text.name]
    source = "truediv" if row.name == "where" and dtypes.is_float(text.dtype) else row.name
    found = [*specials(SCALARS[source], text.dtype), *drawn(row, text.dtype, BLOCK, 5)]
    found = [v for v in found if len(v) == text.arity]
    return (found * BLOCK)[:: max(1, len(found) // BLOCK)][:BLOCK]


def meaning(text: Text, values: tuple[Any, ...]) -> Any:
    if text.name.startswith("cast"):
        target = text.name.removeprefix("cast to ")
        return rounding.store(SCALARS["cast"].meaning(target)(*values), target)
    return SCALARS[text.name].meaning(text.dtype)(*values)


def outside(text: Text, values: tuple[Any, ...]) -> bool:
    """Conversions that the hardware decides: out of the target's range."""
    if not text.name.startswith("cast") or not dtypes.is_float(text.dtype):
        return False
    target = text.name.removeprefix("cast to ")
    if target in dtypes.INTS:
        low, high = dtypes.int_range(target)
        return not (math.isfinite(values[0]) and low <= math.trunc(values[0]) <= high)
    return False


def flushed(text: Text, values: tuple[Any, ...]) -> bool:
    """Whether libdevice may have flushed a float32 subnormal to zero."""
    if "float32" not in (text.dtype, text.result):
        return False
    numbers = [*values, meaning(text, values)]
    return any(0 < abs(float(n)) < 2.0**-126 for n in numbers if n == n)


def interpretable(text: Text) -> bool:
    if _BEFORE_3_8 and ("~" in text.text or text.name in ("fmin", "fmax")):
        return False
    return "bfloat16" not in text.text and not needs_libdevice(text.text)


def main(folder: str, device: str = "cpu") -> None:
    chosen = {
        dtype: [t for t in triton_source.texts(dtype) if device != "cpu" or interpretable(t)]
        for dtype in triton_source.computing_dtypes()
    }
    path = Path(folder) / "interpreted_kernels.py"
    source = triton_source.HEADER
    for dtype, found in chosen.items():
        for k, text in enumerate(found):
            source += triton_source.kernel(f"{dtype}_{k}", [text])
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("interpreted_kernels", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    compared = 0
    for dtype, found in chosen.items():
        for k, text in enumerate(found):
            rows = operands(text)
            columns = [
                torch.tensor([r[p] if p < text.arity else r[0] for r in rows]) for p in range(3)
            ]
            inputs = [c.to(dtype_of(dtype)).to(device) for c in columns]
            out = torch.empty(BLOCK, dtype=dtype_of(text.result), device=device)
            getattr(module, f"{dtype}_{k}")[(1,)](*inputs, out)
            for values, got in zip(zip(*(c.tolist() for c in inputs), strict=True), out.tolist(),
                                   strict=True):  # fmt: skip
                used = values[: text.arity]
                if outside(text, used) or (device != "cpu" and flushed(text, used)):
                    continue
                check(text, used, got, device)
                compared += 1
    print(compared)


def bound(text: Text, device: str) -> float:
    """libdevice promises other bounds than the CPU's functions: CUDA's tables allow up to 4 ULP."""
    row = SCALARS["cast" if text.name.startswith("cast") else text.name]
    inexact = bool(row.ulp) and device != "cpu"
    return max(0.5, row.ulp.get(text.dtype, 0.0), 4.0 if inexact else 0.0)


def check(text: Text, values: tuple[Any, ...], got: Any, device: str) -> None:
    exact = meaning(text, (bool(values[0]), *values[1:]) if text.name == "where" else values)
    if dtypes.is_float(text.result):
        free = text.name in FREE_ZERO and got == 0 and exact == 0
        good = free or rounding.ulp_error(got, exact, text.result) <= bound(text, device)
    else:
        good = got == rounding.store(exact, text.result)
    if not good:
        raise AssertionError(f"{text.name}{values} on {text.dtype} gives {got!r}, not {exact}")


if __name__ == "__main__":
    main(*sys.argv[1:])
