"""An input that is given other memory, by ``set_`` or by its ``data``."""

from __future__ import annotations

from typing import Any

import pytest
import torch

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
