"""Generators and coroutines whose frames lie on the stack of frames of whoever resumed them.

Natively a generator's frame runs in its driver (:mod:`refcompiler.interpreter.generators`), below C
code, where nobody can take a snapshot of the stack. Here the frame is pushed like a callee's, so
that all frames alive are one chain; the driver stays suspended meanwhile, and is brought to where
the frame then stands when that yields or ends.

How such a frame was resumed is its ``on_return``: what becomes of a value that it yields, and of
its end.
``extra`` holds the generator, the exception that its consumer was handling, and the default that
``next`` was given.
"""

from __future__ import annotations

from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType
from typing import Any

from refcompiler.interpreter.continued import (
    Continued,
    Switch,
    executing,
    finish,
    leave_delegation,
    move,
)
from refcompiler.interpreter.driven import (
    DRIVEN,
    advance,
    delegate_of,
    driven_by,
    frame_of,
    is_driven,
    is_running,
    is_suspended,
)
from refcompiler.interpreter.frame import UNSET, Frame
from refcompiler.interpreter.helpers import throw
from refcompiler.interpreter.loop import LEAVES
from refcompiler.interpreter.machine import RETURNS
from refcompiler.interpreter.registry import program_of
from refcompiler.interpreter.tracebacks import chain
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

#: Ways to resume a generator: by a loop, by a call of ``next`` (with a default) or of one of the
#: generator's methods, by ``yield from``.
ITERATED, NEXT, NEXT_OR, DELEGATED = "iterated", "next", "next or", "delegated"
WAYS = frozenset({ITERATED, NEXT, NEXT_OR, DELEGATED})


def resumable(generator: Any) -> bool:
    """Whether ``generator`` is one of ours that is suspended where a frame can be pushed.

    One whose frame runs is, too: CPython's error comes from :func:`resume`.
    """
    if not is_driven(generator) or is_running(generator):
        return False
    if type(generator) is AsyncGeneratorType:  # its items are awaited, by objects of C
        return False
    activation = driven_by(generator)
    if not isinstance(activation, Continued):
        return False
    return activation.running or activation.delegates == (type(delegate_of(generator)) is Switch)


def resume(
    machine: Any, consumer: Frame, generator: Any, sent: Any, way: str, default: Any = UNSET
) -> None:
    """Let the frame of ``generator`` run next; ``consumer`` gets what it yields."""
    activation = _entered(machine, consumer, generator, way, default)
    frame: Any = activation.frame
    if activation.delegates:  # the instruction runs again, as in CPython's loop
        activation.delegates = False
        frame.stack += [delegate_of(generator).inner, sent]
        frame.ip -= 1
    elif frame.ip:
        frame.stack.append(sent)


def throw_into(
    machine: Any, consumer: Frame, generator: Any, error: BaseException, way: str = NEXT
) -> None:
    """Let ``error`` be raised where ``generator`` is suspended, on the stack of frames."""
    activation = _entered(machine, consumer, generator, way, UNSET)
    frame: Any = activation.frame
    if activation.delegates:
        activation.delegates = False
        throw_into(machine, frame, delegate_of(generator).inner, error, DELEGATED)
        return
    frame.stack.append(None)
    chain(error, machine.exc)
    thrower = machine.enter(program_of(throw.__code__), throw, [error])
    machine.push(frame, thrower)


def can_throw(generator: Any, error: BaseException) -> bool:
    """Whether :func:`throw_into` knows what CPython does."""
    if isinstance(error, GeneratorExit):
        return False
    while resumable(generator):
        activation = driven_by(generator)
        frame = activation.frame
        if frame is None or not frame.ip:
            return False
        if not activation.delegates:
            return True
        generator = delegate_of(generator).inner
    return False


def runs_now(generator: Any) -> bool:
    """Whether the frame of ``generator`` is on the stack, which CPython does not see."""
    if not is_driven(generator):
        return False
    activation = driven_by(generator)
    return isinstance(activation, Continued) and activation.running


def _entered(machine: Any, consumer: Frame, generator: Any, way: str, default: Any) -> Continued:
    activation = driven_by(generator)
    assert isinstance(activation, Continued)
    frame: Any = activation.frame
    if activation.running:
        raise executing(frame.program.code)
    machine.push(consumer, frame)
    activation.running = True
    activation.runs += 1
    activation.begin()
    saved = machine.exc
    frame.on_return = way
    frame.extra = (generator, saved, default) if way == NEXT_OR else (generator, saved)
    machine.outer_excs.append(saved)
    machine.exc, activation.exc = activation.exc, None
    return activation


