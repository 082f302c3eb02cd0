"""Captures of calls at a site: as often as one takes, and once more for what an error asks."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import torch

from refcompiler.capture.dynamic import History, Policy
from refcompiler.capture.machine import Captured, Symbolic
from refcompiler.capture.reentry import Learned
from refcompiler.capture.signals import Again, Prepare, Restart
from refcompiler.errors import GraphBreakError, RefcompilerError, UnsupportedError
from refcompiler.interpreter.failures import Failure
from refcompiler.interpreter.frame import Frame
from refcompiler.plan.build import MISS, Plan, build
from refcompiler.plan.failure import Recover, Unanswered
from refcompiler.plan.writing import NotRebuilt
from refcompiler.runtime.config import config, whole_numbers
from refcompiler.runtime.profile import history_of
from refcompiler.runtime.stance import LOCK

log = logging.getLogger("refcompiler")


class _State(threading.local):
    capturing = False


STATE = _State()
EAGERS = frozenset({"exception-escapes", "fake-op-raised"})  # reasons that are eager's errors


class FullGraphBreak(Exception):
    """Carries the reason of a break out of a capture that must not break."""

    def __init__(self, reason: Any):
        super().__init__(str(reason))
        self.reason = reason


class Captures:
    """What is captured at one place. Sites say where it ``start``s and what becomes of it.

    ``parameters`` are the generated functions', ``backend`` what compiles. ``examined``: nodes that
    autograd was asked about in captures given up; ``learned``: what of the user's C code calls, as
    captures have learnt; ``history`` is made when the first capture asks.
    """

    def __init__(self, title: str, parameters: list[str], backend: Callable, fullgraph: bool):
        self.title = title
        self.parameters = parameters
        self.backend = backend
        self.fullgraph = fullgraph
        self.dynamic: bool | None = False
        self.examined: set[str] = set()
        self.history: History | None = None
        self.learned = Learned()

    # ---- what sites say ---------------------------------------------------------------------

    def start(self, machine: Symbolic, values: Sequence[Any]) -> Frame:
        raise NotImplementedError

    def plan(self, captured: Captured, recover: Recover) -> Plan:
        """What becomes of a capture."""
        raise NotImplementedError

    def pending(self) -> Callable:
        raise NotImplementedError

    def identity(self) -> tuple[list[CodeType], list[int]]:
        """The code objects that are run here, and where in them."""
        raise NotImplementedError

    def shape(self) -> Any:
        """What else stands fixed there, as text of it; None where only this process knows it."""
        return ""

    # ---- capturing --------------------------------------------------------------------------

    def watch_only(self, start: Callable[[Symbolic], Frame]) -> None:
        """Capture for what a later capture learns from it: which sizes and numbers change."""
        STATE.capturing = True
        machine = Symbolic({}, self.policy(), self.learned)
        try:
            machine.capture(start(machine))
        # whatever it is, the call that compiles will say so
        except (Exception, Again, Failure, Prepare, Restart) as error:
            log.debug("%s: nothing learnt from the first call: %s", self.title, error)
        finally:
            machine.close()
            STATE.capturing = False

    def capture(
        self,
        start: Callable[[Symbolic], Frame],
        policy: Policy | None = None,
        finish: Callable[[Captured, Recover], Plan] | None = None,
    ) -> Plan:
        """``finish`` is what becomes of the capture, if not the site's plan."""
        stops: dict[int, tuple[str, str]] = {}
        self.examined = set()
        self.learned.ahead.clear()
        STATE.capturing = True
        try:
            while True:
                now = policy or self.policy()
                machine = Symbolic(stops, now, self.learned)
                try:
                    captured = machine.capture(start(machine))
                    if captured.reason is not None and finish is None:
                        self.on_break(captured)
                    return (finish or self.plan)(captured, functools.partial(self.recover, now))
                except Prepare as signal:
                    try:
                        signal.action()
                        stops.clear()  # the program takes other steps now
                    except Exception:  # eager raises it, at its place
                        stops[signal.step] = (signal.row, signal.context)
                except Again:
                    pass
                except Restart as signal:
                    if signal.step in stops:
                        raise NotRebuilt(signal.context) from None
                    if machine.strict:
                        self.refuse_break(machine.reason(signal.row, signal.context))
                    stops[signal.step] = (signal.row, signal.context)
                    self.examined |= machine.recorder.examined()
                except Failure as failure:
                    raise failure.as_error() from None
                finally:
                    machine.close()
        finally:
            STATE.capturing = False

    def policy(self) -> Policy:
        """What becomes a symbol in a capture that begins now."""
        if self.history is None:
            self.history = history_of(*self.identity())
        self.history.noted.clear()
        return Policy(
            self.dynamic,
            config.automatic_dynamic_shapes,
            config.dynamic_sources,
            config.capture_scalar_outputs or self.fullgraph,
            config.capture_dynamic_output_shape_ops or self.fullgraph,
            whole_numbers(config.dynamic_values),
            config.unbacked_sources,
            self.history,
        )

    def on_break(self, captured: Captured) -> None:
        reason = captured.reason
        assert reason is not None
        if self.fullgraph:
            raise FullGraphBreak(reason)
        if captured.machine.strict:
            self.refuse_break(reason)

    def refuse_break(self, reason: Any) -> None:
        """The program says that a break is an error, which what eager raises is not."""
        if reason.row not in EAGERS:
            raise GraphBreakError(f"error_on_graph_break(True), but {self.title} breaks.\n{reason}")

    def recover(
        self, policy: Policy, step: int, tensors: dict[str, Any], values: Sequence[Any]
    ) -> Callable[[], Any] | int | None:
        """How a call goes on whose graph has raised at root instruction ``step``.

        It is captured once more up to there; the ``tensors`` that are alive then are known. An
        earlier instruction is the answer where a graph can end there only.
        """

        def computed(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
            outputs = list(graph.graph.find_nodes(op="output"))[0].args[0]
            if any(tensors.get(node.name) is None for node in outputs):
                raise NotRebuilt("Tensor")
            found = [tensors[node.name] for node in outputs]
            return lambda *inputs: found

        row = "operation-raised"
        with LOCK:
            machine = Symbolic({step: (row, "while the graph ran")}, policy, self.learned)
            machine.recovers = True
            STATE.capturing = True
            try:
                captured = machine.capture(self.start(machine, values))
                if captured.reason is None or captured.reason.row != row:
                    return None
                plan = build(
                    captured, self.parameters, self.title, computed, self.pending(), root=True
                )
            except Restart as signal:
                return signal.step if signal.step < step else None
            except (Again, NotRebuilt, Prepare, UnsupportedError) as error:
                log.info("what %s did before an error cannot be replayed: %s", self.title, error)
                return None
            finally:
                STATE.capturing = False
                machine.close()

        def go_on() -> Any:
            found = plan.run(*values)
            if found is MISS:
                raise Unanswered
            return found

        return go_on

    def graph_of(self, policy: Policy, values: Sequence[Any]) -> torch.fx.GraphModule | None:
        """The graph of a call, captured once more; None where that does not come about."""
        found: list[torch.fx.GraphModule] = []

        def compiled(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
            found.append(graph)
            return lambda *inputs: ()

        def finish(captured: Captured, recover: Recover) -> Plan:
            given = self.parameters, self.title, compiled, self.pending()
            return build(captured, *given, root=True)

        with LOCK:
            try:
                self.capture(lambda machine: self.start(machine, values), policy, finish)
            except (NotRebuilt, RefcompilerError) as error:
                log.info("where %s has failed is not known: %s", self.title, error)
        return found[-1] if found else None
