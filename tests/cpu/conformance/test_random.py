"""The ledger of draws: what is the same, and where a compiler's draws part from eager's."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from conformance import rng_ledger
from conformance.random.compare import compare
from conformance.random.ledger import UNSEEN, Draw
from tests import forked

X = torch.linspace(-1, 1, 60 * 40).view(60, 40)


def _broken():
    """The program: a graph break, small draws and large ones, a draw that nothing reads."""
    y = F.dropout(X, 0.3)
    torch.randn(2000)
    print("", end="")
    return y + torch.rand(5)[0] + torch.rand(60, 40)


@pytest.mark.parametrize("backend", ["fastpath", "aot_eager", "eager"])
def test_the_same_draws(backend):
    torch.manual_seed(4)
    found = rng_ledger(backend)(_broken)
    assert found.divergence is None, str(found)
    assert len(found.eager) == 4
    assert all(draw.line.startswith("test_random.py") for draw in found.eager)
    assert found.eager[0].operator == "aten.bernoulli_.float"
    assert found.eager[0].after == found.eager[1].before
    assert "to the same numbers" in str(found)


@pytest.mark.parametrize("backend", ["fastpath", "aot_eager"])
def test_a_recomputed_region_is_paired(backend):
    w = torch.ones(40, 40, requires_grad=True)

    def program(x):
        def region(x):
            return F.dropout(F.dropout(x @ w, 0.5), 0.5)

        checkpoint(region, x, use_reentrant=False).sum().backward()

    found = rng_ledger(backend)(program, X)
    assert found.divergence is None, str(found)
    again = [draw for draw in found.eager if draw.phase == "backward"]
    assert [d.before for d in again] == [d.before for d in found.eager[:2]]
    assert len(again) == 2


def _late(gm, inputs):
    """A backend that draws once more before the graph."""

    def run(*given):
        torch.rand(1)
        return gm.forward(*given)

    return run


def _reordered(gm, inputs):
    """A backend that draws the second number first."""

    def run(*given):
        second, first = torch.randn(2000), torch.rand(3000)
        return (first, second)

    return run


def _python(gm, inputs):
    """A backend that uses Python's generator."""

    def run(*given):
        random.random()
        return gm.forward(*given)

    return run


@pytest.mark.parametrize(
    ("backend", "reason"),
    [("_late", "not as many"), ("_reordered", "not as many"), ("_python", "Python's random")],
)
def test_the_first_divergence_is_named(backend, reason):
    def program():
        return torch.rand(3000), torch.randn(2000)

    found = rng_ledger(f"{__name__}:{backend}")(program)
    assert found.divergence is not None
    assert reason in found.divergence.reason, str(found)
    assert "first divergence" in str(found)


def _draw(operator, before, after):
    return Draw(operator, None, None, "", "cpu", before, after)


def test_what_is_not_seen_is_known_by_its_states():
    eager = [_draw("a", "0", "1"), _draw("b", "1", "2"), _draw("c", "2", "3")]
    seen = [_draw("k", "0", "1"), _draw(UNSEEN, "1", "3")]
    assert compare(eager, seen).divergence is None
    other = [_draw("k", "0", "1"), _draw(UNSEEN, "1", "9")]
    assert compare(eager, other).divergence.eager is eager[1]
    assert compare(eager, seen[:1]).divergence.compiled is None
    reset = [*eager[:1], _draw("b", "7", "8")]
    assert (
        compare(reset, [seen[0], _draw(UNSEEN, "1", "7"), _draw("k", "7", "8")]).divergence is None
    )


def _own(before, after):
    return Draw("o", None, None, "", "cpu, its own", before, after)


def test_a_generator_of_the_programs_own():
    """Each generator has its order; what draws from one beside compiled code is not seen."""
    eager = [_own("p", "q"), _draw("a", "0", "1"), _own("q", "r"), _draw("b", "1", "2")]
    found = compare(eager, [_own("q", "r"), _draw(UNSEEN, "0", "2")])
    assert found.divergence is None
    assert found.beside == (eager[0],)
    assert "a generator" not in str(found) and "draws of eager's: 3," in str(found)
    other = compare(eager, [_own("q", "x"), _draw(UNSEEN, "0", "2")])
    assert "not as many" in other.divergence.reason
    unknown = compare(eager, [_own("7", "8"), _draw(UNSEEN, "0", "2")])
    assert "from another state" in unknown.divergence.reason
    missing = compare(eager, [_own("q", "r"), _draw("a", "0", "1")])
    assert missing.divergence.eager is eager[3]


@pytest.mark.parametrize("backend", ["fastpath", "aot_eager"])
def test_a_shuffled_loader_beside_compiled_code(backend):
    def program():
        data = torch.utils.data.TensorDataset(torch.arange(6.0))
        for (x,) in torch.utils.data.DataLoader(data, 3, shuffle=True):
            print(end="")
            F.dropout(x + X[:3, 0])

    found = rng_ledger(backend)(program)
    assert found.divergence is None, str(found)
    assert {d.generator for d in found.beside} == {"cpu, its own"}
    assert sum(d.operator.startswith("aten.bernoulli") for d in found.eager) == 2


def command(folder: Path, script: Path, *words: str) -> forked.Done:
    start = folder / "command.py"
    start.write_text(
        f"import sys\nsys.argv = {['refcompiler', 'random', str(script), *words]}\n"
        "from conformance.cli import main\n\nmain()\n"
    )
    return forked.run(start, os.environ, folder)


def test_a_script(tmp_path: Path):
    script = tmp_path / "model.py"
    script.write_text(
        "import sys, torch\n"
        "@torch.compile(backend=sys.argv[1])\n"
        "def f(x):\n"
        "    return torch.nn.functional.dropout(x, 0.5)\n"
        "torch.manual_seed(3)\n"
        "f(torch.ones(3000))\n"
    )
    done = command(tmp_path, script, "aot_eager")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "draws of eager's: 1," in done.stdout and "model.py:4" in done.stdout


@pytest.mark.parametrize(
    ("words", "line"),
    [((), "compiles nothing"), (("--backend", "nobody"), "unknown backend 'nobody'")],
)
def test_what_cannot_be_compared_is_told_in_one_line(tmp_path: Path, words, line):
    """An unknown backend before the script runs, which may take long."""
    script = tmp_path / "model.py"
    script.write_text("import torch\nprint(torch.rand(2))\n")
    done = command(tmp_path, script, *words)
    assert done.returncode == 2 and line in done.stderr, done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout.count("tensor") == (not words)
