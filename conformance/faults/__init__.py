"""Where a compiled program parts from eager, and whether that is a fault at all.

In: a program (a script, or a function and its calls) and a compiler's name. Out: a
:class:`~conformance.faults.result.Located`: a verdict, and for a failure its stage, its graph, its
operator and a script that shows it.
"""

from conformance.faults.library import locate
from conformance.faults.result import Located

__all__ = ["Located", "locate"]
