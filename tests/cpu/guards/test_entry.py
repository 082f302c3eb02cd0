"""The entry of a plan: what is printed from the guards says what each of them says."""

from __future__ import annotations

import builtins
import copy
import functools
import keyword
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import refcompiler
from refcompiler.guards.kinds import KINDS, NAMESPACE, Guard
from refcompiler.plan.build import MISS, Plan
from refcompiler.plan.entry import arranged
from refcompiler.runtime import counters
from refcompiler.runtime.api import Compiler, wrapped
from refcompiler.runtime.failing import failure, read


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(5)])
        self.norm = nn.LayerNorm(4)
        self.register_buffer("shift", torch.ones(4))
        self.register_buffer("mask", torch.ones(4, 6)[:, ::2])
        self.register_buffer("phase", torch.ones(3, dtype=torch.complex64))
        self.steps = [1, 2.0, "three"]

    def forward(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x) * scale
        x = self.norm(x) + self.shift + self.mask.sum() + self.phase.real.sum()
        return x * self.steps[0] if self.steps[2] == "three" else x


def planned(model: nn.Module, *args: Any) -> Plan:
    """The plan of ``model`` for these arguments."""
    plans: list[Plan] = []
    wrapped(model, Compiler(lambda graph, inputs: graph.forward, False, plans.append), copy.copy)(
        *args
    )
    (plan,) = plans
    return plan


def arguments(plan: Plan, model: nn.Module, *args: Any) -> dict[str, Any]:
    from refcompiler.runtime.module import call_module

    return dict(zip(plan.parameters, (call_module, model, args, {}), strict=True))


def holds(guard: Guard, given: dict[str, Any]) -> bool:
    """The guard by its plain meaning, where what raises does not hold."""
    try:
        value = None if guard.source is None else read(guard.source, given)
        return bool(KINDS[guard.kind].check(value, guard.wanted(lambda s: read(s, given))))
    except Exception:
        return False


def _data(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], None]:
    def apply(net: Any) -> None:
        tensor = net.get_parameter(name) if "." in name else getattr(net, name)
        tensor.data = change(tensor.data)

    return apply


#: What happens to a module between two calls.
CHANGES: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda net: None,
    "other values": lambda net: net.layers[0].weight.data.zero_(),
    "dtype of a weight": _data("layers.3.weight", torch.Tensor.double),
    "dtype of all": lambda net: net.half(),
    "shape of a weight": _data("layers.4.weight", lambda t: t[:2]),
    "rank of a bias": _data("layers.0.bias", lambda t: t[None]),
    "strides of a weight": _data("layers.1.weight", lambda t: t.t()),
    "strides of a buffer": _data("mask", torch.Tensor.contiguous),
    "conjugate": _data("phase", torch.Tensor.conj),
    "device of a weight": lambda net: net.layers[2]._parameters.update(
        weight=nn.Parameter(torch.ones(4, 4, device="meta"))
    ),
    "a frozen weight": lambda net: net.layers[2].weight.requires_grad_(False),
    "class of a weight": lambda net: setattr(net.layers[2], "weight", None),
    "a buffer for a weight": lambda net: net.layers[1]._parameters.update(bias=torch.ones(4)),
    "a new layer": lambda net: net.layers.append(nn.Linear(4, 4)),
    "another layer": lambda net: net.layers.__setitem__(1, nn.Identity()),
    "a hook": lambda net: net.layers[3].register_forward_hook(lambda *args: None),
    "a shadowed method": lambda net: setattr(net.layers[4], "forward", lambda x: x),
    "an attribute in front": lambda net: net.__dict__.update(shift=2.0),
    "class of a layer": lambda net: setattr(net.layers[0], "__class__", nn.Bilinear),
    "a constant": lambda net: net.steps.__setitem__(0, 3),
    "class of a constant": lambda net: net.steps.__setitem__(0, True),
}


