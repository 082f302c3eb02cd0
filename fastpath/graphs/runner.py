"""When a call is recorded, when a recording is replayed, and when the call simply runs.

The first call runs as it is, so that libraries set themselves up. The second is recorded: an input
that lies where it lay is taken to stay there, until it moves. A recording whose results somebody
still has is left alone: the call gets another, and what callers keep for long is copied for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fastpath.graphs.launches import Launches
from fastpath.graphs.recording import Recording
from fastpath.report import Report
from refcompiler.logs import log_of

MOST_ALIKE = 2  # recordings for inputs at the same places; their results are alive by turns
MOST_KEPT = 8  # the same where results are kept for a backward
MOST = 32  # recordings of one call
#: Bytes of a result of a call that keeps others for its backward, up to which it is copied to the
#: caller at once: of a large one, which may be as large as all that is kept, only where the caller
#: still has it when the next call comes.
SMALL = 1 << 20
ALL = 1 << 62

_HINTS = log_of("perf_hints")


def _lie_at(inputs: list[Any], addresses: list[int | None], places: list[int]) -> bool:
    return all(inputs[n].data_ptr() == addresses[n] for n in places)


class DeviceGraphs:
    """``launches.call``, recorded and replayed; call it as that is called.

    ``report.graphs`` counts recordings, ``report.ungraphed`` the calls that ran without one, and
    ``report.why_ungraphed`` is the reason of the last.
    """

    def __init__(self, launches: Launches, recorder: Any, report: Report):
        self.launches, self.recorder, self.report = launches, recorder, report
        self.recordings: list[Recording] = []
        self.seen: list[int | None] | None = None
        self.moving: set[int] = set()
        self.refused = launches.unfit
        self.trains = launches.outputs is not None
        self.copied = SMALL if self.trains else 0  # bytes of results that are, at most

    def callable(self) -> Callable[..., Any]:
        """The function to call: with a list, if the call is boxed."""
        lie_at = getattr(torch._C, "_tensors_data_ptrs_at_indices_equal", _lie_at)
        lock, missed, recordings = self.recorder.lock, self._missed, self.recordings

        def boxed(inputs: list[Any]) -> Any:
            with lock:
                for recording in recordings:
                    if lie_at(inputs, recording.addresses, recording.places) and recording.free():
                        return recording.run(inputs)
                return missed(inputs)

        def call(*inputs: Any) -> Any:
            with lock:
                given = list(inputs)
                for recording in recordings:
                    if lie_at(given, recording.addresses, recording.places) and recording.free():
                        return recording.run(*inputs)
                return missed(given)

        return boxed if self.launches.boxed else call

    # -- calls that no recording serves ----------------------------------------------------------

    def _missed(self, inputs: list[Any]) -> Any:
        if self.refused:
            return self._plainly(inputs, self.refused)
        if self.seen is None:
            self.refused = _unfit(inputs, self.recorder.device)
            self.seen = _addresses(inputs)
            return self._run(inputs) if not self.refused else self._plainly(inputs, self.refused)
        addresses = _addresses(inputs)
        moved = {
            n
            for n, (was, now) in enumerate(zip(self.seen, addresses))
            if was != now and not self._ours(inputs[n])
        }
        self.seen = addresses
        if not moved <= self.moving:
            self.moving |= moved
            self.recordings[:] = [r for r in self.recordings if not moved & set(r.places)]
        alike = [r for r in self.recordings if _lie_at(inputs, r.addresses, r.places)]
        if self.copied != ALL and self._callers_keep(alike):
            self.copied = ALL
            self.recordings[:] = [r for r in self.recordings if r not in alike]
        elif len(alike) >= (MOST_KEPT if self.copied else MOST_ALIKE):
            return self._plainly(inputs, f"the results of {len(alike)} earlier calls are all kept")
        if self.report.graphs >= MOST:
            return self._plainly(
                inputs, f"{MOST} were recorded: its inputs lie elsewhere too often"
            )
        return self._record(inputs)

    def _callers_keep(self, alike: list[Recording]) -> bool:
        """Whether callers have had results for long: those of two calls, or, where what is kept for
        a backward would be there twice, of one."""
        if not self.trains:
            return len(alike) >= MOST_ALIKE
        return any(not r.returned() for r in alike)

    def _record(self, inputs: list[Any]) -> Any:
        try:
            made = Recording(
                self.launches, self.recorder, inputs, set(self.moving), self.copied, self._again
            )
        except RuntimeError as error:
            self.refused = f"it cannot be recorded: {str(error).splitlines()[0]}"
            return self._plainly(inputs, self.refused)
        self.report.graphs += 1
        self.recorder.own(made)
        self.recordings.insert(0, made)
        return made.run(inputs) if self.launches.boxed else made.run(*inputs)

    def _ours(self, t: Any) -> bool:
        """Whether a tensor lies in memory of a graph, where a recording may expect it."""
        return bool(self.recorder.owned[t.untyped_storage().data_ptr()] > 0)

    def _again(self, *inputs: Any) -> Any:
        """For replays that turn out not to be for their inputs."""
        given = inputs[0] if self.launches.boxed else list(inputs)
        return self._plainly(given, "an input is not aligned")

    def _plainly(self, inputs: list[Any], reason: str) -> Any:
        if self.report.why_ungraphed != reason:
            _HINTS.info("a call runs without a device graph: %s", reason)
        self.report.ungraphed += 1
        self.report.why_ungraphed = reason
        return self._run(inputs)

    def _run(self, inputs: list[Any]) -> Any:
        call = self.launches.call
        return call(inputs) if self.launches.boxed else call(*inputs)


def _addresses(inputs: Sequence[Any]) -> list[int | None]:
    return [t.data_ptr() if isinstance(t, torch.Tensor) else None for t in inputs]


def _unfit(inputs: Sequence[Any], device: torch.device) -> str:
    for n, t in enumerate(inputs):
        if not isinstance(t, torch.Tensor):
            return f"input {n} is a number, which a recording would keep"
        if t.device != device:
            return f"input {n} is on {t.device}, which a graph on {device} cannot read"
    return ""
