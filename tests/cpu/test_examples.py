"""The scripts in `examples/` and the README's Python run, each in a process of its own."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests import forked

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))


#: A script as a Python runs it that was started elsewhere: what pytest has found, it does not find.
START = f"""
import importlib.util
import os
import runpy
import sys

os.chdir(os.path.dirname(__file__))
path = [place for place in sys.path if place != {str(ROOT)!r}]
sys.path[:] = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *path]
assert importlib.util.find_spec("refcompiler")
sys.argv = sys.argv[1:]
sys.path[0:0] = [os.path.dirname(sys.argv[0])]
if "torch" in sys.modules:  # forked off from a process that may have run it in parallel
    sys.modules["torch"].set_num_threads(1)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


#: Those of which it counts what is imported when: by torch.compile, or not at all.
IMPORTS = ("fastpath_backend", "package")


def run(script: Path, folder: Path, imports: bool = False) -> forked.Done:
    start = folder / "start.py"
    start.write_text(START)
    if imports:
        return forked.fresh(start, os.environ, folder, str(script))
    return forked.run(start, os.environ, folder, str(script))


def test_there_are_examples() -> None:
    assert [path.stem for path in SCRIPTS] == [
        "drop_in",
        "fastpath_backend",
        "own_backend",
        "package",
        "where_it_differs",
    ]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_runs(script: Path, tmp_path: Path) -> None:
    """From a folder that is not the checkout, so with the installed packages only."""
    done = run(script, tmp_path, script.stem in IMPORTS)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_readmes_python_runs(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", readme, re.M | re.S)
    assert len(blocks) >= 2
    script = tmp_path / "readme.py"  # a file: what compiles needs source lines to point at
    script.write_text("\n".join([*blocks, 'print("done")']), encoding="utf-8")
    done = run(script, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")
