"""What the printers share: lines of Python, fresh names, and positions as arithmetic."""

from __future__ import annotations

from collections.abc import Callable

from fastpath.ir.expr import Expr
from fastpath.ir.index import Axis, Index, Lookup, Number


class Lines:
    """The body of a function, as it is printed line by line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self._fresh = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self) -> str:
        """A name that nothing has yet."""
        self._fresh += 1
        return f"t{self._fresh}"


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
