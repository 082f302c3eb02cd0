"""The suite ``ahead``: generated programs for what ahead-of-time compilation has to restore.

Arguments that share memory in every way, writes that autograd sees or not, views that come in and
go out; then the gradient of one output at a time, and what a caller does next.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import strategies as st

from conformance.case import (
    Call,
    Case,
    Change,
    Drawn,
    Input,
    Program,
    Storage,
    Tensor,
)
from conformance.rows.row import TOLERANCE
from conformance.strategies.ahead import AFTERWARDS, BACKWARDS, HOOKS, MODES, RELATIONS, programs
from conformance.suites.suite import Family


def families(device: str) -> Iterator[Family]:
    """One family per relation of the arguments and gradient mode."""
    for relation in RELATIONS:
        for mode in MODES:
            yield Family("ahead", relation, mode, cases(relation, mode, device))


def _leaves(grad: bool) -> tuple[Input, ...]:
    return (
        Storage("_x", "float32", 4, Drawn("normal", 1)),
        Tensor("x", "_x", (4,), requires_grad=grad),
        Storage("_y", "float32", 4, Drawn("normal", 2)),
        Tensor("y", "_y", (4,), requires_grad=grad),
    )


@st.composite
def cases(draw: st.DrawFn, relation: str, mode: str, device: str = "cpu") -> Case:
    """Two calls with that relation and one with another; gradients after each."""
    first = RELATIONS[relation]
    other = RELATIONS[draw(st.sampled_from(list(RELATIONS)))]
    alike = (other.ordered, other.plain) == (first.ordered, first.plain)
    other = other if alike else first
    backwards = draw(st.sampled_from(BACKWARDS))
    hooks = draw(st.sampled_from(HOOKS)) if backwards is BACKWARDS[1] else ""
    setup, again = Change(f"{first.setup}\n{hooks}"), Change(f"{other.setup}\n{hooks}")
    call, gradients = Call("f(p, q)", mode=mode), Change(backwards)
    after = Change(draw(st.sampled_from(AFTERWARDS)))
    history = (setup, call, gradients, after, setup, call, gradients, again, call, gradients)
    inputs = _leaves(first.differentiable or draw(st.booleans()))
    program = Program(draw(programs(first)))
    return Case("ahead", relation, mode, program, inputs, history, TOLERANCE, device)
