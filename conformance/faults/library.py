"""The library's call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from conformance.compilers import CompilerName, find
from conformance.faults.experiment import Chosen
from conformance.faults.find import Locator
from conformance.faults.lab import DEFAULT_TIMEOUT, Lab
from conformance.faults.preload import preload
from conformance.faults.programs import Calls, Program
from conformance.faults.result import Located
from conformance.pool import CannotRun


def locate(
    compiler: str,
    frontend: str = "refcompiler",
    *,
    timeout: float = DEFAULT_TIMEOUT,
    script: bool = False,
) -> Callable[..., Located]:
    """``run(function, *inputs)``: whether the function compiled differs from eager, whether that is
    wrong, and where it begins, as a :class:`~conformance.faults.result.Located`.

    ``compiler``: a backend's registered name, or ``module:callable``. ``then``: the inputs of
    further calls, in order. Results that have gradients are sent one. ``timeout``: seconds in which
    it has to come to its next graph or call. ``script``: make the failure small, and write a script
    that shows it. Everything runs in processes that are forked off, from this one's state: inputs
    and modules here stay as they are.

    Raises :class:`conformance.compilers.Unusable` for a compiler that there is not, and
    :class:`conformance.CannotRun` where the function raises in eager, or a GPU is in use already
    (a forked process has none: use the command).
    """
    name = CompilerName(compiler, frontend)
    find(name)

    def run(function: Callable[..., Any], *inputs: Any, then: Sequence[Sequence[Any]] = ()) -> Any:
        program = Calls(function, [inputs, *then], name)
        return locate_program(program, Chosen(), compiler, timeout, True, shows=script)

    return run


def locate_program(
    program: Program,
    chosen: Chosen,
    backend: str = "",
    timeout: float = DEFAULT_TIMEOUT,
    fresh_thread: bool = False,
    progress: Callable[[str], None] = lambda text: None,
    shows: bool = False,
) -> Located:
    import torch

    if torch.cuda.is_initialized():
        raise CannotRun("a GPU is in use in this process: run the command on a script instead")
    preload(backend)
    lab = Lab(program, chosen, timeout, fresh_thread, progress, shows)
    return Locator(lab).locate()
