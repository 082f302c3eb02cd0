"""Programs that earlier processes have captured and compiled: the disk cache of plans and graphs.

Before a site captures, it looks here for a plan whose guards hold for the call; what it has
captured is kept here once it has run, and again when a backward of it is compiled. An entry is a
package (:mod:`refcompiler.package`) without what a process that has a compiler can make itself:
such a thing is made by capturing the call, when somebody asks for it.

The place of an entry follows from what a capture depends on and no guard asks: the site's code with
its lines, the backend and its options, the settings, and the versions of everything. What guards
ask decides among the entries of a place. Of functions that a program calls an entry has digests.

A program that breaks is several entries: what runs up to the break, with what is alive there, and
what goes on behind it, which is a place of its own.

What is not kept, and captured by each process: programs that name objects that only one process has
(local functions and classes, instances); those that ids, hashes or the order of a set have decided
(:mod:`refcompiler.capture.personal`); programs for CUDA; backends that are not this project's.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import sysconfig
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import CodeType
from typing import Any

from refcompiler.backends.registry import compile_graph
from refcompiler.cache import identity, store
from refcompiler.capture.dynamic import History, Policy
from refcompiler.errors import PackageError, UnsupportedError
from refcompiler.logs import log_of, wanted
from refcompiler.plan.build import MISS, Plan
from refcompiler.plan.holding import weaken
from refcompiler.runtime.config import config
from refcompiler.runtime.counters import count
from refcompiler.runtime.trace import wanted_folder
from specs.logs import LOGS

KIND = "program"
#: Entries of one place, of which the next one takes the place of any.
SLOTS = 8
#: Backends whose code can be kept: those of these packages.
_OWN = ("refcompiler", "fastpath")
#: Settings that a capture does not depend on.
_ASIDE = frozenset(
    ("recompile_limit", "accumulated_recompile_limit", "fail_on_recompile_limit_hit")
    + ("error_on_recompile", "job_id", "force_disable_caches", "cache_bytes", "cache_programs")
    + ("compile_processes",)
    + ("trace",)
)
#: Logs that tell of plans, and not of how they come about.
_OF_PLANS = frozenset({"cache", "guards", "recompiles", "plan", "fallbacks"})
#: Variables of the environment that libraries read when they please.
_READ = ("TORCH", "PYTORCH", "CUDA_VISIBLE")
_NOT_READ = ("LOGS", "CACHE_DIR", "JOB_ID", "TRACE", "DEBUG_DIR")
_PLAIN = (type(None), bool, int, float, str)

log = log_of("cache")


class Shelf:
    """Where the entries of one site are; ``site`` is the :class:`refcompiler.runtime.site.Site`."""

    def __init__(self, site: Any):
        self.site: Callable[[], Any] = weakref.ref(site)
        self.place, why = _place(site)
        if self.place is None:
            log.info("%s is not looked for: %s", site.title, why)
        self.known: weakref.WeakKeyDictionary[Plan, _Known] = weakref.WeakKeyDictionary()
        self.spent = False  # what is there does not serve

    # ---- looking ----------------------------------------------------------------------------

    def find(self, values: Sequence[Any]) -> Plan | None:
        """A plan that holds for ``values``; None where a capture has to make one."""
        kept = self._open()
        if kept is None or self.spent:
            return None
        there = [self.known[plan].slot for plan in self.site().plans if plan in self.known]
        for slot in range(SLOTS):
            if slot in there:
                continue
            data = kept.get(KIND, self._key(slot))
            if data is None:
                continue
            try:
                plan = self._read(data, slot, values)
            except (PackageError, UnsupportedError) as error:
                log.info("slot %d of %s is of no use here: %s", slot, self._title, error)
                continue
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                store.warn(
                    f"the cache has a program of {self._title} that cannot be read "
                    f"({type(error).__name__}: {error}); it is captured anew"
                )
                continue
            if plan is not None:
                count("loaded")
                log.info("found %s in slot %d", self._title, slot)
                self.site().tell(plan)
                return plan
        return None

    def _read(self, data: bytes, slot: int, values: Sequence[Any]) -> Plan | None:
        from refcompiler.package.format import decoded
        from refcompiler.package.plans import unpack_plan
        from refcompiler.package.rows import HERE, Unpacker

        head, blobs = decoded(data, self._title)
        home = _Home(self)
        u = Unpacker(head["rows"], blobs, self._title, home=home)
        guards, needed, known, *rest = head["plan"]
        graph = known.pop("__graph", None)
        plan = unpack_plan(u, guards, needed, known, *rest)
        if replace(plan, body=["return True"]).run(*values) is MISS:
            return None
        if graph is not None:
            plan.writer.namespace["__graph"] = u.value(graph)
        for label, wants in head["requires"].items():
            if HERE[label]() != wants:
                raise PackageError(f"it was made with another version of {label}")
        plan.entry = weaken(plan.entry, plan.writer)
        site = self.site()
        site.policy()  # so that there is a history
        noted = u.value(head["noted"])
        for key, value in noted.items():
            site.history.changes(key, value)
        home.plan, home.graph = weakref.ref(plan), u.later(rest[1])
        self.known[plan] = _Known(noted, slot, home)
        return plan

    # ---- keeping ----------------------------------------------------------------------------

    def note(self, plan: Plan, history: History) -> None:
        """What the capture of ``plan`` has seen, for those that come after it."""
        if self.place is not None and config.cache_programs:
            self.known[plan] = _Known(dict(history.noted))

    def keep(self, plan: Plan) -> None:
        """Keep a plan that has run, or why it cannot be kept, unless it is there as it is."""
        known = self.known.get(plan)
        if known is None or not known.is_new:
            return
        known.is_new = False
        kept = self._open()
        if kept is None or plan.is_personal or plan.origins:
            return
        refused = self._key(f"refused {_kind_of_call(plan)}")
        why = kept.get(KIND, refused)
        if why is not None:
            log.info("%s is not kept, as before: %s", self._title, why.decode())
            return
        from refcompiler.package.rows import NotYet, Refused

        try:
            head, data = self._written(plan, known)
        except NotYet as later:
            later.tell(functools.partial(_again, weakref.ref(self), weakref.ref(plan)))
            return
        except (Refused, UnsupportedError) as error:
            log.info("%s is not kept: %s", self._title, error)
            kept.put(KIND, refused, str(error).encode())
            return
        except Exception as error:  # the call has its answer
            what = f"{type(error).__name__}: {error}"
            store.warn(f"{self._title} cannot be kept ({what}); please report it")
            return
        slot = known.slot if known.slot is not None else self._slot(kept, head)
        known.slot = slot
        kept.put(KIND, self._key(slot), data)

    def again(self, plan: Plan) -> None:
        """Keep ``plan`` once more, of which a backward was compiled."""
        if plan in self.known:
            self.known[plan].is_new = True
            self.site().store(plan)

    def _written(self, plan: Plan, known: _Known) -> tuple[dict[str, Any], bytes]:
        from refcompiler.package.format import encoded
        from refcompiler.package.plans import pack_plan
        from refcompiler.package.rows import Packer

        p = Packer(complete=True, codes=self.site().identity()[0])
        if known.home is not None:
            plan.graph = known.home.graph()
        packed = pack_plan(p, plan, "")
        head = {
            "requires": p.required,
            "plan": packed,
            "noted": p.pack(known.noted),
            "rows": p.rows,
        }
        return head, encoded(head, p.blobs)

    def _slot(self, kept: store.Store, head: dict[str, Any]) -> int:
        """Where an entry with the same guards is, or where none is, or any."""
        from refcompiler.package.format import decoded

        free = None
        for slot in range(SLOTS):
            data = kept.get(KIND, self._key(slot))
            if data is None:
                free = slot if free is None else free
                continue
            try:
                other, _ = decoded(data, self._title)
            except PackageError:
                return slot
            if _guards(other) == _guards(head):
                return slot
        return time.time_ns() % SLOTS if free is None else free

    # ---- the rest ---------------------------------------------------------------------------

    @property
    def _title(self) -> str:
        title: str = self.site().title
        return title

    def _key(self, what: Any) -> str:
        assert self.place is not None
        return store.key_of(self.place, str(what))

    def _open(self) -> store.Store | None:
        """The store, unless somebody wants to see how programs are captured."""
        site = self.site()
        if self.place is None or not config.cache_programs or site.watch is not None:
            return None
        others = [
            row.name for row in LOGS if row.name not in _OF_PLANS and wanted(log_of(row.name))
        ]
        if others or wanted_folder(site.traced.enabled):
            what = f"the log {others[0]}" if others else "a trace"
            log.info("%s is not looked for: somebody wants %s of a capture", self._title, what)
            return None
        return store.current()


def _guards(head: dict[str, Any]) -> list[Any]:
    """Those of an entry, whatever the numbers of their rows are."""
    rows = head["rows"]

    def whole(value: Any) -> Any:
        if type(value) is not list:
            return value
        if len(value) == 1 and type(value[0]) is int:
            return [rows[value[0]][0], *map(whole, rows[value[0]][1:])]
        return [*map(whole, value)]

    return [whole(guard) for guard in head["plan"][0]]


def _kind_of_call(plan: Plan) -> str:
    """Modes and tensors that the plan is for: another kind of call may be kept."""
    known = [guard.expected for guard in plan.guards if guard.kind in ("AMBIENT", "TENSOR")]
    return f"{len(plan.guards)} {known!r}"


def _again(
    shelf: weakref.ref[Shelf],
    plan: weakref.ref[Plan],
    ending: Callable[[], bool] = sys.is_finalizing,
) -> None:
    """A backward of ``plan`` was compiled."""
    here, there = shelf(), plan()
    if here is not None and there is not None and here.site() is not None and not ending():
        here.again(there)


@dataclass
class _Known:
    """Of a plan: what its capture has ``noted``, and the ``slot`` that it is in, if it is.

    ``home``: of one that was found. ``is_new``: what is in the slot has not all of it.
    """

    noted: dict[Any, Any]
    slot: int | None = None
    home: _Home | None = None

    def __post_init__(self) -> None:
        self.is_new = self.slot is None


class _Home:
    """The site that a plan of an earlier process is for."""

    plan: Callable[[], Plan | None] = staticmethod(lambda: None)
    graph: Callable[[], Any] = staticmethod(lambda: None)

    def __init__(self, shelf: Shelf):
        self.shelf, self.backend = weakref.ref(shelf), shelf.site().backend
        self.site = shelf.site

    def anew(self, why: str) -> None:
        shelf, site, plan = self.shelf(), self.site(), self.plan()
        if shelf is not None and site is not None and plan is not None:
            shelf.spent = True
            log.info("%s is captured anew: %s", site.title, why)
            site.forget(plan)

    def compile(self, graph: Any, inputs: list[Any]) -> Any:
        return compile_graph(self.backend, graph, inputs)

    def watch(self, tell: Callable[[Callable[[], None]], None]) -> None:
        tell(self._has_more)

    def _has_more(self) -> None:
        shelf, plan = self.shelf(), self.plan()
        if shelf is not None and plan is not None and shelf.site() is not None:
            shelf.again(plan)

    def pending(self) -> Any:
        return self.site().pending()

    @property
    def codes(self) -> Sequence[CodeType]:
        codes: list[CodeType] = self.site().identity()[0]
        return codes

    def captured(self, chosen: Mapping[Any, Any], values: Sequence[Any]) -> tuple[Any, Any]:
        site = self.site()
        if site is None:
            return None, None
        policy: Policy = site.policy()
        policy.chosen.update(chosen)
        graph = site.graph_of(policy, values)
        if graph is None or not _are_alike(graph, self.graph()):
            return None, None
        return graph, functools.partial(site.recover, policy)


def _are_alike(graph: Any, kept: Any) -> bool:
    """Whether two captures of a call came to the same graph; then ``kept`` gets its places."""
    pairs = list(zip(graph.graph.nodes, kept.graph.nodes, strict=False))
    if len(graph.graph.nodes) != len(kept.graph.nodes):
        return False
    if any(node.name != other.name or node.op != other.op for node, other in pairs):
        return False
    for node, other in pairs:
        if "refcompiler_places" in node.meta:
            other.meta["refcompiler_places"] = node.meta["refcompiler_places"]
    return True


# ---- places --------------------------------------------------------------------------------------


def _place(site: Any) -> tuple[str | None, str]:
    """What a capture at ``site`` depends on and no guard asks, or None and why nothing is kept."""
    backend = _named(site.backend)
    if backend is None:
        return None, "its backend, or an option of it, is none that can be named"
    if site.keep_guards is not None or site.fixed:
        return None, "not all guards are its own"
    from refcompiler.package.names import digest_of

    codes, places = site.identity()
    shape = site.shape()
    if shape is None:
        return None, "a namespace in it is no module's"
    parts = [f"{site.title} {backend} {site.fullgraph} {site.dynamic} {places} {shape}"]
    for code in codes:
        if _is_generated(code.co_filename):
            return None, "its code is in no file"
        where = code.co_qualname, code.co_filename, code.co_firstlineno
        parts.append(f"{where} {digest_of(code, lined=True)}")
    return "\n".join([*parts, _process()]), ""


def _is_generated(file: str) -> bool:
    return file.startswith("<")


def _named(backend: Any) -> str | None:
    """A backend of this project with its options.

    One that a function of this project has made of somebody's compilers (``aot_autograd``) has no
    name that says which.
    """
    function = getattr(backend, "func", backend)
    module = getattr(function, "__module__", "")
    if module.partition(".")[0] not in _OWN:
        return None
    found: Any = sys.modules.get(module)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    if found is not function:
        return None
    given = getattr(backend, "keywords", {})
    options = given.get("options", {})
    if not all(isinstance(value, _PLAIN) for value in options.values()):
        return None
    said = sorted((name, repr(value)) for name, value in options.items())
    return f"{function.__module__}.{function.__qualname__} {given.get('mode')} {said}"


def _process() -> str:
    settings = [(f.name, getattr(config, f.name)) for f in fields(config) if f.name not in _ASIDE]
    return "\n".join((_versions(), repr(settings), _environment()))


@functools.cache
def _versions() -> str:
    return "\n".join(
        (identity.release(), identity.source_of(*_OWN, "specs"), str(sys.flags.optimize))
    )


@functools.cache
def _packages(path: str, changed: int) -> str:
    """A digest of what installers have noted of the packages in ``path``: the digest of each file.

    ``changed``: when the folder was, so that this is read once as long as it is what it was. What
    depends on where the environment lies (scripts, the installer's own notes) is left out, so
    that a cache may come from another machine. Of what no installer has noted there is its time.
    """
    found, noted = hashlib.sha256(), {b"__pycache__"}
    for folder in sorted(Path(path).glob("*.dist-info")):
        found.update(folder.name.encode())
        try:
            lines = (folder / "RECORD").read_bytes().splitlines()
        except OSError:
            continue
        own = folder.name.encode()
        kept = [n for n in lines if not n.startswith((own, b"..", b'"')) and b".pyc," not in n]
        found.update(b"\n".join(sorted(kept)))
        noted |= {folder.name.encode(), *(n.partition(b",")[0].partition(b"/")[0] for n in kept)}
    for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
        if entry.name.encode() not in noted:
            found.update(f"{entry.name} {entry.stat(follow_symlinks=False).st_mtime_ns}".encode())
    return found.hexdigest()


def _environment() -> str:
    """What is installed, and what libraries may have read."""
    known = []
    for path in dict.fromkeys(sysconfig.get_paths()[name] for name in ("purelib", "platlib")):
        try:
            known.append(_packages(path, os.stat(path).st_mtime_ns))
        except OSError:
            continue
    said = [
        (name, value)
        for name, value in sorted(os.environ.items())
        if name.startswith(_READ) and not name.endswith(_NOT_READ)
    ]
    return repr((known, said))
