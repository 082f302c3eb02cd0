"""Sizes in the text of a generated function: what is computed of them, once in each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastpath.given import bits
from fastpath.ir.program import Scalar
from fastpath.ir.size import Assumptions, Number, Unknown, text_of
from refcompiler.aot.inputs import Unsupported
from refcompiler.shapes.text import NAMES, python


class Numbers:
    """Writes ``lines``, with which a call begins, as its text asks for sizes.

    ``names``: of the function's globals, which get those that the lines take; ``literal``: the text
    of an operator's number that depends on data.
    """

    def __init__(self, sizes: Assumptions, names: dict[str, Any], literal: Callable[[Scalar], str]):
        self.sizes, self.names, self._literal = sizes, names, literal
        self.lines: list[str] = []
        self._known: dict[str, str] = {}  # text -> variable

    def text(self, value: Number) -> str:
        """A literal, or the variable that has a size's value in the call."""
        if isinstance(value, int):
            return str(value)
        return self.variable(text_of(value, self.unknown))

    def texts(self, values: Sequence[Number]) -> str:
        """The tuple of them."""
        return f"({''.join(f'{self.text(n)}, ' for n in values)})"

    def variable(self, text: str) -> str:
        """The variable for a number that is computed as the call begins."""
        if text.isidentifier() or text.isdigit():
            return text
        if text not in self._known:
            name = self._known[text] = f"z{len(self._known)}"
            self.lines.append(f"{name} = {text}")
        return self._known[text]

    def unknown(self, unknown: Unknown) -> str:
        source = self.sizes.sources.get(unknown)
        if source is not None:
            return self.variable(source)
        if unknown.definition is None:
            raise Unsupported(f"the size {unknown}, which no input has")
        expr, parts = unknown.definition
        if isinstance(expr, Scalar):
            self.names["bits"] = bits
            within = "" if parts is None else f", {parts!r}"
            return self.variable(f"bits({self._literal(expr)}{within})")
        self.names.update(NAMES)
        return self.variable(python(expr, lambda symbol: self.unknown(parts[symbol])))

    def checked(self, given: str) -> list[str]:
        """Lines that leave calls which the program is not made for to ``otherwise``, a name of the
        function's; ``given``: its arguments."""
        if not self.sizes.conditions:
            return []
        holds = " and ".join(dict.fromkeys(c.text(self.text) for c in self.sizes.conditions))
        values = "".join(f"{self.unknown(u)}, " for u in self.sizes.sources)
        return [f"if not ({holds}): return otherwise(({values}), {given})"]
