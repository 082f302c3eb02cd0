"""Fake results of losses, norms, and gradients, of operands that lie in order on the CPU.

As :mod:`refcompiler.fakes.rules`, of operators that the specification has no rows for. A rule
names shapes; all results lie in order, and are of the operands' class of floating numbers. What is
not plainly right (other dtypes, other layouts, sizes that do not fit) has None for an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from refcompiler.fakes.results import Output, Result
from specs import strides

Shape = tuple[int, ...]
Shapes = Sequence[Shape | None] | None

_aten = torch.ops.aten
_FLOATS = (torch.float32, torch.float64)
_CPU = torch.device("cpu")


class _Given(Mapping[str, Any]):
    """Arguments by name; of tensors the shapes."""

    def __init__(self, arguments: Mapping[str, Any], copied: Sequence[str] = ()):
        self.arguments, self.copied = arguments, copied
        self.first: Any = None
        self.last: bool | None = None  # whether images have their channels last
        self.plain = all(self._is_plain(name, a) for name, a in arguments.items())

    def _is_plain(self, name: str, a: Any) -> bool:
        if type(a) is not FakeTensor:
            return not isinstance(a, (torch.Tensor, torch.SymInt, torch.SymFloat))
        if a._has_symbolic_sizes_strides or a.layout is not torch.strided or a.fake_device != _CPU:
            return False
        nothing = 0 in a.shape and not name.startswith("save_")  # which inference does not
        if nothing or not (name in self.copied or self._lies_plainly(a)):
            return False
        if name == "target" and a.dtype is torch.int64:
            return True
        if self.first is None:
            self.first = a
        return a.dtype is self.first.dtype and not (a.is_neg() or a._is_zerotensor())

    def _lies_plainly(self, a: Any) -> bool:
        """In order, or with its channels last as all images here."""
        last = a.stride() != strides.contiguous(a.shape)
        if last and (a.dim() != 4 or 1 in a.shape or a.stride() != strides.channels_last(a.shape)):
            return False
        if a.dim() == 4 and self.last is None:
            self.last = last
        return a.dim() != 4 or last is self.last

    def __getitem__(self, name: str) -> Any:
        a = self.arguments[name]
        return tuple(a.shape) if type(a) is FakeTensor else a

    def __iter__(self) -> Any:
        return iter(self.arguments)

    def __len__(self) -> int:
        return len(self.arguments)

    def shapes(self) -> set[Shape]:
        return {tuple(a.shape) for a in self.arguments.values() if type(a) is FakeTensor}

    def are(self, shape: Shape, *names: str) -> bool:
        """Whether each of these operands has that shape, or is not given."""
        return all(self.get(name) in (shape, None) for name in names)


def _answering(func: Any, rule: Callable[[_Given], Shapes]) -> Callable:
    arguments = func._schema.arguments
    defaults = {a.name: a.default_value for a in arguments if a.has_default_value()}
    names = [a.name for a in arguments]
    several = len(func._schema.returns) > 1

    def answer(args: Sequence, kwargs: Mapping) -> Result | None:
        given = _Given({**defaults, **dict(zip(names, args)), **kwargs}, _COPIED.get(func, ()))
        if not given.plain or given.first is None or given.first.dtype not in _FLOATS:
            return None
        if given.last and rule not in _LIKE_IMAGES:
            return None
        shapes = rule(given)
        if shapes is None:
            return None
        outputs = [None if s is None else _new(given.first, s, given.last) for s in shapes]
        return Result(tuple if several else None, tuple(outputs))

    return answer


def _new(like: Any, shape: Shape, last: bool | None = False) -> Output:
    lies = strides.channels_last if last and len(shape) == 4 else strides.contiguous
    end = like.dtype.itemsize
    for n in shape:
        end *= n
    return Output(shape, lies(shape), 0, like.dtype, like.fake_device, -1, -1, end)


# ---- elementwise ----------------------------------------------------------------------------


def _elementwise(given: _Given) -> Shapes:
    """Of operands of one shape."""
    shapes = given.shapes()
    return [*shapes] if len(shapes) == 1 else None


def _normalised(given: _Given) -> Shapes:
    """The gradient of a softmax, of what has its dtype."""
    shape, dim = given["grad_output"], given["dim"]
    if given.first.dtype is not given["input_dtype"] or not -len(shape) <= dim < len(shape):
        return None
    return _elementwise(given)


def _halved(given: _Given) -> Shapes:
    shape, dim = given["self"], given["dim"]
    if not -len(shape) <= dim < len(shape) or shape[dim] % 2:
        return None
    dim %= len(shape)
    return [(*shape[:dim], shape[dim] // 2, *shape[dim + 1 :])]


def _of_halves(given: _Given) -> Shapes:
    half = _halved(given)
    return [given["self"]] if half is not None and half[0] == given["grad_output"] else None


# ---- losses -----------------------------------------------------------------------------------


def _reduced(given: _Given, shape: Shape) -> Shape:
    return () if given["reduction"] else shape


def _is_loss(given: _Given) -> bool:
    return given["reduction"] in (0, 1, 2) and given["self"] == given["target"]


def _loss(given: _Given) -> Shapes:
    weights = given.are(given["self"], "weight", "pos_weight")
    return [_reduced(given, given["self"])] if _is_loss(given) and weights else None


def _of_loss(given: _Given) -> Shapes:
    reduced = _is_loss(given) and given["grad_output"] == _reduced(given, given["self"])
    return [given["self"]] if reduced else None


def _are_classes(given: _Given) -> bool:
    """Scores of classes, or of those of each place of an image, and numbers of classes."""
    scores, classes = given["self"], given["target"]
    if given.arguments["target"].dtype is not torch.int64 or len(scores) not in (2, 4):
        return False
    fits = (scores[0], *scores[2:]) == classes and given.are((scores[1],), "weight")
    return fits and given["reduction"] in (1, 2)


def _chosen(given: _Given) -> Shapes:
    """The loss, and the sum of its weights."""
    return [(), ()] if _are_classes(given) else None


def _of_chosen(given: _Given) -> Shapes:
    scalars = given["grad_output"] == given["total_weight"] == ()
    return [given["self"]] if scalars and _are_classes(given) else None


# ---- norms --------------------------------------------------------------------------------------


def _batch(given: _Given) -> Shapes:
    """The result, and what is saved of each channel: nothing in inference."""
    x = given["input"]
    if len(x) < 2:
        return None
    channels = (x[1],)
    trains = given.get("training", False)  # an operator of inference alone has no switch
    if not given.are(channels, "weight", "bias", "running_mean", "running_var"):
        return None
    if (given.get("running_mean") is None) is not (given.get("running_var") is None):
        return None
    if not trains and given.get("running_mean") is None:
        return None
    return [x, *[channels if trains else (0,)] * 2]


def _batch_functionally(given: _Given) -> Shapes:
    """And the new statistics."""
    found = _batch(given)
    if found is None or None in (given["running_mean"], given["running_var"]):
        return None
    return [*found, given["running_mean"], given["running_var"]]


def _of_batch(given: _Given) -> Shapes:
    x = given["input"]
    if len(x) < 2 or given["grad_out"] != x:
        return None
    names = "weight", "running_mean", "running_var"
    if given["train"]:
        names = "weight", "save_mean", "save_invstd"
        if None in (given["save_mean"], given["save_invstd"]):
            return None
    elif None in (given["running_mean"], given["running_var"]):
        return None
    return _asked(given, x, (x[1],)) if given.are((x[1],), *names) else None


def _of_layer(given: _Given) -> Shapes:
    x, of = given["input"], tuple(given["normalized_shape"])
    if not of or x[len(x) - len(of) :] != of or given["grad_out"] != x:
        return None
    kept = (*x[: len(x) - len(of)], *[1] * len(of))
    if not given.are(kept, "mean", "rstd") or None in (given["weight"], given["bias"]):
        return None
    return _asked(given, x, of) if given.are(of, "weight", "bias") else None


def _group(given: _Given) -> Shapes:
    x, batch, channels, groups = (given[name] for name in ("input", "N", "C", "group"))
    if x[:2] != (batch, channels) or groups <= 0 or channels % groups:
        return None
    if not given.are((channels,), "weight", "bias"):
        return None
    return [x, (batch, groups), (batch, groups)]


def _of_group(given: _Given) -> Shapes:
    x, batch, channels, groups = (given[name] for name in ("input", "N", "C", "group"))
    if x[:2] != (batch, channels) or channels % groups or given["grad_out"] != x:
        return None
    if not given.are((batch, groups), "mean", "rstd") or given["weight"] != (channels,):
        return None
    return _asked(given, x, (channels,))


def _asked(given: _Given, of_input: Shape, of_weights: Shape) -> Shapes:
    shapes = of_input, of_weights, of_weights
    return [s if on else None for s, on in zip(shapes, given["output_mask"], strict=True)]


#: Whose results have their channels last where the operands do.
_LIKE_IMAGES = (_elementwise, _batch, _batch_functionally, _of_batch, _group, _of_group)

#: Operands that eager puts in order first, however they lie.
_COPIED = {_aten.native_layer_norm_backward.default: ("grad_out", "input")}

_SHAPES: dict[Any, Callable[[_Given], Shapes]] = {
    **dict.fromkeys(
        (
            _aten.celu.default,
            _aten.elu_backward.default,
            _aten.gelu_backward.default,
            _aten.hardsigmoid_backward.default,
            _aten.hardswish_backward.default,
            _aten.log_sigmoid_backward.default,
            _aten.mish_backward.default,
            _aten.softplus_backward.default,
            _aten.softshrink.default,
            _aten.softshrink_backward.default,
        ),
        _elementwise,
    ),
    _aten._softmax_backward_data.default: _normalised,
    _aten._log_softmax_backward_data.default: _normalised,
    _aten.glu.default: _halved,
    _aten.glu_backward.default: _of_halves,
    _aten.binary_cross_entropy.default: _loss,
    _aten.binary_cross_entropy_with_logits.default: _loss,
    _aten.huber_loss.default: _loss,
    _aten.mse_loss.default: _loss,
    _aten.smooth_l1_loss.default: _loss,
    _aten.binary_cross_entropy_backward.default: _of_loss,
    _aten.huber_loss_backward.default: _of_loss,
    _aten.mse_loss_backward.default: _of_loss,
    _aten.smooth_l1_loss_backward.default: _of_loss,
    _aten.nll_loss_forward.default: _chosen,
    _aten.nll_loss2d_forward.default: _chosen,
    _aten.nll_loss_backward.default: _of_chosen,
    _aten.nll_loss2d_backward.default: _of_chosen,
    _aten.native_batch_norm.default: _batch,
    _aten._native_batch_norm_legit.default: _batch,
    _aten._native_batch_norm_legit.no_stats: _batch,
    _aten._native_batch_norm_legit_no_training.default: _batch,
    _aten._native_batch_norm_legit_functional.default: _batch_functionally,
    _aten.native_batch_norm_backward.default: _of_batch,
    _aten.native_group_norm.default: _group,
    _aten.native_layer_norm_backward.default: _of_layer,
    _aten.native_group_norm_backward.default: _of_group,
}


def _dropout(args: Sequence, kwargs: Mapping) -> Result | None:
    """The result, and what was kept of it."""
    given = _Given({"input": args[0]})
    if (
        kwargs
        or not given.plain
        or given.last
        or given.first is None
        or args[0].dtype not in _FLOATS
    ):
        return None
    made = _new(args[0], given["input"])
    end = made.end // args[0].dtype.itemsize
    return Result(tuple, (made, made._replace(dtype=torch.bool, end=end)))


#: Answers of operators, called with their arguments.
ANSWERS: dict[Any, Callable[[Sequence, Mapping], Result | None]] = {
    func: _answering(func, rule) for func, rule in _SHAPES.items()
}
ANSWERS[_aten.native_dropout.default] = _dropout
