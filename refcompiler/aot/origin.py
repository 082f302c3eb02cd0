"""What a program was compiled of, so that a process that has found it on disk can compile it again.

Such a process has the backwards that others have asked for. For any other (a set of gradients, a
layout of them, the stages of gates) it compiles the whole once more: the same graph, for tensors of
the same kinds, which comes to what the first compilation came to. Where sizes are symbols, what was
known of them at the beginning is known again, so that all decisions about them are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule

from refcompiler.aot.again import Then
from refcompiler.aot.inputs import has_bits, leaves_of
from refcompiler.aot.layout import Layout
from refcompiler.aot.numbers import value_of
from refcompiler.aot.symbols import fake_mode
from refcompiler.shapes.env import ShapeEnv
from refcompiler.shapes.node import SYMBOLS
from refcompiler.shapes.state import State

#: A note of a graph that is a function, which says what a checkpoint saves.
_SAID = "_checkpoint_context_fn"


class Example(NamedTuple):
    """What a compilation asks of an input; ``shown``: its layout in symbols, where it has some."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    is_leaf: bool  # at each call
    shown: Layout | None = None

    @classmethod
    def of(cls, t: torch.Tensor, is_leaf: bool, shown: torch.Tensor) -> Example:
        at = Layout.of(t)
        known = t.dtype, t.device, t.requires_grad, is_leaf
        return cls(at.size, at.stride, at.offset, *known, None if shown is t else _shown(shown))

    def made(self) -> torch.Tensor:
        """A tensor like it, in memory of its own, in a mode for fakes."""
        end = Layout(self.size, self.stride, self.offset).end
        with torch.no_grad():
            flat = torch.empty(end, dtype=self.dtype, device=self.device)
            made = flat.as_strided(self.size, self.stride, self.offset).detach()
        if self.is_leaf:
            return torch.nn.Parameter(made, requires_grad=self.requires_grad)
        return made.requires_grad_(self.requires_grad)

    def placeholder(self, env: ShapeEnv) -> torch.Tensor:
        """What the front end has put in its place, in a mode for fakes that has ``env``."""
        assert self.shown is not None
        size, stride = [
            [_number(env, n) for n in each] for each in (self.shown.size, self.shown.stride)
        ]
        offset = _number(env, self.shown.offset)
        with torch.no_grad():
            if type(offset) is int and not offset:
                made = torch.empty_strided(size, stride, dtype=self.dtype, device=self.device)
            else:
                end = Layout(tuple(size), tuple(stride), offset).end
                flat = torch.empty(end, dtype=self.dtype, device=self.device)
                made = flat.as_strided(size, stride, offset).detach()
        return made.requires_grad_(self.requires_grad)


class Number(NamedTuple):
    """An input that is a number: the expression that it is."""

    expression: Any


@dataclass
class Origin:
    """``graph``, compiled for ``examples`` in the state ``then``.

    ``sizes``: what was known of the symbols when it began; ``decided``: what it was to rely on.
    """

    graph: GraphModule
    examples: Sequence[Example | Number]
    then: Then
    sizes: State | None = None
    decided: Collection[Any] = ()

    def relying_on(self, env: ShapeEnv | None) -> Origin:
        """Itself, when it was compiled."""
        if env is not None and self.sizes is not None:
            made = [relation.condition for relation in env.relations]
            self.decided = [each for each in made if each not in self.sizes.recorded]
        return self

    def compiled(self, compile: Callable[[GraphModule, list[Any]], Any]) -> tuple[Any, list[Any]]:
        """What ``compile(graph, inputs)`` gives in the state of then, for fakes like the inputs.

        And what it relies on besides what the guards ask.
        """
        env = None if self.sizes is None else ShapeEnv.of(self.sizes)

        def again() -> Any:
            with fake_mode(None), torch.inference_mode(False):
                inputs = [_made(example, env) for example in self.examples]
            if env is not None:
                self._show(env, inputs)
            return compile(self.graph, inputs)

        made = self.then.run(again)
        relations = [] if env is None else [relation.condition for relation in env.relations]
        return made, [each for each in relations if each not in {*self.decided}]

    def _show(self, env: ShapeEnv, inputs: Sequence[Any]) -> None:
        """Note of the graph's inputs what the front end has noted, as far as anybody asks."""
        holders = self.graph.graph.find_nodes(op="placeholder")
        with fake_mode(env), torch.inference_mode(False):
            for node, example, value in zip(holders, self.examples, inputs, strict=True):
                node.meta["example_value"] = value
                if isinstance(example, Example) and example.shown is not None:
                    node.meta["example_value"] = example.placeholder(env)


def origin(
    graph: GraphModule, inputs: Sequence[Any], shown: Sequence[Any], env: Any, then: Then
) -> Origin | None:
    """That of a program which is about to be compiled; its sizes are ``decided`` when it is.

    ``shown``: the inputs, or what has symbols in their place. None where that is not all of it: a
    function that says what a checkpoint saves, symbols of torch's own.
    """
    plain = all(
        type(t) in SYMBOLS
        or (isinstance(t, torch.Tensor) and not has_bits(t) and not t._has_symbolic_sizes_strides)
        for t in inputs
    )
    graphs = [each for each in graph.modules() if isinstance(each, GraphModule)]
    if not plain or any(_SAID in each.meta for each in graphs):
        return None
    if env is not None and not isinstance(env, ShapeEnv):
        return None
    examples = [
        Number(t.node.expr) if type(t) in SYMBOLS else Example.of(t, is_leaf, like)
        for t, is_leaf, like in zip(inputs, leaves_of(graph, inputs), shown, strict=True)
    ]
    return Origin(graph, examples, then, None if env is None else env.state())


def _made(example: Example | Number, env: ShapeEnv | None) -> Any:
    return example.made() if isinstance(example, Example) else value_of(env, example.expression)


def _shown(t: torch.Tensor) -> Layout:
    """The layout of ``t`` with expressions in the place of symbols."""
    at = Layout.of(t)
    return Layout(tuple(map(_said, at.size)), tuple(map(_said, at.stride)), _said(at.offset))


def _said(n: Any) -> Any:
    return n.node.expr if type(n) in SYMBOLS else n


def _number(env: ShapeEnv, n: Any) -> Any:
    return n if type(n) is int else value_of(env, n)
