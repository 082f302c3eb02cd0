"""``export``: one call of a program as a graph and the guards under which it holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from refcompiler.errors import GraphBreakError, UnsupportedError
from refcompiler.guards.kinds import Guard
from refcompiler.package.format import write
from refcompiler.plan.build import Plan
from refcompiler.runtime.api import Compiler, wrapped


class Exported:
    """A program for the inputs that its guards allow, which is never captured again.

    ``graph`` is the ``torch.fx.GraphModule``, whose inputs are the tensors and symbols that the
    program reads; ``guards`` what has to hold of a call; ``source`` the Python that checks them,
    calls the graph and gives what eager gives. Calling it takes what the program takes; a call for
    which a guard does not hold is a :class:`~refcompiler.errors.RecompileError` that names it.
    :meth:`save_compiled_function` keeps it in a file.
    """

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        plan: Plan,
        call: Callable,
        owner: Compiler,
        model: Callable,
    ):
        self.graph = graph
        self.guards: list[Guard] = list(plan.guards)
        self.source = plan.source
        self._call, self._owner = call, owner
        self._plan, self._model = plan, model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __repr__(self) -> str:
        nodes = sum(node.op in ("call_function", "call_method") for node in self.graph.graph.nodes)
        return f"<exported: {nodes} operations, {len(self.guards)} guards>"

    def __reduce__(self) -> Any:
        raise UnsupportedError(
            "an exported program cannot be pickled: save_compiled_function keeps it in a file"
        )

    def serialize(self, external_data: Mapping[str, Any] | None = None) -> bytes:
        """The bytes of a package: see :meth:`save_compiled_function`."""
        from refcompiler.runtime import package

        return package.packaged(self._model, self._plan, self.graph).serialize(external_data)

    def save_compiled_function(
        self, path: str | os.PathLike[str], external_data: Mapping[str, Any] | None = None
    ) -> None:
        """Write a package for ``refcompiler.load_compiled_function``.

        What that gives takes the module, or the object whose method was exported, first.
        Errors: as for
        :meth:`refcompiler.runtime.package.AOTCompiledFunction.save_compiled_function`.
        """
        write(path, self.serialize(external_data))


def export(
    model: Callable,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic: bool | None = None,
    backend: Callable | None = None,
) -> Exported:
    """One call ``model(*args, **kwargs)`` as a graph and its guards. The call runs.

    ``model``: what :func:`refcompiler.compile` takes. ``dynamic``: as there; marks on tensors
    count. ``backend``: compiles the graph; by default it runs as it is.

    Errors: :class:`~refcompiler.errors.GraphBreakError` where the program is more than one graph,
    or none; ``TypeError`` for other types. The program's own exceptions come out as they are.
    """
    if not callable(model) or isinstance(model, type):
        raise TypeError(
            f"export: expected a function, method, nn.Module or callable, not {model!r}"
        )
    if not isinstance(args, (tuple, list)) or not isinstance(kwargs or {}, Mapping):
        raise TypeError("export: args takes a tuple of arguments, and kwargs a dict of named ones")
    if dynamic is not None and not isinstance(dynamic, bool):
        raise TypeError(f"export: dynamic takes True, False or None, not {dynamic!r}")
    graphs: list[torch.fx.GraphModule] = []
    plans: list[Plan] = []

    def compiled(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
        graphs.append(graph)
        return graph.forward if backend is None else backend(graph, inputs)

    takes = getattr(backend, "takes_symbols", backend is None)
    compiled.takes_symbols = takes  # type: ignore[attr-defined]
    compiler = Compiler(compiled, True, plans.append, dynamic)
    call = wrapped(model, compiler, _not_copied)
    call(*args, **(kwargs or {}))
    if len(graphs) != 1 or len(plans) != 1:
        title = getattr(model, "__qualname__", type(model).__name__)
        raise GraphBreakError(f"export: {title} is {len(graphs)} graphs, and not one")
    for entry in compiler.entries.values():
        entry.fixed = True
    return Exported(graphs[0], plans[0], call, compiler, model)


def _not_copied(module: Any) -> Any:
    raise UnsupportedError("an exported module is not for copying: copy the module itself")
