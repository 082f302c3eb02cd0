"""The generated Python function around compiled graphs: what restores eager's view of a call.

Each rule writes its lines where it applies, and none where it does not; all that can be decided
while compiling is a literal of the text.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.utils import _pytree as pytree

from refcompiler.aot import gates as gates_
from refcompiler.aot.bases import DATA, Base
from refcompiler.aot.chains import GIVEN, Over
from refcompiler.aot.function import apply
from refcompiler.aot.gates import Level, gate, newest
from refcompiler.aot.inputs import resolved
from refcompiler.aot.kept import set_versions
from refcompiler.aot.layout import view_of_bits
from refcompiler.aot.observation import (
    Again,
    Move,
    Observation,
    Output,
    Plain,
    Same,
    Value,
    View,
    ViewOf,
    Write,
)
from refcompiler.aot.ports import RESULT, VIEW, Key, call_of
from refcompiler.aot.program import Program
from refcompiler.aot.saved import How, keep
from refcompiler.aot.since import note_late
from refcompiler.aot.through import Through, through
from refcompiler.aot.viewed import watch
from refcompiler.aot.views import refuses
from refcompiler.aot.ways import apart
from refcompiler.remade import WRITTEN
from refcompiler.shapes.node import SYMBOLS
from refcompiler.shapes.text import NAMES, python
from refcompiler.weak import Reference

_NUMBERS = itertools.count()


class Wrapper:
    """Writes ``call(*inputs)``; its text is ``call.source``.

    ``inputs``: how many the caller gives; ``lifted``: the tensors that follow them; ``taken``: the
    places of what the graph takes; ``numbers``: where the symbols of sizes are read;
    ``unreached``: places of what autograd does not go back to, or it would tell hooks of None.
    """

    def __init__(
        self,
        seen: Observation,
        written: Sequence[int],
        inputs: int,
        lifted: Sequence[torch.Tensor],
        bases: Sequence[Base],
        taken: Sequence[int],
        numbers: Mapping[Any, str] | None = None,
        unreached: Collection[int] = (),
    ):
        self.unreached = unreached
        #: What autograd goes back to from some outputs alone: the tests of whether that matters.
        self.partly: list[str] = []
        self.inference: Collection[int] = ()  # places of what was made in inference mode
        self.versions: Mapping[int, int] = {}  # of results of a graph without gradients
        self.loose: Collection[int] = ()  # written inputs that no way, or not every, leads to
        self.passed: Mapping[int, int] = {}  # by written input, see :attr:`Joint.passed`
        self.kept: Sequence[tuple[int, int, How]] = ()  # see :meth:`Links.kept`
        self.late: Sequence[int] = ()  # see :class:`refcompiler.aot.since.Asked`
        self.detached: Collection[int] = ()  # numbers of what is taken without a way on
        self.grown: frozenset[int] = frozenset()  # inputs with a gradient that may be no leaves
        self.viewed: Sequence[int] = ()  # outputs that are views and have a tangent
        self.gated: set[int] = set()  # which levels of gates have their lines
        self.there: set[int | str] = set()  # which written inputs and views have theirs
        self.new: dict[int, str] = {}  # values of written inputs
        self.more: list[str] = []  # written inputs, once for each write that is to be counted yet
        self.before: list[str] = []  # those of which all are counted before the graph runs
        self.early: set[int] = set()  # the places of these
        self.ahead: set[int] = set()  # and of those that are written to later all the same
        self.seen, self.written, self.taken = seen, written, taken
        self.parameters = [f"x{n}" for n in range(inputs)]
        self.names: dict[str, Any] = {}
        self.values = list(self.parameters)
        for n, t in enumerate(lifted):
            self.values.append(f"p{n}")
            self.names[f"p{n}"] = t
        self.sources = {f"b{n}": base.source(self.values) for n, base in enumerate(bases)}
        first = len(self.values)
        #: The places of bases, by those of inputs that are written to with them.
        self.owners = {n: first + at for at, base in enumerate(bases) for n, *_ in base.members}
        #: Which share memory and version with what is written to in their stead.
        self.members = {
            n for base in bases if base.tracked for n, *_, how in base.members if how != DATA
        }
        self.checked = list(self.values)
        self.values += self.sources
        self.lines: list[str] = []
        self.results: list[str] = []
        self.names.update(NAMES)
        self.known: dict[Any, str] = {}
        for expr, source in (numbers or {}).items():
            name = source
            if not source.isidentifier():  # a size, which the graph may change
                name = f"n{len(self.known)}"
                self.lines.append(f"{name} = {source}")
            self.known[expr] = name

    def constant(self, prefix: str, value: Any) -> str:
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def write(
        self,
        run: Program | Callable[..., Any],
        uncompiled: Callable[..., Any],
        grad_mode: bool,
        autocast: bool,
        check: Callable[..., bool] | None,
        overlapping: Callable[..., Any] | None = None,
    ) -> Callable[..., Any]:
        """``check`` says whether a call's inputs are apart, else ``overlapping`` serves it.

        ``grad_mode``: whether gradients are on, and matter.
        """
        self.grad_mode = grad_mode
        self.recording = torch.is_grad_enabled()
        self._refuse(uncompiled)
        if isinstance(run, Program):
            self._packed()
            self._hooked()
            self._refused()
        if check is not None and overlapping is not None:
            self._elsewhere("disjoint", check, "overlapping", overlapping)
        if isinstance(run, Program):
            self._parts()
        self.lines += [f"{name} = {source}" for name, source in self.sources.items()]
        for n in self.seen.views:
            output = self.seen.outputs[n]
            if isinstance(output, ViewOf) and output.view.older:
                self._output(n, output, ())
        if isinstance(run, Program) and not self.seen.stale:
            self._count_early()
        for n, output in enumerate(self.seen.outputs):
            if isinstance(output, ViewOf) and output.view.before:  # what is compiled may write
                self._output(n, output, ())
        self._run(run, grad_mode, autocast)
        count = len(self.seen.slots)
        self.new = dict(zip(self.written, self.results[count:]))
        for number, name in zip(self.seen.numbers, self.results[count + len(self.written) :]):
            self.known[number.node.expr] = name
        if isinstance(run, Program) and self.passed:
            self._once(run.differentiable[0])
        if isinstance(run, Program) and (self.kept or self.viewed or self.late):
            self.names["call_of"] = call_of
            self.lines.append(f"own = call_of({self.results[run.differentiable[0]]}.grad_fn)")
        if isinstance(run, Program) and run.gates is not None:
            self._gates(run.gates.levels, run.turns)
        for write in self.seen.writes:
            self._write(write)
        self._return()
        return self._compile()

    def _refuse(self, uncompiled: Callable[..., Any]) -> None:
        """Calls that run the graph as it is: forward-mode AD, transformations of functions."""
        self.names["forward_ad"] = forward_ad
        self.names["transformed"] = torch._C._are_functorch_transforms_active
        self.names["uncompiled"] = uncompiled
        test = "forward_ad._current_level >= 0 or transformed()"
        self._as_it_is(test, "a call in forward-mode AD or a transformation of torch.func")

    def _as_it_is(self, test: str, why: str) -> None:
        self.lines += [
            f"if {test}:",
            f"    uncompiled.why = {why!r}",
            f"    return uncompiled({', '.join(self.parameters)})",
        ]

    def ways(self, partly: Collection[int], leaves: Sequence[bool]) -> None:
        """``partly``: places of what autograd goes back to from some outputs, from others not.

        ``leaves``: by place, whether it is a parameter.
        """
        for place in sorted(partly):
            name = self.values[place]
            is_leaf = place < len(leaves) and leaves[place]
            self.partly += [*([] if is_leaf else [f"{name}.grad_fn"]), f"{name}._backward_hooks"]
            self.partly.append(f"{name}._post_accumulate_grad_hooks")

    def _packed(self) -> None:
        """Calls whose saved tensors hooks are to have as they are before a write of the graph."""
        if self.seen.repacked:
            self.names["packing"] = torch._C._autograd._top_saved_tensors_default_hooks
            why = "saved-tensor hooks are on, and the graph writes past autograd to what is saved"
            self._as_it_is("packing(False) is not None", why)

    def _hooked(self) -> None:
        """Calls with hooks on what is written to, if its old value may go without a gradient.

        Behind a write to a view, also one that autograd does not see, eager's gradients go to its
        base, past the view.
        """
        tests = []
        for write in self.seen.writes:
            name = self.values[write.place]
            # Which has a function of autograd before, too, or a view that leads past it.
            if write.counted and (all(write.read) or write.older):
                tests.append(f"{name}._is_view()")
            if write.requires_grad and (write.tracked or write.counted) and name[0] == "x":
                if write.tracked and write.place in self.loose:
                    tests.append(f"{name}._backward_hooks")
                tells = f"({name}._backward_hooks or {name}.retains_grad)"
                tests.append(f"{tells} and {name}._is_view()")
                if write.tracked and write.place not in self.written:
                    # Of a leaf, eager refuses a write that changes nothing, too.
                    tests += [f"{name}.is_leaf", f"{name}._is_view() and {name}._base.is_leaf"]
        if tests:
            why = "a hook is on an input that is written to, or that is a leaf"
            self._as_it_is(" or ".join(tests), why)

    def _refused(self) -> None:
        """Calls with what eager refuses a write to: what comes before it happens, and no more."""
        names = [self.values[write.place] for write in self.seen.writes if write.tracked]
        if names := [name for name in names if name not in self.sources]:
            self.names["refuses"] = refuses
            why = "autograd refuses a write to an input"
            self._as_it_is(" or ".join([f"refuses({name})" for name in names]), why)

    def _parts(self) -> None:
        """Calls with other parts of what one that is written to is a part of: behind the write they
        have another function of autograd."""
        self.names["beside"] = beside
        for write in self.seen.writes:
            name, others = self.values[write.place], self.grown - {write.place}
            if write.requires_grad and write.counted and others and name[0] == "x":
                named = ", ".join([self.values[place] for place in sorted(others)])
                why = "another input is a view of what an input that is written to is a view of"
                self._as_it_is(f"{name}._is_view() and beside({name}, ({named}, ))", why)

    def _elsewhere(
        self, test: str, check: Callable[..., bool], name: str, other: Callable[..., Any]
    ) -> None:
        """Calls whose inputs overlap where one is written to."""
        self.names.update({test: check, name: other})
        self.lines += [
            f"if not {test}({', '.join(self.checked)}):",
            f"    return {name}({', '.join(self.parameters)})",
        ]

    def _count_early(self) -> None:
        """Writes that change no values, such as of a size, before anything is saved, and those that
        come before anything is read, as far as autograd sees.

        Eager saves behind them. Where it does before one, its backward raises, as this one does.
        """
        for write in self.seen.writes:
            changes = write.place in self.written or write.place in self.members
            if write.read == (True, False) or write.place in self.inference:
                continue
            if write.counted and not changes:
                self.early.add(write.place)
                self.before += [self.values[write.place]] * write.times
            elif write.ahead and write.plain and write.place in self.written:
                self.ahead.add(write.place)  # a view has another function of autograd from then on
                self.before += [self.values[write.place]] * write.times
        if self.before:
            self.names["counted"] = counted
            self.lines.append(f"counted(({', '.join(self.before)}, ))")

    def _run(self, run: Program | Callable[..., Any], grad_mode: bool, autocast: bool) -> None:
        count = len(self.seen.slots) + len(self.written) + len(self.seen.numbers)
        self.results = [f"r{n}" for n in range(count)]
        arguments = ", ".join(
            [
                self._taken(at) + ".detach()" * (n in self.detached)
                for n, at in enumerate(self.taken)
            ]
        )
        managers = []
        if isinstance(run, Program):
            self.names.update(apply=apply, program=run)
            again = run.derivable
            replaced = again.replaced if again is not None else ()
            whole = "".join([f", {self.values[self.taken[n]]}" for n in replaced])
            function = "apply"
            if self.partly:
                self.names["apart"], function = apart, "run"
                self.lines.append(f"run = apart if {' or '.join(self.partly)} else apply")
            call = f"{function}({f'(program{whole})' if whole else 'program'}, {arguments})"
            if not grad_mode:
                managers.append("enable_grad()")
        else:
            self.names["forward"] = run
            call = f"forward({arguments})"
        if autocast:
            self.names["without_autocast"] = torch._C._DisableAutocast
            managers.append("without_autocast()")  # the casts are in the graph
        targets = f"{', '.join(self.results)}, = " if self.results else ""
        lines = self._managed(managers, f"{targets}{call}")
        if grad_mode and not isinstance(run, Program):  # costs less than a context manager
            self.names["set_grad"] = torch._C._set_grad_enabled
            inside = [f"    {line}" for line in lines]
            lines = ["set_grad(False)", "try:", *inside, "finally:", "    set_grad(True)"]
        self.lines += lines
        if self.versions:
            names = [self.results[n] for n in self.versions]
            self._set_versions(names, [*self.versions.values()])
        for name, slot in zip(self.results, self.seen.slots):
            if slot.inference:
                self.names["inferred"] = inferred
                self.lines.append(f"{name} = inferred({name})")

    def _once(self, result: int) -> None:
        """Where a written input is a view, what passes the write has one backward.

        Autograd's function of a write to a view lets go of what it has to do, where it would save
        nothing otherwise.
        """
        self.names["call_of"] = call_of
        for place, mask in self.passed.items():
            self.lines += [
                f"if {self.values[place]}._is_view():",
                f"    call_of({self.results[result]}.grad_fn).once |= {mask}",
            ]

    def _set_versions(self, names: Sequence[str], versions: Sequence[int]) -> None:
        self.names["set_versions"] = set_versions
        self.lines.append(f"set_versions(({', '.join(names)}, ), {tuple(versions)})")

    def _taken(self, place: int) -> str:
        """What the graph is given: with the conjugate and negative bits worked into the memory."""
        name = self.values[place]
        if place in self.unreached:
            name = f"{name}.detach()"
        if place not in self.seen.bits:
            return name
        self.names["resolved"] = resolved
        return f"resolved({name})"

    def _under(self, managers: Sequence[str], line: str) -> None:
        self.lines += self._managed(managers, line)

    def _managed(self, managers: Sequence[str], line: str) -> list[str]:
        self.names.update(no_grad=torch.no_grad, enable_grad=torch.enable_grad)
        if not managers:
            return [line]
        return [f"with {', '.join(managers)}:", f"    {line}"]

    def _gates(self, levels: Sequence[Level], turns: Mapping[int, int]) -> None:
        """Results whose ways to the inputs lead past others: behind those, when they are there.

        Autograd runs what was made last first: that of the result to which it comes first in eager.
        """
        self.names.update(gate=gate, newest=newest, ref=Reference, gates=gates_)
        node = f"{self.results[levels[0].results[0]]}.grad_fn"
        apart = f" if run is apply else {node}.call" if self.partly else ""
        self.lines.append(f"node = {node}{apart}")
        parts = {index for level in levels for index in level.apart}
        self.gated.update(parts)
        whole = [
            (min([turns.get(n, 0) for n in level.results]), index)
            for index, level in enumerate(levels)
            if index not in parts
        ]
        for _, index in sorted(whole, key=lambda each: -each[0]):
            self._gate(index, levels)
        keys = dict.fromkeys(key for level in levels for key in level.others)
        watched = "".join([f"ref({self._named(key)}), " for key in keys])
        self.lines.append(f"node.watched = newest(), ({watched})")

    def _gate(self, index: int, levels: Sequence[Level]) -> None:
        if index in self.gated:
            return
        self.gated.add(index)
        level = levels[index]
        for key in level.others:
            result, place = self._source(key)
            for other, each in enumerate(levels):
                if result in each.results:
                    self._gate(other, levels)
            for write in self.seen.writes:
                if write.place == place:
                    self._write(write)
            self._count()  # behind it, a view of what was written to has another function
            if key[0] == VIEW:
                self._output(key[1], self.seen.outputs[key[1]], ())
        if not level.apart or not self.partly:
            self.lines += self._passed(index, level)
            return
        parts = [line for n in level.apart for line in self._passed(n, levels[n])]
        for test, lines in (("if run is apply:", self._passed(index, level)), ("else:", parts)):
            self.lines += [test, *[f"    {line}" for line in lines]]

    def _passed(self, index: int, level: Level) -> list[str]:
        """The lines that put the results of a level behind its gate."""
        names = [self.results[n] for n in level.results]
        others = ", ".join([*map(self._named, level.others), *["gates.PROBE"] * level.probed])
        results = ", ".join(names)
        managers = [] if self.grad_mode else ["enable_grad()"]
        targets = results if len(names) == 1 else f"{results}, "
        line = f"{targets} = gate((node, {index}), {len(names)}, {results}, {others})"
        return self._managed(managers, line)

    def _source(self, key: Key) -> tuple[int | None, int | None]:
        """The result that has the values of ``key``, and the input that they are in."""
        kind, n = key
        if kind == RESULT:
            return n, None
        output = self.seen.outputs[n] if kind == VIEW else None
        if isinstance(output, Value):
            return output.slot, None
        place = output.place if isinstance(output, ViewOf) else self.owners.get(n, n)
        written = place in self.written
        return len(self.seen.slots) + self.written.index(place) if written else None, place

    def _named(self, key: Key) -> str:
        kind, n = key
        return self.results[n] if kind == RESULT else f"o{n}" if kind == VIEW else self.values[n]

    def _write(self, write: Write) -> None:
        if write.place in self.there:
            return
        self.there.add(write.place)
        target, value = self.values[write.place], self.new.get(write.place)
        seen = self.grad_mode and write.requires_grad and not write.tracked
        managers = ["no_grad()"] if seen else []
        if write.place in self.inference:  # there it was written to, in a block of the graph
            self.names["inference_mode"] = torch.inference_mode
            managers = ["inference_mode()"]
        steps = [] if value is not None else self._steps(write)
        if write.layout is not None and not steps:
            at = write.layout
            offset = f"{target}.storage_offset() + {self.text(write.moved)}"
            steps = [f"as_strided_({self.listed(at.size)}, {self.listed(at.stride)}, {offset})"]
        if steps:
            elsewhere = write.place in self.early or write.place in self.members
            counts = []
            if elsewhere or (value is not None and write.counted and write.times < 2):
                self.names["uncounted"] = _unsafe_preserve_version_counter
                counts = [f"uncounted({target})"]
            for step in steps:
                self._under([*managers, *counts], f"{target}.{step}")
        if value is not None:
            chosen = "".join([f".select({d}, 0)" for d in reversed(write.expanded)])
            if write.place in self.ahead:
                self.lines.append(f"if {value} is not None:")
                self.lines.append(f"    {target}.data.copy_({value})")
            elif write.counted:
                lines = self._managed(managers, f"{target}{chosen}.copy_({value})")
                if write.plain:  # it may be there already
                    lines = [f"if {value} is not None:", *[f"    {line}" for line in lines]]
                self.lines += lines
            else:  # of which autograd is not to know
                self.lines.append(f"{target}.data{chosen}.copy_({value})")
        if write.place in self.early or write.place in self.ahead:
            return
        left = write.times - (value is not None and write.counted) - len(steps)
        if write.counted and left > 0 and write.place not in self.members:
            self.more += [target] * left

    def _steps(self, write: Write) -> list[str]:
        """The calls that change sizes as autograd saw it; of a member of a base it sees its own."""
        if not write.requires_grad or write.place in self.members:
            return []
        return [f"{name}({self.listed(given)[1:-1]})" for name, given in write.steps]

    def _count(self) -> None:
        if self.more:
            self.names["counted"] = counted
            self.lines.append(f"counted(({', '.join(self.more)}, ))")
            self.more.clear()

    def _return(self) -> None:
        self._count()
        names: list[str] = []
        for n in self.seen.views:
            self._output(n, self.seen.outputs[n], ())
        late: list[Output] = []  # views of what has its memory by then
        for n, output in enumerate(self.seen.outputs):
            is_late = isinstance(output, ViewOf) and output.moved
            late += [output] * is_late
            names.append(f"o{n}" if is_late else self._output(n, output, names))
        for move in self.seen.moves:
            self._move(move, names[move.output])
        for output in late:
            self._output(self.seen.outputs.index(output), output, names)
        names = names[: len(names) - len(self.seen.moves)]
        if self.kept:
            self.names["keep"] = keep
            found = [f"({n}, {self.values[at]}, {how})" for n, at, how in self.kept]
            self.lines.append(f"keep(own, ({', '.join(found)}, ))")
        if self.late:
            self.names["note_late"] = note_late
            named = ", ".join([self.values[at] for at in self.late])
            self.lines.append(f"note_late(own, ({named}, ))")
        self._switch()
        if self.seen.spec.is_leaf():
            self.lines.append(f"return {names[0]}")
            return
        if self.seen.spec.type is tuple and all(c.is_leaf() for c in _children(self.seen.spec)):
            self.lines.append(f"return ({''.join(f'{name}, ' for name in names)})")
            return
        self.names.update(unflatten=pytree.tree_unflatten, spec=self.seen.spec)
        self.lines.append(f"return unflatten([{', '.join(names)}], spec)")

    def _switch(self) -> None:
        if self.seen.switches is not None:
            self.names["set_grad"] = torch._C._set_grad_enabled
            self.lines.append(f"set_grad({self.seen.switches})")

    def _move(self, move: Move, value: str) -> None:
        target = self.values[move.place]
        if not move.times:
            self.lines.append(f"{target}.data = {value}")
            return
        self._under(["no_grad()"] if self.grad_mode else [], f"{target}.set_({value})")
        if move.times > 1:
            self.names["counted"] = counted
            self.lines.append(f"counted(({f'{target}, ' * (move.times - 1)}))")

    def _output(self, n: int, output: Output, names: Sequence[str]) -> str:
        match output:
            case Plain(value):
                return self.text(value) if type(value) in SYMBOLS else self.constant("c", value)
            case Same(place):
                return self.values[place]
            case Again(earlier):
                return names[earlier]
            case Value(slot, None):
                return self.results[slot]
            case Value(slot, view):
                base = self.results[slot]
            case ViewOf(place, view):
                base = self.values[place]
            case Through(slot, place, at, name):
                if f"o{n}" not in self.there:
                    self.there.add(f"o{n}")
                    call = self.constant("through", through(name))
                    lies = self.listed(at.size), self.listed(at.stride), self.text(at.offset)
                    own = self.results[slot]
                    base = f"{own}.detach()" if place is None else self.values[place]
                    given = ", ".join([base, own, *lies])
                    self.lines.append(f"o{n} = {call}({given})")
                return f"o{n}"
        assert view is not None
        if view.over is not None:
            base = self._over(view.over, names)
        self._view(f"o{n}", base, view)
        self._watch(n)
        return f"o{n}"

    def _watch(self, n: int) -> None:
        ran = bool(self.results)  # else it is watched when it is asked for again
        if ran and n in self.viewed and f"seen {n}" not in self.there:
            self.there.add(f"seen {n}")
            self.names["watch"] = watch
            self.lines.append(f"watch(own, {self.viewed.index(n)}, o{n})")

    def _over(self, over: Over, names: Sequence[str]) -> str:
        kind, n = over
        if kind == GIVEN:
            return self.values[n]
        return self._output(n, self.seen.outputs[n], names)

    def _view(self, name: str, base: str, view: View) -> None:
        managers = []
        if name in self.there:
            return
        self.there.add(name)
        if view.whole:
            self.lines.append(f"{name} = {base}.{'detach()' if view.apart < 0 else 'data'}")
            self._written_apart(name, view)
            return
        if view.grad_mode and not self.recording:
            managers.append("enable_grad()")
        elif not view.grad_mode and self.recording:
            managers.append("no_grad()")
        if view.replay is not None:
            numbers = f", {self.listed(view.numbers)}" if view.numbers else ""
            made = f"{self.constant('view', view.replay)}({base}{numbers})"
        else:
            at = view.layout
            size, stride = self.listed(at.size), self.listed(at.stride)
            offset = f"{base}.storage_offset() + {self.text(at.offset)}"
            detached = "" if view.seen else ".detach()" if view.apart < 0 else ".data"
            made = f"{base}{detached}.as_strided({size}, {stride}, {offset})"
            if view.bits:
                self.names["view_of_bits"] = view_of_bits
                dtype = self.constant("dtype", view.dtype)
                given = base if view.apart < 0 else f"{base}.data"
                made = f"view_of_bits({given}, {dtype}, {size}, {stride}, {at.offset})"
            if view.detached:
                made += ".detach()"
        older = view.before and base in self.results
        version = self.seen.slots[self.results.index(base)].version if older else 0
        if older:
            self._set_versions([base], [version - 1])
        self._under(managers, f"{name} = {made}")
        if older:
            self._set_versions([base], [version])
        self._written_apart(name, view)

    def _written_apart(self, name: str, view: View) -> None:
        if view.apart > 0 and not torch.is_inference_mode_enabled():  # where none counts writes
            self._set_versions([name], [view.apart])

    def text(self, number: Any) -> str:
        """The expression that gives a number in a call."""
        if type(number) not in SYMBOLS:
            return repr(number)
        expr = number.node.expr
        found = self.known.get(expr)
        return python(expr, self.known.__getitem__) if found is None else found

    def listed(self, numbers: Sequence[Any]) -> str:
        return f"({''.join(f'{self.text(n)}, ' for n in numbers)})"

    def _compile(self) -> Callable[..., Any]:
        body = "\n".join("    " + line for line in self.lines)
        source = f"def call({', '.join(self.parameters)}):\n{body}\n"
        title = f"<refcompiler ahead of time {next(_NUMBERS)}>"
        linecache.cache[title] = (len(source), None, source.splitlines(True), title)
        exec(compile(source, title, "exec"), self.names)
        call = self.names["call"]
        call.source = source
        call.__dict__[WRITTEN] = "aot"
        return call


def counted(tensors: Sequence[torch.Tensor]) -> None:
    """Tell those who ask for versions of writes that changed nothing, or that were one with others.

    Each of ``tensors`` once more.
    """
    torch.autograd.graph.increment_version([t for t in tensors if not t.is_inference()])


def beside(t: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    """Whether one of ``others`` is a view of what ``t`` is a view of, in other memory."""
    base = t._base
    return any(other._is_view() and other._base is base for other in others)


def inferred(t: torch.Tensor) -> torch.Tensor:
    """The memory of ``t`` as a tensor that is made in inference mode."""
    with torch.inference_mode():
        made = torch.empty(0, dtype=t.dtype, device=t.device)
        return made.set_(t.untyped_storage(), t.storage_offset(), t.shape, t.stride())


def _children(spec: Any) -> list[Any]:
    return spec.children() if callable(getattr(spec, "children", None)) else spec.children_specs
