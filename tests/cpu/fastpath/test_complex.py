"""Complex numbers in kernels: eager's special values, views, promotion and gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fastpath
import refcompiler

C64, C128 = torch.complex64, torch.complex128
PARTS = (0.0, -0.0, 1.0, -2.5, 1e-30, 3e38, -100.0, 50.0, math.inf, -math.inf, math.nan)
NUMBERS = [complex(a, b) for a in PARTS for b in PARTS]


def parts(t: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(t.resolve_conj()) if t.is_complex() else t.resolve_neg()


def assert_same(found: torch.Tensor, expected: torch.Tensor, rtol: float = 4e-6) -> None:
    """Values as near as the elementary functions are; nan, infinities and signs of zeros too."""
    assert (found.dtype, found.shape, found.stride()) == (
        expected.dtype,
        expected.shape,
        expected.stride(),
    )
    assert (found.is_conj(), found.is_neg()) == (expected.is_conj(), expected.is_neg())
    a, b = parts(found), parts(expected)
    if not b.is_floating_point():
        assert torch.equal(a, b)
        return
    near = b.isfinite() & ((a - b).abs() <= rtol * b.abs() + 1e-44)
    near |= (a == b) | (a.isnan() & b.isnan())
    near &= (a.signbit() == b.signbit()) | (b != 0)
    assert near.all(), (found[~near.reshape(*found.shape, -1).all(-1)], expected)


def run(function: Callable[..., Any], *inputs: Any, aten: tuple[str, ...] = ()) -> list[Any]:
    """What kernels give, and ATen for the operators ``aten`` alone."""
    refcompiler.reset()
    found = refcompiler.compile(function, backend="fastpath", dynamic=False)(*inputs)
    report = fastpath.last_report()
    assert report is not None and report.fallback is None
    assert set(report.aten_calls) == set(aten), report
    return list(found)


def unary(x: torch.Tensor) -> Any:
    return (
        -x, x.abs(), x.angle(), x.sgn(), x.exp(), x.log(), x.sqrt(), x.reciprocal(), x.rsqrt(),
        x.sigmoid(), x.square(), x.isnan(), x.isinf(), x.isfinite(), x.logical_not(),
        x.conj_physical(), x.exp2(), x.log2(), x.log10(), torch.nn.functional.silu(x),
    )  # fmt: skip


def circular(x: torch.Tensor) -> Any:
    return x.sin(), x.cos(), x.tan(), x.sinh(), x.cosh(), x.tanh()


def powers(x: torch.Tensor) -> Any:
    a, b = x.real, x.imag
    reals = torch.complex(a, b), torch.polar(a, b), a + 1, b + 1, x.conj().imag * 2
    others = (*reals, x + 1, 2 - x, x * 2.5, x * 2j, x / 3, 1j / x, x * 1e-3)
    return *(x**n for n in (0, 1, 2, 3, 0.5, -0.5, -1, -2)), *others


@pytest.mark.parametrize(
    ("function", "dtype"), [(unary, C64), (circular, C128), (circular, C64), (powers, C64)]
)
def test_special_values_are_those_of_eagers_vectors(
    function: Callable[..., Any], dtype: torch.dtype
) -> None:
    # As many of each as a vector holds: what vectors leave over is another kernel of eager's.
    x = torch.tensor(NUMBERS, dtype=dtype).repeat_interleave(16)
    for found, expected in zip(run(function, x), function(x), strict=True):
        assert_same(found, expected)


def binary(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (
        x + y, x - y, x * y, x / y, x == y, x != y, torch.where(x.real > 0, x, y),
        torch.add(x, y, alpha=2), torch.rsub(x, y, alpha=2), torch.addcmul(x, y, x, value=2),
        torch.addcdiv(x, y, x, value=2), x.real * y, x.imag / y, x.masked_fill(y.imag > 0, 2j),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [C64, C128])
def test_all_pairs_of_special_values(dtype: torch.dtype) -> None:
    pairs = list(itertools.product(NUMBERS, NUMBERS))
    x, y = (torch.tensor([pair[n] for pair in pairs], dtype=dtype) for n in (0, 1))
    for found, expected in zip(run(binary, x, y), binary(x, y), strict=True):
        assert_same(found, expected)


def draw(*shape: int, dtype: torch.dtype = C64, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def views(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x * y
    again = torch.view_as_complex(torch.view_as_real(x).transpose(0, 1) * 2)
    real = z.real, z.imag + 1, z.conj().imag * 2, torch.view_as_real(z).flatten(1).half()
    return z.t(), z[1:].conj() * 2, torch.view_as_real(z), *real, z.reshape(-1)[::2] * 1, again


def sums(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x * y
    exact = (z != 0).all(), (z == 0).any(1)
    return z.sum(), z.mean(), z.sum(0), z.mean(1, keepdim=True), z.abs().sum(1), *exact


def scans(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x * y
    return z.cumsum(1), torch.linalg.vector_norm(z), torch.linalg.vector_norm(z, 1, dim=0)


def moved(x: torch.Tensor, y: torch.Tensor) -> Any:
    padded = torch.nn.functional.pad(x, (1, 2), value=2.0)
    put = torch.cat([x, y.conj()]), torch.stack([x, y], -1), x.flip(0) + y, x.roll(1, 0) * y
    return *put, padded, x.tril(), torch.cat([x * y, x])[1:].abs(), x.repeat(2, 1) * 2


def cast(x: torch.Tensor, y: torch.Tensor) -> Any:
    real = x.real
    wider = x.to(C128) * 2, (x.to(C128) * y).to(C64), real.double() * y
    narrow = real.half() * y, real.bfloat16() * y, (8 * real).to(torch.int32) * y
    return *wider, *narrow, (real > 0).to(C64) + y, real.to(C64) * 2, x.bool()


def filled(x: torch.Tensor, y: torch.Tensor) -> Any:
    made = torch.zeros_like(x) + y, torch.ones(3, dtype=C64) * (1 + 2j), torch.full((2, 2), 1j)
    numbers = x * torch.tensor(2j), x * torch.tensor(2.0), x.new_full((2,), 3.0), x * y.real.sum()
    return *made, *numbers, torch.full_like(x, 1 - 2j)


def broadcast(x: torch.Tensor, y: torch.Tensor) -> Any:
    i = torch.tensor([2, 0, 1])
    return x * y[0], x + y[:, :1], x.real * y[:1], x[:, None] * y[None], x[i] * y[i], x.t() + y


def rotary(x: torch.Tensor, y: torch.Tensor) -> Any:
    angles = torch.outer(torch.arange(4.0), 0.5 ** torch.arange(4.0))
    turn = torch.polar(torch.ones_like(angles), angles)
    halves = torch.view_as_complex(torch.view_as_real(x).reshape(4, 4, 4, 2))
    turned = torch.view_as_real(halves * turn).flatten(2)
    return turned, turned.bfloat16(), turned.transpose(0, 1) * 2


def recurrence(x: torch.Tensor, y: torch.Tensor) -> Any:
    """A diagonal state space: states turn and shrink, and the input is added."""
    turn = torch.exp(torch.complex(-x[0].real.abs(), x[0].imag))
    state = torch.zeros_like(turn)
    seen = []
    for row in y[:4]:
        state = turn * state + row
        seen.append((state * x[1]).real)
    return torch.stack(seen), state


PROGRAMS = [views, sums, scans, moved, cast, filled, broadcast, rotary, recurrence]


@pytest.mark.parametrize("function", PROGRAMS)
def test_programs_are_kernels_alone(function: Callable[..., Any]) -> None:
    x, y = draw(8, 8), draw(8, 8, seed=1)
    for found, expected in zip(run(function, x, y), function(x, y), strict=True):
        torch.testing.assert_close(found, expected, rtol=3e-6, atol=2e-6)
        assert (found.stride(), found.is_conj()) == (expected.stride(), expected.is_conj())


def loss(function: Callable[..., Any], *inputs: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(())
    for t in function(*inputs):
        if t.is_complex() or t.is_floating_point():
            total = total + (t.abs() ** 2 if t.is_complex() else t.float() * 2).sum()
    return total


@pytest.mark.parametrize("function", [views, sums, rotary, recurrence])
def test_gradients_are_kernels_alone(function: Callable[..., Any]) -> None:
    given = [draw(8, 8).requires_grad_(), draw(8, 8, seed=1).requires_grad_()]
    known = [t.detach().clone().requires_grad_() for t in given]
    refcompiler.reset()
    step = refcompiler.compile(lambda *t: loss(function, *t), backend="fastpath", dynamic=False)
    step(*given).backward()
    report = fastpath.last_report()
    assert report is not None and report.fallback is None and report.backwards
    for each in (report, *report.backwards):
        assert each.fallback is None and set(each.aten_calls) <= {"aten.index_put.default"}, each
    loss(function, *known).backward()
    seen = [(a.grad, b.grad) for a, b in zip(given, known, strict=True)]
    assert any(b is not None for _, b in seen)
    for found, expected in seen:
        torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)


def elementary(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x * 0.5
    return z.exp(), z.log(), z.sqrt(), z.sin(), z.tanh(), z.reciprocal(), z**3, x / y, z.angle()


def test_gradients_of_elementary_functions() -> None:
    test_gradients_are_kernels_alone(elementary)


def test_what_an_input_is_written_with_lies_in_it() -> None:
    def write(x: torch.Tensor, y: torch.Tensor) -> Any:
        torch.view_as_real(x).mul_(2)
        y.copy_(x * 2)
        x.imag.zero_()
        y[0] = 1
        return (x + y,)

    given, known = [[draw(8, 8), draw(8, 8, seed=1)] for _ in range(2)]
    addresses = [t.data_ptr() for t in given]
    for found, expected in zip(run(write, *given), write(*known), strict=True):
        assert_same(found, expected)
    for found, expected in zip(given, known, strict=True):
        assert_same(found, expected)
    assert [t.data_ptr() for t in given] == addresses


@pytest.mark.parametrize("lay", ["conj", "neg", "transposed", "sliced", "expanded", "odd"])
def test_inputs_of_any_layout(lay: str) -> None:
    x = draw(8, 8)
    match lay:
        case "conj":
            x = x.conj()
        case "neg":
            x = torch._neg_view(x)
        case "transposed":
            x = x.t()
        case "sliced":
            x = draw(16, 17)[1::2, 1::2]
        case "expanded":
            x = draw(8, 1).expand(8, 8)
        case "odd":  # at an address of reals that no pair of parts has
            x = torch.view_as_complex(torch.randn(8, 8, 2))

    def function(x: torch.Tensor) -> Any:
        return x * 2j, x.abs(), x.imag + 1, x.conj() * x

    for found, expected in zip(run(function, x), function(x), strict=True):
        torch.testing.assert_close(found, expected, rtol=2e-6, atol=0)
        assert found.stride() == expected.stride()


def test_what_calls_give_and_take() -> None:
    """Of spectra: the transform is ATen's, what is done with it is not."""

    def filtered(x: torch.Tensor, y: torch.Tensor) -> Any:
        seen = torch.fft.fft(x.real)
        back = torch.fft.ifft(seen * y.conj())
        return back.real * 2, (x @ y.conj().t()).abs(), x.conj()

    x, y = draw(8, 8), draw(8, 8, seed=1)
    calls = ("aten._fft_r2c.default", "aten._fft_c2c.default", "aten.mm.default")
    found = refcompiler.compile(filtered, backend="fastpath")(x, y)
    report = fastpath.last_report()
    assert report is not None and set(report.aten_calls) == set(calls) and report.kernels
    for a, b in zip(found, filtered(x, y), strict=True):
        torch.testing.assert_close(a, b)
        assert a.is_conj() == b.is_conj()


