"""Graphs as rows: a row for each node, with its operator by name, and what the graph's own are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.graph import CodeGen, _BoxedCodeGen

from refcompiler.aot.backend import Uncompiled
from refcompiler.aot.remaining import SELECTIVE
from refcompiler.caught import hold, last_caught
from refcompiler.errors import PackageError
from refcompiler.package.names import place_of
from refcompiler.package.rows import Home, Packer, Refused, Unpacker, described, held, register
from refcompiler.remade import MADE

_OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
_LIBRARIES = frozenset({"torch", "operator", "_operator", "math", "refcompiler", "fastpath"})
_CODE = (CodeGen, _BoxedCodeGen)
_OPS = ("placeholder", "get_attr", "call_function", "call_method", "output")


def _pack(p: Packer, gm: GraphModule) -> list[Any]:
    if type(gm.graph._codegen) not in _CODE:
        raise Refused("a graph with code of its own")
    owned: dict[str, Any] = {}
    nodes = []
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            found = functools.reduce(getattr, str(node.target).split("."), gm)
            owned[str(node.target)] = p.pack(found)
        elif node.op == "call_function" and not _is_target(node.target):
            raise Refused(f"the operation {described(node.target)}{_place(node)}")
        elif node.op not in _OPS:
            raise Refused(f"a node of kind {node.op}")
        target = p.pack(node.target) if callable(node.target) else node.target
        try:
            args, kwargs = _argument(p, node.args), _argument(p, node.kwargs)
        except Refused as error:
            raise Refused(f"{error}, an argument of {node.name}{_place(node)}") from None
        nodes.append([node.op, node.name, target, args, kwargs])
    marked = [node.name for node in gm.graph.nodes if SELECTIVE in node.meta]
    boxed = type(gm.graph._codegen) is _BoxedCodeGen
    return [nodes, owned, marked, boxed, last_caught(gm.graph)]


def _place(node: Node) -> str:
    for place in reversed(node.meta.get("refcompiler_places", ())):
        code, line = getattr(place, "code", None), getattr(place, "line", None)
        if code is not None:
            return f" ({code.co_filename}:{line})"
    return ""


def _argument(p: Packer, value: Any) -> Any:
    if isinstance(value, Node):
        return {"n": value.name}
    if isinstance(value, tuple) and type(value) is not torch.Size:
        return {"t": [_argument(p, item) for item in value]}
    if isinstance(value, list):
        return {"l": [_argument(p, item) for item in value]}
    if isinstance(value, dict):
        return {"d": [[p.pack(key), _argument(p, item)] for key, item in value.items()]}
    if isinstance(value, slice):
        return {"s": [_argument(p, item) for item in (value.start, value.stop, value.step)]}
    return p.pack(value)


def _given(u: Unpacker, value: Any, known: Mapping[str, Node]) -> Any:
    if not isinstance(value, dict):
        return u.value(value)
    ((how, parts),) = value.items()
    if how == "n":
        return known[parts]
    if how == "d":
        return {u.value(key): _given(u, item, known) for key, item in parts}
    items = [_given(u, item, known) for item in parts]
    if how == "s":
        return slice(*items)
    return {"t": tuple, "l": list}[how](items)


def _is_target(value: Any) -> bool:
    """An operator, a function of torch's or of this project's, or the user's own, which is named
    with the digest of its code."""
    if isinstance(value, _OPERATORS):
        return True
    if not isinstance(value, (FunctionType, BuiltinFunctionType, type)) and not callable(value):
        return False
    if value is getattr:
        return True
    if MADE in held(value, "__dict__", ()):
        return True
    found = place_of(value)
    if found is None:
        return False
    return found[0].partition(".")[0] in _LIBRARIES or isinstance(value, FunctionType)


def _unpack(
    u: Unpacker,
    nodes: list[Any],
    owned: dict[str, Any],
    marked: list[str],
    boxed: bool,
    caught: int | None,
) -> GraphModule:
    graph = Graph()
    known: dict[str, Node] = {}
    for op, name, target, args, kwargs in nodes:
        if op not in _OPS:
            raise PackageError(f"{u.title} is malformed: a node of kind {op!r}")
        if op == "call_function":
            target = u.value(target)
            if not _is_target(target):
                raise PackageError(f"{u.title} is malformed: {described(target)} is no operation")
        given = _given(u, args, known), _given(u, kwargs, known)
        node = known[name] = graph.create_node(op, target, *given, name=name)
        if node.name != name:
            raise PackageError(f"{u.title} is malformed: two nodes are called {name}")
    for name in marked:
        known[name].meta[SELECTIVE] = True
    if boxed:
        graph.set_codegen(_BoxedCodeGen())
    if caught is not None:
        hold(graph, caught)
    return GraphModule({name: u.value(value) for name, value in owned.items()}, graph)


def _is_forward(value: Any) -> bool:
    return (
        isinstance(value, MethodType)
        and isinstance(value.__self__, GraphModule)
        and value.__func__ is getattr(type(value.__self__), "forward", None)
    )


class Later(Uncompiled):
    """A graph for calls that few make: it is made from its rows at the first of them."""

    def __init__(self, make: Callable[[], GraphModule], home: Home | None):
        self._make, self._home = make, home
        self.calls = 0

    def __call__(self, *inputs: Any) -> Any:
        if self._home is not None:
            self._home.anew("inputs are not what was compiled for")
        return super().__call__(*inputs)

    @property
    def gm(self) -> GraphModule:
        return self._make()


register("graph", _pack, _unpack, when=lambda value: isinstance(value, GraphModule))
register(
    "forward",
    lambda p, value: [p.pack(value.__self__)],
    lambda u, graph: u.value(graph).forward,
    when=_is_forward,
)
register(
    "uncompiled",
    lambda p, value: [p.pack(value.gm)],
    lambda u, graph: Later(u.later(graph), u.home),
    Uncompiled,
    Later,
)
