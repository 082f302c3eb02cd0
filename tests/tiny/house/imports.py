"""Which modules a file names, and which of those it may not.

An import counts wherever it stands (in a function, under ``TYPE_CHECKING``), and so do
``importlib.import_module("name")``, ``__import__("name")`` and a use such as
``torch._dynamo.reset``, which imports the module when it runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

# What a package may import of the project, itself included.
ALLOWED: dict[str, frozenset[str]] = {
    "specs": frozenset({"specs"}),
    "refcompiler": frozenset({"specs", "refcompiler"}),
    "fastpath": frozenset({"specs", "refcompiler", "fastpath"}),
    "conformance": frozenset({"specs", "refcompiler", "fastpath", "conformance"}),
}

# torch's own compiler, which `refcompiler` and `fastpath` are to be compared with.
COMPILER = ("torch._dynamo", "torch._inductor", "torch._functorch")


class Named(NamedTuple):
    line: int
    name: str  # dotted
    imported: bool  # by an import, rather than used as an attribute of an imported name


def named(tree: ast.AST, package: str = "") -> Iterator[Named]:
    """Every dotted name of ``tree`` that is imported, or may be imported by being used.

    ``package`` is the dotted name of the package that the file lies in, for relative imports.
    ``from a import b`` gives both ``a`` and ``a.b``, since ``b`` may be a module.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Named(node.lineno, alias.name, True)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, package)
            yield Named(node.lineno, base, True)
            for alias in node.names:
                yield Named(node.lineno, f"{base}.{alias.name}", True)
        elif isinstance(node, ast.Attribute) and (name := dotted(node)):
            yield Named(node.lineno, name, False)
        elif isinstance(node, ast.Call) and (name := imported_by_call(node)):
            yield Named(node.lineno, name, True)


def absolute(node: ast.ImportFrom, package: str) -> str:
    """The module of ``from ... import``, with leading dots resolved against ``package``."""
    if not node.level:
        return node.module or ""
    above = package.split(".")
    parts = above[: len(above) - node.level + 1]
    return ".".join([*parts, node.module] if node.module else parts)


def imported_by_call(node: ast.Call) -> str | None:
    """The constant name given to ``importlib.import_module`` or ``__import__``."""
    called = (dotted(node.func) or "").rpartition(".")[2]
    if called not in ("import_module", "__import__") or not node.args:
        return None
    first = node.args[0]
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def dotted(node: ast.AST) -> str | None:
    """``a.b.c`` of an attribute chain that starts at a name, else ``None``."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def within(name: str, module: str) -> bool:
    """Whether ``name`` is ``module`` or something in it."""
    return name == module or name.startswith(module + ".")


def wrong_directions(tree: ast.AST, package: str) -> list[Named]:
    """Imports that leave what the file's top package may import: upwards, or of ``tests``."""
    own = {*ALLOWED, "tests", "examples", "benchmarks"}
    above = own - ALLOWED[package.partition(".")[0]]
    return [n for n in named(tree, package) if n.imported and n.name.partition(".")[0] in above]


def compiler_uses(tree: ast.AST, package: str) -> list[Named]:
    """Every place that names a part of torch's own compiler."""
    return [n for n in named(tree, package) if any(within(n.name, m) for m in COMPILER)]
