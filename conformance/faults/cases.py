"""A graph and its arguments as a case: plain data that another process can judge, shrink and show
as a script."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from conformance.case import Call, Case, Drawn, Input, Literal, Program, Storage, Tensor, show
from conformance.faults.copies import is_plain
from conformance.faults.graphs import attribute
from conformance.faults.isolate import TOLERANCE, GraphCall, all_alike
from conformance.verdict import Finding

# Elements that a script spells out, and with which it is still a script that somebody reads.
MOST_ELEMENTS = 1 << 14
SPELT = 256


class NoCase(Exception):
    """The graph cannot be written down: why."""


def case_of(call: GraphCall, finding: Finding, operator: str, drawn: bool = False) -> Case:
    """``drawn``: large tensors are drawn from a generator, instead of the values that they had.

    Raises :class:`NoCase`.
    """
    graph, args = _plain(call.gm, call.args)
    names = [str(n.target) for n in graph.find_nodes(op="placeholder")]
    inputs = _inputs(names, args, drawn)
    given = [(name, arg) for name, arg in zip(names, args)]
    text = f"f({', '.join(name for name, _ in given)})"
    backward = finding.where.startswith("grad")
    if backward and call.tangents is all_alike:
        text = f"sum(t.sum() for t in {text} if t.requires_grad)"
    mode = "inference_mode" if call.ambience.inference else "grad"
    mode = mode if call.ambience.grad or mode != "grad" else "no_grad"
    history = [Call(text, mode=mode, backward=backward)]
    other = _of_other_sizes(call.gm, names)
    if other:
        inputs += other
        warm = ", ".join(f"before_{name}" if _has(other, f"before_{name}") else name
                         for name in names)  # fmt: skip
        history.insert(0, Call(f"f({warm})", mode=mode, backward=backward))
    source = _source(graph, call)
    return Case(
        "locate", operator, "", Program(source), tuple(inputs), tuple(history), TOLERANCE,
        device=next((a.device.type for a in args if isinstance(a, torch.Tensor)), "cpu"),
    )  # fmt: skip


def _has(inputs: Sequence[Input], name: str) -> bool:
    return any(item.name == name for item in inputs)


def _plain(gm: GraphModule, args: Sequence[Any]) -> tuple[Graph, list[Any]]:
    """The graph as a function of tensors alone: what it holds is given to it, and symbols are
    sizes of what is."""
    graph = Graph()
    known: dict[Node, Node] = {}
    given: list[Any] = []
    symbols: list[Node] = []
    placeholders = gm.graph.find_nodes(op="placeholder")
    for node, arg in zip(placeholders, args, strict=True):
        if isinstance(arg, torch.Tensor):
            known[node] = graph.placeholder(_name(node.name, len(given)))
            given.append(arg)
        else:
            symbols.append(node)
    for node in gm.graph.find_nodes(op="get_attr"):
        value = attribute(gm, str(node.target))
        if not isinstance(value, torch.Tensor):
            raise NoCase(f"it holds {type(value).__name__} {node.target}")
        known[node] = graph.placeholder(_name(node.name, len(given)))
        given.append(value)
    for node in symbols:
        arg = args[placeholders.index(node)]
        known[node] = _size(graph, node, placeholders, known, arg)
    for node in gm.graph.nodes:
        if node.op == "output":
            graph.output(graph.node_copy(node, known.__getitem__).args[0])
            graph.erase_node(next(n for n in graph.nodes if n.op == "output"))
        elif node not in known:
            known[node] = graph.node_copy(node, known.__getitem__)
    return graph, given


def _name(name: str, number: int) -> str:
    text = re.sub(r"\W", "_", name)
    return text if len(text) <= 24 else f"t{number}"


def _size(
    graph: Graph, node: Node, placeholders: list[Node], known: dict[Node, Node], arg: Any
) -> Any:
    symbol = node.meta.get("example_value")
    for other in placeholders:
        shown = other.meta.get("example_value")
        if isinstance(shown, torch.Tensor):
            for dim, size in enumerate(shown.shape):
                if isinstance(size, torch.SymInt) and str(size) == str(symbol):
                    return graph.call_method("size", (known[other], dim))
    return arg


def _inputs(names: Sequence[str], args: Sequence[Any], drawn: bool) -> list[Input]:
    inputs: list[Input] = []
    storages: dict[int, str] = {}
    count: dict[int, int] = {}
    for arg in args:
        if not is_plain(arg):
            raise NoCase(f"an input is {type(arg).__name__}")
        count[arg.untyped_storage()._cdata] = count.get(arg.untyped_storage()._cdata, 0) + 1
    for name, arg in zip(names, args):
        base = arg.detach()
        key = base.untyped_storage()._cdata
        alone = count[key] == 1
        whole = alone and base.is_contiguous() and not (base.is_conj() or base.is_neg())
        if key not in storages:
            storages[key] = f"storage_of_{name}"
            flat = base.reshape(-1) if whole else _flat(base)
            inputs.append(_storage(storages[key], flat, drawn))
        strides = None if whole else tuple(base.stride())
        offset = 0 if whole else base.storage_offset()
        inputs.append(
            Tensor(
                name, storages[key], tuple(base.shape), strides, offset, None,
                base.is_conj(), base.is_neg(), arg.requires_grad,
            )
        )  # fmt: skip
    return inputs


def _flat(base: torch.Tensor) -> torch.Tensor:
    storage = base.untyped_storage()
    made = torch.empty(0, dtype=base.dtype, device=base.device)
    return made.set_(storage, 0, (storage.nbytes() // base.element_size(),), (1,))


def _storage(name: str, flat: torch.Tensor, drawn: bool) -> Storage:
    dtype = str(flat.dtype).removeprefix("torch.")
    size = flat.numel()
    if size > (SPELT if drawn else MOST_ELEMENTS):
        if not drawn:
            raise NoCase(f"{name} has {size} elements")
        kind = "normal" if flat.is_floating_point() or flat.is_complex() else "integers"
        low, high = (int(flat.min()), int(flat.max()) + 1) if kind == "integers" else (0, 10)
        return Storage(name, dtype, size, Drawn(kind, size, low, high))
    return Storage(name, dtype, size, Literal(tuple(flat.tolist())))


def _of_other_sizes(gm: GraphModule, names: Sequence[str]) -> list[Input]:
    """Inputs of an earlier call, after which a front end takes sizes as symbols."""
    shown = [n.meta.get("example_value") for n in gm.graph.find_nodes(op="placeholder")]
    tensors = [value for value in shown if isinstance(value, torch.Tensor)]
    if not any(isinstance(value, torch.SymInt) for value in shown):
        return []
    inputs: list[Input] = []
    for name, value in zip(names, tensors):
        shape = tuple(_grown(size) for size in value.shape)
        count = 1
        for size in shape:
            count *= size
        dtype = str(value.dtype).removeprefix("torch.")
        kind = "normal" if value.is_floating_point() or value.is_complex() else "integers"
        inputs += [
            Storage(f"storage_before_{name}", dtype, count, Drawn(kind, 1, 0, 2)),
            Tensor(f"before_{name}", f"storage_before_{name}", shape,
                   requires_grad=value.requires_grad),
        ]  # fmt: skip
    return inputs


def _grown(size: Any) -> int:
    """The size where each symbol is larger by two."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    expression = size.node.expr
    env = size.node.shape_env
    hints = getattr(env, "backed_var_to_val", None) or getattr(env, "var_to_val", None) or {}
    return int(expression.subs({s: int(hints.get(s, 3)) + 2 for s in expression.free_symbols}))


