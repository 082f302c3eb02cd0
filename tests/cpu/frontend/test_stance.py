"""Stances and settings: what compiled functions do at a call; ``test_limits.py`` has the limits."""

import asyncio
import gc
import inspect
import os
import threading

import pytest
import torch

import refcompiler
from refcompiler.errors import GraphBreakError, RecompileError, UnsupportedError
from refcompiler.runtime.stance import CURRENT
from refcompiler.runtime.torch_stance import follow_torch
from specs.stances import STANCES
from tests import forked


class Backend:
    """Runs graphs as they are, and counts them."""

    def __init__(self):
        self.graphs = self.runs = 0

    def __call__(self, graph, inputs, **given):
        self.graphs += 1
        self.given = given

        def run(*args):
            self.runs += 1
            return graph.forward(*args)

        return run


def made(function=None, dynamic=False, **options):
    """A fresh function, compiled, and its backend."""
    backend = Backend()

    def double(x):
        return x * 2

    return refcompiler.compile(
        double if function is None else function, backend=backend, dynamic=dynamic, **options
    ), backend


X, Y, Z = torch.ones(3), torch.ones(4), torch.ones(5)


def test_every_stance_has_a_name_that_can_be_set():
    for row in STANCES:
        with refcompiler.set_stance(row.name):
            compiled, backend = made()
            if row.miss == "fail":
                with pytest.raises(RecompileError, match="the stance is fail_on_recompile"):
                    compiled(X)
            else:
                assert torch.equal(compiled(X), X * 2)
            assert backend.graphs == (row.name == "default")
    assert len(STANCES) == 6


def test_torchs_own_stance_holds_where_ours_is_the_default():
    """The module that keeps it may be loaded before the first compilation, or by ``set_stance``."""
    for row in STANCES:
        compiled, backend = made()
        compiled(X)
        with torch.compiler.set_stance(row.name):
            if row.miss == "fail":
                with pytest.raises(RecompileError, match="the stance is fail_on_recompile"):
                    compiled(Y)
            else:
                assert torch.equal(compiled(Y), Y * 2)
            assert backend.graphs == 1 + (row.miss == "compile")
            compiled(X)
            with refcompiler.set_stance("force_eager"):
                compiled(Z)
            assert CURRENT.setting.stance is row
        assert backend.runs == 1 + row.enters + (row.miss == "compile"), row.name
    assert CURRENT.setting.plain
    compiled, backend = made()
    decorated = torch.compiler.set_stance("force_eager")(compiled)
    assert torch.equal(decorated(X), X * 2) and backend.graphs == 0
    other = Backend()
    with torch.compiler.set_stance(force_backend=other):
        compiled(X)
    assert (backend.graphs, other.graphs) == (0, 1)
    torch.compiler.set_stance("force_eager")
    try:
        compiled(Y)
        assert backend.graphs == 0
        with pytest.raises(ValueError, match="no stance is named 'eager'; there are default,"):
            torch.compiler.set_stance("eager")
        assert CURRENT.setting.stance.name == "force_eager"
    finally:
        torch.compiler.set_stance("default")
    compiled(Y)
    assert backend.graphs == 1


def test_what_was_compiled_by_torch_is_compiled_anew():
    def double(x):
        return x * 2

    class Layer:
        @torch.compile(backend="eager")
        def method(self, x):
            return x * 2

    disabled = torch.compiler.disable(double)
    compiled, backend = made(torch.compile(torch.compile(double)))  # no graph is for inductor
    method, ofmethod = made(Layer().method)
    for one in (compiled, method):
        assert torch.equal(one(X), X * 2)
    assert (backend.graphs, ofmethod.graphs) == (1, 1)
    module, ofmodule = made(torch.compile(torch.nn.Linear(3, 2), backend="eager"))
    assert module(X).shape == (2,) and ofmodule.graphs == 1
    assert made(disabled)[0] is disabled


def test_what_torchscript_made_is_left_or_refused_as_by_torch():
    traced = torch.jit.trace(torch.nn.ReLU(), X)
    refcompiler.reset()
    assert made(traced)[0] is traced and refcompiler.counters()["fallbacks"] == 1
    with pytest.raises(UnsupportedError, match="a ScriptModule is compiled already"):
        made(torch.jit.script(torch.nn.ReLU()))


def test_a_function_that_sets_torchs_stance_is_refused_inside():
    @torch.compiler.set_stance("force_eager")
    def quiet(x):
        return x * 2

    compiled, _ = made(lambda x: quiet(x))
    with pytest.raises(GraphBreakError, match="quiet, which sets a stance, is called inside"):
        compiled(X)


