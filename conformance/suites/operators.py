"""The suite ``operators``: every row of ``specs.operators``, in every dtype that it supports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from hypothesis import strategies as st

from conformance.case import Call, Case, Compiles, Program, Storage, Tensor, Tolerance, show
from conformance.strategies.arguments import MIXING, Drawn, arguments, types_of
from conformance.strategies.tensors import Drawing
from conformance.suites.suite import Family
from specs import dtypes
from specs.operators import ON_COMPLEX, OPERATORS, Operator

# What these return has no value yet.
UNWRITTEN = {"torch.empty", "torch.empty_like"}
# Calls of one compiled program: the second has nastier values and must not compile again.
CALLS = 2


def families(device: str) -> Iterator[Family]:
    """One family per row and dtype."""
    for row in (*OPERATORS, *ON_COMPLEX):
        for dtype in (*dtypes.ALL, *dtypes.PART_OF):
            if dtype in row.dtypes:
                yield Family("operators", row.name, dtype, cases(row, dtype, device))


@st.composite
def cases(draw: st.DrawFn, row: Operator, dtype: str, device: str = "cpu") -> Case:
    """A call of ``row`` alone: what it compiles to is the operator and nothing else."""
    made = draw(arguments(row, dtype))
    tensors = [d for value in made.values() for d in _drawings(value)]
    inputs: list[Storage | Tensor] = []
    history = []
    for call in range(CALLS):
        names = []
        for drawing in tensors:
            storage, tensor = drawing.make(call)
            inputs += (storage, tensor)
            names.append(tensor.name)
        compiles = Compiles.YES if call == 0 else Compiles.NO
        history.append(Call(f"f({', '.join(names)})", compiles, mode="no_grad"))
    return Case(
        suite="operators",
        subject=row.name,
        variant=dtype,
        program=Program(source(row, made, [d.name for d in tensors])),
        inputs=tuple(inputs),
        history=tuple(history),
        tolerance=tolerance(row),
        device=device,
        left_to_aten=_left_to_aten(row, made, tensors, device),
    )


def _left_to_aten(
    row: Operator, made: Mapping[str, Drawn], tensors: list[Drawing], device: str
) -> bool:
    """Without a lowering for these arguments; or nothing is there that could be compiled."""
    nothing = row.kind != "pointwise" and any(0 in drawing.shape for drawing in tensors)
    return nothing or not row.lowers(types_of(made), device.partition(":")[0])


def source(row: Operator, made: Mapping[str, Drawn], names: list[str]) -> str:
    """A function of the tensors; every other argument is written into it."""
    by_place = [arg for arg in row.args if arg.reached and not arg.keyword]
    while by_place and by_place[-1].name not in made:
        by_place.pop()
    # What is left out before another one is given keeps that one's place.
    words = [_expression(made.get(arg.name, arg.default), arg.kind) for arg in by_place]
    words += [
        f"{arg.name}={_expression(made[arg.name], arg.kind)}"
        for arg in row.args
        if arg.keyword and arg.name in made
    ]
    call = f"{row.call}({', '.join(words)})"
    if row.call in UNWRITTEN:
        call += ".zero_()"
    return (
        f"import torch\nfrom math import inf, nan\n\n\ndef program({', '.join(names)}):\n"
        f"    return {call}\n"
    )


def tolerance(row: Operator) -> Tolerance:
    """The widest bound among the row's dtypes: a case may mix them."""
    mixing = row.kind in MIXING
    lowering = row.lowering or ""
    operations = re.findall(r"\b(?:add|sub|rsub|mul|truediv|exp\w*|log\w*)\(", lowering)
    minimum = re.search(r"\bf?(min|max|minimum|maximum)\(", lowering)
    return Tolerance(
        ulp=max(row.tolerance.values(), default=0.0),
        # What is computed of complex numbers is computed of their parts.
        conditioned=mixing or row.lowering is None or len(operations) > 1 or _computes_parts(row),
        mixing=mixing,
        zero_sign=not (mixing or row.lowering is None or minimum or "zero" in row.reasons),
    )


def _computes_parts(row: Operator) -> bool:
    return row is ON_COMPLEX.get(row.name) and bool(row.tolerance)


def _drawings(value: Drawn) -> list[Drawing]:
    if isinstance(value, Drawing):
        return [value]
    return [d for d in value if isinstance(d, Drawing)] if isinstance(value, list) else []


def _expression(value: Drawn, kind: str) -> str:
    if isinstance(value, Drawing):
        return value.name
    if isinstance(value, list) and any(isinstance(v, Drawing) for v in value):
        return "[" + ", ".join(v.name if isinstance(v, Drawing) else show(v) for v in value) + "]"
    if kind == "dtype" and value is not None:
        return f"torch.{value}"
    return show(value)
