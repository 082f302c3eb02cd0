"""Instructions whose Python callees become frames of the stack in the symbolic domain.

The handlers here come before the interpreter's own. Where an instruction runs the user's code (a
generator's body, a special method) they push its frame instead of running it within the
instruction, so that a graph break in it is a snapshot of all frames like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from refcompiler.bytecode.decode import Program
from refcompiler.capture.arithmetic import CLASSES
from refcompiler.capture.natively import natively
from refcompiler.capture.values import Resume, items_in
from refcompiler.interpreter import helpers
from refcompiler.interpreter.frame import CALLED, NULL, UNSET, Frame
from refcompiler.interpreter.handlers_generators import Answer
from refcompiler.interpreter.loop import LEAVES
from refcompiler.interpreter.machine import RETURNS
from refcompiler.interpreter.registry import HANDLERS
from refcompiler.interpreter.resumption import (
    DELEGATED,
    ITERATED,
    NEXT,
    NEXT_OR,
    end_loop,
    resumable,
    resume,
    suspend,
    throw_into,
)

Handler = Callable[[Any, Frame, Any], None]

#: By opcode; those of other opcodes are the interpreter's.
ENTERING: dict[str, Handler] = {}


def enters(*names: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        for name in names:
            ENTERING[name] = handler
        return handler

    return register


def entering_ops(program: Program) -> list[Handler]:
    """The handlers of ``program`` for frames of the stack, which the program keeps."""
    own = {**ENTERING, "LOAD_GLOBAL": _load_unguarded} if program.hidden else ENTERING
    program.entering = [
        own.get(ins.name, op) if op is HANDLERS[ins.name] else op
        for ins, op in zip(program.instructions, program.ops, strict=True)
    ]
    return program.entering


def _load_unguarded(m: Any, f: Frame, value: tuple[str, bool]) -> None:
    """What a helper of ours uses does not change."""
    name, push_null = value
    if push_null:
        f.stack.append(NULL)
    f.stack.append(f.globals[name] if name in f.globals else f.builtins[name])


def enter(
    m: Any, f: Frame, function: Any, args: Sequence[Any], operands: int, way: str = "push"
) -> None:
    """Call ``function`` for the instruction, whose ``operands`` the stack has on top.

    ``way`` is what its value means for the frame.
    """
    found = m.call(f, function, args, {})
    if operands:
        del f.stack[-operands:]
    if found is CALLED:
        new = m.frame
        if way != "push":
            assert new.on_return == "push" and new.back is f
            new.on_return = way
    elif way == "push":
        f.stack.append(found)
    else:
        RETURNS[way](m, f, found, None)


def enter_special(
    m: Any, f: Frame, value: Any, name: str, args: list[Any], operands: int, way: str = "push"
) -> None:
    source, function = m.find_guarded(type(value), name)
    m.from_class(source, function)
    enter(m, f, function, [value, *args], operands, way)


_return_value = HANDLERS["RETURN_VALUE"]


@enters("RETURN_VALUE")
def return_value(m: Any, f: Frame, arg: Any) -> None:
    """What only the variables hold is dropped now, whoever may still hold the frame."""
    _return_value(m, f, arg)
    if f.view is None:
        f.fast = []


# ---- what a value means for the instruction that waits for it ---------------------------------


def _dropped(machine: Any, frame: Frame, value: Any, extra: Any) -> None:
    pass


def _operand(machine: Any, frame: Frame, value: Any, extra: Any) -> None:
    """It takes the place of the operand on top, and the instruction runs again."""
    frame.stack[-1] = value
    frame.ip -= 1


def _second_operand(machine: Any, frame: Frame, value: Any, extra: Any) -> None:
    frame.stack[-2] = value
    frame.ip -= 1


def _tested(machine: Any, frame: Frame, value: Any, extra: Any) -> None:
    """The truth of the operand on top, which stays there if the instruction jumps."""
    i = frame.ip - 1
    if machine.truth(value) is (frame.program.instructions[i].name == "JUMP_IF_TRUE_OR_POP"):
        frame.ip = frame.program.values[i]
    else:
        frame.stack.pop()


def _item(machine: Any, frame: Frame, value: Any, extra: Any) -> None:
    frame.stack.append(value)


def _no_item(machine: Any, frame: Frame, error: BaseException) -> BaseException | None:
    """An exception leaves a ``__next__`` that a loop has called."""
    if not isinstance(error, StopIteration):
        return error
    consumer: Any = frame.back
    machine.frame = consumer
    end_loop(consumer)
    return None


def catches(frame: Frame, error: BaseException) -> bool:
    """Whether the program may go on after ``error`` in this frame, or where that returns to."""
    if frame.on_return == "item" and isinstance(error, StopIteration):
        return True
    return frame.program.handler_at(frame.ip - 1) is not None


RETURNS.update(
    {
        "drop": _dropped,
        "operand": _operand,
        "second operand": _second_operand,
        "test": _tested,
        "item": _item,
    }
)
LEAVES["item"] = _no_item


# ---- iteration -------------------------------------------------------------------------------


_for_iter = HANDLERS["FOR_ITER"]


@enters("FOR_ITER")
def for_iter(m: Any, f: Frame, target: int) -> None:
    s = f.stack
    s[-1] = iterator = m.force(s[-1])
    if resumable(iterator):
        resume(m, f, iterator, None, ITERATED)
    elif (run := m.stepping(iterator)) is not None:
        try:
            enter(m, f, run.function, run.args, 0, "item")
        except StopIteration:  # raised by what is not interpreted
            end_loop(f)
    else:
        _for_iter(m, f, target)


_get_iter = HANDLERS["GET_ITER"]


@enters("GET_ITER")
def get_iter(m: Any, f: Frame, arg: Any) -> None:
    s = f.stack
    s[-1] = value = m.force(s[-1])
    kind = type(value)
    if issubclass(kind, torch.Tensor):
        _get_iter(m, f, arg)
    elif m.method_of(kind, "__iter__") is not UNSET:
        enter_special(m, f, value, "__iter__", [], 1)
    elif m.has_old_protocol(kind):
        enter(m, f, helpers.items, [value], 1)
    else:
        _get_iter(m, f, arg)


def _collecting(name: str, helper: Callable, *more: Any, sizes: bool = False) -> None:
    """An instruction that takes all items of the operand on top."""
    otherwise = HANDLERS[name]

    @enters(name)
    def handler(m: Any, f: Frame, arg: Any) -> None:
        s = f.stack
        s[-1] = value = m.force(s[-1])
        if m.runs_code(value):
            run = m.run_helper(helper, sizes, value, *(arg for _ in more))
            enter(m, f, run.function, run.args, 0, "operand")
        else:
            otherwise(m, f, arg)


_collecting("UNPACK_SEQUENCE", helpers.take, "count")
_collecting("UNPACK_EX", helpers.take_rest, "counts")
_collecting("LIST_EXTEND", helpers.collect, sizes=True)
_collecting("SET_UPDATE", helpers.collect)
_call_ex = HANDLERS["CALL_FUNCTION_EX"]


_match_class = HANDLERS["MATCH_CLASS"]


@enters("MATCH_CLASS")
def match_class(m: Any, f: Frame, count: int) -> None:
    """A symbol is matched as the number that it stands for."""
    s = f.stack
    s[-3] = subject = m.force(s[-3])
    own, cls = CLASSES.get(type(subject)), m.force(s[-2])
    if own is None or not issubclass(type(cls), type):
        _match_class(m, f, count)
        return
    matches = issubclass(own, cls)
    if matches and (m.force(s[-1]) or count > (cls is own)):  # more than the number is asked for
        s[-3] = m.sizes.plain(subject)
        _match_class(m, f, count)
        return
    del s[-3:]
    s.append((subject,) * count if matches else None)


@enters("CALL_FUNCTION_EX")
def call_function_ex(m: Any, f: Frame, flags: int) -> None:
    s, i = f.stack, -1 - (flags & 1)
    named: Any = items_in(s[-1], dict) if flags & 1 else UNSET
    items = items_in(s[i], tuple, list)
    if items is UNSET:
        s[i] = value = m.force(s[i])
        if named is not UNSET and type(value) in (tuple, list):
            items = value
    if items is not UNSET:
        if named is UNSET:
            named = m.mapping(s[-1]) if flags & 1 else {}
        found = m.call(f, s[i - 1], list(items), m.keywords(named))
        del s[i - 2 :]  # and the NULL below
        if found is not CALLED:
            s.append(found)
        return
    if m.runs_code(value):
        way = "second operand" if flags & 1 else "operand"
        run = m.run_helper(helpers.collect, True, value)
        enter(m, f, run.function, run.args, 0, way)
    else:
        _call_ex(m, f, flags)


def enter_generator(m: Any, frame: Frame, asked: Resume) -> None:
    """Push the frame of a generator that a call of ``frame`` resumes."""
    generator, sent, default, error = asked
    if error is not None:
        throw_into(m, frame, generator, error)
    else:
        resume(m, frame, generator, sent, NEXT if default is UNSET else NEXT_OR, default)


def _asking(name: str, method: str, kept: int) -> None:
    """An instruction that asks an object for what is awaited or iterated over next."""
    otherwise = HANDLERS[name]

    @enters(name)
    def handler(m: Any, f: Frame, arg: Any) -> None:
        s = f.stack
        s[-1] = value = m.force(s[-1])
        kind = type(value)
        if m.method_of(kind, method) is not UNSET:
            enter_special(m, f, value, method, [], 1 - kept, name)
        else:
            m.acted = m.steps  # in C
            otherwise(m, f, arg)
            if kept:  # an object of C that is awaited, and not made again
                m.made[type(s[-1])] = m.steps

    def judged(machine: Any, frame: Frame, value: Any, extra: Any) -> None:
        """CPython judges the answer of the user's method."""
        frame.stack.append(Answer(machine.own(value)))
        otherwise(machine, frame, frame.program.values[frame.ip - 1])
        if kept:
            del frame.stack[-2]

    RETURNS[name] = judged


