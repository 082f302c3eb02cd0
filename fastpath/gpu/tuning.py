"""Which products are computed by kernels of ours, and in which tiles: measured on the device.

Each product is compiled with what its kernel does beside it, in several tiles, and as the same part
of the graph is without such a kernel: the vendor's product, padded where that helps, and kernels
for what follows. What these compute besides is measured with it, on both sides. What is fastest is
kept, for the process and on disk, so that of equal parts one is measured. Numbers are random; the
generators are left as they were.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from fastpath.gpu.parts import extracted, kernels_of, parts_of, text_of, with_readers
from fastpath.gpu.tiling import power_above
from fastpath.ir.lower import Lowering
from fastpath.ir.products import candidates, sizes_of
from fastpath.ir.program import Tile
from fastpath.options import Options
from fastpath.target import Target
from refcompiler.aot.draws import draw_again, draws
from refcompiler.cache import identity, store
from refcompiler.logs import log_of

KIND = "tile"
TILES = tuple(
    Tile(*numbers)
    for numbers in (
        (128, 256, 64, 8, 3),
        (256, 128, 64, 8, 3),
        (128, 256, 64, 8, 4),
        (128, 128, 64, 8, 4),
        (128, 128, 64, 4, 3),
        (64, 256, 64, 4, 4),
        (128, 64, 64, 4, 4),
        (128, 32, 64, 4, 4),
        (64, 32, 64, 4, 4),
        (128, 64, 32, 4, 4),
        (64, 128, 64, 4, 4),
        (64, 64, 64, 4, 5),
        (64, 64, 128, 4, 3),
        (32, 128, 64, 4, 4),
        (32, 64, 128, 4, 4),
        (16, 128, 128, 4, 4),
        (16, 64, 128, 4, 5),
        (16, 32, 128, 2, 5),
    )
)
FIRST = TILES[3]  # what parts are cut by, before one is chosen
MEMORY = 220 << 10  # bytes that a program's operands may take of a multiprocessor's own memory
GAIN = (
    0.95  # of the vendor's time, at most, for a kernel of ours: in a program less is in the cache
)
_ROUNDS, _SPAN, _MOST = 7, 1e-3, 50  # measurements; seconds of each, about; calls in a recording
LOADED, SHARE = 5, 0.08  # measurements under load; of which each takes so much of what that did
_HINTS = log_of("perf_hints")
_known: dict[str, Tile | None] = {}

Compile = Callable[[torch.fx.GraphModule, Mapping[str, Tile]], Callable[..., Any]]


def tuned(
    graph: torch.fx.GraphModule,
    target: Target,
    device: torch.device,
    options: Options,
    compile_part: Compile,
) -> dict[str, Tile]:
    """The products of ``graph`` that a kernel of ours computes fastest, by their nodes' names.

    ``compile_part(graph, products)`` makes a callable of a graph, whose products are computed as
    ``products`` says and otherwise by the vendor's kernels.
    """
    names = {node.name: node for node in candidates(graph.graph)}
    if not names:
        return {}
    lowering = Lowering(graph, target, device, options, products=dict.fromkeys(names, FIRST))
    parts = parts_of(lowering, lowering.run())
    without = Lowering(graph, target, device, options)
    kernels, products = kernels_of(without, without.run()), set(names.values())
    chosen: dict[str, Tile] = {}
    for name, part in parts.items():
        wider = with_readers(part, kernels, products)
        found = _best(names[name], wider, device, options, compile_part)
        if found is not None:
            chosen[name] = found
    return chosen


def _best(
    node: torch.fx.Node,
    part: Collection[torch.fx.Node],
    device: torch.device,
    options: Options,
    compile_part: Compile,
) -> Tile | None:
    cut = extracted(part)
    if cut is None:
        return None
    key = store.key_of(
        identity.release(),
        identity.source_of("fastpath", "specs"),
        torch.cuda.get_device_name(device),
        repr(options),
        text_of(cut[0].graph),
    )
    if key not in _known:
        kept = store.current()

        def measure() -> bytes:
            found = _measured(node, part, device, compile_part)
            return json.dumps(None if found is None else vars(found)).encode()

        text = measure() if kept is None else kept.made(KIND, key, measure)
        _known[key] = _tile(json.loads(text))
    return _known[key]


def _tile(found: Any) -> Tile | None:
    return None if found is None else Tile(**found)


def tiles_for(m: int, n: int, k: int, itemsize: int) -> list[Tile]:
    """Those that leave little of a block empty, and whose operands fit into a program's memory."""

    def fits(tile: Tile) -> bool:
        memory = (tile.m + tile.n) * tile.k * itemsize * tile.stages
        wide = tile.m <= max(16, power_above(m)) and tile.n <= max(32, power_above(n))
        high = tile.m >= min(64, power_above(m))  # few rows are what small blocks are for
        return memory <= MEMORY and wide and high and tile.k <= power_above(k)

    return [tile for tile in TILES if fits(tile)]


