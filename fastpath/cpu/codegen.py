"""How kernels become machine code: numba's front end, with passes that suit kernels.

numba runs its passes three times over, for the sake of its reference counts, and lets LLVM unroll
loops of a known length without end. A kernel has no references, and its rows have known lengths: a
row of 64 vectors unrolled keeps everything in registers, which there are 32 of, and so in memory.
So kernels have a code generator of their own, which the user's own numba functions never see.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from numba.core import codegen, registry
from numba.core.ccallback import CFunc

SPEED_LEVEL = 3


class KernelLibrary(codegen.JITCodeLibrary):
    """One kernel's module."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        tuning = llvm.create_pipeline_tuning_options(SPEED_LEVEL)
        tuning.loop_vectorization = tuning.loop_interleaving = True
        tuning.slp_vectorization = False
        # The vectoriser interleaves loops where that pays; beyond it, unrolling only costs.
        tuning.loop_unrolling = False
        builder = llvm.create_pass_builder(self._codegen._tm, tuning)
        builder.getModulePassManager().run(self._final_module, builder)


class KernelCodegen(codegen.JITCPUCodegen):
    _library_class = KernelLibrary


class _Target:
    """numba's own target but for the code generator."""

    def __init__(self) -> None:
        own = registry.cpu_target
        self.typing_context = own.typing_context
        self.target_context = own.target_context.subtarget(
            _internal_codegen=KernelCodegen("fastpath")
        )
        self.options = own.options


@functools.cache
def _target() -> Any:
    return _Target()


class KernelCallback(CFunc):
    """A compiled C callback; ``address`` is its address."""

    @property
    def _targetdescr(self) -> Any:
        return _target()


def compile_callback(function: Callable[..., Any], signature: Any) -> KernelCallback:
    """Compile ``function``. A division never raises, and no rounding is relaxed: only sums may be
    reordered, as their intrinsic says.
    """
    arguments = (signature.args, signature.return_type)
    compiled = KernelCallback(function, arguments, {}, {"error_model": "numpy"})
    compiled.compile()
    return compiled
