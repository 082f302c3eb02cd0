"""Models of torch's Python functions that would see capture itself, or that only look at state."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.autograd import _profiler_enabled
from torch.autograd.profiler import record_function
from torch.fx.experimental import symbolic_shapes
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.hooks import BackwardHook

from refcompiler.capture.calls import Calls
from refcompiler.capture.models.registry import late, model, named
from refcompiler.capture.natively import natively
from refcompiler.capture.numbers import check
from refcompiler.capture.signals import Break, Prepare
from refcompiler.interpreter.introspection import frame_locals

_MODULE_CALL = torch.nn.Module._call_impl.__code__
_SGD: Any = sys.modules["torch.optim.sgd"]
#: What does otherwise where it takes itself to be compiled than eager does: ``nn.Module`` leaves
#: out hooks with ``always_call``, and SGD multiplies first by a rate in a tensor, which rounds.
_AS_IN_EAGER = frozenset({_MODULE_CALL, _SGD._multi_tensor_sgd.__code__})
#: What ``torch._check`` says where the program says nothing.
_UNEXPLAINED = (
    "Expected cond to be True, but got False. (Could this error message be improved? If so, "
    "please report an enhancement request to PyTorch.)"
)


@model(torch.compiler.is_compiling)
def _is_compiling(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> bool:
    if frame.code in _AS_IN_EAGER:
        return False
    if m.told is None:
        m.told = m.steps
    return True


@model(symbolic_shapes.expect_true)
def _expect_true(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> bool:
    condition = m.force(args[0])
    if type(condition) is not torch.SymBool or condition.node.has_hint():
        return m.truth(condition)
    known, env = frame_locals(m, frame), condition.node.shape_env
    error, message = m.force(known["error_type"]), m.force(known["message"])
    if (certain := env.knowledge.decide(condition.node.expr)) is not None:
        return certain
    argument = m.recorder.argument(condition)  # which is a constant once it is expected
    before = len(env.assertions)
    if not env.expect(condition.node):
        return False
    if error not in vars(builtins).values():
        raise Break("exception-escapes", f"a check that raises {error.__qualname__}")
    if len(env.assertions) > before:
        text = _UNEXPLAINED if message is None else m.force(m.invoke(frame, message, []))
        m.recorder.add("call_function", check, (argument, error.__name__, text), {}, None)
    return True


@model(*named("jit.annotate"))
def _annotate(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    return args[1] if len(args) > 1 else kwargs["the_value"]


@model(*named("jit.isinstance"))
def _jit_isinstance(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> bool:
    return natively(m, torch.jit.isinstance, *map(m.force, args))


def _told_by_schema(name: str) -> None:
    """What the schema of an operator, which nothing changes, says of it."""
    getter: Any = vars(torch._C.FunctionSchema)[name].fget

    @model(getter)
    def told(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
        schema = m.force(args[0])
        if id(schema) in m.external:
            m.guard("ID", m.external[id(schema)].source, schema)
        return getter(schema)


for _name in ("name", "overload_name", "is_mutable"):
    _told_by_schema(_name)


@model(*named("distributed.is_available"))
def _has_distributed(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> bool:
    return torch.distributed.is_available()


@model(*named("distributed.is_initialized"))
def _is_distributed(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> bool:
    found = torch.distributed.is_initialized()
    m.guard("STATE", None, (torch.distributed.is_initialized, (), found))
    return found


def _of_default_group(function: Any) -> Any:
    """A number or name that is this process's as long as the default group of processes is."""

    def run(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
        given = [m.force(a) for a in (*args, *kwargs.values())]
        if any(a is not None for a in given) or not torch.distributed.is_initialized():
            raise Break("higher-order", f"torch.distributed.{function.__name__} of a group")
        found = function()
        m.guard("STATE", None, (_in_default_group, (function,), found))
        return found

    return run


def _in_default_group(function: Any) -> Any:
    return function() if torch.distributed.is_initialized() else None


for _function in named("distributed.get_rank distributed.get_world_size distributed.get_backend"):
    model(_function)(_of_default_group(_function))


# ---- torch.compile in compiled code -----------------------------------------------------------


@model(torch.compile)
def _compile(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    """Makes a wrapper, whose calls are inlined."""
    given = [m.force(a) for a in args]
    named = {k: m.force(v) for k, v in kwargs.items()}
    with m.recorder.suspension(), torch._C.DisableTorchFunction(), _disable_current_modes():
        made = torch.compile(*given, **named)
    m.recorder.keep.append(made)
    return made


@late("torch._dynamo.eval_frame.OptimizedModule.__call__")
def _call_compiled(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    """Its hooks are its own; its ``forward`` wraps the original's call."""
    if torch.nn.modules.module._has_any_global_hook():
        raise Break("higher-order", "torch.compile(module) where there are hooks on all modules")
    return m.call(frame, torch.nn.Module.__call__, args, kwargs)


@late("torch._dynamo.eval_frame.OptimizedModule.__getattr__")
def _attribute_of_compiled(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    module, name = m.force(args[0]), m.force(args[1])
    if name == "_orig_mod":
        return m.getitem(m.getattr(module, "_modules"), name)
    return m.getattr(m.getattr(module, "_orig_mod"), name)


@late("torch._dynamo.eval_frame.OptimizedModule.training")
def _training_of_compiled(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    original = m.getattr(args[0], "_orig_mod")
    if len(args) == 1:
        return m.getattr(original, "training")
    return m.setattr(original, "training", args[1])


@model(torch.nn.Buffer)
def _make_buffer(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    """A plain tensor with two attributes."""
    new: Any = torch.nn.Buffer.__new__
    return m.call_function(frame, new, (torch.nn.Buffer, *args), kwargs)


@model(torch.is_storage)
def _is_storage(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> bool:
    return type(m.force(args[0])) in torch._storage_classes


@model(torch._C._infer_size)
def _infer_size(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    if [type(m.force(size)) for size in args] != [torch.Size, torch.Size] or kwargs:
        raise Break("ambient-state", "torch._C._infer_size of what are not two sizes")
    return m.call(frame, torch.broadcast_shapes, args, kwargs)


@model(torch.get_default_device)
def _default_device(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> torch.device:
    """What a block of the frame itself sets needs no guard."""
    with m.recorder.suspension():
        found = torch.get_default_device()
    if torch._C._len_torch_function_stack() == m.ambient.function_modes + 1:  # capture's own door
        m.guard("STATE", None, (torch.get_default_device, (), found))
    return found


# ---- modules that do what no graph can hold before or after their forward ----------------------


@model(LazyModuleMixin._infer_parameters)
def _infer_parameters(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    """Happens once, before the graph, if that does not change which random numbers are drawn."""
    method, *rest = [m.force(a) for a in args]
    named = {k: m.force(v) for k, v in kwargs.items()}
    if not method.__class__.__module__.startswith("torch.nn.") or m.recorder.fake_mode.random:
        raise Break("tensor-kind", "a lazy module makes its parameters")
    if m.open_devices or m.recorder.switched or m.switches:
        raise Break("tensor-kind", "a lazy module makes its parameters in another mode")
    caller = frame
    while caller is not None and caller.code is not _MODULE_CALL:
        caller = caller.back
    if caller is None or id(caller) in m.started:  # which has read the hooks already
        raise Break("tensor-kind", "a lazy module makes its parameters after a break in its call")
    given, named = pytree.tree_map_only(torch.Tensor, _shape_alone, (tuple(rest), named))

    def infer() -> None:
        method._infer_parameters(*given, **named)

    raise Prepare(m.steps, "tensor-kind", "a lazy module makes its parameters", infer)


def _shape_alone(tensor: torch.Tensor) -> torch.Tensor:
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        return torch.empty(tuple(tensor.shape), dtype=tensor.dtype, device="meta")


def _backward_hook(method: Any) -> Any:
    """Without gradients the method only counts; else it makes a node that calls the hooks."""

    def run(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
        given = m.force(args[1])
        values = given if isinstance(given, tuple) else (given,)
        if torch.is_grad_enabled() and any(
            isinstance(v, torch.Tensor) and v.requires_grad for v in map(m.force, values)
        ):
            raise Break("higher-order", "a backward hook of a module")
        return m.call_function(frame, method, args, kwargs)

    return run


for _method in (BackwardHook.setup_input_hook, BackwardHook.setup_output_hook):
    model(_method)(_backward_hook(_method))


# ---- profiling --------------------------------------------------------------------------------


def _without_profiler(m: Calls) -> None:
    """Nobody looks at a range while no profiler runs."""
    found = _profiler_enabled()
    m.guard("STATE", None, (_profiler_enabled, (), found))
    if found:
        raise Break("ambient-state", "a profiler is running")


@model(record_function)
def _range(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    _without_profiler(m)
    with m.recorder.suspension():
        made = record_function(*map(m.force, args), **{k: m.force(v) for k, v in kwargs.items()})
    m.recorder.keep.append(made)
    return made


@model(record_function.__enter__)
def _enter_range(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    _without_profiler(m)
    if m.source_of(block := m.force(args[0])) is not None:
        raise Break("higher-order", "a profiler range from outside")
    m.open_ranges.add(id(block))
    return block


@model(record_function.__exit__)
def _exit_range(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> None:
    block = m.force(args[0])
    source = m.source_of(block)
    if source is not None:
        m.after.append((source, "__exit__(None, None, None)"))
    elif id(block) in m.open_ranges:
        m.open_ranges.remove(id(block))
    else:
        raise Break("higher-order", "a profiler range that was not entered")
