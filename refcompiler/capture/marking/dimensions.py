"""Marks on the dimensions of tensors: which are symbols in graphs, and which never are.

The attributes are those that torch's own marks set, so that either compiler honours both.
Source of their meaning: the documentation of ``torch._dynamo.mark_dynamic`` and its like.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

import torch

from refcompiler.errors import UnsupportedError

INF = float("inf")


class DimRange(NamedTuple):
    """A dimension's least and largest size, both included; None is no limit."""

    dim: int
    min: int | None
    max: int | None


class Marks(NamedTuple):
    """What the user said of a tensor's dimensions, by torch's names for the attributes."""

    dynamic: frozenset[int]
    maybe: frozenset[int]
    static: frozenset[int]
    unbacked: frozenset[int]
    strict: frozenset[int]  # of the unbacked ones: those that must not become constants
    ranges: dict[int, tuple[int, float]]
    hints: dict[int, int]  # the sizes that backends are told to expect
    names: dict[int, Hashable]  # unbacked dimensions with one name are equal
    special: dict[int, list[Callable[[Any], Any]]]  # conditions that have programs of their own

    @staticmethod
    def none() -> Marks:
        no: frozenset[int] = frozenset()
        return Marks(no, no, no, no, no, {}, {}, {}, {})

    @staticmethod
    def of(tensor: torch.Tensor) -> Marks | None:
        """The marks of ``tensor``; None if it has none."""
        found = tensor.__dict__ if hasattr(tensor, "__dict__") else {}
        if not any(name.startswith("_dynamo_") for name in found):
            return None
        rank = tensor.dim()

        def dims(*names: str) -> frozenset[int]:
            return frozenset(_place(d, rank) for name in names for d in found.get(name) or ())

        def by_dim(name: str) -> dict[int, Any]:
            return {_place(d, rank): value for d, value in (found.get(name) or {}).items()}

        ranges: dict[int, tuple[int, float]] = {}
        for given in found.get("_dynamo_dynamic_range") or ():
            if given.min is None and given.max is None:
                continue
            low = 2 if given.min is None else max(given.min, 2)
            ranges[_place(given.dim, rank)] = (low, INF if given.max is None else given.max)
        for dim, (low, high) in by_dim("_dynamo_unbacked_bounds").items():
            ranges[dim] = (low or 0, INF if high is None else high)
        return Marks(
            dims("_dynamo_dynamic_indices"),
            dims("_dynamo_weak_dynamic_indices"),
            dims("_dynamo_static_indices"),
            dims("_dynamo_unbacked_indices", "_dynamo_strict_unbacked_indices"),
            dims("_dynamo_strict_unbacked_indices"),
            ranges,
            by_dim("_dynamo_hint_overrides"),
            by_dim("_dynamo_shape_ids"),
            by_dim("_specialize_on"),
        )


