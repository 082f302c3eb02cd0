"""``aot_autograd``: a backend for torch-level graphs made of compilers for ATen graphs."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode
from torch.fx import GraphModule

from refcompiler.aot.again import Then
from refcompiler.aot.alone import REASON, alone
from refcompiler.aot.altering import forms
from refcompiler.aot.bases import Base, Overlapping, bases_of, share
from refcompiler.aot.casts import Casts
from refcompiler.aot.currents import READ, currents_of, updating
from refcompiler.aot.depends import Chain
from refcompiler.aot.draws import drawing, draws_from_state
from refcompiler.aot.effects import stays
from refcompiler.aot.gates import Gates, levels
from refcompiler.aot.inputs import (
    DependsOnData,
    Unsupported,
    check,
    fakes_of,
    leaves_of,
    lifted_tensors,
    resolved,
)
from refcompiler.aot.joint import NEW_VALUES, Joint, trace
from refcompiler.aot.later import Later, Strides
from refcompiler.aot.layout import Layout
from refcompiler.aot.numbers import environment
from refcompiler.aot.observation import Observation, Value, ViewOf, observe
from refcompiler.aot.order import arranged
from refcompiler.aot.origin import origin
from refcompiler.aot.overlap import disjoint
from refcompiler.aot.partition import default_partition
from refcompiler.aot.partition.packing import is_packed
from refcompiler.aot.ports import INPUT, RESULT, Key
from refcompiler.aot.private import memory, private_count
from refcompiler.aot.program import Program
from refcompiler.aot.refusing import Learnt, Refusals
from refcompiler.aot.saved import AS_IT_IS
from refcompiler.aot.since import Asked
from refcompiler.aot.sizes import Sized, compile_for_sizes, number_inputs
from refcompiler.aot.symbols import (
    deciding,
    fake_mode,
    observing,
    repeating,
    sources_of,
    where,
    with_symbols,
)
from refcompiler.aot.twice import Derivable, reads_written
from refcompiler.aot.wrapper import Wrapper
from refcompiler.fakes.mode import EagerFakeMode
from refcompiler.logs import log_of
from refcompiler.remade import made, maker
from refcompiler.shapes.composites import eager_composites
from refcompiler.shapes.env import ShapeEnv

#: Set to False on a compiler that is to be given graphs without symbols, one for each size.
TAKES_SYMBOLS = "takes_symbols"

_HINTS = log_of("perf_hints")
_DEPENDENT = (DynamicOutputShapeException, DataDependentOutputException)
Compiler = Callable[[GraphModule, list[Any]], Callable[..., Any]]


def aot_autograd(
    *,
    fw_compiler: Compiler,
    bw_compiler: Compiler | None = None,
    inference_compiler: Compiler | None = None,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    partition_fn: Callable[..., tuple[GraphModule, GraphModule]] = default_partition,
    without_symbols: Callable[..., Any] | None = None,
    separate_reads: bool = False,
    tangents_as_given: bool = False,
    eager_draws: bool = False,
    keeps_gaps: bool = False,
) -> Callable[..., Any]:
    """A backend ``(graph, example_inputs) -> callable`` that compiles ahead of time.

    ``fw_compiler(graph, example_inputs)`` and ``bw_compiler`` (default: the same) are given
    functional ATen graphs and fake inputs, and answer with a callable that takes and returns what
    the graph does, tensors in a tuple or list. ``inference_compiler`` (default: ``fw_compiler``)
    is given graphs that need no gradients. The backward is compiled when it first runs.
    ``decompositions``: operators to functions that say them by others, as
    ``torch._decomp.get_decompositions`` gives them. Where sizes are symbols, the graphs take some
    as numbers (``torch.SymInt`` among the example inputs); a compiler with an attribute
    ``takes_symbols = False`` is given a graph for each combination of sizes instead.
    ``without_symbols(graph, example_inputs)`` compiles graphs that cannot have them (default: this
    backend, for each combination of sizes). ``partition_fn``: how forward and backward part
    (``default_partition`` saves what eager saves). ``separate_reads``: where the graph reads a
    tensor several times that others may read too, autograd is given the parts of its gradient, and
    adds up all in eager's order; else the graph gives the sum of its own. ``tangents_as_given``: a
    gradient of a result that lies otherwise than the result (that of a sum is expanded) has a
    backward of its own, which rounds as eager's; else it is laid out as the result.
    ``eager_draws``: what is compiled draws eager's numbers on the CPU, so that a second derivative
    may run the graph again from the generator's state then. ``keeps_gaps``: what the graph writes
    to lies afterwards as it did, also with gaps between its elements, by which eager's kernels
    round.

    The rule of each step is a row of ``docs/specs/aot.md``. Where a graph cannot be compiled it
    runs as it is, and ``callable.fallback`` says why (else None). Where one call cannot be served
    (inputs that overlap), the graph runs as it is too, and ``callable.uncompiled.calls`` counts it.
    """
    if bw_compiler is None:
        bw_compiler = fw_compiler
    if inference_compiler is None:
        inference_compiler = fw_compiler
    for name, value in (
        ("fw_compiler", fw_compiler),
        ("bw_compiler", bw_compiler),
        ("inference_compiler", inference_compiler),
        ("partition_fn", partition_fn),
    ):
        if not callable(value):
            raise TypeError(f"aot_autograd: {name} has to be callable, not {value!r}")
    if decompositions is not None and not isinstance(decompositions, Mapping):
        raise TypeError(
            "aot_autograd: decompositions is a dict of functions by operator, not "
            f"{decompositions!r}"
        )
    compilers = _Compilers(fw_compiler, bw_compiler, inference_compiler)
    compilers.separate_reads = separate_reads
    compilers.tangents_as_given = tangents_as_given
    compilers.eager_draws, compilers.keeps_gaps = eager_draws, keeps_gaps
    table = dict(decompositions or {})

    def backend(gm: GraphModule, example_inputs: Sequence[Any], **options: Any) -> Any:
        for name in options:
            raise TypeError(f"this backend has no option {name!r}; it takes none")
        if alone(gm):
            return _uncompiled(gm, REASON)
        numbers = number_inputs(example_inputs)

        def by_sizes(inputs: Sequence[Any]) -> Callable[..., Any]:
            if without_symbols is not None:
                return without_symbols(gm, inputs)
            return compile_for_sizes(gm, inputs, numbers, backend)

        if numbers and not compilers.take_symbols:
            return by_sizes(example_inputs)
        given = gm, example_inputs, *forms(compilers, table, partition_fn)
        try:
            if numbers:
                return _attempt(*given, by_sizes=by_sizes)
            try:
                return _attempt(*given)
            except DependsOnData:
                if not compilers.take_symbols:
                    raise
                return _attempt(*given, env=ShapeEnv())
        except Unsupported as error:
            if not numbers:
                return _uncompiled(gm, str(error))
            _HINTS.info("compiled for each size, since with symbols it cannot be: %s", error)
            return by_sizes(example_inputs)

    backend.takes_symbols = True  # type: ignore[attr-defined]
    backend.alone = alone  # type: ignore[attr-defined]
    return backend


class _Compilers:
    def __init__(self, forward: Compiler, backward: Compiler, inference: Compiler):
        self.forward, self.backward, self.inference = forward, backward, inference
        self.separate_reads = self.tangents_as_given = False
        self.eager_draws = self.keeps_gaps = False
        every = (forward, backward, inference)
        self.take_symbols = all(getattr(each, TAKES_SYMBOLS, True) for each in every)


def _attempt(*given: Any, **options: Any) -> Callable[..., Any]:
    """:func:`_compile`, behind which the dispatcher is as it was, also where that failed.

    Torch's own code and blocks of the graph have guards in C++ among their locals, which set the
    state that they found when they are freed: with the error's traceback, which may be at any time.
    """
    with torch._C._PreserveDispatchKeyGuard():
        try:
            return _compile(*given, **options)
        except Unsupported as error:
            grad = torch.is_grad_enabled()
            _let_go(error)
            torch._C._set_grad_enabled(grad)
            raise


def _let_go(error: BaseException) -> None:
    """Free what the frames of ``error`` hold."""
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        seen = seen.__cause__ or seen.__context__


def _uncompiled(gm: GraphModule, reason: str) -> Callable[..., Any]:
    _HINTS.info("a graph of %d nodes runs uncompiled: %s", len(gm.graph.nodes), reason)

    def call(*inputs: Any) -> Any:
        return gm.forward(*inputs)  # called as a module it prints its code beside an error

    call.fallback = reason  # type: ignore[attr-defined]
    call.source = gm.code  # type: ignore[attr-defined]
    return call


class Uncompiled:
    """The graph as it is, for calls whose inputs are not what was compiled for: ``calls`` came, the
    last of them because of ``why``."""

    def __init__(self, gm: GraphModule):
        self.gm = gm
        self.calls = 0
        self.why = ""

    def __call__(self, *inputs: Any) -> Any:
        self.calls += 1
        return self.gm.forward(*inputs)


@contextlib.contextmanager
def _without_inference_mode() -> Iterator[None]:
    """Inference mode off (its tensors skip dispatch keys that tracing needs), gradients as are."""
    if not torch.is_inference_mode_enabled():
        yield
        return
    with torch.inference_mode(False), torch.no_grad():
        yield


def _without_switches(gm: GraphModule) -> GraphModule:
    """``gm`` in inference mode, where gradients stay off whatever they are switched to."""
    entered = gm.graph.find_nodes(op="call_function", target=_enter_inference_mode)
    if not all(node.args[0] for node in entered):
        raise Unsupported("the graph leaves inference mode in the middle")
    graph = torch.fx.Graph()
    known: dict[Any, Any] = {}
    output = graph.graph_copy(gm.graph, known)
    for switch in (_exit_inference_mode, _enter_inference_mode, torch._C._set_grad_enabled):
        for node in graph.find_nodes(op="call_function", target=switch):
            graph.erase_node(node)
    graph.output(output)
    return GraphModule(gm, graph)


def _without_inference(gm: GraphModule) -> GraphModule:
    """``gm`` with gradients switched off and on again in the place of inference mode."""
    if not gm.graph.find_nodes(op="call_function", target=_enter_inference_mode):
        return gm
    graph = torch.fx.Graph()
    output = graph.graph_copy(gm.graph, {})
    mode = torch.is_grad_enabled()
    before: dict[Any, bool] = {}
    for node in list(graph.nodes):
        if node.target is torch._C._set_grad_enabled:
            mode = node.args[0]
        elif node.target in (_enter_inference_mode, _exit_inference_mode):
            if node.target is _enter_inference_mode:
                before[node], mode = mode, not node.args[0]
            else:
                mode = before[node.args[0]]
                node.args = ()
            with graph.inserting_before(node):
                graph.call_function(torch._C._set_grad_enabled, (mode,))
    for switch in (_exit_inference_mode, _enter_inference_mode):
        for node in graph.find_nodes(op="call_function", target=switch):
            graph.erase_node(node)
    graph.output(output)
    return GraphModule(gm, graph)


def _is_inference(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_inference()


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    with _without_inference_mode(), _without_saving_hooks():
        yield


@contextlib.contextmanager
def _without_saving_hooks() -> Iterator[None]:
    """The caller's hooks are for what the compiled graph saves, not for fakes."""
    hooks = []
    while (top := torch._C._autograd._top_saved_tensors_default_hooks(True)) is not None:
        hooks.append(top)
        torch._C._autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)


