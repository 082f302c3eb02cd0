"""Triton kernels that apply the texts of the scalar rows, written as a module's source.

One kernel per dtype computes all its texts, since a compilation costs more than a text does.
"""

from __future__ import annotations

from dataclasses import dataclass

from specs import dtypes
from specs.scalars import SCALARS, cast_text

HEADER = """import triton
import triton.language as tl
from triton.language.extra import libdevice

from fastpath.gpu import maths as m
"""
POINTER = {"bool": "i1", "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32"}
POINTER |= {"int64": "i64", "float32": "fp32", "float64": "fp64"}
BLOCK = 64


@dataclass(frozen=True)
class Text:
    """One text over ``a``, ``b``, ``c`` on a computing dtype, and the dtype that it gives."""

    name: str
    dtype: str
    result: str
    text: str
    arity: int


def texts(dtype: str) -> list[Text]:
    """Every text of a computing dtype, casts from it among them."""
    found = []
    for row in SCALARS:
        if row.name == "cast" or dtype not in row.dtypes or not row.template("triton", dtype):
            continue
        result = "bool" if row.result == "bool" else dtype
        # where's condition has to be a bool, and there is no operand of another dtype here
        operands = ["(a != 0)", "b", "c"] if row.name == "where" else list("abc"[: row.arity])
        text = row.text("triton", dtype, *operands)
        found.append(Text(row.name, dtype, result, text, row.arity))
    for target in dtypes.ALL:
        if target != dtype:
            text = cast_text("triton", dtype, target, "a")
            found.append(Text(f"cast to {target}", dtype, dtypes.compute_dtype(target), text, 1))
    return found


def computing_dtypes() -> list[str]:
    return [dtype for dtype in dtypes.ALL if dtype not in dtypes.REDUCED]


def kernel(function: str, chosen: list[Text]) -> str:
    """A kernel of pointers ``a``, ``b``, ``c`` and one output per text, over blocks of elements."""
    outs = ", ".join(f"out{k}" for k in range(len(chosen)))
    lines = [
        "\n\n@triton.jit",
        f"def {function}(a_ptr, b_ptr, c_ptr, {outs}):",
        f"    i = tl.program_id(0) * {BLOCK} + tl.arange(0, {BLOCK})",
        *(f"    {n} = tl.load({n}_ptr + i)" for n in "abc"),
        *(f"    tl.store(out{k} + i, {t.text})" for k, t in enumerate(chosen)),
    ]
    return "\n".join(lines) + "\n"


def signature(dtype: str, chosen: list[Text]) -> dict[str, str]:
    """Argument types for ahead-of-time compilation."""
    types = {f"{n}_ptr": "*" + POINTER[dtype] for n in "abc"}
    return types | {f"out{k}": "*" + POINTER[t.result] for k, t in enumerate(chosen)}
