"""Compiled regions by name in ``torch.profiler``: the run of a plan's graph, and of its kernels.

A name costs a microsecond, so a plan asks first whether anybody profiles: that is a flag of torch's
profiler (``torch.autograd.profiler._is_profiler_enabled``), which costs nothing to read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._C._profiler import _RecordFunctionFast

from refcompiler.plan.writer import Writer


def graph_text(writer: Writer, title: str, number: int) -> str:
    """What a plan calls as its graph: the ``number``-th one of a site called ``title``."""
    profiler = writer.constant(torch.autograd.profiler)
    name = f"Compiled Region: {title}/{number}"
    recorded = f"{writer.constant(recording)}(__graph, {writer.constant(name)})"
    return f"(__graph if not {profiler}._is_profiler_enabled else {recorded})"


def recording(graph: Callable[..., Any], name: str) -> Callable[..., Any]:
    """``graph``, whose run a profiler of this thread finds under ``name``."""

    def run(*inputs: Any) -> Any:
        with _RecordFunctionFast(name):
            return graph(*inputs)

    return run
