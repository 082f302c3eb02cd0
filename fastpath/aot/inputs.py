"""Fake stand-ins for a graph's inputs, and the tensors that the graph itself holds.

Parameters, buffers and constants that hang off the graph module become further inputs
(*lifted*), so that kernels read them by address and mutations of them are seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode


class Unsupported(Exception):
    """The graph has to run as it is; the text is the reason that the report gives."""


def check(tensors: Sequence[Any], what: str) -> None:
    """Raise :class:`Unsupported` unless all are plain strided CPU tensors of fixed sizes."""
    for t in tensors:
        if isinstance(t, torch.SymInt) or isinstance(t, (int, float, bool)):
            raise Unsupported(f"{what} is a number: dynamic shapes are not compiled yet")
        if not isinstance(t, torch.Tensor):
            raise Unsupported(f"{what} is a {type(t).__name__}, not a tensor")
        if not isinstance(t, FakeTensor) and type(t) not in (torch.Tensor, torch.nn.Parameter):
            raise Unsupported(f"{what} is a tensor subclass ({type(t).__name__})")
        if t.device.type != "cpu":
            raise Unsupported(f"{what} is on {t.device.type}: only CPU kernels exist yet")
        if t.layout is not torch.strided or t.is_quantized or t.is_nested:
            raise Unsupported(f"{what} is not a strided tensor")
        if t.is_conj() or t.is_neg():
            raise Unsupported(f"{what} has a conjugate or negative bit")
        sizes = (*t.shape, *t.stride())
        if any(isinstance(n, torch.SymInt) for n in sizes):
            raise Unsupported(f"{what} has a symbolic size: dynamic shapes are not compiled yet")


def fake_like(mode: FakeTensorMode, t: torch.Tensor) -> torch.Tensor:
    """A leaf of ``mode`` with the size, strides, offset, dtype and gradient flag of ``t``."""
    with mode, torch.inference_mode(False), torch.no_grad():
        offset = t.storage_offset()
        if isinstance(offset, torch.SymInt):
            raise Unsupported("an input has a symbolic offset")
        size, stride = tuple(t.shape), tuple(t.stride())
        extent = 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride))
        fake = torch.empty(offset + extent, dtype=t.dtype, device=t.device)
        fake = fake.as_strided(size, stride, offset).detach()
    if t.requires_grad:
        fake.requires_grad_()
    return fake


def lifted_tensors(gm: torch.fx.GraphModule) -> list[torch.Tensor]:
    """Every tensor that running ``gm`` may take from the module, once each."""
    found: dict[int, torch.Tensor] = {}
    for node in gm.graph.nodes:
        tensors: Iterable[Any] = ()
        if node.op == "get_attr":
            value = attribute(gm, node.target)
            tensors = (value,)
            if isinstance(value, torch.nn.Module):
                tensors = (*value.parameters(), *value.buffers())
        elif node.op == "call_module":
            module = gm.get_submodule(node.target)
            tensors = (*module.parameters(), *module.buffers())
        for t in tensors:
            if isinstance(t, torch.Tensor):
                found.setdefault(id(t), t)
    return list(found.values())


def attribute(root: Any, path: str) -> Any:
    for name in path.split("."):
        root = getattr(root, name)
    return root


class Runner(torch.fx.Interpreter):
    """Runs a graph with the lifted tensors replaced by others."""

    def __init__(self, gm: torch.fx.GraphModule, replaced: dict[int, torch.Tensor]):
        super().__init__(gm)
        self.replaced = replaced

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = attribute(self.module, target)
        return self.replaced.get(id(value), value)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        module = self.module.get_submodule(target)
        named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        values = {name: self.replaced[id(t)] for name, t in named.items() if id(t) in self.replaced}
        if not values:
            return module(*args, **kwargs)
        return torch.func.functional_call(module, values, args, kwargs, tie_weights=False)
