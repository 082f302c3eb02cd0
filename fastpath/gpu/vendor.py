"""Which of ATen's matrix products the vendor's library is asked for without ATen, and how.

It costs the host less, the library can add a residual, and it has several algorithms for a product.
The first that it proposes is not always the fastest: for products that are worth it the others are
measured once, the fastest of them under load, too, and the choice is kept, for the process and on
disk. Numbers that are measured with are random; the generators are left as they were.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from fastpath.gpu import lt
from fastpath.gpu.lt import Algorithm, Problem
from fastpath.handles import views_of_shape
from fastpath.ir.program import Call, Result, Tensor
from fastpath.ir.types import DTYPE
from fastpath.residuals import problem_of, product_and_residual
from refcompiler.cache import identity, store
from refcompiler.logs import log_of

KIND = "algorithm"
WORTH, LONG = 1 << 30, 1 << 36  # multiplications between which it is measured
GAIN = 0.97  # of the first algorithm's time, at most, for another one
_ROUNDS, _SPAN = 5, 3e-4  # measurements; seconds of each, about
_LOAD = 0.25  # seconds of work before what seems to be faster is measured against the first
_HINTS = log_of("perf_hints")
_lock = threading.RLock()
_known: dict[tuple[Problem, int], Algorithm] = {}

Launch = Callable[[int, int, int, int, int], None]


@dataclass(frozen=True)
class Direct:
    """A product by :mod:`fastpath.gpu.lt`: ``launch`` takes the addresses of ``operands``, 0 for
    None, and of the result."""

    operands: tuple[Tensor, Tensor, Tensor | None, Tensor | None]
    launch: Launch


def products_of(calls: Iterable[Call], device: int) -> dict[Call, Direct]:
    """Those of ``calls`` that the library is asked for on the device of that number."""
    found = {call: direct_of(call, device) for call in calls}
    return {call: direct for call, direct in found.items() if direct is not None}


def direct_of(call: Call, device: int) -> Direct | None:
    """The product that ``call`` is, if the library takes it: left, right, bias and residual."""
    operands = operands_of(call)
    if operands is None:
        return None
    if any(isinstance(t.node, Result) and t.node.bits for t in operands if t is not None):
        return None
    if not all(views_of_shape(t) for t in operands if t is not None):
        return None
    (result,) = call.outputs
    gelu = call.name == "aten._addmm_activation.default"
    problem = problem_of(*operands, result, gelu)
    if problem is None:
        return None
    run = _launch(problem, device)
    return None if run is None else Direct(operands, run)


def operands_of(call: Call) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None] | None:
    """Of a call that is a product: left, right, what is added to each row, and to the result."""
    keywords = {**call.keywords}
    gelu = keywords.pop("use_gelu", False)
    if any(keywords.pop(name, 1) != 1 for name in ("alpha", "beta")) or keywords:
        return None
    arguments = call.arguments
    if call.target is product_and_residual:
        left, right, residual, *bias = arguments
        return left, right, bias[0] if bias else None, residual
    if call.name == "aten.mm.default":
        left, right = arguments
        return left, right, None, None
    if call.name == "aten.addmm.default" or call.name == "aten._addmm_activation.default" and gelu:
        added, left, right = arguments
        return (left, right, added, None) if len(added.shape) == 1 else (left, right, None, added)
    return None


@functools.cache
def _launch(problem: Problem, device: int) -> Launch | None:
    """What computes it; None where the library does not, at whatever addresses."""
    proposed = lt.proposed(problem, device)
    if proposed is None:
        return None
    algorithms, otherwise = proposed
    return lt.launch(problem, chosen(problem, algorithms, device), device, otherwise)


def chosen(problem: Problem, algorithms: Sequence[Algorithm], device: int) -> Algorithm:
    """The fastest of ``algorithms``, or the first: where measuring is not worth it, where a
    measurement would be recorded, and in deterministic mode."""
    size = problem.m * problem.n * problem.k
    if len(algorithms) < 2 or not WORTH <= size <= LONG:
        return algorithms[0]
    if torch.are_deterministic_algorithms_enabled() or torch.cuda.is_current_stream_capturing():
        return algorithms[0]
    with _lock:
        found = _known.get((problem, device))
        if found is None:
            found = _known[problem, device] = _kept(problem, algorithms, device)
    return found


def _kept(problem: Problem, algorithms: Sequence[Algorithm], device: int) -> Algorithm:
    """As it was chosen before, if it was by the same library on such a device."""

    def measure() -> bytes:
        return json.dumps(dataclasses.asdict(_fastest(problem, algorithms, device))).encode()

    kept = store.current()
    if kept is None:
        found = json.loads(measure())
    else:
        own = identity.release(), identity.source_of("fastpath", "specs")
        name = torch.cuda.get_device_name(device)
        key = store.key_of(*own, name, str(lt.version()), repr(problem))
        found = json.loads(kept.made(KIND, key, measure))
    return Algorithm(tuple(found["words"]), found["workspace"])


def _fastest(problem: Problem, algorithms: Sequence[Algorithm], device: int) -> Algorithm:
    from fastpath.gpu.tuning import fastest

    (*like, out), place = _tensors(problem), torch.device("cuda", device)

    def calling(algorithm: Algorithm) -> Callable[..., None]:
        run = lt.launch(problem, algorithm, device, algorithms[0])

        def call(*given: torch.Tensor) -> None:
            addresses = iter([t.data_ptr() for t in given])
            left, right = next(addresses), next(addresses)
            bias = next(addresses) if problem.bias else 0
            residual = next(addresses) if problem.residual else 0
            run(left, right, bias, residual, next(addresses))

        return call

    calls = {n: calling(algorithm) for n, algorithm in enumerate(algorithms)}
    found, times = fastest(
        calls, 0, GAIN, [*like, out], place, rounds=_ROUNDS, span=_SPAN, load=_LOAD
    )
    _HINTS.info(
        "%s: algorithm %d of the vendor's %d takes %.1f us, the first %.1f",
        *(problem, found, len(algorithms), 1e6 * times[found], 1e6 * times[0]),
    )
    return algorithms[found]


def _tensors(problem: Problem) -> list[torch.Tensor]:
    """Fakes of the operands that there are, and of the result."""
    m, n, k = problem.m, problem.n, problem.k
    made: list[tuple[tuple[int, ...], tuple[int, ...]]]
    made = [((m, k), problem.left), ((k, n), problem.right)]
    made += [((n,), (1,))] if problem.bias else []
    made += [((m, n), (n, 1))] * (1 + problem.residual)
    dtype = DTYPE[problem.dtype]
    return [torch.empty_strided(*lies, dtype=dtype, device="meta") for lies in made]


def available(problem: Problem, device: int) -> bool:
    """Whether the library computes the problem on the device of that number."""
    return _launch(problem, device) is not None
