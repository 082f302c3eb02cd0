"""A backward for a batch of gradients (``is_grads_batched``, ``vmap`` over ``autograd.grad``).

A compiled backward takes tensors that lie in memory, and a batch stands for as many of them as it
has: so the backward runs for each by itself, and the gradients are put together to a batch again.

Torch has two kinds: those of ``torch.func``, and older ones, which autograd still makes where it is
given a batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

_func = torch._C._functorch
_is_batch, _is_older = _func.is_batchedtensor, _func.is_legacy_batchedtensor
_transformed = torch._C._are_functorch_transforms_active
_deeper, _back = torch._C._vmapmode_increment_nesting, torch._C._vmapmode_decrement_nesting


def older() -> int:
    """How many of the older kind's levels there are."""
    levels = _deeper() - 1
    _back()
    return levels


def has_batch(given: Sequence[Any]) -> bool:
    if not _transformed() and not older():
        return False
    return any(t is not None and (_is_batch(t) or _is_older(t)) for t in given)


def each(call: Callable[[list[Any]], Sequence[Any]], given: Sequence[Any]) -> list[Any]:
    """What ``call`` gives for tangents (None: there is none), of which some are batches.

    ``call`` is called outside of all transformations, with tangents that are no batches.
    """
    level, apart, again = _apart(given)
    if not level:
        with _outside():
            return [*call([*given])]
    size = max(parts.shape[0] for parts in apart if parts is not None)
    if not size:  # what comes back has sizes, also where nothing does
        apart = [t if t is None else t.new_zeros(1, *t.shape[1:]) for t in apart]
    found = [
        each(call, [t if parts is None else parts[n] for t, parts in zip(given, apart)])
        for n in range(max(size, 1))
    ]
    return [
        None if parts[0] is None else again(torch.stack(parts)[:size], 0, level)
        for parts in zip(*found, strict=True)
    ]


def _apart(given: Sequence[Any]) -> tuple[int, list[Any], Callable[..., Any]]:
    """The innermost level, 0 if there is none; the batches of it with that dimension in front.

    And what makes a batch of such a tensor again.
    """
    tensors = [t for t in given if t is not None]
    level = max([_func.maybe_get_level(t) for t in tensors if _is_batch(t)], default=0)
    if level:
        apart = [
            _func.get_unwrapped(t).movedim(_func.maybe_get_bdim(t), 0)
            if t is not None and _is_batch(t) and _func.maybe_get_level(t) == level
            else None
            for t in given
        ]
        return level, apart, _func._add_batch_dim
    for level in range(older(), 0, -1):
        apart = [None if t is None else _of_level(t, level) for t in given]
        if any(t is not None for t in apart):
            return level, apart, torch._add_batch_dim
    return 0, [], torch._add_batch_dim


def _of_level(t: torch.Tensor, level: int) -> torch.Tensor | None:
    """A batch of the older kind with the dimension of ``level`` in front, if it has that."""
    if not _is_older(t):
        return None
    one, two = (torch._remove_batch_dim(t, level, size, 0) for size in (1, 2))
    return one if one.shape == two.shape else None  # else it was expanded as it was told


@contextlib.contextmanager
def _outside() -> Iterator[None]:
    """No transformation is under way."""
    levels, layers = older(), []
    for _ in range(levels):
        _back()
    while _func.peek_interpreter_stack() is not None:
        layers.append(_func.pop_dynamic_layer_stack())
    try:
        yield
    finally:
        while layers:
            _func.push_dynamic_layer_stack(layers.pop())
        for _ in range(levels):
            _deeper()
