"""The suite ``operators``: every row of ``specs.operators``, in every dtype that it supports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hypothesis import strategies as st

from conformance.case import Call, Case, Compiles, Program, Storage, Tensor, Tolerance, show
from conformance.strategies.arguments import Drawn, arguments
from conformance.strategies.tensors import Drawing
from conformance.suites.suite import Family
from specs import dtypes
from specs.operators import OPERATORS, Operator

# Operators whose result mixes elements, so that its error is judged against its conditioning.
MIXING = {"reduction", "scan", "contraction", "normalisation", "pooling", "scatter"}
# Calls of one compiled program: the second has nastier values and must not compile again.
CALLS = 2


def families(device: str) -> Iterator[Family]:
    """One family per row and dtype."""
    for row in OPERATORS:
        for dtype in dtypes.ALL:
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
    )


def source(row: Operator, made: Mapping[str, Drawn], names: list[str]) -> str:
    """A function of the tensors; every other argument is written into it."""
    positional, keyword = [], []
    for arg in row.args:
        if arg.name not in made:
            continue
        text = _expression(made[arg.name], arg.kind)
        # After an argument that was left out, only names reach the right one.
        left_out = any(a.name not in made for a in row.args[: row.args.index(arg)])
        if arg.keyword or left_out:
            keyword.append(f"{arg.name}={text}")
        else:
            positional.append(text)
    call = f"{row.call}({', '.join(positional + keyword)})"
    return (
        f"import torch\nfrom math import inf, nan\n\n\ndef program({', '.join(names)}):\n"
        f"    return {call}\n"
    )


def tolerance(row: Operator) -> Tolerance:
    """The widest bound among the row's dtypes: a case may mix them."""
    return Tolerance(max(row.tolerance.values(), default=0.0), row.kind in MIXING)


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
