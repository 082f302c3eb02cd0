"""Recompile limits: how often a function is compiled, what is said then, and what runs past it."""

import inspect
import warnings

import pytest
import torch

import refcompiler
from refcompiler.errors import RecompileError
from tests.cpu.frontend.test_stance import Backend, X, Y, Z, made


def sized(compiled, counts):
    for count in counts:
        assert torch.equal(compiled(torch.ones(count)), torch.full((count,), 2.0))


def test_a_limit_of_one_call_of_compile():
    compiled, backend = made(recompile_limit=2, name="doubling")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sized(compiled, (3, 4, 5, 6))
    (warning,) = caught
    assert str(warning.message).startswith("doubling was compiled 2 times (compile's recompile_lim")
    assert warning.filename == __file__ and backend.graphs == 2


def test_what_is_said_to_compile_holds_behind_a_break():
    def broken(x, k):
        y = x + 1
        torch._dynamo.graph_break()
        return y * k

    compiled, backend = made(broken, recompile_limit=2)
    with pytest.warns(UserWarning, match=r"after a break\) was compiled 2 times \(compile's recom"):
        for k in (2, 3, 4, 5, 4):
            assert torch.equal(compiled(X, k), (X + 1) * k)
    assert backend.graphs == 3
    asked = []

    def keep(entries):
        asked.append([entry.name for entry in entries])
        return [entry.name != "k" for entry in entries]

    compiled, backend = made(broken, options={"guard_filter_fn": keep})
    assert torch.equal(compiled(X, 2), compiled(X, 3))  # which nobody notices
    assert len(asked) == 2 and "k" in asked[1] and backend.graphs == 2


def test_past_its_limit_what_was_compiled_runs_where_it_holds():
    compiled, backend = made(recompile_limit=2)
    with pytest.warns(UserWarning, match="2 times"):
        sized(compiled, (3, 4, 5))
    assert (backend.graphs, backend.runs) == (2, 2)
    sized(compiled, (3, 4, 5, 3, 3))
    assert (backend.graphs, backend.runs) == (2, 6)
    with refcompiler.set_stance("eager_on_recompile"):
        sized(compiled, (3, 4, 5))
    with refcompiler.set_stance("fail_on_recompile"):
        sized(compiled, (3, 4, 5))  # the last one would not compile in any stance
    assert (backend.graphs, backend.runs) == (2, 10)

    def broken(x):
        x = x + 0
        torch._dynamo.graph_break()
        return x * 2

    compiled, backend = made(broken, recompile_limit=2, dynamic=False)
    with pytest.warns(UserWarning, match="2 times"):
        sized(compiled, (3, 4, 5))
    before = backend.runs
    sized(compiled, (3, 4, 5, 3))
    assert (backend.graphs, backend.runs - before) == (4, 6)


def test_a_limit_may_be_an_error():
    compiled, _ = made(recompile_limit=2, fullgraph=True)
    sized(compiled, (3, 4))
    with pytest.raises(RecompileError, match="2 times .*, and fullgraph=True; the guard that fail"):
        compiled(Z)
    sized(compiled, (3, 4))
    compiled, _ = made(recompile_limit=2)
    with refcompiler.config.patch(fail_on_recompile_limit_hit=True):
        sized(compiled, (3, 4))
        with pytest.raises(RecompileError, match="config.fail_on_recompile_limit_hit"):
            compiled(Z)
    compiled, _ = made()
    with refcompiler.config.patch("error_on_recompile", True):
        sized(compiled, (3, 3))
        with pytest.raises(RecompileError, match="config.error_on_recompile"):
            compiled(Y)


def test_an_accumulated_limit_counts_all_modules_of_a_class():
    class Add(torch.nn.Module):
        def __init__(self, n):
            super().__init__()
            self.n = n

        def forward(self, x):
            return x + self.n

    backend = Backend()
    with refcompiler.config.patch(accumulated_recompile_limit=3), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in range(6):
            compiled = refcompiler.compile(Add(f"{n}" and n + 0.5), backend=backend, dynamic=False)
            assert torch.equal(compiled(X), X + n + 0.5)
    assert backend.graphs == 3


def test_isolated_calls_compile_for_themselves():
    """They use what others have compiled, as torch's do, but others do not use theirs."""

    class Double(torch.nn.Module):
        def forward(self, x):
            return x * 2

    counted = {}
    takes_limits = "recompile_limit" in inspect.signature(torch.compile).parameters  # 2.12
    for package in (torch, refcompiler) if takes_limits else (refcompiler,):
        found = counted[package] = []
        for model in (lambda x: x * 2, Double()):
            backend = Backend()
            given = {"backend": backend, "dynamic": False, "recompile_limit": 2}
            shared = package.compile(model, **given)
            one, other = [
                package.compile(model, **given, isolate_recompiles=True) for _ in range(2)
            ]
            calls = [(shared, 3), (one, 3), (one, 4), (shared, 4), (other, 4), (other, 5), (one, 5)]
            for compiled, size in [*calls, (one, 6), (other, 6), (one, 7), (shared, 5), (one, 3)]:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    assert torch.equal(compiled(torch.ones(size)), torch.ones(size) * 2)
                found.append(backend.graphs)
    for found in counted.values():
        assert found == 2 * [1, 1, 2, 3, 3, 4, 5, 5, 6, 6, 6, 6]
    refcompiler.reset()
    one(torch.ones(3))
    assert backend.graphs == 7


def test_isolated_calls_have_one_accumulated_limit():
    def double(x):
        return x * 2

    backends = [Backend() for _ in range(3)]
    calls = [
        refcompiler.compile(double, backend=backend, dynamic=False, isolate_recompiles=True)
        for backend in backends
    ]
    with refcompiler.config.patch(accumulated_recompile_limit=5), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for compiled in calls:
            sized(compiled, (3, 4, 5))
    assert [backend.graphs for backend in backends] == [3, 2, 0]
