"""Matrix products by a kernel of our own: ``c[m, n] = sum over k of a[m, k] * b[k, n] + s[m, n]``.

The way of Goto and van de Geijn (2008): blocks of both operands are copied to where they lie as the
innermost loop reads them, and that loop keeps a tile of results in registers, ``ROWS`` by two
vectors, over ``DEPTH`` terms. A thread copies for itself, on its stack, so threads share nothing;
what an operand's strides are is the copy's affair alone. One kernel serves all sizes of a dtype: it
is compiled once on a machine.

A unit of work is a panel (the columns of a tile) of a chunk of rows of one product; neighbouring
panels go through the rows together, so that a copied block of ``a`` serves up to ``GROUP`` columns.

Processors without AVX-512 are slow to store by a mask: what is whole is stored without one.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from llvmlite import ir

from fastpath.cpu.objects import address_of

DEPTH = 256  # terms of a block
GROUP = 256  # columns
SPARE = 16  # elements between rows of a block, so that they do not compete for places of a cache
STEP = DEPTH + SPARE
CHUNK = 384  # rows, a multiple of each tile's; the last has up to half as many more
#: What the kernel is given, in order. Leading dimensions and strides are in elements; ``s`` may be
#: 0 for none; of each operand the stride along one of its dimensions is 1.
ARGUMENTS = ("a", "b", "s", "c", "m", "n", "k", "a_m", "a_k", "b_k", "b_n", "s_m", "c_m") + (
    *("a_batch", "b_batch", "s_batch", "c_batch"),
)

_I1, _I32, _I64 = (ir.IntType(n) for n in (1, 32, 64))
_PTR = ir.PointerType()
_ELEMENT = {"float32": ir.FloatType(), "float64": ir.DoubleType()}
BYTES = {"float32": 4, "float64": 8}


@functools.cache
def vector_bytes() -> int:
    """Of this machine's vectors, with multiply-add; 0 where there are none that are worth it."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    if not features.get("fma"):
        return 0
    return 64 if features.get("avx512f") else 32 if features.get("avx2") else 0


def panel(dtype: str) -> int:
    """Columns of a tile."""
    return 2 * vector_bytes() // BYTES[dtype]


def transposed(b: Any, square: Sequence[Any]) -> list[Any]:
    """As many vectors as each has elements, with rows and columns exchanged; ``b`` builds it.

    By halves: of vectors that are ``half`` apart, what the two have beyond the diagonal is
    exchanged, for halves, quarters and so on.
    """
    found, count = list(square), len(square)
    half = count // 2
    while half:
        low = [n if not n & half else count + (n ^ half) for n in range(count)]
        high = [n ^ half if not n & half else count + n for n in range(count)]
        for n in range(count):
            if not n & half:
                x, y = found[n], found[n | half]
                found[n], found[n | half] = _shuffled(b, x, y, low), _shuffled(b, x, y, high)
        half //= 2
    return found


def _shuffled(b: Any, x: Any, y: Any, order: Sequence[int]) -> Any:
    return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(_I32, len(order)), order))


def tile_heights(width: int) -> tuple[int, ...]:
    """Rows of tiles for vectors of ``width`` bytes: two of them for each row, as many registers as
    there are but for the operands."""
    return (12, 8, 4) if width == 64 else (6, 4, 2)


def chunks(rows: object) -> str:
    """How many chunks so many rows are, none of none, as a text; ``rows`` is one."""
    return f"max(({rows} + {CHUNK // 2}) // {CHUNK}, {rows} > 0)"


@functools.cache
def kernel(dtype: str) -> int:
    """The address of the kernel for ``dtype``, which takes :data:`ARGUMENTS`."""
    width = vector_bytes()
    return address_of(("gemm", dtype, str(width)), functools.partial(_compile, dtype, width))


def _compile(dtype: str, width: int, symbol: str) -> bytes:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(str(Gemm(dtype, width).module(symbol)))
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
        codemodel="default",
        jit=True,
    )
    tuning = llvm.create_pipeline_tuning_options(3)
    tuning.loop_unrolling = tuning.slp_vectorization = tuning.loop_vectorization = False
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    found: bytes = machine.emit_object(module)
    return found


