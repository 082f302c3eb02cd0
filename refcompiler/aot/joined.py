"""What a call shares with second runs of its graph.

Eager's gradients with a graph are of the very tensors that the call has computed, so what comes by
them to a result, or to a checkpointed region, is added to what comes there otherwise. A second run
has tensors of its own. What comes to its results goes to the call's, where the backward under way
comes to these too, so that their hooks are told once, of all. The call is older than its second
runs, and autograd takes it after them.
"""

from __future__ import annotations

import functools
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from refcompiler.aot import ports
from refcompiler.aot.ports import RESULT, VIEW, Key
from refcompiler.aot.recomputed import Recomputed

_task = torch._C._current_graph_task_id
_goes_to = torch._C._will_engine_execute_node


class _Numbered(torch.autograd.Function):
    """``apply(count, t)``: so many results, whose numbers hooks are given to a function by."""

    @staticmethod
    def forward(ctx: Any, count: int, t: torch.Tensor) -> Any:
        return tuple([t.clone() for _ in range(count)])


class Joined:
    """Of the call whose function of autograd is ``node``, which has it as ``node.joined``."""

    def __init__(self, node: Any, recomputed: Recomputed | None):
        self.node = weakref.ref(node)
        self.hooks = node.hooks  # the last that are known, if the call is gone
        self.recomputed = recomputed
        #: By result, what came to it in the backward with this number.
        self.came: tuple[int, dict[int, torch.Tensor]] = -1, {}
        self.ran = -1  # the last backward that came to the call
        self._tell(node)

    def _tell(self, node: Any) -> None:
        """Have results that keep their gradients keep them whole."""
        count = 0 if node.of_result is not None else len(node.returned)
        with torch.enable_grad():
            like = _Numbered.apply(count, torch.zeros((), requires_grad=True)) if count else ()
        for place, t in enumerate(like):
            t._backward_hooks = OrderedDict({0: functools.partial(self.whole, place)})
            torch.autograd.function.BackwardCFunction._register_hook_dict(node, t)

    def named(self, keys: Iterable[Key], inputs: Sequence[Any]) -> dict[Key, torch.Tensor]:
        """What the caller has of these, as the call has made it: of results and views.

        ``inputs``: the call's, of which it may be views.
        """
        call = self.node()
        if call is None or not call.returned:
            return {}
        found, views = {}, self.views()
        for key in keys:
            t = views[key]() if key in views else call.returned[key[1]]()
            if t is not None and t.requires_grad:
                root = t._base if t._is_view() else t
                if ports.call_of(root.grad_fn) is call or any(_has(root, each) for each in inputs):
                    found[key] = t
        return found

    def views(self) -> dict[Key, Any]:
        """References to those that other results are computed from."""
        call = self.node()
        if call is None or call.program.gates is None:
            return {}
        pairs = zip(call.program.gates.keys, call.watched[1], strict=True)
        return {key: reference for key, reference in pairs if key[0] == VIEW}

    def lead(self, results: Mapping[Key, torch.Tensor]) -> None:
        """Have what comes to the ``results`` of a run from now on go to the call's."""
        for (kind, place), t in results.items():
            if kind == RESULT and t.grad_fn is not None:
                t.grad_fn.register_prehook(self._leading(place, t.output_nr))

    def _leading(self, place: int, at: int) -> Any:
        def prehook(gradients: tuple[Any, ...]) -> Any:
            call = self.node()
            self.hooks = self.hooks if call is None else call.hooks
            hooks = self.hooks.get(place)
            if gradients[at] is None or not hooks and not self._retains(call, place):
                return None
            found = [*gradients]
            if call is not None and self.ran != _task() and self._comes_to(call, place):
                if self.came[0] != _task():
                    self.came = _task(), {}
                self.came[1][place] = _sum(self.came[1].get(place), gradients[at])
                found[at] = None
            else:
                found[at] = hooked(hooks or {}, gradients[at])
            return tuple(found)

        return prehook

    @staticmethod
    def _comes_to(call: Any, place: int) -> bool:
        function = call if call.of_result is None else call.of_result(call, place)
        return function is not None and _goes_to(function)

    @staticmethod
    def _retains(call: Any, place: int) -> bool:
        """Whether a result that somebody has keeps what comes to it."""
        result = call.returned[place]() if call is not None and call.returned else None
        return result is not None and result.retains_grad

    def whole(self, place: int, gradient: Any) -> Any:
        """That of a result, with what came to it by second runs in this backward."""
        if self.came[0] != _task():
            return gradient
        return _sum(self.came[1].pop(place, None), gradient)

    def begin(self, given: list[Any]) -> None:
        """A backward has come to the call: what none of its results' hooks has taken is for it."""
        self.ran = _task()
        if self.came[0] != self.ran:
            return
        call = self.node()
        for place, gradient in self.came[1].items():
            hooks = None if call is None else call.hooks.get(place)
            given[place] = _sum(hooked(hooks or {}, gradient), given[place])
        self.came = -1, {}


def _has(root: torch.Tensor, given: Any) -> bool:
    """Whether views of ``root`` are views of ``given``."""
    return isinstance(given, torch.Tensor) and (given is root or given._base is root)


def hooked(own: Mapping[int, Any], gradient: Any) -> Any:
    """What hooks make of ``gradient``."""
    for each in [*own.values()]:
        found = each(gradient)
        gradient = gradient if found is None else found
    return gradient


def _sum(first: Any, then: Any) -> Any:
    if first is None:
        return then
    return first if then is None else first + then
