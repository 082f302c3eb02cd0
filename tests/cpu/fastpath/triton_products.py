"""Matrix products as Triton kernels, with what is fused into them, in Triton's interpreter.

``TRITON_INTERPRET=1 python triton_products.py`` prints how many products, kernels and elements
there were. The interpreter multiplies no bfloat16: that is for a GPU, named by the command line.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from fastpath.decompositions import table
from fastpath.gpu.classes import ByClasses
from fastpath.gpu.compile import module_of
from fastpath.gpu.vectors import print_kernel
from fastpath.ir import products
from fastpath.ir.lower import Lowering
from fastpath.ir.oddrows import by_columns, by_terms
from fastpath.ir.program import Input, Program, Tile, whole
from fastpath.ir.types import DTYPE
from fastpath.target import GPU
from tests.cpu.fastpath.triton_kernels import agree, interpreted, kernels_of, on_cuda

SMALL = Tile(16, 16, 16, 4, 2)
HALF = torch.float16


def graph_of(function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> torch.fx.GraphModule:
    def flat(*given: torch.Tensor) -> list[torch.Tensor]:
        found = function(*given)
        return [found] if isinstance(found, torch.Tensor) else list(found)

    with FakeTensorMode():
        fakes = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype) for x in inputs]
        return make_fx(torch.func.functionalize(flat), table())(*fakes)


def lowering_of(graph: torch.fx.GraphModule, tile: Tile = SMALL) -> tuple[Lowering, Program]:
    """All products of the graph, however small, in kernels of ours."""
    kinds = (*products._FIRST, products.CONVOLUTION)
    nodes = [n for n in graph.graph.nodes if n.target in kinds]
    lowering = Lowering(graph, GPU, products={n.name: tile for n in nodes})
    return lowering, lowering.run()


def numbers(*shape: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def heads(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w, b).view(2, 8, 2, 16).relu()


#: What is computed, of what, and how many products and kernels that is.
CASES: dict[str, tuple[Callable[..., Any], list[torch.Tensor], int, int]] = {
    "plain": (torch.matmul, [numbers(18, 20), numbers(20, 19)], 1, 1),
    "gelu": (
        lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"),
        [numbers(2, 18, 20), numbers(19, 20), numbers(19)],
        *(1, 1),
    ),
    "few rows": (
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        [numbers(3, 40), numbers(80, 40), numbers(80)],
        *(1, 1),
    ),
    "heads": (heads, [numbers(2, 8, 16), numbers(32, 16), numbers(32)], 1, 1),
    "scaled": (
        lambda c, a, b: torch.baddbmm(c, a, b, beta=2, alpha=0.5).relu() + c,
        [numbers(3, 1, 19), numbers(3, 18, 20), numbers(3, 20, 19)],
        *(1, 1),
    ),
    "without what is added": (
        lambda c, a, b: torch.addmm(c, a, b, beta=0),
        [torch.full((1, 17), torch.nan, dtype=HALF), numbers(16, 20), numbers(20, 17)],
        *(1, 1),
    ),
    "turned": (
        lambda a, b: a.transpose(1, 2) @ b.transpose(1, 2),
        [numbers(3, 18, 20), numbers(3, 19, 18)],
        *(1, 1),
    ),
    "integers as weights": (
        lambda x, w, s: x @ (w.to(x.dtype) * s),
        [numbers(17, 20), (numbers(20, 24) * 8).to(torch.int8), numbers(24)],
        *(1, 1),
    ),
    "sums, of which those outside are no zeros": (
        lambda x, w: (x + 1) @ (w - 2),
        [numbers(17, 21), numbers(21, 16)],
        *(1, 1),
    ),
    "softmax": (
        lambda a, b, x: torch.softmax((a @ b).float(), -1) + x,
        [numbers(17, 20), numbers(20, 24), numbers(24)],
        *(1, 2),
    ),
    "two results, and residuals": (
        lambda a, b, x: [(a @ b) + x, torch.relu(a @ b) * x],
        [numbers(17, 20), numbers(20, 24), numbers(17, 24)],
        *(2, 2),
    ),
    "one after the other": (
        lambda x, v, w: F.silu(x @ v) @ w,
        [numbers(16, 24), numbers(24, 17), numbers(17, 24)],
        *(2, 2),
    ),
    "columns of a larger one": (
        lambda a, b: a[:, 3:19] @ b[2:18, 1:],
        [numbers(18, 20), numbers(20, 30)],
        *(1, 1),
    ),
    "convolution": (
        lambda x, w, b, y: torch.relu(F.conv2d(x, w, b, padding=1) + y),
        [numbers(2, 3, 5, 6), numbers(17, 3, 3, 3), numbers(17), numbers(2, 17, 5, 6)],
        *(1, 1),
    ),
    "convolution of channels that lie last": (
        lambda x, w: F.silu(F.conv2d(x, w, stride=2, padding=(1, 0))) * 2,
        [channels_last(numbers(2, 8, 7, 6)), channels_last(numbers(16, 8, 3, 2))],
        *(1, 1),
    ),
    "convolution of what is computed, dilated": (
        lambda x, w: F.conv2d(x * 2 + 1, w, dilation=2, padding=2),
        [numbers(1, 4, 6, 6), numbers(18, 4, 3, 3)],
        *(1, 1),
    ),
    "convolution of sounds": (
        lambda x, w, b: F.gelu(F.conv1d(x, w, b, stride=3, padding=4), approximate="tanh"),
        [numbers(2, 3, 41), numbers(16, 3, 7), numbers(16)],
        *(1, 1),
    ),
    "convolution of one position": (
        lambda x, w, y: F.conv2d(x, w) * y,
        [numbers(3, 20, 4, 4), numbers(16, 20, 1, 1), numbers(3, 16, 4, 4)],
        *(1, 1),
    ),
    "rows that begin between vectors": (
        lambda x, w, b, y: F.relu(F.linear(x, w, b)) + y,
        [numbers(2, 70, 20), numbers(59, 20), numbers(59), numbers(2, 70, 59)],
        *(1, 1),
    ),
    "rows of which every other begins alike, without some": (
        lambda x, w: [F.linear(x, w) * 2],
        [numbers(37, 24), numbers(84, 24)],
        *(1, 1),
    ),
    "float32": (
        lambda a, b: torch.tanh(a @ b),
        [numbers(20, 20, dtype=torch.float32), numbers(20, 24, dtype=torch.float32)],
        *(1, 1),
    ),
}


def execute(name: str, run: Any, device: str = "cpu", tile: Tile = SMALL) -> tuple[int, int, int]:
    """Run a case and compare it; returns its products, kernels and elements."""
    function, given, count, wanted = CASES[name]
    inputs = [x.to(device) for x in given]
    lowering, program = lowering_of(graph_of(function, given), tile)
    kernels, stored = kernels_of(program)
    memory = {node.name: inputs[node.place] for node in program.inputs}
    for node in stored:
        memory[node.name] = torch.empty_strided(
            node.shape, node.strides, dtype=DTYPE[node.dtype], device=device
        )
    for kernel in kernels:
        run(kernel, print_kernel(kernel), [memory[b.name] for b in kernel.buffers])
    multiplying = sum(kernel.product is not None for kernel in kernels)
    assert (multiplying, len(kernels)) == (count, wanted), name
    found = function(*inputs)
    eager = [found] if isinstance(found, torch.Tensor) else found
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    found = function(*wide)
    exact = [found] if isinstance(found, torch.Tensor) else found
    elements = 0
    for t, e, x in zip(program.outputs, eager, exact, strict=True):
        of = memory[t.node.name]
        got = of.as_strided(t.shape, t.strides, of.storage_offset() + t.offset)
        if (
            got.is_cuda and got.dtype is torch.float32 and multiplying
        ):  # in the tensor cores' format
            got, e = got.half(), e.half()
        assert agree(got, e, x), f"{name}: {(got.double() - x).abs().max()}"
        elements += got.numel()
    return multiplying, len(kernels), elements


def by_classes(way: Any, left: torch.Tensor, right: torch.Tensor) -> ByClasses:
    given = [
        whole(Input(f"in{n}", n, tuple(t.shape), "float16", t.stride()))
        for n, t in enumerate((left, right))
    ]
    return ByClasses(way, *given, left.device)


#: Operands whose result, or the first of which, has rows that begin between vectors.
CLASSES: dict[str, tuple[Any, torch.Tensor, torch.Tensor]] = {
    "columns": (by_columns, numbers(16, 40), numbers(131, 40).t()),
    "columns, two classes": (by_columns, numbers(38, 72)[:, :70], numbers(84, 72)[:, :70].t()),
    "columns, a step of one": (by_columns, numbers(40, 64), numbers(71, 64).t()),
    "terms": (by_terms, numbers(16, 133), numbers(133, 144)),
    "terms, four classes": (by_terms, numbers(72, 94), numbers(94, 24)[:, :20]),
}


def execute_classes(name: str) -> int:
    """The same for what is computed by classes, in memory that is NaN before; its elements."""
    way, left, right = CLASSES[name]
    made = by_classes(way, left, right)

    def beside(*addresses: int) -> None:
        number = left.shape[0] * right.shape[1]
        into = (ctypes.c_char * (2 * number)).from_address(addresses[2])
        assert addresses[:2] == (left.data_ptr(), right.data_ptr())
        run = getattr(module_of(made.printed), made.printed.name)
        run[(made.printed.programs,)](left, right, torch.frombuffer(into, dtype=HALF))

    torch.use_deterministic_algorithms(True)  # fresh memory is NaN
    got = made.bound(beside)(left, right)
    torch.use_deterministic_algorithms(False)
    eager = left @ right
    assert got.stride() == eager.stride()
    assert agree(got, eager, left.double() @ right.double()), name
    return got.numel()


def main(device: str = "cpu") -> None:
    run = interpreted if device == "cpu" else on_cuda
    torch.backends.cuda.matmul.allow_tf32 = True
    totals = [sum(each) for each in zip(*(execute(name, run, device) for name in CASES))]
    print("{} products, {} kernels, {} elements".format(*totals))
    if device == "cpu":
        print(len(CLASSES), "by classes,", sum(map(execute_classes, CLASSES)), "elements")


if __name__ == "__main__":
    main(*sys.argv[1:])
