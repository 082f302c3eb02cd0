"""Kernels printed as Triton give eager's values on a GPU, over dtypes, shapes and programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
ROOT = Path(__file__).parents[3]
PARTS = 8  # each a process of minutes, most of them compilation


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("part", range(PARTS))
def test_kernels_give_eagers_values(part: int) -> None:
    script = ROOT / "tests" / "cpu" / "fastpath" / "triton_kernels.py"
    done = subprocess.run(
        [sys.executable, str(script), "0", "30", "cuda", str(part), str(PARTS)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=290,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ran, compared, refused = map(int, done.stdout.split()[-3:])
    assert ran > 1000 // PARTS and compared > 150_000 // PARTS and not refused
