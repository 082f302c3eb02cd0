"""A site: one place where execution may enter compiled code, and the plans for it."""

from __future__ import annotations

import functools
import logging
import sys
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from refcompiler.ambient import compiling, kept
from refcompiler.backends.parts import compile_parts
from refcompiler.backends.registry import alone_in, compile_graph, get_ready
from refcompiler.capture.door import EXAMINED
from refcompiler.capture.generators import held_within
from refcompiler.capture.machine import Captured, Symbolic
from refcompiler.capture.models.parallel import limits_now
from refcompiler.errors import (
    BackendError,
    GraphBreakError,
    GuardWarning,
    RecompileError,
    UnsupportedError,
)
from refcompiler.guards.filters import filtered
from refcompiler.guards.kinds import Guard
from refcompiler.interpreter.frame import Frame
from refcompiler.logs import log_of, wanted
from refcompiler.plan.build import MISS, Plan, build
from refcompiler.plan.failure import Recover
from refcompiler.plan.writing import NotRebuilt
from refcompiler.runtime.captures import Captures
from refcompiler.runtime.collectives import REFUSED, agree, everywhere
from refcompiler.runtime.config import config
from refcompiler.runtime.counters import count
from refcompiler.runtime.failing import failing, read
from refcompiler.runtime.loose import loosened, own_guards
from refcompiler.runtime.runs import Checked
from refcompiler.runtime.shelf import Shelf
from refcompiler.runtime.stance import CURRENT, Setting
from refcompiler.runtime.stance import LOCK as _LOCK
from refcompiler.runtime.torch_stance import follow_torch
from refcompiler.runtime.trace import NOTHING, guard_text, timed, tracing
from specs.guards import GUARDS

log = logging.getLogger("refcompiler")
guards_log, recompiles_log, plan_log = map(log_of, ("guards", "recompiles", "plan"))
breaks_log, fallbacks_log = map(log_of, ("graph_breaks", "fallbacks"))
graph_log, code_log = map(log_of, ("graph", "graph_code"))


follow_torch()

OVERTAKEN = 3  # times a new plan misses because of other threads, until a call is run natively


