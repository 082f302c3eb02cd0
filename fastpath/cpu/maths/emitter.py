"""Scalar functions for numba kernels, written in Python over LLVM values and emitted inline.

Numba types and lowers every called function on its own; a polynomial emitted as LLVM instructions
where it is used costs nothing of that, and says exactly which operations are fused. The code is
straight-line (selects, no branches), so that LLVM's loop vectoriser takes it as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from fastpath.cpu.access import TABLES, declare_scope

# kind -> (LLVM type, numba type); "u" and "i" differ in comparison, division, shift, conversion
KINDS: dict[str, tuple[ir.Type, Any]] = {
    "b1": (ir.IntType(1), types.boolean),
    "u8": (ir.IntType(8), types.uint8),
    "u16": (ir.IntType(16), types.uint16),
    "u32": (ir.IntType(32), types.uint32),
    "u64": (ir.IntType(64), types.uint64),
    "i8": (ir.IntType(8), types.int8),
    "i16": (ir.IntType(16), types.int16),
    "i32": (ir.IntType(32), types.int32),
    "i64": (ir.IntType(64), types.int64),
    "f32": (ir.FloatType(), types.float32),
    "f64": (ir.DoubleType(), types.float64),
}
BITS = {kind: 1 if kind == "b1" else int(kind[1:]) for kind in KINDS}
Number = bool | int | float
SHORT = 7  # coefficients: so many and fewer go one after the other


@functools.cache
def has_features(*names: str) -> bool:
    """Whether numba compiles for a processor with all of these, by LLVM's names."""
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return {f"+{name}" for name in names} <= set(features.split(","))


class Value:
    """An LLVM scalar under construction. Operators emit; Python numbers become constants."""

    __slots__ = ("builder", "ir", "kind")

    def __init__(self, builder: ir.IRBuilder, value: Any, kind: str):
        self.builder, self.ir, self.kind = builder, value, kind

    @property
    def is_float(self) -> bool:
        return self.kind[0] == "f"

    @property
    def signed(self) -> bool:
        return self.kind[0] == "i"

    @property
    def bits(self) -> int:
        return BITS[self.kind]

    def const(self, number: Number, kind: str | None = None) -> Value:
        """A constant of this value's kind (or of ``kind``)."""
        kind = kind or self.kind
        if kind[0] == "f":
            text: Any = float(number)
        else:
            text = int(number) & ((1 << BITS[kind]) - 1)
        return Value(self.builder, ir.Constant(KINDS[kind][0], text), kind)

    def _other(self, other: Value | Number) -> Value:
        if not isinstance(other, Value):
            return self.const(other)
        if other.kind != self.kind:
            raise TypeError(f"operands of kinds {self.kind} and {other.kind}")
        return other

    def _emit(self, instruction: str, *others: Value | Number, kind: str | None = None) -> Value:
        operands = [self.ir, *(self._other(other).ir for other in others)]
        return Value(self.builder, getattr(self.builder, instruction)(*operands), kind or self.kind)

    def _pick(self, floating: str, integer: str, unsigned: str | None = None) -> str:
        if self.is_float:
            return floating
        return integer if self.signed or unsigned is None else unsigned

    def __add__(self, other: Value | Number) -> Value:
        return self._emit(self._pick("fadd", "add"), other)

    def __sub__(self, other: Value | Number) -> Value:
        return self._emit(self._pick("fsub", "sub"), other)

    def __mul__(self, other: Value | Number) -> Value:
        return self._emit(self._pick("fmul", "mul"), other)

    def __truediv__(self, other: Value | Number) -> Value:
        return self._emit("fdiv", other)

    def __radd__(self, other: Number) -> Value:
        return self.const(other) + self

    def __rsub__(self, other: Number) -> Value:
        return self.const(other) - self

    def __rmul__(self, other: Number) -> Value:
        return self.const(other) * self

    def __rtruediv__(self, other: Number) -> Value:
        return self.const(other) / self

    def quotient(self, other: Value | Number) -> Value:
        """Integer division towards zero; the divisor must not be zero (nor -1 of the minimum)."""
        return self._emit("sdiv" if self.signed else "udiv", other)

    def rest(self, other: Value | Number) -> Value:
        """What :meth:`quotient` leaves; C's ``fmod`` for floats."""
        return self._emit(self._pick("frem", "srem", "urem"), other)

    def __neg__(self) -> Value:
        return self._emit("fneg") if self.is_float else 0 - self

    def __and__(self, other: Value | Number) -> Value:
        return self._emit("and_", other)

    def __or__(self, other: Value | Number) -> Value:
        return self._emit("or_", other)

    def __xor__(self, other: Value | Number) -> Value:
        return self._emit("xor", other)

    def __invert__(self) -> Value:
        return self._emit("not_")

    def __lshift__(self, other: Value | Number) -> Value:
        """The count has to be smaller than the width."""
        return self._emit("shl", other)

    def __rshift__(self, other: Value | Number) -> Value:
        """Arithmetic for signed kinds; the count has to be smaller than the width."""
        return self._emit("ashr" if self.signed else "lshr", other)

    def _compare(self, symbol: str, other: Value | Number) -> Value:
        if self.is_float:
            # != is the only comparison that is true of a nan
            name = "fcmp_unordered" if symbol == "!=" else "fcmp_ordered"
        else:
            name = "icmp_signed" if self.signed else "icmp_unsigned"
        compared = getattr(self.builder, name)(symbol, self.ir, self._other(other).ir)
        return Value(self.builder, compared, "b1")

    def __lt__(self, other: Value | Number) -> Value:
        return self._compare("<", other)

    def __le__(self, other: Value | Number) -> Value:
        return self._compare("<=", other)

    def __gt__(self, other: Value | Number) -> Value:
        return self._compare(">", other)

    def __ge__(self, other: Value | Number) -> Value:
        return self._compare(">=", other)

    def eq(self, other: Value | Number) -> Value:
        return self._compare("==", other)

    def ne(self, other: Value | Number) -> Value:
        return self._compare("!=", other)

    def where(self, yes: Value | Number, no: Value | Number) -> Value:
        """``yes`` where this bool holds, else ``no``; at least one is a :class:`Value`."""
        if not isinstance(yes, Value):
            assert isinstance(no, Value)
            yes = no.const(yes)
        no = yes._other(no)
        return Value(self.builder, self.builder.select(self.ir, yes.ir, no.ir), yes.kind)

    def call(self, name: str, *others: Value | Number) -> Value:
        """An LLVM intrinsic whose operands and result are all of this kind."""
        llvm_type = KINDS[self.kind][0]
        operands = [self.ir, *(self._other(other).ir for other in others)]
        signature = ir.FunctionType(llvm_type, [llvm_type] * len(operands))
        function = self.builder.module.declare_intrinsic(f"llvm.{name}", [llvm_type], signature)
        return Value(self.builder, self.builder.call(function, operands), self.kind)

    def fma(self, factor: Value | Number, addend: Value | Number) -> Value:
        """self * factor + addend, fused where the machine can (never a library call)."""
        return self.call("fmuladd", factor, addend)

    def abs(self) -> Value:
        return self.call("fabs")

    def bitcast(self, kind: str) -> Value:
        """The same bits as another kind of the same width."""
        if KINDS[kind][0] == KINDS[self.kind][0]:
            return Value(self.builder, self.ir, kind)
        return Value(self.builder, self.builder.bitcast(self.ir, KINDS[kind][0]), kind)

    def to(self, kind: str) -> Value:
        """Converted; a float has to be within the integer kind's range."""
        if kind == self.kind:
            return self
        target = KINDS[kind][0]
        if self.is_float and kind[0] == "f":
            name = "fpext" if BITS[kind] > self.bits else "fptrunc"
        elif self.is_float:
            name = "fptosi" if kind[0] == "i" else "fptoui"
        elif kind[0] == "f":
            name = "sitofp" if self.signed else "uitofp"
        elif BITS[kind] == self.bits:
            return self.bitcast(kind)
        else:
            widen = "sext" if self.signed else "zext"
            name = widen if BITS[kind] > self.bits else "trunc"
        return Value(self.builder, getattr(self.builder, name)(self.ir, target), kind)


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """The sum of ``coefficients[k] * x**k``.

    By Horner's rule, of which each step waits for the one before. A long one takes longer than a
    processor looks ahead, so its even and its odd powers are added up beside each other; of a short
    one that is an operation more for nothing.
    """
    if len(coefficients) <= SHORT:
        return _horner(x, coefficients)
    square = x * x
    return _horner(square, coefficients[1::2]).fma(x, _horner(square, coefficients[::2]))


