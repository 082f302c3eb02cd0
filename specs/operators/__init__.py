"""The ATen operators that the project supports, one row per overload.

In: nothing. Out: :data:`OPERATORS`, a table of :class:`Operator` rows with their :class:`Arg`.
"""

from specs.operators import activations, pointwise, reductions, structure  # noqa: F401  (each adds its rows)
from specs.operators.row import OPERATORS, Arg, Operator

__all__ = ["OPERATORS", "Arg", "Operator"]
