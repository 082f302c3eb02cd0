"""From a finished capture to a plan: the graph for the backend, and the generated function."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CellType
from typing import Any

import torch

from refcompiler.capture.machine import Captured
from refcompiler.capture.signals import Reason
from refcompiler.capture.values import DELETED, External
from refcompiler.guards.kinds import Guard
from refcompiler.plan.rebuild import Rebuilder
from refcompiler.plan.resume import Layout, describe
from refcompiler.plan.writer import Writer


@dataclass
class Plan:
    """``run`` is the generated function; it answers ``MISS`` when a guard fails."""

    run: Callable
    source: str
    guards: list[Guard]
    graph: torch.fx.GraphModule | None
    operations: int
    reason: Reason | None
    values: dict[Any, Any] = field(default_factory=dict)


MISS: Any = type("Miss", (), {"__repr__": lambda self: "MISS", "__slots__": ()})()
_GUARD_ERRORS = (AttributeError, KeyError, IndexError, TypeError, ValueError)


def build(
    captured: Captured,
    parameters: list[str],
    title: str,
    compile_graph: Callable[[torch.fx.GraphModule, list[Any]], Callable],
    pending: Callable[..., Any],
    root: bool,
) -> Plan:
    """The plan of ``captured``.

    ``parameters`` are the generated function's, in the order of the sources of kind ``arg``;
    ``compile_graph`` is asked once if there are operations; ``pending(layout, values, exc)``
    makes what a plan answers that ends in a break, unless ``root``, which drives it at once.
    """
    machine = captured.machine
    writer = Writer()
    writer.namespace["__MISS"] = MISS
    writer.namespace["__GUARD_ERRORS"] = _GUARD_ERRORS
    guards = _ordered_guards(captured)
    for guard in guards:
        writer.check(guard)
    checks = writer.take()

    rebuilder = Rebuilder(machine, writer)
    result, layout = _result(captured, rebuilder, writer, pending, root)
    effects = _effects(machine, rebuilder, writer)
    reads = writer.take()

    lines = ["try:"]
    lines += ["    " + line for line in checks + reads] or ["    pass"]
    lines += ["except __GUARD_ERRORS:", "    return __MISS"]
    graph_module = None
    recorder = machine.recorder
    if recorder.operations:
        graph_module, inputs, names = _graph(machine, rebuilder, writer)
        late = writer.take()
        assert not late, late
        writer.namespace["__graph"] = compile_graph(graph_module, inputs)
        call = f"__graph({', '.join(names)})"
        targets = [f"__g{i}" for i in range(len(rebuilder.outputs))]
        if targets:
            call = f"{', '.join(targets)}, = {call}"
        lines.append(call)
    if captured.grad != machine.ambient.grad:
        writer.namespace["__set_grad_enabled"] = torch._C._set_grad_enabled
        lines.append(f"__set_grad_enabled({captured.grad})")
    lines += rebuilder.lines + effects
    if captured.reason is not None and machine.steps == 1 and not recorder.operations:
        writer.namespace["__stands_still"] = True
    lines.append(f"return {result}")
    run = writer.function(parameters, lines, title)
    return Plan(
        run,
        run.source,  # type: ignore[attr-defined]
        guards,
        graph_module,
        recorder.operations,
        captured.reason,
    )


def _ordered_guards(captured: Captured) -> list[Guard]:
    """Ambient state first, then the arguments' tensors, then the order in which capture asked."""
    machine = captured.machine
    machine.frame = None
    ambient = Guard("AMBIENT", None, machine.ambient, ("", 0))
    if len(machine.inputs) > 1 and machine.recorder.mutates:
        sources = tuple(source for _, source, _ in machine.inputs.values())
        machine.guard("UNIQUE", None, sources)
    for changed in list(machine.changed.values()):
        for other in list(machine.external.values()):
            if type(other.value) is type(changed.value) and other.value is not changed.value:
                if not isinstance(other.value, (CellType, dict)) and other.shadow is None:
                    machine.guard("DISTINCT", changed.source, other.source)
    first, rest = [], []
    for guard in machine.guards.values():
        is_argument = guard.source is not None and guard.source.kind == "arg"
        (first if is_argument and guard.kind == "TENSOR" else rest).append(guard)
    return [ambient, *first, *rest]


