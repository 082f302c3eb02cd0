"""The cheapest Python callable for an ATen overload.

A call through ``torch.ops`` boxes its arguments, which costs about four microseconds; the argument
parser of ``torch.*`` functions and tensor methods costs one. Only overloads listed here, whose
positional arguments are those of the schema, take the short way.
"""

from __future__ import annotations

from typing import Any

import torch

FUNCTIONS: dict[str, Any] = {
    "aten.mm.default": torch.mm,
    "aten.bmm.default": torch.bmm,
    "aten.mv.default": torch.mv,
    "aten.dot.default": torch.dot,
    "aten.addmm.default": torch.addmm,
    "aten._addmm_activation.default": torch._addmm_activation,
    "aten.baddbmm.default": torch.baddbmm,
    "aten.linear.default": torch._C._nn.linear,
    "aten.convolution.default": torch.convolution,
    "aten.cat.default": torch.cat,
    "aten.embedding.default": torch.embedding,
    "aten.index_select.default": torch.index_select,
    "aten.gather.default": torch.gather,
    "aten.native_dropout.default": torch.native_dropout,
}
#: By the id of what they run, overloads that :func:`function_of` was asked for.
OVERLOADS: dict[int, Any] = {}
METHODS = {
    "aten.t.default": "t",
    "aten.view.default": "view",
    "aten.permute.default": "permute",
    "aten.transpose.int": "transpose",
    "aten.expand.default": "expand",
    "aten.select.int": "select",
    "aten.unsqueeze.default": "unsqueeze",
    "aten.squeeze.dim": "squeeze",
    "aten.detach.default": "detach",
}


def function_of(target: Any) -> Any:
    """A callable that takes the arguments of the overload ``target``."""
    short = FUNCTIONS.get(str(target))
    if short is not None:
        return short
    if not isinstance(target, torch._ops.OpOverload):
        return target
    OVERLOADS[id(target._op)] = target
    return target._op


def method_of(target: Any) -> str | None:
    """The tensor method that is the view operator ``target``, or None."""
    return METHODS.get(str(target))