_asking("GET_AWAITABLE", "__await__", 0)
_asking("GET_AITER", "__aiter__", 0)
_asking("GET_ANEXT", "__anext__", 1)


_send = HANDLERS["SEND"]


@enters("SEND")
def send(m: Any, f: Frame, target: int) -> None:
    s = f.stack
    iterator, sent = m.force(s[-2]), s[-1]
    if f.back is None:
        _send(m, f, target)
    elif resumable(iterator):
        resume(m, f, iterator, sent, DELEGATED)
        del s[-2:]
    else:
        _delegate_to(m, f, iterator, sent)


def _delegate_to(m: Any, f: Frame, iterator: Any, sent: Any) -> None:
    """One step of a delegation to what is not a generator made here."""
    s = f.stack
    ended = False
    try:
        if not m.is_none(sent):
            value = m.invoke(f, m.getattr(iterator, "send"), [sent])
        elif m.method_of(type(iterator), "__next__") is not UNSET:
            value = m.call_special(iterator, "__next__")
        elif hasattr(type(iterator), "send") and not m.is_foreign(iterator):
            value = natively(m, type(iterator).__next__, iterator)  # its end has a value
        else:
            value = m.next(iterator)
        value = m.force(value)
    except StopIteration as stop:  # which, kept, would keep this frame and the iterator
        ended, value = True, stop.value
    del s[-2:]
    if ended:
        s.append(value)
    elif value is UNSET:
        s.append(None)
    else:
        suspend(m, f, value, iterator)
