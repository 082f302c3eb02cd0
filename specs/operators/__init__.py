"""The ATen operators that the project supports, one row per overload.

In: nothing. Out: :data:`OPERATORS`, a table of :class:`Operator` rows with their :class:`Arg`, and
:data:`ON_COMPLEX`, what some of them are on complex numbers.
"""

from specs.operators import activations, paired, pointwise, reductions, structure  # noqa: F401  (each adds its rows)
from specs.operators.paired import ON_COMPLEX
from specs.operators.row import OPERATORS, Arg, Operator

__all__ = ["ON_COMPLEX", "OPERATORS", "Arg", "Operator"]
