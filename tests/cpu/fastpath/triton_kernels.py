"""Eager functions as Triton kernels: scheduled for the GPU, printed, and run by whoever is given.

``python triton_kernels.py FIRST LAST``, with ``TRITON_INTERPRET=1``, runs random programs in
Triton's interpreter and prints how many kernels ran and how many elements were compared.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fastpath.decompositions import table
from fastpath.gpu.compile import module_of
from fastpath.gpu.printer import Printed, Printer
from fastpath.gpu.tiling import Tiling, tiling
from fastpath.ir.lower import Lowering
from fastpath.ir.program import Call, Computed, Program, Tensor
from fastpath.ir.types import DTYPE
from fastpath.schedule.cluster import Fusion
from fastpath.schedule.kernel import Kernel
from fastpath.schedule.loops import Builder
from fastpath.target import GPU

Run = Callable[[Kernel, Printed, list[torch.Tensor]], None]


def program_of(function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> Program:
    traced = make_fx(torch.func.functionalize(function), table(), tracing_mode="fake")
    return Lowering(traced(*inputs)).run()


def kernels_of(program: Program) -> tuple[list[Kernel], set[Any]]:
    """The kernels in order, and the nodes that live in memory."""
    fusion = Fusion(program)
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
    """A tiling whose blocks are small, so that small tensors fill many and reductions are loops."""
    plan = tiling(kernel)
    r_block = min(plan.r_block, 4)
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
        memory[node.name] = torch.empty_strided(
            node.shape, node.strides, dtype=DTYPE[node.dtype], device=device
        )
    for kernel in kernels:
        run(kernel, Printer(kernel, plan(kernel)).print(), [memory[b.name] for b in kernel.buffers])
    results = []
    for t in program.outputs:
        assert isinstance(t, Tensor)
        of = memory[t.node.name]
        results.append(of.as_strided(t.shape, t.strides, of.storage_offset() + t.offset))
    return results, len(kernels)


class _Functions:
    """What the interpreter has not: libdevice's functions, by torch's on the CPU."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        import numpy as np
        import triton.language as tl
        from triton.runtime.interpreter import TensorHandle

        special = {"rsqrt": torch.rsqrt, "trunc": torch.trunc, "nearbyint": torch.round}
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
    module.libdevice = _Functions()  # type: ignore[attr-defined]
    try:
        getattr(module, printed.name)[(printed.programs,)](*buffers)
    except Exception as error:
        raise AssertionError(f"{error} in{printed.source}") from error


def agree(got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether ``got`` is as near to float64's answer as eager's is, with room for another order."""
    if (got.shape, got.dtype) != (eager.shape, eager.dtype):
        return False
    if not got.is_floating_point():
        return torch.equal(got, eager)
    step = torch.finfo(got.dtype).eps
    room = 8 * (eager.double() - exact).abs() + 16 * step * (1 + exact.abs())
    error = (got.double() - exact).abs()
    return bool(((error <= room) | (got.isnan() & exact.isnan()) | (got == eager)).all())


def main(first: str, last: str) -> None:
    from tests.cpu.fastpath.test_programs import program

    ran = compared = refused = 0
    for seed in range(int(first), int(last)):
        source, function, inputs = program(seed)
        eager = function(*inputs)
        exact = function(*[x.double() for x in inputs])
        for plan in (tiling, small_blocks):
            if plan is small_blocks and max(x.numel() for x in (*inputs, *eager)) > 1500:
                continue  # the interpreter takes its time for every block
            try:
                got, kernels = execute(function, inputs, interpreted, plan)
            except NotImplementedError:
                refused += 1
                continue
            ran += kernels
            for a, b, c in zip(got, eager, exact, strict=True):
                if not agree(a, b, c):
                    raise AssertionError(f"seed {seed}: {a} is not {b} for\n{source}")
                compared += a.numel()
    print(ran, compared, refused)


if __name__ == "__main__":
    main(*sys.argv[1:])
