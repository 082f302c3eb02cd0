"""Which sizes and numbers of a call become symbols, and where their values come from.

Source of the policy: torch's documentation of dynamic shapes (automatic dynamic, ``mark_dynamic``
and its like, 0/1 specialisation, and that sizes and ints that a module owns are static).
"""

from __future__ import annotations

import collections
import logging
import re
import weakref
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch

from refcompiler.ambient import outside_transformations
from refcompiler.capture.kinds import is_structseq
from refcompiler.capture.marking.dimensions import Marks
from refcompiler.capture.natively import is_watching
from refcompiler.errors import ConstraintViolationError
from refcompiler.guards.kinds import Guard, TensorMeta
from refcompiler.guards.sizes import Relations, SizedMeta
from refcompiler.guards.sources import Source, spelt_out
from refcompiler.shapes import ShapeEnv
from refcompiler.shapes.node import SYMBOLS
from refcompiler.shapes.ranges import INF, Range

log = logging.getLogger("refcompiler.dynamic")

#: Places whose numbers may become symbols: what a program was given, not what holds it together.
_PLACES = frozenset(
    "arg item member dict_item attr slot cell default kwdefault local place start length".split()
)
_MARKED, _NAMED, _FROM_THE_START = "marked", "dynamic_sources", "dynamic=True"
_VALUE, _NOT_KNOWN = "dynamic_values", "unbacked_sources"
#: Attributes of objects of C that are constants of a program.
_FIXED_ATTRIBUTES = frozenset(("maxlen", "start", "stop", "step"))
_FIXED_KINDS = (slice, range, collections.deque)


class _Result(torch.autograd.Function):
    """The result of an operation, no leaf, that lies as the given tensor does."""

    @staticmethod
    def forward(ctx: Any, t: torch.Tensor) -> torch.Tensor:
        made = torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=t.device)
        offset = t.storage_offset()
        return _moved(made, offset) if offset else made

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def _moved(t: torch.Tensor, offset: int) -> torch.Tensor:
    """A stand-in that begins at ``offset`` in memory, and is a view of nothing."""
    with torch.no_grad():
        flat = torch.empty(offset + t.numel(), dtype=t.dtype, device=t.device)
        return flat.as_strided(t.shape, t.stride(), offset).detach()


class History:
    """What the captures of one site have seen: what changes from one to the next is dynamic."""

    def __init__(self) -> None:
        self.seen: dict[Any, Any] = {}
        self.changing: set[Any] = set()
        self.objects: dict[str, weakref.WeakSet] = {}
        self.held: dict[str, dict[int, Any]] = {}  # the same of those that take no weak reference
        self.noted: dict[Any, Any] = {}  # by the capture that is going on
        self.lengths: dict[str, set[int]] = {}  # of lists of numbers

    def changes_length(self, key: str, length: int) -> bool:
        """Note the length of a list; whether it ever was another one."""
        known = self.lengths.setdefault(key, set())
        known.add(length)
        return len(known) > 1

    def changes(self, key: Any, value: Any) -> bool:
        """Note ``value``; whether it ever was another one."""
        self.noted[key] = value
        if self.seen.setdefault(key, value) != value:
            self.changing.add(key)
        return key in self.changing

    def distinct(self, key: str, value: Any) -> int:
        """Note the object ``value``; of how many that are still alive it was one.

        One that takes no weak reference (a generator of torch 2.11) stays alive, as captures that
        it is noted by are few.
        """
        if not type(value).__weakrefoffset__:
            held = self.held.setdefault(key, {})
            held[id(value)] = value
            return len(held)
        known = self.objects.setdefault(key, weakref.WeakSet())
        known.add(value)
        return len(known)

    def clear(self) -> None:
        self.seen.clear()
        self.changing.clear()
        self.objects.clear()
        self.held.clear()
        self.lengths.clear()