def test_sizes_may_change() -> None:
    run = refcompiler.compile(lambda x, y: ((x * y).abs(), x.conj() + y), dynamic=True)
    for n in (3, 17, 64):
        x, y = draw(n, 5), draw(n, 5, seed=1)
        for found, expected in zip(run(x, y), ((x * y).abs(), x.conj() + y), strict=True):
            torch.testing.assert_close(found, expected)


def test_what_has_no_row_is_called_and_counted() -> None:
    x = draw(8)
    (found,) = run(lambda x: ((x * 2).acos() + 1,), x, aten=("aten.acos.default",))
    torch.testing.assert_close(found, (x * 2).acos() + 1)
    report = fastpath.last_report()
    assert report is not None and "complex" in report.reasons["aten.acos.default"]


def test_near_the_unit_circle_the_logarithm_is_exact() -> None:
    """Where the squares' sum is nearly 1, what rounding them leaves is a part of the result."""
    turn = torch.rand(4096, generator=torch.Generator().manual_seed(0)) * 7
    x = torch.polar(torch.ones(4096), turn)
    (found,) = run(lambda x: (x.log(),), x)
    exact = x.to(C128).log()
    assert ((found.real - exact.real).abs() <= 1e-6 * exact.real.abs() + 1e-15).all()


def test_parts_in_a_row_are_computed_two_at_a_time() -> None:
    """A conversion of pairs: each turn of its loop knows which part it is of."""

    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x * y
        return torch.view_as_real(z).bfloat16(), torch.view_as_real(z).flatten(1).double()

    for shape in ((), (7,), (3, 16), (2, 5, 3)):
        x, y = draw(*shape), draw(*shape, seed=1)
        if not shape:
            x, y = x.expand(1), y.expand(1)
        for found, expected in zip(run(function, x, y), function(x, y), strict=True):
            assert_same(found, expected)
    graph = torch.fx.symbolic_trace(lambda x, y: torch.view_as_real(x * y).flatten(1).bfloat16())
    call: Any = fastpath.compile_graph(graph, [draw(4, 64), draw(4, 64)])
    (source,) = call.kernel_sources
    assert source.count("store_bfloat16") == 2 and "% 2" not in source and "// 2" not in source


