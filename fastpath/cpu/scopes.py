"""The texts of expressions at one place of a kernel: what is used twice there gets a name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from fastpath.cpu.payloads import Payloads
from fastpath.ir.expr import Bounds, Expr
from fastpath.ir.index import Axis, Index, variable
from fastpath.ir.size import Number
from fastpath.schedule.kernel import Kernel
from fastpath.schedule.logistic import beside_one
from fastpath.schedule.text import index_text
from specs.dtypes import is_float
from specs.scalars import NUMBA_SUFFIX, SCALARS, cast_text


def _saturates() -> bool:
    from fastpath.ir.types import saturates  # torch is not there where kernels are compiled only

    return saturates()


class Printing(Protocol):
    """What texts need of the printer whose lines they become."""

    kernel: Kernel
    scope: dict[str, int]  # numbers of buffers and scratch rows
    unit_values: dict[Expr, str]
    range: dict[str, tuple[str, str]]
    payloads: Payloads
    asking: frozenset[str]  # buffers whose loads ask for what lies behind them

    def line(self, text: str) -> None: ...

    def fresh(self) -> str: ...

    def axis(self, axis: Axis) -> str: ...

    def number(self, value: Number) -> str: ...

    def operand(self, value: bool | int | float, dtype: str) -> str: ...

    def memory(self, what: str, name: str) -> str: ...

    def lane_place(self) -> str: ...

    def scope_name(self, reduction: str) -> str: ...

    def watch(self, bounds: Bounds, missed: str, value: str) -> None: ...


class Scope:
    """Texts of expressions at one place; what is used twice there gets a name."""

    def __init__(self, printer: Printing, values: Iterable[Expr], name_all: bool = False):
        self.printer = printer
        self.name_all = name_all
        self.known: dict[Expr, str] = {}
        self.rename: tuple[str, str] | None = None
        self.uses: dict[Expr, int] = {}
        stack = list(values)
        for e in stack:
            self.uses[e] = self.uses.get(e, 0) + 1
        seen: set[Expr] = set()
        while stack:
            e = stack.pop()
            if e in seen:
                continue
            seen.add(e)
            for a in e.operands():
                self.uses[a] = self.uses.get(a, 0) + 1
                stack.append(a)

    def named(self, e: Expr) -> str:
        """The value's text, which is a name or a constant."""
        text = self.text(e)
        if not text.isidentifier():
            self.known[e] = self.printer.fresh()
            self.printer.line(f"{self.known[e]} = {text}")
        return self.known.get(e, text)

    def index(self, index: Index) -> str:
        printer = self.printer
        return index_text(index, printer.axis, self.index, self.text, printer.number)

    def text(self, e: Expr) -> str:
        printer = self.printer
        known = self.known.get(e) or printer.unit_values.get(e)
        if known is not None:
            return known
        if e.op == "const":
            return printer.operand(e.args[0], e.dtype)
        text = self._new(e)
        if self.rename:
            old, new = self.rename
            places = ("load", "guarded", "scratch", "index")
            text = renamed(text, old, new) if e.op in places else text
        named = self.name_all and not text.isidentifier()
        if named or self.uses.get(e, 0) > 1 or len(text) > 300:
            name = printer.fresh()
            printer.line(f"{name} = {text}")
            text = name
        self.known[e] = text
        return text

    def _new(self, e: Expr) -> str:
        printer = self.printer
        if e.op in ("load", "scratch"):
            name, index = e.args
            load = printer.memory("load_asked" if name in printer.asking else "load", name)
            return f"{load}(p{printer.scope[name]}, {self.index(index)})"
        if e.op == "guarded":
            name, index, guard = e.args
            load = printer.memory("load_guarded", name)
            return f"{load}(p{printer.scope[name]}, {self.index(index)}, {self.text(guard)})"
        if e.op == "given":
            return f"float_of({printer.number(e.args[0])})"
        if e.op == "index":
            return f"int64({self.index(e.args[0])})"
        if e.op == "bounded":
            value, bounds, *guard = e.args
            asked = self.text(guard[0]) if guard else "True"
            extent = printer.number(bounds.extent)
            position = f"{self.named(value)}, {extent}, {extent if bounds.wraps else 0}"
            if self.rename:
                position, asked = (renamed(text, *self.rename) for text in (position, asked))
            printer.watch(bounds, f"no_place({position}, {asked})", self.named(value))
            return f"place({position})"
        if e.op in ("reduced", "running"):
            if printer.kernel.lane is None:
                return f"acc_{printer.scope_name(e.args[0])}"
            row = row_of(e.args[0])
            load = printer.memory("load", row)
            return f"{load}(p{printer.scope[row]}, {printer.lane_place()})"
        if e.op == "tile":
            (name,) = e.args
            kernel = printer.kernel
            assert kernel.tile is not None
            row = f"({printer.axis(kernel.tile)} - {printer.range['tile'][0]}) * {kernel.block}"
            load = printer.memory("load", name)
            return f"{load}(p{printer.scope[name]}, {row} + {printer.lane_place()})"
        logistic = beside_one(e, lambda power: self.uses.get(power, 0) <= 1)
        if logistic is not None:
            name, operand = logistic
            return f"m.{name}_{NUMBA_SUFFIX[e.dtype]}({self.text(operand)})"
        texts = [self.text(a) for a in e.args]
        if e.op == "cast":
            text = cast_text("numba", e.args[0].dtype, e.dtype, texts[0])
            if text.startswith("m.cast_f32_bf16(") and printer.payloads.clean(e.args[0]):
                return f"m.round_f32_bf16({texts[0]})"
            if e.dtype == "float8_e4m3fn" and _saturates():
                return f"m.cast_f32_float8_e4m3fn_saturated({texts[0]})"
            return text
        # A selection's first operand is a bool; the computing dtype is that of the last.
        return SCALARS[e.op].text("numba", e.args[-1].dtype, *texts)


