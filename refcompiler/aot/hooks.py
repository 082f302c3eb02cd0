"""Hooks that a caller puts on results which other results of the same graph are computed from.

Autograd takes the compiled backward for one function of all results, and would call a hook on one
of them with what comes back to that result from outside of the graph alone. So these hooks are kept
from it. Where there is one, the backward runs the graph once more as it is, under autograd, with
the hooks where eager has them. A view of a result, or an input that is written to, has a function
of its own behind the compiled one: for those a backward that would miss something raises.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch

from refcompiler.aot.twice import Derivable

HOOKED = (
    "a hook or retain_grad is on a result of a compiled graph that other results of it are "
    "computed from: what comes back to it through those stays inside of the graph. Put it into the "
    "compiled function, or compute uncompiled (torch.compiler.disable or backend='eager')"
)


class Hooks:
    """What is known of a program's results: ``inner``: by number the tangent and those of others
    that are computed from it, as bits; ``watched``: such bits of views and of written inputs."""

    def __init__(
        self,
        inner: dict[int, tuple[int, int]],
        watched: Sequence[int],
        derivable: Derivable | None,
    ):
        self.inner, self.watched, self.derivable = inner, watched, derivable

    def keep(self, node: Any, t: torch.Tensor) -> bool:
        """Take the first hook on a result from autograd, if the result is one of these."""
        if t.output_nr not in self.inner:
            return False
        node.hooks = {**getattr(node, "hooks", {}), t.output_nr: t._backward_hooks}
        return self.derivable is not None

    def note(self, results: Sequence[Any]) -> list[Any]:
        """What a call keeps of its results, to ask them whether they retain their gradients."""
        return [weakref.ref(results[at]) for at in self.inner]

    def asked(self, node: Any, noted: Sequence[Any], asked: int) -> dict[int, tuple[Any, Any]]:
        """By number the hooks on a result, and the result if it retains its gradient.

        ``asked``: the tangents that are given, as bits.
        """
        hooks = getattr(node, "hooks", {})
        found: dict[int, tuple[Any, Any]] = {}
        for (at, (_, others)), made in zip(self.inner.items(), noted):
            t = made()
            kept = t if t is not None and t.retains_grad and asked & others else None
            if kept is not None or hooks.get(at):
                found[at] = list(hooks.get(at, {}).values()), kept
        if found and self.derivable is None:
            found = {at: each for at, each in found.items() if asked & self.inner[at][1]}
        for others, made in zip(self.watched, getattr(node, "watched", ())):
            t = made()
            if asked & others and t is not None and (t._backward_hooks or t.retains_grad):
                raise RuntimeError(HOOKED)
        return found

    def gradients(
        self,
        node: Any,
        hooked: dict[int, tuple[Any, Any]],
        inputs: Sequence[Any] | None,
        ends: Sequence[Any],
        given: Sequence[Any],
    ) -> list[Any]:
        """Those of the inputs of a call, past the hooks; ``given``: by number, as it came."""
        again = self.derivable
        if again is None or inputs is None or torch.is_grad_enabled():
            raise RuntimeError(HOOKED)
        full: dict[int, torch.Tensor] = {}
        hooks = {}
        for at, (called, _) in hooked.items():
            hooks[self.inner[at][0]] = [*called, lambda g, at=at: full.__setitem__(at, g)]
        alone = [
            v.detach().requires_grad_(v.requires_grad) if isinstance(v, torch.Tensor) else v
            for v in inputs
        ]
        with torch.enable_grad():
            found = again.gradients(alone, ends, hooks)
        for at, (_, t) in hooked.items():
            if t is not None and at in full:
                t.grad = _retained(t.grad, given[at], full[at])
        return [None if g is None else g.detach() for g in found]


def _retained(kept: Any, part: Any, full: torch.Tensor) -> torch.Tensor:
    """The gradient of a result to which autograd has added ``part``, in place of ``full``."""
    full = full.detach()
    if kept is None or (part is not None and torch.equal(kept, part)):
        return full.clone()
    return kept + (full if part is None else full - part)


def watch(result: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """Have the backward of the call that made ``result`` ask ``tensors`` for hooks."""
    if result.grad_fn is not None:
        result.grad_fn.watched = [weakref.ref(t) for t in tensors]


class _OfGradients(OrderedDict[int, Callable[..., Any]]):
    """Hooks on one of several results, none of which is called where that has no gradient."""

    def __setitem__(self, number: int, hook: Callable[..., Any]) -> None:
        super().__setitem__(number, lambda g: None if g is None else hook(g))


def with_hooks(backward: Any, register: Callable[..., Any]) -> None:
    """Have the nodes of a function of autograd keep hooks (``node.program.hooks``)."""

    def kept(node: Any, t: torch.Tensor) -> None:
        program = node.program
        if len(program.differentiable) > 1:
            t._backward_hooks = _OfGradients()
        if program.hooks is None or not program.hooks.keep(node, t):
            register(node, t)

    backward._register_hook_dict = kept
