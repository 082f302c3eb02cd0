"""What is drawn is valid, deterministic, and reaches every operator row."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.strategies import contents, tensors
from conformance.strategies.generate import examples
from conformance.suites import SUITES
from conformance.suites.operators import cases
from specs import dtypes
from specs.operators import ON_COMPLEX, OPERATORS


def first_dtype(row):
    return next(d for d in ("float32", "int64", "bool") if d in row.dtypes)


@pytest.mark.parametrize("row", OPERATORS, ids=lambda row: row.name)
def test_every_row_draws_cases(row):
    drawn = examples(cases(row, first_dtype(row)), 2, "0")
    assert len(drawn) == 2
    for case in drawn:
        compile(case.program.source, "program", "exec")
        assert len(case.history) == 2
        for step in case.history:
            compile(step.source, "call", "eval")


def test_a_seed_draws_the_same_cases_again():
    strategy = cases(OPERATORS["aten.add.Tensor"], "float32")
    once, again = examples(strategy, 5, "7"), examples(strategy, 5, "7")
    assert [c.digest for c in once] == [c.digest for c in again]
    assert {c.digest for c in once} != {c.digest for c in examples(strategy, 5, "8")}


def test_every_dtype_of_a_row_is_a_family():
    families = list(SUITES["operators"].families("cpu"))
    rows = (*OPERATORS, *ON_COMPLEX)
    assert len(families) == sum(len(row.dtypes) for row in rows) > len(OPERATORS)
    assert len({(f.subject, f.variant) for f in families}) == len(families)


@given(st.data(), tensors.shapes())
@settings(max_examples=150, deadline=None, database=None, derandomize=True)
def test_a_layout_stays_inside_its_storage(data, shape):
    layout = data.draw(tensors.layouts(shape))
    if layout.strides is None:
        assert layout.size == math.prod(shape)
    elif math.prod(shape):
        last = sum((n - 1) * step for n, step in zip(shape, layout.strides, strict=True))
        assert 0 <= layout.offset and layout.offset + last < layout.size


@pytest.mark.parametrize("dtype", dtypes.ALL)
@pytest.mark.parametrize("palette", contents.PALETTES)
def test_contents_are_of_their_dtype(dtype, palette):
    values = contents.contents(3, palette, dtype, 200)
    assert repr(values) == repr(contents.contents(3, palette, dtype, 200))
    kind = bool if dtype == "bool" else int if dtypes.is_int(dtype) else float
    assert len(values) == 200 and {type(v) for v in values} == {kind}
    if dtypes.is_int(dtype):
        low, high = dtypes.int_range(dtype)
        assert all(low <= v <= high for v in values)
        if palette == "special":
            assert low in values and high in values
    elif kind is float and palette == "special":
        assert any(math.isnan(v) for v in values) and math.inf in values
        assert any(v == 0 and math.copysign(1, v) < 0 for v in values)


def test_bounds_and_nonzero_hold():
    for palette in contents.PALETTES:
        for dtype in ("float32", "int16"):
            values = contents.contents(1, palette, dtype, 300, (-1, 2), nonzero=True)
            assert all(math.isnan(v) or (-1 <= v <= 2 and v) for v in values)


def test_rounding_agrees_with_the_format():
    assert contents.rounded(0.1, "float32") == 0.10000000149011612
    assert contents.rounded(1 + 2**-9, "bfloat16") == 1.0
    assert contents.rounded(0.1, "float64") == 0.1
