"""When calls are recorded and replayed, on a recorder that runs the call again for a replay."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fastpath.graphs import runner
from fastpath.graphs.launches import Launches
from fastpath.graphs.runner import DeviceGraphs
from fastpath.report import Report


class Again:
    """Replays write where the results of the recording lie, as a graph on a GPU does."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.lock = threading.RLock()
        self.owned: Counter[int] = Counter()
        self.replays = 0

    def own(self, recording: Any) -> None:
        self.owned.update(storage.data_ptr() for storage in recording.held)

    def follow(self) -> None:
        pass

    def record(self, call: Callable[..., Any], given: Sequence[Any]) -> tuple[Any, Any]:
        boxed = isinstance(given[0], list)
        seen = [unowned(t) for t in (given[0] if boxed else given)]
        results = call(*given)
        return results, (lambda: call([*seen]) if boxed else call(*seen), [*results])

    def updating(self, executable: Any) -> None:
        return None

    def launching(self, executable: Any, draws: bool) -> Callable[[], None]:
        run, results = executable

        def launch() -> None:
            self.replays += 1
            for old, new in zip(results, run(), strict=True):
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)

        return launch

    def over(self, t: torch.Tensor) -> tuple[Any, Callable[..., torch.Tensor]]:
        key = t.storage_offset(), t.shape, t.stride()
        empty = torch.empty(0, dtype=t.dtype)
        return key, lambda key, storage: empty.new_empty(0).set_(storage, *key)


def unowned(t: torch.Tensor) -> torch.Tensor:
    """The same memory, which does not live longer for it."""
    storage = t.untyped_storage()
    memory = torch._C._construct_storage_from_data_pointer(
        storage.data_ptr(), t.device, storage.nbytes()
    )
    made = torch.empty(0, dtype=t.dtype)
    return made.set_(memory, t.storage_offset(), t.shape, t.stride())


def graphs_of(call: Callable[..., Any], count: int, **facts: Any) -> tuple[Any, Again, Report]:
    names = [f"x{n}" for n in range(count)]
    recorder, report = Again(), Report()
    launches = Launches(call, names, opaque=set(names), **facts)
    return DeviceGraphs(launches, recorder, report).callable(), recorder, report


def test_the_second_call_is_recorded_and_later_ones_are_replayed() -> None:
    w = torch.randn(4)
    call, recorder, report = graphs_of(lambda x, w: (x * w, x + 1), 2)
    x = torch.randn(4)
    for n in range(6):
        x.copy_(torch.randn(4))
        product, more = call(x, w)
        assert torch.equal(product, x * w) and torch.equal(more, x + 1)
        assert report.graphs == min(n, 2), n  # the results of the call before are alive
    assert recorder.replays == 5 and report.ungraphed == 0


def test_results_that_are_kept_keep_their_values() -> None:
    call, recorder, report = graphs_of(lambda x: (x * 2,), 1)
    x, kept = torch.zeros(3), []
    for n in range(12):
        x.fill_(n)
        kept.append(call(x)[0])
    assert [int(t[0]) for t in kept] == [2 * n for n in range(12)]
    assert recorder.replays == 11 and report.graphs == 3  # the last of which copies


def test_inputs_that_move_are_copied() -> None:
    w = torch.randn(5)
    call, recorder, report = graphs_of(lambda x, w: (x * w,), 2)
    alive = []
    for n in range(8):
        x = torch.randn(5)
        alive.append(x)
        assert torch.equal(call(x, w)[0], x * w), n
    assert recorder.replays == 7 and report.graphs == 1
    w = torch.randn(5)  # which lay where it lay until now
    assert torch.equal(call(x, w)[0], x * w)
    assert report.graphs == 2
    w = torch.randn(5)
    assert torch.equal(call(x, w)[0], x * w)
    assert report.graphs == 2 and recorder.replays == 9


