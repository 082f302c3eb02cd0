"""Operators that torch composes of others in C++, and asks symbolic sizes for numbers there.

Torch has compositions in Python of many of them that do not (``pad``, ``lstm``, 2.11's
``matmul``), and uses them while the Python dispatcher is on.
"""

from __future__ import annotations

from typing import Any

import torch


def python_composites() -> Any:
    """An object for as long as which torch composes operators in Python."""
    return torch._C._EnablePythonDispatcher()


#: Whether ``matmul`` and ``linear`` ask in C++, where each size would have a program of its own.
_ASKED = torch.__version__ < (2, 13)


def eager_composites(symbols: bool) -> Any:
    """The same, that torch composes operators as eager does, in C++: where ``symbols`` are sizes,
    if it does not ask them for numbers in products."""
    if symbols and _ASKED:
        return torch._C._EnablePythonDispatcher()
    return torch._C._DisablePythonDispatcher()
