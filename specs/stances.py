"""One row per stance: what compiled callables do while it is set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specs.table import Table


@dataclass(frozen=True)
class Stance:
    """``enters``: code that was compiled before may run. ``first``: how the first call of a code
    object runs. ``miss``: what a call does for which no compiled code holds.
    """

    name: str
    enters: bool
    first: Literal["compile", "eager", "aot_eager", "fail"]
    miss: Literal["compile", "eager", "fail"]
    doc: str


#: Source: torch's documentation of ``torch.compiler.set_stance``.
STANCES: Table[Stance] = Table(
    "stances",
    [
        Stance("default", True, "compile", "compile", "Compile whenever no compiled code holds."),
        Stance("force_eager", False, "eager", "eager", "As if nothing were compiled."),
        Stance(
            "eager_on_recompile",
            True,
            "eager",
            "eager",
            "Run compiled code where it holds, and nothing is compiled.",
        ),
        Stance(
            "fail_on_recompile",
            True,
            "fail",
            "fail",
            "Run compiled code where it holds; a call that would compile is an error.",
        ),
        Stance(
            "eager_then_compile",
            True,
            "eager",
            "compile",
            "The first call runs eagerly, and later ones compile: what differs between the first "
            "two becomes a symbol at once.",
        ),
        Stance(
            "aot_eager_then_compile",
            True,
            "aot_eager",
            "compile",
            "As eager_then_compile, where the first call runs under the backend aot_eager.",
        ),
    ],
)
