"""Steps of ``torch.optim``: their state is made before the graph, their counts stay in it.

An optimizer reads its step counts as Python floats, which a graph cannot hold. Here they are
tensors of no dimension and double precision, which compute as Python's floats do: what they are
combined with never takes their dtype. Of everything else that Python does with a float, the
graph ends before it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch.optim import optimizer as base
from torch.utils._python_dispatch import _disable_current_modes

from refcompiler.capture.kinds import MAPPINGS
from refcompiler.capture.models.registry import model, operation
from refcompiler.capture.signals import Break
from refcompiler.capture.values import is_changed

_EXACT = (torch.float32, torch.float64)
_REDUCED = (torch.float16, torch.bfloat16)


# ---- state ------------------------------------------------------------------------------------


def _has_state(optimizer: Any, group: Mapping) -> bool:
    with torch._C.DisableTorchFunction():
        return all(optimizer.state.get(p) for p in group["params"] if p.grad is not None)


def _init_group(original: Callable) -> Callable:
    """It fills the state of parameters that have none, which is the same whenever it is done."""

    def run(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
        optimizer, group = m.force(args[0]), m.force(args[1])
        outside = m.external.get(id(group))
        why = f"{original.__qualname__} of what the graph has made or changed"
        if kwargs or outside is None or m.source_of(optimizer) is None:
            raise Break("disabled-function", why)
        if any(name in ("grad", "state") for _, name in m.overlay) or is_changed(outside):
            raise Break("disabled-function", why)
        if type(optimizer.state) not in MAPPINGS:
            raise Break("disabled-function", original.__qualname__)
        if not _has_state(optimizer, outside.value):
            if id(optimizer.state) in m.external:
                raise Break("disabled-function", why)
            # The step comes to all groups, whose parameters share one dict of states.
            for other in optimizer.param_groups:
                lists: list[list] = [[] for _ in args[2:]]
                with torch._C.DisableTorchFunction(), _disable_current_modes():
                    original(optimizer, other, *lists)
        return m.call_function(frame, original, args, kwargs)

    return run


def _classes(cls: type) -> list[type]:
    found = [cls]
    below: list[type] = type.__subclasses__(cls)
    for derived in below:
        found += _classes(derived)
    return found


def _plain(function: Any) -> Any:
    """``function`` without torch's mark that its own compiler leaves it alone."""
    return getattr(function, "_torchdynamo_orig_callable", function)


# Once torch's compiler is imported, classes that inherit the method have it as their own too.
_METHODS = {
    _plain(cls.__dict__.get("_init_group")): cls
    for cls in _classes(torch.optim.Optimizer)
    if cls.__module__.startswith("torch.optim.")
}
for _function in _METHODS:
    if _function is not None:
        model(_function)(_init_group(_function))


