"""What runs around a module's forward: hooks of every kind, lazy modules."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import refcompiler
from tests.cpu.capture.oracle import Call, Case, Cases, check

cases = Cases()
t = torch.randn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x, scale=1.0):
        return torch.relu(self.fc(x)) * scale


@cases()
def hooks_with_keywords():
    m, log = Layer(), []
    double = lambda mod, a, k: (a, {**k, "scale": k["scale"] * 2})  # noqa: E731
    m.register_forward_pre_hook(double, with_kwargs=True)
    m.register_forward_hook(lambda mod, a, k, out: log.append(sorted(k)) or out, with_kwargs=True)
    return lambda x: m(x, scale=3.0), [(t(3, 4),)] * 2, [log]


@cases()
def hooks_in_their_order():
    m, log = Layer(), []
    m.fc.register_forward_hook(lambda mod, a, out: log.append("last"))
    m.fc.register_forward_hook(lambda mod, a, out: log.append("first"), prepend=True)
    m.fc.register_forward_pre_hook(lambda mod, a: (a[0] * 2,))
    return lambda x: m(x), [(t(3, 4),)] * 2, [log]


@cases()
def always_called_after_an_error():
    class Failing(nn.Module):
        def forward(self, x):
            raise ValueError("no")

    m, log = Failing(), []
    m.register_forward_hook(lambda mod, a, out: log.append(out), always_call=True)
    m.register_forward_hook(lambda mod, a, out: log.append("never"))

    def f(x):
        try:
            return m(x)
        except ValueError:
            return x + 2

    return f, [(t(3, 4),)] * 2, [log]


@cases(graphs=1, breaks=1)
def full_backward_hook():
    m, log = Layer(), []

    def double(mod, inner, outer):
        log.append([g.shape for g in inner if g is not None])
        return tuple([None if g is None else g * 2 for g in inner])

    m.fc.register_full_backward_hook(double)
    return lambda x: m(x), [(t(3, 4, requires_grad=True),)] * 2, [log]


@cases(graphs=1, breaks=1)
def full_backward_pre_hook():
    m = Layer()
    m.fc.register_full_backward_pre_hook(lambda mod, outer: (outer[0] * 2,))
    return lambda x: m(x), [(t(3, 4, requires_grad=True),)] * 2


@cases()
def backward_hook_without_gradients():
    m = Layer()
    m.fc.register_full_backward_hook(lambda mod, inner, outer: None)

    def f(x):
        with torch.no_grad():
            return m(x)

    return f, [(t(3, 4),)] * 2


@cases()
def lazy_module_called_first():
    m = nn.Sequential(nn.LazyLinear(4), nn.ReLU())
    return lambda x: m(x), [(t(3, 5),)] * 3


@cases()
def lazy_convolution_in_a_function():
    m = nn.LazyConv1d(4, 1)
    return lambda x: m(x) + 1, [(t(3, 5, 4),)] * 3


@cases()
def call_with_a_default():
    m = Layer()
    m.register_forward_hook(lambda mod, a, out: out + 1, always_call=True)
    return lambda x, s: m(x, scale=s), [Call(t(3, 4), s=2.0)] * 2


def _removing(when: str, **expected: int):
    """A handle from outside whose hook the frame has seen, has not seen, or sees afterwards."""

    def case():
        m = nn.Linear(3, 3)
        handles = []

        def add():
            handles.append(m.register_forward_hook(lambda mod, a, out: out * 2))

        def f(x):
            y = x if when == "before" else m(x)
            handles.pop().remove()
            return y if when == "after" else y + m(x)

        return f, [add, (t(3),), add, (t(3),)], [m]

    case.__name__ = f"handle_removed_{when}"
    cases(**expected)(case)


_removing("before", breaks=1)
_removing("between", graphs=2, recompiles=1)
_removing("after", graphs=2, recompiles=1)


@cases()
def registered_for_a_while():
    m = nn.Linear(3, 3)

    def f(x):
        handle = m.register_forward_hook(lambda mod, a, out: out * 2)
        y = m(x)
        handle.remove()
        with m.register_forward_pre_hook(lambda mod, a, k: ((a[0] * 2,), k), with_kwargs=True):
            y += m(x)
        return y + m(x)

    return f, [(t(3),), (t(3),)], [m]


@cases(graphs=2, recompiles=1)
def registered_and_left():
    """Other calls find other hooks; the second, and what the first one was called with, do not."""
    m, seen = nn.Linear(3, 3), []

    def f(x):
        note = lambda mod, a, out: seen.append(out.sum())  # noqa: E731
        first = m.register_forward_hook(note, always_call=True)
        second = m.register_forward_hook(lambda mod, a, out: out * 2, prepend=True)
        y = m(x)
        first.remove()
        return y, second

    def clear():
        m._forward_hooks.clear()

    return f, [(t(3),), clear, (t(3),), (t(3),), clear, (t(3),)], [m, seen]


@cases(graphs=3, breaks=1, recompiles=1)
def registered_before_a_break():
    """The second call learns that the hook's number is another one in each call."""
    m = nn.Linear(3, 3)

    def f(x):
        handle = m.register_forward_hook(lambda mod, a, k, out: out * 2, with_kwargs=True)
        y = m(x)
        torch._dynamo.graph_break()
        y = m(y)
        handle.remove()
        return y + m(x)

    return f, [(t(3),), (t(3),), (t(3),), (t(3),)], [m]


