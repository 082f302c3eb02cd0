"""What stands for operators while a graph is traced: those that have graphs of their own, and few
others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from refcompiler.aot.regions import (
    branches,
    checkpoint,
    classes,
    composed,
    diagonals,
    dropped,
    loops,
    products,
    repeats,
    spectra,
    windows,
)

_operators = torch.ops.higher_order

#: What stands for a node's target while a graph is traced, by ``target.region``, the target or a
#: method's name: called with the runner, the target and the node's arguments.
REGIONS: dict[Any, Callable[..., Any]] = {
    "checkpoint": checkpoint.checkpointed,
    _operators.tag_activation_checkpoint: checkpoint.tagged,
    _operators.cond: branches.cond,
    _operators.while_loop: repeats.while_loop,
    _operators.scan: loops.scan,
    _operators.map_impl: loops.mapped,
    torch.prod: products.prod,
    "prod": products.prod,  # the method
    "fill_diagonal_": diagonals.fill_diagonal_,
    **dict.fromkeys(composed.FUNCTIONS, composed.composed),
    torch.nn.functional.one_hot: classes.one_hot,
    **dict.fromkeys(dropped.FUNCTIONS, dropped.dropout),
    **dict.fromkeys(spectra.FUNCTIONS, spectra.alone),
    **dict.fromkeys(windows.FUNCTIONS, windows.inverse),
}

#: The same where a graph is only looked at: nothing is recorded.
OBSERVED: dict[Any, Callable[..., Any]] = {
    _operators.cond: branches.observed_cond,
    _operators.while_loop: repeats.observed_loop,
    _operators.scan: loops.observed_scan,
    _operators.map_impl: loops.observed_map,
    **dict.fromkeys(composed.FUNCTIONS, composed.composed),
    **dict.fromkeys(dropped.FUNCTIONS, dropped.dropout),
    **dict.fromkeys(windows.FUNCTIONS, windows.inverse),
}
