"""numba intrinsics that kernels use for memory: loads and stores at an address, scratch, sums.

Each buffer of a kernel has a scope of its own, and its accesses are declared not to alias those of
other buffers: outputs are fresh allocations, and what is written in place is checked before the
launch. Without that, LLVM's run-time alias checks give up beyond about ten pointers.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from fastpath.cpu.gemm import transposed, vector_bytes
from fastpath.schedule.streams import STREAM_ALIGNMENT
from specs.dtypes import BYTES

MOST_SCOPES = 64
STREAMED, ASKED = "streamed", "asked"  # marks of stores and of loads, for the code generator
TABLES = MOST_SCOPES - 1  # the scope of constant tables, which no buffer shares
OUTSIDE = MOST_SCOPES - 2  # that of the words that say which position is none

_I8, _I16, _I32, _I64 = (ir.IntType(n) for n in (8, 16, 32, 64))
_HIGH = _I32(0xFFFF0000)  # a bfloat16 among the bits of a float32
_NUMBA = {
    "bool": types.boolean,
    "uint8": types.uint8,
    "int8": types.int8,
    "int16": types.int16,
    "int32": types.int32,
    "int64": types.int64,
    "uint32": types.uint32,  # of a generator's state
    "float16": types.float32,
    "bfloat16": types.float32,
    "float32": types.float32,
    "float64": types.float64,
    **dict.fromkeys(BYTES, types.uint8),
}
_MEMORY = {
    "bool": _I8,
    "uint8": _I8,
    "int8": _I8,
    "int16": _I16,
    "int32": _I32,
    "int64": _I64,
    "uint32": _I32,
    "float16": ir.HalfType(),
    "bfloat16": _I16,
    "float32": ir.FloatType(),
    "float64": ir.DoubleType(),
    **dict.fromkeys(BYTES, _I8),
}


def declare_scope(module: ir.Module, instruction: Any, scope: int, mark: str = "") -> None:
    """Say that the load or store ``instruction`` touches the memory of buffer ``scope`` alone.

    A ``mark``, for the code generator, is a scope in a domain of its own, which says nothing about
    aliases and is among the little that survives the vectoriser.
    """
    known = vars(module).setdefault("fastpath_scopes", {})
    if (scope, mark) not in known:
        known[scope, mark] = _scopes(module, scope, mark)
    own, others = known[scope, mark]
    instruction.set_metadata("alias.scope", own)
    instruction.set_metadata("noalias", others)


def _scopes(module: ir.Module, scope: int, mark: str) -> tuple[Any, Any]:
    domain = module.add_metadata(["fastpath buffers"])
    scopes = [module.add_metadata([f"buffer {n}", domain]) for n in range(MOST_SCOPES)]
    own = [scopes[scope]]
    if mark:
        own.append(module.add_metadata([mark, module.add_metadata(["fastpath marks"])]))
    others = [s for n, s in enumerate(scopes) if n != scope]
    return module.add_metadata(own), module.add_metadata(others)


def _address(builder: Any, base: Any, index: Any, memory: ir.Type) -> Any:
    pointer = builder.inttoptr(base, memory.as_pointer())
    return builder.gep(pointer, [index], inbounds=True)


@functools.cache
def load(dtype: str, scope: int, mark: str = "") -> Any:
    """``load(address, index)``: element ``index`` as a register value (reduced floats widen)."""
    memory, value = _MEMORY[dtype], _NUMBA[dtype]

    @intrinsic
    def load_element(typing_context, address, index):
        def generate(context, builder, signature, args):
            got = builder.load(_address(builder, args[0], args[1], memory))
            declare_scope(builder.module, got, scope, mark)
            return _widened(builder, got, dtype)

        return value(types.int64, types.int64), generate

    return load_element


def load_asked(dtype: str, scope: int) -> Any:
    """A load that, if it becomes one of whole vectors, asks for what lies further on."""
    return load(dtype, scope, ASKED)


@functools.cache
def load_guarded(dtype: str, scope: int) -> Any:
    """``load_guarded(address, index, condition)``: the element, or 0 without touching memory."""
    memory, value = _MEMORY[dtype], _NUMBA[dtype]

    @intrinsic
    def load_if(typing_context, address, index, condition):
        def generate(context, builder, signature, args):
            before = builder.block
            inside = builder.append_basic_block("inside")
            after = builder.append_basic_block("after")
            builder.cbranch(args[2], inside, after)
            builder.position_at_end(inside)
            got = builder.load(_address(builder, args[0], args[1], memory))
            declare_scope(builder.module, got, scope)
            builder.branch(after)
            builder.position_at_end(after)
            chosen = builder.phi(memory)
            chosen.add_incoming(got, inside)
            chosen.add_incoming(ir.Constant(memory, None), before)
            return _widened(builder, chosen, dtype)

        return value(types.int64, types.int64, types.boolean), generate

    return load_if


def _moved(builder: Any, value: Any, wrapped: Any) -> Any:
    negative = builder.icmp_signed("<", value, _I64(0))
    return builder.select(negative, builder.add(value, wrapped), value)


@intrinsic
def place(typing_context, value, extent, wrapped):
    """The position ``value``, or ``value + wrapped`` if it is negative, of ``0 .. extent - 1``, and
    0 where it is none."""

    def generate(context, builder, signature, args):
        moved = _moved(builder, args[0], args[2])
        inside = builder.icmp_unsigned("<", moved, args[1])
        return builder.select(inside, moved, _I64(0))

    return types.int64(types.int64, types.int64, types.int64), generate


@intrinsic
def no_place(typing_context, value, extent, wrapped, asked):
    """1 where :func:`place` is asked for a position that there is not, else 0."""

    def generate(context, builder, signature, args):
        moved = _moved(builder, args[0], args[2])
        beyond = builder.icmp_unsigned(">=", moved, args[1])
        return builder.zext(builder.and_(beyond, args[3]), _I64)

    return types.int64(types.int64, types.int64, types.int64, types.boolean), generate


@intrinsic
def report(typing_context, outside, number, value):
    """Leave word of a position that there is not: which bounds it is beyond, and which it is."""

    def generate(context, builder, signature, args):
        for n, word in enumerate(args[1:]):
            done = builder.store(word, _address(builder, args[0], _I64(n), _I64))
            declare_scope(builder.module, done, OUTSIDE)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _widened(builder: Any, got: Any, dtype: str) -> Any:
    """The register value of what memory holds."""
    if dtype == "bool":
        return builder.icmp_unsigned("!=", got, _I8(0))
    if dtype == "bfloat16":
        wide = builder.shl(builder.zext(got, _I32), _I32(16))
        return builder.bitcast(wide, ir.FloatType())
    if dtype == "float16":
        return builder.fpext(got, ir.FloatType())
    return got


@functools.cache
def store(dtype: str, scope: int, streamed: bool = False) -> Any:
    """``store(address, index, value)``. A reduced float has been rounded to its dtype before."""
    memory, value = _MEMORY[dtype], _NUMBA[dtype]

    @intrinsic
    def store_element(typing_context, address, index, element):
        def generate(context, builder, signature, args):
            v = args[2]
            if dtype == "bool":
                v = builder.zext(v, _I8)
            elif dtype == "bfloat16":
                v = builder.trunc(builder.lshr(builder.bitcast(v, _I32), _I32(16)), _I16)
            elif dtype == "float16":
                v = builder.fptrunc(v, ir.HalfType())
            done = builder.store(v, _address(builder, args[0], args[1], memory))
            declare_scope(builder.module, done, scope, STREAMED if streamed else "")
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, value), generate

    return store_element


def store_streamed(dtype: str, scope: int) -> Any:
    """A store past the caches, if it becomes one of whole vectors that are aligned."""
    return store(dtype, scope, streamed=True)


def _word(builder: Any, base: Any, index: Any) -> Any:
    """The address of the two bfloat16 from element ``index`` on, as one word."""
    return builder.bitcast(_address(builder, base, index, _I16), _I32.as_pointer())


def _half(dtype: str, scope: int, odd: bool) -> Any:
    assert dtype == "bfloat16"

    @intrinsic
    def load_half(typing_context, address, index):
        def generate(context, builder, signature, args):
            got = builder.load(_word(builder, *args))
            got.align = 2
            declare_scope(builder.module, got, scope)
            wide = builder.and_(got, _HIGH) if odd else builder.shl(got, _I32(16))
            return builder.bitcast(wide, ir.FloatType())

        return types.float32(types.int64, types.int64), generate

    return load_half


@functools.cache
def load_low(dtype: str, scope: int) -> Any:
    """``load_low(address, index)``: element ``index``; that after it is :func:`load_high`'s."""
    return _half(dtype, scope, odd=False)


