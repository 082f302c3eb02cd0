"""Prints a loop that adds up few elements as vectors side by side; :mod:`short` says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fastpath.cpu import short
from fastpath.cpu.blocks import Span
from fastpath.cpu.scopes import Printing, Scope, combine, row_of
from fastpath.ir.index import Axis
from fastpath.schedule.kernel import Accumulate, Keep, Stage, Store
from specs.scalars import SCALARS


class Adding(Printing, Protocol):
    """What is needed of the printer."""

    depth: int
    spans: dict[Axis, Span]

    def loop(self, axis: Axis) -> None: ...

    def identity(self, kind: str, dtype: str) -> str: ...

    def add(self, s: Accumulate, value: str) -> None: ...

    def put(self, s: Store | Keep, value: str, scope: Scope) -> None: ...


class SideBySide:
    """The innermost loop of ``stage`` as vectors of ``width`` lanes."""

    def __init__(self, printer: Adding, stage: Stage, width: int):
        self.printer, self.stage, self.width = printer, stage, width
        *self.slow, self.axis = stage.axes
        self.starts = short.starts(self.axis.extent, width)
        few = len(self.starts) == 1
        self.twice = 0 if few else self.starts[-2] + width - self.starts[-1]  # lanes

    def print(self) -> None:
        printer, depth = self.printer, self.printer.depth
        if not self.slow:
            self._vectors([self.stage], printer.add)
            printer.depth = depth
            return
        added = [s for s in self.stage.statements if isinstance(s, Accumulate)]
        for s in added:
            store = printer.memory("store", row_of(s.reduction))
            printer.line(f"for lane in range({self.width}):")
            initial = printer.identity(s.kind, s.value.dtype)
            printer.line(f"    {store}({self._place(s)}, {initial})")
        row = self.slow[-1]
        span = printer.spans.get(row)
        stages, loops, count = short.unrolled(self.stage, self.width, span.length if span else 0)
        if span is not None:
            first, last = (f"({each}) // {count}" for each in span[:2])
            printer.spans[loops[-1]] = Span(first, last, span.length // count)
        for each in loops:
            printer.loop(each)
        self._vectors(stages, self._add_lanes)
        printer.depth = depth
        for s in added:
            printer.line(f"for lane in range({self.width}):")
            printer.depth += 1
            printer.add(s, self._lane(s))
            printer.depth = depth

    def _place(self, s: Accumulate) -> str:
        return f"p{self.printer.scope[row_of(s.reduction)]}, lane"

    def _lane(self, s: Accumulate) -> str:
        return f"{self.printer.memory('load', row_of(s.reduction))}({self._place(s)})"

    def _add_lanes(self, s: Accumulate, value: str) -> None:
        new = combine(s.kind, s.value.dtype, self._lane(s), value)
        store = self.printer.memory("store", row_of(s.reduction))
        self.printer.line(f"{store}({self._place(s)}, {new})")

    def _vectors(self, stages: list[Stage], add: Callable[[Accumulate, str], None]) -> None:
        """One loop over the lanes of all vectors of the stages, which are alike."""
        printer, name = self.printer, self.printer.axis(self.axis)
        printer.line(f"for lane in range({self.width}):")
        printer.depth += 1
        for n, start in enumerate(self.starts):
            printer.line(f"{name}_{n} = lane + {start}")
        places = [(stage, n) for stage in stages for n in range(len(self.starts))]
        scopes = [Scope(printer, [s.value for s in stage.statements]) for stage, _ in places]
        for scope, (_, n) in zip(scopes, places):
            scope.rename = name, f"{name}_{n}"
        for k, first in enumerate(stages[0].statements):
            texts = []
            for scope, (stage, n) in zip(scopes, places):
                s = stage.statements[k]
                text = scope.text(s.value)
                if isinstance(s, Accumulate):
                    texts.append(self._once(s, text, n))
                else:
                    printer.put(s, text, scope)
            if isinstance(first, Accumulate):
                add(first, total(first, texts))

    def _once(self, s: Accumulate, text: str, n: int) -> str:
        """The value of vector ``n``, but for the first lanes, which the one before it has, too."""
        if n + 1 < len(self.starts) or not self.twice or s.kind not in ("sum", "prod"):
            return text
        nothing = self.printer.identity(s.kind, s.value.dtype)
        asked = f"(lane >= {self.twice})"
        return SCALARS["where"].text("numba", s.value.dtype, asked, text, nothing)


def total(s: Accumulate, texts: list[str]) -> str:
    """By pairs, which do not wait for each other."""
    while len(texts) > 1:
        pairs = [combine(s.kind, s.value.dtype, a, b) for a, b in zip(texts[::2], texts[1::2])]
        texts = pairs + (texts[-1:] if len(texts) % 2 else [])
    return texts[0]
