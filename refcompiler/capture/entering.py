"""Instructions whose Python callees become frames of the stack in the symbolic domain.

The handlers here come before the interpreter's own. Where an instruction runs the user's code (a
generator's body, a special method) they push its frame instead of running it within the
instruction, so that a graph break in it is a snapshot of all frames like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from refcompiler.bytecode.decode import Program
from refcompiler.capture.values import Resume
from refcompiler.interpreter.frame import NULL, UNSET, Frame
from refcompiler.interpreter.registry import HANDLERS
from refcompiler.interpreter.resumption import (
    DELEGATED,
    ITERATED,
    NEXT,
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
        own.get(ins.name, op) for ins, op in zip(program.instructions, program.ops, strict=True)
    ]
    return program.entering


def _load_unguarded(m: Any, f: Frame, value: tuple[str, bool]) -> None:
    """What a helper of ours uses does not change."""
    name, push_null = value
    if push_null:
        f.stack.append(NULL)
    f.stack.append(f.globals[name] if name in f.globals else f.builtins[name])


# ---- iteration -------------------------------------------------------------------------------


_for_iter = HANDLERS["FOR_ITER"]


@enters("FOR_ITER")
def for_iter(m: Any, f: Frame, target: int) -> None:
    s = f.stack
    s[-1] = iterator = m.force(s[-1])
    if resumable(iterator):
        resume(m, f, iterator, None, ITERATED)
    else:
        _for_iter(m, f, target)


def enter_generator(m: Any, frame: Frame, asked: Resume) -> None:
    """Push the frame of a generator that a call of ``frame`` resumes."""
    generator, sent, default, error = asked
    if error is not None:
        throw_into(m, frame, generator, error)
    else:
        resume(m, frame, generator, sent, NEXT, default)


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
    stop: Any = None
    try:
        if not m.is_none(sent):
            value = m.invoke(f, m.getattr(iterator, "send"), [sent])
        elif m.method_of(type(iterator), "__next__") is not UNSET:
            value = m.call_special(iterator, "__next__")
        else:
            value = m.next(iterator)
        value = m.force(value)
    except StopIteration as error:
        stop = error
    del s[-2:]
    if stop is not None:
        s.append(stop.value)
    elif value is UNSET:
        s.append(None)
    else:
        suspend(m, f, value, iterator)
