"""An error inside a graph's run: eager would have raised it in the middle of the program.

By then it would have written to objects what a plan writes after its graph. So the call is captured
again up to the instruction that failed; the tensors that are alive there are those that the failed
run, or a second one node by node, had computed. The plan of that capture replays what the program
had done, and the instruction runs natively: it raises where the user's handlers are.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any, NamedTuple

import torch

from refcompiler.ambient import Autocast
from refcompiler.capture.state.switches import Setting
from refcompiler.errors import RefcompilerError
from refcompiler.interpreter.tracebacks import Values, with_entry

#: ``recover(step, tensors, values)`` goes on natively at a root instruction of the capture. It
#: gives a call that gives the plan's answer, an earlier instruction from which on all has to run
#: natively, or None where there is no answer.
Recover = Callable[[int, dict[str, Any], Sequence[Any]], Callable[[], Any] | int | None]


class Unanswered(Exception):
    """The plan of a recovery does not hold for its call."""


class Before:
    """What a graph's run may change although it fails: ``written`` inputs, and random generators.

    ``uncounted``: what inference mode has made, of which writes are not counted, is written to.
    ``generators``: those of the program that the graph holds.
    """

    __slots__ = ("written", "versions", "random", "generators")

    def __init__(
        self,
        written: Sequence[torch.Tensor],
        random: bool,
        uncounted: bool,
        generators: Sequence[torch.Generator] = (),
    ):
        self.written = written
        self.versions = _versions(written, uncounted)
        self.random = _random_state() if random else []
        self.generators = [(g, g.get_state()) for g in generators] if random else []

    def is_unwritten(self) -> bool:
        return _versions(self.written, False) == self.versions

    def has_written(self, i: int) -> bool:
        return _version(self.written[i], False) != self.versions[i]

    def is_unmoved(self) -> bool:
        """No random number was drawn."""
        return all(map(torch.equal, self.random, _random_state())) and all(
            torch.equal(state, generator.get_state()) for generator, state in self.generators
        )

    def rewind(self) -> None:
        """Random numbers are drawn once more."""
        if self.random:
            torch.set_rng_state(self.random[0])
        for device, state in enumerate(self.random[1:]):
            torch.cuda.set_rng_state(state, device)
        for generator, state in self.generators:
            generator.set_state(state)


def _versions(tensors: Sequence[torch.Tensor], uncounted: bool) -> list[int]:
    """How often each was written to. Those of an optimizer's step are hundreds: all are asked at
    once, and one by one only where one has no count, which torch refuses to give."""
    try:
        return [tensor._version for tensor in tensors]
    except RuntimeError:
        return [_version(tensor, uncounted) for tensor in tensors]


def _version(tensor: torch.Tensor, uncounted: bool) -> int:
    """How often ``tensor`` was written to."""
    return -uncounted if tensor.is_inference() else tensor._version


def _random_state() -> list[torch.Tensor]:
    states = [torch.get_rng_state()]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states += torch.cuda.get_rng_state_all()
    return states


class FailedRun(Exception):
    """``__cause__`` ended a graph's run, of which is known what was ``before``."""

    def __init__(self, before: Before):
        super().__init__(before)
        self.before = before


class Failed(NamedTuple):
    """Where a run ended, and the tensors that it had computed by the names of their nodes."""

    node: torch.fx.Node
    tensors: dict[str, Any]

    @property
    def step(self) -> int | None:
        """Which root instruction of the capture that was."""
        return self.node.meta.get("refcompiler_step")


def _is_of_saving_hook(traceback: TracebackType | None) -> bool:
    """Whether a hook for what autograd saves has raised: it would be called for more once more.

    A checkpoint's, when what it computes again has all that the backward needs.
    """
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    code = hooks and getattr(inspect.unwrap(hooks[0]), "__code__", None)
    while code and traceback is not None:
        if traceback.tb_frame.f_code is code:
            return True
        traceback = traceback.tb_next
    return False


