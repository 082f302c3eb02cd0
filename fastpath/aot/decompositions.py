"""Which ATen operators are taken apart while capturing, and by whose rule.

Only operators that become elementwise work or reductions are: an operator that a library call does
well, or whose decomposition would change an output's layout or the order of random draws, stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import get_decompositions

aten = torch.ops.aten

TABLE: dict[Any, Callable[..., Any]] = get_decompositions(
    [
        aten.addcdiv,
        aten.addcmul,
        aten.binary_cross_entropy,
        aten.binary_cross_entropy_with_logits,
        aten.celu,
        aten.dist,
        aten.frobenius_norm,
        aten.glu,
        aten.huber_loss,
        aten.log_sigmoid_forward,
        aten.mse_loss,
        aten.smooth_l1_loss,
        aten.soft_margin_loss,
        aten.special_entr,
        aten.special_xlog1py,
        aten.xlogy,
    ]
)
