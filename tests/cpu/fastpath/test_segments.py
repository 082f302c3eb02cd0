"""Loops cut where pieces begin and end: eager's bits, whatever the loop is over."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fastpath
import refcompiler
from fastpath.cpu import segments, short

aten = torch.ops.aten


def values(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    x = (torch.arange(torch.Size(shape).numel()) * 37 % 23 - 11).reshape(shape)
    if dtype is torch.bool:
        return x > 0
    x = x.to(dtype)
    if dtype.is_floating_point:
        flat = x.view(-1)
        flat[0], flat[-1], flat[len(flat) // 2] = -0.0, torch.nan, torch.inf
    return x


def joined(x: Any, y: Any) -> Any:
    z = x[:, :3]
    return (
        torch.cat((x, y, z, y), 1),
        torch.cat((y.t(), x.t(), z.t())),
        F.pad(x, (1, 2, 3, 0), value=1),
        aten.slice_backward(x, [x.shape[0], 2 * x.shape[1] + 3], 1, 1, 2 * x.shape[1] + 1, 2),
        torch.cat((x, y), 1).flip(1),
        torch.cat((x, y), 1).amax(1),
    )


def agree(function: Callable[..., Any], *inputs: torch.Tensor) -> list[str]:
    """Eager's bits but for the payloads of nan; returns the kernels' sources."""
    with torch.no_grad():
        run = fastpath.compile_graph(torch.fx.symbolic_trace(function), list(inputs))
        found, expected = run(*inputs), function(*inputs)
    assert run.report.fallback is None and not run.report.aten_calls, run.report
    assert len(found) == len(expected) > 0
    for a, b in zip(found, expected, strict=True):
        assert (a.dtype, a.stride()) == (b.dtype, b.stride())
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(torch.signbit(a), torch.signbit(b)) or a.isnan().any()
    sources: list[str] = run.kernel_sources
    return sources


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [(torch.float32, 61), (torch.bfloat16, 130), (torch.int16, 64), (torch.bool, 70)],
    ids=str,
)
def test_pieces(dtype: torch.dtype, wide: int) -> None:
    sources = agree(joined, values(dtype, 5, wide), values(dtype, 5, 7))
    assert any(text.count(" in range(") > 3 for text in sources)


def test_conditions_of_other_loops_stay() -> None:
    def padded(x: Any) -> Any:
        pooled = F.avg_pool2d(x, 3, 2, 1)
        return pooled * 2, F.pad(x.mT, (3, 1, 2, 2)), torch.cat((x, x[:, :2] + 1), 1)

    agree(padded, values(torch.float32, 2, 5, 140).div(4))


def test_what_is_not_0_outside_is_asked_once_for_a_row() -> None:
    def pooled(x: Any) -> Any:
        return F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, (3, 2), 1, 1)

    sources = agree(pooled, values(torch.float32, 8, 9, 15, 17))
    assert len(sources) == 2
    for text, left in zip(sources, (6, 4), strict=True):
        inside, *outside = re.split("elif .*:|else:", text)
        assert "guarded" not in inside and inside.count(" in range(") > 3
        assert len(outside) == 2
        for rows in outside:  # which have less to ask: of each window, what lies beside it
            assert "guarded" in rows and rows.count(" in range(") == 1
            assert rows.count("load_") == left
    (small,) = agree(lambda x: (F.max_pool2d(x, 3, 2, 1),), values(torch.float32, 1, 5, 9, 17))
    assert "else:" not in small
    # Rows of less than a vector are cut, too: what has branches takes one element after the other.
    (short,) = agree(lambda x: (F.max_pool2d(x, 3, 1, 1),), values(torch.float32, 16, 32, 7, 7))
    assert "guarded" not in short.split("elif")[0] and short.count(" in range(") > 5


def test_a_border_is_filled_without_asking() -> None:
    x, y = values(torch.float32, 8, 33, 70), values(torch.float32, 8, 40, 70)
    for value in (0.0, 2.0):
        (source,) = agree(lambda x: (F.pad(x, (1, 1, 1, 2), value=value) * 2,), x)  # noqa: B023
        inside, border = source.split("else:")
        assert "guarded" not in source and inside.count("load_") == 1 and "load_" not in border
    (source,) = agree(lambda x, y: (torch.cat((x, y), 1).mT.contiguous() + 1,), x, y)
    assert "guarded" not in source
    (source,) = agree(lambda x, y: (torch.cat((x[:2, :, :67], y[2:5, :33, :67])) + 1,), x, y)
    assert "guarded" not in source and "elif" not in source


def test_the_cases_of_two_loops() -> None:
    """One case has the facts of each pair of places, and these are what comparisons are there."""
    from fastpath.ir.expr import Expr, const, inside
    from fastpath.ir.index import Axis, variable
    from fastpath.ir.pieces import both, within

    row, column, lane = Axis(9), Axis(12), Axis(70)

    def read(up: int, left: int) -> Expr:
        place = variable(row) + up, variable(column) * 2 + left
        asked = both(within(place[0], 0, 9), within(place[1], 0, 23))
        guarded = Expr("guarded", ("x", variable(lane), asked), "float32")
        return Expr("where", (asked, guarded, const(1.0, "float32")), "float32")

    def truth(e: Expr, at: tuple[int, int]) -> bool:
        (index,) = e.args[0].args
        value = index.const + index.coefficient(row) * at[0] + index.coefficient(column) * at[1]
        limit = e.args[1].args[0]
        return bool(value < limit if e.op == "lt" else value >= limit)

    values = [read(up, left) for up in (-2, 0, 1) for left in (-1, 1)]
    found = segments.cases(values, lane, 1 << 20)
    assert len(found) > 3 and found[0].often and not found[-1].tests
    counted = [0] * len(found)
    for at in ((r, c) for r in range(9) for c in range(12)):
        number = next(n for n, case in enumerate(found) if all(truth(e, at) for e in case.tests))
        counted[number] += 1
        assert all(truth(e, at) == known for e, known in found[number].facts.items()), at
    assert all(counted) and counted[0] == 6 * 10
    compared = {e for e in inside(values) if e.op in ("lt", "ge")}
    assert set(found[0].facts) == compared


def test_what_is_stacked_behind_a_border() -> None:
    """As the gradient of three views of one tensor, of which two are read behind a border: what is
    in front of it is in the first view's part all the same."""

    def program(g: Any, c: Any, a: Any, b: Any) -> Any:
        first = g * 0.5 + F.pad(g[:, 1:] * c, (0, 0, 1, 0))
        last = F.pad(torch.cat((a, b), -1), (0, 0, 1, 0))
        return (torch.stack((first, torch.zeros_like(g), last), 2),)

    small = [values(torch.float32, 4, 4, 64) for _ in range(2)]
    agree(program, values(torch.float32, 4, 5, 128), values(torch.float32, 4, 4, 128), *small)


