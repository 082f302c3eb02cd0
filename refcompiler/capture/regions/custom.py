"""``torch.autograd.Function``: forward and backward as two graphs under one node.

Where no gradient can flow, ``apply`` is a call of ``forward`` without gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import torch

from refcompiler.capture.calls import Calls
from refcompiler.capture.door import Scope
from refcompiler.capture.effects import effects
from refcompiler.capture.marking.marked import is_allowed
from refcompiler.capture.models.registry import model
from refcompiler.capture.regions.region import Region, emit, refusal, suspended
from refcompiler.capture.regions.targets import (
    SLOT,
    Differentiation,
    custom_function,
    is_tensor,
    tensors_of,
)
from refcompiler.capture.signals import Break, Restart
from refcompiler.capture.state.forward import current_level
from refcompiler.interpreter.registry import native, run_natively

_FUNCTION = torch.autograd.Function


@model(torch.autograd.grad)
def _gradients(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    return _engine(m, kwargs["inputs"] if "inputs" in kwargs else args[1] if args[1:] else ())


@model(torch.autograd.backward)
def _backward(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    return _engine(m, kwargs["inputs"] if "inputs" in kwargs else args[5] if args[5:] else ())


def _engine(m: Calls, inputs: Any) -> Any:
    """What torch does around the call differs by its version; it is one break in each."""
    inputs = m.force(inputs)
    for t in map(m.force, inputs if isinstance(inputs, list | tuple) else [inputs]):
        if isinstance(t, torch.Tensor):
            m.recorder.examine(t)
    raise Break("higher-order", "torch.autograd.grad or backward, which runs autograd's engine")


class Context:
    """The ``ctx`` of a forward and its backward while they are captured."""

    to_save: tuple = ()
    dirty_tensors: tuple = ()
    non_differentiable: tuple = ()
    materialize_grads = True
    asked = False  # for what is saved

    def save_for_backward(self, *tensors: Any) -> None:
        self.to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        self.saved_for_forward = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        self.dirty_tensors = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize_grads = value

    @property
    def saved_tensors(self) -> tuple:
        _note_asked(self)
        return self.to_save


def _note_asked(context: Context) -> None:
    """That is no effect of the program's."""
    context.asked = True


run_natively(_note_asked)


@native
class Inputs:
    """What ``apply`` was given, with other tensors."""

    def __init__(self, inputs: Sequence):
        self.inputs = inputs

    def __call__(self, tensors: tuple) -> tuple:
        given = iter(tensors)
        return tuple([next(given) if is_tensor(value) else value for value in self.inputs])


def _whole_forward(cls: Any, inputs: Sequence) -> Callable:
    """``forward`` with ``ctx`` first, in either style of writing it.

    It takes the tensors of ``inputs``; what else these are is fixed.
    """

    filled = Inputs(inputs)
    if cls.setup_context is _FUNCTION.setup_context:
        return lambda ctx, *tensors: cls.forward(ctx, *filled(tensors))

    def forward(ctx: Any, *tensors: Any) -> Any:
        inputs = filled(tensors)
        output = cls.forward(*inputs)
        cls.setup_context(ctx, inputs, output)
        return output

    return forward


def _applying(cls: Any) -> Callable:
    """``cls.apply`` under a name for a graph's text: its own is that of torch's module."""

    def apply(*args: Any, **kwargs: Any) -> Any:
        return cls.apply(*args, **kwargs)

    apply.__name__ = apply.__qualname__ = f"{cls.__name__}_apply"
    return apply


