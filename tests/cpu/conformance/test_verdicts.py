"""The tests of the tester: a backend that is wrong in one way gets the verdict for that way."""

from dataclasses import replace

import pytest
import torch

from conformance import judge as judge_
from conformance.ambient import ambient, changed
from conformance.case import (
    Call,
    Case,
    Change,
    Compiles,
    Literal,
    Program,
    Storage,
    Tensor,
    Tolerance,
)
from conformance.compilers import CompilerName, find
from conformance.judge import judge
from conformance.repro import Origin, script
from conformance.verdict import Census, Kind
from conformance.worker import _run_script
from tests.cpu.conformance import broken

HERE = "tests.cpu.conformance.broken"
PLAIN = "def program(x):\n    return x * 2\n"
CONDITIONED = Tolerance(1.0, conditioned=True, mixing=True)


def case(source=PLAIN, entry="program", shape=(3, 4), values=None, calls=2, **more):
    """``program(x)`` for a float32 matrix; the second call must not compile again."""
    size = shape[0] * shape[1]
    values = values or tuple(0.1 * (i + 1) for i in range(size))
    history = tuple(
        Call("f(x)", Compiles.YES if n == 0 else Compiles.NO, "no_grad") for n in range(calls)
    )
    settings = {"history": history, "tolerance": Tolerance(1.0, zero_sign=True)} | more
    dtype = settings.pop("dtype", "float32")
    return Case(
        suite="meta",
        subject="program",
        variant=dtype,
        program=Program("import torch\n\n\n" + source, entry),
        inputs=(Storage("_x", dtype, size, Literal(values)), Tensor("x", "_x", shape)),
        **settings,
    )


def verdict(backend, chosen):
    name = backend if backend == "eager" else f"{HERE}:{backend}"
    return judge(chosen, find(CompilerName(name, "torch")))


EXPECTED = {
    "wrong_value": (Kind.WRONG, "values"),
    "wrong_dtype": (Kind.WRONG, "dtype"),
    "wrong_shape": (Kind.WRONG, "shape"),
    "wrong_stride": (Kind.WRONG, "strides"),
    "requires_grad": (Kind.WRONG, "requires_grad"),
    "aliases_input": (Kind.WRONG, "aliasing"),
    "returns_input": (Kind.WRONG, "identity"),
    "makes_nan": (Kind.WRONG, "values"),
    "half_precision": (Kind.PRECISION, "values"),
    "unsteady": (Kind.NONDETERMINISM, "values"),
    "draws_random": (Kind.WRONG, "rng state"),
    "prints": (Kind.WRONG, "printed"),
    "leaves_a_state": (Kind.WRONG, "ambient state"),
    "mutates_input": (Kind.WRONG, "values"),
    "too_few": (Kind.CRASH, "exception"),
    "raises": (Kind.CRASH, "exception"),
    "raises_late": (Kind.CRASH, "exception"),
    "not_callable": (Kind.CRASH, "exception"),
    "refuses": (Kind.REFUSED, "exception"),
    "silently_eager": (Kind.NOT_COMPILED, "compiled"),
    "falls_back": (Kind.NOT_COMPILED, "compiled"),
}


@pytest.fixture(autouse=True)
def own_precision():
    """What one of the backends changes."""
    yield
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("backend", EXPECTED)
def test_each_fault_gets_its_verdict(backend):
    found = verdict(backend, case())
    kinds = {(f.kind, f.aspect) for f in found.findings if not f.tolerated}
    assert EXPECTED[backend] in kinds, found.findings
    assert not found.conforms


def test_the_script_of_a_state_left_behind_shows_it(tmp_path, capsys):
    chosen = case()
    (finding, *_) = [f for f in verdict("leaves_a_state", chosen).findings if not f.tolerated]
    torch.set_float32_matmul_precision("highest")
    path = tmp_path / "found.py"
    path.write_text(script(chosen, finding, Origin(f"{HERE}:leaves_a_state", "torch", "", {}, 9.0)))
    assert _run_script(str(path)) == 1
    assert "found ambient state:    high\n" in capsys.readouterr().out


