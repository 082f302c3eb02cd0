"""What ``options={...}`` may say to the fast path, one row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Options:
    """``fallback_random``: every draw is eager's own call, in eager's order; kernels draw nothing.

    ``numerics``: "fast", where elementwise results stay within the bounds of ``docs/specs``, or
    "strict", where they have eager's bits, and reduced floats are rounded wherever eager rounds.
    """

    fallback_random: bool = False
    numerics: str = "fast"


DEFAULT = Options()

_VALID: dict[str, tuple[Any, ...]] = {
    "fallback_random": (False, True),
    "numerics": ("fast", "strict"),
}


def options_of(given: Mapping[str, Any]) -> Options:
    """The options by name. Raises ``TypeError`` for an unknown name and ``ValueError`` for a value
    that the option does not have; both say what there is."""
    known = [field.name for field in fields(Options)]
    for name, value in given.items():
        if name not in known:
            raise TypeError(f"fastpath has no option {name!r}; it has {', '.join(known)}")
        if not any(value is valid or value == valid for valid in _VALID[name]):
            valid = " or ".join(map(repr, _VALID[name]))
            raise ValueError(f"fastpath's option {name} is {valid}, not {value!r}")
    return Options(**given)
