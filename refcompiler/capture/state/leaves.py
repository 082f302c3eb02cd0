"""Tensors that the frame makes and that require gradients: ``y.requires_grad_()``, ``zeros(...,
requires_grad=True)``.

What a graph gives is no leaf that gradients reach. So the fake becomes a leaf, for whoever asks it
and what is computed from it, and the graph does not: that is the same as long as the leaf stays in
the graph, and whatever leaves it requires gradients for other reasons, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from refcompiler.capture.models.registry import operation
from refcompiler.capture.signals import Break, Restart


class Leaf(NamedTuple):
    """``why`` the graph ends before ``step`` where gradients for ``tensor`` may be wanted."""

    tensor: torch.Tensor
    step: int
    why: str


def grow(recorder: Any, tensor: torch.Tensor, why: str) -> None:
    """Make ``tensor``, which the graph has made, a leaf."""
    try:
        with torch._C.DisableTorchFunction():
            tensor.requires_grad_()
    except RuntimeError as error:
        raise Break("fake-op-raised", f"requires_grad_: {error}".split("\n")[0]) from error
    recorder.leaves.append(Leaf(tensor, recorder.step(), why))


@operation("requires_grad_")
def _requires(m: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    tensor, *rest = [m.force(a) for a in (*args, *kwargs.values())]
    if rest not in ([], [True]) or not issubclass(type(tensor), torch.Tensor):
        return NotImplemented
    if m.real_of(tensor) is not None or m.recorder.scope.outer is not None or m.recorder.kinds:
        return NotImplemented
    if tensor.requires_grad:
        return NotImplemented
    grow(m.recorder, tensor, "requires_grad_")
    return tensor


def check_leaves(m: Any, outputs: Iterable[torch.fx.Node]) -> None:
    """Nothing that leaves the graph requires gradients because of its leaves alone."""
    if not m.recorder.leaves:
        return
    known = {id(leaf.tensor): leaf for leaf in m.recorder.leaves}
    given = [node.meta.get("example_value") for node in outputs]
    given += [fake for _, _, fake in m.inputs.values()]  # which may have been written to
    with torch._C.DisableTorchFunction():
        for value in given:
            if not isinstance(value, torch.Tensor) or not value.requires_grad:
                continue
            reached = _leaves_behind(value)
            if reached <= known.keys():
                _, step, why = min([known[each] for each in reached], key=lambda leaf: leaf.step)
                raise Restart(step, "operation-not-modelled", why)


def _leaves_behind(value: torch.Tensor) -> set[int]:
    """The ids of the leaves that a gradient of ``value`` reaches."""
    if value.is_leaf:
        return {id(value)}
    found, seen = set(), set()
    left = [value.grad_fn]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        left += [inner for inner, _ in node.next_functions]
    return found
