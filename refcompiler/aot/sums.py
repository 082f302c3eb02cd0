"""Sums of what comes to one tensor by several ways, with the strides that eager's have.

Autograd's engine adds in place what comes later, where nothing else has what came first; then that
is how the sum lies. While a graph is traced it cannot, and computes a new tensor, which lies
otherwise in dimensions of size 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.autograd.graph import Node

from refcompiler.histories import is_outdated
from refcompiler.shapes.known import same, usual

ADD = torch.ops.aten.add.Tensor
_ALIAS = torch.ops.aten._reshape_alias.default
_End = tuple[Node, int]


class Sums:
    """Which additions are the engine's, in its runs from ``outputs`` on while this is watched.

    ``nodes``: those that it can come to. ``left``: the number of additions that come next.
    """

    def __init__(self, outputs: Sequence[torch.Tensor], nodes: Sequence[Node]):
        self.left = 0
        begun = [(t.grad_fn, t.output_nr) for t in outputs if not is_outdated(t)]
        ends = [*begun, *[edge for node in nodes for edge in node.next_functions if edge[0]]]
        several = {end for end, count in Counter(ends).items() if count > 1}
        self.come = {end for end in begun if end in several}
        self.handles: list[Any] = []
        for node in nodes if several else ():
            self.handles.append(node.register_prehook(self._begin))
            goes = [(n, end) for n, end in enumerate(node.next_functions) if end in several]
            if goes:
                self.handles.append(node.register_hook(self._given(goes)))

    def _begin(self, gradients: Any) -> None:
        self.left = 0

    def _given(self, goes: Collection[tuple[int, _End]]) -> Any:
        def hook(gradients: Sequence[Any], _: Any) -> None:
            there = [end for n, end in goes if gradients[n] is not None]
            for end in there:
                self.left += end in self.come
                self.come.add(end)

        return hook

    def end(self) -> None:
        self.left = 0
        for handle in self.handles:
            handle.remove()

    def laid_out(self, first: Any, made: Any, alone: bool) -> Any:
        """The sum ``made`` as it lies in eager. ``alone``: nothing else has ``first``."""
        self.left -= 1
        if not alone or same(first.stride(), made.stride()) or not _dense(first):
            return made
        if first.dtype is not made.dtype or not same(first.shape, made.shape):
            return made
        return _ALIAS(made, first.shape, first.stride())


def _dense(t: torch.Tensor) -> bool:
    """Whether the elements are next to each other, in some order of dimensions."""
    expected: Any = 1
    for d in sorted(range(t.dim()), key=lambda d: (usual(t.stride(d)), usual(t.size(d)))):
        if same((t.size(d),), (1,)):
            continue
        if not same((t.stride(d),), (expected,)):
            return False
        expected = expected * t.size(d)
    return True
