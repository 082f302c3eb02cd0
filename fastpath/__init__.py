"""The default backend. In: a captured graph and its example inputs. Out: a callable.

``torch.compile(model, backend="fastpath")`` finds it by its entry point; :func:`compile_graph`
is the same as a function. Importing the package is cheap: torch and numba come with the first
graph.
"""

from __future__ import annotations

from typing import Any

__all__ = ["backend", "compile_graph", "last_report"]


def compile_graph(gm: Any, example_inputs: Any, **options: Any) -> Any:
    """Compile a graph: see :func:`fastpath.backend.compile_graph`."""
    from fastpath.compiler import compile_graph

    return compile_graph(gm, example_inputs, **options)


def _check(mode: Any, options: Any) -> None:
    from fastpath.options import check

    check(mode, options)


compile_graph.check_options = _check  # type: ignore[attr-defined]
#: Symbols of either front end will do.
compile_graph.takes_symbols = True  # type: ignore[attr-defined]
#: What puts compiled code into packages: see :mod:`refcompiler.package`.
compile_graph.packages = "fastpath.packaging"  # type: ignore[attr-defined]


def _alone(graph: Any) -> Any:
    from refcompiler.aot.alone import alone

    return alone(graph)


#: What it is given by itself: see :data:`refcompiler.backends.registry.ALONE`.
compile_graph.alone = _alone  # type: ignore[attr-defined]


def _get_ready(at_first: bool) -> None:
    import sys

    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():  # or else kernels are for the GPU
        from fastpath.cpu.serving import start

        start(at_first)


#: Has kernels compiled beside the capture: see :func:`refcompiler.backends.registry.get_ready`.
compile_graph.get_ready = _get_ready  # type: ignore[attr-defined]


def last_report() -> Any:
    """The :class:`fastpath.report.Report` of the graph compiled last, or None."""
    from fastpath.report import last_report

    return last_report()


backend = compile_graph
