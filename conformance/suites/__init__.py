"""The suites by name. Another one is another row here: nothing else knows how many there are."""

from conformance.suites import models, operators
from conformance.suites.suite import Family, Suite
from specs.table import Table

SUITES: Table[Suite] = Table(
    "suites",
    (
        Suite(
            "operators",
            "every ATen operator of the specification, in every dtype",
            operators.families,
        ),
        Suite(
            "models",
            "real models, called again after what changes between calls",
            models.families,
        ),
    ),
)

__all__ = ["SUITES", "Family", "Suite"]
