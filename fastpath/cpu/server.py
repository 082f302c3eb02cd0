"""A process of its own that compiles kernels: ``python -m fastpath.cpu.server``.

It has no torch, and numba by the time that the first job comes. What it compiles is found in the
cache on disk (:mod:`fastpath.beside`), where it and who asked see what the other one is at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fastpath.beside import serve
from fastpath.cpu import objects, serving
from fastpath.cpu.machine import is_made, keep, warm
from fastpath.cpu.printer import Printed
from fastpath.progress import told
from refcompiler.cache import store
from refcompiler.runtime.config import config

FEW = 16  # kernels, below which a process has hardly begun when they are all compiled here
IDLE = 300  # seconds without a job after which the process ends


def compile_together(
    kernels: Sequence[Printed],
    compile: Callable[[Printed], object],
    missing: Iterable[bool],
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """``compile`` all ``kernels``, of which those ``missing`` are in no cache yet, and do
    ``meanwhile`` here.

    A process without numba leaves those to another one, which compiles several at once. One that
    has it, as it compiled before, begins with the first, and if there are many the other one with
    the last.
    """
    asked = [(kernel, absent) for kernel, absent in zip(kernels, missing, strict=True)]
    wanted = [kernel for kernel, absent in asked if absent]
    beside = config.compile_processes > 1 and store.current() is not None
    with told("compiling kernels", len(wanted)) as one_more:
        if beside and wanted and not serving.numba_is_here():
            jobs = [_job(kernel) for kernel in wanted]
            with serving.asked(jobs, config.compile_processes, one_more) as wait:
                meanwhile()
                wait()
            objects.made += sum(map(is_made, wanted))
            for kernel in kernels:
                compile(kernel)
            return
        meanwhile()
        if not beside or len(wanted) < FEW:
            _compile_here(asked, compile, one_more)
            return
        jobs = [_job(kernel) for kernel in reversed(wanted)]
        with serving.asked(jobs, config.compile_processes - 1, lambda: None) as wait:
            _compile_here(asked, compile, one_more)
            wait()


def _compile_here(
    asked: Iterable[tuple[Printed, bool]],
    compile: Callable[[Printed], object],
    one_more: Callable[[], None],
) -> None:
    for kernel, absent in asked:
        compile(kernel)
        if absent:
            one_more()


def _job(kernel: Printed) -> dict[str, Any]:
    return {"source": kernel.source, "names": kernel.names}


def _printed(job: dict[str, Any]) -> Printed:
    return Printed(job["source"], {name: tuple(what) for name, what in job["names"].items()})


def main() -> None:
    """Serve until the input ends, or nobody asks for long."""
    warm()  # what all children need, once
    serve(
        lambda job: keep(_printed(job)),
        1,
        lambda job: not is_made(_printed(job)),
        IDLE,
    )


if __name__ == "__main__":
    main()
