"""The random numbers of a loop's steps: the forward keeps them, so that the backward has the same.

A step is computed again in the backward. What it drew is a result of it beside the others then, and
takes the place of what it would draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from refcompiler.aot.draws import INSIDE, draws
from refcompiler.aot.inputs import Unsupported
from refcompiler.dispatching import DispatchMode


class Drawing(DispatchMode):
    """Keeps what is drawn, in ``found``."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        if draws(func):
            written = _written(func, args, kwargs)
            values = made if isinstance(made, tuple) else (made,)
            own = [t for t, way in zip(values, _ways(func), strict=True) if way is None]
            if not all(isinstance(t, torch.Tensor) for t in own):
                raise Unsupported(f"gradients of a loop whose steps draw by {func}")
            self.found += [t.clone() for t in (*written.values(), *own)]
        return made


class Drawn(DispatchMode):
    """Gives ``kept``, which is what :class:`Drawing` found, in the place of what is drawn."""

    def __init__(self, kept: Sequence[torch.Tensor]):
        super().__init__()
        self.kept = iter(kept)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not draws(func):
            return func(*args, **kwargs)
        written = _written(func, args, kwargs)
        for t in written.values():
            t.copy_(next(self.kept))
        found = [next(self.kept) if way is None else written[way] for way in _ways(func)]
        return found[0] if len(found) == 1 else tuple(found)


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, torch.Tensor]:
    """What ``func`` writes numbers into, by how its schema calls that memory."""
    found = {}
    for n, argument in enumerate(func._schema.arguments):
        if argument.is_write:
            found[_memory(argument)] = args[n] if n < len(args) else kwargs[argument.name]
    return found


def _ways(func: Any) -> list[str | None]:
    """Of each result, which memory it lies in that ``func`` writes to; None: in its own."""
    returns = func._schema.returns
    return [_memory(each) if each.alias_info is not None else None for each in returns]


def _memory(argument: Any) -> str:
    (name,) = argument.alias_info.before_set
    return str(name)


def check(graph: GraphModule) -> None:
    """Raise :class:`Unsupported` where a branch or loop in the step draws, which nobody sees."""
    if any(INSIDE in node.meta for node in graph.graph.nodes):
        raise Unsupported("gradients of a loop with a branch or loop that draws random numbers")
