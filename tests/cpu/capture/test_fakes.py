"""Remembered results of fake operators, and quickly made fakes, against those that torch makes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode
from torch.utils._pytree import tree_map_only

import refcompiler
from conformance.strategies.arguments import arguments
from conformance.strategies.tensors import Drawing
from conformance.suites.operators import source
from refcompiler.aot.symbols import fake_mode
from refcompiler.fakes import results as fake_results
from refcompiler.fakes.mode import EagerFakeMode
from refcompiler.fakes.rules import by_rule
from refcompiler.shapes.env import ShapeEnv
from specs.operators import OPERATORS, Operator
from tests.cpu.specs.test_strides import laid_out


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)


def seen(value: Any, given: list[torch.Tensor]) -> list[Any]:
    """Everything that a program, or the dispatcher, can tell about the tensors in ``value``."""
    every = [*given, *tensors_in(value)]
    places = {id(t): i for i, t in reversed([*enumerate(every)])}
    memory = [t.untyped_storage()._cdata for t in every]
    return [type(value)] + [
        (
            t.shape, t.stride(), t.storage_offset(), t.dtype, t.device, t.requires_grad,
            t.is_leaf, t.is_inference() or t._version, t._is_view(), t.untyped_storage().nbytes(),
            torch._C._dispatch_keys(t).raw_repr(), places[id(t)], memory.index(memory[i]),
            sorted(t.__dict__),
        )
        for i, t in enumerate(every)
    ]  # fmt: skip


def outcome(program: Callable, tensors: list[torch.Tensor], remembers: bool) -> Any:
    mode = EagerFakeMode(allow_non_fake_inputs=True)
    mode.cache_enabled = remembers
    with mode:
        fakes = [mode.from_tensor(t) for t in tensors]
        try:
            return seen(program(*fakes), fakes)
        except Exception as error:
            return type(error), str(error)


def compare(program: Callable, tensors: list[torch.Tensor]) -> int:
    """How many results were recalled in the second of two runs, each equal to one by torch."""
    wanted = outcome(program, tensors, remembers=False)
    recalled = 0
    recall = fake_results.recall

    def counted(*args: Any) -> Any:
        nonlocal recalled
        found = recall(*args)
        recalled += found is not NotImplemented
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("refcompiler.fakes.mode.recall", counted)
        for _ in range(2):
            assert outcome(program, tensors, remembers=True) == wanted
    return recalled


@pytest.mark.parametrize("row", OPERATORS, ids=lambda row: row.name)
def test_what_is_remembered_of_an_operator_is_what_torch_gives(row: Operator) -> None:
    compared = recalled = 0

    @seed(11)
    @settings(
        max_examples=3, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.sampled_from(sorted(row.dtypes)).flatmap(lambda dtype: arguments(row, dtype)))
    def run(made: dict[str, Any]) -> None:
        nonlocal compared, recalled
        drawings = [d for d in made.values() if isinstance(d, Drawing)]
        scope: dict[str, Any] = {}
        exec(source(row, made, [d.name for d in drawings]), scope)
        recalled += compare(scope["program"], [laid_out(d) for d in drawings])
        compared += 1

    run()
    assert compared >= 2


def overlapping(x: torch.Tensor) -> torch.Tensor:
    return x[1:].add_(x[:-1])


def apart(x: torch.Tensor) -> torch.Tensor:
    return x[1:].add_(x[:-1].clone())


def _nothing_splits() -> bool:
    """Whether fakes of torch's own have pieces of no rows; 2.11's raise an error."""
    with FakeTensorMode():
        try:
            return len(torch.empty(0, 2).split(2)) == 1
        except IndexError:
            return False


_NOTHING_SPLITS = _nothing_splits()
PROGRAMS: dict[str, Callable] = {
    "views": lambda x: (x.view(-1), x.t(), x[1:], x[:, ::2], x.expand(2, *x.shape)),
    "windows": lambda x: (x.unfold(0, 2, 1), x.unfold(1, 3, 2)),
    "many views": lambda x: (x.split(2), x.unbind(0), x.chunk(3, 1), torch.hsplit(x, 2)),
    "pieces of nothing": lambda x: (
        x[:0].split(2) if _NOTHING_SPLITS else (), x[:, :0].split(0, 1), x[:0].unbind(0)
    ),
    "a view of a view, written to": lambda x: (x.view(-1)[3:].add_(1), x.mul(2)),
    "in place": lambda x: (x.add_(1), x.clamp_(0), x.zero_(), x.copy_(x.clone()), x.fill_(2)),
    "in place, another shape": lambda x: x.add_(torch.ones(3, *x.shape)),
    "out": lambda x: torch.add(x, 1, out=torch.empty_like(x)),
    "out, resized": lambda x: torch.add(x, 1, out=torch.empty(0)),
    "out, an argument": lambda x: torch.add(x, 1, out=x),
    "metadata changes": lambda x: (x.clone().t_(), x.clone().unsqueeze_(0)),
    "resized": lambda x: x.clone().resize_(2, 2),
    "detached": lambda x: (x.detach(), x.data, x.detach().add_(1)),
    "1 is not 1.0 nor True": lambda x: [torch.full((2,), n) for n in (1, 1.0, True)],
    "numbers and dtypes": lambda x: (x.long() + 1, x.long() + 1.5, x.bool() + True, x > 1, x // 2),
    "strided": lambda x: (x.as_strided((2, 2), (1, 2), 1), x[1:].as_strided((2,), (1,))),
    "strided, too far": lambda x: x.as_strided((99, 99), (99, 1)).view(-1).split(99),
    "a view of as much": lambda x: x.new_empty(99, 99).view(-1).split(99),
    "convolution": lambda x: torch.conv2d(x.expand(1, 3, *x.shape), torch.ones(4, 3, 1, 1)),
    "random": lambda x: (torch.rand(3), torch.dropout(x, 0.5, True), x.normal_()),
    "data decides": lambda x: x.nonzero(),
    "data decides too": lambda x: x[x > 0],
    "constants": lambda x: (torch.tensor(2.0) * 2, torch.tensor([1, 2]).sum(), x + torch.tensor(1)),
    "conjugates": lambda x: (x.cfloat().conj(), x.cfloat().conj().imag, x * 1j),
    "shapes do not fit": lambda x: x @ x,
    "norms": lambda x: (torch.layer_norm(x, x.shape[1:]), torch.rms_norm(x, x.shape[1:])),
    "views of conjugates": lambda x: (x.cfloat().conj().view(-1), x.cfloat().conj().imag.clone()),
    "views of negatives": lambda x: torch.ones(4, dtype=torch.cfloat).conj().imag.view(2, 2),
    "views by rule": lambda x: [x.view(n) for n in ((2, -1), (1, 4, 6, 1), (4, 1, 2, 3), (-1,))],
    "a view of another count": lambda x: x.view(5, -1),
    "a view that is unclear": lambda x: x.view(-1, -1),
    "a view of nothing": lambda x: (x[:0].view(3, 0), x[:0].view(0, -1)),
    "a view of one number": lambda x: (x.sum().view(1, 1), x.sum().view(-1), x[:1, :1].view([])),
    "views that are laid apart": lambda x: (x[:, ::2].view(2, 2, 3), x[::2, :1].view(2, 1, 1)),
    "a product and a sum": lambda x: torch.addmm(x[0], x, torch.ones(x.shape[1], x.shape[1])),
    "scaled": lambda x: torch.addmm(x[0], x, x.new_ones(x.shape[1], x.shape[1]), beta=2, alpha=3),
    "products that do not fit": lambda x: torch.addmm(x[0], x, x),
    "a sum that does not fit": lambda x: torch.addmm(x[0], x, x.t()),
    "products of integers": lambda x: torch.addmm(x[0].int(), x.int(), x.int().t() @ x.int()),
    "products of two kinds": lambda x: torch.addmm(x[0], x.double(), x.t().double() @ x.double()),
    "norms by rule": lambda x: [
        torch.native_layer_norm(y, y.shape[n:], y[0] if n else y, None, 1e-5)
        for y in (x, x.contiguous(), x.double(), x.half(), x[:1])
        for n in (0, 1)
    ],
    "a norm that does not fit": lambda x: torch.native_layer_norm(x, [5], None, None, 0.1),
    "a norm of two kinds": lambda x: torch.native_layer_norm(x, [6], x[0].double(), None, 0.1),
    "views of all kinds": lambda x: [
        x.permute(1, 0), x.unsqueeze(-1), x.unsqueeze(0).squeeze(0), x.unsqueeze(1).squeeze(),
        x.expand(2, -1, -1), x[:1].expand(1, 3, x.shape[1]), x[:, :1].expand(-1, 5), x[-2:, 1:-1:2],
        x[9:], x[3:1], x.select(-1, -1), x.split([1, x.shape[0] - 1]), x.unbind(1), x.detach()[0],
    ],
    "views that there are not": lambda x: x.permute(0, 0),
    "a view too far": lambda x: x.select(0, 99),
    "copies in all orders": lambda x: [
        y.clone(memory_format=order)
        for y in (x, x.t(), x.view(1, 2, 2, -1), x[:, ::2], x[:1].expand(3, -1), x[:0])
        for order in (torch.preserve_format, torch.contiguous_format)
    ] + [x.view(1, 2, 2, -1).to(torch.float64, memory_format=torch.channels_last)],
    "joined with their channels last": lambda x: [
        torch.cat([y, y], 1)
        for y in (x.view(1, 2, 2, -1), x.view(1, 2, 2, -1).to(memory_format=torch.channels_last))
    ],
    "embedded": lambda x: [
        torch.nn.functional.embedding(torch.ones(n, 2, dtype=kind), x, padding_idx=0)
        for n in (0, 3) for kind in (torch.long, torch.int)
    ],
    "numbers alone": lambda x: x[: int(torch.div(7, 2, rounding_mode="trunc"))],
    "positions that are none": lambda x: x.index_select(0, torch.ones(1)),
    "embedded by what is no position": lambda x: torch.embedding(x, torch.ones(2)),
    "convolutions": lambda x: [
        torch.conv1d(x[None], torch.ones(2 * x.shape[0] // n, x.shape[0] // n, 3), None, 2, 1, 1, n)
        for n in (1, 2)
    ] + [torch.conv_transpose1d(x[None], torch.ones(x.shape[0], 2, 3), None, 2, 1, 1)],
    "a convolution that does not fit": lambda x: torch.conv1d(x[None], torch.ones(2, 1, 3)),
    "batches by rule": lambda x: [
        torch.nn.functional.batch_norm(y, *given, training=False)
        for y in (x, x[:0], x[None, :, :2].transpose(1, 2), x.double().t(), x.half())
        for given in [[torch.zeros(y.shape[1], dtype=y.dtype) for _ in range(n)] for n in (2, 4)]
    ],
    "batches in training": lambda x: torch.batch_norm(x, *[None] * 4, True, 0.1, 1e-5, True),
    "attention": lambda x: [
        torch.nn.functional.scaled_dot_product_attention(y, z, z)
        for y in (x.reshape(1, 2, 2, -1), x.reshape(1, 2, -1, 2).transpose(2, 3))
        for z in (y, y[:, :, :1].contiguous())
    ],
    "attention that does not fit": lambda x: (
        torch.nn.functional.scaled_dot_product_attention(*[x.view(1, 2, 2, -1)] * 2, x[None, None])
    ),
    "numbers that do not fit": lambda x: [x.to(torch.uint8) + 300, x.half() * 1e9, x.long() * 2.5],
    "counts": lambda x: [torch.arange(*n) for n in ((5,), (1.5,), (2, 5), (0, 7, 2), (5, 0, -2))],
    "a count that is none": lambda x: torch.arange(5, 0, 2),
    "reductions by rule": lambda x: [
        r for d in ((0,), (1,), (0, 1), (-1,)) for keep in (False, True)
        for r in (x.sum(d, keep), x.mean(d, keep), x.amax(d, keep), (x > 0).sum(d, keep))
    ],
    "overlapping": overlapping,
    "apart": apart,
    "an argument twice": lambda x: (x.add_(x), torch.cat([x, x]), x.mul(x)),
    "reductions": lambda x: (x.max(0), x.sum(), x.sort(1), x.topk(2), x.mean(1, keepdim=True)),
}  # fmt: skip


@pytest.mark.parametrize("mode", ["grad", "no_grad", "inference"])
def test_programs_with_and_without_what_is_remembered(mode: str) -> None:
    recalled = 0
    for number, (name, program) in enumerate(PROGRAMS.items()):
        layouts = [torch.randn(4, 6), torch.randn(6, 4).t(), torch.randn(8, 12)[::2, ::2]]
        for x in layouts if mode == "grad" else layouts[number % 3 :][:1]:
            context = {"grad": torch.enable_grad, "no_grad": torch.no_grad}
            with context.get(mode, torch.inference_mode)():
                recalled += compare(program, [x])
                if name == "conjugates" or mode != "grad":
                    continue
                recalled += compare(program, [x.requires_grad_()])
    assert recalled > 100


def test_settings_are_part_of_what_a_result_depends_on() -> None:
    x = torch.ones(2, 3, dtype=torch.long)

    def program(x: torch.Tensor) -> Any:
        return x + 1.5, torch.arange(3.0), x / 2

    def dtypes() -> list[Any]:
        found = outcome(program, [x], remembers=True)
        assert found == outcome(program, [x], remembers=False)
        return [t[3] for t in found[2:]]

    before = dtypes()
    torch.set_default_dtype(torch.float64)
    try:
        after = dtypes()
    finally:
        torch.set_default_dtype(torch.float32)
    assert before == dtypes() != after


def test_a_convolution_lies_as_the_kernel_of_the_moment_likes() -> None:
    x = torch.randn(1, 3, 4, 4).to(memory_format=torch.channels_last)
    weight = torch.randn(4, 3, 1, 1)
    for enabled in (True, False, True):
        with torch.backends.mkldnn.flags(enabled=enabled):
            compare(torch.conv2d, [x, weight])


@pytest.mark.parametrize(
    "batch, dtype", [(1, torch.float32), (2, torch.float64), (16, torch.float32)]
)
def test_gradients_of_windows_of_one_position_lie_as_in_eager(batch: int, dtype: Any) -> None:
    """Torch's stand-in gives them the image's format, whatever the strides of the weights."""
    aten, last = torch.ops.aten, torch.channels_last
    images = [torch.randn(batch, 8, n, n, dtype=dtype) for n in (6, 60)]
    images += [x.to(memory_format=last) for x in images]
    plain = torch.randn(4, 8, 1, 1, dtype=dtype)
    other = torch.empty_strided((4, 8, 1, 1), (8, 1, 8, 8), dtype=dtype).copy_(plain)
    rest = [1, 1], [0, 0], [1, 1], False, [0, 0], 1
    for x in images:
        for weight in (plain, other):
            for wanted in ([True, True, True], [False, True, False]):
                gradient = torch.empty_like(torch.convolution(x, weight, None, *rest))
                given = aten.convolution_backward(gradient, x, weight, [4], *rest, wanted)
                mode = EagerFakeMode(allow_non_fake_inputs=True)
                with mode:
                    fakes = [mode.from_tensor(t) for t in (gradient, x, weight)]
                    fake = aten.convolution_backward(*fakes, [4], *rest, wanted)
                strides = [[None if t is None else t.stride() for t in r] for r in (given, fake)]
                assert strides[0] == strides[1], (x.stride(), weight.stride())


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_results, "_ROOM", 20)
    monkeypatch.setattr(fake_results, "_RESULTS", {})
    mode = EagerFakeMode()
    with mode:
        for n in range(50):
            assert torch.empty(n).shape == (n,)
    assert 0 < len(fake_results._RESULTS) <= 20


def inputs() -> dict[str, list[torch.Tensor]]:
    base, parameter = torch.randn(4, 6), torch.nn.Parameter(torch.randn(3, 3))
    used = torch.nn.Parameter(torch.randn(2))
    used.sum().backward()
    with torch.inference_mode():
        inference = torch.randn(2)
    return {
        "plain": [base],
        "parameter": [parameter],
        "needs grad": [torch.randn(2, requires_grad=True)],
        "not a leaf": [torch.randn(2, requires_grad=True) * 2],
        "view": [base.t()],
        "base and view": [base, base[1:], base.view(-1)],
        "view and base": [base[1:], base],
        "the same memory": [parameter, parameter.data, parameter.detach()],
        "larger memory": [torch.empty(0).set_(base.untyped_storage(), 0, (2, 2), (1, 2))],
        "set apart": [torch.empty(0).set_(base.untyped_storage(), 3, (2, 2), (1, 2)), base],
        "has a gradient": [used],
        "inference": [inference],
        "empty": [torch.empty(0), torch.empty(2, 0), torch.tensor(3)],
        "dtypes": [torch.ones(2, dtype=d) for d in (torch.bool, torch.bfloat16, torch.complex64)],
        "conjugate": [torch.ones(2, dtype=torch.complex64).conj()],
        "views after plain ones": [parameter, base, base[1:], torch.ones(3), parameter[0]],
    }


@pytest.mark.parametrize("name", inputs())
@pytest.mark.parametrize("active", [False, True])
def test_a_fake_input_is_as_torch_makes_it(name: str, active: bool) -> None:
    def made(convert: Callable[[EagerFakeMode], Callable]) -> list[Any]:
        mode = EagerFakeMode()
        with torch._C.DisableTorchFunction(), mode if active else torch.enable_grad():
            fakes = [convert(mode)(t) for t in tensors]
        kinds = [(type(t), t.is_leaf and type(t.grad), t.constant) for t in fakes]
        return seen(fakes, []) + kinds

    tensors = inputs()[name]
    wanted = made(lambda mode: lambda t: mode.from_tensor(t, static_shapes=True))
    assert made(lambda mode: mode.fake_of) == wanted


def test_writing_to_a_view_is_seen_in_its_base() -> None:
    base = torch.randn(4, 6)
    for tensors in ([base, base[1:]], [base[1:], base]):
        mode = EagerFakeMode()
        with torch._C.DisableTorchFunction(), mode:
            fakes = [mode.fake_of(t) for t in tensors]
            fakes[1].add_(1)
        assert [t._version for t in fakes] == [1, 1]


def test_a_copy_to_another_device_is_there() -> None:
    with EagerFakeMode():
        x = torch.empty(4, 3, device="cuda")
        for made in (x.to("cpu"), torch.zeros_like(x, device="cpu"), x.new_ones(3, device="cpu")):
            assert made.device == torch.device("cpu")
        assert (x + 1).device == torch.device("cuda:0")


@pytest.mark.parametrize(
    "call",
    [
        torch.rsub,
        lambda a, b: torch.pow(2.0, b),
        torch.isin,
        lambda a, b: torch.nn.functional.binary_cross_entropy(a, b, reduction="none"),
        lambda a, b: torch.any(a, []),
        torch.special.xlog1py,
        lambda a, b: torch.nn.functional.logsigmoid(b),
        lambda a, b: torch.ops.aten.mse_loss_backward(a, a, b, 0),
        lambda a, b: torch.ops.aten.hardswish_backward(a, b),
    ],
    ids=[
        *("rsub", "pow of a number", "isin", "binary_cross_entropy", "any of no dimension"),
        *("xlog1py", "logsigmoid", "mse_loss_backward", "hardswish_backward"),
    ],
)
def test_layouts_that_torchs_stand_ins_get_wrong(call: Callable[..., Any]) -> None:
    operands = [torch.rand(3, 4, 5), torch.rand(3, 5, 4).mT, torch.rand(5, 4, 3).permute(2, 1, 0)]
    compared = 0
    for a in operands:
        for b in operands:
            mode = EagerFakeMode()
            with mode:
                fake = call(mode.from_tensor(a), mode.from_tensor(b))
            assert fake.stride() == call(a, b).stride()
            compared += 1
    assert compared == 9


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_reduces_nothing_is_contiguous_on_each_device(device: str) -> None:
    with EagerFakeMode():
        x = torch.empty(5, 4, device=device).t()
        assert torch.any(x, []).stride() == torch.all(x, []).stride() == (5, 1)
        assert torch.nn.functional.hardswish(x).stride() == (1, 4)


def test_views_with_a_conjugate_bit_or_without() -> None:
    """What is remembered where sizes are numbers is used where others are symbols, and back."""

    def function(z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        c = z.conj()
        return c.imag * 2, c[1:].real + 1, c.conj()[1:], c.imag[1:], c[1:]

    z, compared = torch.randn(3, dtype=torch.complex64), 0
    for backend in ("aot_eager", "eager", "aot_eager"):
        refcompiler.reset()
        compiled = refcompiler.compile(function, backend=backend, fullgraph=True)
        for mine, eagers in zip(compiled(z), function(z), strict=True):
            assert torch.equal(mine, eagers)
            assert (mine.is_conj(), mine.is_neg()) == (eagers.is_conj(), eagers.is_neg())
            compared += 1
    assert compared == 15


def _images() -> list[torch.Tensor]:
    image = torch.randn(2, 4, 6, 5)
    return [
        image,
        image.double(),
        image.to(memory_format=torch.channels_last),
        image.permute(0, 3, 1, 2),
        image[..., ::2],
        torch.randn(1, 4, 6, 5).expand(2, 4, 6, 5),
        image[:, :1],
        image[:, :, :1, :1],
        torch.randn(2, 1, 6, 5),
        torch.randn(1, 1, 1, 1),
        torch.randn(2, 4, 1, 1),
    ]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.ops.aten.upsample_bilinear2d(x, [12, 3], False),
        lambda x: torch.ops.aten.upsample_bicubic2d(x, [1, 1], True),
        lambda x: torch.ops.aten.upsample_nearest2d(x, [3, 4]),
        lambda x: torch.native_group_norm(
            x, None, None, x.shape[0], x.shape[1], x[0, 0].numel(), x.shape[1], 1e-5
        ),
        lambda x: torch.native_layer_norm(x, x.shape[2:], None, None, 1e-5),
        lambda x: torch.ops.aten._log_softmax(x, 1, False),
    ],
    ids=["bilinear", "bicubic", "nearest", "group norm", "layer norm", "log_softmax"],
)
def test_rules_say_what_eager_gives(call: Callable[..., Any]) -> None:
    """And answer for most of what eager takes; what torch is asked for is torch's."""
    ruled = compared = 0
    for image in _images():
        try:
            wanted = call(image)
        except RuntimeError:
            continue
        asked: list[Any] = []
        mode = EagerFakeMode()
        given = mode.from_tensor(image)
        with pytest.MonkeyPatch.context() as patch, mode:
            uncached = EagerFakeMode._uncached
            patch.setattr(EagerFakeMode, "_uncached", lambda *a: asked.append(a) or uncached(*a))
            fakes = call(given)
        if asked:
            continue
        ruled += 1
        pair = (fakes, wanted) if isinstance(wanted, tuple) else ((fakes,), (wanted,))
        for fake, real in zip(*pair, strict=True):
            assert (fake.shape, fake.dtype) == (real.shape, real.dtype)
            assert fake.stride() == real.stride()
            compared += 1
    assert compared >= ruled >= 3


