"""``aot_autograd``: a backend for torch-level graphs made of compilers for ATen graphs."""

from __future__ import annotations

import functools
import operator
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)
from torch.fx import GraphModule

from refcompiler.aot.again import Then
from refcompiler.aot.alone import REASON, alone
from refcompiler.aot.altering import forms
from refcompiler.aot.bases import Base, Overlapping, bases_of, share
from refcompiler.aot.casts import Casts
from refcompiler.aot.compilers import Compiler, Compilers, flat
from refcompiler.aot.depends import Chain
from refcompiler.aot.effects import stays
from refcompiler.aot.inferring import is_inference, plainly, without_inference, without_switches
from refcompiler.aot.inputs import (
    DependsOnData,
    Unsupported,
    check,
    fakes_of,
    leaves_of,
    lifted_tensors,
    requires_grad,
    resolved,
)
from refcompiler.aot.joint import NEW_VALUES, Joint
from refcompiler.aot.joint_trace import trace
from refcompiler.aot.later import Strides
from refcompiler.aot.numbers import environment
from refcompiler.aot.observation import observe
from refcompiler.aot.order import arranged
from refcompiler.aot.origin import origin
from refcompiler.aot.overlap import disjoint
from refcompiler.aot.partition import default_partition
from refcompiler.aot.refusing import Learnt, Refusals
from refcompiler.aot.sizes import Sized, compile_for_sizes, number_inputs
from refcompiler.aot.symbols import (
    fake_mode,
    observing,
    repeating,
    sources_of,
    with_symbols,
)
from refcompiler.aot.training import Traced
from refcompiler.aot.training import training as with_gradients
from refcompiler.aot.wrapper import Wrapper
from refcompiler.fakes.mode import EagerFakeMode
from refcompiler.logs import log_of
from refcompiler.remade import made, maker
from refcompiler.shapes.composites import eager_composites
from refcompiler.shapes.env import ShapeEnv

_HINTS = log_of("perf_hints")
_DEPENDENT = (DynamicOutputShapeException, DataDependentOutputException)


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
    compilers = Compilers(fw_compiler, bw_compiler, inference_compiler)
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


def _compile(
    gm: GraphModule,
    examples: Sequence[Any],
    compilers: Compilers,
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
        gm = without_switches(gm)
    known_sizes = environment(shown)
    env = known_sizes or env
    mode = fake_mode(env)
    replaced = {id(t): len(examples) + n for n, t in enumerate(lifted)}
    grad_mode = torch.is_grad_enabled()
    autocast = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    leaves = [*leaves_of(gm, examples), *[isinstance(t, torch.nn.Parameter) for t in lifted]]
    given = len(examples)
    unreached: set[int] = set()
    with plainly(), eager_composites(env is not None):
        every = [*shown, *lifted]
        then, source = Then(), None
        if grad_mode and not bases and any(map(requires_grad, every)):
            source = origin(original, examples, shown, known_sizes, then)
        fakes = fakes_of(mode, [*every, *[base.of(every) for base in bases]])
        share(mode, fakes, bases)
        try:
            with mode, observing(env) as found:
                seen = observe(gm, fakes, replaced, given, bases)
                switched = without_inference(gm)
            training = seen.requires_grad and any(map(requires_grad, fakes))
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
        made_inside = [is_inference(t) for t in (*examples, *lifted)]
        made_inside += [any(made_inside[n] for n, *_ in base.members) for base in bases]
        inside = {n for n, made in enumerate(made_inside) if made}
        if training:
            known_as = original, joint, seen, mode, env, fakes, replaced, given, leaves, bases
            of = Traced(*known_as, then, inside)
            run: Any = with_gradients(of, compilers, partition_fn, traced)
            unreached = of.unreached()
            if source is not None:
                run.origin = source.relying_on(known_sizes)
        else:
            plain = set() if bases else {w.place for w in seen.writes if w.plain} - seen.bits
            plain -= inside
            joint.graph.meta[NEW_VALUES] = joint.new_values(len(seen.slots), plain)
            (output,) = joint.graph.graph.find_nodes(op="output")
            versions = seen.versions(output.args[0])
            run = _inference(joint, mode, compilers, fakes)
    sources = sources_of(fakes[:given])
    tracked = [w.place for w in seen.writes if w.tracked and w.requires_grad]
    taken = [*joint.inputs, *[joint.inputs[n] for n in joint.reads]]
    wrapper = Wrapper(seen, joint.written, len(examples), lifted, bases, taken, sources, unreached)
    wrapper.inference = inside
    if not training and not torch.is_inference_mode_enabled():
        wrapper.versions = versions
    if training:
        if not bases:
            places = range(len(every))
            grown = [n for n in places if requires_grad(fakes[n]) and not leaves[n]]
            wrapper.grown = frozenset(grown)
        wrapper.ways({taken[n] for n in run.partly}, leaves)
        wrapper.loose = joint.without_gradient() | joint.partly.keys()
        saving = functools.reduce(operator.or_, joint.saving, 0)
        passed = {place: mask & ~saving for place, mask in joint.passed.items()}
        wrapper.kept, wrapper.viewed = run.kept_written, joint.viewed
        wrapper.late = run.asked_since.late if run.asked_since is not None else ()
        wrapper.detached = {n for n in joint.own_currents() if requires_grad(fakes[taken[n]])}
        wrapper.passed = {place: mask for place, mask in passed.items() if mask}
    grows = grad_mode and any(map(requires_grad, fakes))
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
    joint: Joint, mode: EagerFakeMode, compilers: Compilers, fakes: Sequence[torch.Tensor]
) -> Callable[..., Any]:
    joint.graph.graph.eliminate_dead_code(lambda node: node.is_impure() or stays(node))
    joint.graph.recompile()
    with mode, torch.no_grad():
        taken = [fakes[n] for n in joint.inputs]
        inputs = [resolved(t.detach()) if isinstance(t, torch.Tensor) else t for t in taken]
    return _owned(flat(compilers.inference(joint.graph, inputs)), joint.views())


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


def _hides(base: Base, fakes: Sequence[Any]) -> bool:
    """Whether gradients of a member would be lost with ``base``, which autograd does not see."""
    return not base.tracked and any(requires_grad(fakes[n]) for n, *_ in base.members)
