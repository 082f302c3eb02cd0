"""``sorted`` and ``list.sort``: the keys and the comparisons of the user's are interpreted."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from refcompiler.capture.models.registry import model
from refcompiler.capture.natively import interpreting, natively
from refcompiler.capture.signals import Break
from refcompiler.interpreter import helpers
from refcompiler.interpreter.frame import UNSET

_FEW = 2


class Ordered:
    """A key as C code may compare it."""

    __slots__ = ("machine", "value")

    def __init__(self, machine: Any, value: Any):
        self.machine = machine
        self.value = value

    def __lt__(self, other: Ordered) -> bool:
        machine = self.machine
        with interpreting():
            return machine.truth(machine.binary(operator.lt, self.value, other.value))


@model(sorted)
def _sorted(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    if len(args) != 1 or kwargs.keys() - {"key", "reverse"}:
        return m.call_pure(sorted, args, kwargs)  # CPython's complaint
    key, value = m.force(kwargs.get("key")), m.force(args[0])
    if m.runs_code(value) or (m.is_python(key) and not m.nested):
        return m.run_helper(helpers.sort, True, value, key, kwargs.get("reverse", False))
    personal = m.is_personal
    items = list(m.items_of(args[0]))
    if key is None and all(type(item) is str for item in items):
        m.is_personal = personal  # whatever order a set had
    return in_order(m, frame, items, kwargs)


def in_order(m: Any, frame: Any, items: list[Any], kwargs: Mapping) -> list[Any]:
    """``sorted(items, **kwargs)``."""
    key = m.force(kwargs.get("key"))
    keys = items if key is None else [m.force(m.invoke(frame, key, [item])) for item in items]
    if len(keys) > _FEW and m.continues and any(type(value) is torch.SymFloat for value in keys):
        if not m.sizes.policy.scalars:  # there are as many plans as orders
            raise Break("data-dependent-branch", "numbers that change are sorted")
    if any(
        type(value) is torch.SymBool or m.method_of(type(value), "__lt__") is not UNSET
        for value in keys
    ):
        keys = [Ordered(m, value) for value in keys]
    reverse = m.force(kwargs.get("reverse", False))
    order = natively(m, sorted, range(len(items)), key=keys.__getitem__, reverse=reverse)
    m.recorder.keep.append(found := [items[i] for i in order])
    return found
