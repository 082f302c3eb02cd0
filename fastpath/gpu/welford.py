"""The sum of a column and its squared deviations from the mean, in one pass over the column.

Two stages of a kernel, one with ``s = sum(v)`` and the next with ``sum(v - s / n)`` and
``sum((v - s / n) ** 2)``, read the column twice. Here each lane of the block that goes down it
keeps the mean of its own points so far, and the sum of their squared deviations from that (Welford
1962, "Note on a method for calculating corrected sums of squares and products"), all relative to
its first point, so that a mean far from 0 is rounded no more than what differs from it. Behind the
pass the lanes are merged around ``s / n`` (Chan, Golub and LeVeque 1983).

The sum itself is added up as it is without this, so that it is infinite where it would be; a lane
with an infinity is NaN, as the deviations are that it stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastpath.ir.expr import Expr
from fastpath.schedule.kernel import Accumulate, Stage
from specs.dtypes import is_float


@dataclass(frozen=True)
class OnePass:
    """``value`` is ``v`` and ``near`` the mean; ``total`` and ``squares``: the reductions of the
    deviations, in the stage numbered ``second``."""

    value: Expr
    near: Expr
    total: str
    squares: str
    second: int


def one_pass(stages: Sequence[Stage]) -> OnePass | None:
    """What the first stage and the next that loops are, if they are such a sum and such deviations.

    Between them stages may lie that do not loop: they read the sum, and no deviation.
    """
    first = stages[0]
    place = next((n for n, stage in enumerate(stages) if n and stage.axes), None)
    if place is None or not first.axes or stages[place].axes != first.axes:
        return None
    adding = [s for s in stages[place].statements if isinstance(s, Accumulate) and s.kind == "sum"]
    if len(adding) != 2 or len(stages[place].statements) != 2:
        return None
    sums = {s.reduction: s.value for s in first.statements if isinstance(s, Accumulate)}
    for one, other in (adding, adding[::-1]):
        away = one.value
        if away.op != "sub" or other.value.op != "mul" or other.value.args != (away, away):
            continue
        value, near = away.args
        if near.op != "truediv" or near.args[0].op != "reduced" or near.args[1].op != "const":
            continue
        if _terms(sums.get(near.args[0].args[0])) == value and is_float(value.dtype):
            return OnePass(value, near, one.reduction, other.reduction, place)
    return None


def _terms(added: Expr | None) -> Expr | None:
    """What is added up, or of what it is a constant part."""
    part = added is not None and added.op == "mul" and added.args[1].op == "const"
    return added.args[0] if added is not None and part else added
