"""Graphs on a CUDA device: inference and training give eager's results, and through kernels."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fastpath
import refcompiler

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    refcompiler.reset()
    return refcompiler.compile(function, backend="fastpath", fullgraph=True)


def close(got: Any, eager: Any, exact: Any) -> None:
    """``got`` is about as near to float64's answer as eager is."""
    assert (got.dtype, got.shape, got.stride()) == (eager.dtype, eager.shape, eager.stride())
    step = torch.finfo(got.dtype).eps
    scale = exact.abs().max()
    room = 4 * (eager.double() - exact).abs().max() + 4 * step * scale
    assert (got.double() - exact).abs().max() <= room


def gradients(model: nn.Module) -> list[Any]:
    return [p.grad for p in model.parameters()]


class Block(nn.Module):
    def __init__(self, width: int, p: float = 0.0):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.p = p

    def forward(self, x: Any) -> Any:
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.down(F.gelu(self.up(self.norm(x))))
        return F.dropout(x, self.p, self.training)


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3), nn.GroupNorm(4, 32), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(32, 10),
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        return F.log_softmax(self.layers(x), -1)


MODELS = {
    "block": (lambda: Block(64), (4, 33, 64)),
    "pictures": (Pictures, (8, 3, 32, 32)),
    "recurrent": (lambda: nn.Sequential(nn.Linear(20, 40), nn.Tanh(), nn.Linear(40, 7)), (9, 20)),
}


@pytest.mark.parametrize("name", MODELS)
def test_inference_and_training(name: str) -> None:
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model = make().cuda()
    x = torch.randn(shape, device="cuda")
    exact_model = copy.deepcopy(model).double()
    own = copy.deepcopy(model)
    run = compiled(own)
    with torch.no_grad():
        close(run(x), copy.deepcopy(model)(x), copy.deepcopy(exact_model)(x.double()))
    assert fastpath.last_report().kernels > 0 and fastpath.last_report().fallback is None
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    exact_input = x.double().requires_grad_()
    own.load_state_dict(model.state_dict())
    got, eager, exact = run(inputs[0]), model(inputs[1]), exact_model(exact_input)
    close(got.detach(), eager.detach(), exact.detach())
    for out in (got, eager, exact):
        (out * out.detach().sin()).sum().backward()
    report = fastpath.last_report()
    assert report.kernels > 0 and report.backwards[0].kernels > 0
    close(inputs[0].grad, inputs[1].grad, exact_input.grad)
    for a, b, c in zip(gradients(own), gradients(model), gradients(exact_model), strict=True):
        close(a, b, c)


def test_dropout_draws_eagers_numbers() -> None:
    def f(x: Any) -> Any:
        return F.dropout(torch.relu(x), 0.3) + torch.rand_like(x)

    x = torch.randn(1000, 77, device="cuda")
    torch.manual_seed(3)
    expected, state = f(x), torch.cuda.get_rng_state()
    torch.manual_seed(3)
    got = compiled(f)(x)
    assert torch.equal(got, expected) and torch.equal(torch.cuda.get_rng_state(), state)


def test_inputs_are_mutated_and_aliased_as_in_eager() -> None:
    def f(x: Any, y: Any) -> Any:
        x.mul_(2).add_(y)
        return x.view(-1), y.t() + 1

    x, y = (torch.arange(12.0, device="cuda").reshape(3, 4) for _ in range(2))
    flat, _ = compiled(f)(x, y)
    assert flat.data_ptr() == x.data_ptr()
    assert torch.equal(x, torch.arange(12.0, device="cuda").reshape(3, 4) * 3)


def test_a_scalar_on_the_cpu_and_an_unaligned_input() -> None:
    def f(x: Any, s: Any) -> Any:
        return (x * s).sin() + 1

    x, s = torch.randn(4097, device="cuda"), torch.tensor(2.0)
    run = compiled(f)
    for given in (x, x[1:], x[:4096]):
        assert torch.allclose(run(given, s), f(given, s), atol=1e-6)


def test_work_goes_to_the_current_stream() -> None:
    run = compiled(lambda x: (x * 2).sin().sum(0))
    x = torch.randn(4096, 4096, device="cuda")
    run(x)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        y = torch.randn(4096, 4096, device="cuda")
        for _ in range(20):
            y = y * 1.01  # still under way when the kernel is launched
        got = run(y)
        expected = (y * 2).sin().sum(0)
    side.synchronize()
    assert torch.allclose(got, expected, atol=1e-2)


def test_errors_of_the_user_stay_the_users() -> None:
    def f(x: Any, y: Any) -> Any:
        return (x @ y).relu()

    with pytest.raises(Exception, match="shapes|size"):
        compiled(f)(torch.ones(2, 3, device="cuda"), torch.ones(2, 3, device="cuda"))
