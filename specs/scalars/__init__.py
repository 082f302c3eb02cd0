"""The scalar operations of the loop IR, one row each.

In: nothing. Out: :data:`SCALARS`, a table of :class:`Scalar` rows, and :func:`cast_text`, which
prints a cast (its text depends on two dtypes).
"""

from specs.scalars import arithmetic, elementary, logic, random  # noqa: F401  (each adds rows)
from specs.scalars.logic import cast_text
from specs.scalars.paired import PAIRED, Paired
from specs.scalars.row import NUMBA_SUFFIX, SCALARS, TRITON_TYPE, Scalar

__all__ = ["NUMBA_SUFFIX", "PAIRED", "SCALARS", "TRITON_TYPE", "Paired", "Scalar", "cast_text"]
