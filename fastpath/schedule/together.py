"""Which kernels run in one launch: small ones that do not wait for each other.

A step of an optimizer is a few small kernels for each parameter. One by one they cost their
launches and keep one thread; together they are one launch, whose work all threads share.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence

from fastpath.ir.program import Node
from fastpath.schedule.cluster import Cluster, Fusion

FEW = 4  # kernels that are worth it
MOST = 128  # of one launch
SMALL = 1 << 16  # points, from which on a kernel keeps all threads by itself
LITTLE = 16 << 10  # elements of new memory, for which the order in which kernels run does not count


def together(fusion: Fusion, overwriting: Container[Node], stored: Container[Node]) -> list[range]:
    """The places in ``fusion.result`` of what is launched at once, by launches.

    It is ordered so that those are neighbours. ``stored``: what kernels write to memory;
    ``overwriting``: what lies in the memory of inputs.
    """
    order: list[Cluster] = []
    found: list[range] = []
    for run in _runs(fusion.result, overwriting, stored):
        for level in _levels(fusion, run):
            small = [c for c in level if _is_small(c)]
            for first in range(0, len(small), MOST):
                part = small[first : first + MOST]
                if len(part) >= FEW:
                    found.append(range(len(order), len(order) + len(part)))
                order += part
            order += [c for c in level if not _is_small(c)]
    fusion.result = order
    return found


def _runs(
    order: Sequence[Cluster], overwriting: Container[Node], stored: Container[Node]
) -> Iterator[list[Cluster]]:
    """Kernels between calls that take little memory; whatever else there is, one by one."""
    run: list[Cluster] = []
    for cluster in order:
        made = [n.numel for n in cluster.members if n in stored and n not in overwriting]
        sized = not all(type(n) is int for n in (*made, *(a.extent for a in cluster.axes)))
        if cluster.call is None and not sized and sum(made) <= LITTLE:
            run.append(cluster)
            continue
        if run:
            yield run
        yield [cluster]
        run = []
    if run:
        yield run


def _levels(fusion: Fusion, run: Sequence[Cluster]) -> list[list[Cluster]]:
    """``run`` in an order in which those that wait for equally many others are neighbours."""
    if len(run) < FEW:
        return [[cluster] for cluster in run]
    place: dict[Cluster, int] = {}
    levels: list[list[Cluster]] = []
    for cluster in run:
        at = max((place[c] + 1 for c in fusion.sources(cluster) if c in place), default=0)
        place[cluster] = at
        if at == len(levels):
            levels.append([])
        levels[at].append(cluster)
    if all(len(level) < FEW for level in levels):
        return [[cluster] for cluster in run]
    return levels


def _is_small(cluster: Cluster) -> bool:
    return (
        cluster.call is None
        and cluster.product is None
        and all(type(a.extent) is int for a in cluster.axes)
        and 0 < math.prod(a.extent for a in cluster.axes) <= SMALL
    )
