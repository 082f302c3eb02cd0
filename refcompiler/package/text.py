"""Text of a package that runs: straight-line Python over names that rows give.

What generates it is this project; what is read may be anything. So it is parsed, and everything in
it has to be of a few forms, without imports and classes, and may name nothing but what it is given,
and the builtins below. That finds what no release of this project has written. It is no sandbox:
whoever can write a package can run code where it is loaded, as with machine code.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import linecache
from collections.abc import Collection, Mapping
from typing import Any

from refcompiler.errors import PackageError

_FORMS = (
    *(ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign),
    *(ast.Delete, ast.Expr, ast.If, ast.For, ast.With, ast.withitem, ast.Try, ast.ExceptHandler),
    *(ast.Pass, ast.Raise, ast.Call, ast.keyword, ast.Starred, ast.Name, ast.Attribute),
    *(ast.Subscript, ast.Slice, ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.BinOp),
    *(ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.NamedExpr, ast.expr_context),
    *(ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)
#: Builtins that no text of ours names.
_WITHOUT = frozenset(
    ("eval", "exec", "compile", "open", "input", "breakpoint", "globals", "locals", "vars")
    + ("delattr", "setattr", "help", "exit", "quit", "print")
)
_BUILTINS = frozenset(name for name in dir(builtins) if name[:1] != "_") - _WITHOUT
#: Attributes that no text of ours asks for.
_UNASKED = frozenset(("__subclasses__", "__builtins__", "__import__", "__loader__", "__spec__"))
_NUMBERS = itertools.count()


def check(source: str, names: Collection[str], title: str) -> None:
    """Raise :class:`PackageError` where ``source`` is of other forms, or names something else."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise PackageError(f"{title} is malformed: {error}") from error
    found: set[str] = set()
    bound = {*_BUILTINS, *names} - {"__builtins__"}
    for node in ast.walk(tree):
        if not isinstance(node, _FORMS):
            raise PackageError(f"{title} is malformed: its text has a {type(node).__name__}")
        asked = _asked(node)
        if asked in _UNASKED:
            raise PackageError(f"{title} is malformed: its text asks for {asked}")
        if isinstance(node, ast.Name):
            (found if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.FunctionDef):
            bound.add(node.name)
            if node.decorator_list:
                raise PackageError(f"{title} is malformed: its text has a decorator")
    unknown = sorted(found - bound)
    if unknown:
        raise PackageError(f"{title} is malformed: its text names {unknown[0]}")


def _asked(node: ast.AST) -> str:
    """The attribute that a node asks for, or ""."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
        name = node.args[1] if len(node.args) > 1 else None
        return str(name.value) if isinstance(name, ast.Constant) else ""
    return ""


def named_in(source: str) -> set[str]:
    """The names that a text reads."""
    return {n.id for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Name)}


def run(
    source: str, names: Mapping[str, Any], title: str, what: str, own: bool = False
) -> dict[str, Any]:
    """The globals of ``source`` after it has defined its functions.

    ``own``: it comes from the user's own cache, into whose folder nobody else can write.
    """
    if not own:
        check(source, names.keys(), title)
    scope = dict(names)
    file = f"<refcompiler package {next(_NUMBERS)}: {what}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(compile(source, file, "exec"), scope)
    return scope
