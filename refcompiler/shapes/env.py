"""The environment of symbolic sizes: symbols, what is known of them, and what was decided."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import sympy
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._sympy import functions as F

from refcompiler.shapes.floats import FLOAT, FloatEq, float_of, identical
from refcompiler.shapes.node import WRAPPERS, Node
from refcompiler.shapes.operations import (
    BINARY,
    COMPARISONS,
    ROUND,
    SAME,
    UNARY,
    FloorQuotient,
    FloorRemainder,
    Larger,
    Smaller,
)
from refcompiler.shapes.ranges import ALL, INF, Knowledge, Range
from refcompiler.shapes.relations import Assertion, Relation
from refcompiler.shapes.state import State
from refcompiler.shapes.text import compiled

_DIVIDES = frozenset("mod int_floordiv floordiv int_truediv float_truediv".split())
_EXTREMES = (F.Max, F.Min, Larger, Smaller)
_SHIFTS = frozenset(("lshift", "rshift"))


def _never() -> bool:
    return False


class ShapeEnv:
    """Symbols and decisions of one capture. ``place`` tells the user's (file, line) that runs.

    ``relations`` are what a later call has to agree with, ``assertions`` what the program has to
    check as it runs. Attributes and methods that start with an underscore, and those without a
    docstring, are what torch's fake tensors and tracers ask of an environment.
    """

    def __init__(self, place: Callable[[], tuple[str, int]] = lambda: ("", 0)):
        self.place = place
        self.knowledge = Knowledge()
        self.relations: list[Relation] = []
        self.assertions: list[Assertion] = []
        self.hints: dict[sympy.Symbol, int | float] = {}
        self.initial: dict[sympy.Symbol, Range] = {}  # the ranges that the symbols were made with
        self.fixed: dict[sympy.Symbol, tuple[Any, tuple[str, int]]] = {}  # value, and where
        self.expected: dict[sympy.Symbol, int] = {}  # what backends take for a size, not its hint
        self.on_assertion: Callable[[Assertion], None] | None = None
        self.is_read: Callable[[], bool] = _never  # whether a text of a symbol is the program's
        self.made: list[sympy.Symbol] = []  # those that depend on data, in order
        self._repeated: list[sympy.Symbol] = []
        self._laps = 0  # how many loops of a trace have symbols
        self._recorded: set[Any] = set()
        self._replacements: dict[Any, Any] = {}
        self._nodes: dict[tuple[Any, type], Node] = {}
        self._numbers: dict[tuple[type, Any], Node] = {}
        self._memo: dict[Any, Node] = {}
        self._decided: dict[Node, Any] = {}
        self.settled: dict[Node, Any] = {}  # what the program has asked for, and was told
        self._names = {prefix: itertools.count() for prefix in ("s", "n", "z", "u", "zuf", "b")}
        self._quiet = 0
        # read by torch
        self._replacements_version_counter = 0
        self.allow_scalar_outputs = True
        self.allow_dynamic_output_shape_ops = True
        self.prefer_deferred_runtime_asserts_over_guards = False
        self.settings: Any = None
        self.fake_tensor_cache: dict[Any, Any] = {}
        self.pending_fresh_unbacked_symbols: list[sympy.Symbol] = []
        self.ignorable_fresh_unbacked_symbols: list[sympy.Symbol] = []
        self.real_tensor_prop_unbacked_vals: dict[sympy.Symbol, Any] = {}
        self.deferred_runtime_asserts: dict[Any, Any] = {}
        self.unbacked_renamings: dict[Any, Any] = {}
        self._translation_validation_enabled = False

    def state(self) -> State:
        """What :meth:`of` makes one like it of."""
        know, takes = (
            self.knowledge,
            (self.allow_scalar_outputs, self.allow_dynamic_output_shape_ops),
        )
        return State(
            dict(know.ranges),
            dict(know.facts),
            frozenset(know.divisible),
            dict(know.told),
            dict(self.hints),
            dict(self.initial),
            dict(self.expected),
            dict(self._replacements),
            frozenset(self._recorded),
            tuple(self.made),
            {prefix: next(copy.copy(names)) for prefix, names in self._names.items()},
            takes,
        )

    @classmethod
    def of(cls, state: State) -> ShapeEnv:
        """One that knows what another one knew; the relations that led to it are that one's."""
        env = cls()
        env.knowledge = state.knowledge()
        env.hints.update(state.hints)
        env.initial.update(state.initial)
        env.expected.update(state.expected)
        env.made += state.made
        env._replacements.update(state.replacements)
        env._recorded.update(state.recorded)
        env._names = {prefix: itertools.count(n) for prefix, n in state.names.items()}
        env.allow_scalar_outputs, env.allow_dynamic_output_shape_ops = state.takes
        return env

    # ---- symbols ----------------------------------------------------------------------------

    def size(self, hint: int, low: int = 2, high: float = INF) -> Any:
        """A symbol for a dimension, or the number itself where it is 0 or 1."""
        if hint < 2:
            return hint
        symbol = sympy.Symbol(f"s{next(self._names['s'])}", integer=True, positive=True)
        self.initial[symbol] = Range(low, high)
        self.knowledge.bound(symbol, Range(low, high))
        return self._backed(symbol, int, hint)

    def integer(self, hint: int, always: bool = True) -> Any:
        """A symbol for a number of the program, of any sign; without ``always`` not for 0 and 1."""
        if hint in (0, 1) and not always:
            return hint
        symbol = sympy.Symbol(f"n{next(self._names['n'])}", integer=True)
        self.initial[symbol] = Range(-(2**63), 2**63 - 1)
        self.knowledge.bound(symbol, ALL)
        return self._backed(symbol, int, hint)

    def floating(self, hint: float, always: bool = False) -> Any:
        """A symbol for a float; NaN and infinities stay themselves.

        Unless ``always``: as where a plan that another number has led to holds for them.
        """
        if (hint != hint or hint in (INF, -INF)) and not always:
            return hint
        symbol = sympy.Symbol(f"z{next(self._names['z'])}", real=True)
        return self._backed(symbol, float, hint)

    def _backed(self, symbol: sympy.Symbol, pytype: type, hint: Any) -> Any:
        self.hints[symbol] = hint
        return WRAPPERS[pytype](self.node(symbol, pytype, hint))

    def create_unbacked_symint(self) -> Any:
        symbol = self._unbacked("u", integer=True)
        self.knowledge.bound(symbol, Range(-(2**63), 2**63 - 1))
        return self._fresh(symbol, int)

    def create_unbacked_symfloat(self) -> Any:
        return self._fresh(self._unbacked("zuf", real=True), float)

    def create_unbacked_symbool(self) -> Any:
        symbol = self._unbacked("b", integer=True)
        self.knowledge.bound(symbol, Range(0, 1))
        self._fresh(symbol, int)
        return WRAPPERS[bool](self.node(sympy.Eq(symbol, 1), bool, None))

    def laps(self) -> Any:
        """How often a loop of the graph that is traced runs, one at least.

        A trace of the same program in :meth:`repeating` has the same symbols. They are not among
        those of :attr:`made`: nothing but the trace knows of them.
        """
        symbol = sympy.Symbol(f"laps{self._laps}", integer=True, positive=True)
        self._laps += 1
        self.knowledge.bound(symbol, Range(1, 2**63 - 1))
        return WRAPPERS[int](self.node(symbol, int, None))

    def _unbacked(self, prefix: str, **assumptions: bool) -> sympy.Symbol:
        if self._repeated:
            symbol = self._repeated.pop(0)
            if str(symbol).rstrip("0123456789") != prefix:
                raise AssertionError(f"a number like {symbol} comes again as another one")
            return symbol
        symbol = sympy.Symbol(f"{prefix}{next(self._names[prefix])}", **assumptions)
        self.made.append(symbol)
        return symbol

    @contextlib.contextmanager
    def repeating(self, symbols: Sequence[sympy.Symbol]) -> Iterator[None]:
        """The same program runs again: the numbers that it finds are those of the first time.

        ``symbols`` are the part of :attr:`made` that the first run added.
        """
        self._repeated, self._laps = list(symbols), 0
        try:
            yield
        finally:
            self._repeated = []

    def forget(self, symbols: Collection[sympy.Symbol]) -> None:
        """Unlearn what is known of symbols that the program will give anew."""
        gone = set(symbols)
        self._replacements = {
            s: value
            for s, value in self._replacements.items()
            if not (s.free_symbols | value.free_symbols) & gone
        }
        self._recorded = {c for c in self._recorded if not c.free_symbols & gone}
        self._nodes = {k: node for k, node in self._nodes.items() if not k[0].free_symbols & gone}
        self.settled = {n: v for n, v in self.settled.items() if not n.expr.free_symbols & gone}
        self.knowledge.drop(gone)
        self._memo.clear()
        self._decided.clear()
        self._replacements_version_counter += 1

    def _fresh(self, symbol: sympy.Symbol, pytype: type) -> Any:
        if not self._quiet:
            self.pending_fresh_unbacked_symbols.append(symbol)
        return WRAPPERS[pytype](self.node(symbol, pytype, None))

    def is_unbacked(self, expression: Any) -> bool:
        """Whether the value of ``expression`` is known only when the program runs."""
        return any(symbol not in self.hints for symbol in expression.free_symbols)

    def is_unbacked_symint(self, symbol: Any) -> bool:
        return symbol.is_Symbol and symbol not in self.hints

    # ---- nodes ------------------------------------------------------------------------------

    def number(self, pytype: type, value: Any) -> Node:
        """The node of a number."""
        key = (pytype, repr(value) if pytype is float else value)
        found = self._numbers.get(key)
        if found is None:
            made = {int: sympy.Integer, float: float_of, bool: sympy.sympify}[pytype]
            found = self._numbers[key] = Node(self, made(value), pytype, value, value)
        return found

    def node(self, expr: Any, pytype: type, hint: Any) -> Node:
        """The node of an expression whose value in this capture is ``hint`` (None: unbacked)."""
        if expr.is_Integer and pytype is int:
            return self.number(int, int(expr))
        if pytype is bool and expr in (sympy.true, sympy.false):
            return self.number(bool, bool(expr))
        key = (expr, pytype)
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = Node(self, expr, pytype, hint)
        return found

    def wrap(self, node: Node) -> Any:
        """``torch.SymInt`` and so on; a number where it is known."""
        if node.constant is not None:
            return node.constant
        return WRAPPERS[node.pytype](node)

    def binary(self, name: str, a: Node, b: Node) -> Node:
        key = (name, a, b)
        found = self._memo.get(key)
        if found is None:
            found = self._binary(name, a, b)
            self._memo[key] = found
        return found

    def _binary(self, name: str, a: Node, b: Node) -> Node:
        row = BINARY[name]
        if a.constant is not None and b.constant is not None:
            made = row.meaning(a.constant, b.constant)
            return self.number(type(made), made)
        if b.constant is None or not b.constant:
            self._check_operand(name, b)
        hint = None
        if a._hint is not None and b._hint is not None:
            hint = row.meaning(a._hint, b._hint)
        floats = float in (a.pytype, b.pytype)
        gives = row.gives if row.gives is not SAME else float if floats else int
        build = FLOAT.get(name, row.build) if floats else row.build
        left, right = a.expr, b.expr
        if name in COMPARISONS and a.pytype is b.pytype is int:
            return self.node(self._compared(name, left, right), bool, hint)
        if floats and name in ("sym_min", "sym_max"):
            left, right = [self.unary("sym_float", n).expr for n in (a, b)]
            hint = None if hint is None else float(hint)
        if name in ("int_floordiv", "floordiv", "mod") and not floats:
            return self.node(self._divided(name != "mod", left, right), gives, hint)
        if name in ("sym_min", "sym_max") and not floats:
            known = self.knowledge.compare("ge", left, right)
            if known is None and self.knowledge.compare("le", left, right):
                known = False
            if known is not None:
                return a if known is (name == "sym_max") else b
            if left.has(*_EXTREMES) or right.has(*_EXTREMES):
                build = Larger if name == "sym_max" else Smaller
        return self.node(build(left, right), gives, hint)

    def _compared(self, name: str, left: Any, right: Any) -> Any:
        """The relation of two integers, or its truth."""
        known = self.knowledge.compare(name, left, right)
        if known is not None:
            return sympy.true if known else sympy.false
        if self.knowledge.is_plain(left) and self.knowledge.is_plain(right):
            return BINARY[name].build(left, right, evaluate=False)
        return BINARY[name].build(left, right)

    def _divided(self, whole: bool, a: Any, b: Any) -> Any:
        """``a // b``, or what it leaves, in the words that say most."""
        know = self.knowledge
        known = know.range_of(b)
        if b.is_Integer and b < 0:  # the quotient of the opposites is the same one
            made = self._divided(whole, sympy.Mul(-1, a), sympy.Mul(-1, b))
            return made if whole else sympy.Mul(-1, made)
        if known.low <= 0:
            return FloorQuotient(a, b) if whole else FloorRemainder(a, b)
        if not whole and know.is_multiple(a, b):
            return sympy.Integer(0)
        if whole and (found := know.quotient(a, b)) is not None:
            return found
        if whole:
            made = BINARY["int_floordiv"].build(a, b)
        else:
            made = F.Mod(a, b) if know.range_of(a).low >= 0 else BINARY["mod"].build(a, b)
        return self._replacements.get(made, made)

    def _check_operand(self, name: str, b: Node) -> None:
        """A division that went well here goes well later, and one that raised raises."""
        if name in _DIVIDES:
            zero = self.number(b.pytype, b.pytype(0))
            if b._hint is None:
                self.expect(self.binary("ne", b, zero))
            else:
                self.evaluate_sym_node(self.binary("eq", b, zero))
        elif name in _SHIFTS and b._hint is not None:
            self.evaluate_sym_node(self.binary("ge", b, self.number(int, 0)))

    def unary(self, name: str, a: Node) -> Node:
        key = (name, a)
        found = self._memo.get(key)
        if found is None:
            row = UNARY[name]
            if a.constant is not None:
                made = row.meaning(a.constant)
                found = self.number(type(made), made)
            else:
                hint = None if a._hint is None else row.meaning(a._hint)
                gives = a.pytype if row.gives is SAME else row.gives
                found = self.node(row.build(a.expr), gives, hint)
            self._memo[key] = found
        return found

    def rounded(self, a: Node, digits: Any) -> Node:
        if a.pytype is int and digits is None:
            return a
        if isinstance(digits, Node):
            digits = self.evaluate_sym_node(digits)
        parts = [] if digits is None else [sympy.Integer(digits)]
        hint = None if a._hint is None else round(a._hint, digits)
        gives = int if digits is None or a.pytype is int else float
        return self.node(ROUND.build(a.expr, *parts), gives, hint)

    def choice(self, condition: Node, then: Node, otherwise: Node) -> Node:
        from torch.utils._sympy.functions import Where

        if condition.constant is not None:
            return then if condition.constant else otherwise
        hint = None
        if condition._hint is not None:
            hint = then._hint if condition._hint else otherwise._hint
        made = Where(condition.expr, then.expr, otherwise.expr)
        return self.node(made, then.pytype, hint)

    # ---- decisions --------------------------------------------------------------------------

    def evaluate_sym_node(
        self, node: Any, size_oblivious: bool = False, fallback_value: Any = None
    ) -> Any:
        """The value of ``node``; what it depends on becomes a relation.

        ``fallback_value`` answers where the value depends on data that nobody knows yet.
        """
        if node.constant is not None:
            return node.constant
        found = self._decided.get(node)
        if found is not None:
            return found
        expr = node.expr
        if node.pytype is bool:
            found = self.knowledge.decide(expr)
        elif not expr.free_symbols:
            found = node.pytype(compiled(expr, ())())
        if found is None:
            if node._hint is None:
                return self._unknown(expr, size_oblivious, fallback_value)
            found = node._hint
            self._record(expr, found)
        self._decided[node] = self.settled[node] = found
        return found

    def _record(self, expr: Any, value: Any) -> None:
        if value is True:
            condition = expr
        elif value is False:
            condition = sympy.Not(expr)
        elif type(value) is float:
            condition = identical(expr, value)
        else:
            condition = sympy.Eq(expr, value)
        self.record(condition)

    def record(self, condition: Any) -> None:
        """``condition`` held: later calls have to agree."""
        if self._quiet or condition in self._recorded or condition is sympy.true:
            return
        self._recorded.add(condition)
        place = self.place()
        self.relations.append(Relation(condition, place))
        self._learn(condition, place)

    def _unknown(self, expr: Any, size_oblivious: bool, fallback: Any) -> Any:
        if size_oblivious:
            found = self._oblivious(expr)
            if found is not None:
                return found
        if fallback is not None:
            return fallback
        raise self.data_dependent(expr)

    def _oblivious(self, expr: Any) -> bool | None:
        """As if no size that depends on data were 0 or 1."""
        assumed = Knowledge()
        for symbol, range_ in self.knowledge.ranges.items():
            low = 2 if symbol not in self.hints and range_.low >= 0 else range_.low
            assumed.bound(symbol, Range(low, range_.high))
        return assumed.decide(expr)

    def data_dependent(self, expr: Any) -> Exception:
        """The error for a decision about ``expr``, which depends on data."""
        return GuardOnDataDependentSymNode(
            expr, f"the program decides by {expr}, which depends on the data of a tensor"
        )

    def expect(self, node: Any) -> bool:
        """``node`` is to be true: known, decided by the values at hand, or checked at run time."""
        if node.constant is not None or node._hint is not None:
            return self.evaluate_sym_node(node)
        known = self.knowledge.decide(node.expr)
        if known is None:
            self.defer(node.expr)
            return True
        return known

    def defer(self, condition: Any) -> None:
        """The program checks ``condition`` as it runs; from here on it is known."""
        if condition in self._recorded:
            return
        self._recorded.add(condition)
        place = self.place()
        made = Assertion(condition, place)
        self.assertions.append(made)
        if self.on_assertion is not None and not self._quiet:
            self.on_assertion(made)
        self._learn(condition, place)

    # ---- knowledge --------------------------------------------------------------------------

    def _learn(self, condition: Any, place: tuple[str, int]) -> None:
        self.knowledge.learn(condition)
        self._decided.clear()
        if condition.func is sympy.Eq:
            self._equate(*condition.args)
        elif condition.func is FloatEq:
            self._equate_float(*condition.args)
        for symbol in condition.free_symbols:
            range_ = self.knowledge.ranges.get(symbol, ALL)
            if range_.low == range_.high and symbol not in self._replacements:
                self._replace(symbol, sympy.Integer(int(range_.low)))
        for atom in self.knowledge.atoms(condition):
            range_ = self.knowledge.range_of(atom)
            if range_.low == range_.high and atom not in self._replacements:
                value = sympy.Integer(int(range_.low))
                self.knowledge.learn(sympy.Eq(atom, value))
                self._replace(atom, value)
        for symbol in condition.free_symbols & self._replacements.keys():
            value = self._replacements[symbol]
            if value.is_number and symbol not in self.fixed:
                self.fixed[symbol] = (value, place)

    def _equate(self, left: Any, right: Any) -> None:
        for symbol, other in ((left, right), (right, left)):
            if not symbol.is_Symbol or symbol in other.free_symbols:
                continue
            if other.is_Integer:
                self._replace(symbol, other)
            elif other.is_Symbol and _age(symbol, self) > _age(other, self):
                self._replace(symbol, other)
            elif not other.is_Symbol and other.is_integer and self._is_newest(symbol, other):
                self._replace(symbol, other)
            else:
                continue
            return

    def _equate_float(self, left: Any, right: Any) -> None:
        """A symbol that equals a number is that number; not where that is a zero of some sign."""
        for symbol, other in ((left, right), (right, left)):
            if symbol.is_Symbol and not symbol.is_integer and other.is_Number and not other.is_zero:
                self._replace(symbol, float_of(float(other)))

    def _is_newest(self, symbol: sympy.Symbol, other: Any) -> bool:
        """What depends on data is replaced by anything, a symbol by those that came before it."""
        if not all(s in self.knowledge.ranges for s in (symbol, *other.free_symbols)):
            return False
        return all(_age(symbol, self) > _age(s, self) for s in other.free_symbols)

    def _replace(self, symbol: Any, value: Any) -> None:
        """``symbol``, or a quotient and the like, is ``value`` wherever it stands."""
        known = self.knowledge.ranges.get(symbol, ALL)
        value = self.replace(value)
        if value.is_Symbol:
            self.knowledge.bound(value, known)
        elif value.free_symbols:
            for bound in (sympy.Ge(value, known.lower), sympy.Le(value, known.upper)):
                if bound not in (sympy.true, sympy.false):
                    self.knowledge.learn(bound)
        made = {s: v.xreplace({symbol: value}) for s, v in self._replacements.items()}
        if symbol.is_Symbol:  # what was learnt of a quotient is known by its new name too
            renamed = {s.xreplace({symbol: value}): v for s, v in made.items() if not s.is_Symbol}
            made |= {s: v for s, v in renamed.items() if s.args and s not in made}
        self._replacements = made
        self._replacements[symbol] = value
        self._replacements_version_counter += 1
        self._memo.clear()
        self._decided.clear()
        self.knowledge.forget()

    def replace(self, expression: Any) -> Any:
        """``expression`` with what is known to be equal to symbols in their place."""
        return expression.xreplace(self._replacements) if self._replacements else expression

    def hint_of(self, expression: Any) -> Any:
        """The value of ``expression`` at capture; None if it depends on data."""
        symbols = tuple(sorted(expression.free_symbols, key=str))
        if any(symbol not in self.hints for symbol in symbols):
            return None
        return compiled(expression, symbols)(*[self.hints[symbol] for symbol in symbols])

    @property
    def var_to_range(self) -> dict[sympy.Symbol, Any]:
        from torch.utils._sympy.value_ranges import ValueRanges

        return {s: ValueRanges(r.lower, r.upper) for s, r in self.knowledge.ranges.items()}

    @property
    def backed_var_to_val(self) -> dict[sympy.Symbol, Any]:
        return {symbol: sympy.sympify(hint) for symbol, hint in self.hints.items()}

    var_to_val = backed_var_to_val

    def bound_sympy(self, expression: Any, size_oblivious: bool = False) -> Any:
        from torch.utils._sympy.value_ranges import ValueRanges

        found = self.knowledge.range_of(expression)
        return ValueRanges(found.lower, found.upper)

    def _maybe_evaluate_static(
        self, expr: Any, *, compute_hint: bool = False, **options: Any
    ) -> Any:
        if expr.is_number:
            return expr
        if compute_hint:
            found = self.hint_of(expr)
            return None if found is None else sympy.sympify(found)
        if not expr.is_Relational and not isinstance(expr, sympy.logic.boolalg.Boolean):
            replaced = self.replace(expr)
            return replaced if replaced.is_number else None
        found = self.knowledge.decide(self.replace(expr))
        return None if found is None else sympy.sympify(found)

    def evaluate_expr(self, expr: Any, hint: Any = None, **options: Any) -> Any:
        boolean = isinstance(expr, sympy.logic.boolalg.Boolean)
        pytype = bool if boolean else int if expr.is_integer else float
        return self.evaluate_sym_node(self.node(expr, pytype, self.hint_of(expr)))

    def guard_or_defer_runtime_assert(self, expr: Any, message: str, **options: Any) -> bool:
        return self.expect(self.node(self.replace(expr), bool, self.hint_of(expr)))

    def size_hint(self, expr: Any, *, allow_none: bool = False) -> Any:
        found = self.hint_of(expr)
        if found is None and not allow_none:
            raise self.data_dependent(expr)
        return None if found is None else sympy.sympify(found)

    def _constrain_range_for_size(
        self, symbol: sympy.Symbol, min: int | None = None, max: int | None = None
    ) -> None:
        self._constrain_range(symbol, 0 if min is None else min, INF if max is None else max)

    def _constrain_is_bounded(self, symbol: sympy.Symbol, high: int) -> None:
        self._constrain_range(symbol, -INF, high)

    def _constrain_range(self, symbol: Any, low: Any, high: Any) -> None:
        if symbol.is_Symbol and symbol not in self.hints:
            bounds = [x if x in (INF, -INF) else _finite(x) for x in (low, high)]
            self.knowledge.bound(symbol, Range(*bounds))
            self._decided.clear()

    @contextlib.contextmanager
    def suppress_guards(self) -> Iterator[None]:
        self._quiet += 1
        try:
            yield
        finally:
            self._quiet -= 1

    @contextlib.contextmanager
    def ignore_fresh_unbacked_symbols(self) -> Iterator[None]:
        before = list(self.pending_fresh_unbacked_symbols)
        try:
            yield
        finally:
            self.pending_fresh_unbacked_symbols[:] = before

    def _ignore_fresh_unbacked_symbols_set(self, value: bool) -> bool:
        return False

    def set_real_tensor_prop_unbacked_vals(self, symbol: Any, value: Any) -> None:
        self.real_tensor_prop_unbacked_vals[symbol] = value

    def _maybe_specialize_sym_int_with_hint(self, number: Any) -> Any:
        """torch 2.11 and 2.12 ask it of the sizes of a fake with symbols of somebody else's."""
        return number.node.require_hint() if type(number) in WRAPPERS.values() else number

    def cleanup(self) -> None:
        """torch asks it after a compilation; nothing is held that should not be."""


def _finite(value: Any) -> float:
    try:
        return int(value)
    except (TypeError, OverflowError, ValueError, AttributeError):  # torch's integer infinities
        return INF if value > 0 else -INF


def _age(symbol: sympy.Symbol, env: ShapeEnv) -> tuple[bool, bool, int]:
    """What is replaced first: what depends on data, then numbers of the program, then the new."""
    name = str(symbol)
    return (symbol not in env.hints, not name.startswith("s"), int(name.lstrip("snzufb")))
