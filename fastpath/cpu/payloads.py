"""Which values cannot be a nan that rounding to bfloat16 would turn into a number.

Rounding adds at most 0x8000 to the bits of a float32 and drops the low half. Of a nan whose payload
fills the upper bits, with something below them, the carry would run over into the sign, and of one
that has its payload in the low half alone nothing would remain but infinity; so a nan has to be
looked for. Nans that come from memory of 16 bits have no low half, and an operation that meets a
nan passes it on, quieted, or makes the machine's own, whose payload is empty.
"""

from __future__ import annotations

from fastpath.ir.expr import Expr
from fastpath.schedule.kernel import Accumulate, Kernel

_PASS_ON = frozenset(
    {
        *("add", "sub", "mul", "truediv", "neg", "abs", "sqrt", "rsqrt", "reciprocal", "square"),
        *("minimum", "maximum", "fmin", "fmax", "fma"),
    }
)


class Payloads:
    def __init__(self, kernel: Kernel):
        self._known: dict[Expr, bool] = {}
        self._reduced = {
            s.reduction: s.value
            for stage in kernel.stages
            for s in stage.statements
            if isinstance(s, Accumulate)
        }

    def clean(self, e: Expr) -> bool:
        """Whether ``e``, where it is a nan, has a payload that is empty in the low half."""
        known = self._known.get(e)
        if known is None:
            self._known[e] = False  # of a value that depends on itself nothing is known
            known = self._known[e] = self._clean(e)
        return known

    def _clean(self, e: Expr) -> bool:
        if e.dtype == "bfloat16" or e.op == "const":
            return True
        if e.op == "cast":
            return not e.args[0].dtype.startswith("float")  # an integer is no nan
        if e.op == "reduced":
            return self.clean(self._reduced[e.args[0]])
        if e.op == "where":
            return all(self.clean(a) for a in e.args[1:])
        return e.op in _PASS_ON and all(self.clean(a) for a in e.args)