def _stack_level() -> int:
    """What ``warnings.warn`` in the caller takes to name the line of the user's call."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_globals.get("__name__", "").partition(".")[0] == "refcompiler"
        or frame.f_code.co_filename.startswith("<refcompiler ")
    ):
        level, frame = level + 1, frame.f_back
    return level


def _sweep(reference: weakref.ref[Site], ending: Callable[[], bool] = sys.is_finalizing) -> None:
    """``ending`` is an argument since the globals are gone when Python ends."""
    site = reference()
    if site is not None and not ending():
        site.sweep()


def always_miss(*args: Any) -> Any:
    return MISS


def _uncompiled(what: str, reason: str) -> None:
    why = f"{what} runs as it is: {reason}"
    count("uncompiled", why)
    fallbacks_log.info("%s", why)


class Native(Exception):
    """This site is not compiled: the message says why."""


class Allowance:
    """How much of ``config.recompile_limit`` one of the objects that share a site has used.

    ``native`` says why the object compiles no more, and runs natively where nothing holds.
    """

    def __init__(self) -> None:
        self.made = 0
        self.native: str | None = None

    def reset(self) -> None:
        self.made = 0
        self.native = None


class Site(Captures):
    """Plans of one code object, or of one continuation, under one backend.

    ``entries`` is what the wrappers call: ``entries[0]`` is the plan used last, or, in a stance
    that is not the default one (``blocked``), what never holds. Where only the guards that tell
    plans apart count, it is what checks those, as soon as they are known. ``parameters`` are the
    generated functions' parameters. ``limit``: of the plans, instead of ``config.recompile_limit``.
    ``keep_guards``: the user's ``guard_filter_fn``.
    """

    def __init__(self, title: str, parameters: list[str], backend: Callable, fullgraph: bool):
        super().__init__(title, parameters, backend, fullgraph)
        self.entries: list[Callable] = [always_miss]
        self.plans: list[Plan] = []
        self.native: str | None = None  # why this site runs natively
        self.watch: Callable[[Plan], None] | None = None  # is told of each plan
        self.keep: Any = None  # what has to live as long as the site
        self.version = 0  # counts the changes of ``plans``
        self.shelf: Shelf | None = None  # made when the first compilation asks
        self.limit: int | None = None
        self.keep_guards: Callable | None = None
        self.traced = NOTHING  # by an option
        self.missed: Counter[tuple[str, str]] = Counter()  # kind and source of guards that failed
        self.given: Sequence[Any] = ()  # what the capture that is going on was called with
        self.called = False  # by a call that was not to compile
        self.blocked = False
        self.fixed = False  # it has all its plans
        self.charged: dict[int, Allowance] = {}  # id of a plan -> whose limit it has used
        self.dropped = 0  # plans whose classes had died, to make room for others
        self.loose: tuple[int, list[Callable]] = (-1, [])  # of which version, and the plans
        self.agreeing: tuple[int, bool, list[Callable]] = (-1, False, [])  # as ``loose``
        CURRENT.add(self)

    def switched_as(self, driver: Any) -> None:
        """What was said to ``compile`` holds here, too."""
        self.watch, self.dynamic, self.traced = driver.watch, driver.dynamic, driver.traced
        self.limit, self.keep_guards = driver.limit, driver.keep_guards

    def follow(self, setting: Setting) -> None:
        """Let calls come to the slow path unless ``setting`` is the default."""
        self.blocked = not setting.plain or CURRENT.together
        self.arrange()

    def arrange(self) -> None:
        """The entries in the stance that holds, the newest plan first."""
        plans = [] if self.blocked else [plan.run for plan in reversed(self.plans)]
        self.entries[:] = plans or [always_miss]

    def reset(self) -> None:
        self.version += 1
        self.entries[:] = [always_miss]
        self.plans.clear()
        self.charged.clear()
        if self.history is not None:
            self.history.clear()
        self.native = None
        self.shelf = None
        self.called = False
        self.missed.clear()

    # ---- plans that outlive what they name --------------------------------------------------

    def weaken(self) -> None:
        """The plans let go of what the program has replaced, and go with it."""
        self.sweep()
        for plan in self.plans:
            old = plan.run
            if plan.weaken():
                self.version += 1
                self.entries[:] = [plan.run if entry is old else entry for entry in self.entries]

    def sweep(self) -> None:
        """Drop plans that name what has died; another thread that compiles will do it."""
        if not _LOCK.acquire(blocking=False):
            return
        try:
            self._drop([plan for plan in self.plans if plan.is_dead])
        finally:
            _LOCK.release()

    def _drop(self, plans: Sequence[Plan]) -> None:
        if not plans:
            return
        self.version += 1
        self.plans[:] = [plan for plan in self.plans if plan not in plans]
        runs = [plan.run for plan in plans]
        left = [entry for entry in self.entries if entry not in runs]
        self.entries[:] = left or [always_miss]
        for plan in plans:
            allowance = self.charged.pop(id(plan), None)
            if allowance is not None:
                allowance.made -= 1

    def _drop_stale(self) -> bool:
        """Make room under a limit, as often as the limit of all captures allows."""
        stale = [plan for plan in self.plans if plan.is_stale]
        self.dropped += len(stale)
        if not stale or self.dropped > config.accumulated_recompile_limit:
            return False
        self._drop(stale)
        return True

    # ---- a call whose first entry missed ----------------------------------------------------

    def find(self, values: Sequence[Any]) -> Any:
        """Try the other plans; the one that holds comes first from now on."""
        if self.blocked:
            return self.find_slowly(values)
        first, *others = self.entries
        for entry in others:
            found = entry(*values)
            if found is not MISS:
                count("cache_hits")
                self.put_first(entry)
                return found
        return first(*values)  # which another thread may have put there just now

    def find_slowly(self, values: Sequence[Any]) -> Any:
        """In a stance that is not the default one, whose entries are not the plans."""
        setting = CURRENT.setting
        if CURRENT.together:
            return self.find_together(values, setting.loose)
        entries = self.loosened() if setting.loose else [p.run for p in reversed(self.plans)]
        for entry in entries:
            found = entry(*values)
            if found is not MISS:
                if setting.only_loose and entry is not self.entries[0]:
                    count("cache_hits")
                    with _LOCK:
                        if CURRENT.setting is setting:
                            self.entries[:] = [entry]
                return found
        return MISS

    def find_together(self, values: Sequence[Any], loose: bool) -> Any:
        """Run the plan that holds if one holds in every process: all of them ask once."""
        if not self.plans:
            return MISS
        if self.agreeing[:2] != (self.version, loose):
            with _LOCK:
                guards = own_guards(self.plans) if loose else [plan.guards for plan in self.plans]
                pairs = zip(self.plans[::-1], guards[::-1], strict=True)
                runs = [plan.checking(left, agree) for plan, left in pairs]
                self.agreeing = self.version, loose, runs
        for run in self.agreeing[2]:
            found = run(*values)
            if found is not MISS:
                return MISS if found is REFUSED else found
        everywhere(False)
        return MISS

    def put_first(self, entry: Callable) -> None:
        """Try ``entry`` first from now on, unless another thread is just changing the list."""
        if _LOCK.acquire(blocking=False):  # which is held as long as something is compiled
            try:
                if entry in self.entries:
                    self.entries.remove(entry)
                    self.entries.insert(0, entry)
            finally:
                _LOCK.release()

    def loosened(self) -> list[Callable]:
        """The plans with only those guards that tell them apart, the newest first."""
        if self.loose[0] != self.version:
            with _LOCK:
                self.loose = (self.version, loosened(self.plans)[::-1])
        return self.loose[1]

    def compile(
        self,
        values: Sequence[Any],
        start: Callable[[Symbolic], Frame],
        allowance: Allowance | None = None,
    ) -> Plan:
        """Capture and compile a plan for ``values``; :class:`Native` when there cannot be one.

        The limit holds for ``allowance``, or else for the site.
        """
        self.weaken()
        why = self.explain(values) if self.plans else ""
        if CURRENT.setting.stance.miss == "fail":
            why = why and f"; the guard that failed: {why}"
            raise RecompileError(f"the stance is fail_on_recompile, and {self.title} compiles{why}")
        if CURRENT.setting.loose:
            what = f"the guard that failed: {why}" if why else "nothing was compiled for it before"
            raise RecompileError(
                f"{self.title} compiles under set_stance(skip_guard_eval_unsafe=True); call it "
                f"before with all kinds of inputs; {what}"
            )
        self.check_limits(allowance, why)
        if self.plans and (config.error_on_recompile or self.fixed):
            who = "it was exported" if self.fixed else "config.error_on_recompile"
            text = f"{self.title} compiles again ({who}); the guard that failed: {why}"
            raise RecompileError(text)
        found = self.stored(values)
        plan = found or self.compile_anew(values, start, why)
        plan.writer.gone.to = functools.partial(_sweep, weakref.ref(self))
        self.plans.append(plan)
        if allowance is not None:
            self.charged[id(plan)] = allowance
            allowance.made += 1
        self.version += 1
        if self.blocked or self.entries == [always_miss]:
            self.arrange()
        else:
            self.entries.insert(0, plan.run)
        return plan

    def compile_anew(
        self, values: Sequence[Any], start: Callable[[Symbolic], Frame], why: str
    ) -> Plan:
        if self.plans:
            count("recompiles", f"{self.title}: {why}")
            recompiles_log.info("recompiling %s: %s", self.title, why)
        self.given = values
        get_ready(self.backend)
        try:
            with tracing(self.title, why, self.traced) as made:
                plan = self.capture(start)
                made.append(plan)
        except NotRebuilt as error:
            raise self.give_up(f"a value of class {error} cannot be rebuilt") from None
        except UnsupportedError as error:
            raise self.give_up(str(error)) from None
        finally:
            self.given = ()
        if self.shelf is not None and self.history is not None:
            self.shelf.note(plan, self.history)
        return plan

    def stored(self, values: Sequence[Any]) -> Plan | None:
        """A plan for ``values`` that an earlier process has made."""
        if self.shelf is None:
            self.shelf = Shelf(self)
        return self.shelf.find(values)

    def store(self, plan: Plan) -> None:
        """Keep a plan that has run for later processes, if it was captured here."""
        if self.shelf is None or not _LOCK.acquire(blocking=False):
            return
        try:
            self.shelf.keep(plan)
        finally:
            _LOCK.release()

    def forget(self, plan: Plan) -> None:
        """The next such call is captured, unless another thread compiles just now."""
        if _LOCK.acquire(blocking=False):
            try:
                self._drop([each for each in self.plans if each is plan])
            finally:
                _LOCK.release()

    def accumulated(self) -> int:
        """The plans that count for ``config.accumulated_recompile_limit``."""
        return len(self.plans)

    @property
    def is_idle(self) -> bool:
        """Whether nothing that was compiled has a graph, or leads to a place that may have one."""
        return all(not plan.operations and plan.reason is None for plan in self.plans)

    def patience(self, limit: int) -> int:
        """How many plans without a graph are made."""
        return limit

    def rest(self) -> Native:
        """No more is compiled where there was nothing to compile, which nobody has to be told."""
        self.native = f"{self.title} was compiled {len(self.plans)} times, never with a graph"
        recompiles_log.info("%s: other calls run natively", self.native)
        return Native(self.native)

    def check_limits(self, allowance: Allowance | None, why: str) -> None:
        """:class:`Native`, with one warning, or an error where the limits allow no other plan."""
        made = len(self.plans) if allowance is None else allowance.made
        name, limit = "config.recompile_limit", config.recompile_limit
        if self.limit is not None:
            name, limit = "compile's recompile_limit", self.limit
        if made >= self.patience(limit) and not self.fullgraph and self.is_idle:
            raise self.rest()
        if made < limit:
            made = self.accumulated()
            name, limit = "config.accumulated_recompile_limit", config.accumulated_recompile_limit
            if made < limit:
                return
        if self._drop_stale():
            self.check_limits(allowance, why)
            return
        text = f"{self.title} was compiled {made} times ({name})"
        if config.fail_on_recompile_limit_hit or self.fullgraph:
            reason = "fullgraph=True" if self.fullgraph else "config.fail_on_recompile_limit_hit"
            raise RecompileError(f"{text}, and {reason}; the guard that failed: {why}")
        native = f"{text} and compiles no more: other calls run natively; the guard that failed "
        native += f"last: {why}"
        if self.missed:
            (kind, source), times = self.missed.most_common(1)[0]
            total = self.missed.total()
            what = f"{source or kind} ({kind}) failed {times} times of {total}"
            native += f". {what}. What to do: {GUARDS[kind].hint}"
        (allowance or self).native = native
        count("fallbacks", native)
        warnings.warn(native, stacklevel=_stack_level())
        raise Native(native)

    def give_up(self, why: str) -> Native:
        if self.fullgraph:
            raise GraphBreakError(f"{self.title} cannot be captured as one graph: {why}")
        self.native = f"{self.title} runs natively: {why}"
        count("fallbacks", self.native)
        fallbacks_log.info("%s", self.native)
        return Native(self.native)

    def plan(self, captured: Captured, recover: Recover) -> Plan:
        with timed("build"):
            plan = build(
                captured,
                self.parameters,
                self.title,
                self.compile_graph,
                self.pending(),
                root=True,
                recover=recover,
                keep=self.kept_guards if self.keep_guards is not None else None,
                number=len(self.plans),
            )
        count("captures")
        if self.watch is not None:
            self.watch(plan)
        if captured.reason is not None:
            count("breaks", captured.reason)
            breaks_log.info("graph break in %s: %s", self.title, captured.reason)
        self.tell(plan)
        return plan

    def tell(self, plan: Plan) -> None:
        """Log the plan, as far as somebody wants to know."""
        if wanted(guards_log):
            texts = [guard_text(guard) for guard in plan.guards]
            guards_log.info("%d guards of %s:\n%s", len(texts), self.title, "\n".join(texts))
        if plan.graph is not None:
            if wanted(graph_log):
                graph_log.info("graph of %s:\n%s", self.title, plan.graph.graph)
            if wanted(code_log):
                text = plan.graph.print_readable(print_output=False)
                code_log.info("graph of %s:\n%s", self.title, text)
        plan_log.info("plan of %s:\n%s", self.title, plan.source)

    def kept_guards(self, guards: list[Guard]) -> list[Guard]:
        """The guards that the user's filter leaves."""
        arguments = dict(zip(self.parameters, self.given, strict=True))
        assert self.keep_guards is not None
        return filtered(self.keep_guards, guards, lambda source: read(source, arguments))

    # ---- the backend ------------------------------------------------------------------------

    def compile_graph(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
        outputs = list(graph.graph.find_nodes(op="output"))[0].args[0]
        operations = sum(n.op in ("call_function", "call_method") for n in graph.graph.nodes)
        count("graphs")
        count("operations", amount=operations)
        name = getattr(self.backend, "__name__", type(self.backend).__name__)
        try:
            with kept(), compiling(), timed("backend"):
                compiled = self.by_parts(graph, inputs)
        except Exception as error:
            raise BackendError(
                f"backend {name} failed to compile a graph of {operations} operations of "
                f"{self.title}: {type(error).__name__}: {error}"
            ) from error
        if not callable(compiled):
            raise BackendError(
                f"backend {name} returned {type(compiled).__name__} for {self.title}; "
                "a backend returns a callable"
            )
        report = getattr(compiled, "report", compiled)  # which some backends' answers have
        reason = getattr(report, "fallback", None)
        tell = functools.partial(_uncompiled, f"a graph of {operations} operations of {self.title}")
        if reason is not None:
            tell(reason)
        for part in getattr(compiled, "parts", (compiled,)):
            made: Any = getattr(part, "report", None)
            if hasattr(made, "tell"):  # a backward is compiled when it first runs
                made.tell = tell
        writes = graph.meta.get("refcompiler_writes", False)
        held = held_within(graph)
        return Checked(compiled, len(outputs), name, self.title, writes, held)

    def by_parts(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
        """Compiled in parts where gradients are sent while the backward goes on, or asked for, and
        around what the backend cannot compile."""
        backend = functools.partial(compile_graph, self.backend)
        limits = graph.meta["refcompiler_buckets"] or limits_now()
        if config.optimize_ddp in (False, "no_optimization"):
            limits = ()
        asked = self.examined | {n.name for n in graph.graph.nodes if EXAMINED in n.meta}
        alone = alone_in(self.backend, graph)
        if not limits and not asked and not alone:
            return backend(graph, inputs)
        return compile_parts(backend, graph, inputs, limits, asked, alone)

    # ---- explanations -----------------------------------------------------------------------

    def explain(self, values: Sequence[Any]) -> str:
        """The first guard of the newest plan that fails on ``values``, in words."""
        arguments = dict(zip(self.parameters, values, strict=True))
        found = [failing(plan, arguments) for plan in reversed(self.plans)]
        if CURRENT.together and None in found:
            return "the guards of another process failed (set_enable_guard_collectives)"
        for guard, text in filter(None, found):
            self.missed[guard.kind, str(guard.source or "")] += 1
            return text
        return "another thread or the guards themselves changed what the guards read"


def run_new(plan: Plan, site: Site, values: Sequence[Any]) -> Any:
    """The first run of a plan: its guards must hold, and its graph's outputs are looked at.

    MISS where they do not: another thread may have changed what they read since it was captured.
    The call then goes on uncompiled, and where there is no other thread that is told.
    """
    namespace = plan.run.__globals__
    checked = namespace.get("__graph")
    found = plan.run(*values)
    if found is MISS:
        if len(sys._current_frames()) == 1:
            why = f"{site.title}: guards of what was compiled fail at once: {site.explain(values)}"
            count("fallbacks", why)
            told = f"{why}. It runs uncompiled; please report it with the script that shows it."
            warnings.warn(told, GuardWarning, stacklevel=2)
        return MISS
    if isinstance(checked, Checked):
        namespace["__graph"] = checked.settled
    site.store(plan)
    return found
