"""How results lie of functions for which eager has a kernel, where stand-ins are put together.

What has no values is taken apart into other operators: ``max_pool1d`` into a pool of images,
``channel_shuffle`` into views and a copy, ``one_hot`` into comparisons. Eager's kernels give their
results memory by rules of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from refcompiler.fakes.mode import Hinted
from specs import strides

#: Of the first argument; None where the result lies as that of what the function is taken into.
Rule = Callable[[torch.Tensor], torch.memory_format | None]


def _pooled(given: torch.Tensor) -> torch.memory_format | None:
    """A kernel of the CPU's has neither gradients nor places."""
    if given.device.type != "cpu" or (given.requires_grad and torch.is_grad_enabled()):
        return None
    return torch.contiguous_format


def _shuffled(given: torch.Tensor) -> torch.memory_format | None:
    known = Hinted.of(given) if given.device.type == "cpu" else None
    if known is None:
        return None
    if not strides.is_channels_last(known.shape, known.steps):
        return torch.contiguous_format
    return torch.channels_last if given.dim() == 4 else torch.channels_last_3d


RULES: dict[Any, Rule] = {
    F.max_pool1d: _pooled,
    torch.max_pool1d: _pooled,
    torch.channel_shuffle: _shuffled,
    F.one_hot: lambda given: torch.contiguous_format,
}


def laid(function: Any, result: Any, args: Any, kwargs: Any) -> Any:
    """``result`` of ``function``, which :data:`RULES` has, where eager's lies, as no view."""
    given = args[0] if args else next(iter(kwargs.values()), None)
    if not (isinstance(result, torch.Tensor) and isinstance(given, torch.Tensor)):
        return result
    wanted = RULES[function](given)
    if wanted is None:
        return result
    made = result.contiguous(memory_format=wanted)
    return made.detach() if made._is_view() and not made.requires_grad else made
