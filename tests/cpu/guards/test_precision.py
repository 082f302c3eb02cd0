"""Precision: what cannot change the answer causes no recompile."""

from __future__ import annotations

import collections
import copy
import datetime
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from tests.cpu.guards.history import Compile, Program, check

PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__.strip("_")] = function
    return function


def _x(start: float = 0.0) -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3) + start


class _Box:
    def __init__(self, k: Any, **more: Any) -> None:
        self.k = k
        self.__dict__.update(more)


class _Net(nn.Module):
    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.linear = nn.Linear(3, 3)
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Tanh()])
        self.history: list[int] = []
        self.scale = 2

    def forward(self, x: torch.Tensor, **unused: Any) -> torch.Tensor:
        y = self.linear(x)
        for layer in self.layers:
            y = layer(y)
        return y * self.scale


@program
def fresh_tensors(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x, y: x * y)
    for i in range(4):
        yield f(_x(i), _x(-i))


@program
def unrelated_attributes(compile: Compile) -> Iterator[Any]:
    net = _Net()
    f = compile(net)
    for i in range(4):
        net.note = i
        net.linear.note = [i]
        net.history.append(i)
        yield f(_x(i))


@program
def unrelated_globals(compile: Compile) -> Iterator[Any]:
    scope: dict[str, Any] = {"k": 2, "other": 0, "__name__": "program"}
    exec("def f(x): return x * k", scope)
    f = compile(scope["f"])
    for i in range(4):
        scope["other"] = i
        scope[f"new{i}"] = i
        yield f(_x(i))


