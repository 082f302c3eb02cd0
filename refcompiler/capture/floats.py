"""Python's floats that are known only when the graph runs, as tensors of no dimension.

They are of double precision and compute as Python's floats do; :meth:`Recorder.check_floats` sees
to it that they give their dtype to nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from refcompiler.capture.signals import Break


def arithmetic(m: Any, function: Callable, a: Any, b: Any) -> Any:
    """``function(a, b)`` where one is such a number, or NotImplemented.

    Torch has short cuts for a Python number beside a tensor that round differently from
    Python's own arithmetic, so that both become tensors.
    """
    floats = m.recorder.floats
    if type(a) in (int, float) and id(b) in floats:
        a = torch.scalar_tensor(a, dtype=torch.float64)
    elif type(b) in (int, float) and id(a) in floats:
        b = torch.scalar_tensor(b, dtype=torch.float64)
    elif id(a) not in floats or id(b) not in floats:
        return _with_scalar(floats, function, a, b)
    if function not in (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow):
        raise Break("data-dependent-value", f"{function.__name__} of a Python number")
    found = function(a, b)
    floats[id(found)] = found
    return found


_PLAIN = (operator.add, operator.sub, operator.mul, operator.truediv)


def _with_scalar(floats: Any, function: Callable, a: Any, b: Any) -> Any:
    """A tensor of no dimension takes a Python float in its own dtype."""
    for number, other in ((a, b), (b, a)):
        if id(number) in floats and issubclass(type(other), torch.Tensor):
            if other.dim() or not other.is_floating_point() or function not in _PLAIN:
                return NotImplemented
            cast = number.to(other.dtype)
            if number is a and function is operator.truediv:
                return other.reciprocal() * cast  # as torch divides a number by a tensor
            return function(cast, b) if number is a else function(a, cast)
    return NotImplemented