class HalfScope(Scope):
    """The texts for one of the two elements that a loop over pairs takes at a time.

    The axis stands at the element of even place; a scratch row holds the even elements first.
    """

    def __init__(self, printer: Printing, values: Iterable[Expr], axis: Axis, odd: bool):
        super().__init__(printer, values)
        self.axis, self.odd = axis, odd

    def _new(self, e: Expr) -> str:
        printer = self.printer
        if e.op == "load" and self.axis in e.args[1].axes():
            name, index = e.args
            load = printer.memory("load_high" if self.odd else "load_low", name)
            return f"{load}(p{printer.scope[name]}, {self.index(index)})"
        if e.op == "scratch":
            (name, _) = e.args
            return f"{printer.memory('load', name)}(p{printer.scope[name]}, {self.place()})"
        if e.op == "index" and self.odd:
            beside = e.args[0].substitute({self.axis: variable(self.axis) + 1})
            return f"int64({self.index(beside)})"
        return super()._new(e)

    def place(self) -> str:
        """Where in a scratch row this element is; the loop is the only one of its stage."""
        half = self.printer.number(self.axis.extent // 2)
        return f"pair + {half}" if self.odd else "pair"


def row_of(reduction: str) -> str:
    """The scratch row of a reduction's accumulators, one per lane; the result may be a buffer."""
    return f"accumulators of {reduction}"


def renamed(text: str, old: str, new: str) -> str:
    return re.sub(rf"\b{old}\b", new, text)


def combine(kind: str, dtype: str, accumulator: str, value: str, in_order: bool = False) -> str:
    """The text of one step of a reduction, or, ``in_order``, of a scan."""
    if in_order and kind in ("max", "min") and is_float(dtype):
        # A new extremum is rare, and a branch that is foreseen is shorter than the operation.
        better = f"{value} {'>' if kind == 'max' else '<'} {accumulator}"
        return f"{value} if {better} or {value} != {value} else {accumulator}"
    if kind in ("sum", "prod") and is_float(dtype) and not in_order:
        return f"{'add' if kind == 'sum' else 'mul'}_reordered({accumulator}, {value})"
    row = {
        "sum": "add",
        "prod": "mul",
        "max": "maximum",
        "min": "minimum",
        "any": "logical_or",
        "all": "logical_and",
    }[kind]
    return SCALARS[row].text("numba", dtype, accumulator, value)
