"""The command where what it needs is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import runpy
import sys

sys.modules[sys.argv.pop(1)] = None
runpy.run_module("conformance", run_name="__main__")
"""


def run(missing: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, missing, *(words or ("--version",))]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("package", ["click", "rich", "hypothesis"])
def test_a_missing_package_is_named_in_one_line(package: str) -> None:
    done = run(package)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"refcompiler needs the package {package}: pip install {package}")


def test_without_torch_there_are_the_stepper_and_the_cache() -> None:
    done = run("torch", "conform", "--backend", "eager")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "refcompiler conform needs the package torch: pip install torch\n"
    done = run("torch", "step", "statistics:mean", "[1, 2, 3]", "--max-steps", "2")
    assert done.returncode == 0 and done.stdout.endswith("stopped after 2 instructions\n")


def test_a_missing_part_of_the_project_is_an_error_and_no_advice() -> None:
    done = run("specs.version")
    assert done.returncode == 1 and "ModuleNotFoundError" in done.stderr
    assert "pip install" not in done.stderr


def test_with_all_of_them_it_is_the_command() -> None:
    done = run("no_such_package")
    assert done.returncode == 0 and done.stdout.startswith("refcompiler, version ")
