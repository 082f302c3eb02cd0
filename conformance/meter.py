"""A wrapper around a backend that measures what it does, whatever the backend is."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from conformance.verdict import Compiled

Backend = Callable[..., Callable[..., Any]]

# Operators that move no data and compute nothing: compiled code may call them freely.
_FREE = {
    "empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "as_strided",
    "detach", "alias", "lift_fresh", "set_", "resize_", "_local_scalar_dense", "_reshape_alias",
    "_unsafe_view", "sym_size", "sym_stride", "sym_numel", "record_stream", "_assert_async",
}  # fmt: skip


_MARKS = ("takes_symbols", "traces")


class Meter:
    """Counts graphs, nodes and calls, and sees what ATen operators compiled code calls.

    Use it as the backend. ``taken()`` gives what happened since it was last asked. Operators are
    seen by a mode, which changes what torch itself does in places: not if it is not ``watched``.
    """

    def __init__(self, backend: Backend, name: str, watched: bool = True):
        self.backend, self.watched = backend, watched
        for mark in _MARKS:  # what a front end asks of a backend
            if hasattr(backend, mark):
                setattr(self, mark, getattr(backend, mark))
        self.__name__ = name
        self.running = 0  # calls of compiled code that have not returned
        self.breaks: Callable[[], int] = lambda: 0
        self.reset()

    def reset(self) -> None:
        self.graphs = self.nodes = self.calls = self.eager_calls = 0
        self.kernels: int | None = None
        self.fallback: str | None = None
        self.aten: set[str] = set()

    def __call__(self, gm: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
        self.graphs += 1
        self.nodes += sum(n.op.startswith("call_") for n in gm.graph.nodes)
        self._watch_graph(gm)
        compiled = self.backend(gm, inputs, **options)
        if not callable(compiled):
            raise TypeError(
                f"backend {self.__name__!r} returned {type(compiled).__name__}, not a callable"
            )
        self._read_report(getattr(compiled, "report", None))
        self.fallback = self.fallback or getattr(compiled, "fallback", None)

        @functools.wraps(compiled, updated=())
        def counted(*args: Any) -> Any:
            self.calls += 1
            self.running += 1
            before = self.eager_calls
            try:
                with _Seen(self.aten) if self.watched else contextlib.nullcontext():
                    return compiled(*args)
            finally:
                self.running -= 1
                if self.eager_calls > before:
                    why = getattr(getattr(compiled, "uncompiled", None), "why", None)
                    self.fallback = self.fallback or why or None

        return counted

    def taken(self) -> Compiled:
        now = Compiled(
            graphs=self.graphs,
            nodes=self.nodes,
            calls=self.calls,
            eager_calls=self.eager_calls,
            breaks=self.breaks(),
            kernels=self.kernels,
            fallback=self.fallback,
            aten=tuple(sorted(self.aten)),
        )
        self.reset()
        return now

    def _read_report(self, report: Any) -> None:
        """What the backend says of itself: ``kernels``, ``aten_calls`` and ``fallback``.

        The last may be an attribute of the callable too; why single calls run the graph as it is,
        this project's own say as ``callable.uncompiled.why``.
        """
        if report is None:
            return
        self.kernels = (self.kernels or 0) + int(getattr(report, "kernels", 0))
        self.fallback = self.fallback or getattr(report, "fallback", None)
        self.aten |= {
            str(n) for n in getattr(report, "aten_calls", {}) if not _moves_nothing(str(n))
        }

    def _watch_graph(self, gm: torch.fx.GraphModule) -> None:
        """Count runs of the captured graph by compiled code; tracing it is no such run.

        Every GraphModule has a class of its own, so that this touches no other graph.
        """
        if hasattr(gm, "real_recompile"):  # torch's graphs make their code when first called
            gm.real_recompile()
        kind, forward = type(gm), type(gm).forward

        @functools.wraps(forward)
        def watched(module: Any, *args: Any, **kwargs: Any) -> Any:
            self.eager_calls += bool(self.running)
            return forward(module, *args, **kwargs)

        kind.forward = watched


def _moves_nothing(name: str) -> bool:
    """Whether ``aten.view.default`` or the like is a view or an allocation."""
    packet, _, overload = name.removeprefix("aten.").partition(".")
    found = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
    return packet in _FREE or getattr(found, "is_view", False)


class _Seen(TorchDispatchMode):
    """Writes down the names of the ATen operators that run."""

    def __init__(self, names: set[str]):
        super().__init__()
        self.names = names

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        packet = func._schema.name.split("::")[-1]
        if not (packet in _FREE or func.is_view):
            self.names.add(func._schema.name.replace("::", "."))
        return func(*args, **(kwargs or {}))
