"""Python's floats that are known only when the graph runs, as tensors of no dimension.

They are of double precision and compute as Python's floats do; :meth:`Recorder.check_floats` sees
to it that they give their dtype to nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from refcompiler.capture.models.registry import model, operation
from refcompiler.capture.signals import Break
from refcompiler.naming import operation_name

#: Python's numbers, and symbols for those that are others at each call.
_NUMBERS = (int, float, torch.SymInt, torch.SymFloat)


def arithmetic(m: Any, function: Callable, a: Any, b: Any) -> Any:
    """``function(a, b)`` where one is such a number, or NotImplemented.

    Torch has short cuts for a Python number beside a tensor that round differently from
    Python's own arithmetic, so that both become tensors.
    """
    floats = m.recorder.floats
    if type(a) in _NUMBERS and id(b) in floats:
        a = torch.scalar_tensor(a, dtype=torch.float64)
    elif type(b) in _NUMBERS and id(a) in floats:
        b = torch.scalar_tensor(b, dtype=torch.float64)
    elif id(a) not in floats or id(b) not in floats:
        return _with_scalar(floats, function, a, b)
    if function not in (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow):
        raise Break("data-dependent-value", f"{function.__name__} of a Python number")
    found = function(a, b)
    floats[id(found)] = found
    return found


def extreme(m: Any, function: Callable, values: Any) -> Any:
    """``max`` or ``min`` of two numbers of which one is such a number, or NotImplemented."""
    floats = m.recorder.floats
    if not floats or type(values) not in (list, tuple) or len(values) != 2:
        return NotImplemented
    given = [m.force(value) for value in values]
    if not any(id(value) in floats for value in given):
        return NotImplemented
    choose = torch.maximum if function is max else torch.minimum
    found = choose(*[_tensor(floats, value) for value in given])
    floats[id(found)] = found
    return found


def _tensor(floats: Any, value: Any) -> torch.Tensor:
    if id(value) in floats:
        return value
    if type(value) not in _NUMBERS:
        raise Break("data-dependent-value", "a Python number beside another object")
    return torch.scalar_tensor(value, dtype=torch.float64)


def larger(value: Any, limit: float, yes: Any, no: Any) -> Any:
    """``yes`` where ``value`` is above ``limit``, else ``no``: two tensors, or two numbers."""
    return yes if value > limit else no


@model(larger)
def _larger(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    value, limit, *choices = [m.force(arg) for arg in args]
    floats = m.recorder.floats
    if id(value) not in floats:
        return choices[not value > limit]
    numbers = all(id(choice) in floats or type(choice) in _NUMBERS for choice in choices)
    if numbers:
        choices = [_tensor(floats, choice).view(()) for choice in choices]
    found = torch.where(torch.gt(value, limit), *choices)
    if numbers:
        floats[id(found)] = found
    return found


_PLAIN = (operator.add, operator.sub, operator.mul, operator.truediv)
_INPLACE = (operator.iadd, operator.isub, operator.imul, operator.itruediv)


def _with_scalar(floats: Any, function: Callable, a: Any, b: Any) -> Any:
    """A tensor of no dimension takes a Python float in its own dtype.

    So does one with dimensions, where torch asks only it for the dtype of the result.
    """
    if id(b) in floats and _is_scalar(a) and function in (*_PLAIN, *_INPLACE):
        found = function(a.view(1), b)
        return a if function in _INPLACE else found.view(())
    if id(a) in floats and function is operator.truediv and issubclass(type(b), torch.Tensor):
        # as torch divides a number by a tensor
        return (b.view(1).reciprocal() * a).view(()) if _is_scalar(b) else b.reciprocal() * a
    if id(a) in floats and _is_scalar(b) and function in _PLAIN:
        return function(a, b.view(1)).view(())
    return NotImplemented


def _is_scalar(value: Any) -> bool:
    return (
        issubclass(type(value), torch.Tensor)
        and not value.dim()
        and value.is_floating_point()
        and not (torch.is_grad_enabled() and value.requires_grad and value.is_leaf)
    )


#: Methods that take a number as the operators do.
_METHODS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "add_": operator.iadd,
    "sub_": operator.isub,
    "mul_": operator.imul,
    "div_": operator.itruediv,
}


@operation(*_METHODS)
def _method(m: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    if kwargs.keys() == {"alpha"}:
        given = [m.force(value) for value in (*args, kwargs["alpha"])]
        return _scaled(operation_name(function), *given) if len(given) == 3 else NotImplemented
    floats = m.recorder.floats
    if not floats or kwargs or len(args) != 2:
        return NotImplemented
    a, b = [m.force(value) for value in args]
    if id(b) not in floats or id(a) in floats:
        return NotImplemented
    return _with_scalar(floats, _METHODS[operation_name(function)], a, b)


_ROUNDED_ONCE = (torch.float32, torch.float64)


def _scaled(name: str, a: Any, b: Any, alpha: Any) -> Any:
    """``a.add(b, alpha=alpha)`` where a tensor says by how much, for whose number torch would ask.

    Its kernels round once, after the sum; the product of two floats is exact in double precision,
    and ``addcmul`` rounds doubles once. Those of shorter floats round once or twice, by the place
    of the element.
    """
    if not all(issubclass(type(value), torch.Tensor) for value in (a, b, alpha)):
        return NotImplemented
    if alpha.dim() or not alpha.is_floating_point():
        return NotImplemented
    if a.dtype not in _ROUNDED_ONCE or b.dtype is not a.dtype or not a.dim():
        return NotImplemented
    if torch.is_grad_enabled() and (a.requires_grad or b.requires_grad or alpha.requires_grad):
        return NotImplemented
    if a.dtype is torch.float64:
        factor = alpha.double().mul(-1 if name.startswith("sub") else 1)
        return (a.addcmul_ if name.endswith("_") else a.addcmul)(b, factor.expand(b.shape))
    factor = alpha.to(torch.float32).double()
    product = b.double().mul(factor)
    found = a.double()
    found = (found.sub(product) if name.startswith("sub") else found.add(product)).float()
    return a.copy_(found) if name.endswith("_") else found


@operation(*[f"_foreach_{name}" for name in _METHODS])
def _foreach(m: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    """Over a list of numbers torch works on one tensor after the other."""
    name = operation_name(function).removeprefix("_foreach_")
    if kwargs.keys() == {"alpha"} and len(args) == 2:
        return _foreach_scaled(m, name, *[m.force(value) for value in (*args, kwargs["alpha"])])
    floats = m.recorder.floats
    if not floats or kwargs or len(args) != 2:
        return NotImplemented
    tensors, numbers = [m.force(value) for value in args]
    if type(numbers) not in (list, tuple) or len(numbers) != len(tensors):
        return NotImplemented
    if not any(id(b) in floats and _is_scalar(a) for a, b in zip(tensors, numbers, strict=True)):
        return NotImplemented
    found = []
    for a, b in zip(tensors, numbers, strict=True):
        made = NotImplemented
        if id(b) in floats:
            made = _with_scalar(floats, _METHODS[name], a, b)
        found.append(getattr(a, name)(b) if made is NotImplemented else made)
    return None if name.endswith("_") else tuple(found)


def _foreach_scaled(m: Any, name: str, tensors: Any, others: Any, alpha: Any) -> Any:
    if type(tensors) not in (list, tuple) or type(others) not in (list, tuple):
        return NotImplemented
    if not issubclass(type(alpha), torch.Tensor) or len(tensors) != len(others) or not tensors:
        return NotImplemented
    pairs = [(m.force(a), m.force(b)) for a, b in zip(tensors, others, strict=True)]
    if not all(_is_rounded_once(t) for pair in pairs for t in pair):
        return NotImplemented
    found = [_scaled(name, a, b, alpha) for a, b in pairs]
    if any(value is NotImplemented for value in found):
        raise Break("data-dependent-value", f"_foreach_{name}")
    return None if name.endswith("_") else tuple(found)


def _is_rounded_once(value: Any) -> bool:
    return (
        issubclass(type(value), torch.Tensor) and value.dtype in _ROUNDED_ONCE and value.dim() > 0
    )
