"""Recording on a GPU. Each graph has memory of its own; all of a device run one after another."""

from __future__ import annotations

import contextlib
import functools
import gc
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from fastpath.gpu import lt
from fastpath.graphs import driver
from fastpath.graphs.clearing import clear_first


class Recorder:
    """Records on one CUDA device: see :func:`recorder_of`."""

    def __init__(self, device: torch.device):
        self.device = device
        self.lock = threading.RLock()
        self.side = torch.cuda.Stream(device)
        self.owned: Counter[int] = Counter()  # where results of recordings begin
        self.stream: int | None = None  # on which a graph ran last
        self.cleared = 0  # counts that the last recording zeroes at once
        self._last: Any = None
        self._stream_of = functools.partial(torch._C._cuda_getCurrentRawStream, device.index)

    def own(self, recording: Any) -> None:
        """Know the recording's memory while the recording lives."""
        begins = Counter(storage.data_ptr() for storage in recording.held)
        self.owned.update(begins)
        weakref.finalize(recording, self.owned.subtract, begins)

    def follow(self) -> None:
        """Let the current stream wait for the graph that ran last: they share libraries' memory."""
        stream = self._stream_of()
        if stream != self.stream:
            current = torch.cuda.current_stream(self.device)
            if self._last is not None:
                current.wait_stream(self._last)
            self.stream, self._last = stream, current

    def record(self, call: Callable[..., Any], given: Sequence[Any]) -> tuple[Any, Any]:
        """``call(*given)``'s results, not yet computed, and the graph that computes them."""
        self.follow()
        try:
            results, graph = self._capture(call, given)
        except BaseException:
            # Generators learn that a capture ended only from one that ended well.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that nothing was captured
                self._capture(lambda: (), ())
            raise
        torch.cuda.current_stream(self.device).wait_stream(self.side)
        return results, graph

    def _capture(self, call: Callable[..., Any], given: Sequence[Any]) -> tuple[Any, Any]:
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        self.side.wait_stream(torch.cuda.current_stream(self.device))
        first = lt.turn()
        with torch.cuda.stream(self.side), _nothing_collected():
            # In memory of its own: what one graph keeps, another may not take for its work.
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                results = call(*given)
            except BaseException:
                with contextlib.suppress(RuntimeError):  # what spoils a capture ends it as well
                    graph.capture_end()
                raise
            graph.capture_end()
        self.cleared = 0
        counted = lt.counted(self.device.index, self.side.cuda_stream)
        if counted and lt.turn() - first <= lt.COUNTS:  # each of its products counts by itself
            self.cleared = clear_first(graph.raw_cuda_graph(), counted)
        graph.instantiate()
        return results, graph

    def noting(
        self, launch: Callable[..., None], count: int, number: int, found: dict[int, Any]
    ) -> Callable[..., None]:
        """``launch``, whose node in the graph is then ``found[number]``."""

        def noted(*arguments: int) -> None:
            launch(*arguments)
            found[number] = driver.KernelNode(driver.last_node(self._stream_of()), count)

        return noted

    def updating(self, graph: Any) -> Callable[[Any], None]:
        set_parameters = driver.library().cuGraphExecKernelNodeSetParams_v2
        executable = graph.raw_cuda_graph_exec()

        def update(node: Any) -> None:
            if code := set_parameters(executable, node.node, node.reference):
                driver.checked(code, "setting a launch's arguments")

        return update

    def launching(self, graph: Any, draws: bool) -> Callable[[], None]:
        """What launches the graph on the current stream."""
        if draws:  # operators of ATen: torch says where in the generator's stream they begin
            return lambda: graph.replay()
        start, stream_of = driver.library().cuGraphLaunch, self._stream_of
        executable = graph.raw_cuda_graph_exec()

        def launch() -> None:
            if code := start(executable, stream_of()):
                driver.checked(code, "launching it")

        launch.graph = graph  # type: ignore[attr-defined]  # which lives as long as its launch
        return launch

    def over(self, t: torch.Tensor) -> tuple[Any, Callable[..., torch.Tensor]]:
        """``make(key, storage)`` is a tensor that lies in its memory as ``t`` does."""
        key = {
            "dtype": t.dtype,
            "size": tuple(t.shape),
            "stride": t.stride(),
            "storage_offset": t.storage_offset(),
        }
        return key, torch._C._construct_CUDA_Tensor_From_Storage_And_Metadata


@contextlib.contextmanager
def _nothing_collected() -> Iterator[None]:
    """Garbage may be other graphs, and nothing may be freed on a device that records."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@functools.cache
def recorder_of(device: torch.device) -> Recorder:
    return Recorder(device)
