"""What the backward under way was asked for: all leaves, or the gradients of certain tensors.

Autograd tells a node only whether it runs. Which tensors it was asked for is with the caller, the
frame of torch's Python that has called autograd's engine.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

import torch
from torch.autograd.graph import _engine_run_backward

_executes = torch._C._will_engine_execute_node
_ENGINE: CodeType = _engine_run_backward.__code__
_GRAD_FN = operator.attrgetter("grad_fn")
_INPUTS = 3  # their place after the tensors that it begins with
#: What that frame puts into the state that autograd's threads take over; torch 2.11 puts nothing.
_KEY = "context"
_TELLS = _KEY in _ENGINE.co_consts


def asks_within(first: int, last: int, frame: FrameType) -> bool:
    """Whether gradients are asked for of what nodes made that are numbered ``first`` to ``last``.

    ``frame``: of the backward of a ``torch.autograd.Function``, as autograd has called it. Nodes
    have the numbers of ``torch.autograd._get_sequence_nr``, each thread its own. Where it cannot be
    told, they are.
    """
    for inputs in asked(frame.f_back):
        if inputs is None:
            return True
        try:
            nodes = filter(None, map(_GRAD_FN, inputs))
            if any(first <= node._sequence_nr() <= last for node in nodes):
                return True
        except AttributeError:  # an edge
            if any(first <= node._sequence_nr() <= last for node in _nodes(inputs)):
                return True
    return False


def _nodes(inputs: Sequence[Any]) -> Iterator[Any]:
    for each in inputs:
        node = each.grad_fn if isinstance(each, torch.Tensor) else each.node
        if node is not None:
            yield node


def is_asked(t: torch.Tensor, frame: FrameType | None) -> bool:
    """Whether the gradient of ``t`` is asked for by name, as far as it can be told."""
    return any(_is_edge_of(each, t) for inputs in asked(frame) for each in inputs or ())


def _is_edge_of(each: Any, t: torch.Tensor) -> bool:
    if isinstance(each, torch.Tensor):
        return each is t or (each.grad_fn is t.grad_fn and each.output_nr == t.output_nr)
    return bool(each.node is t.grad_fn and each.output_nr == t.output_nr)


def caller() -> FrameType | None:
    """Who has called what calls this; None: autograd, in a device's thread, where it begins."""
    try:
        return sys._getframe(2)
    except ValueError:
        return None


def asked(frame: FrameType | None) -> Iterator[Sequence[Any] | None]:
    """What a backward was asked for that may be the one that ``frame`` began; None: unknown."""
    if frame is not None:
        yield asked_by(frame)
        return
    if _TELLS and not torch._C._is_key_in_tls(_KEY):
        yield None
        return
    found = False  # a device's thread: the caller waits in another one
    for waiting in _waiting():
        found = True
        yield _inputs(waiting)
    if not found:
        yield None


def _waiting() -> Iterator[FrameType]:
    """The frames that wait for autograd's engine, in any thread."""
    for current in sys._current_frames().values():
        frame: FrameType | None = current
        while frame is not None:
            if frame.f_code is _ENGINE:
                yield frame
            frame = frame.f_back


def asked_by(frame: FrameType) -> Sequence[Any] | None:
    """What ``frame`` asks for; None: it does not call autograd's engine."""
    return _inputs(frame) if frame.f_code is _ENGINE else None


def _inputs(frame: FrameType) -> Sequence[Any] | None:
    given = frame.f_locals["args"]
    return given[_INPUTS] if len(given) > _INPUTS else None


def goes_to(node: Any) -> bool:
    """Whether the backward under way comes to a function of autograd."""
    try:
        return bool(_executes(node))
    except RuntimeError:  # a leaf whose gradient is asked for by name
        return True


def inputs_of(call: Any) -> Sequence[tuple[Any, int]]:
    """Autograd's functions of a compiled call's inputs that are tensors, and places there."""
    edges: Sequence[tuple[Any, int]]
    edges = call.next_functions if call.edges is None else call.edges(call)
    return edges


def edges_of(tensors: Sequence[Any]) -> Iterator[tuple[Any, int]]:
    """Autograd's functions of tensors, or of edges, and their numbers there."""
    for each in tensors:
        yield (each.grad_fn if isinstance(each, torch.Tensor) else each.node), each.output_nr


def roots(frame: FrameType | None) -> Iterator[tuple[Any, int]]:
    """Where the backward that ``frame`` began begins, as :func:`edges_of`; none where unknown."""
    if frame is None and len(waiting := [*_waiting()]) == 1:  # a device's thread
        (frame,) = waiting
    if frame is not None and frame.f_code is _ENGINE:
        yield from edges_of(frame.f_locals["t_outputs"])
