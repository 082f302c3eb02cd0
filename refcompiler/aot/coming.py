"""Whether eager's backward would come to a result of a compiled call.

A backward that is asked for certain gradients (``autograd.grad``, ``backward(inputs=)``) runs what
is on the ways to these, and hooks elsewhere are not called. Results of a compiled call share a
function of autograd, to which a backward comes that goes to any of its inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType
from typing import Any

from refcompiler.aot.wanted import asked, edges_of, goes_to, inputs_of, roots


def comes(call: Any, number: int, edge: tuple[Any, int], frame: FrameType | None) -> bool:
    """Whether it comes to the result ``number``; where it cannot be told, it does.

    ``call``: its compiled function; ``edge``: the result's own; ``frame``: of what autograd has
    called.
    """
    wanted: set[tuple[Any, int]] = set()
    for inputs in asked(frame):
        if not inputs:  # all leaves are
            return True
        wanted.update(edges_of(inputs))
    if [*roots(frame)] == [edge]:  # where autograd begins, whatever is asked for
        return True
    return not wanted.isdisjoint((edge, *_within(call, number))) or _leaves(call, number)


def _within(call: Any, number: int) -> Iterator[tuple[Any, int]]:
    """Of what that result is computed from."""
    gates = call.program.gates
    level = gates and next((each for each in gates.levels if number in each.results), None)
    if level is None:
        return
    for key, reference in zip(gates.keys, call.watched[1], strict=True):
        t = reference()
        if t is not None and key in level.others:
            yield t.grad_fn, t.output_nr


def _leaves(call: Any, number: int) -> bool:
    """Whether it goes on from there to what is asked for, behind the call."""
    program = call.program
    bit = 1 << program.differentiable.index(number)
    for n, (node, _) in zip(program.places, inputs_of(call), strict=False):
        if node is not None and program.leading(n) & bit and goes_to(node):
            return True
    return False
