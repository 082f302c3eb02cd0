"""What programs say to torch's compiler in the words of ``torch._dynamo``, heard by this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import distributed
from torch._dynamo.comptime import comptime
from torch.testing._internal.distributed.fake_pg import FakeStore

import refcompiler
from refcompiler import errors
from refcompiler.runtime import collectives, counters


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    refcompiler.reset()
    yield
    refcompiler.set_enable_guard_collectives(False)
    refcompiler.reset()


def compile(function: Callable, **said: Any) -> Any:
    return refcompiler.compile(function, backend="eager", **said)


def test_a_break_is_an_error_in_a_block_that_says_so() -> None:
    def f(x: torch.Tensor, where: str) -> torch.Tensor:
        with torch._dynamo.error_on_graph_break(True):
            x = x + 1
            if where == "inside":
                torch._dynamo.graph_break()
            with torch._dynamo.error_on_graph_break(False):
                if where == "allowed again":
                    torch._dynamo.graph_break()
                x = x * 3
        if where == "outside":
            torch._dynamo.graph_break()
        return x * 2

    x = torch.ones(2)
    with pytest.raises(errors.GraphBreakError, match=r"error_on_graph_break.*\n.*graph_break"):
        compile(f)(x, "inside")
    for where, breaks in (("outside", 1), ("allowed again", 1), ("nowhere", 0)):
        refcompiler.reset()
        assert compile(f)(x, where).equal(f(x, where))
        assert refcompiler.counters()["breaks"] == breaks, where
    with pytest.raises(errors.GraphBreakError, match="fullgraph=True"):
        compile(f, fullgraph=True)(x, "outside")


def test_an_error_of_the_users_is_no_break() -> None:
    @torch._dynamo.error_on_graph_break(True)
    def f(x: torch.Tensor) -> torch.Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        compile(f)(torch.ones(2))


def test_settings_of_a_block() -> None:
    @torch._dynamo.patch_dynamo_config(capture_scalar_outputs=True)
    def read(x: torch.Tensor) -> float:
        return x.sum().item()

    def f(x: torch.Tensor) -> torch.Tensor:
        return x + read(x)

    def g(x: torch.Tensor) -> torch.Tensor:
        y = x * torch._dynamo.dont_skip_tracing(read)(x)
        return y + x.sum().item()

    x = torch.ones(2)
    assert compile(f)(x).equal(f(x))
    assert refcompiler.counters()["breaks"] == 0
    assert compile(g)(x).equal(g(x))
    assert refcompiler.counters()["breaks"] == 1  # the setting ends with the function


def test_what_is_said_while_capturing(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        comptime.print("captured")
        comptime.print_graph()
        comptime(lambda context: context.print_bt())
        comptime.force_static(x.shape[0])
        comptime.assert_static(x.shape[0])
        return x + comptime.print_value_stack_and_return(1)

    compiled = compile(f, fullgraph=True, dynamic=True)
    for _ in range(2):
        assert compiled(torch.ones(3)).tolist() == [2, 2, 2]
    assert capsys.readouterr().out == "captured\n"
    compiled(torch.ones(4))
    assert refcompiler.counters()["captures"] == 2

    def g(x: torch.Tensor) -> torch.Tensor:
        comptime.assert_static(x.shape[0])
        return x + 1

    with pytest.raises(errors.GraphBreakError, match="assert_static"):
        compile(g, dynamic=True)(torch.ones(3))


def test_what_is_an_error_inside() -> None:
    calls: list[Callable] = [
        lambda: torch.compiler.set_stance("force_eager"),
        lambda: torch.compiler.set_enable_guard_collectives(True),
        lambda: refcompiler.set_enable_guard_collectives(True),
    ]
    for call in calls:
        with pytest.raises(errors.GraphBreakError, match="inside a compiled function"):
            compile(lambda x, call=call: (call(), x + 1))(torch.ones(2))


def test_compile_inside() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return refcompiler.compile(torch.sin)(x) + refcompiler.compile(lambda y: y * 2)(x)

    x = torch.ones(2)
    assert compile(f, fullgraph=True)(x).equal(f(x))


# ---- guard collectives: see tests/slow for more than one process -----------------------------


def test_others_decide_whether_a_plan_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    others = True

    def gather(found: list[Any], holds: bool, group: Any) -> None:
        asked.append(holds)
        found[:] = [holds, others]

    def f(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x * 2

    compiled = compile(f, dynamic=False)
    with pytest.raises(TypeError, match="True or False"):
        refcompiler.set_enable_guard_collectives(1)  # type: ignore[arg-type]
    assert refcompiler.set_enable_guard_collectives(True) is False
    compiled(torch.ones(2))  # no process group
    store = f"file://{tmp_path}/store"
    distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        compiled(torch.ones(2))
        assert refcompiler.counters()["captures"] == 2
        monkeypatch.setattr(collectives.distributed, "all_gather_object", gather)
        compiled(torch.ones(2))
        assert asked == [True, True]  # the function, and what follows the break
        compiled(torch.ones(3))
        assert asked == [True, True, True, False]
        others = False
        assert compiled(torch.ones(3)).tolist() == [2, 2, 2]
        assert asked[4:] == [True, True]
        assert refcompiler.counters()["captures"] == 5
        assert "guards of another process" in counters.reasons("recompiles")[-1]
        assert refcompiler.set_enable_guard_collectives(False) is True
        compiled(torch.ones(3))
        assert len(asked) == 6
    finally:
        distributed.destroy_process_group()


def test_what_a_process_is_among_others_is_a_constant_and_guarded() -> None:
    def f(x: torch.Tensor) -> tuple[Any, ...]:
        y = x * distributed.get_rank() + distributed.get_world_size()
        return y, distributed.get_rank(), distributed.get_backend()

    compiled = compile(f, fullgraph=True)
    for rank, captures in ((1, 1), (0, 2), (1, 2)):
        distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=4)
        try:
            found, expected = compiled(torch.ones(2)), f(torch.ones(2))
        finally:
            distributed.destroy_process_group()
        assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:] == (rank, "fake")
        assert refcompiler.counters()["captures"] == captures
    with pytest.raises(ValueError, match="process group has not been initialized"):
        compile(f)(torch.ones(2))


@pytest.mark.parametrize("step", ["refcompiler", "torch.compiler"])
def test_that_a_step_begins_needs_no_break(step: str) -> None:
    begin = getattr(eval(step), "cudagraph_mark_step_begin")  # noqa: B009

    def f(x: torch.Tensor) -> torch.Tensor:
        begin()
        return x + 1

    begin()
    x = torch.ones(2)
    assert torch.equal(refcompiler.compile(f, backend="eager", fullgraph=True)(x), x + 1)
