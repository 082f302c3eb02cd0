"""Items written to dicts from outside: what they overwrite is neither read nor guarded.

PYTEST_DONT_REWRITE: the assertions inside the cases are part of them.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from tests.cpu.capture.oracle import Case, Cases, check

cases = Cases()
t = torch.randn


class Owner:
    pass


def three(*more: Any) -> list[Any]:
    return [(t(3), *more), (t(3), *more), (t(3), *more)]


@cases()
def hooks_collect_features() -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    features: dict[str, Any] = {"0": None, "2": None}

    def save(name: str, module: Any, args: Any, out: Any) -> None:
        features[name] = out.detach()

    for name in features:
        model[int(name)].register_forward_hook(functools.partial(save, name))

    def f(x):
        return model(x), dict(features)

    return f, [(t(2, 3),), (t(2, 3),)], [model, features]


@cases(graphs=2, recompiles=1)
def at_a_place_that_is_a_symbol() -> Any:
    losses, known = [0.0] * 6, {0: 0.0, 1: 0.0, 2: 0.0}

    def f(x, i):
        losses[i] = known[i] = i + 0.5
        return x * i

    def change() -> None:
        losses[:] = [n + 1.0 for n in losses]
        known[0] += 1.0

    given = [(t(3), 1), (t(3), 2), change, (t(3), 2), (t(3), 1), change, (t(3), 2)]
    return f, given, [losses, known]


@cases()
def read_again() -> Any:
    d: dict[Any, Any] = {"a": None, 2: "kept"}

    def f(x):
        d["a"] = x * 2
        d["a"] = d["a"] + 1
        return d["a"], d[2], "a" in d, len(d), list(d), [*d.values()]

    return f, three(), [d]


@cases()
def new_keys_come_last() -> Any:
    def f(x, d):
        d["new"] = x + 1
        d["a"] = x + 2
        d["newer"] = d.get("new")
        return list(d.items())

    return f, [(t(3), {"a": 1, "b": 2}), (t(3), {"a": 3, "b": 2})]


@cases()
def nothing_else_is_asked() -> Any:
    def f(x, d):
        d["out"] = x * 2

    return f, [(t(3), {}), (t(3), {"out": 1, "more": t(2)}), (t(3), {3: "x"})]


@cases()
def equal_keys() -> Any:
    def f(x, d):
        d[True] = x * 2
        d[1.0] = x + 1
        return list(d)

    return f, [(t(3), {1: None}), (t(3), {1: "x"})]


@cases()
def one_dict_in_two_places() -> Any:
    def f(x, a, b):
        a["k"] = x
        b["k"] = b["k"] + 1
        a["l"] = 5
        return a["k"], len(b)

    made = [{"k": None}, {"k": 2.0}]
    return f, [(t(3), d, d) for d in made]


@cases(graphs=2, recompiles=1)
def one_dict_or_two() -> Any:
    def f(x, a, b):
        a["k"] = x + 1
        return b["k"]

    both = {"k": 1}
    return f, [(t(3), {"k": 1}, {"k": 2}), (t(3), both, both)]


@cases(graphs=2, recompiles=1)
def namespace_of_an_object() -> Any:
    owner, namespace = Owner(), {"a": 1, "b": 2}
    owner.__dict__ = namespace

    def f(x):
        namespace["a"] = x * 2
        seen = owner.a  # type: ignore[attr-defined]
        owner.b = seen + 1  # type: ignore[attr-defined]
        return seen, namespace["b"], vars(owner)["a"]

    return f, three(), [owner, namespace]


@cases(graphs=2, recompiles=1)
def attribute_written_over_an_item() -> Any:
    owner, namespace = Owner(), {"a": 1, "b": 2}
    owner.__dict__ = namespace

    def f(x):
        namespace["a"] = x * 2
        owner.a = x * 3  # type: ignore[attr-defined]
        namespace["b"] = x * 4

    return f, three(), [owner, namespace]


@cases(graphs=2, recompiles=1)
def name_written_over_an_item() -> Any:
    names: dict[str, Any] = {}
    exec("def f(x, d):\n    global a\n    d['a'] = x * 2\n    a = a + x\n    return a", names)
    return names["f"], [(t(3), names), (t(3), names)]


@cases()
def buffers_of_a_module() -> Any:
    module = torch.nn.BatchNorm1d(3)
    buffers = module._buffers

    def f(x):
        buffers["running_mean"] = x.mean(0)
        return module.running_mean * 2, module(x)

    return f, [(t(4, 3),), (t(4, 3),)], [module]


@cases(graphs=2, recompiles=1)
def written_by_a_method() -> Any:
    d: dict[str, Any] = {"a": None, "b": 3}

    def f(x):
        d["a"] = x
        d.update(c=x + 1)
        d.setdefault("a", 5)
        return d.pop("a"), d.popitem()

    def restore():
        d["a"] = None

    return f, [(t(3),), restore, (t(3),)], [d]


@cases()
def deleted_and_written() -> Any:
    def f(x, d):
        d["a"] = x
        del d["a"]
        d["a"] = x + 1
        return d

    return f, [(t(3), {"a": None, "b": 1}), (t(3), {"a": "x", "b": 1})]


@cases(graphs=2, breaks=1)
def written_across_a_break() -> Any:
    d: dict[str, Any] = {"a": None, "b": None}

    def f(x):
        d["a"] = x * 2
        torch._dynamo.graph_break()
        d["b"] = d["a"] + 1
        return d["b"] * 2

    return f, three(), [d]


@cases(graphs=0, breaks=1)
def written_before_an_error() -> Any:
    d: dict[str, Any] = {"a": None}

    def f(x):
        d["a"] = 3
        raise ValueError(d["a"])

    return f, three(), [d]


@cases()
def one_dict_holds_another() -> Any:
    def f(x, a, b):
        b["x"] = x + 1
        a["b"] = b
        a["b"]["y"] = 2

    return f, [(t(3), {}, {"x": None}), (t(3), {"b": 1}, {"x": 2})]


@cases(graphs=2, recompiles=1)
def what_is_read_is_guarded() -> Any:
    d: dict[str, Any] = {"a": None, "b": 1}

    def f(x):
        d["a"] = x
        return x * d["b"]

    def change():
        d["b"] = "no number"
        d["b"] = 2

    return f, [(t(3),), change, (t(3),)], [d]


def changing() -> tuple[dict[str, Any], list[Any]]:
    """A dict with ``other``, and three calls with a changed one."""
    state: dict[str, Any] = {"x": torch.zeros(3), "n": "same", "other": 0.5}

    def call(other: float) -> list[Any]:
        def change() -> None:
            state["other"] = other

        return [change, (t(3),)]

    return state, [*call(1.5), *call(2.5), *call(3.5)]


@cases()
def read_behind_a_write() -> Any:
    state, calls = changing()

    def f(x):
        state["x"] += x
        state["y"] = x
        return state["x"] * 2, "y" in state, "no" in state, state.get("n"), state.get("no", 3)

    return f, calls[:2] + [lambda: state.pop("y")] + calls[2:], [state]


@cases()
def swapped_and_deleted() -> Any:
    state, calls = changing()

    def f(x):
        state["k"] = x
        state["k"], state["x"] = state["x"], state["k"]
        kept = state.pop("k"), state.pop("k", 5)
        state.update(n=x + 1)
        del state["n"]
        return kept, "n" in state, state.setdefault("x", 1), state.setdefault("k", x)

    def again() -> None:
        state.pop("k")
        state["n"] = 1

    return f, [*calls[:2], again, *calls[2:4], again, *calls[4:]], [state]


@cases()
def missing_after_a_deletion() -> Any:
    state, calls = changing()

    def f(x):
        del state["x"]
        try:
            state["x"]
        except KeyError as error:
            return x + 1, str(error)

    def again() -> None:
        state["x"] = 1

    return f, [*calls[:2], again, *calls[2:4], again, *calls[4:]], [state]


@cases()
def items_of_a_list() -> Any:
    state = [torch.zeros(3), "same", 0.5]

    def f(x):
        state[0] = state[0] + x
        state[-2], state[0] = state[0], state[-2]
        state[0], state[1] = state[-2], state[0]
        return state[0], len(state), bool(state)

    def change() -> None:
        state[2] += 1.0

    return f, [(t(3),), change, (t(3),), change, (t(3),)], [state]


@cases(graphs=2, recompiles=1)
def a_list_that_is_looked_into() -> Any:
    def f(x, held):
        held[0] = x + 1
        held.append(2)
        held[-1] += 1
        return held[1:], sum(held[1:])

    return f, [(t(3), [None, 1]), (t(3), [None, 1]), (t(3), [None, 2])]


@cases()
def attributes_of_a_module() -> Any:
    class Recurrent(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.state = self.other = None

        def forward(self, x: Any) -> Any:
            self.state = torch.zeros(3)
            self.state = self.state + x
            return self.state, self.__dict__["state"], self.__dict__.get("never")

    model = Recurrent()

    def change() -> None:
        model.other = (model.other or 0) + 0.5

    return model, [(t(3),), change, (t(3),), change, (t(3),)], [model]


@pytest.mark.parametrize("case", cases, ids=str)
def test_written(case: Case) -> None:
    assert check(case) > 0
