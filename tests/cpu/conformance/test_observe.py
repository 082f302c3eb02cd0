"""Whatever a user can reach is seen, under the expression that reaches it."""

import random
from collections import OrderedDict, deque, namedtuple
from dataclasses import dataclass

import pytest
import torch

from conformance.case import Call, Case, Change, Drawn, Program, Storage, Tensor
from conformance.execute import FLOAT64, Eager, Precision, Recaster, run
from conformance.meter import Meter
from conformance.observe import rng_state, snapshot

Point = namedtuple("Point", "x y")


@dataclass
class Box:
    content: object


def test_containers_are_walked_by_path():
    space = {
        "a": [torch.ones(2), (1, "two")],
        "b": {"k": Point(torch.zeros(1), None)},
        "c": Box(deque([3.0])),
        "d": OrderedDict(z=1),
        "e": {2, 1},
        "_hidden": 5,
        "code": print,
    }
    seen = snapshot(space)
    assert set(seen.tensors) == {"a[0]", "b['k'].x"}
    assert seen.leaves["a[1][1]"].text == "'two'"
    assert seen.leaves["b['k'].y"].type == "NoneType"
    assert seen.leaves["c.content[0]"].text == "3.0"
    assert seen.leaves["e"].text == "['1', '2']"
    assert "_hidden" not in seen.leaves and "code" not in seen.leaves
    # each path is an expression that reaches what it names
    for path in (*seen.tensors, *seen.leaves):
        eval(path, dict(space))


def test_keys_that_are_objects_are_reached_without_their_values():
    key, place = torch.ones(2), (1, "a")
    space = {"d": {key: torch.zeros(1), place: torch.zeros(2), print: 5}}
    before = snapshot(space)
    key.add_(1)
    after = snapshot(space)
    assert set(before.tensors) == {"[*d][0]", "[*d.values()][0]", "d[(1, 'a')]"}
    assert set(after.tensors) == set(before.tensors)
    assert before.leaves["[*d.values()][2]"].text == "5"
    for path in (*after.tensors, *after.leaves):
        eval(path, dict(space))


def test_a_cycle_is_followed_once():
    loop = []
    loop.append(loop)
    assert snapshot({"loop": loop}).leaves["loop[0]"].text == "loop"


def test_sharing_is_seen():
    x = torch.arange(6.0)
    seen = snapshot({"x": x, "y": x.view(2, 3)[1], "z": x, "w": x.clone()}).tensors
    assert seen["x"].storage == seen["y"].storage == seen["z"].storage != seen["w"].storage
    assert seen["x"].identity == seen["z"].identity != seen["y"].identity
    assert seen["y"].offset == 3


def test_modules_show_parameters_buffers_attributes_and_gradients():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    model(torch.ones(3, 2)).sum().backward()
    seen = snapshot({"model": model})
    assert {"model[0].weight", "model[0].bias.grad", "model[1].running_mean"} <= set(seen.tensors)
    assert seen.leaves["model[1].eps"].text == "1e-05"
    assert seen.leaves["model.training"].text == "True"


def test_strides_without_meaning_are_not_compared():
    one = snapshot({"x": torch.empty_strided((1, 3), (77, 1))}).tensors["x"]
    other = snapshot({"x": torch.empty_strided((1, 3), (3, 1))}).tensors["x"]
    assert one.strides == other.strides == (None, 1)
    assert snapshot({"x": torch.empty(0, 3)}).tensors["x"].strides == (None, None)


def test_lazy_bits_are_facts_and_values_are_resolved():
    x = torch.tensor([1 + 2j])
    seen = snapshot({"x": x.conj()}).tensors["x"]
    assert seen.conj and seen.values.tolist() == [1 - 2j]


def test_every_generator_has_a_fingerprint():
    before = rng_state()
    torch.rand(1)
    after = rng_state()
    assert before["torch"] != after["torch"] and before["random"] == after["random"]


SOURCE = """
import torch

FACTOR = 2.0
LOG = []


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.rand(3))

    def forward(self, x):
        LOG.append(len(LOG))
        print("here")
        if x.sum() < -1e6:
            raise ValueError("too small")
        return (x.to(torch.bfloat16) * self.weight * FACTOR).float()
"""


def case(*history, **more):
    inputs = (
        Storage("_x", "float32", 3, Drawn("normal", 4)),
        Tensor("x", "_x", (3,), requires_grad=True),
    )
    return Case("t", "s", "v", Program(SOURCE, "Model()"), inputs, history, **more)


def test_a_history_changes_globals_and_state():
    chosen = case(
        Call("f(x)"), Change("FACTOR = 3.0"), Call("f(x)", backward=True), Call("f(x - 1e7)")
    )
    seen = run(chosen, Eager())
    first, _, second, third = seen.steps
    assert first.printed == "here\n" and first.error is None
    before, after = (s.snapshot.tensors[f"outs[{n}]"].values for n, s in ((0, first), (1, second)))
    assert torch.allclose(after, before * 1.5, rtol=0.02)
    assert "x.grad" in second.snapshot.tensors and "x.grad" not in first.snapshot.tensors
    assert "model.weight.grad" in second.snapshot.tensors
    assert second.snapshot.leaves["LOG[1]"].text == "1"
    assert third.error.type == "ValueError" and third.error.own
    assert third.error.message == "too small"


