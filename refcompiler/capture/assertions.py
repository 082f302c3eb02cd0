"""``assert``, and ``if ...: raise``, of what only the run of the graph knows: a node of the graph.

Where it fails, the call is captured again up to the statement, which then raises as it does in
eager (:mod:`refcompiler.plan.failure`); so only where that can be told from a graph that goes on,
outside of the graphs of regions and of ``torch.func``. An exception that the program itself may
catch, other than by an ``assert``, is one of its ways on: the graph ends before it is decided. On
another device than the CPU the check is only certain to have run once somebody waits for it, and a
process does not survive its failure there: the graph ends too, unless it must not (``fullgraph``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch._subclasses import FakeTensor

from refcompiler.bytecode.decode import Program
from refcompiler.capture.entering import ENTERING, enters
from refcompiler.capture.models.registry import model
from refcompiler.capture.numbers import check
from refcompiler.capture.specials import kind_of  # whose handlers those here come before
from refcompiler.capture.unread import check_texts, writes
from refcompiler.interpreter.frame import Frame
from refcompiler.interpreter.registry import HANDLERS
from refcompiler.shapes.node import SYMBOLS


class _Raise(NamedTuple):
    """The way of a jump that does nothing but raise."""

    unless: bool  # the truth of the operand with which the jump goes the other way
    message: str  # where it is a constant
    asserts: bool


_MOST = 60  # instructions of such a way
_ENDING = ("CHECK_EXC_MATCH", "CHECK_EG_MATCH", "POP_EXCEPT", "RETURN_VALUE", "RETURN_CONST")
_LEAVING = ("JUMP", "RETURN", "FOR_ITER", "SEND", "YIELD", "_IF_")


def _raise(f: Frame) -> _Raise | None:
    """``f.ip`` is behind the jump already."""
    i = f.ip - 1
    jumps_if = f.program.instructions[i].name.endswith("_IF_TRUE")
    for start, unless in ((f.ip, jumps_if), (f.program.values[i], not jumps_if)):
        message = ""
        for instruction in f.program.instructions[start : start + _MOST]:
            if instruction.name == "RAISE_VARARGS":
                asserts = f.program.instructions[start].name == "LOAD_ASSERTION_ERROR"
                return _Raise(unless, message or "an assertion of the program", asserts)
            if any(part in instruction.name for part in _LEAVING):
                break
            if not message and type(instruction.value) is str and "CONST" in instruction.name:
                message = instruction.value
    return None


def _is_caught(f: Frame | None) -> bool:
    """Whether an ``except`` of the program's stands around this place.

    What only cleans up, as ``finally`` and most blocks of ``with`` do, lets an exception pass.
    """
    while f is not None:
        index = f.ip - 1
        while (handler := f.program.handler_at(index)) is not None:
            if _catches(f.program, handler.target):
                return True
            index = handler.target
        f = f.back
    return False


def _catches(program: Program, start: int) -> bool:
    """Whether the handler that begins at instruction ``start`` may end an exception."""
    if program.instructions[start].name == "COPY":  # the way out of another handler
        return False
    for instruction in program.instructions[start:]:
        if instruction.name in ("WITH_EXCEPT_START", "RERAISE"):
            return False
        if instruction.name in _ENDING:
            return True
    return True


def _is_recorded(m: Any, value: Any) -> bool:
    recorder = m.recorder
    if recorder.scope.outer is not None or recorder.kinds or recorder.modes:
        return False
    if type(value) in SYMBOLS:
        return not value.node.has_hint()
    if type(value) is not FakeTensor or recorder.known(bool, (value,)):
        return False
    return value.numel() == 1 and (value.device.type == "cpu" or recorder.captures_numbers)


def _record(m: Any, f: Frame, value: Any, found: _Raise) -> bool:
    """Whether it is known from here on that ``value`` is as asserted."""
    if type(value) in SYMBOLS:
        condition = m.as_bool(value) if found.unless else m.negation(value)
        if type(condition) is bool:
            return condition
        argument = m.recorder.argument(condition)
        env = condition.node.shape_env
        before = len(env.assertions)
        if not env.expect(condition.node):
            return False
        if len(env.assertions) > before:
            given = argument, AssertionError.__name__, found.message
            m.recorder.add("call_function", check, given, {}, None)
        return True
    check_texts(m)
    condition = value if found.unless else m.invoke(f, torch.logical_not, [value])
    _assert(m, f, condition, found.message, value)
    return True


def held(*values: Any) -> None:
    """Where the graph's run has still to hold ``values``, which the program needs if it fails."""


def _assert(m: Any, f: Frame, condition: Any, message: str, operand: Any) -> None:
    """Record the check of ``condition``. Who fails goes on with the ``operand`` of its instruction;
    a graph that has written to its inputs cannot run again for it.
    """
    m.invoke(f, torch._assert_async, [condition, message])
    if writes(m) and operand is not condition:
        m.recorder.add("call_function", held, (m.recorder.argument(operand),), {}, None)


def _asserting(name: str) -> None:
    otherwise = ENTERING.get(name, HANDLERS[name])

    @enters(name)
    def handler(m: Any, f: Frame, target: int) -> None:
        value = f.stack[-1]
        kind = kind_of(value)
        if kind in SYMBOLS or issubclass(kind, torch.Tensor):
            found = _raise(f)
            if found is not None and (found.asserts or not _is_caught(f)):
                f.stack[-1] = value = m.force(value)
                if _is_recorded(m, value) and _record(m, f, value, found):
                    f.stack[-1] = found.unless
        otherwise(m, f, target)


@model(torch._check_tensor_all_with)
def _check_all(m: Any, frame: Any, args: Sequence, kwargs: Mapping) -> Any:
    condition = m.force(args[1]) if len(args) > 1 else None
    if (
        isinstance(condition, torch.Tensor)
        and condition.dtype == torch.bool
        and not _is_caught(m.frame)
    ):
        holds = m.force(m.invoke(frame, torch._is_all_true, [condition]))
        if _is_recorded(m, holds):
            check_texts(m)
            _assert(m, frame, holds, "a check of the program", condition)
            return None
    return m.call_function(frame, torch._check_tensor_all_with, args, kwargs)


for _name in HANDLERS:
    if _name.startswith("POP_JUMP") and _name.endswith(("_IF_FALSE", "_IF_TRUE")):
        _asserting(_name)
