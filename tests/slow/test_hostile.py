"""A sample of the campaign that ``python -m tests.slow.batteries.hostile FROM-TO`` runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import refcompiler
from tests.slow.batteries.hostile.__main__ import apart, good, summary, verdict_of
from tests.slow.batteries.hostile.judge import judge, shrink
from tests.slow.batteries.hostile.writing import Case, write

SEEDS = range(40)
#: Which of them differ, and in what.
KNOWN = {
    6: "words about a write to what a function before a break has saved",
    16: "`logical_not_` of one of several views, which autograd has no formula for",
}


def test_programs_are_as_in_eager() -> None:
    found = [*apart([seed for seed in SEEDS if seed not in KNOWN], "aot_eager", smaller=False)]
    told = [(v.case, str(v.difference)) for v in found if v.difference]
    assert good(found), (summary(found), told)
    judged = [v for v in found if not v.wavering]
    assert len(judged) >= 0.9 * len(SEEDS)
    assert sum(v.graphs for v in judged) > len(judged)
    assert sum(v.facts for v in judged) > 1000 * len(judged)
    assert sum(len(v.uncompiled) for v in judged) < len(judged) / 2


@pytest.mark.parametrize("seed", [5, 17])
def test_a_seed_is_one_program(seed: int) -> None:
    assert write(seed) == write(seed) != write(seed + 1)
    assert 2 <= len(write(seed).body) <= 6 and write(seed).text.count('see.run("call ') >= 3


def _lost(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    def call(*given: Any) -> Any:
        return [t.detach() if isinstance(t, torch.Tensor) else t for t in graph(*given)]

    return call


def _off(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    def call(*given: Any) -> Any:
        return [t + 1 if isinstance(t, torch.Tensor) else t for t in graph(*given)]

    return call


CASE = Case(
    seed=1,
    arguments=("x", "y"),
    body=("v0 = x * y", "y.add_(1)", "v2 = v0.exp()"),
    returned="(v2, v0)",
    around=(
        "n, g = 3, True",
        "x = torch.randn(2, n, requires_grad=g)",
        "y = torch.randn(n)",
        "see.know(x=x, y=y)",
        'r = see.run("call 1", lambda: program(x, y))',
        'see.run("backward 1.0", lambda: backward(r, [0]))',
        'r = see.run("call 2", lambda: program(x, y))',
    ),
)


@pytest.mark.parametrize(("wrong", "kind"), [(_lost, "flags"), (_off, "values")])
def test_what_is_wrong_is_told_and_made_smaller(
    wrong: Callable[..., Any], kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = f"hostile{wrong.__name__}"
    refcompiler.register_backend(wrong, name=name)
    assert judge(CASE, "aot_eager").difference is None
    found = judge(CASE, name)
    assert found.difference is not None and found.difference.kind == kind
    smaller = shrink(CASE, name, found.difference.signature)
    again = judge(smaller, name)
    assert again.difference is not None and again.difference.kind == kind
    assert len(smaller.body) < 3 and len(smaller.around) < 6


def test_a_script_shows_it_by_itself(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    text = CASE.script("aot_eager")
    for name, told in (("aot_eager", False), ("wrong", True)):
        made = 'refcompiler.register_backend(lambda graph, _: lambda *a: [a[0]] * 2, name="wrong")'
        own = text.replace("import refcompiler\n", f"import refcompiler\n{made}\n")
        script.write_text(own.replace('"aot_eager"', f'"{name}"'))
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
        assert ("call 1" in done.stdout) is told, done


def test_what_ends_the_process_is_one_seed_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    from tests.slow.batteries.hostile import __main__ as campaign

    def ending(seed: int, *given: Any) -> Any:
        if seed == 1:
            given[-1](CASE)
            os._exit(3)
        return verdict_of(seed, *given)

    monkeypatch.setattr(campaign, "verdict_of", ending)
    found = [*campaign.apart([0, 1, 2], "aot_eager", smaller=False)]
    assert [v.difference.kind if v.difference else "" for v in found][1] == "crash"
    assert len(found) == 3 and not good(found)
    assert not good([])