def suspend(machine: Any, frame: Frame, value: Any, delegate: Any = UNSET) -> None:
    """``frame``, of a generator, yields ``value``, which ``delegate`` gave if it delegates."""
    consumer: Any = frame.back
    way, extra = frame.on_return, frame.extra
    generator = extra[0]
    activation = driven_by(generator)
    assert isinstance(activation, Continued)
    frame.back, frame.on_return, frame.extra = None, "push", None
    activation.running = False
    activation.frame = frame
    handled, machine.exc = machine.exc, extra[1]
    machine.outer_excs.pop()
    machine.frame = consumer
    switch = delegate_of(generator)
    inner = switch.inner if type(switch) is Switch else UNSET
    if inner is delegate and is_suspended(generator):  # its driver is where it should be
        activation.exc, activation.delegates = handled, delegate is not UNSET
    else:
        move(generator, activation, handled, delegate)
    if way == DELEGATED:
        suspend(machine, consumer, value, generator)
    else:
        consumer.stack.append(value)


def end(machine: Any, extra: Any) -> None:
    """The frame of a generator has ended, and so has the generator."""
    generator = extra[0]
    if frame_of(generator) is not None:  # else one that asked itself for an item has ended it
        driven_by(generator).running = False  # type: ignore[attr-defined]
        finish(generator)
    machine.exc = extra[1]
    machine.outer_excs.pop()


# ---- what the end of such a frame means for the one that resumed it ---------------------------


def _iterated(machine: Any, frame: Frame, value: Any, extra: Any) -> None:
    end(machine, extra)
    end_loop(frame)


def end_loop(frame: Frame) -> None:
    """The iterator of the FOR_ITER before ``frame.ip`` has no more items."""
    frame.stack.pop()
    frame.ip = frame.program.values[frame.ip - 1]


def _next(machine: Any, frame: Frame, value: Any, extra: Any) -> None:
    end(machine, extra)
    value = machine.own(value)
    raise StopIteration if value is None else StopIteration(value)


def _next_or(machine: Any, frame: Frame, value: Any, extra: Any) -> None:
    end(machine, extra)
    frame.stack.append(extra[2])


def _delegated(machine: Any, frame: Frame, value: Any, extra: Any) -> None:
    end(machine, extra)
    frame.stack.append(value)


RETURNS.update(
    {ITERATED: _iterated, NEXT: _next, NEXT_OR: _next_or, DELEGATED: _delegated},
)


def _left(machine: Any, frame: Frame, error: BaseException) -> BaseException:
    """An exception leaves the frame of a generator: what the consumer gets."""
    end(machine, frame.extra)
    if not isinstance(error, StopIteration):
        return error
    kind = "coroutine" if type(frame.extra[0]) is CoroutineType else "generator"
    found = RuntimeError(f"{kind} raised StopIteration")
    found.__cause__ = found.__context__ = error
    return found


LEAVES.update(dict.fromkeys(WAYS, _left))


def delegate_to(machine: Any, frame: Frame, iterator: Any, sent: Any) -> None:
    """``frame``, of a generator on the stack, delegates to an iterator that runs natively."""
    ended = False
    try:
        iterates = sent is None and hasattr(type(iterator), "__next__")  # coroutines do not
        value = next(iterator) if iterates else iterator.send(sent)
    except StopIteration as stop:  # which, kept, would keep this frame and the iterator
        ended, value = True, stop.value
    del frame.stack[-2:]
    if ended:
        frame.stack.append(value)
    else:
        suspend(machine, frame, value, iterator)


def finalises(value: Any) -> bool:
    """Whether ``value`` is a generator that runs code of its own when it is closed."""
    if type(value) not in DRIVEN or not is_suspended(value):
        return False
    if not is_driven(value):
        return True
    frame = driven_by(value).frame
    return frame is not None and frame.program.user_handler_at(frame.ip - 1) is not None


def may_finalise(value: Any) -> bool:
    """Whether ``value`` is a generator of ours that may do so, now or further on."""
    if not is_driven(value):
        return False
    frame = driven_by(value).frame
    return frame is not None and frame.program.has_user_handlers()


def generator_frames(frame: Frame | None) -> list[Frame]:
    """Those of the frames from ``frame`` outwards that belong to generators, outermost first."""
    found = []
    while frame is not None:
        if frame.on_return in WAYS:
            found.append(frame)
        frame = frame.back
    return found[::-1]


def host(generator: Any, run: Callable[[], None]) -> None:
    """Call ``run`` natively from the driver of ``generator``, whose frame is on the stack.

    When it returns the driver is suspended as the generator's frame is then, or ends with it.
    """
    activation = driven_by(generator)
    assert isinstance(activation, Continued)
    activation.host = run
    leave_delegation(generator)
    advance(generator)


def take_over(machine: Any) -> None:
    """Real generators get the frames that were made for them on the machine's stack."""
    machine.outer_excs.clear()
    for frame in generator_frames(machine.frame):
        generator, saved = frame.extra[:2]
        activation = driven_by(generator)
        assert isinstance(activation, Continued)
        activation.frame = frame
        activation.running = True
        activation.delegates = False
        machine.outer_excs.append(saved)
