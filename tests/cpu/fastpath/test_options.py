"""Every option and mode: what it does, and what is refused when ``compile`` is called."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

import fastpath
import refcompiler
from fastpath import options as options_
from fastpath.ir import lower
from fastpath.options import Options, options_of
from fastpath.report import Report
from specs.operators import OPERATORS
from specs.options import MODES, OPTIONS, REFUSED


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


@pytest.fixture(autouse=True)
def untold() -> None:
    options_._tell.cache_clear()


def report_of(function: Callable[..., Any], **options: Any) -> Report:
    refcompiler.reset()
    x = torch.randn(8, 32)
    out = refcompiler.compile(function, **options)(x)
    torch.testing.assert_close(out, function(x))
    report = fastpath.last_report()
    assert report is not None and report.fallback is None
    return report


def test_each_row_of_the_backend_is_a_field_with_the_rows_default() -> None:
    default = Options()
    found = {name: getattr(default, options_._FIELDS.get(name, name)) for name in options_.ROWS}
    assert found == {name: row.default for name, row in options_.ROWS.items()}
    assert len(found) == len(fields(Options)) - 1 >= 6
    for row in OPTIONS:
        assert not row.values or row.default in row.values
        assert row.doc.endswith(".")


def test_epilogue_fusion_is_whether_reductions_do_what_follows_them() -> None:
    assert report_of(softmax).kernels == 1
    assert report_of(softmax, options={"epilogue_fusion": False}).kernels > 1


def test_fallback_random_leaves_draws_to_eager() -> None:
    for given, drawn in ((False, 1), (True, 0)):
        refcompiler.reset()
        options = {"fallback_random": given}
        refcompiler.compile(lambda x: x + torch.rand(4096), options=options)(torch.ones(4096))
        report = fastpath.last_report()
        assert report is not None and sum(report.draws.values()) == drawn


def test_strict_numerics_have_eagers_bits() -> None:
    x = torch.randn(4096)
    compiled = refcompiler.compile(lambda x: x.exp().sin(), options={"numerics": "strict"})
    assert torch.equal(compiled(x), x.exp().sin())


@pytest.mark.parametrize("given, count", [({}, 1), ({"shape_padding": False}, 0)])
def test_shape_padding_is_whether_products_on_a_gpu_are_padded(
    given: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastpath import compiler, padding
    from fastpath.device import Device

    class Stop(Exception):
        pass

    def lowering(*_: Any) -> None:
        raise Stop

    padded: list[Any] = []
    monkeypatch.setattr(padding, "pad_products", lambda *given: padded.append(given))
    monkeypatch.setattr("fastpath.ir.lower.Lowering", lowering)
    graph = torch.fx.symbolic_trace(lambda x: x)
    device = Device(torch.device("cuda", 0))
    with pytest.raises(Stop):
        compiler._launching(graph, Report(), device, options_of(given), False)
    assert len(padded) == count


@pytest.mark.parametrize("name", ["triton.cudagraphs", "shape_padding", "max_autotune"])
def test_what_is_for_a_gpu_is_told_once_on_the_cpu(name: str) -> None:
    with pytest.warns(UserWarning, match=f"{name} has no effect on cpu: it is for cuda"):
        report_of(softmax, options={name: True})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report_of(softmax, options={name: True}, dynamic=False)
        report_of(softmax, options={name: False})


def test_what_has_no_effect_yet_is_told_by_compile() -> None:
    lacking = [row for row in OPTIONS if row.lacks]
    for row in lacking:
        with pytest.warns(UserWarning, match=f"{row.name} has no effect yet: {row.lacks}"):
            refcompiler.compile(softmax, options={row.name: True})


@pytest.mark.parametrize("mode", MODES.names())
def test_modes_set_options(mode: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report_of(softmax, mode=mode)
    chosen = options_.named(options_of({}, mode))
    assert chosen == dict(MODES[mode].options) == refcompiler.list_mode_options(mode)
    assert options_of({"numerics": "strict"}, mode).numerics == "strict"


def test_lists_are_the_rows() -> None:
    listed = refcompiler.list_options()
    wanted = "epilogue_fusion max_autotune fallback_random shape_padding triton.cudagraphs"
    wanted += " trace.enabled trace.graph_diagram guard_filter_fn numerics"
    assert set(wanted.split()) == set(listed)
    assert listed["numerics"].default == "fast" and listed["numerics"].type == "str"
    assert refcompiler.list_mode_options()["reduce-overhead"] == {"triton.cudagraphs": True}
    with pytest.raises(ValueError, match="no mode 'fast'; there are default, reduce-overhead"):
        refcompiler.list_mode_options("fast")


@pytest.mark.parametrize(
    "given, error, text",
    [
        (
            {"options": {"fallback_rand": True}},
            TypeError,
            "no option 'fallback_rand' .did you mean 'fallback_random'.*it has epilogue_fusion, ",
        ),
        ({"options": {"numerics": "exact"}}, ValueError, "numerics is 'fast' or 'strict', not"),
        ({"options": {"max_autotune": 1}}, ValueError, "max_autotune is False or True, not 1"),
        ({"mode": "fast"}, ValueError, "no mode 'fast'; it has default, reduce-overhead, max-auto"),
        (
            {"mode": "reduce-overhead", "options": {"triton.cudagraphs": False}},
            ValueError,
            "mode 'reduce-overhead' and the option triton.cudagraphs = False clash: the mode sets",
        ),
        (
            {"backend": "inductor", "mode": "max-autotune", "options": {"max_autotune": False}},
            ValueError,
            "mode 'max-autotune' and the option max_autotune = False clash: the mode sets True",
        ),
        ({"backend": "eager", "mode": "max-autotune"}, TypeError, "backend eager takes no mode"),
        ({"backend": "eager", "options": {"x": 1}}, TypeError, "eager takes no options"),
    ],
)
def test_what_is_wrong_is_said_when_compile_is_called(
    given: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        refcompiler.compile(softmax, **given)


def test_backends_of_others_take_mode_and_options_if_they_can() -> None:
    taken: list[Any] = []

    def backend(graph: Any, inputs: Any, *, mode: str, options: Any) -> Any:
        taken.append((mode, options))
        return graph.forward

    refcompiler.compile(softmax, backend=backend, mode="m", options={"x": 1})(torch.ones(2))
    assert taken == [("m", {"x": 1})]


def test_options_that_there_are_not_say_why() -> None:
    for name, why in REFUSED.items():
        with pytest.raises(TypeError, match=f"^fastpath has no option '{name}': ") as error:
            refcompiler.compile(softmax, options={name: True})
        assert why in str(error.value) and "\n" not in why
        assert name not in options_.ROWS


def test_the_document_of_what_is_left_to_aten_says_what_the_rows_say() -> None:
    """``python -m tests.slow.fallbacks --check`` lowers all of it again, in two minutes."""
    page = Path(fastpath.__file__).parents[1] / "docs" / "fallbacks.md"
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if "| `aten." in line]
    seen = 0
    for line in lines:
        name, why = [cell.strip() for cell in line.split(" | ")[:2]]
        row = OPERATORS.get(name.strip("|` "))
        if why == "no row in the operator table":
            assert row is None and name.strip("|` ") not in lower._RULE_OF, line
            seen += 1
        elif row is not None and row.lowering is None:
            known = row.reasons.get("lowering", "no lowering")
            seen += known.replace("|", "\\|") == why
    assert seen > 120 and len(lines) > 200
