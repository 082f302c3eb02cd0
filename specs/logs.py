"""One row per log: what a compilation can be asked to tell."""

from __future__ import annotations

from dataclasses import dataclass

from specs.table import Table


@dataclass(frozen=True)
class Log:
    """``name`` is said in ``REFCOMPILER_LOGS``; it is torch's where ``TORCH_LOGS`` has the same."""

    name: str
    doc: str


LOGS: Table[Log] = Table(
    "logs",
    [
        Log("bytecode", "The instructions of each function whose capture begins."),
        Log("guards", "What must hold for compiled code to be used again, and who asked for it."),
        Log("recompiles", "Each further compilation of a function, and the guard that failed."),
        Log("graph_breaks", "Each break of a graph: reason, place and hint."),
        Log("dynamic", "Each size or number that becomes a symbol, or is specialised, and where."),
        Log("graph", "Each captured graph as a list of nodes."),
        Log("graph_code", "Each captured graph as Python."),
        Log("plan", "The Python that checks guards, calls the graph and replays side effects."),
        Log("cache", "Which programs of earlier processes are found, kept, or of no use, and why."),
        Log("fallbacks", "What runs natively, and why."),
        Log("aot_graphs", "The ATen graphs that the fast path compiles."),
        Log("output_code", "The code that the fast path generates: the wrapper and the kernels."),
        Log("perf_hints", "What the fast path leaves to ATen or runs uncompiled, and why."),
    ],
)
