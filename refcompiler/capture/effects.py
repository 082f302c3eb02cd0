"""What a part of the program has done to objects from outside, to tell whether it did anything."""

from __future__ import annotations

from types import FunctionType, GetSetDescriptorType, MethodType
from typing import Any

import torch

from refcompiler.capture.lookup import is_heap
from refcompiler.capture.values import Asked, Lazy, Literal, is_changed
from refcompiler.interpreter.driven import DRIVEN
from refcompiler.interpreter.frame import UNSET


def effects(machine: Any) -> tuple:
    """Equal before and after, if nothing was written to objects from outside in between."""
    overlay = tuple([(key, id(value)) for key, value in machine.overlay.items()])
    containers: list[tuple] = []
    seen: set[int] = set()
    for external in machine.external.values():
        if id(external) in seen:
            continue
        seen.add(id(external))
        if external.tail:
            containers.append((id(external), tuple(map(id, external.tail))))
        if external.written:
            items = [
                (id(k), id(v))
                for k, v in external.written.items()
                if not _is_held(machine, external.value, k, v)
            ]
            if items:
                containers.append((id(external), tuple(items)))
        shadow = external.shadow
        if shadow is external.original or external.original is None:  # or it is being filled
            continue
        if type(shadow) in DRIVEN:
            containers.append((id(external), external.original.runs))
        elif issubclass(type(shadow), dict):
            if is_changed(external) and not _holds_the_same(machine, external):
                items = [(id(k), id(v)) for k, v in shadow.items()]
                containers.append((id(external), tuple(items)))
        elif shadow is not None and list(map(id, shadow)) != list(map(id, external.original)):
            containers.append((id(external), tuple(map(id, shadow))))
    said = sum(not issubclass(type(call), Asked) for call, _ in machine.deferred)
    return overlay, tuple(containers), said


def _is_held(machine: Any, container: Any, key: Any, new: Any) -> bool:
    """Whether a dict from outside has ``new`` under ``key`` anyway (``self.u = f(out=self.u)``)."""
    if type(container) is not dict or type(key) is not str or key not in container:
        return False
    held = container[key]
    if type(new) is Lazy:
        return new.value is held
    return issubclass(type(new), torch.Tensor) and machine.real_of(new) is held


def _holds_the_same(machine: Any, external: Any) -> bool:
    """Whether a dict from outside that was written to is as it was before."""
    shadow = external.shadow
    return list(shadow) == list(external.original) and all(
        new is external.original[key] or _is_held(machine, external.value, key, new)
        for key, new in shadow.items()
    )


def reachable(function: Any, machine: Any = None) -> tuple:
    """The contents of the containers and cells that ``function`` can reach through its closure.

    With a ``machine``, what is from outside is as the program has made it.
    """
    found: list[tuple] = []
    seen: set[int] = set()
    pending = [function]
    written: dict[int, list[tuple]] = {}
    if machine is not None:
        for (owner, name), value in machine.overlay.items():
            written.setdefault(owner, []).append((name, value))
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if type(value) is Literal:
            value = value.items if value.made is UNSET else value.made
        if id(value) in written:
            found.append((id(value), *[(name, id(new)) for name, new in written[id(value)]]))
            pending += [new for _, new in written[id(value)]]
        external = None if machine is None else machine.external.get(id(value))
        if external is not None and external.shadow is not None and is_changed(external):
            pending.append(external.shadow)
        if type(value) is MethodType:
            pending += [value.__func__, value.__self__]
        elif type(value) is FunctionType:
            for cell in value.__closure__ or ():
                pending.append(cell)
                try:
                    held = cell.cell_contents
                except ValueError:
                    continue
                found.append((id(cell), id(held)))
                pending.append(held)
        elif issubclass(type(value), dict):
            found.append((id(value), *[(id(k), id(v)) for k, v in value.items()]))
            pending += value.values()
        elif issubclass(type(value), (list, tuple, set)):
            found.append((id(value), *map(id, value)))
            pending += value
        elif is_heap(type(value)) and not issubclass(type(value), (torch.Tensor, type)):
            namespace = _namespace(value)
            if namespace is not None:
                pending.append(namespace)
    return tuple(found)


def _namespace(value: Any) -> dict | None:
    """``value.__dict__`` without running any code of the user's."""
    for base in type(value).__mro__:
        found = base.__dict__.get("__dict__")
        if type(found) is GetSetDescriptorType:
            return found.__get__(value)
    return None
