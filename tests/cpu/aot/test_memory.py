"""What a compiled training step keeps in memory, in bytes, and when it lets go of it."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

import refcompiler
from benchmarks.aot.memory import Peak
from refcompiler.aot import aot_autograd, training
from refcompiler.aot.partition import default_partition, min_cut_partition
from refcompiler.backends.ahead import _freeing

N = 64 * 64 * 4  # bytes of a square


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    refcompiler.reset()


def squares(count: int) -> list[torch.Tensor]:
    return [torch.randn(64, 64).div_(8).requires_grad_() for _ in range(count)]


def chain(x: Any, *weights: Any) -> Any:
    for w in weights:
        x = (x @ w).sin().exp().tanh()
    return x.sum()


def saved(call: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> int:
    """Bytes of memory that a forward keeps besides its inputs."""
    known = {t.untyped_storage()._cdata for t in inputs}
    memory: dict[int, int] = {}

    def pack(t: torch.Tensor) -> torch.Tensor:
        storage = t.untyped_storage()
        if storage._cdata not in known:
            memory[storage._cdata] = storage.nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        found = call(*inputs)
    assert found.requires_grad
    return sum(memory.values())


def compiled(program: Callable[..., Any], partition: Any = default_partition) -> Any:
    made_by = aot_autograd(fw_compiler=lambda graph, _: graph.forward, partition_fn=partition)
    return refcompiler.compile(program, backend=made_by, fullgraph=True)


def budget(share: float) -> Any:
    return functools.partial(min_cut_partition, activation_memory_budget=share)


def test_chains_of_cheap_operators_are_computed_again() -> None:
    inputs = squares(4)
    bytes_of = {}
    for partition in (default_partition, min_cut_partition):
        call = compiled(chain, partition)
        call(*inputs)
        bytes_of[partition] = saved(call, inputs)
    assert bytes_of[default_partition] == saved(chain, inputs) == 9 * N
    assert bytes_of[min_cut_partition] == 3 * N  # the products


def test_a_budget_is_kept_and_changes_no_bit() -> None:
    inputs = squares(7)
    wanted = torch.autograd.grad(chain(*inputs), inputs)
    found = {}
    for share in (1.0, 0.75, 0.5, 0.25, 0.0):
        call = compiled(chain, budget(share))
        gradients = torch.autograd.grad(call(*inputs), inputs)
        assert all(map(torch.equal, gradients, wanted)), share
        found[share] = saved(call, inputs) / N
    assert found == {1.0: 6, 0.75: 4, 0.5: 3, 0.25: 1, 0.0: 0}


def test_what_is_cheap_is_not_kept_from_where_products_are_computed_again() -> None:
    """The backward has all products, and of one layer at a time the rest."""
    assert most_in_a_step(0.0, products=6) < 10 * N


def test_less_memory_for_what_is_saved_is_less_at_most_in_a_step() -> None:
    most = [most_in_a_step(share, products=12) for share in (1.0, 0.75, 0.5)]
    assert most[0] > most[1] > most[2], most


def most_in_a_step(share: float, products: int) -> int:
    x, *weights = squares(products + 1)
    inputs = [x, *[w.detach() for w in weights]]
    names = ", ".join([f"x{n}" for n in range(products + 1)])
    graph = torch.fx.symbolic_trace(eval(f"lambda {names}: chain({names})", {"chain": chain}))
    call = aot_autograd(fw_compiler=_freeing, partition_fn=budget(share))(graph, inputs)
    torch.autograd.grad(call(*inputs), x)
    with Peak(inputs) as peak, torch.autograd.set_multithreading_enabled(False):
        (found,) = torch.autograd.grad(call(*inputs), x)
    assert torch.equal(found, *torch.autograd.grad(chain(*inputs), x))
    return peak.most


def test_a_budget_saves_what_costs_most_for_its_bytes() -> None:
    def program(x: Any, w: Any) -> Any:
        dear = (x @ w) @ w  # two products for one tensor
        return (dear * (x + 1).sum(0, keepdim=True).expand(256, 256).cumsum(0)).sin().sum()

    inputs = [torch.randn(256, 256, requires_grad=True) for _ in range(2)]
    graphs = []

    def partition(joint: Any, given: Any, **options: Any) -> Any:
        graphs.append(min_cut_partition(joint, given, activation_memory_budget=0.5, **options))
        return graphs[-1]

    compiled(program, partition)(*inputs)
    _, backward = graphs[0]
    targets = [str(node.target) for node in backward.graph.nodes]
    assert "aten.cumsum.default" in targets
    assert targets.count("aten.mm.default") == 5  # four of gradients; of the forward only x @ w


def test_draws_are_never_repeated() -> None:
    def program(x: Any) -> Any:
        for _ in range(3):
            x = torch.nn.functional.dropout(x.sin(), 0.5)
        return x.sum()

    inputs = squares(1)
    gradients = []
    for call in (compiled(program, budget(0.0)), program):
        torch.manual_seed(3)
        gradients.append(torch.autograd.grad(call(*inputs), inputs)[0])
    assert torch.equal(*gradients)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.0])
def test_what_raises_for_some_values_is_computed_again(share: float) -> None:
    def program(table: Any, w: Any, places: Any) -> Any:
        for _ in range(3):
            places = places // 2
            x = torch.nn.functional.embedding(places, table).sin() @ w
            table = table + x.exp().gather(1, places[:, None] % 3)
        return table.tanh().sum()

    inputs, places = squares(2), torch.arange(64)
    ways = compiled(program, budget(share)), program
    found = [torch.autograd.grad(way(*inputs, places), inputs) for way in ways]
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("shown", [False, True])
def test_a_mask_is_saved_as_bytes_unless_it_is_shown(shown: bool) -> None:
    def program(x: Any, w: Any) -> Any:
        mask = torch.empty_like(x).bernoulli_(0.3)
        return (x @ w * (mask / 0.3)).sum(), mask if shown else None

    inputs = squares(2)
    call = compiled(program, min_cut_partition)
    for way in (call, program):
        torch.manual_seed(5)
        loss, mask = way(*inputs)
        found = torch.autograd.grad(loss, inputs)
        if way is call:
            ours = mask, *found
    assert all(map(torch.equal, ours[not shown :], (mask, *found)[not shown :]))
    assert saved(lambda *given: call(*given)[0], inputs) == (N if shown else N // 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "masked",
    [
        lambda x, m: x * (m / 0.3),
        lambda x, m: m / 0.3 * x,
        lambda x, m: x * m,
        lambda x, m: m / 0.7 * x * m,
    ],
)
def test_a_product_with_a_mask_reads_its_bytes(masked: Any, dtype: torch.dtype) -> None:
    """In the mask's own type it never is there, though it is read twice: by both gradients."""
    inputs = [t.detach().to(dtype).requires_grad_() for t in squares(3)]
    inputs[0].data[:2, :2] = torch.tensor([[torch.inf, torch.nan], [-0.0, 0.0]])
    found, graphs = [], []

    def program(x: Any, w: Any, v: Any) -> Any:
        m = torch.empty_like(x).bernoulli_(0.3)
        return masked((x @ w).exp(), m) @ v

    def partition(joint: Any, given: Any, **options: Any) -> Any:
        graphs.append(min_cut_partition(joint, given, **options))
        return graphs[-1]

    tangent = torch.randn(64, 64, dtype=dtype)
    for way in (compiled(program, partition), program):
        torch.manual_seed(5)
        found.append(torch.autograd.grad(way(*inputs), inputs, tangent))
    for ours, eager in zip(*found, strict=True):
        torch.testing.assert_close(ours, eager, rtol=0, atol=0, equal_nan=True)
    assert 0 < found[0][0].isfinite().sum() < 64 * 64
    _, backward = graphs[0]
    made = [node.target for node in backward.graph.nodes]
    assert torch.ops.aten._to_copy.default not in made
    assert torch.ops.aten.div.Tensor not in made


