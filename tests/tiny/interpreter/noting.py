"""Whether a body was interpreted: each notes it for itself."""

from __future__ import annotations

import sys
import threading
from typing import Any

NOTES: list[tuple[str, bool]] = []


def note(name: str, value: Any = None) -> Any:
    """Of an interpreted frame the interpreter shows a frame object of its own."""
    frame = sys._getframe()
    native = sys._current_frames()[threading.get_ident()]
    NOTES.append((name, type(frame) is not type(native)))
    return value
