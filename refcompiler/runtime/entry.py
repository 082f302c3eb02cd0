"""Entries: wrappers with the user's own signature, so that binding arguments costs nothing."""

from __future__ import annotations

import builtins
import contextlib
import dis
import functools
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

from refcompiler.backends.registry import lookup_backend
from refcompiler.bytecode.decode import slot_names
from refcompiler.capture.machine import Symbolic
from refcompiler.capture.values import External
from refcompiler.errors import GraphBreakError, UnsupportedError
from refcompiler.guards.kinds import NAMESPACE, Ambient
from refcompiler.guards.permanence import all_last
from refcompiler.guards.sources import name_arguments
from refcompiler.interpreter.binding import ASYNCHRONOUS, GENERATOR, VARARGS, VARKEYWORDS
from refcompiler.interpreter.frame import Frame
from refcompiler.interpreter.registry import program_of, run_natively
from refcompiler.logs import log_of, wanted
from refcompiler.plan.build import MISS, Plan
from refcompiler.runtime.captures import EAGERS, STATE, FullGraphBreak
from refcompiler.runtime.drive import Driver
from refcompiler.runtime.site import (
    _LOCK,
    OVERTAKEN,
    Allowance,
    Native,
    Site,
    run_new,
)
from refcompiler.runtime.stance import CURRENT
from specs.stances import Stance

FUNCTION = "__fn"
bytecode_log = log_of("bytecode")


