"""Writes past autograd (``x.data.mul_(2)``) behind what saves the memory, where that may be packed.

Saved-tensor hooks are given a tensor when eager saves it, and may copy it then. A compiled call
saves at its end, when the write is in the memory. Without hooks both backwards read what is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from refcompiler import naming
from refcompiler.aot.reads import saved_by
from refcompiler.aot.views import is_data


def takes_data(gm: torch.fx.GraphModule) -> bool:
    """Whether a graph, or one within it, takes the ``data`` of a tensor."""
    graphs = [each for each in gm.modules() if isinstance(each, torch.fx.GraphModule)]
    nodes = [node for graph in graphs for node in graph.graph.nodes]
    return any(naming.takes_data(node.target, node.args) for node in nodes)


class Writes:
    """The last write to each memory by each count of writes, and how many functions of autograd
    there were by then."""

    def __init__(self) -> None:
        self.found: dict[int, list[tuple[torch.Tensor, int]]] = {}
        self.given: list[tuple[torch.Tensor, int]] = []

    def before(self, tensors: Sequence[Any]) -> None:
        """``tensors`` may be written to now."""
        self.given = [(t, t._version) for t in tensors if _counts(t)]

    def after(self) -> None:
        for t, version in self.given:
            if t._version != version:
                known = self.found.setdefault(_memory(t), [])
                known[:] = [each for each in known if is_data(t, each[0])]
                known.append((t, torch.autograd._get_sequence_nr()))

    def pass_by(self, outputs: Sequence[torch.Tensor]) -> bool:
        """Whether one is behind what has saved the memory for a backward of ``outputs``, and is
        told to none of that."""
        for t, node in saved_by(outputs):
            if not _counts(t):
                continue
            made = node._sequence_nr()
            if any(made < at and is_data(t, other) for other, at in self.found.get(_memory(t), ())):
                return True
        return False


def _counts(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and t.layout is torch.strided and not t.is_inference()


def _memory(t: torch.Tensor) -> int:
    return t.untyped_storage()._cdata
