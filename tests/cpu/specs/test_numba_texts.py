"""Every numba text, compiled in a loop and measured against the row's meaning within its bound."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from fastpath.cpu.maths.emitter import has_features
from specs import dtypes, rounding
from specs.scalars import SCALARS, Scalar, cast_text
from tests.cpu.specs.kernels import NUMPY, columns, compiled, run
from tests.cpu.specs.operands import drawn, fits, operands_of

ROWS = SCALARS.where(lambda row: row.numba is not None and row.name != "cast")
# Which of two zeros comes out of an extremum is free.
EXTREMA = ("minimum", "maximum", "fmin", "fmax")
COUNT = 150


def error(row: Scalar, got: object, exact: object, dtype: str) -> float:
    """In ULP for floats; 0 or infinity for the rest."""
    if not dtypes.is_float(dtype):
        return 0.0 if got == rounding.store(exact, dtype) else math.inf
    assert isinstance(got, float)
    if row.name in EXTREMA and got == 0 and exact == 0:
        return 0.0
    return rounding.ulp_error(got, exact, dtype)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_numba_text_means_what_its_row_says(row: Scalar) -> None:
    compared = 0
    for dtype in sorted(row.dtypes):
        operands = operands_of(row, dtype, COUNT)
        result = "bool" if row.result == "bool" else dtype
        kernel = compiled(row.text("numba", dtype, *"abc"[: row.arity]), row.arity)
        got = run(kernel, columns(row, dtype, operands), result).tolist()
        meaning = row.meaning(dtype)
        bound = row.ulp.get(dtype, 0.5 if dtypes.is_float(result) else 0.0)
        for values, value in zip(operands, got, strict=True):
            exact = meaning(*values)
            distance = error(row, value, exact, result)
            assert distance <= bound, (
                f"{row.name}{values} on {dtype} gives {value!r}, {distance:.3g} ULP from "
                f"{exact} (bound {bound})"
            )
            compared += 1
        if dtype in NANS and row.name not in ("where", "signbit", "copysign"):
            compared += _nans(row, dtype, kernel)
    assert compared >= COUNT * len(row.dtypes)


#: Kernels take floats apart, and what they do with the bits of a nan may make a number of it.
NANS = {
    "float32": np.array([0x7FC00000, 0xFFC00001, 0x7FC12345, 0xFFFFFFFF, 0x7F800001], np.uint32),
    "float64": np.array(
        [0x7FF8 << 48, (0xFFF8 << 48) + 1, (1 << 63) - 1, (1 << 64) - 1], np.uint64
    ),
}


def _nans(row: Scalar, dtype: str, kernel: object) -> int:
    """Every nan, in the place of each operand, counts as the one that Python knows."""
    nans = np.tile(NANS[dtype].view(NUMPY[dtype]), 16)
    result = "bool" if row.result == "bool" else dtype
    for place in range(row.arity):
        operands = [nans if n == place else np.ones_like(nans) for n in range(row.arity)]
        known = [np.full_like(a, np.nan) if n == place else a for n, a in enumerate(operands)]
        found, expected = (run(kernel, given, result) for given in (operands, known))
        assert np.array_equal(found, expected, equal_nan=True), f"{row.name} of {nans} on {dtype}"
    return len(nans)


CASTS = [(s, t) for s in dtypes.ALL for t in dtypes.ALL if s not in dtypes.REDUCED]


def test_casts() -> None:
    row = SCALARS["cast"]
    compared = 0
    for source, target in CASTS:
        text = cast_text("numba", source, target, "a")
        assert (text == "a") == (source == target)
        values = [(v,) for (v,) in row.special if fits(v, source)] + list(
            drawn(row, source, 100, 1)
        )
        inputs = columns(row, source, values)
        stored = dtypes.compute_dtype(target)
        got = run(compiled(text, 1), inputs, stored).tolist()
        meaning = row.meaning(target)
        for value, result in zip(inputs[0].tolist(), got, strict=True):
            exact = meaning(value)
            if target in dtypes.REDUCED and source not in ("float32", "bool"):
                exact = rounding.to_float(exact, "float32")  # eager goes through float32 too
            expected = rounding.store(exact, target)
            same = result == expected or (result != result and expected != expected)
            assert same, f"{value!r} from {source} to {target} gives {result!r}, not {expected!r}"
            compared += 1
    assert compared > 100 * len(CASTS)


def test_reduced_floats_are_loaded_and_stored_exactly() -> None:
    """Every pattern of 16 bits, against NumPy and torch."""
    import torch

    bits = np.arange(1 << 16, dtype=np.uint16)
    half = np.empty(1 << 16, np.float32)
    compiled("m.f16_to_f32(a)", 1)(bits, half)
    expected = bits.view(np.float16).astype(np.float32)
    np.testing.assert_array_equal(half, expected)
    brain = np.empty(1 << 16, np.float32)
    compiled("m.bf16_to_f32(a)", 1)(bits, brain)
    tensor = torch.from_numpy(bits.view(np.int16).copy()).view(torch.bfloat16)
    np.testing.assert_array_equal(brain, tensor.float().numpy())
    # and back, from every number, every midpoint, and their neighbours
    ok = np.isfinite(brain)
    for values, store, dtype in (
        (half[np.isfinite(half)], "f32_to_f16", torch.float16),
        (brain[ok], "f32_to_bf16", torch.bfloat16),
    ):
        values = np.sort(values)
        with np.errstate(over="ignore"):
            middle = (values[:-1].astype(np.float64) + values[1:]) / 2
            near = [
                np.nextafter(middle.astype(np.float32), np.float32(s)) for s in (-np.inf, np.inf)
            ]
        extremes = np.array(
            [np.inf, -np.inf, np.nan, 65519, 65520, 3.4e38, -0.0, 1e-45], np.float32
        )
        inputs = np.concatenate([values, middle.astype(np.float32), *near, extremes])
        got = np.empty(len(inputs), np.uint16)
        compiled(f"m.{store}(a)", 1)(inputs, got)
        result = torch.from_numpy(got.view(np.int16)).view(dtype)
        wanted = torch.from_numpy(inputs).to(dtype)
        torch.testing.assert_close(result, wanted, rtol=0, atol=0, equal_nan=True)
        assert len(inputs) > 100_000


def test_rounding_to_float16_with_and_without_instructions_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    from fastpath.cpu.maths import conversions

    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    number = np.sort(every[np.isfinite(every)])
    middle = ((number[:-1].astype(np.float64) + number[1:]) / 2).astype(np.float32)
    near = [np.nextafter(middle, np.float32(s)) for s in (-np.inf, np.inf)]
    inputs = np.concatenate([every, middle, *near, np.float32([65519, 65520, 3.4e38, 1e-45])])
    expected = torch.from_numpy(inputs).half().float().numpy()
    for converts in (conversions.converts(), False):
        monkeypatch.setattr(conversions, "converts", lambda converts=converts: converts)
        kernel = compiled.__wrapped__("m.cast_f32_f16(a)", 1)
        got = np.empty_like(inputs)
        kernel(inputs, got)
        np.testing.assert_array_equal(got, expected)
        assert np.array_equal(np.signbit(got), np.signbit(expected))
        (signature,) = kernel.signatures
        # with or without AVX512-FP16, of a register or of memory, whose width the name tells then
        whole = r"\tvcvtps2ph(x?\t.*[yz]mm|x[yz]\t)"
        packed = re.search(whole, kernel.inspect_asm(signature))
        assert bool(packed) is (converts and has_features("f16c"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_rest_of_a_division_is_exact(dtype: type) -> None:
    """Of quotients next to an integer, and of too many digits, subnormals, infinities."""
    generator, kind = np.random.default_rng(0), "f32" if dtype is np.float32 else "f64"
    most, tiny = np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal
    y = (generator.standard_normal(20_000) * 10.0 ** generator.integers(-6, 6, 20_000)).astype(
        dtype
    )
    x = (y * generator.integers(-(1 << 24), 1 << 24, len(y)) // 1000).astype(dtype)
    near = [np.nextafter(x, dtype(s)) for s in (-np.inf, np.inf)]
    wide = generator.standard_normal(len(y)) * 10.0 ** generator.integers(-30, 30, len(y))
    ends = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, most, tiny, -3 * tiny], dtype)
    pairs = np.meshgrid(ends, ends)
    xs = np.concatenate([x, *near, wide.astype(dtype), pairs[0].ravel()])
    ys = np.concatenate([y, y, y, y, pairs[1].ravel()])
    kernel, got = compiled(f"m.fmod_{kind}(a, b)", 2), np.empty_like(xs)
    kernel(xs, ys, got)
    with np.errstate(all="ignore"):
        expected = np.fmod(xs, ys)
    np.testing.assert_array_equal(got, expected)
    known = ~np.isnan(expected)
    assert np.array_equal(np.signbit(got)[known], np.signbit(expected)[known])
    if has_features("fma"):
        assert re.search(r"\tvdivp[sd]\t", kernel.inspect_asm(kernel.signatures[0]))


VECTORISED = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan tanh sinh cosh asinh acosh atanh asin acos"
    " atan erf erfc erfinv lgamma digamma i0 i1e sigmoid rsqrt sqrt reciprocal abs sign floor round"
    " isfinite"
).split()


@pytest.mark.parametrize("name", VECTORISED)
def test_a_loop_over_float32_is_vectorised(name: str) -> None:
    kernel = compiled(SCALARS[name].text("numba", "float32", "a"), 1)
    out = np.empty(64, np.bool_ if name == "isfinite" else np.float32)
    kernel(np.ones(64, np.float32), out)
    (signature,) = kernel.signatures
    ir = kernel.inspect_llvm(signature)
    optimised = kernel.inspect_asm(signature)
    assert re.search(r"[xyz]mm\d+", optimised), "no vector register at all"
    packed = re.findall(
        r"\tv?(?:mul|add|div|sqrt|and|cmp|rndscale|round|max|min|xor|or)\w*p[sd]\t", optimised
    )
    packed += re.findall(
        r"\tv?p(?:and|or|cmp)\w*\t|\tvfn?m(?:add|sub)\d+p[sd]\t|\tvfpclassps", optimised
    )
    assert packed, f"{name}: no packed arithmetic in\n{ir[:2000]}"


def test_every_text_calls_functions_that_exist() -> None:
    from fastpath.cpu import maths

    names = set()
    for row in SCALARS:
        for dtype in row.dtypes:
            if row.numba is not None and row.name != "cast":
                names |= set(
                    re.findall(r"\bm\.(\w+)", row.text("numba", dtype, *"abc"[: row.arity]))
                )
    missing = {name for name in names if not hasattr(maths, name)}
    assert not missing
    assert len(names) > 200
    assert set(NUMPY) == set(dtypes.ALL) - set(dtypes.REDUCED)
