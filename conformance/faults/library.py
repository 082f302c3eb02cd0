"""The library's call."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from conformance.compilers import CompilerName, find
from conformance.faults.experiment import Chosen
from conformance.faults.find import Locator
from conformance.faults.lab import DEFAULT_TIMEOUT, Lab
from conformance.faults.programs import Calls, Program
from conformance.faults.result import Located
from conformance.pool import CannotRun


def locate(
    compiler: str, frontend: str = "refcompiler", *, timeout: float = DEFAULT_TIMEOUT
) -> Callable[..., Located]:
    """``run(function, *inputs)``: whether the function compiled differs from eager, whether that is
    wrong, and where it begins, as a :class:`~conformance.faults.result.Located`.

    ``compiler``: a backend's registered name, or ``module:callable``. ``then``: the inputs of
    further calls, in order. Results that have gradients are sent one. Everything runs in processes
    that are forked off, from this one's state: inputs and modules here stay as they are.

    Raises :class:`conformance.compilers.Unusable` for a compiler that there is not, and
    :class:`conformance.CannotRun` where the function raises in eager, or a GPU is in use already
    (a forked process has none: use the command).
    """
    name = CompilerName(compiler, frontend)
    find(name)

    def run(function: Callable[..., Any], *inputs: Any, then: Sequence[Sequence[Any]] = ()) -> Any:
        program = Calls(function, [inputs, *then], name)
        return locate_program(program, Chosen(), compiler, timeout, fresh_thread=True)

    return run


def locate_program(
    program: Program,
    chosen: Chosen,
    backend: str = "",
    timeout: float = DEFAULT_TIMEOUT,
    fresh_thread: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> Located:
    import torch

    if torch.cuda.is_initialized():
        raise CannotRun("a GPU is in use in this process: run the command on a script instead")
    preload(backend)
    lab = Lab(program, chosen, timeout, fresh_thread, progress, preload)
    return Locator(lab).locate()


def preload(backend: str) -> None:
    """Imports what each process would import anew."""
    for name in (*_EVERY, *_MORE.get(backend, ())):
        importlib.import_module(name)


_EVERY = (
    "networkx",
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "torch.fx.experimental.proxy_tensor",
    "refcompiler.aot",
    "refcompiler.aot.partition",
    "refcompiler.runtime.api",
    "conformance.faults.experiment",
)
_MORE = {
    "fastpath": ("fastpath.compiler", "fastpath.wrapper", "fastpath.cpu.compile"),
    "inductor": ("torch._inductor.compile_fx",),
}
