"""Opcodes of generators, coroutines and asynchronous generators, loops and contexts."""

from __future__ import annotations

from types import CoroutineType, FunctionType, GeneratorType
from typing import Any

from refcompiler.interpreter.binding import ASYNC_GENERATOR, COROUTINE, ITERABLE_COROUTINE
from refcompiler.interpreter.frame import Frame
from refcompiler.interpreter.frames import INNER, shown
from refcompiler.interpreter.handlers_blocks import raise_again
from refcompiler.interpreter.machine import Machine, lookup_special
from refcompiler.interpreter.native import instruction
from refcompiler.interpreter.registry import ATTRIBUTES, op
from refcompiler.interpreter.resumption import delegate_to, suspend
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

# ---- suspension ------------------------------------------------------------------------------


@op("RETURN_GENERATOR")
def return_generator(m: Machine, f: Frame, arg: Any) -> None:
    """The call already made the generator; its frame starts with what POP_TOP drops."""
    f.stack.append(None)


@op("YIELD_VALUE")
def yield_value(m: Machine, f: Frame, arg: Any) -> None:
    if f.back is not None:  # it lies on the stack of who resumed it
        suspend(m, f, f.stack.pop())
        return
    m.result = f.stack.pop()
    m.yielded = True
    m.frame = None


@op("SEND")
def send(m: Machine, f: Frame, arg: Any) -> None:
    """Delegate to an iterator until it ends; its value is pushed when the frame is resumed."""
    s = f.stack
    if f.back is not None:
        delegate_to(m, f, s[-2], s[-1])
        return
    m.result = m.delegate(s[-2])
    del s[-2:]  # the first thing to send is always None
    m.yielded = m.delegates = True
    m.frame = None


@op("GET_YIELD_FROM_ITER")
def get_yield_from_iter(m: Machine, f: Frame, arg: Any) -> None:
    f.stack[-1] = value = m.own(f.stack[-1])
    kind = type(value)
    if kind is CoroutineType:
        if not f.code.co_flags & (COROUTINE | ITERABLE_COROUTINE):
            raise TypeError("cannot 'yield from' a coroutine object in a non-coroutine generator")
    elif kind is not GeneratorType:
        f.stack[-1] = m.iter(value)


@op("INTRINSIC_STOPITERATION_ERROR")
def stop_iteration_error(m: Machine, f: Frame, arg: Any) -> None:
    """What leaves a generator or coroutine: StopIteration becomes a RuntimeError."""
    error = m.own(f.stack[-1])
    flags = f.code.co_flags
    kind = "generator"
    if flags & ASYNC_GENERATOR:
        kind = "async generator"
    elif flags & COROUTINE:
        kind = "coroutine"
    found = error
    if isinstance(error, StopIteration):
        found = RuntimeError(f"{kind} raised StopIteration")
    elif flags & ASYNC_GENERATOR and isinstance(error, StopAsyncIteration):
        found = RuntimeError(f"{kind} raised StopAsyncIteration")
    if found is not error:
        found.__cause__ = found.__context__ = error
        f.stack[-1] = found


def load_inner(m: Machine, f: Frame, name: str) -> None:
    """An attribute that would show a generator's driver, or a traceback's own frame object."""
    s = f.stack
    s[-1] = shown(m, m.getattr(s[-1], name), s[-1])


ATTRIBUTES.update(dict.fromkeys(INNER, load_inner))


# ---- asynchronous code -----------------------------------------------------------------------


class Answer:
    """Lets CPython judge what an interpreted ``__await__`` or its like has answered."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __await__(self) -> Any:
        return self.value

    def __aiter__(self) -> Any:
        return self.value

    def __anext__(self) -> Any:
        return self.value


def _asked(m: Machine, f: Frame, value: Any, name: str) -> Any:
    """``value``, or the answer of its method ``name`` if that is to be interpreted."""
    value = m.awaited(value, name)
    if type(lookup_special(type(value), name)) is not FunctionType:
        return value
    return Answer(m.invoke(f, m.special(value, name), ()))


#: By argument: what is awaited, which only the complaint tells.
_GET_AWAITABLE = [instruction("GET_AWAITABLE", arg, 1) for arg in range(3)]
_GET_AITER = instruction("GET_AITER", 0, 1)
_GET_ANEXT = instruction("GET_ANEXT", 0, 1)


@op("GET_AWAITABLE")
def get_awaitable(m: Machine, f: Frame, arg: int) -> None:
    f.stack[-1] = _GET_AWAITABLE[arg](_asked(m, f, f.stack[-1], "__await__"))


@op("GET_AITER")
def get_aiter(m: Machine, f: Frame, arg: Any) -> None:
    f.stack[-1] = _GET_AITER(_asked(m, f, f.stack[-1], "__aiter__"))


@op("GET_ANEXT")
def get_anext(m: Machine, f: Frame, arg: Any) -> None:
    f.stack.append(_GET_ANEXT(_asked(m, f, f.stack[-1], "__anext__")))


@op("END_ASYNC_FOR")
def end_async_for(m: Machine, f: Frame, arg: Any) -> None:
    error = m.own(f.stack[-1])
    if not isinstance(error, StopAsyncIteration):
        raise_again(m, error)
    del f.stack[-2:]


@op("BEFORE_ASYNC_WITH")
def before_async_with(m: Machine, f: Frame, arg: Any) -> None:
    value = f.stack[-1]
    for name, missed in (("__aenter__", ""), ("__aexit__", " (missed __aexit__ method)")):
        if not m.has_special(value, name):
            raise TypeError(
                f"'{type(value).__qualname__}' object does not support the asynchronous context "
                f"manager protocol{missed}"
            )
    enter, leave = m.special(value, "__aenter__"), m.special(value, "__aexit__")
    found = m.invoke(f, enter, ())
    f.stack[-1] = leave
    f.stack.append(found)


@op("ASYNC_GEN_WRAP")
def async_gen_wrap(m: Machine, f: Frame, arg: Any) -> None:
    """What is yielded is wrapped where it is yielded natively."""
