"""The scripts in `examples/` and the README's Python run, each in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def test_there_are_examples() -> None:
    assert [path.stem for path in SCRIPTS] == [
        "drop_in",
        "fastpath_backend",
        "own_backend",
        "package",
    ]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_runs(script: Path, tmp_path: Path) -> None:
    """From a folder that is not the checkout, so with the installed packages only."""
    done = run(str(script), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_readmes_python_runs(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", readme, re.M | re.S)
    assert len(blocks) >= 2
    script = tmp_path / "readme.py"  # a file: what compiles needs source lines to point at
    script.write_text("\n".join([*blocks, 'print("done")']), encoding="utf-8")
    done = run(str(script), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")
