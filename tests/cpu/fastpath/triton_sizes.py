"""Programs whose sizes each call chooses, as Triton kernels that take them, interpreted.

``TRITON_INTERPRET=1 python triton_sizes.py [cases]`` prints how many programs, kernels and elements
there were. A device on the CPU whose kernels are a GPU's stands for the GPU.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

import fastpath
import fastpath.compiler
import refcompiler
from fastpath.device import Device
from fastpath.gpu.compile import Later, module_of
from fastpath.ir.size import Assumptions
from fastpath.schedule.kernel import Kernel
from fastpath.target import GPU
from specs.scalars import TRITON_TYPE
from tests.cpu.fastpath.test_sizes import CASES
from tests.cpu.fastpath.triton_kernels import Functions

SIZES = ((6, 7), (8, 3), (3, 33), (16, 16), (32, 16), (40, 2), (2, 70))
POINTED = {**TRITON_TYPE, "float16": "float16", "bfloat16": "bfloat16", "bool": "int1"}


class Interpreted(Device):
    """The CPU, as what a GPU's kernels run on."""

    is_cpu = property(lambda self: False)  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.target = GPU

    def compile_kernel(self, kernel: Kernel, sizes: Assumptions) -> tuple[Any, str]:
        later = Later(kernel, 0, sizes)
        return later, later.printed.source

    def loaded(self, names: Mapping[str, Any]) -> dict[str, Callable[..., None]]:
        return {name: launched(later) for name, later in names.items() if isinstance(later, Later)}

    def entered(self, call: Callable[..., Any]) -> Callable[..., Any]:
        return call


def launched(later: Later) -> Callable[..., None]:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    module, printed = module_of(later.printed), later.printed
    module.libdevice = module.m.libdevice = Functions()
    count = len(later.dtypes)
    kinds = [tl.pointer_type(getattr(tl, POINTED[dtype])) for dtype in later.dtypes]

    def run(*given: int) -> None:
        programs = given[0] if later.kernel.sized else printed.programs
        rest = given[1:] if later.kernel.sized else given
        pointers = [
            tl.tensor(TensorHandle(np.array([address], dtype=np.uint64), kind), kind)
            for address, kind in zip(rest[:count], kinds, strict=True)
        ]
        for size, whole in zip(rest[count + len(printed.arguments) :], later.whole, strict=True):
            assert not whole or size % 16 == 0, "a size that a call does not have as it was told"
        if programs:
            getattr(module, printed.name)[(programs,)](*pointers, *rest[count:])

    return run


def check(*names: str) -> tuple[int, int, int]:
    """How many programs, kernels and elements were as eager's."""
    torch.cuda.get_device_capability = lambda device=None: (9, 0)  # type: ignore[assignment]
    fastpath.compiler.device_of = lambda graph: Interpreted()  # type: ignore[assignment]
    refcompiler.config.cache_programs = False
    np.seterr(all="ignore")
    programs = kernels = compared = 0
    for name in names or CASES:
        function, make = CASES[name]
        reports: list[Any] = []

        def backend(gm: torch.fx.GraphModule, examples: Any, kept: Any = reports) -> Any:
            run = fastpath.compile_graph(gm, examples)
            kept.append(run.report)
            return run

        backend.takes_symbols = True  # type: ignore[attr-defined]
        refcompiler.reset()
        torch.manual_seed(0)
        ours = refcompiler.compile(function, backend=backend, dynamic=True, fullgraph=True)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for n, m in SIZES:
                inputs = make(n, m)
                got, expected = ours(*inputs), function(*inputs)
                if isinstance(got, torch.Tensor):
                    got, expected = (got,), (expected,)
                for a, b in zip(got, expected, strict=True):
                    room = 2e-2 if a.dtype is torch.bfloat16 else 2e-5
                    torch.testing.assert_close(a, b, rtol=room, atol=room)
                    assert a.stride() == b.stride() or 1 in a.shape
                    compared += a.numel()
        (report,) = reports
        assert report.fallback is None and not report.crowded, (name, report)
        programs += 1
        kernels += report.kernels
    return programs, kernels, compared


if __name__ == "__main__":
    print(*check(*sys.argv[1:]))
