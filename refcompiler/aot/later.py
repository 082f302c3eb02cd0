"""Backwards that are traced when they are first wanted, for what the forward has saved by then."""

from __future__ import annotations

import copy
import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import (
    GuardOnDataDependentSymNode,
    PendingUnbackedSymbolNotFound,
)

from refcompiler.aot.again import Then, backward_like, signatures
from refcompiler.aot.casts import Casts
from refcompiler.aot.depends import Chain, Depends
from refcompiler.aot.gates import REFUSED, Stages
from refcompiler.aot.inputs import Unsupported
from refcompiler.aot.joint import Joint
from refcompiler.aot.ports import Key
from refcompiler.aot.program import Program, Second
from refcompiler.aot.symbols import deciding, where
from refcompiler.aot.toward import toward
from refcompiler.aot.twice import TWICE
from refcompiler.logs import log_of
from refcompiler.remade import made, maker

_HINTS = log_of("perf_hints")
#: Others are the program's own, which eager raises in its backward too.
_REFUSALS = (
    Unsupported,
    DynamicOutputShapeException,
    DataDependentOutputException,
    GuardOnDataDependentSymNode,
    PendingUnbackedSymbolNotFound,  # a size that depends on data, which the first trace named
)

Strides = Mapping[int, Sequence[Any]]  # as numbers, or as :func:`by_sizes` says
Backward = Callable[[list[Any]], Any]


class Later:
    """Those of ``program``, which was made of ``joint``; ``traced`` traces it again as ``then``."""

    def __init__(
        self, joint: Joint, program: Program, then: Then, traced: Callable[..., Joint], env: Any
    ):
        self.joint, self.program, self.env = joint, program, env
        self.then, self.traced = then, traced
        self.first = signatures(joint)
        self.gradients = len(joint.inputs) + len(joint.reads) + len(joint.currents)

    def traced_for(self, missing: tuple[int, ...], otherwise: GraphModule) -> Backward | None:
        """The backward where autograd's functions of several results have gradients of some.

        ``otherwise`` is the graph for calls with sizes that the trace is not for.
        """
        try:
            with deciding(self.env) as decided:
                again = self.then.run(lambda: self.traced(missing))
        except _REFUSALS as error:
            _HINTS.info("a backward without some gradients may round otherwise: %s", error)
            return None
        graph = backward_like(again, self.first, self.program.backward)
        if graph is None:
            return None
        return for_sizes(self.program.compile_backward, graph, decided, otherwise.forward)

    def laid_for(
        self, missing: tuple[int, ...], strides: Strides, program: Program | None = None
    ) -> Backward | None:
        """The backward for tangents that lie otherwise than what they are of.

        ``program``: that of the stages' rest, where there are stages.
        """
        known = program or self.program
        try:
            with deciding(self.env) as decided:
                traced = functools.partial(self.traced, missing, program is not None, strides)
                again = self.then.run(traced)
        except _REFUSALS as error:
            _HINTS.info("a backward of expanded gradients may round otherwise: %s", error)
            return None
        graph = backward_like(again, self.first, known.backward, slice(self.gradients))
        if graph is None:
            return None

        def otherwise(*arguments: Any) -> Any:
            return known.backward_for(missing)([*arguments])

        return for_sizes(known.compile_backward, graph, decided, otherwise)

    def cast_for(self, missing: tuple[int, ...], strides: Strides, casts: Casts) -> Backward | None:
        """The backward under autocast, which eager's operators ask in a backward too."""
        try:
            with deciding(self.env) as decided:
                again = self.then.run(lambda: self.traced(missing, False, strides, casts))
        except _REFUSALS as error:
            _HINTS.info("a backward under autocast computes as without it: %s", error)
            return None
        graph = backward_like(again, self.first, self.program.backward, slice(self.gradients))
        if graph is None:
            _HINTS.info("a backward under autocast needs what the forward has not saved")
            return None
        plainly = self.program.backward_for(missing) if decided else other_sizes
        return for_sizes(self.program.compile_backward, graph, decided, _listed(plainly))

    def second_for(self, missing: tuple[int, ...], chain: Chain) -> Second:
        """The backward of the backward, or of such: gradients of gradients, as ``chain`` says.

        It takes what the backward takes, and what comes back to these, derivative for derivative;
        it gives what comes back to the inputs, then to all gradients but the last.
        """
        if self.joint.rewrites:
            raise RuntimeError(f"{TWICE} (a checkpointed region writes to what is outside of it)")
        try:
            with deciding(self.env) as decided:
                again = self.then.run(lambda: self.traced(missing, second=chain))
        except _REFUSALS as error:
            raise RuntimeError(f"{TWICE} ({error})") from error
        graph = backward_like(again, self.first, self.program.backward)
        if graph is None:
            raise RuntimeError(TWICE)
        compiled = for_sizes(self.program.compile_backward, graph, decided, _no_second)
        return compiled, _reads(graph)

    def depends_for(self, missing: tuple[int, ...], chain: Chain) -> Depends | None:
        """What those depend on; None if it cannot be told."""
        if self.joint.rewrites:
            return None
        try:
            with deciding(self.env):
                again = self.then.run(lambda: self.traced(missing, second=chain, asks=True))
        except (*_REFUSALS, RuntimeError):
            return None
        return again.depends

    def part(self, unwanted: tuple[int, ...]) -> Program | None:
        """The program whose backward has no gradients with these numbers; None: it has all."""
        whole = self.program
        if whole.rewrites:  # what regions write, they write whatever is asked for
            return None
        later = copy.copy(self)
        later.program = part = dataclasses.replace(
            whole,
            backward=toward(whole.backward, unwanted),
            compile_backward=lambda graph: whole.compile_backward(toward(graph, unwanted)),
            compiled={},
            laid={},
            cast={},
            part_for=None,
            parts={},
            is_part=True,
        )
        part.traced_for, part.cast_for = later.traced_for, later.cast_for
        if whole.laid_for is not None:
            part.laid_for = later.laid_for
        part.draws, part.releases = whole.draws, whole.releases
        return part

    def stages(self) -> Stages:
        """The backward in stages."""
        if self.joint.rewrites:
            raise RuntimeError(REFUSED.format(why="writes to what is outside of a checkpoint"))
        try:
            with deciding(self.env) as decided:
                again = self.then.run(lambda: self.traced(staged=True))
        except _REFUSALS as error:
            raise RuntimeError(REFUSED.format(why=f"cannot be traced: {error}")) from error
        rest = self._program(again, slice(self.gradients), decided)
        if self.program.laid_for is not None:
            rest.laid_for = lambda missing, strides: self.laid_for(missing, strides, rest)
        parts: dict[int, tuple[Program, list[Key]]] = {}
        for place in dict.fromkeys(place for place, _ in again.parts):
            at = [n for n, (other, _) in enumerate(again.parts, self.gradients) if other == place]
            keys = [key for other, key in again.parts if other == place]
            parts[place] = self._program(again, slice(at[0], at[-1] + 1), decided), keys
        return Stages(rest, parts)

    def _program(self, again: Joint, wanted: slice, decided: Sequence[Any]) -> Program:
        graph = backward_like(again, self.first, self.program.backward, wanted)
        if graph is None:
            raise RuntimeError(REFUSED.format(why="needs what the forward has not saved"))
        compile_backward = self.program.compile_backward
        return dataclasses.replace(
            self.program,
            backward=graph,
            compile_backward=lambda g: for_sizes(compile_backward, g, decided, other_sizes),
            compiled={},
            uneven=(),
            asking=(),
            traced_for=lambda missing, otherwise: None,
            gates=None,
            laid_for=None,
            laid={},
            cast_for=None,
            cast={},
            second_for=None,
            second={},
            depends_for=None,
            known_depends={},
            part_for=None,
            parts={},
        )


