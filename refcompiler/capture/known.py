"""Values of tensors that a graph computes from constants alone: they are known while capturing.

``torch.arange(4)[1].item()``, or a mask that is compared with another one: such nodes have no input
among their ancestors but numbers that are :mod:`steady <refcompiler.capture.steady>`, draw no
random numbers and read no memory that nothing was written to. They are run for real, once, so that
a program may branch on what they give.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import BuiltinFunctionType
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from refcompiler.dispatching import DispatchMode
from refcompiler.naming import takes_data

_LARGEST = 1 << 20  # elements: more than that is not computed to look at it
_PURE = ("aten", "prims", "prim")  # other operators are anybody's
_UNSET_MEMORY = ("aten::empty", "aten::new_empty", "aten::resize", "aten::set_")


class _NotKnown(Exception):
    """The value depends on more than constants."""


class _Constants(DispatchMode):
    """Refuses operators that do not give the same at each run."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags or func.namespace not in _PURE:
            raise _NotKnown
        if func._schema.name.startswith(_UNSET_MEMORY):
            raise _NotKnown
        return func(*args, **(kwargs or {}))


def known_value(recorder: Any, fake: torch.Tensor) -> torch.Tensor | None:
    """The tensor that ``fake`` stands for, if it is the same at each run of the graph."""
    scope = recorder.scope
    node = scope.nodes.get(id(fake))
    if node is None or scope is not recorder.root or recorder.suspended:
        return None
    if recorder.mutates and any(is_data(each) for each in scope.graph.nodes):
        return None
    try:
        nodes = list(_ancestors(recorder, node))
        with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
            with _Constants():
                for each in nodes:
                    if each not in recorder.constants:
                        recorder.constants[each] = _run(recorder, each)
                    elif each.op != "placeholder":
                        _check_versions(recorder.constants[each], each.meta["example_value"])
    except _NotKnown:
        return None
    return recorder.constants[node]


def is_data(node: torch.fx.Node) -> bool:
    """``x.data``: what is written to it, nobody counts."""
    return node.op == "call_function" and takes_data(node.target, node.args)


def _ancestors(recorder: Any, node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """``node`` and what it is computed from, in the graph's order."""
    inputs: list[torch.fx.Node] = []
    found: set[torch.fx.Node] = set()
    left = [node]
    while left:
        each = left.pop()
        if each in found:
            continue
        found.add(each)
        if each.op == "placeholder":
            inputs.append(each)
            continue
        if each.op not in ("call_function", "call_method") or not _is_torchs(each.target):
            raise _NotKnown
        left.extend(each.all_input_nodes)
    for each in inputs:  # only when nothing else is in the way: they are guarded
        value = recorder.steady(each.meta.get("example_value"), each)
        if value is None:
            raise _NotKnown
        recorder.constants[each] = value
    return (each for each in node.graph.nodes if each in found)


def _is_torchs(target: Any) -> bool:
    """Not a function of the user's that is a node as a whole."""
    if type(target) is str or type(target) is BuiltinFunctionType:
        return True
    return (getattr(target, "__module__", None) or "").partition(".")[0] == "torch"


def _run(recorder: Any, node: torch.fx.Node) -> Any:
    expected = node.meta.get("example_value")
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), recorder.constants.__getitem__)
    for tensor in _tensors(expected):
        if tensor.is_inference() or tensor.requires_grad:
            raise _NotKnown
        if tensor._version and recorder.mutates:
            raise _NotKnown
        if tensor.numel() > _LARGEST or (recorder.switched and tensor.dim()):
            raise _NotKnown  # autocast computes elements of another class, but single numbers
    try:
        if node.op == "call_method":
            made = getattr(args[0], node.target)(*args[1:], **kwargs)
        else:
            made = node.target(*args, **kwargs)
    except RuntimeError as error:
        raise _NotKnown from error
    for mine, theirs in zip(_tensors(made), _tensors(expected), strict=True):
        if (mine.dtype, mine.shape, mine.device) != (theirs.dtype, theirs.shape, theirs.device):
            raise _NotKnown
    _check_versions(made, expected)
    return made


def _check_versions(known: Any, fakes: Any) -> None:
    """That nobody has written to it since: some operators write to what they give themselves."""
    for mine, theirs in zip(_tensors(known), _tensors(fakes), strict=True):
        if theirs.is_inference() or mine._version != theirs._version:
            raise _NotKnown


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in _tensors(item)]
    raise _NotKnown
