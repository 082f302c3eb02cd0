"""Opcodes of exceptions, ``with`` and ``match``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refcompiler.interpreter.entries import KNOWN, SEEN, meet
from refcompiler.interpreter.frame import Frame
from refcompiler.interpreter.machine import Machine
from refcompiler.interpreter.native import instruction
from refcompiler.interpreter.registry import op
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

# ---- exceptions ------------------------------------------------------------------------------


@op("PUSH_EXC_INFO")
def push_exc_info(m: Machine, f: Frame, arg: Any) -> None:
    error = m.own(f.stack[-1])
    f.stack[-1] = m.exc
    f.stack.append(error)
    m.exc = error


@op("POP_EXCEPT")
def pop_except(m: Machine, f: Frame, arg: Any) -> None:
    m.exc = m.own(f.stack[-1])
    f.stack.pop()


@op("CHECK_EXC_MATCH")
def check_exc_match(m: Machine, f: Frame, arg: Any) -> None:
    f.stack[-1] = m.exc_match(m.own(f.stack[-2]), m.own(f.stack[-1]))


@op("CHECK_EG_MATCH")
def check_eg_match(m: Machine, f: Frame, arg: Any) -> None:
    s = f.stack
    error, kinds = m.own(s[-2]), m.own(s[-1])
    meet(error)  # which may split itself
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        if isinstance(kind, type) and issubclass(kind, BaseExceptionGroup):
            raise TypeError(
                "catching ExceptionGroup with except* is not allowed. Use except instead."
            )
    if m.exc_match(error, kinds):
        match = error
        if not isinstance(error, BaseExceptionGroup):
            match = BaseExceptionGroup("", (error,))
        rest = None
    elif isinstance(error, BaseExceptionGroup):
        match, rest = error.split(kinds)
    else:
        match, rest = None, error
    if match is None:
        s[-1] = None
    else:
        s[-2:] = [rest, match]
        m.exc = match


@op("PREP_RERAISE_STAR")
def prep_reraise_star(m: Machine, f: Frame, arg: Any) -> None:
    """Of the exceptions left by ``except*`` clauses make the one to raise (or None)."""
    original, errors = m.own(f.stack[-2]), [e for e in m.own(f.stack[-1]) if e is not None]
    if not errors:
        found = None
    elif not isinstance(original, BaseExceptionGroup):
        found = errors[0]
    else:
        raised = [e for e in errors if not _from(e, original)]
        reraised = [e for e in errors if _from(e, original)]
        kept = _project(original, reraised) if reraised else None
        if not raised:
            found = kept
        else:
            raised += [] if kept is None else [kept]
            found = BaseExceptionGroup("", raised) if len(raised) > 1 else raised[0]
    f.stack.pop()
    f.stack[-1] = found


def _leaves(error: BaseException) -> set[int]:
    if isinstance(error, BaseExceptionGroup):
        return set().union(*(_leaves(e) for e in error.exceptions))
    return {id(error)}


def _from(error: BaseException, original: BaseExceptionGroup) -> bool:
    """``error`` is a part of ``original`` (split keeps traceback, cause and context)."""
    return (
        error.__traceback__ is original.__traceback__
        and error.__cause__ is original.__cause__
        and error.__context__ is original.__context__
    )


def _project(original: BaseExceptionGroup, parts: Sequence[BaseException]) -> Any:
    keep = set().union(*(_leaves(part) for part in parts))
    return original.split(lambda e: id(e) in keep)[0]


@op("RAISE_VARARGS")
def raise_varargs(m: Machine, f: Frame, count: int) -> None:
    s = f.stack
    if count == 0:
        handled = m.handled()
        if handled is None:
            raise RuntimeError("No active exception to reraise")
        raise_again(m, m.raising(handled))
    error = _as_exception(m, f, s[-count], "exceptions must derive from BaseException")
    if count == 2:
        cause = m.own(s[-1])
        if cause is not None:
            cause = _as_exception(m, f, cause, "exception causes must derive from BaseException")
        m.raising(error).__cause__ = cause
    m.chain(m.raising(error))
    raise error


def raise_again(m: Machine, error: BaseException) -> None:
    m.reraised = error
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context  # native code around this may handle something itself


def _as_exception(m: Machine, f: Frame, value: Any, complaint: str) -> BaseException:
    value = m.own(value)
    if isinstance(value, type) and issubclass(value, BaseException):
        cls, value = value, m.instantiate(f, value)
        if not isinstance(value, BaseException):
            raise TypeError(
                f"calling {cls!r} should have returned an instance of BaseException, "
                f"not {type(value)!r}"
            )
    if not isinstance(value, BaseException):
        raise TypeError(complaint)
    return value


@op("RERAISE")
def reraise(m: Machine, f: Frame, arg: int) -> None:
    """The traceback stays as it is. The argument only tells a frame object its line."""
    raise_again(m, m.raising(m.own(f.stack[-1])))


# ---- with ------------------------------------------------------------------------------------


def special_of(m: Machine, value: Any, name: str, protocol: str) -> Any:
    if not m.has_special(value, name):
        kind = m.type_of(value)
        raise TypeError(
            f"'{kind.__qualname__}' object does not support the {protocol} protocol"
            + (" (missed __exit__ method)" if name == "__exit__" else "")
        )
    return m.special(value, name)


@op("BEFORE_WITH")
def before_with(m: Machine, f: Frame, arg: Any) -> None:
    value = f.stack[-1]
    enter = special_of(m, value, "__enter__", "context manager")
    leave = special_of(m, value, "__exit__", "context manager")
    found = m.invoke(f, enter, [])
    f.stack[-1] = leave
    f.stack.append(found)


@op("WITH_EXCEPT_START")
def with_except_start(m: Machine, f: Frame, arg: Any) -> None:
    s = f.stack
    error = m.own(s[-1])
    leave = s[-4]
    s.append(m.invoke(f, leave, [type(error), error, error.__traceback__]))


# ---- match -----------------------------------------------------------------------------------


#: Flags of types (CPython's ``Py_TPFLAGS_SEQUENCE`` and ``Py_TPFLAGS_MAPPING``): what the abstract
#: base classes of collections give to their subclasses and to what is registered with them.
_IS_SEQUENCE, _IS_MAPPING = 1 << 5, 1 << 6


@op("GET_LEN")
def get_len(m: Machine, f: Frame, arg: Any) -> None:
    f.stack.append(m.length(f.stack[-1]))


@op("MATCH_MAPPING")
def match_mapping(m: Machine, f: Frame, arg: Any) -> None:
    f.stack.append(bool(m.type_of(f.stack[-1]).__flags__ & _IS_MAPPING))


@op("MATCH_SEQUENCE")
def match_sequence(m: Machine, f: Frame, arg: Any) -> None:
    f.stack.append(bool(m.type_of(f.stack[-1]).__flags__ & _IS_SEQUENCE))


@op("MATCH_KEYS")
def match_keys(m: Machine, f: Frame, arg: Any) -> None:
    subject, keys = m.own(f.stack[-2]), m.own(f.stack[-1])
    if id(type(subject)) not in KNOWN:
        meet(subject)
    f.stack.append(_match_keys(subject, keys))


def _match_keys(subject: Any, keys: tuple) -> tuple | None:
    get = subject.get if keys else None
    missing = object()
    seen = set()
    values = []
    for key in keys:
        if key in seen:
            raise ValueError(f"mapping pattern checks duplicate key ({key!r})")
        seen.add(key)
        value = get(key, missing)  # type: ignore[misc]
        if value is missing:
            return None
        values.append(value)
    return tuple(values)


@op("MATCH_CLASS")
def match_class(m: Machine, f: Frame, count: int) -> None:
    s = f.stack
    names, cls, subject = m.own(s[-1]), m.own(s[-2]), s[-3]
    if id(cls) not in SEEN:
        meet(cls)
    if id(type(subject)) not in KNOWN:
        meet(subject)
    found = _match_class(m, m.own(subject), cls, count, names)
    del s[-3:]
    s.append(found)


_SELF_MATCHING = (
    bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple
)  # fmt: skip


def _match_class(m: Machine, subject: Any, cls: Any, count: int, names: tuple) -> Any:
    if not isinstance(cls, type):
        return instruction("MATCH_CLASS", count, 3)(subject, cls, names)  # which raises
    if not isinstance(subject, cls):
        return None
    values = []
    seen: set[str] = set()
    if count:
        if hasattr(cls, "__match_args__"):
            positional = cls.__match_args__
            if not isinstance(positional, tuple):
                kind = type(positional).__name__
                raise TypeError(f"{cls.__name__}.__match_args__ must be a tuple (got {kind})")
        elif issubclass(cls, _SELF_MATCHING):
            if count > 1:
                raise TypeError(
                    f"{cls.__name__}() accepts 1 positional sub-pattern ({count} given)"
                )
            values.append(subject)
            positional, count = (), 0
        else:
            positional = ()
        if count > len(positional):
            plural = "" if len(positional) == 1 else "s"
            raise TypeError(
                f"{cls.__name__}() accepts {len(positional)} positional sub-pattern{plural} "
                f"({count} given)"
            )
        for name in positional[:count]:
            if type(name) is not str:
                kind = type(name).__name__
                raise TypeError(f"__match_args__ elements must be strings (got {kind})")
        names = (*positional[:count], *names)
    for name in names:
        if name in seen:
            raise TypeError(f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}")
        seen.add(name)
        try:
            values.append(m.getattr(subject, name))
        except AttributeError:
            return None
    return tuple(values)
