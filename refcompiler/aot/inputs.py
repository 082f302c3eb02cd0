"""A graph's inputs: fake stand-ins of the same layout, and the tensors that the graph itself holds.

Parameters, buffers and constants that hang off the graph module become further inputs
(*lifted*): compiled code reads them by address, mutations of them are seen, and gradients flow to
them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from refcompiler.ambient import LEAF
from refcompiler.aot.layout import Layout

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Unsupported(Exception):
    """The graph has to run as it is; the text is the reason that the report gives."""


class DependsOnData(Unsupported):
    """A size or a number depends on the data of a tensor."""


def check(tensors: Sequence[Any], what: str) -> None:
    """Raise :class:`Unsupported` unless all are plain strided tensors, or symbolic numbers."""
    for t in tensors:
        if isinstance(t, _SYMBOLS):
            continue
        if not isinstance(t, torch.Tensor):
            raise Unsupported(f"{what} is a {type(t).__name__}, not a tensor")
        if not isinstance(t, FakeTensor) and type(t) not in (torch.Tensor, torch.nn.Parameter):
            raise Unsupported(f"{what} is a tensor subclass ({type(t).__name__})")
        if t.layout is not torch.strided or t.is_quantized or t.is_nested:
            raise Unsupported(f"{what} is not a strided tensor")


def has_bits(t: torch.Tensor) -> bool:
    """Whether a tensor's memory holds the conjugates or the negatives of its values."""
    return t.is_conj() or t.is_neg()


def resolved(t: torch.Tensor) -> torch.Tensor:
    """``t``, or a copy with the bits worked into memory of the same layout."""
    if not has_bits(t):
        return t
    plain = t.resolve_conj().resolve_neg()
    if plain.stride() == t.stride():
        return plain
    return plain.new_empty_strided(t.shape, t.stride()).copy_(plain)


def fakes_of(mode: FakeTensorMode, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Leaves of ``mode`` with size, strides, offset, dtype and gradient flag of ``tensors``.

    Each has memory of its own. Numbers stay themselves.
    """
    with mode, torch.inference_mode(False), torch.no_grad():
        made = [fake_like(t) if isinstance(t, torch.Tensor) else t for t in tensors]
    for fake, t in zip(made, tensors, strict=True):
        if isinstance(t, torch.Tensor) and t.requires_grad:
            fake.requires_grad_()
    return made


def fake_like(t: torch.Tensor) -> torch.Tensor:
    """In a mode for fakes and without gradients: what lies as ``t``, in memory of its own."""
    at = Layout.of(t)
    if isinstance(t, FakeTensor) and t._has_symbolic_sizes_strides and at.offset == 0:
        return torch.empty_strided(at.size, at.stride, dtype=t.dtype, device=t.device)
    flat = torch.empty(at.end, dtype=t.dtype, device=t.device)
    fake = flat.as_strided(at.size, at.stride, at.offset).detach()
    fake = fake.conj() if t.is_conj() else fake
    fake = torch._neg_view(fake) if t.is_neg() else fake
    return fake.detach()  # a view of nothing


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


def leaves_of(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> list[bool]:
    """Which inputs are known to be leaves of autograd at each call."""
    holders = gm.graph.find_nodes(op="placeholder")
    return [
        isinstance(t, torch.nn.Parameter) or LEAF in node.meta
        for node, t in zip(holders, inputs, strict=True)
    ]


def attribute(root: Any, path: str) -> Any:
    for name in path.split("."):
        root = getattr(root, name)
    return root


class Runner(torch.fx.Interpreter):
    """Runs a graph with the lifted tensors replaced by others.

    ``regions``: what stands for a target while tracing, by ``target.region``, the target itself or
    a method's name. ``after``: called behind each node. ``refusals``: what is known of nodes
    without a derivative (:class:`refcompiler.aot.refusing.Refusals`).
    """

    def __init__(
        self,
        gm: torch.fx.GraphModule,
        replaced: dict[int, torch.Tensor],
        regions: dict[Any, Callable[..., Any]] | None = None,
        after: Callable[[], None] | None = None,
        refusals: Any = None,
    ):
        super().__init__(gm)
        self.after, self.refusals = after, refusals
        self.replaced = replaced
        self.regions = regions or {}
        self.extra_traceback = False  # the message is the operation's own

    def run_node(self, n: torch.fx.Node) -> Any:
        refusals = self.refusals
        if refusals is not None and len(refusals.ends) in refusals.known:
            call = functools.partial(getattr(self, n.op), n.target)
            found = refusals.instead(call, *self.fetch_args_kwargs_from_env(n))
        else:
            found = super().run_node(n)
        if refusals is not None:
            refusals.ran(found)
        if self.after is not None:
            self.after()
        return found

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = attribute(self.module, target)
        return self.replaced.get(id(value), value)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        instead = self.regions.get(getattr(target, "region", None) or target)
        if instead is not None:
            return instead(self, target, *args, **kwargs)
        return super().call_function(target, args, kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        instead = self.regions.get(target)
        if instead is not None:
            return instead(self, target, *args, **kwargs)
        return super().call_method(target, args, kwargs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        module = self.module.get_submodule(target)
        named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        values = {name: self.replaced[id(t)] for name, t in named.items() if id(t) in self.replaced}
        if not values:
            return module(*args, **kwargs)
        return torch.func.functional_call(module, values, args, kwargs, tie_weights=False)


def requires_grad(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and t.requires_grad
