"""``refcompiler.compile`` as a user meets it: what it takes, what stays, and what it refuses."""

from __future__ import annotations

import copy
import functools
import inspect
import io
import pickle
import random
import subprocess
import sys
import threading
import traceback
import warnings

import pytest
import torch
from torch import nn

import refcompiler
from refcompiler.runtime.counters import reasons


class Scale(nn.Module):
    """A module with a parameter, a buffer that it changes, and an attribute that matters."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(()))
        self.factor = 2.0

    def forward(self, x, *, bias=None):
        self.calls += 1
        out = self.linear(x) * self.factor
        return out if bias is None else out + bias

    def twice(self, x):
        return self.linear(x) * 2


class Adder:
    def __init__(self, amount):
        self.amount = amount

    def __call__(self, x):
        return x + self.amount


def counts(**expected: int) -> None:
    found = refcompiler.counters()
    assert {name: found[name] for name in expected} == expected, reasons("breaks")


# ---- what can be compiled ---------------------------------------------------------------------


def test_function_as_call_decorator_and_decorator_with_arguments():
    def plain(x, y=2, *rest, scale=1.0, **more):
        return (x * y + sum(rest)) * scale + more.get("shift", 0)

    decorated = refcompiler.compile(backend="eager")(plain)
    called = refcompiler.compile(plain, backend="eager")
    x = torch.randn(3)
    for args, kwargs in [((x,), {}), ((x, 3, 4, 5), {"scale": 2.0}), ((x,), {"shift": 1})]:
        want = plain(*args, **kwargs)
        assert torch.equal(decorated(*args, **kwargs), want)
        assert torch.equal(called(*args, **kwargs), want)
    assert inspect.signature(called) == inspect.signature(plain)
    assert called.__name__ == "plain" and called.__wrapped__ is plain
    with pytest.raises(TypeError, match=r"plain\(\) missing 1 required positional argument: 'x'"):
        called()


def test_second_call_reuses_a_new_dtype_recompiles_and_says_why():
    compiled = refcompiler.compile(lambda x, y: torch.relu(x * y + x), backend="eager")
    a, b = torch.randn(4, 5), torch.randn(4, 5)
    for _ in range(3):
        assert torch.equal(compiled(a, b), torch.relu(a * b + a))
    counts(captures=1, graphs=1, breaks=0, recompiles=0, operations=3)
    a, b = a.double(), b.double()
    assert torch.equal(compiled(a, b), torch.relu(a * b + a))
    counts(captures=2, recompiles=1)
    assert "torch.float64" in reasons("recompiles")[0] and "tensor x" in reasons("recompiles")[0]


def test_method_callable_object_partial_and_builtin():
    torch.manual_seed(0)
    module, x = Scale(), torch.randn(2, 4)
    method = refcompiler.compile(module.twice, backend="eager")
    assert method.__self__ is module and torch.equal(method(x), module.twice(x))
    adder = Adder(3)
    compiled = refcompiler.compile(adder, backend="eager")
    assert torch.equal(compiled(x), x + 3)
    adder.amount = 5
    assert torch.equal(compiled(x), x + 5)
    partial = refcompiler.compile(functools.partial(torch.add, alpha=3), backend="eager")
    assert torch.equal(partial(x, x), torch.add(x, x, alpha=3))
    builtin = refcompiler.compile(torch.sin, backend="eager")
    assert torch.equal(builtin(x), x.sin())
    assert refcompiler.counters()["fallbacks"] == 0


def test_functions_that_torch_has_transformed():
    """The transformation is what is compiled, not torch's code for it."""
    x, compared = torch.randn(3, 4), 0
    for made in (
        torch.vmap(lambda row: row.sin().sum()),
        torch.func.grad(lambda rows: rows.sin().sum()),
        torch.vmap(torch.func.grad_and_value(lambda row: row.pow(3).sum())),
        torch.func.functionalize(lambda rows: rows.clone().add_(1)),
    ):
        compiled = refcompiler.compile(made, backend="eager", fullgraph=True)
        for given in (x, x * 2):
            found, expected = (torch.utils._pytree.tree_leaves(f(given)) for f in (compiled, made))
            assert all(map(torch.equal, found, expected)) and len(found) == len(expected)
            compared += len(found)
    assert compared == 10
    counts(captures=4, graphs=4)


