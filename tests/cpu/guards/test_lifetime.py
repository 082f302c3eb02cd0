"""Lifetime: what was compiled keeps nothing of the user's alive."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import refcompiler


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("calls", torch.zeros(()))
        self.log: list[Any] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.log.append(x.shape)
        return self.norm(self.linear(x)).relu()


class Breaking(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        if y.sum() > -1e9:
            y = y * 2
        return y.sum()


class Box:
    def __init__(self, k: Any) -> None:
        self.k = k


def compiled(model: Any, **options: Any) -> Any:
    return refcompiler.compile(model, backend="eager", **options)


def watch(objects: dict[str, Any]) -> dict[str, weakref.ref]:
    return {name: weakref.ref(value) for name, value in objects.items()}


def alive(watched: dict[str, weakref.ref]) -> list[str]:
    for _ in range(3):
        gc.collect()
    return [name for name, reference in watched.items() if reference() is not None]


def parts(net: nn.Module) -> dict[str, Any]:
    found: dict[str, Any] = {"module": net}
    found.update(net.named_parameters())
    found.update(net.named_buffers())
    found.update({f"module {name}": m for name, m in net.named_modules() if name})
    return found


def x() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize("cls", [Net, Breaking])
@pytest.mark.parametrize("backward", [False, True])
def test_a_compiled_module_is_freed(cls: type[Net], backward: bool) -> None:
    net = cls()
    model = compiled(net)
    for _ in range(3):
        out = model(x())
        if backward:
            out.sum().backward()
    assert refcompiler.counters()["captures"] > 0
    watched = watch(parts(net))
    assert len(watched) >= 9
    del net, model, out
    assert alive(watched) == []
    # the site is there still, and serves the next module of the class
    other = compiled(cls())
    before = refcompiler.counters()["captures"]
    other(x())
    assert refcompiler.counters()["captures"] == before


def test_arguments_are_freed() -> None:
    tensor, box, net = x(), Box(x()), Net()
    values, table = [x()], {"k": x(), "b": Box(3)}

    class Weak(list):
        pass

    function = compiled(lambda a, b, n, v, t, *rest, **named: n(a * b.k + v[0] + t["k"]) * t["b"].k)
    rest, named = Box(1), Box(2)
    for _ in range(2):
        function(tensor, box, net, values, table, rest, named=named)
    watched = watch(
        {
            "tensor": tensor,
            "box": box,
            "box.k": box.k,
            "item": values[0],
            "entry": table["k"],
            "object": table["b"],
            "rest": rest,
            "named": named,
            **parts(net),
        }
    )
    del tensor, box, net, values, table, rest, named
    assert alive(watched) == []
    assert refcompiler.counters()["captures"] == 1


def test_results_are_freed() -> None:
    function = compiled(lambda a: (a * 2, [a + 1], {"k": a.view(-1)}))
    found = function(x())
    found = function(x())
    watched = watch({"first": found[0], "second": found[1][0], "third": found[2]["k"]})
    del found
    assert alive(watched) == []


def test_captured_objects_are_freed_with_their_function() -> None:
    def make() -> tuple[Callable, dict[str, Any]]:
        box, weight, net = Box(x()), x(), Net()

        def function(a: torch.Tensor, default: Any = box) -> torch.Tensor:
            return net(a * weight + box.k + default.k)

        return compiled(function), {"box": box, "weight": weight, "k": box.k, **parts(net)}

    function, objects = make()
    function(x())
    function(x())
    watched = watch(objects)
    del objects
    assert len(alive(watched)) == len(watched)
    del function
    assert alive(watched) == []


def test_a_callable_object_and_a_method_are_freed() -> None:
    class Runner:
        def __init__(self) -> None:
            self.weight = x()

        def __call__(self, a: torch.Tensor) -> torch.Tensor:
            return a * self.weight

        def method(self, a: torch.Tensor) -> torch.Tensor:
            return a + self.weight

    for get in (lambda runner: runner, lambda runner: runner.method):
        runner = Runner()
        function = compiled(get(runner))
        function(x())
        function(x())
        watched = watch({"runner": runner, "weight": runner.weight})
        del runner, function
        assert alive(watched) == []


def test_what_a_failed_capture_saw_is_freed() -> None:
    class Odd(torch.Tensor):
        pass

    def fails(a: torch.Tensor, box: Box) -> torch.Tensor:
        y = a * box.k
        raise ValueError("as eager")
        return y

    def breaks(a: torch.Tensor, box: Box) -> Any:
        y = a * box.k
        return y.tolist(), box

    function, other = compiled(fails), compiled(breaks)
    tensor, box = x(), Box(x())
    for _ in range(2):
        with pytest.raises(ValueError, match="as eager"):
            function(tensor, box)
        other(tensor, box)
    odd = x().as_subclass(Odd)
    other(odd, box)
    watched = watch({"tensor": tensor, "box": box, "k": box.k, "odd": odd})
    del tensor, box, odd
    assert alive(watched) == []


def test_recompiles_and_the_limit_keep_nothing() -> None:
    function = compiled(lambda a, box, k: a * box.k * k, dynamic=False)
    refs: list[weakref.ref] = []
    with pytest.warns(UserWarning, match="recompile_limit"):
        for i in range(refcompiler.config.recompile_limit + 3):
            box = Box(x())
            refs.append(weakref.ref(box))
            refs.append(weakref.ref(box.k))
            function(x(), box, i)
    del box
    assert alive({str(i): reference for i, reference in enumerate(refs)}) == []


def test_mutated_containers_are_freed() -> None:
    def function(a: torch.Tensor, values: list, table: dict, box: Box) -> torch.Tensor:
        values.append(a * 2)
        table["k"] = a + 1
        box.k = a - 1
        return a

    run = compiled(function)
    values, table, box = [x()], {"j": x()}, Box(0)
    for _ in range(2):
        run(x(), values, table, box)
    watched = watch({"first": values[0], "last": values[-1], "k": table["k"], "box": box})
    watched |= watch({"box.k": box.k, "j": table["j"]})
    del values, table, box
    assert alive(watched) == []
