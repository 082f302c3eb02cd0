"""The maximum of a row and the sum of exponentials relative to it, in one pass over the row.

Two stages of a kernel, one with ``m = max(v)`` and the next with ``s = sum(exp(v - m))``, read the
row twice. While a maximum is not known yet, the sum can be kept relative to the one so far, and be
scaled when it grows (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax").
A thread first takes the maximum of the vector that it loaded, so that the scaling costs one
exponential for each vector and not for each element.

A row without a finite number gives what the two passes give. Where the stages subtract ``m``
itself, infinities of one sign become NaN; where they subtract 0 for an infinite ``m``, as logsumexp
does, they become 0 or infinity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastpath.ir.expr import Expr
from fastpath.schedule.kernel import Accumulate, Stage


@dataclass(frozen=True)
class Online:
    """``value`` is ``v``; ``finite``: whether 0 is subtracted where the maximum is infinite;
    ``second``: which of the stages has the sum."""

    maximum: str
    total: str
    value: Expr
    finite: bool
    second: int


def online(stages: Sequence[Stage]) -> Online | None:
    """What the first stage and the next that loops are, if they are such a maximum and such a sum.

    Between them stages may lie that do not loop: they read the maximum, and not the sum.
    """
    second = next((n for n, stage in enumerate(stages) if n and stage.axes), None)
    return None if second is None else _both(stages[0], stages[second], second)


def _both(first: Stage, second: Stage, place: int) -> Online | None:
    if not first.axes or first.axes != second.axes:
        return None
    if len(first.statements) != 1 or len(second.statements) != 1:
        return None
    (a,), (b,) = first.statements, second.statements
    if not (isinstance(a, Accumulate) and isinstance(b, Accumulate)):
        return None
    if (a.kind, b.kind) != ("max", "sum") or a.value.dtype != "float32":
        return None
    if b.value.op != "exp" or b.value.args[0].op != "sub":
        return None
    value, base = b.value.args[0].args
    if value != a.value:
        return None
    if base.op == "reduced" and base.args[0] == a.reduction:
        return Online(a.reduction, b.reduction, value, False, place)
    if base.op == "where" and _zero_if_infinite(base, a.reduction):
        return Online(a.reduction, b.reduction, value, True, place)
    return None


def _zero_if_infinite(e: Expr, reduction: str) -> bool:
    condition, zero, other = e.args
    return (
        condition.op == "isinf"
        and condition.args[0] == other
        and zero.op == "const"
        and zero.args[0] == 0
        and other.op == "reduced"
        and other.args[0] == reduction
    )
