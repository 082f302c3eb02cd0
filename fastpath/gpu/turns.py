"""Elements of several kinds side by side: the parts of a rotation, or what ``stack`` interleaves.

Where a kernel's last axis only says which of two or four expressions an element has, each of its
points would ask, and read what is needed on that condition, element by element. Here a program
computes each of the expressions at its own points, as many as there are groups of neighbours, and
puts them together in registers. What is read of neighbours in memory, one for each, is read as
vectors and taken apart in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastpath.gpu.kinds import kinds_of
from fastpath.gpu.tiling import Tiling
from fastpath.gpu.values import Values
from fastpath.ir.expr import FALSE, TRUE, Expr, const, inside
from fastpath.ir.index import Axis, Index, constant, variable
from fastpath.schedule.kernel import Kernel

_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


def of_kind(value: Expr, last: Axis, kind: int) -> Expr:
    """The value where ``last`` is ``kind``, with what is decided by that left out."""
    memo: dict[Expr, Expr] = {}

    def visit(e: Expr) -> Expr:
        found = memo.get(e)
        if found is None:
            moved = e.mapped(visit, lambda index: index.substitute({last: constant(kind)}, visit))
            found = memo[e] = _decided(moved)
        return found

    return visit(value)


def _decided(e: Expr) -> Expr:
    if e.op == "index" and not e.args[0].terms and isinstance(e.args[0].const, int):
        return const(e.args[0].const, "int64")
    if e.op in _COMPARED and all(a.op == "const" for a in e.args):
        return TRUE if _COMPARED[e.op](*(a.args[0] for a in e.args)) else FALSE
    if e.op in ("logical_and", "logical_or"):
        end = FALSE if e.op == "logical_and" else TRUE
        for one, other in (e.args, e.args[::-1]):
            if one in (TRUE, FALSE):
                return end if one == end else other
    if e.op == "logical_not" and e.args[0] in (TRUE, FALSE):
        return FALSE if e.args[0] == TRUE else TRUE
    if e.op == "where" and e.args[0] in (TRUE, FALSE):
        chosen: Expr = e.args[1 if e.args[0] == TRUE else 2]
        return chosen
    if e.op == "guarded" and e.args[2] == TRUE:
        return Expr("load", e.args[:2], e.dtype)
    if e.op == "guarded" and e.args[2] == FALSE:
        return const(0, e.dtype)
    if e.op == "bounded" and len(e.args) == 3 and e.args[2] == TRUE:
        return Expr("bounded", e.args[:2], e.dtype)
    return e


def _turns(kernel: Kernel, plan: Tiling) -> int:
    if plan.r or plan.y is not None or plan.stripe:
        return 0
    found = kinds_of(kernel, plan.x)
    return found if plan.x_block > found else 0


class Turns(Values):
    def __init__(self, kernel: Kernel, plan: Tiling):
        super().__init__(kernel, plan)
        self.turns = _turns(kernel, plan)
        self.in_turn: dict[Expr, list[Expr]] = {}  # the values of each kind
        self.read: dict[tuple[str, Index], str] = {}  # what these read, and its dtype
        self.runs: dict[tuple[str, Index], int] = {}  # neighbours among it, and which of them
        self.every: dict[Axis, str] = {}  # axes as they are at each element
        if self.turns:
            statements = [s for stage in kernel.stages for s in stage.statements]
            for s in statements:
                kinds = range(self.turns)
                self.in_turn[s.value] = [of_kind(s.value, plan.x[-1], kind) for kind in kinds]
            self._find_runs()

    def _find_runs(self) -> None:
        """Elements of which all neighbours of a group are read, one for each kind."""
        values = [value for found in self.in_turn.values() for value in found]
        read = {e.args: e.dtype for e in inside(values) if e.op == "load"}
        self.read = read
        before = self.plan.x[-2]
        for buffer, index in read:
            run = [(buffer, index + n) for n in range(self.turns)]
            if index.coefficient(before) != self.turns or index.lookups():
                continue
            if all(one in read for one in run) and (buffer, index + -1) not in read:
                self.runs |= {one: n for n, one in enumerate(run)}

    def _values(self) -> list[Expr]:
        """What is computed."""
        values = [s.value for stage in self.kernel.stages for s in stage.statements]
        if not self.turns:
            return values
        return [value for e in values for value in self.in_turn[e]]

    def _stored_value(self, value: Expr) -> str:
        if not self.turns:
            return self.text(value)
        before = self.axes, self.masks
        self.every = self.axes
        self._at_groups()
        texts = ", ".join(self.text(each) for each in self.in_turn[value])
        (self.axes, self.masks), self.grouped = before, False
        return f"m.in_turns_{self.turns}({texts}, {self.plan.x_block // self.turns})"

    def _at_groups(self) -> None:
        """Let axes be named as they are at each group of neighbours, which are one point."""
        plan, count = self.plan, self.turns
        axes, told = plan.x[:-1], Expr("groups", (), "int64")
        if told not in self.known:
            self.known[told] = "g"
            first = f"{self._first_group()} + {self.lanes(plan.x_block // count)}"
            self.line(f"g = {first}")
            if self.masked:
                self.line(f"g_in = g * {count} < {self.number(plan.x_points)}")
            self.axes = dict(self.axes)
            self._decode(axes, "g")
            self.named["g"] = self.axes
        self.axes = {**self.axes, **{a: self.named["g"][a] for a in axes}}
        self.masks = {**self.masks, "x": "g_in"}
        self.grouped = True

    def _first_group(self) -> str:
        number = "x_number" if self.plan.outer else "program"
        return f"{number} * {self.plan.x_block // self.turns}"

    def _load(self, buffer: str, index: Index) -> str:
        place = self.runs.get((buffer, index)) if self.grouped else None
        if place is None:
            return super()._load(buffer, index)
        names = [self.fresh() for _ in range(self.turns)]
        whole = index + -place
        axes, masks = self.axes, self.masks
        self.axes, self.masks = self.every, {**masks, "x": "x_in"}
        all_of_them = self._load_from(buffer, whole + variable(self.plan.x[-1]))
        self.axes, self.masks = axes, masks
        groups = self.plan.x_block // self.turns
        self.line(f"{', '.join(names)} = m.apart_{self.turns}({all_of_them}, {groups})")
        for n, name in enumerate(names):
            at = buffer, whole + n
            self.known[Expr("load", at, self.read[at])] = name
        return names[place]
