"""Guards over symbolic sizes: a tensor's layout and relations, as arithmetic on what is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import sympy
import torch

from refcompiler.guards.tensors import TensorMeta, bits_texts, device_text
from refcompiler.shapes.text import compiled, python

if TYPE_CHECKING:
    from refcompiler.guards.sources import Source


class SizedMeta(NamedTuple):
    """What a SIZED guard expects: sizes and strides are expressions.

    ``symbols`` are where the values of the symbols come from; as a guard's wanted value, those
    values or the names of variables that hold them.
    """

    meta: TensorMeta
    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    symbols: Mapping[sympy.Symbol, Any]

    def used(self) -> set[sympy.Symbol]:
        return {s for e in (*self.sizes, *self.strides) for s in e.free_symbols}

    def __str__(self) -> str:
        names = {str(s): str(self.symbols[s]) for s in self.used()}
        where = ", ".join(f"{name} = {source}" for name, source in sorted(names.items()))
        return f"{self.meta.cls.__name__} of {self.sizes}, strides {self.strides}, {where}"


class Relations(NamedTuple):
    """A condition over symbols, and where their values come from (or the values, or names)."""

    condition: Any
    symbols: Mapping[sympy.Symbol, Any]

    def __str__(self) -> str:
        return python(self.condition, lambda symbol: str(self.symbols[symbol]))

    def found(self, value: Any) -> tuple[str, str]:
        """What is read, and the numbers there, of which ``value`` has the symbols."""
        if not isinstance(value, Relations):
            return ", ".join(map(str, self.symbols.values())), "other sizes"
        numbers = {str(self.symbols[s]): number for s, number in value.symbols.items()}
        if len(numbers) == 1:
            ((source, number),) = numbers.items()
            return source, str(number)
        return ", ".join(numbers), ", ".join(f"{name} = {n}" for name, n in numbers.items())


def wanted(expected: Any, read: Callable[[Source], Any]) -> Any:
    """``expected`` with each symbol's source replaced by what ``read`` gives for it."""
    used = expected.used() if isinstance(expected, SizedMeta) else expected.symbols
    return expected._replace(symbols={s: read(expected.symbols[s]) for s in used})


def _listed(expressions: tuple[Any, ...], want: SizedMeta) -> str:
    texts = [python(e, lambda symbol: want.symbols[symbol]) for e in expressions]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def sized_text(v: str, want: SizedMeta, constant: Callable[[Any], str]) -> str:
    meta = want.meta
    parts = [
        f"type({v}) is {constant(meta.cls)}",
        f"{v}.shape == {_listed(want.sizes, want)}",
        f"{v}.dtype is {constant(meta.dtype)}",
        f"{v}.requires_grad is {meta.requires_grad}",
        f"{v}.stride() == {_listed(want.strides, want)}",
        device_text(v, meta.device, constant),
    ]
    return " and ".join(parts + bits_texts(v, meta))


def _values(expressions: tuple[Any, ...], values: Mapping[sympy.Symbol, Any]) -> tuple[int, ...]:
    found = []
    for expression in expressions:
        symbols = tuple(sorted(expression.free_symbols, key=str))
        found.append(compiled(expression, symbols)(*[values[s] for s in symbols]))
    return tuple(found)


def sized_check(value: Any, want: SizedMeta) -> bool:
    if not issubclass(type(value), torch.Tensor):
        return False
    found = TensorMeta.of(value)
    sizes, strides = _values(want.sizes, want.symbols), _values(want.strides, want.symbols)
    return found == want.meta._replace(shape=sizes, stride=strides)


def relation_text(v: str, want: Relations, constant: Callable[[Any], str]) -> str:
    return python(want.condition, lambda symbol: want.symbols[symbol])


def relation_check(value: Any, want: Relations) -> bool:
    return bool(_values((want.condition,), want.symbols)[0])
