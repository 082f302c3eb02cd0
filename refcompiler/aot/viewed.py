"""Views that leave a graph which computes more of what they are views of.

Autograd adds up at a view what comes back to it, from outside and from what the graph computes of
it, and then at what it is a view of, reader by reader. A view that is made again behind the graph
leads past the graph's own readers: what comes from outside would be in the sums before them. So the
backward has a tangent for the view itself. A hook on the view's function of autograd takes what has
come there for the call, to which the view's base leads (or which is older), and lets nothing pass.

Where somebody is told of what is between the two, the backward runs in stages
(:mod:`refcompiler.aot.gates`), and all goes the way of the views.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

from refcompiler.aot.chains import OUTPUT
from refcompiler.aot.layout import Layout
from refcompiler.aot.numbers import symbols_of
from refcompiler.aot.observation import Observation, Value, View, ViewOf, tracked
from refcompiler.aot.ports import INPUT, RESULT, VIEW, Key
from refcompiler.histories import is_outdated

_task = torch._C._current_graph_task_id
_goes_to = torch._C._will_engine_execute_node


class Viewed:
    """Those of ``seen``. ``wanted``: the numbers of the outputs that a trace is to have tangents
    for, if they are known; None: no view is to have one. ``env``: of the symbols for sizes."""

    def __init__(self, seen: Observation, wanted: Sequence[int] | None, env: Any):
        self.outputs = seen.outputs
        #: By number of an output, those that may have one.
        self.views: dict[int, View] = {}
        for n, output in enumerate(seen.outputs if wanted is not None else ()):
            view = tracked(output)
            if view is None or view.older:  # which may lead past what it is of
                continue
            if view.grad_mode and not _depends_on_data(view, env):
                self.views[n] = view
        if seen.moves:
            self.views.clear()
        self.wanted = wanted

    def places(self, numbers: Sequence[int]) -> list[int]:
        """Those of outputs with these ``numbers`` among all that may have one."""
        return [n for n, output in enumerate(self.views) if output in numbers]

    def chosen(
        self,
        flat: Sequence[Any],
        inputs: Sequence[Any],
        written: Collection[int],
        inner: Mapping[Key, int],
        ways: Mapping[Any, Mapping[int, int]],
    ) -> list[int]:
        """The numbers of the outputs that have one.

        ``flat``: all outputs; ``written``: places of inputs to which autograd sees writes;
        ``inner``: what results are computed from; ``ways``: what they lead to.
        """
        if self.wanted:
            return [*self.wanted]
        found = []
        for n, view in self.views.items():
            t, output = flat[n], self.outputs[n]
            if is_outdated(t) or t.grad_fn is None:
                continue
            kind, other = view.over or ("", -1)
            if kind == OUTPUT and (VIEW, other) not in inner:  # nobody asks what is told of it
                continue
            if isinstance(output, Value):
                read = (RESULT, output.slot) in inner
            elif isinstance(output, ViewOf) and output.place in written:
                read = (INPUT, output.place) in inner
            else:
                assert isinstance(output, ViewOf)
                given = inputs[output.place]
                edge = get_gradient_edge(given) if given.requires_grad else None
                read = edge is not None and edge.output_nr in ways.get(edge.node, {})
            if read:
                found.append(n)
        return found


def _depends_on_data(view: View, env: Any) -> bool:
    at = view.layout
    symbols = set().union(*map(symbols_of, (*at.size, *at.stride)))
    return any(env.is_unbacked_symint(each) for each in symbols)


def watch(call: Any, number: int, t: torch.Tensor) -> None:
    """Have what comes back to the view ``t`` given to its ``call``, of whose views it has that
    ``number``."""
    node, program = t.grad_fn, call.program
    if node is not None and program.watches:
        if program.symbolic:
            n, layout = len(program.results) + number, Layout.of(t)
            call.tangents[n] = n, program.differentiable[n], layout.stride, layout
        node.register_prehook(functools.partial(_taken, call, number, t.output_nr))


def _taken(call: Any, number: int, at: int, gradients: tuple[Any, ...]) -> Any:
    gradient, task = gradients[at], _task()
    if gradient is None:
        return None
    goes = _goes_to if call.goes is None else functools.partial(call.goes, number)
    if not goes(call):
        return None
    began, came = call.came
    if began != task:
        came = {}
    elif came is None:  # it has run, as in another thread it may
        return None
    gates = call.program.gates
    if gates is not None:
        known = call.task
        if known[1] if known is not None and known[0] == task else gates.told(call):
            return None
    call.came = task, came
    came[number] = gradient
    return (*gradients[:at], None, *gradients[at + 1 :])


def come(call: Any) -> list[Any]:
    """What has come to the views of a ``call`` in the backward under way, which has come to it."""
    (began, came), task = call.came, _task()
    call.came = task, None
    found: list[Any] = [None] * len(call.program.viewed)
    if began == task and came is not None:
        for number, gradient in came.items():
            found[number] = gradient
    return found