def _result(
    captured: Captured, rebuilder: Rebuilder, writer: Writer, pending: Callable, root: bool
) -> tuple[str, Layout | None]:
    machine = captured.machine
    if captured.frames is None:
        return rebuilder.expression(captured.value), None
    layout, values = describe(captured.frames)
    texts = [rebuilder.expression(value) for value in values]
    error = "None" if machine.exc is None else rebuilder.expression(machine.exc)
    writer.namespace["__pending"] = pending
    layout_name = writer.constant(layout)
    listed = "".join(f"{text}, " for text in texts)
    return f"__pending({layout_name}, ({listed}), {error})", layout


def _graph(
    machine: Any, rebuilder: Rebuilder, writer: Writer
) -> tuple[torch.fx.GraphModule, list[Any], list[str]]:
    """Finish the fx graph: outputs, without unused inputs; the real inputs and their names."""
    graph = machine.recorder.graph
    graph.output(tuple(rebuilder.outputs))
    inputs, names = [], []
    for known in machine.input_order:
        real, source, fake = machine.inputs[known]
        node = machine.recorder.nodes[id(fake)]
        if not node.users:
            graph.erase_node(node)
            continue
        inputs.append(real)
        names.append(writer.read(source))
    return torch.fx.GraphModule(torch.nn.Module(), graph), inputs, names


# ---- side effects -----------------------------------------------------------------------------


def _effects(machine: Any, rebuilder: Rebuilder, writer: Writer) -> list[str]:
    """Statements that replay what the frame did to objects from outside."""
    lines: list[str] = []
    for (owner, name), value in machine.overlay.items():
        external = machine.changed[owner]
        target = writer.read(external.source)
        if isinstance(external.value, dict):  # a module's globals, or a namespace
            place = f"{target}[{writer.constant(name)}]"
            if value is DELETED:  # it may be what the frame itself had put there
                lines.append(f"{target}.pop({writer.constant(name)}, None)")
                continue
        elif isinstance(external.value, CellType):
            place = f"{target}.cell_contents"
        else:
            setter = writer.constant(object.__setattr__)
            if value is DELETED:
                lines.append(f"{writer.constant(_discard)}({target}, {name!r})")
            else:
                lines.append(f"{setter}({target}, {name!r}, {rebuilder.expression(value)})")
            continue
        lines.append(
            f"del {place}" if value is DELETED else f"{place} = {rebuilder.expression(value)}"
        )
    for external in _shadows(machine):
        lines += _container_effect(external, rebuilder, writer)
    return lines


def _discard(owner: Any, name: str) -> None:
    """Delete an attribute, unless only the frame itself had made it."""
    with contextlib.suppress(AttributeError):
        object.__delattr__(owner, name)


def _shadows(machine: Any) -> list[External]:
    seen: dict[int, External] = {}
    for external in machine.external.values():
        if external.shadow is not None:
            seen[id(external)] = external
    return list(seen.values())


def _same(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def _container_effect(external: External, rebuilder: Rebuilder, writer: Writer) -> list[str]:
    shadow, original = external.shadow, external.original
    if isinstance(shadow, (tuple, frozenset)):
        return []
    if isinstance(shadow, dict):
        if list(shadow) == list(original) and _same(shadow.values(), original.values()):
            return []
        target = writer.read(external.source)
        kept = list(shadow)[: len(original)] == list(original)
        lines = []
        if not kept:
            lines.append(f"{target}.clear()")
        for key, value in shadow.items():
            if not kept or key not in original or original[key] is not value:
                pair = f"[{rebuilder.expression(key)}] = {rebuilder.expression(value)}"
                lines.append(target + pair)
        return lines
    if isinstance(shadow, set):
        if shadow == original:
            return []
        target = writer.read(external.source)
        return [f"{target}.clear()", f"{target}.update([{rebuilder.many(shadow)}])"]
    if _same(shadow, original):
        return []
    target = writer.read(external.source)
    items = rebuilder.many(shadow)
    if type(shadow) is list:
        return [f"{target}[:] = [{items}]"]
    return [f"{target}.clear()", f"{target}.extend([{items}])"]


