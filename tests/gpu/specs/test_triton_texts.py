"""Every Triton text, libdevice's among them, means on a GPU what its row says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_triton_texts_mean_what_their_rows_say(tmp_path: Path) -> None:
    script = ROOT / "tests" / "cpu" / "specs" / "interpret_triton.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), "cuda"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) > 20_000


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_errors_are_within_the_bounds_of_the_library() -> None:
    """The command that measures the documentation's figures, on few operands."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.cpu.specs.measure", "--device", "cuda", "--count", "300"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    title, *lines = done.stdout.splitlines()
    assert title.startswith("triton compiled:") and "device" in title
    assert len(lines) > 80 and not any("BEYOND" in line for line in lines)