class Entry(Site):
    """The site of a function: all plans of one code object under one compiler."""

    def __init__(self, code: CodeType, title: str, driver: Driver, fullgraph: bool):
        self.labels = parameter_names(code)
        parameters = [FUNCTION, *map(_free_name, self.labels)]
        super().__init__(title, parameters, driver.backend, fullgraph)
        self.code = code
        self.called_code: CodeType | None = None  # of the module or object that ``code`` calls
        self.driver = driver
        self.switched_as(driver)
        self.allowances: weakref.WeakSet[Allowance] = weakref.WeakSet()
        self.twins: dict[int, Entry] = {}  # by the backend that a stance forces
        self.siblings: Callable[[], list[Entry]] = list  # of the same code, in isolated compilers
        self.common: Callable[[], Entry | None] | None = None  # of one, what is not isolated has
        self.names: list[Any] = []  # what the site knows that its plans may not name
        self.kept: set[Entry] = set()  # what keeps it
        self.serves: dict[int, weakref.ref] = {}  # functions, modules, and callables of compile

    def serve(self, owner: Any) -> None:
        """Live at least as long as ``owner``, if that can be known."""
        with contextlib.suppress(TypeError):
            known = id(owner)
            self.serves[known] = weakref.ref(owner, lambda dead: self.left(known, dead))

    def left(
        self, known: int, dead: weakref.ref, ending: Callable[[], bool] = sys.is_finalizing
    ) -> None:
        """``ending`` is an argument since the globals are gone when Python ends."""
        if self.serves.get(known) is dead:
            del self.serves[known]
            if not self.serves and not ending():
                self.release()

    def release(self) -> None:
        """Live no longer than who enters here, if others would live for this site's sake alone."""
        if not all_last(self.named()):
            self.kept.discard(self)

    def named(self) -> Iterator[Any]:
        """What lives as long as the site does."""
        yield from self.names
        if self.keep is not None:
            yield self.keep
        for site in [self, *self.driver.continuations.values()]:
            for plan in list(site.plans):
                yield from list(plan.writer.namespace.values())
                if plan.graph is not None:
                    yield from [n.target for n in plan.graph.graph.nodes if callable(n.target)]
        for twin in list(self.twins.values()):
            yield from twin.named()

    def reset(self) -> None:
        super().reset()
        self.driver.reset()
        self.twins.clear()
        if not self.serves:
            self.kept.discard(self)
        for allowance in self.allowances:
            allowance.reset()

    def allow(self) -> Allowance:
        """A limit of its own for one of the objects that share the plans."""
        made = Allowance()
        self.allowances.add(made)
        return made

    def pending(self) -> Callable:
        return self.driver

    def find(self, values: Sequence[Any]) -> Any:
        found = super().find(values)
        if found is MISS and self.common is not None and not CURRENT.together:
            common = self.common()
            if common is not None:
                return common.find(values)
        return found

    def accumulated(self) -> int:
        return sum(len(entry.plans) for entry in {self, *self.siblings()})

    def identity(self) -> tuple[list[CodeType], list[int]]:
        return ([self.code] if self.called_code is None else [self.code, self.called_code]), []

    def miss(self, allowance: Allowance | None, *given: Any) -> Any:
        """No plan was tried yet, or the first one's guards failed: ``given`` starts with the
        function. ``allowance``: whose limit counts, instead of the entry's.
        """
        tried = -1
        if not self.blocked:
            tried = self.version
            found = self.find(given)
            if found is not MISS:
                return found
        return self.miss_all(allowance, given, tried)

    def miss_all(self, allowance: Allowance | None, given: Sequence[Any], tried: int) -> Any:
        """No plan holds of those that there were at the version ``tried``."""
        function, *values = given
        overtaken = 0
        while True:
            if overtaken == OVERTAKEN:
                return call_natively(function, values)
            if STATE.capturing:
                return call_natively(function, values)
            setting = CURRENT.setting
            if not setting.plain:
                if setting.backend is not None and setting.backend is not self.backend:
                    return self.twin(setting.backend).miss(None, *given)
                if not setting.stance.enters:
                    return call_natively(function, values)
            version = self.version
            if version != tried:
                tried, found = version, self.find(given)
                if found is not MISS:
                    return found
            if setting.misses_run_eagerly or self.native is not None:
                return call_natively(function, values)
            if (
                not self.called
                and not self.plans
                and setting.stance.first in ("eager", "aot_eager")
            ):
                return self.first_call(setting.stance, function, values)
            if not Ambient.now().captures or (allowance is not None and allowance.native):
                return call_natively(function, values)
            with _LOCK:
                if self.version != version:
                    continue  # another thread was faster, perhaps with the plan that holds here
                try:
                    plan: Plan | None = self.compile(
                        given, lambda machine: self.start(machine, given), allowance
                    )
                except Native:
                    plan = None
                except FullGraphBreak as stop:
                    error = stop
                    break
            if plan is None:  # the program's code runs without the lock, and handles no error
                return call_natively(function, values)
            found = run_new(plan, self, given)
            if found is not MISS:
                return found
            overtaken += 1
        return self.refuse(function, values, error)

    def twin(self, backend: Callable) -> Entry:
        """The entry of the same code under another backend."""
        found = self.twins.get(id(backend))
        if found is None:
            driver = self.driver.under(backend)
            found = self.twins[id(backend)] = Entry(self.code, self.title, driver, self.fullgraph)
        return found

    def first_call(self, stance: Stance, function: FunctionType, values: Sequence[Any]) -> Any:
        """A call that is not compiled, but shows which sizes and numbers it had."""
        given = (function, *values)
        with _LOCK:
            self.called = True
            self.watch_only(lambda machine: self.start(machine, given))
        if stance.first == "aot_eager":
            other = self.twin(lookup_backend("aot_eager"))
            other.called = True
            return other.miss(None, *given)
        return call_natively(function, values)

    def refuse(self, function: FunctionType, values: Sequence[Any], stop: FullGraphBreak) -> Any:
        """With ``fullgraph`` a break is an error, unless eager raises an error of its own."""
        if stop.reason.row in EAGERS:
            call_natively(function, values)
        raise GraphBreakError(f"fullgraph=True, but {self.title} breaks.\n{stop.reason}")

    def start(self, machine: Symbolic, given: Sequence[Any]) -> Frame:
        function = given[0]
        if function.__code__.co_flags & (GENERATOR | ASYNCHRONOUS):
            raise UnsupportedError("a generator or coroutine suspends in the middle of a graph")
        source = machine.sources.make("arg", None, FUNCTION)
        machine.lazy(source, function)
        machine.external[id(function)] = External(function, source)
        program = program_of(function.__code__)
        machine.homes.add(id(function.__globals__))
        if function.__closure__:
            machine.adopt_cells(function, source)
        frame = machine.enter(program, function, [])
        if wanted(bytecode_log):
            text = dis.Bytecode(function.__code__).dis()
            bytecode_log.info("instructions of %s:\n%s", self.title, text)
        lazies = [
            machine.lazy(machine.sources.make("arg", None, name, label), value)
            for name, label, value in zip(self.parameters[1:], self.labels, given[1:], strict=True)
        ]
        if self.called_code is not None:
            machine.called_code = self.called_code
            called, args, kwargs = [lazy.source for lazy in lazies]
            skipped = 1
            if isinstance(given[1], functools.partial):
                skipped = len(given[1].args)
            else:
                called.label = self.called_code.co_varnames[0]
            name_arguments(args, kwargs, self.called_code, skipped)
        size = len(slot_names(function.__code__))
        blank = frame_slots(size)
        blank[: len(lazies)] = lazies
        if function.__closure__:
            blank[size - len(function.__closure__) :] = function.__closure__
        frame.fast = blank
        return frame


run_natively(Entry.miss)  # an interpreter of its own


def frame_slots(size: int) -> list[Any]:
    from refcompiler.interpreter.frame import UNSET

    return [UNSET] * size


def parameter_names(code: CodeType) -> list[str]:
    """All parameters in the order of the frame's slots: named ones, ``*args``, ``**kwargs``."""
    total = code.co_argcount + code.co_kwonlyargcount
    total += bool(code.co_flags & VARARGS) + bool(code.co_flags & VARKEYWORDS)
    return list(code.co_varnames[:total])


def _free_name(name: str) -> str:
    """What a plan calls a parameter: not what its text calls something else."""
    taken = name.startswith("__") or name in NAMESPACE or hasattr(builtins, name)
    return f"__given_{name}" if taken else name


