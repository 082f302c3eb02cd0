"""Convolutions in programs: images with their channels last inside, eager's layouts outside.

Most run the graphs that kernels would be made of, operator by operator, and compare where each
result lies with what its node promises; kernels take seconds to compile.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fastpath
import refcompiler
from fastpath import compiler
from fastpath.report import Report

aten = torch.ops.aten
LAST, HALF = torch.channels_last, torch.bfloat16
Ran = list[tuple[Any, bool]]


class Checked(torch.fx.Interpreter):
    """Runs a graph; ``ran`` are the operators and where the image of each convolution lies."""

    def __init__(self, graph: torch.fx.GraphModule, ran: Ran):
        super().__init__(graph)
        self.ran = ran
        self.sizes: dict[str, int] = {}  # of symbols

    def run_node(self, node: torch.fx.Node) -> Any:
        found = super().run_node(node)
        promised = node.meta.get("val")
        if node.op == "placeholder" and isinstance(found, int):
            self.sizes[str(promised)] = found
        if isinstance(found, torch.Tensor):
            assert found.dtype == promised.dtype
            assert found.shape == self.known(promised.shape), node
            steps = zip(found.shape, found.stride(), self.known(promised.stride()), strict=True)
            assert all(n == 1 or have == want for n, have, want in steps), node
        if node.op == "call_function":
            image = self.fetch_args_kwargs_from_env(node)[0][0]
            last = isinstance(image, torch.Tensor) and image.dim() == 4
            self.ran.append((node.target, last and image.is_contiguous(memory_format=LAST)))
        return found

    def known(self, numbers: Any) -> tuple[int, ...]:
        return tuple(n if type(n) is int else eval(str(n), {}, self.sizes) for n in numbers)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Graphs run as :class:`Checked` does, and what ran."""
    found: Ran = []

    def compiled(graph: Any, report: Any, options: Any, boxed: bool = False) -> Any:
        def call(*inputs: Any) -> Any:
            return Checked(graph, found).run(*inputs)

        return make_boxed(call) if boxed else call

    monkeypatch.setattr(compiler, "_compiled", compiled)
    return found


def make_boxed(call: Any) -> Any:
    def boxed(inputs: list[Any]) -> Any:
        return call(*inputs)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def images(ran: Ran) -> list[bool]:
    """Of each convolution that ran, whether its image had its channels last."""
    return [last for target, last in ran if target is aten.convolution.default]


def image(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def laid(values: Any) -> list[Any]:
    """What is seen of where tensors lie; the first that each shares memory with."""
    memory = [t.untyped_storage().data_ptr() for t in values]
    return [(t.shape, t.stride(), t.dtype, memory.index(m)) for t, m in zip(values, memory)]


def agree(function: Callable[..., Any], *shape: int, tolerance: float = 1e-4) -> Report:
    """Two calls without gradients give eager's values, in eager's layouts."""
    refcompiler.reset()
    run = refcompiler.compile(function, backend="fastpath", dynamic=False)
    with torch.no_grad():
        for seed in range(2):
            x = image(*shape, seed=seed)
            found, expected = run(x), function(x)
            assert laid(found) == laid(expected) and len(found) > 0
            for a, b in zip(found, expected, strict=True):
                torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    report = fastpath.last_report()
    assert report is not None and report.fallback is None
    return report


def trained(model: nn.Module, x: torch.Tensor, tolerance: float = 2e-4) -> Report:
    """Results and gradients of two steps are eager's, and lie as eager's."""
    refcompiler.reset()
    plain = copy.deepcopy(model)
    run = refcompiler.compile(model, backend="fastpath", dynamic=False)
    for step in range(2):
        seen = []
        for call, own in ((run, model), (plain, plain)):
            torch.manual_seed(step)
            own.zero_grad()
            given = (x + step).requires_grad_()
            result = call(given)
            result.backward(torch.randn(result.shape).to(result.dtype))
            seen.append([result.detach(), given.grad, *[p.grad for p in own.parameters()]])
        for a, b in zip(*seen, strict=True):
            assert a.stride() == b.stride()
            scale = max(1.0, float(b.abs().max()))
            torch.testing.assert_close(a / scale, b / scale, rtol=tolerance, atol=tolerance)
    report = fastpath.last_report()
    assert report is not None and report.fallback is None
    return report


def network(norm: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8) if norm else nn.Identity(),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.SiLU(),
        nn.Conv2d(8, 12, 3, 2, bias=False),
        nn.Flatten(),
    )


