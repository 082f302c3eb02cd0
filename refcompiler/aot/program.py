"""What a compiled training graph runs, and which backward it has for the tangents that come."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule

from refcompiler.aot.batches import each, has_batch
from refcompiler.aot.depends import Chain, Depends
from refcompiler.aot.gates import Gates
from refcompiler.aot.inputs import has_bits
from refcompiler.aot.joined import Joined
from refcompiler.aot.kept import is_autograds, kept_by, laid_out, lay_out, unwritten
from refcompiler.aot.layout import by_sizes
from refcompiler.aot.missing import is_even, without
from refcompiler.aot.observation import Layout
from refcompiler.aot.origin import Origin
from refcompiler.aot.ports import Key
from refcompiler.aot.recomputed import Recomputed
from refcompiler.aot.refusing import Refusal
from refcompiler.aot.remaining import SELECTIVE, Remaining, Shares, remaining
from refcompiler.aot.saved import How
from refcompiler.aot.since import Asked
from refcompiler.aot.twice import Derivable
from refcompiler.aot.wanted import inputs_of

#: A backward of a backward, and the numbers of what each of its results is computed of.
Second = tuple[Callable[[list[Any]], Any], Sequence[Collection[int]]]

_LAID = 16  # so many ways of tangents to lie have a backward; others are laid out anew
_PARTS = 16  # and so many sets of inputs; for others all gradients are computed
UNKNOWN = (
    "this backward, of some results alone, cannot be traced, and a checkpointed region writes to "
    "what is outside of it. Compute it uncompiled (torch.compiler.disable or backend='eager')"
)


@dataclass
class Program:
    """What one compiled training graph runs.

    ``forward`` takes the inputs, in a list if it is ``boxed``, and returns ``outputs`` results,
    then ``tensors`` tensors to save, the last ``private`` of which nobody else has, then
    ``numbers`` numbers. ``differentiable``: the places of the results that have a tangent, which
    lie as ``layouts`` says (None: as the result itself, whose sizes are symbols). ``backward`` is
    compiled by ``compile_backward`` when it first runs, for each set of outputs without gradients.
    What that gives takes a list of numbers, saved tensors and tangents, which it may empty.
    Behind a backward of some outputs, what the others still need is ``left``.
    ``uneven``: what autograd's functions of several results are reached by; where some of them are
    without a gradient, ``traced_for`` gives the backward for such a set instead, if it can.
    ``asking``: those whose derivative is a program, without which nothing else gives it.
    ``repeated``: so many of the inputs, the last, are there a second time for autograd alone, which
    adds up their gradients. ``gates``: of results that are computed from others.
    ``derivable``: what second derivatives are computed by, if they can be. ``versions``: of the
    results ``numbered``, which the graph has written to.
    """

    watches = True  # whether what comes to views is given to their tangents
    forward: Callable[..., Any]
    boxed: bool
    outputs: int
    tensors: int
    private: int
    numbers: int
    inputs: int
    differentiable: Sequence[int]
    layouts: Sequence[Layout | None]
    backward: GraphModule
    compile_backward: Callable[[GraphModule], Callable[[list[Any]], Any]]
    counted: int = 0  # numbers among the results, the last of them
    uneven: Collection[tuple[int, ...]] = ()
    asking: Collection[tuple[int, ...]] = ()
    traced_for: Callable[..., Any] = lambda missing, otherwise: None
    repeated: int = 0
    gates: Gates | None = None
    derivable: Derivable | None = None
    numbered: Sequence[int] = ()
    versions: Sequence[int] = ()
    #: The backward for tangents that lie otherwise, ``(their number, strides)``, if it can be.
    laid_for: Callable[..., Any] | None = None
    #: By number of an input, the tangents (bits) that reach it, of those that not all do.
    partly: Mapping[int, int] = field(default_factory=dict)
    idle: Collection[int] = ()  # numbers of those that none reaches
    kept_results: Collection[int] = ()  # which of the saved tensors are results
    kept_views: Collection[int] = ()  # and which are views of results
    #: Which of them are kept as an input that the call has written to: :meth:`Links.kept`.
    kept_written: Sequence[tuple[int, int, How]] = ()
    #: By result, when eager comes to it among those with a tangent, which hooks on them tell.
    turns: Mapping[int, int] = field(default_factory=dict)
    saves: bool = True  # nothing, where the backward of the same outputs may run again
    saving: Collection[int] = (-1,)  # the tangents (bits) of each part that may not
    origin: Origin | None = None  # what it was compiled of, if it can be compiled again
    compiled: dict[Any, Callable[[list[Any]], Any]] = field(default_factory=dict)
    #: Of these, those for tangents that lie otherwise; None: there is none.
    laid: dict[Any, Callable[[list[Any]], Any] | None] = field(default_factory=dict)
    #: The backward under autocast, ``(missing, strides of tangents, casts)``, if it can be.
    cast_for: Callable[..., Any] | None = None
    cast: dict[Any, Callable[[list[Any]], Any] | None] = field(default_factory=dict)
    #: The backward of a backward, or of such, ``(missing, chain)``, and what it depends on.
    second_for: Callable[..., Second] | None = None
    second: dict[Any, Second] = field(default_factory=dict)
    depends_for: Callable[..., Depends | None] | None = None
    #: The same program with a backward that does not go to some inputs, if it can be.
    part_for: Callable[[tuple[int, ...]], Program | None] | None = None
    parts: dict[tuple[int, ...], Program | None] = field(default_factory=dict)
    is_part: bool = False
    gradients: int = 0  # how many it has
    known_depends: dict[Any, Depends | None] = field(default_factory=dict)
    #: By input, the place of those that the forward saves among what the backward takes.
    kept_inputs: Mapping[int, int] = field(default_factory=dict)
    reads: Sequence[int] = ()  # which of the inputs are there a second time
    places: Sequence[int] = ()  # inputs that are tensors
    open: Sequence[int] = ()  # inputs with a gradient that are neither saved nor sure to be leaves
    #: Which of the saved tensors the backward reads as they are by then, and may write to.
    currents: Sequence[int] = ()
    aliases: Sequence[int] = ()  # and which it only reads so
    rewrites: bool = False  # whether it writes to any
    refused: Sequence[Refusal] = ()  # what eager raises in its backward
    #: So many tangents, the last, are of views, whose places are behind those of all results. Each
    #: is of that result, or of the input with that number.
    viewed: Sequence[Key] = ()
    #: Inputs that are written to where autograd does not see it, and not saved, by number, the
    #: places of the results that they are to hold, and whether their versions count it.
    unseen: Sequence[tuple[int, int, bool]] = ()
    #: By place of a result that is the new value of a written input, that input's in the graph.
    new_values: Mapping[int, int] = field(default_factory=dict)
    asked_since: Asked | None = None  # what eager asks whether it was written to
    told: list[Callable[[], None]] = field(default_factory=list)  # that a backward was compiled

    def tell(self, who: Callable[[], None]) -> None:
        """Have ``who`` called when a backward was compiled."""
        self.told[:] = [who]

    def has_compiled(self) -> None:
        for tell in self.told:
            tell()

    def __post_init__(self) -> None:
        #: The places of results with a tangent.
        self.results = self.differentiable[: len(self.differentiable) - len(self.viewed)]
        differentiable = set(self.results)
        self.every = (1 << len(self.differentiable)) - 1  # tangents, as bits
        self.symbolic = None in self.layouts
        self.chosen: dict[tuple[int, ...], tuple[int, ...]] = {}  # gradients, by inputs
        self.ways: dict[Any, Any] = {}  # of calls with functions of autograd for each way
        self.natively: set[tuple[int, ...]] = set()  # missing tangents: see :meth:`runs_again`
        self.draws = False  # whether a second derivative would draw once more
        self.releases = False  # whether the last backward is to let go of inputs
        self.spent: dict[tuple[int, ...], int] = {}  # by missing tangents, those that are there
        tensors = self.outputs - self.counted
        self.end = self.outputs + self.tensors
        #: Of the tensors to save, those that others may have too: their versions are kept.
        self.shared = self.tensors - self.private
        #: Of these, results and views of results, which would lead to the call that keeps them.
        own = [n for n in (*self.kept_views, *self.kept_results) if n < self.tensors]
        written = {n for n, *_ in self.kept_written}
        self.own = [n for n in own if n not in written]
        #: Those that the call puts an input in the place of, if nobody else has them by then.
        self.passing = [n for n in own if n in written]
        self.unhooked = [*self.currents, *self.aliases]  # hooks are for what autograd saves
        self.nothing = (None,) * (self.outputs + len(self.viewed))
        since = self.asked_since
        #: If a call is to keep something for it.
        self.told_of = since if since is not None and (since.inputs or since.results) else None
        self.comings: dict[tuple[bool, ...], Coming] = {}
        self.constant = tuple(n for n in range(tensors) if n not in differentiable)
        self.tangents = [
            (n, place, layout and layout.stride, layout)
            for n, (place, layout) in enumerate(zip(self.differentiable, self.layouts))
        ]

    @functools.cached_property
    def shares(self) -> Shares:
        return Shares(self.backward, self.numbers, self.tensors, self.shared, self.saving)

    @functools.cached_property
    def selective(self) -> bool:
        """Whether a part of the backward may run once, though the graph is retained."""
        return any(SELECTIVE in node.meta for node in self.backward.graph.nodes)

    def written(self, inputs: Sequence[Any], results: tuple[Any, ...]) -> tuple[Any, ...]:
        """Write to inputs what the graph has written by the time that a hook may end the call; the
        results, None in the places of what is there then. Else the call's wrapper writes it."""
        left = [*results]
        for n, at, counts in self.unseen:
            if left[at] is not None:  # a kernel may have written it
                with torch.no_grad():
                    (inputs[n] if counts else inputs[n].data).copy_(left[at])
                left[at] = None if counts else left[at]
        return tuple(left)

    def asked(self, gradients: Sequence[Any]) -> int:
        """The tangents that are given, a bit for each."""
        return sum(1 << n for n, at in enumerate(self.differentiable) if gradients[at] is not None)

    def leading(self, n: int) -> int:
        """The tangents (bits) that reach the input with this number."""
        return 0 if n in self.idle else self.partly.get(n, self.every)

    def left(
        self,
        missing: tuple[int, ...],
        arguments: Sequence[Any],
        spent: int,
        versions: Sequence[int] | None = None,
    ) -> Remaining | None:
        """What a backward without some tangents leaves for them; ``spent``: those before it.

        ``versions``: of the tensors that others may have too, if they are known.
        """
        known = self.spent.get(missing)
        if known is None:
            known = self.spent[missing] = self.every - sum(1 << n for n in missing)
        return remaining(self.shares, spent | known, arguments, versions)

    def unwritten(self, node: Any, asked: int) -> list[Any] | None:
        """The saved tensors, None for those that were written to; None if that does not help.

        One that the tangents ``asked`` need and that was written to is an error.
        """
        if len(self.differentiable) == 1 and not self.is_part:
            return None
        return unwritten(node, self.shares.needed(asked))

    def check_since(self, node: Any, given: Sequence[Any]) -> None:
        """Something was written to since the call: raise what eager's backward raises, if it does.

        ``given``: the results' gradients.
        """
        if self.asked_since is not None:
            self.asked_since.check(node, self.asked(given), inputs_of(node), self.places)

    def runs_nothing(self, node: Any, given: list[Any], unasked: Sequence[int]) -> bool:
        """Whether eager's backward would run nothing, where what is saved is not as it was.

        ``given``: the gradients of results, of which those are taken away that lead to the inputs
        ``unasked`` alone, to which the backward under way does not go: eager frees nothing of
        theirs. What else was written to raises what eager's backward raises.
        """
        if unasked:
            edges = zip(self.places, inputs_of(node), strict=False)
            ends = [n for n, (function, _) in edges if function is not None and n not in unasked]
            wanted = functools.reduce(operator.or_, map(self.leading, ends), 0)
            idle = [at for n, at in enumerate(self.differentiable) if not wanted >> n & 1]
            some = any(given[at] is not None for at in idle)
            for at in idle:
                given[at] = None
            if some and all(g is None for g in given):
                return True
        if node.kept is not None and not node.hooked_tensors:
            self.check_since(node, given)
        return False

    def joined(self, node: Any, arguments: Sequence[Any]) -> Joined:
        """What a call shares with second runs; ``arguments``: what its backward takes."""
        if node.joined is None:
            currents = [arguments[self.numbers + n] for n in self.currents]
            node.joined = Joined(node, Recomputed(currents) if self.rewrites else None)
        found: Joined = node.joined
        return found

    def taken(self, node: Any, asked: int) -> tuple[list[Any], Remaining | None, int]:
        """What the backward of a call takes for the tangents ``asked``, but for these.

        That is also where hooks have what is saved, or some is freed or was written to. And what a
        backward of other outputs has left, of which it is, and for which tangents that was.
        """
        left, spent = None, 0
        try:
            arguments = [*node.numbers, *kept_by(node, self.saves)]
        except RuntimeError as error:
            if node.hooked_tensors and not is_autograds(error):  # that of a hook
                raise
            left = node.left  # behind a backward of other outputs
            spent = left.spent if left else 0
            tensors = left.take(asked) if left else self.unwritten(node, asked)
            if tensors and any(tensors[n] is None for n in self.shares.loose):
                raise
            if tensors is None:
                if self.shares.loose or self.shares.repeats(asked, asked):
                    raise
                tensors, spent = [None] * self.tensors, self.every
            arguments = [*node.numbers, *tensors]
        if node.hooked_tensors and left is None:
            lay_out(node, arguments)
        return arguments, left, spent

    def coming(self, absent: tuple[bool, ...]) -> Coming:
        """What is known of the tangents where the results' are ``absent``."""
        found = self.comings[absent] = Coming(self, absent)
        return found

    def take(
        self, node: Any, arguments: list[Any], given: Sequence[Any], casts: bool = False
    ) -> tuple[tuple[int, ...], Callable[[list[Any]], Any] | None]:
        """Append the tangents that are ``given``; which are missing, and the backward if known.

        They lie as they were traced, or that backward is for how they do. ``casts``: whether it is
        to be for the autocast that is on. Of batches of them, each has its own.
        """
        if has_batch(given):
            return self.take_batch(node, arguments, given, casts)
        absent: list[int] = []
        other: tuple[Any, ...] = ()
        tangents: Any = node.tangents if self.symbolic else self.tangents
        for n, place, stride, layout in tangents:
            tangent = given[place]
            if tangent is None:
                absent.append(n)
            elif (
                tangent.stride() != stride
                or tangent.is_conj()
                or tangent.is_neg()
                or tangent._is_zerotensor()
            ):
                if not tangent._is_zerotensor():
                    tangent = tangent.resolve_conj().resolve_neg()
                how = self.lying(tangent, stride) if self.laid_for is not None else None
                if how is not None:
                    other += ((n, how),)
                elif tangent.stride() != stride or tangent._is_zerotensor():
                    tangent = laid_out(tangent, layout)
            arguments.append(tangent)
        missing = tuple(absent)
        if casts and self.cast_for is not None:
            found = self.cast_backward(missing, other)
            if found is not None:
                return missing, found
        if not other:
            return missing, self.compiled.get(missing)
        found = self.backward_of(missing, other)
        if found is None:
            first = len(arguments) - len(tangents)
            for n, _ in other:
                arguments[first + n] = laid_out(arguments[first + n], tangents[n][-1])
        return missing, found

    def lying(self, t: torch.Tensor, stride: Sequence[int]) -> Sequence[Any] | None:
        """How a tangent lies for which there may be a backward, if not as ``stride`` says."""
        if not _lies_otherwise(t, stride):
            return None
        return by_sizes(t) if self.symbolic else t.stride()

    def take_batch(
        self, node: Any, arguments: list[Any], given: Sequence[Any], casts: bool
    ) -> tuple[tuple[int, ...], Callable[[list[Any]], Any]]:
        """As :meth:`take`, where some of those that are given are batches."""
        count, width = len(arguments), len(given)
        places = [place for _, place, *_ in (node.tangents if self.symbolic else self.tangents)]
        arguments += [given[place] for place in places]

        def call(arguments: list[Any]) -> list[Any]:
            kept, rows = arguments[:count], itertools.count()
            at = [self.numbers + n for n in self.currents if self.rewrites]
            before = {n: kept[n].detach().clone() for n in at}

            def one(tangents: list[Any]) -> Any:
                own: list[Any] = [None] * width
                for place, tangent in zip(places, tangents):
                    own[place] = tangent
                taken = [*kept]
                if next(rows):  # autograd's engine runs once
                    taken = [before[n].clone() if n in before else t for n, t in enumerate(kept)]
                missing, known = self.take(node, taken, own, casts)
                return (known or self.backward_for(missing))(taken)

            return each(one, arguments[count:])

        return tuple([n for n, place in enumerate(places) if given[place] is None]), call

    def backward_of(self, missing: tuple[int, ...], other: tuple[Any, ...]) -> Any:
        """The backward for tangents that lie ``other``-wise, if there is one."""
        key = missing, other
        if key not in self.laid and len(self.laid) < _LAID and self.laid_for is not None:
            self.laid[key] = self.laid_for(missing, dict(other))
            self.has_compiled()
        return self.laid.get(key)

    def cast_backward(self, missing: tuple[int, ...], other: tuple[Any, ...]) -> Any:
        """The backward for the autocast that is on, if there is one."""
        key = missing, other, _casts()
        if key not in self.cast and len(self.cast) < _LAID and self.cast_for is not None:
            self.cast[key] = self.cast_for(missing, dict(other), key[-1])
        return self.cast.get(key)

    def plainly(self, node: Any, given: Sequence[Any]) -> tuple[tuple[int, ...], list[Any]]:
        """Which tangents are missing, and all of them, as they were traced."""
        tangents = node.tangents if self.symbolic else self.tangents
        missing = tuple([n for n, place, *_ in tangents if given[place] is None])
        found = [
            t if t is None or t.stride() == stride and not has_bits(t) else laid_out(t, layout)
            for t, stride, layout in [(given[place], *how) for _, place, *how in tangents]
        ]
        return missing, found

    def second_backward(self, missing: tuple[int, ...], chain: Chain) -> Second:
        key = missing, chain
        if key not in self.second:
            assert self.second_for is not None
            self.second[key] = self.second_for(missing, chain)
        return self.second[key]

    def depends(self, missing: tuple[int, ...], chain: Chain) -> Depends | None:
        """What the gradients, or derivatives of these, depend on, if it can be told."""
        key = missing, chain
        if key not in self.known_depends:
            asked = self.depends_for
            self.known_depends[key] = None if asked is None else asked(missing, chain)
        return self.known_depends[key]

    def runs_again(self, missing: tuple[int, ...]) -> bool:
        """Whether the backward without these tangents is that of the graph, which runs once more.

        A program's derivative reads then what the forward has not saved.
        """
        if is_even(self.asking, missing):
            return False
        self.backward_for(missing)
        return missing in self.natively

    def without(self, unasked: Sequence[int]) -> Program:
        """What computes the gradients of the inputs without those ``unasked``, if it can."""
        if not unasked or self.part_for is None:
            return self
        known_as = tuple(unasked)
        if known_as not in self.chosen:
            gradients = {*unasked}
            gradients |= {self.inputs + n for n, own in enumerate(self.reads) if own in unasked}
            self.chosen[known_as] = tuple(sorted(gradients & self.given))
        unwanted = self.chosen[known_as]
        return self.part(unwanted) if unwanted else self

    def part(self, unwanted: tuple[int, ...]) -> Program:
        """Without the gradients that have these numbers, if it can."""
        if unwanted not in self.parts and len(self.parts) < _PARTS and self.part_for is not None:
            self.parts[unwanted] = self.part_for(unwanted)
        return self.parts.get(unwanted) or self

    @functools.cached_property
    def given(self) -> set[int]:
        """Numbers of the gradients that its backward has."""
        (output,) = self.backward.graph.find_nodes(op="output")
        return {n for n, v in enumerate(output.args[0]) if v is not None}

    def backward_for(self, missing: tuple[int, ...]) -> Callable[[list[Any]], Any]:
        found = self.compiled.get(missing)
        if found is None:
            graph = self.backward
            if missing:
                names = [n.target for n in graph.graph.find_nodes(op="placeholder")]
                tangents = names[self.numbers + self.tensors :]
                graph, simply = without(graph, {str(tangents[n]) for n in missing})
                if self.rewrites or not simply or not is_even(self.uneven, missing):
                    found = self.traced_for(missing, graph)
                    if found is None and not is_even(self.asking, missing):
                        self.natively.add(missing)
                if self.rewrites and found is None:  # of which nobody knows what is written
                    raise RuntimeError(UNKNOWN)
            found = self.compiled[missing] = found or self.compile_backward(graph)
            self.has_compiled()
        return found


