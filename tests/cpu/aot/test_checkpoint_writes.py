"""Checkpointed regions that write to what is outside of them: a second time, in the backward.

Beside eager: values, gradients, all buffers and their versions behind each step, the generator.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

import refcompiler
from refcompiler.aot.partition.min_cut import min_cut_partition
from refcompiler.backends.ahead import aot_eager
from tests.cpu.aot.programs import Compiler

kept = functools.partial(checkpoint, use_reentrant=False)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    refcompiler.reset()


class Norms(nn.Module):
    """Blocks of a product, a batch norm and a dropout; ``how`` runs one."""

    def __init__(self, how: Callable[..., Any] = kept, blocks: int = 2, shared: bool = False):
        super().__init__()
        self.how = how
        self.products = nn.ModuleList([nn.Linear(6, 6) for _ in range(blocks)])
        norms = [nn.BatchNorm1d(6) for _ in range(1 if shared else blocks)]
        self.norms = nn.ModuleList(norms * (blocks if shared else 1))
        self.register_buffer("count", torch.zeros(()))

    def block(self, n: int, x: torch.Tensor) -> torch.Tensor:
        y = self.norms[n](self.products[n](x))
        return F.dropout(y, 0.3, self.training).relu()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for n in range(len(self.products)):
            x = self.how(functools.partial(self.block, n), x)
        return x.sin()


class Counting(Norms):
    """Counts before what is saved last, reads the count, and counts behind it."""

    def block(self, n: int, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1).mul_(2)
        y = (self.products[n](x) * self.count).tanh()
        self.norms[n].running_mean.add_(1)
        return y + 1


class Reading(Norms):
    """Writes in one region what another one reads, and in none what it reads itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        x = self.how(lambda a: (self.products[0](a) * self.count).sin(), x)
        return self.how(functools.partial(self.block, 1), x) + self.count


class Nested(Norms):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def outer(a: torch.Tensor) -> torch.Tensor:
            return self.norms[1](self.how(functools.partial(self.block, 0), a).exp()).cos()

        return self.how(outer, x)


class OnlyReading(Norms):
    """Regions that write to nothing, nested and not; what is in front of them is saved."""

    def block(self, n: int, x: torch.Tensor) -> torch.Tensor:
        return (self.products[n](x) * self.norms[n].running_var).tanh().sin()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def outer(a: torch.Tensor) -> torch.Tensor:
            return self.how(functools.partial(self.block, 0), a.cos() * self.norms[0].bias).exp()

        return self.how(functools.partial(self.block, 1), self.how(outer, self.products[0](x)))