def test_a_mask_that_is_not_only_multiplied_is_made_again() -> None:
    def program(x: Any, y: Any) -> Any:
        mask = torch.empty_like(x).bernoulli_(0.5)
        return (x.sin() * mask * (mask + y.double())).sum()

    inputs = squares(2)
    found = []
    for way in (compiled(program, min_cut_partition), program):
        torch.manual_seed(5)
        found.append(torch.autograd.grad(way(*inputs), inputs))
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("share", [-0.1, 1.5, "half", None])
def test_a_budget_is_a_share(share: Any) -> None:
    call = compiled(chain, budget(share))
    with pytest.raises(Exception, match="activation_memory_budget is a share from 0 to 1"):
        call(*squares(2))


def test_a_checkpoint_frees_what_is_in_it() -> None:
    def program(x: Any, *weights: Any) -> Any:
        for w in weights:
            x = checkpoint(lambda a, w=w: (a @ w).sin().exp().tanh(), x, use_reentrant=False)
        return x.sum()

    inputs = squares(4)
    call = compiled(program)
    call(*inputs)
    assert saved(call, inputs) == saved(program, inputs) == 2 * N  # what goes from one to the next


def test_attention_that_drops_nothing_keeps_no_state_of_a_generator() -> None:
    def program(x: Any, *weights: Any) -> Any:
        def layer(a: Any, w: Any) -> Any:
            a = (a @ w).view(1, 2, -1, a.shape[1] // 2)
            return torch.nn.functional.scaled_dot_product_attention(a, a, a).reshape(x.shape).sin()

        for w in weights:
            x = checkpoint(layer, x, w, use_reentrant=False)
        return x.sum()

    inputs = squares(4)
    call = compiled(program)
    found = torch.autograd.grad(call(*inputs), inputs)
    wanted = torch.autograd.grad(program(*inputs), inputs)
    assert all(map(torch.equal, found, wanted))
    assert saved(call, inputs) == saved(program, inputs) == 2 * N


@pytest.mark.parametrize(("kind", "squares_saved"), [("none", 21), ("chosen", 13), ("all", 6)])
def test_a_selective_checkpoint_keeps_what_was_chosen(kind: str, squares_saved: int) -> None:
    inputs = squares(8)
    chosen = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
    how = {"context_fn": chosen} if kind == "chosen" else {}

    def program(x: Any, *weights: Any) -> Any:
        for w in weights:
            layer = lambda a, w=w: (a @ w).sin().exp().tanh()  # noqa: E731
            x = layer(x) if kind == "none" else checkpoint(layer, x, use_reentrant=False, **how)
        return x.sum()

    def most(call: Callable[..., Any]) -> int:
        with Peak() as peak, torch.autograd.set_multithreading_enabled(False):
            torch.autograd.grad(call(*inputs), inputs[0])
        return peak.most

    call = refcompiler.compile(program, backend="aot_eager", fullgraph=True)
    found = torch.autograd.grad(call(*inputs), inputs)
    assert all(map(torch.equal, found, torch.autograd.grad(program(*inputs), inputs)))
    assert saved(call, inputs) == squares_saved * N
    assert most(call) <= most(program)


def test_the_backward_is_compiled_when_it_runs() -> None:
    made: list[str] = []

    def compiler(name: str) -> Callable[..., Any]:
        return lambda graph, _: made.append(name) or graph.forward

    made_by = aot_autograd(fw_compiler=compiler("forward"), bw_compiler=compiler("backward"))
    call = refcompiler.compile(chain, backend=made_by)
    loss = call(*squares(2))
    assert made == ["forward"]
    loss.backward()
    call(*squares(2)).backward()
    assert made == ["forward", "backward"]


@pytest.mark.parametrize("retain", [False, True])
def test_saved_tensors_are_freed_while_the_backward_runs(retain: bool) -> None:
    """A boxed backward empties its list; what it was given is then nobody else's.

    Of two products' inputs, a sine, a product and a tangent, only the first are the caller's.
    """
    alive: list[list[bool]] = []
    watched: list[weakref.ref] = []

    def compile_backward(graph: Any, given: Any) -> Any:
        def run(arguments: list[Any]) -> Any:
            watched[:] = [weakref.ref(t.untyped_storage()) for t in arguments]
            results = graph(*arguments)
            arguments.clear()
            alive.append([ref() is not None for ref in watched])
            return results

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def program(x: Any, w: Any) -> Any:
        return (x @ w).sin() @ w

    made_by = aot_autograd(fw_compiler=lambda g, _: g.forward, bw_compiler=compile_backward)
    call = refcompiler.compile(program, backend=made_by)
    inputs = squares(2)
    call(*inputs).sum().backward(retain_graph=retain)
    (found,) = alive
    freed = found.count(False)
    assert freed == (1 if retain else 3) and len(found) >= 4


def test_without_a_list_of_its_own_nothing_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "boxed", lambda run: lambda arguments: run(list(arguments)))
    with pytest.raises(AssertionError):
        test_saved_tensors_are_freed_while_the_backward_runs(False)


