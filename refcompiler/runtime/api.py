"""The surface: ``compile`` and what belongs to it."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

import refcompiler
from refcompiler.backends.registry import TRACES, check_settings, get_ready, lookup_backend
from refcompiler.capture.marking.marked import DISABLED, innermost
from refcompiler.capture.models.registry import model as _model
from refcompiler.capture.models.registry import transforms
from refcompiler.capture.signals import Break, Prepare
from refcompiler.errors import UnsupportedError
from refcompiler.guards.permanence import lasts
from refcompiler.importing import importing
from refcompiler.logs import from_environment
from refcompiler.runtime import counters, torch_reset
from refcompiler.runtime.module import call_module, wrap_module
from refcompiler.runtime.trace import NOTHING, Asked

if TYPE_CHECKING:  # they are loaded by the first :class:`Compiler`, beside what its backend starts
    from refcompiler.runtime.entry import Entry

_DEFAULT: list[str | Callable] = ["fastpath"]


def set_default_backend(backend: str | Callable | None) -> None:
    """What :func:`compile` uses from now on where no backend is given; None: ``"fastpath"``.

    What was compiled before stays as it is. Errors: as for the backend of :func:`compile`.
    """
    if backend is not None:
        lookup_backend(backend)
    _DEFAULT[0] = "fastpath" if backend is None else backend


def get_default_backend() -> str | Callable:
    """The name or the callable that :func:`compile` uses where no backend is given."""
    return _DEFAULT[0]


_ROOM = 64  # sites that are kept before those that nothing else needs are looked for


class Compiler:
    """Everything compiled under one backend and the same switches: a site per code object.

    A site is ``kept`` for the next function that fits it, unless it names what would live for its
    sake alone: then it goes with the last callable, and the last function, that it serves.
    """

    def __init__(
        self,
        backend: Callable,
        fullgraph: bool,
        watch: Callable | None = None,
        dynamic: bool | None = None,
        limit: int | None = None,
        keep_guards: Callable | None = None,
        name: str | None = None,
        traced: Asked = NOTHING,
    ):
        self.backend = backend
        self.name = name  # what the user calls it
        self.fullgraph = fullgraph
        get_ready(backend, at_first=True)
        with importing():
            from refcompiler.runtime import entry
            from refcompiler.runtime.drive import Driver
        self.entering = entry
        self.driver = Driver(backend, self.function, watch, dynamic, traced, limit, keep_guards)
        self.entries: weakref.WeakValueDictionary[Any, Entry] = weakref.WeakValueDictionary()
        self.kept: set[Entry] = set()
        self.room = _ROOM

    def entry(self, code: CodeType, key: Any, title: str) -> Entry:
        found = self.entries.get(key)
        if found is None:
            title = self.name or title
            driver = self.driver.under(self.backend)
            found = self.entries[key] = self.entering.Entry(code, title, driver, self.fullgraph)
            found.names.append(key)
            found.kept = self.kept
            if self in _ISOLATED:
                found.siblings = functools.partial(_isolated, key)
                found.common = functools.partial(_common, _ISOLATED[self], key)
            if len(self.kept) >= self.room:  # what lasted may have gone since
                for other in [entry for entry in self.kept if not entry.serves]:
                    other.release()
                self.room = max(_ROOM, 2 * len(self.kept))
        self.kept.add(found)
        return found

    def reset(self) -> None:
        for entry in list(self.entries.values()):
            entry.reset()

    def function(self, function: FunctionType) -> Callable:
        code = function.__code__
        entry = self.entry(code, (code, id(function.__globals__)), function.__qualname__)
        entry.keep = function.__globals__  # its id is part of the key
        if lasts(entry.keep):  # or else the site would keep the function for which it is kept
            entry.serve(function)
        return self.entering.wrap(function, entry, self.function)

    def callable(self, model: Any) -> Callable:
        """An object that is called through its class, or a partial."""
        kind = type(model)
        inner = getattr(getattr(model, "func", None), "__code__", None)
        entry = self.entry(
            call_module.__code__, ("object", kind, inner), f"{kind.__qualname__}.__call__"
        )
        entry.called_code = inner or getattr(kind.__call__, "__code__", None)
        entry.serve(model)
        return MethodType(self.entering.wrap(call_module, entry), model)

    def module(self, module: torch.nn.Module, remake: Callable) -> Any:
        forward = getattr(type(module).forward, "__code__", None) or type(module)
        title = f"{type(module).__qualname__}.__call__"
        entry = self.entry(call_module.__code__, ("module", forward), title)
        entry.called_code = forward if isinstance(forward, CodeType) else None
        entry.serve(module)
        own = self.entering.wrap(call_module, entry, allowance=entry.allow())
        return wrap_module(module, _ahead(own, module, self), remake)


_COMPILERS: dict[tuple, tuple[Any, Compiler]] = {}
#: Those of isolated calls, and what was said to them.
_ISOLATED: weakref.WeakKeyDictionary[Compiler, tuple] = weakref.WeakKeyDictionary()


def _isolated(key: Any) -> list[Entry]:
    """What isolated calls of ``compile`` have for one code: all of it counts for one limit."""
    found = [compiler.entries.get(key) for compiler in list(_ISOLATED)]
    return [entry for entry in found if entry is not None]


def _common(said: tuple, key: Any) -> Entry | None:
    """What calls of ``compile`` that said the same, but are not isolated, have for one code."""
    known = _COMPILERS.get(said)
    return None if known is None else known[1].entries.get(key)


def _compiler(
    backend: Any,
    fullgraph: bool,
    dynamic: bool | None,
    mode: str | None,
    options: Mapping[str, Any],
    limit: int | None,
    isolated: bool,
    name: str | None,
) -> Compiler:
    """The compiler of everything that was said in the same way, or one of its own."""
    found = lookup_backend(backend)
    left = dict(options)
    keep_guards = left.pop("guard_filter_fn", None)
    if keep_guards is not None and not callable(keep_guards):
        raise TypeError(f"compile: guard_filter_fn takes a function, not {keep_guards!r}")
    traced = Asked.of(left)
    if traced.enabled and getattr(found, TRACES, False):
        left["trace.enabled"] = True
    if mode == "default":
        mode = None
    check_settings(found, mode, left)
    given: dict[str, Any] = {}
    if left:
        given["options"] = left
    if mode is not None:
        given["mode"] = mode
    # Equal options that are no plain values are told apart, which costs compilations only.
    said = tuple(sorted((name, repr(value)) for name, value in left.items()))
    key = (id(found), fullgraph, dynamic, mode, said, id(keep_guards), limit, name, traced)
    known = None if isolated else _COMPILERS.get(key)
    if known is None:
        chosen: Any = found
        if given:
            chosen = functools.update_wrapper(functools.partial(found, **given), found)
        made = Compiler(chosen, fullgraph, None, dynamic, limit, keep_guards, name, traced)
        known = (found, made)
        if isolated:
            _ISOLATED[made] = key
        else:
            _COMPILERS[key] = known
    return known[1]


def compile(
    model: Any = None,
    *,
    backend: str | Callable | None = None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
    name: str | None = None,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
) -> Any:
    """Compile a function, a method, an ``nn.Module`` or a callable object.

    As ``torch.compile``: each call runs compiled code whose guards hold for it, or is captured
    and compiled anew. Usable as a call, as ``@compile`` and as ``@compile(...)``.

    ``backend``: a name (see :func:`list_backends`) or a callable
    ``(torch.fx.GraphModule, list of example tensors) -> callable``; default
    :func:`get_default_backend`.
    ``fullgraph``: a graph break is an error that names the user's line, the reason and a hint.
    ``dynamic``: True makes the sizes of tensors and the numbers that a call is given symbols from
    the start (0 and 1 stay constants), False never; None makes those symbols that differ at a
    later compilation (``config.automatic_dynamic_shapes``). Marks on tensors count in each case.
    ``mode`` and ``options``: given to the backend as keywords of these names, if they say anything;
    ``options["guard_filter_fn"]``, ``options["trace.enabled"]`` and
    ``options["trace.graph_diagram"]`` are the front end's: see :mod:`refcompiler.guards.filters`
    and :mod:`refcompiler.runtime.trace`.
    ``disable``: give back ``model`` as it is.
    ``name``: what to call it in logs, warnings and counters, instead of its qualified name.
    ``recompile_limit``: instead of ``config.recompile_limit``.
    ``isolate_recompiles``: compile for no other calls of ``compile``, and share no limit with them
    but ``config.accumulated_recompile_limit``, which counts what all isolated ones have of one
    code. What calls that are not isolated, and said the same, have compiled is used.

    Errors: ``TypeError`` for what cannot be called or has another type, and for options that the
    backend does not take; ``ValueError`` for values and modes that it has not;
    :class:`UnsupportedError` for an unknown backend or an unsupported Python or torch.
    """
    if dynamic is not None and not isinstance(dynamic, bool):
        raise TypeError(f"compile: dynamic takes True, False or None, not {dynamic!r}")
    _check_types(fullgraph, disable, isolate_recompiles, mode, options, name, recompile_limit)
    chosen = get_default_backend() if backend is None else backend
    again = functools.partial(
        compile,
        backend=chosen,
        fullgraph=fullgraph,
        dynamic=dynamic,
        mode=mode,
        options=options,
        name=name,
        recompile_limit=recompile_limit,
        isolate_recompiles=isolate_recompiles,
    )
    if model is None:
        return functools.partial(again, disable=disable)
    if inspect.isclass(model):
        raise TypeError(
            f"compile: {model.__qualname__} is a class; compile an instance, or its methods"
        )
    if not callable(model):
        raise TypeError(
            f"compile: expected a function, method, nn.Module or callable, not "
            f"{type(model).__name__}"
        )
    if disable or (isinstance(model, FunctionType) and model.__dict__.get(DISABLED)):
        return model
    compiler = _compiler(
        chosen,
        fullgraph,
        dynamic,
        mode,
        options or {},
        recompile_limit,
        isolate_recompiles,
        name,
    )
    return wrapped(model, compiler, again)


def _check_types(
    fullgraph: Any,
    disable: Any,
    isolated: Any,
    mode: Any,
    options: Any,
    name: Any,
    limit: Any,
) -> None:
    for argument, value in (
        ("fullgraph", fullgraph), ("disable", disable), ("isolate_recompiles", isolated)
    ):  # fmt: skip
        if not isinstance(value, bool):
            raise TypeError(f"compile: {argument} takes True or False, not {value!r}")
    for argument, value in (("mode", mode), ("name", name)):
        if value is not None and not isinstance(value, str):
            raise TypeError(f"compile: {argument} takes a str, not {value!r}")
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"compile: options takes a dict, not {type(options).__name__}")
    for option in options or ():
        if not isinstance(option, str):
            raise TypeError(f"compile: options are named by a str, not by {option!r}")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise TypeError(f"compile: recompile_limit takes a positive int, not {limit!r}")


def wrapped(model: Any, compiler: Compiler, remake: Callable) -> Any:
    """``model``, a callable, entering code that ``compiler`` compiles.

    What was compiled before, by torch or here, is compiled anew and not called. A traced module is
    given back, and one of TorchScript refused, as torch does.
    """
    model = innermost(model)
    if isinstance(model, torch.jit.TopLevelTracedModule):  # as under torch.compile
        why = f"{type(model).__name__}: a module of torch.jit.trace runs as it is"
        counters.count("fallbacks", why)
        return model
    if isinstance(model, torch.jit.ScriptModule):
        raise UnsupportedError("compile: a ScriptModule is compiled already; pass the module")
    if isinstance(model, torch.nn.Module):
        original = getattr(type(model), "__refcompiler_class__", None)
        if original is not None:
            model = model._orig_mod
        return compiler.module(model, remake)
    if isinstance(model, MethodType) and isinstance(model.__func__, FunctionType):
        function: Any = innermost(model.__func__)
        function = function if isinstance(function, FunctionType) else model.__func__
        model = MethodType(function, model.__self__)
        return _ahead(MethodType(compiler.function(function), model.__self__), model, compiler)
    if isinstance(model, FunctionType):
        if transforms(model):
            model = _python_caller(model)
    elif isinstance(model, functools.partial):
        return _ahead(compiler.callable(model), model, compiler)
    elif isinstance(vars_of_class(model).get("__call__"), FunctionType):
        return _ahead(compiler.callable(model), model, compiler)
    else:
        model = _python_caller(model)
    return _ahead(compiler.function(model), model, compiler)


def _ahead(entering: Any, model: Any, compiler: Compiler) -> Any:
    """``entering`` with its method ``aot_compile``."""

    def aot_compile(example_inputs: Any) -> Any:
        """One call as a program that can be saved: see :mod:`refcompiler.runtime.package`."""
        from refcompiler.runtime import package

        return package.aot_compile(model, compiler, example_inputs)

    getattr(entering, "__func__", entering).aot_compile = aot_compile
    return entering


def vars_of_class(value: Any) -> dict[str, Any]:
    """The attributes that the class of ``value`` has, inherited ones included."""
    found: dict[str, Any] = {}
    for base in reversed(type(value).__mro__):
        found.update(base.__dict__)
    return found


def _python_caller(function: Any) -> FunctionType:
    """A Python function that calls a function written in C, or one that torch has transformed.

    Its code is another one for each, so that they share no plans, and no limit.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    assert isinstance(call, FunctionType)
    call.__name__ = getattr(function, "__name__", "call")
    call.__qualname__ = getattr(function, "__qualname__", call.__name__)
    call.__doc__ = getattr(function, "__doc__", None)
    code = call.__code__
    call.__code__ = code.replace(co_consts=(*code.co_consts, _told(function)))
    return call


