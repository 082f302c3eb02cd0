"""``torch.cond`` and ``torch.while_loop``: functions as graphs under torch's own operators.

Each function is captured once, whichever runs later, so it must leave Python's objects alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false

from refcompiler.capture.calls import Calls
from refcompiler.capture.door import Scope
from refcompiler.capture.effects import effects, reachable
from refcompiler.capture.models.registry import model, named
from refcompiler.capture.regions.aliasing import apart, refuse_aliases
from refcompiler.capture.regions.region import Region, alone, emit, refusal, suspended
from refcompiler.capture.regions.targets import SLOT, tensors_of
from refcompiler.capture.signals import Break

_CARRIED = frozenset((int, torch.SymInt))  # besides tensors
_DTYPES = {int: torch.int64, torch.SymInt: torch.int64, bool: torch.bool, torch.SymBool: torch.bool}


class _Counting(Region):
    """A function of a loop that carries ints at ``places``, as tensors of no dimension."""

    def __init__(self, machine: Calls, frame: Any, function: Any, places: frozenset[int]):
        super().__init__(machine, frame, function)
        self.places = places

    def run(self, args: Sequence, kwargs: Mapping) -> Any:
        given = [a.item() if i in self.places else a for i, a in enumerate(args)]
        value = self.machine.force(super().run(given, kwargs))
        if type(value) in _DTYPES:
            return _as_tensor(value)
        if type(value) not in (tuple, list):
            return value
        found = [self.machine.force(item) for item in value]
        return type(value)([_as_tensor(v) if type(v) in _DTYPES else v for v in found])


def _as_tensor(number: Any) -> torch.Tensor:
    return torch.scalar_tensor(number, dtype=_DTYPES[type(number)])


def _pure(
    m: Calls, frame: Any, function: Any, args: Sequence, places: frozenset[int] = frozenset()
) -> Region:
    """The region of a function that has no effects besides its value."""
    region = _Counting(m, frame, function, places) if places else Region(m, frame, function)
    before = effects(m), reachable(function)
    region.call(*args)
    if (effects(m), reachable(function)) != before:
        raise refusal(m, "a branch or loop body changes Python objects")
    return region


def _aligned(regions: Sequence[Region], operands: Sequence[torch.Tensor]) -> tuple[list, list]:
    """The regions' graphs with the same inputs: ``operands``, then all that any of them lifts."""
    shared: list[Any] = list(operands)
    known = {id(t) for t in shared}
    for region in regions:
        for tensor in region.lifted:
            if id(tensor) not in known:
                known.add(id(tensor))
                shared.append(tensor)
    modules = []
    for region in regions:
        scope: Scope = region.scope
        nodes = [scope.nodes.get(id(t)) for t in shared]
        first = next(iter(scope.graph.nodes))
        for place in reversed(range(len(nodes))):
            node = nodes[place]
            if node is None or node.op != "placeholder":
                with scope.graph.inserting_before(first):
                    node = scope.graph.placeholder(f"unused_{place}")
                    node.meta["example_value"] = shared[place]
            elif node is not first:
                first.prepend(node)
            first = node
        modules.append(torch.fx.GraphModule(scope.module, scope.graph))
    return modules, shared


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    sizes = zip((*a.shape, *a.stride()), (*b.shape, *b.stride()), strict=False)
    if a.dim() != b.dim() or not all(guard_or_false(x == y) for x, y in sizes):
        return False
    return (a.dtype, a.device) == (b.dtype, b.device)


