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

    ``triton.cudagraphs``: launches on a GPU are recorded as device graphs and replayed.
    """

    fallback_random: bool = False
    numerics: str = "fast"
    cudagraphs: bool = False


DEFAULT = Options()

_VALID: dict[str, tuple[Any, ...]] = {
    "fallback_random": (False, True),
    "numerics": ("fast", "strict"),
    "triton.cudagraphs": (False, True),
}
_FIELDS = {"triton.cudagraphs": "cudagraphs"}  # where the name is no name of a field


def options_of(given: Mapping[str, Any]) -> Options:
    """The options by name. Raises ``TypeError`` for an unknown name and ``ValueError`` for a value
    that the option does not have; both say what there is."""
    names = {field: name for name, field in _FIELDS.items()}
    known = [names.get(field.name, field.name) for field in fields(Options)]
    for name, value in given.items():
        if name not in known:
            raise TypeError(f"fastpath has no option {name!r}; it has {', '.join(known)}")
        if not any(value is valid or value == valid for valid in _VALID[name]):
            valid = " or ".join(map(repr, _VALID[name]))
            raise ValueError(f"fastpath's option {name} is {valid}, not {value!r}")
    return Options(**{_FIELDS.get(name, name): value for name, value in given.items()})


def named(options: Options) -> dict[str, Any]:
    """The options by name, as :func:`options_of` takes them."""
    return {name: getattr(options, _FIELDS.get(name, name)) for name in _VALID}
