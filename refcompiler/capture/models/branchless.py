"""Rules of ``torch.optim`` that branch on their step counts, as tensor code that does not.

A count is known only when the graph runs (:mod:`refcompiler.capture.floats`). Each function takes
what torch's own takes and computes the same, operation by operation, with both outcomes of a branch
where torch has one of them. Source of the rules: the papers that ``torch.optim.ASGD`` and
``torch.optim.RAdam`` name, in the order of operations of torch's implementations.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import optimizer as base

from refcompiler.capture.floats import larger
from refcompiler.capture.models.registry import model

_VARIANCE_KNOWN = 5.0  # RAdam: from this length of the average on the variance is tractable


def _steps(*lists: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """The tensors of one parameter after the other, those of complex numbers as pairs of reals."""
    for tensors in zip(*lists, strict=True):
        yield tuple([torch.view_as_real(t) if torch.is_complex(t) else t for t in tensors])


def _averaged(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    axs: Sequence[Tensor],
    mus: Sequence[Tensor],
    etas: Sequence[Tensor],
    state_steps: Sequence[Tensor],
    *,
    lambd: float,
    lr: Any,
    t0: float,
    alpha: float,
    weight_decay: float,
    maximize: bool,
    **flags: bool,
) -> None:
    """ASGD. A weight of one makes the parameter itself the average."""
    lr = base._to_scalar(lr)
    for param, grad, average, mu, eta, count in _steps(params, grads, axs, mus, etas, state_steps):
        direction = -grad if maximize else grad
        count += 1
        if weight_decay != 0:
            direction = direction.add(param, alpha=weight_decay)
        rate = base._get_value(eta)
        param.mul_(1 - lambd * rate)
        param.add_(direction, alpha=rate * -1)
        moved = average.add(param.sub(average).mul_(mu))
        average.copy_(torch.where(mu != 1, moved, param))
        step = base._get_value(count)
        eta.copy_(lr / ((1 + lambd * lr * step) ** alpha))
        mu.copy_(1 / max(1, step - t0))


def _length(step: Any, beta2: float) -> Any:
    """Of the simple average that approximates the exponential one after that many steps."""
    return (2 / (1 - beta2) - 1) - 2 * step * (beta2**step) / (1 - beta2**step)


def _rectified(length: Any, beta2: float) -> Any:
    longest = 2 / (1 - beta2) - 1
    return ((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)) ** 0.5


def _rectifying(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    exp_avgs: Sequence[Tensor],
    exp_avg_sqs: Sequence[Tensor],
    state_steps: Sequence[Tensor],
    *,
    beta1: float,
    beta2: float,
    lr: Any,
    weight_decay: float,
    eps: float,
    decoupled_weight_decay: bool,
    maximize: bool,
    **flags: bool,
) -> None:
    """RAdam, one parameter after the other."""
    lr = base._to_scalar(lr)
    for param, grad, mean, square, count in _steps(
        params, grads, exp_avgs, exp_avg_sqs, state_steps
    ):
        direction = -grad if maximize else grad
        count += 1
        step = base._get_value(count)
        if weight_decay != 0:
            if decoupled_weight_decay:
                param.mul_(1 - lr * weight_decay)
            else:
                direction = direction.add(param, alpha=weight_decay)
        mean.lerp_(direction, 1 - beta1)
        square.mul_(beta2).addcmul_(direction, direction, value=1 - beta2)
        update = mean / (1 - beta1**step) * lr
        length = _length(step, beta2)
        adaptive = ((1 - beta2**step) ** 0.5) / square.sqrt().add_(eps)
        rectified = update * adaptive * _rectified(length, beta2)
        param.add_(larger(length, _VARIANCE_KNOWN, rectified, update), alpha=-1.0)


def _rectifying_together(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    exp_avgs: Sequence[Tensor],
    exp_avg_sqs: Sequence[Tensor],
    state_steps: Sequence[Tensor],
    *,
    beta1: float,
    beta2: float,
    lr: Any,
    weight_decay: float,
    eps: float,
    decoupled_weight_decay: bool,
    maximize: bool,
    has_complex: bool,
    **flags: bool,
) -> None:
    """RAdam over lists of parameters of one device and dtype."""
    if not params:
        return
    lr = base._to_scalar(lr)
    lists: list = [params, grads, exp_avgs, exp_avg_sqs, state_steps]
    for group, _ in base.Optimizer._group_tensors_by_device_and_dtype(lists).values():
        weights, slopes, means, squares, counts = group
        torch._foreach_add_(counts, 1)
        if has_complex:
            for tensors in (weights, slopes, means, squares):
                tensors[:] = [torch.view_as_real(t) if torch.is_complex(t) else t for t in tensors]
        directions: Any = torch._foreach_neg(slopes) if maximize else slopes
        if weight_decay != 0:
            if decoupled_weight_decay:
                torch._foreach_mul_(weights, 1 - lr * weight_decay)
            else:
                directions = torch._foreach_add(directions, weights, alpha=weight_decay)
        torch._foreach_lerp_(means, directions, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, directions, directions, 1 - beta2)
        adaptive, plain = [], []
        for count in counts:
            step = base._get_value(count)
            length, unbiased = _length(step, beta2), 1 - beta1**step
            factor = larger(length, _VARIANCE_KNOWN, _rectified(length, beta2), 0.0)
            without = larger(length, _VARIANCE_KNOWN, 0.0, 1.0)
            plain.append((lr * without / unbiased) * -1)
            adaptive.append(((1 - beta2**step) ** 0.5) * (lr * factor / unbiased) * -1)
        buffers = torch._foreach_sqrt(squares)
        torch._foreach_add_(buffers, eps)
        torch._foreach_div_(buffers, adaptive)
        torch._foreach_reciprocal_(buffers)
        torch._foreach_add_(buffers, plain)
        torch._foreach_addcmul_(weights, means, buffers)


def _replace(original: Callable, rule: Callable) -> None:
    """Capture ``rule`` for ``original``, but for flags with which torch's own has no branch."""

    @model(original)
    def run(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
        flags = [m.force(kwargs.get(name, False)) for name in ("capturable", "differentiable")]
        return m.call_function(frame, original if any(flags) else rule, args, kwargs)


_OPTIM = {name: sys.modules[f"torch.optim.{name}"].__dict__ for name in ("asgd", "radam")}
_replace(_OPTIM["asgd"]["_single_tensor_asgd"], _averaged)
_replace(_OPTIM["radam"]["_single_tensor_radam"], _rectifying)
_replace(_OPTIM["radam"]["_multi_tensor_radam"], _rectifying_together)
