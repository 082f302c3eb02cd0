"""Which new values of inputs kernels write over the old ones, rather than beside them.

A graph is functional: it returns what an input that it writes to has afterwards, and the caller
copies that into it. Where the kernel that computes the new value is the last to read the old one,
and reads each element just where it writes it, that copy and its memory can go. Nothing that may
fail comes behind such a kernel: so a call that raises has changed nothing yet.

Of an input that few elements are put into, as into a cache of keys, no other is read or written:
the copy goes that the graph makes of it first, too. Where nobody else reads the old elements, it
does not matter what comes behind, as what is put may be put again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastpath.ir.expr import Expr
from fastpath.ir.index import linear
from fastpath.ir.program import (
    Call,
    Computed,
    Input,
    Node,
    Pointwise,
    Program,
    Scan,
    Scatter,
    tensors_in,
)
from fastpath.ir.writes import reads_only_at
from fastpath.schedule.cluster import Cluster, Fusion
from fastpath.schedule.kernel import Kernel, Store


def candidates(program: Program) -> dict[Computed, Input]:
    """New values that nobody but kernels sees elsewhere than in the inputs that they are of."""
    if not program.written:
        return {}
    seen: dict[Node, int] = {}
    for t in tensors_in(program.outputs):
        seen[t.node] = seen.get(t.node, 0) + 1
    returned = dict(seen)
    for step in program.steps:
        if isinstance(step, Call):
            for t in tensors_in((step.arguments, step.keywords)):
                seen[t.node] = seen.get(t.node, 0) + 2
    found: dict[Computed, Input] = {}
    for place, number in program.written.items():
        t, given = program.outputs[place], program.inputs[number]
        node = getattr(t, "node", None)
        if not isinstance(node, (Pointwise, Scan, Scatter)) or t.is_view:
            continue
        if isinstance(node, Scatter):
            if _writes(node)[0].of is not given or returned[node] != 1:
                continue
        elif seen[node] != 1:
            continue
        if (node.shape, node.dtype) != (given.shape, given.dtype) or not _apart(given):
            continue
        found[node] = given
    return found


def _apart(given: Input) -> bool:
    """Whether each element has its own memory."""
    if not all(type(n) is int for n in (*given.shape, *given.strides)):
        return False
    reach = 0
    for step, n in sorted((s, n) for s, n in zip(given.strides, given.shape) if n != 1):
        if step <= reach:
            return False
        reach += (n - 1) * step
    return all(n > 0 for n in given.shape)


def written_last(
    fusion: Fusion, given: Mapping[Computed, Input], rejecting: bool = True
) -> dict[Computed, Input]:
    """Those of ``given`` whose inputs nobody reads later: ``fusion.result`` is ordered so.

    ``rejecting``: whether the program survives a position that there is not.
    """
    accepted: dict[Computed, Input] = {}
    anywhere: dict[Computed, Input] = {}
    readers: dict[Node, list[Cluster]] = {}
    for cluster in fusion.clusters:
        for node in cluster.needs:
            readers.setdefault(node, []).append(cluster)
    for node, target in given.items():
        steps: list[Any] = _writes(node) if isinstance(node, Scatter) else [node]
        writers = [fusion.home.get(step) for step in steps]
        if any(writer is None or writer.call is not None for writer in writers):
            continue
        others = [c for c in readers.get(target, ()) if c not in writers]
        if isinstance(steps[0], Scatter):
            copy = fusion.home.get(steps[0].base)
            others = [c for c in others if c is not copy]
            if not _in_turn(steps, target, fusion):
                continue
            if not others and _puts_alone(steps, target, fusion):
                anywhere |= dict.fromkeys(steps, target)
                continue
        if all(writer is not None and fusion.follow(writer, others) for writer in writers):
            accepted |= dict.fromkeys(steps, target)
    fusion.result = fusion.sorted()
    if accepted:
        accepted = _last(fusion, accepted, rejecting)
    found = {**anywhere, **accepted}
    for node in given:
        if isinstance(node, Scatter) and node in found:
            steps = _writes(node)
            if all(step in found for step in steps):
                fusion.drop(steps[0].base, fusion.home[steps[0]])
            else:
                found = {n: target for n, target in found.items() if n not in steps}
    return found


def _writes(node: Scatter) -> list[Scatter]:
    """``node`` and those into which it writes, the first one first."""
    found = [node]
    while isinstance(found[0].base, Scatter):
        found.insert(0, found[0].base)
    return found


def _puts_alone(steps: Sequence[Scatter], target: Input, fusion: Fusion) -> bool:
    """Whether nothing is read of ``target``, so that all may be done once more."""
    return all(s.kind == "put" and target not in fusion.home[s].needs for s in steps)


def _in_turn(steps: Sequence[Scatter], target: Input, fusion: Fusion) -> bool:
    """Whether what is written depends on no other element of ``target`` than it replaces, and the
    second write and later ones, behind which ``target`` is another one, on none."""
    first, *later = steps
    if any(target in fusion.home[step].needs for step in later):
        return False
    value, place = first.value.args
    own = linear(place, target.strides)

    def inlined(source: Pointwise) -> bool:
        return source not in fusion.roots.roots

    if not reads_only_at(value, target, own, inlined):
        return False
    return not own.lookups() or target not in fusion.home[first].needs


def _last(
    fusion: Fusion, accepted: Mapping[Computed, Input], rejecting: bool
) -> dict[Computed, Input]:
    """Those of ``accepted`` behind which nothing may fail, once they come last."""
    order = fusion.result
    writers = {fusion.home[node] for node in accepted}
    late: set[Cluster] = set()
    for cluster in order:
        if cluster in writers or not late.isdisjoint(fusion.sources(cluster)):
            late.add(cluster)
    fusion.result = [c for c in order if c not in late] + [c for c in order if c in late]
    failing = [
        place
        for place, cluster in enumerate(fusion.result)
        if cluster.call is not None or rejecting and _may_reject(cluster, fusion)
    ]
    first = failing[-1] + 1 if failing else 0
    allowed = {*fusion.result[first:]}
    found = {node: target for node, target in accepted.items() if fusion.home[node] in allowed}
    for node in found:  # also where kernels that do not wait for each other change places
        fusion.stay(fusion.home[node], [fusion.result[place] for place in failing])
    return found


def _may_reject(cluster: Cluster, fusion: Fusion) -> bool:
    """Whether its kernel holds positions that are data against their bounds."""
    seen: set[Expr] = set()
    stack: list[Expr] = [m.value for m in cluster.members]
    known: set[Node] = set()
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        if e.op == "bounded":
            return True
        if e.op == "read":
            node = e.args[0]
            if isinstance(node, Pointwise) and node not in fusion.roots.roots and node not in known:
                known.add(node)
                stack.append(node.value)
        stack.extend(e.operands())
    return False


def in_place(kernel: Kernel, node: str, given: str) -> bool:
    """Let ``kernel`` store ``node`` where it loads ``given``, if it may; else nothing changes."""
    stores = [
        (n, s)
        for n, stage in enumerate(kernel.stages)
        for s in stage.statements
        if isinstance(s, Store) and s.buffer == node
    ]
    last = max([n for n, _ in stores], default=-1)
    if {n for n, _ in stores} != {last} or any(t.buffer == given for t in kernel.transposed):
        return False
    if kernel.product is not None:
        return False
    written = {store.index for _, store in stores}  # of complex numbers, both parts
    for n, stage in enumerate(kernel.stages):
        if any(e.args[0] in (node, given) for e in stage.guarded()):
            return False
        for e in stage.loads():
            if e.args[0] == node:
                return False
            if e.args[0] == given and (n > last or e.args[1] not in written):
                return False
    values: dict[Expr, Expr] = {}
    for stage in kernel.stages:
        stage.statements = [
            replace(s, value=_renamed(s.value, given, node, values)) for s in stage.statements
        ]
    kernel.ahead = tuple(
        replace(ahead, load=_renamed(ahead.load, given, node, values)) for ahead in kernel.ahead
    )
    kernel.asked = frozenset(node if name == given else name for name in kernel.asked)
    kernel.buffers = [b for b in kernel.buffers if b.name != given]
    kernel.streamed -= {node}
    kernel.in_place |= {node}
    return True


def _renamed(value: Expr, old: str, new: str, values: dict[Expr, Expr]) -> Expr:
    def visit(e: Expr) -> Expr:
        known = values.get(e)
        if known is None:
            known = e.mapped(visit) if e.operands() else e
            if known.op == "load" and known.args[0] == old:
                known = Expr("load", (new, known.args[1]), known.dtype)
            values[e] = known
        return known

    return visit(value)
