"""Device graphs: what a compiled graph launches, recorded once and launched as one.

In: a callable that launches kernels on a GPU. Out: one that replays them, with eager's results.
No output that is alive is ever overwritten, and inputs are not copied where kernels take addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def replayed(call: Any, graph: Any, device: Any, report: Any) -> Callable[..., Any]:
    """``call``, which launches what ``graph`` computes on ``device``, as recorded device graphs."""
    from fastpath.graphs.cuda import recorder_of
    from fastpath.graphs.runner import DeviceGraphs

    launches = call.recordable
    launches.outputs = graph.meta.get("outputs")
    made: Any = device.entered(
        DeviceGraphs(launches, recorder_of(device.device), report).callable()
    )
    made.source = getattr(call, "source", graph.code)
    made.kernel_sources = getattr(call, "kernel_sources", [])
    made._boxed_call = launches.boxed
    return made
