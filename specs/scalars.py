"""One row per scalar operation of the loop IR: what it means, and how each printer writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specs.table import Table


@dataclass(frozen=True)
class Scalar:
    """One scalar operation.

    ``exact`` is its meaning on Python numbers (bool, int, float, mpmath values), written apart
    from the kernels: it is the oracle, so it shares no text with ``numba`` and ``triton``.
    ``result`` names the dtype rule: ``same`` (the operands' common dtype), ``bool``, ``float``
    (floating operands only, same dtype out), ``int``.
    ``numba`` and ``triton`` are expression templates over ``{0}``, ``{1}``, ... with ``{T}``
    standing for the kernel's name of the computing type; either one template, or one per dtype
    family (``"float"``, ``"int"``, ``"uint"``, ``"bool"``); ``None`` needs an entry in
    ``reasons`` under the printer's name.
    """

    name: str
    arity: int
    exact: Callable[..., Any]
    result: str
    dtypes: frozenset[str]
    numba: str | Mapping[str, str] | None
    triton: str | Mapping[str, str] | None
    ulp: Mapping[str, float] = field(default_factory=dict)  # dtype -> bound; absent means exact
    domain: tuple[tuple[float, float], ...] = ()  # per operand; empty means everything
    special: tuple[tuple[Any, ...], ...] = ()  # operand tuples that deserve a test of their own
    reasons: Mapping[str, str] = field(default_factory=dict)
    doc: str = ""


SCALARS: Table[Scalar] = Table("scalar operations")
