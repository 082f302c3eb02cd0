"""Generators whose last owner the program drops: what is left of them runs there, as in eager."""

from __future__ import annotations

import collections
import functools
import itertools
from typing import Any

import pytest
import torch

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()


@pytest.mark.parametrize("case", cases, ids=str)
def test_the_end_of_a_generator(case: Case) -> None:
    assert check(case) > 10


class Holder:
    def __init__(self, held: Any):
        self.held = held

    def step(self) -> Any:
        return next(self.held)


class Slotted:
    __slots__ = ("held",)

    def __init__(self, held: Any):
        self.held = held


class Listed(list):
    pass


class Entered:
    """A context manager that a generator does the work of, and that never closes it."""

    def __init__(self, generator: Any):
        self.generator = generator

    def __enter__(self) -> Any:
        return next(self.generator)

    def __exit__(self, *error: Any) -> bool:
        return False


def told(log: list, x: Any, name: str = "closed") -> Any:
    try:
        yield x + 1
        yield x + 2
    finally:
        log.append(name)


def program(take: Any) -> Any:
    """A case: what ``take(log, x)`` gives, and what it says before, meanwhile and behind."""

    def made() -> Any:
        log: list[str] = []

        def f(x: Any) -> Any:
            found = take(log, x)
            log.append("behind")
            return found * 2

        return f, [(torch.ones(2),), (torch.full((2,), 3.0),)], log

    made.__name__ = made.__qualname__ = take.__name__
    made.__module__ = take.__module__
    return made


def ends(**counts: int) -> Any:
    """``take`` as a program, in one graph unless ``counts`` says otherwise."""
    return lambda take: cases(**counts)(program(take))


@ends()
def deleted_with_its_holder(log, x):
    holder = Holder(told(log, x))
    y = holder.step()
    del holder
    log.append("after")
    return y


@ends()
def with_the_frame_that_held_it(log, x):
    def inner():
        holder = Holder(told(log, x))
        return holder.step()

    y = inner()
    log.append("after")
    return y


@ends()
def with_the_attribute_assigned(log, x):
    holder = Slotted(told(log, x))
    y = next(holder.held)
    holder.held = None
    log.append("after")
    return y


@ends()
def two_one_after_the_other(log, x):
    first, second = Holder(told(log, x, "one")), Holder(told(log, x, "two"))
    y = first.step() + second.step()
    second = None
    log.append("between")
    first = second
    log.append("after")
    return y


@ends()
def below_an_enumeration(log, x):
    for _, y in enumerate(told(log, x)):
        break
    log.append("after")
    return y


@ends()
def below_a_zip_that_ends_first(log, x):
    found = [a * b for a, b in zip([2], told(log, x), strict=False)]
    log.append("after")
    return found[0]


@ends()
def below_a_map(log, x):
    items = map(lambda v: v * 3, told(log, x))
    y = next(items)
    items = None
    log.append("after")
    return y


@ends()
def below_a_slice_and_a_chain(log, x):
    (y,) = itertools.islice(told(log, x, "sliced"), 1)
    items = itertools.chain(told(log, x, "chained"), [x])
    y = y + next(items)
    del items
    log.append("after")
    return y


@ends()
def in_a_list_of_a_class(log, x):
    held = Listed([told(log, x)])
    y = next(held[0])
    del held
    log.append("after")
    return y


@ends()
def in_what_a_deque_pushes_out(log, x):
    held = collections.deque([Holder(told(log, x))], maxlen=1)
    y = held[0].step()
    held.append(None)
    log.append("after")
    return y


@ends()
def in_a_partial_and_in_a_closure(log, x):
    step = functools.partial(next, told(log, x, "partial"))
    generator = told(log, x, "closure")
    other = Holder(lambda: next(generator))
    y = step() + other.held()
    step = None
    log.append("between")
    generator = other = None
    log.append("after")
    return y


@ends()
def in_holders_that_swap(log, x):
    first, second = Holder(told(log, x, "one")), Holder(told(log, x, "two"))
    y = first.step() + second.step()
    first.held, second.held = second.held, first.held
    del first
    log.append("after")
    return y


@ends()
def in_a_context_manager(log, x):
    with Entered(told(log, x)) as y:
        y = y * 2
    log.append("after")
    return y


@ends()
def whose_dict_is_held_on(log, x):
    holder = Holder(told(log, x))
    y, fields = holder.step(), holder.__dict__
    del holder
    log.append("between")
    del fields
    log.append("after")
    return y


@ends(graphs=3, breaks=2)  # the graph ends before what ends it
def behind_a_break(log, x):
    holder = Holder(told(log, x))
    y = holder.step()
    torch._dynamo.graph_break()
    y = y + 1
    holder = None
    log.append("after")
    return y


@ends(graphs=3, breaks=2)
def dead_behind_a_break(log, x):
    holder = Holder(told(log, x))
    y = holder.step()
    torch._dynamo.graph_break()
    y = y + 1
    log.append("after")
    return y
