"""Eager functions as Triton kernels: scheduled for the GPU, printed, and run by whoever is given.

``python triton_kernels.py FIRST LAST [DEVICE [PART PARTS]]`` runs the cases and the random programs
of these seeds, or each so many'th of both, and prints how many kernels ran and how many elements
were compared; on the CPU in Triton's interpreter, which needs ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from fastpath.decompositions import table
from fastpath.gpu import tiling as tilings
from fastpath.gpu.compile import launch, machine_code, module_of
from fastpath.gpu.printer import Printed
from fastpath.gpu.tiling import Tiling, tiling
from fastpath.gpu.vectors import printer_of
from fastpath.ir.lower import Lowering
from fastpath.ir.program import Call, Computed, Program, Scatter, Tensor
from fastpath.ir.types import DTYPE
from fastpath.schedule.cluster import Fusion
from fastpath.schedule.kernel import Kernel
from fastpath.schedule.loops import Builder
from fastpath.target import GPU

Run = Callable[[Kernel, Printed, list[torch.Tensor]], None]


def program_of(function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> Program:
    """Traced for the CPU, whatever device the inputs are on: lowering needs no device."""

    def flat(*given: torch.Tensor) -> list[torch.Tensor]:
        found = function(*given)
        return [found] if isinstance(found, torch.Tensor) else list(found)

    with FakeTensorMode():
        fakes = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype) for x in inputs]
        traced = make_fx(torch.func.functionalize(flat), table())(*fakes)
    return Lowering(traced, GPU).run()


def kernels_of(program: Program) -> tuple[list[Kernel], set[Any]]:
    """The kernels in order, and the nodes that live in memory."""
    fusion = Fusion(program, GPU.ends, again=GPU.recomputed, run=GPU.run, whole=GPU.whole)
    stored: set[Any] = {n for n in fusion.roots.stored if isinstance(n, Computed)}
    for cluster in fusion.clusters:
        for node in cluster.needs:
            if isinstance(node, Computed) and fusion.home.get(node) is not cluster:
                stored.add(node)
    if any(isinstance(step, Call) for step in fusion.roots.order):
        raise NotImplementedError("the program calls ATen")
    kernels = [
        Builder(cluster, f"kernel_{n}", fusion.roots.roots, stored, (), GPU).build()
        for n, cluster in enumerate(fusion.result)
        if all(node.numel for node in cluster.members)
    ]
    return kernels, stored


def small_blocks(kernel: Kernel) -> Tiling:
    """A tiling whose blocks are small, so that small tensors fill many and reductions are loops,
    and long rows begin between vectors."""
    with mock.patch.object(tilings, "LONG", 500):
        plan = tiling(kernel)
    r_block = min(plan.r_block, 64 if plan.r_points > 500 else 4)
    return dataclasses.replace(
        plan,
        x_block=min(plan.x_block, 8),
        y_block=min(plan.y_block, 8),
        r_block=r_block,
        persistent=plan.r_points <= r_block,
    )


def execute(
    function: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    run: Run,
    plan: Callable[[Kernel], Tiling] = tiling,
) -> tuple[list[torch.Tensor], int]:
    """The function's results as its kernels give them, flat, and how many kernels there were."""
    program = program_of(function, inputs)
    kernels, stored = kernels_of(program)
    memory = {node.name: inputs[node.place] for node in program.inputs}
    device = inputs[0].device
    for node in stored:
        if not isinstance(node, Scatter):
            memory[node.name] = torch.empty_strided(
                node.shape, node.strides, dtype=DTYPE[node.dtype], device=device
            )
    for step in program.steps:
        if isinstance(step, Scatter):
            memory[step.name] = memory[step.base.name]
    for kernel in kernels:
        run(
            kernel,
            printer_of(kernel, plan(kernel)).print(),
            [_parts(memory[b.name]) for b in kernel.buffers],
        )
    results = []
    for t in program.outputs:
        assert isinstance(t, Tensor)
        of = memory[t.node.name]
        results.append(of.as_strided(t.shape, t.strides, of.storage_offset() + t.offset))
    return results, len(kernels)


