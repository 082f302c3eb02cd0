"""Imports of large packages, which the collector does not go through meanwhile.

It looks through all that there is whenever the youngest objects are many, and of what packages
define nearly nothing ever goes: that was a fourth of the first call of a process.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """The collector rests inside, if it was on; then what modules have made is old to it, so that
    it comes upon that when it goes through everything, and not before."""
    collects, modules = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if collects:
            if len(sys.modules) != modules and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()  # into the oldest generation
            gc.enable()
