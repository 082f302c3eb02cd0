"""Programs compiled ahead of time, and the packages that keep them: the public functions."""

from __future__ import annotations

import functools
import io
import os
import platform
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch

from refcompiler.cache import identity
from refcompiler.errors import (
    GraphBreakError,
    InternalError,
    PackageError,
    RecompileError,
    UnsupportedError,
)
from refcompiler.guards.kinds import Guard
from refcompiler.guards.permanence import is_of_library
from refcompiler.interpreter.registry import original_of
from refcompiler.package.format import decoded, encoded, write
from refcompiler.package.names import digest_of, found_in, place_of
from refcompiler.package.plans import pack_plan, unpack_plan
from refcompiler.package.rows import HERE, Packer, Refused, Unpacker
from refcompiler.package.text import run
from refcompiler.plan.build import MISS, Plan
from refcompiler.runtime.captures import STATE, FullGraphBreak
from refcompiler.runtime.entry import (
    FUNCTION,
    Entry,
    parameter_names,
    signature_text,
)
from refcompiler.runtime.failing import failure
from refcompiler.runtime.module import call_module
from refcompiler.runtime.site import _LOCK, Allowance, run_new
from specs.version import VERSION

_ON_ERROR = re.compile(r"return __c\d+_(OnError|Raises)\(")
#: What every package requires of the process that loads it: see :data:`HERE`.
_EVERY = {
    "refcompiler": lambda: VERSION,
    "the source of refcompiler": lambda: identity.source_of("refcompiler", "specs"),
    "Python": lambda: (
        f"{platform.python_implementation()} {sys.version_info[0]}.{sys.version_info[1]}"
    ),
    "torch": lambda: str(torch.__version__),
    "the machine": lambda: f"{platform.machine()} {platform.system()}",
}
HERE.update(_EVERY)


class Program:
    """What a plan is called by: the function's name, place, parameters and defaults.

    ``function``: the first thing that the plan takes; None where it is not there and not needed.
    """

    def __init__(
        self,
        title: str,
        place: str,
        names: Sequence[str],
        signature: str,
        defaults: tuple[Any, ...],
        keywords: dict[str, Any],
        function: Any,
    ):
        self.title, self.place, self.names, self.signature = title, place, names, signature
        self.defaults, self.keywords, self.function = defaults, keywords, function

    @staticmethod
    def of(function: FunctionType, title: str) -> Program:
        code = function.__code__
        defaults, keywords = function.__defaults__ or (), function.__kwdefaults__ or {}
        signature = signature_text(code, len(defaults), keywords)
        place = f" ({code.co_filename}:{code.co_firstlineno})"
        return Program(
            title, place, parameter_names(code), signature, defaults, dict(keywords), function
        )

    def caller(self, entries: list[Callable], miss: Callable) -> Callable[..., Any]:
        """A function with the program's parameters that calls ``entries[0]``, or else ``miss``."""
        given = ", ".join([FUNCTION, *self.names])
        text = (
            f"def call({self.signature}):\n"
            f"    __found = __entries[0]({given})\n"
            f"    return __found if __found is not __MISS else __miss({given})\n"
        )
        known = {"__entries": entries, "__MISS": MISS, "__miss": miss, FUNCTION: self.function}
        made: FunctionType = run(text, known, self.title, "call")["call"]
        made.__defaults__ = self.defaults or None
        made.__kwdefaults__ = self.keywords or None
        return made


