"""Models of torch's Python functions that would see capture itself, or that only look at state."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.autograd import _profiler_enabled
from torch.autograd.profiler import record_function
from torch.fx.experimental import symbolic_shapes
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils.hooks import BackwardHook

from refcompiler.capture.calls import Calls
from refcompiler.capture.models.registry import model
from refcompiler.capture.numbers import check
from refcompiler.capture.signals import Break
from refcompiler.interpreter.introspection import frame_locals

_MODULE_CALL = torch.nn.Module._call_impl.__code__
#: What ``torch._check`` says where the program says nothing.
_UNEXPLAINED = (
    "Expected cond to be True, but got False. (Could this error message be improved? If so, "
    "please report an enhancement request to PyTorch.)"
)


@model(torch.compiler.is_compiling)
def _is_compiling(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> bool:
    """``nn.Module`` leaves out hooks with ``always_call`` where it takes itself to be compiled."""
    return frame.code is not _MODULE_CALL


@model(symbolic_shapes.expect_true)
def _expect_true(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> bool:
    condition = m.force(args[0])
    if type(condition) is not torch.SymBool or condition.node.has_hint():
        return m.truth(condition)
    known, env = frame_locals(m, frame), condition.node.shape_env
    error, message = m.force(known["error_type"]), m.force(known["message"])
    before = len(env.assertions)
    if not env.expect(condition.node):
        return False
    if error not in vars(builtins).values():
        raise Break("exception-escapes", f"a check that raises {error.__qualname__}")
    if len(env.assertions) > before:
        text = _UNEXPLAINED if message is None else m.force(m.invoke(frame, message, []))
        argument = m.recorder.argument(condition)
        m.recorder.add("call_function", check, (argument, error.__name__, text), {}, None)
    return True


@model(torch.is_storage)
def _is_storage(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> bool:
    return type(m.force(args[0])) in torch._storage_classes


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
    raise Break("tensor-kind", "a lazy module makes its parameters")


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
    return block


@model(record_function.__exit__)
def _exit_range(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> None:
    block = m.force(args[0])
    if m.force(m.getattr(block, "record")) is not None:
        raise Break("higher-order", "a profiler range that was entered before the graph")
