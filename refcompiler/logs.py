"""Logs: what a compilation tells, chosen by name in the environment or by a call.

``REFCOMPILER_LOGS=guards,recompiles`` turns logs on when the package is first used (``all`` turns
on all of them, ``all,-plan`` all but one, and ``help`` tells which there are); names that it shares
with ``TORCH_LOGS`` are read from there too. Each log is a logger of :mod:`logging` called
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
    """What the environment asks for.

    A name of ``REFCOMPILER_LOGS`` turns its log on, ``-name`` off again, ``all`` turns all of them
    on, and ``help`` tells which there are. An unknown name is told, in one line, and nothing else:
    a program is not ended for what it may tell.
    """
    chosen: dict[str, bool] = {}
    for name, on in _asked(os.environ.get("TORCH_LOGS", "")):
        if name in LOGS:
            chosen[name] = on
    for name, on in _asked(os.environ.get("REFCOMPILER_LOGS", "")):
        if name == "help":
            print(_help(), file=sys.stderr)
        elif name == "all":
            chosen |= dict.fromkeys([row.name for row in LOGS], on)
        elif name in LOGS:
            chosen[name] = on
        else:
            print(_unknown(name, "REFCOMPILER_LOGS"), file=sys.stderr)
    if chosen:
        set_logs(**chosen)


def _asked(text: str) -> list[tuple[str, bool]]:
    """``"+guards, -recompiles"``: torch's sign for more detail means no more here."""
    parts = [part.strip() for part in text.split(",")]
    return [(part.lstrip("+-").strip(), not part.startswith("-")) for part in parts if part]


def _help() -> str:
    width = max(len(row.name) for row in LOGS)
    lines = [f"  {row.name:{width}}  {row.doc}" for row in LOGS]
    head = "REFCOMPILER_LOGS takes names of logs with commas between them, -name for all but that,"
    return "\n".join([f"{head} and all:", *lines])


def _check(name: str, where: str) -> None:
    if name not in LOGS:
        raise ValueError(_unknown(name, where))


def _unknown(name: str, where: str) -> str:
    known = ", ".join(row.name for row in LOGS)
    return f"{where}: no log is named {name!r}; there are {known}"