class Coming:
    """Which of the tangents of a program come, as those of its results are ``absent`` or not.

    ``missing``: the numbers of the others. ``there``: the places of these, and their strides.
    ``spared``: numbers of inputs that none of them leads to, though others do.
    """

    def __init__(self, program: Program, absent: Sequence[bool]):
        self.missing = tuple([n for n, at in enumerate(program.differentiable) if absent[at]])
        found = [(place, stride) for _, place, stride, _ in program.tangents if not absent[place]]
        asked = program.every - sum(1 << n for n in self.missing)
        self.spared = [n for n, mask in program.partly.items() if not mask & asked]
        #: None: how they lie is known of each call.
        self.there = None if program.symbolic else tuple(found)
        places = program.differentiable
        one = places[0]
        self.pick: Any = (
            operator.itemgetter(*places) if len(places) > 1 else lambda given: (given[one],)
        )

    def lie(self, given: Sequence[Any]) -> bool:
        """Whether all lie as they were traced."""
        if self.there is None:
            return False
        for place, stride in self.there:
            t = given[place]
            if t.stride() != stride or t.is_conj() or t.is_neg() or t._is_zerotensor():
                return False
        return True


def _casts() -> tuple[tuple[str, torch.dtype], ...]:
    """The devices and dtypes of autocast."""
    devices = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    return tuple([(device, torch.get_autocast_dtype(device)) for device in devices])


def _lies_otherwise(t: torch.Tensor, stride: Sequence[int]) -> bool:
    """Whether that is all there is to it."""
    if t._is_zerotensor():
        return False
    return any(n > 1 and a != b for n, a, b in zip(t.shape, t.stride(), stride, strict=True))