def _place(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


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


def _limits(function: str, low: int | None, high: int | None, hint: int | None) -> None:
    for name, value in (("min", low), ("max", high), ("hint_override", hint)):
        if value is not None and (type(value) is not int or value < 0):
            raise ValueError(f"{function}: {name} takes a size, not {value!r}")
    if low is not None and high is not None and low > high:
        raise ValueError(f"{function}: min {low} is larger than max {high}")


def _mark(t: Any, name: str, dims: Iterable[int]) -> None:
    _attribute(t, name, set).update(dims)
    t._has_dynamo_dim_marking = True


def _attribute(t: Any, name: str, make: type) -> Any:
    known = getattr(t, name, None)
    if known is None:
        known = make()
        setattr(t, name, known)
    return known


def mark_dynamic(
    t: torch.Tensor,
    index: int | Iterable[int],
    *,
    hint_override: int | None = None,
    min: int | None = None,
    max: int | None = None,
    specialize_on: Iterable[Callable[[int], Any]] | None = None,
) -> None:
    """The size of ``t`` at ``index`` is a symbol from the first compilation on.

    ``specialize_on``: conditions on the size, as ``lambda n: n == 8`` or ``n % 16 == 0``, for which
    a program of its own is compiled, which may make use of them, as soon as a call meets one.
    ``min`` and ``max`` are its limits, both included; sizes outside are compiled anew.
    ``hint_override``: the size that a backend of torch's is told to expect instead of this one's.
    Raises :class:`~refcompiler.errors.ConstraintViolationError` at the first call of a program that
    makes a constant of it, or where it is outside the limits. Without limits 0 and 1 are compiled
    as constants; with any they are refused, as torch does.
    """
    dims = _dimensions("mark_dynamic", t, index)
    _limits("mark_dynamic", min, max, hint_override)
    _mark(t, "_dynamo_dynamic_indices", dims)
    ranges = _attribute(t, "_dynamo_dynamic_range", set)
    ranges.difference_update([known for known in ranges if known.dim in dims])
    ranges.update(DimRange(dim, min, max) for dim in dims)
    hints = _attribute(t, "_dynamo_hint_overrides", dict)
    if hint_override is not None:
        hints.update(dict.fromkeys(dims, hint_override))
    conditions = list(specialize_on or ())
    if not all(map(callable, conditions)):
        raise TypeError(f"mark_dynamic: specialize_on takes functions, not {conditions!r}")
    _attribute(t, "_specialize_on", dict).update((dim, conditions) for dim in dims)


def maybe_mark_dynamic(t: torch.Tensor, index: int | Iterable[int]) -> None:
    """As :func:`mark_dynamic`; a program may still make a constant of it."""
    _mark(t, "_dynamo_weak_dynamic_indices", _dimensions("maybe_mark_dynamic", t, index))


def mark_static(t: Any, index: int | Iterable[int] | None = None) -> Any:
    """The size of ``t`` at ``index`` (None: every size) is never a symbol.

    :func:`mark_dynamic` weighs more. In compiled code it makes constants of the sizes. ``t`` may be
    a class of modules, which is returned: the numbers that its instances hold are never symbols.
    """
    if inspect.isclass(t) and issubclass(t, torch.nn.Module):
        t._dynamo_marked_static = True  # type: ignore[attr-defined]
        return t
    if not isinstance(t, torch.Tensor):
        raise TypeError(
            f"mark_static: expected a tensor or a class of modules, not {type(t).__name__}"
        )
    every = range(t.dim()) if index is None else index
    return _mark(t, "_dynamo_static_indices", _dimensions("mark_static", t, every))


def mark_unbacked(
    t: torch.Tensor,
    index: int | Iterable[int],
    hint_override: int | None = None,
    strict: bool = False,
    specialize_on: Iterable[Callable[[int], Any]] | None = None,
    shape_id: str | None = None,
    min: int | None = None,
    max: int | None = None,
) -> None:
    """The size of ``t`` at ``index`` is a symbol that no decision can be made by.

    So one graph serves 0 and 1 too; a program that branches on it ends the graph there.
    ``strict``: a program that makes a constant of it is refused, as by :func:`mark_dynamic`.
    ``shape_id``: dimensions that were given one are one symbol, also of different tensors; calls
    where they differ are compiled anew. ``min``, ``max``, ``hint_override``: as for
    :func:`mark_dynamic`. ``specialize_on`` decides by the size, and so is an error here
    (:class:`~refcompiler.errors.UnsupportedError`): :func:`mark_dynamic` takes it.
    """
    if specialize_on:
        raise UnsupportedError(
            "mark_unbacked: specialize_on decides by the size; use mark_dynamic, which takes it"
        )
    dims = _dimensions("mark_unbacked", t, index)
    _limits("mark_unbacked", min, max, hint_override)
    _mark(t, "_dynamo_strict_unbacked_indices" if strict else "_dynamo_unbacked_indices", dims)
    if min is not None or max is not None:
        _attribute(t, "_dynamo_unbacked_bounds", dict).update(dict.fromkeys(dims, (min, max)))
    if shape_id is not None:
        _attribute(t, "_dynamo_shape_ids", dict).update(dict.fromkeys(dims, shape_id))
    hints = _attribute(t, "_dynamo_hint_overrides", dict)
    if hint_override is not None:
        hints.update(dict.fromkeys(dims, hint_override))
