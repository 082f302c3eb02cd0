"""The suite ``breaks``: the programs of ``python`` and ``mutation`` and generated ones with graph
breaks forced.

A break comes after one statement, or after each of them; after some of a generated program.

A compiler may run what follows a break as it likes; nothing that a user can see may change.
"""

from __future__ import annotations

import ast
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from hypothesis import strategies as st

from conformance.case import Case
from conformance.rows import mutation
from conformance.rows.row import Row
from conformance.strategies.statements import FOCI
from conformance.suites.programs import CHANGES, cases
from conformance.suites.python import ROWS as PYTHON
from conformance.suites.suite import Family

_BREAK = ast.parse("torch._dynamo.graph_break()").body[0]
_PARSING = threading.Lock()
#: Statements after which none is reached.
_LAST = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def families(device: str) -> Iterator[Family]:
    """Two families per row: a break after one statement, and after every one."""
    for row in (*PYTHON, *mutation.ROWS):
        case = row.case("breaks", device)
        places = count(case.program.source)
        if not places:
            continue
        everywhere = _broken(case, row, tuple(range(places)), "everywhere")
        yield Family("breaks", row.feature, f"{row.name}, everywhere", cases=(everywhere,))
        if places > 1:
            drawn = st.integers(0, places - 1).map(partial(_broken_once, case, row))
            yield Family("breaks", row.feature, f"{row.name}, once", drawn)
    for focus in FOCI:
        yield Family("breaks", "generated", focus, _generated(focus, device))


@st.composite
def _generated(draw: st.DrawFn, focus: str, device: str) -> Case:
    """A program of the suite ``programs`` with a break after up to four of its statements."""
    case = draw(st.sampled_from(list(CHANGES)).flatmap(partial(cases, focus, device=device)))
    source = case.program.source
    places = draw(st.sets(st.integers(0, count(source) - 1), min_size=1, max_size=4))
    program = replace(case.program, source=with_breaks(source, tuple(sorted(places))))
    return replace(case, suite="breaks", subject="generated", variant=focus, program=program)


def _broken_once(case: Case, row: Row, place: int) -> Case:
    return _broken(case, row, (place,), "once")


def _broken(case: Case, row: Row, places: tuple[int, ...], how: str) -> Case:
    source = with_breaks(case.program.source, places)
    program = replace(case.program, source=source)
    return replace(case, program=program, variant=f"{row.name}, {how}")


def _parse(source: str) -> ast.Module:
    """``ast.parse``, where other threads may be parsing too.

    CPython 3.11 counts the depth of the tree that it makes for all threads together, and raises
    SystemError when two have got into each other's way.
    """
    for _ in range(50):
        with contextlib.suppress(SystemError), _PARSING:
            return ast.parse(source)
    return ast.parse(source)


def count(source: str) -> int:
    """After how many statements of the functions of ``source`` a break can be forced."""
    marker = _Inserter(())
    marker.visit(_parse(source))
    return marker.seen


def with_breaks(source: str, places: tuple[int, ...]) -> str:
    """``source`` with a forced break after these statements of its functions, counted from 0."""
    tree = _Inserter(places).visit(_parse(source))
    text = ast.unparse(ast.fix_missing_locations(tree))
    return text.replace("import torch\n", "import torch\nimport torch._dynamo\n", 1)


class _Inserter(ast.NodeTransformer):
    """Numbers the places after the statements of functions, in the order of the text."""

    def __init__(self, places: tuple[int, ...]):
        self.places = frozenset(places)
        self.seen = 0
        self.inside = 0  # functions around the statement

    def _function(self, node: ast.AST) -> ast.AST:
        self.inside += 1
        self.generic_visit(node)
        self.inside -= 1
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _function

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        inside, self.inside = self.inside, 0  # of a class's body there is one run
        self.generic_visit(node)
        self.inside = inside
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if not self.inside:
            return node
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list) and not isinstance(node, ast.ClassDef):
                setattr(node, name, self._with_breaks(statements))
        return node

    def _with_breaks(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for i, statement in enumerate(statements):
            found.append(statement)
            docstring = i == 0 and isinstance(statement, ast.Expr) and _is_text(statement.value)
            declares = isinstance(statement, (ast.Global, ast.Nonlocal))
            if isinstance(statement, _LAST) or docstring or declares:
                continue
            if self.seen in self.places:
                found.append(_BREAK)
            self.seen += 1
        return found


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)
