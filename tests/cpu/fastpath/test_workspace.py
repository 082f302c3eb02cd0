"""Memory that is kept between calls: planned without overlaps, seen by nobody, gone in the end."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import fastpath
import refcompiler
from fastpath import compiler, memory, workspace
from fastpath.device import Device
from fastpath.ir.program import Node, Pointwise
from fastpath.lives import heirs
from fastpath.target import GPU
from fastpath.workspace import Plan


@pytest.fixture(autouse=True)
def _nothing_before() -> Iterator[None]:
    refcompiler.reset()
    gc.collect()
    idle, workspace._idle[:] = list(workspace._idle), []
    yield
    refcompiler.reset()
    workspace._idle[:] = idle


def network(x: Any, w: Any, v: Any, i: Any) -> Any:
    """Products into kept memory, views of it, a position that is data, and two results."""
    h = torch.relu(x @ w.t()) * 2
    heads = (h @ v).view(3, 2, 4).transpose(0, 1)
    scores = torch.bmm(heads, heads.mT).softmax(-1)
    return torch.bmm(scores, heads)[i] + 1, h.sum(0)


def inputs() -> list[torch.Tensor]:
    return [torch.randn(3, 6), torch.randn(5, 6), torch.randn(5, 8), torch.tensor([1, 0])]


def compiled() -> Any:
    return refcompiler.compile(network, backend="fastpath", dynamic=False, fullgraph=True)


def agree(run: Any, given: list[torch.Tensor]) -> Any:
    found = run(*given)
    for a, b in zip(found, network(*given), strict=True):
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()
    return found


class Recorded(Device):
    """A device of the GPU's target, whose kernels compute nothing and note what they are given."""

    is_cpu = property(lambda self: False)  # type: ignore[assignment]

    def __init__(self) -> None:
        self.device, self.target = torch.device("cpu"), GPU
        self.given: list[tuple[int, ...]] = []

    def compile_kernel(self, kernel: Any, sizes: Any) -> tuple[Any, str]:
        return lambda *addresses: self.given.append(addresses), ""

    def loaded(self, names: Any) -> dict[str, Any]:
        return {}

    def entered(self, call: Any) -> Any:
        return call


