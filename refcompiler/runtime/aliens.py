"""What no graph holds: sparse, nested, quantized tensors, subclasses with operators of their own,
and blocks of tangents and of hooks on saved tensors.

A graph ends before the first operation on one. What follows would end the next graph at once, so
that a statement that reads such a tensor, or has one on the stack, runs natively to its end: one
break for all of a row of them. A function of the user's that gets one is captured like any other.
"""

from __future__ import annotations

from types import BuiltinMethodType, FunctionType, MethodType, MethodWrapperType
from typing import Any

import torch
from torch.autograd import forward_ad

from refcompiler.capture.kinds import is_alien
from refcompiler.capture.subclasses import is_captured
from refcompiler.capture.wrappers import is_plain, is_wrapper
from refcompiler.interpreter.frame import Frame

_METHODS = frozenset({MethodType, BuiltinMethodType, MethodWrapperType})
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


def open_regions() -> tuple[Any, Any]:
    """The level of forward differentiation, and the hooks on saved tensors.

    What a graph gives has no tangents, and saves other tensors than eager does. So a block of
    either that no graph holds as a whole runs natively to its end: one break for all in it.
    """
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return forward_ad._current_level, hooks and tuple(map(id, hooks))


def runs_natively(frame: Frame | None) -> bool:
    """Whether the statement in whose middle, or at whose beginning, ``frame`` stands, works on
    such a tensor, and the next instruction calls no function of the user's."""
    if frame is None:
        return False
    instructions = frame.program.instructions
    if "CALL" in instructions[frame.ip].name and any(map(_is_users, frame.stack)):
        return False
    if any(map(is_in_no_graph, frame.stack)):
        return True
    held = [i for i, value in enumerate(frame.fast) if is_in_no_graph(value)]
    return bool(held) and any(slot in held for slot in _read(instructions, frame.ip))


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