@cases(graphs=3, recompiles=2)
def numbers_that_change_are_told_apart():
    """With keyword arguments the one or the other of two hooks."""
    m = nn.Linear(3, 3)
    hook = lambda mod, a, *rest: rest[-1] * 2 + len(rest)  # noqa: E731

    def change(first: bool):
        def hooks():
            m._forward_hooks.clear()
            m._forward_hooks_with_kwargs.clear()
            for with_kwargs in (first, not first):
                m.register_forward_hook(hook, with_kwargs=with_kwargs)

        return hooks

    calls = [[change(way), (t(3),)] for way in (True, True, False, False, True)]
    return m, [step for call in calls for step in call]


def test_handles_have_the_numbers_of_eager():
    m = nn.Linear(3, 3)

    def f(x, kept):
        for _ in range(3):
            m.register_forward_hook(lambda mod, a, out: None).remove()
        kept.append(m.register_forward_hook(lambda mod, a, out: out * 2))
        return m(x)

    refcompiler.reset()
    compiled, numbers = refcompiler.compile(f, backend="eager"), []
    for function in (f, compiled, f, compiled):
        kept = []
        first = torch.utils.hooks.RemovableHandle.next_id
        expected = 2 * nn.functional.linear(torch.ones(3), m.weight, m.bias)
        assert torch.equal(function(torch.ones(3), kept), expected)
        numbers.append(kept[0].id - first)
        assert [*m._forward_hooks] == [kept[0].id]
        kept[0].remove()
    assert numbers == [3, 3, 3, 3]
    assert refcompiler.counters()["graphs"] == 1


@cases(graphs=2, breaks=1)
def parameters_frozen_for_a_while():
    m = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))

    def f(x):
        m.requires_grad_(False)
        y = m(x)
        m.requires_grad_(True)
        return y, m(x)

    return f, [(t(3),), (t(3),)], [m]


@cases(graphs=0, breaks=3)
def packed_sequences():
    """Three calls, each of them one break, and nothing to compile between them."""
    lstm = nn.LSTM(3, 4, batch_first=True)

    def f(x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=False)
        out, (last, _) = lstm(packed)
        return nn.utils.rnn.pad_packed_sequence(out, batch_first=True), last

    return f, [(t(2, 5, 3), torch.tensor([3, 5]))] * 2, [lstm]


#: Whether numbers beyond the bounds are drawn anew, as long as there are any (torch 2.13).
_DRAWS_ANEW = "erfinv_" not in nn.init._no_grad_trunc_normal_.__code__.co_names


@cases(graphs=1 + _DRAWS_ANEW, breaks=int(_DRAWS_ANEW))
def initialised_within_bounds():
    def f(x):
        w = torch.empty(3, 3)
        nn.init.xavier_uniform_(w)
        nn.init.trunc_normal_(w, std=0.1)
        return x @ w

    return f, [(t(3, 3),), (t(3, 3),)]


@pytest.mark.parametrize("case", cases, ids=str)
def test_captured_as_in_eager(case: Case):
    assert check(case) > 0


class Sized(nn.Module):
    def __init__(self, n: int):
        super().__init__()
        self.fc = nn.Linear(n, n)

    def forward(self, x):
        return self.fc(x)


def test_instances_do_not_use_up_the_limit_of_each_other(monkeypatch):
    monkeypatch.setattr(refcompiler.config, "recompile_limit", 2)
    refcompiler.reset()
    modules = [Sized(n) for n in range(2, 7)]
    compiled = [refcompiler.compile(m, backend="eager") for m in modules]
    for _ in range(2):
        for n, (m, c) in enumerate(zip(modules, compiled, strict=True), 2):
            x = t(1, n)
            assert torch.equal(m(x), c(x))
    assert refcompiler.counters()["graphs"] == 5
    assert refcompiler.counters()["fallbacks"] == 0
    with pytest.warns(UserWarning, match="compiled 2 times"):
        for given in (t(2, 2), t(2, 2).requires_grad_()):
            compiled[0](given)
    assert refcompiler.counters()["fallbacks"] == 1
    compiled[0](t(4, 2))  # natively
    compiled[1](t(2, 3))  # has a plan left
    assert refcompiler.counters()["graphs"] == 7
    refcompiler.reset()
    compiled[0](t(5, 2))
    assert refcompiler.counters()["graphs"] == 1
