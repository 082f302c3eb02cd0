"""Marks on the dimensions of tensors: which are symbols in graphs, and which never are.

The attributes are those that torch's own marks set, so that either compiler honours both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch


class DimRange(NamedTuple):
    """A dimension's least and largest size, both included; None is no limit."""

    dim: int
    min: int | None
    max: int | None


def _dimensions(function: str, t: torch.Tensor, index: Any) -> list[int]:
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"{function}: expected a tensor, not {type(t).__name__}")
    given = [index] if isinstance(index, int) else list(index)
    found = []
    for dim in given:
        if not isinstance(dim, int) or not -t.dim() <= dim < t.dim():
            raise IndexError(f"{function}: {dim!r} is no dimension of a tensor with {t.dim()}")
        found.append(dim % t.dim())
    return found


def _mark(t: Any, name: str, dims: Iterable[int]) -> None:
    known = getattr(t, name, None)
    if known is None:
        known = set()
        setattr(t, name, known)
    known.update(dims)
    t._has_dynamo_dim_marking = True


def mark_dynamic(
    t: torch.Tensor,
    index: int | Iterable[int],
    *,
    min: int | None = None,
    max: int | None = None,
) -> None:
    """The size of ``t`` at ``index`` is a symbol from the first compilation on.

    ``min`` and ``max`` are its limits, both included; sizes outside are compiled anew. Raises
    :class:`~refcompiler.errors.ConstraintViolationError` at the first call of a program that makes
    a constant of it.
    """
    dims = _dimensions("mark_dynamic", t, index)
    if min is not None and max is not None and min > max:
        raise ValueError(f"mark_dynamic: min {min} is larger than max {max}")
    _mark(t, "_dynamo_dynamic_indices", dims)
    ranges: Any = getattr(t, "_dynamo_dynamic_range", None)
    if ranges is None:
        ranges = set()
        setattr(t, "_dynamo_dynamic_range", ranges)  # noqa: B010
    ranges.update(DimRange(dim, min, max) for dim in dims)


def maybe_mark_dynamic(t: torch.Tensor, index: int | Iterable[int]) -> None:
    """As :func:`mark_dynamic`; a program may still make a constant of it."""
    _mark(t, "_dynamo_weak_dynamic_indices", _dimensions("maybe_mark_dynamic", t, index))


def mark_static(t: torch.Tensor, index: int | Iterable[int] | None = None) -> None:
    """The size of ``t`` at ``index`` (None: every size) is never a symbol."""
    every = range(t.dim()) if index is None else index
    _mark(t, "_dynamo_static_indices", _dimensions("mark_static", t, every))


def mark_unbacked(t: torch.Tensor, index: int | Iterable[int]) -> None:
    """The size of ``t`` at ``index`` is a symbol that no decision can be made by.

    So one graph serves 0 and 1 too; a program that branches on it ends the graph there.
    """
    _mark(t, "_dynamo_unbacked_indices", _dimensions("mark_unbacked", t, index))
