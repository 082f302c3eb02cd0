"""Operators that torch composes of others in C++, and asks symbolic sizes for numbers there.

Some releases (2.11's ``matmul`` is one) have compositions in Python that do not, and use them while
the Python dispatcher is on.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from refcompiler.shapes.env import ShapeEnv


@functools.cache
def needed() -> bool:
    """Whether a product of matrices fixes symbolic sizes, or raises, without that dispatcher."""
    env = ShapeEnv()
    # Whoever asks may be in the middle of a capture.
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        with FakeTensorMode(shape_env=env) as mode:
            mode.cache_enabled = False
            width = env.size(9)
            x = torch.empty(env.size(5), env.size(7), width)
            try:
                x @ x.mT
                x @ torch.empty(width, 3)
            except RuntimeError:
                return True
    return bool(env.relations)


def python_composites() -> Any:
    """An object for as long as which torch composes operators in Python, or None."""
    return torch._C._EnablePythonDispatcher()
