"""The way from derivatives of a call's gradients to the results of the call.

Some operations keep their result (``exp``, ``tanh``), so that eager's gradients with a graph are
computed from the very tensors that the call has given, and a derivative of them goes there: to
their hooks, to who asks for it (``autograd.grad``), and on with what comes there otherwise. A
second run has results of its own. So its inputs come out of a :class:`Port`, which leads to the
call's results too, and what comes back to those of the run is taken away there and goes on from
the port, behind which all of the run lies.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

#: What leads to inputs: ``(RESULT, its number)`` of the compiled function, ``(VIEW, number)`` of an
#: output of the graph, ``(INPUT, place)`` of one that is written to.
Key = tuple[str, int]
RESULT, VIEW, INPUT = "result", "view", "input"

_task = torch._C._current_graph_task_id
_goes_to = torch._C._will_engine_execute_node


class Port(torch.autograd.Function):
    """``apply(call, keys, *inputs, *results)``: the inputs.

    ``call``: a reference to its function of autograd. ``keys``: of the results.
    """

    @staticmethod
    def forward(ctx: Any, call: Any, keys: Sequence[Key], *tensors: torch.Tensor) -> Any:
        ctx.call, ctx.keys = call, keys
        #: By result, what came to it in the backward with this number; the last that went through.
        ctx.came, ctx.ran = (-1, {}), -1
        ctx.set_materialize_grads(False)
        return tuple([t.detach() for t in tensors[: len(tensors) - len(keys)]])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.ran = _task()
        (task, parts), ctx.came = ctx.came, (-1, {})
        found = parts if task == ctx.ran else {}
        call = ctx.call()
        if call is not None:
            call.spared = ctx.ran
        return (None, None, *gradients, *map(found.get, ctx.keys))


def through(
    call: Any, inputs: Sequence[Any], results: Mapping[Key, torch.Tensor]
) -> tuple[list[Any], Any]:
    """The inputs of a second run, from a port to the ``call``'s ``results``, and its node."""
    tracked = [n for n, t in enumerate(inputs) if isinstance(t, torch.Tensor) and t.requires_grad]
    made = Port.apply(call, (*results,), *[inputs[n] for n in tracked], *results.values())
    found = [*inputs]
    for n, t in zip(tracked, made, strict=True):
        found[n] = t
    return found, made[0].grad_fn


def lead(port: Any, results: Mapping[Key, torch.Tensor]) -> list[Any]:
    """Have what comes to a run's ``results`` from now on go to the call's, through its ``port``.

    The handles of the hooks that do.
    """
    return [
        t.grad_fn.register_prehook(functools.partial(_taken, port, key, t.output_nr))
        for key, t in results.items()
        if t.grad_fn is not None and t.grad_fn is not port
    ]


def _taken(port: Any, key: Key, at: int, gradients: tuple[Any, ...]) -> Any:
    task = _task()
    if gradients[at] is None or port.ran == task or not _goes_to(port):
        return None
    if port.came[0] != task:
        port.came = task, {}
    parts = port.came[1]
    parts[key] = parts[key] + gradients[at] if key in parts else gradients[at]
    return (*gradients[:at], None, *gradients[at + 1 :])


def kept(
    gradients: Sequence[Any], results: Mapping[Key, torch.Tensor], ends: Sequence[Any]
) -> list[Key]:
    """Which ``results`` of a run its ``gradients`` with a graph depend on.

    ``ends``: functions of autograd where the run, and what is computed with it, begins.
    """
    wanted = {(t.grad_fn, t.output_nr): key for key, t in results.items()}
    left = [t.grad_fn for t in gradients if t is not None]
    seen: set[Any] = {None, *ends}
    found = []
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        for edge in node.next_functions:
            if edge in wanted:
                found.append(wanted.pop(edge))
            left.append(edge[0])
    return found


def call_of(node: Any) -> Any:
    """The compiled function of a call whose results have ``node``, which may be another one's."""
    at = getattr(node, "at", None)
    if type(at) is tuple and len(at) == 2:  # a gate's; others' functions may have one of their own
        node, _ = at
    return getattr(node, "call", node)
