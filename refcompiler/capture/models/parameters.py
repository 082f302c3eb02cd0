"""``torch.nn.Parameter(data)`` in the frame, also in the constructor of a module.

Whoever runs the plan makes an empty one and gives it to the graph as an input, as a leaf that
gradients reach from outside; where the program makes it, the empty one is assigned the data, in
the same memory, as ``parameter.data = data`` does. Source of the rules: torch's documentation of
``torch.nn.Parameter`` (a detached tensor of its class over the memory of ``data``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from refcompiler.capture.models.registry import model
from refcompiler.capture.signals import Break, Restart
from refcompiler.guards.parameters import Fresh, is_new, parameter

_NAMES = ("data", "requires_grad")
_AGAIN = "a Parameter is made, in a call whose graph has raised"


@model(torch.nn.Parameter)
def _made(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> torch.Tensor:
    given = [m.force(a) for a in args]
    named = {k: m.force(v) for k, v in kwargs.items()}
    if len(given) > 2 or not named.keys() <= {*_NAMES[len(given) :]}:
        torch.nn.Parameter(*[None] * len(given), **dict.fromkeys(named))  # which raises TypeError
    known = {**dict(zip(_NAMES, given, strict=False)), **named}
    data, requires_grad = known.get("data"), known.get("requires_grad", True)
    if type(requires_grad) is not bool or not _is_captured(m):
        raise Break("tensor-kind", "construction of a Parameter")
    if data is None:
        data = torch.empty(0)
    kind = m.type_of(data)
    if kind is not torch.Tensor and kind is not torch.nn.Parameter:
        raise Break("tensor-kind", f"construction of a Parameter of a {kind.__name__}")
    if m.recovers:  # the failed run has computed with another one
        raise Restart(m.steps, "tensor-kind", _AGAIN)
    contents = data.detach()
    made = _input(m, contents, requires_grad)
    m.set_data(made, m.real_of(made), contents)
    return made


def _is_captured(m: Any) -> bool:
    """Whether the whole graph is what runs here, and nobody else sees its operations."""
    recorder = m.recorder
    return (
        recorder.scope.outer is None
        and not recorder.kinds
        and not recorder.modes
        and torch._C._functorch.peek_interpreter_stack() is None
        and not torch.is_inference_mode_enabled()
    )


def _input(m: Any, data: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    """The fake of a new input that looks like ``data``."""
    with torch._C.DisableTorchFunction():
        if not all(type(n) is int for n in (*data.shape, *data.stride())):
            raise Break("tensor-kind", "construction of a Parameter whose size is no constant")
        if data.is_conj() or data.is_neg():
            raise Break("tensor-kind", "construction of a Parameter of a conjugate or negative")
        number = sum(is_new(source) for _, source, _ in m.inputs.values())
        fresh = Fresh(number, tuple(data.shape), data.dtype, data.device, requires_grad)
        with m.recorder.suspension(), _disable_current_modes():
            try:
                real = parameter(fresh)
            except RuntimeError as error:
                raise Break("fake-op-raised", f"Parameter: {error}".split("\n")[0]) from error
        source = m.sources.make("parameter", None, tuple(fresh), f"Parameter {number}")
        m.makes_parameters = True
        m.lazy(source, real)
        m.forced[source] = fake = m.recorder.fake_mode.fake_of(real)
    return m.enter_input(real, source, fake)
