"""The backend under test, watched: graphs are numbered, and each call is judged by itself."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from conformance.execute import snapshot_tensors
from conformance.faults import messages
from conformance.faults.apart import Say
from conformance.faults.copies import ambience, copied, is_plain
from conformance.faults.graphs import body, copy_of, first_place
from conformance.faults.isolate import GraphCall, judged, seen_names
from conformance.faults.result import Graph
from conformance.meter import Backend, Meter
from conformance.observe import Snapshot, StepSeen, error_seen, rng_state, snapshot
from conformance.verdict import Compiled, Finding, Kind, Verdict

MARKS = ("takes_symbols", "traces")
# Calls of a graph that are judged by themselves, unless all are wanted; then each power of two.
FIRST_CALLS = 4
# Bytes that one call's arguments may have, to be copied.
MOST_BYTES = 4 << 30
# Calls whose backward has not come yet.
MOST_PENDING = 16
EARLIER = 4
EARLIER_RESULT = "an earlier result"


@dataclass(frozen=True)
class Plan:
    """How one process runs the program.

    ``compiled``: False where the calls of compile are taken out. ``runs_graphs``: the captured
    graphs run as they are. ``only``: the graphs that are compiled, None for all; the others run as
    they are. ``options``: for the backend. ``judge``: look at each graph's calls by themselves,
    ``thoroughly`` at all of them. ``search``: the graph and the call to take apart, for a failure
    as ``wanted``; ``known``: what came of probes in earlier processes; ``shows``: a case is
    wanted that shows it.
    """

    compiled: bool = True
    runs_graphs: bool = False
    level: str = ""
    options: tuple[tuple[str, Any], ...] = ()
    only: frozenset[int] | None = None
    judge: bool = False
    thoroughly: bool = False
    search: tuple[int, int] | None = None
    wanted: Finding | None = None
    known: tuple[tuple[str, Verdict], ...] = ()
    shows: bool = False


@dataclass
class Pending:
    """A call that was made: what it began with and gave, and the tangents as they come."""

    number: int
    count: int
    call: GraphCall
    compiled: Callable[..., Any]
    found: StepSeen
    results: int
    tangents: dict[int, torch.Tensor] = field(default_factory=dict)


class Watch:
    """Shared by all calls of compile in a program; :meth:`backend` is what each is given."""

    def __init__(self, plan: Plan, say: Say):
        self.plan, self.say = plan, say
        self.graphs = 0
        self.meters: list[Meter] = []
        self.pending: list[Pending] = []
        self.earlier: list[tuple[int, int, list[torch.Tensor]]] = []
        self.searching: Callable[..., None] | None = None

    def backend(self, inner: Backend) -> Backend:
        """``inner``, watched."""

        def watched(gm: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
            return self._compile(inner, gm, inputs, options)

        for mark in MARKS:
            if hasattr(inner, mark):
                setattr(watched, mark, getattr(inner, mark))
        watched.__name__ = getattr(inner, "__name__", type(inner).__name__)
        return watched

    def _compile(
        self, inner: Backend, gm: torch.fx.GraphModule, inputs: Sequence[Any], options: dict
    ) -> Callable[..., Any]:
        number, kept = self.graphs, copy_of(gm)
        self.graphs += 1
        self.say(messages.Compiling(Graph(number, len(body(gm)), first_place(gm))))
        options = {**options, **dict(self.plan.options)}
        compile = functools.partial(inner, **options)
        if self.plan.search is not None and self.plan.search[0] == number:
            return self._taken_apart(kept, compile)
        if self._as_it_is(number):
            return self._counted(number, kept, kept.forward, judge=False)
        name = getattr(inner, "__name__", type(inner).__name__)
        meter = Meter(inner, name, watched=False)
        self.meters.append(meter)
        try:
            compiled = meter(gm, inputs, **options)
        except Exception as raised:
            self.say(messages.GraphSeen(number, 0, _raised(raised)))
            raise
        return self._counted(number, kept, compiled, self.plan.judge)

    def _as_it_is(self, number: int) -> bool:
        plan = self.plan
        others = plan.search is not None or (plan.only is not None and number not in plan.only)
        return plan.runs_graphs or others

    def _taken_apart(self, gm: torch.fx.GraphModule, compile: Any) -> Callable[..., Any]:
        assert self.plan.search is not None
        calls = 0

        def call(*args: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls - 1 == self.plan.search[1]:  # type: ignore[index]
                assert self.searching is not None
                record = GraphCall(gm, copied(args).args, ambience())
                self.searching(record, compile, calls)
            return gm.forward(*args)

        return call

    def _counted(
        self, number: int, gm: torch.fx.GraphModule, compiled: Callable[..., Any], judge: bool
    ) -> Callable[..., Any]:
        calls = 0

        @functools.wraps(compiled, updated=())
        def call(*args: Any) -> Any:
            nonlocal calls
            count = calls
            calls += 1
            self.say(messages.Running(number, count, "forward"))
            if not judge or not self._is_looked_at(number, count, args):
                return compiled(*args)
            return self._judged(number, count, gm, compiled, args)

        return call

    def _is_looked_at(self, number: int, count: int, args: Sequence[Any]) -> bool:
        if not (self.plan.thoroughly or count < FIRST_CALLS or count & (count - 1) == 0):
            return False
        size = sum(t.untyped_storage().nbytes() for t in args if is_plain(t))
        if size > MOST_BYTES:
            why = f"its arguments have {size >> 20} MiB"
            self.say(messages.Skipped(number, count, why))
            return False
        return True

    def _judged(
        self,
        number: int,
        count: int,
        gm: torch.fx.GraphModule,
        compiled: Callable[..., Any],
        args: Sequence[Any],
    ) -> Any:
        before = GraphCall(gm, copied(args).args, ambience())
        earlier = [(n, c, t, [_digest(x) for x in t]) for n, c, t in self.earlier]
        try:
            out = compiled(*args)
        except Exception as raised:
            error = error_seen(raised, "", ())
            found = StepSeen(snapshot({}), "", error, rng_state(), Compiled())
            self._settle(Pending(number, count, before, compiled, found, 0))
            raise
        found = StepSeen(snapshot(seen_names(out, args)), "", None, rng_state(), Compiled())
        self._look_at_earlier(number, count, earlier, args)
        tensors = snapshot_tensors(list(out) if isinstance(out, (tuple, list)) else [out])
        self.earlier = [*self.earlier, (number, count, [t.detach() for t in tensors])][-EARLIER:]
        pending = Pending(number, count, before, compiled, found, len(tensors))
        if not any(t.requires_grad and not t.is_leaf for t in tensors):
            self._settle(pending)
            return out
        for place, tensor in enumerate(tensors):
            if tensor.requires_grad and not tensor.is_leaf:
                tensor.register_hook(functools.partial(self._came, pending, place))
        self.pending.append(pending)
        while len(self.pending) > MOST_PENDING:
            self._settle(self.pending.pop(0))
        return out

    def _came(self, pending: Pending, place: int, tangent: torch.Tensor) -> None:
        if not pending.tangents:
            self.say(messages.Running(pending.number, pending.count, "backward"))
        kept = tangent.detach()
        pending.tangents.setdefault(place, kept.clone() if kept.is_contiguous() else kept)

    def _look_at_earlier(
        self, number: int, count: int, earlier: Sequence[Any], args: Sequence[Any]
    ) -> None:
        """What other calls gave back is nobody's to write to, but where it came in."""
        given = {t.untyped_storage()._cdata for t in args if is_plain(t)}
        for other, turn, tensors, digests in earlier:
            for place, (tensor, digest) in enumerate(zip(tensors, digests)):
                if not is_plain(tensor) or tensor.untyped_storage()._cdata in given:
                    continue
                if _digest(tensor) != digest:
                    where = f"out[{place}] of call {turn + 1} of graph {other}"
                    finding = Finding(
                        Kind.WRONG, EARLIER_RESULT, where, 0, "as it was", "written over"
                    )
                    self.say(messages.GraphSeen(number, count, Verdict((finding,), 1)))
                    return

    def settle(self) -> None:
        """Judge the calls that are left: their backward has come, or never will."""
        for pending in self.pending:
            self._settle(pending)
        self.pending.clear()

    def settle_backwards(self) -> None:
        """Judge the calls whose backward has come."""
        ready = [p for p in self.pending if p.tangents]
        self.pending = [p for p in self.pending if not p.tangents]
        for pending in ready:
            self._settle(pending)

    def _settle(self, pending: Pending) -> None:
        call, found = pending.call, pending.found
        if pending.tangents:
            call.tangents = [pending.tangents.get(n) for n in range(pending.results)]
        expected = call.eager()
        if pending.tangents:
            found = _with_gradients(found, call.compiled(pending.compiled))
        expected = _without_their_gradients(expected, expected)
        found = _without_their_gradients(found, expected)
        verdict = judged(call, expected, found, lambda: call.compiled(pending.compiled))
        self.say(messages.GraphSeen(pending.number, pending.count, verdict))

    def taken(self) -> Compiled:
        """What the backend did since this was last asked."""
        return sum((meter.taken() for meter in self.meters), Compiled())


