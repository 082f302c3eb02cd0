"""Writes to some elements: what lasts is written to where it is, and the rest of it stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fastpath
import refcompiler

Function = Callable[..., Any]


def cache_of_keys(c: torch.Tensor, k: torch.Tensor, p: torch.Tensor) -> Any:
    c.index_copy_(1, p, torch.cat([k, k[:1]]))
    return F.softmax(c, 1), c[:, 0] * 2


def one_layer(c: torch.Tensor, k: torch.Tensor, p: torch.Tensor) -> Any:
    c[1].index_copy_(0, p, k[0])
    return c[1].sum(0)


def by_numbers(c: torch.Tensor, k: torch.Tensor, p: torch.Tensor) -> Any:
    c[:2, p] = k * 2
    c[2, 3:5] = k[0]
    return c.sum(-1)


def pairs(c: torch.Tensor, k: torch.Tensor, p: torch.Tensor) -> Any:
    c[0][p, p - 7] = k[0, :, 0]
    c.index_put_((torch.zeros_like(p), p), k[1])
    c[:, :, 3:].index_put_((p % 3, p), k[1, :, 3:])
    return c.exp()


def repeated(c: torch.Tensor, k: torch.Tensor, p: torch.Tensor) -> Any:
    """Of several writes to one place eager's last one lasts."""
    c[:2].index_copy_(1, torch.cat([p, p, p[:1]]), torch.cat([k, -k, k[:, :1] + 3], 1))
    c[:2].scatter_(2, torch.zeros(2, 2, 7, dtype=torch.int64), k[:, :, :7] + 5)
    return c * 2


def slices(c: torch.Tensor, k: torch.Tensor, p: torch.Tensor) -> Any:
    c[:, 1:6:2].add_(1)
    c[0, :, ::2] = 4
    c.select(1, 6).mul_(k[0, 1])
    return c.amax(0)


def filled(c: torch.Tensor, k: torch.Tensor, p: torch.Tensor) -> Any:
    c.index_fill_(2, p, 2.5)
    c.scatter_(1, p.reshape(1, 2, 1).expand(3, 2, 5), -1.0)
    return c - c.mean()


def read_before(c: torch.Tensor, k: torch.Tensor, p: torch.Tensor) -> Any:
    before = c.cumsum(1)
    c[:2].index_copy_(1, p, k)
    return before, c + before


def after_others(c: torch.Tensor, k: torch.Tensor, p: torch.Tensor) -> Any:
    """What reads the old elements does so before the first of the writes, also much later."""
    before = c * 1
    k.add_(2)
    c[0, 0, 0] += 2  # two writes: of the sum, and of the element that has it
    return before * 2, before + 1, k.abs()


def elsewhere(c: torch.Tensor, k: torch.Tensor, p: torch.Tensor) -> Any:
    c[1:] = c[:-1] * 2  # what is written is read where it is written to, of the next
    c.select(1, 6).mul_(c[:, 0])
    return c.sqrt()


def shifted(c: torch.Tensor, k: torch.Tensor, p: torch.Tensor) -> Any:
    c.index_copy_(1, p, c[:, :2] + 1)
    return (c * 3,)


def made_here(c: torch.Tensor, k: torch.Tensor, p: torch.Tensor) -> Any:
    fresh = torch.zeros_like(c)
    fresh[:2].index_copy_(1, p, k)
    fresh[2, 0] = 1
    fresh.scatter_(1, p.reshape(2, 1, 1).expand(2, 1, 8), 3.0)
    return fresh, c.index_copy(1, torch.arange(6), c[:, 1:])


WRITTEN = [cache_of_keys, one_layer, by_numbers, pairs, repeated, slices, filled]
OTHERS = [after_others, read_before, elsewhere, shifted, made_here]


def given(seed: int, dtype: torch.dtype, across: bool) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    c = torch.rand(3, 7, 8, generator=generator) * 4 + 1
    k = torch.rand(2, 2, 8, generator=generator) * 4 + 1
    p = torch.randperm(7, generator=generator)[:2]
    c = c.transpose(1, 2).contiguous().transpose(1, 2) if across else c
    return [c.to(dtype), k.to(dtype), p]


@pytest.mark.parametrize("place, function", [*enumerate([*WRITTEN, *OTHERS])])
def test_elements_have_eagers_values(place: int, function: Function) -> None:
    dtype, across = ((torch.float32, False), (torch.bfloat16, True))[place % 2]
    calls: list[Any] = []

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        calls.append(fastpath.compile_graph(gm, inputs))
        return calls[-1]

    compiled, compared = refcompiler.compile(function, backend=backend), 0
    leaves = torch.utils._pytree.tree_leaves
    for seed in (0, 1, 2):
        ours, theirs = given(seed, dtype, across), given(seed, dtype, across)
        found, expected = leaves(compiled(*ours)), leaves(function(*theirs))
        for a, b in zip([*ours, *found], [*theirs, *expected], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2)
            assert a.stride() == b.stride()
            compared += 1
    assert compared >= 12
    (call,) = calls
    report = call.report
    assert report.fallback is None and report.kernels and not report.reasons, report
    if function in WRITTEN:  # what lasts is not copied
        assert call.launches.count("counted((in") == 1, call.launches
        made = [line for line in call.launches.splitlines() if "= empty((3, 7, 8" in line]
        assert len(made) == sum(t.shape == (3, 7, 8) for t in found), call.launches


def test_positions_that_there_are_not_write_nothing_elsewhere() -> None:
    def function(c: torch.Tensor, p: torch.Tensor, k: torch.Tensor) -> Any:
        c.index_copy_(0, p, k)
        return c * 2

    call = refcompiler.compile(function)
    c, k = torch.zeros(5, 300), torch.ones(2, 300)
    call(c, torch.tensor([1, 2]), k)
    for c in (torch.zeros(5, 300), torch.zeros(5, 300)):
        with pytest.raises(IndexError, match="out of bounds|out of range"):
            call(c, torch.tensor([3, 5]), k)
        with pytest.raises(IndexError):
            function(torch.zeros(5, 300), torch.tensor([3, 5]), k)
        assert int(c.count_nonzero()) == int(c[3].count_nonzero())
    with pytest.raises(IndexError):
        call(c, torch.tensor([-1, 0]), k)


def test_as_many_writes_as_each_call_has() -> None:
    def function(c: torch.Tensor, p: torch.Tensor, k: torch.Tensor) -> Any:
        c.index_copy_(1, p, k)
        c[:, 2 : 2 + k.shape[1]] = k * 2
        return c[:, :5].sum(-1)

    call = refcompiler.compile(function)
    for count in (3, 5, 9, 2, 0, 1):
        places = torch.randperm(20)[:count]
        ours = [torch.randn(3, 20, 8), places, torch.randn(3, count, 8)]
        theirs = [t.clone() for t in ours]
        torch.testing.assert_close(call(*ours), function(*theirs))
        torch.testing.assert_close(ours[0], theirs[0])
        if count == 9:
            report = fastpath.last_report()
            assert report.fallback is None and report.kernels == 3 and not report.reasons, report


def test_costly_pieces_of_short_rows_are_computed_before_they_are_put_together() -> None:
    def function(p: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        angles = p[..., None] * f
        return torch.cat([angles.sin(), angles.cos()], -1).flatten(-2)

    call = refcompiler.compile(function)
    for scale in (1.0, 30.0):
        given = torch.randn(50, 3) * scale, torch.rand(10)
        torch.testing.assert_close(call(*given), function(*given))
    report = fastpath.last_report()
    assert report is not None and report.kernels == 2, report
