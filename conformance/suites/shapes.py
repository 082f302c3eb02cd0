"""The suite ``shapes``: generated programs about sizes, called with many of them.

The sizes come in a drawn order, with 0, 1, 2 and equal ones among them. Then all of them come
again, and nothing may be compiled for what has a program already.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import strategies as st

from conformance.case import Call, Case, Compiles, Program
from conformance.rows.row import TOLERANCE
from conformance.strategies.sizes import FOCI, programs
from conformance.suites.suite import Family

#: Rows and columns of the first matrix (the second is its transpose), and a number.
SIZES = (
    (4, 6, 2), (5, 7, 3), (9, 2, 5), (2, 2, 2), (12, 3, 4), (7, 7, 7), (1, 5, 3), (3, 1, 1),
    (0, 4, 2), (4, 0, 3), (6, 4, 0), (8, 8, 6), (5, 5, -1),
)  # fmt: skip
VARIANTS = ("automatic", "marked")


def families(device: str) -> Iterator[Family]:
    """One family per kind of statement, with and without marks on the tensors."""
    for focus in FOCI:
        for variant in VARIANTS:
            yield Family("shapes", focus, variant, cases(focus, variant, device))


@st.composite
def cases(draw: st.DrawFn, focus: str, variant: str, device: str = "cpu") -> Case:
    """A program with statements of that kind, and sizes to call it with."""
    sizes = draw(st.lists(st.sampled_from(SIZES), min_size=3, max_size=7, unique=True))
    again = draw(st.permutations(sizes))
    mark = ", True" if variant == "marked" else ""
    history = [
        Call(f"f(made({a}, {b}{mark}), made({b}, {a}{mark}), {k})", compiles)
        for given, compiles in ((sizes, Compiles.ANY), (again, Compiles.NO))
        for a, b, k in given
    ]
    program = Program(draw(programs(focus)))
    return Case("shapes", focus, variant, program, (), tuple(history), TOLERANCE, device)
