"""The README's commands are the ones that CI and tox run, and what it names exists."""

from __future__ import annotations

import ast
import re

from tests.tiny.house.repository import ROOT, code_blocks, text, tox


def commands() -> list[str]:
    return [line for block in code_blocks(text("README.md"), "sh") for line in block.splitlines()]


def test_ci_runs_the_readmes_test_command() -> None:
    run = text(".ci/run").splitlines()
    assert run[-1] in commands()
    assert run[-1].endswith("tox run-parallel -o")
    assert (ROOT / ".ci/run").stat().st_mode & 0o111


def test_the_two_commands_are_one_line_each_and_name_tox_environments() -> None:
    lines = [line for line in commands() if "tox run" in line]
    assert len(lines) == 2
    config = tox()
    for line in lines:
        assert line.startswith("python3 -m venv ")
        chosen = re.search(r"tox run -e (\w+)$", line)
        assert f"testenv:{chosen[1] if chosen else config['tox']['env_list'].split()[0]}" in config


def test_tox_has_the_eight_jobs() -> None:
    config = tox()
    assert config["tox"]["env_list"].split() == ["tests", "py312", "py313"]
    assert config.getboolean("tox", "skip_missing_interpreters")
    jobs = {name.partition(":")[2] for name in config if name.startswith("testenv:")}
    checks = {"tests", "py{312,313}", "cpython", "cpython-compiled", "slow"}
    assert jobs == checks | {"conform", "bench", "curves"}
    default = config["testenv:tests"]["commands"]
    for part in ("ruff check", "ruff format --check", "mypy", "tests/tiny tests/cpu"):
        assert part in default
    assert "refcompiler conform" in config["testenv:conform"]["commands"]
    assert "constraints.txt" in config["testenv"]["install_command"]


def test_links_and_folders_exist() -> None:
    checked = 0
    for name in ("README.md", "docs/README.md", "tests/README.md"):
        folder = (ROOT / name).parent
        for target in re.findall(r"\]\(([^)#:]+)\)", text(name)):
            assert (folder / target).exists(), f"{name} links to {target}"
            checked += 1
    for folder in re.findall(r"^\| `(\w+)/` \|", text("README.md"), re.M):
        assert (ROOT / folder).is_dir()
        checked += 1
    assert checked >= 12


def test_the_python_examples_parse() -> None:
    blocks = code_blocks(text("README.md"), "python")
    assert len(blocks) >= 2
    for block in blocks:
        ast.parse(block)
