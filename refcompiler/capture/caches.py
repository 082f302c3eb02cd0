"""Functions under ``functools.lru_cache``: what they know is read without asking them.

A call with constants, or with objects that are keys by their identity, is answered from the cache,
or computed by the interpreter where the cache lacks it, and guarded by the cache still knowing that
answer, or none. An object that it makes is made once, at capture, and is the cache's from then on;
tensors that it computes are made once too, ahead of the graph, in which they are inputs, and within
a region of a graph (a checkpoint, a branch) at each call. After the graph the function is called
once for each call of the program, so that it counts its hits and misses, orders its entries and
fills itself as in eager. What ``cache_info`` tells is then CPython's own.

Source of the rules: the documentation of ``functools.lru_cache``.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from refcompiler.ambient import Autocast
from refcompiler.capture.door import version_of
from refcompiler.capture.effects import effects
from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.capture.natively import QUIET
from refcompiler.capture.signals import Prepare, Restart
from refcompiler.capture.spoken import is_said_within
from refcompiler.capture.values import Asked, Lazy
from refcompiler.guards.caches import ABSENT, Known, cached, parts_of
from refcompiler.guards.sources import NOT_SET, Source


class Given(functools.partial):
    """What a wrapper that was made again calls: its function, or what gives the known values."""

    def set(self, function: Any) -> None:
        self.__setstate__((function, (), {}, None))  # type: ignore[attr-defined]


def wrapped_by(function: Any) -> Any:
    """What a wrapper in C calls."""
    found = parts_of(function)[-4]
    return found.func if type(found) is Given else found


def _mark(function: Any) -> Any:
    """What lies before keyword arguments in a key."""
    return parts_of(function)[-3]


class Asking(Asked):
    """A call, after the graph, of a wrapper that is another one at each call of the program."""

    __slots__ = ()

    def __init__(self, kwargs: Mapping):
        self.kwargs = kwargs

    def __call__(self, *args: Any) -> None:
        function, *args = args  # type: ignore[assignment]
        function(*args, **self.kwargs)


class Filling(Asking):
    """The first call of one with these arguments, whose value is known."""

    __slots__ = ()

    def __call__(self, *args: Any) -> None:
        function, value, *args = args  # type: ignore[assignment]
        inner = parts_of(function)[-4]
        if type(inner) is Given:
            before = inner.func
            inner.set(lambda *args, **kwargs: value)
            try:
                function(*args, **self.kwargs)
            finally:
                inner.set(before)


def parameters_of(function: Any) -> dict[str, Any]:
    """What ``functools.lru_cache`` was given; it tells the wrapper last of all."""
    told: Any = getattr(function, "cache_parameters", dict)()
    typed = told.get("typed", False)  # which a frame may not have looked at
    typed = typed.value if type(typed) is Lazy else typed
    return {"maxsize": function.cache_info().maxsize, "typed": typed}


def entries_of(function: Any) -> list[tuple[tuple, dict, Any]]:
    """(arguments, keyword arguments, value) of each call that a cache knows, in its order."""
    typed, mark = parameters_of(function)["typed"], _mark(function)
    pairs: Any = parts_of(function)[-5].items()
    if function.cache_info().maxsize is not None:
        parts = parts_of(function)[:-5]
        start = len(parts) % 3
        pairs = zip(parts[start::3], parts[start + 1 :: 3], strict=True)
    return [(*_arguments(key, typed, mark), value) for key, value in pairs]


def _arguments(key: Any, typed: bool, mark: Any) -> tuple[tuple, dict]:
    if type(key) is not tuple:
        return (key,), {}
    if not any(part is mark for part in key):
        return key[: len(key) // 2] if typed else key, {}
    count = next(i for i, part in enumerate(key) if part is mark)
    rest = key[count + 1 :]
    named = (len(rest) - count) // 3 if typed else len(rest) // 2
    return key[:count], dict(zip(rest[: 2 * named : 2], rest[1 : 2 * named : 2], strict=True))


def made_again(
    function: Any, parameters: Mapping, entries: Sequence[tuple], hits: int, misses: int
) -> Any:
    """A wrapper of ``function`` that knows what another one does, and has counted as much.

    What it calls gives the known values before it becomes ``function``.
    """
    given: list[Any] = []
    inner = Given(lambda *args, **kwargs: given.pop())
    made: Any = functools.lru_cache(**parameters)(inner)
    for _ in range(misses - len(entries)):  # calls that raised, and what the cache has forgotten
        with contextlib.suppress(IndexError):
            made(object())
    for args, kwargs, value in entries:
        given.append(value)
        made(*args, **kwargs)
    for _ in range(hits):
        made(*entries[-1][0], **entries[-1][1])
    inner.set(function)
    made.__dict__.clear()  # what it tells of the partial
    return made


def is_data(value: Any) -> bool:
    """Constants, also in lists, tuples and dicts."""
    kind = type(value)
    if kind in (list, tuple):
        return all(map(is_data, value))
    if kind is dict:
        return all(map(is_data, value)) and all(map(is_data, value.values()))
    return kind in CONSTANT_TYPES


def _identity(value: Any) -> tuple:
    return (type(value), value) if type(value) in CONSTANT_TYPES else (id(value),)


def _is_key(m: Any, value: Any) -> bool:
    """An object from outside that is the same key as itself alone, whatever is in it."""
    cls = type(value)
    if issubclass(cls, type):
        return cls.__hash__ is type.__hash__ and cls.__eq__ is type.__eq__ and _lasts(m, value)
    plain = cls.__hash__ is object.__hash__ and cls.__eq__ is object.__eq__
    return plain and m.is_foreign(value)


def _lasts(m: Any, cls: type) -> bool:
    """Whether the next call finds the same class; one that is made anew is another key."""
    return cls not in m.own_classes and not m.is_made_anew(cls)


def call_cached(m: Any, frame: Any, function: Any, args: Sequence, kwargs: Mapping) -> Any:
    """A call of a wrapper that ``functools.lru_cache`` has made."""
    source = m.source_of(function)
    forced = [m.sizes.plain(m.force(a)) for a in args]
    named = {k: m.sizes.plain(m.force(v)) for k, v in kwargs.items()}
    if source is None:  # made in the frame, of a callback
        return m.call_pure(function, forced, named)
    for value in (*forced, *named.values()):
        if getattr(type(value), "__hash__", None) is None:
            raise TypeError(f"unhashable type: '{type(value).__name__}'")
    given = [*map(_identity, forced), *[(k, _identity(v)) for k, v in named.items()]]
    asked = id(function), *given
    objects = [v for v in (*forced, *named.values()) if type(v) not in CONSTANT_TYPES]
    if not all(_is_key(m, value) for value in objects):
        if asked not in m.answers:
            m.answers[asked] = _compute(m, frame, function, source, forced, named)
        return m.answers[asked]
    for value in objects:
        place = m.source_of(value)
        if place is not None:  # a class may be a fact of the code
            m.guard("ID", place, value)  # which the cache keeps alive too
    made = False
    if type(parts_of(function)[-4]) is Given and not objects:
        return _answer_of_made(m, frame, function, source, asked, forced, named)
    if asked not in m.answers:
        found = _answer(m, frame, function, source, asked, forced, named)
        m.answers[asked] = found[0]
        if len(found) == 1:  # not one of the cache
            return found[0]
        made = found[1]
    if _is_asked(function):
        m.deferred.append((Asked(function, named, made), tuple(forced)))
    return m.answers[asked]


def _answer(
    m: Any,
    frame: Any,
    function: Any,
    source: Source,
    asked: tuple,
    args: Sequence,
    kwargs: Mapping,
) -> tuple:
    """The answer to constants, and whether the function was called for it."""
    m.guard("ID", source, function)
    known = Known(function, args, kwargs)
    place = m.sources.make("cached", source, (tuple(args), tuple(kwargs.items())))
    value = known.value()
    needed, made = value is not ABSENT, asked in m.learned.ahead
    if not needed:
        recorded, said = m.recorder.recorded, len(m.deferred)
        drawn, m.recorder.fake_mode.random = m.recorder.fake_mode.random, False
        again = functools.partial(_is_said_again, frame if _is_asked(function) else None)
        value = m.sizes.plain(_compute(m, frame, function, source, args, kwargs, again))
        draws, m.recorder.fake_mode.random = m.recorder.fake_mode.random, drawn
        computes = m.recorder.recorded != recorded
        if computes or type(value) not in CONSTANT_TYPES:  # what it says would be said too early
            if not all(_is_asking(call) for call, _ in m.deferred[said:]):
                raise Restart(m.steps, "c-function", _EFFECTS)
        if computes:
            if draws:  # once, in the order of the program
                raise Restart(m.steps, "c-function", f"{_FIRST} from random numbers")
            if len(m.deferred) == said and _may_fill(m, function, asked):
                filling = functools.partial(_fill, torch.is_grad_enabled(), function, args, kwargs)
                raise Prepare(m.steps, "c-function", _FIRST, filling)
            m.lazy(place, NOT_SET)
            m.guard("ID", place, NOT_SET)
            return (value,)
        del m.deferred[said:]  # records and calls of other such functions, which it makes again
        if type(value) not in CONSTANT_TYPES:  # the object that the cache keeps
            _, _, most, size = function.cache_info()
            if most is not None and size >= most:
                raise Restart(m.steps, "c-function", "a function under a full lru_cache")
            if not is_data(value) and effects(m)[:2] != ((), ()):
                raise Restart(m.steps, "c-function", _UNWRITTEN)
            value, needed, made = function(*args, **kwargs), True, True
    if not is_data(value):
        if not issubclass(type(value), torch.Tensor):  # of which guards tell what matters
            m.guard("ID", place, value)
        return m.lazy(place, value), made
    m.guard("STATE", None, (functools.partial(known.agrees, value, needed), (), True))
    if type(value) not in CONSTANT_TYPES:
        value = m.lazy(m.sources.constant(value, function.__name__), value)
    return value, made


def _answer_of_made(
    m: Any,
    frame: Any,
    function: Any,
    source: Source,
    asked: tuple,
    args: Sequence,
    kwargs: Mapping,
) -> Any:
    """The answer of a wrapper that a plan has made again: the next call makes another one.

    It is told apart by what it wraps and what it knows, and is given what the graph computes.
    """
    if asked not in m.answers:
        call = tuple(args), tuple(kwargs.items())
        place, known = m.sources.make("cached", source, call), cached(function, call)
        m.lazy(place, known)
        if known is NOT_SET:
            m.guard("ID", place, NOT_SET)
            value = m.sizes.plain(_compute(m, frame, function, source, args, kwargs))
            # It does not compute it again: what that calls has been deferred by itself.
            m.answers[asked] = value
            m.deferred.append((Filling(kwargs), (function, value, *args)))
            return value
        value = m.lazy(place, known)
        m.answers[asked] = value
    m.deferred.append((Asking(kwargs), (function, *args)))
    return m.answers[asked]


def _is_asked(function: Any) -> bool:
    """Whether it is called after the graph; what the library's functions count nobody looks at."""
    return (getattr(function, "__module__", None) or "").partition(".")[0] not in QUIET