def _reads(graph: GraphModule) -> list[set[int]]:
    """The numbers of the inputs that each result is computed of."""
    holders = graph.graph.find_nodes(op="placeholder")
    bits = {holder: 1 << n for n, holder in enumerate(holders)}
    for node in graph.graph.nodes:
        if node not in bits:
            masks = [bits[each] for each in node.all_input_nodes]
            bits[node] = functools.reduce(operator.or_, masks, 0)
    (output,) = graph.graph.find_nodes(op="output")
    found = [bits.get(node, 0) for node in output.args[0]]
    return [{n for n in range(len(holders)) if mask >> n & 1} for mask in found]


def for_sizes(
    compile_backward: Callable[[GraphModule], Backward],
    graph: GraphModule,
    decided: Sequence[Any],
    otherwise: Callable[..., Any],
) -> Backward:
    """``graph`` compiled for sizes as ``decided``; ``otherwise`` is called for others."""
    compiled = compile_backward(graph)
    if not decided:
        return compiled
    values = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
    return _boxed(where(decided, values, _flat(compiled), otherwise))


def _listed(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given: call([*given])


@maker
def _flat(call: Backward) -> Callable[..., Any]:
    """``call``, which takes a list, called with what is in it."""
    return made(lambda *given: call([*given]), _flat, call)


@maker
def _boxed(call: Callable[..., Any]) -> Backward:
    """``call``, called with a list."""
    return made(lambda arguments: call(*arguments), _boxed, call)


def _no_second(*given: Any) -> Any:
    raise RuntimeError(f"{TWICE} (its operations have no derivative that is traced for all sizes)")


def other_sizes(*given: Any) -> Any:
    raise RuntimeError(REFUSED.format(why="was traced for other sizes"))
