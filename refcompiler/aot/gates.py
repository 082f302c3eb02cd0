"""The way from one result of a compiled graph to another that it is computed from.

Autograd takes a compiled backward for one function from all results to all inputs. Who asks it for
the gradient of one result by another, or puts a hook on one that others are computed from, asks
about a way inside of that function. So such a result goes through a :class:`Gate`, by which
autograd finds the results, views and written inputs on its way. A backward that asks for none of
them passes a gate as it is. Else the backward runs in stages: a gate brings what comes back to what
is on the way, hooks see it whole, and the compiled function goes on from there. The graphs of the
stages are traced when they are first wanted, for what the forward has saved.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from refcompiler.aot.between import Between, Written
from refcompiler.aot.coming import comes
from refcompiler.aot.ports import INPUT, RESULT, Key, call_of
from refcompiler.aot.wanted import asks_within, caller, inputs_of
from refcompiler.weak import Reference

REFUSED = (
    "a hook or retain_grad is on a result of a compiled graph that other results of it are "
    "computed from, or its gradient is asked for, and the backward {why}. Put it into the compiled "
    "function, or compute uncompiled (torch.compiler.disable or backend='eager')"
)
#: No one asks for its gradient: a backward that goes to it goes everywhere.
with torch.inference_mode(False), torch.enable_grad():  # this is imported while a graph compiles
    PROBE = torch.zeros((), requires_grad=True)
    _PROBED = torch.autograd.graph.get_gradient_edge(PROBE).node
_executes = torch._C._will_engine_execute_node
newest = torch.autograd._get_sequence_nr
_task = torch._C._current_graph_task_id
_detach = torch.Tensor.detach


@dataclass(frozen=True)
class Level:
    """``results``: numbers of those of the compiled function that have the same ``others`` on their
    way to its inputs. ``apart``: the levels (by number) for those of them that lead to the same of
    these, if there are several, for a call with a function for each way; for whoever writes it.
    ``probed``: whether :data:`PROBE` is on no other gate's way from this one."""

    results: tuple[int, ...]
    others: tuple[Key, ...]
    apart: tuple[int, ...] = ()
    probed: bool = True

    @functools.cached_property
    def nothing(self) -> tuple[None, ...]:
        """What a backward that passes the gate as it is brings to the others."""
        return (None,) * (len(self.others) + self.probed)


def levels(
    inner: Mapping[Key, int], tangents: Sequence[int], ways: Mapping[int, int]
) -> list[Level]:
    """``inner``: by key the results that are computed from it, as bits of ``tangents``.

    ``ways``: by input likewise, of those that not all lead to. What is on the way of a level's
    others is on its own way: they have fewer, and come before it. Parts of levels are the last.
    """
    groups: dict[Any, dict[Any, list[int]]] = {}
    for bit, place in enumerate(tangents):
        others = tuple([key for key, mask in inner.items() if mask >> bit & 1])
        ends = tuple([n for n, mask in ways.items() if mask >> bit & 1])
        if others:
            groups.setdefault(others, {}).setdefault(ends, []).append(place)
    found: list[Level] = []
    parts: list[Level] = []
    for others in sorted(groups, key=len):
        known = groups[others].values()
        first = len(groups) + len(parts)
        if len(known) > 1:
            parts += [Level(tuple(places), others) for places in known]
        apart = tuple(range(first, len(groups) + len(parts)))
        found.append(Level(tuple(sorted(n for places in known for n in places)), others, apart))
    found += parts
    gated = {n for level in found for n in level.results}
    return [replace(level, probed=not _leads_to(gated, level)) for level in found]


def _leads_to(gated: Collection[int], level: Level) -> bool:
    return any(kind == RESULT and n in gated for kind, n in level.others)


@dataclass
class Stages:
    """``rest``: the program whose backward ends ways where something is on them, and begins there.

    ``parts``: by result, the program of what comes back from it to what is first on its ways.
    """

    rest: Any
    parts: Mapping[int, tuple[Any, Sequence[Key]]]