def _told(function: Any) -> Any:
    """The code of what was transformed; of a function in C a text that says which it is."""
    while isinstance(function, FunctionType) and transforms(function):
        cells = function.__closure__ or ()
        function = cells[function.__code__.co_freevars.index("func")].cell_contents
    return getattr(function, "__code__", None) or repr(function)


from_environment()


@_model(compile)
def _compile_inside(m: Any, frame: Any, args: Any, kwargs: Any) -> Any:
    """In compiled code: makes a wrapper, whose calls are inlined."""
    given = [m.force(a) for a in args]
    named = {k: m.force(v) for k, v in kwargs.items()}
    with m.recorder.suspension(), torch._C.DisableTorchFunction(), _disable_current_modes():
        made = compile(*given, **named)
    m.recorder.keep.append(made)
    return made


def reset() -> None:
    """Forget everything that was compiled, and the counters; compiled callables stay usable."""
    _forget()
    counters.clear()


def _forget() -> None:
    for compiler in (*[compiler for _, compiler in _COMPILERS.values()], *_ISOLATED):
        compiler.reset()


torch_reset.follow_torch(_forget)


@_model(reset, get_default_backend, set_default_backend)
def _asked_inside(m: Any, frame: Any, args: Any, kwargs: Any) -> Any:
    raise Break("compiler-call", "refcompiler.reset, or the default backend")


@_model(refcompiler.__getattr__)
def _load_inside(m: Any, frame: Any, args: Any, kwargs: Any) -> Any:
    """A public name that nobody has asked for yet is loaded ahead of the graph."""
    name = m.force(args[0])
    if name not in refcompiler.__all__:
        refcompiler.__getattr__(name)  # raises
    raise Prepare(
        m.steps, "io", f"first use of refcompiler.{name}", lambda: getattr(refcompiler, name)
    )