@model(_plain(torch.optim.LBFGS.step))
def _search(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    """It branches on the values of the loss, which it asks its closure for again and again."""
    raise Break("disabled-function", "LBFGS.step")


def _inlined(original: Callable) -> Callable:
    return lambda m, frame, args, kwargs: m.call_function(frame, original, args, kwargs)


# Once torch's compiler is imported, it leaves them alone.
for _name in ("adam", "sgd", "adagrad"):
    _fused = _plain(sys.modules[f"torch.optim.{_name}"].__dict__[f"_fused_{_name}"])
    model(_fused)(_inlined(_fused))


@model(torch.optim.Optimizer.zero_grad)
def _zero_grad(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    if len(args) == 1 and m.force(kwargs.get("set_to_none", True)) is True:
        return m.call_function(frame, _without_gradients, args, {})
    plain = getattr(torch.optim.Optimizer.zero_grad, "__wrapped__")  # noqa: B009
    return m.call_function(frame, plain, args, kwargs)


def _without_gradients(optimizer: Any) -> None:
    """The method for ``set_to_none``, which does not ask which gradients there are.

    By index, since who goes over a list looks into all that is in it, the rates too.
    """
    for i in range(len(optimizer.param_groups)):
        for parameter in optimizer.param_groups[i]["params"]:
            parameter.grad = None


_of_module: Any = torch.nn.Module.zero_grad
#: The method itself, without a model.
_WITH_WARNING = FunctionType(_of_module.__code__, _of_module.__globals__, None, (True,))


@model(_of_module)
def _zero_grad_of_module(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    if len(args) == 1 and m.force(kwargs.get("set_to_none", True)) is True:
        return m.call_function(frame, _without_gradients_in, args, {})
    return m.call_function(frame, _of_module, args, kwargs)


def _without_gradients_in(module: Any) -> None:
    if getattr(module, "_is_replica", False):
        _WITH_WARNING(module)
    for parameter in module.parameters():
        parameter.grad = None


def _schedule(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    """Its numbers are others at each call, and no tensors."""
    raise Break("disabled-function", "the step of a scheduler of learning rates")


for _cls in _classes(torch.optim.lr_scheduler.LRScheduler):  # all of torch's are below it
    if _cls.__module__ == "torch.optim.lr_scheduler" and "step" in _cls.__dict__:
        model(_plain(_cls.__dict__["step"]))(_schedule)


@model(torch._C._group_tensors_by_device_and_dtype)
def _group(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    """Lists of tensors, split by the device and dtype of the first list's."""
    lists, indices = [m.force(a) for a in (*args, *kwargs.values())]
    found: dict[Any, Any] = {}
    for i, tensor in enumerate(lists[0]):
        if not issubclass(type(tensor), torch.Tensor):
            raise Break("ambient-state", "torch._C._group_tensors_by_device_and_dtype")
        groups, places = found.setdefault((tensor.device, tensor.dtype), ([[] for _ in lists], []))
        for group, values in zip(groups, lists, strict=True):
            if values:
                group.append(values[i])
        if indices:
            places.append(i)
    m.recorder.keep.append(found)
    return found


# ---- Python's floats in the graph -------------------------------------------------------------


@model(base._get_value)
def _get_value(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    value = m.force(args[0])
    if not issubclass(type(value), torch.Tensor):
        return value
    if value.dim() or not value.is_floating_point() or value.device.type != "cpu":
        raise Break("data-dependent-value", "Tensor.item")
    found = value.double() if value.dtype != torch.float64 else value.clone()
    m.recorder.floats[id(found)] = found
    return found


@model(base._stack_if_compiling)
def _stack(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    return m.force(args[0])


@operation("addcdiv_")
def _addcdiv(m: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    value = m.force(kwargs.get("value"))
    if not issubclass(type(value), torch.Tensor) or value.dim() or value.requires_grad:
        return NotImplemented
    tensor, a, b = [m.force(a) for a in args]
    _check_quotient(tensor, a, b, value)
    return _add_quotient(tensor, a, b, value)


@operation("_foreach_addcdiv_")
def _foreach_addcdiv(m: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    given = [m.force(a) for a in args]
    if len(given) != 4 or kwargs or type(given[3]) is not list:
        return NotImplemented
    if not any(issubclass(type(value), torch.Tensor) for value in given[3]):
        return NotImplemented
    for parts in zip(*given, strict=True):
        _check_quotient(*parts)
    for parts in zip(*given, strict=True):
        _add_quotient(*parts)
    return None


def _check_quotient(tensor: torch.Tensor, a: torch.Tensor, b: torch.Tensor, value: Any) -> None:
    scalar = not issubclass(type(value), torch.Tensor) or not value.dim()
    differentiates = torch.is_grad_enabled() and any(t.requires_grad for t in (tensor, a, b))
    alike = tensor.dtype is a.dtype is b.dtype and tensor.dtype in (*_EXACT, *_REDUCED)
    if not alike or not scalar or differentiates:
        raise Break("data-dependent-value", "addcdiv_")


def _add_quotient(tensor: torch.Tensor, a: torch.Tensor, b: torch.Tensor, value: Any) -> Any:
    """``tensor.addcdiv_(a, b, value=value)`` in the order in which torch's kernel computes it.

    That works on single precision where the tensors have less.
    """
    working = tensor.dtype if tensor.dtype in _EXACT else torch.float32
    if issubclass(type(value), torch.Tensor):
        value = value.to(working)
    quotient = a.to(working).mul(value).div(b.to(working))
    if working is tensor.dtype:
        return tensor.add_(quotient)
    return tensor.copy_(tensor.to(working).add(quotient))
