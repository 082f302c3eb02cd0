"""What a program says to torch's compiler while it is captured, in the words of ``torch._dynamo``.

Switches that hold for a block or a function say the same to this compiler where it knows the like,
and what torch's compiler alone has (printing its own state) says nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from refcompiler.capture.calls import Calls
from refcompiler.capture.marking.marks import cudagraph_mark_step_begin
from refcompiler.capture.models.registry import late, model
from refcompiler.capture.natively import natively
from refcompiler.capture.signals import Break
from refcompiler.errors import GraphBreakError
from refcompiler.interpreter.failures import Failure

_DECORATORS = "torch._dynamo.decorators"
_COMPTIME = "torch._dynamo.comptime._Comptime"

late("torch.onnx.is_in_onnx_export")(lambda machine, frame, args, kwargs: False)


# ---- a break is an error, or is not ------------------------------------------------------------


@late("torch._dynamo.utils._get_error_on_graph_break")
def _get_strict(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> bool:
    return m.strict


@late("torch._dynamo.utils._set_error_on_graph_break")
def _set_strict(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> None:
    m.strict = m.truth(m.force((*args, *kwargs.values())[0]))


# ---- settings of torch's compiler for a block -------------------------------------------------


@late(f"{_DECORATORS}.patch_dynamo_config")
def _patch(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    given = [m.force(a) for a in args]
    named_ones = {k: m.force(v) for k, v in kwargs.items()}
    made = natively(m, sys.modules[_DECORATORS].patch_dynamo_config, *given, **named_ones)
    m.recorder.keep.append(made)
    return made


@late(f"{_DECORATORS}.DynamoConfigPatchProxy.__enter__")
def _enter_patch(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> None:
    m.patched.append(m.recorder.captures_numbers)
    changes = m.force(args[0]).changes
    if "capture_scalar_outputs" in changes:
        m.sizes.capture_numbers(bool(changes["capture_scalar_outputs"]))


@late(f"{_DECORATORS}.DynamoConfigPatchProxy.__exit__")
def _exit_patch(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> None:
    if m.patched:  # else the block was entered before a break
        m.sizes.capture_numbers(m.patched.pop())


# ---- what is said while capturing -------------------------------------------------------------


@late(f"{_COMPTIME}.__call__")
def _comptime(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> None:
    """Its function is handed a part of torch's compiler: there is none."""


late(
    *[
        f"{_COMPTIME}.{name}"
        for name in (
            "print_graph print_disas print_value_stack print_locals print_bt print_guards sleep"
        ).split()
    ]
)(_comptime)


@late(f"{_COMPTIME}.print")
def _print(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> None:
    """Once, while capturing."""
    natively(m, print, *[m.force(a) for a in (*args, *kwargs.values())])


@late(f"{_COMPTIME}.print_value_stack_and_return")
def _print_and_return(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    return args[0] if args else kwargs["e"]


@late(f"{_COMPTIME}.force_static")
def _force_static(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> None:
    value = m.force((*args, *kwargs.values())[0])
    m.sizes.plain(value.size() if isinstance(value, torch.Tensor) else value)


@late(f"{_COMPTIME}.assert_static")
def _assert_static(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> None:
    value = m.force((*args, *kwargs.values())[0])
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        if value.node.maybe_as_int() is None:
            text = f"comptime.assert_static: {value.node} is a symbol, not a constant"
            raise Failure(GraphBreakError(text), frame.code.co_qualname)


@late(f"{_COMPTIME}.graph_break")
def _break(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> None:
    raise Break("user-graph-break", "comptime.graph_break")


# ---- what is an error in compiled code --------------------------------------------------------


@model(torch.compiler.set_stance)
def _set_stance(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    text = "torch.compiler.set_stance is called inside a compiled function; call it outside of it"
    raise Failure(GraphBreakError(text), frame.code.co_qualname)


# ---- device graphs ----------------------------------------------------------------------------


@model(cudagraph_mark_step_begin, torch.compiler.cudagraph_mark_step_begin)
def _begin_step(m: Calls, frame: Any, args: Sequence, kwargs: Mapping) -> None:
    """No graph of ours has to be told."""