class Gates:
    """Those of a program. ``trace()`` gives its stages; None: they are refused."""

    def __init__(self, levels: Sequence[Level], trace: Callable[[], Stages] | None):
        self.levels, self.trace = levels, trace
        every = {key for level in levels for key in level.others}
        #: In the order of what a call has watched.
        self.keys = [*dict.fromkeys(key for level in levels for key in level.others)]
        self.inner = {n for kind, n in every if kind == RESULT}

    @functools.cached_property
    def stages(self) -> Stages:
        if self.trace is None:
            raise RuntimeError(REFUSED.format(why="has no compiler"))
        return self.trace()

    def written(self, node: Any) -> dict[int | None, Any]:
        """By place, references to inputs of a call that the graph has written to, and reads."""
        pairs = zip(self.keys, node.watched[1], strict=True)
        return {key[1]: reference for key, reference in pairs if key[0] == INPUT}

    def hooked(self, node: Any) -> bool:
        """Whether there is a hook on a result that others are computed from."""
        return any(node.hooks.get(n) for n in self.inner) if node.hooks else False

    def begins(self, node: Any) -> bool:
        """Whether the backward under way runs in stages: its first gate decides for all.

        Where it is asked for the gradients of certain tensors, that is where one is on the way.
        To be called by what autograd has called.
        """
        begins = self._decides(node, sys._getframe(1))
        node.task = _task(), begins
        return begins

    def told(self, node: Any, frame: Any = None) -> bool:
        """Whether the backward under way would run in stages if it came to a gate, which it has not
        yet. If not, it does not. To be called as :meth:`begins`, or with that ``frame``."""
        told = self._decides(node, frame or sys._getframe(1))
        if not told:
            node.task = _task(), False
        return told

    def _decides(self, node: Any, frame: Any) -> bool:
        last, watched = node.watched
        if node.hooks and self.hooked(node):
            return True
        for reference in watched:
            t = reference()
            if t is not None and (t._backward_hooks or t.retains_grad):
                return True
        if _executes(_PROBED):
            return False
        return asks_within(node._sequence_nr(), last - 1, frame)

    def parts(self, node: Any, level: Level, gradients: Sequence[Any]) -> Iterator[Any]:
        """What comes back from ``gradients``, of the level's results, to its others."""
        found: dict[Key, Any] = {}
        again = None
        if torch.is_grad_enabled():  # create_graph
            pairs = zip(level.results, gradients, strict=True)
            asked = sum(_bit(node.program, place) for place, g in pairs if g is not None)
            again = self._between(node, asked)
        for place, gradient in zip(level.results, gradients, strict=True):
            if gradient is None:
                continue
            if again is not None:
                back = again.part(place, gradient)
                _add(found, [*again.keys], [back[at] for at in again.keys.values()])
                continue
            program, keys = self.stages.parts[place]
            arguments = self._arguments(node, program, _bit(program, place))
            given = [*program.nothing]
            given[place] = gradient
            missing, call = program.take(node, arguments, given)
            with torch._C._DisableAutocast():
                parts = (call or program.backward_for(missing))(arguments)
            _add(found, keys, parts)
        return map(found.get, level.others)

    @staticmethod
    def _arguments(node: Any, program: Any, asked: int) -> list[Any]:
        """What the ``program`` of a part takes, which may read nothing that is freed by then."""
        shares = program.shares
        if shares.loose or any(mask & asked for mask in shares.masks):
            found, _, _ = program.taken(node, asked)
            return found
        return [*node.numbers, *[None] * program.tensors]

    def _between(self, node: Any, asked: int) -> Between:
        """What a backward under way goes through that makes a graph."""
        task = _task()
        known = node.again
        if known is None or known[0] != task:
            node.again = known = task, self._run_again(node, asked)
        return known[1]

    def _run_again(self, node: Any, asked: int) -> Between:
        program, why = node.program, "is asked for a graph (create_graph)"
        again, inputs = program.derivable, None
        if again is not None:
            edges = inputs_of(node)
            kept, _, _ = program.taken(node, asked)
            inputs = again.inputs(edges, node.noted, program.inputs, kept)
        if inputs is None:
            raise RuntimeError(REFUSED.format(why=why))
        named = {}
        for key, reference in zip(self.keys, node.watched[1], strict=True):
            t, place = reference(), key[1]
            if key[0] == RESULT:
                place = again.place_of(program.differentiable.index(place))
            if place is None or t is None and not self.hooked(node):
                continue  # nobody can name it
            if t is None or key[0] == INPUT:
                raise RuntimeError(REFUSED.format(why=why))
            named[key] = place, t
        try:
            values = dict(named.values())
            joined = program.joined(node, ())
            known = again, program.results, inputs, node.state, values, joined
            found = Between(*known)
        except Written:
            raise RuntimeError(REFUSED.format(why=why)) from None
        found.keys = {key: place for key, (place, _) in named.items()}
        return found

    def last(self, node: Any, given: Sequence[Any]) -> list[Any]:
        """The gradients of the inputs, with a graph, in stages, from what results have."""
        found = self._between(node, node.program.asked(given)).rest(given)
        node.again = None
        return found


def _bit(program: Any, place: int) -> int:
    """Of the result at ``place``, among the tangents of its program."""
    return 1 << program.differentiable.index(place)