REFUSED: list[Callable[[torch.Tensor], Any]] = [
    lambda x: torch.ops.aten._softmax(x, 4, False),
    lambda x: x.cumsum(-5),
    lambda x: x.sum((0, 0)),
    lambda x: x.gather(0, torch.zeros(1, 9, 1, 1, dtype=torch.long)),
    lambda x: x.gather(0, torch.zeros(3, 3, dtype=torch.long)),
    lambda x: torch.where(x.long(), x, x),
    lambda x: x[:0].amax(0),
    lambda x: x[:0].argmax(),
    lambda x: torch.zeros(-2),
    lambda x: x.new_full((3, -1), 1.0),
    lambda x: x.repeat(1, 1, -1, 1),
    lambda x: torch.full_like(x, 300, dtype=torch.uint8),
    lambda x: x.topk(7),
    lambda x: x[0, 0, 0, 0].topk(2),
    lambda x: x[0, 0, 0].tril(),
    lambda x: torch.linalg.vector_norm(x.double(), dtype=torch.float32),
    lambda x: torch.native_layer_norm(x, [5], torch.ones(4), None, 1e-5),
    lambda x: torch.native_group_norm(x, torch.ones(3), None, 2, 4, 30, 2, 1e-5),
    lambda x: torch.native_group_norm(x, None, None, 2, 4, 30, 3, 1e-5),
    lambda x: torch.ops.aten.constant_pad_nd(x, [-6, 3]),
    lambda x: torch.conv2d(x, torch.ones(2, 4, 3, 3), stride=0),
    lambda x: torch.conv2d(x, torch.ones(2, 4, 3, 3), torch.ones(3)),
    lambda x: torch.conv_transpose2d(x, torch.ones(4, 2, 3, 3), output_padding=1),
    lambda x: torch.max_pool2d(x, (0, 1), 1),
    lambda x: torch.max_pool2d(x, 2, 2, -1),
    lambda x: torch.nn.functional.adaptive_avg_pool2d(x, (-1, 2)),
    lambda x: x.clamp(None, None),
    lambda x: torch.stack([x, x[1:]]),
    lambda x: torch.baddbmm(x[0], x[0], x[0]),
]