@pytest.fixture(scope="module")
def compiled() -> tuple[Plan, list[Callable]]:
    """A plan for modules of the class, and each of its guards as a function."""
    plan = planned(Net(), torch.ones(2, 4))
    functions = []
    for guard in plan.guards:
        entry = plan.entry._replace(guards=[guard], needed=[])
        lines = entry.lines(plan.writer.name, plan.writer.constant)
        body = ["try:", "    pass", *["    " + line for line in lines]]
        body += ["except Exception:", "    return __MISS"]
        functions.append(plan.writer.function(plan.parameters, body, "test"))
    return plan, functions


@pytest.mark.parametrize("name", CHANGES)
def test_printed_guards_hold_as_their_rows_say(
    name: str, compiled: tuple[Plan, list[Callable]]
) -> None:
    """One by one, and all of them together."""
    plan, functions = compiled
    net = Net()
    CHANGES[name](net)
    given = arguments(plan, net, torch.ones(2, 4))
    failing = [guard for guard in plan.guards if not holds(guard, given)]
    assert len(functions) == len(plan.guards) > 100
    for guard, function in zip(plan.guards, functions, strict=True):
        assert (function(*given.values()) is not MISS) is (guard not in failing), guard
    assert bool(failing) is (name not in ("nothing", "other values"))
    said = failure(plan, given)
    if failing:
        assert plan.run(*given.values()) is MISS
        assert said is not None and str(failing[0].source) in said and __file__ in said
    else:
        assert plan.run(*given.values()) is not MISS and said is None


def test_the_arguments_come_first_and_weights_share_loops() -> None:
    net, x = Net(), torch.ones(2, 4)
    plan = planned(net, x)
    text = plan.source
    places = [text.index(word) for word in ("len_function_modes", "args[0]", "is_grad_enabled")]
    assert places == sorted(places) and places[-1] < text.index(".__dict__")
    order = arranged(plan.guards, dict.fromkeys([g.source for g in plan.guards if g.source], 2))
    assert sorted(len(group) for group in order.looped) == [5, 7]
    assert order.listed == [] and order.together == []
    checked = [*order.arguments, *order.others, *[g for group in order.looped for g in group]]
    assert {id(g) for g in checked} == {id(g) for g in plan.guards if g.kind != "AMBIENT"}
    assert len(checked) == len(plan.guards) - 1


def test_no_tensor_is_asked_under_a_mode() -> None:
    seen: list[Any] = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    run = refcompiler.compile(lambda x: x + 1, backend="eager")
    run(torch.ones(2))
    x = torch.ones(2)
    with Mode():
        run(x)
    assert len(seen) == 1 and "add" in str(seen[0])


def test_a_class_attribute_that_came_in_the_place_of_another() -> None:
    class Base:
        a, b = 1, 2

    for i in range(30):
        setattr(Base, f"other_{i}", i)

    class Box(Base):
        known_by = object()  # which no other class has
        gone = 0
        last = 0

    run = refcompiler.compile(lambda x, box: x * box.a * box.b, backend="eager")
    assert run(torch.ones(1), Box()).item() == 2
    del Box.last, Box.gone
    Box.b = 5  # type: ignore[misc]
    Box.last = 0
    assert run(torch.ones(1), Box()).item() == 5
    assert "expected none of" in counters.reasons("recompiles")[0]


