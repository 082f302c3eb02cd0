"""What a backend gives ``aot_autograd``, in another form for a while.

A debugger leaves stages of it out, whichever backend it is: nothing else asks for this.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Forms:
    """``compilers``: of the forward, the backward and of graphs without gradients."""

    compilers: Any
    decompositions: Mapping[Any, Callable[..., Any]]
    partition: Callable[..., Any]

    def with_compilers(self, compiler: Callable[..., Any]) -> Forms:
        other = copy.copy(self.compilers)
        other.forward = other.backward = other.inference = compiler
        return replace(self, compilers=other)

    def with_decompositions(self, table: Mapping[Any, Callable[..., Any]]) -> Forms:
        return replace(self, decompositions=table)

    def with_partition(self, partition: Callable[..., Any]) -> Forms:
        return replace(self, partition=partition)


_ALTERED: list[Callable[[Forms], Forms]] = []


@contextlib.contextmanager
def altered(alter: Callable[[Forms], Forms]) -> Iterator[None]:
    """Each compilation within asks ``alter``."""
    _ALTERED.append(alter)
    try:
        yield
    finally:
        _ALTERED.remove(alter)


def forms(compilers: Any, decompositions: Any, partition: Any) -> tuple[Any, Any, Any]:
    """The three as they are to be used."""
    if not _ALTERED:
        return compilers, decompositions, partition
    found = Forms(compilers, decompositions, partition)
    for alter in _ALTERED:
        found = alter(found)
    return found.compilers, found.decompositions, found.partition