def _measured(
    node: torch.fx.Node,
    part: Collection[torch.fx.Node],
    device: torch.device,
    compile_part: Compile,
) -> Tile | None:
    from triton.errors import TritonError

    _, m, n, k = sizes_of(node)
    tiles = [None, *tiles_for(m, n, k, node.meta["val"].itemsize)]

    def made(tile: Tile | None) -> Callable[..., Any] | None:
        cut = extracted(part)
        assert cut is not None
        graph, there = cut
        with torch.cuda.device(device), torch.no_grad():
            try:
                return compile_part(graph, {} if tile is None else {there[node].name: tile})
            except (TritonError, RuntimeError) as error:  # too many registers, or too much memory
                if tile is None:
                    raise
                _HINTS.info("no kernel of %s for %s: %s", tile, node, error)
                return None

    with ThreadPoolExecutor(8) as pool:
        calls = dict(zip(tiles, pool.map(made, tiles)))
    cut = extracted(part)
    assert cut is not None
    drawing = any(n.target is draw_again or draws(n.target) for n in part)
    like = [n.meta["val"] for n in cut[0].graph.find_nodes(op="placeholder")]
    measured = {t: c for t, c in calls.items() if c is not None}
    best: Tile | None
    best, times = fastest(measured, None, GAIN, like, device, drawing)
    for tile in sorted(times.keys() - {None}, key=times.__getitem__)[:1]:
        _HINTS.info(
            "%s of %d by %d by %d: %.1f us in %s, %.1f us by the vendor's kernel",
            *(node.target, m, n, k, 1e6 * times[tile], tile, 1e6 * times[None]),
        )
    return best


def fastest(
    calls: Mapping[Any, Callable[..., Any]],
    first: Any,
    gain: float,
    like: Sequence[torch.Tensor],
    device: torch.device,
    drawing: bool = False,
    rounds: int = _ROUNDS,
    span: float = _SPAN,
    load: float = 0.0,
) -> tuple[Any, dict[Any, float]]:
    """Which of ``calls`` is the fastest, if it takes less than ``gain`` of what the one named
    ``first`` takes, which it is otherwise; and the seconds of both.

    The least of many measurements is less than what is measured. So what seems to be the fastest
    is measured once more, against the first alone. With ``load`` the device is kept busy for so
    many seconds before that: at the end of its power its clock goes down, and what takes more of it
    then takes longer.
    """
    times = timed(calls, like, device, drawing, rounds, span)
    best = min(times.keys() - {first}, key=times.__getitem__, default=first)
    if best == first or times[best] >= gain * times[first]:
        return first, times
    both = {name: calls[name] for name in (first, best)}
    if load:
        times = timed(both, like, device, drawing, LOADED, SHARE * load, load)
    else:
        times = timed(both, like, device, drawing, 2 * rounds, span)
    return best if times[best] < gain * times[first] else first, times


def timed(
    calls: Mapping[Any, Callable[..., Any]],
    like: Sequence[torch.Tensor],
    device: torch.device,
    drawing: bool = False,
    rounds: int = _ROUNDS,
    span: float = _SPAN,
    load: float = 0.0,
) -> dict[Any, float]:
    """Seconds of the device for each of ``calls``, which take inputs that lie as those of ``like``,
    after ``load`` seconds of them all.

    Launches are recorded, and ``span`` seconds of them replayed in each round, so that what the
    host does is not measured; those that are ``drawing`` are launched one by one, and so are all
    where an allocator of somebody else's gives memory, which may not do so while it is recorded.
    """
    drawing = drawing or torch.cuda.memory.get_allocator_backend() == "pluggable"
    with torch.random.fork_rng([device]), torch.cuda.device(device), torch.no_grad():
        inputs = [_like(t, device) for t in like]
        runs = {}
        for name, call in calls.items():
            runs[name] = _repeated(call, inputs, drawing, span)
        begin = time.perf_counter()
        while time.perf_counter() - begin < load:
            for run, _ in runs.values():
                _seconds(run)
        found: dict[Any, list[float]] = {name: [] for name in runs}
        for _ in range(rounds):
            for name, (run, count) in runs.items():
                found[name].append(_seconds(run) / count)
        return {name: statistics.median(seconds) for name, seconds in found.items()}


def _like(t: torch.Tensor, device: torch.device) -> torch.Tensor:
    found = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device)
    return found.normal_() if t.is_floating_point() else found.zero_()


def _seconds(run: Callable[[], Any]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    milliseconds: float = start.elapsed_time(end)
    return milliseconds / 1e3


def _repeated(
    call: Callable[..., Any], inputs: Sequence[torch.Tensor], drawing: bool, span: float
) -> tuple[Callable[[], Any], int]:
    """What runs ``call`` several times, and how often."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            call(*inputs)
        once = _seconds(lambda: call(*inputs))
    torch.cuda.current_stream().wait_stream(aside)
    count = max(1, min(_MOST, int(span / max(once, 1e-6))))

    def several() -> None:
        for _ in range(count):
            call(*inputs)

    again = max(1, round(span / (count * max(once, 1e-6))))
    run: Callable[[], Any] = several
    if not drawing:
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            several()
        run = recorded.replay
        run()
    return run if again == 1 else lambda: [run() for _ in range(again)], count * again
