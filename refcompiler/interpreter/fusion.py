"""Runs of instructions as one Python function each, for the concrete domain.

The text of such a function is the text of the handlers, one after the other, with the hooks of the
concrete domain written in. So there is one meaning and two ways to run it: what a handler or a hook
says is changed in one place. What it saves is a call per instruction and hook.

A run begins where control arrived often enough and goes on past calls and conditional jumps, as
long as control does not leave it. ``program.fused.source(index)`` shows the text of one.
"""

from __future__ import annotations

import ast
import copy
import linecache
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any, TypeGuard

from refcompiler.interpreter.current import aside
from refcompiler.interpreter.frame import Frame
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

#: The names of the concrete domain, which tells them itself: it runs what is made here.
HOOKS: list[Mapping[str, Any]] = []
#: Arrivals at an instruction before a run is made that begins there.
ARRIVALS = 40
#: Instructions in a run, at most.
LENGTH = 16

Handler = Callable[[Any, Frame, Any], None]


class Fused:
    """The runs of a program. ``ops`` is parallel to its instructions."""

    def __init__(self, handlers: list[Handler], values: list[Any]):
        self.handlers, self.values = handlers, values  # not the program: no cycle
        self.ops: list[Handler] = [arrive] * len(handlers)
        self.arrivals = [0] * len(handlers)

    def run_from(self, index: int) -> Handler:
        """The function of the run that begins at ``index``."""
        handlers, values = self._run(index)
        template = _template(handlers)
        defaults = [x for i, v in enumerate(values) for x in (v, index + i + 1)]
        return FunctionType(template.__code__, _SPACE, template.__name__, tuple(defaults))

    def source(self, index: int) -> str:
        return _text(self._run(index)[0])

    def _run(self, index: int) -> tuple[tuple[Handler, ...], list[Any]]:
        handlers: list[Handler] = []
        ops, values = self.handlers, self.values
        for i in range(index, min(index + LENGTH, len(ops))):
            handlers.append(ops[i])
            if body_of(ops[i]).leaves:
                break
        return tuple(handlers), values[index : index + len(handlers)]


def arrive(m: Any, f: Frame, value: Any) -> None:
    """Stands for every instruction at which no run begins yet."""
    index = f.ip - 1
    fused: Fused = f.program.fused
    fused.arrivals[index] += 1
    if fused.arrivals[index] == ARRIVALS:
        fused.ops[index] = aside(fused.run_from, index)
    f.program.ops[index](m, f, value)


# ---- the text of a run -----------------------------------------------------------------------

_TEMPLATES: dict[tuple[Handler, ...], FunctionType] = {}
_SPACE: dict[str, Any] = {"__name__": __name__, "__builtins__": BUILTINS}


def _template(handlers: tuple[Handler, ...]) -> FunctionType:
    """A function for every run of these handlers: values and places are its parameters."""
    found = _TEMPLATES.get(handlers)
    if found is None:
        text = _text(handlers)
        file = f"<run {len(_TEMPLATES)} of refcompiler.interpreter>"
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
        made: dict[str, FunctionType] = {}  # other threads make runs too
        exec(compile(text, file, "exec"), _SPACE, made)
        found = _TEMPLATES[handlers] = made["run"]
    return found


def _text(handlers: Sequence[Handler]) -> str:
    names = ", ".join(f"value{i}, after{i}" for i in range(len(handlers)))
    head = f"def run(m, f, value, {names}):"
    lines = ["s, fast = f.stack, f.fast"]
    for i, handler in enumerate(handlers):
        body = body_of(handler)
        if body.text == "pass":
            continue
        if i:
            lines.append(f"f.ip = after{i}")
        lines += body.text.replace("VALUE", f"value{i}").splitlines()
        if i == len(handlers) - 1:
            break
        if body.jumps:
            lines += [f"if f.ip != after{i}:", "    return"]
        if body.calls:
            lines += ["if m.frame is not f:", "    return"]
        if body.names:  # nothing lives longer than in the handler
            lines.append(" = ".join((*body.names, "None")))
    return "\n    ".join([head, *lines]) + "\n"


class Body:
    """The text of a handler for a run, where its value is called VALUE.

    ``jumps``: it may set ``f.ip``. ``calls``: another frame may have to run after it.
    ``leaves``: what follows it never runs after it. ``names`` are its variables.
    """

    def __init__(self, handler: Handler):
        function = _parsed(handler)
        if function is None or not _can_stand_among_others(function, handler.__code__.co_varnames):
            name = _global(handler.__name__, handler)
            self.text = f"{name}(m, f, VALUE)"
            self.jumps = self.calls = True
            self.leaves = False
            self.names: tuple[str, ...] = ()
            return
        statements = [_Inline().visit(node) for node in _statements(function)]
        tree = ast.fix_missing_locations(ast.Module(statements, []))
        parameters = [a.arg for a in function.args.args]
        stored = {n.id for n in ast.walk(tree) if _is_name(n, ast.Store)}
        caught = {n.name for n in ast.walk(tree) if isinstance(n, ast.ExceptHandler) and n.name}
        self.names = tuple(sorted(stored - {"s"}))
        renamed = dict(zip(parameters, ("m", "f", "VALUE"), strict=True))
        tree = _Rename(renamed, stored | caught, handler.__globals__).visit(tree)
        self.text = ast.unparse(_Slots().visit(tree))
        self.text = re.sub(r"^ *s = s\n?", "", self.text, flags=re.M) or "pass"
        self.jumps = "f.ip = " in self.text
        self.calls = "m.frame = " in self.text or "the_CALLED" in self.text
        last = self.text.splitlines()[-1]
        self.leaves = (
            self.text == "f.ip = VALUE" or "m.result = " in self.text or last.startswith("raise ")
        )


