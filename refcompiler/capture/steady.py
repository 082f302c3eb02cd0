"""Numbers in tensors that a module keeps: as constant as its attributes, and guarded like them.

``self.stride = nn.Buffer(torch.tensor(2))`` says how a layer is made; a program that branches on
it, or pads by it, need not end its graph there. Such a tensor has one element, lies on the CPU,
requires no gradient, and belongs to a module or a namespace of globals. Its number is a guard. One
that was another number before changes from call to call: what asks for it ends the graph.
Truth values are taken as they are, since there are two of them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from refcompiler.capture.signals import Again
from refcompiler.capture.values import Lazy
from refcompiler.capture.written import settle
from refcompiler.guards.sources import Source
from refcompiler.naming import target_name

#: Steps from a module or a namespace to what it keeps.
_KEPT = frozenset({"attr", "slot", "member", "dict", "hidden_dict", "item", "dict_item"})
#: Operations that write to inputs without saying so in their schemas.
_WRITING = frozenset({"batch_norm", "instance_norm", "native_batch_norm"})


def steady(machine: Any, fake: torch.Tensor, node: torch.fx.Node) -> torch.Tensor | None:
    """The tensor of a graph's input ``fake``, whose number is guarded; None if it may change."""
    source = machine.fakes_of_inputs.get(id(fake))
    if source is None or not _is_kept(machine, source):
        return None
    real = machine.lazies[source].value
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        if type(real) is not torch.Tensor or real.device.type != "cpu" or real.requires_grad:
            return None
        if real.numel() != 1 or real.layout is not torch.strided or _is_written(fake, node):
            return None
        number = real.item()
        history, key = machine.sizes.policy.history, _key(source)
        if real.dtype is torch.bool:
            if key in history.changing:
                return None
        elif history.changes(key, number):
            return None
        machine.steady[id(fake)] = fake, source
        machine.guard("EQUALS", machine.sources.make("number", source), number)
        return real.detach().clone()


def check_steady(machine: Any) -> None:
    """What was taken for a constant is written to or replaced here: capture begins again."""
    if not machine.steady:
        return
    with torch._C.DisableTorchFunction():
        written = {
            machine.lazies[source].value.untyped_storage()._cdata
            for fake, source in _inputs(machine)
            if _is_written(fake, machine.recorder.inputs[id(fake)])
        }
        wrong = [
            source
            for fake, source in machine.steady.values()
            if machine.lazies[source].value.untyped_storage()._cdata in written
            or _is_replaced(machine, fake, source)
        ]
    if wrong:
        machine.sizes.policy.history.changing.update(map(_key, wrong))
        raise Again


def _inputs(machine: Any) -> list[tuple[torch.Tensor, Source]]:
    found = [(fake, machine.fakes_of_inputs[id(fake)]) for _, _, fake in machine.inputs.values()]
    return [(fake, source) for fake, source in found if id(fake) in machine.recorder.inputs]


def _is_replaced(machine: Any, fake: torch.Tensor, source: Source) -> bool:
    """Whether the program has put another tensor in its place."""
    owner = machine.lazies.get(source.parent)
    if owner is None:
        return False
    new = machine.overlay.get((id(owner.value), source.key), fake)
    external = machine.external.get(id(owner.value))
    if external is not None:
        settle(machine, external)
        for container in (external.shadow, external.written):
            if isinstance(container, dict):
                new = container.get(source.key, new)
    return new is not fake and not (type(new) is Lazy and new.source is source)


def _is_written(fake: torch.Tensor, node: torch.fx.Node) -> bool:
    if fake.is_inference() or fake._version:
        return True
    return any(target_name(user.target) in _WRITING for user in node.users)


def _is_kept(machine: Any, source: Source) -> bool:
    owner: Source | None = source
    while owner is not None and owner.kind in _KEPT:
        owner = owner.parent
        lazy = machine.lazies.get(owner)
        if lazy is not None and issubclass(type(lazy.value), torch.nn.Module):
            return True
    return owner is not None and owner.kind == "const"


def _key(source: Source) -> tuple[str, ...]:
    """What names the tensor in every capture of a site."""
    found: list[str] = []
    step: Source | None = source
    while step is not None:
        found += step.kind, str(step.label if step.kind in ("const", "space") else step.key)
        step = step.parent
    return "number", *found
