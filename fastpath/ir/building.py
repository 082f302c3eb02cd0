"""What rules build a program with: the part of lowering that they know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fastpath.ir.described import Described
from fastpath.ir.expr import Expr
from fastpath.ir.program import Computed, Position, Tensor
from fastpath.ir.size import Number
from fastpath.target import Target

Body = Callable[[Position], Expr]


class Building(Protocol):
    """``pointwise``, ``reduce`` and ``add_reduction`` (which splits nothing) add a node; ``output``
    adds one with the shape, dtype and strides of an operator's fake result; ``add`` a given one.
    ``moments``: of values of the graph, those that are computed, by value, dimensions and dtype."""

    target: Target
    moments: dict[tuple[int, tuple[int, ...], str, float], tuple[Tensor, Tensor, Number]]

    def spread(self, t: Tensor, dims: tuple[int, ...]) -> bool:
        """Whether the graph takes a variance of ``t``, a value of it, over ``dims``."""
        ...

    def pointwise(
        self,
        shape: Sequence[Number],
        dtype: str,
        body: Body,
        stem: str = "value",
        strides: Sequence[Number] | None = None,
    ) -> Tensor: ...

    def reduce(
        self,
        kind: str,
        space: Sequence[Number],
        dims: Sequence[int],
        dtype: str,
        body: Body,
    ) -> Tensor: ...

    def add_reduction(self, kind: str, space: Any, dims: Any, dtype: str, body: Any) -> Tensor: ...

    def fresh(self, stem: str) -> str: ...

    def add(self, node: Computed) -> Tensor: ...

    def output(self, val: Described, body: Body, stem: str) -> Tensor: ...
