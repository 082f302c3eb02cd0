"""Graphs with numbers among their inputs, compiled once for each of the numbers that come.

For compilers that take no symbols, and for graphs that cannot be traced with them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

#: Programs of one graph; what comes after them runs the graph as it is.
LIMIT = 16
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_NUMBERS = (int, float, bool)

Compile = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def number_inputs(example_inputs: Sequence[Any]) -> list[int]:
    """The places of numbers among a graph's inputs."""
    return [i for i, v in enumerate(example_inputs) if isinstance(v, (*_SYMBOLS, *_NUMBERS))]


def compile_for_sizes(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    places: list[int],
    compile: Compile,
    crowded: Callable[[Any, str], None] | None = None,
) -> Callable[..., Any]:
    """A callable on the graph's inputs that has a program for each combination of numbers.

    The sizes of the tensors have to follow from the numbers, as the front end sees to.
    ``compile(graph, example tensors)`` makes a program; the first one is made at once, and the
    callable has the attributes of the newest. ``crowded(callable, why)`` is told of each call that
    runs the graph as it is.
    """
    taken = set(places)
    tensors = [i for i in range(len(example_inputs)) if i not in taken]
    programs: dict[tuple, Callable[..., Any]] = {}

    def program(key: tuple, given: Sequence[Any]) -> Callable[..., Any]:
        made = compile(specialised(gm, dict(zip(places, key, strict=True))), given)
        programs[key] = made
        call.__dict__.update(made.__dict__)
        return made

    def call(*inputs: Any) -> Any:
        key = tuple([inputs[i] for i in places])
        found = programs.get(key)
        given = [inputs[i] for i in tensors]
        if found is None:
            if len(programs) >= LIMIT:
                if crowded is not None:
                    crowded(call, f"more than {LIMIT} combinations of sizes came")
                return gm(*inputs)
            found = program(key, given)
        return found(*given)

    hints = [_hint(gm, example_inputs, i) for i in places]
    program(tuple(hints), [example_inputs[i] for i in tensors])
    return call


class Sized:
    """Calls that programs with symbols do not serve: ``make(inputs)`` at the first of them."""

    def __init__(self, make: Callable[[Sequence[Any]], Callable[..., Any]]):
        self.make = make
        self.made: Callable[..., Any] | None = None

    def __call__(self, *inputs: Any) -> Any:
        if self.made is None:
            self.made = self.make(inputs)
        return self.made(*inputs)


def _hint(gm: torch.fx.GraphModule, inputs: Sequence[Any], place: int) -> Any:
    """The value that the number at ``place`` has now."""
    value = inputs[place]
    if not isinstance(value, _SYMBOLS):
        return value
    if value.node.hint is not None:
        return value.node.hint
    # A size that is not to be known while compiling: a tensor's that has it.
    for node, real in zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=True):
        for d, size in enumerate(getattr(node.meta.get("example_value"), "shape", ())):
            if isinstance(size, torch.SymInt) and size.node.expr == value.node.expr:
                return int(real.shape[d])
    return 2


def specialised(gm: torch.fx.GraphModule, numbers: dict[int, Any]) -> torch.fx.GraphModule:
    """A copy of the graph without the inputs at ``numbers``, which are those numbers instead."""
    graph = torch.fx.Graph()
    known: dict[torch.fx.Node, Any] = {}
    place = itertools.count()

    def value(node: torch.fx.Node) -> Any:
        return known[node]

    for node in gm.graph.nodes:
        if node.op == "placeholder" and (i := next(place)) in numbers:
            known[node] = numbers[i]
            continue
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), value)
        if node.op == "call_function" and _is_arithmetic(node):
            parts: list[Any] = []
            torch.fx.map_arg((args, kwargs), parts.append)
            if not parts:  # arithmetic of numbers
                known[node] = node.target(*args, **kwargs)
                continue
        made = graph.create_node(node.op, node.target, args, kwargs, node.name)
        made.meta = {k: v for k, v in node.meta.items() if k != "example_value"}
        known[node] = made
    return torch.fx.GraphModule(gm, graph)


def _is_arithmetic(node: torch.fx.Node) -> bool:
    return isinstance(node.meta.get("example_value"), (*_SYMBOLS, *_NUMBERS))
