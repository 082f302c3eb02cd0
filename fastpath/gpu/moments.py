"""The sum of a column or a row and its squared deviations from the mean, in one pass over it.

Two stages of a kernel, one with ``s = sum(v)`` and the next with ``sum(v - s / n)`` and
``sum((v - s / n) ** 2)``, read it twice. Here each lane of the block that goes along it adds up
how far its own points are from its first one, and the squares of that. Behind the pass each lane
has its mean and its squared deviations from it, and the lanes are merged around ``s / n`` (Chan,
Golub and LeVeque 1983, "Algorithms for computing the sample variance").

What ``sum(d * d) - sum(d) ** 2 / m`` cancels of a lane's ``m`` points is at most a factor of
``1 + k``, where the first one's distance from the lane's mean, squared, is ``k`` variances: it is
one of the points, so ``k`` is 1 in the mean and never above ``m``, wherever the mean lies. (Kept
relative to each point's own mean so far, as Welford has it, nothing cancels, and each point takes
twice the operations, which held up the memory.)

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
