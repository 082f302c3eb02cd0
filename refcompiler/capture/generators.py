"""Generators of random numbers that a program gives to operations (``torch.Generator``).

A graph holds the generator itself, as an attribute of its module, and a guard says that it is
that object: every compiler of graphs draws from it as eager does, and leaves it in eager's state.
"""

from __future__ import annotations

from typing import Any

import torch

from refcompiler.capture.signals import Break

#: So many generators that come from one place have graphs of their own. Where there are more, the
#: program makes new ones all the time, and eager draws from these.
_LIMIT = 3


def operand(machine: Any, generator: torch.Generator) -> torch.Generator:
    """``generator``, from outside, which an operation is given."""
    source = machine.external[id(generator)].source
    if generator is not torch.default_generator:
        if machine.sizes.policy.history.distinct(str(source), generator) > _LIMIT:
            raise Break("external-object", "a Generator is an operand, another one in most calls")
    machine.guard("ID", source, generator)
    return generator


def device(machine: Any, generator: torch.Generator) -> torch.device:
    """That of a generator from outside, which it keeps."""
    source = machine.external[id(generator)].source
    machine.guard("EQUALS", machine.member(source, "device"), generator.device)
    return generator.device


def held_by(module: torch.nn.Module) -> dict[str, torch.Generator]:
    """Those that a graph's module itself holds, by their names."""
    return {k: v for k, v in vars(module).items() if type(v) is torch.Generator}


def held_within(module: torch.nn.Module) -> list[torch.Generator]:
    """Those that it or the module of a graph inside it holds, once each."""
    found = [generator for part in module.modules() for generator in held_by(part).values()]
    return list({id(generator): generator for generator in found}.values())