def test_functions_in_c_share_no_limit():
    x = torch.rand(3)
    functions = [torch.sin, torch.cos, torch.exp, torch.tanh, torch.neg, torch.abs, torch.relu]
    functions += [torch.sqrt, torch.floor, torch.sigmoid, torch.ceil, x.add, x.mul]
    with refcompiler.config.patch(recompile_limit=2):
        for function in functions:
            compiled = refcompiler.compile(function, backend="eager")
            assert torch.equal(compiled(x), function(x))
    assert refcompiler.counters()["fallbacks"] == 0
    counts(captures=len(functions), graphs=len(functions))


def test_a_compiled_module_is_the_module():
    torch.manual_seed(0)
    module, x = Scale(), torch.randn(2, 4)
    twin = copy.deepcopy(module)
    compiled = refcompiler.compile(module, backend="eager")
    assert isinstance(compiled, Scale) and isinstance(compiled, nn.Module)
    assert list(compiled.state_dict()) == list(module.state_dict())
    assert [n for n, _ in compiled.named_parameters()] == [n for n, _ in module.named_parameters()]
    assert torch.equal(compiled(x), twin(x)) and torch.equal(module.calls, twin.calls)
    bias = torch.ones(3)
    assert torch.equal(compiled(x, bias=bias), twin(x, bias=bias))
    compiled.factor = twin.factor = 3.0
    assert module.factor == 3.0 and torch.equal(compiled(x), twin(x))
    assert torch.equal(module.calls, twin.calls)
    compiled.eval()
    assert not module.training
    compiled.load_state_dict({k: v * 0 for k, v in compiled.state_dict().items()})
    assert not compiled(x).any()
    seen = []
    handle = compiled.register_forward_hook(lambda m, args, out: seen.append(out) or out + 1)
    assert torch.equal(compiled(x), torch.ones(2, 3)) and len(seen) == 1
    handle.remove()
    assert not compiled(x).any() and len(seen) == 1


def test_a_compiled_module_copies_pickles_and_nests():
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(2, 4)
    compiled = refcompiler.compile(module, backend="eager")
    want = module(x)
    clone = copy.deepcopy(compiled)
    assert clone[0] is not module[0] and torch.equal(clone(x), want)
    loaded = pickle.loads(pickle.dumps(compiled))
    assert isinstance(loaded, nn.Sequential) and torch.equal(loaded(x), want)
    buffer = io.BytesIO()
    torch.save(compiled.state_dict(), buffer)
    outer = refcompiler.compile(nn.Sequential(compiled, nn.Tanh()), backend="eager")
    refcompiler.reset()
    assert torch.equal(outer(x), want.tanh())
    counts(graphs=1, breaks=0)
    again = refcompiler.compile(compiled, backend="eager")
    assert torch.equal(again(x), want)


def test_disable_gives_the_model_back():
    module = Scale()
    assert refcompiler.compile(module, disable=True) is module
    assert refcompiler.compile(len, disable=True) is len


def test_reset_forgets_programs_and_counters():
    compiled = refcompiler.compile(lambda x: x + 1, backend="eager")
    compiled(torch.ones(2))
    refcompiler.reset()
    counts(captures=0, graphs=0)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    counts(captures=1)


def test_a_compiled_method_that_is_compiled_is_compiled_once():
    class Net:
        @refcompiler.compile(backend="eager")
        def by_instance(self, x):
            return x * 2

        @classmethod
        @refcompiler.compile(backend="eager")
        def by_class(cls, x):
            return x * 3

    for method, factor in ((Net().by_instance, 2), (Net.by_class, 3)):
        refcompiler.reset()
        compiled = refcompiler.compile(method, backend="eager", fullgraph=True)
        assert compiled(torch.ones(2)).tolist() == [factor, factor]
        counters = refcompiler.counters()
        assert (counters["captures"], counters["graphs"], counters["breaks"]) == (1, 1, 0)


