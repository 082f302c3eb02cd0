"""One row per ATen operator that the project supports: shape, dtype, lowering, inputs, tolerance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specs.table import Table


@dataclass(frozen=True)
class Arg:
    """How test input for one argument is drawn.

    ``kind``: ``tensor``, ``tensors`` (a list), ``scalar``, ``int``, ``ints``, ``float``, ``bool``,
    ``dim``, ``dims``, ``shape``, ``dtype``, ``choice``, ``index`` (an integer tensor of valid
    indices). ``relation`` ties a tensor to the earlier ones: ``free``, ``broadcast`` (to the first
    tensor), ``same``, ``matmul``. ``values`` bounds or lists what is drawn.
    """

    name: str
    kind: str = "tensor"
    relation: str = "free"
    values: tuple[Any, ...] = ()
    keyword: bool = False  # passed by name
    optional: bool = False  # may be left out
    min_rank: int = 0
    max_rank: int = 4


@dataclass(frozen=True)
class Operator:
    """One ATen operator.

    ``name`` is the overload's name, ``aten.add.Tensor``; ``call`` the dotted path of a torch-level
    callable that reaches it, ``torch.add``. ``kind``: ``pointwise``, ``reduction``, ``view``,
    ``cast``, ``factory``, ``contraction``, ``gather``, ``composite``, ``other``.
    ``lowering`` is, for pointwise operators, a Python expression over the names in
    :data:`specs.scalars.SCALARS`, ``cast``/``const``, and the schema's argument names; for others
    the name of a rule of the loop IR (``reduce:sum``, ``view:permute``); ``None`` means that the
    fast path calls ATen, and ``reasons["lowering"]`` says why.
    """

    name: str
    call: str
    kind: str
    args: tuple[Arg, ...]
    dtypes: frozenset[str]
    dtype_rule: str
    shape_rule: str
    lowering: str | None
    tolerance: Mapping[str, float] = field(default_factory=dict)  # dtype -> ULP of the result
    reasons: Mapping[str, str] = field(default_factory=dict)
    doc: str = ""


OPERATORS: Table[Operator] = Table("ATen operators")
