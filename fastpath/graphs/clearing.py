"""The zeros that the vendor's products begin to count at, written once for all of a device graph.

The library has such a number zeroed before each product, by a node of the graph of its own. That
stands between two kernels, and the device waits for either longer than for a kernel. Each product
of a graph has memory of its own for it (:mod:`fastpath.gpu.lt`), which nothing else touches: so one
node that all others follow zeroes the memory of all of them.

Source of the calls: NVIDIA's CUDA driver API, "Graph Management".
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

from fastpath.graphs import driver

_MEMSET = 2  # CU_GRAPH_NODE_TYPE_MEMSET
_CALLS = (
    "cuCtxGetCurrent",
    "cuGraphAddDependencies_v2",
    "cuGraphAddMemsetNode",
    "cuGraphDestroyNode",
    "cuGraphGetNodes",
    "cuGraphGetRootNodes",
    "cuGraphMemsetNodeGetParams",
    "cuGraphNodeGetDependencies_v2",
    "cuGraphNodeGetDependentNodes_v2",
    "cuGraphNodeGetType",
)
_Nodes = Sequence[int]


class Memset(ctypes.Structure):
    """``CUDA_MEMSET_NODE_PARAMS``: ``height`` rows of ``width`` elements."""

    _fields_ = (
        ("begin", ctypes.c_uint64),
        ("pitch", ctypes.c_size_t),
        ("value", ctypes.c_uint),
        ("size", ctypes.c_uint),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


def clear_first(graph: int, memory: range) -> int:
    """Have one node of ``graph`` (a ``CUgraph``), before all others, zero what several of its nodes
    zero in ``memory``, where each of them has a part of it to itself; returns for how many.

    The caller vouches for it that nothing in the graph but the one that follows such a node uses
    what that zeroes.
    """
    cuda = driver.library()
    if not all(hasattr(cuda, name) for name in _CALLS):
        return 0
    nodes = _Graph(cuda, graph)
    found: dict[int, int] = {}  # nodes by where they begin to write
    ends, often = [memory.start], set()
    for node in nodes.all():
        zeroed = nodes.zeroed(node)
        if zeroed is None or zeroed.start not in memory or zeroed.stop > memory.stop:
            continue
        if zeroed.start in found or not nodes.plain(node):
            often.add(zeroed.start)
            continue
        found[zeroed.start] = node
        ends.append(zeroed.stop)
    alone = {begin: node for begin, node in found.items() if begin not in often}
    if len(alone) < 2:
        return 0
    for node in alone.values():
        nodes.take_out(node)
    nodes.put_first(range(min(alone), max(ends)))
    return len(alone)


class _Graph:
    def __init__(self, cuda: Any, graph: int):
        self.cuda, self.graph = cuda, ctypes.c_void_p(graph)

    def _asked(self, name: str, *arguments: Any) -> None:
        driver.checked(getattr(self.cuda, name)(*arguments), name)

    def _list(self, name: str, of: Any, edges: bool = False) -> tuple[list[int], list[int]]:
        """Nodes, and what the driver says of the edges to them."""
        count = ctypes.c_size_t()
        nothing = [None] * (1 + edges)
        self._asked(name, of, *nothing, ctypes.byref(count))
        if not count.value:
            return [], []
        given = [(ctypes.c_void_p * count.value)()]
        kinds = (ctypes.c_uint64 * count.value)()
        self._asked(name, of, *given, *([kinds] * edges), ctypes.byref(count))
        return [int(node) for node in given[0] if node is not None], list(kinds)

    def all(self) -> _Nodes:
        return self._list("cuGraphGetNodes", self.graph)[0]

    def _beside(self, node: int) -> Iterator[tuple[list[int], list[int]]]:
        """What ``node`` follows, and what follows it."""
        for name in ("Dependencies", "DependentNodes"):
            yield self._list(f"cuGraphNodeGet{name}_v2", ctypes.c_void_p(node), True)

    def plain(self, node: int) -> bool:
        """Whether it waits until all is done that it follows, and so does what follows it."""
        return not any(kind for _, kinds in self._beside(node) for kind in kinds)

    def zeroed(self, node: int) -> range | None:
        """What is zeroed by ``node``, if it does that and nothing else."""
        kind, given = ctypes.c_int(), Memset()
        self._asked("cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(kind))
        if kind.value != _MEMSET:
            return None
        self._asked("cuGraphMemsetNodeGetParams", ctypes.c_void_p(node), ctypes.byref(given))
        if given.value or given.height != 1:
            return None
        return range(given.begin, given.begin + given.size * given.width)

    def _edge(self, first: int, second: int) -> None:
        ends = [(ctypes.c_void_p * 1)(node) for node in (first, second)]
        kind, count = (ctypes.c_uint64 * 1)(), ctypes.c_size_t(1)
        self._asked("cuGraphAddDependencies_v2", self.graph, *ends, kind, count)

    def take_out(self, node: int) -> None:
        (before, _), (behind, _) = self._beside(node)
        self._asked("cuGraphDestroyNode", ctypes.c_void_p(node))
        for second in behind:
            (known, _), _ = self._beside(second)
            for first in before:
                if first not in known:
                    self._edge(first, second)

    def put_first(self, memory: range) -> None:
        """A node that zeroes ``memory``, and that every other one follows."""
        roots, _ = self._list("cuGraphGetRootNodes", self.graph)
        given = Memset(memory.start, len(memory), 0, 1, len(memory), 1)
        made, context = ctypes.c_void_p(), ctypes.c_void_p()
        self._asked("cuCtxGetCurrent", ctypes.byref(context))
        none = (None, ctypes.c_size_t(0))
        self._asked(
            "cuGraphAddMemsetNode",
            *(ctypes.byref(made), self.graph, *none, ctypes.byref(given), context),
        )
        assert made.value is not None
        for root in roots:
            self._edge(made.value, root)
