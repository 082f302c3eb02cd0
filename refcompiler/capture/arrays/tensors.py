"""The ways between arrays and tensors, and tensors of Python's sequences of tensors."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from refcompiler.capture.arrays.array import Array, is_scalar, of_tensor
from refcompiler.capture.models.registry import operation
from refcompiler.capture.numbers import leaves_of, shape_of, tensor_of
from refcompiler.capture.signals import Break


def check(tensor: torch.Tensor) -> None:
    """As ``Tensor.numpy`` refuses."""
    if tensor.requires_grad:
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
    if tensor.device.type != "cpu" or tensor.is_conj() or tensor.is_neg():
        raise Break("operation-not-modelled", "Tensor.numpy")
    if tensor.dtype is torch.bfloat16 or tensor.layout is not torch.strided:
        raise Break("operation-not-modelled", f"Tensor.numpy of {tensor.dtype}")


_ARITHMETIC = frozenset({operator.add, operator.sub, operator.mul, operator.truediv})


def with_scalar(m: Any, function: Any, a: Any, b: Any) -> Any:
    """A tensor and one of numpy's scalars, which torch takes for a number; or NotImplemented.

    A tensor of no dimension that has the number gives its dtype neither, in what is asked here.
    """
    if function not in _ARITHMETIC or m.recorder.modes or m.recorder.kinds:
        return NotImplemented
    tensor, scalar = (b, a) if type(a) is Array else (a, b)
    if type(scalar) is not Array or not is_scalar(scalar):
        return NotImplemented
    number = scalar._tensor
    if not tensor.dim() or number.dim() or number.is_complex() or number.requires_grad:
        return NotImplemented
    if tensor.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    if scalar is not a:
        return m.operate(function, tensor, number)
    if function is operator.sub and tensor.requires_grad:
        return NotImplemented  # autograd's node would be another one
    if function is operator.truediv:  # as ``Tensor.__rtruediv__`` does
        return m.operate(operator.mul, m.operate(torch.reciprocal, tensor), number)
    return m.operate(function, number, tensor)


def array_of(m: Any, tensor: torch.Tensor) -> Array:
    """``numpy.asarray(tensor)``."""
    check(tensor)
    return of_tensor(m, tensor.data)


@operation("numpy")
def _numpy(m: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    tensor, *rest = [m.force(a) for a in args]
    if rest or kwargs.keys() - {"force"} or not issubclass(type(tensor), torch.Tensor):
        return NotImplemented
    if m.force(kwargs.get("force", False)):
        tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    return array_of(m, tensor)


@operation("from_numpy")
def _from_numpy(m: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    array = m.force(args[0]) if len(args) == 1 else None
    if type(array) is not Array or is_scalar(array):
        return NotImplemented
    if not array._standin.flags.writeable:
        raise Break("operation-not-modelled", "from_numpy of an array that is read only")
    return _over(m, array)


def _over(m: Any, array: Array) -> torch.Tensor:
    """A tensor of its own over the memory of ``array``."""
    tensor = array._tensor
    if id(array) in m.external and id(array) not in m.given_out:
        m.given_out.add(id(array))
        return tensor
    return tensor.data


@operation("as_tensor", "asarray", "tensor")
def _tensor(m: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    """Of an array, or of symbols; what else there is is left to the door."""
    array = m.force(args[0]) if args else None
    name = function.__name__
    if m.sizes.env is not None and len(args) == 1 and not kwargs.keys() - {"dtype", "device"}:
        made = tensor_of(array, **{key: m.force(value) for key, value in kwargs.items()})
        if made is not NotImplemented:
            return made
    if name != "asarray" and type(array) in (list, tuple):
        return _of_elements(m, array, args[1:], kwargs)
    if type(array) is not Array:
        return NotImplemented
    rest = [m.force(a) for a in args[1:]]
    named = {key: m.force(value) for key, value in kwargs.items()}
    dtype = named.pop("dtype", rest.pop(0) if rest else None)
    if rest or named:
        raise Break("operation-not-modelled", f"torch.{name} of an array with options")
    if name == "tensor" or is_scalar(array):
        return array._tensor.to(dtype or array._tensor.dtype, copy=True)
    if not array._standin.flags.writeable:
        raise Break("operation-not-modelled", f"torch.{name} of an array that is read only")
    shared = _over(m, array)
    return shared if dtype is None else shared.to(dtype)


def from_data(m: Any, array: Array, dtype: torch.dtype) -> torch.Tensor:
    """An array as a tensor over its memory, or of its contents where ``dtype`` is another one."""
    return _tensor(m, torch.as_tensor, (array,), {"dtype": dtype})


def _of_elements(m: Any, items: Any, args: Sequence, kwargs: Mapping) -> Any:
    """``torch.tensor`` of tensors with one element each, and numbers: their contents, stacked.

    The dtype is what ``torch.promote_types`` makes of all of them.
    """
    found = _nested(m, items)
    leaves = list(leaves_of(found))
    tensors = [leaf for leaf in leaves if issubclass(type(leaf), torch.Tensor)]
    if not tensors or not all(map(_is_element, tensors)):
        return NotImplemented
    numbers = [leaf for leaf in leaves if not issubclass(type(leaf), torch.Tensor)]
    if not all(type(number) in _NUMBERS for number in numbers):
        return NotImplemented
    named = {key: m.force(value) for key, value in kwargs.items()}
    elsewhere = torch.get_default_device().type != "cpu"
    if args or named.keys() - {"dtype"} or shape_of(found) is None or elsewhere:
        return NotImplemented
    dtypes = [leaf.dtype for leaf in tensors] + [_dtype(number) for number in numbers]
    inferred = functools.reduce(torch.promote_types, dtypes)
    dtype = named.get("dtype") or inferred
    if dtype != inferred and not (dtype.is_floating_point or dtype.is_complex):
        return NotImplemented  # which eager takes for some values only
    return _stacked(found, dtype)


_NUMBERS = frozenset({int, float, bool, complex})


def _nested(m: Any, items: Any) -> Any:
    """Lists for the lists and tuples of ``items``."""
    items = m.force(items)
    return [_nested(m, item) for item in items] if type(items) in (list, tuple) else items


def _is_element(tensor: torch.Tensor) -> bool:
    return not tensor.dim() and not tensor.requires_grad and tensor.device.type == "cpu"


def _dtype(number: complex) -> torch.dtype:
    """What ``torch.tensor(number)`` has."""
    if type(number) in (bool, int):
        return torch.bool if type(number) is bool else torch.int64
    real = torch.get_default_dtype()
    return real.to_complex() if type(number) is complex else real


def _stacked(items: Any, dtype: torch.dtype) -> torch.Tensor:
    if type(items) is list:
        return torch.stack([_stacked(item, dtype) for item in items])
    if issubclass(type(items), torch.Tensor):
        return items if items.dtype == dtype else items.to(dtype)
    return torch.tensor(items, dtype=dtype)
