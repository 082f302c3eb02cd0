"""First compile of a small model in a process of its own, with empty and then with filled caches.

The clock starts when torch is imported and the model is built, and stops at the first result. So
it includes what each compiler imports.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from benchmarks.fresh import figure
from benchmarks.harness import Row, quartiles

MODELS: tuple[tuple[str, str, tuple[float, float | None]], ...] = (
    ("perceptron with GELU, layer norm, softmax", "perceptron()", (1 / 4, None)),
    ("GPT-2, 4 layers", "gpt2()", (1 / 4, 1 / 3)),
)
ROUNDS = 3
CACHES = ("REFCOMPILER_CACHE_DIR", "NUMBA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
AGAINST = "`torch.compile` (inductor)"

SCRIPT = """
import time
from benchmarks.models import gpt2, many_kernels, perceptron
import torch
model, inputs = {build}
with torch.no_grad():
    expected = model(**inputs)
    start = time.perf_counter()
    {compiler}
    result = compiled(**inputs)
    taken = time.perf_counter() - start
torch.testing.assert_close(result, expected)
print("taken", taken)
"""

OURS = "import refcompiler; compiled = refcompiler.compile(model)"
THEIRS = "compiled = torch.compile(model)"


def rows() -> list[Row]:
    """Cold and warm: a second process finds what the first one stored."""
    found = []
    for title, build, goals in MODELS:
        cold: list[tuple[float, float]] = []
        warm: list[tuple[float, float]] = []
        for turn in range(ROUNDS):
            taken: dict[str, list[float]] = {}
            for compiler in (OURS, THEIRS) if turn % 2 == 0 else (THEIRS, OURS):
                with tempfile.TemporaryDirectory() as folder:
                    each = [first_compile(compiler, Path(folder), build) for _ in range(2)]
                    taken[compiler] = each
            cold.append((taken[OURS][0], taken[THEIRS][0]))
            warm.append((taken[OURS][1], taken[THEIRS][1]))
        found.append(summary(f"{title}; cold", cold, goals[0]))
        found.append(summary("the same, from the disk caches", warm, goals[1]))
    return found


def cold(name: str, build: str, goal: float, pairs: int) -> Row:
    """So many pairs of first calls, with empty caches, of the model that ``build`` makes."""
    taken: dict[str, list[float]] = {OURS: [], THEIRS: []}
    for turn in range(pairs):
        for compiler in (OURS, THEIRS) if turn % 2 == 0 else (THEIRS, OURS):
            with tempfile.TemporaryDirectory() as folder:
                taken[compiler].append(first_compile(compiler, Path(folder), build))
    return summary(name, list(zip(taken[OURS], taken[THEIRS], strict=True)), goal)


def first_compile(compiler: str, folder: Path, build: str = "perceptron()") -> float:
    """Seconds of the first compile in a fresh process whose caches all lie in ``folder``."""
    environment = {name: str(folder / name.lower()) for name in CACHES}
    environment["REFCOMPILER_CACHE_PROGRAMS"] = "1"
    # As of an installed package: torch has its bytecode, whatever this shell says of ours.
    environment["PYTHONDONTWRITEBYTECODE"] = ""
    return figure(SCRIPT.format(compiler=compiler, build=build), environment)


def summary(name: str, pairs: list[tuple[float, float]], goal: float | None) -> Row:
    ours, theirs = (statistics.median(times) for times in zip(*pairs, strict=True))
    low, high = quartiles(sorted(a / b for a, b in pairs))
    return Row(name, ours, theirs, ours / theirs, low, high, len(pairs), AGAINST, goal)
