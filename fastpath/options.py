"""What ``options={...}`` and ``mode`` say to the fast path; the rows are :mod:`specs.options`."""

from __future__ import annotations

import difflib
import functools
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specs.options import MODES, OPTIONS, REFUSED, Option

ROWS: dict[str, Option] = {row.name: row for row in OPTIONS if row.owner == "fastpath"}
_FIELDS = {"triton.cudagraphs": "cudagraphs"}  # where the name is no name of a field


@dataclass(frozen=True)
class Options:
    """A value for each row that is the fast path's. ``asked``: the names that somebody gave."""

    epilogue_fusion: bool = True
    fallback_random: bool = False
    max_autotune: bool = False
    numerics: str = "fast"
    shape_padding: bool = True
    cudagraphs: bool = False
    asked: frozenset[str] = field(default=frozenset(), compare=False)


DEFAULT = Options()


def options_of(given: Mapping[str, Any], mode: str | None = None) -> Options:
    """The options by name, and those that ``mode`` sets.

    Raises ``TypeError`` for an unknown option, and ``ValueError`` for a value that the option does
    not have, for an unknown mode, and for an option that the mode sets otherwise; each says what
    there is.
    """
    for name, value in given.items():
        if name in REFUSED:
            raise TypeError(f"fastpath has no option {name!r}: {REFUSED[name]}")
        if name not in ROWS:
            close = difflib.get_close_matches(name, ROWS, 1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise TypeError(f"fastpath has no option {name!r}{hint}; it has {', '.join(ROWS)}")
        values = ROWS[name].values
        if not any(type(value) is type(valid) and value == valid for valid in values):
            valid = " or ".join(map(repr, values))
            raise ValueError(f"fastpath's option {name} is {valid}, not {value!r}")
    chosen = {**_set_by(mode, given), **given}
    fields = {_FIELDS.get(name, name): value for name, value in chosen.items()}
    return Options(**fields, asked=frozenset(chosen))


def _set_by(mode: str | None, given: Mapping[str, Any]) -> Mapping[str, Any]:
    if mode is None:
        return {}
    row = MODES.get(mode)
    if row is None:
        raise ValueError(f"fastpath has no mode {mode!r}; it has {', '.join(MODES.names())}")
    for name, value in row.options.items():
        if given.get(name, value) != value:
            sets = ", ".join(f"{n} = {v!r}" for n, v in row.options.items())
            raise ValueError(
                f"mode {mode!r} and the option {name} = {given[name]!r} clash: the mode sets {sets}"
            )
    return row.options


def check(mode: str | None, given: Mapping[str, Any]) -> None:
    """Errors as of :func:`options_of`; what has no effect yet is told, once in a process."""
    chosen = options_of(given, mode)
    for name, value in named(chosen).items():
        if value and ROWS[name].lacks:
            _tell(f"fastpath: {name} has no effect yet: {ROWS[name].lacks}")


def tell_unused(options: Options, device: str) -> None:
    """Say, once in a process, which options have no effect on ``device``."""
    for name, value in named(options).items():
        row = ROWS[name]
        if value and row.device and row.device != device:
            _tell(f"fastpath: {name} has no effect on {device}: it is for {row.device}")


@functools.cache
def _tell(text: str) -> None:
    warnings.warn(text, stacklevel=2)


def named(options: Options) -> dict[str, Any]:
    """The options that somebody gave, by name, as :func:`options_of` takes them."""
    return {name: getattr(options, _FIELDS.get(name, name)) for name in sorted(options.asked)}
