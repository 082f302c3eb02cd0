"""The suites by name. Another one is another row here: nothing else knows how many there are."""

from conformance.suites import (
    ahead,
    breaks,
    guards,
    models,
    mutation,
    operators,
    programs,
    python,
    random,
    shapes,
)
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
        Suite(
            "programs",
            "generated programs of Python and tensor statements",
            programs.families,
        ),
        Suite(
            "python",
            "the language and its library, a feature at a time, around tensors",
            python.families,
        ),
        Suite(
            "mutation",
            "writes, views, aliases, identity and metadata",
            mutation.families,
        ),
        Suite(
            "ahead",
            "generated training programs: related inputs, writes, views, gradients one by one",
            ahead.families,
        ),
        Suite(
            "random",
            "generated training programs that draw random numbers in every way",
            random.families,
        ),
        Suite(
            "shapes",
            "generated programs about sizes, called with many of them in changing order",
            shapes.families,
        ),
        Suite(
            "guards",
            "one change between two calls, of everything that a program reads, wherever it is",
            guards.families,
            default=False,  # a product of some twenty thousand cases
        ),
        Suite(
            "breaks",
            "the programs of python and mutation with graph breaks forced between statements",
            breaks.families,
        ),
    ),
)


def default_names() -> tuple[str, ...]:
    """What a run consists of that names no suite."""
    return tuple([suite.name for suite in SUITES if suite.default])


__all__ = ["SUITES", "Family", "Suite", "default_names"]
