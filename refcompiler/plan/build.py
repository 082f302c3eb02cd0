"""From a finished capture to a plan: the graph for the backend, and the generated function."""

from __future__ import annotations

import contextlib
import functools
import random
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CellType
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_symbols

from refcompiler.ambient import around_block
from refcompiler.capture.door import version_of
from refcompiler.capture.gathers import check_gathers
from refcompiler.capture.iterators import guard_views
from refcompiler.capture.lookup import is_heap
from refcompiler.capture.machine import Captured
from refcompiler.capture.personal import has_own_order
from refcompiler.capture.signals import Reason, Restart
from refcompiler.capture.state.hooks import set_hooks
from refcompiler.capture.state.leaves import check_leaves, switched, switching
from refcompiler.capture.state.modes import go_on_in_blocks, leave_modes, mark_leaves
from refcompiler.capture.state.switches import leave_switches
from refcompiler.capture.values import is_changed
from refcompiler.caught import hold_for_handlers
from refcompiler.errors import BackendError
from refcompiler.guards.classes import is_plain
from refcompiler.guards.kinds import Guard
from refcompiler.guards.parameters import is_new
from refcompiler.guards.sources import Source
from refcompiler.guards.tensors import is_registered, storage_pattern
from refcompiler.plan.effects import replay, set_attributes, shadows
from refcompiler.plan.entry import Entry
from refcompiler.plan.failure import OnError, Recover
from refcompiler.plan.holding import weaken
from refcompiler.plan.pinning import origins, pins
from refcompiler.plan.rebuild import Rebuilder
from refcompiler.plan.regions import graph_text
from refcompiler.plan.resume import Layout, Space, describe
from refcompiler.plan.writer import Writer


@dataclass(eq=False)
class Plan:
    """``run`` is the generated function; it answers ``MISS`` when a guard fails.

    ``entry`` is what it checks and reads before its ``body``. ``stands_still``: the frame is where
    it was when it began. ``origins``: classes for which those that are built like them stand in.
    ``is_personal``: another process could come to another plan for the same call.
    """

    entry: Entry
    body: list[str]
    parameters: list[str]
    title: str
    writer: Writer
    graph: torch.fx.GraphModule | None
    operations: int
    reason: Reason | None
    stands_still: bool
    origins: list[weakref.ref[type]]
    is_personal: bool = False

    @functools.cached_property
    def run(self) -> Callable:
        return self.checking(self.entry.guards)

    @property
    def source(self) -> str:
        return self.run.source  # type: ignore[attr-defined]

    @property
    def guards(self) -> Sequence[Guard]:
        return self.entry.guards

    @property
    def is_dead(self) -> bool:
        """Something that it names has died, so that it never holds again."""
        return any(held() is None for held in self.writer.held.values())

    @property
    def is_stale(self) -> bool:
        """It could hold again, but only for another class than it was made for."""
        return any(origin() is None for origin in self.origins)

    def weaken(self) -> bool:
        """Let go of what has been replaced in its module since; whether ``run`` is a new one."""
        before = len(self.writer.held)
        self.entry = weaken(self.entry, self.writer)
        if len(self.writer.held) == before:
            return False
        self.__dict__.pop("run", None)
        return True

    def checking(self, guards: Sequence[Guard], agree: Callable[[], Any] | None = None) -> Callable:
        """The function with these guards only; all such functions share their globals.

        ``agree`` is asked when they hold, and what it answers but None is the function's answer.
        """
        checks = self.entry._replace(guards=guards).lines(self.writer.name, self.writer.constant)
        entry = ["    " + line for line in checks] or ["    pass"]
        asked: list[str] = []
        if agree is not None:
            asked = [f"__other = {self.writer.constant(agree)}()"]
            asked.append("if __other is not None: return __other")
        lines = ["try:", *entry, "except Exception:", "    return __MISS", *asked, *self.body]
        holding = self.writer.holding(lines)
        lines = ["try:", *["    " + line for line in holding], *lines[1:]]
        return self.writer.function(self.parameters, lines, self.title)


MISS: Any = type("Miss", (), {"__repr__": lambda self: "MISS", "__slots__": ()})()