def _raised(error: Exception) -> Verdict:
    """What a compilation ended with, before a front end says it in other words."""
    seen = error_seen(error, "", ())
    kind = Kind.REFUSED if isinstance(error, NotImplementedError | ImportError) else Kind.CRASH
    headline = f"{seen.type}: {next(iter(seen.message.strip().splitlines()), '')}"
    evidence = {"traceback": seen.traceback}
    finding = Finding(kind, "exception", "compilation", 0, "code", headline, evidence=evidence)
    return Verdict((finding,), 1)


def _with_gradients(found: StepSeen, replayed: StepSeen) -> StepSeen:
    """The results as the program had them, and the gradients of a second run with its tangents."""
    if replayed.error is not None:
        return replayed
    own, other = found.snapshot, replayed.snapshot
    tensors = {k: v for k, v in other.tensors.items() if k.startswith("grad")}
    leaves = {k: v for k, v in other.leaves.items() if k.startswith("grad")}
    merged = Snapshot({**own.tensors, **tensors}, {**own.leaves, **leaves})
    return replace(found, snapshot=merged)


def _without_their_gradients(seen: StepSeen, like: StepSeen) -> StepSeen:
    """The program's own arguments have gradients of other work, and copies are leaves."""
    own, other = seen.snapshot, like.snapshot.tensors
    tensors = {}
    for path, tensor in own.tensors.items():
        if path.startswith("arg["):
            if path.endswith(".grad"):
                continue
            if path in other:
                tensor = replace(tensor, is_leaf=other[path].is_leaf)
        tensors[path] = tensor
    leaves = {
        path: leaf
        for path, leaf in own.leaves.items()
        if not (path.startswith("arg[") and path.endswith(".grad"))
    }
    return replace(seen, snapshot=Snapshot(tensors, leaves))


def _digest(tensor: torch.Tensor) -> str:
    if not is_plain(tensor):
        return ""
    with torch.no_grad():
        data = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return hashlib.sha256(data.reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
