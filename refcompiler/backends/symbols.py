"""Symbolic inputs for torch's own compilers, which know no symbols but those of torch's own.

In: a graph and its inputs with symbols of ours. Out: the graph with fakes and symbols of torch's,
and under torch's tracing context what each input is to be taken for; what torch decides about the
symbols while it compiles becomes relations of ours again.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch._guards import Source, TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental import symbolic_shapes
from torch.fx.experimental.symbolic_shapes import DimDynamic
from torch.utils._python_dispatch import _disable_current_modes

from refcompiler.caught import hold_for_handlers
from refcompiler.shapes.floats import FLOAT
from refcompiler.shapes.known import environment_of
from refcompiler.shapes.node import SYMBOLS
from refcompiler.shapes.text import python

log = logging.getLogger("refcompiler.dynamic")


#: Arithmetic with floats as torch's expressions have it: that of real numbers.
_REAL: dict[Any, Callable] = {
    FLOAT["add"]: lambda a, b: a + b,
    FLOAT["sub"]: lambda a, b: a - b,
    FLOAT["mul"]: lambda a, b: a * b,
}
_EXACT = (operator.add, operator.sub, operator.mul, operator.truediv, operator.neg, operator.pos)


class Input(Source):
    """What torch calls the place of a symbol: it never reads it."""

    def __init__(self, text: str):
        self._text = text

    @property
    def name(self) -> str:
        return self._text


def compiled(backend: Callable, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
    """What ``backend`` makes of a graph with symbols when they are torch's own.

    As from torch, it is given real tensors, numbers that are symbols, and fakes in the ``meta`` of
    the nodes.
    """
    floats = [i for i, value in enumerate(inputs) if type(value) is torch.SymFloat]
    if not floats:
        return _made(backend, graph, inputs)
    nodes = list(graph.graph.find_nodes(op="placeholder"))
    fixed = [i for i in floats if inputs[i].node.hint is not None and not _only_adds(nodes[i])]
    if fixed:
        log.info("floats are specialised, since torch's compilers take them for real numbers")
        return _with_constants(backend, graph, inputs, fixed)
    try:
        made = _made(backend, *_read_from_tensors(graph, inputs, floats))
    except Exception as error:
        if any(inputs[i].node.hint is None for i in floats):
            raise  # there is no constant that it could be
        log.info("floats are specialised, since the backend cannot have them symbolic: %s", error)
        return _with_constants(backend, graph, inputs, floats)

    def call(*given: Any) -> Any:
        taken = list(given)
        for i in floats:
            taken[i] = torch.scalar_tensor(taken[i], dtype=torch.float64)
        return made(*taken)

    return call


def _only_adds(number: torch.fx.Node) -> bool:
    """Whether compilers of torch compute all that a graph computes with a float as floats are.

    What they compute as of real numbers (quotients rounded down, remainders, comparisons ...) is
    another number for NaN, infinities and -0.0.
    """
    for user in number.users:
        if type(user.meta.get("example_value")) in SYMBOLS:
            if user.target not in _EXACT or not _only_adds(user):
                return False
    return True


def _made(backend: Callable, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
    given = TorchSymbols(graph, inputs)
    with tracing(TracingContext(given.mode)):
        made = backend(given.graph, given.inputs)
    given.learn()
    return made


def _copy(graph: torch.fx.GraphModule) -> tuple[torch.fx.GraphModule, list[torch.fx.Node]]:
    """A copy, and its inputs."""
    copied = torch.fx.Graph()
    result = copied.graph_copy(graph.graph, {}, return_output_node=True)
    output, original = result
    copied.output(output).meta = dict(original.meta)
    hold_for_handlers(copied)
    return torch.fx.GraphModule(graph, copied), list(copied.find_nodes(op="placeholder"))


def _read_from_tensors(
    graph: torch.fx.GraphModule, inputs: Sequence[Any], places: Sequence[int]
) -> tuple[torch.fx.GraphModule, list[Any]]:
    """Floats as numbers read from tensors, as torch has them: compilers know no other symbols."""
    made, nodes = _copy(graph)
    taken = list(inputs)
    for i in places:
        node, number = nodes[i], inputs[i]
        with made.graph.inserting_after(nodes[-1]):
            read = made.graph.call_method("item", (node,))
        node.replace_all_uses_with(read, lambda user, read=read: user is not read)
        read.meta["example_value"] = number
        hint = number.node.hint  # none of a number that each call draws anew
        taken[i] = torch.scalar_tensor(0.5 if hint is None else hint, dtype=torch.float64)
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            node.meta["example_value"] = torch.empty((), dtype=torch.float64)
    made.recompile()
    return made, taken


def _with_constants(
    backend: Callable, graph: torch.fx.GraphModule, inputs: Sequence[Any], places: Sequence[int]
) -> Callable:
    """The floats of this call only: later ones have to have the same."""
    made, nodes = _copy(graph)
    for i in places:
        nodes[i].replace_all_uses_with(float(inputs[i]))
        made.graph.erase_node(nodes[i])
    made.recompile()
    kept = [i for i in range(len(inputs)) if i not in set(places)]
    taken = [inputs[i] for i in kept]
    if any(type(value) in SYMBOLS for value in taken):
        inner = compiled(backend, made, taken)
    else:
        inner = backend(made, taken)
    return lambda *given: inner(*[given[i] for i in kept])


class TorchSymbols:
    """``graph`` and ``inputs`` are what torch's compiler is given; then :meth:`learn`."""

    def __init__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]):
        self.env = environment_of(graph)
        self.torch_env = symbolic_shapes.ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self.torch_env, allow_non_fake_inputs=True)
        self.theirs: dict[Any, Any] = {}  # symbols of ours -> symbols of torch's
        self.fresh: set[Any] = set()  # those of theirs that depend on data
        self.known: dict[int, Any] = {}  # ids of fakes of ours -> those of torch's
        examples = [n.meta["example_value"] for n in graph.graph.find_nodes(op="placeholder")]
        self.inputs = [
            self._number(value) if type(value) in SYMBOLS else self._tensor(value, example)
            for value, example in zip(inputs, examples, strict=True)
        ]
        self.graph = self._with_examples(graph)
        self.torch_env.pending_fresh_unbacked_symbols.clear()

    def _number(self, value: Any) -> Any:
        """A symbol of torch's for one of ours."""
        symbol, hint = value.node.expr, value.node.hint
        source = Input(f"__refcompiler_{symbol}")
        env = self.torch_env
        if hint is None:
            return self._unbacked(symbol)
        if type(value) is torch.SymFloat:
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
        self._expect(symbol)
        return made

    def _expect(self, symbol: Any) -> None:
        """The size that the user wants torch's compiler to take for the usual one."""
        known = getattr(self.torch_env, "var_to_hint_override", None)
        if symbol in self.env.expected and known is not None:
            known[self.theirs[symbol]] = self.env.expected[symbol]

    def _tensor(self, value: Any, example: Any) -> Any:
        """The tensor itself, of which torch's converter knows what it is to be."""
        if example._has_symbolic_sizes_strides:
            made = self._fake(example)
            self.mode.fake_tensor_converter.set_tensor_memo(value, made)
        else:
            made = self.mode.from_tensor(value, static_shapes=True)
        self.known[id(example)] = made
        return value

    def _fake(self, example: torch.Tensor) -> torch.Tensor:
        sizes, strides = map(self._sizes, (example.shape, example.stride()))
        with torch.inference_mode(example.is_inference()), self.mode:
            made = torch.empty_strided(sizes, strides, dtype=example.dtype, device=example.device)
            if example.requires_grad:
                made.requires_grad_()
        return made

    def _sizes(self, sizes: Sequence[Any]) -> list[Any]:
        return [self._translated(n) if type(n) in SYMBOLS else n for n in sizes]

    def _translated(self, value: Any) -> Any:
        """A symbolic number of ours as one of torch's."""
        node, env = value.node, self.torch_env
        for symbol in node.expr.free_symbols:
            if symbol not in self.theirs:
                self._unbacked(symbol)
        expr = node.expr.xreplace(self.theirs)
        for rounded, real in _REAL.items():
            if expr.has(rounded):
                expr = expr.replace(rounded, real)
        hint = None if expr.free_symbols & self.fresh else node.hint
        if node.pytype is int:
            return env.create_symintnode(expr, hint=hint, source=None)
        if node.pytype is float:
            return env.create_symfloatnode(expr, hint=hint, source=None)
        return env.create_symboolnode(expr)

    def _unbacked(self, symbol: Any) -> Any:
        """One of torch's for a symbol whose value the graph itself gives."""
        if symbol.is_integer:
            made: Any = self.torch_env.create_unbacked_symint()
            if self.env.knowledge.range_of(symbol).low >= 0:
                self.torch_env._constrain_range_for_size(made.node.expr)
        else:
            made = self.torch_env.create_unbacked_symfloat()
        self.theirs[symbol] = made.node.expr
        self.fresh.add(made.node.expr)
        self._expect(symbol)
        return made

    def _with_examples(self, graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
        """A copy with fakes and symbols of torch's where ours were."""
        made, _ = _copy(graph)
        for node in made.graph.nodes:
            node.meta = {
                k: self._example(v) if k == "example_value" else v for k, v in node.meta.items()
            }
        for name, child in list(made.named_children()):
            if isinstance(child, torch.fx.GraphModule):
                made._modules[name] = self._with_examples(child)
        return made

    def _example(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            found = self.known.get(id(value))
            if found is None:
                found = self.known[id(value)] = self._fake(value)
            return found
        if type(value) in SYMBOLS:
            return self._translated(value)
        if type(value) in (tuple, list):
            return type(value)(map(self._example, value))
        return value

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
