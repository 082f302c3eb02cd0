"""A symbolic number: what ``torch.SymInt``, ``torch.SymFloat`` and ``torch.SymBool`` wrap.

The methods are those that torch's C++ and Python code call on a symbolic node; the arithmetic
ones are made from the rows of :mod:`refcompiler.shapes.operations`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from refcompiler.shapes import layouts
from refcompiler.shapes.operations import BINARY, UNARY


class Node:
    """One expression of an environment. Interned there: equal expressions are one object."""

    __slots__ = ("shape_env", "pytype", "constant", "_expr", "_hint", "_version", "fx_node")

    def __init__(self, env: Any, expr: Any, pytype: type, hint: Any, constant: Any = None):
        self.shape_env = env
        self.pytype = pytype
        self.constant = constant
        self._expr = expr
        self._hint = hint
        self._version = env._replacements_version_counter
        self.fx_node = None

    @property
    def expr(self) -> Any:
        """With what was learnt since it was made, such as that a symbol is a constant."""
        env = self.shape_env
        if self._version != env._replacements_version_counter:
            self._version = env._replacements_version_counter
            if self.constant is None:
                self._expr = env.replace(self._expr)
                if self._hint is None and not self._expr.free_symbols:
                    self._hint = self.pytype(self._expr)
        return self._expr

    # ---- what it is -------------------------------------------------------------------------

    @property
    def hint(self) -> Any:
        return self._hint

    def require_hint(self, fallback: Any = None) -> Any:
        if self._hint is None and fallback is None:
            raise self.shape_env.data_dependent(self.expr)
        return fallback if self._hint is None else self._hint

    def has_hint(self) -> bool:
        return self._hint is not None

    def is_int(self) -> bool:
        return self.pytype is int

    def is_float(self) -> bool:
        return self.pytype is float

    def is_bool(self) -> bool:
        return self.pytype is bool

    def is_nested_int(self) -> bool:
        return False

    def nested_int(self) -> None:
        return None

    def nested_int_coeff(self) -> None:
        return None

    def is_constant(self) -> bool:
        return self.constant is not None and self.pytype is not float

    def is_symbolic(self) -> bool:
        return self.constant is None

    def constant_int(self) -> int | None:
        return self.maybe_as_int()

    def maybe_as_int(self) -> int | None:
        expr = self.expr
        return int(expr) if self.pytype is int and expr.is_Integer else None

    def maybe_as_float(self) -> float | None:
        expr = self.expr
        return float(expr) if self.pytype is float and expr.is_Float else None

    def maybe_as_bool(self) -> bool | None:
        known = self.shape_env.knowledge.decide(self.expr) if self.pytype is bool else None
        return known

    def clone(self) -> Node:
        return self

    def str(self) -> str:
        """As the number prints, once it is known: it is, once the program's C code has asked."""
        expr = self.expr
        if self.shape_env.is_read():
            return repr(self.shape_env.evaluate_sym_node(self))
        if self in self.shape_env.settled:
            return repr(self.shape_env.settled[self])
        return repr(self.pytype(expr)) if expr.is_number else f"{expr}"

    __str__ = __repr__ = _graph_repr = str

    def _value_eq(self, other: Any) -> bool:
        return self is other

    def _value_hash(self) -> int:
        return hash(self)

    # ---- numbers ----------------------------------------------------------------------------

    def wrap_int(self, value: int) -> Node:
        return self.shape_env.number(int, value)

    def wrap_float(self, value: float) -> Node:
        return self.shape_env.number(float, value)

    def wrap_bool(self, value: bool) -> Node:
        return self.shape_env.number(bool, value)

    def round(self, ndigits: Any = None) -> Node:
        return self.shape_env.rounded(self, ndigits)

    def is_integer(self) -> Node:
        if self.pytype is int:
            return self.shape_env.number(bool, True)
        return self.eq(self.floor().sym_float())  # type: ignore[attr-defined]

    def truediv(self, other: Node) -> Node:
        floats = float in (self.pytype, other.pytype)
        return self.shape_env.binary("float_truediv" if floats else "int_truediv", self, other)

    def pow(self, other: Node) -> Node:
        floats = float in (self.pytype, other.pytype)
        return self.shape_env.binary("float_pow" if floats else "pow_by_natural", self, other)

    def sym_sum(self, parts: Sequence[Node]) -> Node:
        total, *rest = parts
        for part in rest:
            total = self.shape_env.binary("add", total, part)
        return total

    def sym_ite(self, then: Node, otherwise: Node) -> Node:
        return self.shape_env.choice(self, then, otherwise)

    # ---- decisions --------------------------------------------------------------------------

    def guard_int(self, file: Any, line: Any) -> int:
        return self.shape_env.evaluate_sym_node(self)

    def guard_float(self, file: Any, line: Any) -> float:
        return float(self.shape_env.evaluate_sym_node(self))

    def guard_bool(self, file: Any, line: Any) -> bool:
        return self.shape_env.evaluate_sym_node(self)

    def int_(self) -> int:
        return self.guard_int("", 0)

    def bool_(self) -> bool:
        if self.pytype is bool:
            return self.guard_bool("", 0)
        zero = self.shape_env.number(self.pytype, self.pytype(0))
        return self.ne(zero).guard_bool("", 0)  # type: ignore[attr-defined]

    def evaluate(self, size_oblivious: bool = False) -> Any:
        return self.shape_env.evaluate_sym_node(self, size_oblivious)

    def expect_true(self, file: Any, line: Any) -> bool:
        return self.shape_env.expect(self)

    def guard_size_oblivious(self, file: Any, line: Any) -> bool:
        return self.shape_env.evaluate_sym_node(self, True)

    def guard_or_false(self, file: Any, line: Any) -> bool:
        return self.shape_env.evaluate_sym_node(self, fallback_value=False)

    def guard_or_true(self, file: Any, line: Any) -> bool:
        return self.shape_env.evaluate_sym_node(self, fallback_value=True)

    def statically_known_true(self, file: Any, line: Any) -> bool:
        return self.shape_env.knowledge.decide(self.expr) is True

    # ---- layouts ----------------------------------------------------------------------------

    def is_contiguous(self, sizes: Sequence[Node], strides: Sequence[Node]) -> Node:
        return layouts.contiguous(self.shape_env, sizes, strides, range(len(sizes))[::-1])

    def is_channels_last_contiguous_2d(
        self, sizes: Sequence[Node], strides: Sequence[Node]
    ) -> Node:
        return layouts.contiguous(self.shape_env, sizes, strides, (1, 3, 2, 0))

    def is_channels_last_contiguous_3d(
        self, sizes: Sequence[Node], strides: Sequence[Node]
    ) -> Node:
        return layouts.contiguous(self.shape_env, sizes, strides, (1, 4, 3, 2, 0))

    def is_channels_last_strides_2d(self, sizes: Sequence[Node], strides: Sequence[Node]) -> Node:
        return layouts.channels_last(self.shape_env, sizes, strides, (1, 3, 2, 0))

    def is_channels_last_strides_3d(self, sizes: Sequence[Node], strides: Sequence[Node]) -> Node:
        return layouts.channels_last(self.shape_env, sizes, strides, (1, 4, 3, 2, 0))

    def is_non_overlapping_and_dense(self, sizes: Sequence[Node], strides: Sequence[Node]) -> Node:
        return layouts.dense(self.shape_env, sizes, strides)

    def is_non_overlapping_and_dense_indicator(
        self, sizes: Sequence[Node], strides: Sequence[Node]
    ) -> Node:
        dense = layouts.dense(self.shape_env, sizes, strides)
        one, zero = self.wrap_int(1), self.wrap_int(0)
        return self.shape_env.choice(dense, one, zero)


def _binary(name: str) -> Callable[[Node, Node], Node]:
    def method(self: Node, other: Node) -> Node:
        return self.shape_env.binary(name, self, other)

    method.__name__ = name
    return method


def _unary(name: str) -> Callable[[Node], Node]:
    def method(self: Node) -> Node:
        return self.shape_env.unary(name, self)

    method.__name__ = name
    return method


for _name in BINARY:
    setattr(Node, _name, _binary(_name))
for _name in UNARY:
    setattr(Node, _name, _unary(_name))

WRAPPERS: dict[type, Any] = {int: torch.SymInt, float: torch.SymFloat, bool: torch.SymBool}
#: What stands for a number whose value is an expression.
SYMBOLS = frozenset(WRAPPERS.values())
