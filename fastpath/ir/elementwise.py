"""Lowering of an elementwise operator: its row's expression, evaluated on IR expressions."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from fastpath.ir import expr as E
from fastpath.ir.expr import Expr
from fastpath.ir.index import ZERO, constant
from fastpath.ir.program import Position, Scalar, Tensor
from fastpath.ir.size import Size, hint, surely
from fastpath.ir.types import name_of
from specs.dtypes import (
    BYTES,
    PART_OF,
    Computation,
    TensorType,
    compute_dtype,
    is_complex,
    is_float,
    is_int,
)
from specs.operators import Operator
from specs.scalars import PAIRED, SCALARS

_RESULTS = {row.name: row.result for row in SCALARS}
_MEANT = {row.name: frozenset(row.dtypes) for row in SCALARS}
_BOUNDS = {row.name: frozenset(row.ulp) for row in SCALARS}  # where it is not the nearest number


class NotLowered(Exception):
    """The operator has to be called; the text is the reason."""


def apply(op: str, *operands: Expr) -> Expr:
    """A scalar row applied to expressions of one computing dtype.

    Raises :class:`NotLowered` where the row has no meaning on that dtype.
    """
    dtype = operands[-1].dtype
    if any(is_complex(a.dtype) for a in operands):
        return _paired(op, operands)
    if compute_dtype(dtype) not in _MEANT[op]:
        raise NotLowered(f"{op} has no meaning on {dtype}")
    if _RESULTS[op] == "bool":
        if all(a.op == "const" for a in operands):
            meaning = SCALARS[op].meaning(dtype)
            return E.const(bool(meaning(*(a.args[0] for a in operands))), "bool")
        return _decided(op, operands) or Expr(op, operands, "bool")
    if op == "truediv" and all(a.op == "const" for a in operands):
        return E.const(SCALARS[op].meaning(dtype)(*(a.args[0] for a in operands)), dtype)
    if op == "where" and operands[0].op == "const":
        return operands[1 if operands[0].args[0] else 2]
    if op in ("add", "mul") and operands[0].op == "const":
        operands = operands[::-1]  # equal values are written alike, and computed once
    return Expr(op, operands, dtype)


def _paired(op: str, operands: tuple[Expr, ...]) -> Expr:
    """A scalar operation on complex numbers: its row's expressions of their parts."""
    if op == "where":
        condition, *values = operands
        real, imaginary = (apply("where", condition, *map(part, values)) for part in _PARTS)
        return E.pair(real, imaginary)
    row = PAIRED.get(op)
    if row is None:
        raise NotLowered(f"{op} has no meaning on {operands[-1].dtype}")
    part = next(PART_OF[a.dtype] for a in operands if is_complex(a.dtype))
    parts = [E.cast(part_of(a), part) for a in operands for part_of in _PARTS]
    names: dict[str, Any] = {**_FUNCTIONS, **dict(zip("abcd", parts)), "math": math}
    names |= {"dtype": part, "const": lambda value: E.const(value, part)}
    for name, text in row.given:
        names[name] = eval(_code(text), names)
    real = eval(_code(row.real), names)
    return real if row.imag is None else E.pair(real, eval(_code(row.imag), names))


def _decided(op: str, operands: tuple[Expr, ...]) -> Expr | None:
    """``a or False`` and the like: what bounds that are no numbers to compare with leave."""
    if op not in ("logical_or", "logical_and") or any(a.dtype != "bool" for a in operands):
        return None
    for one, other in (operands, operands[::-1]):
        if one.op == "const":
            return one if one.args[0] == (op == "logical_or") else other
    return None


#: For a float that each call chooses: what holds for these holds for any. Not each dtype has the
#: first; the last is whole if it is rounded.
_ANY = (1e300, 0.0, 1 + 2.0**-40)
_PARTS = (E.real, E.imag)
#: Eager's error for an integer divisor of zero, which is word for word this.
_NONZERO = E.Bounds(1, False, "RuntimeError", "ZeroDivisionError")
_FUNCTIONS = {
    name: functools.partial(apply, name)
    for name in (*SCALARS.names(), *PAIRED.names())
    if name != "cast"
}


def _nonzero(value: Expr) -> Expr:
    """The integer ``value``; where it is zero, the kernel's caller raises: a position of 0, the one
    that there is, is added to it, which is 1 there."""
    if is_float(value.dtype) or value.op == "const":
        return value
    at_fault = apply("eq", value, E.const(0, value.dtype))
    place = apply("where", at_fault, E.const(1, "int64"), E.const(0, "int64"))
    checked = Expr("bounded", (place, _NONZERO), "int64")
    return apply("add", value, E.cast(checked, value.dtype))


