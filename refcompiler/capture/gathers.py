"""``x[i]``, ``x[i] = y``, ``select`` and ``narrow`` where a tensor of one integer says the place.

In eager that is a view, and only the run knows of what. The graph copies what is seen through it,
so that backends need no number there. That is the same as long as nobody writes to either of
them before the other is read, and the view itself does not leave the graph; where that is not so,
:func:`check_gathers` ends the graph, or puts the view itself in the copy's place where the program
wants numbers of tensors in its graphs (``capture_scalar_outputs``). What is written to
``x[i]`` directly is put at that index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from refcompiler.capture.door import version_of
from refcompiler.capture.known import is_data
from refcompiler.capture.models.registry import operation
from refcompiler.capture.signals import Break, Restart
from refcompiler.naming import operation_name

_PLAIN_PARTS = (int, slice, type(None), type(...))
_PLACES = (torch.int64, torch.int32, torch.int16, torch.int8)


class Gather(NamedTuple):
    """``view`` is what eager would have; it was written to ``version`` times by then."""

    view: torch.Tensor
    node: torch.fx.Node
    version: int
    step: int


def is_place(part: Any) -> bool:
    """Whether indexing with ``part`` selects, as a number would (bytes and booleans are masks)."""
    return isinstance(part, torch.Tensor) and not part.dim() and part.dtype in _PLACES


def can_gather(m: Any, tensor: torch.Tensor, parts: Sequence[Any]) -> bool:
    """Outside of regions; where the places are constants torch knows their numbers."""
    recorder = m.recorder
    if recorder.scope.outer is not None or recorder.kinds or tensor.is_inference():
        return False
    places = [part for part in parts if is_place(part)]
    near = all(part.device in (tensor.device, torch.device("cpu")) for part in places)
    return near and not any(recorder.known(int, (part,)) for part in places)


def gather(m: Any, tensor: torch.Tensor, dim: int, place: torch.Tensor) -> torch.Tensor:
    """``tensor.select(dim, place)``; what it is, and where it lies, is that of any place."""
    with m.recorder.suspension():
        view = tensor.select(dim, 0)
    nodes = m.recorder.argument(tensor), m.recorder.argument(place)
    found = _copied(m, view, torch.ops.aten.index.Tensor, nodes[0], [None] * dim + [nodes[1]])
    m.recorder.node_of(found).meta["place"] = torch.select, nodes[0], dim, nodes[1]
    return found


def _copied(m: Any, view: torch.Tensor, *call: Any) -> torch.Tensor:
    recorder = m.recorder
    recorder.add("call_function", call[0], call[1:], {}, view)
    recorder.gathers.append(Gather(view, recorder.node_of(view), version_of(view), m.steps))
    return view


@operation("select")
def _select(m: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    """At a place that a tensor says."""
    given = dict(zip(("input", "dim", "index"), args, strict=False)) | dict(kwargs)
    tensor, dim, place = [m.force(given.get(name)) for name in ("input", "dim", "index")]
    if not is_place(place) or type(dim) is not int or not issubclass(type(tensor), torch.Tensor):
        return NotImplemented
    if not -tensor.dim() <= dim < tensor.dim() or tensor.shape[dim] == 0:
        return NotImplemented
    if not can_gather(m, tensor, (place,)):
        return NotImplemented
    return gather(m, tensor, dim % tensor.dim(), place)


@operation("narrow")
def _narrow(m: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    """From a place that a tensor says."""
    given = dict(zip(("input", "dim", "start", "length"), args, strict=False)) | dict(kwargs)
    tensor, dim, start, length = [
        m.force(given.get(name)) for name in ("input", "dim", "start", "length")
    ]
    if not is_place(start) or type(dim) is not int or type(length) is not int or length < 1:
        return NotImplemented
    if not issubclass(type(tensor), torch.Tensor) or not -tensor.dim() <= dim < tensor.dim():
        return NotImplemented
    if start.requires_grad or not can_gather(m, tensor, (start,)):
        return NotImplemented
    size = tensor.shape[dim]
    if type(size) is not int or length > size:
        return NotImplemented
    first = torch.where(start < 0, start + size, start)
    places = first.to(tensor.device) + torch.arange(length, device=tensor.device)
    with m.recorder.suspension():
        view = tensor.narrow(dim, 0, length)
    nodes = [m.recorder.argument(value) for value in (tensor, places, start)]
    found = _copied(m, view, torch.index_select, nodes[0], dim, nodes[1])
    m.recorder.node_of(found).meta["place"] = torch.narrow, nodes[0], dim, nodes[2], length
    return found


@operation("tensor_split")
def _split(m: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    """At places that a tensor says, where they are known."""
    given = [m.force(a) for a in args]
    named = {name: m.force(value) for name, value in kwargs.items()}
    places = named.pop("tensor_indices_or_sections", None)
    if places is None and len(given) > 1:
        places = given.pop(1)
    if len(given) != 1 or not issubclass(type(places), torch.Tensor):
        return NotImplemented
    known = m.recorder.known(torch.Tensor.tolist, (places,))
    return torch.tensor_split(given[0], known[0], **named) if known else NotImplemented


@operation("storage_offset")
def _offset(m: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    """The place of such a view is a number that only the run knows."""
    tensor, node = m.force(args[0]), None
    if m.recorder.gathers and issubclass(type(tensor), torch.Tensor):
        node = m.recorder.node_of(tensor)
    if node and any(_is_view_of(node, of, view) for view, of, _, _ in m.recorder.gathers):
        raise Break("data-dependent-value", "storage_offset of a view at the place in a tensor")
    return NotImplemented


@operation("as_strided", "as_strided_", "as_strided_scatter", "as_strided_copy")
def _strided(m: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    """A place that is said counts from the beginning of memory, which an input may begin behind."""
    last = 4 if operation_name(function) == "as_strided_scatter" else 3
    offset = m.force(kwargs.get("storage_offset", args[last] if len(args) > last else None))
    if offset is not None:
        tensor = args[0] if args else kwargs.get("input", kwargs.get("self"))
        m.recorder.metadata("storage_offset", m.force(tensor))
    return NotImplemented


def check_gathers(recorder: Any, outputs: Sequence[torch.fx.Node]) -> None:
    """End the graph before a gather that is no copy in the program's eyes, or make it the view."""
    if not recorder.gathers:
        return
    nodes = recorder.root.graph.nodes
    uncounted = recorder.mutates and any(map(is_data, nodes))
    for i, (view, node, version, step) in enumerate(recorder.gathers):
        used = list(outputs)
        if version_of(view) != version:  # which is nothing to those that have read it before
            for each in nodes:
                found = each.meta.get("refcompiler_versions", [])
                if len(found) > i and found[i] != version:
                    used += each.all_input_nodes
        if uncounted or any(_is_view_of(each, node, view) for each in used):
            if not recorder.captures_numbers:  # no backend of ours compiles a graph with one
                why = "a view at the place in a tensor that leaves, or is written to"
                raise Restart(step, "data-dependent-value", why)
            node.target, *arguments = node.meta["place"]
            node.args = tuple(arguments)