def test_later_registrations_of_a_single_dispatch_method() -> None:
    class Box:
        @functools.singledispatchmethod
        def times(self, k: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    run = refcompiler.compile(lambda x, box, k: box.times(k, x), backend="eager")
    box = Box()
    assert [run(torch.ones(1), box, "a").item() for _ in range(2)] == [2, 2]
    assert refcompiler.counters()["recompiles"] == 0
    Box.__dict__["times"].register(str, lambda self, k, x: x * 3)
    assert run(torch.ones(1), box, "a").item() == 3
    Box.__dict__["times"].register(str, lambda self, k, x: x * 4)
    assert run(torch.ones(1), box, "a").item() == 4
    assert refcompiler.counters()["recompiles"] == 2


def test_a_plan_is_found_while_another_one_is_compiled() -> None:
    compiling, go_on = threading.Event(), threading.Event()

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
        if inputs[0].shape[0] == 7:
            compiling.set()
            assert go_on.wait(60)
        return graph.forward

    run = refcompiler.compile(lambda x: x + 1, backend=backend, dynamic=False)
    for n in (2, 3):
        run(torch.ones(n))
    slow = threading.Thread(target=run, args=(torch.ones(7),))
    slow.start()
    assert compiling.wait(60)
    for n in (2, 3, 2, 3):  # each but the last used one is found on the slow path
        assert run(torch.ones(n)).shape == (n,)
    assert slow.is_alive()
    go_on.set()
    slow.join(60)
    assert refcompiler.counters()["captures"] == 3


def test_the_plan_used_last_is_tried_first() -> None:
    run = refcompiler.compile(lambda x, k: x * k, backend="eager", dynamic=False)
    for k in (1, 2, 3):
        run(torch.ones(1), k)
    before = refcompiler.counters()["cache_hits"]
    hits = []
    for k in (1, 1, 2, 2, 1, 3):
        assert run(torch.ones(1), k).item() == k
        hits.append(refcompiler.counters()["cache_hits"] - before)
    assert hits == [1, 1, 2, 2, 3, 4]


def test_a_state_of_torch_is_explained_by_what_differs() -> None:
    run = refcompiler.compile(lambda x: x + 1, backend="eager")
    x = torch.ones(1)
    run(x)
    with torch.no_grad():
        run(x)
    said = counters.reasons("recompiles")[0]
    assert said.endswith(": ambient state: expected grad mode on, found grad mode off")
    with torch.inference_mode():
        run(x)
    said = counters.reasons("recompiles")[1]
    assert said.endswith("expected inference mode off, found inference mode on")


class Tupled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 2, 3)
        self.sizes: Any = (3, "n", None, True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, text, nothing, truth = self.sizes
        x = self.conv(x) * first
        return x + 1 if text == "n" and nothing is None and truth is True else x


TUPLES = [(4, "n", None, True), (3, "m", None, True), (3, "n", 0, True), (3, "n", None, 1)]
TUPLES += [(3.0, "n", None, True), (3, "n", None), [3, "n", None, True]]


@pytest.mark.parametrize("sizes", TUPLES, ids=repr)
def test_a_tuple_of_constants_is_asked_at_once(sizes: Any) -> None:
    model, x = Tupled(), torch.randn(1, 2, 5)
    plan = planned(model, x)
    text = plan.source
    assert "'sizes'" in text and "__s" in text
    assert not [line for line in text.splitlines() if "self.sizes[" in line]
    given = arguments(plan, model, x)
    assert plan.run(*given.values()) is not MISS
    model.sizes = (3, *("n", None, True))  # another object, as equal as can be
    assert plan.run(*given.values()) is not MISS
    model.sizes = sizes
    assert plan.run(*given.values()) is MISS
    assert any("sizes" in str(guard.source) and not holds(guard, given) for guard in plan.guards)


def test_parameters_have_any_names() -> None:
    """Those of what the text of a plan names, too, and of builtins."""
    names = [name for name in (*NAMESPACE, *dir(builtins)) if not keyword.iskeyword(name)]
    names.remove("__debug__")  # which Python keeps for itself
    names = list(dict.fromkeys([*names, "__graph", "__s0", "__given_type"]))
    assert len(names) > 150
    scope: dict[str, Any] = {}
    added = " + ".join(names[:-1])
    exec(f"def f(x, {', '.join(names)}): return x * ({added}) if {names[-1]} else x", scope)
    refcompiler.reset()
    run = refcompiler.compile(scope["f"], backend="eager", dynamic=False)
    x = torch.arange(3.0)
    for last in (False, True, False, True):
        given = {**{name: i for i, name in enumerate(names)}, names[-1]: last}
        assert torch.equal(run(x, **given), scope["f"](x, **given))
    given["type"] = -5
    assert torch.equal(run(x, **given), scope["f"](x, **given))
    assert counters.counters()["captures"] == 3 and not counters.counters()["fallbacks"]
    assert [reason.split(": ")[1] for reason in counters.reasons("recompiles")] == [
        names[-1],
        "type",
    ]
