"""Numbers in a graph that is traced: expressions over its symbols, written where they are read.

A symbol comes from an input of the graph, or from the operator whose result's size it is. Any other
number is arithmetic on symbols. So what a backward needs of the forward's sizes are symbols, which
cost nothing to keep, never a tensor whose size somebody asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from sympy.logic.boolalg import Boolean
from torch.fx import Graph, Node, Proxy
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from refcompiler.aot.inputs import Unsupported
from refcompiler.shapes.env import ShapeEnv
from refcompiler.shapes.functions import FUNCTIONS, NARY
from refcompiler.shapes.node import SYMBOLS
from refcompiler.shapes.text import compiled

#: Targets of nodes whose results are arithmetic on numbers.
ARITHMETIC = frozenset(FUNCTIONS.values())
_KINDS = (*SYMBOLS, int, float, bool)


def is_number(value: Any) -> bool:
    return isinstance(value, _KINDS)


def environment(values: Iterable[Any]) -> Any:
    """What knows the symbols among ``values``, or in sizes of tensors among them; else None."""
    for value in values:
        for number in _parts(value):
            if type(number) in SYMBOLS:
                return number.node.shape_env
    return None


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, torch.Tensor):
        return (*value.shape, *value.stride(), value.storage_offset())
    return (value,)


def symbols_of(value: Any) -> set[Any]:
    """The symbols that a number is made of, or the sizes, strides and offset of a tensor."""
    found: set[Any] = set()
    for number in _parts(value):
        if type(number) in SYMBOLS:
            found |= number.node.expr.free_symbols
    return found


def write(
    expr: Any, known: Mapping[Any, Any], make: Callable[[Any, tuple, Any], Any], note: Callable
) -> Any:
    """What stands for ``expr`` where ``known`` says what stands for its parts.

    ``make(function, operands, expression)`` writes one call, and ``note(expression, made)`` is told
    of it.
    """
    found = known.get(expr)
    if found is not None:
        return found
    if expr.is_Integer:
        return int(expr)
    if not expr.free_symbols:
        return compiled(expr, ())()
    function = FUNCTIONS.get(expr.func)
    if expr.is_Symbol or function is None:
        raise Unsupported(f"the number {expr}, which no input gives, is an operand")
    parts = [write(part, known, make, note) for part in expr.args]
    if expr.func in NARY:
        made = parts[0]
        for n in range(1, len(parts)):
            made = make(function, (made, parts[n]), expr.func(*expr.args[: n + 1]))
    else:
        made = make(function, tuple(parts), expr)
    note(expr, made)
    return made


class Known:
    """A number whose node is there, or is made when it is first asked for."""

    def __init__(self, proxy: Any):
        self.proxy = proxy

    def force(self) -> Any:
        return self.proxy


class Numbers:
    """In the place of a tracer's own table of numbers and their nodes.

    The tracer offers every number that comes up; only those are taken that no others make.
    """

    def __init__(self, tracer: Any, env: ShapeEnv, given: set[Any]):
        self.tracer, self.env = tracer, env
        self.thunks: dict[Any, Any] = {}  # of symbols
        self.nodes: dict[Any, Node] = {}
        for symbol, entry in tracer.sympy_expr_tracker.items():
            if symbol in given:
                self.thunks[symbol] = entry.proxy

    def _is_root(self, expr: Any) -> bool:
        """A symbol, or a truth value that the graph itself finds."""
        return expr.is_Symbol or (expr.is_Relational and self.env.is_unbacked(expr))

    def __contains__(self, number: Any) -> bool:
        expr = number.node.expr
        return expr in self.thunks or not self._is_root(expr)

    def __setitem__(self, number: Any, thunk: Any) -> None:
        self.thunks[number.node.expr] = thunk

    def get(self, number: Any, default: Any = None) -> Any:
        node = number.node
        if not node.is_symbolic():
            return default
        found = self.thunks.get(node.expr)
        if found is not None:
            return found
        made = write(node.expr, _Roots(self), self._make, self.nodes.__setitem__)
        return Known(Proxy(made, self.tracer) if isinstance(made, Node) else made)

    def _make(self, function: Callable, operands: tuple, expr: Any) -> Node:
        made = self.tracer.create_node("call_function", function, operands, {})
        made.meta["val"] = value_of(self.env, expr)
        return made


class _Roots(Mapping[Any, Any]):
    """The nodes of expressions, those of symbols when they are asked for."""

    def __init__(self, numbers: Numbers):
        self.numbers = numbers

    def get(self, expr: Any, default: Any = None) -> Any:
        found = self.numbers.nodes.get(expr)
        if found is None and expr in self.numbers.thunks:
            found = self.numbers.nodes[expr] = self.numbers.thunks[expr].force().node
        return default if found is None else found

    def __getitem__(self, expr: Any) -> Any:
        found = self.get(expr)
        if found is None:
            raise KeyError(expr)
        return found

    def __iter__(self) -> Any:
        return iter({**self.numbers.thunks, **self.numbers.nodes})

    def __len__(self) -> int:
        return len({**self.numbers.thunks, **self.numbers.nodes})


def value_of(env: Any, expr: Any) -> Any:
    """The symbolic number that is ``expr``."""
    is_truth = isinstance(expr, Boolean) and not expr.is_Symbol  # which sympy takes for one
    kind = bool if is_truth else int if expr.is_integer else float
    return env.wrap(env.node(expr, kind, env.hint_of(expr)))


def begin(env: Any, inputs: Iterable[Any]) -> None:
    """The graph that is being traced writes its numbers by these rules (torch's have torch's).

    ``inputs``: those which give symbols. A tangent does not: its size is that of a result.
    """
    mode = get_proxy_mode()
    if isinstance(env, ShapeEnv) and mode is not None:
        given = set().union(*map(symbols_of, inputs))
        mode.tracer.symnode_tracker = Numbers(mode.tracer, env, given)
        mode.tracer.sympy_expr_tracker = {}


class Given:
    """Writes numbers into a finished graph, of those that its inputs have."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.known: dict[Any, Node] = {}

    def learn(self, node: Node) -> None:
        """``node`` of this graph gives a number, or sizes."""
        value = node.meta.get("val")
        if type(value) in SYMBOLS:
            self.known.setdefault(value.node.expr, node)

    def __call__(self, number: Any) -> Any:
        if type(number) not in SYMBOLS:
            return number
        env = number.node.shape_env

        def make(function: Callable, operands: tuple, expr: Any) -> Node:
            made = self.graph.call_function(function, operands)
            made.meta["val"] = value_of(env, expr)
            return made

        return write(number.node.expr, self.known, make, self.known.__setitem__)
