"""A program compiled ahead of time beside eager: what a caller can observe, compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

import refcompiler
from refcompiler.aot import aot_autograd
from refcompiler.aot.partition import default_partition

Make = Callable[[], Sequence[torch.Tensor]]


class Compiler:
    """A backend that compiles nothing, and remembers the graphs that it is given."""

    def __init__(self, **options: Any):
        self.forward: list[GraphModule] = []
        self.backward: list[GraphModule] = []
        self.inference: list[GraphModule] = []
        self.reasons: list[str | None] = []
        self.made = aot_autograd(
            fw_compiler=self._into(self.forward),
            bw_compiler=self._into(self.backward),
            inference_compiler=self._into(self.inference),
            **options,
        )

    @staticmethod
    def _into(graphs: list[GraphModule]) -> Callable[..., Any]:
        def compile(graph: GraphModule, inputs: Sequence[Any]) -> Any:
            assert len(inputs) == len(graph.graph.find_nodes(op="placeholder"))
            graphs.append(graph)

            def run(*given: Any) -> list[Any]:
                assert not any(t.is_conj() or t.is_neg() for t in given if _is_tensor(t))
                mine = [id(t) for t in given]
                return [_own(t) if id(t) not in mine else t for t in graph(*given)]

            return run

        return compile

    takes_symbols = True

    def __call__(self, graph: GraphModule, inputs: list[Any]) -> Any:
        compiled = self.made(graph, inputs)
        self.reasons.append(compiled.fallback)
        return compiled


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _own(value: Any) -> Any:
    """A tensor with memory of its own, as kernels allocate it."""
    return value.clone() if isinstance(value, torch.Tensor) else value


class Comparison:
    """Counts what was compared; ``check`` fails with what differs."""

    def __init__(self) -> None:
        self.count = 0

    def check(self, ours: Any, theirs: Any, what: str) -> None:
        self.count += 1
        assert ours == theirs, f"{what}: {ours!r}, eager {theirs!r}"

    def tensors(self, ours: Any, theirs: Any, what: str) -> None:
        for name in ("shape", "dtype", "device", "requires_grad"):
            self.check(getattr(ours, name), getattr(theirs, name), f"{what}.{name}")
        self.check(ours.stride(), theirs.stride(), f"{what}.stride()")
        self.check(ours.is_leaf, theirs.is_leaf, f"{what}.is_leaf")
        self.equal(ours, theirs, what)

    def equal(self, ours: Any, theirs: Any, what: str) -> None:
        self.count += 1
        close = {"rtol": 0, "atol": 0, "equal_nan": True}
        torch.testing.assert_close(ours.detach(), theirs.detach(), msg=what, **close)


def compare(
    program: Callable[..., Any],
    make: Make,
    partition: Callable[..., Any] = default_partition,
    into: Callable[..., Sequence[Any]] = lambda *leaves: leaves,
    traced: bool = False,
    others: Sequence[Make] = (),
    **options: Any,
) -> tuple[Compiler, Comparison]:
    """Two calls on other values, each compared with eager: bits, layouts, flags, aliasing, writes,
    gradients of one output at a time, the generator's state.

    ``make()`` gives leaves; ``into(*leaves)`` the arguments that are made of them. ``traced``: the
    graph is ``torch.fx``'s instead of the front end's. ``others``: for calls with leaves of other
    sizes, which are symbols then.
    """
    backend = Compiler(partition_fn=partition, **options)
    refcompiler.reset()
    if traced:
        compiled = backend(torch.fx.symbolic_trace(program), list(into(*make())))
    else:
        dynamic = bool(others)
        compiled = refcompiler.compile(program, backend=backend, fullgraph=True, dynamic=dynamic)
    seen = Comparison()
    for seed, fresh in enumerate((make, *(others or [make]))):
        sides = []
        for call in (compiled, program):
            torch.manual_seed(seed)
            leaves = fresh()
            arguments = into(*leaves)
            result = call(*arguments)
            outputs = result if isinstance(result, tuple) else (result,)
            sides.append((leaves, arguments, outputs, torch.get_rng_state()))
        _compare(seen, *sides)
    assert seen.count
    return backend, seen


def _compare(seen: Comparison, ours: Any, theirs: Any) -> None:
    leaves, arguments, outputs, state = ours
    eager_leaves, eager_arguments, eager_outputs, eager_state = theirs
    seen.equal(state, eager_state, "the generator's state")
    seen.check(len(outputs), len(eager_outputs), "outputs")
    every, eager_every = (*arguments, *outputs), (*eager_arguments, *eager_outputs)
    for n, (a, b) in enumerate(zip(every, eager_every, strict=True)):
        if isinstance(b, torch.Tensor):
            seen.tensors(a, b, f"value {n}")
        else:
            seen.check(a, b, f"value {n}")
    seen.check(_versions(every), _versions(eager_every), "versions")
    seen.check(_aliasing(every), _aliasing(eager_every), "aliasing")
    for n, (a, b) in enumerate(zip(outputs, eager_outputs, strict=True)):
        if isinstance(b, torch.Tensor) and b.grad_fn is not None:
            _gradients(seen, n, a, b, leaves, eager_leaves)


def _versions(values: Sequence[Any]) -> list[int]:
    """How often tensors tell of a write: what saved one of those for its backward raises there."""
    tensors = [t for t in values if isinstance(t, torch.Tensor) and not t.is_inference()]
    return [t._version for t in tensors]


def _aliasing(values: Sequence[Any]) -> list[tuple[int, int]]:
    """For each tensor the first with its memory, and the first that is the same object."""
    tensors = [t for t in values if isinstance(t, torch.Tensor)]
    storages = [t.untyped_storage()._cdata for t in tensors]
    objects = [id(t) for t in tensors]
    return [(storages.index(s), objects.index(o)) for s, o in zip(storages, objects)]


def _gradients(seen: Comparison, n: int, a: Any, b: Any, ours: Any, theirs: Any) -> None:
    cotangent = torch.randn(b.shape).to(b.dtype)
    found = []
    for output, leaves in ((a, ours), (b, theirs)):
        wanted = [t for t in leaves if t.requires_grad]
        torch.manual_seed(7)  # of a recompute that would draw
        found.append(
            torch.autograd.grad(output, wanted, cotangent, retain_graph=True, allow_unused=True)
        )
    for place, (mine, eager) in enumerate(zip(*found, strict=True)):
        what = f"gradient of output {n} for input {place}"
        seen.check(mine is None, eager is None, f"{what} is None")
        if eager is not None:
            seen.equal(mine, eager, what)
