"""Kernels whose places, or numbers that these are made of, are beyond what 32 bits hold.

What is read lies far apart in memory of which nearly nothing is touched, so programs are small.
:func:`check` runs them in Triton's interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fastpath.gpu.compile import module_of
from fastpath.gpu.printer import Printed
from fastpath.gpu.tiling import tiling
from fastpath.schedule.kernel import Kernel
from tests.cpu.fastpath.triton_kernels import execute, small_blocks

ROWS, WIDTH, STEP = 17, 40, 1 << 27  # the last row begins at 2**31
MANY = 70_000  # whose square is more than 2**32
Case = tuple[Callable[..., Any], Callable[..., Any], list[torch.Tensor]]


def far_apart(device: str = "cpu") -> torch.Tensor:
    """Rows of bytes, a step apart."""
    memory = torch.empty(ROWS * STEP, dtype=torch.int8, device=device)
    found = memory.as_strided([ROWS, WIDTH], [STEP, 1])
    found.copy_(torch.arange(ROWS * WIDTH).reshape(ROWS, WIDTH) * 37 % 101 - 50)
    return found


def cases(device: str = "cpu") -> dict[str, Case]:
    """What is compiled, what gives the same otherwise, and what both are given."""
    x = far_apart(device)
    few = torch.arange(MANY, device=device) % 113
    rows = torch.tensor([16, 0, -1, 3], device=device)

    def as_it_is(function: Callable[..., Any], *inputs: torch.Tensor) -> Case:
        return function, function, [*inputs]

    def picked(x: torch.Tensor) -> torch.Tensor:
        return x.expand(MANY, MANY).reshape(-1)[17::50_000_001] + 1

    def the_same(x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(17, MANY * MANY, 50_000_001, device=x.device)
        return x[places % MANY] + 1

    return {
        "columns": as_it_is(lambda x: [x.sum(0), x.amax(0), x.argmin(0)], x),
        "rows": as_it_is(lambda x: [x.sum(1), x.amax(1)], x),
        "all": as_it_is(lambda x: [x.sum(), x.amin()], x),
        "points": as_it_is(lambda x: [x * 2, x.flip(0) + 1, x[:, 3:7] + x[:, :4]], x),
        "turned": as_it_is(lambda x: [x.t().contiguous(), x.t().flip(1) + 1], x),
        "one": as_it_is(lambda x: [x[ROWS - 1, 7] * 2], x),
        "scans": as_it_is(lambda x: [x.cumsum(0), x.cummax(0)[0]], x),
        "data": as_it_is(lambda x, i: [x[i] * 2, x.t()[:, i] + 1], x, rows),
        "put together": as_it_is(lambda x: [torch.cat([x, x.flip(0)]) * 2], x),
        "quotients": (picked, the_same, [few]),
        "ranges": as_it_is(
            lambda x: [
                torch.arange(0, 68 * 10**8, 10**8, device=x.device) + x[:68],
                torch.arange(4 * 10**9, 4 * 10**9 + 50, device=x.device) + x[:50],
                torch.arange(0, -68 * 10**8, -(10**8), device=x.device) + x[:68],
            ],
            few,
        ),
    }


def by_address(kernel: Kernel, printed: Printed, buffers: list[torch.Tensor]) -> None:
    """In the interpreter, which would copy a tensor's whole memory."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    from tests.cpu.fastpath.triton_sizes import POINTED

    module, pointers = module_of(printed), []
    for given, buffer in zip(kernel.buffers, buffers, strict=True):
        kind = tl.pointer_type(getattr(tl, POINTED[given.dtype]))
        address = np.array([buffer.data_ptr()], dtype=np.uint64)
        pointers.append(tl.tensor(TensorHandle(address, kind), kind))
    getattr(module, printed.name)[(printed.programs,)](*pointers)


def check() -> tuple[int, int]:
    """How many kernels ran, and how many elements were as they should be."""
    ran = compared = 0
    for place, (name, (function, plain, inputs)) in enumerate(cases().items()):
        expected = plain(*inputs)
        # The interpreter takes its time; what loops over columns meets both plans.
        for plan in (tiling, small_blocks)[place % 2 :][: 2 if name == "columns" else 1]:
            got, kernels = execute(function, inputs, by_address, plan)
            ran += kernels
            expected = [expected] if isinstance(expected, torch.Tensor) else expected
            for a, b in zip(got, expected, strict=True):
                if not torch.equal(a, b):
                    raise AssertionError(f"{name}: {a} is not {b}")
                compared += a.numel()
    return ran, compared


if __name__ == "__main__":
    print(*check())
