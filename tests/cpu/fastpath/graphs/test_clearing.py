"""Zeros that several nodes of a device graph write, written by one: over a driver of Python's."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from fastpath.graphs import clearing, driver
from fastpath.graphs.clearing import Memset, clear_first

MEMORY = range(4096, 4096 + 64 * 256)


class Driver:
    """Nodes by number: what each zeroes, or None for a kernel, and the nodes that it follows."""

    def __init__(self, *memory: tuple[int, int] | None, early: tuple[int, ...] = ()):
        self.nodes = {n + 1: given for n, given in enumerate(memory)}
        self.before = {n: [n - 1] if n > 1 else [] for n in self.nodes}
        self.early = early  # nodes that begin before what they follow has ended

    def _give(self, found: list[int], into: Any, count: Any, kinds: Any = None) -> int:
        count._obj.value = len(found)
        for place, node in enumerate(found if into is not None else []):
            into[place] = node
            if kinds is not None:
                kinds[place] = int(node in self.early)
        return 0

    def cuGraphGetNodes(self, _: Any, into: Any, count: Any) -> int:
        return self._give([*self.nodes], into, count)

    def cuGraphGetRootNodes(self, _: Any, into: Any, count: Any) -> int:
        return self._give([n for n in self.nodes if not self.before[n]], into, count)

    def cuGraphNodeGetDependencies_v2(self, n: Any, into: Any, kinds: Any, count: Any) -> int:
        return self._give(self.before[n.value], into, count, kinds)

    def cuGraphNodeGetDependentNodes_v2(self, n: Any, into: Any, kinds: Any, count: Any) -> int:
        found = [m for m in self.nodes if n.value in self.before[m]]
        return self._give(found, into, count, kinds)

    def cuGraphNodeGetType(self, n: Any, kind: Any) -> int:
        kind._obj.value = 0 if self.nodes[n.value] is None else 2
        return 0

    def cuGraphMemsetNodeGetParams(self, n: Any, into: Any) -> int:
        begin, size = self.nodes[n.value] or (0, 0)
        into._obj.__init__(begin, size, 0, 1, size, 1)
        return 0

    def cuGraphDestroyNode(self, n: Any) -> int:
        del self.nodes[n.value]
        for found in self.before.values():
            if n.value in found:
                found.remove(n.value)
        return 0

    def cuGraphAddDependencies_v2(self, _: Any, first: Any, second: Any, *__: Any) -> int:
        self.before[second[0]].append(first[0])
        return 0

    def cuGraphAddMemsetNode(self, made: Any, *given: Any) -> int:
        new, what = max(self.nodes) + 1, given[3]._obj
        assert isinstance(what, Memset) and what.value == 0 and what.height == 1
        self.nodes[new], self.before[new] = (what.begin, what.size * what.width), []
        made._obj.value = new
        return 0

    def cuCtxGetCurrent(self, _: Any) -> int:
        return 0


def cleared(monkeypatch: pytest.MonkeyPatch, cuda: Driver) -> int:
    monkeypatch.setattr(driver, "library", lambda: cuda)
    assert all(hasattr(cuda, name) for name in clearing._CALLS)
    assert ctypes.sizeof(Memset) == 40
    return clear_first(7, MEMORY)


def test_one_node_before_all_others_zeroes_what_each_has_to_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not what lies elsewhere; and what follows a node follows what that followed."""
    own = [(MEMORY.start + 256 * n, 4) for n in (2, 3, 9)]
    cuda = Driver(None, own[0], None, own[1], None, (64, 4), None, own[2], None)
    assert cleared(monkeypatch, cuda) == 3
    assert cuda.nodes[10] == (own[0][0], own[2][0] + 4 - own[0][0])
    assert cuda.before == {
        1: [10],
        3: [1],
        5: [3],
        6: [5],
        7: [6],
        9: [7],
        10: [],
        **{n: cuda.before[n] for n in (2, 4, 8)},  # which are gone
    }
    assert sorted(cuda.nodes) == [1, 3, 5, 6, 7, 9, 10]


def test_what_is_zeroed_again_stays_and_so_does_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    first, again = (MEMORY.start, 4), (MEMORY.start + 256, 4)
    cuda = Driver(None, again, None, first, None, again, None)
    assert cleared(monkeypatch, cuda) == 0 and len(cuda.nodes) == 7
    other = (MEMORY.start + 512, 4)
    cuda = Driver(again, None, first, None, again, None, other, None)
    assert cleared(monkeypatch, cuda) == 2
    assert {1, 5} <= set(cuda.nodes) and not {3, 7} & set(cuda.nodes)
    cuda = Driver(None, first, None, other, None, early=(2, 3))
    assert cleared(monkeypatch, cuda) == 0 and len(cuda.nodes) == 5
