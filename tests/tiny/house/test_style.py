"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

from tests.tiny.house.imports import dotted
from tests.tiny.house.repository import PACKAGES, ROOT, SUPPORT, parse, python_files, relative, text

# Where the running Python's version may be asked for: to choose a table of rows or to refuse, once.
VERSION_CHOSEN_IN = frozenset({"refcompiler/versions.py"})

# Files whose text is itself what a repro script shows: their definitions say what they are.
PROGRAMS = "conformance/programs/"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_what_goes_in_and_out(package: str) -> None:
    docstring = ast.get_docstring(parse(ROOT / package / "__init__.py")) or ""
    words = set(re.findall(r"\w+|->", docstring.lower()))
    assert {"in", "out"} <= words or "->" in words


def test_every_module_says_what_it_is() -> None:
    files = python_files(*PACKAGES, "benchmarks", "examples")
    silent = []
    for path in files:
        tree = parse(path)
        if relative(path).startswith(PROGRAMS) and path.name != "__init__.py":
            inner = [n for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef)]
            said = any(ast.get_docstring(node) for node in inner)
        else:
            said = bool(ast.get_docstring(tree))
        if not said:
            silent.append(relative(path))
    assert not silent
    assert files


def test_a_python_version_is_a_row_not_a_branch() -> None:
    wrong = [
        f"{relative(path)}:{node.lineno}"
        for path in python_files(*PACKAGES)
        if relative(path) not in VERSION_CHOSEN_IN
        for node in ast.walk(parse(path))
        if isinstance(node, ast.If | ast.IfExp)
        and any(dotted(part) == "sys.version_info" for part in ast.walk(node.test))
    ]
    assert not wrong


def test_no_generator_turns_one_error_into_another() -> None:
    """As a context manager: from Python 3.12 on the two errors and their frames are a cycle then,
    which keeps what a program has dropped until garbage is collected."""
    seen, wrong = 0, []
    for path in python_files(*PACKAGES):
        for function in ast.walk(parse(path)):
            if not isinstance(function, ast.FunctionDef):
                continue
            if not any("contextmanager" in ast.unparse(d) for d in function.decorator_list):
                continue
            seen += 1
            handlers = [
                handler
                for node in ast.walk(function)
                if isinstance(node, ast.Try)
                and any(isinstance(part, ast.Yield) for part in ast.walk(node))
                for handler in node.handlers
            ]
            raised = [
                n for h in handlers for n in ast.walk(h) if isinstance(n, ast.Raise) and n.exc
            ]
            wrong += [f"{relative(path)}:{node.lineno}" for node in raised]
    assert not wrong
    assert seen > 20


def comments(pattern: re.Pattern[str]) -> list[str]:
    """Those of all files that ``pattern`` is found in, and where they are."""
    found, files = [], python_files(*PACKAGES, *SUPPORT)
    for path in files:
        source = path.read_text(encoding="utf-8")
        if pattern.search(source):  # or no token needs to be looked at
            for token in tokenize.generate_tokens(io.StringIO(source).readline):
                if token.type == tokenize.COMMENT and pattern.search(token.string):
                    found.append(f"{relative(path)}:{token.start[0]} {token.string}")
    assert files
    return found


def test_nothing_is_marked_as_unfinished() -> None:
    assert not comments(re.compile(r"\b(TODO|FIXME|XXX|HACK)\b"))


def test_a_silenced_check_names_its_code() -> None:
    bare = re.compile(r"#\s*(noqa|type:\s*ignore)(?!\s*[:\[])")
    assert bare.search("x = 1  # noqa")
    assert not bare.search("x = 1  # noqa: E501") and not bare.search(
        "y()  # type: ignore[arg-type]"
    )
    assert not comments(bare)


def test_no_absolute_path_of_a_machine() -> None:
    paths = re.compile(r"""["'` (]/(?:home|root|Users|opt|tmp|work)/\w""")
    assert paths.search('open("/home/someone/x")')
    files = [
        *python_files(*PACKAGES, *SUPPORT),
        *(p for p in ROOT.rglob("*.md") if not any(part.startswith(".") for part in p.parts[1:])),
    ]
    wrong = [
        f"{relative(path)}: {found[0]}"
        for path in files
        if path != Path(__file__).resolve()
        for found in paths.finditer(text(relative(path)))
    ]
    assert not wrong


def test_a_skip_gives_its_reason() -> None:
    names = ("pytest.skip", "pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail")
    wrong = []
    for path in python_files("tests"):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Call) and dotted(node.func) in names:
                keywords = {k.arg for k in node.keywords}
                if dotted(node.func) == "pytest.skip" and node.args or keywords & {"reason", "msg"}:
                    continue
                wrong.append(f"{relative(path)}:{node.lineno}")
            elif isinstance(node, ast.FunctionDef):
                bare = [d for d in node.decorator_list if dotted(d) in names]
                wrong += [f"{relative(path)}:{d.lineno}" for d in bare]
    assert not wrong
