"""What derivatives of gradients depend on, found where they are traced."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

from refcompiler.aot.missing import reached

#: Of each derivative, the numbers of those of the one before that it is given gradients of.
Chain = tuple[tuple[int, ...], ...]


@dataclass
class Depends:
    """What derivatives depend on, each by its number, which a number of their own says.

    ``inputs``: of the program; ``gradients``: numbers of what it and earlier derivatives are given;
    ``results``: the tangents of results whose hooks a gradient passes. A bit for each derivative.
    """

    inputs: Mapping[int, int] = field(default_factory=dict)
    gradients: Mapping[int, int] = field(default_factory=dict)
    results: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        found: Mapping[int, torch.Tensor],
        inputs: Mapping[int, torch.Tensor],
        gradients: Mapping[int, torch.Tensor],
        results: Mapping[int, torch.Tensor],
    ) -> Depends:
        """``found`` while it is traced, of tensors that autograd has leaves for, and results."""
        ends = {n: t for n, t in found.items() if t.requires_grad}
        if not ends:
            return cls()
        several = [*ends.values(), next(iter(ends.values()))]  # of one nothing would be said
        ways = reached(several)
        bits = [1 << n for n in ends]

        def mask(t: torch.Tensor) -> int:
            edge = get_gradient_edge(t)
            found = ways.get(edge.node, {}).get(edge.output_nr, 0)
            return sum(bit for n, bit in enumerate(bits) if found >> n & 1)

        return cls(
            *[{n: mask(t) for n, t in each.items()} for each in (inputs, gradients, results)]
        )

    def taking(self, numbers: Sequence[int]) -> Depends:
        """The same, with the program's inputs in another order; see :meth:`Joint.taking`."""
        places = {n: place for place, n in enumerate(numbers)}

        def moved(mask: int) -> int:
            found = mask >> len(numbers) << len(numbers)
            return found | sum(1 << places[n] for n in places if mask >> n & 1)

        inputs = {places[n]: moved(mask) for n, mask in self.inputs.items()}
        others = [{n: moved(m) for n, m in e.items()} for e in (self.gradients, self.results)]
        return Depends(inputs, *others)

    def depending(self, first: int, given: Sequence[Any]) -> int:
        """The derivatives that have one, where these gradients are ``given``: a bit for each.

        ``first``: the number of the first of them.
        """
        found = 0
        for mask in self.inputs.values():
            found |= mask
        for n, mask in self.gradients.items():
            if isinstance(given[n - first], torch.Tensor) and given[n - first].requires_grad:
                found |= mask
        return found

    def passes(self, hooked: Collection[int], numbers: Sequence[int]) -> bool:
        """Whether derivatives, by number, pass results that are ``hooked``."""
        wanted = sum(1 << n for n in numbers)
        return any(self.results.get(n, 0) & wanted for n in hooked)
