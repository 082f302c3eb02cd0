"""Every row is whole: meaning, rules, texts or reasons, and names that exist."""

from __future__ import annotations

import ast
import string

import pytest

from specs import dtypes, shapes
from specs.operators import ON_COMPLEX, OPERATORS, Operator
from specs.scalars import PAIRED, SCALARS, Paired, Scalar, cast_text

KINDS = (
    "pointwise cast reduction scan view copy factory contraction gather scatter sort"
    " normalisation pooling"
).split()
ARG_KINDS = (
    "tensor tensors operand mask index indices scalar int float bool dim new_dim dims permutation"
    " ints shape sizes dtype choice"
).split()
LOWERING_NAMES = {"const", "rounded", "cast", "dtype", "common", "result", "largest", "plain"}
LOWERING_NAMES |= {
    "pair",
    "conj",
    "math",
    "is_float",
    "is_int",
    "is_number",
    "is_tensor",
    "is_whole",
    "is_bool",
    "fits",
    "same_power",
    "nonzero",
}


def ids(row: Scalar | Operator | Paired) -> str:
    return row.name


def test_the_tables_are_not_empty() -> None:
    assert len(SCALARS) >= 70
    assert len(OPERATORS) >= 150


@pytest.mark.parametrize("row", SCALARS, ids=ids)
def test_a_scalar_row_is_whole(row: Scalar) -> None:
    assert row.result in ("same", "bool", "target")
    assert row.dtypes <= set(dtypes.ALL) - set(dtypes.REDUCED)
    assert row.special, "no special operands"
    assert all(len(operands) == row.arity for operands in row.special)
    assert not row.domain or len(row.domain) == row.arity
    for printer in ("numba", "triton"):
        for dtype in row.dtypes:
            if row.template(printer, dtype) is None:
                assert row.reasons.get(printer), f"{printer} on {dtype}: neither text nor reason"


@pytest.mark.parametrize("row", SCALARS, ids=ids)
def test_a_scalar_text_parses_and_uses_every_operand(row: Scalar) -> None:
    operands = "abc"[: row.arity]
    for printer in ("numba", "triton"):
        for dtype in row.dtypes:
            template = row.template(printer, dtype)
            if template is None:
                with pytest.raises(NotImplementedError, match=row.name):
                    row.text(printer, dtype, *operands)
                continue
            fields = {field for _, field, _, _ in string.Formatter().parse(template) if field}
            assert fields <= {"0", "1", "2", "S", "T"}
            assert row.name == "cast" or "S" not in fields
            if row.name == "cast":
                text = cast_text(printer, dtype, "float16", *operands)
            else:
                text = row.text(printer, dtype, *operands)
            names = {
                n.id for n in ast.walk(ast.parse(text, mode="eval")) if isinstance(n, ast.Name)
            }
            constant = text in ("m.false", "m.true")
            assert constant or set(operands) <= names
            assert names <= set(operands) | {"m", "tl", "libdevice", "float"}


@pytest.mark.parametrize("row", PAIRED, ids=ids)
def test_a_complex_row_uses_scalar_rows_and_parts(row: Paired) -> None:
    known = {*SCALARS.names(), "const", "math", "dtype", *"abcd"}
    used = set()
    for name, text in (*row.given, ("", row.real), ("", row.imag or "a")):
        names = {n.id for n in ast.walk(ast.parse(text, mode="eval")) if isinstance(n, ast.Name)}
        assert names <= known, names - known
        known.add(name)
        used |= names
    assert {name for name, _ in row.given} - {"c", "d"} <= used, "something is named for nothing"


def test_a_scalar_row_says_what_it_does_not_accept() -> None:
    with pytest.raises(TypeError, match="exp has no meaning on int32"):
        SCALARS["exp"].text("numba", "int32", "x")
    with pytest.raises(KeyError, match="no row is named 'expp'"):
        SCALARS["expp"]
    with pytest.raises(ValueError, match="two rows are named 'exp'"):
        SCALARS.add(SCALARS["exp"])


@pytest.mark.parametrize("row", [*OPERATORS, *ON_COMPLEX], ids=ids)
def test_an_operator_row_is_whole(row: Operator) -> None:
    assert row.name.startswith("aten.") and row.name.count(".") == 2
    assert row.kind in KINDS
    assert row.dtype_rule in dtypes.DTYPE_RULES
    assert row.shape_rule in shapes.SHAPE_RULES
    assert row.dtypes and row.dtypes <= {*dtypes.ALL, *dtypes.PART_OF}
    assert row.lowering is not None or row.reasons.get("lowering"), "neither lowering nor reason"
    names = [arg.name for arg in row.args]
    assert len(set(names)) == len(names)
    for arg in row.args:
        assert arg.kind in ARG_KINDS, arg
        assert arg.kind != "choice" or arg.values, arg
        assert arg.min_rank <= arg.max_rank, arg
    assert set(row.tolerance) <= {*dtypes.FLOATS, *dtypes.PART_OF}
    assert not row.strict or row.reasons["strict"]


POINTWISE = [
    row for row in (*OPERATORS, *ON_COMPLEX) if row.kind in ("pointwise", "cast") and row.lowering
]


@pytest.mark.parametrize("row", POINTWISE, ids=ids)
def test_a_pointwise_lowering_uses_scalar_rows_and_arguments(row: Operator) -> None:
    assert row.lowering is not None
    arguments = {arg.name for arg in row.args}
    for text in (row.lowering, row.when or "True"):
        tree = ast.parse(text, mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                scalar = node.id in SCALARS or row is ON_COMPLEX.get(row.name) and node.id in PAIRED
                assert scalar or node.id in arguments | LOWERING_NAMES, node.id
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                scalar = SCALARS.get(node.func.id)
                arity = 2 if node.func.id == "cast" else scalar and scalar.arity
                assert arity is None or arity == len(node.args), ast.unparse(node)


def test_other_lowerings_name_a_rule() -> None:
    rules = {
        row.lowering.split(":")[0]
        for row in OPERATORS
        if row.lowering and row.kind not in ("pointwise", "cast")
    }
    reads = {"reduce", "scan", "compose", "view", "copy", "factory", "gather"}
    assert rules == reads | {"scatter", "window", "resize"}


def test_rules_are_used() -> None:
    used = {row.dtype_rule for row in (*OPERATORS, *ON_COMPLEX)}
    assert set(dtypes.DTYPE_RULES) == used, set(dtypes.DTYPE_RULES) ^ used
    used = {row.shape_rule for row in OPERATORS}
    assert set(shapes.SHAPE_RULES) == used, set(shapes.SHAPE_RULES) ^ used
