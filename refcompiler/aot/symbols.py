"""Compiling with symbols in the place of sizes: the environment that knows them, and its decisions.

The symbols are those of the front end that made the graph, so what observing and tracing decide by
them becomes guards of its entry: forward and backward are traced together before the first call.
Only a compiler of backwards, which is asked later, can decide something too late for that.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from refcompiler.aot.inputs import Unsupported
from refcompiler.aot.numbers import value_of
from refcompiler.fakes.mode import EagerFakeMode
from refcompiler.naming import target_name
from refcompiler.remade import made, maker
from refcompiler.shapes.env import ShapeEnv
from refcompiler.shapes.node import SYMBOLS
from refcompiler.shapes.relations import Assertion
from refcompiler.shapes.text import NAMES, python

_VIEWED_IN_PLACE = frozenset(
    "t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ as_strided_ resize_ set_".split()
)


def with_symbols(gm: GraphModule, examples: Sequence[Any]) -> list[Any]:
    """``examples`` with those for which symbols stand in the graph replaced by its own fakes.

    Raises :class:`Unsupported` if those may have other sizes by now: capture ran the graph on them.
    """
    shown = list(examples)
    if not any(type(value) in SYMBOLS for value in examples):
        return shown
    for node in gm.graph.nodes:
        name = target_name(node.target)
        if name in _VIEWED_IN_PLACE:
            raise Unsupported("the graph changes the sizes of a tensor in place")
        if name == "lstm":
            raise Unsupported("an lstm chooses its kernel by the sizes")
    for place, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        fake = node.meta.get("example_value")
        if isinstance(fake, torch.Tensor) and fake._has_symbolic_sizes_strides:
            asks = examples[place].requires_grad
            if fake.requires_grad != asks:  # capture ran the graph on it, which wrote or detached
                fake = fake.detach().requires_grad_(asks)
            shown[place] = fake
    return shown


def fake_mode(env: Any) -> EagerFakeMode:
    """What a graph is traced under."""
    mode = EagerFakeMode(allow_non_fake_inputs=False, shape_env=env)
    if env is not None and not isinstance(env, ShapeEnv):
        mode.cache_enabled = False  # its memory of results knows no symbols of others
    return mode


@contextlib.contextmanager
def observing(env: Any) -> Iterator[list[Any]]:
    """While a graph is observed; gives a list that has the symbols which that made, in the end.

    What it assumes of them is checked by the graph, which has nodes for that.
    """
    found: list[Any] = []
    if env is None:
        yield found
        return
    if not isinstance(env, ShapeEnv):
        with env.ignore_fresh_unbacked_symbols():
            yield found
        return
    count, told, env.on_assertion = len(env.made), env.on_assertion, None
    try:
        with env.ignore_fresh_unbacked_symbols(), _any_operator(env), _quietly():
            yield found
    finally:
        env.on_assertion = told
    found += env.made[count:]
    env.forget(found)


@contextlib.contextmanager
def repeating(env: Any, symbols: Sequence[Any]) -> Iterator[None]:
    """While it is traced: ``symbols`` come again, and new assumptions are checks of the trace."""
    if env is None:
        yield
        return
    env.pending_fresh_unbacked_symbols.clear()
    if not isinstance(env, ShapeEnv):
        yield
        return
    told, env.on_assertion = env.on_assertion, lambda made: _check(env, made)
    try:
        with env.repeating(symbols), _any_operator(env), _quietly():
            yield
    finally:
        env.on_assertion = told
        env.pending_fresh_unbacked_symbols.clear()


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Torch logs a stand-in that knows no symbols as an error; here the graph loses them then."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


@contextlib.contextmanager
def _any_operator(env: ShapeEnv) -> Iterator[None]:
    """Also those that a user wants no graph to have: one may be a part of what the graph has."""
    before = env.allow_scalar_outputs, env.allow_dynamic_output_shape_ops
    env.allow_scalar_outputs = env.allow_dynamic_output_shape_ops = True
    try:
        yield
    finally:
        env.allow_scalar_outputs, env.allow_dynamic_output_shape_ops = before


def _check(env: ShapeEnv, made: Assertion) -> None:
    mode = get_proxy_mode()
    if mode is None:
        return
    tracer = mode.tracer
    condition = tracer.symnode_tracker.get(value_of(env, made.condition)).force()
    message = f"the sizes of this call are not as the graph needs them: {made.condition}"
    node = getattr(condition, "node", condition)
    tracer.create_node("call_function", torch.ops.aten._assert_scalar.default, (node, message), {})


def sources_of(inputs: Sequence[Any]) -> dict[Any, str]:
    """Where a call's inputs ``x0``, ``x1``, ... have the value of each symbol, as Python."""
    return {symbol: _text(*at) for symbol, at in places_of(inputs).items()}


def _text(n: int, d: int | None) -> str:
    return f"x{n}" if d is None else f"x{n}.size({d})"


def places_of(inputs: Sequence[Any]) -> dict[Any, tuple[int, int | None]]:
    """Which input has the value of each symbol, and in which dimension, if it is no number."""
    found: dict[Any, tuple[int, int | None]] = {}
    for n, value in enumerate(inputs):
        if type(value) in SYMBOLS and value.node.expr.is_Symbol:
            found.setdefault(value.node.expr, (n, None))
    for n, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor):
            continue
        for d, size in enumerate(value.shape):
            if type(size) in SYMBOLS and size.node.expr.is_Symbol:
                found.setdefault(size.node.expr, (n, d))
    return found


def _conditions(env: Any) -> list[Any]:
    if isinstance(env, ShapeEnv):
        return [relation.condition for relation in env.relations]
    return [] if env is None else [guard.expr for guard in env.guards]


@contextlib.contextmanager
def deciding(env: Any) -> Iterator[list[Any]]:
    """Gives a list of what is decided by symbols until the end."""
    before = len(_conditions(env))
    found: list[Any] = []
    yield found
    found += _conditions(env)[before:]


def where(
    conditions: Sequence[Any],
    values: Sequence[Any],
    compiled_graph: Callable[..., Any],
    graph: Callable[..., Any],
) -> Callable[..., Any]:
    """``compiled_graph`` for calls in which ``conditions`` hold; ``graph`` as it is for others.

    ``values``: what it was compiled with, numbers with the symbols of the conditions among them.
    """
    places = places_of(values)
    if any(not condition.free_symbols <= places.keys() for condition in conditions):
        return graph
    asked = set().union(*[condition.free_symbols for condition in conditions])
    known = [(symbol, *at) for symbol, at in places.items() if symbol in asked]
    return _chosen(tuple(conditions), known, len(values), compiled_graph, graph)


@maker
def _chosen(
    conditions: Sequence[Any],
    places: Sequence[tuple[Any, int, int | None]],
    count: int,
    compiled_graph: Callable[..., Any],
    graph: Callable[..., Any],
) -> Callable[..., Any]:
    names = {symbol: _text(n, d) for symbol, n, d in places}
    texts = [python(condition, names.__getitem__) for condition in conditions]
    parameters = ", ".join([f"x{n}" for n in range(count)])
    holds = eval(f"lambda {parameters}: {' and '.join(texts)}", dict(NAMES))

    def call(*given: Any) -> Any:
        return compiled_graph(*given) if holds(*given) else graph(*given)

    return made(call, _chosen, conditions, places, count, compiled_graph, graph)
