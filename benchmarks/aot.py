"""AOT autograd beside torch's own: compiling, calls, and memory between forward and backward.

Both are given one graph of torch's front end and one compiler for ATen graphs, so what differs is
what AOT autograd does. The time of a call is taken with compiled graphs that cost nothing: they
give the same results every time. Bytes are counted in a step that runs operator by operator.
"""

from __future__ import annotations

import gc
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.family_models import calls
from benchmarks.harness import Row, alternate, calls_to_fill, one_thread, time_of
from refcompiler.aot import aot_autograd
from refcompiler.aot.partition import min_cut_partition

COMPILE_GOAL, CALL_GOAL, MEMORY_GOAL = 0.7, 0.6, 1.0
ROUNDS = 7
AGAINST = "torch's AOT autograd"
MODELS = ("mlp", "Bert", "GPT2", "Llama", "T5", "ViT")

Backend = Callable[[torch.fx.GraphModule, list[Any]], Callable[..., Any]]


def rows() -> list[Row]:
    warnings.simplefilter("ignore")
    found: dict[str, list[Row]] = {"compile": [], "call": [], "bytes": []}
    with one_thread():
        for name, graph, inputs in captured():
            found["compile"].append(compile_row(name, graph, inputs))
            found["call"].append(call_row(name, graph, inputs))
            found["bytes"] += memory_rows(name, graph, inputs)
    return [row for rows in found.values() for row in rows]


