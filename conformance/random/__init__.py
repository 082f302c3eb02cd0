"""Which random numbers a program draws, eagerly and compiled, and where the two part.

In: a program and a compiler's name. Out: a :class:`~conformance.random.compare.Comparison`.
"""

from conformance.random.compare import Comparison, Divergence
from conformance.random.ledger import Draw
from conformance.random.run import rng_ledger

__all__ = ["Comparison", "Divergence", "Draw", "rng_ledger"]
