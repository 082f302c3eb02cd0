"""``one_hot`` in a trace, with the look at the values that eager takes first.

What torch makes of it for tensors without values is comparisons, which any value may meet.
"""

from __future__ import annotations

from typing import Any

import torch

from refcompiler.aot.inputs import Runner
from refcompiler.fakes.composed import laid

_assert = torch.ops.aten._assert_async.msg


def one_hot(runner: Runner, target: Any, classes: Any, num_classes: Any = -1) -> Any:
    """``one_hot``. On other devices eager has another look: an assertion of the device's."""
    known = classes.dtype == torch.int64 and num_classes != -1
    if known and classes.device.type == "cpu":
        _assert((classes >= 0).all(), "Class values must be non-negative.")
        below = classes < num_classes
        _assert(below.all(), "Class values must be smaller than num_classes.")
    return laid(target, target(classes, num_classes), (classes,), {})
