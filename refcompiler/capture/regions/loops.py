"""``scan`` and ``map`` over a dimension: one step as a graph under torch's own operators.

Torch's functions around the operators are interpreted; they flatten trees and move dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from refcompiler.capture.calls import Calls
from refcompiler.capture.effects import effects, reachable
from refcompiler.capture.models.registry import model, named
from refcompiler.capture.regions.aliasing import apart, refuse_aliases
from refcompiler.capture.regions.region import Region, emit, refusal, suspended
from refcompiler.capture.regions.targets import Form, is_tensor, tensors_of
from refcompiler.capture.signals import Break


def _fresh(m: Calls, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Fakes for what one step is given of ``tensors``: their first slices."""
    with suspended(m):
        made = [t.detach()[0] for t in tensors]
        for fake, tensor in zip(made, tensors, strict=True):
            if tensor.requires_grad:
                fake.requires_grad_()
        return made


def _apart(m: Calls, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Such fakes that share no memory with anything."""
    with suspended(m):
        return [apart(t) for t in tensors]


def _step(m: Calls, frame: Any, name: str, function: Any, given: Sequence) -> Region:
    """The region of one step, which has no effects besides its value."""
    region = Region(m, frame, function)
    before = effects(m), reachable(function)
    region.call(*given)
    if (effects(m), reachable(function)) != before:
        raise refusal(m, f"the function of {name} changes Python objects")
    if len(region.outputs) != len(region.form.leaves):
        raise refusal(m, f"the function of {name} gives values that are no tensors")
    refuse_aliases(m, region, given)
    return region


def _record(
    m: Calls,
    operator: Any,
    region: Region,
    inputs: Sequence[Sequence[torch.Tensor]],
    rest: Sequence,
    kept: int,
) -> tuple[torch.Tensor, ...]:
    """One node; its results are ``kept`` outputs as the last step gave them, the others stacked."""
    operands = [*(t for group in inputs for t in group), *tensors_of(rest), *region.lifted]
    needs = torch.is_grad_enabled() and any(t.requires_grad for t in operands if is_tensor(t))
    length = inputs[-1][0].shape[0]
    results = []
    with suspended(m):
        for place, tensor in enumerate(region.outputs):
            shape = tensor.shape if place < kept else (length, *tensor.shape)
            made = tensor.new_empty(shape)
            if needs and (made.is_floating_point() or made.is_complex()):
                made = made.requires_grad_().clone()  # the result of an operation, no leaf
            results.append(made)
    tensors = [list(group) for group in inputs]
    emit(m, operator, [region.module, *tensors, (*rest, *region.lifted)], results)
    return tuple(results)


@model(*named("ops.higher_order.scan"))
def _scan(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    function, init, xs, rest = _operands(m, args, kwargs, "combine_fn init xs additional_inputs")
    given = [*_apart(m, init), *_apart(m, _fresh(m, xs)), *rest]
    region = _step(m, frame, "scan", function, given)
    carried = region.outputs[: len(init)]
    if len(carried) < len(init) or any(
        (a.dtype, a.shape, a.stride(), a.device) != (b.dtype, b.shape, b.stride(), b.device)
        for a, b in zip(carried, init, strict=True)
    ):
        raise refusal(m, "the function of scan changes what it carries to another kind")
    results = _record(m, torch.ops.higher_order.scan, region, [init, xs], rest, len(init))
    return region.form.fill(results)


@model(*named("ops.higher_order.map_impl"))
def _map(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    function, xs, rest = _operands(m, args, kwargs, "f xs pos_args")
    region = _step(m, frame, "map", function, [*_fresh(m, xs), *rest])
    results = _record(m, torch.ops.higher_order.map_impl, region, [xs], rest, 0)
    return region.form.fill(results)


def _operands(m: Calls, args: Sequence, kwargs: Mapping, names: str) -> list[Any]:
    given = dict(zip(names.split(), [m.force(a) for a in args], strict=False))
    given |= {k: m.force(v) for k, v in kwargs.items()}
    found = [given.get(name, ()) for name in names.split()]
    for group in found[1:]:
        if not isinstance(group, (tuple, list)) or not Form.of(list(group)).tensors == len(group):
            raise Break("higher-order", f"{names.split()[0]} over other values than tensors")
    return [found[0], *map(list, found[1:])]
