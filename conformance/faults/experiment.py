"""What a process does: it runs the program once, as a plan says, and tells what happens."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from conformance.case import Case
from conformance.compilers import CompilerName, find
from conformance.execute import seed_everything
from conformance.faults import messages
from conformance.faults.apart import Say
from conformance.faults.cases import NoCase, case_of
from conformance.faults.events import Observer
from conformance.faults.isolate import GraphCall
from conformance.faults.levels import at_level, configured
from conformance.faults.operators import Search, is_crash
from conformance.faults.programs import Program
from conformance.faults.watch import Plan, Watch
from conformance.scripts import Asked
from conformance.verdict import Verdict


class _Enough(BaseException):
    """The search is over: nothing more of the program has to run."""


@dataclass(frozen=True)
class Chosen:
    """What somebody asked for in the place of what the program's calls of compile say."""

    backend: str | None = None
    frontend: str | None = None


def run(program: Program, chosen: Chosen, plan: Plan, config: Any, say: Say) -> None:
    """The program from its beginning, with generators seeded. Said: see :mod:`messages`."""
    # A process that compiles beside this one is not there for one that is forked.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    _forget_what_is_kept()
    watch = Watch(plan, say)
    observer = Observer(_quietly(say, plan), watch.taken)
    observer.after = watch.settle_backwards
    watch.searching = _searching(plan, say)

    def made(asked: Asked) -> Any:
        frontend = chosen.frontend or asked.frontend
        backend = chosen.backend or asked.backend
        if not plan.compiled:
            say(messages.Asked(name_of(backend), frontend))
            return observer.observed(asked.model, asked.model)
        # Another front end's options, or another backend's, are nothing to this one.
        own = frontend == asked.frontend and backend is asked.backend
        options = dict(asked.options) if own else {}
        found: Any = backend
        compiles = "debug" not in getattr(backend, "_tags", ())
        if isinstance(backend, str):
            compiler = find(CompilerName(backend, frontend))
            found, observer.refusals = compiler.backend, compiler.frontend.refusals
            compiles = compiler.compiles
        say(messages.Asked(name_of(backend), frontend, compiles, bool(options)))
        compile = asked.fronts[frontend]
        compiled = compile(asked.model, backend=watch.backend(found), **options)
        return observer.observed(compiled, asked.model)

    seed_everything()
    try:
        with configured(config), at_level(plan.level, say), observer.watching():
            program.run(made)
    except _Enough:
        return
    watch.settle()


def name_of(backend: Any) -> str:
    """As somebody else can ask for it: by its registered name, or ``module:callable``."""
    if isinstance(backend, str):
        return backend
    for name, module in list(sys.modules.items()):
        if name != "__main__":
            for attribute, value in list(getattr(module, "__dict__", {}).items()):
                if value is backend:
                    return f"{name}:{attribute}"
    return f":{getattr(backend, '__qualname__', type(backend).__qualname__)}"


def _quietly(say: Say, plan: Plan) -> Say:
    """Where a graph is taken apart nobody asks what the program does."""
    return say if plan.search is None else lambda message: None


def _forget_what_is_kept() -> None:
    """What earlier processes have compiled would hide what this one does."""
    import refcompiler

    refcompiler.config.cache_programs = False


def _searching(plan: Plan, say: Say) -> Callable[..., None]:
    known = dict(plan.known)

    def remember(name: str, probe: Callable[[], Verdict]) -> Verdict:
        if name not in known:
            say(messages.Looking(name))
            known[name] = probe()
            say(messages.Probed(name, known[name]))
        return known[name]

    def search(call: GraphCall, compile: Callable[..., Any], times: int) -> None:
        assert plan.wanted is not None
        looking = Search(call, plan.wanted, compile, remember, times)
        operator, part, args, remark = looking.run()
        found = messages.Searched(operator, remark, looking.wanted, looking.probes)
        if plan.shows and not remark:
            found = _with_cases(found, looking, part, args)
        say(found)
        raise _Enough

    return search


def _with_cases(
    found: messages.Searched, looking: Search, part: torch.fx.GraphModule, args: Sequence[Any]
) -> messages.Searched:
    if not is_crash(looking.wanted):  # each graph that fails would cost a process
        part, args = looking.smaller(part, args)
    shown = replace(looking.call, gm=part, args=args)
    name = found.operator.name if found.operator is not None else "graph"
    cases: dict[Case, None] = {}
    why = ""
    for drawn in (False, True):
        try:
            cases[case_of(shown, looking.wanted, name, drawn)] = None
        except NoCase as error:
            why = str(error)
    return replace(found, cases=tuple(cases), why=why)
