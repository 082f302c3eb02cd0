"""``explain``: what would be compiled, and why not more."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from refcompiler.capture.signals import Reason
from refcompiler.errors import UnsupportedError
from refcompiler.guards.kinds import Guard
from refcompiler.plan.build import Plan
from refcompiler.runtime.api import Compiler, wrapped
from refcompiler.runtime.counters import reasons


@dataclass
class Explanation:
    """What the calls of an explained function were captured as.

    ``graphs`` in the order of capture; ``ops_per_graph`` the targets of their operations;
    ``break_reasons`` why graphs end, with the row of the specification, the user's place and the
    stack; ``out_guards`` what compiled code checks; ``fallbacks`` functions that run natively, and
    why; ``captures`` how many programs were captured in ``seconds``.
    """

    graphs: list[torch.fx.GraphModule] = field(default_factory=list)
    ops_per_graph: list[list[Any]] = field(default_factory=list)
    break_reasons: list[Reason] = field(default_factory=list)
    out_guards: list[Guard] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)
    captures: int = 0
    seconds: float = 0.0

    @property
    def graph_count(self) -> int:
        return len(self.graphs)

    @property
    def graph_break_count(self) -> int:
        return len(self.break_reasons)

    @property
    def op_count(self) -> int:
        return sum(map(len, self.ops_per_graph))

    @property
    def compile_times(self) -> str:
        """What ``captures`` and ``seconds`` say, as the text that torch's explanations have."""
        return f"{self.captures} captures, with the call: {self.seconds:.4f} s"

    def __str__(self) -> str:
        lines = [
            f"Graphs: {self.graph_count}, operations: {self.op_count}, "
            f"graph breaks: {self.graph_break_count}, guards: {len(self.out_guards)}, "
            f"captured in {self.seconds * 1e3:.0f} ms"
        ]
        for i, operations in enumerate(self.ops_per_graph, 1):
            names = Counter(map(_name, operations))
            shown = ", ".join(f"{n} x {name}" if n > 1 else name for name, n in names.items())
            lines.append(f"Graph {i}: {len(operations)} operations: {shown}")
        for i, reason in enumerate(self.break_reasons, 1):
            lines.append(f"Break {i}: {reason}")
            lines += [f"    {file}:{line} in {name}" for file, line, name in reason.stack]
        lines += [f"Not compiled: {why}" for why in self.fallbacks]
        kinds = Counter(guard.kind for guard in self.out_guards)
        if kinds:
            lines.append("Guards: " + ", ".join(f"{n} {k}" for k, n in sorted(kinds.items())))
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<explanation: {self.graph_count} graphs, {self.graph_break_count} breaks>"


def _name(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def explain(model: Any) -> Callable[..., Explanation]:
    """``explain(model)(*args, **kwargs)`` captures one call, runs it, and tells what was captured.

    ``model``: what :func:`refcompiler.compile` takes. The graphs run as they are; nothing that was
    compiled before is used or changed. The user's exceptions come out as they are.
    """
    if not callable(model) or isinstance(model, type):
        raise TypeError(
            f"explain: expected a function, method, nn.Module or callable, not {model!r}"
        )

    def run(*args: Any, **kwargs: Any) -> Explanation:
        found = Explanation()

        def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
            found.graphs.append(graph)
            found.ops_per_graph.append(
                [n.target for n in graph.graph.nodes if n.op in ("call_function", "call_method")]
            )
            return graph.forward

        def watch(plan: Plan) -> None:
            found.captures += 1
            found.out_guards += plan.guards
            if plan.reason is not None:
                found.break_reasons.append(plan.reason)

        known = len(reasons("fallbacks"))
        compiler = Compiler(backend, False, watch)
        began = time.perf_counter()
        wrapped(model, compiler, _not_copied)(*args, **kwargs)
        found.seconds = time.perf_counter() - began
        found.fallbacks = [str(why) for why in reasons("fallbacks")[known:]]
        return found

    return run


def _not_copied(module: Any) -> Any:
    raise UnsupportedError("what explain runs is not for copying: copy the module itself")
