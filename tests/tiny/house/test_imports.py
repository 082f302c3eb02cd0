"""Imports point downwards, and the project does not lean on the compiler it is compared with."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.tiny.house.imports import compiler_uses, named, within, wrong_directions
from tests.tiny.house.repository import PACKAGES, parse, python_files, relative

# file -> (module it may use of torch's compiler, why).
COMPILER_ALLOWED: dict[str, tuple[str, str]] = {
    "refcompiler/backends/registry.py": (
        "torch._dynamo.backends.registry",
        "torch has no public function that returns one of its backends by name",
    ),
    "refcompiler/backends/simple.py": (
        "torch._inductor",
        "the backend `inductor` is torch's own, called through its public entry",
    ),
}


def package_of(path: Path) -> str:
    return relative(path.parent).replace("/", ".")


def shown(path: Path, names: list) -> list[str]:
    return [f"{relative(path)}:{n.line} names {n.name}" for n in names]


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_downwards(package: str) -> None:
    files = python_files(package)
    wrong = [
        w for path in files for w in shown(path, wrong_directions(parse(path), package_of(path)))
    ]
    assert not wrong
    assert files


def test_specs_needs_no_torch() -> None:
    files = python_files("specs")
    wrong = [
        w
        for path in files
        for w in shown(
            path, [n for n in named(parse(path)) if n.imported and within(n.name, "torch")]
        )
    ]
    assert not wrong
    assert len(files) >= 4


def test_torchs_compiler_is_used_only_where_listed() -> None:
    used: set[str] = set()
    wrong: list[str] = []
    for path in python_files("refcompiler", "fastpath"):
        allowed = COMPILER_ALLOWED.get(relative(path))
        for name in compiler_uses(parse(path), package_of(path)):
            if allowed and within(name.name, allowed[0]):
                used.add(relative(path))
            else:
                wrong += shown(path, [name])
    assert not wrong
    assert used == set(COMPILER_ALLOWED), "an entry of COMPILER_ALLOWED is no longer needed"


@pytest.mark.parametrize(
    ("package", "source", "expected"),
    [
        ("specs", "import refcompiler", ["refcompiler"]),
        ("specs", "from specs.table import Table", []),
        ("refcompiler", "import fastpath.kernels as k", ["fastpath.kernels"]),
        (
            "refcompiler",
            "def f():\n    from fastpath import backend",
            ["fastpath", "fastpath.backend"],
        ),
        ("refcompiler", "import importlib\nimportlib.import_module('fastpath')", ["fastpath"]),
        ("refcompiler", "__import__('conformance.cli')", ["conformance.cli"]),
        ("refcompiler.backends", "from ..capture import door", []),
        ("fastpath", "from conformance import run", ["conformance", "conformance.run"]),
        ("conformance", "import fastpath, refcompiler, specs", []),
        ("conformance", "from tests.cpu import models", ["tests.cpu", "tests.cpu.models"]),
    ],
)
def test_a_wrong_direction_is_seen(package: str, source: str, expected: list[str]) -> None:
    assert [n.name for n in wrong_directions(ast.parse(source), package)] == expected


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("import torch._dynamo", 1),
        ("from torch._inductor import config", 2),
        ("from torch import _functorch", 1),
        ("import torch\ntorch._dynamo.reset()", 2),
        ("import importlib\nimportlib.import_module('torch._inductor.decomposition')", 1),
        ("from torch._decomp import get_decompositions", 0),
        ("import torch\ntorch.compile(f, backend='inductor')", 0),
        ("from torch._dynamo_like import thing", 0),
    ],
)
def test_a_use_of_torchs_compiler_is_seen(source: str, count: int) -> None:
    assert len(compiler_uses(ast.parse(source), "refcompiler")) == count
