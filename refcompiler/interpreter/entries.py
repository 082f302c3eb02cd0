"""How C code enters the interpreter: the functions that it may call get a body that leads here.

CPython itself finds the special method, property or callback and calls it, so what is found, in
which order and with which arguments is CPython's. Only the function's native body, the entry, is
another while the interpreter runs: it has the name, file, first line and signature of the user's
and runs the user's. So the function stays the object that it is, and nothing has to be wrapped.

A function gets its entry when C code might come by it: when an operand or an argument is met whose
type is not known to lead to no Python code. That is decided once per type. When the last
interpreter ends, the functions have their own code again.
"""

from __future__ import annotations

import dis
import functools
import itertools
import sys
from _thread import RLock, get_ident
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from gc import get_referents
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any
from weakref import ref

from refcompiler.bytecode.decode import Program
from refcompiler.interpreter.binding import VARARGS, VARKEYWORDS, parameters_of
from refcompiler.interpreter.current import CURRENT
from refcompiler.interpreter.frame import UNSET, Frame
from refcompiler.interpreter.registry import (
    FORGETTING,
    NATIVE_CODES,
    READY,
    forget_if_dead,
    program_of,
)
from refcompiler.interpreter.tracebacks import ENTRIES
from refcompiler.own_builtins import BUILTINS

__builtins__ = BUILTINS

_LOCK = RLock()
_native_frame = sys._getframe


# ---- the native body -------------------------------------------------------------------------


class Entry:
    """``driver`` is what stands for ``code``. It hands over its arguments and its cells."""

    __slots__ = ("code", "driver", "__weakref__")

    def __init__(self, code: CodeType):
        self.code = code
        self.driver = driver_of(code, MethodType(_enter, self))


