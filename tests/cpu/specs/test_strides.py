"""The rules of strides against eager's own results, and fake tensors that follow them."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from torch.utils import _pytree as pytree

import fastpath
import refcompiler
from conformance.strategies.arguments import arguments
from conformance.strategies.tensors import Drawing
from conformance.suites.operators import source
from refcompiler.fakes.mode import EagerFakeMode
from refcompiler.shapes.env import ShapeEnv
from specs import strides
from specs.operators import OPERATORS, Operator

IMAGES = [(4, 3, 2, 5), (4, 3, 1, 1), (4, 1, 2, 2), (1, 3, 2, 2), (2, 3, 1, 4), (2, 3, 1, 1, 1)]
POINTWISE = [row for row in OPERATORS if row.kind == "pointwise"]


def laid_out(drawing: Drawing) -> torch.Tensor:
    """A tensor of ones where the drawing has its elements."""
    dtype = getattr(torch, drawing.dtype)
    if drawing.layout.strides is None:
        return torch.ones(drawing.shape, dtype=dtype)
    base = torch.ones(drawing.layout.size, dtype=dtype)
    return base.as_strided(drawing.shape, drawing.layout.strides, drawing.layout.offset)


def seen(shape: Any, steps: Any) -> tuple[int, ...]:
    """The strides that matter: none of an empty tensor, none of a dimension of one element."""
    return () if 0 in shape else tuple(s for n, s in zip(shape, steps, strict=True) if n > 1)


@pytest.mark.parametrize("row", POINTWISE, ids=lambda row: row.name)
def test_a_pointwise_result_lies_where_eager_puts_it(row: Operator) -> None:
    compared = 0

    @seed(4)
    @settings(
        max_examples=12, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.sampled_from(sorted(row.dtypes)).flatmap(lambda dtype: arguments(row, dtype)))
    def compare(made: dict[str, Any]) -> None:
        nonlocal compared
        drawings = [d for d in made.values() if isinstance(d, Drawing)]
        scope: dict[str, Any] = {}
        exec(source(row, made, [d.name for d in drawings]), scope)
        tensors = [laid_out(d) for d in drawings]
        try:
            result = scope["program"](*tensors)
        except (RuntimeError, NotImplementedError):
            return  # no such kernel, or a number that overflows
        mode = EagerFakeMode()
        with mode:
            fake = scope["program"](*(mode.from_tensor(t) for t in tensors))
        results, fakes = (result, fake) if isinstance(result, tuple) else ((result,), (fake,))
        for real, other in zip(results, fakes, strict=True):
            if row.elementwise_strides:
                assert seen(real.shape, other.stride()) == seen(real.shape, real.stride()), made
            compared += 1

    compare()
    assert compared >= 6


def random_layout(random_: random.Random) -> torch.Tensor:
    """Permuted, broadcast, stepped over, with sizes of one among the others."""
    rank = random_.randint(0, 4)
    shape = [random_.choice([1, 1, 2, 3, 4, 6]) for _ in range(rank)]
    steps, step = [0] * rank, random_.choice([1, 1, 2])
    for axis in random_.sample(range(rank), rank):
        steps[axis] = 0 if random_.random() < 0.15 else step
        step *= shape[axis]
    return torch.empty(4000).as_strided(shape, steps)


def random_split(random_: random.Random, count: int) -> list[int]:
    shape: list[int] = []
    while count > 1:
        shape.append(random_.choice([n for n in range(2, count + 1) if count % n == 0]))
        count //= shape[-1]
    for _ in range(random_.randint(0, 2)):
        shape.insert(random_.randint(0, len(shape)), 1)
    return shape


def test_a_view_is_possible_exactly_where_eager_makes_one() -> None:
    random_ = random.Random(7)
    counts = {True: 0, False: 0}
    for number in range(3000):
        base = random_layout(random_)
        shape = random_split(random_, base.numel())
        try:
            base.view(shape)
            possible = True
        except RuntimeError:
            possible = False
        found = strides.viewable(base.shape, base.stride(), shape)
        assert found == possible, (base.shape, base.stride(), shape)
        if number % 10 == 0:
            mode = EagerFakeMode()
            with mode:
                fake = mode.from_tensor(base)
                if possible:
                    fake.view(shape)
                else:
                    with pytest.raises(RuntimeError, match="view size is not compatible"):
                        fake.view(shape)
        counts[possible] += 1
    assert min(counts.values()) > 300, counts


def _with_odd_steps(random_: random.Random, shape: list[int], order: list[int]) -> tuple[int, ...]:
    """Dense in that order; a size of 1 has any step, as a view of a signal or of a frame has."""
    steps = strides.in_order(shape, order)
    odd = random_.random() < 0.5
    return tuple(
        random_.choice([1, 3, 8]) if n == 1 and odd else step
        for n, step in zip(shape, steps, strict=True)
    )


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_lies_as_eagers(training: bool) -> None:
    random_ = random.Random(10)
    orders = set()
    for rank in (2, 3, 4, 5) * 10:
        shape = [random_.choice([1, 2, 3, 4]) for _ in range(rank)]
        order = random_.choice([list(range(rank)), [0, *range(2, rank), 1]])
        order = random_.choice([order, random_.sample(range(rank), rank)])
        x = torch.randn(shape).as_strided(shape, _with_odd_steps(random_, shape, order))
        weight = torch.ones(shape[1])

        def norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.batch_norm(x, w.clone(), w.clone(), w, w, training)

        if training and x.numel() == shape[1]:
            continue
        real = norm(x, weight)
        mode = EagerFakeMode()
        with mode:
            fake = norm(mode.from_tensor(x), mode.from_tensor(weight))
        message = (shape, x.stride(), real.stride(), fake.stride())
        assert seen(shape, fake.stride()) == seen(shape, real.stride()), message
        orders.add(tuple(order))
    assert len(orders) > 8


@pytest.mark.parametrize("training", [False, True])
def test_a_gradient_of_batch_norm_lies_as_eagers(training: bool) -> None:
    """Sizes of 1 too, by whose strides a convolution chooses its kernel."""
    compared = 0

    def steps(x: torch.Tensor, grad: torch.Tensor, each: torch.Tensor) -> list[tuple[int, ...]]:
        how = each, each, each, training
        result, *kept = torch.ops.aten.native_batch_norm(x, *how[:2], *how[:2], training, 0.1, 1e-5)
        back = torch.ops.aten.native_batch_norm_backward
        found = back(grad, x, *how[:3], *kept, training, 1e-5, [True, False, False])
        return [result.stride(), found[0].stride()]

    for shape in IMAGES:
        last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
        laid = [torch.ones(shape), torch.ones(shape).to(memory_format=last)]
        for x, grad in itertools.product(laid, laid):
            each = torch.ones(shape[1])
            mode = EagerFakeMode()
            real = steps(x, grad, each.clone())
            with mode:
                fake = steps(*map(mode.from_tensor, (x, grad, each)))
            assert fake == real, (shape, x.stride(), grad.stride())
            compared += 1
    assert compared == 24


@pytest.mark.parametrize("sizes", ["numbers", "symbols"])
def test_a_batch_norm_of_an_image_laid_anew_has_a_gradient(sizes: str) -> None:
    """The gradient comes in order, and eager's lies as the image does, which no view undoes."""
    norm = torch.nn.BatchNorm2d(8)

    def program(x: torch.Tensor) -> torch.Tensor:
        image = (x * 2).view(-1, 8, 2, 2).contiguous(memory_format=torch.channels_last)
        return norm(image).flatten(1)

    compiled = refcompiler.compile(program, backend="aot_eager", dynamic=sizes == "symbols")
    for rows in (4, 6):
        x, grad = torch.randn(rows, 32, requires_grad=True), torch.randn(rows, 32)
        ours, eager = (torch.autograd.grad(f(x), x, grad)[0] for f in (compiled, program))
        assert torch.equal(ours, eager)