class AOTCompiledFunction:
    """A program compiled ahead of time for the calls that its guards allow, or loaded as such.

    It takes what the program takes; one made of a module, a method or another callable object
    takes that first. ``guards`` are what has to hold of a call, ``source`` is the Python that
    checks them, calls the graph and gives what eager gives, ``graph`` the ``torch.fx.GraphModule``.
    A call for which a guard does not hold is a :class:`~refcompiler.errors.RecompileError` that
    names it: nothing is captured or compiled.
    """

    def __init__(self, program: Program, plan: Plan, graph: Callable[[], Any], run: Callable):
        self._program, self._plan, self._graph = program, plan, graph
        self._entries = [run]
        self._call = program.caller(self._entries, self._miss)
        self._checked = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self._program.title}, compiled ahead of time: {len(self.guards)} guards>"

    def __reduce__(self) -> Any:
        raise UnsupportedError("it is not pickled: save_compiled_function makes a file of it")

    @property
    def guards(self) -> list[Guard]:
        return list(self._plan.guards)

    @property
    def source(self) -> str:
        return self._plan.source

    @property
    def graph(self) -> torch.fx.GraphModule | None:
        """None where the program has no tensor operations."""
        found: torch.fx.GraphModule | None = self._graph()
        return found

    def guard_check(self, *args: Any, **kwargs: Any) -> bool:
        """Whether the guards hold for a call, which is not made."""
        return self.explain(*args, **kwargs) is None

    def explain(self, *args: Any, **kwargs: Any) -> str | None:
        """The first guard that does not hold for a call, in words; None when all hold."""
        given: list[Any] = []

        def take(*values: Any) -> Any:
            given[:] = values

        self._program.caller([take], take)(*args, **kwargs)
        return self._failure(given)

    def _failure(self, values: Sequence[Any]) -> str | None:
        return failure(self._plan, dict(zip(self._plan.parameters, values, strict=True)))

    def _miss(self, *values: Any) -> Any:
        why = self._failure(values) or "what the guards read was changed meanwhile"
        raise RecompileError(
            f"{self._program.title} was compiled ahead of time, and not for this call; the guard "
            f"that failed: {why}"
        )

    def disable_guard_check(self) -> None:
        """From now on no guard is asked: wrong answers, or worse, where one would have failed."""
        self._entries[:] = [self._plan.checking(())]

    def save_compiled_function(
        self, path: str | os.PathLike[str], external_data: Mapping[str, Any] | None = None
    ) -> None:
        """Write a package to ``path``, all of it or nothing: see :func:`load_compiled_function`.

        ``external_data``: objects by names of your choice, which are not kept but given again when
        the package is loaded. Parameters and buffers of a module need not be among them: a loaded
        program takes the module.

        Errors: :class:`UnsupportedError` that names what cannot be packaged, and the user's line;
        ``OSError`` where the file cannot be written.
        """
        write(path, self.serialize(external_data))

    def serialize(self, external_data: Mapping[str, Any] | None = None) -> bytes:
        """The bytes of a package. Errors: as for :meth:`save_compiled_function`."""
        p, program = Packer(external_data), self._program
        for label in _EVERY:
            p.require(label)
        self._plan.graph = self.graph
        plan = pack_plan(p, self._plan, program.place)
        try:
            defaults = [p.pack(program.defaults), p.pack(program.keywords)]
            function = self._function(p)
        except Refused as error:
            why = f"{program.title} cannot be packaged: it has {error}{program.place}"
            raise UnsupportedError(why) from None
        head = {
            "requires": p.required,
            "program": [program.title, program.place, [*program.names], program.signature],
            "defaults": defaults,
            "function": function,
            "plan": plan,
            "rows": p.rows,
        }
        data = encoded(head, p.blobs)
        try:  # what is written can be read
            load_compiled_function(io.BytesIO(data), external_data=external_data)
        except PackageError as error:
            why = f"{program.title} cannot be packaged: {error}{program.place}"
            raise UnsupportedError(why) from error
        return data

    def _function(self, p: Packer) -> list[Any]:
        """How the program's function is found, the digest of its code, and whether it is needed."""
        function = self._program.function
        needed = self._reads_function()
        code = getattr(function, "__code__", None)
        digest = ""
        if isinstance(code, CodeType) and not is_of_library(function.__module__):
            digest = digest_of(code)
        if p.is_external(function):
            return ["external", p.pack(function), digest, needed]
        place = place_of(function) if function is not None else None
        if place is None and needed:
            raise Refused(
                "a function that no module has under its name, and reads its variables: "
                "give it in external_data, here and when it is loaded"
            )
        return ["named", place, digest, needed]

    def _reads_function(self) -> bool:
        found: list[Any] = list(self._plan.entry.needed)
        for guard in self._plan.guards:
            found.append(guard.source)
            guard.wanted(found.append)
        for source in found:
            while source is not None:
                if source.kind == "arg" and source.key == FUNCTION:
                    return True
                source = source.parent
        # What an error of the graph is answered with is given all arguments, and asks for none.
        asking = [line for line in self._plan.body if not _ON_ERROR.search(line)]
        return any(FUNCTION in line for line in asking)


# ---- making --------------------------------------------------------------------------------------


class _Once(Entry):
    """A site that captures its first call, which is not made."""

    made: Plan | None = None
    first: Sequence[Any] = ()

    def stored(self, values: Sequence[Any]) -> None:
        """What is saved is captured: an entry of the cache lacks a part of it."""

    def miss(self, allowance: Allowance | None, *given: Any) -> Any:
        if STATE.capturing:
            raise UnsupportedError("aot_compile: something is being captured already")
        self.first = given
        with _LOCK:
            try:
                self.made = self.compile(given, lambda machine: self.start(machine, given))
                return None
            except FullGraphBreak as stop:
                error = stop
        raise GraphBreakError(f"aot_compile: {self.title} is more than one graph.\n{error.reason}")