@pytest.mark.parametrize("by_eager", [False, True])
def test_a_state_that_is_left_behind_the_last_step_counts(monkeypatch, by_eager):
    """Such as by a guard that is freed with what held it; not where eager leaves it too."""
    known = ambient()
    other = known | {"inference mode": "True"}
    states = iter([known, other if by_eager else known, other])
    monkeypatch.setattr(judge_, "ambient", lambda: next(states))
    found = verdict("eager", case())
    assert [(f.aspect, f.where) for f in found.findings if not f.tolerated] == (
        [] if by_eager else [("ambient state", "inference mode")]
    )
    assert changed(known, other) == ["inference mode"] and len(known) > 20


@pytest.mark.parametrize("backend", ["right", "eager"])
def test_a_right_backend_passes_with_comparisons(backend):
    found = verdict(backend, case())
    assert found.kind is Kind.PASS and found.conforms and not found.findings
    assert found.comparisons > 50
    assert found.compiled.graphs == 1 and found.compiled.calls == 2


def test_what_runs_operators_of_aten_is_counted_as_fallen_back():
    found = verdict("right", case())
    assert found.compiled.aten == ("aten.mul",) and found.census is Census.FELL_BACK


def test_what_differs_under_a_mode_alone_is_no_fault():
    found = verdict("differs_when_watched", case())
    assert not [f for f in found.findings if f.kind is Kind.WRONG]
    assert "aten.mul" in found.compiled.aten


def test_what_is_wrong_once_is_no_fault_of_the_mode():
    broken.COMPILED.clear()
    found = verdict("wrong_at_first", case())
    wrong = [f for f in found.findings if f.aspect == "values"]
    assert wrong and {(f.kind, f.tolerated) for f in wrong} == {(Kind.NONDETERMINISM, False)}
    assert len(broken.COMPILED) > 2


def test_noise_is_tolerated_and_told_apart():
    source = "def program(x):\n    return (x @ x.t()).exp()\n"
    found = verdict(
        "reassociates", case(source, tolerance=Tolerance(4.0, conditioned=True, mixing=True))
    )
    assert found.kind is Kind.REASSOCIATION and found.conforms
    evidence = found.worst.evidence
    assert evidence["differing"] > 0 and evidence["unexplained"] == 0
    assert 0 < evidence["ulp_to_float64"] < 20


def test_the_sign_of_zero_counts_where_it_is_defined():
    chosen = case(values=(0.0,) * 12)
    found = verdict("flips_zero", chosen)
    assert found.kind is Kind.WRONG and found.worst.evidence["signed_zero"]
    found = verdict("flips_zero", replace(chosen, tolerance=Tolerance(1.0)))
    assert found.conforms


def test_a_lost_alias_is_found():
    source = "def program(x):\n    x.add_(1)\n    return x.view(4, 3)\n"
    found = verdict("loses_alias", case(source))
    assert ("aliasing", "x") in {(f.aspect, f.where) for f in found.findings}


def test_an_output_that_a_later_call_overwrites_is_found():
    source = "def program(x):\n    return x * 2\n"
    history = (Call("f(x)"), Change("x = x + 1"), Call("f(x)"))
    found = verdict("reuses_output", case(source, history=history))
    wheres = {(f.aspect, f.where, f.step) for f in found.findings}
    assert ("values", "outs[0]", 2) in wheres  # the first result changed when the second was made


MODULE = """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)
        self.scale = 1.0
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        print("called")
        return self.linear(x) * self.scale


def make():
    torch.manual_seed(0)
    return Model()
"""


def test_modules_state_gradients_and_printing_are_observed():
    history = (
        Call("f(x)", Compiles.YES, backward=True),
        Change("model.scale = 3.0"),
        Call("f(x)", Compiles.ANY, backward=True),
    )
    found = verdict("eager", case(MODULE, "make()", history=history, tolerance=CONDITIONED))
    assert found.kind is Kind.PASS, found.findings
    found = verdict("wrong_value", case(MODULE, "make()", history=history, tolerance=CONDITIONED))
    assert not found.conforms


