"""What lies in `tests/tiny` needs no torch, and neither does what it imports."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.tiny.house.imports import named, within
from tests.tiny.house.repository import ROOT, parse, python_files, relative

COLLECT = """
import sys
sys.modules["torch"] = None  # importing it is now an error
import pytest
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", "tests/tiny"]))
"""


def test_no_tiny_test_imports_torch() -> None:
    files = python_files("tests/tiny")
    wrong = [
        f"{relative(path)}:{n.line}"
        for path in files
        for n in named(parse(path))
        if n.imported and within(n.name, "torch")
    ]
    assert not wrong
    assert files


def test_tiny_tests_are_collected_where_torch_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COLLECT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    collected = re.search(r"^(\d+) tests collected", done.stdout, re.M)
    assert collected is not None and int(collected[1]) > 0