def aot_compile(model: Any, compiler: Any, example_inputs: Any) -> AOTCompiledFunction:
    """``compiled.aot_compile(((args), {kwargs}))``: see :class:`AOTCompiledFunction`.

    ``model``: what ``compile`` was given; ``compiler``: what that compiles with. The call is
    captured, and not made.
    """
    match example_inputs:
        case (args, kwargs) if isinstance(args, (tuple, list)) and isinstance(kwargs, Mapping):
            pass
        case _:
            raise TypeError(
                "aot_compile: takes a pair of a tuple of arguments and a dict of named ones, "
                "((x, y), {}), of a call"
            )
    function, first, title = _entered(model)
    driver = compiler.driver
    entry = _Once(function.__code__, compiler.name or title, driver.under(driver.backend), True)
    caller = Program.of(function, entry.title).caller(
        [lambda *given: MISS], functools.partial(entry.miss, None)
    )
    caller(*first, *args, **kwargs)
    plan = entry.made
    if plan is None:
        raise InternalError(f"aot_compile has captured nothing of {entry.title}")
    program = Program.of(function, entry.title)
    compiled = AOTCompiledFunction(program, plan, lambda: plan.graph, plan.run)

    def first_run(*values: Any) -> Any:
        """What the backend made is looked at once."""
        if compiled._failure(values) is not None:
            return MISS
        found = run_new(plan, entry, values)
        if compiled._entries == [first_run]:
            compiled._entries[:] = [plan.run]
        return found

    compiled._entries[:] = [first_run]
    return compiled


def packaged(model: Any, plan: Plan, graph: Any) -> AOTCompiledFunction:
    """A plan that is there for ``model``, what ``compile`` would be given."""
    function, _, title = _entered(model)
    return AOTCompiledFunction(Program.of(function, title), plan, lambda: graph, plan.run)


def _entered(model: Any) -> tuple[FunctionType, tuple[Any, ...], str]:
    """The function whose code is captured, what it takes first, and how it is called."""
    if isinstance(model, torch.nn.Module):
        return call_module, (model,), f"{type(model).__qualname__}.__call__"  # type: ignore[return-value]
    if isinstance(model, MethodType) and isinstance(model.__func__, FunctionType):
        return model.__func__, (model.__self__,), model.__func__.__qualname__
    if isinstance(model, FunctionType):
        return original_of(model) or model, (), model.__qualname__
    return call_module, (model,), f"{type(model).__qualname__}.__call__"  # type: ignore[return-value]


# ---- loading -------------------------------------------------------------------------------------


def load_compiled_function(
    file: io.IOBase | Any,
    *,
    f_globals: dict[str, Any] | None = None,
    external_data: Mapping[str, Any] | None = None,
) -> AOTCompiledFunction:
    """What :meth:`AOTCompiledFunction.save_compiled_function` has written, in another process.

    As ``torch.compiler.load_compiled_function``. ``file``: opened for reading bytes. Nothing is
    captured or compiled, now or later, and nothing is unpickled; but a package may carry machine
    code: load what you trust. ``f_globals``: what stands for the globals of the function's module,
    where that is not loaded under its name. ``external_data``: as it was given for saving.

    Errors: :class:`~refcompiler.errors.PackageError` for a file that is none, is damaged or cut
    off, or was made for other versions, another processor, or code that has changed since;
    ``TypeError`` for what is no file.
    """
    read = getattr(file, "read", None)
    data = read() if callable(read) else None
    if not isinstance(data, bytes):
        raise TypeError("load_compiled_function: takes a file that is open for reading bytes")
    title = os.path.basename(str(getattr(file, "name", "") or "the package"))
    head, blobs = decoded(data, title)
    try:
        return _loaded(head, blobs, title, f_globals, external_data)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise PackageError(f"{title} is malformed: {why}") from error


def _loaded(
    head: dict[str, Any],
    blobs: Sequence[memoryview],
    title: str,
    f_globals: dict[str, Any] | None,
    external_data: Mapping[str, Any] | None,
) -> AOTCompiledFunction:
    required = head["requires"]
    for label in _EVERY:
        _check(title, label, required[label])
    name, place, names, signature = head["program"]
    how, where, digest, needed = head["function"]
    spaces = {where[0]: f_globals} if how == "named" and where and f_globals is not None else {}
    u = Unpacker(head["rows"], blobs, title, spaces, external_data)
    function = _function(u, how, where, digest, needed)
    plan = unpack_plan(u, *head["plan"])
    for label in required:  # what backends have added is known by now
        _check(title, label, required[label])
    defaults, keywords = map(u.value, head["defaults"])
    program = Program(name, place, names, signature, defaults, keywords, function)
    graph = u.later(head["plan"][4])
    return AOTCompiledFunction(program, plan, graph, plan.run)


def _check(title: str, label: str, wanted: str) -> None:
    have = HERE[label]() if label in HERE else "not here"
    if have != wanted:
        if len(wanted) == 64:  # a digest, which tells nobody anything
            raise PackageError(f"{title} was made with another version of {label}: make it anew")
        raise PackageError(
            f"{title} was made with {label} {wanted}, and this is {have}: make it anew"
        )


def _function(u: Unpacker, how: str, where: Any, digest: str, needed: bool) -> Any:
    if how == "external":
        found = u.value(where)
        if digest and digest_of(found.__code__) != digest:
            raise PackageError(f"{u.title} was made for another function: its code has changed")
        return found
    if where is None:
        return None
    module, steps = where
    space = u.spaces.get(module)
    if space is not None and steps and steps[0] not in space and not needed:
        return None
    return found_in(u, module, steps, digest)
