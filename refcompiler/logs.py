"""Logs: what a compilation tells, chosen by name in the environment or by a call.

``REFCOMPILER_LOGS=guards,recompiles`` turns logs on when the package is first used; names that it
shares with ``TORCH_LOGS`` are read from there too. Each log is a logger of :mod:`logging` called
``refcompiler.<name>`` that speaks at level INFO, so that handlers of the user's work as well.
"""

from __future__ import annotations

import logging
import os
import sys

from specs.logs import LOGS

_FORMAT = "[%(name)s] %(message)s"


class _ToStandardError(logging.StreamHandler):
    """Writes to what ``sys.stderr`` is when it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


_HANDLER = _ToStandardError()
_SHARED = logging.getLogger("refcompiler")
if _SHARED.level == logging.NOTSET:
    # A program whose root logger tells INFO has not asked for these: logs are chosen by name.
    _SHARED.setLevel(logging.WARNING)


def log_of(name: str) -> logging.Logger:
    """The logger of the row ``name``."""
    return logging.getLogger(f"refcompiler.{LOGS[name].name}")


def wanted(logger: logging.Logger) -> bool:
    """Whether to make a text for it: some are long."""
    return logger.isEnabledFor(logging.INFO)


def set_logs(**chosen: bool) -> None:
    """Turn logs on and off: ``set_logs(guards=True, recompiles=False)``; others stay as they are.

    Errors: ``ValueError`` for an unknown name and ``TypeError`` for what is no bool; then nothing
    is changed.
    """
    for name, on in chosen.items():
        _check(name, "set_logs")
        if not isinstance(on, bool):
            raise TypeError(f"set_logs: {name} takes True or False, not {on!r}")
    for name, on in chosen.items():
        log_of(name).setLevel(logging.INFO if on else logging.NOTSET)
    if any(log_of(row.name).level == logging.INFO for row in LOGS):
        if _HANDLER not in _SHARED.handlers:
            _SHARED.addHandler(_HANDLER)
    else:
        _SHARED.removeHandler(_HANDLER)


def from_environment() -> None:
    """What the environment asks for. Errors: ``ValueError`` for a name in ``REFCOMPILER_LOGS``."""
    names = _names(os.environ.get("REFCOMPILER_LOGS", ""))
    for name in names:
        _check(name, "REFCOMPILER_LOGS")
    names += [name for name in _names(os.environ.get("TORCH_LOGS", "")) if name in LOGS]
    if names:
        set_logs(**dict.fromkeys(names, True))


def _names(text: str) -> list[str]:
    """``"+guards, recompiles"``: torch's sign for more detail means no more here."""
    return [part.strip().lstrip("+") for part in text.split(",") if part.strip()]


def _check(name: str, where: str) -> None:
    if name not in LOGS:
        known = ", ".join(row.name for row in LOGS)
        raise ValueError(f"{where}: no log is named {name!r}; there are {known}")