@functools.cache
def load_high(dtype: str, scope: int) -> Any:
    """``load_high(address, index)``: element ``index + 1``, read together with ``index``."""
    return _half(dtype, scope, odd=True)


@functools.cache
def store_pair(dtype: str, scope: int, streamed: bool = False) -> Any:
    """``store_pair(address, index, even, odd)``: both have been rounded before."""
    assert dtype == "bfloat16"

    @intrinsic
    def store_halves(typing_context, address, index, even, odd):
        def generate(context, builder, signature, args):
            low, high = (builder.bitcast(v, _I32) for v in args[2:])
            word = builder.or_(builder.lshr(low, _I32(16)), builder.and_(high, _HIGH))
            done = builder.store(word, _word(builder, *args[:2]))
            done.align = 2
            declare_scope(builder.module, done, scope, STREAMED if streamed else "")
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.float32, types.float32), generate

    return store_halves


def store_pair_streamed(dtype: str, scope: int) -> Any:
    return store_pair(dtype, scope, streamed=True)


def _argument(aligned: bool) -> Any:
    @intrinsic
    def argument(typing_context, addresses, place):
        def generate(context, builder, signature, args):
            got = builder.load(_address(builder, args[0], args[1], _I64))
            return builder.and_(got, _I64(-STREAM_ALIGNMENT)) if aligned else got

        return types.int64(types.int64, types.int64), generate

    return argument


