"""The ``reference`` backend: a graph run node by node, never fused, optionally in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_map

from refcompiler.backends.registry import register_backend
from refcompiler.caught import last_caught

_LOW = (torch.float16, torch.bfloat16, torch.float32)
_LOW_COMPLEX = (torch.complex32, torch.complex64)


def _raise_precision(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dtype in _LOW:
            return value.to(torch.float64)
        if value.dtype in _LOW_COMPLEX:
            return value.to(torch.complex128)
        return value
    if isinstance(value, torch.dtype):
        if value in _LOW:
            return torch.float64
        if value in _LOW_COMPLEX:
            return torch.complex128
    return value


class _Raised(torch.fx.Interpreter):
    """Runs each node with every float dtype replaced by float64."""

    def run_node(self, n: torch.fx.Node) -> Any:
        return tree_map(_raise_precision, super().run_node(n))

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_function(target, *tree_map(_raise_precision, (args, kwargs)))

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target in ("float", "half", "bfloat16"):  # casts whose dtype is in the name
            target = "double"
        return super().call_method(target, *tree_map(_raise_precision, (args, kwargs)))


def _interpreter(kind: type[torch.fx.Interpreter], graph: torch.fx.GraphModule) -> Any:
    """A new one for each run: it keeps values, and after an error modes that are on."""
    made = kind(graph, garbage_collect_values=last_caught(graph.graph) is None)
    made.extra_traceback = False  # the message is the operation's own
    return made


@register_backend(name="reference")
def backend(
    graph: torch.fx.GraphModule,
    inputs: list[Any],
    *,
    precision: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable:
    """Run the nodes of ``graph`` one by one, as written. ``options``: as torch gives them.

    ``precision="float64"``: every floating tensor is computed in float64 (complex in complex128)
    and the outputs are cast back to the dtypes that the graph has; inputs that the graph changes
    are written back.
    """
    if options:
        return backend(graph, inputs, **{"precision": precision, **options})
    if precision not in (None, "float64"):
        raise ValueError(f"reference: precision is None or 'float64', not {precision!r}")
    if precision is None:
        return lambda *given: _interpreter(torch.fx.Interpreter, graph).run(*given)

    output = list(graph.graph.find_nodes(op="output"))[0]
    dtypes = [
        node.meta["example_value"].dtype if isinstance(node, torch.fx.Node) else None
        for node in output.args[0]
    ]

    def run(*given: Any) -> Any:
        wide = [_raise_precision(value) for value in given]
        before = [value._version if isinstance(value, torch.Tensor) else 0 for value in wide]
        found = _interpreter(_Raised, graph).run(*wide)
        for original, value, version in zip(given, wide, before, strict=True):
            if value is not original and value._version != version:
                original.copy_(value)
        return tuple(
            value.to(dtype) if isinstance(value, torch.Tensor) else value
            for value, dtype in zip(found, dtypes, strict=True)
        )

    return run


backend.takes_symbols = True