def call_natively(function: FunctionType, values: Sequence[Any]) -> Any:
    """Call ``function`` with values in the order of :func:`parameter_names`."""
    code = function.__code__
    positional, total = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    args = list(values[:positional])
    kwargs = dict(zip(code.co_varnames[positional:total], values[positional:total], strict=True))
    rest = list(values[total:])
    if code.co_flags & VARARGS:
        args += rest.pop(0)
    if code.co_flags & VARKEYWORDS:
        kwargs.update(rest.pop(0))
    return function(*args, **kwargs)


class _Default:
    """Stands for a default of the original function, which may be replaced at any time."""

    def __repr__(self) -> str:
        return "<default>"


DEFAULT: Any = _Default()


def call_as_given(function: Callable, code: CodeType, values: Sequence[Any]) -> Any:
    """Call ``function`` with the values that were given for the parameters of ``code``."""
    total = code.co_argcount + code.co_kwonlyargcount
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for i, value in enumerate(values[:total]):
        if value is DEFAULT:
            continue
        if i < code.co_argcount and i == len(args):
            args.append(value)
        else:
            kwargs[code.co_varnames[i]] = value
    rest = list(values[total:])
    if code.co_flags & VARARGS:
        args += rest.pop(0)
    if code.co_flags & VARKEYWORDS:
        kwargs.update(rest.pop(0))
    return function(*args, **kwargs)


def signature_text(code: CodeType, defaults: int, kwdefaults: dict[str, Any]) -> str:
    """The parameter list of a wrapper; default values are filled in later."""
    names = code.co_varnames
    parts = []
    for i in range(code.co_argcount):
        parts.append(names[i] + ("=None" if i >= code.co_argcount - defaults else ""))
        if i + 1 == code.co_posonlyargcount:
            parts.append("/")
    total = code.co_argcount + code.co_kwonlyargcount
    if code.co_flags & VARARGS:
        parts.append("*" + names[total])
    elif code.co_kwonlyargcount:
        parts.append("*")
    for name in names[code.co_argcount : total]:
        parts.append(name + ("=None" if name in kwdefaults else ""))
    if code.co_flags & VARKEYWORDS:
        parts.append("**" + names[total + bool(code.co_flags & VARARGS)])
    return ", ".join(parts)


def wrap(
    function: Any,
    entry: Entry,
    again: Callable | None = None,
    allowance: Allowance | None = None,
) -> Callable:
    """A function with the signature of ``function`` that enters compiled code.

    The defaults are read from ``function`` when they are needed, since it may get others;
    ``again(function)`` compiles it once more when it has got another code. ``allowance`` is the
    limit of what it compiles, where that is not the entry's.
    """
    code = function.__code__
    names = parameter_names(code)
    defaults, kwdefaults = function.__defaults__ or (), function.__kwdefaults__ or {}
    signature = signature_text(code, len(defaults), kwdefaults)
    given, values = ", ".join(names), ", ".join(["__fn", *names])
    lines = []
    if again is not None:
        lines += ["if __fn.__code__ is not __code:", f"    return __changed({given})"]
    if defaults or kwdefaults:
        lines.append("try:")
        for i in range(-len(defaults), 0):
            name = names[code.co_argcount + i]
            lines += [f"    if {name} is __DEFAULT:", f"        {name} = __fn.__defaults__[{i}]"]
        for name in kwdefaults:
            lines.append(f"    if {name} is __DEFAULT:")
            lines.append(f"        {name} = __fn.__kwdefaults__[{name!r}]")
        lines += ["except (TypeError, LookupError):", f"    return __changed({given})"]
    lines += [
        f"__found = __entries[0]({values})",
        "if __found is not __MISS:",
        "    return __found",
        f"return __miss(__allowance, {values})",
    ]
    name = _identifier(function.__name__)
    text = f"def {name}({signature}):\n" + "".join([f"    {line}\n" for line in lines])
    compiled: dict[CodeType, Callable] = {}

    def changed(*values: Any) -> Any:
        """The function has lost defaults, which is the caller's error, or got another code."""
        new = function.__code__
        if new is code or again is None:
            return call_as_given(function, code, values)
        if new not in compiled:
            compiled[new] = again(function)
        return call_as_given(compiled[new], code, values)

    namespace: dict[str, Any] = {
        "__entries": entry.entries,
        "__MISS": MISS,
        "__DEFAULT": DEFAULT,
        "__miss": entry.miss,
        "__allowance": allowance,
        "__fn": function,
        "__code": code,
        "__changed": changed,
    }
    exec(compile(text, f"<refcompiler entry of {function.__qualname__}>", "exec"), namespace)
    made = namespace[name]
    made.__defaults__ = (DEFAULT,) * len(defaults) or None
    made.__kwdefaults__ = dict.fromkeys(kwdefaults, DEFAULT) or None
    functools.update_wrapper(made, function)
    # What torch.compile takes in its place, where it is called and where it is given.
    made._torchdynamo_inline = made._torchdynamo_orig_callable = function
    made._torchdynamo_wrapper_id = id(made)
    made.__refcompiler_original__ = function
    entry.serve(made)
    return made


def _identifier(name: str) -> str:
    return name if name.isidentifier() else "compiled"


__all__ = ["Entry", "call_natively", "wrap"]
