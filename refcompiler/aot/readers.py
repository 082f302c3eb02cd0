"""When autograd sees a graph's inputs read, in its turn of reads and writes.

A view has another function of autograd behind a write that autograd does not see, so whoever asks
for its gradient asks for what reads it since. And a view of it that was made before leads past it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree


class Readers:
    """Those of ``tensors`` with a gradient, in a run of a graph whose nodes it is told of."""

    def __init__(self, tensors: Sequence[torch.Tensor]):
        self.tensors = {id(t): t for t in tensors if t.requires_grad}
        #: The versions with which autograd saw one read, itself or by a view that was older.
        self.reads: dict[int, set[int]] = {key: set() for key in self.tensors}
        #: And how it saw their sizes changed in place: names of methods, and arguments.
        self.steps: dict[int, list[tuple[str, Sequence[Any]]]] = {}
        self.turn = 0  # of a node
        self.made: dict[int, tuple[int, torch.Tensor]] = {}  # by identity of a view of them, when
        self.written: dict[int, int] = {}  # when they were written to last
        self.versions = {key: t._version for key, t in self.tensors.items()}
        self.given: list[tuple[torch.Tensor, int]] = []  # to the node, with versions
        self.read: list[tuple[int, int]] = []  # by it: which, and with which version

    def before(self, given: Sequence[Any]) -> None:
        """To be called before each node, with what it is given."""
        self.given, self.read = [], []
        if not self.tensors:
            return
        self.given = [(t, t._version) for t in given if _is_counted(t)]
        if torch.is_grad_enabled():
            self.read = [(id(t), version) for t, version in self.given if id(t) in self.reads]
            older = [(t, version) for t, version in self.given if self.is_older(t)]
            self.read += [(id(t._base), version) for t, version in older]

    def after(self, node: torch.fx.Node, result: Any, moves: str | None) -> None:
        """To be called behind it. ``moves``: the method that it is, if that changes sizes alone."""
        if not self.tensors:
            return
        self.turn += 1
        if any(t._version != version for t, version in self.given) or node.op == "call_module":
            for key, t in self.tensors.items():
                if t._version != self.versions[key]:
                    self.versions[key], self.written[key] = t._version, self.turn
        for t in result if isinstance(result, (list, tuple)) else [result]:
            if isinstance(t, torch.Tensor) and t._is_view() and id(t._base) in self.reads:
                self.made.setdefault(id(t), (self.turn, t))
        if self.read and any(_is_tracked(t) for t in pytree.tree_leaves(result)):
            for key, version in self.read:
                self.reads[key].add(version)
        if self.read and moves and result is self.given[0][0] and not node.kwargs:
            self.steps.setdefault(id(result), []).append((moves, node.args[1:]))

    def is_older(self, t: torch.Tensor) -> bool:
        """Whether ``t`` is a view of one of them that was written to behind it."""
        turn, _ = self.made.get(id(t), (self.turn, t))
        return turn < self.written.get(id(t._base), 0)


def _is_counted(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and not t.is_inference()


def _is_tracked(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and t.requires_grad