def test_what_is_made_of_images_lies_as_eagers() -> None:
    """Views are taken of it, and eager refuses those that the fake's strides alone would allow."""
    aten = torch.ops.aten
    each, one = torch.ones(8), torch.ones(4, 1)
    mask = [True, False, False]
    programs = {
        "rolled": lambda x, g: aten.roll(x, [1], [2]),
        "rolled twice": lambda x, g: aten.roll(x, [1, -1], [2, 3]),
        "rolled by its size": lambda x, g: aten.roll(x, [6, 1], [2, 3]),
        "rolled flat": lambda x, g: aten.roll(x, [1]),
        "stacked": lambda x, g: [aten.stack([x, y], d) for y in (x, g) for d in range(x.dim() + 1)],
        "transformed": lambda x, g: [
            made
            for dims in ([0], [1], [3], [0, 2], [1, 0], [3, 2, 1])
            for made in (aten._fft_r2c(x, dims, 0, True), aten._fft_c2c(g + 0j, dims, 0, True))
        ],
        "padded": lambda x, g: [
            aten.reflection_pad2d(x, [1] * 4),
            aten.replication_pad2d(x, [1] * 4),
        ],
        "windows": lambda x, g: aten.im2col(x.transpose(0, 1), [1, 1], [1, 1], [0, 0], [1, 1]),
        "shuffled": lambda x, g: aten.channel_shuffle(x, 4),
        "losses of pixels": lambda x, g: aten.nll_loss2d_forward(
            x, g[:, 0].long(), None, reduction=0, ignore_index=-100
        ),
        "reflected": lambda x, g: aten.reflection_pad2d_backward(g, x, [0] * 4),
        "replicated": lambda x, g: aten.replication_pad2d_backward(g, x, [0] * 4),
        "groups": lambda x, g: aten.native_group_norm_backward(
            g, x, one, one, each, 4, 8, 36, 1, mask
        ),
    }
    image = torch.ones(4, 8, 6, 6)
    laid = [image, image.to(memory_format=torch.channels_last), image.transpose(2, 3)]
    for name, program in programs.items():
        for x, grad in itertools.product(laid, [*laid, image[..., :1, :1].expand(4, 8, 6, 6)]):
            real = [t.stride() for t in pytree.tree_leaves(program(x, grad)) if t is not None]
            mode = EagerFakeMode(allow_non_fake_inputs=True)
            with mode:
                fakes = program(mode.from_tensor(x), mode.from_tensor(grad))
            found = [t.stride() for t in pytree.tree_leaves(fakes) if t is not None]
            assert found == real, (name, x.stride(), grad.stride())


