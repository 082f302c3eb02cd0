"""Operations that give a tensor another memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from refcompiler.capture.models.registry import operation
from refcompiler.capture.signals import Break


@operation("set_")
def _set(m: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    """``x.set_(y)`` of a tensor that the graph has made is ``x.data = y``."""
    given = [m.force(a) for a in args]
    if kwargs or len(given) != 2 or not all(issubclass(type(t), torch.Tensor) for t in given):
        return NotImplemented
    tensor, contents = given
    if m.real_of(tensor) is not None or tensor.requires_grad or contents.requires_grad:
        return NotImplemented
    m.set_data(tensor, None, contents)
    return tensor


@operation("fused_moving_avg_obs_fake_quant")
def _observe(m: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    """It sizes what it keeps for each channel at its first call, which no rule of it tells."""
    given = [m.force(a) for a in (*args, *kwargs.values())]
    if any(issubclass(type(t), torch.Tensor) and 0 in t.shape for t in given[1:]):
        raise Break("operation-not-modelled", f"{function.__name__} resizes its arguments")
    return NotImplemented
