"""How C code that capture runs calls the user's special methods: they are interpreted.

``sorted`` calls ``__lt__``, a dict ``__hash__``, a list ``__eq__``: CPython itself finds the method
and calls it. While such C code runs, the methods that it is known to call have another native body,
which leads into the interpreter (see :mod:`refcompiler.interpreter.entries`). Which methods these
are a capture learns when C code is about to call the first of a class: it then starts again.
"""

from __future__ import annotations

from _thread import get_ident
from collections import Counter
from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, finalize

from refcompiler.capture.effects import effects
from refcompiler.capture.hashing import told_hash
from refcompiler.capture.kinds import CONSTANT_TYPES
from refcompiler.capture.lookup import is_heap, namespace_of
from refcompiler.capture.natively import called_back, is_watching
from refcompiler.capture.signals import Break, Restart
from refcompiler.interpreter.binding import ASYNCHRONOUS, GENERATOR
from refcompiler.interpreter.entries import arguments, driver_of, run_natively
from refcompiler.interpreter.frame import UNSET
from refcompiler.interpreter.tracebacks import ENTRIES

#: Special methods that C code does not merely ask for an answer.
_NOT_ENTERED = frozenset(
    """
    __init__ __new__ __del__ __getattribute__ __getattr__ __setattr__ __delattr__ __init_subclass__
    __class_getitem__ __set_name__ __get__ __set__ __delete__ __call__ __enter__ __exit__
    __instancecheck__ __subclasscheck__ __subclasshook__ __prepare__ __mro_entries__
    """.split()
)
_SUSPENDING = GENERATOR | ASYNCHRONOUS


class Entered:
    """A function of the user's, and the native body that it has while C code may call it."""

    def __init__(self, machine: Any, function: FunctionType):
        self.machine = machine
        self.function = function
        self.code = function.__code__
        self.thread = get_ident()
        self.driver: Any = driver_of(self.code, MethodType(_enter, self))
        self.hashes = function.__name__ == "__hash__"
        self.is_quiet = not self.hashes
        ENTRIES[id(self.driver)] = self.code
        finalize(self.driver, ENTRIES.pop, id(self.driver), None).atexit = False


class Learned:
    """What the captures of one place have learnt, each for those after it.

    ``called``: functions that C code calls; ``releases``: whether the program drops objects that
    hold generators which then run code (:mod:`refcompiler.capture.dropping`); ``filled``: calls of
    functions under ``lru_cache`` that were made ahead of a graph, with how often; ``ahead``: those
    that this one has made.
    """

    __slots__ = ("called", "releases", "filled", "ahead")

    def __init__(self) -> None:
        self.called: WeakSet[FunctionType | CodeType] = WeakSet()
        self.releases = False
        self.filled: WeakKeyDictionary[Any, Counter] = WeakKeyDictionary()
        self.ahead: set[tuple] = set()


class Reentry:
    """The functions that C code may call in one capture. ``learned`` outlives it."""

    def __init__(self, machine: Any, learned: WeakSet[FunctionType | CodeType]):
        self.machine = machine
        self.learned = learned
        self.of_own_classes: set[FunctionType] = set()
        given = [value for value in list(learned) if type(value) is FunctionType]
        self.entered = [Entered(machine, function) for function in given]

    def is_foreign(self, value: Any) -> bool:
        return self.machine.is_foreign(value)

    def install(self) -> None:
        for entered in self.entered:
            entered.function.__code__ = entered.driver

    def remove(self) -> None:
        for entered in self.entered:
            entered.function.__code__ = entered.code

    def close(self) -> None:
        for entered in self.entered:
            entered.driver = None  # which holds this
        self.entered.clear()
        self.of_own_classes.clear()

    def learn(self, frame: FrameType, codes: list[CodeType]) -> bool:
        """That C code calls the function of ``frame``, which begins; whether that is news.

        ``codes`` are its own and those of its callers, which may wrap it.
        """
        code = frame.f_code
        receiver = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        found = list(special_methods(type(receiver)))
        known = {entered.function for entered in self.entered}
        if not any(function.__code__ in codes and function not in known for function in found):
            return False
        own = self.of_own_classes
        self.learned.update([f.__code__ if f in own else f for f in found])
        return True

    def adopt(self, kind: type) -> None:
        """A class that the frame has made, whose functions are others at each capture."""
        self.of_own_classes.update(special_methods(kind))
        for function in special_methods(kind):
            if function.__code__ in self.learned:
                self.entered.append(Entered(self.machine, function))


def special_methods(kind: type) -> Iterator[FunctionType]:
    """The special methods of a class of the user's that can be entered."""
    for base in kind.__mro__:
        if is_heap(base):
            for name, value in base.__dict__.items():
                if (
                    type(value) is FunctionType
                    and name.startswith("__")
                    and name not in _NOT_ENTERED
                    and not value.__code__.co_flags & _SUSPENDING
                    and not value.__kwdefaults__
                    and all(type(v) in CONSTANT_TYPES for v in value.__defaults__ or ())
                ):
                    yield value


def _enter(entered: Entered, given: tuple[Any, ...]) -> Any:
    """What a native body calls: ``given`` are its arguments and cells."""
    machine = entered.machine
    if get_ident() != entered.thread or not is_watching():
        return run_natively(entered.code, entered.function.__globals__, given)
    positional, named = arguments(entered.code, given)
    with called_back(machine):
        return _interpreted(machine, entered, positional, named)


def _interpreted(machine: Any, entered: Entered, positional: list[Any], named: dict) -> Any:
    function = entered.function
    if positional:
        _fix(machine, type(positional[0]), function)
    if entered.is_quiet:
        found = machine.sizes.plain(
            machine.force(machine.invoke(machine.frame, function, positional, named))
        )
        if entered.hashes:
            told_hash(machine, positional[0], found)
        return found
    before, held = effects(machine), dict(namespace_of(positional[0]) or {})
    found = machine.sizes.plain(
        machine.force(machine.invoke(machine.frame, function, positional, named))
    )
    told_hash(machine, positional[0], found)
    after = namespace_of(positional[0]) or {}
    # where the object is a key of what is made again after the graph, this runs once more
    if effects(machine) != before or any(after.get(k, UNSET) is not v for k, v in held.items()):
        why = f"{function.__qualname__} has side effects"
        raise Restart(machine.steps, "c-function", why)
    entered.is_quiet = True
    return found


def _fix(machine: Any, kind: type, function: FunctionType) -> None:
    """Guard that it is this function that C code finds."""
    for base in kind.__mro__:
        for name, value in base.__dict__.items():
            if value is function:
                source, found = machine.find_guarded(kind, name)
                if found is function:
                    machine.from_class(source, function)
                    for i, default in enumerate(reversed(function.__defaults__ or ())):
                        if source is not None:
                            place = machine.sources.make("default", source, -1 - i)
                            machine.observe(machine.lazy(place, default))
                    return
    raise Break("c-function", f"C code calls {function.__qualname__}, which no class has")