def test_what_is_made_of_small_images_lies_as_eagers() -> None:
    """The strides of sizes of 1 too, by which eager tells whether an image has channels last."""
    aten = torch.ops.aten
    programs: dict[str, Any] = {
        "groups": lambda x: aten.native_group_norm(x, None, None, *x.shape[:2], 3, 1, 1e-5)[0],
        "nearest": lambda x: aten.upsample_nearest2d(x, [1, 1]),
        "exact": lambda x: aten._upsample_nearest_exact2d(x, [2, 2]),
        "bilinear": lambda x: aten.upsample_bilinear2d(x, [3, 1], False),
        "bicubic": lambda x: aten.upsample_bicubic2d(x, [1, 2], False),
    }
    for name, program in programs.items():
        for shape in [(2, 4, 1, 3), (1, 4, 1, 3), (1, 1, 3, 1), (2, 1, 3, 1)]:
            for form in (torch.contiguous_format, torch.channels_last):
                x = torch.ones(shape).to(memory_format=form)
                with EagerFakeMode() as mode:
                    fake = program(mode.from_tensor(x))
                assert fake.stride() == program(x).stride(), (name, shape, form)


def test_what_is_made_of_tensors_with_sizes_of_one_lies_as_eagers() -> None:
    aten = torch.ops.aten
    programs = {
        "turned": lambda x: aten.flip(x, [0]),
        "written to": lambda x: aten.index_put(x, [torch.zeros(1, dtype=torch.long)], x[:1]),
        "cut": lambda x: aten.constant_pad_nd(x, [0, -1]),
        "cut and padded": lambda x: aten.constant_pad_nd(x, [1, -1]),
        "products": lambda x: aten.addcmul(x, x, x),
        "quotients": lambda x: aten.addcdiv(x, x, x),
        "complex": lambda x: aten.complex(x, x),
        "polar": lambda x: aten.polar(x, x),
    }
    laid = [
        *(((1, 3), (3, 1)), ((1, 3), (7, 1)), ((3, 1), (1, 5)), ((2, 1, 3), (3, 9, 1))),
        *(((3, 1, 2), (1, 2, 3)), ((2, 3, 1, 1), (3, 1, 3, 3)), ((2, 1, 3, 4), (12, 1, 4, 1))),
        *(((1, 3, 4, 4), (1, 1, 12, 3)), ((1, 1, 1), (4, 5, 6)), ((2, 1, 3), (8, 9, 2))),
    ]
    for name, program in programs.items():
        for shape, steps in laid:
            x = torch.ones(64).as_strided(shape, steps)
            with EagerFakeMode(allow_non_fake_inputs=True) as mode:
                fake = program(mode.from_tensor(x))
            assert fake.stride() == program(x).stride(), (name, shape, steps)


