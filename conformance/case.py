"""What is run: a program, its inputs, and a history of calls with state changes between them.

Everything here is plain data that pickles, compares and prints, and needs no torch. Programs and
steps are Python source text, so that the text that runs is the text that a repro script shows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

Number = bool | int | float | complex


@dataclass(frozen=True)
class Literal:
    """The contents of a storage, element by element."""

    values: tuple[Number, ...]


@dataclass(frozen=True)
class Drawn:
    """The contents of a storage, drawn by torch's own generator from ``seed``.

    ``kind``: ``normal`` (mean 0, deviation 1) or ``integers`` (``low <= value < high``).
    """

    kind: str
    seed: int
    low: int = 0
    high: int = 10


@dataclass(frozen=True)
class Storage:
    """A flat tensor of ``size`` elements that one or more tensors are views of."""

    name: str
    dtype: str
    size: int
    contents: Literal | Drawn

    def __post_init__(self) -> None:
        if isinstance(self.contents, Literal) and len(self.contents.values) != self.size:
            raise ValueError(
                f"storage {self.name!r}: {len(self.contents.values)} values for {self.size}"
            )


@dataclass(frozen=True)
class Tensor:
    """A tensor named ``name`` over the storage named ``storage``.

    ``strides=None`` makes a contiguous tensor that owns a copy of the whole storage and is nobody's
    view; otherwise it is ``storage.as_strided(shape, strides, offset)``, in elements. Then, in this
    order: ``view_dtype`` reinterprets the bits, ``conj`` and ``neg`` set the lazy bits.
    """

    name: str
    storage: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    offset: int = 0
    view_dtype: str | None = None
    conj: bool = False
    neg: bool = False
    requires_grad: bool = False


@dataclass(frozen=True)
class Value:
    """Any other named input, as a Python expression that may use ``torch`` and earlier names."""

    name: str
    source: str


Input = Storage | Tensor | Value


@dataclass(frozen=True)
class Program:
    """Python source that defines the thing under test.

    ``source`` is executed as a module; ``entry`` is an expression evaluated in it, which gives the
    callable or ``nn.Module`` to compile. ``needs`` names packages beyond torch that it imports.
    """

    source: str
    entry: str = "program"
    needs: tuple[str, ...] = ()


class Compiles(StrEnum):
    """What a call may do to the set of compiled programs."""

    YES = "yes"  # must compile: nothing that exists fits
    NO = "no"  # must not compile: what exists fits
    ANY = "any"


@dataclass(frozen=True)
class Call:
    """A call of the compiled callable ``f``: a Python expression over the inputs' names.

    ``mode`` is the ambient gradient mode: ``grad``, ``no_grad`` or ``inference_mode``.
    ``backward``: afterwards send fixed non-uniform cotangents back through the differentiable
    outputs, so that ``.grad`` of inputs and parameters is part of what is observed.
    """

    source: str
    compiles: Compiles = Compiles.ANY
    mode: str = "grad"
    backward: bool = False


@dataclass(frozen=True)
class Change:
    """A state change between calls: Python statements over the inputs' names and ``model``."""

    source: str


Step = Call | Change


@dataclass(frozen=True)
class Tolerance:
    """What a result may differ by, beyond what eager's own error to float64 already explains.

    ``ulp``: units in the last place of the result's dtype. ``conditioned``: the program takes more
    than one rounding, so that terms may cancel, and the error is judged against what one rounding
    of the inputs does to the result. ``mixing``: it mixes elements (sums, contractions, whole
    models), so that it is also judged against the root mean square of eager's error.
    ``zero_sign``: a zero has to have eager's sign. IEEE 754 leaves that open for minimum and
    maximum, and summation in another order changes it.
    """

    ulp: float = 0.0
    conditioned: bool = False
    mixing: bool = False
    zero_sign: bool = False


@dataclass(frozen=True, repr=False)
class Case:
    """One case. ``subject`` and ``variant`` (often a dtype): its row and column in the census.

    ``left_to_aten``: the specification says that a compiler calls ATen for these arguments.
    """

    suite: str
    subject: str
    variant: str
    program: Program
    inputs: tuple[Input, ...]
    history: tuple[Step, ...]
    tolerance: Tolerance = field(default_factory=Tolerance)
    device: str = "cpu"
    left_to_aten: bool = False
    label: str = ""  # tells the cases of one subject and variant apart; else the digest does

    @property
    def id(self) -> str:
        return f"{self.suite}/{self.subject}/{self.variant}/{self.label or self.digest}"

    @cached_property
    def digest(self) -> str:
        """Ten hexadecimal digits that depend on nothing but the case's own content."""
        content = (self.program, self.inputs, self.history, self.tolerance, self.device)
        return hashlib.sha256(repr(content).encode()).hexdigest()[:10]

    def __repr__(self) -> str:
        return f"<case {self.id}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # hypothesis prints what it draws; this keeps that short

    def with_inputs(self, inputs: Iterable[Input]) -> Case:
        return replace(self, inputs=tuple(inputs))

    def storages(self) -> tuple[Storage, ...]:
        return tuple(item for item in self.inputs if isinstance(item, Storage))

    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(item for item in self.inputs if isinstance(item, Tensor))


def show(value: Any) -> str:
    """The Python expression of a number, a container of numbers, or a string.

    ``inf`` and ``nan`` are names that the reader of the expression has to define.
    """
    match value:
        case complex():
            return f"complex({value.real!r}, {value.imag!r})"
        case list():
            return "[" + ", ".join(show(item) for item in value) + "]"
        case tuple():
            return "(" + "".join(show(item) + ", " for item in value).rstrip() + ")"
        case dict():
            return "{" + ", ".join(f"{show(k)}: {show(v)}" for k, v in value.items()) + "}"
    return repr(value)