def test_a_fill_of_nothing_still_looks_at_its_number() -> None:
    for number, dtype in ((1j, torch.float16), (1000, torch.int8)):
        run = refcompiler.compile(lambda x: torch.full_like(x, number, dtype=dtype))  # noqa: B023
        with pytest.raises(RuntimeError, match="without overflow"):
            run(torch.zeros(0))


def test_on_cuda_a_mean_is_of_the_parts() -> None:
    """There the count is a real number, and an infinite part leaves the other as it is."""
    pytest.importorskip("triton")
    from fastpath.gpu.vectors import print_kernel
    from tests.cpu.fastpath.triton_kernels import kernels_of, program_of

    kernels, _ = kernels_of(program_of(lambda z: z.mean(1), [torch.zeros(64, 7).cfloat()]))
    texts = "".join(print_kernel(kernel).source for kernel in kernels)
    assert texts.count("over_odd(") == 2 and "fma" not in texts


def test_halves_are_no_parts_in_kernels() -> None:
    """What ATen makes of them is eager's; as numbers of a view they are ATen's, too."""

    def function(x: torch.Tensor) -> Any:
        z = torch.view_as_complex(x.reshape(2, 2)) * 2
        return torch.view_as_real(z) + 1, x * 3

    x = torch.arange(4.0).half()
    compiled = refcompiler.compile(function, backend="fastpath")
    for found, expected in zip(compiled(x), function(x), strict=True):
        assert_same(found, expected)
    report = fastpath.last_report()
    assert report is not None and report.fallback is None and report.kernels, report
