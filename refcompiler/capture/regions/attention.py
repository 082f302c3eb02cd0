"""``flex_attention``: the functions of scores and masks as graphs under torch's own operator.

Torch's function around the operator is interpreted. The user's functions are given scalars, one
element of the scores and its indices, and may index tensors with them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from refcompiler.capture.calls import Calls
from refcompiler.capture.effects import effects, reachable
from refcompiler.capture.models.registry import late, model, named
from refcompiler.capture.regions.region import Region, alone, emit, refusal, suspended
from refcompiler.capture.regions.targets import is_tensor, tensors_of
from refcompiler.capture.signals import Break
from refcompiler.interpreter.registry import native

_HOP = "ops.higher_order.flex_attention"
_NAMES = "query key value score_mod block_mask scale kernel_options score_other mask_other".split()


@model(*named(_HOP))
def _flex_attention(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> tuple:
    given = dict(zip(_NAMES, [m.force(a) for a in args], strict=False))
    if kwargs or tensors_of((given.get("score_other", ()), given.get("mask_other", ()))):
        raise Break("higher-order", "the operator of flex_attention called by itself")
    query, key, value = (given[name] for name in _NAMES[:3])
    *blocks, mask = [m.force(part) for part in given["block_mask"]]
    with suspended(m):
        score = query.new_empty(()).requires_grad_(query.requires_grad)
        indices = [torch.empty((), dtype=torch.int, device=query.device) for _ in range(8)]
    scores = _of_elements(m, frame, given["score_mod"], [score, *indices[:4]])
    masks = _of_elements(m, frame, mask, indices[4:])
    parts = (*blocks, masks.module)
    options = given["scale"], given["kernel_options"]
    lifted = tuple(scores.lifted), tuple(masks.lifted)
    operator = getattr(torch.ops.higher_order, "flex_attention")  # noqa: B009
    needs = torch.is_grad_enabled() and any(
        t.requires_grad for t in (query, key, value, *filter(is_tensor, scores.lifted))
    )
    with suspended(m):
        results = _results(query, value, needs)
    emit(m, operator, [query, key, value, scores.module, parts, *options, *lifted], results)
    m.recorder.keep.append(results)
    return results


def _results(query: torch.Tensor, value: torch.Tensor, needs: bool) -> tuple[torch.Tensor, ...]:
    """Fakes for the attention, which lies in memory as the query does, and two row statistics."""
    shape = (*query.shape[:-1], value.shape[-1])
    last = len(shape) - 1
    order = [last, *sorted(range(last), key=query.stride().__getitem__)]
    strides, step = [0] * len(shape), 1
    for place in order:
        strides[place] = step
        step *= shape[place]
    working = torch.float64 if query.dtype is torch.float64 else torch.float32
    found = [query.new_empty_strided(shape, strides)]
    found += [query.new_empty(shape[:-1], dtype=working) for _ in range(2)]
    if needs:
        found[:2] = [t.requires_grad_().clone() for t in found[:2]]  # results, not leaves
    return tuple(found)


def _of_elements(m: Calls, frame: Any, function: Any, given: Sequence[torch.Tensor]) -> Region:
    region = Region(m, frame, function)
    before = effects(m), reachable(function)
    with ElementIndices(m):
        region.call(*given)
    if (effects(m), reachable(function)) != before:
        raise refusal(m, "a function of flex_attention changes Python objects")
    if len(region.form.leaves) != 1 or not region.outputs:
        raise refusal(m, "a function of flex_attention gives no tensor")
    alone(region.module)
    return region


@native
class ElementIndices:
    """A block in which a tensor of one element indexes without its value being asked for."""

    def __init__(self, machine: Calls):
        self.machine = machine

    def __enter__(self) -> None:
        self.machine.recorder.element_indices += 1

    def __exit__(self, *error: Any) -> None:
        self.machine.recorder.element_indices -= 1


@late("torch._dynamo._trace_wrapped_higher_order_op.TransformGetItemToIndex")
def _element_indices(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> ElementIndices:
    return ElementIndices(m)


@late("torch.fx.traceback.annotate")
def _annotate(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    """Marks on nodes for torch's own stack."""
    made = contextlib.nullcontext()
    m.recorder.keep.append(made)
    return made
