"""Finding a backend by name."""

from __future__ import annotations

import difflib
import importlib.metadata
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from refcompiler.errors import UnsupportedError
from specs.backends import BACKENDS, Backend

GROUP = "torch_dynamo_backends"
#: Backends that torch has others of by the same name, so that it may not find ours.
OWN_GROUP = "refcompiler_backends"
#: Set on a backend that does not look into symbols, and so gets the front end's own. Any other one
#: is given torch's: most of torch's own machinery knows no other.
TAKES_SYMBOLS = "takes_symbols"
#: Set on a backend that has an option ``trace.enabled`` of its own besides the front end's.
TRACES = "traces"
#: Set on a backend that says what is wrong with a mode and options when they are given, and not
#: when the first graph is compiled: a function of both.
CHECKS = "check_options"
#: Set on a backend that has something to start before there is a graph for it.
READY = "get_ready"
#: Set on a backend that compiles all but some operators: a function that gives the nodes of a graph
#: that are to run as they are, so that what is around them is compiled.
ALONE = "alone"
_TAGS: dict[str, tuple[str, ...]] = {}
_REGISTERED: dict[str, Callable] = {}


def compile_graph(backend: Callable, graph: Any, inputs: Sequence[Any]) -> Any:
    """``backend(graph, inputs)``, with symbols that the backend understands."""
    if getattr(backend, TAKES_SYMBOLS, False):
        return backend(graph, inputs)
    from refcompiler.shapes.known import environment_of

    if environment_of(graph) is None:
        return backend(graph, inputs)
    # It loads torch's compiler, which takes its time.
    from refcompiler.backends.symbols import compiled

    return compiled(backend, graph, inputs)


def alone_in(backend: Callable, graph: Any) -> list[Any]:
    """The nodes of ``graph`` that ``backend`` is to be given each by itself."""
    found = getattr(backend, ALONE, None)
    return [] if found is None else found(graph)


def get_ready(backend: Callable, at_first: bool = False) -> None:
    """Let ``backend`` begin with what every graph needs, beside the capture of one. ``at_first``:
    nobody calls yet what is to be compiled; so only if whatever comes first will need it."""
    start = getattr(backend, READY, None)
    if start is not None:
        start(at_first)


def check_settings(backend: Callable, mode: str | None, options: Mapping[str, Any]) -> None:
    """Raise for what ``backend`` cannot be asked: as its own check does, or ``TypeError`` where it
    has no parameter ``mode`` or ``options``."""
    check = getattr(backend, CHECKS, None)
    if check is not None:
        return check(mode, options)
    try:
        parameters = inspect.signature(backend).parameters
    except (TypeError, ValueError):  # it has none that can be read
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return None
    title = getattr(backend, "__name__", repr(backend))
    for what, said in (("mode", mode), ("options", options)):
        if said and what not in parameters:
            raise TypeError(f"compile: backend {title} takes no {what}, and was given {said!r}")
    return None


def register_backend(
    compiler_fn: Callable | None = None, name: str | None = None, tags: Sequence[str] = ()
) -> Any:
    """Register a backend under ``name`` (default: the function's own); usable as a decorator."""
    if compiler_fn is None:
        return lambda function: register_backend(function, name, tags)
    if not callable(compiler_fn):
        raise TypeError(f"register_backend: {compiler_fn!r} is not callable")
    name = name or compiler_fn.__name__
    known = _REGISTERED.get(name)
    if known is not None and known is not compiler_fn:
        raise ValueError(f"register_backend: a backend named {name!r} is registered already")
    _REGISTERED[name] = compiler_fn
    _TAGS[name] = tuple(tags)
    return compiler_fn


def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    groups = GROUP, OWN_GROUP
    return {ep.name: ep for group in groups for ep in importlib.metadata.entry_points(group=group)}


def _torch_backends() -> list[str]:
    """Names in torch's registry. Importing it is slow, so it is asked last."""
    from torch._dynamo.backends.registry import list_backends as torch_list

    return list(torch_list(exclude_tags=()))


def list_backends(exclude_tags: Sequence[str] | None = ("debug", "experimental")) -> list[str]:
    """Names of backends registered here and in the entry-point group.

    Backends in torch's own registry are found by name too; they are listed only once torch's
    compiler has been imported.
    """
    excluded = set(exclude_tags or ())
    names = {name for name, tags in _TAGS.items() if not excluded & set(tags)}
    names |= _entry_points().keys()
    if "torch._dynamo.backends.registry" in sys.modules:
        from torch._dynamo.backends.registry import list_backends as torch_list

        names |= set(torch_list(exclude_tags=tuple(excluded)))
    return sorted(names)


def _import(row: Backend) -> None:
    """A package that registers its backends when it is imported."""
    try:
        importlib.import_module(row.module)
    except Exception as error:  # a package for other versions fails in its own ways
        raise UnsupportedError(
            f"backend {row.name!r}: the package {row.module} cannot be imported "
            f"({type(error).__name__}: {error}); install one for torch {torch.__version__}"
        ) from error


def lookup_backend(backend: str | Callable) -> Callable:
    """The backend called ``backend``, or ``backend`` itself when it is callable."""
    if callable(backend):
        return backend
    if not isinstance(backend, str):
        raise TypeError(f"a backend is a name or a callable, not {type(backend).__name__}")
    row = BACKENDS[backend] if backend in BACKENDS else None
    if row is not None and row.module and importlib.util.find_spec(row.module) is None:
        raise UnsupportedError(
            f"backend {backend!r} needs the package {row.module}: pip install {row.install}"
        )
    found = _REGISTERED.get(backend)
    if found is not None:
        return found
    if row is not None and row.module and row.origin == "installed":
        _import(row)
    entry = _entry_points().get(backend)
    if entry is not None:
        try:
            loaded = entry.load()
        except (ImportError, AttributeError) as error:
            raise UnsupportedError(
                f"backend {backend!r} ({entry.value}) cannot be imported: {error}"
            ) from error
        _REGISTERED[backend] = loaded
        _TAGS.setdefault(backend, ())
        return loaded
    if backend in _torch_backends():
        from torch._dynamo.backends.registry import lookup_backend as torch_lookup

        _REGISTERED[backend] = loaded = torch_lookup(backend)
        _TAGS.setdefault(backend, ())
        return loaded
    if row is not None and row.module:
        raise UnsupportedError(
            f"the package {row.module} registers no backend {backend!r}: install one for torch "
            f"{torch.__version__}"
        )
    known = sorted({*list_backends(()), *_torch_backends()})
    close = difflib.get_close_matches(backend, known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    raise UnsupportedError(f"no backend is named {backend!r}{hint} Known: {', '.join(known)}")
