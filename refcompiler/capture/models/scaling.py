"""``torch.amp.GradScaler``: its scale is made before the graph, its scaling lies in it.

What it does with gradients, and to its scale, is one kernel over what a break has left, and is
followed by the question whether anything was infinite: a graph of its own would save nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.amp import GradScaler
from torch.utils._python_dispatch import _disable_current_modes

from refcompiler.capture.models.registry import model
from refcompiler.capture.signals import Break, Prepare

_WHY = "a GradScaler makes its scale"


def _natively(original: Callable) -> None:
    @model(original)
    def run(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
        if m.force(m.getattr(m.force(args[0]), "_enabled")):
            raise Break("disabled-function", original.__qualname__)
        return m.call_function(frame, original, args, kwargs)


_natively(GradScaler.unscale_)
_natively(GradScaler.update)
_ORIGINAL: Any = GradScaler._lazy_init_scale_growth_tracker


@model(_ORIGINAL)
def _initialize(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    """The same whenever it is done, unless the frame has changed what the scale starts with."""
    scaler, device = [m.force(value) for value in (*args, *kwargs.values())]
    if m.source_of(scaler) is None or any(owner == id(scaler) for owner, _ in m.overlay):
        return m.call_function(frame, _ORIGINAL, args, kwargs)
    if type(scaler) is not GradScaler or m.open_inference:
        raise Break("disabled-function", _WHY)
    if id(frame) in m.started:  # which has asked already whether there is a scale
        raise Break("disabled-function", f"{_WHY} after a break in its scaling")

    def initialize() -> None:
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            _ORIGINAL(scaler, device)

    raise Prepare(m.steps, "disabled-function", _WHY, initialize)