def test_images_lie_with_channels_last_from_one_convolution_to_the_next(ran: Ran) -> None:
    model = network().eval()
    agree(lambda x: (model(x),), 2, 3, 12, 12)
    assert images(ran) == [True] * 6
    clones = [target for target, _ in ran if target is aten.clone.default]
    assert len(clones) == 2 * (
        1 + 2
    )  # of the input, and of the weights whose order in memory is another


def test_strict_numerics_leave_images_as_they_are(ran: Ran) -> None:
    model = network().eval()
    refcompiler.reset()
    options = {"numerics": "strict"}
    run = refcompiler.compile(model, backend="fastpath", dynamic=False, options=options)
    with torch.no_grad():
        for seed in range(2):
            x = image(2, 3, 12, 12, seed=seed)
            assert torch.equal(run(x), model(x))
    assert images(ran) == [False] * 6


def test_by_kernels() -> None:
    model = nn.Sequential(nn.Conv2d(8, 16, 1, 2), nn.SiLU(), nn.Conv2d(16, 4, 3))
    report = trained(model, image(4, 8, 9, 8))
    assert dict(report.aten_calls) == {"aten.convolution.default": 1} and report.products == 1


def test_results_share_memory_as_in_eager(ran: Ran) -> None:
    weight = image(6, 3, 3, 3)

    def several(x: torch.Tensor) -> Any:
        y = torch.relu(F.conv2d(x, weight))
        z = F.conv2d(y, image_weight)
        turned = y.permute(0, 2, 3, 1)
        return y, y.flatten(2), y[:, 1:3], turned, z.split(2, 1)[1], z, z.mean(1), y.sum((2, 3))

    image_weight = image(4, 6, 3, 3, seed=2)
    agree(several, 2, 3, 9, 8)


def test_what_depends_on_the_order_in_memory_is_given_eagers(ran: Ran) -> None:
    weight = image(6, 3, 3, 3)

    def dropped(x: torch.Tensor) -> Any:
        y = F.conv2d(x, weight)
        kept = F.dropout(y, 0.5, True)
        strided = torch.as_strided(y, (3, 4), (5, 2), 7)
        noise = torch.rand_like(y)
        return kept, strided, noise * y, y.view(torch.int32), torch.sort(y, 1)[0]

    compiled = refcompiler.compile(dropped, backend="fastpath", dynamic=False)
    for seed in range(2):
        found = []
        for run in (compiled, dropped):
            torch.manual_seed(seed)
            found.append(run(image(2, 3, 9, 8, seed=seed)))
        for a, b in zip(*found, strict=True):
            assert a.stride() == b.stride()
            if a.dtype is torch.int32:
                a, b = a.view(torch.float32), b.view(torch.float32)
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_an_image_that_the_caller_laid_out(ran: Ran) -> None:
    model = network().eval().to(memory_format=LAST)

    def last(x: torch.Tensor) -> Any:
        return model(x), model[0](x.contiguous(memory_format=LAST)), model[:3](x[:, :, ::2])

    agree(last, 2, 3, 24, 12)


def test_training(ran: Ran) -> None:
    trained(nn.Sequential(nn.Dropout(0.3), network()[:-1]), image(3, 3, 13, 12))
    trained(nn.ConvTranspose2d(3, 5, 3, 2).bfloat16(), image(2, 3, 7, 6, dtype=HALF), 3e-2)
    volume = nn.Sequential(nn.Conv3d(2, 4, 3), nn.ReLU(), nn.Conv3d(4, 2, 3))
    trained(volume, image(2, 2, 6, 7, 8))
    backward = [last for target, last in ran if target is aten.convolution_backward.default]
    assert len(backward) == 2 * (3 + 1 + 2) and backward.count(True) == 2 * (3 + 1)


def test_hooks_may_lay_out_saved_images_otherwise(ran: Ran) -> None:
    def plain(t: torch.Tensor) -> torch.Tensor:
        return t.contiguous()

    with torch.autograd.graph.saved_tensors_hooks(plain, plain):
        trained(network(), image(2, 3, 12, 12))


@pytest.mark.parametrize("size, step", [(1, 1), (1, 3), (5, 5)])
def test_windows_that_do_not_overlap_are_products(size: int, step: int, ran: Ran) -> None:
    torch.manual_seed(0)
    alone = nn.Conv2d(3, 16, size, step)
    last = nn.Conv2d(3, 16, size, step, bias=False).to(memory_format=LAST)
    between = nn.Sequential(nn.ReLU(), nn.Conv2d(3, 16, size, step, bias=False), nn.GELU())
    for model in (alone, last, between):
        trained(model, image(4, 3, 14, 12))
        known = {target for target, _ in ran}
        assert not known & {aten.convolution.default, aten.convolution_backward.default}
        trained(model, image(2, 3, 14, 12).to(memory_format=LAST))
        ran.clear()