def _compile(
    gm: GraphModule,
    examples: Sequence[Any],
    compilers: _Compilers,
    decompositions: Mapping[Any, Callable[..., Any]],
    partition_fn: Callable[..., tuple[GraphModule, GraphModule]],
    bases: Sequence[Base] = (),
    by_sizes: Callable[[Sequence[Any]], Callable[..., Any]] | None = None,
    env: ShapeEnv | None = None,
) -> Callable[..., Any]:
    """``bases``: of examples that overlap; there are none where the inputs are apart.

    ``by_sizes(inputs)``: what serves calls for which there is no program with symbols. ``env``
    is for sizes that depend on data, where the inputs' are all known.
    """
    lifted = lifted_tensors(gm)
    check(examples, "an input")
    check(lifted, "a tensor of the module")
    shown = with_symbols(gm, examples)
    original = gm
    if torch.is_inference_mode_enabled():
        gm = _without_switches(gm)
    known_sizes = environment(shown)
    env = known_sizes or env
    mode = fake_mode(env)
    replaced = {id(t): len(examples) + n for n, t in enumerate(lifted)}
    grad_mode = torch.is_grad_enabled()
    autocast = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    leaves = [*leaves_of(gm, examples), *[isinstance(t, torch.nn.Parameter) for t in lifted]]
    given = len(examples)
    unreached: set[int] = set()
    with _plainly(), eager_composites(env is not None):
        every = [*shown, *lifted]
        then, source = Then(), None
        if grad_mode and not bases and any(map(_requires_grad, every)):
            source = origin(original, examples, shown, known_sizes, then)
        fakes = fakes_of(mode, [*every, *[base.of(every) for base in bases]])
        share(mode, fakes, bases)
        try:
            with mode, observing(env) as found:
                seen = observe(gm, fakes, replaced, given, bases)
                switched = _without_inference(gm)
            training = seen.requires_grad and any(map(_requires_grad, fakes))
            if training and any(_hides(base, fakes) for base in bases):
                raise Unsupported("inputs that overlap are written to where gradients are off")

            def traced(
                missing: Sequence[int] = (),
                staged: bool = False,
                strides: Strides | None = None,
                casts: Casts = (),
                second: Chain | None = None,
                asks: bool = False,
            ) -> Joint:
                known = replaced, given, seen, training, decompositions, leaves, bases
                reads: Sequence[int] | None = () if compilers.separate_reads else None
                if missing or staged or strides or casts:
                    reads = [numbers[n] for n in joint.reads] or None
                if strides:
                    strides = {joint.cotangents[n]: lies for n, lies in strides.items()}
                if second is not None:
                    second = tuple([(*map(renumbered, level),) for level in second])
                how: Any = missing, reads, staged, strides, casts, second, asks
                views = known_views if compilers.separate_reads else None
                how += compilers.keeps_gaps, known_currents, refusals, views
                while True:
                    try:
                        with eager_composites(env is not None), repeating(env, found):
                            made = trace(switched, mode, fakes, *known, *how)
                        return made.taking(numbers) if numbers else made
                    except Learnt:
                        continue

            numbers: list[int] = []
            refusals = Refusals()
            known_currents: Sequence[int] | None = None
            known_views: Sequence[int] | None = ()

            def renumbered(n: int) -> int:
                return numbers[n] if n < len(numbers) else n

            joint = traced()
            known_currents, known_views = joint.currents, joint.viewed or None
            if joint.order:
                numbers = _as_eager(joint, leaves, seen.bits)
            if seen.passes and (bases or joint.inner):
                raise Unsupported("an output is a view that a custom function made, among others")
            if joint.inner or not joint.tangents:
                seen.lets_write()
        except Unsupported:
            raise
        except _DEPENDENT as error:
            raise DependsOnData(f"{type(error).__name__}: {error}") from error
        except Exception as error:  # a bad program fails as in eager, when it is called
            raise Unsupported(f"{type(error).__name__}: {error}") from error
        inside = [_is_inference(t) for t in (*examples, *lifted)]
        inside += [any(inside[n] for n, *_ in base.members) for base in bases]
        inference = {n for n, made in enumerate(inside) if made}
        if training:
            run: Any = _training(joint, mode, compilers, partition_fn, seen, fakes, inference)
            later = Later(joint, run, then, traced, env)
            if len(joint.tangents) > 1 and (env is None or isinstance(env, ShapeEnv)):
                run.uneven, run.asking = joint.uneven, joint.asking
                run.traced_for = later.traced_for
            run.cast_for, run.second_for = later.cast_for, later.second_for
            run.depends_for = later.depends_for
            taken = [*range(len(joint.inputs)), *joint.reads]
            run.gradients = len({taken[n] for n in run.given if n < len(taken)})
            if run.gradients > 1:
                run.part_for = later.part
            run.kept_inputs, run.reads = _kept(joint, run), joint.reads
            tensors = [isinstance(fakes[place], torch.Tensor) for place in joint.inputs]
            run.places = [n for n, is_tensor in enumerate(tensors) if is_tensor]
            run.open = [
                n
                for n, place in enumerate(joint.inputs)
                if _requires_grad(fakes[place])
                and n not in run.kept_inputs
                and not (place < len(leaves) and leaves[place])
            ]
            if compilers.tangents_as_given:
                run.laid_for = later.laid_for
            unreached = {n for n in joint.unreached() if _requires_grad(fakes[n])}
            known = fakes, replaced, given, leaves, bases, then, unreached | seen.bits
            run.derivable = _derivable(original, joint, seen, *known, run, compilers.eager_draws)
            run.draws = run.derivable is not None and run.derivable.draws
            if run.derivable is not None:
                run.derivable.merges = compilers.separate_reads and run.derivable.is_plain
            run.partly = joint.ways()
            idle = joint.without_gradient()
            run.idle = {n for n, place in enumerate(joint.inputs) if place in idle}
            if joint.inner:
                run.gates = Gates(levels(joint.inner, run.results, run.partly), later.stages)
            if (joint.inner or run.asking) and run.derivable is not None:
                run.derivable.holds = True
                run.releases = run.saves
            if source is not None:
                run.origin = source.relying_on(known_sizes)
        else:
            plain = set() if bases else {w.place for w in seen.writes if w.plain} - seen.bits
            plain -= inference
            joint.graph.meta[NEW_VALUES] = joint.new_values(len(seen.slots), plain)
            (output,) = joint.graph.graph.find_nodes(op="output")
            versions = seen.versions(output.args[0])
            run = _inference(joint, mode, compilers, fakes)
    sources = sources_of(fakes[:given])
    tracked = [w.place for w in seen.writes if w.tracked and w.requires_grad]
    taken = [*joint.inputs, *[joint.inputs[n] for n in joint.reads]]
    wrapper = Wrapper(seen, joint.written, len(examples), lifted, bases, taken, sources, unreached)
    wrapper.inference = inference
    if not training and not torch.is_inference_mode_enabled():
        wrapper.versions = versions
    if training:
        wrapper.ways({taken[n] for n in run.partly}, leaves)
        wrapper.loose = joint.without_gradient() | joint.partly.keys()
        passed = {place: mask & ~joint.saving for place, mask in joint.passed.items()}
        wrapper.kept, wrapper.viewed = run.kept_written, joint.viewed
        wrapper.late = run.asked_since.late if run.asked_since is not None else ()
        wrapper.detached = {n for n in joint.own_currents() if _requires_grad(fakes[taken[n]])}
        wrapper.passed = {place: mask for place, mask in passed.items() if mask}
    grows = grad_mode and any(map(_requires_grad, fakes))
    apart: Callable[..., bool] | None = None
    overlapping: Callable[..., Any] | None = None
    uncompiled = Uncompiled(original)
    written = joint.written
    if training:  # what changes no values counts with them, for what is saved
        written = [*dict.fromkeys([*written, *[w.place for w in seen.writes if w.counted]])]
    if written and not bases:
        apart = disjoint(every, written, training)

        def compile(inputs: Sequence[Any], bases: Sequence[Base]) -> Callable[..., Any]:
            fresh = None if env is None else ShapeEnv()
            given = original, inputs, compilers, decompositions, partition_fn, bases
            return _compile(*given, env=fresh)

        if env is not None and by_sizes is not None:
            overlapping = Sized(by_sizes)
        else:
            groups = Overlapping(uncompiled, lifted, written, training, compile, tracked)
            if bases_of(every, written, training, tracked):  # of the examples already
                groups.program(examples)
            overlapping = groups
    mode_of_call = grad_mode if training else grows
    call: Any = wrapper.write(run, uncompiled, mode_of_call, autocast, apart, overlapping)
    call.fallback, call.uncompiled = None, uncompiled
    call.program = run if training else None
    return call