def _horner(x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's rule, lowest coefficient first."""
    result = x.const(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result = result.fma(x, coefficient)
    return result


Emit = Callable[..., Value]


def function(name: str, operands: Sequence[str], result: str, emit: Emit) -> Any:
    """A numba intrinsic called ``name`` that emits ``emit(*values)`` where it is called.

    Operand types have to match exactly: a kernel that mixes types is a printer's mistake.
    """
    expected = tuple(KINDS[kind][1] for kind in operands)

    def type_and_lower(given: tuple[Any, ...]) -> tuple[Any, Any]:
        found = tuple(types.unliteral(t) for t in given)
        if found != expected:
            raise TypingError(f"{name} takes {expected}, not {found}")

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            values = [Value(builder, a, kind) for a, kind in zip(arguments, operands, strict=True)]
            return emit(*values).ir

        return KINDS[result][1](*expected), codegen

    if len(operands) == 1:

        def typing(typingctx: Any, x: Any) -> Any:
            return type_and_lower((x,))

    elif len(operands) == 2:

        def typing(typingctx: Any, x: Any, y: Any) -> Any:  # type: ignore[misc]
            return type_and_lower((x, y))

    elif len(operands) == 3:

        def typing(typingctx: Any, x: Any, y: Any, z: Any) -> Any:  # type: ignore[misc]
            return type_and_lower((x, y, z))

    else:

        def typing(typingctx: Any, x: Any, y: Any, z: Any, w: Any) -> Any:  # type: ignore[misc]
            return type_and_lower((x, y, z, w))

    typing.__name__ = name
    typing.__doc__ = emit.__doc__
    return intrinsic(typing)


def table(value: Value, name: str, kind: str, numbers: Sequence[Number], index: Value) -> Value:
    """``numbers[index]`` from a constant table of the module; ``index`` has to be within it."""
    module = value.builder.module
    name = f".refcompiler.{name}"
    if name in module.globals:
        constant = module.globals[name]
    else:
        llvm_type = KINDS[kind][0]
        array = ir.Constant(ir.ArrayType(llvm_type, len(numbers)), list(numbers))
        constant = cgutils.add_global_variable(module, array.type, name)
        constant.linkage = "internal"
        constant.global_constant = True
        constant.initializer = array
    zero = ir.Constant(ir.IntType(64), 0)
    place = value.builder.gep(constant, [zero, index.to("i64").ir], inbounds=True)
    got = value.builder.load(place)
    declare_scope(module, got, TABLES)  # or LLVM fears that a store changes the table
    return Value(value.builder, got, kind)
