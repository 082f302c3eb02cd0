"""What the printers share: lines of Python, fresh names, and positions as arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fastpath.ir.expr import Expr
from fastpath.ir.index import Axis, Index, Lookup, Number
from fastpath.ir.size import Size


class Lines:
    """The body of a function, as it is printed line by line. ``sizes``: what each call chooses, and
    the function is given as ``n0``, ``n1``, ..."""

    def __init__(self, sizes: Iterable[Size] = ()) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.sizes: list[Size] = [*sizes]
        self._fresh = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self) -> str:
        """A name that nothing has yet."""
        self._fresh += 1
        return f"t{self._fresh}"

    def number(self, value: Number) -> str:
        """A literal, or the name of what each call chooses."""
        if isinstance(value, int):
            return str(value)
        if value not in self.sizes:
            self.sizes.append(value)
        return f"n{self.sizes.index(value)}"


def index_text(
    index: Index,
    axis: Callable[[Axis], str],
    inner: Callable[[Index], str],
    data: Callable[[Expr], str],
    number: Callable[[Number], str] = str,
) -> str:
    """``index`` as an expression; ``axis`` names an axis, ``inner`` prints what is divided, and
    ``data`` a position that is a value; ``number`` prints coefficients and the like."""
    parts = []
    for atom, c in index.terms.items():
        if isinstance(atom, Axis):
            text = axis(atom)
        elif isinstance(atom, Lookup):
            text = data(atom.value)
        else:
            symbol = "%" if atom.remainder else "//"
            text = f"({inner(atom.dividend)} {symbol} {number(atom.divisor)})"
        parts.append(text if c == 1 else f"{text} * {number(c)}")
    if index.const or not parts:
        parts.append(number(index.const))
    return f"({' + '.join(parts)})" if len(parts) > 1 else parts[0]