# ---- errors ------------------------------------------------------------------------------------


def test_what_cannot_be_compiled_is_refused_in_one_line():
    with pytest.raises(TypeError, match="Scale is a class; compile an instance"):
        refcompiler.compile(Scale)
    with pytest.raises(TypeError, match="expected a function, method, nn.Module or callable"):
        refcompiler.compile(3)
    with pytest.raises(TypeError, match="fullgraph takes True or False"):
        refcompiler.compile(len, fullgraph="yes")
    with pytest.raises(TypeError, match="unexpected keyword argument 'model_name'"):
        refcompiler.compile(len, model_name="m")
    with pytest.raises(TypeError, match="options takes a dict, not list"):
        refcompiler.compile(len, options=[])
    with pytest.raises(TypeError, match="options are named by a str, not by 3"):
        refcompiler.compile(len, options={3: True})
    with pytest.raises(TypeError, match="recompile_limit takes a positive int, not 0"):
        refcompiler.compile(len, recompile_limit=0)
    with pytest.raises(ValueError, match="fastpath has no mode 'max'; it has default, "):
        refcompiler.compile(len, mode="max")
    with pytest.raises(TypeError, match="no option 'max_autotun' .did you mean 'max_autotune'"):
        refcompiler.compile(len, options={"max_autotun": True})
    with pytest.raises(TypeError, match="dynamic takes True, False or None"):
        refcompiler.compile(len, dynamic=1)
    with pytest.raises(refcompiler.errors.UnsupportedError, match="did you mean 'eager'.*Known:"):
        refcompiler.compile(len, backend="egaer")
    with pytest.raises(TypeError, match="a backend is a name or a callable"):
        refcompiler.compile(len, backend=7)


def test_a_backend_may_leave_modes_and_random_numbers_otherwise():
    def careless(graph, inputs):
        torch.rand(3)
        random.random()
        graph(*inputs)
        torch.set_default_dtype(torch.float64)
        return graph

    def program(w):
        with torch.no_grad():
            a = w * 2
            torch._dynamo.graph_break()
            b = w * 3
        return a, b, w * 4, torch.rand(2), random.random()

    w = torch.ones(2, requires_grad=True)
    found = []
    for run in (program, refcompiler.compile(program, backend=careless)):
        torch.manual_seed(1)
        random.seed(1)
        *tensors, number = run(w)
        found.append([*(t.tolist() for t in tensors), *(t.requires_grad for t in tensors), number])
        assert torch.is_grad_enabled() and torch.get_default_dtype() == torch.float32
    assert found[0] == found[1]


def test_a_backend_that_breaks_its_contract_is_named():
    def raises(graph, inputs):
        raise RuntimeError("out of paper")

    def nothing(graph, inputs):
        return None

    def few(graph, inputs):
        return lambda *args: ()

    def bare(graph, inputs):
        return lambda *args: args[0]

    x, errors = torch.ones(2), refcompiler.errors
    cases = [
        (raises, "backend raises failed to compile a graph of 1 operations.*out of paper"),
        (nothing, "backend nothing returned NoneType"),
        (few, "backend few returned 0 outputs for a graph .* that has 1"),
        (bare, "backend bare returned Tensor outputs"),
    ]
    for backend, message in cases:
        with pytest.raises(errors.BackendError, match=message):
            refcompiler.compile(lambda x: x + 1, backend=backend)(x)
    assert torch.equal(refcompiler.compile(lambda x: x + 1, backend="eager")(x), x + 1)


def test_fullgraph_names_line_reason_and_hint():
    @refcompiler.compile(backend="eager", fullgraph=True)
    def branchy(x):
        if x.sum() > 0:
            return x + 1
        return x

    with pytest.raises(refcompiler.errors.GraphBreakError) as caught:
        branchy(torch.ones(2))
    text = str(caught.value)
    line = branchy.__wrapped__.__code__.co_firstlineno + 2
    assert "data-dependent-branch" in text and f"test_api.py:{line}" in text and "Hint:" in text


