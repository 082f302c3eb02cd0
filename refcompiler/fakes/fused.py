"""Fused steps of optimizers: operators that write to lists of tensors, and give nothing.

Torch has stand-ins for some of them only, and its functionalisation refuses lists without tensors.
Each has a twin that gives new lists instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

_NAMES = ("_fused_adam", "_fused_adamw", "_fused_sgd", "_fused_adagrad")


def _twins() -> dict[Any, Any]:
    found = {}
    for name in _NAMES:
        in_place = getattr(torch.ops.aten, f"{name}_", None)
        twin = getattr(torch.ops.aten, name, None)
        if in_place is not None and twin is not None:
            for overload in in_place.overloads():
                found[getattr(in_place, overload)] = getattr(twin, overload)
    return found


#: The operators that write, and their twins.
TWINS = _twins()
FUSED = frozenset({*TWINS, *TWINS.values()})


def fake_fused(func: Any, args: Sequence, kwargs: Mapping) -> Any:
    """What ``func`` gives for fakes, in their mode: nothing, or lists of tensors of their own."""
    if func in TWINS:
        return None
    given = _given(func, args, kwargs)
    made = [[torch.empty_like(t) for t in given[name]] for name in _results(func)]
    return tuple(made)


def write_twins_results(func: Any, args: Sequence, kwargs: Mapping) -> None:
    """``func`` by its twin: what that gives is copied to the tensors of the lists."""
    twin = TWINS[func]
    given = _given(func, args, kwargs)
    results = twin(*args, **kwargs)
    for name, made in zip(_results(twin), results, strict=True):
        if name == "grads" and given.get("grad_scale") is None:
            continue  # they change by the scale alone
        for t, new in zip(given[name], made, strict=True):
            t.copy_(new)


def _given(func: Any, args: Sequence, kwargs: Mapping) -> dict[str, Any]:
    names = [argument.name for argument in func._schema.arguments]
    return {**dict(zip(names, args)), **kwargs}


def _results(twin: Any) -> list[str]:
    """Which argument each result is the new value of."""
    return [result.name.removesuffix("_out") for result in twin._schema.returns]
