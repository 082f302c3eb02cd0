"""The operators that exported programs have for blocks under a gradient mode or autocast.

Each calls a function within the block. What they are is written here in Python, and interpreted;
torch's own, which its front end does not look into, say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from refcompiler.capture.calls import Calls
from refcompiler.capture.models.registry import model, named


def _under_gradient_mode(enabled: bool, function: Callable, *args: Any, **kwargs: Any) -> Any:
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(enabled)
    result = function(*args, **kwargs)
    torch.set_grad_enabled(before)  # not where that raises, as torch has it
    return result


def _under_autocast(
    device: str,
    dtype: torch.dtype | None,
    enabled: bool,
    cached: bool | None,
    function: Callable,
    *args: Any,
    **kwargs: Any,
) -> Any:
    with torch.autocast(device, dtype, enabled, cached):
        return function(*args, **kwargs)


@model(*named("_higher_order_ops.wrap.wrap_with_set_grad_enabled"))
def _set_grad_enabled(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    return m.call(frame, _under_gradient_mode, args, kwargs)


@model(*named("_higher_order_ops.wrap.wrap_with_autocast"))
def _autocast(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    return m.call(frame, _under_autocast, args, kwargs)
