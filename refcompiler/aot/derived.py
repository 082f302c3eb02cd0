"""Gradients of gradients, and of those, of a graph that is traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from refcompiler.aot.depends import Chain, Depends


def derived(
    chain: Chain,
    results: Mapping[int, Any],
    inputs: Mapping[int, Any],
    tangents: Sequence[Any],
    more: Sequence[Any],
    first: int,
    shown: Mapping[int, Any] | None,
    summed: Callable[[Sequence[torch.Tensor]], AbstractContextManager[None]],
) -> tuple[dict[int, Any], Depends | None]:
    """The last of the derivatives that ``chain`` says, by number. ``shown``: if what they depend on
    is asked for, all results with a tangent, also those that none is given for.

    ``results``: by the number of their tangents, which are ``tangents``; ``inputs``: by their
    numbers. ``first``: that of the first tangent, behind which those of what comes back to
    derivatives go on: ``more``, of all in the chain. ``summed``: around a run of the engine that
    makes no graph, from what it is given on.
    """
    known = {first + n: tangents[n] for n in results}
    with torch.enable_grad():
        made = torch.autograd.grad(
            [*results.values()],
            [*inputs.values()],
            [*known.values()],
            create_graph=True,
            allow_unused=True,
        )
    found = dict(zip(inputs, made, strict=True))
    left, number = iter(more), first + len(tangents)
    for level, numbers in enumerate(chain, 1):
        ends = {**inputs, **known}
        back = dict(zip(numbers, left))
        pairs = [(found.get(n), g) for n, g in back.items()]
        pairs = [(t, g) for t, g in pairs if t is not None and t.requires_grad]
        again = shown is not None or level < len(chain)
        known |= {number + n: g for n, g in enumerate(back.values())}
        number += len(numbers)
        found = {}
        if not pairs:
            continue
        begun = [end for end, _ in pairs]
        with torch.set_grad_enabled(again), nullcontext() if again else summed(begun):
            made = torch.autograd.grad(
                begun,
                [*ends.values()],
                [g for _, g in pairs],
                create_graph=again,
                allow_unused=True,
            )
        found = dict(zip(ends, made, strict=True))
    if shown is None:
        return found, None
    there = {n: t for n, t in found.items() if t is not None}
    return found, Depends.of(there, inputs, known, shown)