def test_a_run_starts_afresh():
    chosen = case(Call("f(x)"), Change("model.weight.data.zero_()"), Call("f(x)"))
    one, two = run(chosen, Eager()), run(chosen, Eager())
    assert torch.equal(
        one.steps[0].snapshot.tensors["outs[0]"].values,
        two.steps[0].snapshot.tensors["outs[0]"].values,
    )
    assert one.steps[0].rng == two.steps[0].rng


def test_float64_replaces_every_dtype_that_is_named():
    seen = run(case(Call("f(x)")), Eager(), FLOAT64).steps[0].snapshot.tensors
    assert {seen[n].dtype for n in ("outs[0]", "x", "model.weight")} == {"float64"}
    plain = run(case(Call("f(x)")), Eager()).steps[0].snapshot.tensors
    # the same numbers to begin with, and no rounding to bfloat16 on the way
    assert torch.equal(plain["x"].values.double(), seen["x"].values)
    exact = seen["x"].values * plain["model.weight"].values.double() * 2
    assert torch.equal(seen["outs[0]"].values, exact)
    assert not torch.equal(plain["outs[0]"].values.double(), exact)


def test_float64_is_the_dtype_of_modules_among_the_globals_too():
    source = "import torch\nlayer = torch.nn.Linear(3, 3)\ndef program(x):\n    return layer(x)\n"
    storage = Storage("_x", "float32", 6, Drawn("normal", 1))
    chosen = Case(
        "s", "v", "w", Program(source), (storage, Tensor("x", "_x", (2, 3))), (Call("f(x)"),)
    )
    (step,) = run(chosen, Eager(), FLOAT64).steps
    assert step.error is None and step.snapshot.tensors["outs[0]"].dtype == "float64"


def test_float64_is_the_dtype_of_what_an_optimizer_steps():
    source = (
        "P = torch.nn.Parameter(torch.ones(3))\nALL = torch.ones(4)\nPART = [ALL[:2]]\n"
        "STEP = torch.optim.Adam([P])\n"
        "def program(x):\n    P.grad = x * 1\n    STEP.step()\n    return P.detach().clone()\n"
    )
    storage = Storage("_x", "float32", 3, Drawn("normal", 1))
    program = Program("import torch\n" + source)
    chosen = Case("s", "v", "w", program, (storage, Tensor("x", "_x", (3,))), (Call("f(x)"),))
    seen = run(chosen, Eager(), FLOAT64).steps[0].snapshot.tensors
    assert seen["outs[0]"].dtype == seen["P"].dtype == "float64"
    # Beside each other they would stop sharing their memory.
    assert seen["ALL"].dtype == seen["PART[0]"].dtype == "float32"
    assert seen["ALL"].storage == seen["PART[0]"].storage


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_jitter_moves_inputs_by_a_rounding(dtype):
    chosen = case(Call("f(x)"))
    still = run(chosen, Eager(), FLOAT64).steps[0].snapshot.tensors["x"].values
    moved = run(chosen, Eager(), Precision(torch.float64, 1)).steps[0].snapshot.tensors["x"].values
    relative = ((moved - still) / still).abs()
    assert torch.all((relative > 2**-26) & (relative < 2**-23))


def test_jitter_moves_the_parts_of_a_complex_number_alone():
    given = torch.tensor([complex(1.5, float("inf")), complex(float("nan"), -2.5)]).to(
        torch.cdouble
    )
    still, moved = (
        torch.view_as_real(t) for t in (given, Recaster(Precision(torch.float64, 1))(given))
    )
    apart = (moved - still)[[0, 1], [0, 1]].abs()
    assert torch.all((apart > 0) & (apart < 2.0**-50))


def test_the_default_dtype_is_put_back():
    run(case(Call("f(x)"), Change("torch.set_default_dtype(torch.float64)")), Eager(), FLOAT64)
    assert torch.get_default_dtype() == torch.float32


def test_a_counted_backend_is_asked_as_it_is_itself():
    def plain(graph, inputs):
        return graph.forward

    def marked(graph, inputs):
        return graph.forward

    marked.takes_symbols = True
    assert Meter(marked, "marked").takes_symbols
    assert not hasattr(Meter(plain, "plain"), "takes_symbols")


def test_what_a_module_draws_when_it_is_imported_is_no_part_of_a_run():
    source = (
        "import random, sys, torch\n"
        "if 'imported' not in vars(random):\n"
        "    random.imported = random.random(), torch.rand(3)\n"
        "def f():\n    return random.random(), torch.rand(2)\n"
    )
    case = Case("s", "p", "import", Program(source, "f"), (), (Call("f()"),))
    try:
        first, second = (run(case, Eager()).steps[0] for _ in range(2))
    finally:
        vars(random).pop("imported", None)
    assert first.rng == second.rng and first.snapshot.leaves == second.snapshot.leaves
