"""What there is to ask ``compile`` for."""

from __future__ import annotations

from typing import Any

from specs.options import MODES, OPTIONS, Option


def list_options() -> dict[str, Option]:
    """The options of the default backend and of the front end, by name.

    Each says its ``type``, its ``default``, all ``values`` where they are few, ``doc`` in one line,
    and, where it does nothing, on which ``device`` it does something or what it ``lacks``.
    """
    return {row.name: row for row in OPTIONS}


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
    """The options that ``mode`` sets; without one, those of each mode by its name.

    They are the same whatever ``dynamic`` says. Errors: ``ValueError`` for a mode that there is
    not, with those that there are.
    """
    if mode is None:
        return {row.name: dict(row.options) for row in MODES}
    if mode not in MODES:
        raise ValueError(f"there is no mode {mode!r}; there are {', '.join(MODES.names())}")
    return dict(MODES[mode].options)