@dataclass
class Policy:
    """``dynamic`` as :func:`refcompiler.compile` takes it; ``sources`` are always dynamic.

    So are numbers of ``values``, and ``unbacked`` sources, of which besides nothing is known.
    ``scalars`` and ``shapes``: whether a number read from a tensor, and a size that depends on
    data, are captured instead of ending the graph. ``chosen`` is what a capture under this policy
    has made symbols: another one under it, of a call that its plan ran for, does the same.
    """

    dynamic: bool | None = False
    automatic: bool = True
    sources: str = ""
    scalars: bool = False
    shapes: bool = False
    values: frozenset[int] = frozenset()
    unbacked: str = ""
    history: History = field(default_factory=History)
    chosen: dict[Any, Any] = field(default_factory=dict)

    def names_none(self) -> bool:
        """Only marks make symbols."""
        return self.dynamic is False and not (self.sources or self.values or self.unbacked)


class Sizes:
    """The symbols of one capture: their environment, their sources, and their guards."""

    def __init__(self, machine: Any, policy: Policy):
        self.machine = machine
        self.policy = policy
        self.env: ShapeEnv | None = None
        self.sources: dict[sympy.Symbol, Source] = {}
        self.places: dict[sympy.Symbol, tuple[str, int]] = {}  # the lines that they are read at
        self.inputs: dict[torch.fx.Node, tuple[sympy.Symbol, Any]] = {}  # by placeholder
        self.strict: dict[sympy.Symbol, Source] = {}  # the user allows no constant there
        self.refused = ""  # what the marks of the user's contradict
        self._by_size: dict[int, Any] = {}  # of equal sizes that are taken to stay equal
        self._by_name: dict[Any, Any] = {}  # those that the user says are equal
        self._told = 0  # relations that the log has had
        self._fixed: set[sympy.Symbol] = set()  # and constants
        machine.recorder.captures_numbers = policy.scalars
        if policy.scalars or policy.shapes:
            self.environment()

    def capture_numbers(self, captured: bool) -> None:
        """Whether a number that is read from a tensor stays in the graph, from now on."""
        self.machine.recorder.captures_numbers = captured
        if captured:
            self.environment().allow_scalar_outputs = True

    def environment(self) -> ShapeEnv:
        """The environment; with the first symbol, the fakes get it too."""
        if self.env is None:
            self.env = ShapeEnv(self.machine.place)
            self.env.is_read = is_watching
            self.env.allow_scalar_outputs = self.policy.scalars
            self.env.allow_dynamic_output_shape_ops = self.policy.shapes
            self.machine.recorder.begin_symbols(self.env)
        return self.env

    def close(self) -> None:
        """Capture is over: what holds a symbol does not hold the machine."""
        if self.env is not None:
            self.env.place = lambda: ("", 0)
            self.env.is_read = lambda: False

    # ---- numbers ----------------------------------------------------------------------------

    def number(self, value: Any, source: Source) -> Any:
        """A symbol for an int or float from outside; None if it is to be a constant."""
        policy = self.policy
        if policy.names_none() or source.kind not in _PLACES or self._is_fixed(source):
            return None
        if type(value) is int and not (policy.unbacked or policy.sources):
            if self._owned_by_module(source):
                return None
        path = _path(source)
        again = policy.chosen.get(path, "")
        if again is None:
            return None
        made, why = self._number(value, source, again)
        policy.chosen[path] = None if made is None else why
        if made is None:
            return None
        self.machine.guard("TYPE", source, type(value))
        self._define(made, source)
        self._say(source, value, made, why)
        return made

    def _number(self, value: Any, source: Source, again: str) -> tuple[Any, str]:
        """A symbol and why; ``again`` is why it was one before, where it was."""
        why = again or self._wanted(source, value)
        if not why or (type(value) is int and not -(2**63) <= value < 2**63):
            return None, why
        env = self.environment()
        changed = why not in (_NAMED, _VALUE, _FROM_THE_START)  # the program counts with it
        if type(value) is float:
            made: Any = env.floating(value, bool(again))
        else:
            made = (
                self._fresh() if why == _NOT_KNOWN else env.integer(value, bool(again) or changed)
            )
        return None if type(made) is type(value) else made, why

    def drawn(self, kind: type, source: Source, range_: Range) -> Any:
        """A symbol for a number that each call draws anew."""
        env = self.environment()
        if kind is int:
            made = self._fresh()
            env.knowledge.bound(made.node.expr, range_)
        else:
            made = env.create_unbacked_symfloat()
            env.pending_fresh_unbacked_symbols.clear()
        self._define(made, source)
        return made

    def _wanted(self, source: Source, value: Any) -> str:
        """Why a number is to be a symbol; nothing if it is not."""
        policy = self.policy
        if self._named(policy.unbacked, source):
            return _NOT_KNOWN
        if self._named(policy.sources, source):
            return _NAMED
        owned = self._owned_by_module(source)
        if owned and type(value) is int:
            return ""
        if type(value) is int and value in policy.values:
            return _VALUE
        if policy.dynamic is False:
            return ""
        if policy.dynamic and not owned:
            return _FROM_THE_START
        path = _path(source)
        if policy.automatic and policy.history.changes(path, value):
            return f"it was {policy.history.seen[path]} before"
        return ""

    def _named(self, sources: str, source: Source, d: int | None = None) -> bool:
        """``sources``: names as users or torch write them, or regular expressions.

        ``d``: of a dimension; entries that end in ``:N`` are about dimension ``N`` only.
        """
        if not sources:
            return False
        name, *of_torch = self._names(source)
        for entry in sources.split(","):
            pattern = entry.strip()
            chosen = re.fullmatch(r"(.*\S)\s*:\s*(\d+)", pattern)
            if chosen is not None:
                pattern = chosen[1]
                if d is not None and int(chosen[2]) != d:
                    continue
            if pattern in (name, *of_torch) or re.fullmatch(pattern, name):
                return True
            if any(re.match(pattern, text) for text in of_torch):  # which asks for no end
                return True
        return False

    def _names(self, source: Source) -> tuple[str, ...]:
        """How the user names a source, and how torch does: with a module's registries or not."""
        name, scope = str(source), "L"
        if name.startswith("globals."):
            name, scope = name.removeprefix("globals."), "G"
        begun = re.compile(r"^(\w+)")
        spelt = (name, spelt_out(source).removeprefix("globals."))
        return name, *[begun.sub(rf"{scope}['\1']", text) for text in dict.fromkeys(spelt)]

    def _is_fixed(self, source: Source) -> bool:
        if source.key not in _FIXED_ATTRIBUTES or source.parent is None:
            return False
        lazy = self.machine.lazies.get(source.parent)
        return lazy is None or issubclass(type(lazy.value), _FIXED_KINDS)

    def _owned_by_module(self, source: Source) -> bool:
        owner: Any = source.parent
        while owner is not None:
            lazy = self.machine.lazies.get(owner)
            if lazy is not None and issubclass(type(lazy.value), torch.nn.Module):
                return True
            if owner.kind not in ("dict", "hidden_dict", "member", "item", "attr"):
                return False
            owner = owner.parent
        return False

    def _define(self, made: Any, source: Source) -> None:
        """Where the value of a symbol comes from, and its input of the graph."""
        symbol = made.node.expr
        self.sources[symbol] = source
        self.places[symbol] = self.machine.place()
        node = self.machine.recorder.add_number(str(symbol), made)
        self.inputs[node] = symbol, made

    def _say(self, source: Source, value: Any, made: Any, why: str) -> None:
        file, line = self.machine.place()
        log.info(
            "%s becomes symbolic as %s (%s here, %s) at %s:%d",
            source, made, value, why, file, line,
        )  # fmt: skip

    # ---- tensors ----------------------------------------------------------------------------

    def tensor(self, value: torch.Tensor, source: Source) -> Any:
        """A fake with symbols among its sizes and strides; None if all of them are constants."""
        marks = Marks.of(value)
        policy = self.policy
        if policy.names_none() and marks is None:
            return None
        owned = type(value) is torch.nn.Parameter or self._owned_by_module(source)
        if owned and marks is None:
            if not any(self._named(names, source) for names in (policy.sources, policy.unbacked)):
                return None
        chosen, path = policy.chosen, (_path(source), value.dim())
        if path not in chosen:
            found = self._dims(value, source, marks), self._changing_strides(value, source)
            chosen[path] = found
        dims, changing = chosen[path]
        if not (dims or changing) or value.is_conj() or value.is_neg():
            return None
        sizes = self._symbolic(value, source, dims, marks)
        strides = self._strides(value, source, sizes, changing)
        if all(type(n) is int for n in (*sizes, *strides)):
            return None
        meta = TensorMeta.of(value)
        shape, stride = tuple(map(expression, sizes)), tuple(map(expression, strides))
        self.machine.guard("SIZED", source, SizedMeta(meta, shape, stride, self.sources))
        return self._fake(value, sizes, strides)

    def _dims(self, value: torch.Tensor, source: Source, marks: Marks | None) -> dict[int, str]:
        """The dimensions that become symbols, and why."""
        found: dict[int, str] = {}
        policy = self.policy
        path = _path(source)
        for d, size in enumerate(value.shape):
            key = path, value.dim(), "size", d
            changes = policy.dynamic is not False and policy.history.changes(key, size)
            if marks is not None and d in (marks.dynamic | marks.unbacked):
                found[d] = _MARKED
            elif marks is not None and d in marks.static - marks.maybe:
                continue
            elif self._named(policy.unbacked, source, d):
                found[d] = _NOT_KNOWN
            elif self._named(policy.sources, source, d):
                found[d] = _NAMED
            elif size in policy.values:
                found[d] = _VALUE
            elif changes and policy.automatic:
                found[d] = f"it was {policy.history.seen[key]} before"
            elif policy.dynamic:
                found[d] = _FROM_THE_START
            elif marks is not None and d in marks.maybe:
                found[d] = "maybe_mark_dynamic"
        return found

    def _symbolic(
        self, value: torch.Tensor, source: Source, dims: dict[int, str], marks: Marks | None
    ) -> list[Any]:
        shape = self.machine.sources.make("attr", source, "shape")
        sizes: list[Any] = list(value.shape)
        for d, why in dims.items():
            place = self.machine.sources.make("item", shape, d, str(d))
            if why == _NOT_KNOWN:
                sizes[d] = self._unbacked(sizes[d], place, marks or Marks.none(), d)
            elif marks is None or d not in (marks.dynamic | marks.unbacked):
                sizes[d] = self._size(sizes[d], place, why)
            elif d in marks.unbacked:
                sizes[d] = self._unbacked(sizes[d], place, marks, d)
            else:
                sizes[d] = self._marked(sizes[d], place, marks, d)
        return sizes

    def _size(self, hint: int, place: Source, why: str) -> Any:
        """A size that may still turn out to be a constant.

        Where all sizes are symbols from the start, equal ones are taken to be the same; one that
        was seen to change by itself is its own.
        """
        together = why == _FROM_THE_START
        if together and hint in self._by_size:
            return self._by_size[hint]
        made = self.environment().size(hint)
        if type(made) is not int:
            if together:
                self._by_size[hint] = made
            self._define(made, place)
            self._say(place, hint, made, why)
        return made

    def _marked(self, hint: int, place: Source, marks: Marks, d: int) -> Any:
        """A size that the user wants to be a symbol."""
        if hint < 2 and d not in marks.ranges:  # a program of its own, as for other dimensions
            return hint
        low, high = marks.ranges.get(d, (2, INF))
        if hint < 2:
            self._refuse(f"{place} is {hint} here: 0 and 1 are always constants")
            return hint
        if not low <= hint <= high:
            self._refuse(f"{place} is {hint} here, and marked as {_interval(low, high)}")
            return hint
        env = self.environment()
        made = env.size(hint, int(low), high)
        symbol = made.node.expr
        self._hint(made, marks, d)
        self._define(made, place)
        self._say(place, hint, made, _MARKED)
        # Each is decided at once, so that this program is for sizes with the same answers only.
        met = [bool(condition(made)) for condition in marks.special.get(d, ())]
        if not any(met):
            self.strict[symbol] = place
        return made

    def _refuse(self, why: str) -> None:
        file, line = self.machine.place()
        self.refused = f"{why} ({file}:{line})"

    def _hint(self, made: Any, marks: Marks, d: int) -> None:
        if d in marks.hints:
            made.node.shape_env.expected[made.node.expr] = marks.hints[d]

    def _unbacked(self, size: int, place: Source, marks: Marks, d: int) -> Any:
        """A size of which nothing is known at capture, though an input has it."""
        name = marks.names.get(d)
        low, high = marks.ranges.get(d, (0, INF))
        if not low <= size <= high:
            self._refuse(f"{place} is {size} here, and marked as {_interval(low, high)}")
            return size
        if name is not None and name in self._by_name:
            made, other, first = self._by_name[name]
            if other != size:
                self._refuse(f"{place} is {size} and {first} is {other}, though both are {name!r}")
            return made
        env = self.environment()
        made = self._fresh()
        symbol = made.node.expr
        env._constrain_range_for_size(symbol, int(low), None if high == INF else int(high))
        if d in marks.ranges:
            env.initial[symbol] = Range(low, high)
        if d in marks.strict:
            self.strict[symbol] = place
        if name is not None:
            self._by_name[name] = made, size, place
        self._hint(made, marks, d)
        self._define(made, place)
        self._say(place, "not to be known", made, _MARKED)
        return made

    def _fresh(self) -> Any:
        """A whole number of which nothing is known, though it comes from outside."""
        env = self.environment()
        made = env.create_unbacked_symint()
        env.pending_fresh_unbacked_symbols.clear()
        return made

    def _changing_strides(self, value: torch.Tensor, source: Source) -> set[int]:
        """The dimensions whose strides are not to be constants."""
        policy = self.policy
        if policy.dynamic is not None:
            return set(range(value.dim())) if policy.dynamic else set()
        keys = ((_path(source), value.dim(), "stride", d) for d in range(value.dim()))
        strides = zip(keys, value.stride(), strict=True)
        return {d for d, (key, n) in enumerate(strides) if policy.history.changes(key, n)}

    def _strides(
        self, value: torch.Tensor, source: Source, sizes: list[Any], changing: set[int]
    ) -> list[Any]:
        """Each stride as the extent of the dimensions inside it, where it is that."""
        given = value.stride()
        strides: list[Any] = list(given)
        extent: Any = 1
        extent_hint = 1
        for d in sorted(range(len(given)), key=lambda d: (given[d], value.shape[d])):
            if given[d] == extent_hint:
                strides[d] = extent
            elif d in changing and given[d] > 1:
                place = self.machine.sources.make("attr", source, "stride()")
                place = self.machine.sources.make("item", place, d, str(d))
                strides[d] = made = self.environment().size(given[d])
                self._define(made, place)
                self._say(place, given[d], made, "a stride of its own")
            if value.shape[d] != 1 or type(sizes[d]) is not int:
                extent, extent_hint = strides[d] * sizes[d], given[d] * value.shape[d]
        return strides

    def _fake(self, value: torch.Tensor, sizes: list[Any], strides: list[Any]) -> Any:
        mode = self.machine.recorder.fake_mode
        with (
            torch._C.DisableTorchFunction(),
            outside_transformations(),
            torch.inference_mode(value.is_inference()),
            mode,
        ):
            fake = torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
            if offset := value.storage_offset():  # which is no symbol; see ``gathers.py``
                fake = _moved(fake, offset)
            if value.requires_grad:
                fake.requires_grad_()
                if not value.is_leaf:
                    with torch.enable_grad():
                        fake = _Result.apply(fake)
        return fake

    # ---- decisions --------------------------------------------------------------------------

    def plain(self, value: Any) -> Any:
        """A symbol as the number that it is in this capture, which later calls have to have too."""
        kind = type(value)
        if kind in SYMBOLS:
            return value.node.shape_env.evaluate_sym_node(value.node)
        if issubclass(kind, tuple) and any(type(item) in SYMBOLS for item in tuple.__iter__(value)):
            return _with_items(value, [self.plain(item) for item in tuple.__iter__(value)])
        return value

    def key(self, value: Any) -> Any:
        """As :meth:`plain`, of what a dict or set looks for: symbols at any depth have no hash."""
        if not issubclass(type(value), tuple):
            return self.plain(value)
        found = [self.key(item) for item in tuple.__iter__(value)]
        if all(a is b for a, b in zip(found, tuple.__iter__(value), strict=True)):
            return value
        return _with_items(value, found)

    # ---- what the plan needs ----------------------------------------------------------------

    def guards(self) -> list[Guard]:
        """Relations between the sizes of the call."""
        env = self.env
        if self.refused:
            raise ConstraintViolationError(f"a dimension is marked dynamic, but {self.refused}")
        if env is None:
            return []
        self._check_marked()
        found = []
        for symbol in self.sources:
            for condition in self._limits(symbol):
                found.append(self._guard(condition, self.places[symbol]))
        for relation in env.relations:
            found.append(self._guard(relation.condition, relation.place))
        for guard in found[len(found) - len(env.relations) + self._told :]:
            log.info("decided that %s at %s:%d", guard.expected, *guard.place)
        self._told = len(env.relations)
        return found

    def _limits(self, symbol: sympy.Symbol) -> list[Any]:
        """The range that a symbol was given, as conditions."""
        env = self.env
        assert env is not None
        range_ = env.initial.get(symbol, Range(-INF, INF))
        limits = []
        if range_.low > -INF:
            limits.append(sympy.Ge(symbol, int(range_.low), evaluate=False))
        if range_.high < INF:
            limits.append(sympy.Le(symbol, int(range_.high), evaluate=False))
        return limits

    def _guard(self, condition: Any, place: tuple[str, int]) -> Guard:
        symbols = {s: self.sources[s] for s in sorted(condition.free_symbols, key=str)}
        return Guard("RELATION", None, Relations(condition, symbols), place)

    def _check_marked(self) -> None:
        """A dimension that the user marked dynamic must not have become a constant."""
        env = self.env
        assert env is not None
        for symbol, (value, (file, line)) in env.fixed.items():
            place = self.strict.get(symbol)
            source = self.sources.get(symbol)
            if source is not None and symbol not in self._fixed:
                self._fixed.add(symbol)
                log.info("%s is specialised to %s at %s:%d", source, value, file, line)
            if place is not None:
                raise ConstraintViolationError(
                    f"{place} is marked dynamic, but the program makes it {value} at "
                    f"{file}:{line}; use maybe_mark_dynamic, or change that line"
                )


def _interval(low: float, high: float) -> str:
    return f"at least {low}" if high == INF else f"from {low} to {high}"


def expression(value: Any) -> Any:
    """The expression of a size."""
    return value.node.expr if type(value) in SYMBOLS else sympy.Integer(value)


def _path(source: Source) -> tuple:
    """What names a source in every capture of a site."""
    found: list[Any] = []
    step: Source | None = source
    while step is not None:
        found.append((step.kind, step.label if step.kind in ("const", "space") else step.key))
        step = step.parent
    return tuple(map(str, found))


def _with_items(value: tuple, items: list[Any]) -> tuple:
    """A tuple of the class of ``value``, with its attributes, and other items."""
    kind = type(value)
    if kind is torch.Size or is_structseq(kind):
        return kind(items)
    made = tuple.__new__(kind, items)
    if hasattr(value, "__dict__"):
        made.__dict__.update(value.__dict__)
    return made