def broadcast_read(t: Tensor, index: Position) -> Expr:
    """The element of ``t`` that an output position broadcasts to."""
    skip = len(index) - len(t.shape)
    return t.read(tuple(ZERO if n == 1 else i for n, i in zip(t.shape, index[skip:])))


@functools.cache
def _code(text: str) -> Any:
    return compile(text, "<operator row>", "eval")


@functools.cache
def _converted(name: str) -> re.Pattern[str]:
    """Where a lowering only converts a number, or asks whether it is 1, which saves a product."""
    return re.compile(rf"\b(const|rounded)\({name}\)|\b{name} == 1\b")


def _asked_of_sizes(name: str, when: str) -> list[str]:
    """The names in ``when``, without what is known of a size: it is a number, which the dtypes that
    it is admitted to have, and whether it is 0 a kernel asks."""
    known = rf"\b(fits|is_number)\({name}\)|\b{name} (!= 0|is None)"
    return re.findall(r"\w+", re.sub(known, "", when))


def _largest(dtype: str) -> float:
    return torch.finfo(getattr(torch, dtype)).max if is_float(dtype) else math.inf


class Elementwise:
    """One call of an elementwise operator: ``result`` is its dtype, ``body`` its element."""

    def __init__(self, row: Operator, arguments: Mapping[str, Any], device: str):
        if row.lowering is None:
            raise NotLowered(row.reasons.get("lowering", "no lowering"))
        for name, value in arguments.items():
            if isinstance(value, (Size, Scalar)):
                self._check_number(row, name, value, device)
        self.row, self.lowering, self.device = row, row.lowering_on(device), device
        self.arguments = row.complete({k: _plain(v) for k, v in arguments.items()})
        types = {k: _typed(v) for k, v in self.arguments.items()}
        if device == "cuda" and row.not_on_cuda:
            for given in types.values():
                if isinstance(given, TensorType) and given.dtype in row.not_on_cuda:
                    raise NotLowered(f"CUDA's kernels reject {given.dtype}")
        operands = [types[a.name] for a in row.args if a.promotes]
        if operands and all(isinstance(v, (bool, int, float, complex)) for v in operands):
            raise NotLowered("a number in the place of a tensor")
        try:
            self.computation: Computation = row.computation(types)
        except TypeError as error:
            raise NotLowered(str(error)) from None
        self.result = self.computation.result
        self._promoting = {a.name for a in row.args if a.promotes}
        small = self.computation.common not in ("int64", "float32", "float64")
        if small and any(isinstance(v, Size) for v in self.arguments.values()):
            raise NotLowered("a number that may be too large for the others")
        self._admit(types)

    @staticmethod
    def _check_number(row: Operator, name: str, value: Size | Scalar, device: str) -> None:
        """A number that each call chooses may be an operand if nothing goes by its value, and a
        float on the CPU whatever is converted to a dtype and no more."""
        operand = any(a.name == name and a.promotes for a in row.args)
        lowering = row.lowering or ""
        if isinstance(value, Scalar):
            known = value.bits is not None and device == "cpu"
            rest = "" if operand else _converted(name).sub("", lowering)
            told = not known or re.search(rf"\b{name}\b", rest) is not None
        else:
            told = not operand or name in _asked_of_sizes(name, row.when)
        if told or "plain" in lowering:
            raise NotLowered("a number that is another one in each call")

    def _admit(self, types: dict[str, Any]) -> None:
        """Raises :class:`NotLowered` unless the lowering holds for these arguments. ``within``:
        floats that each call chooses, and of which eager asks whether the dtype has them."""
        numbers = [k for k, v in self.arguments.items() if isinstance(v, Scalar)]
        self.within: set[str] = set()
        for name in numbers or [""]:
            given = [types | ({name: n} if name else {}) for n in _ANY]
            holds = [self.row.lowers(each, self.device) for each in given]
            if not holds[0] and all(holds[1:]) and is_float(self.computation.common):
                self.within.add(name)
            elif not all(holds):
                reason = self.row.when or self.row.cuda_when or "a number overflows"
                raise NotLowered("not for these arguments: " + reason)

    def body(self, index: Position) -> Expr:
        value = eval(_code(self.lowering), self._names(index))
        if not isinstance(value, Expr):
            raise NotLowered(f"{self.row.name}: its lowering gives no expression")
        return E.cast(value, self.result)

    def insist_on_bits(self) -> None:
        """Raises :class:`NotLowered` if its results need not have eager's bits."""
        reason = self.row.other_bits({k: _typed(v) for k, v in self.arguments.items()})
        rank = max([len(t.shape) for t in self.arguments.values() if isinstance(t, Tensor)] or [0])
        for e in E.inside([self.body((ZERO,) * rank)]):
            if e.dtype in _BOUNDS.get(e.op, ()):
                reason = f"{e.op} is rounded otherwise than in eager"
            elif e.op in ("add", "sub") and any(map(_product, e.operands())):
                reason = "eager may fuse a product into a sum"
        if reason:
            raise NotLowered(f"strict numerics: {reason}")

    def _may_raise(self) -> bool:
        """Whether eager asks a divisor that is no plain number, and whether it may be 0."""
        other = self.arguments.get("other")
        return self.device == "cpu" and not (isinstance(other, Size) and surely(0, other))

    def _names(self, index: Position) -> dict[str, Any]:
        c = self.computation

        def const(value: Any) -> Expr:
            if isinstance(value, Expr):
                return E.cast(value, c.compute)
            return E.const(value, c.compute)

        def rounded(value: Any) -> Expr:
            if isinstance(value, Expr):
                return E.cast(E.cast(value, c.common), c.compute)
            return E.cast(E.const(_round(value, c.common), c.common), c.compute)

        names: dict[str, Any] = dict(_FUNCTIONS)
        names.update(
            const=const,
            rounded=rounded,
            cast=E.cast,
            dtype=c.compute,
            common=c.common,
            result=c.result,
            largest=_largest(c.result),
            math=math,
            is_float=is_float,
            is_int=is_int,
            is_number=lambda value: isinstance(value, bool | int | float | complex),
            is_tensor=lambda value: isinstance(value, Tensor),
            plain=self.arguments,
            pair=E.pair,
            conj=E.conj,
            nonzero=_nonzero if self._may_raise() else lambda value: value,
        )
        for name, value in self.arguments.items():
            if isinstance(value, Tensor):
                element = broadcast_read(value, index)
                if name in self._promoting:
                    element = E.cast(E.cast(element, c.common), c.compute)
                names[name] = element
            elif isinstance(value, Size):
                place = E.cast(E.position(constant(value)), c.scalars)
                names[name] = E.cast(place, c.compute)
            elif isinstance(value, Scalar) and value.bits is not None:
                bits = value.bits_within(c.common) if name in self.within else value.bits
                number = E.given(bits)
                if name in self._promoting:
                    number = E.cast(E.cast(number, c.scalars), c.compute)
                names[name] = number
            elif name in self._promoting and isinstance(value, (bool, int, float, complex)):
                names[name] = E.cast(E.const(_round(value, c.scalars), c.scalars), c.compute)
            else:
                names[name] = value
        return names


