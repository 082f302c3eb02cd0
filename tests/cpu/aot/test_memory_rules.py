"""Rules of ``specs/ahead.py`` about what lies in which memory: kept, and broken once.

``test_rules.py`` counts them; what is not a strided tensor at all is among them.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from refcompiler.aot import backend, observation, watching, wrapper
from tests.cpu.aot.checks import Checks, fails_without, raw

check = Checks()


@check("other tensors", lambda patch: patch.setattr(backend, "check", lambda *_: None))
def _other_tensors() -> None:
    x = torch.randn(4).to_sparse()
    call, graphs = raw(lambda x: x * 2, x)
    assert torch.equal(call(x).to_dense(), x.to_dense() * 2)
    assert call.fallback == "an input is not a strided tensor" and not graphs


@check("other memory", lambda patch: patch.setattr(observation, "Watching", _unwatched))
def _other_memory() -> None:
    def reach(x: Any) -> Any:
        return x.as_strided((4,), (1,), 0) * 2

    base = torch.arange(8.0)
    call, graphs = raw(reach, base[2:4])
    for x in (base[2:4], torch.arange(20.0)[10:12]):
        assert torch.equal(call(x), reach(x))
    assert call.fallback == "as_strided reaches memory that an input is not said to have"

    refused: dict[str, tuple[Any, list[Any]]] = {
        "set_ gives a tensor other memory than another tensor has": (
            lambda x, y: x.set_(y, 1, (2,), (1,)) * 2,
            [torch.ones(2), torch.arange(4.0)],
        ),
        "set_ gives other memory to an input that was written to before": (
            lambda x, y: (x.add_(1), x.set_(y))[1] * 2,
            [torch.ones(4), torch.arange(4.0)],
        ),
        "resize_ gives a tensor more memory": (
            lambda x, y: x.resize_(8)[:2] + y,
            [torch.ones(2), torch.ones(2)],
        ),
    }
    for reason, (program, examples) in refused.items():
        call, graphs = raw(program, *[t.clone() for t in examples])
        ours, theirs = [[t.clone() for t in examples] for _ in range(2)]
        assert torch.equal(call(*ours), program(*theirs)) and not graphs
        assert [t.shape for t in ours] == [t.shape for t in theirs]
        assert call.fallback == reason


def _unwatched(gm: Any, lifted: Any, inputs: Any) -> Any:
    return watching.Runner(gm, lifted, watching.OBSERVED)


def _unseen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(watching, "shares_elements", lambda t: False)


@check("write over itself", _unseen)
def _write_over_itself() -> None:
    def write(x: Any) -> Any:
        return x.masked_fill_(x > 0, 3) + 1

    call, graphs = raw(write, torch.ones(1).expand(4))
    with pytest.warns(UserWarning, match="expanded"):
        assert torch.equal(call(torch.ones(1).expand(4)), torch.full((4,), 4.0))
    assert call.fallback == "a tensor that is written to overlaps itself" and not graphs

    def windows(x: Any) -> Any:
        y = x + 1
        y.as_strided((3, 3), (1, 1)).mul_(2)
        return y

    x = torch.arange(8.0)
    call, graphs = raw(windows, x)
    assert torch.equal(call(x), windows(x)) and not graphs


def _only_overlaps(patch: pytest.MonkeyPatch) -> None:
    real, found = backend.disjoint, backend.bases_of
    patch.setattr(backend, "disjoint", lambda t, written, saves: real(t, written))
    patch.setattr(backend, "bases_of", lambda t, written, *_: found(t, written))


@check("views of one base", _only_overlaps)
def _views_of_one_base() -> None:
    def program(u: Any, v: Any) -> Any:
        v.add_(1)
        return u.sin()

    call, graphs = raw(program, torch.ones(4, requires_grad=True) * 1, torch.ones(4) * 1)
    leaf = torch.randn(8, requires_grad=True)
    base = leaf * 1
    call(base[:4], base[4:]).sum().backward()
    assert torch.equal(leaf.grad[:4], leaf[:4].cos()) and not leaf.grad[4:].any()
    assert torch.equal(base[4:], leaf[4:] + 1) and len(graphs) == 3  # one of them a backward


def _bits_as_values(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(wrapper, "view_of_bits", lambda t, dtype, *at: t.detach().as_strided(*at))


@check("memory of another dtype", _bits_as_values)
def _memory_of_another_dtype() -> None:
    def program(a: Any, b: Any) -> Any:
        b.add_(1)
        return a + 1, a.view(torch.uint8)[2:], b.view(torch.float64), b

    apart = torch.zeros(12, dtype=torch.int16), torch.zeros(8)
    call, graphs = raw(program, *apart)
    found = []
    for run in (call, program):
        memory = torch.arange(8.0)
        first, *views, same = run(memory.view(torch.int16)[4:], memory)
        views[0].add_(1)
        views[1].mul_(2)
        found.append([first, *views, same, memory])
        assert views[0]._version == memory._version and same is memory
    assert len(graphs) == 2 and call.fallback is None and not call.uncompiled.calls
    for mine, eager in zip(*found, strict=True):
        assert mine.dtype == eager.dtype and mine.stride() == eager.stride()
        assert torch.equal(mine, eager)


@pytest.mark.parametrize("rule", check)
def test_rule(rule: str) -> None:
    check[rule].run()


@pytest.mark.parametrize("rule", check)
def test_without_what_keeps_it(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fails_without(check[rule].run, check[rule].without, monkeypatch)
