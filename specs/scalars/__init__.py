"""The scalar operations of the loop IR, one row each.

In: nothing. Out: :data:`SCALARS`, a table of :class:`Scalar` rows, and :func:`cast_text`, which
prints a cast (its text depends on two dtypes).
"""

from specs.scalars import (  # noqa: F401  (each adds rows)
    arithmetic,
    elementary,
    logic,
    paired_on_cuda,
    random,
)
from specs.scalars.logic import cast_text
from specs.scalars.paired import PAIRED, Paired
from specs.scalars.row import NUMBA_SUFFIX, SCALARS, TRITON_TYPE, Scalar

__all__ = ["NUMBA_SUFFIX", "PAIRED", "SCALARS", "TRITON_TYPE", "Paired", "Scalar", "cast_text"]