@pytest.mark.parametrize("call", REFUSED, ids=map(str, range(len(REFUSED))))
def test_no_rule_answers_for_what_eager_refuses(call: Callable[[torch.Tensor], Any]) -> None:
    """Torch's stand-in is asked, which raises as eager does, but for a few."""
    compared = 0
    for image in (torch.randn(2, 4, 6, 5), torch.randn(2, 6, 5, 4).permute(0, 3, 1, 2)):
        with pytest.raises((RuntimeError, IndexError, TypeError, ValueError)):
            call(image)
        mode, answers = EagerFakeMode(allow_non_fake_inputs=True), [by_rule]

        def answer(*args: Any) -> Any:
            answers.append(by_rule(*args))
            return answers[-1]

        fake = mode.from_tensor(image)
        with pytest.MonkeyPatch.context() as patch, mode:
            patch.setattr("refcompiler.fakes.mode.by_rule", answer)
            with contextlib.suppress(RuntimeError, IndexError, TypeError, ValueError):
                call(fake)
                assert answers[-1] is None
        compared += 1
    assert compared == 2


PRODUCTS = [torch.matmul, torch.bmm, torch.mv, torch.addmm]


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda f: f.__name__)
def test_products_of_integers_are_refused_where_a_device_has_none(product: Callable) -> None:
    """Or one that nothing reads would be left out, with its error."""
    shapes = {torch.bmm: [(2, 3, 3)] * 2, torch.mv: [(3, 3), (3,)], torch.addmm: [(3, 3)] * 3}
    given = shapes.get(product, [(3, 3)] * 2)
    for device, dtype, refused in [
        ("cuda", torch.int64, True),
        ("cuda", torch.float32, False),
        ("cpu", torch.int64, False),
    ]:
        with EagerFakeMode():
            fakes = [torch.ones(shape, dtype=dtype, device=device) for shape in given]
            with pytest.raises(NotImplementedError) if refused else contextlib.nullcontext():
                product(*fakes)
            nothing = [fake.new_ones(0, *fake.shape[1:]) for fake in fakes[:1]]
            if product is torch.matmul:  # which has nothing to compute
                assert product(*nothing, fakes[1]).shape == (0, 3)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "in order": lambda x: x.contiguous(),
    "turned": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "broadcast": lambda x: x[:1].expand(x.shape),
}
PLACES: list[tuple] = [
    (torch.tensor([2, 0]),),
    (torch.tensor([2, 0]), torch.tensor([1, 1])),
    (None, torch.tensor([[1], [0]]), torch.tensor([[0, 1, 2]])),
    (torch.tensor([1, 2]), None, torch.tensor([[0], [1]])),
    (None, None, torch.tensor([0, 3], dtype=torch.int32)),
    (torch.zeros(3, 1, dtype=torch.int32), torch.tensor([[0, 1]])),
    (torch.tensor(1), None, torch.tensor(2)),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_picked_and_blended_elements_lie_where_eager_puts_them(layout: str) -> None:
    given = LAYOUTS[layout](torch.arange(36.0).view(3, 3, 4))
    mask = LAYOUTS[layout](given > 3)
    index = torch.ops.aten.index.Tensor
    programs: list[tuple[Callable, tuple]] = [(index, (given, places)) for places in PLACES]
    programs.append((torch.where, (mask, given, torch.tensor(0.0))))
    programs.append((torch.where, (mask[0], given, given.transpose(0, 1))))
    programs.append((torch.cat, ([torch.tensor([]), given], -2)))
    for program, args in programs:
        wanted = program(*args)
        mode = EagerFakeMode(allow_non_fake_inputs=True)
        asked = mode._dispatched
        others: list[Any] = []

        def dispatched(func: Any, *args: Any) -> Any:
            others.append(func)
            return asked(func, *args)

        fakes = tree_map_only(torch.Tensor, mode.from_tensor, args)
        mode._dispatched = dispatched  # type: ignore[method-assign]
        fake_results._RESULTS.clear()
        with mode:
            found = program(*fakes)
        assert (found.shape, found.stride(), found.dtype) == (
            wanted.shape, wanted.stride(), wanted.dtype,
        )  # fmt: skip
        assert not others, "a rule knows it"


def test_numbers_made_into_tensors_stay_what_they_are() -> None:
    def program(x: torch.Tensor) -> Any:
        one = torch.tensor(2.0)
        seen = one.view(1)
        y = x * one + torch.where(x > 0, one, torch.tensor(0.5))
        before = one.item()
        one.add_(x.sum())  # from here on nobody knows
        with pytest.raises(Exception, match="aten._local_scalar_dense"):
            seen.item()
        return before, y.shape, torch.tensor([[1, 2], [3, 4]]).shape

    for remembers in (False, True):
        mode = EagerFakeMode(allow_non_fake_inputs=True)
        mode.cache_enabled = remembers
        x = mode.from_tensor(torch.ones(3))
        with mode:
            assert program(x) == (2.0, (3,), (2, 2))


def test_a_view_of_a_tensor_from_before_inference_mode_stays_one() -> None:
    """Whatever kind of mode has remembered it."""

    def views(mode: Any) -> list[bool]:
        with mode:
            before = torch.empty(2, 3)
        with torch.inference_mode(), mode:
            made = before * 2
            found = [
                (t.detach(), t.view(-1), t[0], t.t(), t.expand(2, 2, 3)) for t in (before, made)
            ]
            return [view.is_inference() for each in found for view in each]

    for env in (ShapeEnv(), None, ShapeEnv(), None):
        assert views(fake_mode(env)) == [False] * 5 + [True] * 5