address = _argument(aligned=False)  # ``address(addresses, k)``: the k-th argument of the kernel
aligned_address = _argument(aligned=True)  # the same of one that is known to be aligned


@intrinsic
def call_kernel(typing_context, function, addresses, begin, end):
    """``call_kernel(function, addresses, begin, end)``: run another kernel, at an address."""

    def generate(context, builder, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [_I64] * 3)
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


@intrinsic
def float_of(typing_context, bits):
    """``float_of(bits)``: the float64 that an integer's bits are."""

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), generate


@intrinsic
def hidden(typing_context, value):
    """``hidden(value)``: the floating value, of which the compiler knows nothing more."""

    def generate(context, builder, signature, args):
        kind = args[0].type
        function = builder.module.declare_intrinsic(
            "llvm.arithmetic.fence", [kind], ir.FunctionType(kind, [kind])
        )
        return builder.call(function, args)

    return value(value), generate


@intrinsic
def drain(typing_context):
    """``drain()``: what was streamed is in memory for all threads."""

    def generate(context, builder, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [])
        function = builder.module.declare_intrinsic("llvm.x86.sse.sfence", (), kind)
        builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), generate


def _prefetch(builder: Any, pointer: Any) -> None:
    """The line is wanted in the second-level cache, if it exists."""
    kind = ir.FunctionType(ir.VoidType(), [_I8.as_pointer(), _I32, _I32, _I32])
    function = builder.module.declare_intrinsic("llvm.prefetch", [_I8.as_pointer()], kind)
    reading, second_level, data = _I32(0), _I32(2), _I32(1)
    builder.call(function, [pointer, reading, second_level, data])


@functools.cache
def ask(dtype: str) -> Any:
    """``ask(address, index)``: the line of an element is wanted soon, if it exists."""
    memory = _MEMORY[dtype]

    @intrinsic
    def ask_for(typing_context, address, index):
        def generate(context, builder, signature, args):
            place = builder.add(args[0], builder.mul(args[1], _I64(_bytes(memory))))
            _prefetch(builder, builder.inttoptr(place, _I8.as_pointer()))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return ask_for


@functools.cache
def scratch(count: int, dtype: str) -> Any:
    """``scratch()``: the address of ``count`` elements on the stack, 64-byte aligned."""
    memory = _MEMORY[dtype]

    @intrinsic
    def scratch_row(typing_context):
        def generate(context, builder, signature, args):
            # numba's own helper would store a zero aggregate, which LLVM takes apart at length.
            with builder.goto_entry_block():
                place = builder.alloca(ir.ArrayType(memory, count))
            place.align = 64
            return builder.ptrtoint(place, _I64)

        return types.int64(), generate

    return scratch_row