class OnError:
    """What a plan does with an error of its graph.

    ``grad`` and ``autocast`` are the modes at the start, where the graph changes them: ``with``
    restores them when an error leaves its block. So are the ``switches`` that the graph sets.
    """

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        grad: bool,
        autocast: Autocast | None,
        switches: Sequence[Setting],
        recover: Recover | None,
    ):
        self.graph = graph
        self.grad = grad
        self.autocast = autocast
        self.switches = switches
        self.recover = recover

    def __call__(self, error: BaseException, values: Sequence[Any], inputs: Sequence[Any]) -> Any:
        """The answer of the call with arguments ``values``; else it raises ``error``."""
        before = None
        if isinstance(error, FailedRun):
            before, error = error.before, error.__cause__  # type: ignore[assignment]
        node = failing_node(error.__traceback__, self.graph)
        failed = failed_run(error.__traceback__, self.graph, node)
        of_hook = _is_of_saving_hook(error.__traceback__)
        error.__traceback__ = None  # the frame may hold a mode, which ends
        self.restore_modes()
        recovered = None
        if self.recover is not None and isinstance(error, Exception):
            if not isinstance(error, RefcompilerError) and not of_hook:
                recovered = self.find(self.recover, values, inputs, failed, before)
        if recovered is not None:
            del before, failed
            with contextlib.suppress(Unanswered):
                return recovered()
        if node is not None:
            traceback: TracebackType | None = None
            for place in reversed(node.meta.get("refcompiler_places", ())):
                traceback = with_entry(place, traceback, Values.NONE)
            error.__traceback__ = traceback
        raise error

    def find(
        self,
        recover: Recover,
        values: Sequence[Any],
        inputs: Sequence[Any],
        failed: Failed | None,
        before: Before | None,
    ) -> Callable[[], Any] | None:
        """How the call goes on; None where what the failed run has left is not enough."""
        recovered: Any = None
        # What failed may have drawn before, and draws once more: that is told by another run.
        drew = before is not None and before.is_unwritten() and not before.is_unmoved()
        if failed is not None and failed.step is not None and not drew:
            recovered = recover(failed.step, failed.tensors, values)
        if recovered is None and (before is None or before.is_unwritten()):
            failed = self.run_again(inputs, before)
            if failed is not None and failed.step is not None:
                recovered = recover(failed.step, failed.tensors, values)
        if type(recovered) is int:
            if self.graph.meta["refcompiler_writes"]:
                return None  # a second run would write twice
            failed = self.run_again(inputs, before, recovered)
            if failed is not None:
                recovered = recover(recovered, failed.tensors, values)
        return recovered if callable(recovered) else None

    def run_again(
        self, inputs: Sequence[Any], before: Before | None, end: int | None = None
    ) -> Failed | None:
        """Node by node, keeping all tensors; None where this does not fail.

        What the node that fails has drawn is to be drawn again. ``end``: it ends before the first
        node of that root instruction.
        """
        if before is not None:
            before.rewind()
        run = _Again(self.graph, end, before)
        traceback = None
        try:
            run.run(*inputs)
        except Exception as error:
            traceback, error.__traceback__ = error.__traceback__, None
            if run.before is not None and not isinstance(error, _End):
                run.before.rewind()
        node = failing_node(traceback, self.graph)
        failed = failed_run(traceback, self.graph, node)
        traceback = None  # it holds this frame
        run.forget()
        self.restore_modes()
        return failed

    def restore_modes(self) -> None:
        if self.autocast is not None:
            torch._C._set_grad_enabled(self.grad)
            self.autocast.set()
        for switch, before, _ in self.switches:
            switch.set(*before)


class _Again(torch.fx.Interpreter):
    """``first``: what was before the run, if it may draw; ``before``: before its last node."""

    def __init__(self, graph: torch.fx.GraphModule, end: int | None, first: Before | None):
        super().__init__(graph, garbage_collect_values=False)
        self.draws = first is not None and bool(first.random)
        self.generators = [] if first is None else [g for g, _ in first.generators]
        self.before: Before | None = None
        self.extra_traceback = False
        self.last: torch.fx.Node | None = None
        for node in reversed(graph.graph.nodes):
            step = node.meta.get("refcompiler_step")  # that enter modes have none
            if end is None or (step is not None and step < end) or node.op == "placeholder":
                break
            self.last = node

    def run_node(self, n: torch.fx.Node) -> Any:
        if n is self.last:
            raise _End
        if self.draws:
            self.before = Before((), True, False, self.generators)
        return super().run_node(n)

    def forget(self) -> None:
        """The modes that were entered end with their guards, the innermost first."""
        for node in reversed(list(self.env)):
            del self.env[node]


class _End(Exception):
    """A second run has got as far as it shall."""


_RUN_NODE = (torch.fx.Interpreter.run_node.__code__, _Again.run_node.__code__)


def failing_node(
    traceback: TracebackType | None, graph: torch.fx.GraphModule
) -> torch.fx.Node | None:
    """The node that was running; None where a backend runs something else."""
    while traceback is not None:
        frame = traceback.tb_frame
        if frame.f_code in _RUN_NODE:
            return _original(frame.f_locals["n"], graph)
        found = _node_at(frame, traceback.tb_lineno)
        if found is not None:
            found = _original(found, graph)
        if found is not None:
            return found
        traceback = traceback.tb_next
    return None


def _node_at(frame: FrameType, line: int) -> torch.fx.Node | None:
    """The node that the line of a generated ``forward`` stands for.

    No other frame is asked for its locals: one that still runs would hold them.
    """
    code = frame.f_code
    if code.co_name != "forward" or not code.co_filename.startswith("<eval_with_key>"):
        return None
    module = frame.f_locals["self"]
    index = (getattr(module, "_lineno_map", None) or {}).get(
        line - getattr(module, "_prologue_start", 0)
    )
    nodes = list(module.graph.nodes)
    return nodes[index] if index is not None and index < len(nodes) else None


def _original(node: torch.fx.Node, graph: torch.fx.GraphModule) -> torch.fx.Node | None:
    """The node of ``graph`` that ``node`` is, or is a copy of: a copy was made at its places."""
    if node.graph is graph.graph:
        return node
    places = node.meta.get("refcompiler_places")
    for own in graph.graph.nodes:
        if own.name == node.name:
            return own if places and own.meta.get("refcompiler_places") is places else None
    return None


#: What nodes give besides the guards of modes.
_KEPT = (torch.Tensor, int, float, bool)


def failed_run(
    traceback: TracebackType | None, graph: torch.fx.GraphModule, node: torch.fx.Node | None
) -> Failed | None:
    """What the run of ``graph`` itself had computed when ``node`` failed."""
    if node is None:
        return None
    tensors: dict[str, Any] | None = None
    while traceback is not None and tensors is None:
        frame = traceback.tb_frame
        running = _node_at(frame, traceback.tb_lineno)
        if running is not None and _original(running, graph) is node:
            tensors = {k: v for k, v in frame.f_locals.items() if isinstance(v, _KEPT)}
        elif frame.f_code in _RUN_NODE and _original(frame.f_locals["n"], graph) is node:
            known = frame.f_locals["self"].env.items()
            tensors = {n.name: v for n, v in known if isinstance(v, _KEPT)}
        traceback = traceback.tb_next
    return None if tensors is None else Failed(node, tensors)
