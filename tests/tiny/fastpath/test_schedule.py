"""Fusion and loops on hand-built programs: how many kernels, and of which shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastpath.cpu.printer import print_kernel
from fastpath.ir import expr as E
from fastpath.ir.expr import Expr
from fastpath.ir.index import ZERO, Axis, Index, contiguous_strides
from fastpath.ir.program import (
    Call,
    Computed,
    Input,
    Node,
    Pointwise,
    Position,
    Program,
    Reduction,
    Result,
    whole,
)
from fastpath.schedule.cluster import Fusion
from fastpath.schedule.kernel import Kernel, Store
from fastpath.schedule.loops import Builder

F32 = "float32"


def op(name: str, *operands: Expr) -> Expr:
    return Expr(name, operands, operands[-1].dtype)


def given(name: str, *shape: int) -> Input:
    return Input(name, 0, shape, F32, contiguous_strides(shape))


def pointwise(name: str, shape: Sequence[int], body: Callable[[Position], Expr]) -> Pointwise:
    return Pointwise(name, shape, F32, contiguous_strides(shape), body)


def top(index: Position) -> Position:
    return (index[0], ZERO)


def softmax(x: Node) -> list[Computed]:
    largest = Reduction("largest", "max", x.shape, [1], F32, lambda i: E.read(x, i))
    power = pointwise(
        "power", x.shape, lambda i: op("exp", op("sub", E.read(x, i), E.read(largest, top(i))))
    )
    total = Reduction("total", "sum", x.shape, [1], F32, lambda i: E.read(power, i))
    share = pointwise(
        "share", x.shape, lambda i: op("truediv", E.read(power, i), E.read(total, top(i)))
    )
    return [largest, power, total, share]


def fuse(inputs: list[Input], steps: list[Computed | Call], outputs: list[Node]) -> Fusion:
    return Fusion(Program(inputs, steps, [whole(n) for n in outputs]))


def kernels(fusion: Fusion) -> list[Kernel]:
    stored = {n for n in fusion.roots.stored if isinstance(n, Computed)}
    for cluster in fusion.clusters:
        stored |= {n for n in cluster.needs if fusion.home.get(n) not in (None, cluster)}
    return [
        Builder(c, f"k{n}", fusion.roots.roots, stored).build()
        for n, c in enumerate(fusion.result)
        if c.call is None
    ]


def test_softmax_is_one_kernel_of_three_loops() -> None:
    x = given("x", 8, 100)
    steps = softmax(x)
    (kernel,) = kernels(fuse([x], steps, [steps[-1]]))
    assert [len(stage.axes) for stage in kernel.stages] == [1, 1, 1]
    assert kernel.units == 8 and kernel.lane is None
    assert list(kernel.scratch) == ["power"]  # the exponential is not computed twice
    assert [b.name for b in kernel.buffers] == ["x", "share"]


def test_a_cheap_chain_is_inlined_and_collapsed() -> None:
    x, y = given("x", 4, 5, 6), given("y", 4, 5, 6)
    product = pointwise("product", x.shape, lambda i: op("mul", E.read(x, i), E.read(y, i)))
    total = pointwise("total", x.shape, lambda i: op("add", E.read(product, i), E.read(x, i)))
    (kernel,) = kernels(fuse([x, y], [product, total], [total]))
    assert kernel.outer == () and kernel.lane is not None and kernel.lane.extent == 120


def test_equal_kernels_print_equal_texts() -> None:
    texts = []
    for name in ("first", "second"):
        x = given(f"x_{name}", 8, 100)
        steps = softmax(x)
        texts += [print_kernel(k).source for k in kernels(fuse([x], steps, [steps[-1]]))]
    assert texts[0] == texts[1]


def test_a_path_through_a_call_keeps_kernels_apart() -> None:
    """One kernel cannot run both before and after the call between its halves."""
    x = given("x", 8, 8)
    before = pointwise("before", x.shape, lambda i: op("exp", E.read(x, i)))
    call = Call("mm", (whole(before), whole(before)), {}, "library")
    product = Result("product", call, x.shape, F32, x.strides)
    call.outputs.append(product)
    after = pointwise("after", x.shape, lambda i: op("add", E.read(before, i), E.read(product, i)))
    fusion = fuse([x], [before, call, after], [after])
    assert [c.call is not None for c in fusion.result] == [False, True, False]


def test_what_layers_add_up_is_read_as_one_sum() -> None:
    """A layer reads at most the last sum that is stored, and what the two layers behind it gave."""
    x = given("x", 8, 32)
    total: Node = x
    steps: list[Computed | Call] = []
    for n in range(8):
        norm = Reduction(f"norm{n}", "sum", x.shape, [1], F32, lambda i, t=total: E.read(t, i))
        part = pointwise(
            f"part{n}",
            x.shape,
            lambda i, t=total, r=norm: op("mul", E.read(t, i), E.read(r, top(i))),
        )
        call = Call("mm", (whole(part), whole(part)), {}, "library")
        product = Result(f"product{n}", call, x.shape, F32, x.strides)
        call.outputs.append(product)
        after = pointwise(
            f"total{n}",
            x.shape,
            lambda i, t=total, p=product: op("add", E.read(t, i), E.read(p, i)),
        )
        steps += [norm, part, call, after]
        total = after
    fusion = fuse([x], steps, [total])
    needs = [len(c.needs - set(c.members)) for c in fusion.result if c.call is None]
    assert len(needs) == 9  # one before each call, and the last sum
    assert max(needs) <= 3


def test_reductions_over_different_axes_are_kept_apart() -> None:
    x = given("x", 8, 9)
    rows = Reduction("rows", "sum", x.shape, [1], F32, lambda i: E.read(x, i))
    columns = Reduction("columns", "sum", x.shape, [0], F32, lambda i: E.read(x, i))
    found = kernels(fuse([x], [rows, columns], [rows, columns]))
    assert len(found) == 2
    assert [k.lane is None for k in found] == [True, False]  # a row walk and a strip of columns


def test_a_transposed_read_goes_through_tiles() -> None:
    x, y = given("x", 128, 128), given("y", 128, 128)
    total = pointwise("total", x.shape, lambda i: op("add", E.read(x, i), E.read(y, (i[1], i[0]))))
    (kernel,) = kernels(fuse([x, y], [total], [total]))
    assert [t.buffer for t in kernel.transposed] == ["y"]
    assert kernel.units == 4


def test_merged_dimensions_are_read_without_divisions() -> None:
    x = given("x", 4, 8, 32, 64)

    def merged(i: tuple[Index, ...]) -> E.Expr:
        return op("neg", E.read(x, (i[0], i[2].floordiv(64), i[1], i[2].mod(64))))

    out = pointwise("out", (4, 32, 512), merged)
    (kernel,) = kernels(fuse([x], [out], [out]))
    (load,) = kernel.stages[0].loads()
    assert all(isinstance(atom, Axis) for atom in load.args[1].terms)
    assert kernel.lane is not None and kernel.lane.extent == 64


def test_units_of_short_lanes_have_loops_of_their_own() -> None:
    x, b = given("x", 4096, 16), given("b", 16)
    total = pointwise("total", x.shape, lambda i: op("add", E.read(x, i), E.read(b, i[1:])))
    (kernel,) = kernels(fuse([x, b], [total], [total]))
    (inner,) = kernel.stages[0].axes
    assert kernel.lane is not None and kernel.lane.extent == 16
    assert isinstance(kernel.units, int) and kernel.units * inner.extent == 4096
    assert 2048 <= inner.extent * 16 <= 8192  # and many units for threads to share
    (store,) = kernel.stages[0].statements
    assert isinstance(store, Store) and store.index.coefficient(inner) == 16


def test_what_nobody_needs_is_not_computed() -> None:
    x = given("x", 4)
    used = pointwise("used", x.shape, lambda i: op("neg", E.read(x, i)))
    dead = pointwise("dead", x.shape, lambda i: op("exp", E.read(x, i)))
    (kernel,) = kernels(fuse([x], [used, dead], [used]))
    assert [b.name for b in kernel.buffers] == ["x", "used"]
