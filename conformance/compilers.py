"""The compilers under test: a front end that captures, and a backend that compiles.

``torch`` is ``torch.compile`` itself; ``refcompiler`` is this project's front end. Every backend
runs under both, behind a :class:`~conformance.meter.Meter`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from conformance.meter import Backend, Meter
from conformance.verdict import Compiled


class Unusable(Exception):
    """The compiler cannot be tested at all; the message is one line that says what to do."""


class Frontend(Protocol):
    """How a capturing front end is driven."""

    name: str
    refusals: tuple[type, ...]

    def backends(self) -> list[str]:
        """The names it knows, sorted."""

    def lookup(self, name: str) -> tuple[Backend, bool]:
        """The backend of that name, and whether it claims to compile (a debugging one does not)."""

    def compile(self, model: Callable[..., Any], backend: Meter) -> Callable[..., Any]: ...

    def reset(self) -> None: ...

    def breaks(self) -> int:
        """Graph breaks since the last reset."""


class TorchFrontend(Frontend):
    """``torch.compile``. What it is tested for is its own capture and its own guards."""

    name = "torch"

    def __init__(self) -> None:
        import torch._dynamo

        self.dynamo = torch._dynamo
        self.refusals = (torch._dynamo.exc.Unsupported,)

    def backends(self) -> list[str]:
        return sorted(self.dynamo.list_backends(exclude_tags=()))

    def lookup(self, name: str) -> tuple[Backend, bool]:
        backend = self.dynamo.lookup_backend(name)
        return backend, name in self.dynamo.list_backends(exclude_tags=("debug",))

    def compile(self, model: Callable[..., Any], backend: Meter) -> Callable[..., Any]:
        import torch

        return torch.compile(model, backend=backend)

    def reset(self) -> None:
        self.dynamo.reset()
        self.dynamo.utils.counters.clear()

    def breaks(self) -> int:
        return sum(self.dynamo.utils.counters["graph_break"].values())


class RefFrontend(Frontend):
    """This project's own front end."""

    name = "refcompiler"

    def __init__(self) -> None:
        try:
            self.package = importlib.import_module("refcompiler")
            errors = importlib.import_module("refcompiler.errors")
        except ImportError as error:
            raise Unusable(f"the front end 'refcompiler' cannot be imported: {error}") from error
        self.refusals = (errors.UnsupportedError, errors.GraphBreakError)

    def backends(self) -> list[str]:
        from torch._dynamo import list_backends  # those of torch's registry serve here too

        ours = self.package.list_backends(exclude_tags=())
        return sorted({*ours, *list_backends(exclude_tags=())})

    def lookup(self, name: str) -> tuple[Backend, bool]:
        backend = self.package.lookup_backend(name)
        return backend, name in self.package.list_backends(exclude_tags=("debug",))

    def compile(self, model: Callable[..., Any], backend: Meter) -> Callable[..., Any]:
        return self.package.compile(model, backend=backend)

    def reset(self) -> None:
        self.package.reset()

    def breaks(self) -> int:
        return int(self.package.counters().get("breaks", 0))


FRONTENDS: dict[str, Callable[[], Frontend]] = {
    "refcompiler": RefFrontend,
    "torch": TorchFrontend,
}


@dataclass(frozen=True)
class CompilerName:
    """A compiler in words: ``backend`` is a registered name or ``module:callable``."""

    backend: str
    frontend: str = "refcompiler"

    def __str__(self) -> str:
        return f"{self.backend} ({self.frontend} front end)"


class Session:
    """One fresh use of a compiler: nothing that it compiled before is still there.

    ``watched``: a :class:`~conformance.meter.Meter` sees which operators compiled code calls.
    """

    def __init__(self, frontend: Frontend, backend: Backend, name: str, watched: bool = True):
        self.frontend = frontend
        self.refusals = frontend.refusals
        self.meter = Meter(backend, name, watched)
        self.seen_breaks = 0
        self.seen_graphs = False
        frontend.reset()

    def compile(self, model: Callable[..., Any]) -> Callable[..., Any]:
        return self.frontend.compile(model, self.meter)

    def taken(self) -> Compiled:
        """What the compiler did since this was last asked."""
        breaks = self.frontend.breaks()
        self.meter.breaks = lambda: breaks - self.seen_breaks
        now = self.meter.taken()
        self.seen_breaks = breaks
        # Graphs that are made once some exist already are recompiles.
        if now.graphs and self.seen_graphs:
            now = now + Compiled(recompiles=1)
        self.seen_graphs |= bool(now.graphs)
        return now


@dataclass(frozen=True)
class Compiler:
    """A compiler that was found and can be used in this process."""

    name: CompilerName
    frontend: Frontend
    backend: Backend
    compiles: bool

    def session(self, watched: bool = True) -> Session:
        return Session(self.frontend, self.backend, self.name.backend, watched)


def find(name: CompilerName) -> Compiler:
    """Look both halves up. Raises :class:`Unusable` with one line that says what to do."""
    if name.frontend not in FRONTENDS:
        known = ", ".join(FRONTENDS)
        raise Unusable(f"unknown front end {name.frontend!r}; the known ones are {known}")
    frontend = FRONTENDS[name.frontend]()
    if ":" in name.backend:
        return Compiler(name, frontend, *_import_backend(name.backend))
    try:
        backend, compiles = frontend.lookup(name.backend)
    except Exception as error:
        known_names = frontend.backends()
        if name.backend not in known_names:
            raise Unusable(
                f"unknown backend {name.backend!r}; the front end {name.frontend!r} knows "
                f"{', '.join(known_names)}; any other one is given as module:callable"
            ) from None
        line = " ".join(str(error).split())
        raise Unusable(f"backend {name.backend!r} cannot be loaded: {line}") from error
    return Compiler(name, frontend, backend, compiles)


def _import_backend(path: str) -> tuple[Backend, bool]:
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise Unusable(f"backend {path!r} is no module:callable")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does: the module is often the user's own
    try:
        value: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError) as error:
        raise Unusable(f"backend {path!r} cannot be imported: {error}") from error
    except Exception as error:
        line = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise Unusable(f"backend {path!r}: importing it raised {line}") from error
    if not callable(value):
        raise Unusable(f"backend {path!r} is {type(value).__name__}, which cannot be called")
    return value, "debug" not in getattr(value, "_tags", ())