@pytest.mark.parametrize("sizes", ["numbers", "symbols"])
def test_images_laid_anew_are_rolled_stacked_and_padded(sizes: str) -> None:
    def program(x: torch.Tensor) -> list[torch.Tensor]:
        image = (x * 2).view(-1, 2, 3, 4).contiguous(memory_format=torch.channels_last)
        padded = [F.pad(image, (1, 1, 1, 1), mode=mode) for mode in ("reflect", "replicate")]
        found = torch.roll(image, (1, 1), (2, 3)), torch.stack([image, image], 1), *padded
        return [t.flatten(1) * 3 for t in found]

    compiled = refcompiler.compile(program, backend="aot_eager", dynamic=sizes == "symbols")
    for rows in (4, 6):
        x = torch.randn(rows, 24, requires_grad=True)
        for ours, eager in zip(compiled(x), program(x), strict=True):
            assert torch.equal(ours, eager)
            grads = (
                torch.autograd.grad(t.square().sum(), x, retain_graph=True) for t in (ours, eager)
            )
            assert torch.equal(*[g for (g,) in grads])


@pytest.mark.parametrize("name", ["_softmax_backward_data", "_log_softmax_backward_data"])
def test_a_gradient_of_softmax_lies_as_eagers(name: str) -> None:
    operator = getattr(torch.ops.aten, name)
    base = torch.randn(2, 3, 4, 5)
    orders = [(0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2)]
    for one in orders:
        for other in orders:
            grad, output = (base.as_strided(base.shape, strides.in_order(base.shape, o))
                            for o in (one, other))  # fmt: skip
            mode = EagerFakeMode()
            with mode:
                pair = mode.from_tensor(grad), mode.from_tensor(output)
                fake = operator(*pair, 1, torch.float32)
            real = operator(grad, output, 1, torch.float32)
            assert fake.stride() == real.stride(), (one, other)


