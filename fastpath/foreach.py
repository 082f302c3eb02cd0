"""Operators on lists of tensors, as the operators on their tensors that eager runs one by one.

On a CPU that is all that they are; on a GPU eager has kernels over many tensors, which stay.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

_aten = torch.ops.aten
_PREFIX = "aten::_foreach_"
#: By an operator's name, what is done to each tensor, where that has another name.
_EACH: dict[str, Callable[..., Any]] = {
    "addcdiv": lambda t, a, b, value=1: torch.addcdiv(t, a, b, value=value),
    "addcmul": lambda t, a, b, value=1: torch.addcmul(t, a, b, value=value),
    "maximum": torch.clamp_min,
    "minimum": torch.clamp_max,
    "norm": lambda t, order=2, dtype=None: torch.linalg.vector_norm(t, order, dtype=dtype),
    "zero": torch.zeros_like,
    "copy": lambda t, source, non_blocking=False: _aten.copy.default(t, source),
}
#: Operators that are no list of others': numbers are read from tensors, or results of all.
_LEFT = frozenset({"mm", "powsum"})
_ITEMS = "List[Tensor]", "List[number]"


def rules() -> dict[Any, Callable[..., Any]]:
    """By overload, a function that says it by operators on single tensors."""
    return {overload: functools.partial(_one_by_one, overload) for overload in _overloads()}


def _overloads() -> Iterator[Any]:
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name.removeprefix(_PREFIX)
        if name == schema.name or name.endswith("_") or name in _LEFT:
            continue
        if schema.is_mutable or "out" in schema.overload_name:
            continue
        if any(a.name == "scalars" and str(a.type) == "Tensor" for a in schema.arguments):
            continue
        packet = getattr(_aten, f"_foreach_{name}")
        yield getattr(packet, schema.overload_name or "default")


def _one_by_one(overload: Any, *args: Any, **kwargs: Any) -> Any:
    name = overload._schema.name.removeprefix(_PREFIX)
    types = {a.name: str(a.type) for a in overload._schema.arguments}
    places = list(types)
    given = dict(zip(places, args)) | kwargs
    lists = [value for key, value in given.items() if types[key] in _ITEMS]
    tensors = [t for items in lists for t in items if isinstance(t, torch.Tensor)]
    if len({len(items) for items in lists}) != 1 or any(t.device.type != "cpu" for t in tensors):
        return NotImplemented
    each = _EACH.get(name) or getattr(torch, name)

    def picked(place: int, values: Any) -> Any:
        return {key: value[place] if types[key] in _ITEMS else value for key, value in values}

    made = []
    for n in range(len(lists[0])):
        at = [a[n] if types[key] in _ITEMS else a for key, a in zip(places, args)]
        made.append(each(*at, **picked(n, kwargs.items())))
    return made
