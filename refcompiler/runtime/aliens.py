"""What no graph holds: sparse, nested, quantized tensors, subclasses with operators of their own,
and blocks of tangents, of hooks on saved tensors, without torch functions, of forked generators.

A graph ends before the first operation on one. What follows would end the next graph at once, so
that a statement that reads such a tensor, or has one on the stack, runs natively to its end: one
break for all of a row of them. A function of the user's that gets one is captured like any other.
"""

from __future__ import annotations

import contextlib
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch.autograd import forward_ad

from refcompiler.capture.kinds import BOUND_IN_C, is_alien
from refcompiler.capture.subclasses import is_captured
from refcompiler.capture.wrappers import is_plain, is_wrapper
from refcompiler.interpreter.driven import driven_by, is_driven
from refcompiler.interpreter.frame import Frame

_METHODS = frozenset({MethodType, *BOUND_IN_C})
_LOADS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_DEREF"})
#: Instructions that end what a statement has begun.
_ENDS = ("STORE_", "POP_TOP", "RETURN_", "RAISE_", "DELETE_", "FOR_ITER", "BEFORE_", "YIELD_")


def is_in_no_graph(value: Any) -> bool:
    """Such a tensor, or a method of one."""
    kind = type(value)
    if kind in _METHODS:
        value = value.__self__
        kind = type(value)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return is_alien(value)
    if is_wrapper(kind):
        with torch._C.DisableTorchFunction():
            return not is_plain(value)
    return issubclass(kind, torch.Tensor) and not is_captured(kind)


#: Classes of what nothing asks to be told of its end.
_QUIET = frozenset(
    (torch.Tensor, torch.nn.Parameter, int, float, bool, complex, str, bytes, type(None))
    + (torch.Size, torch.dtype, torch.device, ModuleType)
)


def is_quiet(value: Any) -> bool:
    """Whether the program cannot tell when ``value`` ends; of some others that is not so either."""
    return type(value) in _QUIET


def is_captured_anyway(value: Any) -> bool:
    """Whether :func:`runs_natively` asks no more of ``value``."""
    kind = type(value)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return not is_alien(value)
    if kind in _QUIET:
        return True
    return not (kind in _METHODS or kind is _MANAGER or issubclass(kind, torch.Tensor))


def open_regions() -> tuple[Any, Any, Any]:
    """The level of forward differentiation, the hooks on saved tensors, and who is asked.

    What a graph gives has no tangents, saves other tensors than eager does, and its results get the
    classes that torch functions give. So a block of any of these that no graph holds as a whole
    runs natively to its end: one break for all in it.
    """
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    functions = torch._C._get_torch_function_state()
    return forward_ad._current_level, hooks and tuple(map(id, hooks)), functions


def runs_natively(frame: Frame | None) -> bool:
    """Whether the statement in whose middle, or at whose beginning, ``frame`` stands, works on
    such a tensor, and the next instruction calls no function of the user's."""
    if frame is None:
        return False
    instructions = frame.program.instructions
    name, arg = instructions[frame.ip].name, instructions[frame.ip].arg
    if "CALL" in name:
        called = frame.stack[-arg - 2 :] if name == "CALL" else frame.stack
        if any(map(_is_users, called)):
            return False
    if any(map(is_in_no_graph, frame.stack)) or _is_forked(frame):
        return True
    held = [i for i, value in enumerate(frame.fast) if is_in_no_graph(value)]
    return bool(held) and any(slot in held for slot in _read(instructions, frame.ip))


_FORK = getattr(torch.random.fork_rng, "__wrapped__").__code__  # noqa: B009
_MANAGER = contextlib._GeneratorContextManager
_MANAGERS_OWN = frozenset({_MANAGER.__enter__.__code__, _MANAGER.__exit__.__code__})


def _is_forked(frame: Frame) -> bool:
    """Whether ``frame`` stands in a block of ``torch.random.fork_rng``, enters or leaves one.

    Each of the states that it reads and sets would end a graph.
    """
    if frame.code is _FORK:
        return True
    held = [value.__self__ for value in frame.stack if type(value) is MethodType]
    if frame.code in _MANAGERS_OWN:
        held.append(frame.fast[0])
    return any(type(value) is _MANAGER and _code_of(value.gen) is _FORK for value in held)


def _code_of(generator: Any) -> Any:
    frame = driven_by(generator).frame if is_driven(generator) else None
    return generator.gi_code if frame is None else frame.code


def _read(instructions: Any, start: int) -> Any:
    """The slots that the rest of the statement reads."""
    for i in range(start, len(instructions)):
        name = instructions[i].name
        if name in _LOADS:
            yield instructions[i].arg
        elif name.startswith(_ENDS) or "JUMP" in name:
            return


def _is_users(value: Any) -> bool:
    """A function, method or module in Python that is not torch's own."""
    if type(value) is MethodType:
        value = value.__func__
    if type(value) is FunctionType:
        return not (value.__module__ or "").startswith("torch.")
    return issubclass(type(value), torch.nn.Module)
