"""Runs a program eagerly and compiled from the same states of all generators, with ledgers."""

from __future__ import annotations

import contextlib
import copy
import functools
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from conformance.compilers import CompilerName, Unusable, find
from conformance.meter import Backend
from conformance.random.compare import Comparison, compare
from conformance.random.ledger import Ledger, Recorder, cuda_state, digest, python_states
from conformance.scripts import Asked, compiling, run_script


class Recording:
    """A backend whose compiled code is watched while it runs. Use it as the backend."""

    def __init__(self, backend: Backend, ledger: Ledger):
        self.backend, self.ledger = backend, ledger
        self.__name__ = getattr(backend, "__name__", type(backend).__name__)
        for mark in ("takes_symbols", "traces"):
            if hasattr(backend, mark):
                setattr(self, mark, getattr(backend, mark))

    def __call__(self, gm: Any, inputs: Sequence[Any], **options: Any) -> Any:
        compiled = self.backend(gm, inputs, **options)

        @functools.wraps(compiled, updated=())
        def recorded(*args: Any) -> Any:
            with Recorder(self.ledger):
                return compiled(*args)

        return recorded


@contextlib.contextmanager
def _same_states() -> Iterator[None]:
    """All generators are afterwards as they were before."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    numpy = sys.modules.get("numpy.random")
    states = torch.get_rng_state(), random.getstate(), numpy and numpy.get_state()
    yield
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    if numpy is not None:
        numpy.set_state(states[2])
    if cuda:
        torch.cuda.set_rng_state_all(cuda)


def _begin(ledger: Ledger) -> None:
    for name, state in _generators():
        ledger.last[name] = state


def _generators() -> Iterator[tuple[str, str]]:
    yield "cpu", digest(torch.get_rng_state())
    if torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            yield f"cuda:{index}", digest(cuda_state(index))


def _sides(eager: Callable[[Ledger], Any], compiled: Callable[[Ledger], Any]) -> Comparison:
    """``compiled`` runs in the states that ``eager`` began in, and leaves its own behind."""
    first, second = Ledger(), Ledger(complete=False)
    with _same_states():
        with Recorder(first), first.watching():
            eager(first)
        ended = [*_generators(), *zip(("Python's random", "numpy.random"), python_states())]
    _begin(second)
    with second.watching():
        compiled(second)
    for name, state in _generators():
        second.reach(name, state)
    other = ""
    now = [*_generators(), *zip(("Python's random", "numpy.random"), python_states())]
    for (name, before), (_, after) in zip(ended, now):
        if before != after:
            other = other or f"{name} ends in another state"
    return compare(first.draws, second.draws, other)


def rng_ledger(compiler: str, frontend: str = "refcompiler") -> Callable[..., Comparison]:
    """``run(function, *inputs)``: the function's draws eagerly and compiled, as a
    :class:`~conformance.random.compare.Comparison`.

    ``compiler``: a backend's registered name, or ``module:callable``. The function is called once
    on each side, on copies of the inputs and from the same states of torch's, Python's and NumPy's
    generators; it may train (``backward()`` in it is watched too). Draws of compiled code that no
    dispatch mode sees are known by the state that they leave.

    Raises :class:`conformance.compilers.Unusable` for a compiler that there is not.
    """
    found = find(CompilerName(compiler, frontend))

    def run(function: Callable[..., Any], *inputs: Any) -> Comparison:
        def eager(ledger: Ledger) -> Any:
            return function(*copy.deepcopy(inputs))

        def compiled(ledger: Ledger) -> Any:
            found.frontend.reset()
            given: Any = Recording(found.backend, ledger)
            return found.frontend.compile(function, given)(*copy.deepcopy(inputs))

        return _sides(eager, compiled)

    return run


def compare_script(path: Path, arguments: Sequence[str], backend: str | None = None) -> Comparison:
    """A script's draws with its calls of ``compile`` taken out, and as it is.

    ``backend``: for all of them, instead of what they name.

    Raises :class:`conformance.compilers.Unusable` for a backend that there is not, before the
    script runs, and for a script that compiles nothing: its draws would be their own measure.
    """
    if backend is not None:
        find(CompilerName(backend, "refcompiler"))
    calls: list[Asked] = []

    def run(ledger: Ledger | None) -> None:
        with compiling(functools.partial(_recorded, ledger, backend, calls)):
            run_script(path, arguments)
        if not calls:
            raise Unusable(
                f"{path} compiles nothing: it calls neither torch.compile nor refcompiler.compile"
            )

    return _sides(lambda ledger: run(None), run)


def _recorded(ledger: Ledger | None, chosen: str | None, calls: list[Asked], asked: Asked) -> Any:
    calls.append(asked)
    if ledger is None:
        return asked.model
    name = chosen or asked.backend
    found = find(CompilerName(name, asked.frontend)).backend if isinstance(name, str) else name
    return asked.compile(asked.model, backend=Recording(found, ledger), **asked.options)
