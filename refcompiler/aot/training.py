"""The program of a graph with gradients: its trace parted, compiled, and told what a call asks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from refcompiler.aot.again import Then
from refcompiler.aot.bases import Base
from refcompiler.aot.compilers import Compilers, backward_state, boxed, flat, is_boxed
from refcompiler.aot.currents import READ, currents_of, updating
from refcompiler.aot.draws import drawing, draws_from_state
from refcompiler.aot.gates import Gates, levels
from refcompiler.aot.inputs import requires_grad
from refcompiler.aot.joint import Joint
from refcompiler.aot.later import Later
from refcompiler.aot.layout import Layout
from refcompiler.aot.observation import Observation, Value, ViewOf, Write
from refcompiler.aot.partition.packing import is_packed
from refcompiler.aot.ports import INPUT, RESULT, Key
from refcompiler.aot.private import memory, private_count
from refcompiler.aot.program import Program
from refcompiler.aot.saved import AS_IT_IS
from refcompiler.aot.since import Asked
from refcompiler.aot.symbols import deciding, where
from refcompiler.aot.twice import Derivable, reads_written
from refcompiler.fakes.mode import EagerFakeMode
from refcompiler.shapes.env import ShapeEnv

Partition = Callable[..., tuple[GraphModule, GraphModule]]


@dataclass
class Traced:
    """A graph and its trace, forward and backward.

    ``gm`` is as the caller gave it, with the first ``given`` of the ``fakes``; the others are the
    ``lifted`` tensors of the module, by their ids, then the ``bases``. ``leaves``: which of the
    fakes are leaves. ``inference``: numbers of those that were made in inference mode.
    """

    gm: GraphModule
    joint: Joint
    seen: Observation
    mode: EagerFakeMode
    env: ShapeEnv | None
    fakes: Sequence[Any]
    lifted: Mapping[int, int]
    given: int
    leaves: Sequence[bool]
    bases: Sequence[Base]
    then: Then
    inference: Collection[int]

    def unreached(self) -> set[int]:
        """Of inputs that ask for gradients, those to which none comes."""
        return {n for n in self.joint.unreached() if requires_grad(self.fakes[n])}


def training(
    of: Traced,
    compilers: Compilers,
    partition_fn: Partition,
    traced: Callable[..., Joint],
) -> Program:
    """The program. ``traced`` makes other traces of the same graph."""
    program = _program(of, compilers, partition_fn)
    later = Later(of.joint, program, of.then, traced, of.env)
    _with_inputs(program, of)
    _with_later(program, later, of)
    if compilers.tangents_as_given:
        program.laid_for = later.laid_for
    program.derivable = again = _derivable(of, program, compilers.eager_draws)
    if again is not None:
        program.draws = again.draws
        again.merges = compilers.separate_reads and again.is_plain
    if of.joint.inner:
        program.gates = Gates(levels(of.joint.inner, program.results, program.partly), later.stages)
    if (of.joint.inner or program.asking) and again is not None:
        again.holds = True
        program.releases = program.saves
    return program


def _with_inputs(program: Program, of: Traced) -> None:
    """What is known of the inputs."""
    joint = of.joint
    program.kept_inputs, program.reads = _kept(joint, program), joint.reads
    tensors = [isinstance(of.fakes[place], torch.Tensor) for place in joint.inputs]
    program.places = [n for n, is_tensor in enumerate(tensors) if is_tensor]
    program.open = [
        n
        for n, place in enumerate(joint.inputs)
        if requires_grad(of.fakes[place])
        and n not in program.kept_inputs
        and not (place < len(of.leaves) and of.leaves[place])
    ]
    first = len(of.seen.slots)
    written = {first + n: place for n, place in enumerate(joint.written)}
    program.new_values = {at: written[at] for at in program.results if at in written}
    plain = {w.place: w.counted and not w.ahead for w in of.seen.writes if _is_unseen(w)}
    numbers = {place: n for n, place in enumerate(joint.inputs)}
    program.unseen = [
        (numbers[place], at, plain[place])
        for at, place in written.items()
        if place in plain and place in numbers and numbers[place] not in program.kept_inputs
    ]
    if of.bases or program.currents or program.aliases:
        program.unseen = []
    program.partly = joint.ways()
    idle = joint.without_gradient()
    program.idle = {n for n, place in enumerate(joint.inputs) if place in idle}
    taken = [*range(len(joint.inputs)), *joint.reads]
    program.gradients = len({taken[n] for n in program.given if n < len(taken)})


def _is_unseen(write: Write) -> bool:
    """Whether new values are all there is to a write that autograd does not see."""
    return not write.tracked and write.layout is None and not write.expanded


def _with_later(program: Program, later: Later, of: Traced) -> None:
    """What other backwards are compiled by, when they are first asked for."""
    if len(of.joint.tangents) > 1 and (of.env is None or isinstance(of.env, ShapeEnv)):
        program.uneven, program.asking = of.joint.uneven, of.joint.asking
        program.traced_for = later.traced_for
    program.cast_for, program.second_for = later.cast_for, later.second_for
    program.depends_for = later.depends_for
    if program.gradients > 1:
        program.part_for = later.part


def _program(of: Traced, compilers: Compilers, partition_fn: Partition) -> Program:
    joint, seen = of.joint, of.seen
    holders = joint.graph.graph.find_nodes(op="placeholder")
    given = [node.meta["val"] for node in holders]
    joint.links.note(joint.graph)
    forward, backward = partition_fn(joint.graph, given, num_fwd_outputs=joint.outputs)
    (output,) = forward.graph.find_nodes(op="output")
    made = output.args[0][: joint.outputs]
    saved = list(output.args[0])[joint.outputs :]
    tensors = sum(isinstance(node.meta.get("val"), torch.Tensor) for node in saved)
    inputs = len(joint.inputs)
    layouts = [_layout(node.meta["val"]) for node in holders[inputs:]]

    def compile_backward(graph: GraphModule) -> Callable[..., Any]:
        values = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
        plainly = graph.forward
        with backward_state(), deciding(of.mode.shape_env) as decided:
            made = compilers.backward(graph, values)
        if decided:
            made = where(decided, values, flat(made), plainly)
        return updating(boxed(made), graph, joint.currents)

    read = {n: node.meta[READ] for n, node in enumerate(saved) if READ in _meta(node)}
    links = [*joint.links.kept(saved[:tensors], seen.layouts(of.fakes))]
    links += [(n, place, AS_IT_IS) for n, place in read.items()]
    versions = seen.versions(made)
    forward.meta["outputs"] = joint.outputs  # the rest is kept for the backward
    private = private_count(forward, joint.outputs, tensors)
    kept_written = [each for each in links if each[1] not in of.inference]
    compiled = compilers.forward(forward, given[:inputs])
    return Program(
        compiled,
        is_boxed(compiled),
        joint.outputs,
        tensors,
        private,
        len(saved) - tensors,
        inputs,
        joint.tangents,
        layouts,
        backward,
        compile_backward,
        len(seen.numbers),
        repeated=len(joint.reads),
        kept_results={n for n, node in enumerate(saved) if node in made},
        kept_views=_views(saved[:tensors], made),
        saves=bool(joint.saving) or tensors > 0,
        saving=tuple(joint.saving),
        kept_written=kept_written,
        numbered=tuple(versions),
        versions=tuple(versions.values()),
        turns=joint.turns,
        currents=currents_of(forward, backward, saved),
        aliases=[*read],
        rewrites=joint.rewrites,
        refused=joint.refused,
        viewed=[_viewed(joint, seen, n) for n in joint.viewed],
        asked_since=Asked.of(
            joint.since.without(of.inference),
            dict(zip(joint.inputs, holders, strict=False)),
            {w.place for w in seen.writes} | seen.bits,
            made,
            saved[: tensors - private],
            {place: n for n, place, _ in kept_written},
        ),
    )


def _viewed(joint: Joint, seen: Observation, n: int) -> Key:
    """What an output is a view of, among the results and inputs of the compiled function."""
    output = seen.outputs[n]
    if isinstance(output, Value):
        return RESULT, output.slot
    assert isinstance(output, ViewOf)
    if output.place in joint.written:
        at = len(seen.slots) + joint.written.index(output.place)
        if at in joint.tangents:
            return RESULT, at
    return INPUT, joint.inputs.index(output.place)


def _meta(node: Any) -> Mapping[str, Any]:
    return getattr(node, "meta", {})


def _views(saved: Sequence[Any], made: Sequence[Any]) -> list[int]:
    """Which of the ``saved`` nodes give tensors with the memory of what those ``made`` give."""
    known = {memory(node) for node in made} - {None}
    return [n for n, node in enumerate(saved) if node not in made and memory(node) in known]


def _derivable(of: Traced, program: Program, eager_draws: bool) -> Derivable | None:
    """What second derivatives are computed by: the graph as it is, if a second run is the first."""
    joint, seen = of.joint, of.seen
    draws = [node for node in joint.graph.graph.nodes if drawing(node)]
    if of.bases or seen.moves or not all(eager_draws and draws_from_state(node) for node in draws):
        return None
    count = len(seen.slots)
    if any(at >= count for at in program.results) or reads_written(joint, count):
        return None
    turned = {w.place for w in seen.writes if w.layout is not None or w.counted}
    if turned - {*joint.written}:  # whose sizes or strides the graph changes, for a while
        return None
    holders = enumerate(of.gm.graph.find_nodes(op="placeholder"))
    if {place for place, node in holders if node.users} - {*joint.inputs}:
        return None
    slots = [seen.slots[at] for at in program.results]
    outputs = [(slot.output, slot.is_base) for slot in slots]
    outputs += [(n, False) for n in joint.viewed]
    known = [leaf and t.requires_grad for leaf, t in zip(of.leaves, of.fakes, strict=False)]
    places = joint.inputs
    return Derivable(
        of.gm,
        places,
        of.given,
        of.lifted,
        outputs,
        known,
        joint.reads or (),
        joint.written,
        of.then.again,
        of.unreached() | seen.bits,
        program.kept_inputs,
        bool(draws),
        joint.own_currents(),
    )


def _kept(joint: Joint, program: Program) -> dict[int, int]:
    """By input, the place of those that the forward saves among what the backward takes."""
    holders = program.backward.graph.find_nodes(op="placeholder")
    known = {str(node.target): n for n, node in enumerate(holders) if not is_packed(node)}
    inputs = enumerate(joint.graph.graph.find_nodes(op="placeholder")[: len(joint.inputs)])
    return {n: known[node.name] for n, node in inputs if node.name in known}


def _layout(t: torch.Tensor) -> Layout | None:
    return None if t._has_symbolic_sizes_strides else Layout.of(t)
