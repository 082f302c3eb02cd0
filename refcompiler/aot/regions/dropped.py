"""Dropout that drops nothing: eager gives its input itself.

With symbols for sizes and torch before 2.13 a graph is traced with torch's compositions in Python,
of which this one copies: what the program writes to one of both later would not show in the other.
"""

from __future__ import annotations

from typing import Any

import torch

from refcompiler.aot.inputs import Runner

FUNCTIONS = [torch.nn.functional.dropout, torch.dropout, torch.ops.aten.dropout.default]


def dropout(runner: Runner, target: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    """What ``target`` gives: of ``(input, p=0.5, training=True)``, by whichever names."""
    p = args[0] if args else kwargs.get("p", 0.5)
    training = args[1] if len(args) > 1 else kwargs.get("training", kwargs.get("train", True))
    if isinstance(input, torch.Tensor) and (not training or p == 0):
        return input
    return target(input, *args, **kwargs)