def _as_eager(joint: Joint, leaves: Sequence[bool], bits: Collection[int]) -> list[int]:
    """Have hooks on leaves called in eager's order; the numbers that inputs had before."""
    count = len(joint.inputs)
    known = {n for n, place in enumerate(joint.inputs) if leaves[place : place + 1] == [True]}
    if joint.reads:
        there = [n for n, place in enumerate(joint.inputs) if place < len(leaves)]
        whole = {n for n in there if joint.inputs[n] not in bits}
        joint.ending(arranged([n for n in joint.order if n in whole], known, True))
        return [*range(count)]
    wanted = iter(arranged(joint.order, known, False))
    own = {*joint.order}
    numbers = [next(wanted) if n in own else n for n in range(count)]
    joint.taking(numbers)
    return numbers


def _inference(
    joint: Joint, mode: EagerFakeMode, compilers: _Compilers, fakes: Sequence[torch.Tensor]
) -> Callable[..., Any]:
    joint.graph.graph.eliminate_dead_code(lambda node: node.is_impure() or stays(node))
    joint.graph.recompile()
    with mode, torch.no_grad():
        taken = [fakes[n] for n in joint.inputs]
        inputs = [resolved(t.detach()) if isinstance(t, torch.Tensor) else t for t in taken]
    return _owned(_flat(compilers.inference(joint.graph, inputs)), joint.views())