@pytest.mark.parametrize(
    ("dtype", "masked"),
    [(torch.float32, True), (torch.int8, False), (torch.bfloat16, False), (torch.float16, False)],
    ids=str,
)
def test_masks_are_for_words_of_short_rows(dtype: torch.dtype, masked: bool) -> None:
    for wide, masks in ((14, masked), (40, False)):
        x = values(dtype, 32, 14, wide * 4)[..., :wide].contiguous().repeat(8, 1, 1)
        (source,) = agree(lambda x: (F.pad(x, (1, 1, 1, 1)) + 1,), x)
        assert ("guarded" in source) == masks
        assert ("else:" not in source) == masks


def test_many_pieces_are_a_kernel_where_the_loop_is_over_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(short, "lanes", lambda: 0)  # each piece is one loop
    x = torch.randn(3, 90)
    many = [(slice(None), slice(n, n + 1 + 3 * n)) for n in range(14)]
    (source,) = agree(lambda x: (torch.cat([x[at] for at in many], 1) * 2,), x)
    assert source.count("for a1 in range(") == 14 and "guarded" not in source


def test_places_at_which_comparisons_change() -> None:
    from fastpath.ir.elementwise import apply
    from fastpath.ir.expr import const, position
    from fastpath.ir.index import Axis, variable

    axis = Axis(100)
    compared = 0
    for op, step, begin, limit in (
        (op, step, begin, limit)
        for op in ("lt", "le", "gt", "ge")
        for step in (1, 2, 3)
        for begin in (-5, 0, 4)
        for limit in (-7, 0, 1, 8, 299, 500)
    ):
        e = apply(op, position(variable(axis) * step + begin), const(limit, "int64"))
        change = segments._change(e, axis)
        assert change is not None
        for at in range(100):
            value = step * at + begin
            truth = {"lt": value < limit, "le": value <= limit, "gt": value > limit}.get(
                op, value >= limit
            )
            assert segments._facts({e: change}, at, at + 1)[e] == truth, (e, at, change)
            compared += 1
    assert compared == 100 * 4 * 3 * 3 * 6


def test_a_position_that_is_data_raises_only_where_it_is_read() -> None:
    x, i = torch.randn(4, 70), torch.tensor([1, 9, 2])
    refcompiler.reset()
    run = refcompiler.compile(
        lambda x, i: torch.cat((x, x[i]), 0).mT.contiguous() + 1, backend="fastpath"
    )
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        run(x, i)
    torch.testing.assert_close(run(x, i % 4), torch.cat((x, x[i % 4])).mT + 1)
