"""The text of a generated function: constants, the names of values, and the function itself."""

from __future__ import annotations

import itertools
import linecache
import re
import sys
from collections.abc import Callable
from typing import Any

from refcompiler.capture.lookup import is_heap
from refcompiler.guards.held import Gone, Held
from refcompiler.guards.kinds import NAMESPACE
from refcompiler.guards.sources import Source

_NAME = re.compile(r"__c\d+_\w+")
_LITERALS = (int, bool, type(None), str)
#: One object for each value, whoever makes it: small integers, and texts that CPython interns.
_SMALL = range(-5, 257)
_WORD = re.compile(r"[A-Za-z0-9_]{0,100}")
_numbers = itertools.count()


def _is_one(value: Any) -> bool:
    """Whether any literal of this value is this object."""
    if type(value) is int:
        return value in _SMALL
    if type(value) is str:
        return _WORD.fullmatch(value) is not None and sys.intern(value) is value
    return value is None or type(value) is bool


class Writer:
    """``constant`` and ``read`` give the names under which a function knows values.

    ``needed``: the sources whose values it reads at its entry, in order.
    """

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = dict(NAMESPACE)
        self.needed: dict[Source, None] = {}
        self.gone = Gone()
        self.held: dict[str, Held] = {}  # the names of what may die
        self._constants: dict[int, str] = {}
        self._names: dict[Source, str] = {}
        self._count = itertools.count()

    def constant(self, value: Any) -> str:
        """A literal, or the name of a global of the generated function."""
        if type(value) in _LITERALS and not (type(value) is int and value.bit_length() > 512):
            text = repr(value)
            if len(text) < 200:
                return text
        return self.object(value)

    def object(self, value: Any) -> str:
        """The name under which the function knows ``value``, which a program may tell from equals.

        A literal where there is one such object only.
        """
        if _is_one(value):
            return repr(value)
        name = self._constants.get(id(value))
        if name is None and self.held:
            name = next((name for name, held in self.held.items() if held() is value), None)
        if name is None:
            stem = _name_of(value)
            stem = "".join(c if c.isalnum() else "_" for c in str(stem))[:24]
            name = f"__c{next(self._count)}_{stem}"
            self._constants[id(value)] = name
            self.namespace[name] = value
        return name

    def hold(self, value: Any) -> Held:
        """From now on functions that are printed know ``value`` by a weak reference."""
        for held in self.held.values():
            if held() is value:
                return held
        name = self.constant(value)
        del self._constants[id(value)]
        held = self.held[name] = Held(value, self.gone)
        self._constants[id(held)] = name
        # functions that were printed before may be running
        self.namespace = {**self.namespace, f"{name}_": held.reference}
        del self.namespace[name]
        return held

    def holding(self, lines: list[str]) -> list[str]:
        """The statements before ``lines`` by which a call holds what they name."""
        used = set(_NAME.findall("\n".join(lines))).intersection(self.held)
        names = [name for name in self.held if name in used]
        if not names:
            return []
        gone = " or ".join([f"{name} is None" for name in names])
        return [*[f"{name} = {name}_()" for name in names], f"if {gone}: return __MISS"]

    def name(self, source: Source) -> str:
        """The variable of the value at ``source``."""
        found = self._names.get(source)
        if found is None:
            found = self._names[source] = f"__s{len(self._names)}"
        return found

    def read(self, source: Source) -> str:
        """The text of the value at ``source``, which the function reads at its entry."""
        if source.kind in ("arg", "const", "space"):
            return source.expression("", self.constant)
        self.needed[source] = None
        return self.name(source)

    def function(self, parameters: list[str], lines: list[str], title: str) -> Callable:
        """Compile ``def plan(parameters): lines``; its text is kept for tracebacks and people."""
        header = [f"def plan({', '.join(parameters)}):"]
        text = "\n".join(header + ["    " + line for line in lines]) + "\n"
        filename = f"<refcompiler plan {next(_numbers)}: {title}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
        made: dict[str, Any] = {}
        exec(compile(text, filename, "exec"), self.namespace, made)
        function = made["plan"]
        function.source = text
        return function


def _name_of(value: Any) -> str:
    """The name of a class or function, else of the class, without asking the program's code."""
    kind = type(value)
    if issubclass(kind, type):
        return type.__dict__["__name__"].__get__(value)
    found = None if is_heap(kind) else getattr(value, "__name__", None)
    return found if isinstance(found, str) else kind.__name__