def _parts(t: torch.Tensor) -> torch.Tensor:
    """What a kernel sees of memory."""
    return torch.view_as_real(t) if t.is_complex() else t


class Functions:
    """What the interpreter has not: libdevice's functions, by torch's on the CPU."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        import triton.language as tl
        from triton.runtime.interpreter import TensorHandle

        special = {"rsqrt": torch.rsqrt, "trunc": torch.trunc, "nearbyint": torch.round}
        special["fma"] = lambda a, b, c: (a.double() * b.double() + c.double()).to(a.dtype)
        special |= {"sqrt_rn": torch.sqrt, "fmod": torch.fmod, "signbit": torch.signbit}
        function = special.get(name) or getattr(torch, name)

        def apply(*blocks: Any) -> Any:
            first = blocks[0]
            numbers = [torch.from_numpy(np.ascontiguousarray(b.handle.data)) for b in blocks]
            found = function(*numbers).numpy()
            kind = tl.int32 if name == "signbit" else first.dtype
            found = found.astype(np.int32) if name == "signbit" else found
            shape = first.type if kind is first.dtype else None
            return tl.core.tensor(
                TensorHandle(found, kind), shape or tl.core.block_type(kind, list(first.shape))
            )

        return apply


def interpreted(kernel: Kernel, printed: Printed, buffers: list[torch.Tensor]) -> None:
    module = module_of(printed)
    module.libdevice = module.m.libdevice = Functions()  # type: ignore[attr-defined]
    try:
        getattr(module, printed.name)[(printed.programs,)](*buffers)
    except Exception as error:
        raise AssertionError(f"{error} in{printed.source}") from error


def agree(got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether ``got`` is as near to float64's answer as eager's is, with room for another order."""
    if (got.shape, got.dtype) != (eager.shape, eager.dtype):
        return False
    got, eager, exact = _parts(got), _parts(eager), _parts(exact)
    if not got.is_floating_point():
        return torch.equal(got, eager)
    step = torch.finfo(got.dtype).eps
    room = 8 * (eager.double() - exact).abs() + 16 * step * (1 + exact.abs())
    error = (got.double() - exact).abs()
    return bool(((error <= room) | (got.isnan() & eager.isnan()) | (got == eager)).all())


def on_cuda(kernel: Kernel, printed: Printed, buffers: list[torch.Tensor]) -> None:
    dtypes = tuple(b.dtype for b in kernel.buffers)
    major, minor = torch.cuda.get_device_capability()
    make = functools.partial(machine_code, printed, dtypes, 10 * major + minor)
    launch(make, len(buffers), printed.programs, 0)(*(b.data_ptr() for b in buffers))