def driver_of(code: CodeType, enter: Any) -> CodeType:
    """A body that a function with ``code`` may have: it gives ``enter`` its arguments and cells."""
    arguments = code.co_argcount + code.co_kwonlyargcount
    arguments += bool(code.co_flags & VARARGS) + bool(code.co_flags & VARKEYWORDS)
    body = bytearray()
    if code.co_freevars:
        body += _instruction("COPY_FREE_VARS", len(code.co_freevars))
    for name, arg in _CALL:
        if name != "LOAD_FAST":
            body += _instruction(name, arg)
        elif arg == 0:
            body += _instruction("LOAD_CONST", 0)
        else:
            size = arguments + len(code.co_freevars)
            for slot in range(size):
                body += _instruction("LOAD_FAST" if slot < arguments else _LOAD_CELL, slot)
            body += _instruction("BUILD_TUPLE", size)
    lines = bytearray()
    for i in range(0, len(body) // 2, 8):  # all of it is the first line, without columns
        lines += bytes((0x80 | 13 << 3 | min(8, len(body) // 2 - i) - 1, 0))
    return code.replace(
        co_code=bytes(body),
        co_consts=(enter,),
        co_names=(),
        co_varnames=code.co_varnames[:arguments],
        co_nlocals=arguments,
        co_cellvars=(),
        co_exceptiontable=b"",
        co_linetable=bytes(lines),
        co_stacksize=arguments + len(code.co_freevars) + 3,
    )


def _instruction(name: str, arg: int) -> bytes:
    prefix = _instruction("EXTENDED_ARG", arg >> 8) if arg > 255 else b""
    return prefix + bytes((dis.opmap[name], arg & 255))


def _sample(function: Any, argument: Any) -> Any:
    return function(argument)


#: A call of what is in slot 0 with what is in slot 1, as this version writes it.
_CALL = [
    (dis.opname[op], arg) for op, arg in zip(*[iter(_sample.__code__.co_code)] * 2, strict=True)
]
_LOAD_CELL = "LOAD_CLOSURE" if dis.opmap.get("LOAD_CLOSURE", 256) < 256 else "LOAD_FAST"  # 3.13


def _enter(entry: Entry, given: tuple[Any, ...]) -> Any:
    """What an entry calls: ``given`` are its arguments and cells."""
    machine = CURRENT.get(get_ident())
    if machine is None:
        return run_natively(entry.code, _native_frame(1).f_globals, given)
    program = program_of(entry.code)
    if program.parameters.suspends:
        return machine.make_generator(_frame(program, _native_frame(1), given))
    found = machine.reenter(_frame(program, _native_frame(1), given))
    if id(type(found)) not in KNOWN:
        meet(found)
    return found


def _frame(program: Program, native: FrameType, given: tuple[Any, ...]) -> Frame:
    """The frame of a call whose native frame is given."""
    cells = len(program.code.co_freevars)
    blank = [UNSET] * (program.parameters.size - len(given))
    if cells:
        fast = [*given[:-cells], *blank, *given[-cells:]]
    else:
        fast = [*given, *blank]
    return Frame(program, native.f_globals, native.f_builtins, None, fast)


def run_natively(code: CodeType, globals_: dict[str, Any], given: tuple[Any, ...]) -> Any:
    """For a thread that interprets nothing."""
    cells = given[len(given) - len(code.co_freevars) :]
    function = FunctionType(code, globals_, code.co_name, None, cells or None)
    positional, named = arguments(code, given)
    return function(*positional, **named)


def arguments(code: CodeType, given: tuple[Any, ...]) -> tuple[list[Any], dict[str, Any]]:
    """What a body got, without its cells: by position and by name."""
    known = parameters_of(code)
    values = given[: len(given) - len(code.co_freevars)]
    positional = [*values[: known.positional]]
    named = dict(zip(known.keyword_only, values[known.positional : known.total], strict=True))
    rest = values[known.total :]
    if known.varargs:
        positional += rest[0]
    if known.varkeywords:
        named.update(rest[-1])
    return positional, named


# ---- what C code may come by -----------------------------------------------------------------

#: Types (by their ids) whose instances need no looking at: all Python code that they lead to has
#: its entries. A metaclass may say what its classes are equal to, so they are no keys themselves.
KNOWN: set[int] = set()
#: The same for arguments of C code, which may look into containers.
SILENT: frozenset[int] = frozenset(
    map(id, (int, float, complex, bool, str, bytes, bytearray, type(None), range, slice))
)
#: What is done with an instance of any other type that was met before.
_ACTIONS: dict[int, Callable[[Any, int], None]] = {}
#: Classes whose namespaces were gone through, and the references that say when they are gone.
SEEN: dict[int, Any] = {}
#: The functions that have an entry, by their ids: references to them, and the entries.
_FUNCTIONS: dict[int, tuple[Any, Entry]] = {}

_MRO: Any = type.__dict__["__mro__"].__get__
_NAMESPACE: Any = type.__dict__["__dict__"].__get__
_FLAGS: Any = type.__dict__["__flags__"].__get__
_HEAP_TYPE = 1 << 9
_PLAIN = 0x01 | 0x02  # CO_OPTIMIZED and CO_NEWLOCALS: its variables are in slots


def met(operation: Callable, value: Any, *rest: Any) -> Any:
    """``operation(value, *rest)``, where C code may call what the operands' types define."""
    if get_ident() in CURRENT:
        if id(type(value)) not in KNOWN:
            _meet(value)
        for other in rest:
            if id(type(other)) not in KNOWN:
                _meet(other)
    return operation(value, *rest)


def meet(value: Any) -> None:
    """C code is about to get ``value``."""
    if get_ident() in CURRENT:
        _meet(value)


def meet_argument(value: Any) -> None:
    """C code gets ``value`` as an argument: the first item of a container stands for them all."""
    kind = type(value)
    if id(kind) in _CONTAINERS:
        for item in value.values() if kind is dict else value:
            if id(type(item)) not in KNOWN and get_ident() in CURRENT:
                _meet(item)
            break
    elif id(kind) not in KNOWN and id(value) not in SEEN and get_ident() in CURRENT:
        _meet(value)


def meet_class(cls: type) -> None:
    """C code is about to get instances of ``cls``."""
    if get_ident() in CURRENT:
        _look_through(cls)


_CONTAINERS = frozenset(map(id, (list, tuple, dict, set, frozenset, deque)))


def _bases(cls: type) -> tuple[type, ...]:
    # A type of C code may not be ready before it is asked, and a class has none while it is made.
    return _MRO(cls) or cls.__mro__ or ()


def _meet(value: Any, depth: int = 0) -> None:
    kind = type(value)
    action = _ACTIONS.get(id(kind))
    if action is None:
        _look_through(kind)
        bases = _bases(kind)
        for base in bases:
            action = _HOLDERS.get(base) if type(base) is type else None
            if action is not None:
                _ACTIONS[id(kind)] = action
                break
        else:
            if bases:
                KNOWN.add(id(kind))
            return
    action(value, depth)


def _look_through(cls: type, depth: int = 0) -> None:
    """Give the functions that ``cls`` and its bases define their entries."""
    for base in _bases(cls):
        if id(base) not in SEEN:
            heap = _FLAGS(base) & _HEAP_TYPE
            SEEN[id(base)] = _Reference(base, _forget_class) if heap else None
            if heap:
                for value in list(_NAMESPACE(base).values()):
                    _meet_attribute(value)
    if type(cls) is not type:
        _look_through(type(cls))


def _meet_attribute(value: Any) -> None:
    kind = type(value)
    if kind is FunctionType:
        give_entry(value)
    elif id(kind) not in KNOWN:
        bases = _bases(kind)
        if any(base is type for base in bases):
            return  # C code that calls a class has met it
        if any(name in _NAMESPACE(base) for base in bases for name in _BINDS):
            _meet(value)


_BINDS = ("__get__", "__set__", "__delete__", "__set_name__")


def give_entry(function: FunctionType, depth: int = 0) -> None:
    """Let C code that calls ``function`` enter the interpreter."""
    code = function.__code__
    if id(code) in ENTRIES or id(code) in NATIVE_CODES or code.co_flags & _PLAIN != _PLAIN:
        return
    name = dict.get(function.__globals__, "__name__")
    if type(name) is str and name.startswith("refcompiler."):
        return
    entry = _entry_of(code)
    with _LOCK:
        _FUNCTIONS[id(function)] = _Reference(function, _forget_function), entry
        function.__code__ = entry.driver


def _entry_of(code: CodeType) -> Entry:
    found = _MADE.get(id(code))
    if found is None:
        if len(_MADE) >= _ROOM[0]:
            forget_unused()
            _ROOM[0] = max(_ROOM[0], 2 * len(_MADE))
        found = _MADE[id(code)] = Entry(code)
        ENTRIES[id(found.driver)] = code
    return found


#: The entries by the ids of the codes that they stand for, and how many may be kept.
_MADE: dict[int, Entry] = {}
_ROOM = [1024]
_references = sys.getrefcount


def forget_unused() -> None:
    """Drop the entries that no function has and that are not being run."""
    for entry in list(_MADE.values()):
        if _references(entry.driver) <= _UNUSED:
            _forget_entry(entry)


def _forget_entry(entry: Entry) -> None:
    del _MADE[id(entry.code)]
    del ENTRIES[id(entry.driver)]
    READY.pop(id(entry.driver), None)
    entry.driver = entry.code  # which held the entry


FORGETTING.append(forget_unused)


def _unused() -> int:
    entry = Entry(_sample.__code__)
    return _references(entry.driver)


_UNUSED = _unused()
_HELD = 2  # references to a code that has an entry: there, and in ENTRIES


class _Reference(ref):
    __slots__ = ("key",)

    def __init__(self, value: Any, gone: Any):
        self.key = id(value)


def _forget_class(reference: Any) -> None:
    key = reference.key
    if SEEN.get(key) is reference:
        del SEEN[key]
        KNOWN.discard(key)
        _ACTIONS.pop(key, None)


def _forget_function(reference: Any) -> None:
    found = _FUNCTIONS.get(reference.key)
    if found is not None and found[0] is reference:
        del _FUNCTIONS[reference.key]
        entry = found[1]
        program = READY.get(id(entry.code))
        if _references(entry.driver) > _UNUSED + 1:  # another function has it, or it runs
            return
        if forget_if_dead(program, _HELD) if program else _references(entry.code) == _HELD + 1:
            _forget_entry(entry)  # the code is gone when the function is


# ---- objects that lead to functions ----------------------------------------------------------


#: So deep are such objects followed that were made outside of the interpreter, and hold others.
_DEPTH = 4


def _meet_all(values: Iterable[Any], depth: int) -> None:
    if depth < _DEPTH:
        for value in values:
            if id(type(value)) not in KNOWN:
                _meet(value, depth + 1)


def _parts(value: Any, depth: int) -> None:
    _meet_all(get_referents(value), depth)


def _module(module: Any, depth: int) -> None:
    """C code calls the module's own ``__getattr__``."""
    found = _MODULE_DICT(module)
    if found is not None and "__getattr__" in found:
        _meet_all((found["__getattr__"],), depth)


def _factory(value: Any, depth: int) -> None:
    _meet_all((_DEFAULT(value),), depth)


_MODULE_DICT: Any = vars(ModuleType)["__dict__"].__get__


_DEFAULT: Any = defaultdict.__dict__["default_factory"].__get__
_CACHE: Any = type(functools.lru_cache(_sample))

#: By type: what is done with an instance. The rest of C's types hold nothing that they call, or
#: got it as an argument.
_HOLDERS: dict[type, Callable[[Any, int], None]] = {
    type: _look_through,
    FunctionType: give_entry,
    ModuleType: _module,
    defaultdict: _factory,
    **dict.fromkeys((MethodType, BuiltinFunctionType, MethodWrapperType), _parts),
    **dict.fromkeys((property, staticmethod, classmethod, functools.partial, _CACHE), _parts),
    **dict.fromkeys((map, filter, zip, enumerate, reversed, type(iter(int, 1))), _parts),
    **{kind: _parts for kind in vars(itertools).values() if isinstance(kind, type)},
}


# ---- beginning and end -----------------------------------------------------------------------


def begin(machine: Any) -> Any:
    """``machine`` runs in this thread from now on; what did so before, for :func:`end`."""
    thread = get_ident()
    before = CURRENT.get(thread)
    if machine is not None and machine.enters:
        CURRENT[thread] = machine
    elif before is not None:
        del CURRENT[thread]
    return before


def end(before: Any) -> None:
    if before is not None:
        CURRENT[get_ident()] = before
        return
    CURRENT.pop(get_ident(), None)
    if _FUNCTIONS and not CURRENT:
        _give_back()


def _give_back() -> None:
    """The functions have their own code again."""
    with _LOCK:
        for reference, entry in list(_FUNCTIONS.values()):
            function = reference()
            if function is not None and function.__code__ is entry.driver:
                function.__code__ = entry.code
        _FUNCTIONS.clear()
        for reference in list(SEEN.values()):
            if reference is not None:
                _forget_class(reference)
