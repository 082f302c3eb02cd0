"""Guards of tensors: what a TENSOR guard expects, its text, and metadata beyond it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from refcompiler.guards.sources import Source

#: Metadata of a tensor that TENSOR does not hold, guarded when a program reads it.
METADATA = frozenset(
    "is_leaf output_nr storage_offset _is_view is_shared is_pinned retains_grad".split()
    + ["is_inference"]
)
#: Those of them that are methods.
CALLED = frozenset("storage_offset _is_view is_shared is_pinned is_inference".split())


class TensorMeta(NamedTuple):
    """What a TENSOR guard expects."""

    cls: type
    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]
    device: torch.device
    requires_grad: bool
    conj: bool
    neg: bool

    @staticmethod
    def of(tensor: torch.Tensor) -> TensorMeta:
        return TensorMeta(
            type(tensor),
            tensor.dtype,
            tensor.shape,
            tensor.stride(),
            tensor.device,
            tensor.requires_grad,
            tensor.is_conj(),
            tensor.is_neg(),
        )

    @staticmethod
    def told(tensor: torch.Tensor) -> str:
        """What explanations say of ``tensor``."""
        text = str(TensorMeta.of(tensor))
        return text if tensor.layout is torch.strided else f"{text[:-1]}, layout={tensor.layout})"

    def __str__(self) -> str:
        return (
            f"{self.cls.__name__}(dtype={self.dtype}, shape={tuple(self.shape)}, "
            f"stride={self.stride}, device={self.device}, requires_grad={self.requires_grad}"
            + (", conj" if self.conj else "")
            + (", neg" if self.neg else "")
            + ")"
        )

    @property
    def packed(self) -> bool:
        """Whether the sizes, and being contiguous, say what the strides are."""
        expected, size = [], 1
        for n in reversed(self.shape):
            expected.append(size)
            size *= n
        return min(self.shape, default=2) > 1 and list(self.stride) == expected[::-1]


def device_text(v: str, device: torch.device, constant: Callable[[Any], str]) -> str:
    """A tensor on the CPU says so in less time than it takes to make a ``torch.device``."""
    return f"{v}.is_cpu" if device == torch.device("cpu") else f"{v}.device == {constant(device)}"


def tensor_text(v: str, want: TensorMeta, constant: Callable[[Any], str]) -> str:
    """What most often differs comes first: sizes, then dtype."""
    parts = [
        f"type({v}) is {constant(want.cls)}",
        f"{v}.shape == {tuple(want.shape)}",
        f"{v}.dtype is {constant(want.dtype)}",
        f"{v}.requires_grad is {want.requires_grad}",
        f"{v}.stride() == {want.stride}",
        device_text(v, want.device, constant),
    ]
    return " and ".join(parts + bits_texts(v, want))


def bits_texts(v: str, want: TensorMeta) -> list[str]:
    """The conjugate and negative bits, where a tensor of the dtype can have them."""
    conj = [f"{v}.is_conj() is {want.conj}"] if want.dtype.is_complex else []
    return conj + ([f"{v}.is_neg() is {want.neg}"] if want.dtype is not torch.bool else [])


def tensor_check(value: Any, want: TensorMeta) -> bool:
    return issubclass(type(value), torch.Tensor) and TensorMeta.of(value) == want


def is_registered(source: Source) -> bool:
    """A parameter or buffer, reached through its module."""
    parent = source.parent
    return parent is not None and parent.key in ("_parameters", "_buffers")


def common(want: TensorMeta) -> tuple | None:
    """What a registered tensor that is checked together with others has in common with them.

    None where it is checked by itself. Sizes are not part of it, but being packed is.
    """
    if want.conj or want.neg or want.dtype.is_complex or not want.packed:
        return None
    return want.cls, want.dtype, want.requires_grad, want.device


def common_text(v: str, shape: str, want: TensorMeta, constant: Callable[[Any], str]) -> str:
    """That a registered tensor is *not* as wanted; ``shape`` is the text of its sizes.

    Without the negative bit: of contiguous tensors, private functions of torch alone set it.
    """
    return " or ".join(
        [
            f"{v}.shape != {shape}",
            f"{v}.dtype is not {constant(want.dtype)}",
            f"not {v}.requires_grad" if want.requires_grad else f"{v}.requires_grad",
            f"not {v}.is_contiguous()",
            f"not {device_text(v, want.device, constant)}",
            f"type({v}) is not {constant(want.cls)}",
        ]
    )


def metadata(tensor: torch.Tensor, name: str) -> Any:
    """One of :data:`METADATA`."""
    with torch._C.DisableTorchFunction():
        found = getattr(tensor, name)
        return found() if name in CALLED else found


def storage_pattern(*tensors: torch.Tensor) -> tuple[int, ...]:
    """For each tensor the place of the first that has the same storage."""
    storages = [t.untyped_storage()._cdata for t in tensors]
    if len(set(storages)) == len(storages):
        return tuple(range(len(storages)))
    first: dict[int, int] = {}
    return tuple([first.setdefault(storage, i) for i, storage in enumerate(storages)])


def separate(*tensors: torch.Tensor) -> bool:
    """Whether no two of the tensors lie over the same memory, unless they share a storage."""
    storages = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        storages[storage._cdata] = storage.data_ptr(), storage.nbytes()
    places = sorted([place for place in storages.values() if place[1]])
    return all(start + size <= after for (start, size), (after, _) in zip(places, places[1:]))
