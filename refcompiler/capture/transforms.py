"""Transformations of functions that capture can see through.

``autograd.Function.apply`` where no gradient can flow is a call of ``forward`` without gradients;
elsewhere the custom backward has to be kept, so it ends the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from refcompiler.capture.calls import Calls
from refcompiler.capture.models import model
from refcompiler.capture.signals import Break


class InferenceContext:
    """The ``ctx`` of a forward whose backward will not be asked for."""

    def save_for_backward(self, *tensors: Any) -> None:
        self.to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        self.saved_for_forward = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize_grads = value


@model(torch.autograd.Function.apply.__func__)
def _apply(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    cls = m.force(args[0])
    inputs = [m.force(a) for a in args[1:]]
    needs = tuple([isinstance(v, torch.Tensor) and v.requires_grad for v in inputs])
    custom_setup = cls.setup_context is not torch.autograd.Function.setup_context
    if (torch.is_grad_enabled() and any(needs)) or custom_setup or kwargs:
        raise Break("higher-order", f"autograd.Function {cls.__name__}")
    context = InferenceContext()
    context.needs_input_grad = (False,) * len(inputs)  # type: ignore[attr-defined]
    m.recorder.keep.append(context)
    grad = torch.is_grad_enabled()
    if grad:
        torch._C._set_grad_enabled(False)
    found = m.force(m.invoke(frame, m.getattr(cls, "forward"), [context, *inputs]))
    if grad:
        torch._C._set_grad_enabled(True)
    return found