def build(
    captured: Captured,
    parameters: list[str],
    title: str,
    compile_graph: Callable[[torch.fx.GraphModule, list[Any]], Callable],
    pending: Callable[..., Any],
    root: bool,
    recover: Recover | None = None,
    keep: Callable[[list[Guard]], list[Guard]] | None = None,
    number: int = 0,
) -> Plan:
    """The plan of ``captured``, the ``number``-th one of its site.

    ``parameters`` are the generated function's, in the order of the sources of kind ``arg``;
    ``compile_graph`` is asked once if there are operations; ``pending(layout, values, exc)``
    makes what a plan answers that ends in a break, unless ``root``, which drives it at once.
    ``recover`` goes on natively where the graph's run raises; ``keep`` chooses among the guards.
    """
    machine = captured.machine
    writer = Writer()
    writer.namespace["__MISS"] = MISS
    mark_leaves(machine)
    guards = _ordered_guards(captured)
    relations = machine.sizes.guards()
    guards += relations
    if keep is not None:
        guards = keep(guards)
    rebuilder = Rebuilder(machine, writer, captured.frames is None)
    leaves = switched(machine)
    set_attributes(machine, rebuilder)
    rebuilder.set_contexts()
    set_hooks(machine, rebuilder, writer)
    result, layout = _result(captured, rebuilder, writer, pending, root)
    effects = replay(machine, rebuilder, writer)
    lines, undo = _draws(machine, writer)
    for found, statements in zip((lines, undo), switching(leaves, writer), strict=True):
        found += statements
    graph_module = None
    recorder = machine.recorder
    if recorder.operations:
        leave_switches(recorder.root.graph, captured.settings)
        graph_module, inputs, names = _graph(machine, rebuilder, writer)
        graph_module.meta["refcompiler_writes"] = recorder.mutates
        graph_module.meta["refcompiler_buckets"] = recorder.buckets
        around = machine.runs_outside
        try:
            with contextlib.ExitStack() as stack:
                if around is not None:
                    stack.enter_context(around_block(*around))
                for leaf in leaves:
                    stack.enter_context(leaf.as_switched())
                writer.namespace["__graph"] = compile_graph(graph_module, inputs)
        except BackendError as error:
            if not machine.draws:
                raise
            why = "random numbers, which the backend cannot have as inputs"
            raise Restart(machine.draws[0].step, "io", why) from error
        guards += machine.sizes.guards()[len(relations) :]  # what the backend decided by
        call = f"{graph_text(writer, title, number)}({', '.join(names)})"
        targets = [f"__g{i}" for i in range(len(rebuilder.outputs))]
        if targets:
            call = f"{', '.join(targets)}, = {call}"
        if around is not None:
            call = f"with {writer.constant(around_block)}{around}: {call}"
        autocast = machine.autocast if recorder.switched else None
        on_error = OnError(graph_module, machine.ambient.grad, autocast, captured.settings, recover)
        given = "".join([f"{name}, " for name in parameters])
        taken = "".join([f"{name}, " for name in names])
        lines += [
            "__error = None",
            "try:",
            f"    {call}",
            "except BaseException as __raised:",  # which must not be the context of others
            "    __error = __raised",
            "if __error is not None:",
            *[f"    {line}" for line in undo],
            f"    return {writer.constant(on_error)}(__error, ({given}), ({taken}))",
        ]
    if captured.blocks or machine.left_inference:
        lines += go_on_in_blocks(captured, rebuilder, writer)
    elif captured.grad != machine.ambient.grad:
        writer.namespace["__set_grad_enabled"] = torch._C._set_grad_enabled
        lines.append(f"__set_grad_enabled({captured.grad})")
    if captured.autocast is not None and captured.autocast != machine.autocast:
        lines.append(f"{writer.constant(captured.autocast)}.set()")
    for setting in captured.settings:
        if setting.after != setting.before:
            values = ", ".join(map(writer.constant, setting.after))
            lines.append(f"{writer.constant(setting.switch.set)}({values})")
    lines += rebuilder.lines + effects + rebuilder.late
    lines += rebuilder.last
    if layout is not None:  # a value ends when the frame drops it: nothing else may hold it
        own = [name for name in rebuilder.names.values() if name.startswith("__r")]
        own += [f"__g{i}" for i in range(len(rebuilder.outputs))]
        lines += [f"del {', '.join(own)}"] if own else []
    lines.append(f"return {result}")
    guards += pins(machine, writer, guards, graph_module)
    still = captured.reason is not None and machine.steps == 1 and not recorder.operations
    return Plan(
        weaken(Entry(guards, list(writer.needed)), writer),
        lines,
        parameters,
        title,
        writer,
        graph_module,
        recorder.operations,
        captured.reason,
        still,
        origins(machine),
        machine.is_personal or any(has_own_order(guard.expected) for guard in guards),
    )


