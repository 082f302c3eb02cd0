"""A graph's fake tensors and numbers, with :class:`~fastpath.ir.size.Size` in the place of symbols.

What rules ask of a fake they ask here, so that no question about a size becomes a decision of the
front end's: whatever depends on one is right for all of them, or written down as a condition.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch

from fastpath.ir.index import contiguous_strides
from fastpath.ir.size import Assumptions, Size, Unknown
from refcompiler.aot.inputs import Unsupported
from refcompiler.shapes.text import NAMES, python
from specs.strides import channels_last

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Sizes(Assumptions):
    """The unknowns of a graph, and what was assumed of them.

    ``values``: what symbols are in the call that is compiled for, where those are not their hints.
    """

    def __init__(self, values: Mapping[Any, int] | None = None):
        super().__init__(again=values is not None)
        self.values = values
        self.unknowns: dict[Any, Unknown] = {}

    def of(self, number: Any) -> Any:
        """An int, float or bool, or the Size that a symbolic integer is."""
        if isinstance(number, torch.SymInt):
            expr = number.node.expr
            if expr.is_Integer:
                return int(expr)
            return self._polynomial(expr, number.node.shape_env)
        return number

    def give_float(self, number: Any, text: str) -> None:
        """As :meth:`give`, of a float that sizes may be computed from."""
        expr = number.node.expr
        if expr.is_Symbol:
            self.sources.setdefault(self._symbol(expr, number.node.shape_env), text)

    def symbols(self) -> list[Any]:
        """Those whose values a program gives to what answers calls that it is not made for."""
        symbol_of = {unknown: symbol for symbol, unknown in self.unknowns.items()}
        return [symbol_of[unknown] for unknown in self.sources]

    def _polynomial(self, expr: Any, env: Any) -> Any:
        if expr.is_Integer:
            return int(expr)
        if expr.is_Symbol:
            return Size({(self._symbol(expr, env),): 1})
        if expr.is_Add or expr.is_Mul:
            terms = [self._polynomial(part, env) for part in expr.args]
            return sum(terms) if expr.is_Add else math.prod(terms)
        power = expr.func.__name__ in ("Pow", "PowByNatural", "Power")
        exponent = expr.args[1] if power else sympy.S.Zero
        if exponent.is_Integer and exponent > 0:
            return math.prod([self._polynomial(expr.args[0], env)] * int(exponent))
        return Size({(self._computed(expr, env),): 1})

    def _symbol(self, symbol: Any, env: Any) -> Unknown:
        known = self.unknowns.get(symbol)
        if known is None:
            value = self._value(symbol, env)
            known = self.unknowns[symbol] = Unknown(str(symbol), value, _least(symbol, env))
        return known

    def _value(self, symbol: Any, env: Any) -> Any:
        if self.values is not None and symbol in self.values:
            return self.values[symbol]
        found = env.backed_var_to_val.get(symbol)
        if found is None:
            raise Unsupported("sizes that depend on data")
        return int(found) if symbol.is_integer else float(found)

    def _computed(self, expr: Any, env: Any) -> Unknown:
        """What is no polynomial is an unknown of its own, which the wrapper computes."""
        known = self.unknowns.get(expr)
        if known is None:
            parts = {s: self._symbol(s, env) for s in expr.free_symbols}
            value = eval(python(expr, lambda s: str(parts[s].hint)), dict(NAMES))
            known = Unknown(f"({expr})", int(value), _least(expr, env), (expr, parts))
            self.unknowns[expr] = known
        return known


def _least(expr: Any, env: Any) -> int | None:
    """A bound from below; None where there is none, as of floats."""
    if not expr.is_integer:
        return None
    low = env.bound_sympy(expr).lower
    return int(low) if getattr(low, "is_Integer", isinstance(low, int)) else None


class Described:
    """A fake tensor's metadata; it answers as a tensor does, with Sizes."""

    def __init__(self, t: torch.Tensor, sizes: Sizes):
        self.shape = tuple(map(sizes.of, t.shape))
        self._strides = tuple(map(sizes.of, t.stride()))
        self._offset = sizes.of(t.storage_offset())
        self.dtype, self.device, self.layout = t.dtype, t.device, t.layout

    def dim(self) -> int:
        return len(self.shape)

    def stride(self) -> tuple[Any, ...]:
        return self._strides

    def storage_offset(self) -> Any:
        return self._offset

    def numel(self) -> Any:
        return math.prod(self.shape)

    def is_contiguous(self, memory_format: Any = torch.contiguous_format) -> bool:
        if self.numel() == 0:
            return True
        if memory_format is torch.contiguous_format:
            wanted: Sequence[Any] = contiguous_strides(self.shape)
        elif len(self.shape) in (4, 5):
            wanted = channels_last(self.shape)
        else:
            return False
        return all(n == 1 or a == b for n, a, b in zip(self.shape, self._strides, wanted))


def described(value: Any, sizes: Sizes) -> Any:
    """``value``, a node's ``meta["val"]``, with Sizes: tensors and numbers, alone or in tuples."""
    if isinstance(value, torch.Tensor):
        return Described(value, sizes)
    if isinstance(value, (tuple, list)):
        return tuple(described(v, sizes) for v in value)
    return sizes.of(value)