def test_what_only_kernels_see_lies_in_one_piece_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three results of the first kernel, and none of what is returned or large."""
    x, size = torch.zeros(1024, 40), 4 * 32 * 40
    for most in (memory.UNSEEN, size - 1):
        refcompiler.reset()
        device = Recorded()
        monkeypatch.setattr(compiler, "device_of", lambda graph, device=device: device)
        monkeypatch.setattr(memory, "UNSEEN", most)

        def backend(gm: Any, examples: Any) -> Any:
            return fastpath.compile_graph(gm, examples)

        run = refcompiler.compile(lambda x: (x.mean(0), x.var(0)), backend=backend, fullgraph=True)
        with torch.no_grad():
            mean, var = run(x)
        (_, *parts), (*read, one, other) = device.given
        assert len(parts) == 3 and sorted(parts) == sorted(read)
        assert (one, other) == (mean.data_ptr(), var.data_ptr())
        parts.sort()
        steps = [b - a for a, b in zip(parts, parts[1:])]
        assert all(step >= size for step in steps)
        assert most < size or steps == [size, size]  # which is a multiple of what they lie apart by


def test_what_lives_at_the_same_time_lies_apart() -> None:
    chooser = random.Random(5)
    shared = 0
    for _ in range(30):
        births: dict[int, list[Node]] = {}
        deaths: dict[int, list[Node]] = {}
        lives: dict[Node, tuple[int, int]] = {}
        for n in range(40):
            first = chooser.randrange(20)
            last = chooser.randrange(first, 20)
            size = (chooser.randrange(1, 300),)
            node = Pointwise(str(n), size, "float32", (1,), lambda index: None)  # type: ignore[arg-type, return-value]
            births.setdefault(first, []).append(node)
            deaths.setdefault(last, []).append(node)
            lives[node] = first, last
        plan = Plan(births, deaths)
        places = {n: (at, at + 4 * n.numel) for n, at in plan.offsets.items()}
        assert len(places) == 40 and max(end for _, end in places.values()) <= plan.size
        assert all(at % workspace.ALIGNMENT == 0 for at, _ in places.values())
        for a, (first, last) in lives.items():
            for b, (begin, end) in lives.items():
                if a is not b and begin <= last and first <= end:
                    assert places[a][1] <= places[b][0] or places[b][1] <= places[a][0]
        shared += sum(4 * n.numel for n in places) > plan.size
    assert shared == 30


def test_results_are_nobody_elses() -> None:
    run = compiled()
    before = [(agree(run, given), given) for given in (inputs() for _ in range(4))]
    for found, given in before:  # no later call has written to them
        for a, b in zip(found, network(*given), strict=True):
            torch.testing.assert_close(a, b)
    (arena,) = workspace._idle
    memory = arena.memory
    assert memory is not None and memory.numel() > 0
    kept = range(memory.data_ptr(), memory.data_ptr() + memory.numel())
    assert not any(a.data_ptr() in kept for found, _ in before for a in found)


def test_one_view_of_several_begins_where_the_kept_tensor_does() -> None:
    """The second intermediate result lies behind the first, and a product reads a part of it."""

    def program(x: Any, w: Any) -> Any:
        total = x.exp().sum(1, keepdim=True)
        shares = (x / total).sin() @ w
        rows = torch.cat([total, shares], 1).relu().view(3, 2, 3)[:, 1].unsqueeze(0)
        return torch.addmm(w[:3], rows[0], w[:3], alpha=2)  # ATen's

    compiled = refcompiler.compile(program, backend="fastpath", dynamic=False)
    x, w = torch.randn(3, 5), torch.randn(5, 5)
    torch.testing.assert_close(compiled(x, w), program(x, w))
    (part,) = [p for a in workspace._idle for p in a.parts.values()]
    views = [t for t in part if isinstance(t, torch.Tensor) and t.shape == (3, 3)]
    assert views and all(t.storage_offset() > 3 for t in views)


class _Seeing(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def parts_of_data(x: Any, w: Any, v: Any, counts: Any) -> Any:
    h = torch.relu(x @ w) * 2
    return torch.cat([part @ w for part in h.split(counts.tolist())]), v


def part_of_a_size(x: Any, w: Any, v: Any, counts: Any) -> Any:
    h = torch.relu(x @ w) * 2
    return h[: v.shape[0]].t() @ v, counts


@pytest.mark.parametrize("program", [parts_of_data, part_of_a_size])
def test_a_part_whose_size_is_a_symbol_is_another_in_each_call(program: Any) -> None:
    run = refcompiler.compile(program, backend="fastpath")
    w = torch.randn(6, 6)
    for n, part in enumerate([2, 3, 5, 4]):
        x, v, counts = torch.randn(6, 6), torch.randn(part, 6), torch.tensor([part, 6 - part])
        if program is part_of_a_size and n == 0:
            refcompiler.mark_dynamic(v, 0)
        found, expected = run(x, w, v, counts), program(x, w, v, counts)
        torch.testing.assert_close(found, expected)
    assert fastpath.last_report().fallback is None
    assert workspace.idle()  # what is kept was used


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, _Seeing])
def test_memory_is_of_no_mode(mode: Any) -> None:
    run = compiled()
    with torch.no_grad():
        agree(run, inputs())
    workspace._idle.clear()  # the next call makes it anew
    with mode():
        run(*inputs())
    agree(run, inputs())


def test_a_call_that_fails_gives_nothing_back() -> None:
    run, given = compiled(), inputs()
    agree(run, given)
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        run(*given[:3], torch.tensor([1, 7]))
    assert not workspace._idle
    agree(run, given)
    assert len(workspace._idle) == 1


def test_threads_have_memory_of_their_own() -> None:
    run, given = compiled(), [inputs() for _ in range(4)]
    agree(run, given[0])
    failed: list[BaseException] = []

    def work(mine: list[torch.Tensor]) -> None:
        try:
            for _ in range(50):
                agree(run, mine)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]


def test_it_goes_with_the_last_program() -> None:
    run = compiled()
    agree(run, inputs())
    other = refcompiler.compile(lambda x: (x @ x).relu() @ x, backend="fastpath")
    other(torch.randn(4, 4))
    (arena,) = workspace._idle
    assert len(arena.parts) == 2
    del run, other
    refcompiler.reset()
    gc.collect()
    assert not workspace._idle


@pytest.mark.parametrize("tangents", ["all", "of one result", "laid otherwise"])
def test_a_training_step_keeps_little_beside_gradients(tangents: str) -> None:
    """Gradients of parameters are there at the end of a backward, large activations are not: what
    is kept for these would be held beside them. In inference all of it is kept."""
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.SiLU()) for _ in range(3)]
    model = torch.nn.Sequential(*layers)

    def program(x: Any) -> Any:
        made = model(x)
        return made, made.sin()

    def train(call: Any, x: Any) -> list[Any]:
        made, more = call(x)
        if tangents == "laid otherwise":
            tangent = torch.linspace(0, 1e-4, made.numel()).view(256, 128).t()
            torch.autograd.backward([made, more], [tangent, tangent])
        else:
            (made + more if tangents == "all" else made).square().mean().backward()
        found = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        return found

    run = refcompiler.compile(program, backend="fastpath", dynamic=False, fullgraph=True)
    activation = 128 * 256 * 4
    for _ in range(2):
        x = torch.randn(128, 256)
        for a, b in zip(train(run, x), train(program, x), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert sum(arena.bytes for arena in workspace.idle()) < activation // 4
    with torch.no_grad():
        torch.testing.assert_close(run(x), program(x), rtol=1e-4, atol=1e-6)
    assert sum(arena.bytes for arena in workspace.idle()) >= activation


def test_memory_is_written_to_again_only_soon_and_by_one() -> None:
    def node(name: str, size: int) -> Node:
        return Pointwise(name, (size,), "float32", (1,), lambda index: None)  # type: ignore[arg-type, return-value]

    a, b, c, d, e = (node(name, 8) for name in "abcde")
    other = node("other", 9)
    births = {0: [a], 1: [b, other], 2: [c], 3: [d], 6: [e]}
    deaths = {1: [a, other], 2: [b], 3: [c], 4: [d]}
    shape = lambda n: n.shape  # noqa: E731
    assert heirs(births, deaths, shape) == {c: a, d: b, e: c}
    assert heirs(births, deaths, shape, 1) == {c: a, d: b}
    assert heirs(births, deaths, shape, 2) == {c: a, d: b, e: d}