def _add(found: dict[Key, Any], keys: Sequence[Key], parts: Sequence[Any]) -> None:
    for key, part in zip(keys, parts, strict=True):
        if part is not None:
            found[key] = found[key] + part if key in found else part


class Gate(torch.autograd.Function):
    """``apply((node, level), count, *results, *others)``: the ``count`` results, or the only one.

    ``node``: that of the compiled function. ``others`` end with :data:`PROBE` if the level has it.
    The call's ``node.watched`` has the number that nodes have from then on (those between are on
    the way) and references to what is to be asked for hooks.
    """

    @staticmethod
    def forward(ctx: Any, at: Any, count: int, *tensors: Any) -> Any:
        ctx.at = at
        ctx.materialize_grads = False  # as ``set_materialize_grads``, which is in Python
        found = tuple(map(_detach, tensors[:count]))
        node, level = at
        if node.returned:
            for n, t in zip(node.program.gates.levels[level].results, found, strict=True):
                node.returned[n] = Reference(t)
        return found[0] if count == 1 else found

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        node, number = ctx.at
        known = node.task
        gates: Gates = node.program.gates
        level = gates.levels[number]
        if known[1] if known is not None and known[0] == _task() else gates.begins(node):
            parts = gates.parts(node, level, gradients)
            return (None, None, *gradients, *parts, *(None,) * level.probed)
        return (None, None, *gradients, *level.nothing)


gate: Callable[..., Any] = super(torch.autograd.Function, Gate).apply


def directly(function: Any) -> None:
    """Have autograd call the backward of ``function``, which has no other, without a way there."""
    boxed = hasattr(torch.autograd.Function, "boxed_grads_call") and function.boxed_grads_call
    setattr(function._backward_cls, "apply_boxed" if boxed else "apply", function.backward)


directly(Gate)


class _OfGradients(OrderedDict[int, Callable[..., Any]]):
    """Hooks on a result, none of which is called where that has no gradient.

    Nor where eager's backward does not come to it. ``called``: the same, as autograd has them.
    ``turn``: when they are, among those on the others. ``node`` and ``at``: the result's function
    of autograd. ``whole(gradient)`` has what came to it by second runs of the ``call`` too.
    """

    def __init__(self, turn: int, call: Any, number: int, node: Any, at: int):
        super().__init__()
        self.turn = turn
        self.call, self.number = weakref.ref(call), number
        self.node, self.at = weakref.ref(node), at
        self.called: dict[int, Callable[..., Any]] = {}

    def __setitem__(self, number: int, hook: Callable[..., Any]) -> None:
        def of_gradient(gradient: Any) -> Any:
            call, edge = self.call(), (self.node(), self.at)
            if call is not None and not comes(call, self.number, edge, caller()):
                return None
            whole = self.whole(gradient)
            found = None if whole is None else hook(whole)
            return whole if found is None and whole is not gradient else found

        super().__setitem__(number, of_gradient)
        self.called[number] = of_gradient

    def whole(self, gradient: Any) -> Any:
        call = self.call()
        joined = None if call is None else call.joined
        return gradient if joined is None else joined.whole(self.number, gradient)

    def __delitem__(self, number: int) -> None:
        super().__delitem__(number)
        self.called.pop(number, None)


def with_hooks(function: Any) -> None:
    """Have the nodes of a function of autograd tell those of the compiled one of hooks.

    Autograd calls hooks on the results of one function in the order in which it was given them. So
    those whose turn comes later are given once more, as far as somebody has the results.
    """
    register = torch.autograd.function.BackwardCFunction._register_hook_dict

    def call_last(node: Any, t: torch.Tensor, hooks: _OfGradients) -> None:
        hooks.called.clear()
        t._backward_hooks = hooks.called = dict(hooks)
        register(node, t)
        t._backward_hooks = hooks

    def kept(node: Any, t: torch.Tensor) -> None:
        if type(node) is Gate._backward_cls:
            compiled, level = node.at
            results = compiled.program.gates.levels[level].results
        else:
            compiled = call_of(node)
            results = getattr(node, "results", range(compiled.program.outputs))
        number = results[t.output_nr]
        turn = compiled.program.turns.get(number, 0)
        hooks = _OfGradients(turn, compiled, number, node, t.output_nr)
        compiled.hooks = {**compiled.hooks, number: hooks}
        call_last(node, t, hooks)
        for reference in sorted(node.hooked, key=lambda each: each[0]):
            turn, other = reference[0], reference[1]()
            if turn > hooks.turn and other is not None and other.grad_fn is node:
                call_last(node, other, other._backward_hooks)
        node.hooked = *node.hooked, (hooks.turn, Reference(t))

    function._backward_cls._register_hook_dict = kept
    function._backward_cls.hooked = ()  # turns of results with hooks, and references to these


with_hooks(Gate)
