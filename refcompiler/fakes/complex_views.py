"""Complex views of pairs of real numbers, in memory that begins as something else.

Torch's converter takes a view apart into its base, that as complex numbers, and a layout of these.
A base whose last dimension is none of pairs (``torch.view_as_complex(x.view(-1, 2))``) has no
complex numbers of its own. Here the pairs are laid out first.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch


def is_of_pairs(t: torch.Tensor) -> bool:
    """Whether ``t`` is such a view, which the converter does not make."""
    base = t._base if t._is_view() else None
    if base is None or not t.is_complex() or base.dtype != t.dtype.to_real():
        return False
    made_alike = t.is_leaf or t.requires_grad == base.requires_grad
    return made_alike and not t.is_inference() and base.shape[-1:] != (2,)


def of_pairs(t: torch.Tensor, base: Any) -> Any:
    """The stand-in of ``t``, a view of the stand-in ``base`` of its base."""
    steps = [2 * step for step in t.stride()]
    recording = contextlib.nullcontext() if t.is_leaf else torch.enable_grad()
    with torch.no_grad(), recording:
        pairs = base.as_strided((*t.shape, 2), (*steps, 1), 2 * t.storage_offset())
        fake = torch.view_as_complex(pairs)
        fake = fake.conj() if t.is_conj() else fake
        fake = torch._neg_view(fake) if t.is_neg() else fake
    if t.is_leaf and t.requires_grad:
        fake.requires_grad_()
    known = torch._C._autograd._get_creation_meta(t)
    torch._C._autograd._set_creation_meta(fake, known)
    return fake
