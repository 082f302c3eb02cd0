"""An input that is given other memory, by ``set_`` or by its ``data``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import refcompiler
from tests.cpu.aot.checks import raw


def _lowered(x: Any) -> None:
    """What ``x.data = y`` is beside ``x.set_(y)`` to torch's front end."""
    torch._C._autograd._unsafe_set_version_counter((x,), (x._version - 1,))


def _recording(x: Any, on: bool) -> None:
    torch._C._set_grad_enabled(on)


torch.fx.wrap("_lowered")
torch.fx.wrap("_recording")


@pytest.mark.parametrize("counted", [False, True])
def test_a_parameter_given_other_memory(counted: bool) -> None:
    """Its gradient is its own, of before and of after; a version tells of set_, not of .data."""

    def program(p: Any, y: Any) -> Any:
        z = p + 1
        _recording(p, False)
        p.set_(p.detach() - y)
        if not counted:
            _lowered(p)
        _recording(p, True)
        return z * y, p * y

    values = torch.randn(4), torch.randn(4)
    call, graphs = raw(program, values[0].clone().requires_grad_(), values[1])
    found = []
    for run in (program, call):
        p, y = values[0].clone().requires_grad_(), values[1].clone()
        before, old = p._version, p.detach()
        first, second = run(p, y)
        (first.sum() + 2 * second.sum()).backward()
        found.append([p.detach(), old, first.detach(), second.detach(), p.grad])
        assert p._version - before == counted and p.is_leaf
        assert p.data_ptr() != old.data_ptr()
    assert all(map(torch.equal, *found)) and call.fallback is None and len(graphs) == 2


def _written(x: Any) -> Any:
    x.data = x.data * 2
    x.mul_(3)
    return x


def _written_by_a_view(x: Any) -> Any:
    x.data = x.data * 2
    x[0].mul_(3)
    return x * 1


def _clamped(x: Any) -> Any:
    x.data = x.data * 2
    return torch.nn.functional.threshold_(x, 0.1, 0.2), x * x


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "fastpath"])
@pytest.mark.parametrize("program", [_written, _written_by_a_view, _clamped])
def test_writes_that_autograd_sees_behind_other_data(program: Any, backend: str) -> None:
    """They are of the tensor itself, whose gradient goes on through them."""
    refcompiler.reset()
    call = refcompiler.compile(program, backend=backend)
    for seed in (1, 2):
        sides = []
        for each in (program, call):
            leaf = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
            x = leaf.requires_grad_() * 1
            results = each(x)
            y = results[-1] if isinstance(results, tuple) else results
            total = y.sum() + x.sum() * 2
            sides.append([y, x, *torch.autograd.grad(total, leaf)])
        assert all(map(torch.equal, *sides))


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
def test_other_data_of_another_layout_with_symbols(backend: str) -> None:
    def program(x: Any) -> Any:
        x.data = x.data * 2
        return x + 1

    refcompiler.reset()
    call = refcompiler.compile(program, backend=backend, fullgraph=True, dynamic=True)
    for length in (3, 5):
        x, z = (torch.arange(length * 16.0).view(-1, 8)[::2, ::2] for _ in range(2))
        found, expected = call(x), program(z)
        for a, b in ((found, expected), (x, z)):
            assert torch.equal(a, b) and a.stride() == b.stride()


@pytest.mark.parametrize("made", ["set_", "data"])
def test_a_view_given_other_memory_that_is_written_to(made: str) -> None:
    """What it is a view of has the memory from before."""

    def program(x: Any, y: Any) -> Any:
        torch._foreach_lerp_([x], [y], 0.25)
        return x * 1, x.sum()

    call = refcompiler.compile(program, backend="aot_eager")
    seen: list[Any] = []
    for function in (program, call):
        leaf = torch.arange(9.0, requires_grad=True)
        x = (leaf * 2).view(3, 3)[1:]
        y = torch.arange(6.0).view(2, 3) - 3
        if made == "set_":
            x.set_(y)  # has no derivative
        else:
            x.data = y
        results = function(x, y)
        seen.append([*results, x, y])
        if made == "data":
            seen[-1] += torch.autograd.grad(results[1], [x, leaf], allow_unused=True)
    assert len(seen[0]) == 4 + 2 * (made == "data")
    for n, (expected, found) in enumerate(zip(*seen, strict=True)):
        assert (found is None) is (expected is None), n
        assert expected is None or torch.equal(found, expected), n
    assert refcompiler.counters()["graphs"] == 1


def _strided_behind(x: Any) -> None:
    x.add_(1)
    x.as_strided_((2,), (1,))


def _strided_before(x: Any) -> None:
    whole = x.view(-1)
    x.as_strided_((2,), (1,))
    whole.add_(1)


def _strided_alone(x: Any) -> Any:
    x.as_strided_((2,), (1,))
    return x + 1


def _strided_all(x: Any) -> None:
    x.add_(1)
    x.as_strided_((3, 2), (1, 3))


def _part_of_itself(x: Any) -> None:
    x.add_(1)
    x.data = x.data[0]


def _set_to_a_part(x: Any) -> None:
    x.add_(1)
    x.set_(x[1])


@pytest.mark.parametrize(
    ("program", "uncompiled"),
    [
        (_strided_behind, 1),
        (_strided_before, 1),
        (_strided_alone, 0),
        (_strided_all, 0),
        (_part_of_itself, 0),
        (_set_to_a_part, 0),
    ],
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_an_input_that_keeps_a_part_of_its_memory(
    program: Callable[[Any], Any], uncompiled: int, dynamic: bool | None
) -> None:
    """Others see what was written to the rest of it."""
    call = refcompiler.compile(program, backend="aot_eager", dynamic=dynamic)
    for _ in range(2):
        seen: list[Any] = []
        for function in (program, call):
            memory = torch.arange(8.0)
            x = memory[:6].view(2, 3)
            seen.append([memory, x, function(x)])
        (expected, x, result), (found, y, ours) = seen
        assert torch.equal(found, expected) and torch.equal(x, y)
        assert (x.stride(), x._version) == (y.stride(), y._version)
        assert (ours is None) if result is None else torch.equal(ours, result)
    counts = refcompiler.counters()
    assert counts["graphs"] == 1 and counts["uncompiled"] == uncompiled
