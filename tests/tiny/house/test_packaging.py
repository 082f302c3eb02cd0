"""setup.py, constraints.txt, the changelog and the tools' configurations agree with each other."""

from __future__ import annotations

import configparser
import fnmatch
import re
import runpy
import tomllib
from typing import Any

import pytest
import setuptools

from specs.version import VERSION
from tests.tiny.house.repository import (
    PACKAGES,
    ROOT,
    constraints,
    normalised,
    parse,
    python_files,
    relative,
    text,
    tox,
)

PYTHONS = ["3.11", "3.12", "3.13"]

# Requirements that constraints.txt leaves to the package named here, with the reason.
UNPINNED = {"triton": "torch's wheel for a GPU names its own Triton exactly"}


@pytest.fixture(scope="module")
def metadata() -> dict[str, Any]:
    """What ``setup.py`` hands to setuptools."""
    handed: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setuptools, "setup", handed.update)
        patch.chdir(ROOT)
        runpy.run_path(str(ROOT / "setup.py"))
    return handed


def test_the_version_is_everywhere_the_same(metadata: dict[str, Any]) -> None:
    newest = re.search(r"^## (\S+)", text("CHANGELOG.md"), re.M)
    assert newest is not None
    assert (metadata["version"], newest[1]) == (VERSION, VERSION)


def test_the_python_versions_agree(metadata: dict[str, Any]) -> None:
    prefix = "Programming Language :: Python :: "
    listed = [
        c.removeprefix(prefix) for c in metadata["classifiers"] if c.startswith(prefix + "3.")
    ]
    assert listed == PYTHONS
    assert metadata["python_requires"] == ">=3.11,<3.14"
    assert tomllib.loads(text("ruff.toml"))["target-version"] == "py311"
    mypy = configparser.ConfigParser()
    mypy.read_string(text("mypy.ini"))
    assert mypy["mypy"]["python_version"] == PYTHONS[0]
    assert mypy["mypy"]["packages"].split(",") == list(PACKAGES)
    assert all(version in text("README.md") for version in PYTHONS)


def test_every_requirement_is_pinned(metadata: dict[str, Any]) -> None:
    pins = constraints()
    required = [*metadata["install_requires"]]
    for extra in metadata["extras_require"].values():
        assert extra
        required += extra
    names = {normalised(re.match(r"[\w.-]+", line)[0]) for line in required}
    assert {name for name in names if name not in pins} == set(UNPINNED)
    assert pins["torch"] == "2.13.0"
    assert "torch>=2.11,<2.14" in metadata["install_requires"]
    assert {"tox", "ruff", "mypy", "pytest"} <= set(pins)


def test_the_seven_extras_are_there(metadata: dict[str, Any]) -> None:
    promised = {"cpu", "gpu", "onnxrt", "openvino", "tvm", "report", "test"}
    assert promised <= set(metadata["extras_require"])
    assert set(metadata["extras_require"]["cpu"]) <= set(metadata["install_requires"])


def test_tox_asks_for_extras_that_exist(metadata: dict[str, Any]) -> None:
    asked = {
        extra.strip()
        for section in tox().values()
        for extra in section.get("extras", "").split(",")
        if extra.strip()
    }
    assert asked
    assert asked <= set(metadata["extras_require"])


def test_every_folder_with_code_is_packaged(metadata: dict[str, Any]) -> None:
    folders = {relative(path.parent).replace("/", ".") for path in python_files(*PACKAGES)}
    assert folders == set(metadata["packages"])


def test_every_other_file_is_package_data(metadata: dict[str, Any]) -> None:
    missing = []
    for package in PACKAGES:
        globs = metadata["package_data"].get(package, [])
        for path in (ROOT / package).rglob("*"):
            if path.is_dir() or path.suffix in (".py", ".pyc"):
                continue
            inside = path.relative_to(ROOT / package).as_posix()
            if not any(fnmatch.fnmatch("/" + inside, glob.replace("**/", "*/")) for glob in globs):
                missing.append(relative(path))
    assert not missing


def test_entry_points_name_what_the_source_defines(metadata: dict[str, Any]) -> None:
    """By reading the modules, since importing them needs torch."""
    groups = metadata["entry_points"]
    assert set(groups) == {"console_scripts", "torch_dynamo_backends", "refcompiler_backends"}
    checked = 0
    for entry in (entry for group in groups.values() for entry in group):
        module, _, name = entry.partition("=")[2].strip().partition(":")
        path = ROOT / (module.replace(".", "/") + ".py")
        tree = parse(path if path.exists() else ROOT / module.replace(".", "/") / "__init__.py")
        defined: set[str | None] = set()
        for node in tree.body:
            defined.add(getattr(node, "name", None))
            defined |= {alias.asname or alias.name for alias in getattr(node, "names", [])}
            defined |= {getattr(target, "id", None) for target in getattr(node, "targets", [])}
        assert name in defined, f"{entry}: {module} defines no {name}"
        checked += 1
    assert checked == 4
