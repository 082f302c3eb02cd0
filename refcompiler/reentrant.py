"""What checkpoints are called with, and what a reentrant one demands of a backward and does to it.

A reentrant one demands that it goes to all leaves. Its function runs a backward of its own, which
autograd cannot have end at certain tensors. So ``torch.autograd.grad`` and ``backward(inputs=)``
are errors there. A graph says so by an operator in its backward, which looks at nothing but whose
backward runs.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointFunction

_LIBRARY = torch.library.Library("refcompiler", "FRAGMENT")
_LIBRARY.define("goes_to_all_leaves(Tensor gradient) -> ()")
_goes_to_all = torch.autograd._is_checkpoint_valid
_INNER = threading.local()


def _check(gradient: torch.Tensor) -> None:
    if not (_goes_to_all() or getattr(_INNER, "of_such", False)):
        CheckpointFunction.backward(None)  # raises eager's error


_LIBRARY.impl("goes_to_all_leaves", _check, "CompositeExplicitAutograd")
torch.library.register_fake("refcompiler::goes_to_all_leaves", lambda g: None, lib=_LIBRARY)


def called(
    function: Callable[..., Any], tensors: Sequence[Any], saved: Sequence[int]
) -> tuple[Any, ...]:
    """A function of the tensors with the numbers ``saved`` alone, and these.

    A checkpoint saves them, so that a write to one before the backward is an error. All others its
    function reads as they are when it is called again.
    """

    def call(*given: Any) -> Any:
        whole = [*tensors]
        for n, t in zip(saved, given, strict=True):
            whole[n] = t
        return function(*whole)

    return call, *[tensors[n] for n in saved]


def demand(results: Sequence[Any]) -> None:
    """Have backwards of the ``results`` of a region checked."""

    def prehook(gradients: Sequence[Any]) -> None:
        for gradient in gradients:
            if gradient is not None:
                torch.ops.refcompiler.goes_to_all_leaves(gradient)
                return

    functions = {t.grad_fn for t in results if isinstance(t, torch.Tensor)} - {None}
    for function in functions:
        function.register_prehook(prehook)


def joined(tensors: Sequence[Any]) -> list[Any]:
    """The inputs of a region, whose gradients are each one sum of what comes back in it.

    A reentrant checkpoint's function adds that up by itself, before what comes from elsewhere.
    """
    grows = torch.is_grad_enabled()
    return [
        t.view_as(t) if grows and isinstance(t, torch.Tensor) and t.requires_grad else t
        for t in tensors
    ]


def severed(tensors: Sequence[Any]) -> list[Any]:
    """The same, of gradients that have no graph, whatever the backward asks for.

    A reentrant checkpoint's function computes them by a backward of its own, without one.
    """
    found = joined(tensors)
    for before, t in zip(tensors, found, strict=True):
        if t is not before:
            assert t.grad_fn is not None
            t.grad_fn.register_hook(_without_graph)
    return found


def _without_graph(gradients: Sequence[Any], _: Any) -> tuple[Any, ...]:
    return tuple([None if g is None else g.detach() for g in gradients])


@contextlib.contextmanager
def as_around() -> Iterator[None]:
    """A backward inside of one that goes to all leaves counts as it."""
    before = getattr(_INNER, "of_such", False)
    _INNER.of_such = before or _goes_to_all()
    try:
        yield
    finally:
        _INNER.of_such = before