class Powers(nn.Module):
    """A step of a power iteration in each run, of which the gradients depend."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 6))
        self.register_buffer("u", torch.randn(6))

    def block(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            v = F.normalize(self.weight.t() @ self.u, dim=0)
            self.u.copy_(F.normalize(self.weight @ v, dim=0))
        return (x @ (self.weight / (self.u @ (self.weight @ v)))).sin()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return kept(self.block, x) * 2


Step = Callable[[Callable[..., Any], nn.Module], list[Any]]


def _inputs(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(4, 6, dtype=dtype, requires_grad=True)


def trained(call: Callable[..., Any], model: nn.Module) -> list[Any]:
    seen = []
    for _ in range(2):
        x = _inputs()
        y = call(x)
        seen += [y.detach(), *state(model)]
        y.sum().backward()
        seen += [x.grad, *state(model)]
    return seen


def without_a_backward(call: Callable[..., Any], model: nn.Module) -> list[Any]:
    return [call(_inputs()).detach(), *state(model)]


def twice(call: Callable[..., Any], model: nn.Module) -> list[Any]:
    y = call(_inputs())
    seen = []
    for _ in range(2):
        y.sum().backward(retain_graph=True)
        seen += state(model)
    return seen


def both_behind(call: Callable[..., Any], model: nn.Module) -> list[Any]:
    """Two forwards, then the backwards, with a write between."""
    results = [call(_inputs()) for _ in range(2)]
    seen = state(model)
    with torch.no_grad():
        for _, buffer in model.named_buffers():
            buffer.add_(1)
    for y in results:
        y.sum().backward()
        seen += state(model)
    return seen


def under_hooks(call: Callable[..., Any], model: nn.Module) -> list[Any]:
    x = _inputs()
    with torch.autograd.graph.save_on_cpu():
        y = call(x)
    y.sum().backward()
    return [x.grad, *state(model)]


def in_autocast(call: Callable[..., Any], model: nn.Module) -> list[Any]:
    x = _inputs()
    with torch.autocast("cpu", torch.bfloat16):
        y = call(x)
    y.float().sum().backward()
    return [x.grad, *state(model)]


def batched(call: Callable[..., Any], model: nn.Module) -> list[Any]:
    x = _inputs()
    y = call(x)
    (found,) = torch.autograd.grad(y, x, torch.randn(3, *y.shape), is_grads_batched=True)
    return [found, *state(model)]


def second(call: Callable[..., Any], model: nn.Module) -> list[Any]:
    x = _inputs()
    (found,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
    seen = state(model)
    (found * found).sum().backward()
    return [*seen, x.grad, *state(model)]


def written_before(call: Callable[..., Any], model: nn.Module) -> list[Any]:
    """What regions read is written to between forward and backward."""
    seen = []
    for name in ("products.1.weight", "norms.0.running_var", "norms.0.bias", "products.0.bias"):
        x = _inputs()
        y = call(x)
        with torch.no_grad():
            dict([*model.named_parameters(), *model.named_buffers()])[name].mul_(1.5)
        y.sum().backward()
        seen += [x.grad, *state(model)]
    y = call(_inputs())
    with torch.no_grad():
        model.products[0].weight.add_(1)  # which a product outside of the regions saves
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    model.zero_grad()
    return seen


def written_before_a_graph(call: Callable[..., Any], model: nn.Module) -> list[Any]:
    x = _inputs()
    y = call(x)
    with torch.no_grad():
        for t in (*model.products[1].parameters(), model.norms[0].running_var):
            t.add_(0.5)
    (found,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    found.square().sum().backward()
    return [found.detach(), x.grad, *state(model)]


def state(model: nn.Module) -> list[Any]:
    found: list[Any] = [torch.get_rng_state()]
    for _, t in (*model.named_buffers(), *model.named_parameters()):
        found += [t.detach().clone(), t._version, t.grad if t.grad is None else t.grad.clone()]
    return found


def compared(make: Callable[[], nn.Module], step: Step, **how: Any) -> Compiler:
    backend = how.pop("backend", None) or Compiler()
    near = 1e-4 if backend == "fastpath" else 0  # norms of four rows, whose variances cancel
    sides = []
    for compiled in (True, False):
        torch.manual_seed(5)
        model = make()
        call = refcompiler.compile(model, backend=backend, **how) if compiled else model
        sides.append(step(call, model))
    assert len(sides[0]) == len(sides[1]) > 2
    for ours, theirs in zip(*sides, strict=True):
        if isinstance(theirs, torch.Tensor):
            torch.testing.assert_close(ours, theirs, rtol=near, atol=near)
        else:
            assert ours == theirs
    return backend


STEPS = [trained, without_a_backward, twice, both_behind, under_hooks, in_autocast]
MODELS: dict[str, Callable[[], nn.Module]] = {
    "norms": Norms,
    "norms that are shared": lambda: Norms(shared=True),
    "counting": Counting,
    "reading": Reading,
    "nested": Nested,
    "powers": Powers,
    "reentrant": lambda: Norms(functools.partial(checkpoint, use_reentrant=True)),
    "reentrant counting": lambda: Counting(functools.partial(checkpoint, use_reentrant=True)),
    "to its end": lambda: Counting(functools.partial(kept, early_stop=False)),
    "without masks again": lambda: Norms(functools.partial(kept, preserve_rng_state=False)),
}


def in_turn(call: Callable[..., Any], model: nn.Module, steps: Sequence[Step]) -> list[Any]:
    return [each for step in steps for each in step(call, model)]


@pytest.mark.parametrize("name", MODELS)
def test_as_eager(name: str) -> None:
    steps = STEPS if name == "norms" else [trained, both_behind]
    backend = compared(MODELS[name], functools.partial(in_turn, steps=steps), fullgraph=True)
    assert {*backend.reasons} == {None}


@pytest.mark.parametrize("backend", ["aot_eager", "min cut", "fastpath"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_what_is_only_read(reentrant: bool, backend: str) -> None:
    """It is what it is when the backward runs."""

    def make() -> nn.Module:
        return OnlyReading(functools.partial(checkpoint, use_reentrant=reentrant))

    made: Any = Compiler(partition_fn=min_cut_partition) if backend == "min cut" else backend
    steps = [written_before, trained]
    if not reentrant and backend == "aot_eager":
        steps += [under_hooks, batched, written_before_a_graph]
    compared(make, functools.partial(in_turn, steps=steps), fullgraph=True, backend=made)
    assert not refcompiler.counters()["uncompiled"]


class Two(Norms):
    """Two results, of which a region each is on the way to one alone."""

    def forward(self, x: torch.Tensor) -> Any:
        x = self.how(functools.partial(self.block, 0), x)
        return x.cos(), self.how(functools.partial(self.block, 1), x)


def one_by_one(call: Callable[..., Any], model: nn.Module) -> list[Any]:
    seen = []
    for order in ((0, 1), (1, 0)):
        x = _inputs()
        results = call(x)
        for n in order:
            (found,) = torch.autograd.grad(results[n].sum(), x, retain_graph=True)
            seen += [found, *state(model)]
        sum(t.sum() for t in results).backward()
        seen += [x.grad, *state(model)]
    return seen


def test_some_results() -> None:
    backend = compared(lambda: Two(shared=True), one_by_one, fullgraph=True)
    assert backend.reasons == [None]


class Plain(Norms):
    def block(self, n: int, x: torch.Tensor) -> torch.Tensor:
        return self.norms[n](self.products[n](x)).sin()


@pytest.mark.parametrize("step", [batched, second])
def test_gradients_of_many_kinds(step: Step) -> None:
    backend = compared(Plain, step, fullgraph=True)
    assert backend.reasons == [None]


def by_both(call: Callable[..., Any], model: nn.Module) -> list[Any]:
    """Backwards that come to a region by the result and by gradients of it with a graph."""
    x = _inputs(torch.float64)
    y = call(x)
    (first,) = torch.autograd.grad(y.exp().sum(), x, create_graph=True)
    seen = [first.detach(), *state(model)]
    (second,) = torch.autograd.grad(first.square().sum() + y.sum(), x, create_graph=True)
    seen += [second.detach(), *state(model)]
    (second.square().sum() + first.sum() + y.square().sum()).backward()
    return [*seen, x.grad, *state(model)]


@pytest.mark.parametrize("front", [refcompiler.compile, torch.compile])
@pytest.mark.parametrize("name", ["norms", "norms that are shared", "nested"])
def test_a_backward_computes_a_region_again_once(name: str, front: Any) -> None:
    sides, reasons = [], []

    def backend(graph: Any, inputs: list[Any]) -> Any:
        call = aot_eager(graph, inputs)
        reasons.append(call.fallback)
        return call

    for compiled in (True, False):
        torch.manual_seed(5)
        model = MODELS[name]().double()
        call = front(model, backend=backend) if compiled else model
        sides.append(by_both(call, model))
    assert len(sides[0]) == len(sides[1]) > 90
    for ours, theirs in zip(*sides, strict=True):
        if isinstance(theirs, torch.Tensor):
            torch.testing.assert_close(ours, theirs)
        else:
            assert ours == theirs
    assert reasons == [None]


@pytest.mark.parametrize("backend", ["aot_eager", "eager", "fastpath"])
def test_by_name(backend: str) -> None:
    compared(Norms, trained, backend=backend)
    assert not refcompiler.counters()["uncompiled"]


def _reads_what_is_written(x: Any, b: Any) -> Any:
    y = kept(lambda a: (a * b).tanh().sin(), x)
    b.add_(1)
    return y


def _draws_beside_a_write(x: Any, b: Any) -> Any:
    y = kept(lambda a: F.dropout(a.sin(), 0.5) * b.exp(), x)
    z = b * x
    b.mul_(2)
    return y, z.detach()


@pytest.mark.parametrize("program", [_reads_what_is_written, _draws_beside_a_write])
def test_second_derivatives_of_what_is_only_read(program: Callable[..., Any]) -> None:
    """They are traced, with a run of the region for each backward, and compiled."""
    backend = Compiler()
    sides = []
    for call in (refcompiler.compile(program, backend=backend, fullgraph=True), program):
        for seed in (1, 2):
            torch.manual_seed(seed)
            x, b = torch.randn(4, 8, requires_grad=True), torch.randn(8)
            y, *_ = found if isinstance(found := call(x, b), tuple) else (found,)
            (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
            (y.sum() + first.square().sum()).backward()
            sides.append([y.detach(), first.detach(), x.grad, b, torch.get_rng_state()])
    for ours, theirs in zip(sides[:2], sides[2:], strict=True):
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other)
    assert backend.reasons == [None]


def test_sizes_that_change() -> None:
    def step(call: Callable[..., Any], model: nn.Module) -> list[Any]:
        seen = []
        for rows in (4, 7, 9):
            x = torch.randn(rows, 6, requires_grad=True)
            call(x).sum().backward()
            seen += [x.grad, *state(model)]
        return seen

    backend = compared(Norms, step, fullgraph=True, dynamic=True)
    assert backend.reasons == [None]


def test_early_stop_is_what_it_is_at_the_call() -> None:
    """A region is computed again to its end, or to the last tensor that is wanted."""

    def program(x: Any, count: Any) -> Any:
        def region(a: Any) -> Any:
            y = a.sin()
            count.add_(1)
            torch.rand(1)
            return y + 1

        return kept(region, x, preserve_rng_state=False)

    backend = Compiler()
    sides = []
    for call in (refcompiler.compile(program, backend=backend), program):
        seen = []
        for stops in (True, False, True):
            torch.manual_seed(2)
            x, count = torch.ones(3, requires_grad=True), torch.zeros(())
            with set_checkpoint_early_stop(stops):
                y = call(x, count)
            y.sum().backward()
            seen += [count.item(), count._version, torch.rand(1).item()]
        sides.append(seen)
    assert sides[0] == sides[1]
    assert [sides[1][n] for n in (0, 3, 6)] == [1, 2, 1]
    assert backend.reasons == [None, None]


def _arguments(x: Any, b: Any) -> Any:
    """Eager refuses the backward."""
    return kept(lambda a, b: (a * b.add_(1)).sin(), x, b)


def _values(x: Any, b: Any) -> Any:
    c = torch.zeros(4)
    return kept(lambda a: (a * c.add_(1)).sin(), x) + c


def _views(x: Any, b: Any) -> Any:
    v = b[1:3]
    return kept(lambda a: (a * v.add_(1).sum()).sin(), x)


def _results(x: Any, b: Any) -> Any:
    c = b + 1
    return kept(lambda a: (a * c.add_(1)).sin(), x), c


def _seen_by_autograd(x: Any, b: Any) -> Any:
    return kept(lambda a: a.sin() * b.add_(a.sum()), x)


_WRITTEN = "a checkpointed region writes to a value of the graph"
REFUSED = {
    _arguments: "modified by an inplace operation",
    _values: _WRITTEN,
    _views: "a view of an input",
    _results: _WRITTEN,
    _seen_by_autograd: "",
}


@pytest.mark.parametrize("program", REFUSED, ids=lambda program: program.__name__)
def test_what_runs_as_it_is(program: Callable[..., Any]) -> None:
    backend = Compiler()
    sides = []
    for call in (refcompiler.compile(program, backend=backend), program):
        torch.manual_seed(1)
        x, b = torch.randn(3, 4, requires_grad=True), torch.zeros(4)
        y = call(x, b)
        first, *others = y if isinstance(y, tuple) else (y,)
        error = ""
        try:
            first.sum().backward()
        except RuntimeError as raised:
            error = str(raised)
        sides.append([first, *others, b, b._version, x.grad, error])
    for ours, theirs in zip(*sides, strict=True):
        assert torch.equal(ours, theirs) if isinstance(ours, torch.Tensor) else ours == theirs
    assert REFUSED[program] in (backend.reasons[0] or "no")


class CountedCalls(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
        self.layer = torch.nn.Linear(3, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return self.layer(self.norm(x)).sin()


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
def test_what_a_call_in_a_checkpoint_writes_is_written_again(backend: str) -> None:
    """Its recompute ends where the last tensor is saved; eager has counted by then."""
    sides = []
    for compiles in (False, True):
        torch.manual_seed(0)
        model = CountedCalls()
        run = refcompiler.compile(model, backend=backend) if compiles else model
        found: list[Any] = []
        for _ in range(2):
            x = torch.randn(4, 3, requires_grad=True)
            y = torch.utils.checkpoint.checkpoint(run, x, use_reentrant=False)
            y.sum().backward()
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
                run(x).sum().backward()
            found += [y, x.grad, *[t.clone() for t in model.buffers()]]
        sides.append([*found, *[torch.tensor(t._version) for t in model.buffers()]])
    assert len(sides[0]) == 16
    for got, wanted in zip(sides[1], sides[0], strict=True):
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize(
    ("region", "refused"),
    [
        (lambda t: t.exp().mul_(2), True),
        (lambda t: t.exp().mul_(2).sin() + t, True),
        (lambda t: t.sin().mul_(2), False),
        (lambda t: t.exp().clone().mul_(2), False),
    ],
)
def test_what_a_reentrant_ones_own_backward_refuses(
    region: Callable[[Any], Any], refused: bool
) -> None:
    """It asks what was written to, as any backward; one with hooks on what is saved does not."""

    def program(x: Any) -> Any:
        return checkpoint(region, x, use_reentrant=True) * x

    call = refcompiler.compile(program, backend="aot_eager")
    told = 0
    for n in (3, 3, 4):
        seen: list[Any] = []
        for function in (program, call):
            x = torch.linspace(-1, 1, n).requires_grad_()
            try:
                function(x).sum().backward()
            except RuntimeError as error:
                told += "modified by an inplace operation" in str(error)
            seen.append(x.grad)
        assert (seen[0] is None) is (seen[1] is None)
        assert seen[0] is None or torch.equal(*seen)
    assert told == 6 * refused
    assert (refcompiler.counters()["breaks"] > 0) is refused
