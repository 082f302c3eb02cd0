"""Every file is Python to 3.11, 3.12 and 3.13 alike, with modules that all of them have."""

from __future__ import annotations

import ast
import warnings

import pytest

from tests.tiny.house.imports import named
from tests.tiny.house.repository import PACKAGES, SUPPORT, parse, python_files, relative

# Left the standard library with 3.12 and 3.13 (docs.python.org/3.13/whatsnew: "Removed modules").
REMOVED = frozenset(
    "asynchat asyncore distutils imp smtpd "
    "aifc audioop cgi cgitb chunk crypt imghdr lib2to3 mailcap msilib nis nntplib ossaudiodev "
    "pipes sndhdr spwd sunau telnetlib uu xdrlib".split()
)


def test_every_file_compiles() -> None:
    """Invalid escapes are an error here: 3.12 warns about them on every import."""
    files = python_files(*PACKAGES, *SUPPORT)
    wrong: list[str] = []
    for path in files:
        source = path.read_text(encoding="utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                tree = ast.parse(source, relative(path), feature_version=(3, 11))
                compile(tree, relative(path), "exec", dont_inherit=True)
            except (SyntaxError, Warning) as error:
                wrong.append(f"{relative(path)}: {error}")
    assert not wrong
    assert len(files) > len(PACKAGES)


def test_no_module_that_a_supported_python_lacks() -> None:
    wrong = [
        f"{relative(path)}:{n.line} imports {n.name}"
        for path in python_files(*PACKAGES, *SUPPORT)
        for n in named(parse(path))
        if n.imported and n.name.partition(".")[0] in REMOVED
    ]
    assert not wrong


@pytest.mark.parametrize("source", ["type X = int", "def f[T](x: T): pass", "class C[T]: pass"])
def test_newer_grammar_is_refused(source: str) -> None:
    with pytest.raises(SyntaxError):
        ast.parse(source, feature_version=(3, 11))
