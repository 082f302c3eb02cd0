"""The text of a generated function: constants, values read through sources, and lines."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable
from typing import Any

from refcompiler.guards.kinds import KINDS, NAMESPACE, Guard
from refcompiler.guards.sources import Source

_LITERALS = (int, bool, type(None), str)
_numbers = itertools.count()


class Writer:
    """Collects lines; ``constant`` and ``read`` give the names under which values are known."""

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = dict(NAMESPACE)
        self.lines: list[str] = []
        self.checks: list[tuple[Guard, str]] = []  # each guard, and the line that checks it
        self._constants: dict[int, str] = {}
        self._sources: dict[Source, str] = {}

    def constant(self, value: Any) -> str:
        """A literal, or the name of a global of the generated function."""
        if type(value) in _LITERALS:
            text = repr(value)
            if len(text) < 200:
                return text
        name = self._constants.get(id(value))
        if name is None:
            stem = getattr(value, "__name__", type(value).__name__)
            stem = "".join(c if c.isalnum() else "_" for c in str(stem))[:24]
            name = f"__c{len(self._constants)}_{stem}"
            self._constants[id(value)] = name
            self.namespace[name] = value
        return name

    def read(self, source: Source) -> str:
        """The name of the value at ``source``, read once."""
        name = self._sources.get(source)
        if name is None:
            parent = self.read(source.parent) if source.parent is not None else ""
            text = source.expression(parent, self.constant)
            if source.kind in ("arg", "const"):
                name = text
            else:
                name = f"__s{len(self._sources)}"
                self.lines.append(f"{name} = {text}  # {source}"[:200].replace("\n", " "))
            self._sources[source] = name
        return name

    def check(self, guard: Guard) -> None:
        """A line that leaves the function when ``guard`` fails."""
        name = self.read(guard.source) if guard.source is not None else ""
        condition = KINDS[guard.kind].text(name, guard.wanted(self.read), self.constant)
        if condition != "True":
            self.lines.append(f"if {_failing(condition)}: return __MISS")
            self.checks.append((guard, self.lines[-1]))

    def take(self) -> list[str]:
        """The lines so far; the next ones start afresh."""
        lines, self.lines = self.lines, []
        return lines

    def function(self, parameters: list[str], lines: list[str], title: str) -> Callable:
        """Compile ``def plan(parameters): lines``; its text is kept for tracebacks and people."""
        header = [f"def plan({', '.join(parameters)}):"]
        text = "\n".join(header + ["    " + line for line in lines]) + "\n"
        filename = f"<refcompiler plan {next(_numbers)}: {title}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
        exec(compile(text, filename, "exec"), self.namespace)
        function = self.namespace["plan"]
        function.source = text
        return function


def _failing(condition: str) -> str:
    """The opposite of ``condition``; a plain comparison is turned around, which compiles faster."""
    words = condition.split(" ")  # a text with blanks in it would be more words than these
    match words:
        case [a, "is", b]:
            return f"{a} is not {b}"
        case [a, "is", "not", b]:
            return f"{a} is {b}"
        case [a, "not", "in", b]:
            return f"{a} in {b}"
        case ["not", a]:
            return a
        case [a, "is", b, "and", c, "is", d]:
            return f"{a} is not {b} or {c} is not {d}"
    return f"not ({condition})"
