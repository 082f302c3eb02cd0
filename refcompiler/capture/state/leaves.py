"""Tensors that come to require gradients, or no longer do: ``y.requires_grad_()``, ``zeros(...,
requires_grad=True)``.

Leaves from outside are switched before the graph runs, which is the same as long as the graph has
not read them by then. What follows is of tensors that the frame makes.

What a graph gives is no leaf that gradients reach. So the fake becomes a leaf, for whoever asks it
and what is computed from it, and the graph does not: that is the same as long as the leaf stays in
the graph, and whatever leaves it requires gradients for other reasons, or not at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from refcompiler.capture.models.registry import operation
from refcompiler.capture.signals import Break, Restart
from refcompiler.capture.values import External


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
    if rest not in ([], [True], [False]) or not issubclass(type(tensor), torch.Tensor):
        return NotImplemented
    wanted = rest != [False]
    if m.recorder.scope.outer is not None or m.recorder.kinds or tensor.requires_grad == wanted:
        return NotImplemented
    if m.real_of(tensor) is not None:
        return tensor if switch(m, tensor, wanted) else NotImplemented
    if not wanted:
        return NotImplemented
    grow(m.recorder, tensor, "requires_grad_")
    return tensor


def switch(m: Any, tensor: torch.Tensor, wanted: bool) -> bool:
    """Have ``tensor``, from outside, require gradients or not; whether that can come first."""
    recorder = m.recorder
    node = recorder.inputs.get(id(tensor))
    if recorder.scope.outer is not None or id(tensor) in recorder.classes:
        return False
    if node is None or node.users or recorder.node_of(tensor) is not node:
        return False
    if not recorder.metadata("is_leaf", tensor) or recorder.metadata("is_inference", tensor):
        return False
    try:
        with torch._C.DisableTorchFunction():
            tensor.requires_grad_(wanted)
    except RuntimeError as error:  # of a dtype that has no gradients
        raise Break("fake-op-raised", f"requires_grad_: {error}".split("\n")[0]) from error
    m.write(External(m.real_of(tensor), m.fakes_of_inputs[id(tensor)]), "requires_grad", wanted)
    return True


class Switched(NamedTuple):
    """A leaf from outside that the frame has switched to ``wanted``."""

    external: External
    wanted: bool

    @contextlib.contextmanager
    def as_switched(self) -> Iterator[None]:
        """The real one is as the graph finds it."""
        before = self.external.value.requires_grad
        self.external.value.requires_grad_(self.wanted)
        try:
            yield
        finally:
            self.external.value.requires_grad_(before)


def switched(m: Any) -> list[Switched]:
    """The leaves from outside that are switched before the graph, and nowhere else."""
    found = [
        (owner, wanted)
        for (owner, name), wanted in m.overlay.items()
        if name == "requires_grad" and issubclass(type(m.changed[owner].value), torch.Tensor)
    ]
    for owner, _ in found:
        del m.overlay[owner, "requires_grad"]
    return [Switched(m.changed[owner], wanted) for owner, wanted in found]


def switching(leaves: Iterable[Switched], writer: Any) -> tuple[list[str], list[str]]:
    """Statements that switch the leaves, and those that take it back."""
    lines, undo = [], []
    for i, leaf in enumerate(leaves):
        target = writer.read(leaf.external.source)
        lines.append(f"__required{i} = {target}.requires_grad")
        lines.append(f"{target}.requires_grad_({leaf.wanted})")
        undo.append(f"{target}.requires_grad_(__required{i})")
    return lines, undo


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
