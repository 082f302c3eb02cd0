"""Where things are in the checkout, for the tests about the repository itself."""

from __future__ import annotations

import ast
import configparser
import functools
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("specs", "refcompiler", "fastpath", "conformance")
SUPPORT = ("tests", "examples", "benchmarks")


def python_files(*folders: str) -> list[Path]:
    """Every Python file below ``folders`` of the checkout, in a fixed order."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=relative(path))


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def constraints() -> dict[str, str]:
    """``constraints.txt`` as normalised name -> version."""
    lines = [line for line in text("constraints.txt").splitlines() if line and line[0] != "#"]
    return {normalised(name): version for name, version in (line.split("==") for line in lines)}


def normalised(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def tox() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text("tox.ini"))
    return parser


def code_blocks(markdown: str, language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", markdown, re.M | re.S)