class Gemm:
    """Writes the kernel for a dtype and vectors of ``width`` bytes."""

    def __init__(self, dtype: str, width: int):
        self.element, self.bytes = _ELEMENT[dtype], BYTES[dtype]
        self.width = width
        self.lanes = width // self.bytes
        self.columns = 2 * self.lanes
        self.tiles = tile_heights(width)
        self.rows = self.tiles[0]
        self.high = -(-self.rows // self.lanes) * self.lanes
        self.group = GROUP // self.columns
        self.vector = ir.VectorType(self.element, self.lanes)
        self.mask = ir.VectorType(_I1, self.lanes)
        self.ids = ir.Constant(ir.VectorType(_I64, self.lanes), list(range(self.lanes)))
        self.zero = ir.Constant(self.vector, [0.0] * self.lanes)
        self._module = ir.Module("gemm")
        self.b: Any = None  # the builder of the function that is being written

    def module(self, symbol: str) -> ir.Module:
        self.copied = self._function("copied", 7, self._copied)
        self.turned = self._function("turned", 7, self._turned)
        self.moved = self._function("moved", 6, self._moved)
        self.multiplied = [
            self._function(f"tile_{n}", 9, functools.partial(self._tile, n)) for n in self.tiles
        ]
        self.edge = self._function("tile_edge", 11, self._edge)
        self._function(symbol, 3, self._driver)
        return self._module

    # -- writing -----------------------------------------------------------------------------------

    def _function(self, name: str, arguments: int, write: Callable[..., None]) -> ir.Function:
        function = ir.Function(
            self._module, ir.FunctionType(ir.VoidType(), [_I64] * arguments), name
        )
        if name.startswith(("copied", "turned", "moved", "tile")):
            function.linkage = "internal"
            function.attributes.add("noinline")
        self.b = ir.IRBuilder(function.append_basic_block("entry"))
        write(*function.args)
        self.b.ret_void()
        return function

    @contextlib.contextmanager
    def _loop(
        self, end: Any, step: int, values: Sequence[Any] = (), begin: Any = None
    ) -> Iterator[Any]:
        """``for i in range(begin, end, step)``, at least once, with values that go around: yields
        ``i``, those, and a function that is told the next ones; afterwards it has the last."""
        b = self.b
        before, body = b.block, b.append_basic_block("body")
        b.branch(body)
        b.position_at_end(body)
        i = b.phi(_I64)
        i.add_incoming(_I64(0) if begin is None else begin, before)
        around = [b.phi(v.type) for v in values]
        for phi, value in zip(around, values, strict=True):
            phi.add_incoming(value, before)
        following: list[Any] = list(around)
        yield i, around, following
        after = b.add(i, _I64(step))
        i.add_incoming(after, b.block)
        for phi, value in zip(around, following, strict=True):
            phi.add_incoming(value, b.block)
        done = b.append_basic_block("done")
        b.cbranch(b.icmp_signed("<", after, end), body, done)
        b.position_at_end(done)

    def _min(self, x: Any, y: Any) -> Any:
        return self.b.select(self.b.icmp_signed("<", x, y), x, y)

    def _at(self, base: Any, *offsets: Any) -> Any:
        """The address ``base`` (an integer) plus elements."""
        for offset in offsets:
            base = self.b.add(base, self.b.mul(offset, _I64(self.bytes)))
        return base

    def _pointer(self, address: Any) -> Any:
        return self.b.inttoptr(address, _PTR)

    def _below(self, count: Any, first: int = 0) -> Any:
        """Which lanes, of those from ``first`` on, are below ``count``."""
        ids = ir.Constant(self.ids.type, [first + n for n in range(self.lanes)])
        return self.b.icmp_signed("<", ids, self._spread(count))

    def _spread(self, value: Any) -> Any:
        kind = ir.VectorType(value.type, self.lanes)
        one = self.b.insert_element(ir.Constant(kind, ir.Undefined), value, _I32(0))
        zeros = ir.Constant(ir.VectorType(_I32, self.lanes), [0] * self.lanes)
        return self.b.shuffle_vector(one, ir.Constant(kind, ir.Undefined), zeros)

    def _only_if(self, mask: Any, condition: Any) -> Any:
        return self.b.and_(mask, self._spread(condition))

    def _load(self, address: Any, mask: Any) -> Any:
        """The vector there, 0 where the mask does not hold, of which nothing is read."""
        name = f"llvm.masked.load.v{self.lanes}f{8 * self.bytes}.p0"
        kind = ir.FunctionType(self.vector, [_PTR, _I32, self.mask, self.vector])
        load = self._intrinsic(name, kind)
        return self.b.call(load, [self._pointer(address), _I32(self.bytes), mask, self.zero])

    def _store(self, value: Any, address: Any, mask: Any) -> None:
        name = f"llvm.masked.store.v{self.lanes}f{8 * self.bytes}.p0"
        kind = ir.FunctionType(ir.VoidType(), [self.vector, _PTR, _I32, self.mask])
        pointer = self._pointer(address)
        self.b.call(self._intrinsic(name, kind), [value, pointer, _I32(self.bytes), mask])

    def _intrinsic(self, name: str, kind: ir.FunctionType) -> ir.Function:
        found = self._module.globals.get(name)
        return ir.Function(self._module, kind, name) if found is None else found

    def _get(self, address: Any) -> Any:
        return self.b.load(self._pointer(address), align=self.bytes, typ=self.vector)

    def _either(
        self, condition: Any, yes: Callable[[], list[Any]], no: Callable[[], list[Any]]
    ) -> list[Any]:
        """What ``yes`` computes where the condition holds, and what ``no`` does elsewhere."""
        b = self.b
        blocks, values = [], []
        with b.if_else(condition) as ways:
            for way, write in zip(ways, (yes, no), strict=True):
                with way:
                    values.append(write())
                    blocks.append(b.block)
        found = []
        for pair in zip(*values, strict=True):
            phi = b.phi(pair[0].type)
            for value, block in zip(pair, blocks, strict=True):
                phi.add_incoming(value, block)
            found.append(phi)
        return found

    def _one_of(self, condition: Any, yes: Callable[[], None], no: Callable[[], None]) -> None:
        with self.b.if_else(condition) as ways:
            for way, write in zip(ways, (yes, no), strict=True):
                with way:
                    write()

    def _put(self, value: Any, address: Any) -> None:
        self.b.store(value, self._pointer(address), align=self.width)

    # -- copies ------------------------------------------------------------------------------------

    def _copied(
        self, to: Any, to_step: Any, of: Any, step: Any, rows: Any, columns: Any, shape: Any
    ) -> None:
        """``to[r, c] = of[r, c]``, whose rows lie ``step`` apart, and zeros up to ``shape``, which
        is rows and columns in 32 bits each."""
        b = self.b
        all_rows, all_columns = b.lshr(shape, _I64(32)), b.and_(shape, _I64(0xFFFFFFFF))

        def panel() -> None:
            with self._loop(rows, 1) as (r, _, _):
                there, here = self._at(to, b.mul(r, to_step)), self._at(of, b.mul(r, step))
                for n in range(2):
                    offset = _I64(n * self.lanes)
                    self._put(self._get(self._at(here, offset)), self._at(there, offset))

        def narrow() -> None:
            mask = self._below(columns)
            with self._loop(all_rows, 1) as (r, _, _):
                known = b.select(b.icmp_signed("<", r, rows), mask, ir.Constant(self.mask, None))
                value = self._load(self._at(of, b.mul(r, step)), known)
                self._put(value, self._at(to, b.mul(r, to_step)))

        def any_block() -> None:
            with self._loop(all_rows, 1) as (r, _, _):
                there, here = self._at(to, b.mul(r, to_step)), self._at(of, b.mul(r, step))
                left = b.select(b.icmp_signed("<", r, rows), columns, _I64(0))
                whole = b.and_(left, _I64(-self.lanes))
                with b.if_then(b.icmp_signed(">", whole, _I64(0))):
                    with self._loop(whole, self.lanes) as (c, _, _):
                        self._put(self._get(self._at(here, c)), self._at(there, c))
                with b.if_then(b.icmp_signed("<", whole, all_columns)):
                    with self._loop(all_columns, self.lanes, begin=whole) as (c, _, _):
                        mask = self._below(b.sub(left, c))
                        self._put(self._load(self._at(here, c), mask), self._at(there, c))

        one = b.icmp_signed("==", all_columns, _I64(self.lanes))
        both = [b.icmp_signed("==", n, _I64(self.columns)) for n in (columns, all_columns)]
        is_panel = b.and_(b.and_(*both), b.icmp_signed("==", rows, all_rows))
        self._one_of(one, narrow, lambda: self._one_of(is_panel, panel, any_block))

    def _turned(
        self, to: Any, to_step: Any, of: Any, step: Any, rows: Any, columns: Any, shape: Any
    ) -> None:
        """``to[c, r] = of[r, c]``, by squares of vectors; zeros up to ``shape``, that of ``of``."""
        b = self.b
        all_rows, all_columns = b.lshr(shape, _I64(32)), b.and_(shape, _I64(0xFFFFFFFF))
        with self._loop(all_rows, self.lanes) as (r, _, _):
            with self._loop(all_columns, self.lanes) as (c, _, _):
                left, wide = b.sub(rows, r), b.sub(columns, c)
                lines = [self._at(of, b.mul(b.add(r, _I64(n)), step), c) for n in range(self.lanes)]
                whole = [b.icmp_signed(">=", count, _I64(self.lanes)) for count in (left, wide)]

                def some(lines: Any = lines, left: Any = left, wide: Any = wide) -> list[Any]:
                    inside = [b.icmp_signed(">", left, _I64(n)) for n in range(self.lanes)]
                    below = self._below(wide)
                    return [
                        self._load(line, self._only_if(below, known))
                        for line, known in zip(lines, inside, strict=True)
                    ]

                def every(lines: Any = lines) -> list[Any]:
                    return [self._get(line) for line in lines]

                square = self._either(b.and_(*whole), every, some)
                there = self._at(to, b.mul(c, to_step), r)
                for n, vector in enumerate(transposed(b, square)):
                    self._put(vector, self._at(there, b.mul(_I64(n), to_step)))

    # -- the tile ----------------------------------------------------------------------------------

    def _tile(
        self,
        tile: int,
        a: Any,
        a_m: Any,
        a_k: Any,
        b_: Any,
        c: Any,
        c_m: Any,
        s: Any,
        *numbers: Any,
    ) -> None:
        """Adds ``depth`` terms to ``s``, which may be 0 or ``c``, for ``tile`` rows of a panel."""
        b = self.b
        s_m, depth = numbers
        places = [(i, n) for i in range(tile) for n in range(2)]

        def at(base: Any, step: Any, i: int, n: int) -> Any:
            return self._at(base, b.mul(_I64(i), step), _I64(n * self.lanes))

        sums = self._either(
            b.icmp_signed("!=", s, _I64(0)),
            lambda: [self._get(at(s, s_m, *place)) for place in places],
            lambda: [self.zero] * len(places),
        )
        name = f"llvm.fma.v{self.lanes}f{8 * self.bytes}"
        fma = self._intrinsic(name, ir.FunctionType(self.vector, [self.vector] * 3))
        with self._loop(depth, 1, sums) as (k, around, following):
            there = self._at(b_, b.mul(k, _I64(self.columns)))
            right = []
            for n in range(2):
                pointer = self._pointer(self._at(there, _I64(n * self.lanes)))
                right.append(b.load(pointer, align=self.width, typ=self.vector))
            here = self._at(a, b.mul(k, a_k))
            for i in range(tile):
                element = self._at(here, b.mul(_I64(i), a_m))
                left = self._spread(b.load(self._pointer(element), typ=self.element))
                for n in range(2):
                    number = 2 * i + n
                    following[number] = b.call(fma, [left, right[n], around[number]])
        for value, place in zip(following, places, strict=True):
            b.store(value, self._pointer(at(c, c_m, *place)), align=self.bytes)

    def _moved(self, to: Any, to_step: Any, of: Any, step: Any, rows: Any, columns: Any) -> None:
        """``to[r, c] = of[r, c]`` for what is no whole tile, and nothing beside it."""
        b = self.b
        with self._loop(rows, 1) as (r, _, _):
            there, here = self._at(to, b.mul(r, to_step)), self._at(of, b.mul(r, step))
            with self._loop(columns, self.lanes) as (c, _, _):
                mask = self._below(b.sub(columns, c))
                self._store(self._load(self._at(here, c), mask), self._at(there, c), mask)

    def _edge(
        self, a: Any, a_m: Any, a_k: Any, b_: Any, c: Any, c_m: Any, s: Any, *numbers: Any
    ) -> None:
        """A tile of fewer rows or columns than are computed: by way of memory that has all."""
        b = self.b
        s_m, depth, rows, columns = numbers
        columns = self._min(columns, _I64(self.columns))
        block, step = self._buffer(self.rows * self.columns), _I64(self.columns)
        given = b.icmp_signed("!=", s, _I64(0))
        with b.if_then(given):
            shape = self._shape(_I64(self.rows), step)
            b.call(self.copied, [block, step, s, s_m, rows, columns, shape])
        start = b.select(given, block, _I64(0))
        of, to = [a, a_m, a_k, b_], [block, step, start, step, depth]
        self._chosen(rows, [*of, *to])
        b.call(self.moved, [c, c_m, block, step, rows, columns])

    # -- all of it ---------------------------------------------------------------------------------

    def _driver(self, addresses: Any, begin: Any, end: Any) -> None:
        b = self.b
        given: dict[str, Any] = {}
        for n, name in enumerate(ARGUMENTS):
            given[name] = b.load(self._pointer(b.add(addresses, _I64(8 * n))), typ=_I64)
        block_a = self._buffer(max(self.rows * STEP, self.high * DEPTH))
        block_b = self._buffer(GROUP * DEPTH)
        panels = b.sdiv(b.add(given["n"], _I64(self.columns - 1)), _I64(self.columns))
        chunks = b.sdiv(b.add(given["m"], _I64(CHUNK // 2)), _I64(CHUNK))
        chunks = b.select(b.icmp_signed(">", chunks, _I64(1)), chunks, _I64(1))
        both = b.mul(panels, chunks)

        before, body = b.block, b.append_basic_block("unit")
        done = b.append_basic_block("end")
        b.cbranch(b.icmp_signed("<", begin, end), body, done)
        b.position_at_end(body)
        unit = b.phi(_I64)
        unit.add_incoming(begin, before)
        batch, rest = b.sdiv(unit, both), b.srem(unit, both)
        chunk, first = b.sdiv(rest, panels), b.srem(rest, panels)
        group = self._min(b.sub(panels, first), b.sub(end, unit))
        group = self._min(group, _I64(self.group))
        row, column = b.mul(chunk, _I64(CHUNK)), b.mul(first, _I64(self.columns))
        left = b.sub(given["m"], row)
        last = b.icmp_signed("<", left, _I64(CHUNK + CHUNK // 2))
        rows = b.select(last, left, _I64(CHUNK))
        self._group(given, batch, row, rows, column, group, block_a, block_b)
        following = b.add(unit, group)
        unit.add_incoming(following, b.block)
        b.cbranch(b.icmp_signed("<", following, end), body, done)
        b.position_at_end(done)

    def _buffer(self, elements: int) -> Any:
        memory = self.b.alloca(self.element, elements)
        memory.align = 64
        return self.b.ptrtoint(memory, _I64)

    def _group(
        self,
        given: dict[str, Any],
        batch: Any,
        row: Any,
        rows: Any,
        column: Any,
        group: Any,
        block_a: Any,
        block_b: Any,
    ) -> None:
        b = self.b
        base = {x: self._at(given[x], b.mul(batch, given[f"{x}_batch"])) for x in "abc"}
        some = b.icmp_signed("!=", given["s"], _I64(0))
        start = self._at(given["s"], b.mul(batch, given["s_batch"]), column)
        base["s"] = b.select(some, self._at(start, b.mul(row, given["s_m"])), _I64(0))
        base["a"] = self._at(base["a"], b.mul(row, given["a_m"]))
        base["b"] = self._at(base["b"], b.mul(column, given["b_n"]))
        base["c"] = self._at(base["c"], b.mul(row, given["c_m"]), column)
        columns = b.sub(given["n"], column)
        with self._loop(given["k"], DEPTH) as (k, _, _):
            depth = self._min(b.sub(given["k"], k), _I64(DEPTH))
            of = self._at(base["b"], b.mul(k, given["b_k"]))
            with self._loop(group, 1) as (n, _, _):
                left = b.sub(columns, b.mul(n, _I64(self.columns)))
                there = self._at(block_b, b.mul(n, _I64(self.columns * DEPTH)))
                here = self._at(of, b.mul(b.mul(n, _I64(self.columns)), given["b_n"]))
                wide = self._min(left, _I64(self.columns))
                step, turned = _I64(self.columns), self._shape(_I64(self.columns), depth)
                # Of rows of k or of n, whichever lie in memory one behind the other.
                with b.if_else(b.icmp_signed("==", given["b_n"], _I64(1))) as (plain, other):
                    with plain:
                        shape = self._shape(depth, _I64(self.columns))
                        b.call(self.copied, [there, step, here, given["b_k"], depth, wide, shape])
                    with other:
                        b.call(self.turned, [there, step, here, given["b_n"], wide, depth, turned])
            self._rows(given, base, block_a, block_b, k, rows, columns, group, depth)

    def _rows(
        self,
        given: dict[str, Any],
        base: dict[str, Any],
        block_a: Any,
        block_b: Any,
        k: Any,
        rows: Any,
        columns: Any,
        group: Any,
        depth: Any,
    ) -> None:
        """All rows of a chunk by the copied panels. Where ``a`` lies along its rows, so does the
        block that is copied of it."""
        b = self.b
        first, some = b.icmp_signed("==", k, _I64(0)), b.icmp_signed("!=", given["s"], _I64(0))
        straight = b.icmp_signed("==", given["a_k"], _I64(1))
        block_m = b.select(straight, _I64(STEP), _I64(1))
        block_k = b.select(straight, _I64(1), _I64(self.high))
        step = b.select(straight, given["a_m"], given["a_k"])
        with self._loop(rows, self.rows) as (m, _, _):
            high = self._min(b.sub(rows, m), _I64(self.rows))
            here = self._at(base["a"], b.mul(m, given["a_m"]), b.mul(k, given["a_k"]))
            shapes = self._shape(_I64(self.rows), depth), self._shape(depth, _I64(self.high))
            shape = b.select(straight, *shapes)
            lines, wide = b.select(straight, high, depth), b.select(straight, depth, high)
            to_step = b.select(straight, block_m, block_k)
            b.call(self.copied, [block_a, to_step, here, step, lines, wide, shape])
            with self._loop(group, 1) as (n, _, _):
                offset = b.mul(n, _I64(self.columns))
                left = b.sub(columns, offset)
                to = self._at(base["c"], b.mul(m, given["c_m"]), offset)
                start = self._at(base["s"], b.mul(m, given["s_m"]), offset)
                start = b.select(some, start, _I64(0))
                start = b.select(first, start, to)
                start_m = b.select(first, given["s_m"], given["c_m"])
                panel_n = self._at(block_b, b.mul(offset, _I64(DEPTH)))
                tile = [block_a, block_m, block_k, panel_n, to, given["c_m"], start, start_m, depth]
                sizes = [b.icmp_signed("==", high, _I64(size)) for size in self.tiles]
                rows_fit = functools.reduce(b.or_, sizes)
                whole = b.and_(rows_fit, b.icmp_signed(">=", left, _I64(self.columns)))

                def edge(tile: Any = tile, high: Any = high, left: Any = left) -> None:
                    b.call(self.edge, [*tile, high, left])

                self._one_of(whole, functools.partial(self._chosen, high, tile), edge)

    def _shape(self, rows: Any, columns: Any) -> Any:
        return self.b.or_(self.b.shl(rows, _I64(32)), columns)

    def _chosen(self, high: Any, arguments: list[Any]) -> None:
        """The smallest tile that has the rows."""
        b = self.b
        large, middle, small = self.multiplied
        with b.if_else(b.icmp_signed(">", high, _I64(self.tiles[1]))) as (yes, no):
            with yes:
                b.call(large, arguments)
            with no:
                with b.if_else(b.icmp_signed(">", high, _I64(self.tiles[2]))) as (more, less):
                    with more:
                        b.call(middle, arguments)
                    with less:
                        b.call(small, arguments)