def put(m: Any, tensor: torch.Tensor, key: Any, new: Any) -> bool:
    """``tensor[key] = new``, where one part of ``key`` is such a place; whether that was done."""
    parts = key if type(key) is tuple else (key,)
    if [is_place(part) for part in parts].count(True) != 1 or not can_gather(m, tensor, parts):
        return False
    if any(type(part) not in _PLAIN_PARTS for part in parts if not is_place(part)):
        return False
    around = tensor[tuple([slice(None) if is_place(part) else part for part in parts])]
    at = [n for n, part in enumerate(parts) if is_place(part)][0]
    dim = sum(type(part) is not int for part in parts[:at])
    if Ellipsis in [part for part in parts[:at] if not is_place(part)]:
        dim = around.dim() - 1 - sum(type(part) is not int for part in parts[at + 1 :])
    shape = (*around.shape[:dim], *around.shape[dim + 1 :])
    kind = type(new)
    if issubclass(kind, torch.Tensor):
        if new.device != tensor.device:
            return False
        extra = new.dim() - len(shape)
        if any(n != 1 for n in new.shape[: max(extra, 0)]):
            return False  # torch has the words for it
        if extra > 0:  # an assignment drops dimensions of one element
            new = new[(0,) * extra]
        if _memory(new) == _memory(tensor):
            new = new.clone()  # as after x[i] += y, where it is written to itself
        new = new.to(tensor.dtype).expand(shape)
    elif kind in (bool, int) or (kind is float and tensor.is_floating_point()):
        new = torch.scalar_tensor(new, dtype=tensor.dtype, device=tensor.device)
    else:
        return False
    torch.ops.aten.index_put_(around, [None] * dim + [parts[at]], new)
    return True


def _memory(tensor: torch.Tensor) -> int | None:
    with torch._C.DisableTorchFunction():
        return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else None


def _is_view_of(node: torch.fx.Node, of: torch.fx.Node, view: torch.Tensor) -> bool:
    """Whether a chain of values with the memory of ``view`` leads from ``of`` to ``node``."""
    memory = _memory(view)
    seen: set[torch.fx.Node] = set()
    left = [node]
    while left:
        each = left.pop()
        if each is of:
            return True
        value = each.meta.get("example_value")
        if each in seen or not isinstance(value, torch.Tensor):
            continue
        seen.add(each)
        if _memory(value) == memory:
            left += each.all_input_nodes
    return False
