"""What arguments have to be for a rule to answer for an operator: plainly right.

A rule that answered for what eager refuses would hide the error until the graph runs. So what a row
says of its arguments is asked here, and torch is left to say what is wrong with the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specs import dtypes
from specs.dtypes import TensorType
from specs.operators.row import TENSOR_KINDS, Operator
from specs.shapes import wrap

_NUMBERS = ("operand", "scalar", "int", "float")
_SETTLED = 4  # the largest rank of arguments that may as well have a larger one


class Demands:
    """Of one row; arguments are as :meth:`specs.operators.Operator.infer` takes them."""

    def __init__(self, row: Operator):
        args, pointwise = row.args, row.kind == "pointwise"
        promoting = [a for a in args if a.promotes]
        self.row = row
        self.leading = [a.name for a in promoting] or [args[0].name]
        self.needed = [a.name for a in promoting if pointwise and not a.optional]
        #: As bounds are: one of them at least.
        self.some = [a.name for a in promoting if pointwise and a.optional and a.default is None]
        self.positions = [a.name for a in args if a.kind == "index"]
        self.masks = [a.name for a in args if a.kind == "mask"]
        self.numbers = [a.name for a in args if a.kind in _NUMBERS]
        self.directions = [a.name for a in args if a.kind in ("dim", "dims")]
        self.ranks = [
            (a.name, range(a.min_rank, a.max_rank + 1))
            for a in args
            if a.kind in TENSOR_KINDS and (a.min_rank or a.max_rank < _SETTLED)
        ]

    def met(self, typed: Mapping[str, Any], tensors: Sequence[Any]) -> bool:
        """Whether the arguments are right but for their shapes; ``tensors`` are those in them."""
        if any(typed.get(name) is None for name in self.needed):
            return False
        if self.some and all(typed.get(name) is None for name in self.some):
            return False
        if any(typed[name].dtype not in ("int64", "int32") for name in self.positions):
            return False
        if any(typed[name].dtype != dtypes.BOOL for name in self.masks):
            return False
        if self.row.kind == "reduction" and any(0 in t.shape for t in tensors):
            return False  # not all of them have a value of nothing
        if not all(_has_rank(typed.get(name), allowed) for name, allowed in self.ranks):
            return False
        if not tensors:
            return True
        if any(t.is_complex() for t in tensors):  # of which other rows say what is right
            return False
        several = next((s for name in self.leading if (s := _types(typed.get(name)))), None)
        if several is None or several[0].dtype not in self.row.dtypes:
            return False
        if not self.fit(typed, several[0].dtype):
            return False
        rank = max(len(t.shape) for t in several)
        return all(_leads(typed.get(name), rank) for name in self.directions)

    def fit(self, typed: Mapping[str, Any], dtype: str) -> bool:
        """Whether all numbers do in ``dtype``; eager refuses those that are too large."""
        values = [typed.get(name) for name in self.numbers]
        return all(type(v) not in (int, float) or dtypes.fits(v, dtype) for v in values)


def _types(value: Any) -> list[TensorType]:
    several = value if type(value) is list else [value]
    return [t for t in several if type(t) is TensorType]


def _has_rank(value: Any, allowed: range) -> bool:
    return all(len(t.shape) in allowed for t in _types(value))


def _leads(value: Any, rank: int) -> bool:
    """Whether ``value`` names dimensions that are there, each once."""
    several = value if type(value) is list else [value]
    try:
        places = [wrap(d, rank) for d in several if d is not None]
    except IndexError:
        return False
    return len(set(places)) == len(places)
