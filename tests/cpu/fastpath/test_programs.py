"""Random small programs: fused kernels give eager's values, judged against float64, and strides.

A program is a list of steps (elementwise chains, broadcasting, views, reductions, casts), so that a
failing one prints as Python source.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import fastpath
import refcompiler

SEEDS = range(24)
UNARY = [
    "torch.relu({})",
    "torch.tanh({})",
    "torch.exp(-{}.abs())",
    "torch.sigmoid({})",
    "{} * 2.5 - 1",
    "torch.nn.functional.gelu({})",
    "torch.sqrt({}.abs() + 0.5)",
    "torch.where({0} > 0.1, {0}, -0.5)",
    "{}.clamp(-1, 1)",
    "torch.softmax({}, -1)",
    "torch.log_softmax({}, -1)",
    "{}.to(torch.float64).mul(1.5).to(torch.float32)",
    "{}.mul(4).to(torch.int32).to(torch.float32)",
    "{}.clone()",
]
BINARY = ["{} + {}", "{} * {}", "{} - {}", "torch.maximum({}, {})", "{} / ({}.abs() + 1)"]
REDUCE = ["sum", "mean", "amax", "amin", "var"]


@dataclass
class Maker:
    """Builds one program, running every step as it goes so that shapes are known."""

    chance: random.Random
    values: dict[str, torch.Tensor] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def step(self, text: str) -> None:
        name = f"v{len(self.values)}"
        self.values[name] = eval(text, {"torch": torch}, dict(self.values))
        self.lines.append(f"{name} = {text}")

    def pick(self) -> str:
        names = list(self.values)
        return self.chance.choice(names[-5:] if self.chance.random() < 0.7 else names)

    def grow(self) -> None:
        a = self.pick()
        x, roll = self.values[a], self.chance.random()
        if roll < 0.35:
            self.step(self.chance.choice(UNARY if x.dim() else UNARY[:-5]).format(a))
        elif roll < 0.65:
            fits = [n for n, y in self.values.items() if broadcasts(x, y)]
            self.step(self.chance.choice(BINARY).format(a, self.chance.choice(fits)))
        elif roll < 0.85 and x.dim():
            kind = self.chance.choice(REDUCE)
            dims = self.chance.sample(range(x.dim()), self.chance.randint(1, x.dim()))
            if kind == "var" and any(x.shape[d] < 2 for d in dims):
                kind = "sum"
            self.step(f"{a}.{kind}({sorted(dims)}, keepdim={self.chance.random() < 0.7})")
        else:
            self.step(self.view(a, x))

    def view(self, a: str, x: torch.Tensor) -> str:
        options = [f"{a}.unsqueeze({self.chance.randint(0, x.dim())})", f"{a}.reshape(-1)"]
        if x.dim() >= 2:
            d, e = self.chance.sample(range(x.dim()), 2)
            options += [f"{a}.transpose({d}, {e})"] * 2 + [f"{a}.flatten({min(d, e)}, {max(d, e)})"]
        if x.dim():
            d = self.chance.randrange(x.dim())
            if x.shape[d] > 1:
                options.append(f"{a}.select({d}, {self.chance.randrange(x.shape[d])})")
                options.append(f"{a}.narrow({d}, 1, {x.shape[d] - 1})")
            options.append(f"{a}.flip({d})")
        if x.dim() < 4 and x.numel() < 3000:
            options.append(f"{a}.expand(2, {', '.join('-1' for _ in x.shape)})".replace(", )", ")"))
        return self.chance.choice(options)


def broadcasts(x: torch.Tensor, y: torch.Tensor) -> bool:
    try:
        return torch.broadcast_shapes(x.shape, y.shape).numel() < 20_000
    except RuntimeError:
        return False


def program(seed: int) -> tuple[str, Callable[..., Any], list[torch.Tensor]]:
    """Source, function and float32 inputs of the program that ``seed`` stands for."""
    chance = random.Random(seed)
    maker = Maker(chance)
    generator = torch.Generator().manual_seed(seed)
    shape = [chance.choice([1, 2, 3, 5, 8, 17, 33]) for _ in range(chance.randint(1, 3))]
    inputs = []
    for n in range(chance.randint(1, 3)):
        own = [1 if chance.random() < 0.15 else s for s in shape]
        x = torch.randn(own, generator=generator)
        if chance.random() < 0.3 and x.dim() > 1:
            x = x.transpose(0, -1).contiguous().transpose(0, -1)
        inputs.append(x)
        maker.values[f"v{n}"] = x
    for _ in range(chance.randint(3, 14)):
        maker.grow()
    count = len(inputs)
    names = list(maker.values)
    returned = sorted({*chance.sample(names[count:], min(2, len(names) - count)), names[-1]})
    body = "".join(f"    {line}\n" for line in maker.lines)
    source = f"def f({', '.join(names[:count])}):\n{body}    return [{', '.join(returned)}]\n"
    scope: dict[str, Any] = {"torch": torch}
    exec(source, scope)
    return source, scope["f"], inputs


def steps(x: torch.Tensor) -> list[int]:
    """The strides that can be observed: those of dimensions with more than one element."""
    return [stride for n, stride in zip(x.shape, x.stride(), strict=True) if n > 1]


def check(seed: int) -> int:
    """Compare the program of ``seed`` with eager; returns the number of kernels."""
    source, function, inputs = program(seed)
    with torch.no_grad():
        expected = function(*inputs)
        exact = function(*[x.double() for x in inputs])
        run = fastpath.compile_graph(torch.fx.symbolic_trace(function), inputs)
        got = run(*inputs)
    assert run.report.fallback is None, f"seed {seed}: {run.report.fallback}\n{source}"
    for n, (a, b, c) in enumerate(zip(got, expected, exact, strict=True)):
        place = f"seed {seed}, output {n} of\n{source}"
        assert (a.dtype, a.shape, steps(a)) == (b.dtype, b.shape, steps(b)), place
        if a.dtype.is_floating_point:
            scale = c.abs().nan_to_num(0, 0, 0).max().clamp(min=1.0) if c.numel() else 1.0
            allowed = 4 * (b.double() - c).abs() + 2e-5 * scale
            error = (a.double() - c).abs()
            same = (a == b) | (a.isnan() & b.isnan())
            assert bool((same | (error <= allowed)).all()), place
        else:
            assert torch.equal(a, b), place
    return run.report.kernels


@pytest.mark.parametrize("start", range(0, len(SEEDS), 8))
def test_random_programs(start: int) -> None:
    kernels = [check(seed) for seed in SEEDS[start : start + 8]]
    assert sum(kernels) >= len(kernels)


def test_the_same_program_compiles_no_kernel_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastpath.cpu import machine

    check(3)
    monkeypatch.setattr(machine, "_compile", lambda printed, symbol: pytest.fail("compiled again"))
    assert check(3) >= 1


def test_branches_and_loops_are_calls_among_kernels() -> None:
    import refcompiler

    def chosen(x: torch.Tensor) -> torch.Tensor:
        y = torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a.sin(), (x * 2,))
        return y * 3

    def counted(x: torch.Tensor) -> torch.Tensor:
        def body(n: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return n + 1, y * 2

        start = torch.tensor(0), x.sin()
        return torch.while_loop(lambda n, y: n < 3, body, start)[1] + 1

    for program, grad in ((chosen, True), (counted, False)):
        x = torch.linspace(0.1, 0.8, 8).requires_grad_(grad)
        y = refcompiler.compile(program, backend="fastpath")(x)
        report = fastpath.last_report()
        assert report is not None and report.fallback is None and report.kernels
        torch.testing.assert_close(y, program(x))
        if grad:
            (found,), (wanted,) = (torch.autograd.grad(v.sum(), x) for v in (y, program(x)))
            torch.testing.assert_close(found, wanted)
        refcompiler.reset()


def test_results_in_lists_inside_of_tuples() -> None:
    """What a scaler of gradients calls gives a list of tensors, and one more."""

    def program(ts: list[torch.Tensor], found: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
        torch._amp_foreach_non_finite_check_and_unscale_(ts, found, inverse)
        return found + ts[1].sum()

    compiled = refcompiler.compile(program, backend="fastpath")
    for value in (1.0, float("inf")):
        given = [[torch.tensor([3.0, value]), torch.ones(4)], torch.zeros(1), torch.tensor([0.5])]
        expected = [[t.clone() for t in given[0]], given[1].clone(), given[2]]
        assert torch.equal(compiled(*given), program(*expected))
        assert torch.equal(given[1], expected[1]) and given[1] == (value != 1)
        assert all(map(torch.equal, given[0], expected[0]))
    report = fastpath.last_report()
    assert report is not None and report.fallback is None and report.kernels


def taken_apart(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Operators that are said by others, whose own results lie otherwise than those of others."""
    return (
        torch.nn.functional.logsigmoid(a),
        torch.nn.functional.mse_loss(a, b, reduction="none"),
        torch.nn.functional.huber_loss(a, b),
        torch.special.xlog1py(a, b),
        torch.xlogy(a, b),
        torch.ops.aten.hardswish_backward(a.detach(), b),
        torch.any(a > 0.5, []),
    )