@pytest.mark.parametrize(
    "name", ["copysign", "xlogy", "special_xlog1py", "floor_divide", "logical_or", "logaddexp"]
)
def test_results_of_symbolic_sizes_lie_as_eagers(name: str) -> None:
    operator = getattr(torch.ops.aten, name)
    laid = 0
    for order in itertools.permutations(range(3)):
        for shapes in (((6, 7, 8),) * 2, ((8,), (6, 7, 8)), ((6, 7, 8), (1, 7, 8))):
            x, y = (torch.rand(shape) for shape in shapes)
            large = y if x.dim() == 1 else x
            moved = large.as_strided(large.shape, strides.in_order(large.shape, order))
            given = (x, moved) if large is y else (moved, y)
            env = ShapeEnv()
            mode = EagerFakeMode(shape_env=env)
            with mode:
                sizes = [env.size(n) for n in (6, 7, 8)]
                fakes = []
                for t in given:
                    shape = [s if n > 1 else 1 for s, n in zip(sizes[3 - t.dim() :], t.shape)]
                    steps: list[Any] = [0] * t.dim()
                    step: Any = 1
                    for d in sorted(range(t.dim()), key=t.stride):
                        steps[d], step = step, step * shape[d]
                    fakes.append(torch.empty_strided(shape, steps))
                fake = operator(*fakes)
            real = operator(*given)
            found = tuple(n if type(n) is int else n.node.hint for n in fake.stride())
            assert found == real.stride(), (order, shapes)
            laid += 1
    assert laid == 18


#: Arguments: operands, and what follows them.
BY_OPERANDS: dict[str, tuple[int, tuple[Any, ...]]] = {
    "_prelu_kernel_backward": (3, ()),
    "binary_cross_entropy_backward": (3, (None, 0)),
    "copysign": (2, ()),
    "gelu_backward": (2, ()),
    "igamma": (2, ()),
    "ldexp": (2, ()),
    "log_sigmoid_backward": (3, ()),
    "mish_backward": (2, ()),
    "mse_loss": (2, (0,)),
    "native_dropout_backward": (2, (2.0,)),
    "rrelu_with_noise_backward": (3, (0.1, 0.3, True, False)),
    "smooth_l1_loss": (2, (0, 1.0)),
    "soft_margin_loss_backward": (3, (0,)),
    "xlogy": (2, ()),
}


