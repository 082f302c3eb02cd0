"""Code for arguments that hardly ever come: out of line, yet called from vectorised loops.

LLVM's vectoriser turns a branch into a select, so that every lane pays for both sides. Hence a
function that is declared to have vector variants, which are emitted here: a variant tests its lanes
together, and goes through them one by one only if at least one needs it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from fastpath.cpu.maths.emitter import BITS, KINDS, Value

# The lanes that loops have: up to a register of 512 bits, fewer on lesser machines and where the
# loop's memory is of wider elements. LLVM splits what a machine has no registers for.
WIDTHS = {"f32": (2, 4, 8, 16), "f64": (2, 4, 8)}
_INT32 = ir.IntType(32)


def _bits(number: float, kind: str) -> int:
    letters = ("<f", "<I") if kind == "f32" else ("<d", "<Q")
    (word,) = struct.unpack(letters[1], struct.pack(letters[0], number))
    return word


def at_least(x: Value, bound: float) -> Value:
    """bound <= abs(x) < infinity."""
    return Value(x.builder, _compared(x.builder, x.ir, x.kind, bound, 1), "b1")


def _compared(builder: Any, value: Any, kind: str, bound: float, lanes: int) -> Any:
    """The same of a scalar, or of each lane of a vector, by one comparison of the bits."""
    integer: Any = ir.IntType(BITS[kind])
    low = _bits(bound, kind)
    numbers: list[Any] = [(1 << (BITS[kind] - 1)) - 1, low, _bits(float("inf"), kind) - low]
    if lanes > 1:
        integer = ir.VectorType(integer, lanes)
        numbers = [[n] * lanes for n in numbers]
    mask, least, span = (ir.Constant(integer, n) for n in numbers)
    size = builder.and_(builder.bitcast(value, integer), mask)
    return builder.icmp_unsigned("<", builder.sub(size, least), span)


def when_large(x: Value, bound: float, name: str, emit: Callable[[Value], Value]) -> Value:
    """``emit(x)``, of the kind of ``x``, where :func:`at_least` holds; elsewhere anything.

    ``name`` stands for the function and the bound.
    """
    module = x.builder.module
    full = f".refcompiler.{name}"
    function = module.globals.get(full)
    if function is None:
        function = _scalar(module, full, x.kind, bound, emit)
        variants = [function]
        for lanes in WIDTHS[x.kind]:
            name = f"{full}.{lanes}"
            variants.append(_variant(module, variants[-1], name, x.kind, bound, lanes))
        mappings = (f"_ZGV_LLVM_N{n}v_{full}({full}.{n})" for n in WIDTHS[x.kind])
        _attribute(function, f'"vector-function-abi-variant"="{",".join(mappings)}"')
        _keep(module, variants[1:])
    # The call clobbers vector registers. They would be spilled across cache lines otherwise.
    _attribute(x.builder.function, "alignstack(64)")
    return Value(x.builder, x.builder.call(function, [x.ir]), x.kind)


def _attribute(function: Any, text: str) -> None:
    set.add(function.attributes, text)  # llvmlite knows only older attributes


def _new(module: Any, name: str, type_: Any) -> tuple[Any, Any]:
    function = ir.Function(module, ir.FunctionType(type_, [type_]), name)
    function.linkage = "internal"
    for attribute in ("noinline", "nounwind", "willreturn", "memory(none)"):
        _attribute(function, attribute)
    return function, ir.IRBuilder(function.append_basic_block("entry"))


def _scalar(module: Any, name: str, kind: str, bound: float, emit: Callable[[Value], Value]) -> Any:
    function, builder = _new(module, name, KINDS[kind][0])
    x = Value(builder, function.args[0], kind)
    rare, usual = function.append_basic_block("rare"), function.append_basic_block("usual")
    builder.cbranch(at_least(x, bound).ir, rare, usual)
    builder.position_at_end(usual)
    builder.ret(x.ir)
    builder.position_at_end(rare)
    builder.ret(emit(x).ir)
    return function


def _variant(module: Any, half: Any, name: str, kind: str, bound: float, lanes: int) -> Any:
    """The function of ``lanes`` lanes, which calls that of half as many (or of one)."""
    function, builder = _new(module, name, ir.VectorType(KINDS[kind][0], lanes))
    (x,) = function.args
    rare, usual = function.append_basic_block("rare"), function.append_basic_block("usual")
    word = ir.IntType(lanes)
    large = builder.bitcast(_compared(builder, x, kind, bound, lanes), word)
    builder.cbranch(builder.icmp_unsigned("!=", large, ir.Constant(word, 0)), rare, usual)
    builder.position_at_end(usual)
    builder.ret(x)
    builder.position_at_end(rare)
    if lanes == 2:
        result = x
        for lane in map(_INT32, range(2)):
            value = builder.call(half, [builder.extract_element(x, lane)])
            result = builder.insert_element(result, value, lane)
    else:
        parts = [
            builder.call(half, [builder.shuffle_vector(x, x, _numbers(start, lanes // 2))])
            for start in (0, lanes // 2)
        ]
        result = builder.shuffle_vector(*parts, _numbers(0, lanes))
    builder.ret(result)
    return function


def _numbers(start: int, count: int) -> Any:
    return ir.Constant(ir.VectorType(_INT32, count), list(range(start, start + count)))


def _keep(module: Any, functions: list[Any]) -> None:
    """Nothing refers to the variants until the vectoriser runs."""
    name = "llvm.compiler.used"
    pointer = ir.IntType(8).as_pointer()
    kept = [f.bitcast(pointer) for f in functions]
    used = module.globals.get(name)
    if used is None:
        used = ir.GlobalVariable(module, ir.ArrayType(pointer, 0), name)
    else:
        kept = [*used.initializer.constant, *kept]
    used.value_type = ir.ArrayType(pointer, len(kept))
    used.linkage = "appending"
    used.section = "llvm.metadata"
    used.initializer = ir.Constant(used.value_type, kept)