def _fails(x):
    y = x + 1
    return y @ torch.ones(7, 7)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_the_users_exception_comes_out_as_eager_raises_it(fullgraph):
    compiled = refcompiler.compile(_fails, backend="eager", fullgraph=fullgraph)
    with pytest.raises(RuntimeError) as eager:
        _fails(torch.ones(2, 3))
    with pytest.raises(RuntimeError) as ours:
        compiled(torch.ones(2, 3))
    assert str(ours.value) == str(eager.value)
    names = [frame.name for frame in traceback.extract_tb(ours.value.__traceback__)]
    lines = [frame.lineno for frame in traceback.extract_tb(ours.value.__traceback__)]
    assert "_fails" in names and _fails.__code__.co_firstlineno + 2 in lines


def test_past_the_recompile_limit_one_warning_then_native(monkeypatch):
    monkeypatch.setattr(refcompiler.config, "recompile_limit", 3)
    compiled = refcompiler.compile(lambda x, n: x * n, backend="eager", dynamic=False)
    x = torch.ones(2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(8):
            assert torch.equal(compiled(x, n), x * n)
    assert len(caught) == 1 and "recompile_limit" in str(caught[0].message)
    assert "n: expected 2, found 3" in str(caught[0].message)
    counts(captures=3, fallbacks=1)


def test_settings_are_checked():
    with pytest.raises(
        AttributeError, match="no setting 'recompile_limits'; it has recompile_limit"
    ):
        refcompiler.config.recompile_limits = 3
    with pytest.raises(TypeError, match="takes a positive int"):
        refcompiler.config.recompile_limit = 0


# ---- backends ----------------------------------------------------------------------------------


def test_registry_finds_names_callables_entry_points_and_torchs_own():
    assert {"fastpath", "inductor", "reference"} <= set(refcompiler.list_backends())
    assert "eager" not in refcompiler.list_backends()
    assert "eager" in refcompiler.list_backends(exclude_tags=())
    fastpath = refcompiler.lookup_backend("fastpath")
    assert fastpath.__module__.startswith("fastpath")
    assert callable(refcompiler.lookup_backend("cudagraphs"))  # only torch has it

    @refcompiler.register_backend(name="counting_for_test")
    def counting(graph, inputs):
        calls.append(len(inputs))
        return graph.forward

    calls: list[int] = []
    assert refcompiler.lookup_backend("counting_for_test") is counting
    refcompiler.compile(lambda x, y: x + y, backend="counting_for_test")(
        torch.ones(1), torch.ones(1)
    )
    assert calls == [2]
    with pytest.raises(ValueError, match="is registered already"):
        refcompiler.register_backend(lambda g, i: g, name="counting_for_test")


def test_reference_in_float64_is_closer_to_the_truth():
    reference = refcompiler.lookup_backend("reference")
    wide = functools.partial(reference, precision="float64")
    wide.__name__ = "wide"

    def function(x):
        x.mul_(1)
        return (x.exp() - 1).float(), x.to(torch.float32) / 3

    x = torch.full((5,), 1e-6)
    truth = torch.expm1(x.double())
    plain = refcompiler.compile(function, backend="reference")(x.clone())
    better = refcompiler.compile(function, backend=wide)(x.clone())
    assert better[0].dtype == torch.float32
    error = [(found[0].double() - truth).abs().max() for found in (plain, better)]
    assert error[1] < error[0] / 100
    with pytest.raises(ValueError, match="precision is None or 'float64'"):
        reference(None, [], precision="float16")
    options = {"precision": "float64"}
    for compile in (refcompiler.compile, torch.compile):
        found = compile(function, backend="reference", options=options)(x.clone())
        assert torch.equal(found[0], better[0])


@pytest.mark.parametrize("name", ["eager", "reference", "fastpath"])
def test_torch_compile_takes_our_backends(name):
    backend = refcompiler.lookup_backend(name)
    compiled = torch.compile(lambda x: torch.nn.functional.gelu(x) * 2, backend=backend)
    x = torch.randn(33)
    torch.testing.assert_close(compiled(x), torch.nn.functional.gelu(x) * 2)


# ---- many callers ------------------------------------------------------------------------------


def test_threads_share_one_compiled_function():
    compiled = refcompiler.compile(lambda x: (x * 2).sum(), backend="eager", dynamic=False)
    wrong: list[str] = []

    def work(size: int) -> None:
        for _ in range(20):
            if compiled(torch.ones(size)).item() != 2 * size:
                wrong.append(f"size {size}")

    threads = [threading.Thread(target=work, args=(1 + i % 3,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and refcompiler.counters()["captures"] == 3


def test_importing_the_package_does_not_import_torch():
    code = "import sys, refcompiler, refcompiler.errors; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_entry_point_that_cannot_be_loaded_says_so(monkeypatch):
    from importlib.metadata import EntryPoint

    from refcompiler.backends import registry

    broken = {
        "gone": EntryPoint("gone", "no_such_module:backend", registry.GROUP),
        "empty": EntryPoint("empty", "math:no_such_backend", registry.GROUP),
    }
    monkeypatch.setattr(registry, "_entry_points", lambda: broken)
    for name in broken:
        with pytest.raises(refcompiler.errors.UnsupportedError, match="cannot be imported"):
            refcompiler.compile(len, backend=name)


@pytest.mark.parametrize("compile", [refcompiler.compile, torch.compile])
def test_a_function_that_wraps_a_compiled_one_is_itself(compile):
    """functools.wraps copies what marks a wrapper of compiled code."""

    @compile(backend="eager")
    def plain(x):
        return x + 1

    @functools.wraps(plain)
    def ten_times(x):
        return plain(x) * 10

    for function in (ten_times, lambda x: ten_times(x)):
        compiled = refcompiler.compile(function, backend="eager", fullgraph=True)
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 20.0))
    assert refcompiler.counters()["graphs"] == 2


def test_generator_and_coroutine_functions_run_natively_and_are_counted():
    @refcompiler.compile(backend="eager")
    def powers(x):
        for n in range(3):
            yield x**n

    @refcompiler.compile(backend="eager")
    async def later(x):
        return x + 1

    x = torch.full((2,), 3.0)
    assert [p[0].item() for p in powers(x)] == [1.0, 3.0, 9.0]
    with pytest.raises(StopIteration) as done:
        later(x).send(None)
    assert torch.equal(done.value.value, x + 1)
    counts(graphs=0, fallbacks=2)
    assert all("suspends" in reason for reason in reasons("fallbacks"))


def test_indices_of_all_forms_and_inputs_of_any_name_are_captured():
    def take(self, forward):
        return self[..., :1] + forward[None, ..., 0:2:1][0][:, -1:]

    a, b = torch.randn(3, 4), torch.randn(3, 4)
    compiled = refcompiler.compile(take, backend="eager", fullgraph=True)
    assert torch.equal(compiled(a, b), take(a, b))
    counts(graphs=1, breaks=0)


def test_the_default_backend():
    used = []

    def backend(graph, inputs):
        used.append(graph)
        return graph.forward

    assert refcompiler.get_default_backend() == "fastpath"
    try:
        refcompiler.set_default_backend(backend)
        assert refcompiler.get_default_backend() is backend
        before = refcompiler.compile(lambda x: x + 1)
        refcompiler.set_default_backend("eager")
        assert refcompiler.get_default_backend() == "eager"
        with pytest.raises(refcompiler.errors.UnsupportedError, match="did you mean 'eager'"):
            refcompiler.set_default_backend("eagre")
        assert refcompiler.get_default_backend() == "eager"
        refcompiler.compile(lambda x: x * 2)(torch.ones(2))
        assert not used
        assert before(torch.ones(2)).tolist() == [2, 2] and len(used) == 1
    finally:
        refcompiler.set_default_backend(None)
    assert refcompiler.get_default_backend() == "fastpath"
