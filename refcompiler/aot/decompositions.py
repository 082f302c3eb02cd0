"""Which operators are said by others while a graph is traced."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import core_aten_decompositions

# Their decompositions lay out results otherwise, or draw in another order than eager's kernels.
_KEPT = frozenset(
    {
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_flash_attention_for_cpu.default",
        "aten::bernoulli",
        "aten::native_dropout",
        "aten::rrelu_with_noise",
        "aten::rrelu_with_noise_functional",
        "aten::uniform",
        "aten::normal",
        "aten::exponential",
        "aten::cauchy",
        "aten::geometric",
        "aten::log_normal",
        "aten::multinomial",
        "aten::randperm",
    }
)


@functools.cache
def core() -> dict[Any, Callable[..., Any]]:
    """torch's core decompositions, without those that a caller could tell from eager."""
    table = core_aten_decompositions()
    return {
        op: rule
        for op, rule in table.items()
        if op.name().partition(".")[0] not in _KEPT
        and torch.Tag.nondeterministic_seeded not in getattr(op, "tags", ())
    }
