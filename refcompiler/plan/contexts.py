"""Context variables: sets and resets that are replayed, contexts and tokens that are made again.

A token comes only from a ``set``, and its ``reset`` only works in the context of that. So a context
that the frame has made is given what it had at first, and each set and reset again, in their order.
"""

from __future__ import annotations

from contextvars import Context, ContextVar, Token, copy_context
from typing import Any

from refcompiler.capture.state.contexts import Scope, Set
from refcompiler.interpreter.frame import UNSET
from refcompiler.plan.writing import Writing


class ContextVariables(Writing):
    """What a frame did with context variables."""

    def set_contexts(self) -> None:
        """Sets and resets in contexts from outside, whose tokens may be used further on."""
        contexts = self.machine.contexts
        changes = contexts.changes()
        if changes:
            for made, scope in contexts.scopes.values():
                if scope.own:  # a copy of what was before
                    self.expression(made)
        for scope, resets, token in changes:
            self._in(self._entering(scope), resets, token)

    def context(self, value: Context) -> str:
        """One that the frame has made: a copy of what lies below it, and what was set in it."""
        scope = self.machine.contexts.scope_of(value)
        if scope.below is UNSET:
            made = f"{self.writer.constant(Context)}()"
        elif scope.below is None:
            made = f"{self.writer.constant(copy_context)}()"
        else:
            made = f"{self.writer.read(scope.below)}.copy()"
        name = self.assign(value, made)
        for var, item in scope.first.items():
            if item is not Token.MISSING:
                self.lines.append(f"{name}.run({self._set(var)}, {self.expression(item)})")
        for resets, token in scope.log:
            self._in(f"{name}.run", resets, token)
        return name

    def token(self, value: Set) -> str:
        """Of a set that no line has made so far: its context does it, or it was undone."""
        if value.scope.own:
            self.expression(self.machine.contexts.context_of(value.scope))
            return self.names[id(value)]
        for resets in (False, True):
            self._in(self._entering(value.scope), resets, value)
        return self.names[id(value)]

    def _set(self, var: ContextVar) -> str:
        source: Any = self.machine.source_of(var)
        return f"{self.writer.read(source)}.set"

    def _entering(self, scope: Scope) -> str | None:
        """What calls a function in a context from outside."""
        return None if scope.below is None else f"{self.writer.read(scope.below)}.run"

    def _in(self, run: str | None, resets: bool, token: Set | Token) -> None:
        """One set or reset, called by ``run``, or in the context in which the plan runs."""
        method = self._set(token.var)
        given = self.expression(token if resets else token.value)  # type: ignore[union-attr]
        if resets:
            method = method.removesuffix("set") + "reset"
        call = f"{method}({given})" if run is None else f"{run}({method}, {given})"
        if resets:
            self.lines.append(call)
        else:
            self.assign(token, call)