class Hundred(torch.nn.Module):
    """A hundred parameters in one product."""

    def __init__(self) -> None:
        super().__init__()
        self.factors = torch.nn.ParameterList([torch.nn.Parameter(torch.rand(8))] * 100)
        for n in range(100):
            self.factors[n] = torch.nn.Parameter(torch.rand(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for factor in self.factors:
            x = x * factor
        return x


def captured() -> Iterator[tuple[str, torch.fx.GraphModule, list[Any]]]:
    """Name, graph of torch's front end, example inputs; parameters are among the inputs."""
    torch.manual_seed(0)
    small = torch.nn.Linear(4, 4)
    yield "a linear layer", *_graph(small, {"input": torch.randn(2, 4)})
    yield "100 parameters", *_graph(Hundred(), {"x": torch.rand(8)})
    for name in MODELS:
        _, model, inputs = next(iter(calls(name)))
        yield f"{name}, training", *_graph(model.train(), inputs)


def _graph(model: torch.nn.Module, inputs: dict[str, Any]) -> tuple[torch.fx.GraphModule, list]:
    found: list[tuple[torch.fx.GraphModule, list[Any]]] = []

    def backend(graph: torch.fx.GraphModule, given: list[Any]) -> Any:
        found.append((graph, list(given)))
        return graph.forward

    torch.compiler.reset()
    torch.compile(model, backend=backend)(**inputs)
    (graph, given) = found[0]
    leaves = [t.detach().requires_grad_(t.requires_grad) for t in given]
    return graph, leaves


def ours(compiler: Callable[..., Any], **options: Any) -> Backend:
    return aot_autograd(fw_compiler=compiler, **options)


def theirs(compiler: Callable[..., Any], **options: Any) -> Backend:
    from torch._dynamo.backends.common import aot_autograd as made

    return made(fw_compiler=compiler, **options)


def boxed(function: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    def run(given: list[Any]) -> Any:
        return function(*given)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


# ---- compiling --------------------------------------------------------------------------------


def compile_row(name: str, graph: torch.fx.GraphModule, inputs: list[Any]) -> Row:
    """Both graphs made and run once; they run as they are."""
    from functorch.compile import default_partition

    def as_it_is(made: torch.fx.GraphModule, given: Sequence[Any]) -> Any:
        return boxed(made.forward)

    backends = [ours(as_it_is), theirs(as_it_is, partition_fn=default_partition)]
    ways = [lambda backend=backend: _first_step(backend, graph, inputs) for backend in backends]
    for way in ways:
        way()
    row = alternate(
        f"compile and first step: {name}", *ways, against=AGAINST, goal=COMPILE_GOAL, rounds=5
    )
    return row


def _first_step(backend: Backend, graph: torch.fx.GraphModule, inputs: list[Any]) -> float:
    gc.collect()
    start = time.thread_time()
    step(backend(graph, inputs), inputs)
    return time.thread_time() - start


def step(call: Callable[..., Any], inputs: Sequence[Any]) -> None:
    """Forward, and gradients of the first output that has one."""
    found = [t for t in pytree.tree_leaves(call(*inputs)) if isinstance(t, torch.Tensor)]
    output = next(t for t in found if t.requires_grad)
    wanted = [t for t in inputs if t.requires_grad]
    torch.autograd.grad(output, wanted, torch.ones_like(output), allow_unused=True)


# ---- calls ------------------------------------------------------------------------------------


class Constant:
    """A compiler of graphs that compute once, and then give the same results for nothing.

    Outputs are other objects each time, since autograd writes into them.
    """

    def __init__(self, outputs: int):
        self.outputs = outputs

    def __call__(self, graph: torch.fx.GraphModule, given: Sequence[Any]) -> Any:
        results: list[Any] = []
        holders = graph.graph.find_nodes(op="placeholder")
        is_backward = any(str(node.target).startswith("tangents") for node in holders)
        count = 0 if is_backward else self.outputs

        def run(*inputs: Any) -> list[Any]:
            if not results:
                with torch.no_grad():
                    results.extend(graph.forward(*inputs))
            return [t.detach() for t in results[:count]] + results[count:]

        return boxed(run)


def call_row(name: str, graph: torch.fx.GraphModule, inputs: list[Any]) -> Row:
    from functorch.compile import default_partition

    (output,) = graph.graph.find_nodes(op="output")
    compiler = Constant(len(pytree.tree_leaves(output.args[0])))
    made = (
        ours(compiler)(graph, inputs),
        theirs(compiler, partition_fn=default_partition)(graph, inputs),
    )

    def timed(call: Callable[..., Any]) -> Callable[[], float]:
        step(call, inputs)
        way = lambda: step(call, inputs)  # noqa: E731
        number = calls_to_fill(way, 0.02, time.thread_time)
        return lambda: time_of(way, number, time.thread_time)

    row = alternate(
        f"forward and backward, graphs that cost nothing: {name}",
        *map(timed, made),
        against=AGAINST,
        goal=CALL_GOAL,
        rounds=ROUNDS * 3,
    )
    least = alternate(
        name, timed(bare(made[0], inputs)), timed(made[1]), against=AGAINST, rounds=ROUNDS
    )
    return replace(row, note=f"an autograd.Function that does nothing: {least.ratio:.2f}")


def bare(call: Callable[..., Any], inputs: Sequence[Any]) -> Callable[..., Any]:
    """A function of autograd with the inputs and results of ``call``, and nothing to do."""
    results = [t for t in pytree.tree_leaves(call(*inputs)) if isinstance(t, torch.Tensor)]
    first = next(t for t in results if t.requires_grad)
    wanted = [t for t in inputs if t.requires_grad]
    found = iter(torch.autograd.grad(first, wanted, torch.ones_like(first), allow_unused=True))
    gradients = tuple([next(found) if t.requires_grad else None for t in inputs])
    constant = [t.detach() for t in results if not t.requires_grad]
    values = tuple([t.detach() for t in results if t.requires_grad])

    class Bare(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            ctx.set_materialize_grads(False)
            return tuple([t.detach() for t in values])

        @staticmethod
        def backward(ctx: Any, *given: Any) -> Any:
            return gradients

    apply = super(torch.autograd.Function, Bare).apply  # as quickly as it can be called
    return lambda *given: (*apply(*given), *constant)


# ---- memory -----------------------------------------------------------------------------------


class Peak(TorchDispatchMode):
    """Counts the bytes of memory that operators' results hold, now and at most."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for t in pytree.tree_leaves(found):
            if isinstance(t, torch.Tensor):
                self.count(t.untyped_storage())
        return found

    def count(self, memory: torch.UntypedStorage) -> None:
        key, size = memory._cdata, memory.nbytes()
        if key in self.known:
            return
        self.known.add(key)
        self.now += size
        self.most = max(self.most, self.now)

        def freed() -> None:
            self.known.discard(key)
            self.now -= size

        weakref.finalize(memory, freed)


def memory_rows(name: str, graph: torch.fx.GraphModule, inputs: list[Any]) -> list[Row]:
    """Bytes that a forward saves, and the most that a step holds, by the min-cut partitioners."""
    from functorch.compile import min_cut_rematerialization_partition

    from refcompiler.backends.ahead import _freeing

    backends = (
        ours(_freeing, partition_fn=min_cut_partition),
        theirs(_freeing, partition_fn=min_cut_rematerialization_partition),
    )
    figures = []
    for backend in backends:
        call = backend(graph, inputs)
        step(call, inputs)
        saved = _saved(call, inputs)
        gc.collect()
        with Peak() as peak:
            with torch.autograd.set_multithreading_enabled(False):
                step(call, inputs)
        figures.append((saved, peak.most))
    rows = []
    for what, (a, b) in zip(("saved", "at most in a step"), zip(*figures, strict=True)):
        ratio = a / b if b else 1.0
        title = f"bytes {what}, min-cut: {name}"
        rows.append(Row(title, a, b, ratio, ratio, ratio, 1, AGAINST, MEMORY_GOAL, unit="B"))
    return rows


def _saved(call: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> int:
    """Bytes that a forward keeps alive for the backward, besides its inputs."""
    known = {t.untyped_storage()._cdata for t in inputs}
    kept: dict[int, int] = {}

    def pack(t: torch.Tensor) -> torch.Tensor:
        memory = t.untyped_storage()
        if memory._cdata not in known:
            kept[memory._cdata] = memory.nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        found = call(*inputs)
    del found
    return sum(kept.values())
