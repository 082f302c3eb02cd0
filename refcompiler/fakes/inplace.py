"""Elementwise operators that write to their first operand, by what gives a new tensor."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from refcompiler.fakes.overlap import writes
from refcompiler.fakes.rules import by_rule


@functools.cache
def out_of_place(func: Any) -> Any:
    """The elementwise operator that computes what ``func`` writes to its first operand, and
    nothing else; None where there is none."""
    found = twin(func)
    return found if found is not None and torch.Tag.pointwise in found.tags else None


@functools.cache
def twin(func: Any) -> Any:
    """The operator of any kind that computes what ``func`` writes to its first operand, and nothing
    else, of operands of the same types; None where there is none."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":
        return None
    name = func._schema.name.removeprefix("aten::")
    first = func._schema.arguments[0].name if func._schema.arguments else None
    if not name.endswith("_") or name.endswith("__") or writes(func) != (first,):
        return None
    packet = getattr(torch.ops.aten, name[:-1], None)
    if packet is None:
        return None
    # Mostly of the same name, but what is pow_.Scalar is pow.Tensor_Scalar, not pow.Scalar.
    for overload in sorted(packet.overloads(), key=lambda other: other != func._overloadname):
        found = getattr(packet, overload)
        if not found._schema.is_mutable and _operands(found) == _operands(func):
            return found
    return None


def _operands(func: torch._ops.OpOverload) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in func._schema.arguments]


def gives_its_first(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> bool:
    """Whether it is plain that ``func`` returns its first operand, as it is, with other values."""
    other = out_of_place(func)
    if other is None or any(type(a) is FakeTensor and a.constant is not None for a in args):
        return False
    found = by_rule(other, args, kwargs)
    if found is None or found.kind is not None or found.outputs[0] is None:
        return False
    made, first = found.outputs[0], args[0]
    return made.shape == tuple(first.shape) and made.dtype is first.dtype
