"""What the fast path adds to a trace folder: each graph that it compiles, stage by stage.

For ``forward``, ``backward`` and so on (a number follows where there are several)::

    forward.aten.py       the functional ATen graph
    forward.ir.txt        what each element is, node by node: the loop IR before fusion
    forward.fused.txt     the loop IR of each kernel: loops, statements, buffers
    forward.wrapper.py    what allocates, launches kernels and calls ATen
    forward.kernels.py    the kernels' sources
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from fastpath.ir.expr import Expr
from fastpath.ir.program import Call, Computed, Program, Reduction, Scan, Scatter, tensors_in
from fastpath.schedule.kernel import Accumulate, Keep, Kernel, Store
from refcompiler.runtime.trace import Trace, current


class Stages:
    """The trace of one program; nothing, where nobody wants one."""

    def __init__(self) -> None:
        self.trace: Trace | None = current()  # also of backwards, which are compiled later
        self._count: dict[str, int] = {}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Graphs that are compiled inside are written as ``name``."""
        if self.trace is None:
            yield
            return
        number = self._count[name] = self._count.get(name, 0) + 1
        _WRITING.to = self.trace, name if number == 1 else f"{name}-{number}"
        try:
            yield
        finally:
            _WRITING.to = None


class _Writing(threading.local):
    to: tuple[Trace, str] | None = None


_WRITING = _Writing()


def record(
    graph: torch.fx.GraphModule,
    program: Program,
    kernels: Iterable[Kernel],
    call: Callable[..., Any],
) -> None:
    """Write the files of a graph that was compiled."""
    if _WRITING.to is None:
        return
    trace, stem = _WRITING.to
    made: Any = call
    trace.write(f"{stem}.aten.py", graph.print_readable(print_output=False))
    trace.write(f"{stem}.ir.txt", "\n".join(_program(program)))
    trace.write(f"{stem}.fused.txt", "\n\n".join(map(kernel_text, kernels)))
    trace.write(f"{stem}.wrapper.py", made.source)
    sources = [f"# kernel {n}\n{text}" for n, text in enumerate(made.kernel_sources)]
    trace.write(f"{stem}.kernels.py", "\n\n".join(sources))


def _program(program: Program) -> Iterator[str]:
    for node in program.inputs:
        yield f"{node.name}: {node.dtype}{list(node.shape)}"
    for step in program.steps:
        if isinstance(step, Call):
            read = ", ".join(t.node.name for t in tensors_in((step.arguments, step.keywords)))
            made = ", ".join(n.name for n in step.outputs)
            yield f"\n{made} = {step.name}({read})  # {step.reason or 'a kernel of its own'}"
            continue
        yield from ("", *_computed(step))
    yield "\nreturn " + ", ".join(t.node.name for t in tensors_in(program.outputs))


def _computed(node: Computed) -> Iterator[str]:
    space = ", ".join(f"{axis} < {axis.extent}" for axis in node.axes)
    how = ""
    if isinstance(node, Reduction):
        how = f" {node.kind} over {[str(node.axes[d]) for d in sorted(node.reduced)]}"
    elif isinstance(node, Scan):
        how = f" running {node.kind} along {node.axes[node.dim]}"
    elif isinstance(node, Scatter):
        how = f" {node.kind} into {node.base.name}"
    yield f"{node.name}: {node.dtype}{list(node.shape)} for {space or 'one point'}:"
    lines: list[str] = []
    value = _Values(lines).text(node.value)
    yield from (f"    {line}" for line in (*lines, f"{value}{how}"))


class _Values:
    """Expressions as lines of one operation each: what is shared is written once."""

    def __init__(self, lines: list[str]):
        self.lines = lines
        self._names: dict[Expr, str] = {}

    def text(self, e: Expr) -> str:
        stack = [e]
        while stack:
            top = stack[-1]
            missing = [a for a in top.operands() if a not in self._names]
            if missing and top not in self._names:
                stack += missing
                continue
            stack.pop()
            if top not in self._names:
                self._names[top] = self._name(top)
        return self._names[e]

    def _name(self, e: Expr) -> str:
        parts = ", ".join(self._part(a) for a in e.args)
        if e.op == "const":
            return f"{parts}:{e.dtype}"
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name}: {e.dtype} = {e.op}({parts})")
        return name

    def _part(self, a: Any) -> str:
        if isinstance(a, Expr):
            return self._names[a]
        if isinstance(a, tuple):
            return f"[{', '.join(map(self._part, a))}]"
        return str(getattr(a, "name", a))


def kernel_text(kernel: Kernel) -> str:
    """The kernel's loops and statements."""
    lines = [f"{kernel.name}({', '.join(f'{b.name}: {b.dtype}' for b in kernel.buffers)}):"]
    for name, (dtype, count) in kernel.scratch.items():
        lines.append(f"    scratch {name}: {dtype}[{count}]")
    depth = 1

    def line(text: str) -> None:
        lines.append("    " * depth + text)

    for axis in kernel.outer:
        line(f"for {axis} < {axis.extent}:")
        depth += 1
    blocks = (kernel.rows, "rows", kernel.tile), (kernel.block, "lanes", kernel.lane)
    for length, what, blocked in blocks:
        if blocked is not None:
            line(f"for a block of {length} {what} of {blocked} < {blocked.extent}:")
            depth += 1
    for turned in kernel.transposed:
        line(f"{turned.name} = {turned.buffer}[{turned.index}], transposed")
    for number, stage in enumerate(kernel.stages):
        loops = ", ".join(f"{axis} < {axis.extent}" for axis in stage.axes)
        line(f"stage {number}{f' for {loops}' if loops else ''}:")
        depth += 1
        values: list[str] = []
        namer = _Values(values)
        for s in stage.statements:
            value = namer.text(s.value)
            if isinstance(s, Store):
                values.append(f"{s.buffer}[{s.index}] = {value}")
            elif isinstance(s, Keep):
                values.append(f"{s.scratch}[{s.index}] = {value}")
            else:
                assert isinstance(s, Accumulate)
                values.append(f"{s.reduction} = {s.kind}({s.reduction}, {value})")
        for text in values:
            line(text)
        depth -= 1
    return "\n".join(lines)
