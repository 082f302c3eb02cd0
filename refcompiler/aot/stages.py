"""A traced backward in stages: it ends where something is between results, and begins anew there.

What comes back from each result to what is first on its ways is traced apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from refcompiler.aot.ports import Key


def staged(
    between: Mapping[Key, Any], results: Sequence[tuple[int, Key, Any, Any]]
) -> tuple[list[tuple[int, Key]], list[Any]]:
    """What comes back to each of ``between`` from each of ``results``: from which to which, and it.

    Then ways end there, and begin anew. ``results``: of each its place, what it is called where it
    is between others, itself and its tangent.
    """
    cut = Cut(between)
    names: list[tuple[int, Key]] = []
    parts: list[Any] = []
    for place, _, output, tangent in results:
        keys, found = cut.part(output, tangent)
        names += [(place, key) for key in keys]
        parts += found
    cut.begin({key: tangent for _, key, _, tangent in results})
    return names, parts


class Cut:
    """A traced graph's ways, where they come to one of ``tensors`` (by key)."""

    def __init__(self, tensors: Mapping[Key, torch.Tensor]):
        self.tensors = tensors
        self.edges = {(t.grad_fn, t.output_nr): key for key, t in tensors.items()}

    def first(self, root: torch.Tensor) -> list[Key]:
        """What ways from ``root`` come to first."""
        found: dict[Key, None] = {}
        seen = {root.grad_fn}
        left = [root.grad_fn]
        while left:
            for edge in left.pop().next_functions:
                key = self.edges.get(edge)
                if key is not None:
                    found[key] = None
                elif edge[0] is not None and edge[0] not in seen:
                    seen.add(edge[0])
                    left.append(edge[0])
        return [*found]

    def part(self, root: torch.Tensor, tangent: torch.Tensor) -> tuple[list[Key], list[Any]]:
        """What comes back from ``root`` to what its ways come to first, and nowhere beyond."""
        own = root.grad_fn, root.output_nr
        keys = self.first(root)
        if not keys:
            return [], []
        handles = self._ending({edge: None for edge in self.edges if edge != own})
        ends = [self.tensors[key] for key in keys]
        try:
            found = torch.autograd.grad(
                [root], ends, [tangent], retain_graph=True, allow_unused=True
            )
        finally:
            for handle in handles:
                handle.remove()
        return keys, [*found]

    def begin(self, tangents: Mapping[Key, torch.Tensor]) -> None:
        """Have all ways end from now on, and begin anew with ``tangents``."""
        self._ending({edge: tangents.get(key) for edge, key in self.edges.items()})

    @staticmethod
    def _ending(given: Mapping[tuple[Any, int], torch.Tensor | None]) -> list[Any]:
        nodes: dict[Any, dict[int, Any]] = {}
        for (node, number), value in given.items():
            nodes.setdefault(node, {})[number] = value

        def prehook(values: dict[int, Any]) -> Callable[..., Any]:
            return lambda gradients: tuple([values.get(n, g) for n, g in enumerate(gradients)])

        return [node.register_prehook(prehook(values)) for node, values in nodes.items()]