def _results(m: Calls, *choices: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Fakes for what one of the ``choices`` will give."""
    made = []
    with suspended(m):
        for tensors in zip(*choices, strict=True):
            like = tensors[0].detach()
            if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
                like = torch.empty_like(like).requires_grad_()
            made.append(like.clone())
    return tuple(made)


#: Whether ``torch.cond`` refuses shared memory also where no gradients are taken (torch 2.11).
_NEVER_SHARE = torch.__version__ < (2, 12)


@model(*named("cond ops.higher_order.cond"))
def _cond(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    names = ("pred", "true_fn", "false_fn", "operands")
    given = dict(zip(names, [m.force(a) for a in args], strict=False))
    given |= {k: m.force(v) for k, v in kwargs.items()}
    operands = given.get("operands", ())
    surplus = len(args) > len(names) or set(given) - set(names)
    if surplus or not {"pred", "true_fn", "false_fn"} <= set(given):
        raise Break("higher-order", "torch.cond with other arguments than eager takes")
    if not isinstance(operands, (tuple, list)) or not isinstance(
        given["pred"], (torch.Tensor, bool, int, float)
    ):
        raise Break("higher-order", "torch.cond with arguments that eager refuses")
    predicate = given["pred"]
    if not isinstance(predicate, torch.Tensor):
        function = given["true_fn"] if predicate else given["false_fn"]
        return m.call(frame, function, operands, {})
    if predicate.numel() != 1:
        raise Break("higher-order", "torch.cond with a predicate of several elements")
    regions = [_pure(m, frame, given[name], operands) for name in ("true_fn", "false_fn")]
    yes, no = regions
    for region in regions:
        if any(leaf is not SLOT and not isinstance(leaf, int) for leaf in region.form.leaves):
            raise refusal(m, "a branch of torch.cond gives values that are no tensors or ints")
        if torch.is_grad_enabled() or _NEVER_SHARE:
            refuse_aliases(m, region, operands)
    if yes.form != no.form or not all(map(_alike, yes.outputs, no.outputs)):
        raise refusal(m, "the branches of torch.cond give values of different kinds")
    modules, shared = _aligned(regions, _distinct(tensors_of(operands)))
    results = _results(m, yes.outputs, no.outputs)
    emit(m, torch.ops.higher_order.cond, [predicate, *modules, shared], results)
    return yes.form.fill(results)


_OF_LOOPS = ("cond_fn", "body_fn", "carried_inputs")


@model(*named("_higher_order_ops.while_loop"))
def _while_loop(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    return _loop(m, frame, _OF_LOOPS, args, kwargs)


@model(*named("ops.higher_order.while_loop"))
def _while_loop_operator(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    return _loop(m, frame, (*_OF_LOOPS, "additional_inputs"), args, kwargs)


def _loop(m: Calls, frame: Any, names: Sequence[str], args: Sequence, kwargs: Mapping) -> Any:
    """``names``: of all arguments, which are demanded."""
    given = dict(zip(names, [m.force(a) for a in args], strict=False))
    given |= {k: m.force(v) for k, v in kwargs.items()}
    groups = [given.get(name) for name in names[2:]]
    fits = set(given) == set(names) and len(args) + len(kwargs) == len(names)
    if not fits or not all(isinstance(group, (tuple, list)) for group in groups):
        raise Break("higher-order", "torch.while_loop with arguments that eager refuses")
    more = [m.force(v) for v in given.get("additional_inputs", ())]
    carried = tuple(map(m.force, given["carried_inputs"]))
    places = frozenset(i for i, value in enumerate(carried) if type(value) in _CARRIED)
    if not all(isinstance(v, torch.Tensor) or i in places for i, v in enumerate(carried)):
        raise Break("higher-order", "torch.while_loop carries a value that is no tensor or int")
    if places and not m.recorder.captures_numbers:
        raise Break("data-dependent-value", "torch.while_loop carries an int")
    carried = tuple([_as_tensor(v) if i in places else v for i, v in enumerate(carried)])
    if len(_distinct(carried)) != len(carried):
        raise Break("higher-order", "torch.while_loop carries one tensor twice")
    with suspended(m):  # what is carried is soon another value than what it starts with
        steps = [apart(t) for t in carried]
    test = _pure(m, frame, given["cond_fn"], [*steps, *more], places)
    body = _pure(m, frame, given["body_fn"], [*steps, *more], places)
    for region in (test, body):
        refuse_aliases(m, region, [*steps, *more])
    outputs = body.form.fill(body.outputs)
    if not isinstance(outputs, (tuple, list)) or len(body.outputs) != len(carried):
        raise refusal(m, "the body of torch.while_loop gives another structure than it takes")
    if not all(map(_alike, body.outputs, carried)) or len(test.outputs) != 1:
        raise refusal(m, "the body of torch.while_loop changes what it carries to another kind")
    modules, shared = _aligned([test, body], [*steps, *_distinct(tensors_of(more))])
    alone(modules[0])
    results = _results(m, body.outputs, carried)
    arguments = [*modules, carried, tuple(shared[len(carried) :])]
    emit(m, torch.ops.higher_order.while_loop, arguments, results)
    return tuple([r.item() if i in places else r for i, r in enumerate(results)])


def _distinct(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return list({id(t): t for t in tensors}.values())