@program
def unrelated_attribute_of_the_class(compile: Compile) -> Iterator[Any]:
    class A(_Box):
        unrelated = 0

        def m(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.k

    box = A(2)
    f = compile(lambda x: box.m(x))
    for i in range(4):
        A.unrelated = i
        setattr(A, f"new{i}", i)
        yield f(_x(i))
        delattr(A, f"new{i}")


@program
def unused_argument(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x, unused=None: x + 1)
    for i, value in enumerate((1, "a", None, _x(), [1], object())):
        yield f(_x(i), value)


@program
def argument_that_is_only_returned(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x, value: value if x is None else value)
    x = _x()
    for value in (1, 2, "a", [1], _x(5)):
        yield f(x, value)


@program
def other_keys_of_a_dict_that_is_asked_for_one(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x, options: x * options.get("k", 1) * options["j"])
    for i in range(4):
        yield f(_x(i), {"k": 2, "j": 3, "other": i, f"new{i}": i})


@program
def missing_key_of_a_changing_dict(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x, options: x * options.get("k", 2) + ("j" in options))
    for i in range(4):
        yield f(_x(i), {"other": i, f"new{i}": i})


@program
def other_item_of_a_list(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x, values: x * values[0])
    for i in range(4):
        yield f(_x(i), [2, i, object()])


@program
def list_that_nobody_reads(compile: Compile) -> Iterator[Any]:
    values: list[int] = []
    box = _Box(values)
    f = compile(lambda x: (x * 2, box))
    for i in range(4):
        values.append(i)
        yield f(_x(i))[0]


@program
def truth_of_a_list(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x, values: x * 2 if values else x)
    for i in range(4):
        yield f(_x(i), list(range(i + 1)))


@program
def new_instances_of_one_class(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x, box: x * box.k)
    for i in range(4):
        yield f(_x(i), _Box(2, other=i))


@program
def new_modules_of_one_structure(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x, net: net(x))
    for i in range(4):
        yield f(_x(i), _Net(i))


@program
def modules_of_one_structure_compiled_apart(compile: Compile) -> Iterator[Any]:
    for i in range(4):
        yield compile(_Net(i))(_x(i))


@program
def a_copied_module(compile: Compile) -> Iterator[Any]:
    net = _Net()
    f = compile(lambda x, net: net(x))
    yield f(_x(), net)
    yield f(_x(1), copy.deepcopy(net))


@program
def optimiser_steps(compile: Compile) -> Iterator[Any]:
    net = _Net()
    f = compile(net)
    optimiser = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for i in range(4):
        loss = f(_x(i)).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        yield loss


@program
def loaded_state(compile: Compile) -> Iterator[Any]:
    net = _Net()
    f = compile(net)
    for i in range(4):
        net.load_state_dict(_Net(i).state_dict())
        yield f(_x(i))


@program
def replaced_parameter_of_equal_meta(compile: Compile) -> Iterator[Any]:
    net = _Net()
    f = compile(net)
    for i in range(4):
        net.linear.weight = nn.Parameter(torch.full((3, 3), float(i)))
        yield f(_x(i))


@program
def replaced_child_of_equal_structure(compile: Compile) -> Iterator[Any]:
    net = _Net()
    f = compile(net)
    for i in range(4):
        torch.manual_seed(i)
        net.linear = nn.Linear(3, 3)
        net.layers[0] = nn.Linear(3, 3)
        yield f(_x(i))


@program
def captured_tensor_replaced(compile: Compile) -> Iterator[Any]:
    w = _x()
    f = compile(lambda x: x * w)
    for i in range(4):
        w = _x(i)
        yield f(_x())


@program
def closures_of_equal_contents(compile: Compile) -> Iterator[Any]:
    def make(k: Any) -> Any:
        return lambda x: x * k

    f = compile(lambda x, g: g(x))
    for i in range(4):
        yield f(_x(i), make(2))


@program
def equal_strings_and_numbers(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x, mode, k: x * k if mode == "ab" else x)
    for i in range(4):
        yield f(_x(i), "".join(["a", "b"]), int("12345"))


@program
def data_of_a_tensor(compile: Compile) -> Iterator[Any]:
    x = _x()
    f = compile(lambda: x * 2)
    for _ in range(4):
        x.add_(1)
        yield f()


@program
def state_left_and_entered_again(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x: x * 2)
    for i in range(4):
        yield f(_x(i))
        with torch.no_grad():
            pass
        torch.manual_seed(i)


@program
def namespace_objects(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x, n: x * n.k)
    for i in range(4):
        yield f(_x(i), types.SimpleNamespace(k=2, other=i))


@program
def keyword_that_goes_nowhere(compile: Compile) -> Iterator[Any]:
    f = compile(_Net())
    for i in range(3):
        yield f(_x(i), extra=7)


@program
def ordered_dict_by_key(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x, values: x * values["k"])
    for i in range(3):
        yield f(_x(i), collections.OrderedDict(k=2, other=i))


@program
def other_keys_of_a_dict_that_makes_its_items(compile: Compile) -> Iterator[Any]:
    values = collections.defaultdict(int, k=2)
    f = compile(lambda x: x * values["k"] + ("j" in values))
    for i in range(4):
        values[f"new{i}"] = i
        yield f(_x(i)), dict(values)


@program
def truth_of_what_is_always_true(compile: Compile) -> Iterator[Any]:
    f = compile(lambda x, value: x * 2 if value else x)
    for day in range(1, 4):
        yield f(_x(day), datetime.datetime(2020, 1, day))


@program
def attribute_of_a_class_that_is_handed_on(compile: Compile) -> Iterator[Any]:
    class Box:
        kept: Any = [1]

    f = compile(lambda x, box: (x * 2, box.kept))
    for kept in ([1], (2, 3), {"k": 1}, torch.ones(2), "text"):
        Box.kept = kept
        yield f(_x(), Box())


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_cannot_matter_compiles_once(name: str) -> None:
    played = check(PROGRAMS[name])
    assert played.steps >= 2
    assert played.recompiles == 0, played.reasons
    assert not played.fallbacks


def _changing_argument(compile: Compile) -> Iterator[Any]:
    """A history that does recompile, so that the count above is known to count."""
    f = compile(lambda x, k: x * len(k))
    for i in range(3):
        yield f(_x(i), "ab" * i)


def test_items_that_a_dict_makes() -> None:
    def made(compile: Compile) -> Iterator[Any]:
        values = collections.defaultdict(lambda: 3, k=2)

        def change(x: torch.Tensor, key: str) -> torch.Tensor:
            return x * values[key] + values["k"]

        f = compile(change)
        for key in ("k", "j", "j", "k"):
            yield f(_x(), key), dict(values)
        values["k"] = 5
        yield f(_x(), "k"), dict(values)
        del values["j"]
        yield f(_x(), "j"), dict(values)

    assert check(made).recompiles == 4


def test_what_matters_compiles_again() -> None:
    played = check(_changing_argument)
    assert played.recompiles == 2
    assert all("k: expected" in reason and "found" in reason for reason in played.reasons)
