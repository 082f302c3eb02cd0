"""Blocks without torch functions: ``with torch._C.DisableTorchFunctionSubclass():`` and its like.

In one, results of operations on subclasses are plain tensors and no ``__torch_function__`` is
asked. A graph holds plain tensors, so that the block is nothing but a switch of the capture; where
a graph ends inside one, the block runs natively to its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from refcompiler.capture.models.registry import model
from refcompiler.capture.signals import Break, Restart

_C: Any = torch._C
#: The classes of C whose instances are such blocks.
BLOCKS = frozenset({_C.DisableTorchFunction, _C.DisableTorchFunctionSubclass})
_ENABLED = _C._is_torch_function_enabled
_ALL_DISABLED = _C._is_torch_function_all_disabled


def _make(cls: type) -> None:
    @model(cls)
    def make(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
        m.made.setdefault(cls, m.steps)
        return cls(*args, **kwargs)


for _block in BLOCKS:
    _make(_block)


def call_block(m: Any, block: Any, name: str) -> Any:
    """``__enter__`` or ``__exit__`` of a block that the frame has made."""
    if name == "__enter__":
        if m.function_modes:
            raise Break("ambient-state", "a block without torch functions in a TorchFunctionMode")
        check_enabled(m)
        m.recorder.plain.append((block, m.steps))
        return None
    if not m.recorder.plain or m.recorder.plain[-1][0] is not block:
        raise Break("ambient-state", "a block without torch functions is left")
    m.recorder.plain.pop()
    return None


def check_enabled(m: Any) -> None:
    """Guards that torch asks subclasses, which who calls a compiled function may have switched."""
    enabled = _ENABLED()
    m.guard("STATE", None, (_ENABLED, (), enabled))
    if not enabled:
        raise Break("ambient-state", "torch functions are switched off")


@model(_ENABLED)
def _enabled(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> bool:
    if m.recorder.plain:
        return False
    found = _ENABLED()
    m.guard("STATE", None, (_ENABLED, (), found))
    return found


@model(_ALL_DISABLED)
def _all_disabled(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> bool:
    if m.recorder.plain:
        return any(type(block) is _C.DisableTorchFunction for block, _ in m.recorder.plain)
    found = _ALL_DISABLED()
    m.guard("STATE", None, (_ALL_DISABLED, (), found))
    return found


def check_left(m: Any) -> None:
    """A graph ends outside of such blocks."""
    if m.recorder.plain:
        why = "a graph ends inside a block without torch functions"
        raise Restart(m.recorder.plain[0][1], "ambient-state", why)