def _draws(machine: Any, writer: Writer) -> tuple[list[str], list[str]]:
    """Statements that draw the numbers of Python's generators, and those that take them back."""
    lines, undraw = [], []
    generators = {draw.generator: None for draw in machine.draws}
    if machine.recorder.operations:
        for i, generator in enumerate(generators):
            known = writer.read(generator)
            lines.append(f"__state{i} = {writer.constant(random.Random.getstate)}({known})")
            undraw.append(f"{writer.constant(random.Random.setstate)}({known}, __state{i})")
    for draw in machine.draws:
        given = [writer.read(draw.generator), *map(writer.constant, draw.args)]
        given += [f"{name}={writer.constant(value)}" for name, value in draw.kwargs.items()]
        lines.append(f"{draw.target} = {writer.constant(draw.method)}({', '.join(given)})")
    return lines, undraw


def _ordered_guards(captured: Captured) -> list[Guard]:
    """Ambient state first, then the arguments' tensors, then the order in which capture asked."""
    machine = captured.machine
    machine.frame = None
    ambient = Guard("AMBIENT", None, machine.ambient, ("", 0))
    _guard_tensors(machine)
    _guard_containers(machine)
    for changed in list(machine.changed.values()):
        for other in list(machine.external.values()):
            if type(other.value) is type(changed.value) and other.value is not changed.value:
                if not issubclass(type(other.value), (CellType, dict)) and other.shadow is None:
                    machine.guard("DISTINCT", changed.source, other.source)
    changes = [shadowed for shadowed in shadows(machine) if is_changed(shadowed)]
    guard_views(machine, changes + [e for e in machine.external.values() if e.tail or e.written])
    _guard_presence(machine)
    first: list[Guard] = []
    rest: list[Guard] = []
    for guard in machine.guards.values():
        is_argument = guard.source is not None and guard.source.kind == "arg"
        (first if is_argument and guard.kind in ("TENSOR", "SIZED") else rest).append(guard)
    return [ambient, *first, *rest]


def _guard_presence(machine: Any) -> None:
    """That something could be read may have decided which way the program went.

    Of a class's attribute so did that it is no descriptor, which would make what is read of it.
    """
    covered: set[Source] = set()

    def cover(source: Any) -> None:
        while source is not None and source not in covered:
            covered.add(source)
            source = source.parent

    for guard in machine.guards.values():
        present = guard.kind == "PRESENT" and guard.source in machine.members
        cover(guard.source.parent if present else guard.source)
    for source in [*reversed(machine.lazies)]:  # what was reached through another comes after it
        if source not in covered:
            if source in machine.members:
                value = machine.lazies[source].value
                kind = type(value)
                if is_plain(value):
                    fixed = None if is_heap(kind) else kind
                    machine.guard("PLAIN", source, fixed, machine.members[source])
                else:
                    machine.guard("TYPE", source, kind, machine.members[source])
            elif source.parent is not None:
                machine.guard("PRESENT", source)
            cover(source)


def _changes(machine: Any, fake: torch.Tensor) -> bool:
    """Whether the graph writes into this input, or a view of it."""
    version = version_of(fake)
    return machine.recorder.mutates if version < 0 else version > 0


