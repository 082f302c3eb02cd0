"""Exponentials that 1 is added to, whole or in a logarithm: each in fewer steps than it is written.

What is small of the power beside the 1 needs no care, and what is large is the logarithm's operand
itself. So these are functions of their own, of which nothing but their names is known here.
"""

from __future__ import annotations

from collections.abc import Callable

from fastpath.ir.expr import Expr

ONE_AND_EXP = "one_and_exp"  # 1 + exp(x)
LOG_ONE_AND_EXP = "log_one_and_exp"  # log1p(exp(x)): infinite where exp(x) is


def beside_one(e: Expr, alone: Callable[[Expr], bool]) -> tuple[str, Expr] | None:
    """The function that ``e`` is, and of what, if nothing else has the power (``alone``), which
    would be computed besides."""
    if e.op == "log1p" and e.args[0].op == "exp" and alone(e.args[0]):
        return LOG_ONE_AND_EXP, e.args[0].args[0]
    if e.op == "add":
        for one, power in (e.args, e.args[::-1]):
            if power.op == "exp" and one.op == "const" and one.args[0] == 1 and alone(power):
                return ONE_AND_EXP, power.args[0]
    return None
