"""``options={"numerics": "strict"}``: eager's bits; "fast": eager's specials, and within bounds."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import fastpath
import refcompiler
from specs.operators import OPERATORS

SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, math.inf, -math.inf, math.nan, 1e-40, -7.25)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def _values(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.randn(1200, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    x = torch.cat([torch.tensor(SPECIAL, dtype=torch.float64), random * 3]).to(dtype)
    return x, x.roll(29)


def _bits(t: torch.Tensor) -> torch.Tensor:
    """A tensor's bits, with one pattern for every nan."""
    if not t.dtype.is_floating_point:
        return t
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[t.itemsize]
    return t.view(whole).masked_fill(t.isnan(), -1)


def exact(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Operations that can be rounded in one way only, alone and in rows."""
    return (
        x + y,
        x - y,
        x * y,
        x / y,
        x.abs(),
        -x,
        x.floor(),
        x.ceil(),
        x.trunc(),
        x.round(),
        x.sign(),
        x.clamp(-1, 2),
        torch.where(x < y, x, y),
        x.square(),
        (x + 1).relu(),
        F.hardtanh(x),
        torch.copysign(x, y),
        x * 0.1 + 0.3,
        (x * y + x) * y - x / 3,
        ((x + y) * 0.7).abs() * x,
        (x < y) & (y > 0),
    )


def rounded(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Operations that eager's own code rounds, and which strict kernels leave to it."""
    return (
        torch.maximum(x, y),
        torch.fmin(x, y),
        x.sqrt(),
        torch.lerp(x, y, 0.3),
        x.exp(),
        x.tanh() * y,
        x.sin() + 1,
        F.gelu(x.clamp(-50, 50)),  # whose vectors make nan of an infinity
        F.silu(x),
        x.sigmoid(),
        torch.add(x, y, alpha=0.3),
        torch.addcmul(x, y, y, value=0.7),
        torch.pow(x.abs(), y),
        F.softmax(x.nan_to_num(0.0, 1.0, 1.0), 0),
        x.nan_to_num(0.0, 1.0, 1.0).sum(),
    )


def _report(function, numerics, dtype):
    refcompiler.reset()
    x, y = _values(dtype)
    eager = function(x, y)
    found = refcompiler.compile(function, options={"numerics": numerics})(x, y)
    report = fastpath.last_report()
    assert report is not None and report.fallback is None and report.kernels
    return eager, found, report


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_strict_is_eagers_bits(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        # A quotient that eager rounds to a reduced float before it truncates it, too.
        return (*exact(x, y), *rounded(x, y), torch.div(x, y, rounding_mode="trunc"))

    eager, found, report = _report(program, "strict", dtype)
    assert len(eager) > 30
    for place, (a, b) in enumerate(zip(eager, found, strict=True)):
        assert a.dtype == b.dtype
        assert torch.equal(_bits(a), _bits(b)), (place, a[a != b][:4], b[a != b][:4])
    reasons = [r for r in report.reasons.values() if r.startswith("strict numerics")]
    assert len(reasons) >= 8


def test_strict_kernels_have_what_is_exact() -> None:
    _, _, report = _report(exact, "strict", torch.bfloat16)
    assert not report.aten_calls


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
def test_fast_has_eagers_special_values(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return *exact(x, y), *rounded(x, y)

    eager, found, report = _report(program, "fast", dtype)
    assert "aten.exp.default" not in report.aten_calls
    steps = 4 * torch.finfo(dtype).eps
    wide = program(*[value.double() for value in _values(dtype)])
    for a, b, c in zip(eager, found, wide, strict=True):
        if not a.dtype.is_floating_point:
            assert torch.equal(a, b)
            continue
        assert torch.equal(a.isnan(), b.isnan())
        number = ~a.isnan()
        a, b, c = a[number], b[number], c[number]
        assert torch.equal(a.isinf(), b.isinf())
        # gelu's zeros have another sign in eager where the processor has no AVX-512
        zero = (a == 0) & (b == 0) & (b.signbit() != c.signbit())
        assert torch.equal(a[zero].signbit(), b[zero].signbit())
        torch.testing.assert_close(b, a, rtol=8 * steps, atol=1e-6)


@pytest.mark.parametrize("dtype", (*DTYPES, torch.float64), ids=str)
def test_a_product_that_overflows_in_a_sum_does_no_harm(dtype: torch.dtype) -> None:
    big = torch.finfo(dtype).max

    def program(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = (
            torch.addcmul(x, y, z),
            torch.addcmul(x, y, z, value=0.5),
            torch.lerp(x, y, z),
            torch.lerp(x, y, 2.0),
            torch.lerp(x, y, 0.3),
        )
        if dtype.itemsize == 2:  # eager rounds a scaled term to 16 bits behind its last vector
            return results
        return (
            *results,
            torch.add(x, y, alpha=1.5),
            torch.sub(x, y, alpha=3),
            torch.rsub(y, x, alpha=1.5),
            x.add(7.0, alpha=0.5),
        )

    random = torch.randn(3, 40, generator=torch.Generator().manual_seed(3))
    ends = [-math.inf, -big, 0.0, big], [big, big / 2, 0.0, big / 2], [3.0, 3.0, 1.0, 1.9]
    x, y, z = torch.cat([torch.tensor(ends, dtype=torch.float64), random.double()], 1).to(dtype)
    refcompiler.reset()
    compiled = refcompiler.compile(program)
    for given in ((x, y, z), (x.flip(0), y.flip(0), z.flip(0))):
        expected = program(*given)
        assert expected[0].isfinite().sum() >= 40
        for a, b in zip(expected, compiled(*given), strict=True):
            assert torch.equal(_bits(a), _bits(b)), (a[a != b], b[a != b])
    report = fastpath.last_report()
    assert report is not None and report.kernels and not report.aten_calls


@pytest.mark.parametrize("exponent", (4e-89, 3.0000000001, 16777217, 0.1, 2.5))
def test_an_exponent_that_rounding_makes_whole_is_eagers(exponent: float) -> None:
    x, _ = _values(torch.float32)
    refcompiler.reset()
    expected = x**exponent
    found = refcompiler.compile(lambda x: x**exponent)(x)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0, equal_nan=True)
    report = fastpath.last_report()
    assert report is not None and bool(report.aten_calls) == (exponent not in (0.1, 2.5))


def test_gradients_are_eagers_bits() -> None:
    x, y = (v.nan_to_num(0.0, 1.0, 1.0) for v in _values(torch.float32))

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(F.gelu(x) * y.tanh(), y.shape)

    def gradients(function):
        given = [v.clone().requires_grad_() for v in (x, y)]
        function(*given).backward(y)
        return [v.grad for v in given]

    refcompiler.reset()
    compiled = refcompiler.compile(program, options={"numerics": "strict"})
    for a, b in zip(gradients(program), gradients(compiled), strict=True):
        assert torch.equal(_bits(a), _bits(b))


def test_a_product_that_overflows_on_its_way_to_a_zero_is_one() -> None:
    x = torch.full((3, 60), 1e4)
    for row, place in enumerate((50, 59, 33)):
        x[row, place] = 0
    product = lambda x: (x.prod(1), x.t().half().prod(0), (-x).to(torch.int32).prod(dtype=x.dtype))  # noqa: E731
    refcompiler.reset()
    for found in refcompiler.compile(product, backend="fastpath", fullgraph=True)(x):
        assert torch.equal(found.abs(), torch.zeros_like(found))


def test_weights_of_cubes_are_not_rounded_twice() -> None:
    """They are differences of places, in which a product rounded by itself is some units off."""
    x = torch.randn(1, 2, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for size in ((9, 7), (11, 13), (3, 4)):
        resize = lambda x: F.interpolate(x, size=size, mode="bicubic")  # noqa: B023, E731
        refcompiler.reset()
        found = refcompiler.compile(resize, backend="fastpath", fullgraph=True)(x)
        torch.testing.assert_close(found, resize(x), rtol=1e-15, atol=1e-15)


def test_a_sixth_is_eagers() -> None:
    x = torch.randn(40, dtype=torch.float64).mul(3).requires_grad_()
    compiled = refcompiler.compile(F.hardsigmoid, backend="fastpath", fullgraph=True)
    ours, eagers = (torch.autograd.grad(f(x).sum(), x)[0] for f in (compiled, F.hardsigmoid))
    torch.testing.assert_close(ours, eagers, rtol=1e-14, atol=0)


def test_a_row_says_where_its_bits_are_others() -> None:
    for row in OPERATORS:
        if row.strict:
            assert row.reasons.get("strict"), row.name
            assert row.lowering, row.name


def test_tensors_of_zeros_without_memory_are_read_as_zeros() -> None:
    """Derivatives have such; a kernel that was made for other tensors has no address to read."""

    def program(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [x * 2 + y, x.sum(), x @ y, (x + 1).sin()]

    refcompiler.reset()
    compiled = refcompiler.compile(program, backend="fastpath", fullgraph=True)
    zeros, y = torch._efficientzerotensor(40), torch.randn(40)
    for x in (torch.randn(40), zeros, torch.randn(40), zeros):
        for found, wanted in zip(compiled(x, y), program(x, y), strict=True):
            torch.testing.assert_close(found, wanted)
