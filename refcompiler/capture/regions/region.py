"""Regions: parts of a program that become graphs of their own inside the graph.

A transformation of functions (vmap, grad, checkpoint, a custom backward, a branch) is given a
Python function. Capture hands it a callback instead, which interprets the function once and
records its tensor work into an inner graph; the transformation then is one node over that graph.
Values from outside that the inner graph reads are lifted to its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from refcompiler.capture.calls import Calls
from refcompiler.capture.door import Scope, version_of
from refcompiler.capture.effects import effects, reachable
from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.capture.lookup import described
from refcompiler.capture.natively import interpreting
from refcompiler.capture.numbers import is_known
from refcompiler.capture.regions.targets import SLOT, Form, tensors_of
from refcompiler.capture.signals import Restart
from refcompiler.interpreter.signals import Signal
from refcompiler.shapes.node import SYMBOLS


class Region:
    """The capture of one function as an inner graph.

    ``call`` is the callback that stands for the function. Once it has been called, ``module`` is
    the graph: its inputs are the tensors among the callback's arguments, then ``lifted``; its
    outputs are the tensors in the value, which has the form ``form``.
    """

    def __init__(self, machine: Calls, frame: Any, function: Any):
        self.machine, self.frame, self.function = machine, frame, function
        self.module: torch.fx.GraphModule | None = None
        self.lifted: list[Any] = []  # tensors and symbolic numbers
        self.outputs: list[torch.Tensor] = []
        self.form: Any = None
        self.scope: Any = None
        self.may_change = False  # arguments and what is lifted, in place
        self.changed: list[torch.Tensor] = []
        self.gives_numbers = False  # what it returns may hold symbols of what it was given
        self.given: Any = None
        self.effects: Any = None  # before the call

    def call(self, *args: Any, **kwargs: Any) -> Any:
        machine, recorder = self.machine, self.machine.recorder
        tensors = tensors_of((args, kwargs))
        given = Form.of((args, kwargs)), [(t.dtype, t.shape, t.requires_grad) for t in tensors]
        if self.module is not None:
            return self._again(given, tensors)
        self.given, self.effects = given, (effects(machine), reachable(self.function))
        scope = self.scope = recorder.scope = Scope(recorder.scope)
        suspended, recorder.suspended = recorder.suspended, False
        grad = torch.is_grad_enabled()
        try:
            for i, tensor in enumerate(tensors):
                recorder.track(scope, scope.placeholder(f"argument_{i}"), tensor)
            versions = [version_of(tensor) for tensor in tensors]
            with interpreting():
                value = machine.force(self.run(args, kwargs))
            self._finish(scope, value)
        except Signal:
            raise
        except Exception as error:  # eager raises it too, in its own way
            why = described(error)
            raise refusal(machine, why, "fake-op-raised") from error
        finally:
            recorder.scope = scope.outer  # type: ignore[assignment]
            recorder.suspended = suspended
        if torch.is_grad_enabled() != grad or scope.modes:
            raise refusal(machine, "the function leaves another grad mode or autocast on")
        for tensor, version in zip([*tensors, *scope.lifted], [*versions, *scope.versions]):
            if version_of(tensor) != version:
                self.changed.append(tensor)
        if self.changed and not self.may_change:
            raise refusal(machine, "the function changes a tensor in place")
        return value

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Interpret the function."""
        return self.machine.invoke(self.frame, self.function, args, kwargs)

    def _again(self, given: Any, tensors: list[torch.Tensor]) -> Any:
        """A transformation calls its function for each chunk of what it goes over."""
        after = effects(self.machine), reachable(self.function)
        if given != self.given or after != self.effects or self.module is None:
            raise refusal(self.machine, "the function is called more than once")
        with suspended(self.machine):
            return self.form.fill(self.module.forward(*tensors, *self.lifted))

    def _finish(self, scope: Scope, value: Any) -> None:
        self.form = Form.of(value)
        for leaf in self.form.leaves:
            if self.gives_numbers and type(leaf) in SYMBOLS and is_known(scope.outer, leaf):
                continue
            if leaf is not SLOT and type(leaf) not in CONSTANT_TYPES:
                raise refusal(self.machine, f"the function returns a {type(leaf).__name__}")
        self.outputs = tensors_of(value)
        argument = self.machine.recorder.argument
        scope.graph.output(tuple([argument(tensor) for tensor in self.outputs]))
        self.lifted = scope.lifted
        self.module = torch.fx.GraphModule(scope.module, scope.graph)


def alone(module: torch.fx.GraphModule) -> None:
    """A graph with one output gives it as it is instead of in a tuple."""
    (output,) = module.graph.find_nodes(op="output")
    output.args = (output.args[0][0],)
    module.recompile()


def refusal(machine: Calls, why: str, row: str = "higher-order") -> Restart:
    """Part of the region has run already, so the break is before the call, in a new capture."""
    return Restart(machine.steps, row, why)


def suspended(machine: Calls) -> Any:
    """Torch's own code runs; what it does is not the program's, and is not recorded."""
    return machine.recorder.suspension()


def emit(
    machine: Calls,
    target: Callable,
    arguments: Sequence[Any],
    results: Sequence[torch.Tensor],
    options: Mapping[str, Any] | None = None,
) -> None:
    """Record ``target(*arguments, **options)``, which gives ``results`` as a tuple.

    Among the arguments, also in tuples and lists, regions' modules stand for themselves, and
    tensors for their nodes.
    """
    recorder = machine.recorder

    def node(value: Any) -> Any:
        if isinstance(value, torch.nn.Module):
            return recorder.scope.submodule(value)
        if type(value) in (tuple, list):
            return type(value)(map(node, value))
        return recorder.argument(value)

    nodes = tuple(map(node, arguments))
    recorder.add("call_function", target, nodes, dict(options or {}), tuple(results))
