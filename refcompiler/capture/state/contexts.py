"""Context variables: read through guards, set after the graph.

Source of the rules: the documentation of ``contextvars`` and PEP 567.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import Context, ContextVar, Token
from typing import Any

from refcompiler.capture.signals import Break
from refcompiler.guards.sources import NOT_SET
from refcompiler.interpreter.frame import UNSET


class Set:
    """The token of a ``set`` that the frame has made; ``value`` is what it set."""

    __slots__ = ("var", "old_value", "value", "used")

    def __init__(self, var: ContextVar, old_value: Any, value: Any):
        self.var = var
        self.old_value = old_value
        self.value = value
        self.used = False


class Contexts:
    """The context variables that one capture has met. ``now`` is what it has set."""

    def __init__(self, machine: Any):
        self.machine = machine
        self.now: dict[ContextVar, Any] = {}
        self.log: list[tuple[bool, Set | Token]] = []  # whether it is a reset, and of what

    def call(self, var: ContextVar, name: str, args: Sequence, kwargs: Mapping) -> Any:
        """A method of ``var``."""
        machine = self.machine
        source = machine.source_of(var)
        machine.guard("ID", source, var)
        if kwargs or name not in ("get", "set", "reset") or len(args) > 1:
            raise Break("c-function", f"ContextVar.{name}")
        if name == "get":
            found = self.read(var, source)
            if found is not Token.MISSING:
                return found
            if args:
                return args[0]
            default = Context().run(var.get)  # or the LookupError
            return machine.lazy(machine.sources.make("context_default", source), default)
        if name == "set":
            made = Set(var, self.read(var, source), machine.force(args[0]))
            self.now[var] = made.value
            self.log.append((False, made))
            return made
        token = machine.force(args[0])
        if type(token) is Token:
            self.reset_to(token, var, source)
            return None
        if type(token) is not Set:
            raise TypeError(f"expected an instance of Token, got {token!r}")
        if token.used:
            raise RuntimeError(f"{token!r} has already been used once")
        if token.var is not var:
            raise ValueError(f"{token!r} was created by a different ContextVar")
        token.used = True
        self.now[var] = token.old_value
        self.log.append((True, token))
        return None

    def reset_to(self, token: Token, var: ContextVar, source: Any) -> None:
        """Undo a ``set`` that was made before the graph."""
        if token.var is not var or repr(token).startswith("<Token used"):
            raise Break("c-function", "ContextVar.reset to a token that it refuses")
        machine = self.machine
        given = machine.source_of(token)
        machine.guard("SAME", machine.member(given, "var"), source)
        old = machine.member(given, "old_value")
        self.now[var] = token.old_value
        if token.old_value is Token.MISSING:
            machine.guard("ID", old, Token.MISSING)
        else:
            self.now[var] = machine.lazy(old, token.old_value)
        self.log.append((True, token))

    def read(self, var: ContextVar, source: Any) -> Any:
        """The value of ``var``, or ``Token.MISSING``."""
        machine = self.machine
        found = self.now.get(var, UNSET)
        if found is not UNSET:
            return found
        place = machine.sources.make("context", source)
        value = var.get(NOT_SET)
        lazy = machine.lazy(place, value)
        if value is NOT_SET:
            machine.guard("ID", place, NOT_SET)
            return Token.MISSING
        nothing = machine.sources.make("const", None, NOT_SET)
        machine.guard("DISTINCT", place, nothing)  # also where the value only passes through
        return lazy

    def changes(self) -> list[tuple[bool, Set | Token]]:
        """What to replay: nothing where each ``set`` was followed by its ``reset``."""
        undone = all(type(token) is Set and token.used for _, token in self.log)
        return [] if undone else self.log