@functools.cache
def square(
    dtype: str, side: int, source_scope: int, target_scope: int, columns: int | None = None
) -> Any:
    """``square(source, index, step, target, place, row, further)``: transpose ``side`` x ``side``
    elements, or ``side`` rows of so many ``columns``.

    Row ``k`` is read at ``index + k * step`` and becomes column ``k`` of the square at ``place``,
    whose rows are ``row`` apart. It is taken apart into squares of whole vectors.

    Reads jump from row to row, mostly from page to page, which no machine foresees: so the square
    that lies so many elements further on is asked for in time.
    """
    memory = _MEMORY[dtype]
    part = min(side, (vector_bytes() or 16) // _bytes(memory))
    vector = ir.VectorType(memory, part)
    width = columns or side

    @intrinsic
    def transpose_square(typing_context, source, index, step, target, place, row, further):
        def generate(context, builder, signature, args):
            start, at, by, goal, there, apart, away = args

            def address(base, first, steps, step, further):
                begin = builder.add(first, builder.mul(step, _I64(steps)))
                return _address(builder, base, builder.add(begin, _I64(further)), memory)

            def turn(upper, left):
                rows = []
                for k in range(upper, upper + part):
                    element = address(start, at, k, by, left)
                    pointer = builder.bitcast(element, vector.as_pointer())
                    if left + part <= width:
                        got = builder.load(pointer)
                        got.align = _bytes(memory)
                    else:
                        got = _first(builder, pointer, vector, width - left, _bytes(memory))
                    declare_scope(builder.module, got, source_scope)
                    rows.append(got)
                for k, value in enumerate(transposed(builder, rows)[: width - left]):
                    element = address(goal, there, left + k, apart, upper)
                    done = builder.store(value, builder.bitcast(element, vector.as_pointer()))
                    done.align = _bytes(memory)
                    declare_scope(builder.module, done, target_scope)

            for upper in range(0, side, part):
                for k in range(upper, upper + part) if columns is None else ():
                    later = builder.add(builder.add(at, away), builder.mul(by, _I64(k)))
                    # not inbounds: behind the last tile there may be nothing
                    place = builder.add(start, builder.mul(later, _I64(_bytes(memory))))
                    _prefetch(builder, builder.inttoptr(place, _I8.as_pointer()))
                for left in range(0, width, part):
                    turn(upper, left)
            return context.get_dummy_value()

        arguments = (types.int64,) * 7
        return types.void(*arguments), generate

    return transpose_square


def _first(builder: Any, pointer: Any, vector: ir.VectorType, count: int, align: int) -> Any:
    """The first ``count`` elements of a vector in memory, and zeros: no other is touched."""
    kind = vector.element
    suffix = f"i{kind.width}" if isinstance(kind, ir.IntType) else f"f{8 * _bytes(kind)}"
    mask = ir.VectorType(ir.IntType(1), vector.count)
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(vector, [vector.as_pointer(), _I32, mask, vector]),
        f"llvm.masked.load.v{vector.count}{suffix}.p0",
    )
    inside = ir.Constant(mask, [k < count for k in range(vector.count)])
    zero = ir.Constant(vector, None)
    return builder.call(function, [pointer, _I32(align), inside, zero])


def _bytes(memory: ir.Type) -> int:
    if isinstance(memory, ir.IntType):
        return memory.width // 8
    return {ir.HalfType: 2, ir.FloatType: 4, ir.DoubleType: 8}[type(memory)]


def _sum_like(name: str, flags: tuple[str, ...]) -> Any:
    @intrinsic
    def combine(typing_context, accumulator, value):
        def generate(context, builder, signature, args):
            return getattr(builder, name)(args[0], args[1], flags=flags)

        return value(value, value), generate

    return combine


# Sums alone may be reordered, or they could not be vectorised.
add_reordered = _sum_like("fadd", ("reassoc", "nsz"))
mul_reordered = _sum_like("fmul", ("reassoc", "nsz"))
