"""Transformations of functions as regions: torch.func, checkpoint, branches, loops.

At capture torch's own transformation runs over the fakes, with a callback into the interpreter in
the place of the user's function. So shapes, ``requires_grad`` and errors are torch's own, and what
is recorded is one node that runs the transformation over the function's graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import CellType, FunctionType
from typing import Any

import torch
from torch.utils import checkpoint as checkpoints
from torch.utils.checkpoint import checkpoint

from refcompiler.capture.arithmetic import EXAMPLES
from refcompiler.capture.calls import Calls
from refcompiler.capture.effects import effects, reachable
from refcompiler.capture.handing import handed
from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.capture.models.registry import TRANSFORMING, model, named
from refcompiler.capture.natively import interpreting
from refcompiler.capture.regions.region import Region, emit, refusal, suspended
from refcompiler.capture.regions.targets import (
    SLOT,
    Form,
    checkpointed,
    is_tensor,
    nested,
    pullback,
    tensors_of,
    transformation,
)
from refcompiler.capture.signals import Break
from refcompiler.errors import GraphBreakError
from refcompiler.histories import stale
from refcompiler.interpreter.failures import Failure
from refcompiler.interpreter.registry import native
from refcompiler.shapes.node import SYMBOLS

# ---- torch.func -------------------------------------------------------------------------------


def _form(m: Calls, args: Sequence, kwargs: Mapping) -> Form:
    """The form of a transformation's arguments, which are part of its node."""
    form = Form.of((tuple(args), dict(kwargs)))
    # The graph gets symbols among what it lifts: what stands here goes through the transformation.
    leaves = [EXAMPLES.get(type(leaf), leaf) for leaf in form.leaves]
    form = Form(tuple(leaves), form.spec)
    for leaf in leaves:
        if leaf is not SLOT and type(leaf) not in CONSTANT_TYPES:
            raise Break("higher-order", f"a {type(leaf).__name__} goes into a transformation")
    return form


def _transform(
    m: Calls,
    frame: Any,
    name: str,
    transform: Callable[[Callable], Callable],
    function: Any,
    args: Sequence,
    kwargs: Mapping,
) -> Any:
    arguments = _form(m, args, kwargs)
    region = Region(m, frame, function)
    with suspended(m):
        value = transform(region.call)(*args, **kwargs)
    if region.module is None:
        raise refusal(m, f"{name} does not call the function")
    indices = m.recorder.element_indices > 0
    target = transformation(name, transform, arguments, region.form, indices)
    operands = [*tensors_of((tuple(args), dict(kwargs))), *region.lifted]
    emit(m, target, [region.module, *operands], tensors_of(value))
    m.recorder.keep.append(value)
    return value


def _held(m: Calls, function: FunctionType) -> dict[str, Any]:
    """What a closure of torch's holds, by name."""
    source = m.source_of(function)
    code = function.__code__
    if source is not None:
        m.guard("CODE", source, (code, None))
        m.adopt_cells(function, source)
    return {
        name: m.force(m.load_cell(cell))
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True)
    }


def _closure(m: Calls, frame: Any, function: FunctionType, args: Sequence, kwargs: Mapping) -> Any:
    """A function that ``torch.vmap``, ``torch.func.grad`` and their like have given."""
    held, code = _held(m, function), function.__code__

    def transform(inner: Callable) -> Callable:
        filled = tuple([CellType(inner if n == "func" else v) for n, v in held.items()])
        made = FunctionType(code, function.__globals__, function.__name__, None, filled)
        made.__kwdefaults__ = function.__kwdefaults__
        made.__defaults__ = function.__defaults__
        return made

    args = [m.force(a) for a in args]
    kwargs = {k: m.force(v) for k, v in kwargs.items()}
    name = code.co_qualname.partition(".")[0]
    return _transform(m, frame, name, transform, held["func"], args, kwargs)


