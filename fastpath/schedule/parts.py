"""Both parts of complex numbers in one turn of a loop.

What reads the parts one after the other, as a conversion of their pairs to another dtype does,
chooses at each element which of the two it is, and computes both. Where a loop runs over them, one
turn of it takes the two, of which each is known.
"""

from __future__ import annotations

from collections.abc import Collection

from fastpath.ir.expr import Expr, inside
from fastpath.ir.index import Axis, Division, Index, constant
from fastpath.ir.program import Node, Pointwise, Scan
from fastpath.schedule.cluster import Cluster
from fastpath.schedule.cost import own_cost
from fastpath.schedule.kernel import Store

PARTS = 2


def axis_of_parts(cluster: Cluster, roots: Collection[Node]) -> Axis | None:
    """The axis of ``cluster`` that tells the parts of what is read apart, split off if need be."""
    if cluster.reduced or any(isinstance(node, Scan) for node in cluster.members):
        return None
    for node in cluster.members:
        stack, seen = [node.at(cluster.place[node])], set()
        while stack:
            value = stack.pop()
            for e in inside([value]):
                place = _asked(e)
                axis = None if place is None else _axis(place)
                if axis is not None and axis in cluster.axes:
                    return _split(cluster, axis)
            for e in own_cost(value)[1]:
                source, position = e.args[:2]
                inlined = isinstance(source, Pointwise) and source not in roots
                if e not in seen and (inlined or source in cluster.place):
                    seen.add(e)
                    stack.append(source.at(position))
    return None


def _asked(e: Expr) -> Index | None:
    """The place of which a choice asks whether it is the first."""
    if e.op != "where" or e.args[0].op != "eq":
        return None
    place, first = e.args[0].args
    if place.op != "index" or first.op != "const" or first.args[0] != 0:
        return None
    index: Index = place.args[0]
    return index


def _axis(place: Index) -> Axis | None:
    """The axis that a place of one of two goes along, alone or as what two leave of it."""
    if len(place.terms) != 1 or place.const != 0:
        return None
    ((atom, step),) = place.terms.items()
    if isinstance(atom, Division) and atom.remainder and atom.divisor == PARTS:
        if len(atom.dividend.terms) != 1 or atom.dividend.const != 0:
            return None
        ((atom, step),) = atom.dividend.terms.items()
    elif not isinstance(atom, Axis) or atom.extent != PARTS:
        return None
    whole = isinstance(atom, Axis) and isinstance(atom.extent, int) and atom.extent % PARTS == 0
    return atom if whole and step == 1 and isinstance(atom, Axis) else None


def _split(cluster: Cluster, axis: Axis) -> Axis:
    if axis.extent == PARTS:
        return axis
    at = cluster.axes.index(axis)
    cluster.split(axis, (axis.extent // PARTS, PARTS))
    return cluster.axes[at + 1]


def of_both(store: Store, axis: Axis) -> list[Store]:
    """A store for each place of ``axis``, with what is known there."""
    return [
        Store(store.buffer, store.index.substitute({axis: constant(n)}), _at(store.value, axis, n))
        for n in range(PARTS)
    ]


def _at(value: Expr, axis: Axis, n: int) -> Expr:
    values, memo = {axis: constant(n)}, dict[Expr, Expr]()

    def visit(e: Expr) -> Expr:
        known = memo.get(e)
        if known is None:
            place = _asked(e)
            here = None if place is None else place.substitute(values)
            if here is not None and not here.terms:
                known = visit(e.args[1 if here.const == 0 else 2])
            else:
                known = e.mapped(visit, lambda index: index.substitute(values))
            memo[e] = known
        return known

    return visit(value)
