"""Numbers that Python's ``random`` draws: inputs of the graph, drawn by the program's generator."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

import refcompiler

GENERATOR = random.Random(7)


def floats(x, bad):
    return x * random.random() + random.uniform(1, 2), random.gauss(0, 1)


def integers(x, bad):
    n = random.randint(1, 3)
    return x[:n].sum() + random.randrange(0, 10, 2), n, GENERATOR.getrandbits(5)


def of_an_object(x, bad):
    return x * GENERATOR.random(), GENERATOR.normalvariate(0, 2)


def many(x, bad):
    drawn = [random.random() for _ in range(3)]
    return x * sum(drawn), drawn


def within_c(x, bad):
    drawn = []

    def key(value):
        drawn.append(random.random())
        return value

    return x * sorted([2, 1], key=key)[0], drawn


def branching(x, bad):
    return x * 2 if random.random() < 0.5 else x + random.random()


def over_a_break(x, bad):
    scale = random.random()
    y = x * scale
    torch._dynamo.graph_break()
    return y + scale, random.choice([1, 2, 3])


def from_known_numbers(x, bad):
    first, second = random.sample(range(10), 2)
    order = [1, 2, 3]
    random.shuffle(order)
    weighted = random.choices([0.5, 1.5], weights=[1, 3], k=2)
    y = x * random.choice((0.5, 2.5)) + first * second
    return y[: random.choice([1, 2])], order, weighted, GENERATOR.choice(order[:1] * 0 + [4, 5])


def from_what_is_no_number(x, bad):
    chosen = random.choice([x, x * 2])
    return chosen + 1 if random.choice("ab") == "a" else chosen


def seeded(x, bad):
    first = random.random()
    random.seed(4)
    y = x * first + random.random()
    random.seed("text")
    return torch.linalg.cholesky(torch.eye(2) * (-1 if bad else 1)), y, random.choice([1, 2, 3])


def wrong_populations(x, bad):
    said = []
    for function, given in ((random.choice, []), (random.choice, 3), (random.shuffle, (1, 2))):
        try:
            function(given)
        except (TypeError, IndexError) as error:
            said.append(str(error))
    try:
        random.sample([1], 2)
    except ValueError as error:
        said.append(str(error))
    return x + random.choice([1, 2]), said


def graph_that_raises(x, bad):
    y = x * random.random()
    factor = torch.linalg.cholesky(torch.eye(2) * (-1 if bad else 1))
    return y + random.random(), factor


def program_that_raises(x, bad):
    y = x * random.random()
    if bad:
        raise ValueError(bad)
    return y + random.random()


def wrong_arguments(x, bad):
    try:
        random.randrange(0)
    except ValueError as error:
        return x + random.random(), str(error)


#: And the number of graphs and breaks on the backend "eager".
PROGRAMS: dict[Callable, tuple[int, int]] = {
    floats: (1, 0),
    integers: (1, 0),
    of_an_object: (1, 0),
    many: (1, 0),
    within_c: (1, 0),
    branching: (2, 1),
    from_known_numbers: (1, 0),
    from_what_is_no_number: (2, 2),
    seeded: (2, 0),
    wrong_populations: (1, 3),
    over_a_break: (3, 1),
    graph_that_raises: (2, 0),
    program_that_raises: (2, 1),
    wrong_arguments: (1, 0),
}


def _run(function: Callable) -> list:
    random.seed(3)
    GENERATOR.seed(5)
    found: list = []
    for i in range(4):
        try:
            found.append(repr(function(torch.tensor([1.0, 2.0, 3.0]), i % 2 == 1)))
        except (ValueError, RuntimeError) as error:
            found.append(type(error))
        found += [hash(random.getstate()), hash(GENERATOR.getstate())]
    return found


@pytest.mark.parametrize("backend", ["eager", "reference"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_draws(function: Callable, backend: str) -> None:
    native = _run(function)
    assert _run(refcompiler.compile(function, backend=backend)) == native and len(native) == 12
    counters = refcompiler.counters()
    if backend == "eager":
        assert (counters["graphs"], counters["breaks"]) == PROGRAMS[function]
