"""Results of losses, norms, gradients and writes as rules tell them, against eager's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map_only

from refcompiler.fakes.gradients import ANSWERS
from refcompiler.fakes.inplace import gives_its_first, out_of_place
from refcompiler.fakes.mode import EagerFakeMode

aten = torch.ops.aten
_ELEMENTWISE: dict[Any, tuple] = {
    aten.celu.default: (),
    aten.softshrink.default: (),
    aten.hardsigmoid_backward.default: (),
    aten.hardswish_backward.default: (),
    aten.gelu_backward.default: (),
    aten.mish_backward.default: (),
    aten.elu_backward.default: (1.0, 1.0, 1.0, False),
    aten.log_sigmoid_backward.default: (),
    aten.softplus_backward.default: (1.0, 20.0),
    aten.softshrink_backward.default: (0.5,),
}
_LOSSES = (
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "huber_loss", "mse_loss",
    "smooth_l1_loss",
)  # fmt: skip


def _elementwise(x: torch.Tensor) -> Iterator[tuple]:
    for func, rest in _ELEMENTWISE.items():
        if func is aten.elu_backward.default:
            yield func, x, *rest, x
        elif func is aten.log_sigmoid_backward.default:
            yield func, x, x, aten.log_sigmoid_forward(x)[1]
        else:
            count = 2 if "backward" in str(func) else 1
            yield func, *[x] * count, *rest


def _norms(x: torch.Tensor) -> Iterator[tuple]:
    batch, channels, *image = x.shape
    w, b, mean, variance = (torch.rand(channels, dtype=x.dtype) for _ in range(4))
    for training in (True, False):
        # A graph has no other than these; the last gives the new statistics.
        given = (x, w, b, mean, variance, training, 0.1, 1e-5)
        yield aten.native_batch_norm.default, *given
        yield aten._native_batch_norm_legit.default, *given
        yield aten._native_batch_norm_legit_functional.default, *given
        saved = aten.native_batch_norm(x, w, b, mean, variance, training, 0.1, 1e-5)[1:]
        for mask in ([True] * 3, [False, True, False]):
            more = (mean, variance, *saved, training, 1e-5, mask)
            yield aten.native_batch_norm_backward.default, x, x, w, *more
    yield aten._native_batch_norm_legit.no_stats, x, None, None, True, 0.1, 1e-5
    yield aten._native_batch_norm_legit_no_training.default, x, w, b, mean, variance, 0.1, 1e-5
    rest = (batch, channels, x[0, 0].numel(), 2)
    yield aten.native_group_norm.default, x, w, b, *rest, 1e-5
    saved = aten.native_group_norm(x, w, b, *rest, 1e-5)[1:]
    yield aten.native_group_norm_backward.default, x, x, *saved, w, *rest, [True] * 3
    if image:
        return
    saved = aten.native_layer_norm(x, [channels], w, b, 1e-5)[1:]
    for mask in ([True] * 3, [True, False, True]):
        more = (x, [channels], *saved, w, b, mask)
        yield aten.native_layer_norm_backward.default, x, *more
        strided = torch.cat([x, x], 1)[:, :channels]
        yield aten.native_layer_norm_backward.default, strided, strided, *more[1:]


def _losses(x: torch.Tensor) -> Iterator[tuple]:
    x = x.sigmoid()
    for name in _LOSSES:
        forward = getattr(aten, name).default
        backward = getattr(getattr(aten, f"{name}_backward", None), "default", None)
        for reduction in (0, 1, 2):
            named = name.startswith("binary")
            more: tuple = (reduction, 1.0)[: 2 if name[0] in "hs" else 1]
            weights: tuple = (None,) * (2 if "logits" in name else 1) if named else ()
            yield forward, x, x, *weights, *more
            if backward is not None:
                loss = forward(x, x, *weights, *more)
                yield backward, loss, x, x, *weights, *more
    classes = torch.zeros(x.shape[0], *x.shape[2:], dtype=torch.int64)
    kind = "nll_loss2d" if x.dim() == 4 else "nll_loss"
    if x.dim() in (2, 4):
        for reduction in (1, 2):
            loss = getattr(aten, f"{kind}_forward")(x, classes, None, reduction, -100)
            yield getattr(aten, f"{kind}_forward").default, x, classes, None, reduction, -100
            given = (loss[0], x, classes, None, reduction, -100, loss[1])
            yield getattr(aten, f"{kind}_backward").default, *given


def _others(x: torch.Tensor) -> Iterator[tuple]:
    for func in (aten._softmax_backward_data.default, aten._log_softmax_backward_data.default):
        yield func, x, x, 1, x.dtype
    yield aten.native_dropout.default, x, 0.5, True
    yield aten.glu.default, x, 1
    yield aten.glu_backward.default, aten.glu(x, 1), x, 1


_SHAPES = [(4, 8), (4, 8, 6), (2, 4, 5, 3)]
_LAYOUTS = {shape: torch.contiguous_format for shape in _SHAPES} | {
    (2, 4, 5, 7): torch.channels_last,
    (2, 4, 1, 1): torch.channels_last,  # which is in order too
}


def _described(found: Any) -> list[Any]:
    given = found if isinstance(found, tuple) else (found,)
    return [t if t is None else (tuple(t.shape), t.stride(), t.dtype) for t in given]


def test_every_rule_is_what_eager_gives() -> None:
    answered = set()
    for shape, layout in _LAYOUTS.items():
        for dtype in (torch.float32, torch.float64):
            mode = EagerFakeMode(allow_non_fake_inputs=True)
            x = torch.randn(shape, dtype=dtype).to(memory_format=layout)
            for func, *args in (*_elementwise(x), *_norms(x), *_losses(x), *_others(x)):
                fakes = tree_map_only(torch.Tensor, mode.from_tensor, args)
                found = ANSWERS[func](fakes, {})
                if found is None:
                    assert layout is torch.channels_last, (func, shape)
                    continue
                outputs = found.outputs
                told = [o if o is None else (o.shape, o.stride, o.dtype) for o in outputs]
                wanted = _described(func(*args))
                masks = [a for a in args if isinstance(a, list) and len(a) == len(wanted)]
                if masks:  # of what is not asked for eager gives nothing, or something
                    wanted = [w if on else None for w, on in zip(wanted, masks[0], strict=True)]
                assert told == wanted, (func, shape, layout)
                answered.add(func)
    assert answered == set(ANSWERS)


_REFUSED: dict[str, tuple] = {
    "sizes that differ": (aten.mse_loss.default, torch.ones(4), torch.ones(3)),
    "dtypes that differ": (aten.mse_loss.default, torch.ones(4), torch.ones(4).double()),
    "other statistics": (
        aten.native_batch_norm.default, torch.ones(2, 3), None, None, torch.ones(4), torch.ones(4),
        True, 0.1, 1e-5,
    ),
    "one of two statistics": (
        aten.native_batch_norm.default, torch.ones(2, 3), None, None, torch.ones(3), None, True,
        0.1, 1e-5,
    ),
    "another dimension": (aten.glu.default, torch.ones(2, 4), 2),
    "an odd half": (aten.glu.default, torch.ones(2, 3), 1),
    "classes of another number": (
        aten.nll_loss_forward.default, torch.ones(2, 3), torch.ones(3, dtype=torch.int64), None, 1,
        -100,
    ),
    "transposed": (aten.mish_backward.default, torch.ones(2, 3).t(), torch.ones(2, 3).t()),
    "both formats": (
        aten.mish_backward.default, torch.ones(2, 3, 4, 5),
        torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ),
    "half": (aten.mish_backward.default, torch.ones(2).half(), torch.ones(2).half()),
}  # fmt: skip


@pytest.mark.parametrize("name", _REFUSED)
def test_what_is_not_plain_has_no_answer(name: str) -> None:
    func, *args = _REFUSED[name]
    mode = EagerFakeMode(allow_non_fake_inputs=True)
    assert ANSWERS[func](tree_map_only(torch.Tensor, mode.from_tensor, args), {}) is None


def test_writes_of_elementwise_operators() -> None:
    """Which are refused, and what they leave, is as with torch's stand-ins and in eager."""
    packets = [getattr(aten, name) for name in dir(aten) if name.endswith("_")]
    funcs = [getattr(p, o) for p in packets for o in getattr(p, "overloads", list)()]
    known = [func for func in funcs if out_of_place(func) is not None]
    assert len(known) > 80 and aten.sigmoid_.default in known and aten.mul_.Tensor in known
    assert out_of_place(aten.pow_.Scalar) is aten.pow.Tensor_Scalar
    for func in known:
        other = out_of_place(func)
        assert [a.type for a in other._schema.arguments] == [a.type for a in func._schema.arguments]
    assert not {aten.zero_.default, aten.copy_.default, aten.t_.default} & {*known}
    told, mode = 0, EagerFakeMode(allow_non_fake_inputs=True)
    x, ints = torch.rand(3, 4), torch.ones(3, 4, dtype=torch.int64)
    others = (x, x[0], x[:1].expand(2, 3, 4), x.double(), ints, 2, 0.5, torch.tensor(1.5))
    for func in known:
        needed = [a for a in func._schema.arguments[1:] if not a.has_default_value()]
        count, tensors = len(needed), all(str(a.type) == "Tensor" for a in needed)
        scalars = not any(str(a.type) == "Tensor" for a in needed)
        if any(a.kwarg_only for a in needed) or not (tensors or scalars):
            continue
        for first in (x, x.t(), ints):
            for other in others[: None if count else 1]:
                if count and tensors is not isinstance(other, torch.Tensor):
                    continue
                args = [first.clone(), *[other] * count]
                fakes = tree_map_only(torch.Tensor, mode.from_tensor, args)
                if not gives_its_first(func, fakes, {}):
                    continue
                told += 1
                before = _described(args[0])
                assert _described(func(*args)) == _described(args[0]) == before, (func, args)
    assert told > 200
