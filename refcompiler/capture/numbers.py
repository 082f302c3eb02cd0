"""Symbolic numbers as nodes of the graph: arguments of operations, and results that depend on data.

The names are those of torch's own graphs: ``operator`` functions, ``torch.sym_max`` and its like.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

import sympy
import torch

from refcompiler.capture.signals import Break
from refcompiler.shapes.functions import FUNCTIONS, NARY, type_of
from refcompiler.shapes.node import SYMBOLS
from refcompiler.shapes.text import compiled


def check(condition: Any, error: str, message: str) -> None:
    """A condition on numbers that depend on data, as ``torch._check`` checks it in eager mode.

    ``error`` is the name of a built-in exception.
    """
    if type(condition) is torch.SymBool:  # a compiler traces the graph: the check is for its runs
        torch._check(condition, lambda: message)
        torch.ops.aten._assert_scalar.default(condition, message)
    elif not condition:
        raise getattr(builtins, error)(message)


_DTYPES = {torch.SymInt: torch.int64, torch.SymBool: torch.bool, int: torch.int64, bool: torch.bool}


def tensor_of(data: Any, dtype: Any = None, device: Any = None) -> Any:
    """``torch.tensor`` of a symbol, or of (nested) lists with symbols among their numbers.

    Made of tensors of no dimension, which graphs can hold. NotImplemented for other ``data``.
    """
    kinds = {type(item) for item in leaves_of(data)}
    if not kinds & SYMBOLS or kinds - SYMBOLS - {int, float, bool} or shape_of(data) is None:
        return NotImplemented
    if dtype is None:  # floats before ints before bools
        default = torch.get_default_dtype()
        found = {_DTYPES.get(kind, default) for kind in kinds}
        dtype = next(each for each in (default, torch.int64, torch.bool) if each in found)
    return _stacked(data, dtype, device)


def _stacked(data: Any, dtype: torch.dtype, device: Any) -> torch.Tensor:
    if type(data) in (list, tuple):
        return torch.stack([_stacked(item, dtype, device) for item in data])
    return torch.scalar_tensor(data, dtype=dtype, device=device)


def leaves_of(data: Any) -> Iterator[Any]:
    """What (nested) lists and tuples hold."""
    if type(data) in (list, tuple):
        for item in data:
            yield from leaves_of(item)
    else:
        yield data


def shape_of(data: Any) -> tuple[int, ...] | None:
    """The shape of nested lists, or None if they are not even."""
    if type(data) not in (list, tuple):
        return ()
    shapes = {shape_of(item) for item in data}
    inner = shapes.pop() if len(shapes) == 1 else None
    return None if inner is None else (len(data), *inner)


def argument(recorder: Any, value: Any) -> Any:
    """The node, or the number, that stands for a symbol as an argument of an operation."""
    node = value.node
    return _node(recorder, recorder.scope, node.expr, node.pytype)


def is_known(scope: Any, value: Any) -> bool:
    """Whether the graph of ``scope`` can compute ``value``."""
    known: set[Any] = set()
    while scope is not None:
        known |= scope.numbers.keys()
        scope = scope.outer
    return value.node.expr in known or value.node.expr.free_symbols <= known


def _lifted(recorder: Any, scope: Any, symbol: sympy.Symbol) -> torch.fx.Node:
    """A symbol of an outer scope as an input of a region's graph."""
    outer = _node(recorder, scope.outer, symbol, int)
    value = outer.meta["example_value"]
    node = scope.placeholder(str(symbol))
    node.meta["example_value"] = value
    scope.lifted.append(value)
    scope.versions.append(0)
    scope.nodes[id(value)] = scope.numbers[symbol] = node
    return node


def _node(recorder: Any, scope: Any, expr: Any, pytype: type) -> Any:
    if expr.is_Integer:
        return int(expr)
    if not expr.free_symbols:
        return compiled(expr, ())()
    found = scope.numbers.get(expr)
    if found is not None:
        return found
    if expr.is_Symbol and scope.outer is not None:
        return _lifted(recorder, scope, expr)
    if expr.is_Symbol:
        raise Break("operation-not-modelled", f"the number {expr}, which no operation gave")
    function = FUNCTIONS.get(expr.func)
    if function is None:
        raise Break("operation-not-modelled", f"the number {expr} as an argument")
    parts = [_node(recorder, scope, part, type_of(part)) for part in expr.args]
    if expr.func in NARY:
        made = parts[0]
        for part in parts[1:]:
            made = scope.graph.call_function(function, (made, part))
    else:
        made = scope.graph.call_function(function, tuple(parts))
    env = recorder.fake_mode.shape_env
    made.meta["example_value"] = env.wrap(env.node(expr, pytype, env.hint_of(expr)))
    scope.numbers[expr] = made
    return made


def learn(scope: Any, node: torch.fx.Node, result: Any) -> None:
    """``node`` gives ``result``: the symbols in it that nothing gave before come from there."""
    if isinstance(result, torch.Tensor):
        for d, size in enumerate(result.shape):
            if isinstance(size, torch.SymInt) and _is_new(scope, size):
                part = scope.graph.call_method("size", (node, d))
                part.meta["example_value"] = size
                scope.numbers[size.node.expr] = part
    elif type(result) in SYMBOLS and _is_new(scope, result):
        scope.numbers[result.node.expr] = node


def _is_new(scope: Any, number: Any) -> bool:
    expr, env = number.node.expr, number.node.shape_env
    if expr in scope.numbers or not (expr.is_Symbol or expr.is_Relational):
        return False
    return env.is_unbacked(expr)