_BODIES: dict[Handler, Body] = {}


def prepare(handlers: Iterable[Handler]) -> None:
    """Read the text of the handlers, before a user's program replaces what that takes."""
    if not _BODIES:
        for handler in handlers:
            body_of(handler)


def body_of(handler: Handler) -> Body:
    found = _BODIES.get(handler)
    if found is None:
        found = _BODIES[handler] = Body(handler)
    return found


def _parsed(function: Any) -> ast.FunctionDef | None:
    """The definition of a function without a closure; None if its text is not at hand."""
    if function.__closure__:
        return None
    file, first = function.__code__.co_filename, function.__code__.co_firstlineno
    lines = linecache.getlines(file)
    if file not in _ENDS:
        _ENDS[file] = {
            min([node.lineno, *(n.lineno for n in node.decorator_list)]): node.end_lineno or 0
            for node in ast.walk(ast.parse("".join(lines)))
            if isinstance(node, ast.FunctionDef)
        }
    if first not in _ENDS[file]:
        return None
    text = textwrap.dedent("".join(lines[first - 1 : _ENDS[file][first]]))
    found = ast.parse(text).body[0]
    assert isinstance(found, ast.FunctionDef)
    return found


#: Of each file, the last lines of the functions in it by their first lines.
_ENDS: dict[str, dict[int, int]] = {}


def _statements(function: ast.FunctionDef) -> list[ast.stmt]:
    """The body without the docstring."""
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return function.body[1:] or [ast.Pass()]
    return function.body


def _can_stand_among_others(function: ast.FunctionDef, names: Sequence[str]) -> bool:
    """No early return, no functions inside, ``s`` is the stack, and builtins keep their names."""
    if not BUILTINS.keys().isdisjoint(names):
        return False
    for node in (n for statement in function.body for n in ast.walk(statement)):
        if isinstance(node, ast.Return | ast.FunctionDef | ast.Lambda):
            return False
        if isinstance(node, ast.Assign) and _is_name(node.targets[0], ast.Store):
            if ast.unparse(node.targets[0]) == "s" and ast.unparse(node.value) != "f.stack":
                return False
    return True


def _is_name(node: ast.AST, context: type) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, context)


# ---- names -----------------------------------------------------------------------------------


def _global(name: str, value: Any) -> str:
    """What the global variable ``name`` of a handler's module is called in the text of runs."""
    found = f"the_{name.lstrip('_')}"
    while _SPACE.setdefault(found, value) is not value:
        found += "_"
    return found


class _Rename(ast.NodeTransformer):
    def __init__(self, names: dict[str, str], own: set[str], space: dict[str, Any]):
        self.names, self.own, self.space = names, own, space

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.names:
            return ast.copy_location(ast.Name(self.names[node.id], node.ctx), node)
        if node.id not in self.own and node.id in self.space:
            name = _global(node.id, self.space[node.id])
            return ast.copy_location(ast.Name(name, node.ctx), node)
        return node


class _Slots(ast.NodeTransformer):
    """``f.stack`` and ``f.fast`` are variables of the run, and a test needs no ``bool``."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node) in ("f.stack", "f.fast"):
            name = "s" if node.attr == "stack" else "fast"
            return ast.copy_location(ast.Name(name, node.ctx), node)
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        node.test = _tested(node.test)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not):
            node.operand = _tested(node.operand)
        return node


def _tested(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "bool":
        return node.args[0]
    if isinstance(node, ast.IfExp):
        node.body, node.orelse = _tested(node.body), _tested(node.orelse)
    return node


# ---- hooks -----------------------------------------------------------------------------------


class _Inline(ast.NodeTransformer):
    """Replaces calls of hooks that say one thing by what they say."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        found = self._written(node.value, ast.Expr | ast.Assign | ast.Delete | ast.If)
        return self.generic_visit(node) if found is None else found

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        found = self._written(node, ast.Return)
        return node if found is None else found.value  # type: ignore[attr-defined]

    def _written(self, call: ast.expr, kinds: Any) -> ast.stmt | None:
        hook = _hook(call)
        if hook is None:
            return None
        assert isinstance(call, ast.Call)
        function = _parsed(hook)
        if function is None or len(function.args.args) != len(call.args) + 1:
            return None
        body = _statements(function)
        if len(body) != 1 or not isinstance(body[0], kinds) or not all(map(_is_plain, call.args)):
            return None
        given = [ast.Name("m", ast.Load()), *map(self.visit, call.args)]
        known = {a.arg: x for a, x in zip(function.args.args, given, strict=True)}
        return self.visit(_Substitute(known, hook.__globals__).visit(body[0]))


def _hook(node: ast.expr) -> Any:
    """The concrete hook that is called, or None."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.keywords:
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "m":
            found = HOOKS[0].get(node.func.attr)
            return found if type(found) is FunctionType else None
    return None


def _is_plain(node: ast.expr) -> bool:
    """It may be evaluated in any order, and more than once."""
    plain = ast.Name | ast.Constant | ast.Subscript | ast.UnaryOp | ast.USub | ast.Load
    plain |= ast.BinOp | ast.Sub | ast.Attribute
    hooks = set()
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and _hook(call) is not None:
            hooks |= {id(call), id(call.func)}
    return all(isinstance(n, plain) or id(n) in hooks for n in ast.walk(node))


class _Substitute(_Rename):
    """A hook's parameters by what they are given."""

    def __init__(self, known: dict[str, ast.expr], space: dict[str, Any]):
        super().__init__({}, set(), space)
        self.known = known

    def visit_Name(self, node: ast.Name) -> ast.AST:
        found = self.known.get(node.id)
        return super().visit_Name(node) if found is None else copy.deepcopy(found)