#: Rules of ``specs/ahead.py`` that are tested here.
KEPT = {"early release"}


def test_aot_eager_frees_tensors_after_their_last_use() -> None:
    """The most that a backward holds at a time, over what it was given."""
    alive: list[int] = []
    held: weakref.WeakSet = weakref.WeakSet()

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            found = func(*args, **(kwargs or {}))
            if isinstance(found, torch.Tensor) and found.numel() == 64 * 64:
                held.add(found.untyped_storage())
            alive.append(len(held))
            return found

    call = refcompiler.compile(chain, backend="aot_eager")
    inputs = squares(7)
    call(*inputs).backward()
    with torch.autograd.set_multithreading_enabled(False), Watch():
        call(*inputs).backward()
    forward = 6 * 4
    assert max(alive) <= forward + 2  # what is saved goes while gradients come


@pytest.mark.parametrize("around", [torch.enable_grad, torch.no_grad])
def test_a_trace_that_fails_in_a_block_leaves_the_dispatcher_as_it_was(around: Any) -> None:
    """The guard of the block is freed with the error: later programs ran as if they were in it."""

    def reach(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad(), torch.inference_mode():
            return x.as_strided((4,), (1,), 0) * 2

    def state() -> tuple:
        sets = (
            torch._C._dispatch_tls_local_include_set(),
            torch._C._dispatch_tls_local_exclude_set(),
        )
        return *map(str, sets), torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    x, leaf = torch.arange(8.0)[2:4], torch.ones(3, requires_grad=True)
    with around():
        before = state()
        for _ in range(2):
            found = refcompiler.compile(reach, backend="aot_eager")(x)
            assert found.equal(reach(x)) and found.is_inference()
            assert state() == before
        assert (leaf * 2).requires_grad == torch.is_grad_enabled()
    assert refcompiler.counters()["uncompiled"] and (leaf * 2).requires_grad
