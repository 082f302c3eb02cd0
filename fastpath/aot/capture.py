"""The functional ATen graph of a torch-level graph (``make_fx`` under a functional mode)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from fastpath.aot.decompositions import TABLE
from fastpath.aot.inputs import check, fake_like
from fastpath.aot.observe import Observation, observe
from refcompiler.aot.inputs import Runner, Unsupported, lifted_tensors
from refcompiler.fakes.mode import EagerFakeMode
from refcompiler.fakes.overlap import overlaps_itself, writes, written


@dataclass
class Capture:
    """``graph``: placeholders are the inputs (given, then lifted); its outputs are, flat, the
    observed outputs' values (None where an output is no tensor of its own), then the new values
    of ``written`` inputs, in that order."""

    graph: torch.fx.GraphModule
    lifted: list[torch.Tensor]
    given: int
    seen: Observation
    written: list[int]
    no_grad: bool  # the compiled code has to run with gradients off


def capture(gm: torch.fx.GraphModule, examples: Sequence[Any]) -> Capture:
    """Capture ``gm`` for inputs like ``examples``.

    Raises :class:`Unsupported` where the graph has to run as it is. Errors of the user's own
    program (shapes that do not fit) are raised by whoever runs the graph in eager mode.
    """
    lifted = lifted_tensors(gm)
    check(examples, "an input")
    check(lifted, "a tensor of the module")
    mode = _ObservedMode(allow_non_fake_inputs=False)
    with _plain_inference():
        seen = _observe(gm, mode, examples, lifted)
        needs_grad = any(t.requires_grad for t in (*examples, *lifted))
        if needs_grad and seen.requires_grad:  # also where the graph itself turns gradients on
            raise Unsupported("needs autograd (training comes with AOT autograd)")
        return _functional(gm, mode, examples, lifted, seen, torch.is_grad_enabled() and needs_grad)


class _ObservedMode(EagerFakeMode):
    """Fake tensors on which no write may depend on the order of its elements."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if writes(func) and any(map(overlaps_itself, written(func, args, kwargs or {}))):
            # Eager may accept it (a window over itself), and then each place changes several times.
            super().__torch_dispatch__(func, types, args, kwargs)  # or refuse it
            raise Unsupported(f"{func} writes to a tensor that overlaps itself")
        return super().__torch_dispatch__(func, types, args, kwargs)


@contextlib.contextmanager
def _plain_inference() -> Any:
    """Inference mode off (its tensors skip dispatch keys that capture needs), gradients as are."""
    if not torch.is_inference_mode_enabled():
        yield
        return
    with torch.inference_mode(False), torch.no_grad():
        yield


def _fakes(mode: FakeTensorMode, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [fake_like(mode, t) for t in tensors]


def _observe(
    gm: torch.fx.GraphModule,
    mode: FakeTensorMode,
    examples: Sequence[torch.Tensor],
    lifted: Sequence[torch.Tensor],
) -> Observation:
    fakes = _fakes(mode, (*examples, *lifted))
    replaced = {id(t): f for t, f in zip(lifted, fakes[len(examples) :])}
    with mode:
        return observe(gm, fakes, replaced, len(examples))


def _functional(
    gm: torch.fx.GraphModule,
    mode: FakeTensorMode,
    examples: Sequence[torch.Tensor],
    lifted: Sequence[torch.Tensor],
    seen: Observation,
    no_grad: bool,
) -> Capture:
    fakes = [t.detach() if t.requires_grad else t for t in _fakes(mode, (*examples, *lifted))]
    given = len(examples)
    written: list[int] = []

    def program(*tensors: torch.Tensor) -> list[Any]:
        with FunctionalTensorMode():
            wrapped = [FunctionalTensor.to_functional(t) for t in tensors]
            replaced = {id(t): w for t, w in zip(lifted, wrapped[given:])}
            outputs, _ = pytree.tree_flatten(Runner(gm, replaced).run(*wrapped[:given]))
            values: list[Any] = []
            for t in outputs:
                values.append(_unwrap(t) if isinstance(t, FunctionalTensor) else None)
            for place, w in enumerate(wrapped):
                torch._sync(w)
                if torch._functionalize_has_metadata_mutation(w.elem):
                    raise Unsupported("the graph changes the metadata of an input")
                if torch._functionalize_has_data_mutation(w.elem):
                    written.append(place)
                    values.append(torch._from_functional_tensor(w.elem))
            return values

    # Without the Python dispatcher: its decompositions are not eager's (dropout, resizing).
    with mode, torch.no_grad():
        graph = make_fx(
            program, decomposition_table=TABLE, tracing_mode="real", pre_dispatch=False
        )(*fakes)
    return Capture(graph, list(lifted), given, seen, written, no_grad)


def _unwrap(t: FunctionalTensor) -> torch.Tensor:
    torch._sync(t)
    return torch._from_functional_tensor(t.elem)