def _is_asking(call: Any) -> bool:
    return issubclass(type(call), Asked)


def _is_said_again(frame: Any, call: Any) -> bool:
    """Whether what ``call`` does is done by a function that ``frame`` calls, if it is called."""
    return _is_asking(call) or (frame is not None and is_said_within(frame, call))


def _may_fill(m: Any, function: Any, asked: tuple) -> bool:
    """Whether a function that computes tensors may do so ahead of the graph, as the first call.

    Nothing that it may read is another thing there, it draws nothing, and what the cache knows by
    then it knows on. Where the cache is emptied again and again it computes in the graph instead.
    """
    _, _, most, size = function.cache_info()
    if m.recorder.fake_mode.random or (most is not None and size >= most):
        return False
    if type(parts_of(function)[-4]) is Given:  # the next call of the program makes another cache
        return False
    if m.open_devices or m.open_levels or m.open_inference or m.switches or m.function_modes:
        return False
    if m.recorder.switched and Autocast.now() != m.autocast:
        return False
    if m.recorder.scope is not m.recorder.root or effects(m)[:2] != ((), ()):
        return False
    if any(version_of(fake) for *_, fake in m.inputs.values()):
        return False
    known = m.learned.filled.setdefault(function, Counter())
    if known[asked] == _MOST_FILLINGS:
        return False
    known[asked] += 1
    m.learned.ahead.add(asked)
    return True


