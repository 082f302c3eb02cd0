"""Dispatch modes that leave torch's own compiler out.

Torch wraps ``__torch_dispatch__`` of each class of modes in a switch that keeps its compiler away,
and the switch imports that compiler, with all that it needs: a third of the first call of a
process. Nothing of ours is compiled by it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """A mode of which each subclass's ``__torch_dispatch__`` is called as it is written."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def dispatch_of(mode: type[TorchDispatchMode]) -> Callable[..., Any]:
    """What the class ``mode`` of torch's defines as its ``__torch_dispatch__``, without wrappers:
    a function of the mode, and of what dispatch gives."""
    return inspect.unwrap(mode.__torch_dispatch__)