def test_torchs_stance_is_heard_when_its_compiler_is_loaded_later(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        """
import sys, torch, refcompiler
from torch.compiler import set_stance
graphs = []
compiled = refcompiler.compile(torch.nn.ReLU(), backend=lambda g, i: graphs.append(1) or g)
with refcompiler.set_stance("force_eager"):
    compiled(torch.ones(2))
assert "torch._dynamo" not in sys.modules
set_stance('force_eager')
compiled(torch.ones(2))
assert graphs == []
set_stance("default")
compiled(torch.ones(2))
assert graphs == [1]
"""
    )
    done = forked.fresh(script, dict(os.environ), tmp_path)
    assert done.returncode == 0, done.stderr


def test_torchs_stance_is_heard_where_it_was_set_before(monkeypatch):
    from torch._dynamo import decorators, eval_frame

    monkeypatch.setattr(decorators, "_set_stance", eval_frame._set_stance)
    compiled, backend = made()
    with torch.compiler.set_stance("force_eager"):
        assert CURRENT.setting.plain
        follow_torch()
        compiled(X)
        assert backend.graphs == 0
    compiled(X)
    assert backend.graphs == 1


def test_force_eager_runs_no_compiled_code():
    compiled, backend = made()
    compiled(X)
    with refcompiler.set_stance("force_eager"):
        assert torch.equal(compiled(X), X * 2) and torch.equal(compiled(Y), Y * 2)
        assert (backend.graphs, backend.runs) == (1, 1)
    compiled(X)
    assert (backend.graphs, backend.runs) == (1, 2)


def test_eager_on_recompile_uses_what_there_is():
    compiled, backend = made()
    compiled(X)
    compiled(Y)
    with refcompiler.set_stance("eager_on_recompile"):
        for x in (X, Y, Z, X):
            assert torch.equal(compiled(x), x * 2)
        assert (backend.graphs, backend.runs) == (2, 5)
    compiled(Z)
    assert backend.graphs == 3


def test_fail_on_recompile_names_the_guard():
    compiled, backend = made()
    compiled(X)
    with refcompiler.set_stance("fail_on_recompile"):
        compiled(X)
        with pytest.raises(RecompileError, match=r"double compiles; the guard that failed.*\(4,\)"):
            compiled(Y)
    assert (backend.graphs, backend.runs) == (1, 2)


def test_eager_then_compile_compiles_once_for_sizes_that_differ():
    compiled, backend = made(dynamic=None)
    with refcompiler.config.patch(automatic_dynamic_shapes=True):
        with refcompiler.set_stance("eager_then_compile"):
            for count in (5, 6, 7, 11):
                assert torch.equal(compiled(torch.ones(count)), torch.full((count,), 2.0))
    assert (backend.graphs, backend.runs) == (1, 3)


def test_a_forced_backend_compiles_everything_and_leaves_the_rest():
    compiled, backend = made()
    other = Backend()
    compiled(X)
    with refcompiler.set_stance(force_backend=other):
        compiled(X)
        compiled(X)
    compiled(X)
    assert (backend.graphs, backend.runs) == (1, 2)
    assert (other.graphs, other.runs) == (1, 2)
    module = torch.nn.Linear(3, 2)
    layer, backend = made(module)
    with refcompiler.set_stance(force_backend=other), torch.no_grad():
        assert torch.equal(layer(X), module(X))
    assert backend.graphs == 0 and other.graphs == 2


def test_skipped_guards_are_those_that_all_versions_share():
    class Scale(torch.nn.Module):
        factor = 2

        def forward(self, x):
            return x * self.factor

    module = Scale()
    compiled, backend = made(module)
    compiled(X)
    compiled(Y)
    with refcompiler.set_stance(skip_guard_eval_unsafe=True):
        assert torch.equal(compiled(X), X * 2) and torch.equal(compiled(Y), Y * 2)
        module.factor = 3  # which nobody looks at now
        assert torch.equal(compiled(X), X * 2) and torch.equal(compiled(Y), Y * 2)
        assert backend.graphs == 2
        with pytest.raises(RecompileError, match="call it before with all kinds"):
            compiled(Z)  # sizes tell the versions apart
        assert backend.graphs == 2
    assert torch.equal(compiled(X), X * 3)


def test_skipped_guards_leave_those_of_tensors():
    """As in torch: a single version is not run for tensors of other kinds, nor is one compiled."""
    compiled, backend = made(lambda x, k=1: x * 2 + k)
    with refcompiler.set_stance(skip_guard_eval_unsafe=True):
        with pytest.raises(RecompileError, match="nothing was compiled for it before"):
            compiled(X)
    assert torch.equal(compiled(X), X * 2 + 1)
    with refcompiler.set_stance(skip_guard_eval_unsafe=True):
        assert torch.equal(compiled(X, 5), X * 2 + 1)  # nobody looks at numbers
        for other in (X.double(), X.repeat(3, 3), X.to("meta")):
            with pytest.raises(RecompileError, match="the guard that failed: .*x"):
                compiled(other)
    assert backend.graphs == 1