def _fill(grad: bool, function: Any, args: Sequence, kwargs: Mapping) -> None:
    with torch.set_grad_enabled(grad):
        function(*args, **kwargs)


_MOST_FILLINGS = 8
_FIRST = "the first call of a function under lru_cache computes tensors"
_EFFECTS = "a function under lru_cache has side effects"
_UNWRITTEN = "a function under lru_cache makes an object, after writes that it may read"


def _compute(
    m: Any,
    frame: Any,
    function: Any,
    source: Source,
    args: Sequence,
    kwargs: Mapping,
    allowed: Callable[[Any], bool] = _is_asking,
) -> Any:
    """What a cached function computes, which it then does at each call.

    It has no effects but calls that it puts off, if they are ``allowed``.
    """
    before, said = effects(m)[:2], len(m.deferred)
    wrapped = wrapped_by(function)
    if function.__dict__.get("__wrapped__") is wrapped:
        place = m.member(source, "__wrapped__")
    else:
        m.guard("ID", source, function)
        place = m.sources.constant(wrapped, "__wrapped__")
    value = m.invoke(frame, m.observe(m.lazy(place, wrapped)), args, kwargs)
    if effects(m)[:2] != before or not all(allowed(call) for call, _ in m.deferred[said:]):
        raise Restart(m.steps, "c-function", _EFFECTS)
    return value