def test_a_program_that_raises_has_to_raise_alike():
    source = "def program(x):\n    raise ValueError('no')\n"
    found = verdict("eager", case(source))
    assert found.conforms and found.comparisons > 0


def test_recompiles_are_judged():
    twice = (Call("f(x)", Compiles.YES), Call("f(x)", Compiles.YES))
    found = verdict("right", case(history=twice))
    assert [(f.aspect, f.step) for f in found.findings] == [("recompiles", 1)]
    shapes = (Call("f(x)", Compiles.YES), Call("f(x[:2])", Compiles.NO))
    found = verdict("right", case(history=shapes))
    assert [(f.aspect, f.found) for f in found.findings] == [("recompiles", "a compile")]


def test_nothing_compared_is_a_failure():
    found = verdict("right", case(history=()))
    assert found.kind is not Kind.PASS and not found.conforms


def test_float64_decides_between_two_answers():
    # Eager in float16 overflows; what does not is right, and told apart as more precise.
    source = "def program(x):\n    return (x * 300) * 300 / 90000\n"
    fused = "def program(x):\n    return (x.float() * 300 * 300 / 90000).half()\n"

    class Other:
        """Compiles another program than it was given: the one that keeps more digits."""

        def __call__(self, gm, inputs):
            space = {"torch": torch}
            exec(fused, space)
            return lambda *args: (space["program"](*args),)

    compiler = find(CompilerName(f"{HERE}:right", "torch"))
    compiler = replace(compiler, backend=Other())
    values = tuple(float(i + 1) for i in range(12))
    found = judge(case(source, dtype="float16", values=values), compiler)
    assert found.kind is Kind.PRECISION and found.conforms
    assert found.worst.evidence["direction"] == "more precise"


def test_a_number_with_an_infinite_part_is_judged_by_what_moves_the_other():
    """Real parts that grow and cancel, beside an imaginary one that is infinite: what one rounding
    of the terms does to them explains a sum in another order, and no more than that."""
    source = "def program(x):\n    return x.flatten().cumsum(0)\n"
    values = (0.3, complex(0.25, float("inf")), -1023.1, 2.7, 64.3, 1024.2, 0.1, 0.7)
    tolerance = Tolerance(4.0, conditioned=True, mixing=True)
    chosen = case(source, "program", (1, 8), values, 1, dtype="complex128", tolerance=tolerance)
    compiler = find(CompilerName(f"{HERE}:right", "torch"))
    late = torch.arange(8).ge(2)[:, None]  # behind the large term
    for error, conforms in ((2.0**-43, True), (2.0**-38, False)):

        def other(gm, inputs, error=error):
            return lambda x: (
                torch.view_as_complex(torch.view_as_real(x.flatten().cumsum(0)) + late * error),
            )

        found = judge(chosen, replace(compiler, backend=other))
        assert found.conforms is conforms, found


def test_a_verdict_says_what_eager_raised():
    wrong_view = case("def program(x):\n    return x.view(7) if x.sum() else x\n")
    assert verdict("eager", wrong_view).raised == ("RuntimeError", "RuntimeError")
    assert verdict("eager", case()).raised == ()


def test_a_worker_that_has_lost_its_device_ends(monkeypatch, capfd):
    """Whoever judges then starts another, and knows by the stage whether eager has lost it."""
    from conformance import worker

    ended = []
    monkeypatch.setattr(worker.os, "_exit", ended.append)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    worker._end_without_device()
    assert ended == []

    def synchronize():
        raise RuntimeError("device-side assert triggered\nand more")

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    worker._end_without_device()
    assert ended == [worker.LOST]
    assert "the device is lost: device-side assert triggered" in capfd.readouterr().out


def test_what_ran_as_it_is_says_why():
    source = "def program(x):\n    return x[1:].as_strided((2,), (1,), 0) * 2\n"
    found = judge(case(source), find(CompilerName("aot_eager", "refcompiler")))
    assert found.compiled.eager_calls and "as_strided" in str(found.compiled.fallback)