@model(_FUNCTION.apply.__func__)
def _apply(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    cls = m.force(args[0])
    if is_allowed(cls):
        return m.call_opaque(_applying(cls), args[1:], kwargs)
    inputs = [m.force(a) for a in args[1:]]
    if kwargs:
        raise Break("higher-order", f"autograd.Function {cls.__name__} with keyword arguments")
    level = current_level()
    if not m.open_levels and (level < 0 or m.recorder.scope.outer is None):
        m.guard("STATE", None, (current_level, (), level))  # not the level of a region around it
    if level >= 0:  # its jvp is asked for tangents
        why = f"autograd.Function {cls.__name__} in a level of forward differentiation"
        raise Break("higher-order", why)
    needs = tuple([isinstance(v, torch.Tensor) and v.requires_grad for v in inputs])
    context = Context()
    m.recorder.keep.append(context)
    m.setattr(context, "needs_input_grad", needs)
    grad = torch.is_grad_enabled()
    if torch._C._functorch.peek_interpreter_stack() is not None:
        _check_transformable(cls)
        if grad and any(map(_grows, inputs)):  # beneath the transformation
            needs = (True,)
    elif _is_differentiated(m.recorder.scope, cls):
        needs = tuple([is_tensor(v) and v.is_floating_point() for v in inputs])
        if any(needs):
            m.setattr(context, "needs_input_grad", needs)
            return _differentiated(m, frame, cls, context, inputs)
    if not (grad and any(needs)):
        m.setattr(context, "needs_input_grad", (False,) * len(inputs))
        if grad:
            torch._C._set_grad_enabled(False)
        try:
            tensors = filter(is_tensor, inputs)
            found = m.force(m.invoke(frame, _whole_forward(cls, inputs), [context, *tensors]))
            given = found if isinstance(found, tuple) else (found,)
            if not all(_among(t, given) for t in context.dirty_tensors):
                raise refusal(m, f"{cls.__name__}.forward does not return what it marks as dirty")
            return _as_outputs(found, inputs, context)
        finally:
            if grad:
                torch._C._set_grad_enabled(True)
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise Break("higher-order", f"autograd.Function {cls.__name__} inside a transformation")
    return _differentiated(m, frame, cls, context, inputs)


def _is_differentiated(scope: Scope, cls: Any) -> bool:
    """Whether a backward runs that autograd may differentiate in its turn.

    Where backwards call their own class again, the third derivative is that of the operations.
    """
    if scope.differentiated is None or cls.backward is _FUNCTION.backward:
        return False
    depth = 0
    around: Scope | None = scope
    while around is not None:
        depth += around.differentiated is cls
        around = around.outer
    return depth < 2


def _grows(value: Any) -> bool:
    """Whether what a transformation wraps takes part in autograd outside of it."""
    while isinstance(value, torch.Tensor) and not value.requires_grad:
        if not torch._C._functorch.is_functorch_wrapped_tensor(value):
            return False
        value = torch._C._functorch.get_unwrapped(value)
    return isinstance(value, torch.Tensor)


def _check_transformable(cls: Any) -> None:
    """Inside a transformation ``forward`` alone says nothing unless torch makes the rule itself."""
    if cls.setup_context is _FUNCTION.setup_context or not cls.generate_vmap_rule:
        why = f"autograd.Function {cls.__name__} with its own rules inside a transformation"
        raise Break("higher-order", why)


def _as_outputs(found: Any, inputs: Sequence, context: Context) -> Any:
    """What comes out, as autograd gives it where gradients do not flow.

    An input is given as a view of itself, if it is unchanged, or without its flag. What is marked
    as dirty counts a write.
    """
    if torch._C._functorch.peek_interpreter_stack() is None:
        for t in context.dirty_tensors:
            t.transpose_(0, 0)

    def output(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not _among(value, inputs):
            return value
        if value.requires_grad:
            return value.detach()
        return value if _among(value, context.dirty_tensors) else value.view_as(value)

    return tuple(map(output, found)) if isinstance(found, tuple) else output(found)


def _differentiated(m: Calls, frame: Any, cls: Any, context: Context, inputs: list) -> Any:
    tensors = list(filter(is_tensor, inputs))  # those in containers get no gradients
    forward = Region(m, frame, _whole_forward(cls, inputs))
    forward.may_change = forward.gives_numbers = True
    grad = torch.is_grad_enabled()  # not in a backward
    _switch_gradients(m, False)
    try:
        forward.call(context, *tensors)
    finally:
        _switch_gradients(m, grad)
    dirty = context.dirty_tensors
    unmarked = [t for t in forward.changed if not _among(t, dirty)]
    if unmarked or not all(_among(t, tensors) for t in dirty):
        raise refusal(m, f"{cls.__name__}.forward changes a tensor that it does not mark as dirty")
    if any(_is_refused(m, t) for t in dirty):
        raise refusal(m, f"{cls.__name__}.forward changes a leaf that requires gradients")
    if not isinstance(forward.form.fill(forward.outputs), (tuple, torch.Tensor)):
        raise refusal(m, f"{cls.__name__}.forward returns a structure")
    backward, once = _backward_of(m, cls)
    backwards: dict[tuple[int, ...], Backward] = {}
    failing: dict[tuple[int, ...], Exception] = {}
    ways = _given_gradients(m, cls, context, forward.outputs)
    for given in ways:
        try:
            backwards[given] = _capture_backward(
                m, frame, backward, context, forward, None if once else cls, given
            )
        except Restart as signal:
            error = signal.__cause__
            if given is ways[0] or given and not isinstance(error, _OF_NONE):
                raise
            if isinstance(error, _OF_NONE):
                failing[given] = type(error)(*error.args)
            else:
                why = f"{cls.__name__}.backward cannot be captured where no output has a gradient"
                failing[given] = TypeError(f"{why} ({error})")
    operands = list(tensors)
    places = {id(t): i for i, t in reversed(list(enumerate(operands)))}
    lifted = _distinct([t for each in backwards.values() for t in each.scope.lifted])
    stored = [*context.to_save, *getattr(context, "saved_for_forward", ())]
    for value in (*forward.lifted, *lifted):
        if id(value) not in places:
            places[id(value)] = len(operands)
            operands.append(value)
    outputs = {id(t): i for i, t in enumerate(forward.outputs)}
    taken = [t for each in backwards.values() for t in each.scope.between]
    if context.asked:  # autograd asks whether any of it was written to, also what nobody reads
        known = [t for t in context.to_save if is_tensor(t)]
        lifted = _distinct([*lifted, *[t for t in known if id(t) in places]])
        made = [t for t in known if id(t) not in places]
        taken += [t for t in made if id(t) in outputs or id(t) in forward.scope.nodes]
    taken = _distinct(taken)
    between = [t for t in taken if id(t) not in outputs]
    kept_outputs = [t for t in taken if id(t) in outputs]
    kept = [*between, *lifted, *kept_outputs]
    rule = Differentiation(
        name=cls.__name__,
        inputs=len(tensors),
        outputs=len(forward.outputs),
        forward_reads=tuple([places[id(t)] for t in (*tensors, *forward.lifted)]),
        kept_inputs=tuple([places[id(t)] for t in lifted]),
        kept_outputs=tuple([outputs[id(t)] for t in kept_outputs]),
        non_differentiable=tuple(
            [i for i, t in enumerate(forward.outputs) if _among(t, context.non_differentiable)]
        ),
        dirty=tuple([places[id(t)] for t in dirty]),
        materialize=context.materialize_grads,
        given=tuple(backwards),
        gradients=tuple(
            [_gradient_places(m, cls, inputs, each.found) for each in backwards.values()]
        ),
        failing=failing,
        once=once,
        held=frozenset([n for n, t in enumerate(kept) if is_tensor(t) and not _among(t, stored)]),
    )
    modules = [
        _with_outputs(m, forward, between),
        *[_backward_module(each, kept) for each in backwards.values()],
    ]
    target = custom_function(rule)
    try:
        with suspended(m):
            results = target(*modules, *operands)
    except RuntimeError as error:  # of autograd, behind what forward does: natively too
        raise refusal(m, f"{cls.__name__}.apply: {error}".split("\n")[0]) from error
    emit(m, target, [*modules, *operands], results)
    m.recorder.keep.append(results)
    return forward.form.fill(results)


def _is_refused(m: Calls, t: torch.Tensor) -> bool:
    """Whether autograd has an error for a tensor that is marked as dirty, when it is written to.

    What comes from outside may be a leaf in one call and none in another, which is guarded.
    """
    root = t._base if t._is_view() else t
    return root.requires_grad and bool(m.recorder.metadata("is_leaf", root))


_OF_NONE = (TypeError, AttributeError)  # what a backward raises that looks for no None
_MOST_WAYS = 3  # outputs with gradients of their own, of which any may be missing


def _given_gradients(
    m: Calls, cls: Any, context: Context, outputs: Sequence
) -> list[tuple[int, ...]]:
    """For each way in which backward may be called, the outputs for which it is given gradients.

    Where these are not materialized, that depends on what the program does with the outputs.
    """
    if context.materialize_grads:
        return [tuple(range(len(outputs)))]
    own = [
        i
        for i, t in enumerate(outputs)
        if not _among(t, context.non_differentiable) and (t.is_floating_point() or t.is_complex())
    ]
    if len(own) > _MOST_WAYS:
        why = f"{cls.__name__} has {len(own)} outputs and does not materialize gradients"
        raise refusal(m, why)
    sizes = range(len(own), -1, -1)  # also none: a function of a list gives nothing for the others
    return [given for size in sizes for given in combinations(own, size)]


def _distinct(values: Sequence[Any]) -> list[Any]:
    return list({id(value): value for value in values}.values())


def _switch_gradients(m: Calls, on: bool) -> None:
    """As autograd does around the two functions; a backward that is differentiated has them on."""
    with suspended(m):
        torch._C._set_grad_enabled(on)


def _among(value: Any, values: Sequence) -> bool:
    return any(value is v for v in values)


def _backward_of(m: Calls, cls: Any) -> tuple[Any, bool]:
    backward = cls.backward
    if backward is _FUNCTION.backward:
        raise refusal(m, f"{cls.__name__} has no backward")
    inner = getattr(backward, "__wrapped__", None)
    once = inner is not None and backward.__code__.co_filename == _FUNCTION_FILE
    return (inner if once else backward), once


_FUNCTION_FILE = torch.autograd.function.once_differentiable.__code__.co_filename


class Backward(NamedTuple):
    """The open graph of a backward, the fakes of all gradients, and what it returned."""

    scope: Scope
    gradients: list[torch.Tensor]
    found: list[Any]


def _capture_backward(
    m: Calls,
    frame: Any,
    backward: Any,
    context: Context,
    forward: Region,
    differentiated: Any,
    given: Collection[int],
) -> Backward:
    """Interpret ``backward`` with gradients for the outputs ``given``."""
    recorder = m.recorder
    with suspended(m), torch.no_grad():
        gradients = [torch.empty_like(t) for t in forward.outputs]
    known = iter([t if i in given else None for i, t in enumerate(gradients)])
    arguments = [next(known) if leaf is SLOT else None for leaf in forward.form.leaves]
    scope = recorder.scope = Scope(recorder.scope)
    scope.sibling = forward.scope
    scope.differentiated = differentiated
    before = effects(m)
    grad = torch.is_grad_enabled()
    _switch_gradients(m, False)
    try:
        for i, tensor in enumerate(gradients):
            recorder.track(scope, scope.placeholder(f"gradient_{i}"), tensor)
        with suspended(m):
            recorder.suspended = False
            value = m.force(m.invoke(frame, backward, [context, *arguments]))
        found = list(value) if isinstance(value, tuple) else [value]
        for tensor in tensors_of(found):
            recorder.argument(tensor)
    except Exception as error:
        raise refusal(m, f"backward raises {type(error).__name__}: {error}") from error
    finally:
        _switch_gradients(m, grad)
        recorder.scope = scope.outer  # type: ignore[assignment]
    if effects(m) != before:
        raise refusal(m, "backward changes objects from outside")
    return Backward(scope, gradients, found)


def _gradient_places(
    m: Calls, cls: Any, inputs: Sequence, found: Sequence
) -> tuple[int | None, ...]:
    """For each tensor input, the place of its gradient among the tensors of ``found``."""
    if len(found) < len(inputs) or any(v is not None for v in found[len(inputs) :]):
        raise refusal(m, f"{cls.__name__}.backward returns {len(found)} gradients")
    places: list[int | None] = []
    count = 0
    for value, gradient in zip(inputs, found, strict=False):
        if gradient is not None and not (
            isinstance(value, torch.Tensor) and isinstance(gradient, torch.Tensor)
        ):
            raise refusal(m, f"{cls.__name__}.backward returns a gradient for a constant")
        if isinstance(value, torch.Tensor):
            places.append(None if gradient is None else count)
        count += gradient is not None
    return tuple(places)


def _with_outputs(m: Calls, forward: Region, between: Sequence[torch.Tensor]) -> Any:
    """Forward's graph, with the intermediates that backward takes as further outputs."""
    scope = forward.scope
    (output,) = scope.graph.find_nodes(op="output")
    output.args = ((*output.args[0], *[scope.nodes[id(t)] for t in between]),)
    return torch.fx.GraphModule(scope.module, scope.graph)


def _backward_module(backward: Backward, kept: Sequence[Any]) -> Any:
    """Backward's graph with its inputs in order: gradients, then what was kept for any of them."""
    scope = backward.scope
    first = next(iter(scope.graph.nodes))
    for i, value in reversed(list(enumerate([*backward.gradients, *kept]))):
        node = scope.nodes.get(id(value))
        if node is None:
            with scope.graph.inserting_before(first):
                node = scope.graph.placeholder(f"unused_{i}")
                node.meta["example_value"] = value
        elif node is not first:
            first.prepend(node)
        first = node
    scope.graph.output(tuple([scope.nodes[id(t)] for t in tensors_of(backward.found)]))
    return torch.fx.GraphModule(scope.module, scope.graph)
