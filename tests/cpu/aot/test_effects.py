"""What a program does besides its results stays in a graph that is compiled ahead of time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import refcompiler


def _lookups(x: Any, i: Any, which: int) -> Any:
    made = torch.zeros(3)
    if which == 0:
        x[i]
    elif which == 1:
        x.index_select(0, i)
    elif which == 2:
        x.gather(0, i)
    elif which == 3:
        F.embedding(i, x[:, None])
    elif which == 4:
        x.take(i)
    elif which == 5:
        made.scatter(0, i, 1.0)
    elif which == 6:
        made.index_add(0, i, torch.ones(1))
    else:
        F.cross_entropy(x[None], i)
    return x * 2


@pytest.mark.parametrize("tracked", [False, True])
def test_positions_that_are_not_there_are_errors_though_nothing_reads_what_is_there(
    tracked: bool,
) -> None:
    for which in range(8):
        call = refcompiler.compile(_lookups, backend="aot_eager", fullgraph=True)
        told = []
        for each in (call, _lookups):
            for at in (1, 5):
                x = torch.rand(3, requires_grad=tracked)
                try:
                    told.append(each(x, torch.tensor([at]), which).shape)
                except Exception as error:
                    told.append(f"{type(error).__name__}: {error}")
        assert told[:2] == told[2:] and told[0] == (3,) and isinstance(told[1], str), which
