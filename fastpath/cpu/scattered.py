"""Stores whose places are data: made where there is such a place, in the order of their loops."""

from __future__ import annotations

from typing import Protocol

from fastpath.cpu.scopes import Printing, Scope
from fastpath.ir.expr import Bounds, Expr
from fastpath.ir.index import Axis
from fastpath.schedule.kernel import PARTS, Keep, Stage, Store


class Putting(Printing, Protocol):
    """What is needed of the printer."""

    depth: int
    dtype: dict[str, str]

    def loop(self, axis: Axis) -> None: ...

    def put(self, s: Store | Keep, value: str, scope: Scope) -> None: ...

    def watch(self, bounds: Bounds, missed: str, value: str) -> None: ...


class Scattered:
    """One stage of a kernel that has such a store. A place that does not change along the lanes is
    looked up before them, so that they are vectors."""

    def __init__(self, printer: Putting, stage: Stage):
        self.printer, self.stage = printer, stage
        (store,) = stage.statements
        assert isinstance(store, Store)
        self.store: Store = store

    def print(self) -> None:
        printer, lane = self.printer, self.printer.kernel.lane
        depth, known = printer.depth, dict(printer.unit_values)
        places = list(dict.fromkeys(self.store.index.lookups()))
        for axis in self.stage.axes:
            printer.loop(axis)
        for along in (False, True):
            if along and lane is not None:
                first, last = printer.range["lane"]
                printer.line(f"for {printer.axis(lane)} in range({first}, {last}):")
                printer.depth += 1
            here = [e for e in places if (lane in e.axes()) == along]
            if here:
                self._only_where([*here])
        store, value = self.store, self.store.value
        if store.adds:
            there = Expr("load", (store.buffer, store.index), printer.dtype[store.buffer])
            value = Expr("add", (there, value), value.dtype)
        scope = Scope(printer, [value])
        printer.put(store, scope.text(value), scope)
        printer.depth, printer.unit_values = depth, known

    def _only_where(self, places: list[Expr]) -> None:
        """Name the places, and go on only if all of them are there."""
        printer = self.printer
        scope, missing = Scope(printer, places), []
        for e in places:
            value, bounds, *guard = e.args
            asked = scope.text(guard[0]) if guard else "True"
            extent = printer.number(bounds.extent)
            position = f"{scope.named(value)}, {extent}, {extent if bounds.wraps else 0}"
            missed = printer.fresh()
            printer.line(f"{missed} = no_place({position}, {asked})")
            printer.watch(bounds, missed, scope.named(value))
            name = printer.fresh()
            printer.line(f"{name} = place({position})")
            printer.unit_values[e] = name
            missing.append(missed)
            if e == printer.kernel.parted:
                for bound in ("begin", "end"):
                    printer.line(f"{bound}_place = {extent} * {bound} // {PARTS}")
                missing.append(f"{name} < begin_place or {name} >= end_place")
        printer.line(f"if not ({' or '.join(missing)}):")
        printer.depth += 1
