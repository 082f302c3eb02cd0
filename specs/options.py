"""One row per option and mode of ``compile``: what a user may ask of the default backend.

Source of the names that torch has too: torch's documentation of ``torch.compile``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from specs.table import Table


@dataclass(frozen=True)
class Option:
    """``type`` as it is written; ``values``: all there are, or none where any of the type will do.

    ``owner``: who reads it: the front end, for every backend, or the default backend.
    ``device``: where it has an effect, if not everywhere. ``lacks``: why it has none yet. Whoever
    asks for what has no effect is told so.
    """

    name: str
    type: str
    default: Any
    doc: str
    values: tuple[Any, ...] = ()
    owner: Literal["front end", "fastpath"] = "fastpath"
    device: Literal["", "cuda"] = ""
    lacks: str = ""


_SWITCH = (False, True)

OPTIONS: Table[Option] = Table(
    "options",
    [
        Option(
            "epilogue_fusion",
            "bool",
            True,
            "Elementwise work on the results of a reduction is done by the reduction's kernel.",
            _SWITCH,
        ),
        Option(
            "fallback_random",
            "bool",
            False,
            "Every draw is eager's own call, in eager's order; kernels draw nothing.",
            _SWITCH,
        ),
        Option(
            "max_autotune",
            "bool",
            False,
            "Measure kernels for products and convolutions beside the vendor's; keep the fastest.",
            _SWITCH,
            device="cuda",
        ),
        Option(
            "numerics",
            "str",
            "fast",
            '"fast": elementwise results stay within the bounds of the scalars\' rows; "strict": '
            "they have eager's bits, and reduced floats are rounded wherever eager rounds.",
            ("fast", "strict"),
        ),
        Option(
            "shape_padding",
            "bool",
            True,
            "Operands of 16-bit products are padded, or taken by classes of rows, where the "
            "vendor's kernels want whole vectors.",
            _SWITCH,
            device="cuda",
        ),
        Option(
            "triton.cudagraphs",
            "bool",
            False,
            "Launches on a GPU are recorded as device graphs and replayed.",
            _SWITCH,
            device="cuda",
        ),
        Option(
            "guard_filter_fn",
            "callable",
            None,
            "Which guards are kept: a list of their descriptions -> a list of bools.",
            owner="front end",
        ),
        Option(
            "trace.enabled",
            "bool",
            False,
            "Each compilation writes what it makes to a folder.",
            _SWITCH,
            owner="front end",
        ),
        Option(
            "trace.graph_diagram",
            "bool",
            False,
            "And a picture of each graph.",
            _SWITCH,
            owner="front end",
        ),
    ],
)


#: Options of torch's default compiler that this one has not, and why: whoever gives one is told.
REFUSED: Mapping[str, str] = {
    "freezing": "weights stay inputs, so that compiled code sees what is done to them later "
    "(to fold batch norms into convolutions moved times on the CPU by 6 % at most, either way)",
    "cpp_wrapper": "the code around kernels is Python, of at most a microsecond for each launch",
    "cpp.weight_prepack": "products lay weights out in each call, as they may have been written to",
}


@dataclass(frozen=True)
class Mode:
    """``options``: what it sets."""

    name: str
    doc: str
    options: Mapping[str, Any] = field(default_factory=dict)


MODES: Table[Mode] = Table(
    "modes",
    [
        Mode("default", "What compiles soon and runs fast."),
        Mode(
            "reduce-overhead",
            "Device graphs: for work that is small beside its launches.",
            {"triton.cudagraphs": True},
        ),
        Mode(
            "max-autotune",
            "Measured kernels, and device graphs.",
            {"max_autotune": True, "triton.cudagraphs": True},
        ),
        Mode(
            "max-autotune-no-cudagraphs",
            "Measured kernels.",
            {"max_autotune": True},
        ),
    ],
)
