"""The memory of numpy's arrays as tensors, and arrays over the memory of others.

Arrays that are views of one share its memory, and so do arrays and the tensors that they were made
from. Tensors of the same storage are known to share theirs, so the tensors of such arrays are given
one storage: that of the array, or of the tensor, which owns the memory.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

#: id of an array that owns its memory -> it, and the storage over it, while that is alive.
_SHARED: dict[int, tuple[weakref.ref, StorageWeakRef]] = {}


def array_tensor(array: Any) -> torch.Tensor:
    """The tensor over the memory of a numpy array: of the storage that its owner's tensor has."""
    storage = _storage(array)
    if storage is not None:
        place = array.__array_interface__["data"][0] - storage.data_ptr()
        size = array.itemsize
        steps = [step // size for step in array.strides]
        last = sum([(n - 1) * step for n, step in zip(array.shape, steps, strict=True)])
        if array.size and place >= 0 and place % size == 0:
            if place + (last + 1) * size <= storage.nbytes():
                dtype = getattr(torch, array.dtype.name)
                return _over(storage, dtype, place // size, array.shape, steps)
    return _from_numpy(array)


def _over(storage: torch.UntypedStorage, dtype: torch.dtype, *layout: Any) -> torch.Tensor:
    return torch.empty(0, dtype=dtype, device="cpu").set_(storage, *layout)


def _from_numpy(array: Any) -> torch.Tensor:
    if array.flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():  # what is read only is not written to by any graph
        warnings.simplefilter("ignore")
        return torch.from_numpy(array)


def _storage(array: Any) -> torch.UntypedStorage | None:
    """The storage over the memory of which ``array`` is a part, if torch can make one."""
    owner, base = array, array.base
    while base is not None:
        if type(base) is torch.Tensor:
            return base.untyped_storage()
        if not hasattr(base, "__array_interface__"):
            break
        owner, base = base, getattr(base, "base", None)
    known = _SHARED.get(id(owner))
    if known is not None and known[0]() is owner:
        storage = torch.UntypedStorage._new_with_weak_ptr(known[1].cdata)
        if storage is not None:
            return storage
    try:
        storage = _from_numpy(owner).untyped_storage()
    except (TypeError, ValueError):  # of a dtype or layout that torch does not have
        return None
    number = id(owner)
    gone = weakref.ref(owner, lambda ref: _forget(number, ref))
    _SHARED[number] = gone, StorageWeakRef(storage)
    return storage


def _forget(number: int, ref: weakref.ref) -> None:
    known = _SHARED.get(number)
    if known is not None and known[0] is ref:
        del _SHARED[number]


def array_view(
    base: Any,
    dtype: Any,
    shape: Sequence[int],
    offset: int,
    strides: Sequence[int],
    writeable: bool,
) -> Any:
    """The array ``offset`` bytes into ``base``, and a view of it as numpy makes views.

    Where the memory's owner is not contiguous it is an array over the same memory.
    """
    import numpy

    owner = base
    while type(owner.base) is numpy.ndarray:
        owner = owner.base
    if owner.flags.c_contiguous:
        offset += _address(base) - _address(owner)
        made = numpy.ndarray(shape, dtype, owner, offset, strides)
    else:
        tensor, size = array_tensor(base), dtype.itemsize
        start = (tensor.storage_offset() * base.itemsize + offset) // size
        steps = [step // size for step in strides]
        kind = getattr(torch, dtype.name)
        made = _over(tensor.untyped_storage(), kind, start, shape, steps).numpy()
    if not writeable:
        made.flags.writeable = False
    return made


def _address(array: Any) -> int:
    return array.__array_interface__["data"][0]
