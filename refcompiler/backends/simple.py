"""Backends without code generation: ``eager``, and torch's ``inductor`` by its public entry."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

import torch

from refcompiler.backends.registry import register_backend
from refcompiler.errors import UnsupportedError


@register_backend(name="eager", tags=("debug",))
def eager(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
    """Run the captured graph as it is: shows what capture alone does."""
    return graph.forward


eager.takes_symbols = True


@register_backend(name="inductor")
def inductor(
    graph: torch.fx.GraphModule,
    inputs: list[Any],
    *,
    mode: str = "default",
    options: Mapping[str, Any] | None = None,
) -> Callable:
    """torch's own compiler. ``mode`` and ``options``: as ``torch.compile`` takes them.

    Errors: ``ValueError`` for a mode or an option that it has not, which names what there is, and
    for an option that the mode sets otherwise.
    """
    chosen = _settings(mode, options)
    from torch._inductor import compile as compile_graph

    return compile_graph(graph, inputs, options=chosen or None)


def _settings(mode: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        from torch._inductor import list_mode_options, list_options
    except ImportError as error:
        raise UnsupportedError(f"backend 'inductor' needs torch's compiler: {error}") from error
    modes = list_mode_options()
    if mode not in modes:
        raise ValueError(f"inductor has no mode {mode!r}; it has {', '.join(sorted(modes))}")
    known = set(list_options())
    for name in options or ():
        if name.replace("-", "_") not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"inductor has no option {name!r}{hint}")
    given = {name.replace("-", "_"): value for name, value in (options or {}).items()}
    for name, value in modes[mode].items():
        if given.get(name, value) != value:
            said = f"mode {mode!r} and the option {name} = {given[name]!r}"
            raise ValueError(f"{said} clash: the mode sets {value!r}")
    return {**modes[mode], **given}


def _check(mode: str | None, options: Mapping[str, Any]) -> None:
    if mode or options:  # or else torch's compiler need not be loaded yet
        _settings(mode or "default", options)


inductor.check_options = _check
inductor.traces = True
