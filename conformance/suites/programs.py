"""The suite ``programs``: generated programs of Python and tensor statements, called again after
one thing was changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import strategies as st

from conformance.case import Call, Case, Change, Program, Step, Tensor
from conformance.rows.row import TOLERANCE, inputs
from conformance.strategies.statements import FOCI, modules
from conformance.suites.suite import Family

# What is changed between two calls, by name.
CHANGES: dict[str, tuple[Step, ...]] = {
    "values": (Call("f(m, m2)"), Call("f(m2, m)")),
    "shape": (Call("f(m, m2)"), Call("f(big, big * 2)"), Call("f(m2, m)")),
    "number": (Call("f(m, m2, 2)"), Call("f(m, m2, 5)"), Call("f(m, m2, n=1)")),
    "None": (Call("f(m, m2)"), Call("f(m, m2, other=m)")),
    "global": (Call("f(m, m2)"), Change("SCALE = 3\nTRAINING = False"), Call("f(m, m2)")),
    "attribute": (Call("f(m, m2)"), Change("STATE.n = 5"), Call("f(m, m2)")),
    "container": (Call("f(m, m2)"), Change("TABLE['k'] = 7\nITEMS.clear()"), Call("f(m, m2)")),
    "closure": (Call("f(m, m2)"), Change("model.change(3)"), Call("f(m, m2)")),
    "alias": (Call("f(m, m2)"), Call("f(m, m)"), Call("f(m2, m2[:])")),
    "class": (
        Call("f(m, m2)"), Call("f(m, m2, 2.0)"), Call("f(m, m2, True)"), Call("f(m, m2, None)"),
        Call("f(m, m2, 'a')"),
    ),
    "argument": (
        Call("f(m, m2, 2, [m, 1])"), Call("f(m, m2, 2, {'k': m2})"), Call("f(m, m2, other=ITEMS)"),
        Call("f(m, m2, other=TABLE)"), Call("f(m, m2, other='text')"), Call("f(m, m2, other=2.5)"),
    ),
    "dtype": (Call("f(m, m2)"), Call("f(m.double(), m2.double())"), Call("f(m, m2.double())")),
    "module": (Call("f(m, m2)"), Change("NET.factor = 3\nNET.eval()"), Call("f(m, m2)")),
    "grad mode": (Call("f(w, m2)"), Call("f(w, m2)", mode="no_grad"), Call("f(w, m2)")),
}  # fmt: skip


def families(device: str) -> Iterator[Family]:
    """One family per kind of statement and kind of change."""
    for focus in FOCI:
        for change in CHANGES:
            yield Family("programs", focus, change, cases(focus, change, device))


@st.composite
def cases(draw: st.DrawFn, focus: str, change: str, device: str = "cpu") -> Case:
    """A program of statements of that kind, and the history of that change."""
    history = CHANGES[change]
    chosen = inputs(tuple(step.source.replace("w,", "m,") for step in history))
    if change == "grad mode":
        chosen = tuple(
            replace(item, name="w", requires_grad=True)
            if isinstance(item, Tensor) and item.name == "m"
            else item
            for item in chosen
        )
    return Case(
        "programs", focus, change, Program(draw(modules(focus)), "make()"), chosen, history,
        TOLERANCE, device,
    )  # fmt: skip
