"""Whether tensors are as they were when their guards held, told by the bytes that say so.

A parameter lives as long as its module, so its guards read the same bytes at each call. Asking it
five questions takes five calls into torch; comparing the bytes behind the answers of all parameters
takes one. Equal bytes mean equal answers; where bytes differ, or nothing is known yet, the guards
are asked, and if they hold, these bytes are remembered. So what changes without meaning costs time
only, and what must never happen is that an answer changes and its bytes do not: the bytes are found
by :mod:`refcompiler.guards.layout` and tried (:func:`works`) when the first plan is made, and where
that fails nothing is remembered.

No memory of what is dead is read, and nothing is kept alive. The caller holds the tensors, in a
tuple. The addresses in it say whether they are the ones that are known. What is compared then goes
from an object to the next one that it owns, and stops where the first differs: the tensors as
Python sees them, with the pointers to torch's own; these, with the pointers to what autograd knows;
and that. All of it is one expression of builtins, within which no other thread gets the global
lock and no garbage is collected.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from ctypes import string_at
from operator import eq
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import _disable_current_modes

from refcompiler.guards.layout import RANK, WORD, Layout, Unknown, find, view
from refcompiler.guards.tensors import TensorMeta
from refcompiler.logs import log_of

FEW = 5  # tensors are asked in less time than they are compared
_KNOWN = 4  # as many tuples of objects are remembered
_OFTEN = 256  # at the latest after so many changes the bytes are remembered again
_HINTS = log_of("perf_hints")
_joined = b"".join

Views = list[list[memoryview]]


class Seen(NamedTuple):
    """What objects were like: what to read, in groups, and what was found there."""

    addresses: bytes
    views: Views
    found: list[bytes]


class Unchanged:
    """``unchanged(objects)``: they are known, and as they were.

    If they are not, ``look`` says how they are now; when their guards hold then, ``keep`` takes
    that for what is known, unless they have changed meanwhile. ``items``: the offset of a tuple's
    first item. ``seen(objects)``: their bytes, or :class:`Unknown` where these do not tell all.
    ``passing``: mostly they are others in each call, so that nothing is looked at before they were
    the same ones twice.
    """

    def __init__(
        self,
        items: int,
        seen: Callable[[tuple], tuple[Views, list[bytes]]],
        passing: bool = False,
    ):
        self._items = items
        self._seen = seen
        self._passing = passing
        self._before = b""  # the addresses at the last look
        self._known: dict[bytes, tuple[Views, list[bytes]]] = {}
        self._changes: dict[bytes, int] = {}

    def __call__(self, objects: tuple) -> bool:
        known = self._known.get(string_at(id(objects) + self._items, WORD * len(objects)))
        return known is not None and all(map(eq, map(_joined, known[0]), known[1]))

    def look(self, objects: tuple) -> Seen | None:
        """None where it is not worth the time, because they change all the time, or not known."""
        addresses = string_at(id(objects) + self._items, WORD * len(objects))
        if self._passing and addresses != self._before:
            self._before = addresses
            return None
        if not self._is_worth_it(addresses):
            return None
        try:
            return Seen(addresses, *self._seen(objects))
        except Unknown:
            return None

    def keep(self, objects: tuple, looked: Seen | None) -> None:
        """The guards of ``objects`` were found to hold after ``looked``."""
        if looked is not None and all(map(eq, map(_joined, looked.views), looked.found)):
            known = dict(self._known)
            known.pop(looked.addresses, None)
            if len(known) >= _KNOWN:
                del known[next(iter(known))]
            known[looked.addresses] = looked.views, looked.found
            self._known = known

    def _is_worth_it(self, addresses: bytes) -> bool:
        """Remembering takes as long as some hundred calls: less often the more often it happens."""
        changes = self._changes
        if addresses not in changes and len(changes) >= _KNOWN:
            addresses = b""  # of all others together
        times = changes[addresses] = changes.get(addresses, 0) + 1
        return times & (times - 1) == 0 or times % _OFTEN == 0


def of_tensors(layout: Layout, storages: bool = False, passing: bool = False) -> Unchanged:
    return Unchanged(layout.items, lambda tensors: seen(layout, tensors, storages), passing)


def seen(
    layout: Layout, tensors: tuple[torch.Tensor, ...], storages: bool = False
) -> tuple[Views, list[bytes]]:
    """The bytes of ``tensors``; :class:`Unknown` where they do not tell all that guards ask.
    ``storages``: these ask which memory is theirs, too.

    That is so of subclasses, which answer as they like; of more dimensions than are kept in the
    tensor; of what is computed from others, where an equal answer has many reasons; and of
    tensors of other sorts (sparse, nested, of a functional transformation, of inference mode), all
    of which have other dispatch keys than a new tensor on the device.
    """
    if not all(type(tensor) in (torch.Tensor, torch.nn.Parameter) for tensor in tensors):
        raise Unknown("a tensor of a subclass answers as it likes")
    size = layout.pointer + WORD - layout.kind
    views = [[view(id(tensor) + layout.kind, size) for tensor in tensors]]
    found = [_read(views, [])]
    pointers = [struct.unpack("<Q", part[-WORD:])[0] for part in _parts(found[0], size)]
    first = layout.storage if storages else layout.first
    size = layout.end - first
    views.append([view(pointer + first, size) for pointer in pointers])
    found.append(_read(views, found))
    autograd: list[memoryview] = []
    computed = []
    for tensor, part in zip(tensors, _parts(found[1], size), strict=True):
        places = layout.first - first, layout.rank - first, size - WORD
        known, rank, keys = (struct.unpack_from("<Q", part, at)[0] for at in places)
        if rank > RANK or keys != plain_keys(tensor.device.type):
            raise Unknown("a tensor of another sort, or of many dimensions")
        if known:
            autograd.append(view(known + layout.requires, 1))
            computed += [view(known + at, WORD) for at in layout.function]
    wanted = _read([*views, autograd], found)
    if not all(wanted):  # one that wants gradients itself is computed from nothing
        wanted = _read([*views, autograd + computed], found)
        if any(wanted[len(autograd) :]):
            raise Unknown("a tensor is computed from others")
        autograd += computed
    return [*views, autograd], [*found, wanted]


def _parts(joined: bytes, size: int) -> list[bytes]:
    return [joined[i : i + size] for i in range(0, len(joined), size)]


class _Next:
    """Equal to any bytes, which it keeps."""

    found = b""

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, bytes)
        self.found = other
        return True


def _read(views: Sequence[Sequence[memoryview]], found: Sequence[bytes]) -> bytes:
    """What the last of ``views`` show, if the others still show what was ``found``."""
    last = _Next()
    if not all(map(eq, map(_joined, views), [*found, last])):
        raise Unknown("a tensor was changed while it was looked at")
    return last.found


@functools.cache
def plain_keys(device: str) -> int:
    """The dispatch keys of a new tensor on devices of this type."""
    with torch.inference_mode(False):
        return torch._C._dispatch_keys(torch.empty(0, device=device)).raw_repr()


def _to(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    def apply(tensor: torch.Tensor) -> None:
        tensor.data = change(tensor.data)

    return apply


#: Ways to change what the guards of a tensor ask, one each.
CHANGES: dict[str, Callable[[Any], Any]] = {
    "dtype": _to(torch.Tensor.double),
    "one size": _to(lambda data: data[:1]),
    "sizes, with as many elements": _to(lambda data: data.reshape(6, 1)),
    "strides": _to(lambda data: data.t().contiguous().t()),
    "more dimensions": _to(lambda data: data[None]),
    "many dimensions": _to(lambda data: data[None, None, None, None]),
    "fewer dimensions": _to(lambda data: data.flatten()),
    "device": _to(lambda data: data.to("meta")),
    "conjugate": _to(lambda data: data.to(torch.complex64).conj()),
    "negative": _to(torch._neg_view),
    "gradients": lambda tensor: tensor.requires_grad_(not tensor.requires_grad),
    "computed in place": lambda tensor: tensor.add_(torch.ones(3, requires_grad=True)),
    "class": lambda tensor: setattr(tensor, "__class__", _Subclass),
    "another memory": _to(torch.clone),
    "another in its place": lambda tensor: torch.utils.swap_tensors(tensor, torch.ones(4, 4)),
}


class _Subclass(torch.nn.Parameter):
    pass


def works(layout: Layout) -> None:
    """Try each of :data:`CHANGES`; :class:`Unknown` where the bytes do not say that there was one.

    A change that this torch refuses is none.
    """
    for name, change in CHANGES.items():
        for make in (torch.Tensor.detach, torch.nn.Parameter, _once_wanted):
            tensors = tuple([make(torch.ones(2, 3, device="cpu")) for _ in range(2)])
            kinds = of_tensors(layout), of_tensors(layout, storages=True)
            for unchanged in kinds:
                unchanged.keep(tensors, unchanged.look(tensors))
            written, changed = tensors
            written.detach().zero_()
            if not all(unchanged(tensors) for unchanged in kinds):
                raise Unknown("tensors show other bytes though nothing has changed")
            before = TensorMeta.of(changed), changed.untyped_storage()._cdata
            try:
                change(changed)
            except Exception:
                continue
            now = TensorMeta.of(changed), changed.untyped_storage()._cdata
            differs = now[0] != before[0], now != before
            if any(other and same(tensors) for other, same in zip(differs, kinds, strict=True)):
                raise Unknown(f"tensors show the same bytes after a change: {name}")


def _once_wanted(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.requires_grad_().requires_grad_(False)


@functools.cache
def _layout() -> Layout | None:
    try:
        with _disable_current_modes(), torch.inference_mode(False), torch.enable_grad():
            layout = find()
            works(layout)
    except Exception as why:  # of a torch that lacks what is asked, too
        _HINTS.info("guards ask each parameter at each call, which takes longer: %s", why)
        return None
    return layout


def unchanged(storages: bool = False, passing: bool = False) -> Unchanged | None:
    """A new memory of tensors; None where this Python or torch is not one that can be read.
    ``storages``: whether the same tensors with other memory are others; ``passing``: as in
    :class:`Unchanged`."""
    layout = _layout()
    return None if layout is None else of_tensors(layout, storages, passing)
