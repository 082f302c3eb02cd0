"""What a program does besides its results stays in a graph that is compiled ahead of time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fastpath
import refcompiler

#: Of integers of which one may be out of the bounds of 3, and results that nobody reads.
UNREAD: dict[str, Callable[[Any, Any], Any]] = {
    "index": lambda x, i: x[i],
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i),
    "embedding": lambda x, i: F.embedding(i, x[:, None]),
    "take": lambda x, i: x.take(i),
    "scatter": lambda x, i: torch.zeros(3).scatter(0, i, 1.0),
    "index_add": lambda x, i: torch.zeros(3).index_add(0, i, x),
    "index_put": lambda x, i: x.index_put((i,), x.new_ones(())),
    "max_unpool1d": lambda x, i: F.max_unpool1d(x[None], i[None], 1),
    "embedding_bag": lambda x, i: F.embedding_bag(i, x[:, None], i[:1] * 0),
    "cross_entropy": lambda x, i: F.cross_entropy(x.expand(3, 3), i),
    "floor_divide": lambda x, i: i // (5 - i),
    "remainder": lambda x, i: 7 % (i - 5),
    "fmod": lambda x, i: torch.fmod(i, 5 - i),
    "put": lambda x, i: x.put(i, x),
    "index_reduce": lambda x, i: torch.zeros(3).index_reduce(0, i, x, "amax"),
    "searchsorted": lambda x, i: torch.searchsorted(x, x, sorter=i),
    "segment_reduce": lambda x, i: torch.segment_reduce(x, "sum", lengths=i),
    "multi_margin_loss": lambda x, i: F.multi_margin_loss(x.expand(3, 3), i),
    "multilabel_margin_loss": lambda x, i: F.multilabel_margin_loss(x[None], i[None]),
    "masked_scatter": lambda x, i: x.masked_scatter(i > 2, x[:0]),
    "lu_unpack": lambda x, i: torch.lu_unpack(torch.eye(3), i.int() + 1),
    "lu_solve": lambda x, i: torch.linalg.lu_solve(torch.eye(3), i.int() + 1, x[:, None]),
    "cholesky": lambda x, i: torch.cholesky((5 - i).float().diag()),
    "eigh": lambda x, i: torch.linalg.eigh(torch.eye(3) * ((i - 5) / (5 - i))[-1]),
    "svdvals": lambda x, i: torch.linalg.svdvals(torch.eye(3) * ((i - 5) / (5 - i))[-1]),
}
#: Of no elements, which have no greatest one.
EMPTY: dict[str, Callable[[Any], Any]] = {
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "max along": lambda x: x.max(0),
    "min along": lambda x: x.view(0, 2).min(0, keepdim=True),
    "mode": lambda x: x.mode(),
    "median": lambda x: x.median(0),
    "nanmedian": lambda x: x.nanmedian(0),
    "argmax": lambda x: x.argmax(),
    "amin": lambda x: x.amin(0),
}
#: Of which a part is read, without the last one.
PARTLY: dict[str, Callable[[Any, Any], Any]] = {
    "rows": lambda x, i: x[i][:2].sin(),
    "embedding": lambda x, i: F.embedding(i, x.expand(2, 3).t())[:-1].exp().sum(),
    "two": lambda x, i: torch.outer(x, x)[i, i][:1] * 2,
    "a chain": lambda x, i: (x[i] + x)[1] * 3,
    "quotients": lambda x, i: (i // (5 - i))[:2],
    "cut off": lambda x, i: F.pad(x.gather(0, i), (1, -1)),
    "beside another": lambda x, i: torch.cat([x[i], x])[3:] + x,
}
#: Where all of it is, in some order.
WHOLE: dict[str, Callable[[Any, Any], Any]] = {
    "as it is": lambda x, i: x[i] + 1,
    "reduced": lambda x, i: x[i].sum(),
    "folded": lambda x, i: x[torch.stack([i, i])].view(3, 2).t() * torch.ones(3),
    "padded": lambda x, i: F.pad(x[i], (1, 2)),
    "joined": lambda x, i: torch.cat([x[i], x]) * 2,
    "columns": lambda x, i: torch.outer(x, x)[i][:, :2] * 2,
    "backwards": lambda x, i: x[i].flip(0) * 3,
}


def _told(call: Any, program: Any, at: int, tracked: bool) -> Any:
    x = torch.rand(3, requires_grad=tracked)
    try:
        return call(program, x, torch.tensor([0, 1, at])).shape
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _unread(program: Any, x: Any, i: Any) -> Any:
    program(x, i)
    return x * 2


def _partly(program: Any, x: Any, i: Any) -> Any:
    return program(x, i)


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
@pytest.mark.parametrize("tracked", [False, True])
def test_what_is_not_there_is_an_error_though_nothing_reads_it(backend: str, tracked: bool) -> None:
    programs = [(_unread, UNREAD[name]) for name in UNREAD]
    if not tracked:
        programs += [(_partly, PARTLY[name]) for name in PARTLY]
    for function, program in programs:
        call = refcompiler.compile(function, backend=backend, fullgraph=True)
        found = [[_told(each, program, at, tracked) for at in (2, 5)] for each in (call, function)]
        assert found[0] == found[1] and isinstance(found[1][1], str), (found, program)
        refcompiler.reset()


@pytest.mark.parametrize("backend", ["aot_eager", "fastpath"])
def test_a_choice_among_nothing_is_an_error_though_nothing_reads_it(backend: str) -> None:
    for name, choose in EMPTY.items():

        def program(x: Any) -> Any:
            choose(x[:0])  # noqa: B023
            return x * 2

        told = []
        for call in (refcompiler.compile(program, backend=backend), program):
            with pytest.raises((RuntimeError, IndexError)) as error:
                call(torch.rand(3))
            told.append((error.type, str(error.value)))
        assert told[0] == told[1], name
        refcompiler.reset()


def test_nothing_is_looked_at_twice() -> None:
    """Where all positions are read, nothing but what reads them looks at them."""
    for name, program in WHOLE.items():
        call = refcompiler.compile(program, backend="fastpath", fullgraph=True)
        x, i = torch.rand(3), torch.tensor([2, 0, 1])
        torch.testing.assert_close(call(x, i), program(x, i))
        made = fastpath.last_report()
        assert made.fallback is None and made.kernels == 1, (name, str(made))
        with pytest.raises(IndexError, match="index 3 is out of bounds"):
            call(x, i + 1)
        refcompiler.reset()
