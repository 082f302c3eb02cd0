"""Device graphs on a GPU: eager's results whatever moves, is kept, is drawn or is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fastpath
import refcompiler

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

GRAPHED = {"options": {"triton.cudagraphs": True}}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    refcompiler.reset()
    torch.manual_seed(0)
    yield
    refcompiler.reset()


def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.gelu(x * y + 1).sum(-1, keepdim=True) + x


@pytest.mark.parametrize("size", [64, 1000, 4097])
def test_inputs_that_move_need_no_copy(size: int) -> None:
    compiled = refcompiler.compile(chain, **GRAPHED)
    report, alive = None, []
    y = torch.randn(32, size, device="cuda")
    for _ in range(8):
        x = torch.randn(32, size, device="cuda")
        alive.append(x)
        torch.testing.assert_close(compiled(x, y), chain(x, y))
        report = fastpath.last_report()
    assert report is not None and report.graphs >= 1 and report.ungraphed == 0, report
    shifted = torch.randn(32 * size + 1, device="cuda")[1:].view(32, size)  # not aligned
    torch.testing.assert_close(compiled(shifted, y), chain(shifted, y))


def test_results_that_are_kept_keep_their_values() -> None:
    compiled = refcompiler.compile(chain, **GRAPHED)
    inputs = [torch.randn(8, 256, device="cuda") for _ in range(10)]
    y = torch.randn(8, 256, device="cuda")
    kept = [compiled(x, y) for x in inputs]
    for x, result in zip(inputs, kept):
        torch.testing.assert_close(result, chain(x, y))
    assert fastpath.last_report().graphs == 3


def test_draws_are_eagers_and_the_generator_goes_on() -> None:
    def drop(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x.relu(), 0.3) + torch.rand_like(x)

    compiled = refcompiler.compile(drop, **GRAPHED)
    x = torch.randn(64, 512, device="cuda")
    for n in range(6):
        torch.cuda.manual_seed(n)
        expected = drop(x), torch.cuda.get_rng_state()
        torch.cuda.manual_seed(n)
        assert torch.equal(compiled(x), expected[0]), n
        assert torch.equal(torch.cuda.get_rng_state(), expected[1]), n
    report = fastpath.last_report()
    assert report.graphs >= 1 and report.ungraphed == 0, report


def model() -> nn.Module:
    parts = [nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Dropout(0.1), nn.Linear(128, 8)]
    return nn.Sequential(*parts).cuda()


@pytest.mark.parametrize("how", ["fastpath", "cudagraphs"])
@pytest.mark.parametrize("none", [True, False])
def test_training(how: str, none: bool) -> None:
    first, second = model(), model()
    second.load_state_dict(first.state_dict())
    given: Any = GRAPHED if how == "fastpath" else {"backend": how}

    def loss_of(m: nn.Module) -> Callable[..., torch.Tensor]:
        return lambda x, y: F.cross_entropy(m(x), y)

    compiled = refcompiler.compile(loss_of(first), **given)
    eager = loss_of(second)
    steps = [torch.optim.AdamW(m.parameters(), lr=0.01) for m in (first, second)]
    losses = []
    for n in range(10):
        x, y = torch.randn(16, 64, device="cuda"), torch.randint(0, 8, (16,), device="cuda")
        found = []
        for loss, step in zip((compiled, eager), steps):
            torch.cuda.manual_seed(n)
            value = loss(x, y)
            value.backward()
            step.step()
            step.zero_grad(set_to_none=none)
            found.append(value)
        losses.append(found)
    for n, (ours, theirs) in enumerate(losses):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4, msg=f"step {n}")
    report = fastpath.last_report()
    (back,) = report.backwards
    assert report.graphs >= 1 and report.ungraphed == 0, report
    assert back.graphs >= 1 and back.ungraphed == 0, report


def test_gradients_accumulate_over_steps_whose_forwards_come_first() -> None:
    net = model().eval()
    compiled = refcompiler.compile(net, **GRAPHED)
    for _ in range(5):
        batch = [torch.randn(4, 64, device="cuda") for _ in range(3)]
        net.zero_grad()
        outputs = [compiled(x) for x in batch]
        for output in outputs:
            output.square().sum().backward()
        ours = [p.grad.clone() for p in net.parameters()]
        net.zero_grad()
        for x in batch:
            net(x).square().sum().backward()
        for p, grad in zip(net.parameters(), ours):
            torch.testing.assert_close(grad, p.grad, rtol=1e-4, atol=1e-4)


def test_streams_and_what_cannot_be_recorded() -> None:
    compiled = refcompiler.compile(chain, **GRAPHED)
    x, y = torch.randn(64, 512, device="cuda"), torch.randn(64, 512, device="cuda")
    expected = chain(x, y)
    streams = [torch.cuda.Stream() for _ in range(3)]
    for _ in range(5):
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                found = compiled(x, y)
            torch.cuda.current_stream().wait_stream(stream)
            torch.testing.assert_close(found, expected)
            del found

    def asks(x: torch.Tensor) -> torch.Tensor:
        return x.masked_select(x > 0).sum()

    compiled = refcompiler.compile(asks, **GRAPHED)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), asks(x))


def test_the_plain_backend_has_eagers_bits() -> None:
    def work(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ w, -1) + torch.rand(64, device="cuda")

    compiled = refcompiler.compile(work, backend="cudagraphs")
    w = torch.randn(64, 64, device="cuda")
    for n in range(6):
        x = torch.randn(64, 64, device="cuda")
        torch.cuda.manual_seed(n)
        expected = work(x, w), torch.cuda.get_rng_state()
        torch.cuda.manual_seed(n)
        assert torch.equal(compiled(x, w), expected[0]), n
        assert torch.equal(torch.cuda.get_rng_state(), expected[1])
    assert fastpath.last_report().graphs >= 1


def test_what_products_count_in_is_zeroed_once_for_all_of_a_graph() -> None:
    from fastpath.gpu import lt
    from fastpath.graphs.cuda import recorder_of

    parts = [nn.Linear(768, 3072), nn.GELU(approximate="tanh"), nn.Linear(3072, 768)]
    layers = nn.Sequential(*(3 * parts)).cuda().to(torch.bfloat16)
    plain = refcompiler.compile(lambda x: layers(x), fullgraph=True)
    graphed = refcompiler.compile(lambda x: layers(x), fullgraph=True, **GRAPHED)
    with torch.no_grad():
        x = torch.randn(4096, 768, device="cuda", dtype=torch.bfloat16)
        plain(x)
        before = lt.turn()
        plain(x)
        counting = lt.turn() - before - 1
        for _ in range(2):  # the second call is recorded
            graphed(x)
        recorder = recorder_of(torch.device("cuda", torch.cuda.current_device()))
        assert recorder.cleared == (counting if counting > 1 else 0)
        for _ in range(6):
            x = torch.randn(4096, 768, device="cuda", dtype=torch.bfloat16)
            assert torch.equal(graphed(x), plain(x))
    assert fastpath.last_report().ungraphed == 0