# -- the source ----------------------------------------------------------------------------------


def _source(graph: Graph, call: GraphCall) -> str:
    """The graph as a function ``program``."""
    for node in graph.nodes:
        node.type = None
    code = graph.python_code("self")
    text = re.sub(r"def forward\(self(?:, )?", "def program(", code.src.strip())
    text = re.sub(r";  (?:\w+ = )+None", "", text)
    if re.search(r"\bself\.", text):
        raise NoCase("it holds what cannot be written down")
    lines = []
    for name, value in code.globals.items():
        if name in ("torch", "inf", "nan") or not re.search(rf"\b{re.escape(name)}\b", text):
            continue
        lines.append(_import(name, value))
    casts = [(d, t) for d, on, t in call.ambience.autocast if on]
    if casts:
        (device, dtype), *_ = casts
        head, _, body = text.partition("\n")
        body = "\n".join("    " + line for line in body.splitlines())
        text = f"{head}\n    with torch.autocast({device!r}, {dtype}):\n{body}"
    return "\n".join(["import torch", "from math import inf, nan", *lines, "", "", text, ""])


def _import(name: str, value: Any) -> str:
    module = getattr(value, "__module__", None)
    if module == "builtins":
        return ""
    if name == "device":
        return "from torch import device"
    if isinstance(module, str) and "." not in name and not module.startswith("__"):
        return f"from {module} import {getattr(value, '__name__', name)} as {name}"
    if hasattr(value, "__name__") and name == value.__name__:
        return f"import {name}"
    raise NoCase(f"it calls {name}, which cannot be imported")


__all__ = ["NoCase", "case_of", "show"]