@pytest.mark.parametrize("package", [torch, refcompiler])
def test_what_misses_where_guards_are_skipped_is_an_error_in_any_stance(package):
    """Nobody has asked whether what is there holds, so eager is no answer either."""

    def broken(x, k):
        y = x * k
        torch._dynamo.graph_break()
        return y + k

    backend = Backend()
    compiled = package.compile(broken, backend=backend, dynamic=False)
    for k in (2, 3):
        assert torch.equal(compiled(X, k), X * k + k)
    stances = torch.compiler if package is torch else refcompiler
    for stance in ("default", "eager_on_recompile", "fail_on_recompile"):
        with stances.set_stance(stance, skip_guard_eval_unsafe=True):
            assert torch.equal(compiled(X, 3), X * 3 + 3)
            with pytest.raises(RuntimeError):
                compiled(X, 4)
    with stances.set_stance("force_eager", skip_guard_eval_unsafe=True):
        assert torch.equal(compiled(X, 4), X * 4 + 4)
    assert backend.graphs == 4


def test_a_break_under_each_stance():
    def broken(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    compiled, backend = made(broken)
    compiled(X)
    assert backend.graphs == 2
    for stance in ("force_eager", "eager_on_recompile"):
        with refcompiler.set_stance(stance):
            for x in (X, Y):
                assert torch.equal(compiled(x), (x + 1) * 2)
    assert backend.graphs == 2
    with refcompiler.set_stance("fail_on_recompile"):
        assert torch.equal(compiled(X), (X + 1) * 2)


def test_as_function_decorator_and_context():
    compiled, backend = made()

    @refcompiler.set_stance("force_eager")
    def inside(x):
        return compiled(x)

    compiled(X)
    inside(X)
    assert backend.runs == 1 and inside.__name__ == "inside"
    with refcompiler.set_stance("force_eager"):
        with refcompiler.set_stance("default"):
            compiled(X)
        compiled(X)
    assert backend.runs == 2
    try:
        refcompiler.set_stance("force_eager")
        compiled(X)
        other, new = made()
        other(X)
    finally:
        refcompiler.set_stance("default")
    assert backend.runs == 2 and new.graphs == 0
    compiled(X)
    assert backend.runs == 3


@pytest.mark.parametrize("stance", ["eager_then_compile", "aot_eager_then_compile"])
def test_a_first_call_that_sets_a_stance(stance):
    """Which only eager may do: nothing of what was looked at for later comes out of the call."""

    def sets(x):
        refcompiler.set_stance("force_eager")
        return x + 1

    compiled, _ = made(sets)
    with refcompiler.set_stance(stance):
        if stance.startswith("aot"):
            with pytest.raises(GraphBreakError, match="set_stance is called inside a compiled"):
                compiled(X)
        else:
            assert torch.equal(compiled(X), X + 1)
            refcompiler.set_stance(stance)
        with pytest.raises(GraphBreakError, match="set_stance is called inside a compiled"):
            compiled(X)


def test_what_set_stance_refuses():
    def sets(x):
        refcompiler.set_stance("force_eager")
        return x + 1

    compiled, _ = made(sets)
    with pytest.raises(GraphBreakError, match="set_stance is called inside a compiled function"):
        compiled(X)
    stance = refcompiler.set_stance("default")

    @stance
    def decorated(x):
        return x + 1

    def enters(x):
        with stance:
            return x + 1

    for fullgraph in (False, True):
        for function in (lambda x: decorated(x), enters):
            with pytest.raises(GraphBreakError, match="set_stance is called inside a compiled"):
                refcompiler.compile(function, backend="eager", fullgraph=fullgraph)(X)
    with pytest.raises(ValueError, match="no stance is named 'eager'; there are default, force"):
        refcompiler.set_stance("eager")
    with pytest.raises(RuntimeError, match="force_backend goes with the default stance"):
        refcompiler.set_stance("force_eager", force_backend="eager")
    with pytest.raises(TypeError, match="skip_guard_eval_unsafe takes True or False"):
        refcompiler.set_stance("default", skip_guard_eval_unsafe=1)
    with pytest.raises(TypeError, match="as a decorator it takes a stance"):
        refcompiler.set_stance(lambda x: x)
    with pytest.raises(UnsupportedError, match="no backend is named 'egaer'"):
        refcompiler.set_stance(force_backend="egaer")
    other, backend = made()
    other(X)
    assert backend.graphs == 1  # nothing of this has set anything


def test_stances_of_threads_and_of_functions_that_are_gone():
    compiled, backend = made()
    compiled(X)
    failures = []

    def work():
        for _ in range(200):
            if not torch.equal(compiled(X), X * 2):
                failures.append("wrong")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(100):
        refcompiler.set_stance("force_eager" if i % 2 else "eager_on_recompile")
    refcompiler.set_stance("default")
    for thread in threads:
        thread.join()
    assert not failures and backend.graphs == 1


def test_a_function_that_is_gone_is_not_kept_by_the_stances():
    gc.collect()
    before = len(CURRENT.sites)
    compiled, backend = made(isolate_recompiles=True)
    compiled(X)
    assert len(CURRENT.sites) == before + 1 and backend.graphs == 1
    del compiled
    gc.collect()
    assert len(CURRENT.sites) == before


# ---- settings --------------------------------------------------------------------------------


def test_patched_settings_come_back():
    config = refcompiler.config
    before = config.recompile_limit

    @config.patch(recompile_limit=3)
    def inside():
        with config.patch({"recompile_limit": 5, "error_on_recompile": True}):
            assert config.recompile_limit == 5 and config.error_on_recompile
        return config.recompile_limit

    assert inside() == 3 and inside() == 3 and config.recompile_limit == before
    with pytest.raises(AttributeError, match="no setting 'recompile_limits'"):
        config.patch(recompile_limit=4, recompile_limits=3)
    with pytest.raises(TypeError, match="takes a positive int"):
        config.patch("recompile_limit", 0)
    for wrong in (lambda: config.patch(3), lambda: config.patch("recompile_limit")):
        with pytest.raises(TypeError, match="^config.patch"):
            wrong()
    for unknown in (lambda: config.nosuch, lambda: config.patch(nosuch=3)):
        with pytest.raises(AttributeError, match="no setting 'nosuch'; it has recompile_limit"):
            unknown()
    with pytest.raises(ValueError, match="dynamic_sources takes names or regular .*'x\\['"):
        config.dynamic_sources = "y, x["
    with config.patch(job_id=None):
        assert config.job_id == ""
    assert config.recompile_limit == before


def _limit() -> int:
    return refcompiler.config.recompile_limit


def _eager() -> bool:
    return CURRENT.setting.stance.name == "force_eager"


@pytest.mark.parametrize(
    "decorate, look",
    [
        (lambda f: refcompiler.config.patch(recompile_limit=3)(f), lambda: _limit() == 3),
        (lambda f: refcompiler.set_stance("force_eager")(f), _eager),
    ],
    ids=["config.patch", "set_stance"],
)
def test_decorated_functions_that_suspend(decorate, look):
    heard = []

    @decorate
    def steps(n):
        for i in range(n):
            try:
                heard.append((yield i, look()))
            except KeyError:
                heard.append(look())
        return look()

    running = steps(3)
    assert next(running) == (0, True) and not look()
    assert running.send("a") == (1, True) and not look()
    assert running.throw(KeyError()) == (2, True) and not look()
    with pytest.raises(StopIteration) as stop:
        next(running)
    assert stop.value.value is True and heard == ["a", True, None] and not look()
    assert steps.__name__ == "steps" and inspect.isgeneratorfunction(steps)

    @decorate
    async def waits():
        before = look()
        await asyncio.sleep(0)
        return before and look()

    async def other():
        found = []
        for _ in range(3):
            found.append(look())
            await asyncio.sleep(0)
        return found

    async def both():
        return await asyncio.gather(waits(), other())

    assert asyncio.run(both()) == [True, [False] * 3]
    for wrong, what in ((Backend, "the class Backend"), (3, "3")):
        with pytest.raises(TypeError, match=f"decorates functions, not {what}"):
            decorate(wrong)
    assert not look()


# ---- what is passed on to the backend --------------------------------------------------------


def test_mode_and_options_reach_the_backend():
    compiled, backend = made(mode="max-autotune", options={"depth": 3})
    compiled(X)
    assert backend.given == {"mode": "max-autotune", "options": {"depth": 3}}
    compiled, backend = made(mode="default", options={})
    compiled(X)
    assert backend.given == {}
    for options, text in (
        ({"mode": "fast"}, "inductor has no mode 'fast'; it has"),
        ({"options": {"max_autotun": True}}, "inductor has no option 'max_autotun'; did you mean"),
    ):
        with pytest.raises((TypeError, ValueError), match=text):
            refcompiler.compile(lambda x: x + 1, backend="inductor", **options)


def test_aot_eager_then_compile_records_gradients_in_the_first_call_too():
    def program(x):
        return (x * 2).sin().sum()

    compiled, backend = made(program)
    found = []
    with refcompiler.set_stance("aot_eager_then_compile"):
        for _ in range(3):
            x = torch.ones(3, requires_grad=True)
            compiled(x).backward()
            found.append(x.grad)
            if len(found) == 1:
                assert backend.graphs == 0
    x = torch.ones(3, requires_grad=True)
    program(x).backward()
    assert all(torch.equal(grad, x.grad) for grad in found)
    assert backend.graphs == 1
