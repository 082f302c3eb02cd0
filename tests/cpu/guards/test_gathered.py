"""Lists and tuples of what tensors had, that a loop with breaks makes longer: of any length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import refcompiler

TABLE = torch.randn(9, 9, generator=torch.Generator().manual_seed(0))
CALLS = 6


def beams(k: int) -> Any:
    found = [((k,), 0.0)]
    for _ in range(4):
        longer = []
        for tokens, score in found:
            top = torch.log_softmax(TABLE[tokens[-1]], -1).topk(3)
            for value, token in zip(top.values.tolist(), top.indices.tolist(), strict=True):
                longer.append((tokens + (token,), score + value))
        longer.sort(key=lambda pair: -pair[1])
        found = longer[:3]
    return found


def path(k: int) -> Any:
    rows = [TABLE[i] for i in range(k, 9)]
    steps = [k]
    for row in rows:
        steps.append((row + steps[-1]).argmax().item())
    steps.reverse()
    return steps, rows[0] * 2


def kept(k: int) -> Any:
    order, keep = torch.arange(8 + k), []
    while order.numel() > 0:
        keep.append(order[0].item())
        if order.numel() == 1:
            break
        rest = order[1:]
        order = rest[rest % (k + 2) > 0]
    return torch.tensor(keep), order


HISTORY: list[float] = []


def mean_so_far(k: int) -> Any:
    loss = (TABLE[k] ** 2).mean()
    HISTORY.append(loss.item())
    y = loss * (sum(HISTORY) / len(HISTORY))
    return y + 1, len(HISTORY), min(HISTORY), torch.tensor(HISTORY).max()


def until_enough(k: int) -> Any:
    tokens = [k]
    while len(tokens) < 4 + k:
        y = TABLE[torch.tensor(tokens)].mean(0)
        tokens.append(int(y.argmax()))
    return tokens, y


@pytest.mark.parametrize("program", [beams, path, kept, mean_so_far, until_enough])
def test_no_length_is_too_much(program: Callable[[int], Any]) -> None:
    refcompiler.reset()
    seen = []
    for call in (program, refcompiler.compile(program, backend="eager")):
        HISTORY.clear()
        found = [call(k) for k in range(CALLS)]
        seen.append(str([*map(plain, found)]))
    assert seen[0] == seen[1]
    counts = refcompiler.counters()
    assert counts["fallbacks"] == 0 and counts["graphs"] > 1


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return [*map(plain, value)] if isinstance(value, (list, tuple)) else value


def test_items_from_the_end_and_what_was_appended() -> None:
    """At other lengths another item is the last one; out of range is out of range."""

    def program(x: torch.Tensor, items: list[Any]) -> Any:
        print(end="")
        items.append(x.sum())
        first, last = items[0], items[-1]
        before = items[-2] if len(items) > 2 else None
        try:
            items[3]
            told = "four"
        except IndexError as error:
            told = str(error)
        return first * 1, last + 1, before, told, len(items)

    compiled = refcompiler.compile(program, backend="eager")
    for items in ([1.0], [1.0, 2.0], [3.0, 2.0, 1.0], [5.0, 6.0], [1.0, 2.0, 3.0, 4.0]):
        mine, x = list(items), torch.ones(2)
        found, expected = compiled(x, mine), program(x, items)
        assert plain(found) == plain(expected)
        assert plain(mine) == plain(items)
