"""Weak references by which no program can tell when a tensor ends.

Capture looks whether somebody refers weakly to a tensor that a frame drops: the program may ask its
reference then, so the graph ends there. What compiled code keeps of its results for the backward
nobody asks.
"""

from __future__ import annotations

import weakref
from typing import Any


class Reference(weakref.ref[Any]):
    """A weak reference of compiled code's own."""

    __slots__ = ()
