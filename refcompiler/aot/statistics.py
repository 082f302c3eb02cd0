"""Batch norms that write to running statistics, of which their schemas do not tell.

While a graph is traced a write has to be seen, or what reads the statistics behind it reads the old
ones. Each such operator has a twin that gives the new statistics instead, behind its own results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_aten = torch.ops.aten
_LIBRARY = torch.library.Library("refcompiler", "FRAGMENT")
_MEAN, _VARIANCE = 3, 4  # where the arguments are, in all of them
_TRAINING = 5
_SYNCHRONISED = (
    _aten.batch_norm_gather_stats.default,
    _aten.batch_norm_gather_stats_with_counts.default,
)


def _twin(op: Any) -> Any:
    """An operator of the arguments of ``op`` that leaves them alone."""
    name = op._schema.name.removeprefix("aten::")
    arguments, results = str(op._schema).removeprefix(f"aten::{name}").split(" -> ")
    more = f"{results.removesuffix(')')}, Tensor, Tensor)"
    _LIBRARY.define(f"{name}_apart{arguments} -> {more}")

    def apart(*args: Any) -> tuple[torch.Tensor, ...]:
        given = list(args)
        given[_MEAN], given[_VARIANCE] = args[_MEAN].clone(), args[_VARIANCE].clone()
        return (*op(*given), given[_MEAN], given[_VARIANCE])

    _LIBRARY.impl(f"{name}_apart", apart, "CompositeExplicitAutograd")
    torch.library.register_fake(f"refcompiler::{name}_apart", apart, lib=_LIBRARY)
    return getattr(torch.ops.refcompiler, f"{name}_apart").default


#: The operators that write, and their twins.
TWINS = {op: _twin(op) for op in (_aten.cudnn_batch_norm.default, *_SYNCHRONISED)}


def writes_statistics(op: Any, args: Sequence[Any]) -> bool:
    """Whether a call of ``op`` changes what two of its arguments hold."""
    if op not in TWINS or args[_MEAN] is None or args[_VARIANCE] is None:
        return False
    return op in _SYNCHRONISED or bool(args[_TRAINING])


def write_statistics(op: Any, args: Sequence[Any]) -> tuple[Any, ...]:
    """The results of ``op``, by its twin; what that gives besides is copied to the statistics."""
    *results, mean, variance = TWINS[op](*args)
    args[_MEAN].copy_(mean)
    args[_VARIANCE].copy_(variance)
    return tuple(results)