@maker
def _owned(compiled: Callable[..., Any], views: Sequence[int]) -> Callable[..., Any]:
    """``compiled`` with results that autograd takes for no views: in eager they are none."""
    if not views:
        return compiled

    def call(*inputs: Any) -> list[Any]:
        results = list(compiled(*inputs))
        for n in views:
            results[n] = results[n].detach()
        return results

    return made(call, _owned, compiled, views)


def _training(
    joint: Joint,
    mode: EagerFakeMode,
    compilers: _Compilers,
    partition_fn: Callable[..., tuple[GraphModule, GraphModule]],
    seen: Observation,
    fakes: Sequence[torch.Tensor],
    inference: Collection[int],
) -> Program:
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
        with _backward_state(), deciding(mode.shape_env) as decided:
            made = compilers.backward(graph, values)
        if decided:
            made = where(decided, values, _flat(made), plainly)
        return updating(_boxed(made), graph, joint.currents)

    read = {n: node.meta[READ] for n, node in enumerate(saved) if READ in _meta(node)}
    links = [*joint.links.kept(saved[:tensors], seen.layouts(fakes))]
    links += [(n, place, AS_IT_IS) for n, place in read.items()]
    versions = seen.versions(made)
    forward.meta["outputs"] = joint.outputs  # the rest is kept for the backward
    private = private_count(forward, joint.outputs, tensors)
    kept_written = [each for each in links if each[1] not in inference]
    compiled = compilers.forward(forward, given[:inputs])
    return Program(
        compiled,
        _is_boxed(compiled),
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
        saves=joint.saving != 0 or tensors > 0,
        saving=joint.saving,
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
            joint.since.without(inference),
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


def _derivable(
    gm: GraphModule,
    joint: Joint,
    seen: Observation,
    fakes: Sequence[Any],
    lifted: Mapping[int, int],
    given: int,
    leaves: Sequence[bool],
    bases: Sequence[Base],
    then: Then,
    others: Collection[int],
    program: Program,
    eager_draws: bool,
) -> Derivable | None:
    """What second derivatives are computed by: the graph as it is, if a second run is the first."""
    draws = [node for node in joint.graph.graph.nodes if drawing(node)]
    if bases or seen.moves or not all(eager_draws and draws_from_state(node) for node in draws):
        return None
    count = len(seen.slots)
    if any(at >= count for at in program.results) or reads_written(joint, count):
        return None
    turned = {w.place for w in seen.writes if w.layout is not None or w.counted}
    if turned - {*joint.written}:  # whose sizes or strides the graph changes, for a while
        return None
    holders = enumerate(gm.graph.find_nodes(op="placeholder"))
    if {place for place, node in holders if node.users} - {*joint.inputs}:
        return None
    slots = [seen.slots[at] for at in program.results]
    outputs = [(slot.output, slot.is_base) for slot in slots]
    outputs += [(n, False) for n in joint.viewed]
    known = [leaf and t.requires_grad for leaf, t in zip(leaves, fakes, strict=False)]
    places = joint.inputs
    return Derivable(
        gm,
        places,
        given,
        lifted,
        outputs,
        known,
        joint.reads or (),
        joint.written,
        then.again,
        others,
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


def _hides(base: Base, fakes: Sequence[Any]) -> bool:
    """Whether gradients of a member would be lost with ``base``, which autograd does not see."""
    return not base.tracked and any(_requires_grad(fakes[n]) for n, *_ in base.members)


def _requires_grad(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and t.requires_grad


def _layout(t: torch.Tensor) -> Layout | None:
    return None if t._has_symbolic_sizes_strides else Layout.of(t)


@contextlib.contextmanager
def _backward_state() -> Iterator[None]:
    """Compiling in the middle of a backward: neither hooks nor modes of the caller's."""
    with torch._C._DisableAutocast(), torch.no_grad():
        yield


@maker
def _flat(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """A compiler's answer, called with its inputs one by one."""
    if _is_boxed(compiled):
        return made(lambda *inputs: compiled(list(inputs)), _flat, compiled)
    return compiled


@maker
def _boxed(compiled: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """A compiler's answer, called with its inputs in a list."""
    if _is_boxed(compiled):
        return compiled
    return made(lambda inputs: compiled(*inputs), _boxed, compiled)


def _is_boxed(compiled: Callable[..., Any]) -> bool:
    """Whether a compiler's answer takes one list, which it empties, so that it frees inputs early.

    ``functorch.compile.make_boxed_func`` makes such an answer, as does the attribute.
    """
    if not callable(compiled):
        raise TypeError(f"the graph's compiler answered with {compiled!r}, which is not callable")
    return getattr(compiled, "_boxed_call", False)
