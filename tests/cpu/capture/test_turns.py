"""Loops that break in each turn: what they write and say at its number serves all turns."""

from __future__ import annotations

import io
import logging
from typing import Any

import numpy as np
import pytest
import torch

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
log = logging.getLogger("turns")

#: Turns that are more than a function may be compiled for.
TURNS = 12


def twice(make: Any) -> list[Any]:
    return [(torch.arange(4.0), make()), (torch.arange(4.0) + 1, make())]


def _kept(make: Any) -> Any:
    def f(x, losses):
        for i in range(TURNS):
            losses[i] = (x * x).mean().item()
            x = x * 0.9
        return x, losses

    return f, twice(make)


@cases(graphs=4, breaks=3, recompiles=2)
def losses_in_a_list() -> Any:
    return _kept(lambda: [None] * TURNS)


@cases(graphs=4, breaks=3, recompiles=2)
def losses_in_a_dict() -> Any:
    return _kept(dict)


@cases(graphs=4, breaks=3, recompiles=2)
def losses_in_an_array() -> Any:
    return _kept(lambda: np.zeros(TURNS))


@cases(graphs=4, breaks=3, recompiles=2)
def numbers_of_arrays() -> Any:
    def f(x, rates):
        kept = np.zeros((2, TURNS), np.float32)
        for i in range(TURNS):
            torch._dynamo.graph_break()
            kept[1, i] = i
            kept[0, i] = rates[i]
            x = x * rates[i]
        return x, kept

    return f, twice(lambda: np.linspace(0.5, 1.0, TURNS))


@cases(graphs=5, breaks=3, recompiles=3)
def a_list_that_is_read_behind() -> Any:
    def f(x, losses):
        for i in range(TURNS):
            losses[i] = (x * x).mean().item()
            if i == TURNS - 1:
                losses[0] = losses[i], losses[-2], len(losses)
            x = x * 0.9
        return x, losses

    return f, twice(lambda: [None] * TURNS)


@cases(graphs=6, breaks=4, recompiles=4)
def lists_that_are_extended() -> Any:
    def f(x, found):
        every = []
        for _ in range(TURNS):
            found.extend((x * x).tolist())
            every += ()
            every += [1, x[0]]
            x = x * 0.9
        return x, found, every

    return f, twice(list)


@cases(graphs=4, breaks=6, recompiles=3)
def texts_of_turns() -> Any:
    def f(x, unused):
        for i in range(TURNS):
            loss = (x * x).mean()
            print(f"step {i:03d} of {TURNS}: {loss.item():.4f} {unused!r}")
            print("%d%% %5.1f" % (i, 0.5), "{:>4}|{}".format(i, i + 1), "at " + str(i) + "!")
            x = x * 0.9
        return x

    return f, twice(lambda: None)


@cases(graphs=4, breaks=3, recompiles=2)
def texts_that_are_kept() -> Any:
    def f(x, lines):
        for i in range(TURNS):
            loss = (x * x).mean().item()
            lines.append(f"{i}: {loss:.3f}")
            log.warning(f"turn {i}")
            x, told = x * 0.9, {"turn": f"{i}", "loss": [str(loss)]}
        return x, told

    log.handlers[:], log.propagate = [logging.StreamHandler(said := io.StringIO())], False
    return f, twice(list), [said]


@cases(graphs=3, breaks=3, recompiles=2)
def texts_that_are_read() -> Any:
    def f(x, known):
        for i in range(3):
            torch._dynamo.graph_break()
            text = f"turn {i}"
            known[text] = x, text is text, text == "turn 2", len(text), text[-1:]
            x = x * len(f"{i}" + "0" * i)
        return x, known

    return f, twice(dict)


@pytest.mark.parametrize("case", cases, ids=str)
def test_turns(case: Case) -> None:
    assert check(case) > 20