def test_what_a_graph_keeps_is_no_copy_for_the_next() -> None:
    """A backward reads what the forward's graph keeps for it where it lies."""
    forward, first, _ = graphs_of(lambda x: (x.sum(), x * 3), 1, outputs=1)
    backward, second, report = graphs_of(lambda kept: (kept + 1,), 1)
    second.owned = first.owned
    losses = []
    for n in range(8):
        x = torch.full((4,), float(n))
        loss, kept = forward(x)
        losses.append(loss)
        assert torch.equal(backward(kept)[0], x * 3 + 1)
        del kept
    assert [float(loss) for loss in losses] == [4.0 * n for n in range(8)]
    assert first.replays == 7 and report.graphs == 1
    assert second.replays == 7


def test_large_results_beside_what_is_kept_are_copied_where_they_stay_alive(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr(runner, "SMALL", 8)
    first, recorder, report = graphs_of(lambda x: (x * 2, x.sum(), x * 3), 1, outputs=2)
    places, sums = set(), []
    for n in range(6):
        large, total, kept = first(torch.full((4,), float(n)))
        places.add(large.data_ptr())
        sums.append(total)
        assert large.eq(2 * n).all() and kept.eq(3 * n).all()
        del large, total, kept
    assert report.graphs == 1 and recorder.replays == 5
    assert [float(s) for s in sums] == [4.0 * n for n in range(6)]  # small ones are the caller's
    assert len(places) <= 2  # that of the call which ran as it is, and the graph's own
    alive = []
    for n in range(5):  # and now they are kept: from the second on they are copied
        large, total, kept = first(torch.full((4,), float(n)))
        alive.append(large)
        assert kept.eq(3 * n).all()
        del large, total, kept
    assert [t.tolist() for t in alive] == [[2.0 * n] * 4 for n in range(5)]
    assert report.graphs == 2 and report.ungraphed == 0
    # What waits for its backward is no reason to copy.
    call, _, report = graphs_of(lambda x: (x * 2, x * 3), 1, outputs=1)
    pending = [call(torch.ones(4))[1] for _ in range(4)]
    assert report.graphs == 3 and len(pending) == 4


def test_results_of_one_memory_and_inputs_returned() -> None:
    def call(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        return y, y[1:], x, x[2:], y

    graphs, recorder, _ = graphs_of(call, 1)
    for n in range(4):
        x = torch.arange(4.0) + n
        whole, part, same, view, again = graphs(x)
        assert torch.equal(whole, x * 2) and torch.equal(part, x[1:] * 2)
        assert part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
        assert same is x and again is whole
        assert view.data_ptr() == x[2:].data_ptr() and torch.equal(view, x[2:])
    assert recorder.replays == 3


def test_a_list_is_emptied() -> None:
    def call(inputs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        (x,) = inputs
        inputs.clear()
        return (x + 1,)

    graphs, recorder, _ = graphs_of(call, 1, boxed=True)
    for _ in range(4):
        x = torch.randn(3)
        given = [x]
        assert torch.equal(graphs(given)[0], x + 1) and not given
    assert recorder.replays == 3


def test_what_cannot_be_recorded_runs() -> None:
    call, recorder, report = graphs_of(lambda x, n: (x * n,), 2)
    for n in range(3):
        assert torch.equal(call(torch.ones(2), n)[0], torch.full((2,), float(n)))
    assert recorder.replays == 0 and report.ungraphed == 3
    assert "input 1 is a number" in report.why_ungraphed

    def refuses(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        refuses.calls += 1
        if refuses.calls == 2:
            raise RuntimeError("operation not permitted when stream is capturing\nmore")
        return (x + 1,)

    refuses.calls = 0
    call, recorder, report = graphs_of(refuses, 1)
    for _ in range(3):
        assert torch.equal(call(torch.ones(2))[0], torch.full((2,), 2.0))
    assert report.graphs == 0 and "not permitted" in report.why_ungraphed


def test_there_is_a_bound(monkeypatch: Any) -> None:
    monkeypatch.setattr(runner, "MOST_KEPT", 3)
    call, recorder, report = graphs_of(lambda x: (x.sum(), x * 3), 1, outputs=1)
    x, alive = torch.ones(2), []
    for _ in range(6):
        alive.append(call(x)[1])
    assert report.graphs == 3 and report.ungraphed == 2
    assert "are all kept" in report.why_ungraphed
    del alive[:]
    call(x)
    assert report.ungraphed == 2