def _product(e: Expr) -> bool:
    """Whether it is one of floats, which a compiler may leave unrounded where it is added."""
    if e.op in ("neg", "where"):
        return any(map(_product, e.operands()))
    return e.op in ("mul", "square") and is_float(e.dtype)


def _round(value: Any, dtype: str) -> Any:
    """A Python number rounded to a floating dtype (exactly what converting a tensor would do)."""
    if not is_float(dtype) or dtype == "float64":
        return value
    exact = torch.tensor(float(value), dtype=torch.float64, device="cpu")
    return exact.to(getattr(torch, dtype)).item()


def _plain(value: Any) -> Any:
    return name_of(value) if isinstance(value, torch.dtype) else value


def _typed(value: Any) -> Any:
    if isinstance(value, Size):
        return hint(value)
    if isinstance(value, Scalar):
        return 0.5
    return TensorType(value.dtype, value.shape) if isinstance(value, Tensor) else value


def elementwise(
    row: Operator, arguments: Mapping[str, Any], device: str, strict: bool = False
) -> tuple[str, Callable[..., Expr]]:
    """The result's dtype and the function from a position to the element.

    ``device``: the type of the one whose eager's values count. ``strict``: only if that gives
    eager's bits.
    """
    call = Elementwise(row, arguments, device)
    if strict:
        call.insist_on_bits()
    probe: Sequence[Any] = [v for v in call.arguments.values() if isinstance(v, Tensor)]
    for t in probe:
        if not (_known(t.dtype) or row.kind == "cast" and t.dtype in BYTES):
            raise NotLowered(f"{t.dtype} is not computed in kernels")
    return call.result, call.body


def _known(dtype: str) -> bool:
    return dtype == "bool" or is_int(dtype) or is_float(dtype) or is_complex(dtype)


__all__ = ["NotLowered", "apply", "broadcast_read", "compute_dtype", "elementwise"]
