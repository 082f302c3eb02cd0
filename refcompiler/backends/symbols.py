"""Symbolic inputs for torch's own compilers, which know no symbols but those of torch's own.

In: a graph and its inputs with symbols of ours. Out: fakes of the same layout with symbols of
torch's; what torch decides about those while it compiles becomes relations of ours again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch._guards import Source
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental import symbolic_shapes
from torch.fx.experimental.symbolic_shapes import DimDynamic

from refcompiler.shapes.node import SYMBOLS
from refcompiler.shapes.text import python


class Input(Source):
    """What torch calls the place of a symbol: it never reads it."""

    def __init__(self, text: str):
        self._text = text

    @property
    def name(self) -> str:
        return self._text


class TorchSymbols:
    """``graph`` and ``inputs`` are what torch's compiler is given; then :meth:`learn`."""

    def __init__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]):
        self.env = next(v.node.shape_env for v in inputs if type(v) in SYMBOLS)
        self.torch_env = symbolic_shapes.ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self.torch_env, allow_non_fake_inputs=True)
        self.theirs: dict[Any, Any] = {}  # symbols of ours -> symbols of torch's
        self.graph = _without_examples(graph)
        examples = [n.meta["example_value"] for n in graph.graph.find_nodes(op="placeholder")]
        self.inputs = [
            self._number(value) if type(value) in SYMBOLS else self._tensor(value, example)
            for value, example in zip(inputs, examples, strict=True)
        ]

    def _number(self, value: Any) -> Any:
        """A symbol of torch's for one of ours."""
        symbol, hint = value.node.expr, value.node.hint
        source = Input(f"__refcompiler_{symbol}")
        env = self.torch_env
        if hint is None:
            made = env.create_unbacked_symint()
            known = self.env.knowledge.range_of(symbol)
            if known.low >= 0:
                env._constrain_range_for_size(made.node.expr)
        elif type(value) is torch.SymFloat:
            found = env.create_unspecified_symbol(hint, source, DimDynamic.DYNAMIC)
            made = env.create_symfloatnode(found, hint=hint, source=source)
        else:
            plain = str(symbol).startswith("s")  # a size
            found = env.create_symbol(
                hint,
                source=source,
                dynamic_dim=DimDynamic.DYNAMIC,
                positive=True if plain else None,
                do_not_specialize_zero_one=not plain,
            )
            made = env.create_symintnode(found, hint=hint, source=source)
        self.theirs[symbol] = made.node.expr
        return made

    def _tensor(self, value: Any, example: Any) -> Any:
        if not example._has_symbolic_sizes_strides:
            return self.mode.from_tensor(value, static_shapes=True)
        sizes, strides = map(self._sizes, (example.shape, example.stride()))
        with self.mode:
            made = torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
        return made.requires_grad_(value.requires_grad)

    def _sizes(self, sizes: Sequence[Any]) -> list[Any]:
        return [
            self.torch_env.create_symintnode(
                n.node.expr.xreplace(self.theirs), hint=n.node.hint, source=None
            )
            if type(n) in SYMBOLS
            else n
            for n in sizes
        ]

    def learn(self) -> None:
        """What torch decided, later calls have to agree with."""
        ours = {theirs: symbol for symbol, theirs in self.theirs.items()}
        for guard in self.torch_env.guards:
            condition = guard.expr.xreplace(ours)
            if condition.free_symbols - ours.keys() - self.theirs.keys():
                continue  # about what the graph itself makes
            try:
                python(condition, str)
            except TypeError:  # a condition that cannot be checked: these sizes only
                for symbol in condition.free_symbols:
                    self.env.record(sympy.Eq(symbol, self.env.hints[symbol]))
                continue
            if self.env.knowledge.decide(condition) is not True:
                self.env.record(condition)


def _without_examples(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A copy that does not mention our fakes."""
    known: dict[torch.fx.Node, torch.fx.Node] = {}
    copied = torch.fx.Graph()
    result = copied.graph_copy(graph.graph, known, return_output_node=True)
    output, original = result
    copied.output(output).meta = dict(original.meta)
    for node in copied.nodes:
        node.meta = {k: v for k, v in node.meta.items() if k != "example_value"}
    return torch.fx.GraphModule(graph, copied)
