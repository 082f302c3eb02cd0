"""What a program was compiled of, so that a process that has found it on disk can compile it again.

Such a process has the backwards that others have asked for. For any other (a set of gradients, a
layout of them, the stages of gates) it compiles the whole once more: the same graph, for tensors of
the same kinds, which comes to what the first compilation came to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule

from refcompiler.aot.again import Then
from refcompiler.aot.inputs import has_bits
from refcompiler.aot.layout import Layout
from refcompiler.aot.symbols import fake_mode

#: A note of a graph that is a function, which says what a checkpoint saves.
_SAID = "_checkpoint_context_fn"


class Example(NamedTuple):
    """What a compilation asks of an input."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    is_parameter: bool

    @classmethod
    def of(cls, t: torch.Tensor) -> Example:
        at = Layout.of(t)
        known = t.dtype, t.device, t.requires_grad, isinstance(t, torch.nn.Parameter)
        return cls(at.size, at.stride, at.offset, *known)

    def made(self) -> torch.Tensor:
        """A tensor like it, in memory of its own, in a mode for fakes."""
        end = Layout(self.size, self.stride, self.offset).end
        with torch.no_grad():
            flat = torch.empty(end, dtype=self.dtype, device=self.device)
            made = flat.as_strided(self.size, self.stride, self.offset).detach()
        if self.is_parameter:
            return torch.nn.Parameter(made, requires_grad=self.requires_grad)
        return made.requires_grad_(self.requires_grad)


@dataclass
class Origin:
    """``graph``, compiled for ``examples`` in the state ``then``."""

    graph: GraphModule
    examples: Sequence[Example]
    then: Then

    def compiled(self, compile: Callable[[GraphModule, list[Any]], Any]) -> Any:
        """What ``compile(graph, inputs)`` gives in the state of then, for fakes like the inputs."""

        def again() -> Any:
            with fake_mode(None), torch.inference_mode(False):
                inputs: list[Any] = [example.made() for example in self.examples]
            return compile(self.graph, inputs)

        return self.then.run(again)


def origin(graph: GraphModule, examples: Sequence[Any], then: Then) -> Origin | None:
    """That of a program; None where examples are not all of it (symbols, a function that says)."""
    plain = all(
        isinstance(t, torch.Tensor) and not has_bits(t) and not t._has_symbolic_sizes_strides
        for t in examples
    )
    graphs = [each for each in graph.modules() if isinstance(each, GraphModule)]
    if not plain or any(_SAID in each.meta for each in graphs):
        return None
    return Origin(graph, [Example.of(t) for t in examples], then)
