"""Code for arguments that hardly ever come: out of line, yet called from vectorised loops.

LLVM's vectoriser turns a branch into a select, so that every lane pays for both sides. Hence a
function that is declared to have vector variants, which are emitted here: a variant tests its lanes
together, and goes through them one by one only if at least one needs it; or, where that is half of
all numbers in some programs, computes it of all of them, in a loop that becomes one of vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from fastpath.cpu.maths.emitter import BITS, KINDS, Value, has_features

# The lanes that loops have: up to a register of 512 bits, fewer on lesser machines and where the
# loop's memory is of wider elements. LLVM splits what a machine has no registers for.
WIDTHS = {"f32": (2, 4, 8, 16), "f64": (2, 4, 8)}
_INT32 = ir.IntType(32)


def unless_large(
    x: Value,
    usual: Value,
    bound: float,
    name: str,
    emit: Callable[..., Value],
    *others: Value,
    together: bool = False,
) -> Value:
    """``emit(x, *others)`` where bound <= abs(x), else ``usual``; all of one kind.

    ``name`` stands for the function and the bound. ``together``: lanes that need it often have
    neighbours that do, so that a register of them is computed at once.
    """
    count = 2 + len(others)
    module = x.builder.module
    full = f".refcompiler.{name}"
    function = module.globals.get(full)
    if function is None:
        function = _scalar(module, full, x.kind, bound, emit, count)
        variants = [function]
        at_once = (512 if has_features("avx512f") else 256) // BITS[x.kind] if together else 0
        for lanes in WIDTHS[x.kind]:
            name = f"{full}.{lanes}"
            each = emit if lanes == at_once else None
            variants.append(_variant(module, variants[-1], name, x.kind, bound, lanes, each))
        given = "v" * count
        mappings = (f"_ZGV_LLVM_N{n}{given}_{full}({full}.{n})" for n in WIDTHS[x.kind])
        _attribute(function, f'"vector-function-abi-variant"="{",".join(mappings)}"')
        _keep(module, variants[1:])
    operands = [x.ir, usual.ir, *(other.ir for other in others)]
    return Value(x.builder, x.builder.call(function, operands), x.kind)


def _large(builder: Any, value: Any, kind: str, bound: float, lanes: int) -> Any:
    """bound <= abs(value) of a scalar, or of each lane of a vector; false for a nan."""
    floating: Any = KINDS[kind][0]
    integer: Any = ir.IntType(BITS[kind])
    numbers: tuple[Any, Any] = ((1 << (BITS[kind] - 1)) - 1, bound)
    if lanes > 1:
        floating, integer = (ir.VectorType(t, lanes) for t in (floating, integer))
        numbers = ([numbers[0]] * lanes, [numbers[1]] * lanes)
    mask, least = ir.Constant(integer, numbers[0]), ir.Constant(floating, numbers[1])
    size = builder.and_(builder.bitcast(value, integer), mask)
    return builder.fcmp_ordered(">=", builder.bitcast(size, floating), least)


def _attribute(function: Any, text: str) -> None:
    set.add(function.attributes, text)  # llvmlite knows only older attributes


def _new(module: Any, name: str, type_: Any, count: int) -> tuple[Any, Any]:
    function = ir.Function(module, ir.FunctionType(type_, [type_] * count), name)
    function.linkage = "internal"
    if has_features("avx512f"):
        # The usual convention leaves the caller's loop no vector register, this one half of them:
        # the upper sixteen, which vzeroupper spares. (With AVX it would be ymm8 to ymm15, which
        # LLVM's own vzeroupper in the caller or in the called function does not spare.)
        function.calling_convention = "intel_ocl_bicc"
    for attribute in ("noinline", "nounwind", "willreturn", "memory(none)"):
        _attribute(function, attribute)
    return function, ir.IRBuilder(function.append_basic_block("entry"))


def _branched(function: Any, builder: Any, large: Any) -> None:
    """Return the usual value unless ``large``; the builder goes on with what is rare."""
    rare, usual = function.append_basic_block("rare"), function.append_basic_block("usual")
    builder.cbranch(large, rare, usual).set_weights([1, 1000])
    builder.position_at_end(usual)
    builder.ret(function.args[1])
    builder.position_at_end(rare)


def _scalar(
    module: Any, name: str, kind: str, bound: float, emit: Callable[..., Value], count: int
) -> Any:
    function, builder = _new(module, name, KINDS[kind][0], count)
    x, _, *others = (Value(builder, given, kind) for given in function.args)
    _branched(function, builder, _large(builder, x.ir, kind, bound, 1))
    builder.ret(emit(x, *others).ir)
    return function


def _variant(
    module: Any,
    half: Any,
    name: str,
    kind: str,
    bound: float,
    lanes: int,
    emit: Callable[..., Value] | None,
) -> Any:
    """The function of ``lanes`` lanes, which calls that of half as many (or of one), or has the
    lanes' own code, ``emit``."""
    count = len(half.args)
    function, builder = _new(module, name, ir.VectorType(KINDS[kind][0], lanes), count)
    word = ir.IntType(lanes)
    large = builder.bitcast(_large(builder, function.args[0], kind, bound, lanes), word)
    _branched(function, builder, builder.icmp_unsigned("!=", large, ir.Constant(word, 0)))
    if emit is not None:
        result = _in_a_loop(function, builder, kind, bound, lanes, emit)
    elif lanes == 2:
        result = function.args[1]
        for lane in map(_INT32, range(2)):
            operands = [builder.extract_element(v, lane) for v in function.args]
            result = builder.insert_element(result, builder.call(half, operands), lane)
    else:
        parts = []
        for start in (0, lanes // 2):
            place = _numbers(start, lanes // 2)
            operands = [builder.shuffle_vector(v, v, place) for v in function.args]
            parts.append(builder.call(half, operands))
        result = builder.shuffle_vector(*parts, _numbers(0, lanes))
    builder.ret(result)
    return function


def _in_a_loop(
    function: Any, builder: Any, kind: str, bound: float, lanes: int, emit: Callable[..., Value]
) -> Any:
    """What every lane comes to, each by itself, through memory: LLVM makes one round of it."""
    places = []
    with builder.goto_entry_block():
        for given in (*function.args, function.args[1]):
            places.append(builder.alloca(given.type))
    for place, given in zip(places, function.args):
        builder.store(given, place)
    start = builder.block
    loop, end = function.append_basic_block("lane"), function.append_basic_block("all")
    builder.branch(loop)
    builder.position_at_end(loop)
    lane = builder.phi(_INT32)
    lane.add_incoming(_INT32(0), start)
    pointer = KINDS[kind][0].as_pointer()
    elements = [builder.gep(builder.bitcast(place, pointer), [lane]) for place in places]
    x, usual, *others = map(builder.load, elements[:-1])
    rare = emit(*(Value(builder, value, kind) for value in (x, *others))).ir
    large = _large(builder, x, kind, bound, 1)
    builder.store(builder.select(large, rare, usual), elements[-1])
    following = builder.add(lane, _INT32(1))
    lane.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_unsigned("<", following, _INT32(lanes)), loop, end)
    builder.position_at_end(end)
    return builder.load(places[-1])


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
