"""Which sizes and numbers of a call become symbols, and where their values come from.

Source of the policy: torch's documentation of dynamic shapes (automatic dynamic, ``mark_dynamic``
and its like, 0/1 specialisation, and that what a module owns is static).
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import sympy
import torch

from refcompiler.ambient import outside_transformations
from refcompiler.errors import ConstraintViolationError
from refcompiler.guards.kinds import Guard, TensorMeta
from refcompiler.guards.sizes import Relations, SizedMeta
from refcompiler.guards.sources import Source
from refcompiler.shapes import ShapeEnv
from refcompiler.shapes.node import SYMBOLS
from refcompiler.shapes.ranges import INF, Range

log = logging.getLogger("refcompiler.dynamic")

#: Places whose numbers may become symbols: what a program was given, not what holds it together.
_PLACES = frozenset("arg item member dict_item attr slot cell default kwdefault local".split())
_FIXED_ATTRIBUTES = frozenset(("maxlen", "start", "stop", "step"))


class Marks(NamedTuple):
    """What the user said of a tensor's dimensions, by torch's names for the attributes."""

    dynamic: frozenset[int]
    maybe: frozenset[int]
    static: frozenset[int]
    unbacked: frozenset[int]
    ranges: dict[int, tuple[int, float]]

    @staticmethod
    def of(tensor: torch.Tensor) -> Marks | None:
        found = tensor.__dict__ if hasattr(tensor, "__dict__") else {}
        if not any(name.startswith("_dynamo_") for name in found):
            return None

        def dims(*names: str) -> frozenset[int]:
            return frozenset(d for name in names for d in found.get(name) or ())

        ranges = {}
        for given in found.get("_dynamo_dynamic_range") or ():
            low = 2 if given.min is None else max(given.min, 2)
            ranges[given.dim] = (low, INF if given.max is None else given.max)
        for dim, (low, high) in (found.get("_dynamo_unbacked_bounds") or {}).items():
            ranges[dim] = (low or 0, INF if high is None else high)
        return Marks(
            dims("_dynamo_dynamic_indices"),
            dims("_dynamo_weak_dynamic_indices"),
            dims("_dynamo_static_indices"),
            dims("_dynamo_unbacked_indices", "_dynamo_strict_unbacked_indices"),
            ranges,
        )


class History:
    """What the captures of one site have seen: what changes from one to the next is dynamic."""

    def __init__(self) -> None:
        self.seen: dict[Any, Any] = {}
        self.changing: set[Any] = set()

    def changes(self, key: Any, value: Any) -> bool:
        """Note ``value``; whether it ever was another one."""
        if self.seen.setdefault(key, value) != value:
            self.changing.add(key)
        return key in self.changing

    def clear(self) -> None:
        self.seen.clear()
        self.changing.clear()


@dataclass
class Policy:
    """``dynamic`` as :func:`refcompiler.compile` takes it; ``sources`` are always dynamic.

    ``scalars`` and ``shapes``: whether a number read from a tensor, and a size that depends on
    data, are captured instead of ending the graph.
    """

    dynamic: bool | None = False
    automatic: bool = True
    sources: str = ""
    scalars: bool = False
    shapes: bool = False
    history: History = field(default_factory=History)


class Sizes:
    """The symbols of one capture: their environment, their sources, and their guards."""

    def __init__(self, machine: Any, policy: Policy):
        self.machine = machine
        self.policy = policy
        self.env: ShapeEnv | None = None
        self.sources: dict[sympy.Symbol, Source] = {}
        self.inputs: dict[torch.fx.Node, tuple[sympy.Symbol, Any]] = {}  # by placeholder
        self.strict: dict[sympy.Symbol, Source] = {}  # marked dynamic by the user
        self.refused = ""  # what the marks of the user's contradict
        self._by_size: dict[int, Any] = {}  # equal sizes are taken to stay equal
        machine.recorder.captures_numbers = policy.scalars
        if policy.scalars or policy.shapes:
            self.environment()

    def environment(self) -> ShapeEnv:
        """The environment; with the first symbol, the fakes get it too."""
        if self.env is None:
            self.env = ShapeEnv(self.machine.place)
            self.env.allow_scalar_outputs = self.policy.scalars
            self.env.allow_dynamic_output_shape_ops = self.policy.shapes
            self.machine.recorder.begin_symbols(self.env)
        return self.env

    def close(self) -> None:
        """Capture is over: what holds a symbol does not hold the machine."""
        if self.env is not None:
            self.env.place = lambda: ("", 0)

    # ---- numbers ----------------------------------------------------------------------------

    def number(self, value: Any, source: Source) -> Any:
        """A symbol for an int or float from outside; None if it is to be a constant."""
        if not self._wanted(source, value):
            return None
        env = self.environment()
        if type(value) is int:
            if not -(2**63) <= value < 2**63:
                return None
            made = env.integer(value)
        else:
            made = env.floating(value)
        if type(made) is type(value):
            return None
        self.machine.guard("TYPE", source, type(value))
        self._define(made, source)
        self._say(source, value, made)
        return made

    def _wanted(self, source: Source, value: Any) -> bool:
        policy = self.policy
        if policy.dynamic is False and not policy.sources:
            return False
        if source.kind not in _PLACES or source.key in _FIXED_ATTRIBUTES:
            return False
        if self._named(source):
            return True
        if policy.dynamic is False or self._owned_by_module(source):
            return False
        if policy.dynamic:
            return True
        return policy.automatic and policy.history.changes(_path(source), value)

    def _named(self, source: Source) -> bool:
        """``dynamic_sources``: names as users or torch write them, or regular expressions."""
        if not self.policy.sources:
            return False
        name = str(source)
        torch_name = re.sub(r"^(\w+)", r"L['\1']", name)
        return any(
            re.fullmatch(pattern.strip(), text) or pattern.strip() == text
            for pattern in self.policy.sources.split(",")
            for text in (name, torch_name)
        )

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
        node = self.machine.recorder.add_number(str(symbol), made)
        self.inputs[node] = symbol, made

    def _say(self, source: Source, value: Any, made: Any) -> None:
        file, line = self.machine.place()
        log.info("%s becomes symbolic as %s (%s here) at %s:%d", source, made, value, file, line)

    # ---- tensors ----------------------------------------------------------------------------

    def tensor(self, value: torch.Tensor, source: Source) -> Any:
        """A fake with symbols among its sizes; None if all of them are constants."""
        marks = Marks.of(value)
        policy = self.policy
        if policy.dynamic is False and not policy.sources and marks is None:
            return None
        owned = type(value) is torch.nn.Parameter or self._owned_by_module(source)
        if owned and marks is None and not self._named(source):
            return None
        dims = self._dims(value, source, marks)
        changing = self._changing_strides(value, source)
        if not dims or value.is_conj() or value.is_neg():
            return None
        sizes = self._symbolic(value, source, dims, marks)
        if all(type(n) is int for n in sizes):
            return None
        strides = self._strides(value, source, sizes, changing)
        meta = TensorMeta.of(value)
        shape, stride = tuple(map(expression, sizes)), tuple(map(expression, strides))
        self.machine.guard("SIZED", source, SizedMeta(meta, shape, stride, self.sources))
        return self._fake(value, sizes, strides)

    def _dims(self, value: torch.Tensor, source: Source, marks: Marks | None) -> dict[int, bool]:
        """The dimensions that become symbols; whether each is the user's express wish."""
        found: dict[int, bool] = {}
        policy = self.policy
        named = self._named(source)
        path = _path(source)
        for d, size in enumerate(value.shape):
            changes = policy.dynamic is None and policy.history.changes(
                (path, value.dim(), "size", d), size
            )
            if marks is not None and d in marks.static:
                continue
            if marks is not None and d in (marks.dynamic | marks.unbacked):
                found[d] = True
            elif named or policy.dynamic or (changes and policy.automatic):
                found[d] = False
            elif marks is not None and d in marks.maybe:
                found[d] = False
        return found

    def _symbolic(
        self, value: torch.Tensor, source: Source, dims: dict[int, bool], marks: Marks | None
    ) -> list[Any]:
        env = self.environment()
        shape = self.machine.sources.make("attr", source, "shape")
        sizes: list[Any] = list(value.shape)
        for d, strict in dims.items():
            place = self.machine.sources.make("item", shape, d, str(d))
            low, high = marks.ranges.get(d, (2, INF)) if marks is not None else (2, INF)
            hint = sizes[d]
            if marks is not None and d in marks.unbacked:
                sizes[d] = self._unbacked(place, *marks.ranges.get(d, (0, INF)))
                continue
            if not strict and hint in self._by_size:
                sizes[d] = self._by_size[hint]
                continue
            made = env.size(hint, int(low), high)
            if type(made) is int:
                if strict:
                    self.refused = f"{place} is {hint}: 0 and 1 are always constants"
                continue
            if not low <= hint <= high:
                self.refused = f"{place} is {hint}, not from {low} to {high}"
                continue
            sizes[d] = made
            if strict:
                self.strict[made.node.expr] = place
            else:
                self._by_size[hint] = made
            self._define(made, place)
            self._say(place, hint, made)
        return sizes

    def _unbacked(self, place: Source, low: int, high: float) -> Any:
        """A size of which nothing is known at capture, though an input has it."""
        env = self.environment()
        made = env.create_unbacked_symint()
        env.pending_fresh_unbacked_symbols.clear()
        env._constrain_range_for_size(made.node.expr, low, None if high == INF else int(high))
        self._define(made, place)
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
        env = self.environment()
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
                strides[d] = made = env.size(given[d])
                self._define(made, place)
                self._say(place, given[d], made)
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
            if value.requires_grad:
                fake.requires_grad_()
                if not value.is_leaf:
                    with torch.enable_grad():
                        fake = fake.clone()
        return fake

    # ---- decisions --------------------------------------------------------------------------

    def plain(self, value: Any) -> Any:
        """A symbol as the number that it is in this capture, which later calls have to have too."""
        kind = type(value)
        if kind in SYMBOLS:
            return value.node.shape_env.evaluate_sym_node(value.node)
        if issubclass(kind, tuple) and any(type(item) in SYMBOLS for item in value):
            items = [self.plain(item) for item in value]
            return torch.Size(items) if kind is torch.Size else tuple(items)
        return value

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
        for symbol, source in self.sources.items():
            range_ = self._limits(symbol)
            for condition in range_:
                found.append(self._guard(condition, ("", 0), source))
        for relation in env.relations:
            found.append(self._guard(relation.condition, relation.place, None))
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

    def _guard(self, condition: Any, place: tuple[str, int], source: Source | None) -> Guard:
        symbols = {s: self.sources[s] for s in sorted(condition.free_symbols, key=str)}
        return Guard("RELATION", None, Relations(condition, symbols), place)

    def _check_marked(self) -> None:
        """A dimension that the user marked dynamic must not have become a constant."""
        env = self.env
        assert env is not None
        for symbol, (value, (file, line)) in env.fixed.items():
            place = self.strict.get(symbol)
            source = self.sources.get(symbol)
            if source is not None:
                log.info("%s is specialised to %s at %s:%d", source, value, file, line)
            if place is not None:
                raise ConstraintViolationError(
                    f"{place} is marked dynamic, but the program makes it {value} at "
                    f"{file}:{line}; use maybe_mark_dynamic, or change that line"
                )


def expression(value: Any) -> Any:
    """The expression of a size."""
    return value.node.expr if type(value) in SYMBOLS else sympy.Integer(value)


def _path(source: Source) -> tuple:
    """What names a source in every capture of a site."""
    found: list[Any] = []
    step: Source | None = source
    while step is not None:
        found.append((step.kind, step.label if step.kind == "const" else step.key))
        step = step.parent
    return tuple(map(str, found))
