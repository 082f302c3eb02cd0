"""Where the cache is, and whether that place is the user's alone.

What lies there is run: kernels are machine code. So a folder that others could have written to is
refused, and nothing is cached; a new one is made for the user alone.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

VARIABLE = "REFCOMPILER_CACHE_DIR"


class Refused(Exception):
    """A folder that the cache cannot be in; the message says why and what to do."""


def base() -> Path:
    """``REFCOMPILER_CACHE_DIR``, or ``refcompiler`` in the user's folder for caches."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "refcompiler"


def make(path: Path) -> None:
    """``path`` and what is missing above it, for the user alone. Raises ``OSError``."""
    if not path.is_dir():
        make(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def private(path: Path) -> Path:
    """``path``, a folder of the user alone, made if it does not exist.

    Raises :class:`Refused` for one that belongs to another user or is open to any, for what is no
    folder, and where none can be made.
    """
    try:
        make(path)
        found = path.lstat()
    except OSError as error:
        raise Refused(f"{path} cannot be a cache ({error}); name another by {VARIABLE}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise Refused(f"{path} is no folder of its own but a link; name another by {VARIABLE}")
    if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
        raise Refused(f"{path} belongs to another user; name a folder of yours by {VARIABLE}")
    if os.name == "posix" and stat.S_IMODE(found.st_mode) & 0o077:
        raise Refused(f"{path} is open to other users; chmod 700 it, or name another by {VARIABLE}")
    return path
