"""Where CPython and torch keep what the guards of a tensor ask, found by looking.

Nothing is taken from a header: objects with known properties are made, one property is changed at a
time, and the bytes that follow it are the place. Reading stops at the last of them, so nothing is
read that lies behind the object. :class:`Unknown` where anything is not as expected: then guards
ask the tensors, which is slower. :mod:`refcompiler.guards.fingerprint` uses what is found here, and
:mod:`refcompiler.guards.tags` does the same for dicts; no other module reads memory by its address.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from typing import Any, NamedTuple

import torch

WORD = 8
RANK = 5  # up to which torch keeps sizes and strides in the tensor itself
_REST = (1 + 2 * RANK + 4) * WORD  # rank, sizes, strides, offset, elements, dtype, keys
_FAR = 24  # words: in no object are the places that are looked for further behind


class Unknown(Exception):
    """The layout is not one that this module can find."""


class Layout(NamedTuple):
    """Offsets in bytes, in each of four objects.

    ``items``: of the first item of a tuple. ``kind`` and ``pointer``: in a tensor as Python sees
    it, of its class and of the pointer to torch's own object; ``first`` and ``end``: in that, from
    the pointer to what autograd knows to the end of sizes, strides, dtype, device, flags and
    dispatch keys; ``storage``: in front of ``first``, the pointer to the memory. ``requires`` and
    ``function``: in what autograd knows, of the byte that says that gradients are wanted and of the
    pointers that are set when the tensor is computed from others.
    """

    items: int
    kind: int
    pointer: int
    storage: int
    first: int
    end: int
    requires: int
    function: tuple[int, ...]

    @property
    def rank(self) -> int:
        """Of the number of dimensions."""
        return self.end - _REST


def word(address: int) -> int:
    """The eight bytes at ``address`` as a number."""
    return struct.unpack("<Q", ctypes.string_at(address, WORD))[0]


def view(address: int, size: int) -> memoryview:
    """The bytes at ``address``, as they are whenever the view is read."""
    return memoryview(_bytes(size).from_address(address)).cast("B")


@functools.cache
def _bytes(size: int) -> Any:
    """An array's class, which ctypes would make again each time if nobody had it."""
    return ctypes.c_char * size


def find() -> Layout:
    """The layout of this process; :class:`Unknown` says what is not as expected."""
    check_interpreter()
    kind, pointer = _object()
    first, end = _tensor()
    storage = _storage(first)
    requires, function = _autograd(first)
    return Layout(find_items(), kind, pointer, storage, first, end, requires, function)


def check_interpreter() -> None:
    """:class:`Unknown` unless objects have addresses, and stay while the global lock is held."""
    if sys.implementation.name != "cpython" or sys.byteorder != "little" or sys.maxsize < 2**62:
        raise Unknown("only CPython on 64-bit little-endian machines is known")
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise Unknown("without the global lock an object may go while it is looked at")


def find_items() -> int:
    """The offset of a tuple's first item."""
    objects = [object() for _ in range(3)]
    found = tuple(objects)
    start = tuple.__basicsize__
    if [word(id(found) + start + WORD * i) for i in range(3)] != [*map(id, objects)]:
        raise Unknown("a tuple does not hold its items where it ends otherwise")
    return start


def _object() -> tuple[int, int]:
    """Of a tensor as Python sees it: the class, and the pointer to torch's object."""
    tensors = [torch.empty(2, device="cpu"), torch.nn.Parameter(torch.empty(2, device="cpu"))]
    kind, size = object.__basicsize__ - WORD, torch.Tensor.__basicsize__
    if any(word(id(value) + kind) != id(type(value)) for value in (*tensors, tensors)):
        raise Unknown("an object does not begin with its count and its class")
    places = [
        {at for at in range(kind + WORD, size, WORD) if word(id(tensor) + at) == tensor._cdata}
        for tensor in tensors
    ]
    if len(places[0]) != 1 or places[0] != places[1]:
        raise Unknown("a tensor does not hold one pointer to its implementation")
    return kind, places[0].pop()


def _tensor() -> tuple[int, int]:
    """Of torch's own object: from the pointer to autograd's to the end."""
    sizes, strides, offset = (3, 5, 7), (64, 8, 1), 11
    tensor = torch.empty(400, device="cpu").as_strided(sizes, strides, offset)
    start = tensor._cdata
    for at in range(2 * WORD, _FAR * WORD // 2, WORD):
        if tuple(word(start + at + WORD * i) for i in range(4)) == (len(sizes), *sizes):
            break
    else:
        raise Unknown("a tensor does not hold its sizes as a number and that many more")
    rest = [word(start + at + WORD * i) for i in range(1 + RANK, _REST // WORD)]
    keys = torch._C._dispatch_keys(tensor).raw_repr()
    if tuple(rest[: len(strides)]) != strides or rest[RANK : RANK + 2] != [offset, 105]:
        raise Unknown("strides, offset and the number of elements do not follow the sizes")
    if rest[RANK + 3] != keys:
        raise Unknown("dispatch keys do not come a word after the number of elements")
    plain = torch.empty(2, device="cpu")
    before = [word(plain._cdata + i) for i in range(2 * WORD, at, WORD)]
    plain.requires_grad_()
    after = [word(plain._cdata + i) for i in range(2 * WORD, at, WORD)]
    changed = [i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    if len(changed) != 1 or before[changed[0]]:
        raise Unknown("no one pointer to what autograd knows comes in front of the sizes")
    return (2 + changed[0]) * WORD, at + _REST


def _storage(first: int) -> int:
    """Of torch's own object: the pointer to the memory, in front of what is at ``first``."""
    tensor = torch.empty(2, device="cpu")
    own, places = tensor.untyped_storage()._cdata, range(WORD, first, WORD)
    found = [at for at in places if word(tensor._cdata + at) == own]
    if len(found) != 1:
        raise Unknown("a tensor does not hold one pointer to its memory in front of autograd's")
    return found[0]


def _autograd(first: int) -> tuple[int, tuple[int, ...]]:
    """Of what autograd knows: whether gradients are wanted, and what the tensor comes from."""
    tensor = torch.zeros(2, device="cpu", requires_grad=True)
    start = word(tensor._cdata + first)
    for at in range(WORD, _FAR * WORD):
        seen = []
        for wanted in (True, False, True, False):
            tensor.requires_grad_(wanted)
            seen.append(ctypes.string_at(start + at, 1)[0])
        if seen == [1, 0, 1, 0]:
            break
    else:
        raise Unknown("no byte says whether gradients are wanted")
    places = range(WORD, at - WORD + 1, WORD)
    before = [word(start + i) for i in places]
    tensor.add_(torch.ones(2, device="cpu", requires_grad=True))
    if word(tensor._cdata + first) != start:
        raise Unknown("what autograd knows of a tensor is elsewhere after a change in place")
    after = [word(start + i) for i in places]
    function = [i for i, old, new in zip(places, before, after, strict=True) if new and not old]
    if not function:
        raise Unknown("no pointer says what a tensor was computed from")
    return at, tuple(function)