def test_what_is_taken_apart_lies_where_eager_puts_it() -> None:
    x = torch.rand(2, 4, 3, 5, generator=torch.Generator().manual_seed(1)) + 0.1
    last, turned = x.to(memory_format=torch.channels_last), x.permute(3, 1, 0, 2).contiguous()
    compared = 0
    for a, b in ((x, last), (last, x), (turned.permute(2, 1, 3, 0), last)):
        refcompiler.reset()
        seen = []
        for call in (taken_apart, refcompiler.compile(taken_apart)):
            given = a.detach().requires_grad_()
            results = call(given, b)
            total = torch.stack([r.sum() for r in results[:5]]).sum()
            seen.append([*results, *torch.autograd.grad(total, given)])
        for expected, found in zip(*seen, strict=True):
            assert found.stride() == expected.stride()
            torch.testing.assert_close(found, expected)
            compared += 1
        report = fastpath.last_report()
        assert report is not None and report.fallback is None and report.kernels
    assert compared == 24


def test_truth_of_complex_numbers() -> None:
    x = torch.tensor([[0, 1j], [0, 0], [1, complex("nan")]])

    def function(x: torch.Tensor) -> Any:
        return x.any(-1), x.all(), x.any(-1) & (x.real > 0).any(-1)

    call: Any = fastpath.compile_graph(torch.fx.symbolic_trace(function), [x])
    assert call.report.fallback is None and not call.report.aten_calls, call.report
    for given in (x, x.conj().resolve_conj() * 2, x * 0):
        assert all(map(torch.equal, call(given), function(given)))


def test_products_of_complex_numbers_one_behind_the_other() -> None:
    """What lies between them is of a dtype that kept memory has not."""

    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.mm(torch.mm(x, x), x), (y * 2).sum(-1)

    x, y = torch.randn(4, 4, dtype=torch.complex64), torch.randn(4, 4)
    call: Any = fastpath.compile_graph(torch.fx.symbolic_trace(function), [x, y])
    assert call.report.fallback is None and call.report.kernels == 1, call.report
    for given in (x, x * 1j):
        torch.testing.assert_close(tuple(call(given, y)), function(given, y))
