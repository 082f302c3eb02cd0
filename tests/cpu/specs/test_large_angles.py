"""Functions in loops where some lanes have arguments that the usual way is not for: angles too
large, negative arguments of the gamma function."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fastpath.cpu.maths.emitter import has_features
from specs.scalars import SCALARS
from tests.cpu.specs.kernels import NUMPY, compiled

DTYPES = ("float32", "float64")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_large_lane_leaves_the_others_alone(dtype: str) -> None:
    """Every place of a vector in turn, and all of them; numpy's f64 functions are the judge."""
    rng = np.random.default_rng(0)
    usual = rng.uniform(-100, 100, (24, 16)).astype(NUMPY[dtype])
    large = (10.0 ** rng.uniform(5.2, 38, (24, 16))).astype(NUMPY[dtype])
    mixed = np.where(np.eye(24, 16, dtype=bool), large, usual)
    mixed[16] = large[16]
    mixed[17, ::3] = large[17, ::3]
    mixed[18, 5] = np.inf
    x = mixed.ravel()
    compared = 0
    for name in ("sin", "cos", "tan"):
        kernel = compiled(SCALARS[name].text("numba", dtype, "a"), 1)
        got = np.empty_like(x)
        kernel(x, got)
        with np.errstate(invalid="ignore"):
            exact = getattr(np, name)(x.astype(np.float64))
        tolerance = 5 * np.finfo(NUMPY[dtype]).eps
        np.testing.assert_allclose(got, exact, rtol=tolerance, atol=0)
        alone = np.empty_like(x)
        for i in range(len(x)):  # a loop of one element runs the scalar remainder
            kernel(x[i : i + 1], alone[i : i + 1])
        np.testing.assert_array_equal(got, alone)
        compared += len(x)
    assert compared == 3 * 24 * 16


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_vectorised_loop_calls_a_vector_variant(dtype: str) -> None:
    kernel = compiled(SCALARS["sin"].text("numba", dtype, "a"), 1)
    kernel(np.ones(64, NUMPY[dtype]), np.empty(64, NUMPY[dtype]))
    (signature,) = kernel.signatures
    functions = kernel.inspect_llvm(signature).split("\ndefine ")[1:]
    callers = [text for text in functions if not text.startswith("internal")]
    calls = re.findall(r"call (?:\w+ )?<(\d+) x \w+> @\.refcompiler\.sin", "".join(callers))
    assert calls, "large arguments are not handled a vector at a time"


@pytest.mark.parametrize("dtype", DTYPES)
def test_negative_lanes_leave_the_others_alone(dtype: str) -> None:
    """Every place of a vector in turn, all of them, and poles among them."""
    rng = np.random.default_rng(0)
    usual = rng.uniform(0, 50, (24, 16)).astype(NUMPY[dtype])
    x = np.where(np.eye(24, 16, dtype=bool), -usual, usual)
    x[16:20] = -x[16:20]
    x[20, 3:6] = -3, -np.inf, np.nan
    x = x.ravel()
    for name, judge in (("lgamma", torch.lgamma), ("digamma", torch.digamma)):
        kernel = compiled(SCALARS[name].text("numba", dtype, "a"), 1)
        got, alone = np.empty_like(x), np.empty_like(x)
        kernel(x, got)
        for i in range(len(x)):
            kernel(x[i : i + 1], alone[i : i + 1])
        np.testing.assert_array_equal(got, alone)
        exact = judge(torch.from_numpy(x.astype(np.float64))).numpy()
        tolerance = 40 * np.finfo(NUMPY[dtype]).eps  # about the roots terms cancel
        np.testing.assert_allclose(got, exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["lgamma", "digamma"])
def test_negative_lanes_are_computed_a_vector_at_a_time(name: str) -> None:
    """Half of the numbers of a program may be negative."""
    kernel = compiled(SCALARS[name].text("numba", "float64", "a"), 1)
    kernel(np.ones(64), np.empty(64))
    (signature,) = kernel.signatures
    functions = kernel.inspect_llvm(signature).split("\ndefine ")[1:]
    variants = [f for f in functions if re.match(rf"internal .*@\.refcompiler\.{name}", f)]
    counts = [len(re.findall(r"f(?:mul|add)[ \w]* <[48] x double>", f)) for f in variants]
    used = [count for count in counts if count]  # widths that this processor has
    assert used and min(used) > 20, "each lane is computed by itself"


@pytest.mark.skipif(not has_features("avx512f", "fma"), reason="the other tests cover this machine")
def test_the_same_for_a_processor_with_avx2_only() -> None:
    """Its registers are kept across the call by other rules, and powers of two scale otherwise."""
    tests = test_a_large_lane_leaves_the_others_alone, test_negative_lanes_leave_the_others_alone
    code = "".join(
        f"from {__name__} import {test.__name__} as t; t('float32'); t('float64'); "
        for test in tests
    )
    code += "print('compared')"
    features = "+sse4.2,+avx,+avx2,+fma,+bmi,+bmi2,+f16c"
    environment = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": features}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "compared\n", done.stderr