def numbers(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Numbers of either sign, small enough for every dtype; floats with nan, infinities, -0.0."""
    count = math.prod(shape)
    found = torch.arange(count) * 37 % 23 - 11
    if dtype is torch.bool:
        return (found > 0).reshape(shape)
    if dtype is torch.uint8:
        found = found.abs()
    found = found.to(dtype)
    if dtype.is_floating_point and count > 8:
        found = found / 4
        found[3], found[5], found[7] = -0.0, math.nan, math.inf
    return found.reshape(shape)


SHAPES = [(), (1,), (3, 1), (5, 16), (33, 7), (2, 3, 65), (130, 70)]
DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
DTYPES += [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def cases(dtype: torch.dtype) -> dict[str, Callable[..., Any]]:
    """Functions of one tensor of ``dtype``."""
    found: dict[str, Callable[..., Any]] = {
        "reductions": lambda x: [x.amax(-1), x.amin(0), x.any(-1), x.all(0), x.sum()],
        "compared": lambda x: [x == 1, torch.where(x > 0, x, x * 0), x.to(torch.float32) + 0.5],
        "turned": lambda x: [x.mT.contiguous() if x.dim() > 1 else x.clone(), x.flip(-1)],
    }
    if dtype is not torch.bool:
        found["arithmetic"] = lambda x: [x + x * 2, -x, x.abs(), torch.maximum(x, x - 1)]
        found["products"] = lambda x: [
            (x.to(torch.int64) if x.dtype != torch.float64 else x).sum(0)
        ]
    if dtype.is_floating_point:
        found["rows"] = lambda x: [torch.softmax(x, -1), x.var(-1), torch.exp(-x.abs())]
        found["columns"] = lambda x: [x.mean(0), torch.log_softmax(x, 0)]
    if dtype in (torch.float16, torch.float32, torch.float64):  # the interpreter truncates others
        found["curves"] = lambda x: [
            *(F.gelu((x * 0.3).clamp(-9, 9)), F.gelu(x * 0.3, approximate="tanh")),
            *((x * 0.1).tanh(), F.gelu(x.clamp(-20, 20))),
            *((x * 3).sin() + (x * 3).cos(), (x * 9999).cos() * (x * 9999).sin()),
        ]
    return found


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.complex128) if x.is_complex() else x.double() if x.is_floating_point() else x


def chosen(device: str) -> Iterator[tuple[str, Callable[..., Any], list[torch.Tensor]]]:
    yield from complex_cases(device)
    yield from special_cases(device)
    for dtype in DTYPES:
        for name, function in cases(dtype).items():
            for shape in SHAPES:
                if len(shape) == 0 and name in ("columns", "rows", "turned", "reductions"):
                    continue
                x = numbers(shape, dtype)
                yield f"{name} of {dtype} {shape}", function, [x.to(device)]
                if len(shape) == 2:
                    yield f"{name} of {dtype} {shape}, turned", function, [x.to(device).t()]
        if dtype.is_floating_point:
            for name, function, inputs in (*rows_of(dtype), *moments_of(dtype)):
                yield name, function, [x.to(device) for x in inputs]


def complex_cases(device: str) -> Iterator[tuple[str, Callable[..., Any], list[torch.Tensor]]]:
    def arithmetic(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        z = x * y + 2j
        return [z, x / (y + 1.5), z.abs(), (x.conj() * y.real).sum(0), torch.view_as_real(z).sum(0)]

    def functions(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        z = torch.polar(y.abs(), x.real)
        return [z, (x * 0.5).exp(), x.log(), x.sqrt(), (y * 0.3).tanh(), x.sin(), x.sgn(), y == x]

    x, y = (numbers((n, 7, 2), torch.float32).nan_to_num(0.5, 2.0) for n in (9, 9))
    x, y = torch.view_as_complex(x), torch.view_as_complex(y.flip(0))
    for name, function in (("arithmetic", arithmetic), ("functions", functions)):
        yield f"{name} of complex", function, [x.to(device), y.to(device)]
        yield f"{name} of complex, turned", function, [x.to(device).t(), y.to(device).t()]


def special_cases(device: str) -> Iterator[tuple[str, Callable[..., Any], list[torch.Tensor]]]:
    def functions(x: torch.Tensor) -> list[torch.Tensor]:
        s = torch.special
        bessel = [s.i0(x), s.i0e(x * 3), s.i1(x * 2), s.i1e(x * 4)]
        return [*bessel, (x * 0.1).erfinv(), x.lgamma(), x.digamma(), (x * 3 + 0.3).digamma()]

    def logistic(x: torch.Tensor) -> list[torch.Tensor]:
        far = x * 20
        return [far.sigmoid(), F.softplus(x), F.logsigmoid(far), torch.log1p(torch.exp(far))]

    def sampled(t: torch.Tensor, grid: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.grid_sample(t, grid, mode, border, aligned)
            for mode in ("bilinear", "nearest")
            for border in ("zeros", "border", "reflection")
            for aligned in (False, True)
        ]

    def resized(t: torch.Tensor) -> list[torch.Tensor]:
        cubic = F.interpolate(t, (9, 4), mode="bicubic")
        greatest = F.adaptive_max_pool2d(t, (3, 4), return_indices=True)
        return [cubic, F.adaptive_avg_pool2d(t, (2, 4)), *greatest]

    def sought(x: torch.Tensor, edges: torch.Tensor) -> list[torch.Tensor]:
        sides = [torch.searchsorted(edges, x, right=right) for right in (False, True)]
        return [*sides, torch.isin(x, edges[:5])]

    tiny = torch.tensor([1e-45, -3e-45, 1e-42, 1.1754944e-38, 1e-38, -0.0, math.inf, math.nan, 1.0])
    tiny = torch.cat([tiny, torch.tensor([3.4e38, 5.0, 0.1, 1.4e-44, -math.inf, 7e-45, 1.9999999])])
    for odd in (3, 9, 49, 4095):

        def divided(x: torch.Tensor, y: torch.Tensor, odd: int = odd) -> list[torch.Tensor]:
            found = x / torch.full_like(x, odd)  # CUDA's eager multiplies by a number's inverse
            return [found == y, torch.signbit(found)]

        both = tiny.reshape(2, 8), (tiny / odd).reshape(2, 8)
        yield f"logistic or over {odd}", divided, [x.to(device) for x in both]
    backward = torch.ops.aten.gelu_backward
    slopes = lambda g, x: [backward(g, x, approximate="tanh")]  # noqa: E731
    both = numbers((9, 7), torch.float32).nan_to_num(0.5), torch.linspace(-9, 9, 63).reshape(9, 7)
    yield "logistic or slopes", slopes, [x.to(device) for x in both]
    windows = lambda x: [F.avg_pool2d(x, 3, 1, 1), F.max_pool2d(x, 3, 2, 1)]  # noqa: E731
    yield "logistic or windows", windows, [numbers((2, 3, 6, 5), torch.float32).to(device)]
    grid = torch.linspace(-2.3, 2.6, 40).reshape(1, 4, 5, 2)
    grid[0, 2, 2] = 1.0
    if device != "cpu":  # whose eager multiplies what lies outside by a weight that is nan
        grid[0, 0, 0, 0], grid[0, 1, 1, 1] = math.nan, math.inf
    image = numbers((1, 2, 5, 6), torch.float32).nan_to_num(1.0, 2.0).to(device)
    yield "samples of an image", sampled, [image, grid.to(device)]
    yield "images of other sizes", resized, [image]
    edges = torch.tensor([-2.0, -1.0, -0.5, 0.25, 1.75, 1.75, 2.5])
    yield "searches", sought, [numbers((9, 16), torch.float32).to(device), edges.to(device)]
    for dtype in (torch.float32, torch.float64):
        yield f"special functions of {dtype}", functions, [numbers((9, 16), dtype).to(device)]
        yield f"logistic functions of {dtype}", logistic, [numbers((9, 16), dtype).to(device)]


def rows_of(dtype: torch.dtype) -> Iterator[tuple[str, Callable[..., Any], list[torch.Tensor]]]:
    """Rows long enough that their vectors count, of odd and even lengths, also behind an offset."""
    softmax = {
        "softmax": lambda x: [torch.softmax(x, -1)],
        "float softmax": lambda x: [torch.softmax(x.float(), -1), x.abs().amax(-1)],
        "logsumexp": lambda x: [torch.logsumexp(x.float(), -1)],
    }
    for width in (601, 520):
        x = numbers((2, width), dtype)
        weight = numbers((width,), dtype)
        for name, function in softmax.items():
            yield f"{name} of {dtype} rows of {width}", function, [x]
            yield f"{name} of {dtype} rows within {width}", function, [x[:, 3 : width - 2]]
        norm = lambda x, w: [F.layer_norm(x, x.shape[-1:], w), x * x.sum(-1, True)]  # noqa: E731
        yield f"norm of {dtype} rows of {width}", norm, [x[1:], weight]
        yield f"norm of {dtype} rows of {width} in place", (lambda x: [x - x.mean(-1, True)]), [x]
    image, weight = numbers((2, 8, 152), dtype), numbers((8,), dtype)
    shared = lambda x, w: [F.group_norm(x, 2, w, w), x * w[:, None], x / x.sum(-1, True)]  # noqa: E731
    yield f"channels of {dtype} rows", shared, [image, weight]
    ends = torch.full((4, 530), -math.inf, dtype=dtype)
    ends[1], ends[2] = torch.finfo(dtype).min, 1.0
    ends[2, 7], ends[2, 300], ends[3, 528] = -math.inf, 3.0, math.inf
    for name, function in softmax.items():
        yield f"{name} of {dtype} without finite numbers", function, [ends]


def moments_of(
    dtype: torch.dtype,
) -> Iterator[tuple[str, Callable[..., Any], list[torch.Tensor]]]:
    """Columns that are gone down in blocks, the last of which is whole, or is not."""
    for height in (36, 37):
        x = numbers((height, 11), dtype)
        far, equal = x.nan_to_num(1, 2) + 1000, torch.full_like(x, 0.7)
        single = torch.promote_types(dtype, torch.float32)

        def found(x: torch.Tensor, single: torch.dtype = single) -> list[torch.Tensor]:
            wide = torch.promote_types(x.dtype, single)  # float64 where that is to be exact
            return [x.mean(0), x.var(0), x.to(wide).std(0, correction=0)]

        given_by_name = {"few": x, "equal": equal}
        if dtype != torch.float64:  # which nothing is nearer than
            given_by_name["far"] = far
        for name, given in given_by_name.items():
            yield f"moments of {name} {dtype} columns of {height}", found, [given]
    for width in (601, 520):
        rows = numbers((3, width), dtype).nan_to_num(1, 2) + (1000 if dtype != torch.float64 else 1)
        moments = lambda x: [x.mean(-1), x.float().var(-1), x.std(-1)]  # noqa: E731
        yield f"moments of {dtype} rows of {width}", moments, [rows]


def main(first: str, last: str, device: str = "cpu", part: str = "0", parts: str = "1") -> None:
    from tests.cpu.fastpath.test_programs import program

    run = interpreted if device == "cpu" else on_cuda
    todo = list(chosen(device)) if first == "0" else []
    if device == "cpu":
        always = ("rows", "moments")
        rows = [case for case in todo if "bfloat16" in case[0] and any(map(case[0].count, always))]
        rows += [case for case in todo if "moments" in case[0] and "float32" in case[0]]
        rows += [case for case in todo if "complex" in case[0] or "logistic" in case[0]]
        todo = rows + todo[::8]
        np.seterr(all="ignore")  # infinities and nan are among the operands
    for seed in range(int(first), int(last)):
        source, function, inputs = program(seed)
        todo.append((f"seed {seed}\n{source}", function, [x.to(device) for x in inputs]))
    ran = compared = refused = 0
    for place, (name, function, inputs) in enumerate(todo[int(part) :: int(parts)]):
        long = any(x.dim() and x.shape[-1] > 500 for x in inputs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            eager = function(*inputs)
            exact = function(*map(_wide, inputs))
        plans = [tiling, small_blocks]
        if device == "cpu":  # the interpreter takes its time for every block: each case has one
            if max(x.numel() for x in (*inputs, *eager)) >= 2500:
                continue
            turn = place + place // 2 + place // 8 if long else place % 3 == 0
            plans = [small_blocks] if "moments" in name else [plans[turn % 2]]
        for plan in plans:
            try:
                got, kernels = execute(function, inputs, run, plan)
            except NotImplementedError:
                refused += 1
                continue
            ran += kernels
            for a, b, c in zip(got, eager, exact, strict=True):
                if not agree(a, b, c.to(a.device)):
                    raise AssertionError(f"{name}: {a} is not {b}")
                compared += a.numel()
    print(ran, compared, refused)


if __name__ == "__main__":
    main(*sys.argv[1:])