def _guard_tensors(machine: Any) -> None:
    """Inputs that the graph changes alias others only as they did at capture.

    What a module owns is not looked at for overlaps, only for being one object.
    """
    inputs = [known for known in machine.inputs.values() if not is_new(known[1])]
    changed = any(
        id(real) in machine.changed or _changes(machine, fake) for real, _, fake in inputs
    )
    if len(inputs) > 1 and (changed or machine.recorder.mutates):
        machine.guard("UNIQUE", None, tuple([source for _, source, _ in inputs]))
        given = [known for known in inputs if not is_registered(known[1])]
        if len(given) > 1 and any(_changes(machine, fake) for _, _, fake in given):
            pattern = storage_pattern(*[real for real, _, _ in given])
            machine.guard("STORAGE", None, (tuple([source for _, source, _ in given]), pattern))
    if machine.arrays and len(inputs) > 1 and (changed or machine.recorder.mutates):
        machine.guard("SEPARATE", None, tuple([source for _, source, _ in inputs]))
    alike: dict[type, list[Source]] = {}  # those of different classes are different anyway
    for kind, source in machine.hashed.values():
        alike.setdefault(kind, []).append(source)
    for sources in alike.values():
        if len(sources) > 1:
            machine.guard("UNIQUE", None, tuple(sources))


#: What ``nn.Module`` keeps in each instance's ``__dict__``, and no program changes in a forward.
_MODULE_STATE = frozenset(torch.nn.Module().__dict__)


def _guard_containers(machine: Any) -> None:
    """A container that was changed is no other one that was read."""
    read = {
        external.source: external.value
        for external in machine.external.values()
        if external.shadow is not None
    }
    for lazy in machine.lazies.values():
        source = lazy.source
        owner = source.parent.kind if source.parent is not None else ""
        if source.kind in ("const", "space", "dict", "hidden_dict"):
            continue
        if id(lazy.value) in machine.sources.reached:
            continue
        if owner in ("dict", "hidden_dict") and source.key in _MODULE_STATE:
            continue
        read.setdefault(source, lazy.value)
    changes = [shadowed for shadowed in shadows(machine) if is_changed(shadowed)]
    changes += [e for e in machine.external.values() if e.tail or e.written]
    for changed in changes:
        for source, value in read.items():
            if type(value) is type(changed.value) and value is not changed.value:
                machine.guard("DISTINCT", changed.source, source)


def _result(
    captured: Captured, rebuilder: Rebuilder, writer: Writer, pending: Callable, root: bool
) -> tuple[str, Layout | None]:
    machine = captured.machine
    if captured.frames is None:
        return rebuilder.expression(captured.value), None
    layout, values = describe(captured.frames, Space)
    texts = [
        rebuilder.globals(value.of) if type(value) is Space else rebuilder.expression(value)
        for value in values
    ]
    error = "None" if machine.exc is None else rebuilder.expression(machine.exc)
    writer.namespace["__pending"] = pending
    layout_name = writer.constant(layout)
    listed = ", ".join(texts)
    rebuilder.last = [f"__values, __error = [{listed}], {error}"]
    return f"__pending({layout_name}, __values, __error)", layout


def _graph(
    machine: Any, rebuilder: Rebuilder, writer: Writer
) -> tuple[torch.fx.GraphModule, list[Any], list[str]]:
    """Finish the fx graph: outputs, without unused inputs; the real inputs and their names."""
    root = machine.recorder.root
    graph = root.graph
    leave_modes(root)
    check_gathers(machine.recorder, rebuilder.outputs)
    check_leaves(machine, rebuilder.outputs)
    for given_contents in machine.given_contents.values():
        given_contents.check_views(rebuilder.outputs)
    graph.output(tuple(rebuilder.outputs))
    given: dict[torch.fx.Node, tuple[Any, Source]] = {}
    needed: set[Any] = set()  # symbols in the sizes of tensors
    for known in machine.input_order:
        real, source, fake = machine.inputs[known]
        node = machine.recorder.inputs[id(fake)]
        if node.users:
            given[node] = real, source
            if machine.sizes.env is not None:
                needed |= free_symbols(fake)
        else:
            graph.erase_node(node)
    for node, (symbol, number) in machine.sizes.inputs.items():
        if node.users or symbol in needed:
            given[node] = number, machine.sizes.sources[symbol]
        else:
            graph.erase_node(node)
    nodes = list(graph.find_nodes(op="placeholder"))
    inputs = [given[node][0] for node in nodes]
    names = [writer.read(given[node][1]) for node in nodes]
    hold_for_handlers(graph)
    return torch.fx.GraphModule(root.module, graph), inputs, names
