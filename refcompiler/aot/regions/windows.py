"""The inverse of a short-time Fourier transform, which looks at whether its windows overlap.

ATen asks for a Python truth value in the middle of its composition. Only one answer goes on, so the
graph has the operators behind that, and a check that raises eager's error where it is the other.
"""

from __future__ import annotations

from typing import Any

import torch

from refcompiler.aot.inputs import Runner, Unsupported
from refcompiler.dispatching import DispatchMode

_aten = torch.ops.aten
#: Those that are taken apart: functions, and the method.
FUNCTIONS = [torch.istft, _aten.istft.default, "istft"]


def inverse(runner: Runner, target: Any, *args: Any, **kwargs: Any) -> Any:
    """What ``target`` gives where windows overlap everywhere."""
    call = getattr(torch.Tensor, target) if isinstance(target, str) else target
    with _Overlapping():
        return call(*args, **kwargs)


class _Overlapping(DispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not _aten.equal.default:
            return func(*args, **(kwargs or {}))
        gap = args[0]
        if gap.device.type != "cpu":  # where a check that fails ends all that the process does
            raise Unsupported(f"istft looks at values on a device of type {gap.device.type}")
        _aten._assert_async.msg(gap.logical_not(), _MESSAGE)
        return False


#: As ATen's, with how it prints a tensor of one truth value.
_MESSAGE = "window overlap add min: 1\n[ CPUBoolType{} ]"