def _with_gaps(random_: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Expanded along some dimensions, in any order, with gaps or without."""
    steps, step = [0] * len(shape), random_.choice([1, 1, 2])
    gaps = random_.choice([(0,), (0, 1, 2)])
    for axis in random_.sample(range(len(shape)), len(shape)):
        steps[axis] = 0 if random_.random() < 0.2 else step
        step *= shape[axis] + random_.choice(gaps)
    return tuple(steps)


@pytest.mark.parametrize("name", BY_OPERANDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_results_of_expanded_and_turned_operands_lie_as_eagers(
    name: str, dtype: torch.dtype
) -> None:
    """Also where the steps of operands are symbols, which may have any order in the next call."""
    operator, (count, rest) = getattr(torch.ops.aten, name), BY_OPERANDS[name]
    random_, compared = random.Random(15), 0
    for number in range(16):
        shape = (5, 4, 6) if number % 3 else (4, 6)
        kinds = [dtype] * count
        if name == "native_dropout_backward":
            kinds[1] = torch.bool
        if name == "ldexp" and number % 4:  # its kernel takes whole numbers, other floats are cast
            kinds[1] = torch.float64 if number % 4 == 1 else torch.int32
        laid = [_with_gaps(random_, shape) for _ in kinds]
        given = [torch.full((600,), 0.5).to(d).as_strided(shape, s) for d, s in zip(kinds, laid)]
        real = operator(*given, *rest)
        env, known = ShapeEnv(), {0: 0, 1: 1}
        for steps in laid:
            known.update({n: env.size(n) for n in steps if n > 1 and n not in known})
        for places in (known, {n: n for n in known}):
            with EagerFakeMode(shape_env=env if places is known else None):
                fakes = [
                    torch.empty_strided(shape, [places[n] for n in steps], dtype=d)
                    for d, steps in zip(kinds, laid)
                ]
                fake = operator(*fakes, *rest)
            for a, b in zip(pytree.tree_leaves(fake), pytree.tree_leaves(real), strict=True):
                found = tuple(n if type(n) is int else n.node.hint for n in a.stride())
                assert found == b.stride(), (shape, laid, places is known)
                compared += 1
    assert compared >= 32


def test_calls_with_other_strides_lie_as_eagers() -> None:
    """Operators that are taken apart, and one whose stand-in is."""

    def program(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        return [torch.xlogy(a, b), F.mse_loss(a, b, reduction="none"), torch.celu(b)]

    refcompiler.reset()
    compiled = refcompiler.compile(program, backend="fastpath", fullgraph=True)
    steps = [(1, 31), (7, 1), (21, 3), (0, 1), (1, 5)]
    with refcompiler.config.patch(recompile_limit=100):
        for dtype, one, two in itertools.product((torch.float32, torch.bfloat16), steps, steps[:3]):
            a, b = (torch.rand(400).to(dtype).as_strided((5, 7), s) for s in (one, two))
            for found, wanted in zip(compiled(a, b), program(a, b), strict=True):
                assert found.stride() == wanted.stride(), (one, two)
    report = fastpath.last_report()
    assert report is not None and report.fallback is None


@pytest.mark.parametrize("signs", [(0, -1), (-1, -1, 0, -1), (-1, 1)])
def test_what_is_cut_by_a_symbol_lies_as_eagers(signs: tuple[int, ...]) -> None:
    """What is padded nowhere is a copy of a part, which may be dense where the whole is not."""

    def program(x: torch.Tensor, n: int) -> torch.Tensor:
        return F.pad(x, [sign * n if sign else 0 for sign in signs])

    with refcompiler.config.patch(recompile_limit=100):
        refcompiler.reset()
        compiled = refcompiler.compile(program, backend="fastpath", dynamic=True, fullgraph=True)
        for steps in ((9, 1), (18, 2), (1, 7), (2, 14), (20, 1), (1, 9)):
            for n in (2, 3):
                x = torch.rand(400).as_strided((7, 9), steps)
                found, wanted = compiled(x, n), program(x, n)
                assert torch.equal(found, wanted) and found.stride() == wanted.stride(), steps


MADE_LIKE: dict[str, Any] = {
    "fill": lambda x: torch.ops.aten.fill.Scalar(x, 2),
    "hardtanh": F.hardtanh,
    "relu6": F.relu6,
    "nan_to_num": torch.nan_to_num,
    "isinf": lambda x: torch.isinf(x.long()),
    "isfinite": lambda x: torch.isfinite(x.long()),
    "ones_like": torch.ones_like,
    "full_like": lambda x: torch.full_like(x, 3),
    "rand_like": torch.rand_like,
    "huber": lambda x: torch.ops.aten.huber_loss(x, x.T.contiguous().T, 0, 1.0),
    "slice_scatter": lambda x: torch.slice_scatter(x, x[:1] * 2, 0, 0, 1),
    "select_scatter": lambda x: torch.select_scatter(x, x[0] * 2, 0, 0),
    "diagonal_scatter": lambda x: torch.diagonal_scatter(x, x.diagonal() * 2),
    "abs": torch.abs,  # is not
}


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_made_like_an_operand_has_its_strides(dynamic: bool) -> None:
    def program(x: torch.Tensor) -> list[torch.Tensor]:
        return [make(x) for make in MADE_LIKE.values()]

    refcompiler.reset()
    compiled = refcompiler.compile(program, backend="fastpath", fullgraph=True, dynamic=dynamic)
    column = torch.rand(6, 1)
    several = [torch.rand(4, 5), torch.rand(5, 4).T, torch.rand(1, 5).expand(4, 5)]
    for x in (column.as_strided((6, 1), (1, 9)), column.as_strided((1, 6), (1, 1)), *several):
        for name, found, wanted in zip(MADE_LIKE, compiled(x), program(x), strict=True):
            if name != "huber" or 1 not in x.shape:  # it is a composition, which keeps no others
                assert found.stride() == wanted.stride(), (name, x.shape, x.stride())
            assert name == "rand_like" or torch.equal(found, wanted), name
    report = fastpath.last_report()
    assert report is not None and report.fallback is None