for _module in ("apis", "eager_transforms", "vmap", "functional_call"):
    TRANSFORMING[f"torch._functorch.{_module}"] = _closure


@model(*named("func.jvp"))
def _jvp(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    function, *rest = [m.force(a) for a in args]
    named = {k: m.force(v) for k, v in kwargs.items()}

    def transform(inner: Callable) -> Callable:
        return lambda *given, **options: torch.func.jvp(inner, *given, **options)

    return _transform(m, frame, "jvp", transform, function, rest, named)


@native
class Pullback:
    """What ``torch.func.vjp`` gives besides the value: cotangents to gradients."""

    def __init__(self, machine: Calls, region: Region, args: Sequence, options: dict, pull: Any):
        self.machine, self.region, self.args = machine, region, tuple(args)
        self.options, self.pull = options, pull

    def __call__(
        self, cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None
    ) -> Any:
        m, region = self.machine, self.region
        with suspended(m):
            value = self.pull(cotangents, retain_graph=True, create_graph=create_graph)
        forms = Form.of((self.args, {})), Form.of(cotangents)
        target = pullback(*forms, region.form, self.options)
        operands = [*tensors_of(self.args), *tensors_of(cotangents), *region.lifted]
        emit(m, target, [region.module, *operands], tensors_of(value))
        m.recorder.keep.append(value)
        return value


@model(*named("func.vjp"))
def _vjp(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    function, *primals = [m.force(a) for a in args]
    options = {k: m.force(v) for k, v in kwargs.items()}
    arguments = _form(m, primals, {})
    region = Region(m, frame, function)
    with suspended(m):
        value, pull, *aux = torch.func.vjp(region.call, *primals, **options)

    def transform(inner: Callable) -> Callable:
        def forward(*given: Any) -> Any:
            found = torch.func.vjp(inner, *given, **options)
            return (found[0], *found[2:])

        return forward

    target = transformation("vjp", transform, arguments, region.form)
    emit(m, target, [region.module, *tensors_of(primals), *region.lifted], tensors_of((value, aux)))
    m.recorder.keep.append((value, aux))
    m.made.setdefault(Pullback, m.steps)
    return value, Pullback(m, region, primals, options, pull), *aux


# ---- checkpoint -------------------------------------------------------------------------------

_OPTIONS = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop")


@model(checkpoint)
def _checkpoint(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    """Without gradients a call of the function, else one node that frees what is in between."""
    function, *rest = args
    given = {k: m.force(v) for k, v in kwargs.items()}
    options = {k: given.pop(k) for k in (*_OPTIONS, "preserve_rng_state") if k in given}
    reentrant = options.pop("use_reentrant", None)
    if reentrant is None:
        raise Break("higher-order", "checkpoint without use_reentrant, which eager refuses")
    if not torch.is_grad_enabled() and "context_fn" not in options:
        return m.call(frame, function, rest, given)
    if options.get("debug"):
        raise Break("higher-order", "checkpoint(debug=True)")
    rest = [m.force(a) for a in rest]
    if reentrant and not any(t.requires_grad for t in tensors_of(rest)):
        raise Break("higher-order", "reentrant checkpoint of inputs that need no gradient")
    stops = options.pop("early_stop", True)
    with interpreting():
        stops = not reentrant and m.force(m.invoke(frame, _stops_early, [stops], {}))
    region = Region(m, frame, m.force(function))
    region.gives_numbers = region.may_change = True
    before = effects(m), reachable(region.function)
    first = torch.autograd._get_sequence_nr()
    value = region.call(*rest, **given)
    if (effects(m), reachable(region.function)) != before:
        raise refusal(m, "the function of checkpoint, which runs again, changes Python objects")
    if reentrant:
        with suspended(m):
            refused = stale([t for t in region.outputs if t.requires_grad], first)
        if refused:
            raise refusal(m, "a reentrant checkpoint that writes to what its backward reads")
    operands = [*tensors_of((rest, given)), *region.lifted]
    saved = {id(t) for t in rest if is_tensor(t)}
    options = {name: handed(m, option) for name, option in options.items()}
    if reentrant:
        options["use_reentrant"] = True
    if not stops:
        options["early_stop"] = False
    places = tuple([n for n, t in enumerate(operands) if id(t) in saved])
    emit(m, checkpointed(options, places), [region.module, *operands], region.outputs)
    return value


def _stops_early(given: bool) -> bool:
    """Whether a recompute ends with the last tensor that is wanted of it. The program runs this."""
    always = checkpoints._enable_checkpoint_early_stop
    return given if always is None else always


# ---- nested_compile_region --------------------------------------------------------------------


def _nested(m: Calls, frame: Any, function: FunctionType, args: Sequence, kwargs: Mapping) -> Any:
    """A part that backends compile once, however often it occurs."""
    inner = _held(m, function)["func"]
    region = Region(m, frame, inner)
    region.gives_numbers = True
    rest = [m.force(a) for a in args]
    named = {k: m.force(v) for k, v in kwargs.items()}
    said = getattr(inner, "__dict__", {})
    hashed = said.get(f"{_MARK}_reuse_hash_fn__")
    key = None if hashed is None else _reuse_key(m, frame, hashed, rest, named)
    value = region.call(*rest, **named)
    assert region.module is not None
    operands = [*tensors_of((rest, named)), *region.lifted]
    module, name = _same_region(m, region.module)
    known = m.recorder.scope.region_names.setdefault(getattr(inner, "__code__", inner), {})
    title = getattr(inner, "__qualname__", type(inner).__name__)
    if known.setdefault(name if key is None else key, name) != name:
        text = f"nested_compile_region: reuse_hash_fn gives {key} for calls of {title} that differ"
        raise Failure(GraphBreakError(text), frame.code.co_qualname)
    limit = said.get(f"{_MARK}_max_reuse_entries__", len(known))
    if len(set(known.values())) > limit:
        text = (
            f"nested_compile_region: {title} has more than {limit} different graphs, so that little"
            " is compiled once; give what differs as a tensor, or say a larger max_reuse_entries"
        )
        raise Failure(GraphBreakError(text), frame.code.co_qualname)
    emit(m, nested(name), [module, *operands], region.outputs)
    return value


#: The attributes in which torch keeps what was said of such a function begin so.
_MARK = "__marked_compile_region"


def _reuse_key(m: Calls, frame: Any, function: Any, args: Sequence, kwargs: Mapping) -> int:
    with interpreting():
        key = m.force(m.invoke(frame, function, args, kwargs))
    if type(key) is not int:
        text = f"nested_compile_region: reuse_hash_fn gives an int, not a {type(key).__name__}"
        raise Failure(GraphBreakError(text), frame.code.co_qualname)
    return key


def _same_region(m: Calls, module: torch.fx.GraphModule) -> tuple[torch.fx.GraphModule, str]:
    """The first region of this scope with the same graph, so that it is compiled once."""
    scope = m.recorder.scope
    inputs = [n.meta["example_value"] for n in module.graph.find_nodes(op="placeholder")]
    key: tuple = (
        module.code,
        tuple([_described(value) for value in inputs]),
    )
    if module.graph.find_nodes(op="get_attr"):  # it holds what its text does not tell
        key = (module.code, id(module))
    known = scope.regions.get(key)
    if known is None:
        known = scope.regions[key] = (module, f"region_{len(scope.regions)}")
    return known


def _described(value: Any) -> tuple:
    if not is_tensor(value):
        return (value.node,)
    sizes = [n.node if type(n) in SYMBOLS else n for n in (*value.shape, *value.stride())]
    return value.dtype, *sizes, value.requires_grad


TRANSFORMING["torch._higher_order_ops.invoke_subgraph"] = _nested
