"""Positions that are data, and divisors, that nothing holds against their bounds.

A kernel looks at what it reads by: ``x[i]`` raises where it is computed. Of a result that nobody
reads, or of which only a part is read (``x[i][:2]``), the others would go by unseen, where eager
raises. For these a reduction of the bounded values alone is computed, which costs what the integers
do. None is made where what is read is sure to come by all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fastpath.ir import expr as E
from fastpath.ir.expr import Expr
from fastpath.ir.index import Axis, Division, Index, Lookup, variable
from fastpath.ir.program import Call, Computed, Node, Pointwise, tensors_in
from fastpath.ir.size import surely

MOST_PLACES = 1 << 20  # that are gone through to see whether all are read
_CONDITIONS = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "logical_not": np.logical_not,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
}


def unread(
    steps: Sequence[Computed | Call], outputs: Any, looking: Mapping[Computed, Any]
) -> Iterator[tuple[tuple[Axis, ...], Expr]]:
    """Of the steps ``looking``, by what they were lowered from, the bounded values that some
    element is not held against, and the axes that they change with: each once."""
    if not looking:
        return
    readers = _Readers(steps, outputs)
    known: set[Any] = set()
    axes_of: dict[Any, tuple[Axis, ...]] = {}
    groups: dict[Any, list[Computed]] = {}
    for step, node in looking.items():
        groups.setdefault(node, []).append(step)
    for members in groups.values():
        own: list[tuple[Expr, tuple[Axis, ...], bool]] = []
        for step in members:
            if 0 in step.shape:
                continue  # no element is computed, and what would be read need not be there
            for e in E.inside([step.value]):
                if e.op != "bounded":
                    continue
                axes = [a for a in step.axes if a in e.axes()]
                extents = tuple([a.extent for a in axes])
                names = axes_of.setdefault(extents, tuple([Axis(n) for n in extents]))
                plain = e.substitute(dict(zip(axes, map(variable, names))))
                own.append((plain, names, readers.reach(step, axes)))
        seen = {e for e, _, is_read in own if is_read}
        for e, names, _ in own:
            if e not in seen and e not in known:
                known.add(e)
                yield names, e


class _Readers:
    """Who reads a node's elements, and whether somebody comes to all of them."""

    def __init__(self, steps: Sequence[Computed | Call], outputs: Any):
        self.whole: set[Node] = {t.node for t in tensors_in(outputs)}
        self.of: dict[Node, list[tuple[Computed, Expr]]] = {}
        self._known: dict[Any, bool] = {}
        wanted: set[Node] = set(self.whole)
        for step in reversed(steps):
            if isinstance(step, Call):
                if step.impure or any(r in wanted for r in step.outputs):
                    given = {t.node for t in tensors_in((step.arguments, step.keywords))}
                    self.whole |= given
                    wanted |= given
            elif step in wanted:
                if not isinstance(step, Pointwise):  # a kernel of its own, or the first of one
                    self.whole.add(step)
                base = getattr(step, "base", None)
                if base is not None:
                    wanted.add(base)
                    self.whole.add(base)
                for e in E.inside([step.value]):
                    if e.op == "read":
                        wanted.add(e.args[0])
                        self.of.setdefault(e.args[0], []).append((step, e))

    def reach(self, node: Node, axes: Sequence[Axis]) -> bool:
        """Whether the elements of ``node`` are computed at all places along ``axes``, its own."""
        if node in self.whole:
            return True
        assert isinstance(node, Computed)
        key = node, frozenset(axes)
        if key not in self._known:
            self._known[key] = any(self._comes(node, axes, *each) for each in self.of.get(node, ()))
        return self._known[key]

    def _comes(self, node: Computed, axes: Sequence[Axis], reader: Computed, e: Expr) -> bool:
        _, position, *guards = e.args
        dims = [d for d, a in enumerate(node.axes) if a in axes]
        extents = [node.shape[d] for d in dims]
        places = [position[d] for d in dims]
        used = set().union(*[place.axes() for place in places])
        if not guards and _one_each(places, extents):
            return self.reach(reader, [*used])
        used |= set().union(*[guard.axes() for guard in guards])
        return _all_of(places, extents, guards, [*used]) and self.reach(reader, [*used])


def _one_each(places: Sequence[Index], extents: Sequence[Any]) -> bool:
    """Whether each place is an axis of its own, which goes through all that there are."""
    seen = set()
    for place, extent in zip(places, extents, strict=True):
        if extent == 1:
            continue
        if len(place.terms) != 1:
            return False
        ((atom, step),) = place.terms.items()
        if not isinstance(atom, Axis) or step != 1 or atom in seen:
            return False
        if not surely(place.const - 1, 0) or not surely(extent - 1, place.const + atom.extent):
            return False
        seen.add(atom)
    return True


def _all_of(
    places: Sequence[Index], extents: Sequence[Any], guards: Sequence[Expr], axes: Sequence[Axis]
) -> bool:
    """The same of any places, if it can be gone through."""
    numbers = [*extents, *[a.extent for a in axes]]
    if not all(isinstance(n, int) for n in numbers) or any(i.lookups() for i in places):
        return False
    if math.prod([a.extent for a in axes]) > MOST_PLACES:
        return False
    grid = np.indices([a.extent for a in axes], sparse=True)
    values: dict[Axis, Any] = dict(zip(axes, grid, strict=True))
    try:
        holds = [_holds(guard, values) for guard in guards]
    except LookupError:
        return False
    flat: Any = 0
    inside: Any = True
    for place, extent in zip(places, extents, strict=True):
        at = _at(place, values)
        inside = inside & (at >= 0) & (at < extent)
        flat = flat * extent + at
    flat, inside, *holds = np.broadcast_arrays(flat, inside, *holds)
    chosen = flat[np.logical_and.reduce([inside, *holds])]
    return len(np.unique(chosen)) == math.prod(extents)


def _at(index: Index, values: Mapping[Axis, Any]) -> Any:
    found = index.const
    for atom, step in index.terms.items():
        if isinstance(atom, Division):
            inner = _at(atom.dividend, values)
            found = found + step * (
                inner % atom.divisor if atom.remainder else inner // atom.divisor
            )
        elif isinstance(atom, Lookup):
            raise LookupError
        else:
            found = found + step * values[atom]
    return found


def _holds(e: Expr, values: Mapping[Axis, Any]) -> Any:
    if e.op == "const":
        return e.args[0]
    if e.op == "index":
        return _at(e.args[0], values)
    if e.op == "cast":
        return _holds(e.args[0], values)
    return _CONDITIONS[e.op](*[_holds(a, values) for a in e.args])
