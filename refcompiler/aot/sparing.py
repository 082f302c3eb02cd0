"""Hooks on leaves to which a compiled backward brings nothing, where eager's does not come to them.

Who has a hook on a leaf when a call begins has it by a function of autograd for each way
(:mod:`refcompiler.aot.ways`). Else the call's function goes to all leaves, and autograd calls hooks
that were registered since, with None.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, MutableMapping, Sequence
from typing import Any

import torch

_task = torch._C._current_graph_task_id
_CAME = "refcompiler"  # in the metadata of a leaf's function: the last backward that had something
#: Of hooks on several tensors, which count all to which autograd will come.
_COUNTING = torch.autograd.graph.__name__


class _Spared:
    """A hook on a leaf; ``task``: the backward that may bring nothing."""

    def __init__(self, hook: Callable[..., Any]):
        self.hook = hook
        self.task = -1

    def __call__(self, gradient: Any) -> Any:
        if gradient is None and self.task == _task():
            return None
        return self.hook(gradient)


class _SparedBehind(_Spared):
    """A hook that is called behind the sum; ``came``: see :data:`_CAME`."""

    came: Sequence[int] = ()

    def __call__(self, leaf: Any) -> Any:
        if self.task == _task() and self.task not in self.came:
            return None
        return self.hook(leaf)


def spare(edges: Sequence[Any], places: Sequence[int], numbers: Collection[int]) -> None:
    """Have hooks on the leaves among the inputs ``numbers`` not called for nothing in the backward
    under way. ``edges``: of those at ``places``."""
    for n, (node, _) in zip(places, edges, strict=False):
        leaf = getattr(node, "variable", None) if n in numbers else None
        if leaf is None:
            continue
        if leaf._backward_hooks:
            _wrapped(leaf._backward_hooks, _Spared)
        if leaf._post_accumulate_grad_hooks:
            came = _watched(node)
            for hook in _wrapped(leaf._post_accumulate_grad_hooks, _SparedBehind):
                hook.came = came


def _wrapped(hooks: MutableMapping[int, Any], kind: type[_Spared]) -> list[Any]:
    for key, hook in [*hooks.items()]:
        if type(hook) is not kind and getattr(hook, "__module__", None) != _COUNTING:
            hooks[key] = kind(hook)
    found = [hook for hook in hooks.values() if type(hook) is kind]
    for hook in found:
        hook.task = _task()
    return found


def _watched(node: Any) -> list[int]:
    """The last backward, if any, that had something for a leaf's function."""
    known: list[int] | None = node.metadata.get(_CAME)
    if known is not None:
        return known
    came: list[int] = []

    def prehook(gradients: Sequence[Any]) -> None:
        came[:] = [] if gradients[0] is None else [_task()]

    node.register_prehook(prehook)
    node.metadata[_CAME] = came
    return came
