"""The suite ``random``: generated programs that draw, and where they leave the generators.

The same numbers in the same order as eager draws them, whether they are used or not; the masks of
a region that runs a second time in the backward; generators of the program's own.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import strategies as st

from conformance.case import Call, Case, Change, Drawn, Input, Program, Storage, Tensor, Value
from conformance.rows.row import TOLERANCE
from conformance.strategies.ahead import GRADIENTS
from conformance.strategies.draws import DRAWS, programs
from conformance.suites.suite import Family

MODES = ("grad", "no_grad")

#: The caller draws too, and looks at where its own generator is.
_LATER = "later = torch.rand(3), __import__('zlib').crc32(g.get_state().numpy().tobytes())"
_INPUTS: tuple[Input, ...] = (
    Storage("_x", "float32", 24, Drawn("normal", 1)),
    Tensor("x", "_x", (4, 6), requires_grad=True),
    Storage("_y", "float32", 24, Drawn("normal", 2)),
    Tensor("y", "_y", (4, 6), requires_grad=True),
    Value("g", "torch.Generator().manual_seed(5)"),
)


def families(device: str) -> Iterator[Family]:
    """One family per way to draw and gradient mode."""
    for kind in DRAWS:
        for mode in MODES:
            yield Family("random", kind, mode, cases(kind, mode, device))


@st.composite
def cases(draw: st.DrawFn, kind: str, mode: str, device: str = "cpu") -> Case:
    """Two calls, each with its gradients and a draw of the caller's after it."""
    setup = Change("p, q = x * 1, y * 1")
    call, gradients, later = Call("f(p, q, g)", mode=mode), Change(GRADIENTS), Change(_LATER)
    history = (setup, call, gradients, later, setup, call, later, gradients)
    program = Program(draw(programs(kind)))
    return Case("random", kind, mode, program, _INPUTS, history, TOLERANCE, device)