def test_products_of_volumes(ran: Ran) -> None:
    for size in (1, 2):
        trained(nn.Conv3d(3, 8, size, size), image(2, 3, 5, 6, 4))
    known = {target for target, _ in ran}
    assert aten.convolution.default not in known and len(known) > 4


def test_frozen_parts_have_no_gradients(ran: Ran) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 2, 2), nn.Conv2d(4, 2, 3))
    model[0].requires_grad_(False)
    model[2].weight.requires_grad_(False)
    refcompiler.reset()
    run = refcompiler.compile(model, backend="fastpath", dynamic=False)
    for seed in range(2):
        x = image(2, 3, 8, 8, seed=seed)
        wanted = [p for p in model.parameters() if p.requires_grad]
        found = torch.autograd.grad(run(x).square().sum(), wanted)
        expected = torch.autograd.grad(model(x).square().sum(), wanted)
        assert len(found) == 3
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("wanted", [False, True])
def test_an_error_of_ours_is_told_and_the_program_runs(
    wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: Any) -> int:
        raise ValueError("a wrong layout")

    monkeypatch.setattr(compiler, "both_channels_last" if wanted else "channels_last", wrong)
    model = nn.Conv2d(3, 4, 3)
    refcompiler.reset()
    run = refcompiler.compile(model, backend="fastpath", dynamic=False)
    with pytest.warns(UserWarning, match="internal error .*a wrong layout"):
        with torch.set_grad_enabled(wanted):
            assert torch.equal(run(image(2, 3, 6, 6)), model(image(2, 3, 6, 6)))
            assert torch.equal(run(image(2, 3, 6, 6, seed=1)), model(image(2, 3, 6, 6, seed=1)))
    report = fastpath.last_report()
    assert report is not None and "a wrong layout" in str(report.fallback)


class Sized(nn.Module):
    """Convolutions of many kinds, and results that show where they lie."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.one = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
        self.norm, self.deep = nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, 2, 1, groups=8)
        self.wide = nn.Conv2d(8, 6, 3, padding=2, dilation=2)
        self.back, self.gray = nn.ConvTranspose2d(6, 4, 2, 2), nn.Conv2d(1, 2, 3, padding=1)

    def forward(self, x: torch.Tensor) -> Any:
        y = torch.relu(self.norm(self.first(x)))
        z = F.gelu(self.deep(y + self.one(y)))
        w = self.back(self.wide(z))
        total = self.gray(x[:, :1]).sum(1)
        return y[:, 2:5], z.mean((2, 3)), w, w.permute(0, 2, 3, 1).softmax(-1), total, z


def test_images_of_sizes_that_calls_choose(ran: Ran) -> None:
    """One graph for all; what a size chooses, as ATen's kernels are, changes no layout."""
    model = Sized().eval()
    for format in (torch.contiguous_format, LAST):
        refcompiler.reset()
        ran.clear()
        run = refcompiler.compile(model, backend="fastpath", dynamic=True)
        shapes = [(4, 3, 9, 12), (2, 3, 6, 5), (17, 3, 32, 40), (3, 3, 5, 3)]
        with torch.no_grad():
            for n, shape in enumerate(shapes):
                x = image(*shape, seed=n).to(memory_format=format)
                found, expected = run(x), model(x)
                assert laid(found) == laid(expected)
                for a, b in zip(found, expected, strict=True):
                    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
        assert refcompiler.counters()["graphs"] < len(shapes)
        assert len(images(ran)) == 6 * len(shapes) and sum(images(ran)) >= 3 * len(shapes)


def test_images_of_sizes_that_calls_choose_by_kernels() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 1), nn.SiLU()).eval()
    run = refcompiler.compile(model, backend="fastpath", dynamic=True)
    with torch.no_grad():
        for shape in ((2, 3, 7, 5), (3, 3, 4, 9), (5, 3, 4, 4)):
            x = image(*shape)
            found, expected = run(x), model(x)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
            assert found.stride() == expected.stride()
    assert refcompiler.counters()["graphs"] == 1
    assert fastpath.last_report().kernels >= 3  # the image is laid out by one


def test_gradients_of_weights_of_one_position_lie_as_atens_kernel_likes() -> None:
    """One image is not the library's, whose gradients of such weights have other strides."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        x = image(1, 8, 6, 6).to(memory_format=LAST)
        trained(nn.Sequential(nn.Conv2d(8, 4, 1), nn.SiLU()), x)
    finally:
        torch.set_num_threads(before)
